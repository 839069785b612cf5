/* All elements over a device: as they are, through page-locked memory and the host's all-reduce; or
 * as matrices of low rank, of which only P and Q travel so. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "engine/device.h"

/* --- every element ---------------------------------------------------------------------------- */

float *weir_on_device_lost(const weir_group *group) {
  return group->plan.codec == WEIR_CODEC_BF16 ? group->engine->device->lost + group->at : NULL;
}

static weir_status run_whole(weir_group *group, const weir_allreduce *allreduce,
                             weir_notes *notes) {
  const weir_on_device *on = group->engine->device;
  float *const whole = on->whole + group->at, *const lost = weir_on_device_lost(group);
  weir_status status = weir_on_device_begin(group);
  if (status != WEIR_OK) return status;
  if (lost != NULL) memset(lost, 0, group->n * sizeof *lost);
  weir_lap_compress(group);
  status = allreduce->run(group->engine->config.comm, whole, group->n,
                          lost != NULL ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32, lost, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  status = weir_on_device_status(on, on->ops->store(on->device, group->number, lost, whole));
  group->settled = status == WEIR_OK;
  weir_lap_compress(group);
  return status;
}

/* --- low rank --------------------------------------------------------------------------------- */

/* Where Q will be. */
void weir_on_device_columns(const weir_group *group) {
  const weir_warm *warm = &group->engine->warm;
  weir_thin t = {0};
  for (size_t i = 0; i < group->layout.tensors; i++) {
    weir_lowrank_tensor(group, i, &t);
    for (size_t k = 0; k < weir_powersgd_rank(group->plan.cr) && !t.whole; k++)
      memcpy(group->value + t.q + k * t.columns, warm->q + k * warm->columns + warm->at[t.tensor],
             t.columns * sizeof(float));
  }
}

static void spoil(const weir_group *group) {
  weir_thin t = {0};
  for (size_t i = 0; i < group->layout.tensors; i++) {
    weir_lowrank_tensor(group, i, &t);
    if (!t.whole) (void)weir_lowrank_spoilt(group, &t);
  }
}

/* Between the two sums: the common columns, which ranks make alike wherever they compute, then this
 * rank's Q.  Of a rank whose e is not finite, zeros. */
static weir_status project_back(weir_group *group) {
  const weir_on_device *on = group->engine->device;
  weir_thin t = {0};
  for (size_t i = 0; i < group->layout.tensors; i++) {
    weir_lowrank_tensor(group, i, &t);
    if (!t.whole)
      weir_powersgd_orthogonalise(group->value + t.p, t.rows, weir_powersgd_rank(group->plan.cr));
  }
  if (!group->finite) {
    memset(group->value + group->first_sum, 0, (group->kept - group->first_sum) * sizeof(float));
    return WEIR_OK;
  }
  const weir_status status =
      weir_on_device_status(on, on->ops->project_back(on->device, group->number, group->value));
  if (status != WEIR_OK) return weir_engine_blame(group->engine, group->engine->rank, status);
  group->passage.kept_square =
      fmax(group->passage.moments.sum_square - group->told->other.sum_square, 0);
  return WEIR_OK;
}

static weir_status run_thin(weir_group *group, const weir_allreduce *allreduce, weir_notes *notes) {
  const size_t first = group->first_sum;
  weir_status status = weir_on_device_begin(group);
  if (status != WEIR_OK) return status;
  if (group->finite) spoil(group);
  weir_lap_compress(group);
  status = weir_lowrank_sum_first(group, allreduce);
  weir_lap_comm(group);
  if (status == WEIR_OK) status = project_back(group);
  weir_lap_compress(group);
  if (status != WEIR_OK) return status;
  status = allreduce->run(group->engine->config.comm, group->value + first, group->kept - first,
                          WEIR_VALUE_FP32, NULL, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  if (group->late) group->overflow = weir_lowrank_is_large(group);
  group->settled = true;
  weir_lap_compress(group);
  return WEIR_OK;
}

/* --- both ------------------------------------------------------------------------------------- */

weir_status weir_on_device_dense(weir_group *group, const weir_allreduce *allreduce,
                                 weir_notes *notes) {
  return weir_on_device_kind(group) == WEIR_DEVICE_THIN ? run_thin(group, allreduce, notes)
                                                        : run_whole(group, allreduce, notes);
}

weir_status weir_on_device_publish_dense(weir_group *group, float share) {
  const weir_on_device *on = group->engine->device;
  if (weir_on_device_kind(group) == WEIR_DEVICE_THIN) {
    const weir_status status =
        weir_on_device_status(on, on->ops->expand(on->device, group->number, group->value));
    if (status != WEIR_OK) return status;
  }
  return weir_on_device_publish(group, share);
}

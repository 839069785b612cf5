/* One group's way over a device: what exchange_*.c do, with the device's operations. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/trace.h"
#include "engine/device.h"

/* --- compressing ------------------------------------------------------------------------------ */

static weir_status compress(weir_group *group) {
  weir_engine *engine = group->engine;
  const weir_on_device *on = engine->device;
  const bool gathers = group->way == WEIR_WAY_AG;
  /* The root's list: the turn's, or that of any rank, which may turn out to be the root. */
  const bool lists =
      group->way == WEIR_WAY_ART &&
      (group->plan.codec == WEIR_CODEC_VAR || weir_art_root(group) == engine->rank) &&
      weir_codec_find(group->plan.codec)->draw == NULL;
  unsigned char *const message = gathers ? group->blocks + (size_t)engine->rank * group->stride
                                 : lists ? group->blocks + weir_on_device_list_at(group)
                                         : NULL;
  const weir_device_kind kind = weir_on_device_kind(group);
  if (kind == WEIR_DEVICE_THIN) weir_on_device_columns(group);
  weir_device_task task = {
      .g = engine->submitted,
      .seed = weir_ag_seed(group),
      .message = message,
      .values = kind == WEIR_DEVICE_WHOLE  ? on->whole + group->at
                : kind == WEIR_DEVICE_THIN ? group->value
                                           : NULL,
      .bins = engine->curve_wanted ? on->bins + group->number * WEIR_DEVICE_BINS : NULL,
      .bins_stride = 1, /* a sample would miss the largest, and a device need not spare itself */
      .told = weir_velocity_told(group) && !engine->in_trial};
  weir_on_device_look(group, &task);
  return weir_on_device_status(on, on->ops->compress(on->device, group->number, &task));
}

void weir_on_device_ready(weir_group *group) {
  memset(&group->passage, 0, sizeof group->passage);
  group->told = NULL;
  group->settled = false;
  group->engine->device->in_flight = true;
  weir_trace_begin("compress", group->number);
  group->status = compress(group);
  weir_trace_end();
  if (group->status != WEIR_OK)
    (void)snprintf(group->text, sizeof group->text, "%s", weir_last_error());
}

/* What a rank sends whose e is not finite: zeros, as the host does.  The step will not count. */
static weir_status send_zeros(weir_group *group) {
  const weir_engine *engine = group->engine;
  weir_status status = WEIR_OK;
  const weir_device_kind kind = weir_on_device_kind(group);
  if (kind == WEIR_DEVICE_WHOLE)
    memset(engine->device->whole + group->at, 0, group->n * sizeof(float));
  if (kind == WEIR_DEVICE_THIN) memset(group->value, 0, group->first_sum * sizeof(float));
  if (group->way == WEIR_WAY_AG) {
    group->fed = engine->spare + group->at; /* zero, and stays so */
    status = weir_exchanges[WEIR_WAY_AG].prepare(group);
  }
  return status;
}

weir_status weir_on_device_await(weir_group *group) {
  const weir_on_device *on = group->engine->device;
  weir_passage *passage = &group->passage;
  if (group->told != NULL) return WEIR_OK;
  if (group->status != WEIR_OK) return weir_fail(group->status, "%s", group->text);
  const weir_device_told *told = NULL;
  const weir_status status =
      weir_on_device_status(on, on->ops->await(on->device, group->number, &told));
  if (status != WEIR_OK) return status;
  group->told = told;
  group->finite = told->moments.nonfinite == 0 && isfinite(told->moments.sum_square);
  if (!group->finite) return send_zeros(group);
  if (told->fault != 0)
    return weir_fail(WEIR_E_INTERNAL, "the device finds its own message malformed");
  passage->moments = told->moments;
  group->block_bytes[group->engine->rank] = told->bytes;
  if (group->way == WEIR_WAY_DENSE)
    passage->kept_square = told->moments.sum_square;
  else if (weir_codec_find(group->plan.codec)->encode != NULL)
    passage->kept_square = fmax(told->moments.sum_square - told->other.sum_square, 0);
  else
    passage->kept_square = told->other.sum_square;
  return WEIR_OK;
}

weir_status weir_on_device_begin(weir_group *group) {
  const weir_status status = weir_on_device_await(group);
  weir_lap_compress(group);
  return status == WEIR_OK ? WEIR_OK
                           : weir_engine_blame(group->engine, group->engine->rank, status);
}

weir_status weir_on_device_publish(weir_group *group, float share) {
  const weir_on_device *on = group->engine->device;
  return weir_on_device_status(
      on, on->ops->publish(on->device, group->number, group->engine->submitted, share));
}

/* --- messages of all ranks -------------------------------------------------------------------- */

static weir_status run_ag(weir_group *group, const weir_allreduce *allreduce, weir_notes *notes) {
  (void)allreduce;
  weir_status status = weir_on_device_begin(group);
  if (status != WEIR_OK) return status;
  status = weir_allgather(group->engine->config.comm, group->blocks, group->stride,
                          group->block_bytes, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  weir_ag_count(group);
  /* The host looks at them: whose is malformed is then known without waiting, and where all of the
   * gradient is one group, devices and hosts drop the same steps. */
  status = weir_ag_look_through(group);
  if (!group->late) group->overflow = false; /* the sum itself will tell */
  weir_lap_compress(group);
  return status;
}

static weir_status publish_ag(weir_group *group, float share) {
  const weir_engine *engine = group->engine;
  const weir_on_device *on = engine->device;
  weir_status status = WEIR_OK;
  for (int r = 0; r < engine->size && status == WEIR_OK; r++)
    status = weir_on_device_status(
        on, on->ops->decode(on->device, group->number, group->blocks + (size_t)r * group->stride,
                            group->block_bytes[r], r == 0));
  return status == WEIR_OK ? weir_on_device_publish(group, share) : status;
}

/* --- after a loss ----------------------------------------------------------------------------- */

/* What is gathered was taken off before it went out, and what a Q sends, too.  Should the device
 * fail here the next wait says so. */
void weir_on_device_settle(weir_group *group) {
  weir_on_device *on = group->engine->device;
  if (group->settled || group->told == NULL) return;
  on->in_flight = true;
  if (weir_on_device_kind(group) == WEIR_DEVICE_WHOLE)
    (void)on->ops->store(on->device, group->number, weir_on_device_lost(group), NULL);
  else if (group->way == WEIR_WAY_ART)
    (void)on->ops->settle(on->device, group->number, group->error, NULL);
  group->settled = true;
}

/* What compressing is to do, the device knows from its own kinds. */
const weir_exchange weir_on_device_exchanges[WEIR_WAY_COUNT] = {
    [WEIR_WAY_DENSE] = {NULL, weir_on_device_dense, weir_on_device_publish_dense},
    [WEIR_WAY_AG] = {NULL, run_ag, publish_ag},
    [WEIR_WAY_ART] = {NULL, weir_on_device_art, weir_on_device_publish},
};

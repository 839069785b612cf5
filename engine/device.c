/* A device's life in an engine, and what the whole step does on it; groups are in
 * device_groups.c. */
#include "engine/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

weir_status weir_on_device_status(const weir_on_device *on, weir_status status) {
  return status == WEIR_OK ? WEIR_OK : weir_fail(status, "%s", on->ops->last_error());
}

/* --- life ------------------------------------------------------------------------------------- */

weir_status weir_on_device_open(weir_engine *engine) {
  const weir_engine_config *config = &engine->config;
  const weir_device_ops *ops = config->device_ops;
  weir_on_device *on = calloc(1, sizeof *on);
  if (on == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a device");
  on->ops = ops;
  on->thin = calloc(engine->layout.tensors + 1, sizeof *on->thin);
  const weir_status status =
      on->thin == NULL
          ? weir_fail(WEIR_E_NOMEM, "no memory for a device")
          : weir_on_device_status(
                on, ops->create(config->device, config->stream, engine->n, (float)config->momentum,
                                config->device_timeout_s, &on->device));
  if (status != WEIR_OK) {
    free(on->thin);
    free(on);
    return status;
  }
  engine->device = on;
  return weir_on_device_open_looks(engine);
}

void weir_on_device_close(weir_engine *engine) {
  weir_on_device *on = engine->device;
  if (on == NULL) return;
  weir_on_device_close_looks(engine);
  on->ops->unpin(on->device, on->bins);
  on->ops->unpin(on->device, on->lost);
  on->ops->unpin(on->device, on->whole);
  on->ops->free(on->device);
  free(on->overflow);
  free(on->groups);
  free(on->thin);
  free(on);
  engine->device = NULL;
}

weir_status weir_on_device_accepts(const weir_plan *plan) {
  const weir_way_row *row = &weir_ways[plan->collective];
  if (row->way == WEIR_WAY_HITOPK || row->way == WEIR_WAY_COMPRESSED)
    return weir_fail(WEIR_E_UNSUPPORTED, "collective %s does not run on a device yet", row->name);
  return WEIR_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

unsigned char *weir_on_device_arena(const weir_engine *engine, size_t bytes) {
  const weir_on_device *on = engine->device;
  void *memory = NULL;
  return on->ops->pin(on->device, bytes, &memory) == WEIR_OK ? memory : NULL;
}

void weir_on_device_free_arena(const weir_engine *engine, unsigned char *arena) {
  const weir_on_device *on = engine->device;
  on->ops->unpin(on->device, arena);
}

weir_device_kind weir_on_device_kind(const weir_group *group) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  if (group->way == WEIR_WAY_DENSE)
    return codec->low_rank && !group->whole ? WEIR_DEVICE_THIN : WEIR_DEVICE_WHOLE;
  if (group->way == WEIR_WAY_ART) return codec->draw != NULL ? WEIR_DEVICE_DRAWN : WEIR_DEVICE_LIST;
  return codec->encode != NULL ? WEIR_DEVICE_ENCODE : WEIR_DEVICE_SELECT;
}

static weir_device_group shape_of(const weir_on_device *on, const weir_group *group) {
  const weir_device_kind kind = weir_on_device_kind(group);
  const bool picks = kind != WEIR_DEVICE_ENCODE && kind != WEIR_DEVICE_WHOLE;
  weir_thin *const thin = on->thin + group->first;
  for (size_t t = 0; t < group->layout.tensors && kind == WEIR_DEVICE_THIN; t++) {
    thin[t] = t > 0 ? thin[t - 1] : (weir_thin){0};
    weir_lowrank_tensor(group, t, &thin[t]);
  }
  return (weir_device_group){.kind = kind,
                             .codec = group->plan.codec,
                             .cr = group->plan.cr,
                             .wire = (weir_wire_format)group->plan.wire,
                             .layout = group->layout,
                             .at = group->at,
                             .n = group->n,
                             .kept = picks ? group->kept : 0,
                             .stride = group->stride,
                             .tensors_at = group->first,
                             .thin = thin,
                             .rank = weir_powersgd_rank(group->plan.cr),
                             .first_sum = group->first_sum};
}

/* Page-locked memory at *memory, unless there is some already. */
static weir_status pin_once(const weir_on_device *on, size_t bytes, float **memory) {
  void *made = NULL;
  if (*memory != NULL) return WEIR_OK;
  const weir_status status = weir_on_device_status(on, on->ops->pin(on->device, bytes, &made));
  if (status == WEIR_OK) *memory = made;
  return status;
}

static weir_status grow(weir_on_device *on, size_t count) {
  if (count <= on->capacity) return WEIR_OK;
  weir_device_group *groups = realloc(on->groups, count * sizeof *groups);
  if (groups != NULL) on->groups = groups;
  bool *overflow = realloc(on->overflow, count * sizeof *overflow);
  if (overflow != NULL) on->overflow = overflow;
  if (groups == NULL || overflow == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for a plan of %zu groups", count);
  on->capacity = count;
  return WEIR_OK;
}

/* For gradients that go to the host whole, and for gain curves. */
static weir_status pin_more(weir_engine *engine, const weir_group_set *set) {
  weir_on_device *on = engine->device;
  const size_t bytes = engine->n * sizeof(float);
  weir_status status = WEIR_OK;
  for (size_t k = 0; k < set->count && status == WEIR_OK; k++) {
    if (weir_on_device_kind(&set->group[k]) != WEIR_DEVICE_WHOLE) continue;
    status = pin_once(on, bytes, &on->whole);
    if (status == WEIR_OK && set->group[k].plan.codec == WEIR_CODEC_BF16)
      status = pin_once(on, bytes, &on->lost);
  }
  if (status != WEIR_OK || engine->curve == NULL || set->count <= on->bins_groups) return status;
  void *bins = NULL;
  status =
      weir_on_device_status(on, on->ops->pin(on->device, set->count * WEIR_DEVICE_BINS, &bins));
  if (status != WEIR_OK) return status;
  on->ops->unpin(on->device, on->bins);
  on->bins = bins;
  on->bins_groups = set->count;
  return WEIR_OK;
}

weir_status weir_on_device_reserve(weir_engine *engine, const weir_group_set *set) {
  weir_on_device *on = engine->device;
  weir_status status = grow(on, set->count);
  if (status == WEIR_OK) status = pin_more(engine, set);
  if (status != WEIR_OK) return status;
  for (size_t k = 0; k < set->count; k++) on->groups[k] = shape_of(on, &set->group[k]);
  return weir_on_device_status(
      on, on->ops->reserve(on->device, on->groups, set->count, (size_t)engine->size));
}

weir_status weir_on_device_check(const weir_engine *engine, const float *gradient) {
  const weir_on_device *on = engine->device;
  return weir_on_device_status(on, on->ops->check(on->device, gradient));
}

/* --- a step as a whole ------------------------------------------------------------------------ */

static weir_status make_curve(weir_engine *engine) {
  const weir_on_device *on = engine->device;
  for (size_t k = 1; k < engine->set.count; k++)
    on->ops->add_bins(on->bins, on->bins + k * WEIR_DEVICE_BINS);
  return weir_on_device_status(on, on->ops->curve(on->bins, engine->n, engine->curve));
}

weir_status weir_on_device_note(weir_engine *engine) {
  weir_group *last = &engine->set.group[engine->set.count - 1];
  weir_status status = weir_on_device_await(last);
  if (status == WEIR_OK && engine->curve_wanted) status = make_curve(engine);
  if (status == WEIR_OK) weir_on_device_show(engine);
  return status == WEIR_OK ? WEIR_OK : weir_engine_blame(engine, engine->rank, status);
}

weir_status weir_on_device_finish(weir_engine *engine) {
  weir_on_device *on = engine->device;
  const weir_status status = weir_on_device_status(on, on->ops->finish(on->device, on->overflow));
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  on->in_flight = false;
  for (size_t k = 0; k < engine->set.count; k++)
    if (on->overflow[k]) engine->set.group[k].overflow = true;
  return WEIR_OK;
}

weir_status weir_on_device_zero(weir_engine *engine) {
  const weir_on_device *on = engine->device;
  const size_t *offset = engine->layout.offset;
  weir_status status = WEIR_OK;
  for (size_t t = 0; t < engine->layout.tensors && status == WEIR_OK; t++)
    if (offset[t + 1] > offset[t])
      status = weir_on_device_status(
          on, on->ops->zero(on->device, engine->submitted[t], offset[t + 1] - offset[t]));
  return status;
}

/* Whether this succeeds no longer matters to the step; the next one will tell. */
void weir_on_device_rest(weir_engine *engine) {
  weir_on_device *on = engine->device;
  if (on->in_flight) (void)on->ops->finish(on->device, on->overflow);
  on->in_flight = false;
}

void weir_on_device_commit(weir_engine *engine) {
  weir_on_device_rest(engine); /* of a step that failed here, what was settled after it */
  engine->device->ops->commit(engine->device->device);
}

weir_status weir_on_device_keep_room(const weir_engine *engine) {
  const weir_on_device *on = engine->device;
  return weir_on_device_status(on, on->ops->keep_room(on->device));
}

/* Queued: a fault of the device's shows at the next wait. */
void weir_on_device_keep(weir_engine *engine, bool restore) {
  (void)engine->device->ops->keep(engine->device->device, restore);
}

float *weir_on_device_residual(const weir_engine *engine) {
  const weir_on_device *on = engine->device;
  if (on->ops->save(on->device, engine->residual) != WEIR_OK)
    for (size_t i = 0; i < engine->n; i++) engine->residual[i] = NAN;
  return engine->residual;
}

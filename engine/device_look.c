/* What the host wants to see of a gradient on a device (hooks look and seen): parts of e come to
 * page-locked memory with the group's message, and nobody waits for them alone. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "engine/device.h"

weir_status weir_on_device_open_looks(weir_engine *engine) {
  weir_on_device *on = engine->device;
  const size_t tensors = engine->layout.tensors, room = engine->config.hooks.look_room;
  void *looks = NULL, *seen = NULL;
  if (engine->config.hooks.look == NULL) return WEIR_OK;
  on->looked = calloc(tensors + 1, sizeof *on->looked);
  if (on->looked == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory to look at %zu tensors", tensors);
  weir_status status = weir_on_device_status(
      on, on->ops->pin(on->device, (tensors + 1) * sizeof *on->looks, &looks));
  on->looks = looks;
  if (status == WEIR_OK)
    status = weir_on_device_status(on, on->ops->pin(on->device, room * sizeof *on->seen, &seen));
  on->seen = seen;
  return status;
}

void weir_on_device_close_looks(weir_engine *engine) {
  weir_on_device *on = engine->device;
  on->ops->unpin(on->device, on->seen);
  on->ops->unpin(on->device, on->looks);
  free(on->looked);
}

void weir_on_device_look(weir_bucket *bucket, weir_device_task *task) {
  const weir_engine_hooks *hooks = &bucket->engine->config.hooks;
  weir_on_device *on = bucket->engine->device;
  const size_t *offset = bucket->layout.offset;
  if (hooks->look == NULL) return;
  if (bucket->number == 0) on->look_count = on->seen_count = 0;
  task->looks = on->looks + on->look_count;
  for (size_t t = 0; t < bucket->layout.tensors; t++) {
    weir_device_look *look = &on->looks[on->look_count];
    const size_t n = offset[t + 1] - offset[t];
    if (!hooks->look(hooks->user, bucket->first + t, n, &look->runs)) continue;
    look->at = offset[t];
    look->to = on->seen + on->seen_count;
    on->seen_count += look->runs.length * look->runs.count;
    on->looked[on->look_count++] = bucket->first + t;
    task->look_count++;
  }
}

void weir_on_device_show(const weir_engine *engine) {
  const weir_engine_hooks *hooks = &engine->config.hooks;
  const weir_on_device *on = engine->device;
  const size_t *offset = engine->layout.offset;
  size_t k = 0;
  for (size_t i = 0; i < on->look_count; i++) {
    const size_t t = on->looked[i];
    while (engine->set.bucket[k].first + engine->set.bucket[k].layout.tensors <= t) k++;
    if (engine->set.bucket[k].finite)
      hooks->seen(hooks->user, t, offset[t + 1] - offset[t], &on->looks[i].runs, on->looks[i].to);
  }
}

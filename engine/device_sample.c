/* What the host wants to see of a gradient on a device (hooks sample and seen): parts of e come to
 * page-locked memory with the bucket's message, and nobody waits for them alone. */
#include <stdlib.h>

#include "base/base.h"
#include "engine/device.h"

weir_status weir_on_device_open_samples(weir_engine *engine) {
  weir_on_device *on = engine->device;
  const size_t tensors = engine->layout.tensors, room = engine->config.hooks.sample_room;
  void *samples = NULL, *seen = NULL;
  if (engine->config.hooks.sample == NULL) return WEIR_OK;
  on->sampled = calloc(tensors + 1, sizeof *on->sampled);
  if (on->sampled == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory to look at %zu tensors", tensors);
  weir_status status = weir_on_device_status(
      on, on->ops->pin(on->device, (tensors + 1) * sizeof *on->samples, &samples));
  on->samples = samples;
  if (status == WEIR_OK)
    status = weir_on_device_status(on, on->ops->pin(on->device, room * sizeof *on->seen, &seen));
  on->seen = seen;
  return status;
}

void weir_on_device_close_samples(weir_engine *engine) {
  weir_on_device *on = engine->device;
  on->ops->unpin(on->device, on->seen);
  on->ops->unpin(on->device, on->samples);
  free(on->sampled);
}

void weir_on_device_sample(weir_bucket *bucket, weir_device_task *task) {
  const weir_engine_hooks *hooks = &bucket->engine->config.hooks;
  weir_on_device *on = bucket->engine->device;
  const size_t *offset = bucket->layout.offset;
  if (hooks->sample == NULL) return;
  if (bucket->number == 0) on->sample_count = on->seen_count = 0;
  task->samples = on->samples + on->sample_count;
  for (size_t t = 0; t < bucket->layout.tensors; t++) {
    weir_device_sample *sample = &on->samples[on->sample_count];
    const size_t n = offset[t + 1] - offset[t];
    if (!hooks->sample(hooks->user, bucket->first + t, n, &sample->runs)) continue;
    sample->at = offset[t];
    sample->to = on->seen + on->seen_count;
    on->seen_count += sample->runs.length * sample->runs.count;
    on->sampled[on->sample_count++] = bucket->first + t;
    task->sample_count++;
  }
}

void weir_on_device_show(const weir_engine *engine) {
  const weir_engine_hooks *hooks = &engine->config.hooks;
  const weir_on_device *on = engine->device;
  const size_t *offset = engine->layout.offset;
  size_t k = 0;
  for (size_t i = 0; i < on->sample_count; i++) {
    const size_t t = on->sampled[i];
    while (engine->set.bucket[k].first + engine->set.bucket[k].layout.tensors <= t) k++;
    if (engine->set.bucket[k].finite)
      hooks->seen(hooks->user, t, offset[t + 1] - offset[t], &on->samples[i].runs,
                  on->samples[i].to);
  }
}

/* What profiles are made of: when gradients become ready, and how long each bucket takes.  Clock
 * readings are system calls in places, so only the first steps and then every eighth
 * are measured. */
#include <stdlib.h>

#include "base/base.h"
#include "engine/state.h"

#define EVERY 8

enum { FIELDS = sizeof(weir_bucket_times) / sizeof(double) };

weir_status weir_profiler_room(const weir_bucket_set *set, weir_series **time) {
  *time = calloc(set->count, FIELDS * sizeof **time);
  return *time != NULL
             ? WEIR_OK
             : weir_fail(WEIR_E_NOMEM, "no memory for the times of %zu buckets", set->count);
}

void weir_profiler_forget(weir_engine *engine, weir_series *time) {
  free(engine->profiler.time);
  engine->profiler.time = time;
  engine->profiler.plan_steps = 0;
  engine->profiler.fresh = false; /* the last step was not of these buckets */
}

void weir_profiler_open(weir_engine *engine) {
  weir_profiler *profiler = &engine->profiler;
  profiler->on = profiler->plan_steps < WEIR_KEPT_STEPS || engine->exchanges % EVERY == 0;
  profiler->mark = engine->begun;
  profiler->forward_s = 0;
  profiler->fresh = false;
}

void weir_engine_mark_backward(weir_engine *engine) {
  weir_profiler *profiler = &engine->profiler;
  if (!profiler->on) return;
  profiler->mark = weir_engine_clock(engine);
  profiler->forward_s = profiler->mark - engine->begun;
}

void weir_profiler_came(weir_engine *engine, size_t tensor) {
  weir_profiler *profiler = &engine->profiler;
  profiler->gap[tensor].value[profiler->steps % WEIR_KEPT_STEPS] =
      (float)(weir_engine_clock(engine) - profiler->mark);
}

void weir_profiler_left(weir_engine *engine) { engine->profiler.mark = weir_engine_clock(engine); }

void weir_profiler_close(weir_engine *engine) {
  weir_profiler *profiler = &engine->profiler;
  const size_t slot = profiler->plan_steps % WEIR_KEPT_STEPS;
  for (size_t k = 0; k < engine->set.count; k++) {
    const weir_bucket_times *times = &engine->set.bucket[k].times;
    const double all[FIELDS] = {times->launched_s, times->started_s, times->compress_s,
                                times->exchange_s, times->decode_s};
    for (size_t f = 0; f < FIELDS; f++) profiler->time[k * FIELDS + f].value[slot] = (float)all[f];
  }
  profiler->plan_steps++;
  profiler->steps++;
  profiler->fresh = true;
}

static double median(const weir_series *series, uint64_t steps) {
  const size_t n = steps < WEIR_KEPT_STEPS ? (size_t)steps : WEIR_KEPT_STEPS;
  float sorted[WEIR_KEPT_STEPS];
  for (size_t i = 0; i < n; i++) {
    size_t at = i;
    for (; at > 0 && sorted[at - 1] > series->value[i]; at--) sorted[at] = sorted[at - 1];
    sorted[at] = series->value[i];
  }
  return n > 0 ? 0.5 * ((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) : 0;
}

static size_t kept(uint64_t steps) {
  return steps < WEIR_KEPT_STEPS ? (size_t)steps : WEIR_KEPT_STEPS;
}

bool weir_engine_gap(const weir_engine *engine, size_t tensor, double *gap_s) {
  const weir_profiler *profiler = &engine->profiler;
  double sum = 0;
  const size_t n = kept(profiler->steps);
  for (size_t i = 0; i < n; i++) sum += (double)profiler->gap[tensor].value[i];
  if (n > 0) *gap_s = sum / (double)n;
  return n > 0;
}

size_t weir_engine_last_step(const weir_engine *engine, const uint32_t *place, double *forward_s,
                             double *gap_s, weir_bucket_times *times, size_t capacity) {
  const weir_profiler *profiler = &engine->profiler;
  if (!profiler->fresh) return 0;
  *forward_s = profiler->forward_s;
  for (size_t t = 0; t < engine->layout.tensors; t++)
    gap_s[t] = (double)profiler->gap[place[t]].value[(profiler->steps - 1) % WEIR_KEPT_STEPS];
  for (size_t k = 0; k < engine->set.count && k < capacity; k++)
    times[k] = engine->set.bucket[k].times;
  return engine->set.count;
}

size_t weir_engine_times(const weir_engine *engine, weir_bucket_times *times, size_t capacity,
                         size_t *count) {
  const weir_profiler *profiler = &engine->profiler;
  *count = engine->set.count;
  for (size_t k = 0; k < *count && k < capacity && profiler->plan_steps > 0; k++) {
    double all[FIELDS];
    for (size_t f = 0; f < FIELDS; f++)
      all[f] = median(&profiler->time[k * FIELDS + f], profiler->plan_steps);
    times[k] = (weir_bucket_times){all[0], all[1], all[2], all[3], all[4]};
  }
  return kept(profiler->plan_steps);
}

/* One group's way: feed, prepare, exchange, publish.  Each is done by whichever thread has the
 * group in its hands (step.c, lanes.c). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "engine/state.h"

/* Elements that are still in the first cache when the next operation comes over them. */
#define BLOCK 4096

static size_t numel(const weir_group *group, size_t tensor) {
  const size_t *offset = group->engine->layout.offset;
  return offset[tensor + 1] - offset[tensor];
}

/* e = g where there is no residual: what the sum needs to know is whether e is finite. */
static void copy_with_square(const float *g, float *e, size_t count, weir_moments *moments) {
  for (size_t at = 0; at < count; at += BLOCK) {
    const size_t part = count - at < BLOCK ? count - at : BLOCK;
    memcpy(e + at, g + at, part * sizeof *e);
    moments->sum_square += weir_sum_square(e + at, part);
  }
}

/* When this rank's e is not finite it is made all zero: the rank takes part in the exchange, so
 * that nobody waits for it, and adds nothing. */
void weir_group_feed(weir_group *group) {
  weir_engine *engine = group->engine;
  weir_moments *moments = &group->passage.moments;
  const bool plain = group->plan.codec == WEIR_CODEC_NONE && engine->residual_zero;
  memset(&group->passage, 0, sizeof group->passage);
  for (size_t t = group->first; t < group->end; t++) {
    const size_t at = engine->layout.offset[t], n = numel(group, t);
    const float *g = weir_velocity_feed(engine, at, engine->submitted[t], n);
    if (plain)
      copy_with_square(g, engine->fed + at, n, moments);
    else
      weir_ef_accumulate(g, engine->residual + at, engine->fed + at, n, moments);
  }
  group->finite = moments->nonfinite == 0 && isfinite(moments->sum_square);
  if (group->finite) return;
  memset(group->fed, 0, group->n * sizeof(float));
  memset(moments, 0, sizeof *moments);
}

void weir_group_prepare(weir_group *group) {
  group->status = weir_exchanges[group->way].prepare(group);
  if (group->status != WEIR_OK)
    (void)snprintf(group->text, sizeof group->text, "%s", weir_last_error());
}

weir_status weir_group_exchange(weir_group *group, weir_notes *notes) {
  if (group->status != WEIR_OK) {
    (void)weir_fail(group->status, "%s", group->text);
    return weir_engine_blame(group->engine, group->engine->rank, group->status);
  }
  return weir_exchanges[group->way].run(group, group->allreduce, notes);
}

void weir_group_publish(weir_group *group) {
  weir_engine *engine = group->engine;
  const float share = 1.0f / (float)engine->size;
  double square = 0;
  for (size_t t = group->first; t < group->end; t++) {
    const float *from = group->passage.sum + (engine->layout.offset[t] - group->at);
    float *to = engine->submitted[t];
    const size_t count = numel(group, t);
    for (size_t at = 0; at < count; at += BLOCK) {
      const size_t part = count - at < BLOCK ? count - at : BLOCK;
      memcpy(to + at, from + at, part * sizeof *to);
      weir_scale(to + at, part, share);
      square += weir_sum_square(to + at, part);
    }
  }
  group->overflow = !isfinite(square);
}

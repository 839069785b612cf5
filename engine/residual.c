/* The residual in a step, in two buffers of the gradient's length besides the caller's own.
 *
 * e = g + r takes the residual's place, and r goes where the gradient was, which nobody needs any
 * more: into the submitted buffers.  When the average is published there, r moves on to where the
 * sum was. So a step that is dropped can put r back, whenever that is found out, and a step that
 * counts turns e into the next residual where it lies.
 *
 *                 residual      spare          submitted
 *   before        r             -              g
 *   fed           e             -              r
 *   exchanged     e - sent      sum            r
 *   published     e - sent      r              average
 *
 * With a residual that is all zero there is nothing to keep, and fp32 without compression then
 * works in spare alone. */
#include <string.h>

#include "engine/state.h"

/* Elements that are still in the first cache when the next operation comes over them. */
#define BLOCK 4096

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t numel(const weir_engine *engine, size_t tensor) {
  return engine->layout.offset[tensor + 1] - engine->layout.offset[tensor];
}

/* e = g where there is no residual: what the sum needs to know is whether e is finite. */
static void copy_with_square(const float *g, float *e, size_t count, weir_moments *moments) {
  for (size_t at = 0; at < count; at += BLOCK) {
    const size_t part = least(count - at, BLOCK);
    memcpy(e + at, g + at, part * sizeof *e);
    moments->sum_square += weir_sum_square(e + at, part);
  }
}

/* e = g + r in the place of r, which goes to `old`. */
static void add_and_keep(const float *g, float *r, float *old, size_t count,
                         weir_moments *moments) {
  float held[BLOCK];
  for (size_t at = 0; at < count; at += BLOCK) {
    const size_t part = least(count - at, BLOCK);
    memcpy(held, r + at, part * sizeof *held);
    weir_ef_accumulate(g + at, held, r + at, part, moments);
    memcpy(old + at, held, part * sizeof *held);
  }
}

void weir_residual_feed(weir_group *group) {
  weir_engine *engine = group->engine;
  weir_moments *moments = &group->passage.moments;
  const bool plain = group->plan.codec == WEIR_CODEC_NONE && engine->residual_zero;
  if (plain) group->fed = group->spare;
  for (size_t t = group->first; t < group->end; t++) {
    const size_t at = engine->layout.offset[t], n = numel(engine, t);
    float *e = group->fed + (at - group->at);
    const float *g = weir_velocity_feed(engine, at, engine->submitted[t], n);
    if (plain)
      copy_with_square(g, e, n, moments);
    else if (engine->residual_zero)
      weir_ef_accumulate_in(group->context, g, e, e, n, moments);
    else
      add_and_keep(g, e, engine->submitted[t], n, moments);
  }
  if (!plain) group->old = engine->residual_zero ? WEIR_OLD_ZERO : WEIR_OLD_SUBMITTED;
}

/* to = share * sum; what was in `to` goes to where the sum was when it is to be kept. */
static double publish_block(float *to, float *sum, size_t count, float share, bool keep) {
  float held[BLOCK];
  if (keep) memcpy(held, to, count * sizeof *to);
  memcpy(to, sum, count * sizeof *to);
  if (keep) memcpy(sum, held, count * sizeof *to);
  weir_scale(to, count, share);
  return weir_sum_square(to, count);
}

double weir_residual_publish(weir_group *group, float share) {
  const weir_engine *engine = group->engine;
  const bool keep = group->old == WEIR_OLD_SUBMITTED;
  double square = 0;
  for (size_t t = group->first; t < group->end; t++) {
    float *sum = group->passage.sum + (engine->layout.offset[t] - group->at);
    const size_t count = numel(engine, t);
    for (size_t at = 0; at < count; at += BLOCK)
      square +=
          publish_block(engine->submitted[t] + at, sum + at, least(count - at, BLOCK), share, keep);
  }
  if (keep) group->old = WEIR_OLD_SUM;
  return square;
}

static void swap(float **a, float **b) {
  float *const held = *a;
  *a = *b;
  *b = held;
}

/* Groups leave their next residual in place, in spare or nowhere.  Where none is in place the
 * buffers change roles; else the parts in spare are brought over. */
void weir_engine_commit(weir_engine *engine) {
  const weir_group_set *set = &engine->set;
  bool here = false, there = false;
  for (size_t k = 0; k < set->count; k++) weir_warm_commit(&set->group[k]);
  weir_velocity_commit(engine);
  for (size_t k = 0; k < set->count; k++) {
    weir_group *group = &set->group[k];
    group->old = WEIR_OLD_IN_PLACE; /* what was kept is not needed any more */
    here = here || group->passage.next == engine->residual + group->at;
    there = there || group->passage.next == engine->spare + group->at;
  }
  const bool zero = !here && !there;
  if (zero && engine->residual_zero) return;
  if (!here && there) swap(&engine->residual, &engine->spare);
  for (size_t k = 0; k < set->count; k++) {
    const weir_group *group = &set->group[k];
    float *to = engine->residual + group->at;
    if (group->passage.next == NULL)
      memset(to, 0, group->n * sizeof *to);
    else if (group->passage.next != to)
      memcpy(to, group->passage.next, group->n * sizeof *to);
  }
  engine->residual_zero = zero;
}

/* The old residual of elements [at, at + count) of a group's tensor t, wherever it is;
 * NULL: zero. */
static const float *old_of(const weir_group *group, size_t t, size_t at) {
  const weir_engine *engine = group->engine;
  if (group->old == WEIR_OLD_SUBMITTED) return engine->submitted[t] + at;
  if (group->old == WEIR_OLD_SUM)
    return group->passage.sum + (engine->layout.offset[t] - group->at) + at;
  return NULL;
}

static void put_back(float *to, const float *old, size_t count) {
  if (old == NULL)
    memset(to, 0, count * sizeof *to);
  else if (old != to)
    memcpy(to, old, count * sizeof *to);
}

void weir_residual_restore(weir_engine *engine) {
  for (size_t k = 0; k < engine->set.count; k++) {
    weir_group *group = &engine->set.group[k];
    if (group->old == WEIR_OLD_IN_PLACE) continue;
    for (size_t t = group->first; t < group->end; t++)
      put_back(engine->residual + engine->layout.offset[t], old_of(group, t, 0), numel(engine, t));
    group->old = WEIR_OLD_IN_PLACE;
  }
}

/* What lies in the residual's place goes to spare, and the old residual there. */
static void exchange_block(float *residual, float *spare, const float *old, size_t count) {
  float held[BLOCK];
  if (old != NULL) memcpy(held, old, count * sizeof *held); /* it may lie in spare */
  memcpy(spare, residual, count * sizeof *spare);
  put_back(residual, old != NULL ? held : NULL, count);
}

static void part_group(weir_group *group) {
  weir_engine *engine = group->engine;
  float *const residual = engine->residual + group->at, *const spare = engine->spare + group->at;
  const bool kept = group->passage.next == spare; /* what is to be kept is there already */
  for (size_t t = group->first; t < group->end; t++) {
    const size_t count = numel(engine, t), first = engine->layout.offset[t] - group->at;
    for (size_t at = 0; at < count; at += BLOCK) {
      const size_t part = least(count - at, BLOCK), i = first + at;
      const float *old = old_of(group, t, at);
      if (kept)
        put_back(residual + i, old, part);
      else
        exchange_block(residual + i, spare + i, old, part);
    }
  }
  if (group->passage.next == residual) group->passage.next = spare;
  group->fed = spare;
  group->spare = residual;
  group->old = WEIR_OLD_IN_PLACE;
}

void weir_residual_part(weir_engine *engine) {
  for (size_t k = 0; k < engine->set.count; k++)
    if (engine->set.group[k].old != WEIR_OLD_IN_PLACE) part_group(&engine->set.group[k]);
}

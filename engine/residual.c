/* The residual in a step, in two buffers of the gradient's length besides the caller's own, of
 * which the second is touched only where it is needed.
 *
 * e = g + r takes the residual's place, and r goes where the gradient was, which nobody needs any
 * more: into the submitted buffers.  So a step that is dropped can put r back.  What a rank sends
 * is taken off e before it is sent, so that what lies in the residual's place is the next residual.
 *
 *                 residual      spare          submitted
 *   before        r             -              g
 *   fed           e             -              r
 *   prepared      e - sent      -              r
 *   exchanged     e - sent      sum            r
 *   published     e - sent      r              average
 *
 * With groups, some are published while others can still fail: r moves on to where the sum was.
 * At the end of the step the messages of groups that have waited for it (`late`; the last one, and
 * as many before it as memory asks for) are all there and have been found good, and nothing can
 * fail any more: r is let go of, and a group's sum is made where it was, in its submitted buffers,
 * when they follow one another in memory.  When they do not, e - sent goes there for as long as it
 * takes to make the sum in its place, and both change places.
 *
 *   exchanged     e - sent      -              r
 *   published     e - sent      -              average
 *
 * With a residual that is all zero there is nothing to keep; what its memory holds then does not
 * matter.  With momentum correction encoders take off what they send when the step counts, and the
 * gradient may stay where it is (velocity.h).
 *
 * In a trial spare holds c, the residual from before it.  A step that is dropped falls back to that
 * one, so that r need not be kept, and c waits in the submitted buffers until the average takes its
 * place; nobody is late:
 *
 *   before        r             c              g
 *   fed           e             -              c
 *   exchanged     e - sent      sum            c
 *   published     e - sent      c              average */
#include <math.h>
#include <string.h>

#include "engine/device.h"
#include "engine/lowrank.h"
#include "kernels/decorate.h"
#include "kernels/pool.h"

/* Elements that are still in the first cache when the next operation comes over them. */
#define BLOCK 4096
/* Likewise, with the velocity and what it becomes beside them. */
#define BLOCK_MOMENTUM 1024
/* A long tensor is fed in so many parts, each with moments of its own, which are then added in
 * order: so the sums do not depend on who works on how many. */
#define PARTS ((size_t)32)
#define PARTS_LEAST ((size_t)1 << 20)

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t numel(const weir_engine *engine, size_t tensor) {
  return engine->layout.offset[tensor + 1] - engine->layout.offset[tensor];
}

/* --- feeding ---------------------------------------------------------------------------------- */

typedef enum feed_kind {
  FEED_COPY, /* no residual, and nothing is selected: e = g, and whether it is finite */
  FEED_ZERO, /* no residual */
  FEED_KEEP, /* e = g + r in the place of r, which goes to `old` */
  FEED_ADD   /* e = g + r in the place of r */
} feed_kind;

typedef struct feed {
  feed_kind kind;
  weir_codec_context *context;
  size_t first; /* of the group's elements */
  const float *g;
  weir_velocity_feed velocity;
  float *e, *old;
  const float *waits; /* in a trial: what goes to `old`; NULL: nothing */
  size_t n, parts;
  weir_moments moments[PARTS];
} feed;

static void feed_block(const feed *f, size_t at, size_t count, weir_moments *moments) {
  float *const e = f->e + at;
  const float *g = f->g + at;
  float made[BLOCK_MOMENTUM];
  if (f->velocity.u != NULL) {
    float *const v = f->velocity.v != NULL  ? f->velocity.v + f->first + at
                     : f->kind == FEED_COPY ? e
                                            : made;
    weir_momentum_correct(g, f->velocity.u + f->first + at, v, count, f->velocity.momentum);
    g = v;
  }
  switch (f->kind) {
    case FEED_COPY:
      if (g != e) memcpy(e, g, count * sizeof *e);
      moments->sum_square += weir_sum_square(e, count);
      break;
    case FEED_ZERO:
      memset(e, 0, count * sizeof *e);
      weir_ef_accumulate(g, e, e, count, moments);
      break;
    case FEED_KEEP:
      weir_ahead_exchange(f->context, f->first + at, g, e, f->old + at, count, moments);
      break;
    case FEED_ADD: weir_ef_accumulate(g, e, e, count, moments); break;
  }
  if (f->waits != NULL) memcpy(f->old + at, f->waits + at, count * sizeof *e);
}

static void feed_part(void *argument, size_t part) {
  feed *f = argument;
  const size_t each = (f->n / f->parts + BLOCK - 1) / BLOCK * BLOCK;
  const size_t end = part + 1 < f->parts ? least((part + 1) * each, f->n) : f->n;
  const size_t block = f->velocity.u != NULL ? BLOCK_MOMENTUM : BLOCK;
  for (size_t at = part * each; at < end; at += block)
    feed_block(f, at, least(end - at, block), &f->moments[part]);
}

/* Where this rank will select from all of e, which one thread makes, what the search will be after
 * is listed on the way. */
static void look_ahead(weir_group *group, const weir_velocity_feed *velocity) {
  weir_engine *engine = group->engine;
  const weir_plan *plan = &group->plan;
  const bool selects = (plan->codec == WEIR_CODEC_TOPK && group->way == WEIR_WAY_AG) ||
                       (plan->codec == WEIR_CODEC_STAR && engine->rank == weir_art_root(group));
  weir_ahead_forget(group->context);
  if (!selects || engine->residual_zero || engine->pool != NULL || group->pieces || group->marked ||
      engine->set.trial)
    return;
  weir_group_lend(group);
  const weir_ahead_of sum = {.g = (const float *const *)engine->submitted + group->first,
                             .u = velocity->u,
                             .momentum = velocity->momentum,
                             .r = group->fed};
  /* Without memory for it there is none for selecting either, which says so. */
  (void)weir_ahead_begin(group->context, &sum, &group->layout, group->fed, plan->cr);
}

void weir_residual_feed(weir_group *group) {
  weir_engine *engine = group->engine;
  weir_moments *moments = &group->passage.moments;
  const bool zero = engine->residual_zero, whole = group->plan.codec == WEIR_CODEC_NONE;
  const bool trial = engine->set.trial, waits = trial && !engine->checkpoint.residual_zero;
  const weir_velocity_feed velocity = weir_velocity_open(group);
  look_ahead(group, &velocity);
  for (size_t t = group->first; t < group->end; t++) {
    const size_t at = engine->layout.offset[t], n = numel(engine, t), first = at - group->at;
    feed f = {.kind = !zero   ? trial ? FEED_ADD : FEED_KEEP
                      : whole ? FEED_COPY
                              : FEED_ZERO,
              .context = group->context,
              .first = first,
              .g = engine->submitted[t],
              .velocity = velocity,
              .e = group->fed + first,
              .old = engine->submitted[t],
              .waits = waits ? engine->spare + at : NULL,
              .n = n,
              .parts = n < PARTS_LEAST ? 1 : PARTS};
    weir_pool_run(engine->pool, feed_part, &f, f.parts);
    for (size_t part = 0; part < f.parts; part++) {
      moments->sum += f.moments[part].sum;
      moments->sum_square += f.moments[part].sum_square;
      moments->nonfinite += f.moments[part].nonfinite;
    }
  }
  group->old = (trial ? waits : !zero) ? WEIR_OLD_SUBMITTED : WEIR_OLD_ZERO;
}

/* --- publishing ------------------------------------------------------------------------------- */

typedef struct publishing {
  float share;
  bool keep;      /* what was in the submitted buffers goes to where the sum was */
  const float *u; /* of the group: that is the gradient, and m u + g goes there; else NULL */
  float momentum;
} publishing;

/* to = share * sum, of the group's elements from i on. */
static double publish_block(const publishing *p, float *to, float *sum, size_t i, size_t count) {
  float held[BLOCK];
  if (p->keep) memcpy(held, to, count * sizeof *to);
  memcpy(to, sum, count * sizeof *to);
  if (p->u != NULL)
    weir_momentum_correct(held, p->u + i, sum, count, p->momentum);
  else if (p->keep)
    memcpy(sum, held, count * sizeof *to);
  weir_scale(to, count, p->share);
  return weir_sum_square(to, count);
}

/* The sum of squares of what is published. */
static double publish(const weir_group *group, float *from, const publishing *p) {
  const weir_engine *engine = group->engine;
  const size_t block = p->u != NULL ? BLOCK_MOMENTUM : BLOCK;
  double square = 0;
  for (size_t t = group->first; t < group->end; t++) {
    const size_t first = engine->layout.offset[t] - group->at, count = numel(engine, t);
    for (size_t at = 0; at < count; at += block)
      square += publish_block(p, engine->submitted[t] + at, from + first + at, first + at,
                              least(count - at, block));
  }
  return square;
}

weir_status weir_residual_publish(weir_group *group, float share) {
  const weir_engine *engine = group->engine;
  const bool waits = group->old == WEIR_OLD_SUBMITTED;
  const bool gradient = group->velocity == WEIR_VELOCITY_GRADIENT;
  const publishing p = {.share = share,
                        .keep = waits || gradient,
                        .u = gradient ? engine->velocity.u + group->at : NULL,
                        .momentum = (float)engine->config.momentum};
  group->overflow = !isfinite(publish(group, group->passage.sum, &p));
  if (waits) group->old = WEIR_OLD_SUM;
  if (gradient) group->velocity = WEIR_VELOCITY_SUM;
  return WEIR_OK;
}

/* Where a group's submitted buffers begin when they follow one another; else NULL. */
static float *in_a_row(const weir_group *group) {
  float *first = NULL, *next = NULL;
  for (size_t t = group->first; t < group->end; t++) {
    float *const at = group->engine->submitted[t];
    const size_t count = numel(group->engine, t);
    if (count == 0) continue;
    if (first == NULL) first = next = at;
    if (at != next) return NULL;
    next = at + count;
  }
  return first;
}

float *weir_residual_let_go(weir_group *group) {
  const weir_engine *engine = group->engine;
  weir_velocity_settle(group);
  group->old = WEIR_OLD_IN_PLACE;
  float *const row = in_a_row(group);
  if (row != NULL) return row;
  for (size_t t = group->first; t < group->end; t++) {
    const size_t bytes = numel(engine, t) * sizeof(float);
    if (bytes > 0)
      memcpy(engine->submitted[t], group->fed + (engine->layout.offset[t] - group->at), bytes);
  }
  return group->fed;
}

void weir_residual_publish_late(weir_group *group, float *sum, float share) {
  if (sum == group->fed)
    (void)publish(group, sum, &(publishing){.share = share, .keep = true});
  else
    weir_scale(sum, group->n, share);
}

/* --- the end of a step ------------------------------------------------------------------------ */

static void swap(float **a, float **b) {
  float *const held = *a;
  *a = *b;
  *b = held;
}

/* In a trial: c to spare, from where the sum was, and the next residual to the residual's place. */
static void sort_out(weir_group *group) {
  float *const residual = group->engine->residual + group->at;
  float *const spare = group->engine->spare + group->at;
  const bool waited = group->old == WEIR_OLD_SUM && group->passage.sum == residual;
  const bool there = group->passage.next == spare;
  float held[BLOCK];
  for (size_t at = 0; at < group->n && (waited || there); at += BLOCK) {
    const size_t bytes = least(group->n - at, BLOCK) * sizeof *held;
    memcpy(held, residual + at, bytes);
    if (there) memcpy(residual + at, spare + at, bytes);
    if (waited) memcpy(spare + at, held, bytes);
  }
  if (group->passage.next == NULL) memset(residual, 0, group->n * sizeof *residual);
}

/* Groups leave their next residual in place, in spare or nowhere.  Where none is in place the
 * buffers change roles; else the parts in spare are brought over. */
void weir_engine_commit(weir_engine *engine) {
  const weir_group_set *set = &engine->set;
  bool here = false, there = false;
  for (size_t k = 0; k < set->count; k++) weir_warm_commit(&set->group[k]);
  if (engine->device != NULL) {
    weir_on_device_commit(engine);
    return;
  }
  weir_velocity_commit(engine);
  for (size_t k = 0; k < set->count; k++) {
    weir_group *group = &set->group[k];
    if (set->trial) sort_out(group);
    group->old = WEIR_OLD_IN_PLACE; /* what was kept is not needed any more */
    here = here || group->passage.next == engine->residual + group->at;
    there = there || group->passage.next == engine->spare + group->at;
  }
  engine->residual_zero = !here && !there;
  if (engine->residual_zero || set->trial) return;
  if (!here) swap(&engine->residual, &engine->spare);
  for (size_t k = 0; k < set->count; k++) {
    const weir_group *group = &set->group[k];
    float *to = engine->residual + group->at;
    if (group->passage.next == NULL)
      memset(to, 0, group->n * sizeof *to);
    else if (group->passage.next != to)
      memcpy(to, group->passage.next, group->n * sizeof *to);
  }
}

float *weir_residual_of(const weir_engine *engine) {
  if (engine->device != NULL) return weir_on_device_residual(engine);
  if (engine->residual_zero) memset(engine->residual, 0, engine->n * sizeof(float));
  return engine->residual;
}

const float *weir_residual_old(const weir_group *group, size_t t, size_t at) {
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

/* In a trial: c to spare, from wherever it waits, and there the trial begins anew. */
static void fall_back(weir_engine *engine) {
  for (size_t k = 0; k < engine->set.count; k++) {
    weir_group *group = &engine->set.group[k];
    for (size_t t = group->first; t < group->end; t++) {
      const float *const old = weir_residual_old(group, t, 0);
      if (old != NULL) put_back(engine->spare + engine->layout.offset[t], old, numel(engine, t));
    }
    group->old = WEIR_OLD_IN_PLACE;
  }
  weir_velocity_restore(engine);
  engine->residual_zero = engine->checkpoint.residual_zero;
  if (!engine->residual_zero)
    memcpy(engine->residual, engine->spare, engine->n * sizeof *engine->residual);
}

void weir_residual_restore(weir_engine *engine) {
  if (engine->set.trial) {
    fall_back(engine);
    return;
  }
  weir_velocity_forget(engine);
  for (size_t k = 0; k < engine->set.count; k++) {
    weir_group *group = &engine->set.group[k];
    if (group->old == WEIR_OLD_IN_PLACE) continue;
    for (size_t t = group->first; t < group->end; t++)
      put_back(engine->residual + engine->layout.offset[t], weir_residual_old(group, t, 0),
               numel(engine, t));
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
      const float *old = weir_residual_old(group, t, at);
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
  if (engine->set.trial) {
    fall_back(engine);
    return;
  }
  weir_velocity_part(engine);
  for (size_t k = 0; k < engine->set.count; k++)
    if (engine->set.group[k].old != WEIR_OLD_IN_PLACE) part_group(&engine->set.group[k]);
}

/* The velocity of momentum correction (velocity.h). */
#include "engine/velocity.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/state.h"
#include "kernels/decorate.h"
#include "kernels/pool.h"

#define BLOCK 1024 /* elements that are still in the first cache when they are masked */
/* So many parts of a long tensor for a pool's threads. */
#define PARTS ((size_t)32)
#define PARTS_LEAST ((size_t)1 << 20)

/* Each group's marks begin with a word of their own. */
static size_t words_of(const weir_engine *engine) {
  return engine->n / 32 + engine->layout.tensors + 2;
}

weir_status weir_velocity_create(weir_engine *engine) {
  const double momentum = engine->config.momentum;
  weir_velocity *velocity = &engine->velocity;
  if (!(momentum >= 0 && momentum < 1))
    return weir_fail(WEIR_E_INVALID, "momentum %g is not in [0, 1)", momentum);
  if (momentum == 0 || engine->config.device_ops != NULL) return WEIR_OK; /* it is the device's */
  velocity->u = calloc(engine->n + 1, sizeof *velocity->u);
  velocity->next = calloc(engine->n + 1, sizeof *velocity->next);
  velocity->marks = malloc(words_of(engine) * sizeof *velocity->marks);
  if (velocity->u == NULL || velocity->next == NULL || velocity->marks == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for the momentum of %zu elements", engine->n);
  return WEIR_OK;
}

void weir_velocity_release(weir_velocity *velocity) {
  free(velocity->marks);
  free(velocity->next);
  free(velocity->u);
}

/* --- what a plan does to v -------------------------------------------------------------------- */

/* A dense sum in the place of e, which leaves no residual. */
static bool sums_all(const weir_group *group) {
  return group->plan.codec == WEIR_CODEC_NONE || group->whole;
}

static bool selects(const weir_group *group) {
  return weir_codec_find(group->plan.codec)->encode == NULL;
}

bool weir_velocity_told(const weir_group *group) {
  return !sums_all(group) && (group->way == WEIR_WAY_AG || group->way == WEIR_WAY_ART);
}

bool weir_velocity_keeps(const weir_group *group) {
  return !sums_all(group) && !weir_velocity_told(group);
}

static weir_velocity_place place_of(const weir_group *group) {
  if (sums_all(group))
    return group->engine->residual_zero ? WEIR_VELOCITY_GRADIENT : WEIR_VELOCITY_NEXT;
  return weir_velocity_keeps(group) ? WEIR_VELOCITY_NEXT : WEIR_VELOCITY_TOLD;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static uint32_t *first_word(const weir_group *group) {
  return group->engine->velocity.marks + group->at / 32 + group->number;
}

/* What a gathered selection, or one that all ranks share, has sent. */
static weir_marks marks_of(const weir_group *group) {
  if (group->marked) return weir_marks_in_spare(group);
  return (weir_marks){first_word(group) + (group->n > 0 ? group->n - 1 : 0) / 32, group->n};
}

/* --- in a step -------------------------------------------------------------------------------- */

weir_velocity_feed weir_velocity_open(weir_group *group) {
  const weir_engine *engine = group->engine;
  const weir_velocity *velocity = &engine->velocity;
  group->velocity = WEIR_VELOCITY_SETTLED;
  if (velocity->u == NULL) return (weir_velocity_feed){0};
  float *const u = velocity->u + group->at, *const next = velocity->next + group->at;
  const float momentum = (float)engine->config.momentum;
  if (engine->set.trial) return (weir_velocity_feed){u, u, momentum};
  group->velocity = place_of(group);
  if (group->velocity == WEIR_VELOCITY_TOLD && group->way == WEIR_WAY_AG)
    memset(first_word(group), 0, (group->n + 31) / 32 * sizeof *velocity->marks);
  return (weir_velocity_feed){u, group->velocity == WEIR_VELOCITY_NEXT ? next : NULL, momentum};
}

void weir_velocity_cut(const weir_group *group, size_t from, const uint32_t *index, size_t count) {
  const weir_engine *engine = group->engine;
  const weir_velocity *velocity = &engine->velocity;
  if (velocity->u == NULL) return;
  if (engine->set.trial) {
    weir_scatter_zero(velocity->u + group->at + from, index, count);
  } else if (group->velocity == WEIR_VELOCITY_NEXT) {
    weir_scatter_zero(velocity->next + group->at + from, index, count);
  } else if (group->way == WEIR_WAY_AG) { /* else its list, or its marks, will be there still */
    const weir_marks marks = marks_of(group);
    weir_marks_add(&marks, from, index, count);
  }
}

/* --- making v of e and r ---------------------------------------------------------------------- */

typedef struct making {
  const weir_group *group;
  weir_marks marks;
  bool masked;
  float *v; /* of the group */
  /* Of a tensor: */
  size_t first, n; /* its elements of the group's */
  const float *old;
  size_t parts;
} making;

/* Elements [at, end) of the group.  Momentum that was sent is stale. */
static void make_block(const making *m, size_t at, size_t end) {
  enum { LISTED = 512 };
  uint32_t index[LISTED];
  size_t count;
  weir_momentum_told(m->group->fed + at, m->old != NULL ? m->old + (at - m->first) : NULL,
                     m->v + at, end - at);
  while (m->masked && (count = weir_marks_list(&m->marks, &at, end, index, LISTED)) > 0)
    weir_scatter_zero(m->v, index, count);
}

static void make_part(void *argument, size_t part) {
  const making *m = argument;
  const size_t each = (m->n / m->parts + BLOCK - 1) / BLOCK * BLOCK;
  const size_t end = part + 1 < m->parts ? least((part + 1) * each, m->n) : m->n;
  for (size_t at = part * each; at < end; at += BLOCK)
    make_block(m, m->first + at, m->first + least(end, at + BLOCK));
}

/* v of a group, while e is in the residual's place.  Encoders have waited with taking off it what
 * was sent. */
static void make(weir_group *group, float *v) {
  const weir_engine *engine = group->engine;
  const bool prepared = group->passage.next != NULL; /* what was sent of e is known */
  const bool masks = selects(group), listed = group->way == WEIR_WAY_ART && !group->marked;
  making m = {
      .group = group, .marks = marks_of(group), .masked = prepared && masks && !listed, .v = v};
  for (size_t t = group->first; t < group->end; t++) {
    m.first = engine->layout.offset[t] - group->at;
    m.n = engine->layout.offset[t + 1] - engine->layout.offset[t];
    m.old = weir_residual_old(group, t, 0);
    m.parts = m.n < PARTS_LEAST ? 1 : PARTS;
    weir_pool_run(engine->pool, make_part, &m, m.parts);
  }
  if (prepared && listed) weir_scatter_zero(v, group->index, group->kept);
  if (!prepared || masks) return;
  group->context = engine->context;
  (void)weir_ag_take_off(group); /* never fails: the message is this rank's own */
}

void weir_velocity_settle(weir_group *group) {
  if (group->velocity == WEIR_VELOCITY_TOLD)
    make(group, group->engine->velocity.u + group->at);
  else if (group->velocity == WEIR_VELOCITY_SUM)
    memcpy(group->engine->velocity.u + group->at, group->passage.sum, group->n * sizeof(float));
  else if (group->velocity == WEIR_VELOCITY_NEXT)
    memcpy(group->engine->velocity.u + group->at, group->engine->velocity.next + group->at,
           group->n * sizeof(float));
  group->velocity = WEIR_VELOCITY_SETTLED;
}

/* --- the end of a step ------------------------------------------------------------------------ */

static bool all_are(const weir_group_set *set, weir_velocity_place place) {
  for (size_t k = 0; k < set->count; k++)
    if (set->group[k].velocity != place) return false;
  return true;
}

static void swap(float **a, float **b) {
  float *const held = *a;
  *a = *b;
  *b = held;
}

void weir_velocity_forget(weir_engine *engine) {
  for (size_t k = 0; k < engine->set.count; k++)
    engine->set.group[k].velocity = WEIR_VELOCITY_SETTLED;
}

/* Where all of v lies in one buffer that is free now, that one and u change places.  Dense sums lie
 * in the residual's, which is zero then, whatever its memory holds. */
void weir_velocity_commit(weir_engine *engine) {
  weir_velocity *velocity = &engine->velocity;
  const weir_group_set *set = &engine->set;
  if (velocity->u == NULL) return;
  const bool kept = all_are(set, WEIR_VELOCITY_NEXT), summed = all_are(set, WEIR_VELOCITY_SUM);
  bool flushed = false; /* a residual, by a dense sum */
  for (size_t k = 0; k < set->count; k++)
    flushed = flushed || (set->group[k].velocity == WEIR_VELOCITY_NEXT && sums_all(&set->group[k]));
  if (kept)
    swap(&velocity->u, &velocity->next);
  else if (summed)
    swap(&velocity->u, &engine->residual);
  for (size_t k = 0; k < set->count && !kept && !summed; k++) weir_velocity_settle(&set->group[k]);
  weir_velocity_forget(engine);
  if (flushed) weir_velocity_give_back(engine, false);
}

void weir_velocity_part(weir_engine *engine) {
  if (engine->velocity.u == NULL) return;
  for (size_t k = 0; k < engine->set.count; k++) {
    weir_group *group = &engine->set.group[k];
    float *const next = engine->velocity.next + group->at;
    if (group->old == WEIR_OLD_IN_PLACE) continue; /* not fed, or settled */
    if (group->velocity == WEIR_VELOCITY_TOLD) make(group, next);
    if (group->velocity == WEIR_VELOCITY_SUM)
      memcpy(next, group->passage.sum, group->n * sizeof *next);
    for (size_t t = group->first; group->velocity == WEIR_VELOCITY_GRADIENT && t < group->end;
         t++) {
      const size_t at = engine->layout.offset[t], n = engine->layout.offset[t + 1] - at;
      weir_momentum_correct(engine->submitted[t], engine->velocity.u + at,
                            engine->velocity.next + at, n, (float)engine->config.momentum);
    }
    if (group->velocity != WEIR_VELOCITY_SETTLED) group->velocity = WEIR_VELOCITY_NEXT;
  }
}

/* --- trials and memory ------------------------------------------------------------------------ */

void weir_velocity_save(weir_engine *engine) {
  const weir_velocity *velocity = &engine->velocity;
  if (velocity->u != NULL) memcpy(velocity->next, velocity->u, engine->n * sizeof *velocity->u);
}

void weir_velocity_restore(weir_engine *engine) {
  const weir_velocity *velocity = &engine->velocity;
  if (velocity->u != NULL) memcpy(velocity->u, velocity->next, engine->n * sizeof *velocity->u);
}

void weir_velocity_give_back(weir_engine *engine, bool trial) {
  const weir_velocity *velocity = &engine->velocity;
  if (velocity->u == NULL) return;
  weir_give_back(velocity->marks, words_of(engine) * sizeof *velocity->marks);
  bool wanted = trial;
  for (size_t k = 0; k < engine->set.count; k++)
    wanted = wanted || weir_velocity_keeps(&engine->set.group[k]);
  if (!wanted) weir_give_back(velocity->next, engine->n * sizeof *velocity->next);
}

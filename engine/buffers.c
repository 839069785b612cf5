/* The engine's memory.  Grows when a plan needs more than any before it, never within a step. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/state.h"
#include "kernels/powersgd.h"

#define LINE 64 /* every part of the arena begins on a cache line */

/* --- a group's part of the arena ------------------------------------------------------------ */

/* Where the next `count` things of `size` bytes lie: at *at, which moves on behind them.  False
 * when no memory can be that large. */
static bool part(size_t *at, size_t count, size_t size, size_t *offset) {
  size_t bytes, end;
  if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, LINE, &bytes) ||
      __builtin_add_overflow(*at, bytes / LINE * LINE, &end))
    return false;
  *offset = *at;
  *at = end;
  return true;
}

/* Places a group's buffers from *at on.  base: the arena, NULL to learn its size only. */
static weir_status place(weir_group *group, size_t *at, unsigned char *base) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  const size_t ranks = (size_t)group->engine->size;
  /* What sums messages or a machine's selections has its buffers below, in the communicator. */
  const bool below = group->way == WEIR_WAY_COMPRESSED || group->way == WEIR_WAY_HITOPK;
  const bool selects = !codec->dense && !codec->low_rank && codec->encode == NULL && !below;
  const size_t k = selects ? group->kept : 0, values = codec->low_rank ? group->kept : k;
  size_t stride = 0, index, value, error, blocks, bytes;
  if (codec->encode != NULL && !below)
    stride = group->kept;
  else if (selects)
    stride = weir_wire_bound(group->n, k, (weir_wire_format)group->plan.wire);
  /* At least what VAR's variances take, and every block aligned. */
  stride = (stride + 15) / 16 * 16 + 16;
  if (!part(at, k, sizeof *group->index, &index) ||
      !part(at, values, sizeof *group->value, &value) ||
      !part(at, k, sizeof *group->error, &error) || !part(at, ranks, stride, &blocks) ||
      !part(at, ranks, sizeof *group->block_bytes, &bytes))
    return weir_fail(WEIR_E_NOMEM, "%zu messages of %zu bytes do not fit memory", ranks, stride);
  if (base == NULL) return WEIR_OK;
  group->index = (uint32_t *)(void *)(base + index);
  group->value = (float *)(void *)(base + value);
  group->error = (float *)(void *)(base + error);
  group->kept_capacity = k;
  group->blocks = base + blocks;
  group->stride = stride;
  group->block_bytes = (size_t *)(void *)(base + bytes);
  memset(group->block_bytes, 0, ranks * sizeof *group->block_bytes);
  return WEIR_OK;
}

/* --- sets of groups ------------------------------------------------------------------------- */

static size_t kept_by(const weir_codec *codec, weir_group *group) {
  if (codec->low_rank) return weir_lowrank_floats(group, &group->first_sum);
  if (codec->encode != NULL) return codec->bound(&group->layout, group->plan.cr);
  return codec->dense ? group->n : codec->kept(&group->layout, group->plan.cr);
}

/* Group `number` takes the tensors from `first` on; its layout's offsets go to `offset`. */
static weir_status describe(weir_engine *engine, weir_group *group, size_t number, size_t first,
                            size_t end, size_t *offset) {
  group->engine = engine;
  group->number = number;
  group->first = first;
  group->end = end;
  group->at = engine->layout.offset[first];
  group->n = engine->layout.offset[end] - group->at;
  for (size_t t = first; t <= end; t++) offset[t - first] = engine->layout.offset[t] - group->at;
  group->layout = (weir_layout){end - first, offset};
  group->kept = kept_by(weir_codec_find(group->plan.codec), group);
  const weir_group_shape shape = {engine->size, weir_comm_hosts(engine->config.comm)};
  group->terms = weir_cost_plan_between(&group->plan, shape, group->n, group->kept);
  return weir_exchange_find(group);
}

static void release_set(weir_group_set *set) {
  free(set->of);
  free(set->offset);
  free(set->group);
}

/* Everything of a set but its arena. */
static weir_status describe_all(weir_engine *engine, const weir_plan *plan,
                                const weir_plan_group *table, weir_group_set *set) {
  const size_t tensors = engine->layout.tensors, count = table != NULL ? plan->groups : 1;
  set->count = count;
  set->group = calloc(count, sizeof *set->group);
  set->offset = malloc((tensors + count) * sizeof *set->offset);
  set->of = malloc((tensors + 1) * sizeof *set->of);
  if (set->group == NULL || set->offset == NULL || set->of == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for a plan of %zu groups", count);
  size_t first = 0;
  for (size_t k = 0; k < count; k++) {
    weir_group *group = &set->group[k];
    const size_t end = table != NULL ? table[k].end : tensors;
    group->plan = *plan;
    if (table != NULL) weir_group_plan(&table[k], &group->plan);
    group->place = table != NULL ? table[k].place : WEIR_PLACE_CALLER;
    if (weir_codec_find(group->plan.codec) == NULL)
      return weir_fail(WEIR_E_INVALID, "codec %u is unknown", group->plan.codec);
    const weir_status status = describe(engine, group, k, first, end, set->offset + first + k);
    if (status != WEIR_OK) return status;
    for (; first < end; first++) set->of[first] = (uint32_t)k;
  }
  return WEIR_OK;
}

static weir_status place_all(weir_group_set *set, size_t *size, unsigned char *base) {
  *size = 0;
  for (size_t k = 0; k < set->count; k++) {
    const weir_status status = place(&set->group[k], size, base);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

static weir_status find_arena(const weir_engine *engine, weir_group_set *set) {
  size_t size;
  const weir_status status = place_all(set, &size, NULL);
  if (status != WEIR_OK) return status;
  set->arena = engine->set.arena;
  set->capacity = engine->set.capacity;
  if (size > set->capacity) {
    unsigned char *arena = aligned_alloc(LINE, size);
    if (arena == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu bytes of messages", size);
    set->arena = arena;
    set->capacity = size;
  }
  return place_all(set, &size, set->arena);
}

static weir_status reserve_warm(weir_engine *engine, const weir_group_set *set) {
  size_t rank = 0;
  for (size_t k = 0; k < set->count; k++) {
    const weir_plan *plan = &set->group[k].plan;
    const size_t mine = weir_codec_find(plan->codec)->low_rank ? weir_powersgd_rank(plan->cr) : 0;
    if (mine > rank) rank = mine;
  }
  return weir_warm_reserve(engine, rank);
}

weir_status weir_engine_adopt(weir_engine *engine, const weir_plan *plan,
                              const weir_plan_group *table) {
  weir_group_set set = {0};
  weir_status status = describe_all(engine, plan, table, &set);
  if (status == WEIR_OK && set.count > 1 && engine->lanes == NULL &&
      engine->config.virtual_network == NULL)
    status = weir_lanes_create(&engine->lanes, engine);
  weir_series *time = NULL;
  if (status == WEIR_OK && engine->config.profile) status = weir_profiler_room(&set, &time);
  if (status == WEIR_OK) status = reserve_warm(engine, &set);
  if (status == WEIR_OK) status = find_arena(engine, &set);
  if (status != WEIR_OK) {
    free(time);
    release_set(&set);
    return status;
  }
  weir_profiler_forget(engine, time);
  if (set.arena != engine->set.arena) free(engine->set.arena);
  release_set(&engine->set);
  engine->set = set;
  engine->plan = *plan;
  return WEIR_OK;
}

void weir_engine_release(weir_engine *engine) {
  free(engine->checkpoint.hook_bytes);
  free(engine->checkpoint.memory);
  free(engine->hooks);
  free(engine->states);
  free(engine->notes);
  free(engine->profiler.time);
  free(engine->profiler.gap);
  free(engine->table);
  free(engine->set.arena);
  release_set(&engine->set);
  weir_warm_release(&engine->warm);
  weir_velocity_release(&engine->velocity);
  free(engine->spare);
  free(engine->residual);
  free(engine->submitted);
  free((void *)engine->layout.offset);
}

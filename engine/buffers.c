/* The engine's memory.  It grows when a plan needs more than any before it, never within a step. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/pieces.h"
#include "engine/device.h"
#include "engine/lowrank.h"

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

/* Room among the blocks for what is of use only until this rank's own message leaves: before that
 * the others' lie empty. */
typedef struct gaps {
  size_t at[2], end[2]; /* before its own block, and behind it */
} gaps;

static gaps gaps_of(const weir_group *group, size_t blocks, size_t stride, size_t count) {
  const size_t own = (size_t)group->engine->rank * stride;
  if (count == 1) return (gaps){{0, 0}, {0, 0}};
  return (gaps){{blocks, blocks + own + stride}, {blocks + own, blocks + count * stride}};
}

/* As part(), in the narrowest gap that is wide enough, if one is. */
static bool part_within(gaps *g, size_t *at, size_t count, size_t size, size_t *offset) {
  const size_t bytes = (count * size + 15) / 16 * 16;
  const int narrow = g->end[1] - g->at[1] < g->end[0] - g->at[0];
  for (int turn = 0; turn < 2; turn++) {
    const int i = turn == 0 ? narrow : !narrow;
    if (g->end[i] - g->at[i] < bytes) continue;
    *offset = g->at[i];
    g->at[i] += bytes;
    return true;
  }
  return part(at, count, size, offset);
}

/* Bytes of a message's place. */
static size_t stride_of(const weir_group *group, bool selects) {
  size_t stride = 0;
  if (group->way == WEIR_WAY_AG && !selects)
    stride = group->kept;
  else if (selects)
    stride = weir_wire_bound(group->n, group->kept, (weir_wire_format)group->plan.wire);
  if (group->plan.codec == WEIR_CODEC_VAR) { /* for all ranks' variances */
    const size_t variances = weir_art_variances(group->engine);
    if (group->engine->device != NULL)
      stride += variances; /* beside the list that every rank makes */
    else if (stride < variances)
      stride = variances;
  }
  return stride / 16 * 16 + 32;
}

/* What is left of the widest gap is for selecting, if that suffices. */
static void place_room(weir_group *group, const gaps *g, unsigned char *base) {
  const int i = g->end[1] - g->at[1] > g->end[0] - g->at[0];
  const bool threads = group->engine->pool != NULL;
  const size_t due =
      weir_select_room(weir_codec_find(group->plan.codec), group->n, group->kept, threads);
  group->room_bytes = g->end[i] - g->at[i];
  group->room = due <= group->room_bytes ? base + g->at[i] : NULL;
}

/* A marked or merged group has its lists and messages in spare. */
static weir_status place_beside(weir_group *group, size_t *at, unsigned char *base) {
  const size_t ranks = (size_t)group->engine->size;
  size_t merging, bytes;
  if (!part(at, group->merged ? weir_merge_room(group->n, ranks) : 0, 1, &merging) ||
      !part(at, ranks, sizeof *group->block_bytes, &bytes))
    return weir_fail(WEIR_E_NOMEM, "%zu lengths do not fit memory", ranks);
  if (base == NULL) return WEIR_OK;
  group->kept_capacity = group->kept;
  if (group->merged) {
    group->stride = stride_of(group, true);
    group->merging = base + merging;
  } else {
    group->stretch = group->plan.codec == WEIR_CODEC_RANDOMK
                         ? group->n
                         : weir_marked_stretch(&group->plan, group->n, group->kept);
    group->stride = weir_marked_message(&group->plan, group->stretch, group->kept);
    if (group->stride < weir_art_variances(group->engine))
      group->stride = weir_art_variances(group->engine);
  }
  group->block_bytes = (size_t *)(void *)(base + bytes);
  memset(group->block_bytes, 0, ranks * sizeof *group->block_bytes);
  return WEIR_OK;
}

/* Places a group's buffers from *at on.  base: the arena, NULL to learn its size only.  last: where
 * the last pieces' messages lie, of one group after the other. */
static weir_status place(weir_group *group, size_t *at, unsigned char *base, size_t last) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  const size_t ranks = (size_t)group->engine->size;
  const bool gathers = group->way == WEIR_WAY_AG;
  /* What sums messages or a machine's selections has its buffers below, in the communicator. */
  const bool selects =
      (gathers && codec->encode == NULL && !group->pieces) || group->way == WEIR_WAY_ART;
  const bool rounds = selects && (!gathers || group->plan.wire >= WEIR_WIRE_AUTO_BF16);
  const size_t k = selects ? group->kept : 0;
  const size_t values = codec->low_rank && !group->whole ? group->kept : k;
  const size_t stride = group->pieces ? 0 : stride_of(group, selects), count = gathers ? ranks : 1;
  const bool keeps = group->pieces && codec->encode != NULL && group->engine->velocity.u != NULL;
  size_t index, value, error, blocks = last, bytes, own;
  gaps free_parts;
  if (!part(at, 1, keeps ? weir_pieces_kept(group) : 0, &own) ||
      (!group->pieces && !part(at, count, stride, &blocks)) ||
      !part(at, ranks, sizeof *group->block_bytes, &bytes))
    goto too_large;
  free_parts = gaps_of(group, blocks, stride, count);
  if (!part_within(&free_parts, at, k, sizeof *group->index, &index) ||
      !part_within(&free_parts, at, values, sizeof *group->value, &value) ||
      !part_within(&free_parts, at, rounds ? k : 0, sizeof *group->error, &error))
    goto too_large;
  if (base == NULL) return WEIR_OK;
  group->index = (uint32_t *)(void *)(base + index);
  group->value = (float *)(void *)(base + value);
  group->error = rounds ? (float *)(void *)(base + error) : NULL;
  group->kept_capacity = k;
  group->blocks = base + blocks;
  group->own = keeps ? base + own : NULL;
  group->stride = stride;
  group->block_bytes = (size_t *)(void *)(base + bytes);
  place_room(group, &free_parts, base);
  memset(group->block_bytes, 0, ranks * sizeof *group->block_bytes);
  return WEIR_OK;

too_large:
  return weir_fail(WEIR_E_NOMEM, "%zu messages of %zu bytes do not fit memory", count, stride);
}

/* --- sets of groups ------------------------------------------------------------------------- */

static size_t kept_by(const weir_codec *codec, weir_group *group) {
  if (codec->low_rank) return weir_lowrank_floats(group, &group->first_sum);
  if (codec->encode != NULL) return codec->bound(&group->layout, group->plan.cr);
  return codec->dense ? group->n : codec->kept(&group->layout, group->plan.cr);
}

/* AR-Topk: are its lists, its message and what selecting takes longer than the gradient, or than
 * there is in a trial?  (Of a few elements that does not matter, and all ranks' variances have to
 * fit.) */
static bool is_marked(const weir_group *group, bool trial) {
  enum { LEAST_RANK = 32 };
  if (group->way != WEIR_WAY_ART) return false;
  if (group->n < WEIR_MARKED_LEAST + LEAST_RANK * (size_t)group->engine->size) return false;
  if (trial) return true;
  const size_t room = weir_select_room(weir_codec_find(group->plan.codec), group->n, group->kept,
                                       group->engine->pool != NULL);
  const size_t list = weir_wire_bound(group->n, group->kept, (weir_wire_format)group->plan.wire);
  return list + group->kept * (sizeof *group->index + 2 * sizeof(float)) + room >
         group->n * sizeof(float);
}

/* Can its sum be made in the submitted buffers, once nothing can fail any more? */
static bool may_be_late(const weir_group *group) {
  return !group->pieces && !group->whole &&
         (group->way == WEIR_WAY_AG || group->way == WEIR_WAY_ART ||
          weir_codec_find(group->plan.codec)->low_rank);
}

/* Of very many tensors of an element or two an encoder's message may be longer than they are. */
static bool goes_in_pieces(const weir_group *group, bool trial) {
  const weir_plan *plan = &group->plan;
  const int ranks = group->engine->size;
  if (!(trial ? weir_pieces_needed(plan, ranks, group->n, group->kept)
              : weir_pieces_wanted(plan, ranks, group->n, group->kept)))
    return false;
  return weir_codec_find(plan->codec)->encode == NULL ||
         weir_pieces_fit(plan, ranks, &group->layout, group->piece);
}

/* Group `number` takes the tensors from `first` on; its layout's offsets go to `offset`, and those
 * of a piece have as much room. */
static weir_status describe(weir_engine *engine, const weir_group_set *set, weir_group *group,
                            size_t number, size_t first, size_t end, size_t *offset) {
  group->engine = engine;
  group->number = number;
  group->first = first;
  group->end = end;
  group->at = engine->layout.offset[first];
  group->n = engine->layout.offset[end] - group->at;
  for (size_t t = first; t <= end; t++) offset[t - first] = engine->layout.offset[t] - group->at;
  group->layout = (weir_layout){end - first, offset};
  group->piece = offset + (engine->layout.tensors + set->count);
  group->kept = kept_by(weir_codec_find(group->plan.codec), group);
  const weir_status status = weir_exchange_find(group);
  if (status != WEIR_OK) return status;
  const bool here = !engine->config.devices; /* memory is counted of the host alone */
  group->whole = weir_codec_find(group->plan.codec)->low_rank && group->kept == group->n;
  const bool gathers = here && group->way == WEIR_WAY_AG;
  group->merged = gathers && set->trial && weir_merged_fits(group, stride_of(group, true));
  group->pieces = gathers && !group->merged && goes_in_pieces(group, set->trial);
  group->marked = here && is_marked(group, set->trial);
  const weir_group_shape shape = {engine->size, weir_comm_hosts(engine->config.comm),
                                  engine->config.devices};
  weir_plan charged = group->plan;
  if (group->way == WEIR_WAY_AG) charged.collective = WEIR_COLL_AG;
  group->terms = weir_cost_plan_between(&charged, shape, group->n, group->kept);
  group->due = weir_cost_gathering(&charged, shape, group->n, group->kept);
  return WEIR_OK;
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
  set->offset = malloc(2 * (tensors + count) * sizeof *set->offset);
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
    if (engine->device != NULL) group->place = WEIR_PLACE_CALLER; /* whose stream it is */
    if (weir_codec_find(group->plan.codec) == NULL)
      return weir_fail(WEIR_E_INVALID, "codec %u is unknown", group->plan.codec);
    const weir_status status = describe(engine, set, group, k, first, end, set->offset + first + k);
    if (status != WEIR_OK) return status;
    for (; first < end; first++) set->of[first] = (uint32_t)k;
  }
  return WEIR_OK;
}

static weir_status place_all(weir_group_set *set, size_t *size, unsigned char *base) {
  weir_status status = WEIR_OK;
  size_t last = 0, bytes = 0;
  for (size_t k = 0; k < set->count; k++)
    if (set->group[k].pieces)
      bytes = WEIR_PIECES_LAST + (size_t)set->group[k].engine->size * WEIR_PIECES_RANK;
  *size = 0;
  if (bytes > 0 && !part(size, 1, bytes, &last))
    return weir_fail(WEIR_E_NOMEM, "%zu bytes do not fit memory", bytes);
  for (size_t k = 0; k < set->count && status == WEIR_OK; k++)
    status = set->group[k].marked || set->group[k].merged ? place_beside(&set->group[k], size, base)
                                                          : place(&set->group[k], size, base, last);
  return status;
}

/* Does a group's exchange work in spare? */
static bool works_in_spare(const weir_group *group) {
  if (group->marked) return true;
  if (group->late || group->whole) return false;
  return group->way != WEIR_WAY_DENSE || group->plan.codec != WEIR_CODEC_NONE;
}

/* The sums of all groups but the last are better made while others are still exchanged, in spare,
 * as far as there is room beside the messages: from the last on, groups are late until there is. */
static void choose_late(const weir_engine *engine, weir_group_set *set, size_t arena) {
  const bool momentum = engine->velocity.u != NULL;
  size_t spare = momentum ? engine->n / 4 : engine->n / 8; /* marks of decoding, and its own */
  for (size_t k = 0; k < set->count; k++) {
    const size_t bytes = set->group[k].n * sizeof(float);
    if (works_in_spare(&set->group[k])) spare += bytes;
    if (momentum && weir_velocity_keeps(&set->group[k])) spare += bytes;
  }
  for (size_t k = set->count; k > 0; k--) {
    weir_group *group = &set->group[k - 1];
    group->late = group->marked && !set->trial; /* its values are in spare already */
    if (group->late || set->trial) continue;
    const bool fits = arena + spare <= engine->n * sizeof(float) || engine->config.devices;
    const bool free_of_cost = k == set->count && (set->count == 1 || !engine->config.devices);
    if (!may_be_late(group) || (fits && !free_of_cost)) continue;
    group->late = true;
    spare -= group->n * sizeof(float);
  }
}

static weir_status find_arena(const weir_engine *engine, weir_group_set *set) {
  size_t size;
  const weir_status status = place_all(set, &size, NULL);
  set->used = size;
  if (status != WEIR_OK) return status;
  choose_late(engine, set, size);
  set->arena = engine->set.arena;
  set->capacity = engine->set.capacity;
  if (size > set->capacity) {
    unsigned char *arena =
        engine->device != NULL ? weir_on_device_arena(engine, size) : aligned_alloc(LINE, size);
    if (arena == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu bytes of messages", size);
    set->arena = arena;
    set->capacity = size;
  }
  return place_all(set, &size, set->arena);
}

static void free_arena(const weir_engine *engine, unsigned char *arena) {
  if (engine->device != NULL)
    weir_on_device_free_arena(engine, arena);
  else
    free(arena);
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

/* Room for spare there must be all the same: a step that fails needs it. */
void weir_engine_give_back(weir_engine *engine) {
  const bool trial = engine->in_trial || engine->set.trial;
  const size_t arena = engine->set.used;
  if (engine->device != NULL) return;
  for (size_t k = 0; k < engine->set.count && !trial; k++)
    if (!works_in_spare(&engine->set.group[k]))
      weir_give_back(engine->spare + engine->set.group[k].at,
                     engine->set.group[k].n * sizeof(float));
  weir_velocity_give_back(engine, trial);
  weir_give_back(engine->set.arena + arena, engine->set.capacity - arena);
  weir_comm_give_back(engine->config.comm);
  weir_codec_context_use(engine->context, engine->pool); /* makes new lists when it selects */
}

weir_status weir_engine_adopt(weir_engine *engine, const weir_plan *plan,
                              const weir_plan_group *table, bool trial) {
  weir_group_set set = {.trial = trial && engine->device == NULL};
  weir_status status = describe_all(engine, plan, table, &set);
  if (status == WEIR_OK && set.count > 1 && engine->lanes == NULL &&
      engine->config.virtual_network == NULL)
    status = weir_lanes_create(&engine->lanes, engine);
  weir_series *time = NULL;
  if (status == WEIR_OK && engine->config.profile) status = weir_profiler_room(&set, &time);
  if (status == WEIR_OK) status = reserve_warm(engine, &set);
  if (status == WEIR_OK) status = find_arena(engine, &set);
  if (status == WEIR_OK && engine->device != NULL) {
    status = weir_on_device_reserve(engine, &set);
    if (status != WEIR_OK && set.arena != engine->set.arena) free_arena(engine, set.arena);
  }
  if (status != WEIR_OK) {
    free(time);
    release_set(&set);
    return status;
  }
  weir_profiler_forget(engine, time);
  if (set.arena != engine->set.arena) free_arena(engine, engine->set.arena);
  release_set(&engine->set);
  engine->set = set;
  engine->plan = *plan;
  weir_engine_give_back(engine);
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
  free_arena(engine, engine->set.arena);
  weir_on_device_close(engine);
  release_set(&engine->set);
  weir_warm_release(&engine->warm);
  weir_velocity_release(&engine->velocity);
  free(engine->spare);
  free(engine->residual);
  free(engine->submitted);
  free((void *)engine->layout.offset);
}

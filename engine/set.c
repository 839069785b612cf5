/* A plan's buckets and their memory.  It is made when the plan comes into force, never in a step.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/backend.h"
#include "engine/lowrank.h"
#include "engine/memory.h"

#define LINE 64 /* every part of the arena begins on a cache line */

/* --- memory ----------------------------------------------------------------------------------- */

/* Where the next `count` things of `size` bytes lie: at *at, which moves on behind them. */
static bool part(size_t *at, size_t count, size_t size, size_t *offset) {
  size_t bytes, end;
  if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, LINE, &bytes) ||
      __builtin_add_overflow(*at, bytes / LINE * LINE, &end))
    return false;
  *offset = *at;
  *at = end;
  return true;
}

/* Machines whose ranks read each other's devices where there are several; 0: it is all ranks, or
 * none. */
static int machines_of(const weir_engine *engine) {
  return engine->config.rooms_inside ? weir_comm_hosts(engine->config.comm) : 0;
}

size_t weir_bucket_stales(const weir_bucket *bucket) {
  const weir_engine_config *config = &bucket->engine->config;
  return bucket->scheme == WEIR_SCHEME_HITOPK && config->momentum > 0 && bucket->engine->device
             ? weir_hitopk_most(config->comm, bucket->codec, bucket->plan.cr, bucket->n)
             : 0;
}

/* Bytes of all messages that a bucket's row has at a time, and of the longest, where its backend
 * makes them. */
static size_t messages_of(const weir_bucket *bucket, size_t *longest) {
  const int ranks = bucket->engine->size;
  const weir_comm *comm = bucket->engine->config.comm;
  const weir_wire_format wire = (weir_wire_format)bucket->plan.wire;
  const weir_coder coder = weir_bucket_coder(bucket);
  *longest = 0;
  if (!bucket->parts) return 0;
  if (bucket->scheme == WEIR_SCHEME_HITOPK) { /* its own is written by words */
    const size_t most = weir_hitopk_stride(comm, bucket->codec, bucket->plan.cr, wire, bucket->n);
    *longest = most / 16 * 16 + 32;
    return *longest + weir_hitopk_room(comm, bucket->codec, bucket->plan.cr, wire, bucket->n);
  }
  const bool shares = bucket->compressed->id != WEIR_COMPRESSED_TREE;
  *longest =
      weir_coder_bound(&coder, shares ? weir_ring_chunk(bucket->n, ranks, 0).count : bucket->n);
  return bucket->stays ? 0 : weir_coder_room(&coder, bucket->compressed->id, bucket->n, ranks);
}

/* Places a bucket's buffers from *at on.  base: the arena, NULL to learn its size only. */
static weir_status place(weir_bucket *bucket, size_t *at, unsigned char *base) {
  const size_t ranks = (size_t)bucket->engine->size;
  const weir_bucket_room room = weir_bucket_room_of(
      &bucket->plan, bucket->scheme, weir_path_shape(bucket->engine), bucket->n, bucket->kept);
  const size_t stales = weir_bucket_stales(bucket);
  const size_t block = bucket->stays ? sizeof(uint64_t) : room.stride; /* of lengths alone */
  const size_t hosts =
      bucket->stays ? (size_t)machines_of(bucket->engine) : 0; /* messages between them */
  size_t index, value, error, blocks, bytes, stale, messages, between, column, longest;
  const size_t length = messages_of(bucket, &longest);
  if (!part(at, room.indices, sizeof *bucket->index, &index) ||
      !part(at, room.values, sizeof *bucket->value, &value) ||
      !part(at, room.errors, sizeof *bucket->error, &error) ||
      !part(at, room.messages, block, &blocks) ||
      !part(at, ranks, sizeof *bucket->block_bytes, &bytes) ||
      !part(at, hosts, room.stride, &between) ||
      !part(at, hosts, sizeof *bucket->column_bytes, &column) ||
      !part(at, stales, sizeof *bucket->stale, &stale) || !part(at, length, 1, &messages))
    return weir_fail(WEIR_E_NOMEM, "%zu messages of %zu bytes do not fit memory", room.messages,
                     room.stride);
  if (base == NULL) return WEIR_OK;
  bucket->index = (uint32_t *)(void *)(base + index);
  bucket->value = (float *)(void *)(base + value);
  bucket->error = room.errors > 0 ? (float *)(void *)(base + error) : NULL;
  bucket->blocks = base + blocks;
  bucket->stride = bucket->parts ? longest : room.stride;
  bucket->room = base + messages;
  bucket->column = hosts > 0 ? base + between : NULL;
  bucket->column_bytes = (size_t *)(void *)(base + column);
  bucket->block_bytes = (size_t *)(void *)(base + bytes);
  bucket->stale = stales > 0 ? (uint32_t *)(void *)(base + stale) : NULL;
  memset(bucket->block_bytes, 0, ranks * sizeof *bucket->block_bytes);
  return WEIR_OK;
}

static weir_status place_all(const weir_engine *engine, weir_bucket_set *set) {
  weir_status status = WEIR_OK;
  set->bytes = LINE;
  for (size_t k = 0; k < set->count && status == WEIR_OK; k++)
    status = place(&set->bucket[k], &set->bytes, NULL);
  if (status != WEIR_OK) return status;
  set->arena = engine->backend->allocate(engine, set->bytes);
  if (set->arena == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for %zu bytes of messages", set->bytes);
  size_t at = 0;
  for (size_t k = 0; k < set->count && status == WEIR_OK; k++)
    status = place(&set->bucket[k], &at, set->arena);
  return status;
}

/* --- buckets ---------------------------------------------------------------------------------- */

static size_t kept_by(weir_bucket *bucket) {
  const weir_codec *codec = bucket->codec;
  if (codec->low_rank) return weir_lowrank_floats(bucket, &bucket->first_sum);
  if (codec->encode != NULL) return weir_plan_bound(&bucket->plan, &bucket->layout);
  return codec->dense ? bucket->n : codec->kept(&bucket->layout, bucket->plan.cr);
}

/* Encoders that look at more than a message's own elements have other tables for every length. */
static bool parts_of(const weir_bucket *bucket) {
  if (bucket->scheme == WEIR_SCHEME_HITOPK) return bucket->engine->backend->away != NULL;
  return bucket->engine->backend->coder != NULL && bucket->engine->size > 1 &&
         bucket->scheme == WEIR_SCHEME_COMPRESSED && !bucket->codec->by_tensor &&
         (bucket->compressed->id != WEIR_COMPRESSED_HIER_SRA ||
          !weir_comm_levelled(bucket->engine->config.comm));
}

/* From 5 bits on what rounding leaves hardly tells on an optimizer's steps, and a training's
 * beginning is sent in as many.  Without error feedback a residual comes from a loaded state, and
 * is sent in one step. */
static bool is_damped(const weir_bucket *bucket) {
  const weir_engine_config *config = &bucket->engine->config;
  return config->damped && !config->without_feedback && bucket->codec->damps &&
         bucket->plan.cr < 5.0 / 32;
}

/* By the row that runs.  Which of its paths is the longest is asked once, when a plan is adopted,
 * on the link that all ranks agree on by then: following messages takes memory, which steps do
 * not. */
static void price(weir_bucket *bucket) {
  const weir_group_shape shape = weir_comm_shape(bucket->engine->config.comm);
  weir_link agreed;
  const weir_link *const link = weir_telemetry_link(bucket->engine, &agreed) ? &agreed : NULL;
  weir_plan charged = bucket->plan;
  charged.scheme = bucket->scheme;
  bucket->terms = weir_cost_plan_between(&charged, shape, link, bucket->n, bucket->kept);
  bucket->due = weir_cost_gathered(&charged, bucket->n, bucket->kept);
}

/* Bucket `number` takes the tensors from `first` on; its layout's offsets go to `offset`. */
static weir_status describe(weir_engine *engine, weir_bucket *bucket, size_t number, size_t first,
                            size_t end, size_t *offset) {
  bucket->engine = engine;
  bucket->number = number;
  bucket->first = first;
  bucket->end = end;
  bucket->at = engine->layout.offset[first];
  bucket->n = engine->layout.offset[end] - bucket->at;
  for (size_t t = first; t <= end; t++) offset[t - first] = engine->layout.offset[t] - bucket->at;
  bucket->layout = (weir_layout){end - first, offset};
  bucket->kept = kept_by(bucket);
  const weir_status status = weir_scheme_find(bucket);
  if (status != WEIR_OK) return status;
  bucket->thin = bucket->scheme == WEIR_SCHEME_LOW_RANK;
  bucket->whole = bucket->scheme == WEIR_SCHEME_DENSE;
  bucket->parts = parts_of(bucket);
  bucket->all = bucket->whole || bucket->scheme == WEIR_SCHEME_COMPRESSED ||
                bucket->scheme == WEIR_SCHEME_HITOPK || bucket->scheme == WEIR_SCHEME_PATH;
  bucket->leaves = !bucket->whole || (bucket->codec->rounds && !engine->config.without_feedback);
  bucket->damped = is_damped(bucket);
  price(bucket);
  return WEIR_OK;
}

static void release_set(const weir_engine *engine, weir_bucket_set *set) {
  if (set->arena != NULL) engine->backend->release(engine, set->arena, set->bytes);
  free(set->of);
  free(set->offset);
  free(set->bucket);
  *set = (weir_bucket_set){0};
}

/* Everything of a set but its arena. */
static weir_status describe_all(weir_engine *engine, const weir_plan *plan,
                                const weir_plan_bucket *table, size_t count, weir_bucket_set *set) {
  const size_t tensors = engine->layout.tensors;
  set->count = count;
  set->bucket = calloc(count, sizeof *set->bucket);
  set->offset = malloc((tensors + count) * sizeof *set->offset);
  set->of = malloc((tensors + 1) * sizeof *set->of);
  if (set->bucket == NULL || set->offset == NULL || set->of == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for a plan of %zu buckets", count);
  size_t first = 0;
  for (size_t k = 0; k < count; k++) {
    weir_bucket *bucket = &set->bucket[k];
    const size_t end = table[k].end;
    bucket->plan = *plan;
    weir_plan_of_bucket(&table[k], &bucket->plan);
    bucket->place = engine->backend->on_caller ? WEIR_PLACE_CALLER : table[k].place;
    bucket->codec = weir_codec_find(bucket->plan.codec);
    if (bucket->codec == NULL)
      return weir_fail(WEIR_E_INVALID, "codec %u is unknown", bucket->plan.codec);
    const weir_status status = describe(engine, bucket, k, first, end, set->offset + first + k);
    if (status != WEIR_OK) return status;
    for (; first < end; first++) set->of[first] = (uint32_t)k;
  }
  return WEIR_OK;
}

static weir_status reserve_warm(weir_engine *engine, const weir_bucket_set *set) {
  size_t rank = 0;
  for (size_t k = 0; k < set->count; k++) {
    const weir_bucket *bucket = &set->bucket[k];
    const size_t mine = bucket->codec->low_rank ? weir_lowrank_rank(bucket) : 0;
    if (mine > rank) rank = mine;
  }
  return weir_warm_reserve(engine, rank);
}

static size_t staying(const weir_bucket *bucket) {
  return weir_bucket_stays(&bucket->plan, bucket->scheme, weir_path_shape(bucket->engine),
                           bucket->engine->config.rooms_inside, bucket->n, bucket->kept);
}

/* Where ranks' devices read each other's memory, messages are in rooms there. */
static weir_status share(weir_engine *engine, weir_bucket_set *set) {
  size_t bytes = 0;
  bool yes = false;
  if (!engine->config.rooms || engine->size == 1) return WEIR_OK;
  if (engine->config.rooms_inside && !weir_comm_levelled(engine->config.comm))
    return weir_fail(WEIR_E_INTERNAL, "rooms inside of machines with different numbers of ranks");
  for (size_t k = 0; k < set->count; k++) {
    weir_bucket *bucket = &set->bucket[k];
    bucket->stays_at = bytes;
    bytes += staying(bucket);
  }
  const weir_status status = bytes > 0 ? engine->backend->share(engine, bytes, &yes) : WEIR_OK;
  set->stays = yes ? bytes : 0;
  for (size_t k = 0; k < set->count; k++)
    set->bucket[k].stays = yes && staying(&set->bucket[k]) > 0;
  return status;
}

static weir_status make(weir_engine *engine, const weir_plan *plan, const weir_plan_bucket *table,
                        weir_bucket_set *set, weir_series **time) {
  weir_plan_bucket *run = calloc((table != NULL ? plan->buckets : 1) + 1, sizeof *run);
  if (run == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a plan's buckets");
  const size_t count = weir_full_table(engine, plan, table, run);
  weir_status status = describe_all(engine, plan, run, count, set);
  free(run);
  if (status == WEIR_OK && set->count > 1 && engine->lanes == NULL &&
      engine->config.virtual_network == NULL)
    status = weir_lanes_create(&engine->lanes, engine);
  if (status == WEIR_OK && engine->config.profile) status = weir_profiler_room(set, time);
  if (status == WEIR_OK) status = reserve_warm(engine, set);
  if (status == WEIR_OK) status = share(engine, set);
  if (status == WEIR_OK) status = place_all(engine, set);
  return status == WEIR_OK ? engine->backend->reserve(engine, set) : status;
}

bool weir_engine_leaves(const weir_engine *engine) {
  bool some = false;
  for (size_t k = 0; k < engine->set.count; k++) some = some || engine->set.bucket[k].leaves;
  return some && !engine->config.without_feedback;
}

static weir_status fits(const weir_engine *engine, const weir_bucket_set *set,
                        const weir_plan *plan) {
  const weir_engine_config *config = &engine->config;
  weir_memory_form form = weir_memory_form_of(weir_comm_shape(config->comm), config->most_ranks);
  form.momentum = config->momentum > 0;
  form.without_feedback = config->without_feedback;
  form.threads = config->threads || engine->pool != NULL;
  form.follows = config->follows > 0;
  double bytes = weir_room_takes(set->stays);
  char text[WEIR_PLAN_TEXT_MAX];
  for (size_t k = 0; k < set->count; k++) {
    const weir_bucket *bucket = &set->bucket[k];
    bytes += weir_plan_memory(&bucket->plan, &form, bucket->n, bucket->kept);
  }
  if (config->memory_limit <= 0 || bytes <= config->memory_limit) return WEIR_OK;
  weir_plan_format(plan, text);
  return weir_fail(WEIR_E_UNSUPPORTED,
                   "plan %s takes %.0f bytes beyond the gradients, and memory_limit is %.0f", text,
                   bytes, config->memory_limit);
}

weir_status weir_engine_fits(const weir_engine *engine) {
  return fits(engine, &engine->set, &engine->plan);
}

weir_status weir_engine_runs(weir_engine *engine, const weir_plan *plan) {
  weir_plan_bucket run[2]; /* the whole, and what stays in full precision */
  weir_bucket_set set = {0};
  const size_t count = weir_full_table(engine, plan, NULL, run);
  weir_status status = describe_all(engine, plan, run, count, &set);
  if (status == WEIR_OK) status = fits(engine, &set, plan);
  release_set(engine, &set);
  return status;
}

weir_status weir_engine_adopt(weir_engine *engine, const weir_plan *plan,
                              const weir_plan_bucket *table) {
  weir_bucket_set set = {0};
  weir_series *time = NULL;
  const weir_status status = make(engine, plan, table, &set, &time);
  if (status != WEIR_OK) {
    free(time);
    release_set(engine, &set);
    return status;
  }
  weir_profiler_forget(engine, time);
  release_set(engine, &engine->set);
  engine->set = set;
  engine->plan = *plan;
  weir_comm_give_back(engine->config.comm); /* what plans before have used for their hops */
  return WEIR_OK;
}

/* The plan in force is adopted anew, as a device has its own description of it. */
weir_status weir_engine_damp(weir_engine *engine) {
  const weir_status status = weir_engine_check(engine);
  if (status != WEIR_OK) return status;
  if (engine->in_step) return weir_fail(WEIR_E_STATE, "weir_step_end is due");
  if (engine->config.damped) return WEIR_OK;
  const weir_plan plan = engine->plan;
  engine->config.damped = true;
  /* Where the table is of another plan, that one is about to be adopted. */
  if (plan.buckets > 0 && engine->table_name != plan.layout) return WEIR_OK;
  return weir_engine_adopt(engine, &plan, plan.buckets > 0 ? engine->table : NULL);
}

void weir_engine_release(weir_engine *engine) {
  free(engine->checkpoint.hook_bytes);
  free(engine->checkpoint.memory);
  free(engine->hooks);
  free(engine->states);
  free(engine->headers);
  free(engine->profiler.time);
  free(engine->profiler.gap);
  free(engine->table);
  release_set(engine, &engine->set);
  engine->backend->close(engine);
  weir_warm_release(&engine->warm);
  free(engine->types);
  free(engine->submitted);
  free((void *)engine->layout.offset);
}

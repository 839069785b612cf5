/* After the group has ended, or ranks have joined it: an engine goes on in the new one.  A step may
 * have been completed by some of them and not by others; then all of its contributions had been
 * sent, this rank's too, and those behind only have to draw the consequences. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/lowrank.h"

#define PIECE ((size_t)4 << 20)

void weir_engine_stand(weir_engine *engine, weir_standing *standing) {
  weir_lanes_free(engine->lanes); /* what they still do is bounded */
  engine->lanes = NULL;
  engine->backend->rest(engine);
  if (engine->in_trial) weir_checkpoint_restore(engine);
  engine->in_trial = engine->in_step = false;
  *standing = (weir_standing){.committed = engine->committed,
                              .exchanges = engine->exchanges,
                              .turn = engine->turn,
                              .columns = engine->warm.rank};
  for (size_t i = 0; i < engine->state_count; i++) standing->state_bytes += engine->states[i].bytes;
}

/* What this rank sent of a bucket in the step it failed in is gone from e, but for what is found
 * out between two collectives.  Should the backend fail here, the next step says so. */
static void settle_bucket(weir_bucket *bucket) {
  const weir_backend *backend = bucket->engine->backend;
  if (bucket->settled) return;
  if (bucket->all)
    (void)backend->store(bucket, NULL);
  else if (bucket->scheme == WEIR_SCHEME_SHARED)
    (void)backend->settle(bucket, NULL);
  else if (bucket->thin && bucket->error != NULL)
    (void)weir_lowrank_take_off(bucket);
  bucket->settled = true;
}

static void settle(weir_engine *engine) {
  for (size_t k = 0; k < engine->set.count; k++) settle_bucket(&engine->set.bucket[k]);
  engine->backend->commit(engine);
}

/* In pieces, each of which has the whole time-out: no state is too large for it.  Whoever does not
 * take it has room for one piece, into which all come. */
static weir_status receive(weir_engine *engine, int from, void *data, size_t due, bool takes) {
  weir_status status = WEIR_OK;
  for (size_t at = 0; status == WEIR_OK && at < due; at += PIECE) {
    const size_t wanted = due - at < PIECE ? due - at : PIECE;
    size_t bytes = wanted;
    status = weir_broadcast(engine->config.comm, from, (unsigned char *)data + (takes ? at : 0),
                            wanted, &bytes);
    if (status == WEIR_OK && bytes != wanted)
      status = weir_fail(WEIR_E_PROTOCOL, "rank %d has another state than this rank", from);
  }
  return status;
}

/* Registered memory, and the columns that powersgd starts from, from a rank that is not behind, to
 * which `memory` is NULL.  Columns that some rank does not have yet are everywhere as they were
 * drawn.  A rank that is behind takes all into `memory` first: what has come in part is of no step.
 * The others, whose states may be of their own, keep those and only pass pieces on. */
static weir_status share_state(weir_engine *engine, uint64_t columns, int from, bool missed,
                               unsigned char *memory) {
  const bool takes = missed || memory == NULL;
  static const char name[] = "weir state after a loss";
  const size_t warm = (size_t)columns * engine->warm.width * sizeof *engine->warm.values;
  weir_comm_step(engine->config.comm, weir_hash(WEIR_HASH_INIT, name, sizeof name),
                 engine->exchanges);
  weir_status status = WEIR_OK;
  size_t at = 0;
  for (size_t i = 0; status == WEIR_OK && i < engine->state_count; i++) {
    const weir_state *state = &engine->states[i];
    status = receive(engine, from, memory ? memory + at : state->data, state->bytes, takes);
    at += takes ? state->bytes : 0;
  }
  if (status == WEIR_OK && warm > 0)
    status = receive(engine, from, memory ? (void *)(memory + at) : (void *)engine->warm.values,
                     warm, takes);
  return status;
}

/* What came becomes this rank's.  Nothing here can fail. */
static void take_state(weir_engine *engine, uint64_t columns, const unsigned char *memory) {
  size_t at = 0;
  for (size_t i = 0; i < engine->state_count; i++) {
    if (engine->states[i].bytes > 0)
      memcpy(engine->states[i].data, memory + at, engine->states[i].bytes);
    at += engine->states[i].bytes;
  }
  const size_t warm = (size_t)columns * engine->warm.width * sizeof *engine->warm.values;
  if (warm > 0) memcpy(engine->warm.values, memory + at, warm);
}

static uint64_t fewest_columns(const weir_standing *all, int ranks) {
  uint64_t columns = all[0].columns;
  for (int r = 1; r < ranks; r++)
    if (!all[r].fresh && all[r].columns < columns) columns = all[r].columns;
  return columns;
}

/* Some rank is behind.  Afterwards none is. */
static weir_status catch_up(weir_engine *engine, const weir_standing *all, int ranks, int leader,
                            bool missed) {
  const uint64_t columns = fewest_columns(all, ranks);
  const int rank = weir_comm_rank(engine->config.comm);
  const bool fresh = all[rank].fresh != 0;
  unsigned char *memory = NULL;
  weir_status status = fresh ? weir_warm_reserve(engine, (size_t)columns) : WEIR_OK;
  if (status != WEIR_OK) return status;
  if (rank != leader) {
    const size_t warm = (size_t)columns * engine->warm.width * sizeof *engine->warm.values;
    memory = malloc(missed ? (size_t)all[leader].state_bytes + warm + 1 : PIECE);
    if (memory == NULL)
      return weir_fail(WEIR_E_NOMEM, "no memory for the state of rank %d", leader);
  }
  status = share_state(engine, columns, leader, missed, memory);
  if (status == WEIR_OK && missed) {
    if (!fresh) settle(engine); /* in the old numbers */
    take_state(engine, columns, memory);
    engine->committed = all[leader].committed;
    engine->caught_up = true;
  }
  free(memory);
  return status;
}

static weir_status find_leader(const weir_standing *all, int ranks, int *leader, bool *behind) {
  *leader = 0;
  *behind = false;
  for (int r = 1; r < ranks; r++)
    if (!all[r].fresh && all[r].committed > all[*leader].committed) *leader = r;
  for (int r = 0; r < ranks; r++) {
    if (all[r].fresh || all[r].committed != all[*leader].committed) *behind = true;
    if ((!all[r].fresh && all[r].committed + 1 < all[*leader].committed) ||
        all[r].state_bytes != all[*leader].state_bytes)
      return weir_fail(WEIR_E_MISMATCH, "ranks %d and %d do not belong together any more", r,
                       *leader);
  }
  return WEIR_OK;
}

/* Room for the new group; afterwards nothing can fail for want of memory. */
static weir_status resize(weir_engine *engine, const weir_regrouping *group) {
  weir_header *headers = calloc((size_t)engine->size, sizeof *headers);
  if (headers == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", engine->size);
  free(engine->headers);
  engine->headers = headers;
  if (engine->config.rooms) /* which the ranks before had agreed on */
    weir_log(WEIR_LOG_INFO, "messages of devices go over the host in the new group");
  engine->config.rooms = false;
  if (engine->backend->unshare != NULL) engine->backend->unshare(engine);
  engine->config.hooks.want_curve = group->want_curve;
  engine->config.memory_limit = group->memory_limit;
  engine->config.threads = group->threads;
  engine->config.follows = group->follows;
  weir_status status = WEIR_OK;
  if (group->want_curve != NULL && engine->curve == NULL)
    status = weir_gain_curve_create(&engine->curve);
  for (size_t i = 0; status == WEIR_OK && i < group->firsts; i++) {
    status = weir_engine_runs(engine, &group->first[i]);
    if (status == WEIR_OK) return weir_engine_adopt(engine, &group->first[i], NULL);
    if (status == WEIR_E_UNSUPPORTED && i + 1 < group->firsts) status = WEIR_OK;
  }
  return status;
}

weir_status weir_engine_regroup(weir_engine *engine, const weir_regrouping *group,
                                const weir_standing *all, int *leader, bool *missed) {
  const int ranks = weir_comm_size(group->comm), rank = weir_comm_rank(group->comm);
  bool behind = false;
  engine->config.comm = group->comm;
  weir_status status = find_leader(all, ranks, leader, &behind);
  *missed = status == WEIR_OK && (all[rank].fresh || all[rank].committed != all[*leader].committed);
  for (int r = 0; status == WEIR_OK && r < ranks; r++) {
    if (all[r].exchanges > engine->exchanges) engine->exchanges = all[r].exchanges;
    if (all[r].turn > engine->turn) engine->turn = all[r].turn;
  }
  if (behind && status == WEIR_OK) status = catch_up(engine, all, ranks, *leader, *missed);
  if (status != WEIR_OK) return weir_engine_break(engine, status);
  engine->rank = rank;
  engine->size = ranks;
  /* A rank that has joined knows nothing yet of what elements usually are. */
  if (engine->backend->forget != NULL) engine->backend->forget(engine);
  engine->table_name = 0; /* a rank that has joined has no table of buckets: all fetch the next */
  status = resize(engine, group);
  if (status != WEIR_OK) return weir_engine_break(engine, status);
  *missed = engine->caught_up;
  engine->caught_up = false;
  memset(&engine->pending, 0, sizeof engine->pending);
  engine->last_compress_s = engine->last_comm_s = 0;
  engine->average_known = false; /* not all survivors have taken the newest */
  engine->broken = WEIR_OK;
  return WEIR_OK;
}

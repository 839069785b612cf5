/* Work that every rank would repeat is divided among the ranks, and its results are
 * all-gathered. */
#include <stdlib.h>
#include <string.h>
#include <weir/parallel.h>

#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"
#include "collectives/select.h"
#include "session/abi.h"
#include "session/parallel.h"
#include "session/state.h"

typedef struct parallel {
  weir_session *session;
  weir_map map;
  size_t work; /* of all items */
  int ranks, rank;
  size_t *begin;  /* ranks + 1: the first item of each */
  size_t stride;  /* bytes of the longest share */
  size_t *bytes;  /* per rank */
  uint32_t *told; /* per rank: what its function returned */
} parallel;

static weir_status check(const weir_map *map, const void *results, size_t *work) {
  size_t all;
  if (map->fn == NULL) return weir_fail(WEIR_E_INVALID, "a map needs a function");
  if (map->bytes == 0) return weir_fail(WEIR_E_INVALID, "an item's result has at least one byte");
  if (map->count > 0 && results == NULL)
    return weir_fail(WEIR_E_INVALID, "the pointer for the results is NULL");
  if (__builtin_mul_overflow(map->count, map->bytes, &all))
    return weir_fail(WEIR_E_INVALID, "%zu results of %zu bytes are too long", map->count,
                     map->bytes);
  *work = 0;
  for (size_t i = 0; map->work != NULL && i < map->count; i++)
    if (__builtin_add_overflow(*work, map->work[i], work))
      return weir_fail(WEIR_E_INVALID, "the work of %zu items is more than SIZE_MAX", map->count);
  return WEIR_OK;
}

/* --- who does what ---------------------------------------------------------------------------- */

/* With work, a rank has the items that begin in its share of all work; what is no work at the end
 * is the last one's.  Otherwise runs of equal length, as far as there are items. */
void weir_divide(const size_t *work, size_t all, size_t count, int ranks, size_t *begin) {
  const size_t each = count / (size_t)ranks + (count % (size_t)ranks > 0);
  size_t item = 0, before = 0;
  for (size_t r = 0; r < (size_t)ranks; r++) {
    const size_t from = weir_ring_chunk(all, ranks, (int)r).begin;
    for (; work != NULL && item < count && before < from; item++) before += work[item];
    begin[r] = work != NULL ? item : each > 0 && r > count / each ? count : r * each;
  }
  begin[ranks] = count;
}

static void divide(parallel *p) {
  size_t most = 0;
  weir_divide(p->map.work, p->work, p->map.count, p->ranks, p->begin);
  for (int r = 0; r < p->ranks; r++)
    if (p->begin[r + 1] - p->begin[r] > most) most = p->begin[r + 1] - p->begin[r];
  p->stride = most * p->map.bytes;
}

static size_t share(const parallel *p, int rank) {
  return (p->begin[rank + 1] - p->begin[rank]) * p->map.bytes;
}

static weir_status compute(const weir_map *map, size_t first, size_t count, void *results) {
  const weir_status status = count > 0 ? map->fn(map->user, first, count, results) : WEIR_OK;
  return status >= WEIR_OK && status < WEIR_E_NONFINITE ? status : WEIR_E_INVALID;
}

static weir_status failed(int rank, weir_status status) {
  return weir_fail(status, "the function that rank %d computes its share with has failed: %s", rank,
                   weir_status_name(status));
}

/* --- gathering -------------------------------------------------------------------------------- */

/* Ranks that compute something else are not on the same plan. */
static void tag(const parallel *p) {
  static const char name[] = "weir parallel map";
  const uint64_t form[2] = {p->map.count, p->map.bytes};
  uint64_t digest = weir_hash(WEIR_HASH_INIT, name, sizeof name);
  digest = weir_hash(digest, form, sizeof form);
  if (p->map.work != NULL) digest = weir_hash(digest, p->map.work, p->map.count * sizeof(size_t));
  weir_comm_step(p->session->comm, digest, p->session->gathers++);
}

/* By what all ranks were told of the network in the last step. */
static uint32_t cheapest(const weir_session *session, size_t block_bytes) {
  weir_step_info now = {0};
  weir_engine_network(session->engine, &now);
  const weir_link link = {
      .alpha = now.latency_s,
      .beta = now.goodput_bytes_s > 0 ? 1.0 / now.goodput_bytes_s : 0,
  };
  return (uint32_t)weir_select_row(WEIR_KIND_ALLGATHER, weir_comm_shape(session->comm), &link,
                                   (double)block_bytes);
}

/* What came, looked at: a failure has no results, anything else all of them. */
static weir_status look(parallel *p) {
  for (int r = 0; r < p->ranks; r++) {
    const bool well = p->told[r] == WEIR_OK;
    if (p->told[r] >= WEIR_E_NONFINITE || p->bytes[r] != (well ? share(p, r) : 0))
      return weir_comm_refuse(
          p->session->comm, r,
          weir_fail(WEIR_E_PROTOCOL, "share of %zu bytes, not %zu", p->bytes[r], share(p, r)));
  }
  for (int r = 0; r < p->ranks; r++)
    if (p->told[r] != WEIR_OK) return failed(r, (weir_status)p->told[r]);
  return WEIR_OK;
}

/* Blocks lie `stride` apart: in the results themselves where all have that length. */
static weir_status gather(parallel *p, unsigned char *results) {
  const bool in_place = (size_t)p->ranks * p->stride == p->map.count * p->map.bytes;
  const size_t own = p->begin[p->rank] * p->map.bytes;
  void *blocks = results != NULL ? (void *)results : p->told; /* of no items */
  if (!in_place) {
    const weir_status status =
        weir_comm_scratch(p->session->comm, WEIR_SCRATCH_A, (size_t)p->ranks * p->stride, &blocks);
    if (status != WEIR_OK) return weir_engine_break(p->session->engine, status);
  }
  if (!in_place && p->bytes[p->rank] > 0)
    memcpy((unsigned char *)blocks + (size_t)p->rank * p->stride, results + own, p->bytes[p->rank]);
  weir_headers headers = {p->told, sizeof *p->told};
  tag(p);
  const weir_allgather_row *row = &weir_allgathers[cheapest(p->session, p->stride)];
  weir_status status = row->run(p->session->comm, blocks, p->stride, p->bytes, &headers);
  if (status == WEIR_OK) status = look(p);
  if (status != WEIR_OK || in_place) return status;
  for (int r = 0; r < p->ranks; r++)
    if (r != p->rank && p->bytes[r] > 0)
      memcpy(results + p->begin[r] * p->map.bytes, (unsigned char *)blocks + (size_t)r * p->stride,
             p->bytes[r]);
  return WEIR_OK;
}

static weir_status run(parallel *p, unsigned char *results) {
  const size_t ranks = (size_t)p->ranks;
  size_t *const table = calloc(2 * ranks + 1, sizeof *table);
  p->told = calloc(ranks, sizeof *p->told);
  weir_status status = WEIR_E_NOMEM;
  if (table == NULL || p->told == NULL) {
    status = weir_engine_break(
        p->session->engine, weir_fail(status, "no memory to divide work among %zu ranks", ranks));
  } else {
    p->begin = table;
    p->bytes = table + ranks + 1;
    divide(p);
    const size_t first = p->begin[p->rank], count = p->begin[p->rank + 1] - first;
    p->told[p->rank] = (uint32_t)compute(&p->map, first, count,
                                         results != NULL ? results + first * p->map.bytes : NULL);
    p->bytes[p->rank] = p->told[p->rank] == WEIR_OK ? share(p, p->rank) : 0;
    status = gather(p, results);
  }
  free(p->told);
  free(table);
  return status;
}

static weir_status check_between_steps(const weir_session *session) {
  if (!weir_engine_exchanging(session->engine)) return WEIR_OK;
  return weir_fail(WEIR_E_STATE, "buckets are being exchanged; weir_step_end is due first");
}

static weir_status together(parallel *p, void *results) {
  weir_session *const session = p->session;
  const weir_status early = check_between_steps(session);
  if (early != WEIR_OK) return early;
  p->ranks = session->options.world_size;
  p->rank = session->options.rank;
  weir_scope *before = weir_scope_enter(&session->inside.scope);
  const weir_status status = weir_session_keep_failure(session, run(p, results));
  weir_scope_leave(before);
  return status;
}

weir_status weir_parallel_places(weir_session *session, uint64_t form, const weir_places *places,
                                 size_t block_bytes) {
  static const char name[] = "weir parallel places";
  const weir_status early = check_between_steps(session);
  if (early != WEIR_OK) return early;
  weir_comm_step(session->comm, weir_hash(form, name, sizeof name), session->gathers++);
  weir_scope *before = weir_scope_enter(&session->inside.scope);
  weir_status status =
      weir_allgather_places(session->comm, places, cheapest(session, block_bytes), NULL);
  if (status != WEIR_OK) status = weir_engine_break(session->engine, status);
  (void)weir_session_keep_failure(session, status);
  weir_scope_leave(before);
  return status;
}

weir_status weir_parallel_map(weir_session *session, const weir_map *map, void *results) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_map, user);
  parallel p = {.session = session};
  weir_status status = session != NULL ? weir_session_check(session) : WEIR_OK;
  if (status == WEIR_OK && map == NULL) status = weir_fail(WEIR_E_INVALID, "the map is NULL");
  if (status == WEIR_OK) status = weir_abi_take(&known, &p.map, map);
  if (status == WEIR_OK) status = check(&p.map, results, &p.work);
  if (status != WEIR_OK) return status;
  if (session != NULL && session->options.world_size > 1) return together(&p, results);
  status = compute(&p.map, 0, p.map.count, results);
  return status == WEIR_OK ? WEIR_OK : failed(0, status);
}

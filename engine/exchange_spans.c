/* A selection through AG, in pieces (collectives/pieces.h): when the messages of all ranks, and
 * what selecting takes, are longer than the gradient.  spare holds
 *
 *   selecting     indices           -         candidates
 *   prepared      -                           marks
 *   exchanging    sum | next piece | messages | indices, values, errors |   marks
 *
 * No piece is sent before what this rank sends of it has been taken off its residual. */
#include <string.h>

#include "base/base.h"
#include "collectives/pieces.h"
#include "engine/marks.h"
#include "engine/state.h"

typedef struct spans {
  weir_group *group;
  size_t at, end; /* elements of the piece under way */
  weir_span span;
  unsigned char *messages; /* span.stride apart */
} spans;

static size_t next_mark(const weir_group *group, size_t from, size_t end) {
  const weir_marks marks = weir_marks_in_spare(group);
  return weir_marks_next(&marks, from, end);
}

weir_status weir_pieces_select(weir_group *group) {
  size_t k = 0;
  group->index = (uint32_t *)(void *)group->spare;
  group->kept_capacity = group->kept;
  group->room = group->spare + group->kept;
  group->room_bytes = (group->n - group->kept) * sizeof(float);
  const weir_status status = weir_group_select(group, &k);
  const weir_marks marks = weir_marks_in_spare(group);
  if (status == WEIR_OK) weir_marks_set(&marks, group->index, k);
  return status;
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* How far this rank can go with the piece that begins at `at`. */
static size_t reach_of(const weir_group *group, size_t at, const weir_span *span) {
  const size_t end = at + span->most;
  size_t i = next_mark(group, at, end);
  for (size_t k = 0; i < end && k < span->kept; k++) i = next_mark(group, i + 1, end);
  return i;
}

static weir_span span_at(const weir_group *group, size_t at) {
  const weir_plan *plan = &group->plan;
  const int ranks = group->engine->size;
  return group->engine->set.trial ? weir_span_sparse(plan, ranks, group->n, at, group->kept)
                                  : weir_span_next(plan, ranks, group->n, at);
}

/* As far as all can go; what each says lies stride apart. */
static weir_status agree(const spans *s, const unsigned char *said, size_t stride, size_t at,
                         const weir_span *span, size_t *end) {
  weir_engine *engine = s->group->engine;
  *end = at + span->most;
  for (int r = 0; r < engine->size; r++) {
    uint64_t reach = 0;
    if (s->group->block_bytes[r] >= sizeof reach)
      memcpy(&reach, said + (size_t)r * stride, sizeof reach);
    if (reach <= at || reach > at + span->most)
      return weir_engine_blame(
          engine, r,
          weir_fail(WEIR_E_PROTOCOL, "rank %d wants a piece of %zu elements to end at %llu", r,
                    s->group->n, (unsigned long long)reach));
    *end = reach < *end ? (size_t)reach : *end;
  }
  return WEIR_OK;
}

static weir_status begin(spans *s) {
  weir_group *group = s->group;
  const int rank = group->engine->rank;
  s->span = span_at(group, 0);
  const uint64_t reach = reach_of(group, 0, &s->span);
  memcpy(group->blocks + (size_t)rank * sizeof reach, &reach, sizeof reach);
  group->block_bytes[rank] = sizeof reach;
  weir_lap_compress(group);
  const weir_status status = weir_allgather(group->engine->config.comm, group->blocks, sizeof reach,
                                            group->block_bytes, NULL);
  weir_lap_comm(group);
  if (status == WEIR_OK) weir_ag_count(group);
  return status == WEIR_OK ? agree(s, group->blocks, sizeof reach, 0, &s->span, &s->end) : status;
}

/* What this rank sends of the piece, behind how far it can go with the next. */
static weir_status encode(spans *s, unsigned char *message, const weir_span *next) {
  weir_group *group = s->group;
  const bool rounds = group->plan.wire >= WEIR_WIRE_AUTO_BF16;
  unsigned char *const lists = s->messages + (size_t)group->engine->size * s->span.stride;
  uint32_t *index = (uint32_t *)(void *)lists;
  float *const value = (float *)(void *)(index + s->span.kept), *const error = value + s->span.kept;
  float *const e = group->fed + s->at;
  size_t k = 0, bytes = 0;
  for (size_t i = next_mark(group, s->at, s->end); i < s->end; i = next_mark(group, i + 1, s->end))
    index[k++] = (uint32_t)(i - s->at);
  const uint64_t reach = s->end < group->n ? reach_of(group, s->end, next) : 0;
  memcpy(message, &reach, sizeof reach);
  weir_gather(e, index, k, value);
  group->passage.kept_square += weir_sum_square(value, k);
  if (rounds) memset(error, 0, k * sizeof *error);
  const weir_status status = weir_wire_encode(
      s->end - s->at, index, value, k, (weir_wire_format)group->plan.wire,
      message + WEIR_SPAN_AHEAD, s->span.stride - WEIR_SPAN_AHEAD, &bytes, rounds ? error : NULL);
  if (status != WEIR_OK) return weir_engine_blame(group->engine, group->engine->rank, status);
  group->block_bytes[group->engine->rank] = WEIR_SPAN_AHEAD + bytes;
  weir_velocity_cut(group, s->at, index, k);
  weir_scatter_zero(e, index, k);
  if (rounds) weir_scatter_add(e, index, error, k);
  return WEIR_OK;
}

static weir_status add_up(spans *s) {
  weir_group *group = s->group;
  float *const sum = group->spare + s->at;
  weir_status status = WEIR_OK;
  for (int r = 0; r < group->engine->size && status == WEIR_OK; r++) {
    const unsigned char *message = s->messages + (size_t)r * s->span.stride;
    const size_t all = group->block_bytes[r], n = s->end - s->at;
    const size_t bytes = all < WEIR_SPAN_AHEAD ? 0 : all - WEIR_SPAN_AHEAD;
    status = r == 0 ? weir_wire_decode_dense(NULL, message + WEIR_SPAN_AHEAD, bytes, n, sum)
                    : weir_wire_decode_add(NULL, message + WEIR_SPAN_AHEAD, bytes, n, sum);
    if (status != WEIR_OK) status = weir_comm_refuse(group->engine->config.comm, r, status);
  }
  return status;
}

/* One piece; then *s is at the next. */
static weir_status exchange(spans *s, weir_notes *notes) {
  weir_group *group = s->group;
  const bool last = s->end == group->n;
  const weir_span next = last ? s->span : span_at(group, s->end);
  size_t end = group->n;
  s->messages =
      s->span.apart ? group->blocks : (unsigned char *)(group->spare + s->at + s->span.most);
  weir_status status = encode(s, s->messages + (size_t)group->engine->rank * s->span.stride, &next);
  weir_lap_compress(group);
  if (status != WEIR_OK) return status;
  status = weir_allgather(group->engine->config.comm, s->messages, s->span.stride,
                          group->block_bytes, last ? notes : NULL);
  weir_lap_comm(group);
  if (status == WEIR_OK) weir_ag_count(group);
  if (status == WEIR_OK && !last)
    status = agree(s, s->messages, s->span.stride, s->end, &next, &end);
  if (status == WEIR_OK) status = add_up(s);
  weir_lap_compress(group);
  s->at = s->end;
  s->end = end;
  s->span = next;
  return status;
}

weir_status weir_exchange_spans(weir_group *group, weir_notes *notes) {
  spans s = {.group = group};
  weir_status status = begin(&s);
  while (status == WEIR_OK && s.at < group->n) status = exchange(&s, notes);
  if (status != WEIR_OK) return status;
  group->passage.sum = group->spare;
  return WEIR_OK;
}

/* AR-Topk of so many elements that lists of them are longer than the gradient.  spare holds
 *
 *   selecting     indices | candidates
 *   sharing       indices | message                                             marks
 *   summing       sums | values | what rounding loses | the all-reduce's own |  marks
 *
 * Indices come in stretches, and values are summed in windows, as many as memory asks for
 * (collectives/pieces.h): one, as long as less than half is kept.  Where windows follow one
 * another, the sums of those before lie at the front, as bf16 where that is what they are, or where
 * they would be too many in the places of e that were emptied for them.
 *
 * What this rank sends is taken off its residual before it is sent: nobody can tell afterwards what
 * it was. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "collectives/pieces.h"
#include "engine/marks.h"
#include "engine/state.h"

#define LISTED 512 /* indices at a time */

/* Alone a rank's values are not rounded. */
static bool rounds(const weir_group *group) {
  return group->plan.wire == WEIR_WIRE_AUTO_BF16 && group->engine->size > 1;
}

weir_marks weir_marks_in_spare(const weir_group *group) {
  return (weir_marks){(uint32_t *)(void *)group->spare + (group->n - 1), group->n};
}

static size_t window(const weir_group *group, size_t done) {
  return weir_marked_window(group->n, group->kept, done, rounds(group));
}

static size_t listed_at_once(const weir_group *group) {
  return group->kept < group->stretch ? group->kept : group->stretch;
}

/* Who is not late has his sums spread over spare itself. */
static bool together(const weir_group *group) {
  if (!group->late) return false;
  return window(group, 0) == group->kept ||
         (!rounds(group) && weir_marked_taken(group->n, group->kept, 1, false) == 1);
}

void weir_marked_open(weir_group *group) {
  group->index = (uint32_t *)(void *)group->spare;
  group->value = group->spare;
  group->blocks = (unsigned char *)(group->spare + listed_at_once(group));
  const size_t listed = (group->kept + 1) / 2 * 2; /* whole words of 64 bits behind */
  group->room = group->spare + listed;
  group->room_bytes = listed < group->n ? (group->n - listed) * sizeof(float) : 0;
}

/* --- indices ---------------------------------------------------------------------------------- */

void weir_marked_listed(weir_group *group) {
  if (group->stretch >= group->n) return; /* the list is of use as it is */
  const weir_marks marks = weir_marks_in_spare(group);
  weir_marks_set(&marks, group->index, group->kept);
}

/* The root's message of a stretch. */
static weir_status write_stretch(weir_group *group, const weir_marks *marks, size_t at, size_t end,
                                 size_t *bytes) {
  size_t from = at;
  const size_t k = weir_marks_list(marks, &from, end, group->index, listed_at_once(group));
  for (size_t i = 0; i < k; i++) group->index[i] -= (uint32_t)at;
  const weir_status status =
      weir_wire_encode(end - at, group->index, NULL, k, (weir_wire_format)group->plan.wire,
                       group->blocks, group->stride, bytes, NULL);
  return status == WEIR_OK ? WEIR_OK
                           : weir_engine_blame(group->engine, group->engine->rank, status);
}

static weir_status read_stretch(weir_group *group, const weir_marks *marks, int root, size_t at,
                                size_t end, size_t bytes, size_t *got) {
  const size_t left = group->kept - *got, most = listed_at_once(group);
  size_t k = 0;
  const weir_status status = weir_wire_decode(group->blocks, bytes, end - at, group->index, NULL,
                                              left < most ? left : most, &k);
  if (status != WEIR_OK) return weir_comm_refuse(group->engine->config.comm, root, status);
  weir_marks_add(marks, at, group->index, k);
  *got += k;
  return WEIR_OK;
}

weir_status weir_marked_share(weir_group *group, int root, size_t *bytes) {
  weir_engine *engine = group->engine;
  const weir_marks marks = weir_marks_in_spare(group);
  const bool own = engine->rank == root;
  weir_status status = WEIR_OK;
  size_t got = own ? group->kept : 0;
  *bytes = 0;
  if (!own) weir_marks_clear(&marks);
  for (size_t at = 0, end; at < group->n && status == WEIR_OK; at = end) {
    size_t length = 0;
    end = group->n - at < group->stretch ? group->n : at + group->stretch;
    if (own) status = write_stretch(group, &marks, at, end, &length);
    weir_lap_compress(group);
    if (status != WEIR_OK) return status;
    status = weir_broadcast(engine->config.comm, root, group->blocks, group->stride, &length);
    weir_lap_comm(group);
    if (status == WEIR_OK && !own)
      status = read_stretch(group, &marks, root, at, end, length, &got);
    *bytes += length;
  }
  if (status == WEIR_OK && got != group->kept)
    status = weir_engine_blame(
        engine, root,
        weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu indices where the plan keeps %zu", root, got,
                  group->kept));
  return status;
}

/* --- values ----------------------------------------------------------------------------------- */

typedef struct windows {
  weir_group *group;
  weir_marks marks;
  bool together;      /* sums stay where they were made, one behind the other */
  size_t done, count; /* values summed, and in the window under way */
  size_t from, at;    /* the elements that these go to, from .. at */
  float *value, *error;
} windows;

static size_t list_next(const weir_marks *marks, size_t *at, size_t end, uint32_t *index,
                        size_t left) {
  return weir_marks_list(marks, at, end, index, left < LISTED ? left : LISTED);
}

/* The values take the place of the list. */
static void take(windows *w) {
  weir_group *group = w->group;
  uint32_t index[LISTED];
  size_t k = 0, count;
  w->from = w->at;
  while ((count = list_next(&w->marks, &w->at, group->n, index, w->count - k)) > 0) {
    weir_gather(group->fed, index, count, w->value + k);
    weir_velocity_cut(group, 0, index, count);
    weir_scatter_zero(group->fed, index, count);
    k += count;
  }
  group->passage.kept_square += weir_sum_square(w->value, w->count);
  if (w->error != NULL) memset(w->error, 0, w->count * sizeof *w->error);
}

/* To the window's places in e, which are empty: what rounding has lost, or sums. */
static void put(const windows *w, const float *value) {
  uint32_t index[LISTED];
  size_t at = w->from, k = 0, count;
  while ((count = list_next(&w->marks, &at, w->group->n, index, w->count - k)) > 0) {
    weir_scatter_add(w->group->fed, index, value + k, count);
    k += count;
  }
}

/* Sums that wait in e are no part of the residual. */
static void take_back(const windows *w) {
  uint32_t index[LISTED];
  size_t at = 0, k = 0, count;
  while ((count = list_next(&w->marks, &at, w->group->n, index, w->done - k)) > 0) {
    weir_scatter_zero(w->group->fed, index, count);
    k += count;
  }
}

static weir_status sum_window(windows *w, const weir_allreduce *allreduce, weir_notes *notes) {
  weir_group *group = w->group;
  weir_comm *comm = group->engine->config.comm;
  const bool rounded = rounds(group);
  w->count = window(group, w->done);
  w->value = group->spare + weir_marked_taken(group->n, group->kept, w->done, rounded);
  w->error = rounded ? w->value + w->count : NULL;
  take(w);
  weir_lap_compress(group);
  float *const rest = w->value + (rounded ? 2 : 1) * w->count;
  weir_comm_lend(
      comm, rest,
      (size_t)(group->spare + group->n - weir_span_marks(group->n) - rest) * sizeof *rest);
  const weir_status status = allreduce->run(
      comm, w->value, w->count, rounded ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32, w->error, notes);
  weir_comm_lend(comm, NULL, 0);
  weir_lap_comm(group);
  /* After a failure too: the others may have all they need. */
  if (rounded) put(w, w->error);
  if (status != WEIR_OK) {
    if (!rounded && !w->together) take_back(w);
    return status;
  }
  group->overflow = group->overflow || !isfinite(weir_sum_square(w->value, w->count));
  if (rounded && !w->together)
    weir_bf16_encode(w->value, w->count, (uint16_t *)(void *)group->spare + w->done, NULL);
  else if (!w->together)
    put(w, w->value);
  w->done += w->count;
  return WEIR_OK;
}

enum { SPREAD = 512 }; /* elements at a time, or up to twice as many at the end */

/* The sums that wait as bf16, of the elements left, as far back as their marks allow: then they are
 * never in the way of those before. */
static const uint16_t *shift(const weir_group *group, size_t left, const uint16_t *packed,
                             size_t count) {
  uint16_t *const end = (uint16_t *)(void *)(group->spare + group->n - weir_span_marks(left));
  return count > 0 ? memmove(end - count, packed, count * sizeof *packed) : end;
}

/* Zeros between the sums, which wait in e or as bf16.  What is overwritten is done with: marks lie
 * behind. */
static void spread(weir_group *group) {
  const weir_marks marks = weir_marks_in_spare(group);
  const bool rounded = rounds(group);
  uint32_t index[2 * SPREAD];
  float sum[2 * SPREAD];
  size_t k = group->kept;
  const uint16_t *packed = (const uint16_t *)(const void *)group->spare;
  if (rounded) packed = shift(group, group->n, packed, k);
  for (size_t at = 0, end; at < group->n; at = end) {
    const size_t left = group->n - at;
    end = at + (left < 2 * SPREAD ? left : SPREAD);
    size_t from = at;
    const size_t count = weir_marks_list(&marks, &from, end, index, end - at);
    if (rounded) {
      weir_bf16_decode(packed, count, sum);
      packed += count;
      k -= count;
      if ((const void *)packed < (const void *)(group->spare + end))
        packed = shift(group, group->n - end, packed, k);
    } else {
      weir_gather(group->fed, index, count, sum);
      weir_scatter_zero(group->fed, index, count);
    }
    memset(group->spare + at, 0, (end - at) * sizeof *sum);
    for (size_t i = 0; i < count; i++) group->spare[index[i]] = sum[i];
  }
  group->passage.sum = group->spare;
}

weir_status weir_marked_sum(weir_group *group, const weir_allreduce *allreduce, weir_notes *notes) {
  windows w = {.group = group, .marks = weir_marks_in_spare(group)};
  weir_status status = WEIR_OK;
  w.together = together(group);
  group->passage.next = group->fed;
  if (group->stretch >= group->n) weir_marks_set(&w.marks, group->index, group->kept);
  while (w.done < group->kept && status == WEIR_OK)
    status =
        sum_window(&w, allreduce, w.done + window(group, w.done) == group->kept ? notes : NULL);
  if (status == WEIR_OK && !group->late) spread(group);
  weir_lap_compress(group);
  return status;
}

/* --- publishing ------------------------------------------------------------------------------- */

/* The sums number k on, of the elements listed. */
static void fetch(const weir_group *group, bool in_place, const uint32_t *index, size_t count,
                  size_t k, float *sum) {
  if (in_place) {
    memcpy(sum, group->value + k, count * sizeof *sum);
  } else if (rounds(group)) {
    weir_bf16_decode((const uint16_t *)(const void *)group->spare + k, count, sum);
  } else {
    weir_gather(group->fed, index, count, sum);
    weir_scatter_zero(group->fed, index, count);
  }
}

void weir_marked_publish(weir_group *group, float share) {
  const weir_marks marks = weir_marks_in_spare(group);
  const size_t *offset = group->layout.offset;
  const bool in_place = together(group);
  uint32_t index[LISTED];
  float sum[LISTED];
  size_t k = 0, count;
  for (size_t t = 0; t < group->layout.tensors; t++) {
    float *const to = group->engine->submitted[group->first + t];
    if (offset[t + 1] > offset[t]) memset(to, 0, (offset[t + 1] - offset[t]) * sizeof *to);
    for (size_t at = offset[t];
         (count = weir_marks_list(&marks, &at, offset[t + 1], index, LISTED)) > 0; k += count) {
      fetch(group, in_place, index, count, k, sum);
      for (size_t i = 0; i < count; i++) to[index[i] - offset[t]] = sum[i] * share;
    }
  }
}

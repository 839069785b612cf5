/* AR-Topk of so many elements that lists of them are longer than the gradient.  One buffer, spare
 * where it suffices, holds
 *
 *   selecting     indices | candidates
 *   sharing       indices | message
 *   summing       values  | what rounding loses | the all-reduce's own | marks
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

static bool rounds(const weir_group *group) { return group->plan.wire == WEIR_WIRE_AUTO_BF16; }

size_t weir_marked_floats(const weir_group *group, size_t stride) {
  const size_t shared = group->kept + stride / sizeof(float);
  const size_t summed = (rounds(group) ? 2 : 1) * group->kept + weir_span_marks(group->n);
  const size_t most = shared > summed ? shared : summed;
  return most > group->n ? most : group->n;
}

static weir_marks marks_of(const weir_group *group) {
  uint32_t *const words = (uint32_t *)(void *)group->work;
  return (weir_marks){words + (group->work_floats - 1), group->n};
}

void weir_marked_open(weir_group *group) {
  if (group->work_floats <= group->n) group->work = group->spare;
  float *const behind = group->work + group->kept;
  group->index = (uint32_t *)(void *)group->work;
  group->value = group->work;
  group->error = rounds(group) ? behind : NULL;
  group->blocks = (unsigned char *)behind;
  group->room = behind;
  group->room_bytes = (group->work_floats - group->kept) * sizeof(float);
}

/* The values take the place of the list. */
static void take(weir_group *group, const weir_marks *marks) {
  uint32_t index[LISTED];
  size_t at = 0, k = 0, count;
  weir_marks_set(marks, group->index, group->kept);
  while ((count = weir_marks_list(marks, &at, group->n, index, LISTED)) > 0) {
    weir_gather(group->fed, index, count, group->value + k);
    weir_velocity_cut(group, 0, index, count);
    weir_scatter_zero(group->fed, index, count);
    k += count;
  }
  group->passage.kept_square = weir_sum_square(group->value, group->kept);
}

static void keep_errors(const weir_group *group, const weir_marks *marks) {
  uint32_t index[LISTED];
  size_t at = 0, k = 0, count;
  while ((count = weir_marks_list(marks, &at, group->n, index, LISTED)) > 0) {
    weir_scatter_add(group->fed, index, group->error + k, count);
    k += count;
  }
}

/* What is left before the marks is for sums on their way. */
static void lend_rest(const weir_group *group) {
  const size_t used = (rounds(group) ? 2 : 1) * group->kept;
  weir_comm_lend(group->engine->config.comm, group->work + used,
                 (group->work_floats - weir_span_marks(group->n) - used) * sizeof(float));
}

weir_status weir_marked_sum(weir_group *group, const weir_allreduce *allreduce, weir_notes *notes) {
  const weir_marks marks = marks_of(group);
  take(group, &marks);
  if (group->error != NULL) memset(group->error, 0, group->kept * sizeof *group->error);
  group->passage.next = group->fed;
  weir_lap_compress(group);
  lend_rest(group);
  const weir_status status =
      allreduce->run(group->engine->config.comm, group->value, group->kept,
                     rounds(group) ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32, group->error, notes);
  weir_comm_lend(group->engine->config.comm, NULL, 0);
  weir_lap_comm(group);
  /* After a failure too: the others may have all they need. */
  if (group->error != NULL) keep_errors(group, &marks);
  if (status == WEIR_OK) group->overflow = !isfinite(weir_sum_square(group->value, group->kept));
  return status;
}

void weir_marked_publish(weir_group *group, float share) {
  const weir_marks marks = marks_of(group);
  const size_t *offset = group->layout.offset;
  size_t i = 0;
  for (size_t t = 0; t < group->layout.tensors; t++) {
    float *const to = group->engine->submitted[group->first + t];
    if (offset[t + 1] > offset[t]) memset(to, 0, (offset[t + 1] - offset[t]) * sizeof *to);
    for (size_t at = offset[t]; (at = weir_marks_next(&marks, at, offset[t + 1])) < offset[t + 1];
         at++)
      to[at - offset[t]] = group->value[i++] * share;
  }
}

/* What a rank measured of every step it could, for comparing with a timeline (cli's `weir
 * profile`).
 *
 * DIR/timings-RANK.csv: `step,plan,kind,index,at_us,us`, lines of one step together, steps
 * ascending and counted as executed; plan: the id of the plan, which changes with every switch.
 * kinds, in this order: step      index: buckets; at: when it began (any clock that all ranks of a
 * run share); us: until weights were updated forward   until the backward pass began; at, from here
 * on, is since the step's begin backward  index: tensor; us: its gap compress, exchange, decode
 * index: bucket; as weir_bucket_times */
#ifndef WEIR_LAB_TIMINGS_H
#define WEIR_LAB_TIMINGS_H

#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

typedef struct weir_timings {
  size_t tensors;
  double *value; /* steps one behind the other */
  size_t count, room;
  double *gap_s;
  weir_bucket_times *times;
  weir_plan_bucket *bucket;
} weir_timings;

/* WEIR_E_NOMEM; weir_timings_free is due in any case. */
weir_status weir_timings_open(weir_timings *timings, size_t tensors);
void weir_timings_free(weir_timings *timings);
/* Keep the session's last step, if it was measured. */
weir_status weir_timings_add(weir_timings *timings, const weir_session *session, uint64_t step,
                             double begin_s, double step_s);
weir_status weir_timings_write(const weir_timings *timings, const char *directory, int rank);

#endif

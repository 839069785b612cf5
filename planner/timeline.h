/* The time model: when every operation of an iteration begins and ends.
 *
 * Four resources, each serving first come, first served: the compute stream (backward pass,
 * compression and decompression on the accelerator or the trainer's own core), CPU cores that
 * compress beside it, the links inside a machine and the links between machines.  An operation
 * waits for the one before it in its chain, then for one of its resource's servers; among those
 * that wait, the one that could begin first goes first (the model of "ByteComp", section 4.3, and
 * of "Cupcake", section 4.1).  When two could begin at the same time, the chain of the lower index
 * goes first, and every chain before the backward pass: a bucket is compressed before the backward
 * pass goes on.
 *
 * Times are seconds from the begin of the backward pass. */
#ifndef WEIR_PLANNER_TIMELINE_H
#define WEIR_PLANNER_TIMELINE_H

#include <stddef.h>

#include "planner/fusion.h"
#include "planner/profile.h"

typedef enum weir_resource {
  WEIR_ON_COMPUTE, /* always one server */
  WEIR_ON_CPU,
  WEIR_ON_INTRA,
  WEIR_ON_INTER,
  WEIR_RESOURCES
} weir_resource;
const char *weir_resource_name(weir_resource resource);

/* One operation of a chain. */
typedef struct weir_op {
  weir_resource resource;
  double seconds;   /* >= 0 */
  const char *what; /* for the trace, static: "compress", "all-gather", ... */
} weir_op;

/* What happens to one tensor or bucket, in this order, once the gradient of `tensor` (the bucket's
 * last) is ready. */
typedef struct weir_chain {
  size_t tensor;
  const weir_op *ops; /* borrowed */
  size_t count;
} weir_chain;

typedef struct weir_span {
  size_t chain;  /* SIZE_MAX: the backward pass */
  size_t tensor; /* whose gradient is computed, or the chain's */
  const char *what;
  weir_resource resource;
  size_t server;
  double ready_s, start_s, end_s;
} weir_span;

typedef struct weir_timeline {
  size_t count;
  weir_span *spans;   /* in the order of ready_s */
  double iteration_s; /* end of the last one */
} weir_timeline;

/* servers: how many of each resource, 1 to 1024; NULL for one of each.  Chains must ascend in
 * tensor.  O(operations * log chains).  WEIR_E_INVALID for values out of their range;
 * then *timeline is empty. */
weir_status weir_timeline_run(const weir_profile *profile, const weir_chain *chains, size_t count,
                              const size_t servers[WEIR_RESOURCES], weir_timeline *timeline);
void weir_timeline_free(weir_timeline *timeline);

/* The timeline of a fusion: each bucket compressed on the compute stream and sent between
 * machines.  Its iteration_s is weir_fusion_evaluate's. */
weir_status weir_timeline_fusion(const weir_profile *profile, const weir_curve *compress,
                                 const weir_curve *communicate, const weir_fusion *fusion,
                                 weir_timeline *timeline);

/* Timelines shown in one trace: each a process of that name. */
typedef struct weir_trace_part {
  const char *name; /* NULL: none; else printable ASCII */
  const weir_timeline *timeline;
} weir_trace_part;
/* Write timelines as a trace that Chrome's about:tracing and Perfetto open: one row a server, times
 * in microseconds.  Written beside path and renamed; what is no file (a pipe,
 * /dev/stdout) is written to as it is.  WEIR_E_IO. */
weir_status weir_trace_write(const weir_trace_part *parts, size_t count,
                             const weir_profile *profile, const char *path);
/* The same of one. */
weir_status weir_timeline_trace(const weir_timeline *timeline, const weir_profile *profile,
                                const char *path);

#endif

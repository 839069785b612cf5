/* Collectives: one file each under algorithms/, one table row each.
 *
 * Side notes: every collective that reaches all ranks also carries one small fixed-size block per
 * rank (telemetry up, the next plan down), so that agreement costs no message and no round trip of
 * its own.  On entry the caller's own block is filled in; on WEIR_OK all are. */
#ifndef WEIR_COLLECTIVES_COLLECTIVE_H
#define WEIR_COLLECTIVES_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/transport.h"

typedef struct weir_notes {
  void *block;        /* size * bytes; block r belongs to rank r */
  size_t bytes;       /* per rank, at most WEIR_NOTE_MAX; the same on all ranks; 0: none */
} weir_notes;
#define WEIR_NOTE_MAX 256

/* One rank's end of a group. */
typedef struct weir_comm weir_comm;
weir_status weir_comm_create(weir_comm **out, weir_transport *transport, double timeout_s);
void weir_comm_free(weir_comm *comm); /* does not free the transport */
int weir_comm_rank(const weir_comm *comm);
int weir_comm_size(const weir_comm *comm);
/* Start a step: sets the tag of all following collectives; the op counter starts at 0. */
void weir_comm_step(weir_comm *comm, uint64_t plan_digest, uint64_t step);

/* How all-reduce puts values on the wire. */
typedef enum weir_value_format { WEIR_VALUE_FP32 = 0, WEIR_VALUE_BF16 = 1 } weir_value_format;

typedef struct weir_allreduce {
  uint32_t id;
  const char *name; /* "ring", "tree", ... */
  const char *description;
  /* Sum over ranks of x[0..n), in place, bit-identical on all ranks and from run to run.  With
   * WEIR_VALUE_BF16 partial sums are rounded before they travel, and every rank adds what its own
   * rounding lost to error[0..n) (may be NULL with fp32), so that
   *   N-rank sum of inputs = result + sum over ranks of what was added to error. */
  weir_status (*run)(weir_comm *comm, float *x, size_t n, weir_value_format format, float *error,
                     weir_notes *notes);
} weir_allreduce;
enum {
  WEIR_ALLREDUCE_RING = 0,
  WEIR_ALLREDUCE_TREE = 1,
  WEIR_ALLREDUCE_HALVING = 2,
  WEIR_ALLREDUCE_DOUBLE_TREE = 3,
  WEIR_ALLREDUCE_TORUS = 4,
  WEIR_ALLREDUCE_STAR = 5,
  WEIR_ALLREDUCE_COUNT = 6
};
extern const weir_allreduce weir_allreduces[WEIR_ALLREDUCE_COUNT];

/* Binomial broadcast of *bytes (known at the root, at most capacity elsewhere) from root. */
weir_status weir_broadcast(weir_comm *comm, int root, void *data, size_t capacity, size_t *bytes);

/* All-gather of blocks of different sizes (Bruck's algorithm: ceil(log2 N) rounds for any N).
 * Block r lands at all + r * stride with its length in bytes[r]; the caller's own block must
 * already lie in its place.  Every length is at most stride. */
weir_status weir_allgather(weir_comm *comm, void *all, size_t stride, size_t *bytes,
                           weir_notes *notes);

#endif

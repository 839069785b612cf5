/* Collectives: one file each under algorithms/, one table row each.
 *
 * Side headers: every collective that reaches all ranks also carries one small fixed-size block per
 * rank (telemetry up, the next plan down), so that agreement costs no message and no round trip of
 * its own.  On entry the caller's own block is filled in; on WEIR_OK all are. */
#ifndef WEIR_COLLECTIVES_COLLECTIVE_H
#define WEIR_COLLECTIVES_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>

#include "collectives/cost.h"
#include "collectives/transport.h"

typedef struct weir_headers {
  void *block;  /* size * bytes; block r belongs to rank r */
  size_t bytes; /* per rank, at most WEIR_HEADER_MAX; the same on all ranks; 0: none */
} weir_headers;
#define WEIR_HEADER_MAX 256

/* One rank's end of a group. */
typedef struct weir_comm weir_comm;
weir_status weir_comm_create(weir_comm **out, weir_transport *transport, double timeout_s);
void weir_comm_free(weir_comm *comm); /* does not free the transport */
/* Its scratch takes no memory until the next collective; between collectives. */
void weir_comm_give_back(weir_comm *comm);
weir_transport *weir_comm_transport(const weir_comm *comm);
int weir_comm_rank(const weir_comm *comm);
int weir_comm_size(const weir_comm *comm);
/* Start a step: sets the tag of all following collectives; the op counter starts at 0. */
void weir_comm_step(weir_comm *comm, uint64_t plan_digest, uint64_t step);

/* A decoder found what a rank sent malformed (WEIR_E_PROTOCOL), says the last error: adds who sent
 * it, and ends the group.  Any other failure is this rank's own, and so is the blame.  Returns
 * status. */
weir_status weir_comm_refuse(weir_comm *comm, int sender, weir_status status);

/* --- hosts: which ranks share a machine ------------------------------------------------------ */

/* What tells one machine from another: boot, host name and network namespace, hashed; instead of it
 * the text `override`, or the environment's WEIR_HOST, when there is one (tests and labs: workers
 * with a network of their own on one machine). */
uint64_t weir_host_identity(const char *override);
/* Tell each other, and group.  Collective, one small all-gather.  From then on hierarchical
 * algorithms see the grouping; before, every rank counts as a machine of its own. */
weir_status weir_comm_find_hosts(weir_comm *comm, uint64_t identity);
/* Over TCP: ranks that it has found to share a machine exchange messages through memory from now on
 * (weir_transport_share). */
weir_status weir_comm_share_memory(weir_comm *comm);
int weir_comm_hosts(const weir_comm *comm);
/* What its cost rows and its memory follow from. */
weir_group_shape weir_comm_shape(const weir_comm *comm);
/* Has every machine as many ranks as the others, and more than one? */
bool weir_comm_levelled(const weir_comm *comm);
/* The host of a rank, in [0, hosts), numbered in the order of lowest ranks. */
int weir_comm_host_of(const weir_comm *comm, int rank);

/* Whom a rank measures the network with: around a ring of all ranks in which neighbours share a
 * machine only where more than half of the ranks do.  With one machine, or one a rank, the next
 * rank. */
void weir_comm_neighbours(const weir_comm *comm, int *next, int *previous);
/* Does a message to that rank cross a link that counts: one between machines, or, with all ranks on
 * one machine, any? */
bool weir_comm_crosses(const weir_comm *comm, int peer);

/* How all-reduce puts values on the wire. */
typedef enum weir_value_format { WEIR_VALUE_FP32 = 0, WEIR_VALUE_BF16 = 1 } weir_value_format;

/* Sum over ranks of x[0..n), in place, bit-identical on all ranks and from run to run.  With
 * WEIR_VALUE_BF16 partial sums are rounded before they travel, and what a rank's own rounding
 * lost is in error[0..n) afterwards (may be NULL with fp32), so that
 *   N-rank sum of inputs = result + sum over ranks of error.
 * error comes in all zero: on the way it may hold what other ranks have sent. */
typedef weir_status weir_allreduce_run(weir_comm *comm, float *x, size_t n,
                                       weir_value_format format, float *error,
                                       weir_headers *headers);
typedef struct weir_allreduce {
  uint32_t id;
  const char *name; /* "ring", "tree", ... */
  const char *description;
  weir_allreduce_run *run;
} weir_allreduce;
enum {
  WEIR_ALLREDUCE_RING = 0,
  WEIR_ALLREDUCE_TREE = 1,
  WEIR_ALLREDUCE_HALVING = 2,
  WEIR_ALLREDUCE_DOUBLE_TREE = 3,
  WEIR_ALLREDUCE_TORUS = 4,
  WEIR_ALLREDUCE_STAR = 5,
  WEIR_ALLREDUCE_DOUBLING = 6,
  WEIR_ALLREDUCE_DIRECT = 7,
  WEIR_ALLREDUCE_COUNT = 8, /* these run on every transport */
  /* The all-reduce of the transport itself (in shared memory) or of the library below it (MPI),
   * where weir_comm_native() says that there is one; fp32 only.  Same bits on all ranks and from
   * run to run; below MPI as far as that library keeps them. */
  WEIR_ALLREDUCE_NATIVE = WEIR_ALLREDUCE_COUNT,
  /* The same by the algorithm that the library is told, where weir_comm_told() says that it can be.
   */
  WEIR_ALLREDUCE_NATIVE_RING,
  WEIR_ALLREDUCE_NATIVE_TREE,
  WEIR_ALLREDUCE_ROWS
};
extern const weir_allreduce weir_allreduces[WEIR_ALLREDUCE_ROWS];
bool weir_comm_native(const weir_comm *comm);
bool weir_comm_told(const weir_comm *comm);
/* Has the group what the row needs?  WEIR_E_UNSUPPORTED: no, and the last error says what is
 * missing. */
weir_status weir_comm_runs(const weir_comm *comm, const weir_allreduce *row);
/* Has it a library that sums inside of machines, wherever one has several ranks?
 * WEIR_E_UNSUPPORTED: no, and the last error says what is needed. */
weir_status weir_comm_sums_inside(const weir_comm *comm);
const weir_allreduce *weir_allreduce_find(
    const char *name); /* NULL when there is none of that name */

/* Binomial broadcast of *bytes (known at the root, at most capacity elsewhere) from root. */
weir_status weir_broadcast(weir_comm *comm, int root, void *data, size_t capacity, size_t *bytes);

/* All-gather of blocks of different sizes (Bruck's algorithm: ceil(log2 N) rounds for any N).
 * Block r lands at all + r * stride with its length in bytes[r]; the caller's own block must
 * already lie in its place.  Every length is at most stride. */
typedef weir_status weir_allgather_run(weir_comm *comm, void *all, size_t stride, size_t *bytes,
                                       weir_headers *headers);
weir_allgather_run weir_allgather;

/* Nobody is back before all have come, with the headers of all where there are any. */
weir_status weir_comm_meet(weir_comm *comm, weir_headers *headers);

/* --- tables of the other collectives -------------------------------------------------------- *
 *
 * As with all-reduce: one file and one row an algorithm, any number of ranks, the same result
 * whatever the row.  Lengths that come from the wire are checked against the room there is. */

typedef struct weir_broadcast_row {
  uint32_t id;
  const char *name;
  const char *description;
  /* As weir_broadcast. */
  weir_status (*run)(weir_comm *comm, int root, void *data, size_t capacity, size_t *bytes);
} weir_broadcast_row;
enum {
  WEIR_BROADCAST_BINOMIAL = 0,
  WEIR_BROADCAST_CHAIN = 1,
  WEIR_BROADCAST_DIRECT = 2,
  WEIR_BROADCAST_COUNT = 3
};
extern const weir_broadcast_row weir_broadcasts[WEIR_BROADCAST_COUNT];

typedef struct weir_allgather_row {
  uint32_t id;
  const char *name;
  const char *description;
  weir_allgather_run *run; /* as weir_allgather */
} weir_allgather_row;
enum {
  WEIR_ALLGATHER_BRUCK = 0,
  WEIR_ALLGATHER_RING = 1,
  WEIR_ALLGATHER_DOUBLING = 2,
  WEIR_ALLGATHER_DIRECT = 3,
  WEIR_ALLGATHER_COUNT = 4
};
extern const weir_allgather_row weir_allgathers[WEIR_ALLGATHER_COUNT];

/* A row among the ranks that stand at one place of every machine (weir_comm_levelled), block r
 * being that of machine r. */
weir_status weir_allgather_between(weir_comm *comm, const weir_allgather_row *row, void *all,
                                   size_t stride, size_t *bytes);

/* All-gather of blocks whose lengths all ranks know, straight into the places they belong at: by
 * the transport's own all-gather where it has one, which makes the caller's block piece by piece
 * while others' are taken; else around a ring where `ring`, and through two copies and the row
 * `row` where not.  The caller's block is made or there. */
weir_status weir_allgather_places(weir_comm *comm, const weir_places *places, uint32_t row,
                                  weir_headers *headers);

typedef struct weir_reduce_scatter_row {
  uint32_t id;
  const char *name;
  const char *description;
  /* x[0..n) falls into one chunk a rank (weir_ring_chunk()); afterwards rank r's chunk r of x holds
   * the sum over ranks, the rest of x is undefined.  With WEIR_VALUE_BF16 what travels is rounded,
   * the result is not, and every rank adds what its rounding lost to error[0..n) (may be NULL with
   * fp32), which comes in all zero, as for all-reduces. */
  weir_status (*run)(weir_comm *comm, float *x, size_t n, weir_value_format format, float *error);
} weir_reduce_scatter_row;
enum {
  WEIR_REDUCE_SCATTER_RING = 0,
  WEIR_REDUCE_SCATTER_PAIRWISE = 1,
  WEIR_REDUCE_SCATTER_COUNT = 2
};
extern const weir_reduce_scatter_row weir_reduce_scatters[WEIR_REDUCE_SCATTER_COUNT];

/* Hierarchical all-reduce with any choice of rows: reduce-scatter inside of the machine, all-reduce
 * of each share between machines, all-gather inside.  Where machines differ in their number of
 * ranks, the first rank of each stands for it instead: reduce to it, all-reduce between those,
 * broadcast; only `between` matters then, and `native`: the library below sums inside of machines
 * (weir_comm_sums_inside), where reduce-scatter or reduce would. */
typedef struct weir_hier_choice {
  uint32_t scatter; /* weir_reduce_scatters[] */
  uint32_t between; /* weir_allreduces[] */
  uint32_t gather;  /* weir_allgathers[] */
  bool native;
} weir_hier_choice;
weir_status weir_allreduce_hier(weir_comm *comm, const weir_hier_choice *choice, float *x, size_t n,
                                weir_value_format format, float *error, weir_headers *headers);

/* How a plan sums: by a row among all ranks, or on two levels. */
typedef struct weir_sum {
  const weir_allreduce *row; /* among all ranks; NULL: on two levels */
  weir_hier_choice choice;
} weir_sum;
/* Of plans that sum fp32 values and name an algorithm; false: this one does not. */
bool weir_sum_of(const weir_plan *plan, weir_sum *sum);
weir_status weir_sum_run(const weir_sum *sum, weir_comm *comm, float *x, size_t n,
                         weir_value_format format, float *error, weir_headers *headers);
/* The row of weir_broadcasts[] for a plan's lists. */
uint32_t weir_list_broadcast(const weir_plan *plan);
/* The row of weir_allgathers[] for what a plan gathers. */
uint32_t weir_gather_row_of(const weir_plan *plan);

typedef struct weir_reduce_row {
  uint32_t id;
  const char *name;
  const char *description;
  /* The sum over ranks in root's x[0..n); elsewhere x is undefined afterwards.  Rounding as in
   * reduce-scatter. */
  weir_status (*run)(weir_comm *comm, int root, float *x, size_t n, weir_value_format format,
                     float *error);
} weir_reduce_row;
enum { WEIR_REDUCE_BINOMIAL = 0, WEIR_REDUCE_COUNT = 1 };
extern const weir_reduce_row weir_reduces[WEIR_REDUCE_COUNT];

typedef struct weir_gather_row {
  uint32_t id;
  const char *name;
  const char *description;
  /* Like weir_allgather, but only root's blocks and lengths are complete afterwards; elsewhere all
   * but the own block is undefined. */
  weir_status (*run)(weir_comm *comm, int root, void *all, size_t stride, size_t *bytes);
} weir_gather_row;
enum { WEIR_GATHER_DIRECT = 0, WEIR_GATHER_COUNT = 1 };
extern const weir_gather_row weir_gathers[WEIR_GATHER_COUNT];

#endif

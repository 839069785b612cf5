/* `weir bench collectives`: what its files share.
 *
 *   collectives.c          the command line and the results
 *   collectives_contest.c  contenders take turns: every row of every contender at every size
 *   collectives_worker.c   one rank of a contender, which does what it is told
 *   collectives_ranks.c    ranks of Weir's own transports
 *   collectives_mpirun.c   has mpirun start ranks
 *   collectives_mpi.c      such ranks: Open MPI's own all-reduce
 *   collectives_gloo.c     ranks of torch.distributed
 *
 * With --mbit-s every rank, or every machine of --per-machine ranks, has a network namespace and a
 * link of its own, shaped both ways (lab/topology.h), with --latency-ms by netem, too; each
 * contender then measures it as cost rows want it (collectives/calibrate.h), and what they predict
 * stands beside what was measured.
 *
 * A contender is a group of processes.  Each of its ranks waits in a read from a socket, which
 * costs the others nothing, until it is its turn. */
#ifndef WEIR_BENCH_COLLECTIVES_H
#define WEIR_BENCH_COLLECTIVES_H

#include <glib.h>
#include <sys/types.h>

#include "collectives/collective.h"
#include "collectives/cost.h"

enum {
  RANKS_MAX = 16,
  SIZES_MAX = 32,
  REPEATS_MAX = 101,
  ROWS_MAX = WEIR_ALLREDUCE_ROWS,
  CONTENDERS_MAX = 9
};
#define BENCH_TIMEOUT_S 60.0

typedef enum bench_kind {
  BENCH_ALLREDUCE,
  BENCH_BROADCAST,
  BENCH_ALLGATHER,
  BENCH_REDUCE_SCATTER,
  BENCH_REDUCE,
  BENCH_GATHER,
  BENCH_COMPRESSED, /* an all-reduce of encoded values (collectives/compressed.h) */
  BENCH_KINDS
} bench_kind;
extern const char *const bench_kind_names[BENCH_KINDS];
/* An algorithm's name; NULL behind the last row of the table. */
const char *weir_bench_row_name(bench_kind kind, guint32 row);

typedef struct bench_plan {
  int ranks;
  int per_machine; /* neighbouring ranks */
  int repeats;
  int best; /* rows of a contender that are measured at a size; 0: all */
  gsize sizes;
  gsize elements[SIZES_MAX]; /* of all ranks' blocks together, where there are blocks */
  gsize most;                /* of elements[] */
  bench_kind kind;
  gboolean algorithm[ROWS_MAX]; /* of Weir's */
  weir_value_format format;
  unsigned bits;     /* an element, of compressed all-reduces; with the buckets that plans have */
  double mbit_s;     /* of each machine's own link; 0: all share the loopback */
  double latency_ms; /* of such a link, one way */
  struct weir_topology *links; /* NULL: the loopback */
} bench_plan;

/* --- contenders ----------------------------------------------------------------------------- */

/* One algorithm at one size. */
typedef struct bench_cell {
  gboolean chosen;             /* it is measured */
  double look;                 /* seconds of one operation, by a first look */
  double seconds[REPEATS_MAX]; /* of one operation, the slowest rank's average over a loop */
  guint64 wire;  /* bytes the busiest rank sends in one operation; 0: it does not tell */
  guint64 wrong; /* elements that are not what they should be, on all ranks together */
  double error; /* of a compressed all-reduce: the root of its squared error over that of its sum */
} bench_cell;

typedef struct contender {
  const char *name;  /* "shm", "openmpi-tcp", ... */
  gboolean peer;     /* none of Weir's: when it is missing, the others go on */
  gboolean launched; /* by mpirun, which is its one process */
  const char *(*row_name)(bench_kind kind, guint32 row);
  /* Is this one of its rows, for this plan? */
  gboolean (*has_row)(const struct contender *c, const bench_plan *p, guint32 row);
  /* Start its processes, which are to connect to the socket `path` as contender `number`; their ids
   * go to pid[0 .. processes).  FALSE: absent says why. */
  gboolean (*start)(struct contender *c, const bench_plan *p, const char *path, int number);
  int setting; /* of its start: one function serves several */
  char where[64];
  pid_t pid[RANKS_MAX];
  int processes;
  int fd[RANKS_MAX]; /* to each rank; -1: not there */
  weir_link *link;   /* as calibrated, in memory shared with its rank 0; all 0: it was not */
  char absent[256];  /* why it takes no part (any more); empty: it does */
  bench_cell *cells; /* [row * sizes + size] */
} contender;

/* One of Weir's transports: "shm", "tcp", "tls", which is tcp with a secret, "mixed", "mpi" or
 * "shm+mpi". FALSE: none. */
enum { BENCH_SHM, BENCH_TCP, BENCH_TLS, BENCH_MIXED, BENCH_MPI, BENCH_BOTH };
gboolean weir_bench_contender_own(contender *c, const char *name);
enum { BENCH_MPI_SHM, BENCH_MPI_SHM_SPIN, BENCH_MPI_TCP, BENCH_MPI_TCP_SPIN, BENCH_MPI_SETTINGS };
void weir_bench_contender_mpi(contender *c, int setting);
void weir_bench_contender_gloo(contender *c);

/* All of them at all sizes, in turns.  FALSE after a message, when one of Weir's own failed. */
gboolean weir_bench_contest(const bench_plan *p, contender *all, int count);
double weir_bench_median(const bench_plan *p, const bench_cell *c);
gboolean weir_bench_free_port(char *where, gsize room);
/* Start a program that nothing is read from and that is not heard. */
gboolean weir_bench_spawn(contender *c, char **argv);
/* Have mpirun, with these options of its own beside the number of ranks, start this program with an
 * option and what it is set to, once a rank. */
gboolean weir_bench_mpirun(contender *c, int ranks, const char *options, const char *option,
                           const char *value);

/* --- one rank ------------------------------------------------------------------------------- */

/* What a worker's rank knows to do. */
typedef struct bench_rank {
  bench_kind kind;
  int rank, size;
  unsigned bits;                                                /* as in bench_plan */
  gsize most;                                                   /* elements */
  float *x, *y, *error;                                         /* y: a sum that is not in place */
  gboolean apart;                                               /* the result is in y */
  gboolean (*once)(struct bench_rank *r, guint32 row, gsize n); /* FALSE: message says why */
  gboolean (*together)(struct bench_rank *r);                   /* all begin at once */
  guint64 (*sent)(struct bench_rank *r); /* bytes so far; NULL: it does not tell */
  char message[256];
} bench_rank;

gboolean weir_bench_rank_open(bench_rank *r); /* room for x, y, error */
void weir_bench_rank_close(bench_rank *r);
/* Connect and do what is asked until the connection ends; an exit code. */
int weir_bench_serve(bench_rank *r, const char *path, int number);
/* Connect only to say why this rank cannot take part. */
void weir_bench_excuse(const char *path, int number, int rank, const char *why);

/* What mpirun starts: this program with --mpi-rank PATH,CONTENDER,MOST, or for Weir's own
 * transports with --own-rank and what weir_bench_contender_own makes of the plan. */
int weir_bench_mpi_rank(const char *text);
int weir_bench_own_rank(const char *text);

#endif

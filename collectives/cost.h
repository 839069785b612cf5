/* Cost rows: seconds a collective takes, from latency and bandwidth.
 *
 * Symbols as in docs/internals/architecture.md: N workers, L = ceil(log2 N), alpha one-way latency
 * in seconds, beta seconds per byte, M dense bytes, c compression ratio, m = M*c. */
#ifndef WEIR_COLLECTIVES_COST_H
#define WEIR_COLLECTIVES_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>

/* Rows of the paper's model: Tables I and equations 4a, 4b of "Flexible Communication for Optimal
 * Distributed Learning over Unpredictable Networks".  Values kept are fp32 and indices u32. */
double weir_cost_paper_ring(int n, double alpha, double beta, double bytes);
double weir_cost_paper_tree(int n, double alpha, double beta, double bytes);
double weir_cost_paper_broadcast(int n, double alpha, double beta, double bytes);
double weir_cost_paper_allgather(int n, double alpha, double beta, double bytes);
/* Of the plans that it knows, for M dense bytes at the plan's ratio, which dense rows ignore;
 * others: infinity. */
double weir_cost_paper(const weir_plan *plan, int n, double alpha, double beta, double bytes);

typedef enum weir_kind {
  WEIR_KIND_ALLREDUCE = 0,
  WEIR_KIND_BROADCAST = 1,
  WEIR_KIND_ALLGATHER = 2,
  WEIR_KIND_REDUCE_SCATTER = 3,
  WEIR_KIND_REDUCE = 4,
  WEIR_KIND_GATHER = 5,
  WEIR_KIND_COUNT = 6
} weir_kind;

typedef struct weir_link weir_link; /* below */

/* What a plan puts on the critical path: T = alpha_terms * alpha + byte_terms * beta, and, where
 * messages take times that differ, spread_terms * deviation (weir_link), with true wire bytes of
 * the plan's codec and format, by the usual algorithm where the plan names none.  elements is the
 * gradient's length; kept is what the codec keeps of it, for an encoder the bytes of its message
 * (bound()), for low rank the floats of both sums. */
typedef struct weir_cost_terms {
  double alpha_terms;
  double byte_terms;
  double spread_terms; /* roots of bytes */
} weir_cost_terms;
weir_cost_terms weir_cost_plan(const weir_plan *plan, int n, size_t elements, size_t kept);
/* `kept` of a plan on so many elements, taken as one tensor; low rank takes them as the squarest
 * matrix, for want of their shape. */
size_t weir_cost_kept(const weir_plan *plan, size_t elements);

/* How many ranks on how many machines (weir_comm_hosts), whether the library below is told by which
 * algorithm to sum (weir_comm_told), how many ranks the largest machine has, and how ranks lie on
 * machines.  weir_comm_shape() is that of a group as it is. */
typedef struct weir_group_shape {
  int ranks;
  int hosts;
  bool told;
  int largest; /* 0: unknown; machines are taken as even where ranks divide by them */
  /* How ranks lie on machines.  0: machine by machine, rank 0's having the most, and the others as
   * even as can be; WEIR_ORDER_CYCLIC: r is on machine r mod hosts.  Any other: of up to
   * WEIR_ORDER_RANKS ranks each one's machine, four bits a rank from rank 0 on; larger groups that
   * are neither count as 0.  Below 2^53. */
  uint64_t order;
} weir_group_shape;
enum { WEIR_ORDER_CYCLIC = 1, WEIR_ORDER_RANKS = 13 };
/* host[ranks] as weir_hosts_group() fills it in. */
weir_group_shape weir_shape_of(const int *host, int ranks, int hosts);
/* Has every machine as many ranks as the others?  Three and one do not, though ranks divide by
 * machines: there much is exchanged among all ranks that else is on two levels. */
bool weir_shape_even(weir_group_shape shape);
/* weir_cost_plan() where ranks may share machines: what crosses links between machines, those
 * inside counting as nothing beside them.  With one machine its own links count.
 *
 * The network's model.  A machine has one link to all others, of latency alpha, and of beta seconds
 * a byte each way, however many of its ranks use it.  What they send goes through it in the order
 * in which they send it, and what comes in goes through the receiver's in the order in which it
 * comes.  So beta is that of one rank which has the link to itself, as weir_calibrate() and the
 * monitor measure it, and byte terms are those of the machine's link: where each of its g ranks
 * sends as much at once, g times one rank's.  Terms are those of one path: of the last rank's last
 * message and of all that it has waited for, so that alpha terms x alpha + byte terms x beta is a
 * time.  Bytes that travel while another message's latency passes are not in it, nor latencies that
 * pass while the link is busy.  Which path is the longest may depend on the link; without one
 * (NULL) the terms are the most latencies and the most bytes of any path, which may not be one.
 * Links that take turns among messages, packet by packet, hold back each of them for the others: at
 * latencies of about what the bytes take that is up to 1.3 times as long. */
weir_cost_terms weir_cost_plan_between(const weir_plan *plan, weir_group_shape shape,
                                       const weir_link *link, size_t elements, size_t kept);
/* Bytes of the block that a rank gathers under an AG plan; others 0. */
double weir_cost_gathered(const weir_plan *plan, size_t elements, size_t kept);
double weir_cost_seconds(const weir_cost_terms *terms, double alpha, double beta);

/* What waiting for each other adds to `rounds` rounds, in each of which each of n ranks gets a
 * message from another and goes on once both have come so far, `bytes` in all (cost_spread.c). */
double weir_cost_spread(int n, double rounds, double bytes);

/* Rows of the algorithms themselves, by the ids of their tables.  `bytes`, as they travel, are: all
 * elements for all-reduce, reduce and reduce-scatter; the message for broadcast; one rank's block
 * for all-gather, gather and all-to-all (to each other rank as much).  Unknown ids: infinity; one
 * rank: nothing. */
weir_cost_terms weir_cost_allreduce(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_broadcast(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_allgather(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_reduce_scatter(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_reduce(uint32_t algorithm, int n, double bytes);
weir_cost_terms weir_cost_gather(uint32_t algorithm, int n, double bytes);
/* Every rank sends every other one so many bytes, in so many rounds: 1 to N - 1. */
weir_cost_terms weir_cost_exchange(int n, int rounds, double bytes);
/* The same among all ranks where several share a machine: of more machines than one, fewer than
 * ranks.  root: of broadcasts, reduce and gather; link may be NULL, as for weir_cost_plan_between.
 * Of the torus on even machines, and of NCCL's rows, weir_cost_row knows. */
weir_cost_terms weir_cost_machines(weir_kind kind, uint32_t row, weir_group_shape shape,
                                   const weir_link *link, double bytes, int root);
/* And in so many groups at once, each of one rank of every machine. */
weir_cost_terms weir_cost_columns(weir_kind kind, uint32_t row, int hosts, int columns,
                                  const weir_link *link, double bytes);
/* Every rank sends every other one bytes[0], waits for theirs, then bytes[1], up to three times,
 * in so many such groups of the same machines. */
weir_cost_terms weir_cost_exchanges(weir_group_shape shape, int columns, const weir_link *link,
                                    const double *bytes, int count);
/* A broadcast whose root is another rank every time: the mean. */
weir_cost_terms weir_cost_lists(uint32_t row, weir_group_shape shape, const weir_link *link,
                                double bytes);
/* The double tree's critical path on links of this alpha, beta and burst (see weir_link), which is
 * taken off the bytes wherever a link on the path had been idle. */
weir_cost_terms weir_cost_double_tree(int n, double bytes, double alpha, double beta, double burst);

/* --- in seconds, as they will be measured ---------------------------------------------------- *
 *
 * Alpha and beta alone say what a collective costs on links.  Ranks also spend time of processors,
 * which ranks of one machine share, and links inside of a machine are not those
 * between machines. */

typedef struct weir_cost {
  weir_cost_terms outer; /* on links between machines, along the critical path */
  weir_cost_terms inner; /* inside of machines */
  bool duplex;           /* every rank sends while it receives, all the time */
  bool burst_off;        /* bytes are those beyond what links let through at once */
  double rounds;         /* in which ranks begin together; 0: as many as latencies */
  double messages;       /* sent by all ranks together */
  double traffic;        /* bytes sent by all ranks together */
  double summed;         /* bytes added up along the critical path, while no link is busy */
  double sums;           /* bytes added up by all ranks together */
} weir_cost;

/* What weir_calibrate() finds. */
struct weir_link {
  double alpha, beta;             /* between machines: one way, s; s per payload byte */
  double duplex_beta;             /* the same with as much coming the other way; below beta: beta */
  double inner_alpha, inner_beta; /* inside of a machine */
  double burst;     /* bytes that an idle link lets through at once (a token bucket's depth) */
  double deviation; /* of a message's time, s for the root of its bytes; 0: all take the same */
  /* What the group's processors together take, s: for a message beyond what alpha holds already,
   * and for a byte when all ranks are busy; 0 where the links hide it. */
  double message_s, byte_s;
  double answer_s; /* for a message of more than two packets, which is acknowledged at once, beyond
                      that */
  double sum_s, sums_s; /* to add up a byte: one rank alone; all ranks at once, for a byte of any */
};
/* weir_cost_seconds with the alpha and beta of links between machines, and what their deviation
 * adds. */
double weir_cost_links(const weir_cost_terms *terms, const weir_link *link);
/* The same exchange whose messages have so much of their bytes. */
void weir_cost_scale(weir_cost_terms *terms, double bytes);

/* A table's row; bytes as for the rows above.  Unknown rows cost infinity, one rank nothing.
 * Which of a pipelined row's paths is the critical one depends on the link. */
weir_cost weir_cost_row(weir_kind kind, uint32_t row, weir_group_shape shape, const weir_link *link,
                        double bytes);
/* An all-reduce on two levels.  Where machines are uneven one rank of each talks to the others; of
 * which it is not known how uneven, they are charged as if they were equal. */
struct weir_hier_choice;
weir_cost weir_cost_hier(const struct weir_hier_choice *choice, weir_group_shape shape,
                         const weir_link *link, double bytes);
/* One after the other. */
weir_cost weir_cost_sum(weir_cost a, weir_cost b);
/* Latencies and what waiting for slow messages adds, then the longer of what links take for the
 * bytes and processors for them and for the messages of other ranks in every round, then what
 * nothing hides: additions between messages.
 *
 * A link that was idle lets its burst through at once: where each hop uses another link, in every
 * hop; where every rank sends all the time, whole in the first, and in the others what tokens came
 * back while the rank waited, alpha/beta. */
double weir_cost_predict(const weir_cost *cost, const weir_link *link);
/* What processors, and links inside of machines, add to a plan's links (weir_cost_plan_between), by
 * the rows of the collectives that it consists of; elements and kept as for weir_cost_plan.  0 for
 * compressed all-reduces and paths, whose work is computing and charged to the codec; of HiTopKComm
 * the links alone. */
double weir_cost_plan_processors(const weir_plan *plan, weir_group_shape shape,
                                 const weir_link *link, size_t elements, size_t kept);

/* Links and processors together; *terms, unless NULL: those of the links. */
double weir_cost_plan_seconds(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                              size_t elements, size_t kept, weir_cost_terms *terms);
#endif

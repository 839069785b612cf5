/* What a compression option costs on a cluster: the empirical models of "ByteComp", section 4.3.
 *
 * Machines of equal size; links inside a machine and one link of each machine to the others, each
 * with a one-way latency and seconds per byte; codecs with the share of the dense bytes that they
 * send and measured times.  Communication is charged by the cost rows of collectives/cost.h. */
#ifndef WEIR_PLANNER_CLUSTER_H
#define WEIR_PLANNER_CLUSTER_H

#include "planner/curve.h"
#include "planner/options.h"
#include "planner/timeline.h"

enum { WEIR_CLUSTER_CODECS = 4 };

typedef struct weir_cluster_codec {
  const char *name;         /* borrowed */
  double ratio;             /* bytes sent / dense bytes, in (0, 1] */
  weir_curve compress[2];   /* s, by site (WEIR_SITE_GPU, WEIR_SITE_CPU), of dense bytes */
  weir_curve decompress[2]; /* s, of dense bytes produced, adding them up included */
} weir_cluster_codec;

typedef struct weir_cluster {
  size_t machines, per_machine; /* 1 to 65536, and fewer than 2^31 workers in all */
  double intra_alpha_s, intra_beta_s, inter_alpha_s, inter_beta_s;
  size_t cpu_cores; /* that compress side by side, 1 to 64 */
  size_t codecs;    /* 1 to WEIR_CLUSTER_CODECS */
  weir_cluster_codec codec[WEIR_CLUSTER_CODECS];
} weir_cluster;

/* WEIR_E_INVALID, saying what is out of its range. */
weir_status weir_cluster_check(const weir_cluster *cluster);

/* The operations of an option with a codec for a tensor of so many dense bytes; returns their
 * number.  What is held is tracked: d dense bytes in p messages not added up yet (p > 1 only while
 * compressed).  A communication among one worker is left out,
 * and so is compression that takes no time.
 *
 *   reduce-scatter  d / n         all-to-all*  d / n, n p     all-reduce    -
 *   reduce          -             gather*      n p            all-gather*   n p (one step only)
 *   all-gather      n d           all-gather*  n d (second step)            broadcast  -
 *   decompression   p d bytes are produced, p = 1
 *
 * Between machines the link is shared by the workers that talk: all of the machine, each with its
 * part, after a reduce-scatter or all-to-all inside; its root alone after a reduce or gather.  Flat
 * rings and trees cross a machine's link once, a flat all-to-all once for each of its workers.
 * Allreduce is the cheaper of ring and tree. */
size_t weir_option_ops(const weir_option *option, const weir_cluster *cluster, size_t codec,
                       double bytes, weir_op ops[WEIR_OPTION_TASKS]);

#endif

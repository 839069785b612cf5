/* Bit widths: how many bits, and which bucket size, each layer's quantized gradient gets.
 *
 * The problem ("CGX", section 5): least bytes on the wire, subject to the l2 norm of the whole
 * gradient's quantization error being at most alpha * E_4, where E_4 is that norm when every layer
 * has 4 bits at the reference bucket size.  Bytes and errors are measured per layer and option,
 * not modelled, so that any codec's real format counts; squared errors of layers add up.
 *
 * Statistics, CSV `layer,numel,norm,bits,bucket,bytes,error`: one line an option, the lines of a
 * layer together and with the same numel and norm.  norm is the l2 norm of the layer's accumulated
 * gradient, error the l2 norm of decoded less exact.  Layers whose names hold one of the given
 * patterns (any case) stay in full precision: 4 numel bytes, no error.  So do layers whose only
 * line is of 32 bits in buckets of 0, which go apart: tables of buckets are of the others.
 *
 * Everything is plain computation on the caller's thread. */
#ifndef WEIR_PLANNER_BITS_H
#define WEIR_PLANNER_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

enum { WEIR_BITS_OPTIONS = 64 }; /* of one layer at most */

/* A bound on the error is kept up to this part of its square: sums of squares round. */
#define WEIR_BITS_ROUNDING 1e-12

typedef struct weir_bits_option {
  unsigned bits;   /* 1 to 32 */
  uint32_t bucket; /* elements with a scale of their own; 0 for full precision */
  double bytes;    /* whole */
  double error2;   /* squared l2 norm */
} weir_bits_option;

typedef struct weir_bits_layer {
  char *name;
  double numel, norm;
  size_t first, count; /* its options; full precision: exactly one, of 32 bits */
  size_t line;         /* in the file, of its first option */
  bool full;
  bool apart; /* full, and of no bucket */
} weir_bits_layer;

typedef struct weir_bits_stats {
  size_t layer_count, option_count;
  weir_bits_layer *layers;
  weir_bits_option *options;
  uint32_t bucket; /* the reference */
} weir_bits_stats;

/* Does the name hold one of the patterns, which are separated by commas, in any case of letters? */
bool weir_bits_filtered(const char *name, const char *patterns);

/* patterns: separated by commas, "" for none.  WEIR_E_PARSE ("FILE:LINE: ..."), also when a layer
 * to be quantized has no option of 4 bits at the reference bucket.  Then *stats is empty. */
weir_status weir_bits_load(weir_bits_stats *stats, const char *path, const char *patterns,
                           uint32_t reference_bucket);
void weir_bits_free(weir_bits_stats *stats);

typedef struct weir_bits {
  size_t *choice;     /* [layer_count] index into stats->options */
  double bytes;       /* of all layers */
  double error;       /* l2 norm */
  double least_bytes; /* proven: no assignment within the budget is below; knapsack only */
} weir_bits;
void weir_bits_drop(weir_bits *bits);

/* 4 bits at the reference bucket everywhere; its error is E_4. */
weir_status weir_bits_uniform(const weir_bits_stats *stats, weir_bits *bits);

/* "KMEANS" (CGX, algorithm 1): layers as points (size, norm), each scaled to [0, 1], are clustered
 * into as many clusters as there are widths; clusters ascending in norm - size get ascending
 * widths.  "Linear": layers ascending in norm / size get widths ascending linearly.  Buckets are
 * mapped like widths, the larger the narrower.  The paper leaves the sets to the user; here every
 * range of the widths that all layers have at the reference bucket is tried, with each bucket that
 * all have at these widths and with all of these mapped, and the assignment of least bytes with an
 * error of at most `most_error` is the result.  The range of 4 bits alone is uniform 4 bits, so for
 * most_error >= E_4 both need at most its bytes.  WEIR_E_INVALID when no range keeps most_error. */
weir_status weir_bits_kmeans(const weir_bits_stats *stats, double most_error, weir_bits *bits);
weir_status weir_bits_linear(const weir_bits_stats *stats, double most_error, weir_bits *bits);

/* "Bayes": the paper names Bayesian optimization without its terms. Here the width of a layer is
 * the one nearest to x0 + x1 log(size) + x2 log(norm), both standardized, and a Gaussian process
 * with expected improvement picks x over 48 trials; the first is 4 bits everywhere, so that for
 * most_error >= E_4 it needs at most uniform's bytes.  Deterministic; tens of milliseconds. */
weir_status weir_bits_bayes(const weir_bits_stats *stats, double most_error, weir_bits *bits);

/* The multiple-choice knapsack over all options.  Lagrangian relaxation gives a lower bound and a
 * first answer; then layers are joined one by one into states (bytes, error), dropping states that
 * another one dominates or whose bound is not below the best answer.  At most `states` (0: 64,
 * or 16384 over the number of layers where that is more) are kept, those of least bound;
 * least_bytes is the least bound among the dropped, so that bytes == least_bytes proves the optimum
 * and else the difference is the most that can be missing. known: an assignment to start from, or
 * NULL; the answer is never worse when it is within most_error.  WEIR_E_INVALID when no assignment
 * keeps most_error. */
weir_status weir_bits_knapsack(const weir_bits_stats *stats, double most_error, size_t states,
                               const weir_bits *known, weir_bits *bits);

/* Sets bytes and error from choice. */
void weir_bits_measure(const weir_bits_stats *stats, weir_bits *bits);

#endif

/* Widths of the gradient's tensors while it trains ("CGX", section 5): what is measured of each
 * tensor, and what is made of it.  Every tensor that is not kept in full precision travels by qsgd
 * at 2 to 8 bits, in buckets of any size that plans may name, 64 to 8192 elements (the paper takes
 * 128 and 1024, section 6.1).
 *
 * In the session's thread weir_bits_fed works out how samples of e err at every width in every
 * bucket, into sums under a lock.  In the controller's weir_bits_read takes their means, with which
 * a new window begins, weir_bits_assign gives widths (planner/bits.h) and merges neighbours, and
 * weir_bits_table makes buckets of them. */
#ifndef WEIR_CONTROLLER_BITS_H
#define WEIR_CONTROLLER_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>

#include "collectives/cost.h"
#include "kernels/codec.h"
#include "kernels/runs.h"
#include "planner/bits.h"

enum { WEIR_BITS_LEAST = WEIR_QSGD_BITS_LEAST, WEIR_BITS_WIDTHS = WEIR_QSGD_WIDTHS };
enum { WEIR_BITS_MOST = WEIR_BITS_LEAST + WEIR_BITS_WIDTHS - 1, WEIR_BITS_FULL = 32 };
enum {
  WEIR_BITS_BUCKET = 1 << WEIR_BUCKET_LOG2_USUAL,
  WEIR_BITS_LARGEST = 1 << WEIR_BUCKET_LOG2_MOST
};
enum {
  WEIR_BITS_SIZES = WEIR_BUCKET_LOG2_MOST - WEIR_BUCKET_LOG2_LEAST + 1,
  WEIR_BITS_WAYS = WEIR_BITS_SIZES * WEIR_BITS_WIDTHS
};
/* Of buckets: the reference first, and as many of these as a sampler is asked for. */
extern const uint32_t weir_bits_sizes[WEIR_BITS_SIZES];

typedef enum weir_bits_method {
  WEIR_BITS_KNAPSACK,
  WEIR_BITS_KMEANS,
  WEIR_BITS_LINEAR,
  WEIR_BITS_BAYES,
  WEIR_BITS_UNIFORM,
  WEIR_BITS_METHODS
} weir_bits_method;
extern const char *const weir_bits_methods[WEIR_BITS_METHODS]; /* their names */

typedef struct weir_bits_options {
  weir_bits_method method;
  double alpha;    /* error allowed, in errors of 4 bits; from 1 */
  uint64_t period; /* steps from one assignment to the next; from 1 */
} weir_bits_options;

/* "" or ":METHOD[:ALPHA[:STEPS]]", what follows the policy's name.  WEIR_E_INVALID. */
weir_status weir_bits_parse(const char *text, weir_bits_options *options);

/* What widths are of. */
const weir_codec *weir_bits_codec(void);

/* By an all-gather; bucket: a power of two. */
weir_plan weir_bits_plan(unsigned bits, uint32_t bucket);

/* Full precision for tensors whose names hold bias, bn, norm or ln, and for those of at most one
 * bucket.  name may be NULL. */
bool weir_bits_keeps(const char *name, size_t numel);

/* One more layer of n elements behind those there are, with its options: full precision, or qsgd's
 * messages of 2 to 8 bits in buckets of the first of the sizes, then of the next; there is room for
 * it.  name is borrowed. */
void weir_bits_describe(weir_bits_stats *stats, const char *name, size_t n, bool full,
                        size_t sizes);

/* --- measuring ------------------------------------------------------------------------------ */

typedef struct weir_bits_sampler weir_bits_sampler;

/* layout and names (NULL: none) are borrowed.  full: tensors at its end that are in full precision
 * whatever their names.  sizes: of buckets, 1 to WEIR_BITS_SIZES. */
weir_status weir_bits_sampler_create(weir_bits_sampler **out, const weir_layout *layout,
                                     const char *const *names, size_t full, size_t sizes);
void weir_bits_sampler_free(weir_bits_sampler *sampler); /* NULL is allowed */

/* A tensor's e = g + r in this step; tensors come in ascending order.  One after the other is
 * measured, 2^15 elements a step together: the squared errors of whole buckets of it at every width
 * and size, on average over the draws of rounding (weir_qsgd_mean_errors), scaled up to the
 * tensor. */
void weir_bits_fed(weir_bits_sampler *sampler, size_t tensor, const float *e, size_t n);
/* The same in two parts, for an e that is a device's: is the tensor measured in this step, and what
 * is to be seen of it?  And then what was seen; several tensors may be asked for first.  All of a
 * step together: at most WEIR_BITS_SEEN floats. */
enum { WEIR_BITS_SEEN = 1 << 16 };
bool weir_bits_sample(weir_bits_sampler *sampler, size_t tensor, size_t n, weir_runs *runs);
void weir_bits_seen(weir_bits_sampler *sampler, size_t tensor, size_t n, const weir_runs *runs,
                    const float *sample);
/* Has every tensor been measured since the last weir_bits_read? */
bool weir_bits_ready(weir_bits_sampler *sampler);
/* Means over the measurements since the last call, which tells how many there were of the tensor
 * with fewest: error2 and norm, the root mean square of ||e||, of `stats`, which is the sampler's
 * own.  The paper ranks layers by the norm of the accumulated gradient: with error feedback e is
 * that. */
void weir_bits_read(weir_bits_sampler *sampler, const weir_bits_stats **stats, uint64_t *least);

/* --- assigning ------------------------------------------------------------------------------ */

typedef struct weir_bits_assigned {
  size_t *choice;        /* [layer] index into the options; the caller's memory */
  double bytes, error;   /* of the choice; full precision at 4 bytes an element */
  double bytes4, error4; /* of 4 bits */
  double solved;         /* bytes before neighbours were merged */
  size_t buckets;
} weir_bits_assigned;

/* A function of its arguments alone.  The method's widths, least bytes within alpha times the error
 * of 4 bits; then neighbours are merged, one taking the other's bits and bucket if it has no fewer
 * bits and errs no more by them, wherever an exchange of its own spares less than a hundredth of
 * what 4 bits everywhere take: among all ways to do so, and one width and bucket for all, the one
 * of least bytes, exchanges charged with that. */
weir_status weir_bits_assign(const weir_bits_stats *stats, const weir_bits_options *options,
                             weir_bits_assigned *assigned);

/* Its buckets: runs of neighbours of one width and one bucket of elements; full precision by
 * `dense`, a plan without compression, the others by an all-gather. table has room for a bucket a
 * tensor.  Returns how many. */
size_t weir_bits_table(const weir_bits_stats *stats, const size_t *choice, const weir_plan *dense,
                       weir_plan_bucket *table);
/* Each bucket by what takes links less time: the cheapest algorithm, and quantized ones by an
 * all-gather, by scatter-reduce-allgather, which CGX takes for all (section 6.2), or where ranks
 * share machines and gradients are not on devices by gathering each machine's sum. */
void weir_bits_schemes(const weir_layout *layout, weir_group_shape shape, const weir_link *link,
                       bool devices, weir_plan_bucket *table, size_t count);

/* --- policy bits (policy_bits.c); the controller's thread but for the sampler ----------------- */

typedef struct weir_bits_run {
  weir_bits_options options;
  weir_bits_sampler *sampler;
  const weir_bits_stats *stats; /* the sampler's, as of the last assignment */
  weir_bits_assigned assigned;
  uint64_t measured; /* times, for it, of the tensor measured least */
  uint64_t since;    /* steps */
  bool changed;      /* it made other buckets */
} weir_bits_run;

/* text: as for weir_bits_parse; the others as for the sampler.  *out is to be closed whatever the
 * status. */
weir_status weir_bits_open(weir_bits_run **out, const char *text, const weir_layout *layout,
                           const char *const *names, size_t full, size_t sizes);
void weir_bits_close(weir_bits_run *bits); /* NULL is allowed */

#endif

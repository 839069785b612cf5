/* Weir: work that every rank would repeat, divided among the ranks.
 *
 * After a step all ranks hold the same averages and the same weights, and an optimizer that needs
 * more than the gradient computes the same from them everywhere.  Here each rank computes a share
 * of it, and an all-gather gives every rank all results: the parallel tensor operator (S. Shi et
 * al., Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters, 2021,
 * section 4.2, equations 12 to 14).  On it: the norms that LARS and LAMB scale a tensor's step by.
 *
 * All calls are collective, and come between weir_step_end and the next weir_submit.  Every rank
 * passes the same arguments, and data that are the same bit for bit; their addresses may differ.
 * Waits and lost ranks are as in a step: a rank that does not come within weir_options.timeout_s is
 * WEIR_E_TIMEOUT, and the survivors of a lost one go on by weir_shrink and call again.  Without a
 * session (NULL) one rank does everything, alone: the serial form, which has the same bits. */
#ifndef WEIR_PARALLEL_H
#define WEIR_PARALLEL_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Compute the results of items first .. first + count - 1 and leave them at `results`, each in
 * weir_map.bytes.  What an item's result is may depend on the item alone, not on which others are
 * computed with it.  Called once, or not at all where the share is empty, on the caller's thread.
 * It returns WEIR_OK, or a status below WEIR_E_NONFINITE; others count as WEIR_E_INVALID. */
typedef weir_status (*weir_map_fn)(void *user, size_t first, size_t count, void *results);

typedef struct weir_map {
  size_t struct_size; /* sizeof(weir_map) */
  size_t count;       /* items */
  size_t bytes;       /* of an item's result, at least 1 */
  /* Of each item how much work it is, in any unit, for shares of about equal work; all together at
   * most SIZE_MAX.  NULL: all are alike, and the shares differ by less than world_size items. */
  const size_t *work;
  weir_map_fn fn;
  void *user; /* handed to fn */
} weir_map;

/* Divide the items into one run of neighbours a rank, and gather: `results` receives count * bytes
 * bytes, the results of all items in their order, the same on all ranks.  The all-gather is the
 * cheapest of the table for what is known of the network, and is not timed as gradient
 * communication.  Where items are alike and their number is a multiple of world_size, results are
 * gathered where they lie; else by way of memory of the session's, as much as `results` at most
 * twice.
 *
 * A failure of fn on any rank is returned on all of them, with the lowest such rank's status; the
 * group goes on, and what `results` then holds is undefined.  WEIR_E_MISMATCH: ranks passed another
 * count, bytes or work, which ends the group.  WEIR_E_STATE while a step's buckets are being
 * exchanged. */
weir_status weir_parallel_map(weir_session *session, const weir_map *map, void *results);

/* A tensor whose step is to be scaled, as floats, whatever type its gradient is registered with;
 * the same on all ranks.  Where the session's gradients are: in host memory, or on its device
 * (weir_options.device), behind what is queued on weir_options.stream; elsewhere WEIR_E_INVALID.
 * Scales have the same bits on either, and so ranks with and without a device may be in one
 * group. */
typedef struct weir_scaled_tensor {
  size_t numel;
  const float *weight;   /* numel each */
  const float *gradient; /* the average */
  const float *first;    /* Adam's moments before this step; LARS does not look at them */
  const float *second;
} weir_scaled_tensor;

/* Layer-wise adaptive rate scaling (equation 11 of the paper above; Y. You, I. Gitman and B.
 * Ginsburg, Large Batch Training of Convolutional Networks, 2017):
 *
 *   scale = trust |w| / (|g| + weight_decay |w| + epsilon), within [least, most]
 *
 * by which the learning rate of the tensor is multiplied; its step is that of g + weight_decay w.
 * Where |w| or the divisor is 0, or either is not finite, scale = trust. */
typedef struct weir_lars {
  size_t struct_size;  /* sizeof(weir_lars) */
  double trust;        /* gamma, above 0; the authors' is 0.001 */
  double weight_decay; /* 0 or more */
  double epsilon;      /* 0 or more */
  double least, most;  /* 0 <= least <= most; most 0: no bounds */
} weir_lars;
weir_status weir_lars_scales(weir_session *session, const weir_lars *lars,
                             const weir_scaled_tensor *tensors, size_t count, double *scales);

/* LAMB (Y. You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes,
 * 2020, algorithm 2), at update number `step`, counting from 0:
 *
 *   m = beta1 first + (1 - beta1) g,   v = beta2 second + (1 - beta2) g^2,
 *   u = (m / (1 - beta1^(step + 1))) / (sqrt(v / (1 - beta2^(step + 1))) + epsilon)
 *       + weight_decay w,
 *   scale = |w| / |u|,   |w| within [least, most]
 *
 * by which the learning rate of the tensor's step u is multiplied.  Moments are read, not updated.
 * Where |w| or |u| is 0, or either is not finite, scale = 1. */
typedef struct weir_lamb {
  size_t struct_size; /* sizeof(weir_lamb) */
  double beta1, beta2;
  double epsilon;      /* above 0; the authors' is 1e-6 */
  double weight_decay; /* 0 or more */
  double least, most;  /* 0 <= least <= most; most 0: no bounds */
  uint64_t step;
} weir_lamb;
weir_status weir_lamb_scales(weir_session *session, const weir_lamb *lamb,
                             const weir_scaled_tensor *tensors, size_t count, double *scales);
/* Both: tensors[count], and one scale each in scales[count].  Elements, not tensors, are divided
 * among the ranks: tensors fall into pieces of at most 65536 elements, whose sums of squares are
 * gathered, 16 bytes a piece, and added up in order, in double. */

/* --- whole steps, divided ---------------------------------------------------------------------- *
 *
 * Norms are a part of these optimizers' work: every rank would still update all moments and
 * weights.  Here each updates its share alone, keeps moments of that share alone (1 / world_size
 * of the memory), and new weights are gathered to where they belong.  Over shared memory a share is
 * moved piece by piece while others' pieces are taken.  Over a network the weights' bytes travel in
 * every step, half as many as an all-reduce of the gradient sends uncompressed: there
 * weir_lars_scales and weir_lamb_scales, and every rank updating everything, are mostly faster. */

/* Moments of a rank's share: of elements [begin, begin + count) of all tensors' elements, one
 * tensor after the other.  To be registered as state (weir_register_state, room floats each, which
 * is the same on all ranks) where there are trials. */
typedef struct weir_moment_share {
  size_t struct_size;   /* sizeof(weir_moment_share) */
  int rank, world_size; /* for which they were divided */
  size_t begin, count;
  size_t room; /* the largest rank's count */
  float *first,
      *second; /* the caller's, of `room` floats each, zero before the first step; on a device
                            where the session's gradients are */
} weir_moment_share;
/* Which share a rank of a group has, from the tensors' lengths alone; fills in all but struct_size
 * and the pointers.  numel[tensors].  0 of 1: all elements, which the serial form goes by.  Shares
 * are whole pieces of at most 65536 elements, and differ by less than two of them. 
 * WEIR_E_INVALID. */
weir_status weir_share_moments(const size_t *numel, size_t tensors, int rank, int world_size,
                               weir_moment_share *moments);

/* A tensor that a step moves; the same on all ranks, in the order weir_share_moments was told. */
typedef struct weir_moved_tensor {
  size_t numel;
  float *weight;         /* numel each */
  const float *gradient; /* the average */
  double rate;           /* the learning rate */
  int plain;             /* not 0: its rate is not scaled and it does not decay, as of biases */
} weir_moved_tensor;

/* The step of all tensors, in place:
 *
 *   LARS: v = momentum v + rate scale (g + weight_decay w), w = w - v; v is in moments->first
 *   LAMB: m and v as above, w = w - rate scale u; m and v are in moments->first and ->second
 *
 * with the scales of weir_lars_scales and weir_lamb_scales, from the same pieces: weights have the
 * same bits whatever the number of ranks, and alone (session NULL, moments of 0 of 1).  On a device
 * each rank moves its share there, and weights are gathered by way of page-locked memory, 4 bytes
 * an element of all tensors, which the session keeps.
 *
 * Until norms are known to all ranks, a failure leaves everything as it was.  One after that, of
 * the gathering, leaves weights in part updated: they are to be taken from a checkpoint.  So are
 * all moments when ranks are lost or join, as a lost rank's are gone with it: moments that were
 * divided for another group are WEIR_E_STATE.  Where groups shrink and go on without a checkpoint,
 * keep whole moments on every rank, and use the scales.  Other errors are those of
 * weir_lamb_scales. */
weir_status weir_lars_step(weir_session *session, const weir_lars *lars, double momentum,
                           const weir_moved_tensor *tensors, size_t count,
                           weir_moment_share *moments);
weir_status weir_lamb_step(weir_session *session, const weir_lamb *lamb,
                           const weir_moved_tensor *tensors, size_t count,
                           weir_moment_share *moments);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

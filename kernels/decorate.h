/* What changes a gradient before a codec sees it, beside error feedback (codec.h): clipping,
 * momentum correction with factor masking, and the warm-up of the ratio.  All from Deep Gradient
 * Compression (Lin, Han, Mao, Wang and Dally, 2018, arXiv 1712.01887, sections 3.2 and 3.3); none
 * belongs to a codec, and any codec may go with them or without.
 *
 * In the order of the paper, per rank and step, with m the momentum:
 *
 *   g = clipped g              weir_clip_*: before anything is accumulated
 *   u = m u + g                weir_momentum_correct
 *   e = u + residual           weir_ef_accumulate
 *   the codec selects from e and sends; the residual is what was not sent
 *   u = 0 where it selected    weir_scatter_zero: momentum that was sent is stale ("factor
 * masking")
 *
 * The optimizer then takes the average as it is, without a momentum of its own.  Codecs that send
 * every element need no masking: the average is that of momentum SGD already. */
#ifndef WEIR_KERNELS_DECORATE_H
#define WEIR_KERNELS_DECORATE_H

#include <stddef.h>
#include <stdint.h>

/* The limit of one of `ranks` ranks when the sum of all is to keep to `limit`: limit / sqrt(ranks),
 * as the norm of a sum of independent gradients grows with the root of their number. */
double weir_clip_share(double limit, int ranks);
/* The factor for weir_scale() that brings a gradient of this sum of squares (weir_sum_square, over
 * all tensors) to a norm of at most `limit`; 1 when it is within, when limit is 0 (no clipping), or
 * when the sum is not finite, which is for the step to find. */
float weir_clip_factor(double sum_square, double limit);

/* next = momentum u + g; momentum in [0, 1).  next may be u or g.  Each element rounds twice. */
void weir_momentum_correct(const float *g, const float *u, float *next, size_t n, float momentum);

/* The ratio at a step of a warm-up of `steps` steps in `stages` equal stages: in stage s, from 0,
 * the larger of cr and first^(s + 1); from `steps` on, cr.  The paper: first 1/4 and four epochs as
 * stages, which keep 25 %, 6.25 %, 1.56 % and 0.39 %, then 0.1 %.  steps or stages 0:
 * no warm-up. */
double weir_warmup_ratio(double cr, uint64_t step, uint64_t steps, unsigned stages, double first);

#endif

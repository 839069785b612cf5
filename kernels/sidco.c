/* sidco: SIDCo (Abdelmoniem et al., "An efficient statistical-based gradient compression technique
 * for distributed training systems", 2021).  Gradients' magnitudes are taken to follow a
 * distribution whose tail gives the threshold in closed form, and the tail is fitted in stages,
 * each to what exceeds the threshold of the one before ("peaks over threshold"):
 *
 *   stage m keeps a quarter of what stage m - 1 kept, the last what remains to k/n;
 *   exponential         eta = mean ln(1 / share)
 *   gamma               s = ln mean - mean ln;  a = (3 - s + sqrt((s - 3)^2 + 24 s)) / (12 s);
 *                       eta = -(mean / a) (ln share + ln Gamma(a))
 *   generalized Pareto  q = mean^2 / variance;  a = (1 - q) / 2;  b = mean (q + 1) / 2;
 *                       eta = (b / a) (share^-a - 1)
 *
 * The paper adds or takes away a stage while training, by how far the last steps missed k.  Here
 * the number of stages follows from k/n alone: the last stage keeps between 1/16 and 1/4.  A codec
 * then has no memory that a trial would have to bring back.  And exactly k are kept: the k largest
 * of those that reach the threshold; when they are fewer, all of them, and from the lowest index up
 * enough of those that reach the stage before (with one stage, the same fit's threshold for twice
 * as many).  Where the fit fails altogether (too few reach even that, or hardly anything but zeros)
 * the exact search runs instead. */
#include "kernels/sidco.h"

#include <float.h>
#include <math.h>

#define STAGE_SHARE 0.25

double weir_sidco_exponential(weir_sidco_moments moments, double share) {
  return -moments.mean * log(share);
}

double weir_sidco_gamma(weir_sidco_moments moments, double share) {
  double s = log(moments.mean) - moments.mean_log;
  int sign; /* lgamma() would set a global */
  double a = (3.0 - s + sqrt((s - 3.0) * (s - 3.0) + 24.0 * s)) / (12.0 * s);
  return -(moments.mean / a) * (log(share) + lgamma_r(a, &sign));
}

double weir_sidco_pareto(weir_sidco_moments moments, double share) {
  double q = moments.mean * moments.mean / moments.variance;
  double a = 0.5 * (1.0 - q);
  double b = 0.5 * moments.mean * (q + 1.0);
  return fabs(a) < 1e-9 ? -b * log(share) : b / a * expm1(-a * log(share));
}

/* Of x - base. */
static weir_sidco_moments moments_of(const float *x, size_t n, double base, bool logs) {
  double sum[WEIR_LANES] = {0};
  double square[WEIR_LANES] = {0};
  double log_sum = 0.0;
  size_t positive = 0;
  for (size_t i = 0; i < n; i++) {
    double d = fabs((double)x[i]) - base;
    sum[i % WEIR_LANES] += d;
    square[i % WEIR_LANES] += d * d;
    if (logs && d > 0.0) {
      log_sum += log(d);
      positive++;
    }
  }
  double mean = weir_fold_lanes(sum) / (double)n;
  return (weir_sidco_moments){mean, weir_fold_lanes(square) / (double)n - mean * mean,
                              positive > 0 ? log_sum / (double)positive : 0.0};
}

static double stage(const float *x, size_t n, double base, double share, weir_sidco_fit fit,
                    bool first) {
  if (fit == WEIR_SIDCO_EXPONENTIAL && first) { /* the mean is all it takes */
    double sum;
    uint32_t largest;
    weir_cpu()->abs_sum_max(x, n, &sum, &largest);
    return weir_sidco_exponential((weir_sidco_moments){.mean = sum / (double)n}, share);
  }
  bool gamma = fit == WEIR_SIDCO_GAMMA && first;
  weir_sidco_moments moments = moments_of(x, n, base, gamma);
  return base + (gamma                           ? weir_sidco_gamma(moments, share)
                 : fit == WEIR_SIDCO_EXPONENTIAL ? weir_sidco_exponential(moments, share)
                                                 : weir_sidco_pareto(moments, share));
}

/* Of the count candidates, keep those that reach bits. */
static size_t narrow(weir_codec_context *context, size_t count, uint32_t bits) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    float m = context->magnitude[i];
    uint32_t position = context->position[i];
    context->magnitude[kept] = m;
    context->position[kept] = position;
    kept += weir_magnitude(m) >= bits;
  }
  return kept;
}

static bool usable(double threshold) { return threshold > 0.0 && threshold < (double)FLT_MAX; }

/* Room for those that reach bits: for half of n, and where what has been lent does not hold so many
 * but as many as there are, for these.  *most: how many there is room for. */
static weir_status reserve(weir_codec_context *context, const float *e, size_t n, uint32_t bits,
                           size_t *most) {
  *most = n / 2;
  if (context->lent != NULL &&
      weir_context_room(*most, context->pool != NULL) > context->lent_bytes) {
    const size_t reach = weir_cpu()->count(e, n, bits);
    const bool fits = weir_context_room(reach, context->pool != NULL) <= context->lent_bytes;
    if (fits && reach < *most) *most = reach;
  }
  return weir_context_reserve(context, *most);
}

weir_status weir_sidco_threshold(weir_codec_context *context, const float *e, size_t n, size_t k,
                                 weir_sidco_fit fit, double *threshold, size_t *listed) {
  double left = (double)k / (double)n;
  double eta = 0.0;
  const float *x = e;
  size_t count = n;
  *listed = SIZE_MAX;
  *threshold = 0.0;
  for (bool first = true;; first = false) {
    bool last = left > STAGE_SHARE * STAGE_SHARE;
    eta = stage(x, count, eta, last ? left : STAGE_SHARE, fit, first);
    if (!usable(eta)) return WEIR_OK;
    if (last) break;
    left /= STAGE_SHARE;
    if (first) {
      size_t most;
      weir_status status = reserve(context, e, n, weir_bits_reaching(eta), &most);
      if (status != WEIR_OK) return status;
      /* Never more than half, whatever room there is: what is kept must not depend on that. */
      count = weir_compact(context, e, n, weir_bits_reaching(eta), most);
      x = context->magnitude;
    } else {
      count = narrow(context, count, weir_bits_reaching(eta));
    }
    if (count == SIZE_MAX || count < k) return WEIR_OK;
    *listed = count;
  }
  *threshold = eta;
  return WEIR_OK;
}

static weir_status select_some(weir_codec_context *context, const float *e, size_t n, size_t k,
                               uint32_t base, uint32_t *index) {
  double threshold;
  size_t listed;
  weir_status status =
      weir_sidco_threshold(context, e, n, k, WEIR_SIDCO_EXPONENTIAL, &threshold, &listed);
  if (status != WEIR_OK || !(threshold > 0.0))
    return status != WEIR_OK ? status : weir_topk_indices(context, e, n, k, base, index);
  uint32_t bits = weir_bits_reaching(threshold);
  bool all = listed == SIZE_MAX;
  const float *x = all ? e : context->magnitude;
  size_t reach = weir_cpu()->count(x, all ? n : listed, bits);
  weir_band band = {bits, 0, k - reach, k};
  if (all) {
    /* One stage only: the stage before would have been the same fit's for twice as many. */
    double share = (double)k / (double)n;
    band.low = weir_bits_reaching(fmax(threshold * log(2.0 * share) / log(share), 0.0));
    if (reach >= k || weir_cpu()->count(e, n, band.low) < k)
      return weir_topk_indices(context, e, n, k, base, index);
  }
  if (reach >= k) {
    weir_kth kth = weir_kth_largest(context, x, listed, k);
    band = weir_band_of(kth, k);
  }
  if (all) {
    (void)weir_cpu()->emit(e, n, band, base, index);
  } else {
    (void)weir_emit_candidates(context, listed, band, base, index);
  }
  return WEIR_OK;
}

static weir_status select_all(weir_codec_context *context, const float *e,
                              const weir_layout *layout, double cr, uint32_t *index,
                              size_t capacity, size_t *k) {
  return weir_select_whole(context, e, layout, cr, index, capacity, k, select_some);
}

/* Its first stage's quarter, as far as that was fitted well. */
static size_t listed(size_t n, size_t k) {
  return k <= n / 16 ? n / 4 + n / 16 : weir_plan_list(n, k, WEIR_SAMPLE).room;
}

const weir_codec weir_codec_sidco = {
    .id = WEIR_CODEC_SIDCO,
    .name = "sidco",
    .description = "threshold of a tail fitted in stages (SIDCo-E)",
    .schemes =
        WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_HITOPK) | WEIR_WITH(WEIR_SCHEME_PATH),
    .wires = WEIR_WIRES_ALL,
    .device = true,
    .kept = weir_topk_kept,
    .select = select_all,
    .listed = listed,
    .rereads = 2,
    .prior = {2e-5, 2e-9, 0, 4e-9},
};

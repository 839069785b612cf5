/* The fits of SIDCo, for its tests. */
#ifndef WEIR_KERNELS_SIDCO_H
#define WEIR_KERNELS_SIDCO_H

#include "kernels/internal.h"

typedef enum weir_sidco_fit {
  WEIR_SIDCO_EXPONENTIAL = 0, /* SIDCo-E: exponential in every stage */
  WEIR_SIDCO_GAMMA = 1,       /* SIDCo-GP: gamma first, then generalized Pareto */
  WEIR_SIDCO_PARETO = 2       /* SIDCo-P: generalized Pareto in every stage */
} weir_sidco_fit;

/* What a fit needs to know of the magnitudes (of what they exceed the last stage's
 * threshold by). */
typedef struct weir_sidco_moments {
  double mean;
  double variance;
  double mean_log; /* of the logarithms; gamma only */
} weir_sidco_moments;

/* The value that a share of the fitted distribution exceeds; share in (0, 1). */
double weir_sidco_exponential(weir_sidco_moments moments, double share);
double weir_sidco_gamma(weir_sidco_moments moments, double share);
double weir_sidco_pareto(weir_sidco_moments moments, double share);

/* Threshold of the last stage for keeping k of n; 0: the fit fails. *listed: the context then holds
 * all elements that reach the stage before (SIZE_MAX: that is all of e). */
weir_status weir_sidco_threshold(weir_codec_context *context, const float *e, size_t n, size_t k,
                                 weir_sidco_fit fit, double *threshold, size_t *listed);

#endif

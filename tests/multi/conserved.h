/* Is nothing of a gradient lost or invented by a step?
 *   N * update + sum of residuals after = sum of (gradient + residual before)
 * but for what rounding a sum may take. */
#ifndef WEIR_TESTS_CONSERVED_H
#define WEIR_TESTS_CONSERVED_H

#include <math.h>

#include "group.h"
#include "kernels/codec.h"

/* Of each rank: its gradient, its residual before and after; and what all ranks got. */
typedef struct conserved_step {
  int ranks;
  size_t n;
  const float *g[GROUP_MAX], *before[GROUP_MAX], *after[GROUP_MAX], *update;
} conserved_step;

/* An element that is not, what came in of it and what went out; n: all are. */
static inline size_t conserved_not(const conserved_step *s, const weir_plan *plan, double *in,
                                   double *out) {
  const bool encoded = group_encodes(plan);
  /* Low rank adds up products, each of which may be as large as the whole; test_lowrank.c has the
   * closer bound. */
  double products = 0;
  for (int r = 0; weir_codec_find(plan->codec)->low_rank && r < s->ranks; r++) {
    double square = 0;
    for (size_t i = 0; i < s->n; i++) {
      const float e = s->g[r][i] + s->before[r][i];
      square += (double)e * (double)e;
    }
    products += sqrt(square);
  }
  for (size_t i = 0; i < s->n; i++) {
    double before = 0, after = 0, size = products;
    for (int r = 0; r < s->ranks; r++) {
      before += (double)s->g[r][i] + (double)s->before[r][i];
      after += (double)s->after[r][i];
      size += fabs((double)s->g[r][i]) + fabs((double)s->before[r][i]);
      /* What an encoder sends may be larger than the element, but not than element and error. */
      if (encoded) size += fabs((double)s->after[r][i]);
    }
    after += s->ranks * (double)s->update[i];
    const double bound = (s->ranks + 6) * 0x1p-23 * size + 1e-37;
    if (fabs(before - after) <= bound) continue;
    *in = before;
    *out = after;
    return i;
  }
  return s->n;
}

#endif

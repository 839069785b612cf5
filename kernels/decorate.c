/* Clipping, momentum correction and warm-up; decorate.h says where they come from. */
#include "kernels/decorate.h"

#include <math.h>

#include "kernels/number.h"

double weir_clip_share(double limit, int ranks) { return limit / sqrt((double)ranks); }

float weir_clip_factor(double sum_square, double limit) { return weir_clip_to(sum_square, limit); }

void weir_momentum_correct(const float *g, const float *u, float *next, size_t n, float momentum) {
  for (size_t i = 0; i < n; i++) {
    float kept = momentum * u[i];
    next[i] = kept + g[i];
  }
}

double weir_warmup_ratio(double cr, uint64_t step, uint64_t steps, unsigned stages, double first) {
  if (stages == 0 || step >= steps) return cr;
  unsigned stage = (unsigned)((double)step / (double)steps * (double)stages);
  return fmax(cr, pow(first, (double)(stage + 1)));
}

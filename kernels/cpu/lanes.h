/* Sums in lanes, the part that every version shares: element i goes into lane i mod WEIR_LANES, in
 * ascending order.  From 0 it is the scalar version; a vector version, whose lanes are its
 * accumulators, ends with it from the last multiple of WEIR_LANES on. */
#ifndef WEIR_KERNELS_CPU_LANES_H
#define WEIR_KERNELS_CPU_LANES_H

#include "kernels/cpu/cpu.h"

static inline void weir_moments_add(weir_moments *moments, double sum[WEIR_LANES],
                                    double square[WEIR_LANES], size_t nonfinite) {
  moments->sum += weir_fold_lanes(sum);
  moments->sum_square += weir_fold_lanes(square);
  moments->nonfinite += nonfinite;
}

/* A pass of error feedback from element `from` on, the list aside.  Returns the number of elements
 * that are not finite. */
static inline size_t weir_lanes_feed(const weir_feeding *f, size_t from, double sum[WEIR_LANES],
                                     double square[WEIR_LANES]) {
  size_t nonfinite = 0;
  for (size_t i = from; i < f->n; i++) {
    float x = f->g[i] + f->r[i];
    f->e[i] = x;
    bool finite = weir_magnitude(x) < WEIR_INF_BITS;
    double d = finite ? (double)x : 0.0;
    sum[i % WEIR_LANES] += d;
    square[i % WEIR_LANES] += d * d;
    nonfinite += !finite;
  }
  return nonfinite;
}

/* The end of a pass whose vectors reach element `from`. */
static inline void weir_lanes_feed_rest(const weir_feeding *f, size_t from, double sum[WEIR_LANES],
                                        double square[WEIR_LANES], size_t nonfinite,
                                        weir_moments *moments) {
  nonfinite += weir_lanes_feed(f, from, sum, square);
  weir_moments_add(moments, sum, square, nonfinite);
  weir_candidates *list = f->list;
  if (list != NULL && list->count != SIZE_MAX) {
    size_t more = weir_cpu_scalar.compact(
        f->e + from, f->n - from, list->floor_bits, f->base + (uint32_t)from,
        list->magnitude + list->count, list->position + list->count, list->capacity - list->count);
    list->count = more != SIZE_MAX ? list->count + more : SIZE_MAX;
  }
}

static inline void weir_lanes_square(const float *x, size_t from, size_t n,
                                     double lane[WEIR_LANES]) {
  for (size_t i = from; i < n; i++) lane[i % WEIR_LANES] += (double)x[i] * (double)x[i];
}

/* Sum of |x|.  Returns the largest bits of |x|, at least max. */
static inline uint32_t weir_lanes_magnitude(const float *x, size_t from, size_t n,
                                            double lane[WEIR_LANES], uint32_t max) {
  for (size_t i = from; i < n; i++) {
    uint32_t bits = weir_magnitude(x[i]);
    lane[i % WEIR_LANES] += (double)weir_float_of(bits);
    max = bits > max ? bits : max;
  }
  return max;
}

#endif

/* Error feedback with AVX-512: 16 elements at a time, and what reaches a floor listed while it is
 * in registers.  Included by avx512.c. */

typedef struct feed_sums {
  __m512d sum0, sum1, square0, square1;
  size_t nonfinite;
} feed_sums;

TARGET static inline feed_sums no_feed_sums(void) {
  const __m512d zero = _mm512_setzero_pd();
  return (feed_sums){zero, zero, zero, zero, 0};
}

TARGET static inline void store_feed_sums(const feed_sums *sums, double sum[WEIR_LANES],
                                          double square[WEIR_LANES]) {
  _mm512_storeu_pd(sum, sums->sum0);
  _mm512_storeu_pd(sum + 8, sums->sum1);
  _mm512_storeu_pd(square, sums->square0);
  _mm512_storeu_pd(square + 8, sums->square1);
}

TARGET static inline void feed_moments(feed_sums *sums, __m512 x) {
  __mmask16 bad = _mm512_fpclass_ps_mask(x, NONFINITE);
  sums->nonfinite += mask_ones(bad);
  x = _mm512_maskz_mov_ps((__mmask16)~bad, x);
  __m512d a = low_half(x);
  __m512d b = high_half(x);
  sums->sum0 = _mm512_add_pd(sums->sum0, a);
  sums->sum1 = _mm512_add_pd(sums->sum1, b);
  sums->square0 = _mm512_add_pd(sums->square0, _mm512_mul_pd(a, a));
  sums->square1 = _mm512_add_pd(sums->square1, _mm512_mul_pd(b, b));
}

/* list is a constant where this is inlined.  Returns how far it came. */
TARGET static inline __attribute__((always_inline)) size_t feed_vectors(const weir_feeding *f,
                                                                        feed_sums *to, bool list) {
  feed_sums sums = *to;
  const float *g = f->g, *r = f->r;
  float *e = f->e;
  const size_t n = f->n;
  const __m512i least = _mm512_set1_epi32(list ? (int)f->list->floor_bits : 0);
  __m512i at = counting(f->base);
  const size_t capacity = list ? f->list->capacity : 0;
  size_t found = list ? f->list->count : 0;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    fetch_ahead(g + i);
    fetch_ahead(r + i);
    __m512 x = _mm512_add_ps(_mm512_loadu_ps(g + i), _mm512_loadu_ps(r + i));
    _mm512_storeu_ps(e + i, x);
    if (list && found <= capacity) {
      __m512i m = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
      __mmask16 take = _mm512_cmpge_epu32_mask(m, least);
      /* Whole vectors go out, into the slack if need be: no branch, no slow compressing store. */
      _mm512_storeu_si512(f->list->magnitude + found, _mm512_maskz_compress_epi32(take, m));
      _mm512_storeu_si512(f->list->position + found, _mm512_maskz_compress_epi32(take, at));
      at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
      found += mask_ones(take);
    }
    feed_moments(&sums, x);
  }
  if (list) f->list->count = found <= capacity ? found : SIZE_MAX;
  *to = sums;
  return i;
}

#include "kernels/cpu/feed_all.h"

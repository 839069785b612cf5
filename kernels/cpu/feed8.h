/* Error feedback with AVX2: 8 elements at a time, and what reaches a floor listed while it is in
 * registers.  Included by avx2.c. */

typedef struct feed_sums {
  lanes sum, square;
  size_t nonfinite;
} feed_sums;

TARGET static inline feed_sums no_feed_sums(void) { return (feed_sums){no_lanes(), no_lanes(), 0}; }

TARGET static inline void store_feed_sums(const feed_sums *sums, double sum[WEIR_LANES],
                                          double square[WEIR_LANES]) {
  store_lanes(&sums->sum, sum);
  store_lanes(&sums->square, square);
}

TARGET static inline void feed_moments(feed_sums *sums, __m256 x, size_t half) {
  __m256i m = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
  __m256i bad = _mm256_cmpgt_epi32(m, _mm256_set1_epi32((int)WEIR_INF_BITS - 1));
  sums->nonfinite +=
      (size_t)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(bad)));
  x = _mm256_andnot_ps(_mm256_castsi256_ps(bad), x);
  add_lanes(&sums->sum, x, half);
  add_squares(&sums->square, x, half);
}

/* Whole vectors go out, into the slack if need be. */
TARGET static inline size_t feed_list(const weir_candidates *list, size_t found, __m256 x,
                                      uint32_t base) {
  __m256i m = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
  uint32_t take = reaching(m, list->floor_bits);
  if (take == 0) { /* finding the order takes longer than being wrong about it */
    return found;
  }
  __m256i order = packing(take);
  _mm256_storeu_si256((__m256i *)(void *)(list->magnitude + found),
                      _mm256_permutevar8x32_epi32(m, order));
  _mm256_storeu_si256((__m256i *)(void *)(list->position + found),
                      _mm256_permutevar8x32_epi32(counting(base), order));
  return found + (size_t)__builtin_popcount(take);
}

/* list, keep and stream are constants where this is inlined.  Returns how far it came. */
TARGET static inline __attribute__((always_inline)) size_t feed_vectors(const weir_feeding *f,
                                                                        feed_sums *to, bool list,
                                                                        bool keep, bool stream) {
  feed_sums sums = *to;
  const size_t capacity = list ? f->list->capacity : 0;
  size_t found = list ? f->list->count : 0;
  size_t i = 0;
  for (; i + 16 <= f->n; i += 16) {
    fetch_ahead(f->g + i);
    fetch_ahead(f->r + i);
    for (size_t half = 0; half < 2; half++) {
      size_t at = i + 8 * half;
      __m256 kept = _mm256_loadu_ps(f->r + at);
      __m256 x = _mm256_add_ps(_mm256_loadu_ps(f->g + at), kept);
      if (stream) {
        _mm256_stream_ps(f->e + at, x);
      } else {
        _mm256_storeu_ps(f->e + at, x);
      }
      if (keep) {
        _mm256_storeu_ps(f->old + at, kept);
      }
      if (list && found <= capacity) {
        found = feed_list(f->list, found, x, f->base + (uint32_t)at);
      }
      feed_moments(&sums, x, half);
    }
  }
  if (list) {
    f->list->count = found <= capacity ? found : SIZE_MAX;
  }
  *to = sums;
  return i;
}

#include "kernels/cpu/feed_all.h"

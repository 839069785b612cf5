/* Error feedback with AVX2: 8 elements at a time, and what reaches a floor listed while it is in
 * registers.  Included by avx2.c. */

typedef struct feed_sums {
  lanes sum, square;
  __m256i bad; /* elements that are not finite, lane by lane */
  size_t nonfinite;
} feed_sums;

TARGET static inline feed_sums no_feed_sums(void) {
  return (feed_sums){no_lanes(), no_lanes(), _mm256_setzero_si256(), 0};
}

TARGET static inline void store_feed_sums(const feed_sums *sums, double sum[WEIR_LANES],
                                          double square[WEIR_LANES]) {
  store_lanes(&sums->sum, sum);
  store_lanes(&sums->square, square);
}

TARGET static inline void feed_moments(feed_sums *sums, __m256 x, size_t half) {
  __m256i m = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
  __m256i bad = _mm256_cmpgt_epi32(m, _mm256_set1_epi32((int)WEIR_INF_BITS - 1));
  sums->bad = _mm256_sub_epi32(sums->bad, bad);
  x = _mm256_andnot_ps(_mm256_castsi256_ps(bad), x);
  add_lanes(&sums->sum, x, half);
  add_squares(&sums->square, x, half);
}

/* What reaches the floor among 8 elements: whole vectors go out, into the slack if need be. */
TARGET static inline size_t feed_list(const weir_candidates *list, size_t found, __m256i m,
                                      uint32_t take, __m256i at) {
  __m256i order = packing(take);
  _mm256_storeu_si256((__m256i *)(void *)(list->magnitude + found),
                      _mm256_permutevar8x32_epi32(m, order));
  _mm256_storeu_si256((__m256i *)(void *)(list->position + found),
                      _mm256_permutevar8x32_epi32(at, order));
  return found + (size_t)__builtin_popcount(take);
}

/* Where fewer than one in 256 of the elements before reached the floor, those that do not are
 * passed over: a branch that is right nearly always.  Elsewhere it would be wrong too often. */
#define FEED_BLOCK ((size_t)4096)
#define FEED_FEW (FEED_BLOCK / 256)

/* list is a constant where this is inlined.  Returns how far it came. */
TARGET static inline __attribute__((always_inline)) size_t feed_vectors(const weir_feeding *f,
                                                                        feed_sums *to, bool list) {
  feed_sums sums = *to;
  const weir_feeding in = *f; /* which no store here changes */
  const weir_candidates all = list ? *f->list : (weir_candidates){0};
  const size_t capacity = all.capacity;
  size_t found = all.count;
  __m256i place = counting(in.base);
  uint32_t always = UINT32_MAX; /* 0: few are listed */
  size_t before = found;
  size_t i = 0;
  for (; i + 16 <= in.n; i += 16) {
    fetch_ahead(in.g + i);
    fetch_ahead(in.r + i);
    if (list && i % FEED_BLOCK == 0 && i > 0) {
      always = found - before < FEED_FEW ? 0 : UINT32_MAX;
      before = found;
    }
    for (size_t half = 0; half < 2; half++) {
      size_t at = i + 8 * half;
      __m256 x = _mm256_add_ps(_mm256_loadu_ps(in.g + at), _mm256_loadu_ps(in.r + at));
      _mm256_storeu_ps(in.e + at, x);
      if (list && found <= capacity) {
        __m256i m = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
        uint32_t take = reaching(m, all.floor_bits);
        if ((take | always) != 0) found = feed_list(&all, found, m, take, place);
        place = _mm256_add_epi32(place, _mm256_set1_epi32(8));
      }
      feed_moments(&sums, x, half);
    }
  }
  uint32_t bad[8];
  _mm256_storeu_si256((void *)bad, sums.bad);
  for (size_t lane = 0; lane < 8; lane++) sums.nonfinite += bad[lane];
  if (list) f->list->count = found <= capacity ? found : SIZE_MAX;
  *to = sums;
  return i;
}

#include "kernels/cpu/feed_all.h"

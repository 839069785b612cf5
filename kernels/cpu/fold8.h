/* The last folds, from 8 lanes to one, of range() and of sums in the contract's order; every x86
 * version ends with them.  The including file defines TARGET. */
#ifndef TARGET
#error "define TARGET first"
#endif

TARGET static inline void fold_range(__m256 least, __m256 most, float *low, float *high) {
  __m128 l = _mm_min_ps(_mm256_extractf128_ps(least, 1), _mm256_castps256_ps128(least));
  __m128 m = _mm_max_ps(_mm256_extractf128_ps(most, 1), _mm256_castps256_ps128(most));
  l = _mm_min_ps(_mm_movehl_ps(l, l), l);
  m = _mm_max_ps(_mm_movehl_ps(m, m), m);
  *low = _mm_cvtss_f32(_mm_min_ss(_mm_shuffle_ps(l, l, 1), l));
  *high = _mm_cvtss_f32(_mm_max_ss(_mm_shuffle_ps(m, m, 1), m));
}

TARGET static inline double fold_sum(__m256d low, __m256d high) {
  __m256d four = _mm256_add_pd(low, high);
  __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

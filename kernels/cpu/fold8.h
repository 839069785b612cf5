/* The last folds of range(), from 8 lanes to one; every x86 version ends with them.  The including
 * file defines TARGET. */
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

/* The parts of low rank in one sum; engine/bilateral.c puts them together. */
#ifndef WEIR_KERNELS_BILATERAL_H
#define WEIR_KERNELS_BILATERAL_H

#include <stddef.h>

/* P -= B (B^T P); both have `rank` columns of `rows` elements, B's are orthonormal or zero. */
void weir_bilateral_beside(const float *b, size_t rows, size_t rank, float *p);
/* out = L R^T X for a matrix L R^T that is known by its factors, of `width` columns: L's have
 * `rows` elements, R's and those of X, which are `rank`, `columns`. */
void weir_bilateral_times(const float *l, size_t rows, const float *r, size_t columns, size_t width,
                          const float *x, size_t rank, float *out);

#endif

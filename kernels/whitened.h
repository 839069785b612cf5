/* What whitened elements are measured by (kernels/whitened.c has the method). */
#ifndef WEIR_KERNELS_WHITENED_H
#define WEIR_KERNELS_WHITENED_H

#include <stddef.h>
#include <stdint.h>

/* Elements that are measured against the one of them that is usually the largest. */
#define WEIR_WHITENED_BLOCK ((size_t)128)
/* No square is larger: the upper half of the largest float. */
#define WEIR_SQUARE_MOST 0x7f7fU

/* square[i]: of element i, the mean square of averages of late, as the upper half of a float in
 * units of 2^-40; 0: not known, or next to nothing.  An average more. */
void weir_squares_follow(uint16_t *square, const float *average, size_t n);

/* Divides each element by a power of two: by 256 where it is usually the largest of its block, by
 * less where it is usually smaller, by 1 where it is usually below a 256th of the largest, and by
 * 32, as what is usually an eighth of it, where that is not known.  Nothing overflows, and what is
 * lost is below the least of normal floats. */
void weir_whiten(float *x, const uint16_t *square, size_t n);
/* Multiplies each by the same.  What would not be finite counts as the largest float. */
void weir_unwhiten(float *x, const uint16_t *square, size_t n);

#endif

/* Gradients of 16 bits an element (weir_type): widened to floats before anything is done to them,
 * and rounded once when an average is written back. */
#ifndef WEIR_KERNELS_HALF_H
#define WEIR_KERNELS_HALF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

/* Elements of such bytes are NaN, whatever their type. */
#define WEIR_NAN_BYTE 0xff

static inline size_t weir_type_bytes(unsigned type) { return type == WEIR_FP32 ? 4 : 2; }

/* Exact: Inf and NaN stay what they are. */
void weir_widen(unsigned type, const uint16_t *from, size_t n, float *to);
/* Nearest, ties to even.  False: something is not finite, or would not be in this type; what then
 * stands at its place is not said. */
bool weir_narrow(unsigned type, const float *from, size_t n, uint16_t *to);
/* Of what they are as floats: the sum of squares; and scaled, each rounded as above. */
double weir_half_square(unsigned type, const uint16_t *x, size_t n);
void weir_half_scale(unsigned type, uint16_t *x, size_t n, float factor);
/* Elements that are neither 0 nor -0, of either type. */
static inline bool weir_half_nonzero(uint16_t half) { return (half & 0x7fffU) != 0; }

#endif

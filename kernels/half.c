/* Widening and rounding gradients of 16 bits, over the passes that codecs have for such values. */
#include "kernels/half.h"

#include "kernels/internal.h"

/* The pass for messages takes no infinities. */
void weir_widen(unsigned type, const uint16_t *from, size_t n, float *to) {
  const weir_cpu_ops *cpu = weir_cpu();
  const uint8_t *const bytes = (const uint8_t *)from;
  if (type == WEIR_BF16)
    cpu->bf16_decode(bytes, n, to);
  else if (cpu->fp16_finite(bytes, n))
    cpu->fp16_decode(bytes, n, to, WEIR_DECODE_STORE);
  else
    for (size_t i = 0; i < n; i++) to[i] = weir_half_value(from[i]);
}

/* A magnitude that reaches `least` becomes the sign bit. */
static bool below(const float *x, size_t n, uint32_t least) {
  uint32_t carry = 0;
  for (size_t i = 0; i < n; i++) carry |= weir_magnitude(x[i]) + (UINT32_C(0x80000000) - least);
  return (carry & UINT32_C(0x80000000)) == 0;
}

/* Both passes saturate, which nobody gets to see. */
bool weir_narrow(unsigned type, const float *from, size_t n, uint16_t *to) {
  const bool finite = below(from, n, type == WEIR_BF16 ? WEIR_BF16_OVERFLOW : WEIR_FP16_OVERFLOW);
  if (type == WEIR_BF16)
    weir_cpu()->bf16_encode(from, n, to, NULL);
  else
    weir_cpu()->fp16_encode(from, n, (uint8_t *)to);
  return finite;
}

/* Elements that are widened at a time. */
#define BLOCK ((size_t)4096)

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

double weir_half_square(unsigned type, const uint16_t *x, size_t n) {
  float wide[BLOCK];
  double sum = 0;
  for (size_t at = 0; at < n; at += BLOCK) {
    const size_t count = least(n - at, BLOCK);
    weir_widen(type, x + at, count, wide);
    sum += weir_sum_square(wide, count);
  }
  return sum;
}

void weir_half_scale(unsigned type, uint16_t *x, size_t n, float factor) {
  float wide[BLOCK];
  for (size_t at = 0; at < n; at += BLOCK) {
    const size_t count = least(n - at, BLOCK);
    weir_widen(type, x + at, count, wide);
    weir_scale(wide, count, factor);
    (void)weir_narrow(type, wide, count, x + at);
  }
}

/* The scalar reference: what the vector versions are compared with, bit for bit. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"

#define TARGET
#define LOWRANK_REGISTER 4
#include "kernels/cpu/lowrank.h"
#include "kernels/cpu/quantize.h"
#define WEIR_SPREAD_PLAIN
#include "kernels/cpu/spread.h"
#include "kernels/cpu/spread_all.h"
#define WEIR_ELIAS_PLAIN
#include "kernels/cpu/elias.h"

static void feed(const weir_feeding *f, weir_moments *moments) {
  double sum[WEIR_LANES] = {0};
  double square[WEIR_LANES] = {0};
  weir_lanes_feed_rest(f, 0, sum, square, 0, moments);
}

static double sum_square(const float *x, size_t n) {
  double lane[WEIR_LANES] = {0};
  weir_lanes_square(x, 0, n, lane);
  return weir_fold_lanes(lane);
}

static void abs_sum_max(const float *x, size_t n, double *sum, uint32_t *max_bits) {
  double lane[WEIR_LANES] = {0};
  *max_bits = weir_lanes_magnitude(x, 0, n, lane, 0);
  *sum = weir_fold_lanes(lane);
}

static size_t count(const float *x, size_t n, uint32_t bits) {
  size_t found = 0;
  for (size_t i = 0; i < n; i++) found += weir_magnitude(x[i]) >= bits;
  return found;
}

static size_t compact(const float *x, size_t n, uint32_t bits, uint32_t base, float *magnitude,
                      uint32_t *position, size_t capacity) {
  size_t found = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t m = weir_magnitude(x[i]);
    /* Written always and kept only when it counts: no branch to mispredict. */
    magnitude[found] = weir_float_of(m);
    position[found] = base + (uint32_t)i;
    found += m >= bits;
    if (found > capacity) return SIZE_MAX;
  }
  return found;
}

static size_t emit(const float *x, size_t n, weir_band band, uint32_t base, uint32_t *index) {
  size_t taken = 0;
  for (size_t i = 0; i < n && taken < band.most; i++) {
    uint32_t m = weir_magnitude(x[i]);
    if (m >= band.high) {
      index[taken++] = base + (uint32_t)i;
    } else if (m >= band.low && band.quota > 0) {
      band.quota--;
      index[taken++] = base + (uint32_t)i;
    }
  }
  return taken;
}

static void bf16_encode(const float *x, size_t n, uint16_t *out, float *error) {
  for (size_t i = 0; i < n; i++) {
    uint16_t bits = weir_bf16_bits(x[i]);
    if (error != NULL) error[i] += x[i] - weir_bf16_value(bits);
    out[i] = bits;
  }
}

static void bf16_decode(const uint8_t *x, size_t n, float *out) {
  for (size_t i = 0; i < n; i++) out[i] = weir_bf16_value(half_at(x, i));
}

/* In lanes and halves like a sum: of 0 and -0 too every version takes the same. */
static void range(const float *x, size_t n, float *low, float *high) {
  float least[WEIR_LANES];
  float most[WEIR_LANES];
  for (size_t lane = 0; lane < WEIR_LANES; lane++) least[lane] = most[lane] = x[0];
  size_t i = 0;
  for (; i + WEIR_LANES <= n; i += WEIR_LANES) {
    for (size_t lane = 0; lane < WEIR_LANES; lane++) {
      float d = x[i + lane];
      least[lane] = d < least[lane] ? d : least[lane];
      most[lane] = d > most[lane] ? d : most[lane];
    }
  }
  for (size_t lane = 0; i < n; i++, lane++) {
    least[lane] = x[i] < least[lane] ? x[i] : least[lane];
    most[lane] = x[i] > most[lane] ? x[i] : most[lane];
  }
  for (size_t width = WEIR_LANES / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; lane++) {
      least[lane] = least[lane + width] < least[lane] ? least[lane + width] : least[lane];
      most[lane] = most[lane + width] > most[lane] ? most[lane + width] : most[lane];
    }
  }
  *low = least[0];
  *high = most[0];
}

static void copy_past(unsigned char *to, const unsigned char *from, size_t lines) {
  memcpy(to, from, 64 * lines);
}

const weir_cpu_ops weir_cpu_scalar = {
    .name = "scalar",
    .feed = feed,
    .sum_square = sum_square,
    .abs_sum_max = abs_sum_max,
    .count = count,
    .compact = compact,
    .emit = emit,
    .bf16_encode = bf16_encode,
    .bf16_decode = bf16_decode,
    .range = range,
    .quantize_nearest = plain_quantize_nearest,
    .quantize_stochastic = plain_quantize_stochastic,
    .dequantize = plain_dequantize,
    .dequantize_add = plain_dequantize_add,
    .pack = plain_pack,
    .unpack = plain_unpack,
    .fp16_encode = plain_fp16_encode,
    .fp16_decode = plain_fp16_decode,
    WEIR_QUANTIZER_OPS,
    WEIR_LOWRANK_OPS,
    WEIR_SPREAD_OPS,
    .copy_past = copy_past,
    WEIR_ELIAS_OPS,
};

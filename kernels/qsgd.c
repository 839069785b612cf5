/* qsgd: bucketed quantization (Alistarh et al., "QSGD", 2017, as used by CGX, sections 2.3 and 4).
 * Each bucket of 128 elements has its own grid, and every element goes to one of the two grid
 * values beside it, upwards with the probability of its distance from the lower, so that its
 * expectation is the element:
 *
 *   max-min (default)  min + j (max - min) / (2^b - 1),  j = 0..2^b - 1
 *   L2                 j ||v||_2 / s,                    j = -s..s,  s = 2^(b-1) - 1
 *
 * The step of an L2 grid, ||v||_2 / s, is rounded to bfloat16, so that half of its bytes need not
 * travel where codes are coded.
 *
 * Bucket 128 is CGX's baseline.  max-min and stochastic are the defaults, because under error
 * feedback the residual must stay bounded: on a max-min grid |residual| < step whatever the data,
 * and its width settles.  A draw between two values step apart errs by at most step^2 / 4 in the
 * mean square, which in L2 sums up to bucket / (4 s^2) ||v||^2: less than ||v||^2 from 4 bits on
 * (0.65).  Rounded to nearest, with fewer than 4 bits a bucket of equal magnitudes, ||v|| /
 * sqrt(bucket) each, would never send anything.  So plans take L2 from 4 bits on.  Nearest rounding
 * halves the largest error, but moves all elements near zero the same way in the same step, which
 * draws do not.
 *
 * The codecs qsgd-nearest, qsgd-l2 and qsgd-l2-nearest write qsgd's messages, which say how they
 * are to be read. */
#include <math.h>

#include "base/base.h"
#include "kernels/cpu/ahead.h"
#include "kernels/encoder.h"

#define BUCKET 128
#define BUCKET_LEAST 8U
#define BUCKET_MOST UINT32_C(65536)

/* head.mode */
#define MODE_L2 1U
#define MODE_NEAREST 2U

static unsigned levels(const weir_encoded *head) {
  return head->mode & MODE_L2 ? (1U << (head->bits - 1)) - 1 : (1U << head->bits) - 1;
}

static weir_grid grid_of(const weir_encoded *head, const float *scale) {
  unsigned s = levels(head);
  bool l2 = head->mode & MODE_L2;
  return (weir_grid){.base = l2 ? 0.0F : scale[1],
                     .step = scale[0],
                     .zero = l2 ? (float)s : 0.0F,
                     .top = (uint8_t)(l2 ? 2 * s : s)};
}

/* What a bucket's grid spans, and in scale[1] where it begins. */
static float extent(const weir_encoded *head, const float *x, size_t count, float *scale) {
  float low;
  float high;
  scale[1] = 0.0F;
  if (head->mode & MODE_L2) return weir_grid_limit(sqrt(weir_cpu()->sum_square(x, count)));
  weir_cpu()->range(x, count, &low, &high);
  scale[1] = weir_grid_limit((double)low);
  return weir_grid_limit((double)high) - scale[1];
}

static weir_grid grid_over(const weir_encoded *head, float width, float *scale) {
  bool wide = width >= WEIR_GRID_LEAST;
  float s = (float)levels(head);
  scale[0] = wide ? width / s : 0.0F;
  if (head->mode & MODE_L2) scale[0] = weir_bf16_nearest(scale[0]);
  weir_grid grid = grid_of(head, scale);
  grid.inverse = !wide ? 0.0F : head->mode & MODE_L2 ? 1.0F / scale[0] : s / width;
  return grid;
}

static weir_grid fit(const weir_encoded *head, const float *x, size_t count, float *scale) {
  return grid_over(head, extent(head, x, count, scale), scale);
}

static void encode_codes(const weir_encoded *head, weir_grid grid, const float *x, size_t count,
                         uint32_t key, uint8_t *codes) {
  if (head->bits == 4 && !(head->mode & MODE_NEAREST) && weir_cpu()->quantize_nibbles != NULL) {
    weir_cpu()->quantize_nibbles(x, count, grid, key, codes);
    return;
  }
  uint8_t code[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    if (head->mode & MODE_NEAREST) {
      weir_cpu()->quantize_nearest(x + done, part, grid, code);
    } else {
      weir_cpu()->quantize_stochastic(x + done, part, grid, key + (uint32_t)done, code);
    }
    weir_codes_write(code, part, head->bits, codes + done / 8 * head->bits);
  }
}

static void encode_bucket(const weir_unit_format *format, const float *x, size_t count,
                          uint32_t key, float *scale, uint8_t *codes) {
  weir_grid grid = fit(&format->head, x, count, scale);
  encode_codes(&format->head, grid, x, count, key, codes);
}

/* A grid waits for a chain of minima and two divisions, and codes wait for the grid: some buckets'
 * grids first, as many as stay in the first cache, and those waits overlap.  Meanwhile, what comes
 * after them is asked for; of larger buckets the processor does that by itself. */
#define TOGETHER_ELEMENTS 1024U
#define TOGETHER (TOGETHER_ELEMENTS / BUCKET_LEAST) /* buckets */

static void encode_buckets(const weir_unit_format *format, const float *x, size_t units,
                           uint64_t seed, uint64_t first, uint8_t *out) {
  const weir_encoded *head = &format->head;
  size_t bucket = head->unit;
  size_t together = bucket < TOGETHER_ELEMENTS ? TOGETHER_ELEMENTS / bucket : 1;
  for (size_t done = 0; done < units; done += together) {
    size_t part = units - done < together ? units - done : together;
    weir_grid grid[TOGETHER];
    float scale[TOGETHER][WEIR_SCALES_MAX];
    for (size_t i = 0; i < part; i++) grid[i] = fit(head, x + i * bucket, bucket, scale[i]);
    for (size_t i = 0; i < part; i++, x += bucket, out += weir_codes_bytes(bucket, head->bits)) {
      for (size_t s = 0; s < format->scales; s++, out += sizeof(float))
        memcpy(out, &scale[i][s], sizeof(float));
      if (together > 1) fetch_all(x, 2 * TOGETHER_ELEMENTS, bucket);
      encode_codes(head, grid[i], x, bucket, weir_unit_key(seed, first + done + i), out);
    }
  }
}

/* A draw between two values a step apart errs by step^2 f (1 - f) in the mean square. */
static void add_bucket_errors(const float *x, size_t count, double *error2) {
  float scale[WEIR_SCALES_MAX];
  weir_encoded head = {.bits = WEIR_QSGD_BITS_LEAST};
  const float width = extent(&head, x, count, scale);
  for (size_t i = 0; i < WEIR_QSGD_WIDTHS; i++, head.bits++) {
    const weir_grid grid = grid_over(&head, width, scale);
    error2[i] +=
        (double)grid.step * (double)grid.step * weir_cpu()->spread_of_draws(x, count, grid);
  }
}

void weir_qsgd_mean_errors(const float *x, size_t n, uint32_t bucket,
                           double error2[WEIR_QSGD_WIDTHS]) {
  memset(error2, 0, WEIR_QSGD_WIDTHS * sizeof *error2);
  for (size_t at = 0; at < n; at += bucket)
    add_bucket_errors(x + at, n - at < bucket ? n - at : bucket, error2);
}

static double reach(const weir_encoded *head, const float *scale) {
  double base = head->mode & MODE_L2 ? 0.0 : fabs((double)scale[1]);
  return scale[0] >= 0.0F ? (double)scale[0] * levels(head) + base : (double)INFINITY;
}

static void decode_piece(const weir_encoded *head, const float *scale, uint32_t key,
                         const uint8_t *code, size_t count, float *to, bool add) {
  (void)key;
  weir_grid grid = grid_of(head, scale);
  if (add) {
    weir_cpu()->dequantize_add(code, count, grid, to);
  } else {
    weir_cpu()->dequantize(code, count, grid, to);
  }
}

static weir_unit_format format_of(unsigned bits, uint32_t bucket, unsigned mode) {
  return (weir_unit_format){.head = {.unit = bucket,
                                     .codec = WEIR_CODEC_QSGD,
                                     .bits = (uint8_t)bits,
                                     .mode = (uint8_t)mode},
                            .scales = mode & MODE_L2 ? 1 : 2,
                            .encode = encode_bucket,
                            .encode_units = encode_buckets,
                            .reach = reach,
                            .decode = decode_piece};
}

weir_unit_format weir_qsgd_format(unsigned bits, uint32_t bucket) {
  return format_of(bits, bucket, 0);
}

static unsigned mode_of(weir_qsgd_options options) {
  return (options.l2 ? MODE_L2 : 0) | (options.nearest ? MODE_NEAREST : 0);
}

static bool good(unsigned bits, uint32_t bucket) {
  return bits >= 2 && bits <= 8 && bucket >= BUCKET_LEAST && bucket <= BUCKET_MOST &&
         bucket % 8 == 0;
}

size_t weir_qsgd_bound_with(size_t n, weir_qsgd_options options) {
  weir_unit_format format = format_of(options.bits, options.bucket, mode_of(options));
  size_t offset[2] = {0, n};
  return weir_units_bound(&format, &(weir_layout){1, offset});
}

static weir_status encode_with(weir_codec_context *context, const float *e, size_t n,
                               weir_qsgd_options options, uint64_t seed, void *out, size_t capacity,
                               size_t *bytes) {
  *bytes = 0;
  if (!good(options.bits, options.bucket)) {
    return weir_fail(WEIR_E_INVALID,
                     "qsgd takes 2 to 8 bits and buckets of 8 to %u by 8, not %u, %u", BUCKET_MOST,
                     options.bits, options.bucket);
  }
  weir_unit_format format = format_of(options.bits, options.bucket, mode_of(options));
  size_t offset[2] = {0, n};
  return weir_units_encode(context, &format, e, &(weir_layout){1, offset}, seed, out, capacity,
                           bytes);
}

weir_status weir_qsgd_encode_with(const float *e, size_t n, weir_qsgd_options options,
                                  uint64_t seed, void *out, size_t capacity, size_t *bytes) {
  return encode_with(NULL, e, n, options, seed, out, capacity, bytes);
}

/* --- of plans --------------------------------------------------------------------------------- */

static const weir_qsgd_options plain = {0}, nearest = {.nearest = true}, l2 = {.l2 = true},
                               l2_nearest = {.nearest = true, .l2 = true};

/* Other ratios give 0 bits, which encoding refuses. */
static weir_qsgd_options options_of(weir_qsgd_options mode, double cr, unsigned bucket_log2) {
  mode.bits = weir_code_bits(cr, 2, 8);
  mode.bucket = bucket_log2 == 0 ? BUCKET : UINT32_C(1) << bucket_log2;
  return mode;
}

static size_t bound_by(weir_qsgd_options mode, unsigned bucket_log2, const weir_layout *layout,
                       double cr) {
  return weir_qsgd_bound_with(layout->offset[layout->tensors], options_of(mode, cr, bucket_log2));
}

size_t weir_plan_bound(const weir_plan *plan, const weir_layout *layout) {
  const weir_codec *codec = weir_codecs[plan->codec];
  return codec->qsgd != NULL ? bound_by(*codec->qsgd, plan->bucket_log2, layout, plan->cr)
                             : codec->bound(layout, plan->cr);
}

weir_status weir_plan_encode(const weir_plan *plan, weir_codec_context *context, const float *e,
                             const weir_layout *layout, uint64_t seed, void *out, size_t capacity,
                             size_t *bytes) {
  const weir_codec *codec = weir_codecs[plan->codec];
  if (codec->qsgd == NULL)
    return codec->encode(context, e, layout, plan->cr, seed, out, capacity, bytes);
  return encode_with(context, e, layout->offset[layout->tensors],
                     options_of(*codec->qsgd, plan->cr, plan->bucket_log2), seed, out, capacity,
                     bytes);
}

/* All that a header says but the number of elements is in the message of none. */
weir_status weir_plan_made(const weir_plan *plan, const void *message) {
  static const float nothing;
  static const size_t offset[2] = {0, 0};
  unsigned char none[64];
  weir_encoded due, head;
  size_t bytes;
  const weir_status status = weir_plan_encode(plan, NULL, &nothing, &(weir_layout){1, offset}, 0,
                                              none, sizeof none, &bytes);
  if (status != WEIR_OK) return status;
  memcpy(&due, none, sizeof due);
  memcpy(&head, message, sizeof head);
  if (head.unit == due.unit && head.bits == due.bits && head.mode == due.mode) return WEIR_OK;
  return weir_fail(WEIR_E_PROTOCOL, "malformed message, made by another plan than this one");
}

static size_t bound(const weir_layout *layout, double cr) { return bound_by(plain, 0, layout, cr); }

static size_t l2_bound(const weir_layout *layout, double cr) { return bound_by(l2, 0, layout, cr); }

static weir_status encode(weir_codec_context *context, const float *e, const weir_layout *layout,
                          double cr, uint64_t seed, void *out, size_t capacity, size_t *bytes) {
  return encode_with(context, e, layout->offset[layout->tensors], options_of(plain, cr, 0), seed,
                     out, capacity, bytes);
}

static weir_status nearest_encode(weir_codec_context *context, const float *e,
                                  const weir_layout *layout, double cr, uint64_t seed, void *out,
                                  size_t capacity, size_t *bytes) {
  return encode_with(context, e, layout->offset[layout->tensors], options_of(nearest, cr, 0), seed,
                     out, capacity, bytes);
}

static weir_status l2_encode(weir_codec_context *context, const float *e, const weir_layout *layout,
                             double cr, uint64_t seed, void *out, size_t capacity, size_t *bytes) {
  return encode_with(context, e, layout->offset[layout->tensors], options_of(l2, cr, 0), seed, out,
                     capacity, bytes);
}

static weir_status l2_nearest_encode(weir_codec_context *context, const float *e,
                                     const weir_layout *layout, double cr, uint64_t seed, void *out,
                                     size_t capacity, size_t *bytes) {
  return encode_with(context, e, layout->offset[layout->tensors], options_of(l2_nearest, cr, 0),
                     seed, out, capacity, bytes);
}

static weir_status open_message(const void *message, size_t bytes, const weir_layout *layout,
                                weir_unit_format *format) {
  weir_encoded head;
  weir_status status =
      weir_encoded_open(WEIR_CODEC_QSGD, message, bytes, layout->offset[layout->tensors], &head);
  if (status != WEIR_OK) return status;
  if (!good(head.bits, head.unit) || head.mode > (MODE_L2 | MODE_NEAREST))
    return weir_encoded_malformed(WEIR_CODEC_QSGD, "unknown bits, bucket or mode");
  *format = format_of(head.bits, head.unit, head.mode);
  return WEIR_OK;
}

WEIR_UNITS_READER(open_message)

const weir_codec weir_codec_qsgd = {
    .id = WEIR_CODEC_QSGD,
    .name = "qsgd",
    .unbiased = true,
    .description = "buckets on a grid, stochastic rounding (QSGD; CGX, section 4)",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .usual = WEIR_WITH(WEIR_SCHEME_COMPRESSED),
    .bits = {2, 8},
    .qsgd = &plain,
    .wires = WEIR_WIRES_CODES,
    .scales = 2,
    .device = true,
    .damps = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.6e-9, 0.3e-9, 0},
};

const weir_codec weir_codec_qsgd_nearest = {
    .id = WEIR_CODEC_QSGD_NEAREST,
    .name = "qsgd-nearest",
    .description = "qsgd with rounding to the nearest value (CGX, section 4)",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {2, 8},
    .qsgd = &nearest,
    .wires = WEIR_WIRES_CODES,
    .scales = 2,
    .device = true,
    .damps = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = nearest_encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.6e-9, 0.3e-9, 0},
};

const weir_codec weir_codec_qsgd_l2 = {
    .id = WEIR_CODEC_QSGD_L2,
    .name = "qsgd-l2",
    .unbiased = true,
    .description = "qsgd on a grid from the bucket's L2 norm (QSGD, section 3.1)",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {4, 8},
    .spare_bits = 2.5,
    .qsgd = &l2,
    .wires = WEIR_WIRES_CODES,
    .scales = 1,
    .short_scales = true,
    .device = true,
    .damps = true,
    .kept = weir_none_kept,
    .bound = l2_bound,
    .encode = l2_encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.7e-9, 0.3e-9, 0},
};

const weir_codec weir_codec_qsgd_l2_nearest = {
    .id = WEIR_CODEC_QSGD_L2_NEAREST,
    .name = "qsgd-l2-nearest",
    .description = "qsgd-l2 with rounding to the nearest value",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER) | WEIR_WITH(WEIR_SCHEME_COMPRESSED) |
               WEIR_WITH(WEIR_SCHEME_PATH),
    .bits = {4, 8},
    .qsgd = &l2_nearest,
    .wires = WEIR_WIRES_CODES,
    .scales = 1,
    .short_scales = true,
    .device = true,
    .damps = true,
    .kept = weir_none_kept,
    .bound = l2_bound,
    .encode = l2_nearest_encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.7e-9, 0.3e-9, 0},
};

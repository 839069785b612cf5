/* Looking at a message without decoding it: the same verdict as decoding's, and a bound on what it
 * decodes to; and taking what it decodes to off again. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "kernels/codec.h"

#define N 777

static const size_t offsets[] = {0, 5, 5, 400, N};
static const weir_layout layout = {4, offsets};
static const struct {
  uint32_t codec;
  double cr;
} encoders[] = {{WEIR_CODEC_FP16, 0.5},
                {WEIR_CODEC_QSGD, 0.125},
                {WEIR_CODEC_QSGD_L2, 0.125},
                {WEIR_CODEC_QSGD_NEAREST, 0.25},
                {WEIR_CODEC_QSGD_L2_NEAREST, 0.25},
                {WEIR_CODEC_DITHERED, 0.125},
                {WEIR_CODEC_TERNGRAD, 0.0625},
                {WEIR_CODEC_ONEBIT, 1.0 / 32.0},
                {WEIR_CODEC_EFSIGNSGD, 1.0 / 32.0}};
enum { ENCODERS = sizeof encoders / sizeof *encoders };

static weir_codec_context *context;
static void make(void) { cr_assert_eq(weir_codec_context_create(&context), WEIR_OK); }
static void drop(void) { weir_codec_context_free(context); }
TestSuite(check, .init = make, .fini = drop);

static void fill(float *e, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < N; i++) e[i] = (float)weir_rng_normal(&rng);
}

static double largest(const float *x, size_t n) {
  double peak = 0;
  for (size_t i = 0; i < n; i++) peak = fmax(peak, fabs((double)x[i]));
  return peak;
}

Test(check, encoders_bound_what_they_decode_to_and_take_it_off) {
  float e[N], decoded[N], rest[N];
  unsigned char message[4 * N + 1024];
  for (size_t i = 0; i < ENCODERS; i++) {
    const weir_codec *codec = weir_codec_find(encoders[i].codec);
    size_t bytes;
    double peak = -1;
    fill(e, i);
    cr_assert_eq(
        codec->encode(context, e, &layout, encoders[i].cr, 7, message, sizeof message, &bytes),
        WEIR_OK);
    cr_assert_eq(codec->check(message, bytes, &layout, &peak), WEIR_OK);
    cr_assert_eq(codec->decode(context, message, bytes, &layout, decoded, WEIR_DECODE_STORE),
                 WEIR_OK);
    cr_assert_leq(largest(decoded, N), peak, "%s", codec->name);
    if (encoders[i].codec != WEIR_CODEC_FP16) /* whose bound is that of its numbers */
      cr_assert_leq(peak, 20 * largest(decoded, N), "%s: %g", codec->name, peak);
    memcpy(rest, e, sizeof rest);
    cr_assert_eq(codec->decode(context, message, bytes, &layout, rest, WEIR_DECODE_SUBTRACT),
                 WEIR_OK);
    for (size_t k = 0; k < N; k++) cr_assert(rest[k] == e[k] - decoded[k], "%s", codec->name);
  }
}

Test(check, encoders_messages_with_wrong_bytes_are_refused_as_when_decoding) {
  float e[N], decoded[N];
  unsigned char message[4 * N + 1024];
  weir_rng rng = weir_rng_of(11);
  for (size_t i = 0; i < ENCODERS; i++) {
    const weir_codec *codec = weir_codec_find(encoders[i].codec);
    size_t refused = 0;
    for (int round = 0; round < 400; round++) {
      size_t bytes;
      double peak = -1;
      fill(e, i);
      cr_assert_eq(
          codec->encode(context, e, &layout, encoders[i].cr, 7, message, sizeof message, &bytes),
          WEIR_OK);
      /* Half of them in the header and the first scales. */
      message[weir_rng_below(&rng, round % 2 ? bytes : 32)] ^= (unsigned char)(1U << round % 8);
      if (round % 16 == 0) bytes--;
      const weir_status seen = codec->check(message, bytes, &layout, &peak);
      const weir_status status =
          codec->decode(context, message, bytes, &layout, decoded, WEIR_DECODE_STORE);
      cr_assert_eq(seen, status, "%s, round %d", codec->name, round);
      if (status == WEIR_OK) cr_assert_leq(largest(decoded, N), peak, "%s", codec->name);
      refused += status != WEIR_OK;
    }
    cr_assert_gt(refused, 20, "%s", codec->name);
  }
}

Test(check, kept_elements_are_looked_through) {
  static const weir_wire_format formats[] = {WEIR_WIRE_PAPER, WEIR_WIRE_AUTO_FP32,
                                             WEIR_WIRE_AUTO_BF16, WEIR_WIRE_AUTO_FP16};
  float e[N], decoded[N];
  unsigned char message[8 * N + 1024];
  weir_rng rng = weir_rng_of(3);
  for (int round = 0; round < 800; round++) {
    uint32_t index[N];
    float value[N], kept[N];
    size_t k = 0, bytes, got = 0;
    double peak = -1;
    const uint64_t one_in = 2 + (uint64_t)(round % 50);
    fill(e, (uint64_t)round);
    for (uint32_t i = 0; i < N; i++)
      if (weir_rng_below(&rng, one_in) == 0) index[k++] = i;
    weir_gather(e, index, k, value);
    cr_assert_eq(weir_wire_encode(N, index, value, k, formats[round % 4], message, sizeof message,
                                  &bytes, NULL),
                 WEIR_OK);
    const bool spoilt = round % 3 == 0;
    if (spoilt) message[weir_rng_below(&rng, bytes)] ^= (unsigned char)(1U << round % 8);
    const weir_status seen = weir_wire_check(context, message, bytes, N, &peak);
    const weir_status status =
        weir_wire_decode_add(NULL, message, bytes, N, memset(decoded, 0, sizeof decoded));
    cr_assert_eq(seen, status, "round %d", round);
    cr_assert(spoilt || status == WEIR_OK, "round %d", round);
    if (status != WEIR_OK) continue;
    cr_assert_eq(weir_wire_decode(message, bytes, N, index, kept, N, &got), WEIR_OK);
    bool finite = true;
    for (size_t i = 0; i < got; i++) finite = finite && isfinite(kept[i]);
    cr_assert(finite ? peak == largest(kept, got) : isinf(peak), "round %d: %g", round, peak);
  }
}

/* Values that are no numbers are nobody's to refuse, but no sum with them is finite. */
Test(check, a_value_that_is_not_finite_has_no_bound) {
  const float values[] = {NAN, INFINITY, -INFINITY, 1};
  for (int i = 0; i < 4; i++) {
    const uint32_t index[] = {1, 2};
    const float value[] = {values[i], 3};
    unsigned char message[64];
    size_t bytes;
    double peak = -1;
    cr_assert_eq(weir_wire_encode(5, index, value, 2, WEIR_WIRE_PAPER, message, sizeof message,
                                  &bytes, NULL),
                 WEIR_OK);
    cr_assert_eq(weir_wire_check(context, message, bytes, 5, &peak), WEIR_OK);
    cr_assert(i < 3 ? isinf(peak) : peak == 3);
  }
}

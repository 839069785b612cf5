/* Wire messages: round trips, sizes, and bytes nobody should trust. */
#include <criterion/criterion.h>

#include "kernels/codec.h"
#include "kernels_data.h"

typedef struct message {
  uint8_t *bytes;
  size_t size;
  uint32_t *index;
  float *value; /* as they must come out */
  float *error;
  size_t n, k;
} message;

/* What bfloat16 keeps of a finite float, by arithmetic instead of bits: round to 8 significant
 * bits (fewer for denormals), ties to even. */
static float bf16_of(float x) {
  int exponent = 0;
  (void)frexp((double)x, &exponent);
  double unit = ldexp(1.0, (exponent < -125 ? -125 : exponent) - 8);
  return (float)(nearbyint((double)x / unit) * unit);
}

/* Half precision: 11 significant bits, multiples of 2^-24 at the least, 65504 at the most. */
static float fp16_of(float x) {
  int exponent = 0;
  (void)frexp((double)x, &exponent);
  double unit = ldexp(1.0, (exponent < -13 ? -13 : exponent) - 11);
  return (float)fmax(-65504.0, fmin(65504.0, nearbyint((double)x / unit) * unit));
}

static float as_sent(float x, weir_wire_format format) {
  return format == WEIR_WIRE_AUTO_BF16   ? bf16_of(x)
         : format == WEIR_WIRE_AUTO_FP16 ? fp16_of(x)
                                         : x;
}

static message encode(weir_rng *rng, size_t n, size_t k, const uint32_t *index,
                      weir_wire_format format, bool values) {
  message m = {.n = n, .k = k};
  size_t bound = weir_wire_bound(n, k, format);
  m.bytes = malloc(bound + 1);
  m.index = malloc((k + 1) * sizeof *m.index);
  m.value = malloc((k + 1) * sizeof *m.value);
  m.error = malloc((k + 1) * sizeof *m.error);
  FREED float *sent = malloc((k + 1) * sizeof *sent);
  for (size_t i = 0; i < k; i++) {
    m.index[i] = index[i];
    /* From denormal halves to what saturates. */
    sent[i] = (float)(weir_rng_normal(rng) * pow(10.0, (double)(i % 13) - 7.0));
    m.value[i] = as_sent(sent[i], format);
    m.error[i] = 1.0F;
  }
  uint8_t *to = m.bytes + 1; /* messages need no alignment */
  cr_assert_eq(
      weir_wire_encode(n, index, values ? sent : NULL, k, format, to, bound, &m.size, m.error),
      WEIR_OK, "n=%zu k=%zu: %s", n, k, weir_last_error());
  cr_assert_leq(m.size, bound);
  for (size_t i = 0; i < k; i++) {
    float want = values ? 1.0F + (sent[i] - m.value[i]) : 1.0F;
    cr_assert_eq(m.error[i], want);
  }
  size_t again = 0;
  cr_assert_eq(
      weir_wire_encode(n, index, values ? sent : NULL, k, format, to, m.size - 1, &again, NULL),
      WEIR_E_CAPACITY);
  cr_assert_eq(again, 0);
  memmove(m.bytes, to, m.size);
  return m;
}

static void release(message *m) {
  free(m->bytes);
  free(m->index);
  free(m->value);
  free(m->error);
}

/* Stored and added, with a context and without, at every place of a line of memory; what lies
 * around is left alone. */
static void check_dense(weir_rng *rng, const message *m) {
  size_t n = m->n;
  size_t first = (size_t)weir_rng_below(rng, 16);
  FREED float *to = malloc((n + 48) * sizeof *to);
  FREED float *want = malloc((n + 48) * sizeof *want);
  SCOPED weir_codec_context *const context = open_context();
  for (int way = 0; way < 4; way++) {
    bool add = way & 1;
    for (size_t i = 0; i < n + 48; i++) {
      bool inside = i >= 16 + first && i < 16 + first + n;
      to[i] = (float)weir_rng_normal(rng);
      want[i] = inside && !add ? 0.0F : to[i];
    }
    for (size_t i = 0; i < m->k; i++) {
      float *place = &want[16 + first + m->index[i]];
      *place = add ? *place + m->value[i] : m->value[i];
    }
    weir_codec_context *with = way & 2 ? context : NULL;
    float *at = to + 16 + first;
    cr_assert_eq(add ? weir_wire_decode_add(with, m->bytes, m->size, n, at)
                     : weir_wire_decode_dense(with, m->bytes, m->size, n, at),
                 WEIR_OK);
    cr_assert(memcmp(to, want, (n + 48) * sizeof *want) == 0, "n=%zu k=%zu way %d at %zu", n, m->k,
              way, first);
  }
}

static void check_round_trip(weir_rng *rng, size_t n, size_t k, const uint32_t *given,
                             weir_wire_format format) {
  message m = encode(rng, n, k, given, format, true);
  FREED uint32_t *index = malloc((k + 1) * sizeof *index);
  FREED float *value = malloc((k + 1) * sizeof *value);
  size_t got = 0;
  cr_assert_eq(weir_wire_decode(m.bytes, m.size, n, index, value, k, &got), WEIR_OK);
  cr_assert_eq(got, k);
  cr_assert(memcmp(index, m.index, k * sizeof *index) == 0);
  cr_assert(memcmp(value, m.value, k * sizeof *value) == 0);

  check_dense(rng, &m);

  cr_assert_eq(weir_wire_decode(m.bytes, m.size, n + 1, index, value, k, &got), WEIR_E_PROTOCOL);
  cr_assert_eq(weir_wire_decode(m.bytes, m.size, n, index, NULL, k, &got), WEIR_E_PROTOCOL);
  if (k > 0)
    cr_assert_eq(weir_wire_decode(m.bytes, m.size, n, index, value, k - 1, &got), WEIR_E_PROTOCOL);
  release(&m);

  m = encode(rng, n, k, given, format, false);
  cr_assert_eq(weir_wire_decode(m.bytes, m.size, n, index, NULL, k, &got), WEIR_OK);
  cr_assert_eq(got, k);
  cr_assert(memcmp(index, m.index, k * sizeof *index) == 0);
  cr_assert_eq(weir_wire_decode(m.bytes, m.size, n, index, value, k, &got), WEIR_E_PROTOCOL);
  FREED float *to = calloc(n + 1, sizeof *to);
  cr_assert_eq(weir_wire_decode_add(NULL, m.bytes, m.size, n, to), WEIR_E_PROTOCOL);
  cr_assert_eq(weir_wire_decode_dense(NULL, m.bytes, m.size, n, to), WEIR_E_PROTOCOL);
  release(&m);
}

Test(kernels_wire, round_trips) {
  static const size_t size[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 1000, 100003};
  weir_rng rng = weir_rng_of(11);
  FREED uint32_t *index = malloc(100003 * sizeof *index);
  for (size_t s = 0; s < sizeof size / sizeof size[0]; s++) {
    size_t n = size[s];
    size_t kept[] = {0, n > 0, n / 1000, n / 100, n / 10, n / 3, n - n / 8, n};
    for (size_t c = 0; c < sizeof kept / sizeof kept[0]; c++) {
      size_t k = kept[c];
      for (weir_wire_format f = WEIR_WIRE_PAPER; f < WEIR_WIRE_LISTS; f++) {
        random_indices(&rng, n, k, index);
        check_round_trip(&rng, n, k, index, f);
        for (size_t i = 0; i < k; i++) { /* one lump at the end */
          index[i] = (uint32_t)(n - k + i);
        }
        check_round_trip(&rng, n, k, index, f);
        if (k > 1) { /* lumps at both ends */
          index[0] = 0;
          check_round_trip(&rng, n, k, index, f);
        }
      }
    }
  }
}

Test(kernels_wire, reaches_the_largest_index) {
  uint32_t index[3] = {0, 5, UINT32_MAX - 1};
  float value[3] = {1.0F, -2.0F, 3.0F};
  uint8_t bytes[64];
  for (weir_wire_format f = WEIR_WIRE_PAPER; f < WEIR_WIRE_LISTS; f++) {
    size_t size = 0;
    size_t k = 0;
    uint32_t got[3];
    float out[3];
    cr_assert_eq(weir_wire_encode(UINT32_MAX, index, value, 3, f, bytes, sizeof bytes, &size, NULL),
                 WEIR_OK);
    cr_assert_eq(weir_wire_decode(bytes, size, UINT32_MAX, got, out, 3, &k), WEIR_OK);
    cr_assert(memcmp(got, index, sizeof index) == 0 && memcmp(out, value, sizeof value) == 0);
  }
}

Test(kernels_wire, refuses_bad_lists) {
  uint8_t bytes[256];
  size_t size = 1;
  uint32_t twice[3] = {1, 4, 4};
  uint32_t down[3] = {4, 1, 5};
  uint32_t past[3] = {1, 4, 10};
  weir_wire_format f = WEIR_WIRE_AUTO_FP32;
  cr_expect_eq(weir_wire_encode(10, twice, NULL, 3, f, bytes, 256, &size, NULL), WEIR_E_INVALID);
  cr_expect_eq(weir_wire_encode(10, down, NULL, 3, f, bytes, 256, &size, NULL), WEIR_E_INVALID);
  cr_expect_eq(weir_wire_encode(10, past, NULL, 3, f, bytes, 256, &size, NULL), WEIR_E_INVALID);
  cr_expect_eq(weir_wire_encode(2, past, NULL, 3, f, bytes, 256, &size, NULL), WEIR_E_INVALID);
  cr_expect_eq(weir_wire_encode((size_t)UINT32_MAX + 1, past, NULL, 3, f, bytes, 256, &size, NULL),
               WEIR_E_UNSUPPORTED);
  cr_expect_eq(weir_wire_encode(11, past, NULL, 3, WEIR_WIRE_LISTS, bytes, 256, &size, NULL),
               WEIR_E_INVALID);
  cr_expect_eq(size, 0);
}

/* Messages of random indices against the planner's expectation and the sizes promised. */
Test(kernels_wire, sizes_are_as_expected) {
  enum { N = 1000000 };
  weir_rng rng = weir_rng_of(5);
  FREED uint32_t *index = malloc(N * sizeof *index);
  FREED float *value = calloc(N, sizeof *value);
  FREED uint8_t *bytes = malloc(weir_wire_bound(N, N, WEIR_WIRE_PAPER));
  static const size_t kept[] = {100,    317,    1000,   4000,   11000, 33000,
                                100000, 240000, 500000, 900000, N};
  for (size_t c = 0; c < sizeof kept / sizeof kept[0]; c++) {
    size_t k = kept[c];
    random_indices(&rng, N, k, index);
    for (weir_wire_format f = WEIR_WIRE_PAPER; f < WEIR_WIRE_LISTS; f++) {
      for (int with = 0; with < 2; with++) {
        size_t size = 0;
        cr_assert_eq(weir_wire_encode(N, index, with ? value : NULL, k, f, bytes,
                                      weir_wire_bound(N, k, f), &size, NULL),
                     WEIR_OK);
        double expected = weir_wire_expected(N, k, f, with);
        cr_expect_float_eq((double)size, expected, 0, "k=%zu format %d: %zu, not %g", k, (int)f,
                           size, expected);
        double each = (double)size / (double)k;
        if (f == WEIR_WIRE_PAPER) {
          cr_expect_eq(size, 16 + (with ? 8 : 4) * k);
        } else if (f >= WEIR_WIRE_AUTO_BF16 && with && k == 100000) {
          cr_expect_leq(each, 2.7);
        }
      }
    }
  }
  size_t size = 0;
  random_indices(&rng, N, N / 100, index);
  cr_assert_eq(weir_wire_encode(N, index, value, N / 100, WEIR_WIRE_AUTO_BF16, bytes,
                                weir_wire_bound(N, N / 100, WEIR_WIRE_AUTO_BF16), &size, NULL),
               WEIR_OK);
  cr_expect_leq((double)size / (N / 100), 3.3);
  cr_expect_eq(weir_wire_bound(N, 0, WEIR_WIRE_PAPER), 16);
  cr_expect_eq(weir_wire_expected(N, 0, WEIR_WIRE_AUTO_FP32, true), 16.0);
}

/* Lengths follow from n and k, whichever indices they are, and fewer of fewer need no more room. */
Test(kernels_wire, lengths_grow_with_what_there_is) {
  for (size_t n = 0; n < 700; n++) {
    for (size_t k = 0; k <= n; k++) {
      size_t here = weir_wire_bound(n, k, WEIR_WIRE_AUTO_FP16);
      cr_assert_leq(here, weir_wire_bound(n + 1, k, WEIR_WIRE_AUTO_FP16), "%zu of %zu", k, n);
      cr_assert_leq(here, weir_wire_bound(n + 1, k + 1, WEIR_WIRE_AUTO_FP16), "%zu of %zu", k, n);
    }
  }
}

/* Every single byte that must matter, does. */
Test(kernels_wire, refuses_each_malformation) {
  const uint8_t bitmap[] = {'W', 'R', 'M', '1', 2, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0x12};
  const uint8_t list[] = {'W', 'R', 'M', '1', 2, 0, 0, 0, 5, 0, 0, 0,
                          0,   0,   0,   0,   1, 0, 0, 0, 4, 0, 0, 0};
  static const struct {
    int bitmap, at, to;
  } row[] = {{1, 0, 'X'}, {1, 4, 6},  {1, 4, 3},  {1, 4, 1},  {1, 8, 6},     {1, 12, 3},
             {1, 13, 3},  {1, 13, 1}, {1, 14, 1}, {1, 15, 1}, {1, 16, 0x32}, {1, 16, 0x10},
             {0, 16, 4},  {0, 20, 5}, {0, 20, 1}, {0, 23, 1}, {0, 4, 1},     {0, 12, 1}};
  uint32_t index[8];
  size_t k = 0;
  cr_assert_eq(weir_wire_decode(bitmap, sizeof bitmap, 5, index, NULL, 8, &k), WEIR_OK);
  cr_assert_eq(weir_wire_decode(list, sizeof list, 5, index, NULL, 8, &k), WEIR_OK);
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
    uint8_t bad[sizeof list];
    size_t size = row[i].bitmap ? sizeof bitmap : sizeof list;
    memcpy(bad, row[i].bitmap ? bitmap : list, size);
    bad[row[i].at] = (uint8_t)row[i].to;
    cr_expect_eq(weir_wire_decode(bad, size, 5, index, NULL, 8, &k), WEIR_E_PROTOCOL,
                 "row %zu was taken", i);
    cr_expect_eq(k, 0);
  }
  for (size_t size = 0; size < sizeof list; size++)
    cr_expect_eq(weir_wire_decode(list, size, 5, index, NULL, 8, &k), WEIR_E_PROTOCOL);
}

/* Truncations and random mutations either fail or give a valid list; decode_add agrees with decode
 * and leaves its target alone on failure.  Buffers are exact, so that ASan sees every overrun. */
static weir_codec_context *mutants;

static size_t check_mutant(const uint8_t *bytes, size_t size, size_t n, size_t capacity) {
  FREED uint8_t *copy = malloc(size + (size == 0));
  memcpy(copy, bytes, size);
  FREED uint32_t *index = malloc((capacity + 1) * sizeof *index);
  FREED float *value = malloc((capacity + 1) * sizeof *value);
  FREED uint32_t *to = calloc(n + 1, sizeof *to); /* bits of zeros */
  size_t k = 0;
  weir_status status = weir_wire_decode(copy, size, n, index, value, capacity, &k);
  cr_assert(status == WEIR_OK || (status == WEIR_E_PROTOCOL && k == 0));
  for (size_t i = 0; i < k; i++) {
    cr_assert_lt(index[i], n);
    cr_assert(i == 0 || index[i - 1] < index[i]);
  }
  weir_status added = weir_wire_decode_add(NULL, copy, size, n, (float *)(void *)to);
  uint32_t claimed = 0;
  if (size >= 8) memcpy(&claimed, copy + 4, sizeof claimed);
  cr_assert(added == status || (claimed > capacity && added == WEIR_OK));
  cr_assert_eq(weir_wire_decode_add(mutants, copy, size, n, (float *)(void *)to), added);
  if (added != WEIR_OK) {
    for (size_t i = 0; i < n; i++) cr_assert_eq(to[i], 0);
  }
  cr_assert_eq(weir_wire_decode_dense(NULL, copy, size, n, (float *)(void *)to), added);
  return status == WEIR_OK;
}

Test(kernels_wire, survives_mutations) {
  weir_rng rng = weir_rng_of(99);
  enum { MOST = 5000 };
  uint32_t index[MOST];
  size_t taken = 0;
  cr_assert_eq(weir_codec_context_create(&mutants), WEIR_OK);
  for (int round = 0; round < 64; round++) {
    /* Every eighth list is long enough to be read as masks. */
    bool large = round % 8 == 7;
    size_t n = large ? MOST : 1 + (size_t)weir_rng_below(&rng, 400);
    size_t k = large ? MOST / 10 : (size_t)weir_rng_below(&rng, n + 1) >> weir_rng_below(&rng, 5);
    random_indices(&rng, n, k, index);
    message m = encode(&rng, n, k, index, (weir_wire_format)weir_rng_below(&rng, 3), true);
    cr_assert_eq(check_mutant(m.bytes, m.size, n, k), 1);
    for (size_t size = 0; size < m.size; size++) cr_assert_eq(check_mutant(m.bytes, size, n, k), 0);
    for (int mutation = 0; mutation < 400; mutation++) {
      FREED uint8_t *bad = malloc(m.size);
      memcpy(bad, m.bytes, m.size);
      for (uint64_t times = 1 + weir_rng_below(&rng, 3); times > 0; times--) {
        size_t reach = weir_rng_next(&rng) & 1 && m.size > 40 ? 40 : m.size;
        bad[weir_rng_below(&rng, reach)] ^= (uint8_t)(1U << weir_rng_below(&rng, 8));
      }
      taken += check_mutant(bad, m.size, n, k);
    }
    release(&m);
  }
  weir_codec_context_free(mutants);
  cr_expect_gt(taken, 0, "no mutant was valid: values' bits were never reached");
}

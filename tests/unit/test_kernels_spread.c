/* Spreading by masks: every version against a loop over bits, and lists read as masks against the
 * list. */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/elias.h"
#include "kernels/wire.h"
#include "kernels_data.h"

enum { WORDS = 40, MOST = 64 * WORDS };

static uint64_t draw_mask(weir_rng *rng, int kind) {
  switch (kind) {
    case 0: return 0;
    case 1: return ~UINT64_C(0);
    case 2: return weir_rng_next(rng);
    case 3: /* about one in eight */
      return weir_rng_next(rng) & weir_rng_next(rng) & weir_rng_next(rng);
    default: /* one bit, or none */ return weir_rng_below(rng, 2) << weir_rng_below(rng, 64);
  }
}

static void check_version(const weir_cpu_ops *cpu) {
  if (cpu == NULL) return;
  static const size_t words[] = {0, 1, 2, 3, 17, WORDS};
  weir_rng rng = weir_rng_of(3);
  FREED float *memory = aligned_alloc(64, (MOST + 64) * sizeof *memory);
  float want[MOST + 64], value[MOST + 16];
  uint64_t mask[WORDS];
  for (int round = 0; round < 5 * 6 * 8; round++) {
    size_t count = words[round % 6];
    size_t place = round % 4 == 3 ? 0 : (size_t)weir_rng_below(&rng, 16);
    bool add = round & 1;
    float *to = memory + 16 + place;
    for (size_t i = 0; i < MOST + 64; i++)
      memory[i] = want[i] = i % 5 == 0 ? -0.0F : (float)weir_rng_normal(&rng);
    for (size_t i = 0; i < MOST + 16; i++)
      value[i] = i % 7 == 0 ? -0.0F : (float)weir_rng_normal(&rng);
    size_t next = 0;
    for (size_t w = 0; w < count; w++) {
      mask[w] = draw_mask(&rng, round / 6 % 5);
      for (size_t i = 0; i < 64; i++) {
        float *x = &want[16 + place + 64 * w + i];
        if (mask[w] >> i & 1) {
          *x = add ? *x + value[next] : value[next];
          next++;
        } else if (!add) {
          *x = 0.0F;
        }
      }
    }
    cr_assert_eq(cpu->ones(mask, count), next);
    size_t used = add ? cpu->spread_add(mask, count, value, to)
                      : cpu->spread(mask, count, value, to, place == 0);
    cpu->drain();
    cr_assert_eq(used, next);
    cr_assert(memcmp(memory, want, sizeof want) == 0, "%s: round %d", cpu->name, round);
  }
}

Test(kernels_spread, scalar) { check_version(&weir_cpu_scalar); }

Test(kernels_spread, avx2) { check_version(weir_cpu_avx2()); }

Test(kernels_spread, avx512) { check_version(weir_cpu_avx512()); }

/* --- Elias-Fano lists, bit by bit ------------------------------------------------------------ */

static size_t elias_bytes(size_t n, size_t k, unsigned shift) {
  size_t buckets = n / ((size_t)1 << shift) + (n % ((size_t)1 << shift) != 0);
  return (k + buckets + 7) / 8 + (k * shift + 7) / 8;
}

static void check_shift(size_t n, size_t k) {
  unsigned best = 0;
  for (unsigned shift = 1; shift < 32; shift++)
    if (elias_bytes(n, k, shift) < elias_bytes(n, k, best)) best = shift;
  cr_assert_eq(weir_elias_shift(n, k), best, "%zu of %zu", k, n);
}

/* Few indices leave most to rounding. */
Test(kernels_spread, the_shortest_list_is_found_near_its_place) {
  weir_rng rng = weir_rng_of(5);
  for (size_t n = 1; n < 700; n++)
    for (size_t k = 0; k <= n; k++) check_shift(n, k);
  for (size_t k = 1; k <= 64; k++)
    for (unsigned shift = 0; shift < 26; shift++)
      for (size_t n = 64; n < 200; n += 3) check_shift(((n << shift) + k % 3) / 3 + k, k);
  for (int i = 0; i < 200000; i++) {
    const size_t n = 1 + (size_t)(weir_rng_below(&rng, UINT32_MAX) >> weir_rng_below(&rng, 32));
    check_shift(n, 1 + (size_t)((double)n * pow(weir_rng_uniform(&rng), 8)) % n);
  }
}

/* Written a bit at a time. */
static void write_bits(size_t n, const uint32_t *index, size_t k, unsigned shift, uint8_t *out) {
  size_t bit = 0;
  size_t next = 0;
  memset(out, 0, elias_bytes(n, k, shift));
  for (size_t begin = 0; begin < n; begin += (size_t)1 << shift) {
    for (; next < k && index[next] - begin < (size_t)1 << shift; next++, bit++)
      out[bit / 8] |= (uint8_t)(1U << bit % 8);
    bit++;
  }
  bit = (bit + 7) / 8 * 8;
  for (size_t i = 0; i < k; i++) {
    for (unsigned b = 0; b < shift; b++, bit++)
      out[bit / 8] |= (uint8_t)((index[i] >> b & 1) << bit % 8);
  }
}

/* As it is written, and read by a version from pieces of any length, in a buffer that ends with the
 * list. */
static void check_list(const weir_cpu_ops *cpu, weir_rng *rng, size_t n, const uint32_t *index,
                       size_t k, unsigned shift) {
  size_t bytes = elias_bytes(n, k, shift);
  FREED uint8_t *data = malloc(bytes);
  FREED uint8_t *want = malloc(bytes);
  FREED uint32_t *got = malloc(k * sizeof *got);
  const weir_index_code code = {WEIR_INDEX_ELIAS, shift, bytes};
  weir_index_write(code, n, index, k, data);
  write_bits(n, index, k, shift, want);
  cr_assert(memcmp(data, want, bytes) == 0, "%zu of %zu, shift %u", k, n, shift);
  weir_cpu_force(cpu);
  weir_index_reader reader = {.code = code, .data = data, .n = n, .k = k};
  for (size_t done = 0; done < k;) {
    size_t rest = k - done;
    size_t count = weir_rng_next(rng) & 1 ? rest : 1 + (size_t)weir_rng_below(rng, rest);
    cr_assert(weir_index_read(&reader, got + done, count));
    done += count;
  }
  cr_assert(weir_index_done(&reader));
  cr_assert(memcmp(got, index, k * sizeof *got) == 0, "%s: %zu of %zu, shift %u", cpu->name, k, n,
            shift);
  weir_cpu_force(NULL);
}

static void check_lists(const weir_cpu_ops *cpu) {
  if (cpu == NULL) return;
  weir_rng rng = weir_rng_of(21);
  uint32_t index[MOST];
  for (int round = 0; round < 600; round++) {
    size_t n = 1 + (size_t)weir_rng_below(&rng, MOST);
    size_t k = 1 + ((size_t)weir_rng_below(&rng, n) >> weir_rng_below(&rng, 5));
    size_t span = round % 3 == 0 ? n : k + (size_t)weir_rng_below(&rng, n - k + 1);
    random_indices(&rng, span, k, index);
    for (size_t i = 0; i < k && round % 3 == 2; i++) { /* all at the end */
      index[i] += (uint32_t)(n - span);
    }
    check_list(cpu, &rng, n, index, k, (unsigned)round % 14);
  }
  /* Fields that are wider than vectors take, at the largest places. */
  for (unsigned shift = 20; shift < 32; shift++) {
    for (size_t i = 0; i < 100; i++) index[i] = UINT32_MAX - 1 - (uint32_t)(99 - i) * 3;
    check_list(cpu, &rng, UINT32_MAX, index, 100, shift);
  }
}

Test(kernels_spread, scalar_lists) { check_lists(&weir_cpu_scalar); }

Test(kernels_spread, avx2_lists) { check_lists(weir_cpu_avx2()); }

Test(kernels_spread, avx512_lists) { check_lists(weir_cpu_avx512()); }

/* --- lists as masks -------------------------------------------------------------------------- */

/* Read `at a time` masks; the bits are those of the list, and nothing is left over. */
static void check_masks(const weir_index_reader *list, const uint32_t *index, size_t k,
                        unsigned lead, size_t at_a_time) {
  uint64_t mask[WORDS + 1 + WEIR_MASK_SLACK];
  weir_mask_reader reader;
  weir_masks_start(&reader, list, lead);
  size_t words = weir_masks_words(&reader);
  cr_assert_eq(words, (list->n + lead + 63) / 64);
  size_t next = 0;
  uint64_t last = 0;
  for (size_t word = 0; word < words; word += at_a_time) {
    size_t part = words - word < at_a_time ? words - word : at_a_time;
    size_t ones = 0;
    cr_assert(weir_masks_read(&reader, mask, part, &ones));
    size_t before = next;
    for (size_t bit = 0; bit < 64 * part; bit++) {
      bool kept = next < k && index[next] + lead == 64 * word + bit;
      cr_assert_eq(mask[bit / 64] >> bit % 64 & 1, kept, "bit %zu", 64 * word + bit);
      next += kept;
    }
    cr_assert_eq(ones, next - before);
    last = mask[part - 1];
  }
  cr_assert_eq(next, k);
  cr_assert(weir_masks_done(&reader, last));
}

/* Buckets that are bytes and others, lists read as masks and index by index. */
static void check_all_masks(const weir_cpu_ops *cpu) {
  if (cpu == NULL) return;
  static const size_t steps[] = {1, 2, 5, WORDS + 1};
  weir_rng rng = weir_rng_of(8);
  uint32_t index[MOST];
  uint8_t data[8 * MOST];
  weir_cpu_force(cpu);
  for (int round = 0; round < 400; round++) {
    size_t n = round % 3 == 0 ? MOST : 1 + (size_t)weir_rng_below(&rng, MOST);
    size_t k = 1 + ((size_t)weir_rng_below(&rng, n) >> weir_rng_below(&rng, 4));
    random_indices(&rng, n, k, index);
    unsigned shift = round & 1 ? 3 : (unsigned)(round / 2 % 8);
    weir_index_code codes[3] = {{WEIR_INDEX_U32, 0, 4 * k},
                                {WEIR_INDEX_BITMAP, 0, (n + 7) / 8},
                                {WEIR_INDEX_ELIAS, shift, elias_bytes(n, k, shift)}};
    for (int c = 0; c < 3; c++) {
      cr_assert_leq(codes[c].bytes, sizeof data);
      weir_index_write(codes[c], n, index, k, data);
      FREED uint8_t *exact = malloc(codes[c].bytes);
      memcpy(exact, data, codes[c].bytes);
      const weir_index_reader list = {.code = codes[c], .data = exact, .n = n, .k = k};
      check_masks(&list, index, k, (unsigned)weir_rng_below(&rng, 16), steps[round / 2 % 4]);
    }
  }
  weir_cpu_force(NULL);
}

Test(kernels_spread, scalar_masks) { check_all_masks(&weir_cpu_scalar); }

Test(kernels_spread, avx2_masks) { check_all_masks(weir_cpu_avx2()); }

Test(kernels_spread, avx512_masks) { check_all_masks(weir_cpu_avx512()); }

/* Spreading by masks: every version against a loop over bits, and lists read as masks against the
 * list. */
#include <criterion/criterion.h>

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
  if (cpu == NULL) {
    return;
  }
  static const size_t words[] = {0, 1, 2, 3, 17, WORDS};
  weir_rng rng;
  weir_rng_seed(&rng, 3);
  float *memory = aligned_alloc(64, (MOST + 64) * sizeof *memory);
  float want[MOST + 64], value[MOST + 16];
  uint64_t mask[WORDS];
  for (int round = 0; round < 5 * 6 * 8; round++) {
    size_t count = words[round % 6];
    size_t place = round % 4 == 3 ? 0 : (size_t)weir_rng_below(&rng, 16);
    bool add = round & 1;
    float *to = memory + 16 + place;
    for (size_t i = 0; i < MOST + 64; i++) {
      memory[i] = want[i] = i % 5 == 0 ? -0.0F : (float)weir_rng_normal(&rng);
    }
    for (size_t i = 0; i < MOST + 16; i++) {
      value[i] = i % 7 == 0 ? -0.0F : (float)weir_rng_normal(&rng);
    }
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
  free(memory);
}

Test(kernels_spread, scalar) { check_version(&weir_cpu_scalar); }

Test(kernels_spread, avx2) { check_version(weir_cpu_avx2()); }

Test(kernels_spread, avx512) { check_version(weir_cpu_avx512()); }

static size_t rice_bytes(const uint32_t *index, size_t k, unsigned shift) {
  uint64_t bits = 0;
  for (size_t i = 0; i < k; i++) {
    bits += ((index[i] - (i > 0 ? index[i - 1] + 1 : 0)) >> shift) + 1 + shift;
  }
  return (size_t)((bits + 7) / 8);
}

/* Read `at a time` masks; the bits are those of the list, and nothing is left over. */
static void check_masks(const weir_index_reader *list, const uint32_t *index, size_t k,
                        unsigned lead, size_t at_a_time) {
  uint64_t mask[WORDS + 1 + WEIR_MASK_SLACK];
  weir_mask_reader reader;
  weir_masks_start(&reader, list, k, lead);
  size_t words = weir_masks_words(&reader);
  cr_assert_eq(words, (list->n + lead + 63) / 64);
  size_t next = 0;
  uint64_t last = 0;
  for (size_t word = 0; word < words; word += at_a_time) {
    size_t part = words - word < at_a_time ? words - word : at_a_time;
    size_t ones = 0;
    cr_assert(weir_masks_read(&reader, mask, part, &ones, NULL));
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

/* All parameters on both sides of what is read through a table, and lists on both sides of
 * its use. */
Test(kernels_spread, lists_as_masks) {
  static const size_t steps[] = {1, 2, 5, WORDS + 1};
  weir_rng rng;
  weir_rng_seed(&rng, 8);
  uint32_t index[MOST];
  uint8_t data[8 * MOST];
  for (int round = 0; round < 400; round++) {
    size_t n = round % 3 == 0 ? MOST : 1 + (size_t)weir_rng_below(&rng, MOST);
    size_t k = (size_t)weir_rng_below(&rng, n + 1) >> weir_rng_below(&rng, 4);
    random_indices(&rng, n, k, index);
    unsigned shift = (unsigned)(round % 8);
    weir_index_code codes[3] = {{WEIR_INDEX_U32, 0, 4 * k},
                                {WEIR_INDEX_BITMAP, 0, (n + 7) / 8},
                                {WEIR_INDEX_RICE, shift, rice_bytes(index, k, shift)}};
    for (int c = 0; c < 3; c++) {
      cr_assert_leq(codes[c].bytes, sizeof data);
      weir_index_write(codes[c], index, k, data);
      uint8_t *exact = malloc(codes[c].bytes + 1);
      memcpy(exact, data, codes[c].bytes);
      const weir_index_reader list = {.code = codes[c], .data = exact, .n = n};
      check_masks(&list, index, k, (unsigned)weir_rng_below(&rng, 16), steps[round % 4]);
      free(exact);
    }
  }
}

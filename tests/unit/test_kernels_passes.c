/* Error feedback, 16-bit values and the other passes: scalar against arithmetic done here, vector
 * against scalar bit for bit. */
#include <criterion/criterion.h>

#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"
#include "kernels_data.h"

static const size_t sizes[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1000, 100003};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST = 100003 };

static float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint32_t to_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

Test(kernels_passes, accumulate_by_hand) {
  const float g[5] = {1.0F, -2.0F, INFINITY, 0.5F, 3e38F};
  const float r[5] = {0.25F, 1.0F, 1.0F, NAN, 3e38F};
  float e[5];
  weir_moments moments = {10.0, 20.0, 1};
  weir_ef_accumulate(g, r, e, 5, &moments);
  cr_expect(e[0] == 1.25F && e[1] == -1.0F && isinf(e[2]) && isnan(e[3]) && isinf(e[4]));
  cr_expect_eq(moments.nonfinite, 1 + 3);
  cr_expect_eq(moments.sum, 10.0 + 1.25 - 1.0);
  cr_expect_eq(moments.sum_square, 20.0 + 1.5625 + 1.0);
  float in_place[2] = {1.0F, 2.0F};
  weir_moments more = {0};
  weir_ef_accumulate(in_place, g, in_place, 2, &more);
  cr_expect(in_place[0] == 2.0F && in_place[1] == 0.0F && more.sum == 2.0);
}

Test(kernels_passes, variance) {
  /* 2, 4, 4, 4, 5, 5, 7, 9: mean 5, variance 4. */
  const float g[8] = {2, 4, 4, 4, 5, 5, 7, 9};
  const float zero[8] = {0};
  float e[8];
  weir_moments moments = {0};
  weir_ef_accumulate(g, zero, e, 8, &moments);
  cr_expect_eq(weir_variance(&moments, 8), 4.0);
  cr_expect_eq(weir_variance(&moments, 0), 0.0);
  FREED float *same = malloc(MOST * sizeof *same);
  FREED float *rest = calloc(MOST, sizeof *rest);
  for (size_t i = 0; i < MOST; i++) same[i] = 0.1F;
  weir_moments equal = {0};
  weir_ef_accumulate(same, rest, same, MOST, &equal);
  cr_expect_geq(weir_variance(&equal, MOST), 0.0);
  cr_expect_lt(weir_variance(&equal, MOST), 1e-12);
}

Test(kernels_passes, root_has_the_largest_variance_that_is_a_number) {
  const struct {
    float variance[4];
    int root;
  } cases[] = {{{1.0f, 3.0f, 3.0f, 2.0f}, 1},
               {{NAN, 0.0f, 2.0f, 1.0f}, 2},
               {{NAN, NAN, 0.0f, NAN}, 2},
               {{2.0f, NAN, 1.0f, 2.0f}, 0},
               {{0.0f, 1.0f, INFINITY, INFINITY}, 2},
               {{NAN, NAN, NAN, NAN}, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    cr_expect_eq(weir_variance_root(cases[i].variance, 4), cases[i].root, "case %zu", i);
}

Test(kernels_passes, gather_scatter_scale) {
  float x[6] = {1, 2, 3, 4, 5, 6};
  const uint32_t index[3] = {0, 2, 5};
  float value[3];
  weir_gather(x, index, 3, value);
  cr_expect(value[0] == 1 && value[1] == 3 && value[2] == 6);
  weir_scatter_zero(x, index, 3);
  cr_expect(x[0] == 0 && x[1] == 2 && x[2] == 0 && x[3] == 4 && x[4] == 5 && x[5] == 0);
  weir_scatter_add(x, index, value, 3);
  weir_scatter_add(x, index, value, 3);
  cr_expect(x[0] == 2 && x[2] == 6 && x[5] == 12 && x[1] == 2);
  weir_scale(x, 6, 0.5F);
  cr_expect(x[0] == 1 && x[1] == 1 && x[5] == 6);
  cr_expect_eq(weir_sum_square(x, 3), 1.0 + 1.0 + 9.0);
}

Test(kernels_passes, bf16_by_hand) {
  static const struct {
    uint32_t in;
    uint16_t out;
  } row[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, /* ties to even */
             {0x3f808001, 0x3f81}, {0xbf808001, 0xbf81}, {0x00000000, 0x0000}, {0x80000000, 0x8000},
             {0x00008000, 0x0000}, {0x00008001, 0x0001}, {0x00018000, 0x0002}, /* denormals */
             {0x7f7fffff, 0x7f7f}, {0xff7fffff, 0xff7f},                       /* saturate */
             {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}};
  enum { ROWS = sizeof row / sizeof row[0] };
  /* 16 copies of each, so that vector versions meet them too. */
  for (size_t i = 0; i < ROWS; i++) {
    float in[16], back[16];
    float error[16] = {0};
    uint16_t out[16];
    for (int j = 0; j < 16; j++) in[j] = from_bits(row[i].in);
    weir_bf16_encode(in, 16, out, error);
    weir_bf16_decode(out, 16, back);
    for (int j = 0; j < 16; j++) {
      cr_assert_eq(out[j], row[i].out, "%08x gave %04x", row[i].in, out[j]);
      cr_assert_eq(to_bits(back[j]), (uint32_t)row[i].out << 16);
      if (isfinite(in[j])) cr_assert_eq(error[j] + back[j], in[j]);
    }
  }
}

static void compare_sums(const weir_cpu_ops *cpu, const float *g, const float *r, size_t n) {
  const weir_cpu_ops *reference = &weir_cpu_scalar;
  FREED float *e1 = malloc((n + 1) * sizeof *e1);
  FREED float *e2 = malloc((n + 1) * sizeof *e2);
  weir_moments m1 = {0.5, 0.25, 2};
  weir_moments m2 = m1;
  reference->feed(&(weir_feeding){.g = g, .r = r, .e = e1, .n = n}, &m1);
  cpu->feed(&(weir_feeding){.g = g, .r = r, .e = e2, .n = n}, &m2);
  for (size_t i = 0; i < n; i++)
    cr_assert(to_bits(e1[i]) == to_bits(e2[i]) || (isnan(e1[i]) && isnan(e2[i])));
  cr_assert(m1.sum == m2.sum && m1.sum_square == m2.sum_square && m1.nonfinite == m2.nonfinite);
  double s1 = reference->sum_square(g, n);
  double s2 = cpu->sum_square(g, n);
  cr_assert(s1 == s2 || (isnan(s1) && isnan(s2)));
  uint32_t max1 = 0, max2 = 0;
  reference->abs_sum_max(g, n, &s1, &max1);
  cpu->abs_sum_max(g, n, &s2, &max2);
  cr_assert((s1 == s2 || (isnan(s1) && isnan(s2))) && max1 == max2);
}

/* One pass of error feedback in place of r, and with a list of what reaches a floor, which has room
 * for it or not quite. */
static void compare_feeding(const weir_cpu_ops *cpu, const float *g, const float *r, size_t n,
                            uint32_t bits) {
  FREED float *e = malloc((n + 1) * sizeof *e);
  weir_moments plain = {0};
  weir_cpu_scalar.feed(&(weir_feeding){.g = g, .r = r, .e = e, .n = n}, &plain);
  const size_t found = weir_cpu_scalar.count(e, n, bits), room = n + 3 + WEIR_CANDIDATE_SLACK;
  float *magnitude[2] = {malloc(room * 4), malloc(room * 4)};
  uint32_t *position[2] = {malloc(room * 4), malloc(room * 4)};
  cr_assert_eq(weir_cpu_scalar.compact(e, n, bits, 7, magnitude[0], position[0], found), found);
  FREED float *of_g = malloc(n * 4 + 4), *of_r = malloc(n * 4 + 4);
  for (int form = 0; form < 3; form++) {
    const bool listed = form > 0, full = form == 2;
    if (full && found == 0) continue;
    memcpy(of_g, g, n * sizeof *g);
    memcpy(of_r, r, n * sizeof *r);
    /* Two lie in the list already: another pass's. */
    weir_candidates list = {bits, magnitude[1], position[1], found + 2 - full, 2};
    weir_moments moments = {0};
    cpu->feed(
        &(weir_feeding){
            .g = of_g, .r = of_r, .e = of_r, .n = n, .list = listed ? &list : NULL, .base = 7},
        &moments);
    cr_assert(n == 0 || memcmp(of_g, g, n * sizeof *g) == 0);
    for (size_t i = 0; i < n; i++)
      cr_assert(to_bits(of_r[i]) == to_bits(e[i]) || (isnan(of_r[i]) && isnan(e[i])));
    cr_assert(moments.sum == plain.sum && moments.sum_square == plain.sum_square &&
              moments.nonfinite == plain.nonfinite);
    cr_assert_eq(list.count, full ? SIZE_MAX : listed ? found + 2 : 2);
    if (!listed || full) continue;
    cr_assert(found == 0 || (memcmp(magnitude[0], magnitude[1] + 2, found * 4) == 0 &&
                             memcmp(position[0], position[1] + 2, found * 4) == 0));
  }
  for (int i = 0; i < 2; i++) {
    free(magnitude[i]);
    free(position[i]);
  }
}

static void compare_selecting(const weir_cpu_ops *cpu, const float *x, size_t n, uint32_t bits) {
  const weir_cpu_ops *reference = &weir_cpu_scalar;
  size_t room = n + WEIR_CANDIDATE_SLACK;
  float *magnitude[2] = {malloc(room * 4), malloc(room * 4)};
  uint32_t *position[2] = {malloc(room * 4), malloc(room * 4)};
  size_t found = reference->count(x, n, bits);
  cr_assert_eq(cpu->count(x, n, bits), found);
  cr_assert_eq(reference->compact(x, n, bits, 3, magnitude[0], position[0], found), found);
  cr_assert_eq(cpu->compact(x, n, bits, 3, magnitude[1], position[1], found), found);
  cr_assert(memcmp(magnitude[0], magnitude[1], found * 4) == 0);
  cr_assert(memcmp(position[0], position[1], found * 4) == 0);
  if (found > 0) {
    cr_assert_eq(cpu->compact(x, n, bits, 3, magnitude[1], position[1], found - 1), SIZE_MAX);
    cr_assert_eq(reference->compact(x, n, bits, 3, magnitude[1], position[1], found - 1), SIZE_MAX);
  }
  static const uint32_t width[] = {0, 1, 0x80000, 0x7fffffff};
  static const size_t quotas[] = {0, 1, 7, 8, 9, 15, 16, 17, 39}; /* vectors have 8 and 16 */
  for (size_t w = 0; w < 4; w++) {
    for (size_t q = 0; q < sizeof quotas / sizeof *quotas; q++) {
      const size_t quota = quotas[q];
      uint32_t high = bits + width[w] < 0x80000000U ? bits + width[w] : 0x80000000U;
      weir_band band = {high, bits, quota, SIZE_MAX};
      size_t taken = reference->emit(x, n, band, 5, position[0]);
      band.most = quota % 2 ? taken : SIZE_MAX; /* knowing when to stop changes nothing */
      FREED uint32_t *exact = malloc((taken + 1) * sizeof *exact); /* no slack here */
      exact[taken] = 77;
      cr_assert_eq(cpu->emit(x, n, band, 5, exact), taken);
      cr_assert(memcmp(position[0], exact, taken * 4) == 0);
      cr_assert_eq(exact[taken], 77);
    }
  }
  for (int i = 0; i < 2; i++) {
    free(magnitude[i]);
    free(position[i]);
  }
}

static void compare_bf16(const weir_cpu_ops *cpu, const float *x, size_t n) {
  FREED uint16_t *o1 = malloc(2 * n + 2), *o2 = malloc(2 * n + 2);
  FREED float *e1 = malloc(4 * n + 4), *e2 = malloc(4 * n + 4);
  for (size_t i = 0; i < n; i++) e1[i] = e2[i] = (float)i;
  weir_cpu_scalar.bf16_encode(x, n, o1, e1);
  cpu->bf16_encode(x, n, o2, e2);
  cr_assert(memcmp(o1, o2, 2 * n) == 0);
  for (size_t i = 0; i < n; i++)
    cr_assert(to_bits(e1[i]) == to_bits(e2[i]) || (isnan(e1[i]) && isnan(e2[i])));
  memset(o2, 0xaa, 2 * n);
  cpu->bf16_encode(x, n, o2, NULL);
  cr_assert(memcmp(o1, o2, 2 * n) == 0);
  cpu->bf16_decode((const uint8_t *)o1, n, e2);
  for (size_t i = 0; i < n; i++) cr_assert_eq(to_bits(e2[i]), (uint32_t)o1[i] << 16);
}

/* x beyond what is finite aside, which no encoder is given. */
static void compare_fp16(const weir_cpu_ops *cpu, const float *x, size_t n) {
  FREED uint8_t *o1 = malloc(2 * n + 1), *o2 = malloc(2 * n + 1);
  FREED float *kept = malloc(4 * n + 4);
  for (size_t i = 0; i < n; i++) kept[i] = isfinite(x[i]) ? x[i] : 1e30F;
  weir_cpu_scalar.fp16_encode(kept, n, o1);
  o2[2 * n] = 0x5a;
  cpu->fp16_encode(kept, n, o2);
  cr_assert(memcmp(o1, o2, 2 * n) == 0 && o2[2 * n] == 0x5a);
  cr_assert(cpu->fp16_finite(o2, n));
}

/* All halves in a row, at an odd place: 2^(exponent - 15) (1 + fraction / 1024), an exponent of all
 * ones like the others (wire.c). */
Test(kernels_passes, every_half_is_stored_added_and_subtracted) {
  enum { HALVES = 65536 };
  static uint8_t bytes[1 + 2 * HALVES];
  static float to[HALVES + 1];
  uint8_t *const x = bytes + 1;
  for (uint32_t half = 0; half < HALVES; half++) {
    x[2 * half] = (uint8_t)half;
    x[2 * half + 1] = (uint8_t)(half >> 8);
  }
  for (int v = 0; v < VERSIONS; v++) {
    for (weir_decoding how = WEIR_DECODE_STORE; version(v) && how <= WEIR_DECODE_SUBTRACT; how++) {
      for (size_t i = 0; i <= HALVES; i++) to[i] = 3.5F;
      version(v)->fp16_decode(x, HALVES - 3, to, how);
      for (uint32_t half = 0; half < HALVES - 3; half++) {
        const int exponent = half >> 10 & 31;
        const double fraction = half & 1023;
        const double size =
            exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25);
        const float value = (float)(half & 0x8000 ? -size : size);
        const float want = how == WEIR_DECODE_STORE ? value
                           : how == WEIR_DECODE_ADD ? 3.5F + value
                                                    : 3.5F - value;
        cr_assert_eq(to_bits(to[half]), to_bits(want), "%s, %d: %x gives %g, not %g",
                     version(v)->name, (int)how, half, (double)to[half], (double)want);
      }
      cr_assert(to[HALVES - 3] == 3.5F && to[HALVES] == 3.5F);
    }
  }
}

Test(kernels_passes, one_half_that_is_not_finite_is_found) {
  enum { N = 9001 };
  static uint8_t bytes[1 + 2 * N];
  for (int v = 0; v < VERSIONS; v++) {
    for (size_t at = 0; version(v) && at < N; at += at < 40 ? 1 : 997) {
      uint8_t *const x = bytes + 1;
      memset(x, 0x7b, sizeof bytes - 1);
      cr_assert(version(v)->fp16_finite(x, N));
      x[2 * at + 1] = at % 2 ? 0x7c : 0xff;
      cr_assert(!version(v)->fp16_finite(x, N), "%s: at %zu", version(v)->name, at);
      cr_assert(version(v)->fp16_finite(x, at));
    }
  }
}

static void compare(const weir_cpu_ops *cpu) {
  if (cpu == NULL) return;
  weir_rng rng = weir_rng_of(21);
  FREED float *memory = malloc((MOST + 4) * sizeof *memory);
  FREED float *other = malloc((MOST + 4) * sizeof *other);
  for (size_t s = 0; s < SIZES; s++) {
    for (int shape = 0; shape <= SHAPES; shape++) {
      float *x = memory + (s + (size_t)shape) % 4;
      float *y = other + (s + 2 * (size_t)shape) % 4;
      for (size_t i = 0; i < sizes[s]; i++) { /* the last shape: any bits at all */
        x[i] = shape < SHAPES ? shape_value(&rng, shape, i, sizes[s])
                              : from_bits((uint32_t)weir_rng_next(&rng));
        y[i] = (float)weir_rng_normal(&rng);
        if (shape == SHAPES && i % 97 == 3) x[i] = i % 2 ? INFINITY : -INFINITY;
      }
      compare_sums(cpu, x, y, sizes[s]);
      compare_feeding(cpu, x, y, sizes[s], 0x3f800000);
      compare_bf16(cpu, x, sizes[s]);
      compare_fp16(cpu, x, sizes[s]);
      compare_selecting(cpu, x, sizes[s], sizes[s] > 0 ? to_bits(fabsf(x[0])) : 1);
      compare_selecting(cpu, x, sizes[s], 0x3f800000);
      compare_selecting(cpu, x, sizes[s], 0);
    }
  }
}

Test(kernels_passes, avx2_equals_scalar) { compare(weir_cpu_avx2()); }

Test(kernels_passes, avx512_equals_scalar) { compare(weir_cpu_avx512()); }

Test(kernels_passes, the_path_can_be_forced) {
  weir_cpu_force(&weir_cpu_scalar);
  cr_expect_eq(weir_cpu(), &weir_cpu_scalar);
  weir_cpu_force(NULL);
  const weir_cpu_ops *best = weir_cpu_avx512() ? weir_cpu_avx512() : weir_cpu_avx2();
  cr_expect_eq(weir_cpu(), best != NULL ? best : &weir_cpu_scalar);
}

/* Sparse data with every kind of number that is and is not zero, at every offset of a vector. */
Test(kernels_passes, nonzero_elements_are_counted_alike_by_every_version) {
  static const float kinds[] = {1.0F, -3e38F, 1e-45F, -1e-45F, 1e-38F, NAN, -NAN, INFINITY};
  float *x = malloc((MOST + 16) * sizeof *x);
  weir_rng rng = weir_rng_of(11);
  for (size_t s = 0; s < SIZES; s++) {
    for (size_t shift = 0; shift < 16; shift += 5) {
      size_t wanted = 0;
      for (size_t i = 0; i < sizes[s]; i++) {
        const uint64_t bits = weir_rng_next(&rng);
        const bool zero = (bits & 15) != 0 || s % 3 == 2;
        x[shift + i] = zero ? (bits & 16 ? 0.0F : -0.0F) : kinds[bits >> 8 & 7];
        wanted += !zero;
      }
      for (int v = 0; v < VERSIONS; v++) {
        if (version(v) == NULL) {
          continue;
        }
        weir_cpu_force(version(v));
        cr_expect_eq(weir_nonzero(x + shift, sizes[s]), wanted, "%s, %zu elements",
                     version(v)->name, sizes[s]);
      }
    }
  }
  weir_cpu_force(NULL);
  free(x);
}

/* --- copying past the caches ------------------------------------------------------------------ */

/* No two of the 251 bytes that follow one another are the same. */
static unsigned char byte_at(size_t i) { return (unsigned char)(i % 251 + 1); }

static void check_copy(const weir_cpu_ops *cpu, size_t lead, size_t skip, size_t bytes) {
  enum { ROOM = 70000 };
  static _Alignas(64) unsigned char from[ROOM], to[ROOM];
  size_t wrong = 0;
  cr_assert(lead + bytes <= ROOM && skip + bytes <= ROOM);
  for (size_t i = 0; i < ROOM; i++) from[i] = byte_at(i);
  memset(to, 0, sizeof to);
  weir_cpu_force(cpu);
  weir_copy_past(to + lead, from + skip, bytes);
  weir_cpu_force(NULL);
  for (size_t i = 0; i < ROOM; i++) {
    const bool inside = i >= lead && i < lead + bytes;
    wrong += to[i] != (inside ? byte_at(i - lead + skip) : 0);
  }
  cr_expect_eq(wrong, 0, "%s: %zu bytes from %zu to %zu", cpu->name, bytes, skip, lead);
}

/* Every remainder of the lines that go to four places, and what is no whole line at either end. */
Test(kernels_passes, copies_past_the_caches_touch_what_they_shall) {
  static const size_t bytes[] = {0,   1,   63,  64,  65,  127, 128,  192,  256,
                                 257, 319, 320, 383, 448, 511, 4096, 8291, 65599};
  static const size_t places[][2] = {{0, 0}, {0, 1}, {1, 0}, {63, 64}, {64, 63}, {20, 20}};
  for (int v = 0; v < VERSIONS; v++)
    for (size_t b = 0; version(v) != NULL && b < sizeof bytes / sizeof *bytes; b++)
      for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        check_copy(version(v), places[p][0], places[p][1], bytes[b]);
}

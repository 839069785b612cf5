/* The quantizers' passes: rounding at its edges against arithmetic done here, and vector against
 * scalar bit for bit, whatever the grid, the elements and where they lie. */
#include <criterion/criterion.h>
#include <float.h>

#include "kernels/cpu/cpu.h"
#include "kernels_data.h"

enum { MOST = 1100 };

/* --- by arithmetic ---------------------------------------------------------------------------- */

/* Elements on a grid of powers of two, where nothing is rounded on the way to a place: right at
 * what is drawn for them, a step of floats above and below it, and anywhere. */
static double fill_at_draws(weir_rng *rng, uint32_t key, double scale, size_t codes, float *x,
                            double *place, size_t i) {
  double draw = (double)(weir_mix32(key + (uint32_t)i) >> 8) * 0x1p-24;
  float t = (float)draw; /* 24 bits: exact */
  switch (i % 4) {
    case 1: t = nextafterf(t, 2.0F); break;
    case 2: t = nextafterf(t, -1.0F); break;
    case 3: t = (float)weir_rng_below(rng, codes << 8) / 256.0F; break;
    default: break;
  }
  x[i] = (float)((double)t * scale);
  place[i] = (double)x[i] / scale;
  return draw;
}

/* From 2^3 on a product may be less than the difference that it is of, and from 2^-101 down 2^24
 * times the grid's inverse nears a float's end. */
Test(kernels_codes, an_element_goes_up_where_it_lies_above_its_draw) {
  enum { N = 500, CODES = 15 };
  static const int exponents[] = {-40, 0, 3, 110, -101};
  static const uint32_t keys[] = {0, 77, 0xffff - 100, 0xffffffff - 31, 0xabcd1234};
  static float x[N];
  static double place[N], draw[N];
  static uint8_t code[N + 1], packed[N / 2 + 5];
  weir_rng rng = weir_rng_of(3);
  for (size_t c = 0; c < 25; c++) {
    const double scale = ldexp(1.0, exponents[c / 5]);
    const uint32_t key = keys[c % 5];
    const weir_grid grid = {
        .step = (float)scale, .inverse = (float)(1.0 / scale), .top = (uint8_t)CODES};
    for (size_t i = 0; i < N; i++) draw[i] = fill_at_draws(&rng, key, scale, CODES, x, place, i);
    for (int v = 0; v < VERSIONS; v++) {
      if (version(v) == NULL) continue;
      code[N] = packed[(N + 7) / 8 * 4] = 0xa5;
      version(v)->quantize_stochastic(x, N, grid, key, code);
      for (size_t i = 0; i < N; i++) {
        const double below = fmax(floor(place[i]), 0.0);
        const unsigned want = (unsigned)below + (place[i] - below > draw[i]);
        cr_assert_eq(code[i], want, "%s, scale 2^%d, key %x: element %zu at %a, draw %a",
                     version(v)->name, exponents[c / 5], key, i, place[i], draw[i]);
      }
      cr_assert_eq(code[N], 0xa5);
      if (version(v)->quantize_nibbles == NULL) continue;
      version(v)->quantize_nibbles(x, N, grid, key, packed);
      for (size_t i = 0; i < N; i++)
        cr_assert_eq(packed[i / 2] >> 4 * (i % 2) & 15, code[i], "%s: nibble %zu", version(v)->name,
                     i);
      cr_assert(packed[N / 2] == 0 && packed[N / 2 + 1] == 0); /* filled up to whole eights */
      cr_assert_eq(packed[(N + 7) / 8 * 4], 0xa5);
    }
  }
}

/* Halves go down, what is more goes up, and so at the ends and beyond them. */
Test(kernels_codes, the_nearest_code_is_taken) {
  static const struct {
    float t;
    unsigned code;
  } row[] = {{0.0F, 0},           {0.25F, 0},     {0.5F, 0},      {0x1.000002p-1F, 1},
             {0x1.fffffep-2F, 0}, {1.0F, 1},      {1.5F, 1},      {0x1.800002p0F, 2},
             {2.5F, 2},           {200.5F, 200},  {200.6F, 201},  {254.5F, 254},
             {254.75F, 255},      {255.0F, 255},  {256.0F, 255},  {-1.0F, 0},
             {-0.0F, 0},          {1e-45F, 0},    {FLT_MAX, 255}, {-FLT_MAX, 0},
             {INFINITY, 255},     {-INFINITY, 0}, {NAN, 0},       {-NAN, 0}};
  enum { ROWS = sizeof row / sizeof row[0], N = 5 * ROWS };
  const weir_grid grid = {.step = 1.0F, .inverse = 1.0F, .top = 255};
  float x[N];
  uint8_t code[N];
  for (size_t i = 0; i < N; i++) x[i] = row[i % ROWS].t;
  for (int v = 0; v < VERSIONS; v++) {
    if (version(v) == NULL) continue;
    version(v)->quantize_nearest(x, N, grid, code);
    for (size_t i = 0; i < N; i++)
      cr_assert_eq(code[i], row[i % ROWS].code, "%s: element %zu, %a, becomes %u", version(v)->name,
                   i, (double)x[i], code[i]);
  }
}

/* Code c in bits c * width on, from the lowest up. */
Test(kernels_codes, packed_from_the_lowest_bit_up_and_back) {
  enum { GROUPS = 41 };
  static uint8_t code[8 * GROUPS + 1], packed[8 * GROUPS + 1], back[8 * GROUPS + 1];
  weir_rng rng = weir_rng_of(4);
  for (unsigned bits = 1; bits <= 8; bits++)
    for (size_t groups = 0; groups <= GROUPS; groups++)
      for (int v = 0; v < VERSIONS; v++) {
        if (version(v) == NULL) continue;
        for (size_t i = 0; i < 8 * groups; i++)
          code[i] = (uint8_t)weir_rng_below(&rng, UINT64_C(1) << bits);
        packed[groups * bits] = back[8 * groups] = 0x5a;
        version(v)->pack(code, groups, bits, packed);
        for (size_t i = 0; i < 8 * groups * bits; i++)
          cr_assert_eq(packed[i / 8] >> i % 8 & 1, code[i / bits] >> i % bits & 1,
                       "%s: %u bits, %zu groups, bit %zu", version(v)->name, bits, groups, i);
        cr_assert_eq(packed[groups * bits], 0x5a);
        version(v)->unpack(packed, groups, bits, back);
        cr_assert(memcmp(back, code, 8 * groups) == 0, "%s: %u bits, %zu groups", version(v)->name,
                  bits, groups);
        cr_assert_eq(back[8 * groups], 0x5a);
      }
}

/* --- vector against scalar -------------------------------------------------------------------- */

static float any_float(weir_rng *rng, int shape, size_t i) {
  static const float odd[] = {0.0F,     -0.0F,     NAN,      -NAN,      INFINITY, -INFINITY,
                              FLT_MAX,  -FLT_MAX,  1e-45F,   -1e-45F,   FLT_MIN,  -FLT_MIN,
                              0x1p127F, -0x1p127F, 0x1p-24F, -0x1p-24F, 1.0F,     127.5F};
  const float drawn = (float)weir_rng_normal(rng);
  switch (shape) {
    case 0: return drawn;
    case 1: return weir_rng_below(rng, 4) == 0 ? odd[weir_rng_below(rng, 18)] : drawn;
    case 2: return drawn * 1e-40F;
    case 3: return i % 3 ? 0.0F : -0.0F;
    default: return weir_float_of((uint32_t)weir_rng_next(rng));
  }
}

static weir_grid any_grid(weir_rng *rng) {
  static const float inverses[] = {0.0F, 1e-38F, 1e-10F, 0.5F, 1.0F, 3.7F, 1e4F, 0x1p100F, 1e33F};
  const float inverse = inverses[weir_rng_below(rng, 9)];
  const unsigned tops[] = {1, 2, 3, 7, 14, 15, 126, 127, 128, 254, 255};
  const unsigned top = tops[weir_rng_below(rng, 11)];
  return (weir_grid){.base = any_float(rng, (int)weir_rng_below(rng, 3) * 2, 0),
                     .step = 0.25F,
                     .inverse = inverse,
                     .zero = weir_rng_below(rng, 2) ? (float)(top / 2) : 0.0F,
                     .top = (uint8_t)top};
}

static void compare_rounding(const weir_cpu_ops *cpu, const float *x, size_t n, weir_grid grid,
                             uint32_t key) {
  static uint8_t code[2][MOST + 1], packed[2][MOST + 8];
  code[1][n] = 0x5a;
  weir_cpu_scalar.quantize_stochastic(x, n, grid, key, code[0]);
  cpu->quantize_stochastic(x, n, grid, key, code[1]);
  cr_assert(memcmp(code[0], code[1], n) == 0, "%s: draws, n=%zu, inverse %a, zero %g, top %u",
            cpu->name, n, (double)grid.inverse, (double)grid.zero, grid.top);
  if (cpu->quantize_nibbles != NULL && grid.top < 16) {
    const size_t groups = (n + 7) / 8;
    memset(code[0] + n, 0, 8 * groups - n);
    weir_cpu_scalar.pack(code[0], groups, 4, packed[0]);
    packed[1][4 * groups] = 0x5a;
    cpu->quantize_nibbles(x, n, grid, key, packed[1]);
    cr_assert(memcmp(packed[0], packed[1], 4 * groups) == 0, "%s: nibbles, n=%zu", cpu->name, n);
    cr_assert_eq(packed[1][4 * groups], 0x5a);
  }
  weir_cpu_scalar.quantize_nearest(x, n, grid, code[0]);
  cpu->quantize_nearest(x, n, grid, code[1]);
  cr_assert(memcmp(code[0], code[1], n) == 0, "%s: nearest, n=%zu", cpu->name, n);
  cr_assert_eq(code[1][n], 0x5a);
  const double spread[] = {weir_cpu_scalar.spread_of_draws(x, n, grid),
                           cpu->spread_of_draws(x, n, grid)};
  cr_assert(memcmp(&spread[0], &spread[1], sizeof spread[0]) == 0, "%s: spread, n=%zu: %a, not %a",
            cpu->name, n, spread[1], spread[0]);
}

static void compare_range(const weir_cpu_ops *cpu, const float *x, size_t n) {
  float end[2][2];
  if (n == 0) return;
  weir_cpu_scalar.range(x, n, &end[0][0], &end[0][1]);
  cpu->range(x, n, &end[1][0], &end[1][1]);
  cr_assert(memcmp(end[0], end[1], sizeof end[0]) == 0, "%s: n=%zu: %a to %a, not %a to %a",
            cpu->name, n, (double)end[1][0], (double)end[1][1], (double)end[0][0],
            (double)end[0][1]);
}

static void compare_back(const weir_cpu_ops *cpu, const uint8_t *code, size_t n, weir_grid grid) {
  static float value[2][MOST];
  weir_cpu_scalar.dequantize(code, n, grid, value[0]);
  cpu->dequantize(code, n, grid, value[1]);
  cr_assert(memcmp(value[0], value[1], n * sizeof(float)) == 0, "%s: back, n=%zu", cpu->name, n);
  weir_cpu_scalar.dequantize_add(code, n, grid, value[0]);
  cpu->dequantize_add(code, n, grid, value[1]);
  cr_assert(memcmp(value[0], value[1], n * sizeof(float)) == 0, "%s: added, n=%zu", cpu->name, n);
}

static void compare(const weir_cpu_ops *cpu) {
  static float memory[MOST + 4];
  static uint8_t codes[MOST + 8];
  if (cpu == NULL) return;
  weir_rng rng = weir_rng_of(5);
  for (int round = 0; round < 6000; round++) {
    const size_t n = weir_rng_below(&rng, round % 10 ? 200 : MOST);
    const size_t shift = weir_rng_below(&rng, 4);
    const int shape = round % 5;
    float *x = memory + shift;
    uint8_t *code = codes + shift;
    for (size_t i = 0; i < n; i++) {
      x[i] = any_float(&rng, shape, i);
      code[i] = (uint8_t)weir_rng_below(&rng, 256);
    }
    weir_grid grid = any_grid(&rng);
    compare_range(cpu, x, n);
    compare_rounding(cpu, x, n, grid, (uint32_t)weir_rng_next(&rng));
    if (isfinite(grid.base)) compare_back(cpu, code, n, grid);
  }
}

Test(kernels_codes, avx2_equals_scalar) { compare(weir_cpu_avx2()); }

Test(kernels_codes, avx512_equals_scalar) { compare(weir_cpu_avx512()); }

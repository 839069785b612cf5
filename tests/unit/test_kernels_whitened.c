/* whitened: its grid by hand, its units against double arithmetic, what elements usually are. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/codec.h"
#include "kernels/whitened.h"
#include "kernels_data.h"

enum { HEAD = 16, BUCKET = 128 };

static uint64_t state = 1;
/* From -1 to 1. */
static double drawn(void) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(state >> 11) / 0x1p52 - 1;
}

static float scale_after(const float *x, unsigned bits, float *back) {
  static uint8_t message[HEAD + 4 + BUCKET];
  const size_t offset[] = {0, BUCKET};
  const weir_layout layout = {1, offset};
  const weir_codec *codec = weir_codec_find(WEIR_CODEC_WHITENED);
  size_t bytes;
  cr_assert_eq(codec->encode(NULL, x, &layout, bits / 32.0, 1, message, sizeof message, &bytes),
               WEIR_OK);
  cr_assert_eq(bytes, HEAD + 4 + BUCKET / 8 * bits);
  cr_assert_eq(codec->decode(NULL, message, bytes, &layout, back, WEIR_DECODE_STORE), WEIR_OK);
  float scale;
  memcpy(&scale, message + HEAD, sizeof scale);
  return scale;
}

/* Half of the elements 1 and half -1: the root mean square is 1, and 0.7 in 8 bits is 179/256; 1.43
 * of these is nearest to 1.  With 3 bits 1.4 are 179/128, of which 0.715 is nearest to 1 too, and
 * with 5 it is 179/512 and 2.86, to 3. */
Test(whitened, a_bucket_of_equals_by_hand) {
  float x[BUCKET], back[BUCKET];
  for (size_t i = 0; i < BUCKET; i++) x[i] = i % 2 == 0 ? 1.0F : -1.0F;
  const struct {
    unsigned bits;
    float step, steps;
  } due[] = {{3, 179.0F / 128, 1}, {4, 179.0F / 256, 1}, {5, 179.0F / 512, 3}};
  for (size_t k = 0; k < sizeof due / sizeof *due; k++) {
    cr_assert_eq(scale_after(x, due[k].bits, back), due[k].step);
    for (size_t i = 0; i < BUCKET; i++)
      cr_assert_eq(back[i], (i % 2 == 0 ? due[k].steps : -due[k].steps) * due[k].step);
  }
}

/* One of 14 among zeros: their root mean square is 1.24, of which 0.7 times 7 would not reach it. A
 * step is 2. */
Test(whitened, what_comes_rarely_is_sent_when_it_comes) {
  float x[BUCKET] = {0}, back[BUCKET];
  x[77] = -14.0F;
  cr_assert_eq(scale_after(x, 4, back), 2.0F);
  for (size_t i = 0; i < BUCKET; i++) cr_assert_eq(back[i], i == 77 ? -14.0F : 0.0F);
}

Test(whitened, nothing_errs_by_more_than_half_a_step) {
  float x[BUCKET], back[BUCKET];
  for (unsigned turn = 0; turn < 600; turn++) {
    const double spread = ldexp(1, (int)(turn % 60) * 4 - 120);
    const unsigned bits = 3 + turn % 6;
    double square = 0, most = 0;
    for (size_t i = 0; i < BUCKET; i++) {
      x[i] = (float)(spread * pow(drawn(), 1 + 2 * (double)(turn % 5)));
      square += (double)x[i] * x[i];
      most = fmax(most, fabs((double)x[i]));
    }
    const double top = (1 << (bits - 1)) - 1;
    const double step = fmax(ldexp(0.7, 4 - (int)bits) * sqrt(square / BUCKET), most / top);
    const double scale = (double)scale_after(x, bits, back);
    if (step < 1e-35) continue; /* there is no step of so little */
    cr_assert_leq(fabs(scale - step), step / 256, "turn %u: %g, not %g", turn, scale, step);
    for (size_t i = 0; i < BUCKET; i++)
      cr_assert_leq(fabs((double)x[i] - (double)back[i]), (0.5 + top / 256) * scale,
                    "turn %u: %g for %g", turn, (double)back[i], (double)x[i]);
  }
}

/* What is sent has the density of a normal value and a rounding's error together, nearly, and codes
 * its entropy less the logarithm of the step D: log2(sqrt(2 pi e (1 + D^2 / 12)) / D), which is
 * 2.59 bits for 0.7 and 3.57 for 0.35. */
Test(whitened, entropy_of_what_is_normal) {
  static const double due[] = {2.59, 3.57};
  for (unsigned k = 0; k < 2; k++) {
    double seen[64] = {0}, entropy = 0;
    float x[BUCKET], back[BUCKET];
    enum { TURNS = 2000 };
    for (size_t turn = 0; turn < TURNS; turn++) {
      for (size_t i = 0; i < BUCKET; i += 2) { /* Box and Muller */
        const double r = sqrt(-2 * log((drawn() + 1 + 1e-12) / 2)), a = 3.14159265358979 * drawn();
        x[i] = (float)(r * cos(a));
        x[i + 1] = (float)(r * sin(a));
      }
      const float step = scale_after(x, 4 + k, back);
      for (size_t i = 0; i < BUCKET; i++) seen[32 + (int)lround((double)(back[i] / step))]++;
    }
    for (size_t c = 0; c < 64; c++) {
      const double p = seen[c] / (TURNS * BUCKET);
      if (p > 0) entropy -= p * log2(p);
    }
    cr_assert_float_eq(entropy, due[k], 0.02, "%g, not %g", entropy, due[k]);
  }
}

static uint16_t half_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

/* In units of 2^-40, from 0 on a sixteenth of the way to each average's square; rounded to 8 bits.
 * 2^-20 is 1, and 1/16; from there to 16 is 1.05859375, in 8 bits 1.0625 (of 1.0546875 and 1.0625,
 * which are as near, the even one), and to 0 15/16 of that, 0.99609375. */
Test(whitened, what_elements_usually_are_by_hand) {
  const float first[] = {0x1p-20F, 0, -0x1p-20F, 1e38F, 1e-40F};
  const float second[] = {0x1p-18F, 0, 0, 1e38F, 0x1p-19F};
  const float third[] = {0, 0x1p-20F, 0, 0, 0};
  uint16_t square[5] = {0};
  weir_squares_follow(square, first, 5);
  const float one[] = {0.0625F, 0, 0.0625F, 0, 0};
  for (size_t i = 0; i < 5; i++)
    cr_assert_eq(square[i], i == 3 ? WEIR_SQUARE_MOST : half_of(one[i]));
  weir_squares_follow(square, second, 5);
  const float two[] = {1.0625F, 0, 0.05859375F, 0, 0.25F};
  for (size_t i = 0; i < 5; i++)
    cr_assert_eq(square[i], i == 3 ? WEIR_SQUARE_MOST : half_of(two[i]));
  weir_squares_follow(square, third, 5);
  cr_assert_eq(square[0], half_of(0.99609375F));
  cr_assert_eq(square[1], half_of(0.0625F));
}

/* Roots to the nearest power of two: of 2^19 to 2^21 it is 2^10.  The largest of a block is 256
 * units, half of it 128, what is no more than a 256th of it 1, and what is unknown an eighth of it,
 * 32. */
Test(whitened, units_by_hand) {
  float x[130];
  uint16_t square[130] = {0};
  const float usual[] = {0x1p20F, 0x1.fep20F, 0x1p18F, 0x1p4F, 0x1p2F, 0};
  const double unit[] = {256, 256, 128, 1, 1, 32};
  for (size_t i = 0; i < 6; i++) square[i] = half_of(usual[i]);
  square[128] = half_of(0x1p2F); /* of a block of its own */
  for (size_t i = 0; i < 130; i++) x[i] = 3.0F * (float)(i + 1);
  weir_whiten(x, square, 130);
  for (size_t i = 0; i < 6; i++) cr_assert_eq((double)x[i], 3.0 * (double)(i + 1) / unit[i]);
  cr_assert_eq(x[128], 3.0F * 129 / 256);
  cr_assert_eq(x[129], 3.0F * 130 / 32);
  weir_unwhiten(x, square, 130);
  for (size_t i = 0; i < 130; i++) cr_assert_eq(x[i], 3.0F * (float)(i + 1));
}

/* There and back again no bit is lost, and nothing is not finite. */
Test(whitened, there_and_back) {
  enum { N = 1000 };
  float x[N], kept[N];
  uint16_t square[N];
  for (unsigned turn = 0; turn < 200; turn++) {
    for (size_t i = 0; i < N; i++) {
      kept[i] = x[i] = (float)ldexp(drawn(), (int)(drawn() * 100));
      square[i] = (uint16_t)((drawn() + 1) / 2 * WEIR_SQUARE_MOST);
    }
    x[turn] = kept[turn] = FLT_MAX;
    weir_whiten(x, square, N);
    for (size_t i = 0; i < N; i++) cr_assert(fabsf(x[i]) <= fabsf(kept[i]));
    weir_unwhiten(x, square, N);
    cr_assert_eq(memcmp(x, kept, sizeof x), 0, "turn %u", turn);
  }
  x[0] = FLT_MAX, x[1] = -FLT_MAX;
  memset(square, 0, sizeof square);
  weir_unwhiten(x, square, 2);
  cr_assert(x[0] == FLT_MAX && x[1] == -FLT_MAX);
}

/* Any number of elements, and what is not finite, large and tiny among them. */
Test(whitened, all_versions_are_scalar_bit_for_bit) {
  static const float edge[] = {0.0F,   -0.0F,    FLT_MAX, -FLT_MAX, FLT_MIN,
                               1e-45F, INFINITY, 1e-20F,  -1e13F,   -INFINITY};
  enum { N = 300, EDGES = sizeof edge / sizeof *edge };
  for (int v = 1; v < VERSIONS; v++) {
    const weir_cpu_ops *const it = version(v);
    for (size_t n = 0; n <= N && it != NULL; n++) {
      float x[N], a[N], b[N];
      uint16_t square[N], other[N];
      for (size_t i = 0; i < n; i++) {
        x[i] = i % 5 == 0 ? edge[(i + n) % EDGES] : (float)ldexp(drawn(), (int)(drawn() * 40));
        square[i] = i % 7 == 0 ? 0 : (uint16_t)((drawn() + 1) / 2 * WEIR_SQUARE_MOST);
      }
      for (int back = 0; back < 2; back++) {
        memcpy(a, x, n * sizeof *x);
        memcpy(b, x, n * sizeof *x);
        weir_cpu_scalar.whiten(square, n, back != 0, a);
        it->whiten(square, n, back != 0, b);
        cr_assert_eq(memcmp(a, b, n * sizeof *a), 0, "%s: %zu elements", it->name, n);
      }
      memcpy(other, square, n * sizeof *square);
      weir_cpu_scalar.follow_squares(x, n, square);
      it->follow_squares(x, n, other);
      cr_assert_eq(memcmp(square, other, n * sizeof *square), 0, "%s: %zu squares", it->name, n);
      for (size_t i = 0; i < n; i++) cr_assert_leq(square[i], WEIR_SQUARE_MOST);
    }
  }
}

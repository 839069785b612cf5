/* Selections against sorting, for every codec, shape, size and alignment. */
#include <criterion/criterion.h>

#include "../sampled.h"
#include "kernels/internal.h"
#include "kernels_data.h"
#include "lab/demo.h"

typedef struct pair {
  float magnitude;
  uint32_t index;
} pair;

static int larger_first(const void *a, const void *b) {
  const pair *x = a;
  const pair *y = b;
  if (x->magnitude != y->magnitude) return x->magnitude > y->magnitude ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

static int ascending(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a;
  uint32_t y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The k largest by sorting everything. */
static void topk_oracle(const float *e, size_t n, size_t k, uint32_t base, uint32_t *index) {
  FREED pair *all = malloc((n + 1) * sizeof *all);
  for (size_t i = 0; i < n; i++) all[i] = (pair){fabsf(e[i]), (uint32_t)i};
  qsort(all, n, sizeof *all, larger_first);
  for (size_t i = 0; i < k; i++) index[i] = base + all[i].index;
  qsort(index, k, sizeof *index, ascending);
}

typedef struct listing {
  double thres1, thres2;
  size_t k1, k2; /* how many reach them */
} listing;

/* Algorithm 1 of the MSTopK paper, line by line, every count by looking at every element; thres1
 * starts above everything.  Of thresholds that the same elements reach it keeps the first tried;
 * `last`: the last. */
static listing mstopk_listing(const float *x, size_t d, size_t k, unsigned rounds, bool last) {
  double lane[16] = {0};
  double u = 0.0;
  for (size_t i = 0; i < d; i++) {
    lane[i % 16] += fabs((double)x[i]);
    u = fmax(u, fabs((double)x[i]));
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; i++) lane[i] += lane[i + width];
  }
  double mean = lane[0] / (double)d;
  double l = 0.0, r = 1.0;
  listing out = {INFINITY, 0.0, 0, d};
  for (unsigned i = 0; i < rounds; i++) {
    double ratio = l + (r - l) / 2;
    double thres = mean + ratio * (u - mean);
    size_t nnz = 0;
    for (size_t j = 0; j < d; j++) nnz += fabs((double)x[j]) >= thres;
    if (nnz <= k) {
      r = ratio;
      if (nnz > out.k1 || last) {
        out.k1 = nnz;
        out.thres1 = thres;
      }
    } else {
      l = ratio;
      if (nnz < out.k2 || last) {
        out.k2 = nnz;
        out.thres2 = thres;
      }
    }
  }
  return out;
}

/* The slice starts at its first element; where it would be more than a hundredth of k, the largest
 * of the band are taken instead. */
static void mstopk_oracle(const float *x, size_t d, size_t k, uint32_t *index) {
  listing list = mstopk_listing(x, d, k, 30, false);
  size_t quota = k - list.k1;
  size_t taken = 0;
  if (quota * 100 > k) {
    topk_oracle(x, d, k, 0, index);
    return;
  }
  for (size_t j = 0; j < d; j++) {
    double a = fabs((double)x[j]);
    if (a >= list.thres1) {
      index[taken++] = (uint32_t)j;
    } else if (a >= list.thres2 && quota > 0) {
      quota--;
      index[taken++] = (uint32_t)j;
    }
  }
  cr_assert_eq(taken, k);
}

static void oracle(uint32_t codec, const float *e, const weir_layout *layout, double cr,
                   uint32_t *index, size_t *k) {
  *k = 0;
  size_t units = codec == WEIR_CODEC_LWTOPK ? layout->tensors : 1;
  for (size_t t = 0; t < units; t++) {
    size_t from = units > 1 ? layout->offset[t] : 0;
    size_t to = units > 1 ? layout->offset[t + 1] : layout->offset[layout->tensors];
    size_t n = to - from;
    size_t kept = (size_t)floor(cr * (double)n);
    kept = n == 0 ? 0 : kept < 1 ? 1 : kept;
    if (codec == WEIR_CODEC_MSTOPK && n > 0) {
      mstopk_oracle(e, n, kept, index);
    } else {
      topk_oracle(e + from, n, kept, (uint32_t)from, index + *k);
    }
    *k += kept;
  }
}

static void check_select(weir_codec_context *context, uint32_t codec, const float *e,
                         const weir_layout *layout, double cr, const char *what) {
  size_t n = layout->offset[layout->tensors];
  FREED uint32_t *want = malloc((n + 1) * sizeof *want);
  FREED uint32_t *got = malloc((n + 1) * sizeof *got);
  size_t want_k = 0;
  size_t got_k = 0;
  oracle(codec, e, layout, cr, want, &want_k);
  cr_assert_eq(weir_codecs[codec]->kept(layout, cr), want_k, "%s n=%zu cr=%g", what, n, cr);
  /* The room is exact, and what lies behind it must stay. */
  got[want_k] = 0xdeadbeef;
  cr_assert_eq(weir_codecs[codec]->select(context, e, layout, cr, got, want_k, &got_k), WEIR_OK);
  cr_assert_eq(got_k, want_k);
  cr_assert_eq(got[want_k], 0xdeadbeef);
  cr_assert(memcmp(got, want, want_k * sizeof *want) == 0, "%s %s n=%zu cr=%g",
            weir_codecs[codec]->name, what, n, cr);
  if (want_k > 0) {
    cr_assert_eq(weir_codecs[codec]->select(context, e, layout, cr, got, want_k - 1, &got_k),
                 WEIR_E_CAPACITY);
    cr_assert_eq(got_k, 0);
  }
}

/* Star and var share topk's search, and how much it keeps. */
static bool is_topk_by_another_name(uint32_t codec) {
  const weir_codec *topk = weir_codecs[WEIR_CODEC_TOPK];
  return codec != WEIR_CODEC_TOPK && weir_codecs[codec]->select == topk->select &&
         weir_codecs[codec]->kept == topk->kept;
}

static void check_all(const weir_cpu_ops *cpu) {
  if (cpu == NULL) return;
  weir_cpu_force(cpu);
  static const size_t size[] = {0, 1, 2, 15, 16, 17, 1000, 5003, 40000, 100003};
  static const double ratio[] = {0.001, 0.01, 0.1, 0.35, 1.0};
  SCOPED weir_codec_context *const context = open_context();
  weir_rng rng = weir_rng_of(7);
  FREED float *memory = malloc((100003 + 4) * sizeof *memory);
  for (size_t s = 0; s < sizeof size / sizeof size[0]; s++) {
    size_t n = size[s];
    size_t offset[6] = {0, n / 7, n / 7, n / 2, n / 2 + (n > 2), n};
    weir_layout layout = {5, offset};
    for (int shape = 0; shape < SHAPES; shape++) {
      float *e = memory + (s + (size_t)shape) % 4; /* every alignment a float can have */
      fill_shape(&rng, shape, e, n);
      for (size_t c = 0; c < sizeof ratio / sizeof ratio[0]; c++) {
        for (uint32_t codec = WEIR_CODEC_LWTOPK; codec <= WEIR_CODEC_VAR; codec++) {
          if (!is_topk_by_another_name(codec) && sampled(3))
            check_select(context, codec, e, &layout, ratio[c], shape_name(shape));
        }
      }
    }
  }
  weir_cpu_force(NULL);
}

Test(kernels_select, scalar_matches_sorting) { check_all(&weir_cpu_scalar); }

Test(kernels_select, avx2_matches_sorting) { check_all(weir_cpu_avx2()); }

Test(kernels_select, avx512_matches_sorting) { check_all(weir_cpu_avx512()); }

/* A sample that misleads: what it sees is all small, or all large. */
Test(kernels_select, misleading_samples) {
  enum { N = 100000 };
  FREED float *e = malloc(N * sizeof *e);
  SCOPED weir_codec_context *const context = open_context();
  const weir_layout layout = {1, (const size_t[]){0, N}};
  weir_rng rng = weir_rng_of(3);
  for (int round = 0; round < 8; round++) {
    /* Large ones in one lump of a length near k, the rest tiny; or a staircase of ties. */
    size_t lump = 50 + (size_t)round * 150;
    for (size_t i = 0; i < N; i++) {
      float tiny = 1e-6F * (float)weir_rng_below(&rng, 3 + 90 * (uint64_t)round);
      e[i] = i >= 7777 && i < 7777 + lump ? 5.0F : tiny;
    }
    check_select(context, WEIR_CODEC_TOPK, e, &layout, 0.004, "lump");
    check_select(context, WEIR_CODEC_MSTOPK, e, &layout, 0.004, "lump");
  }
}

/* The last rounds of MSTopK's bisection matter when the border lies in a band about 2^-23 of the
 * largest wide, above the mean (half the elements are zero): rounds move in steps down to 2^-30. */
Test(kernels_select, mstopk_takes_all_its_rounds) {
  enum { N = 20000 };
  FREED float *e = malloc(N * sizeof *e);
  SCOPED weir_codec_context *const context = open_context();
  const weir_layout layout = {1, (const size_t[]){0, N}};
  weir_rng rng = weir_rng_of(31);
  for (size_t i = 0; i < N; i++)
    e[i] = i % 2 ? (float)(2e-4 + 1e-7 * weir_rng_uniform(&rng)) : 0.0F;
  e[N / 3] = 1.0F;
  check_select(context, WEIR_CODEC_MSTOPK, e, &layout, 0.02, "one large");
  check_select(context, WEIR_CODEC_MSTOPK, e, &layout, 0.2, "one large");
}

/* What 30 rounds cannot tell apart lies in the order of its magnitudes here: 15 of 1000 are more
 * than a hundredth, and are the largest; 8 are not, and are the first. */
Test(kernels_select, mstopk_takes_no_long_slice) {
  enum { N = 20000, BAND = 20 };
  static float x[N];
  static uint32_t got[N];
  SCOPED weir_codec_context *const context = open_context();
  const size_t offset[2] = {0, N};
  for (size_t quota = 8; quota <= 15; quota += 7) {
    size_t k = 0;
    for (size_t i = 0; i < N; i++) /* neighbours among floats, 2^-36 apart */
      x[i] = i < BAND ? 2e-4F + 0x1p-36F * (float)i : i < BAND + 999 - quota ? 3e-4F : 0.0F;
    x[N - 1] = 1.0F;
    cr_assert_eq(weir_codecs[WEIR_CODEC_MSTOPK]->select(context, x, &(weir_layout){1, offset}, 0.05,
                                                        got, N, &k),
                 0);
    cr_assert_eq(k, 1000);
    cr_assert_eq(got[0], quota == 8 ? 0 : BAND - quota, "%zu: %u", quota, got[0]);
  }
}

/* Exactly k out, ascending, and at least 99 % of them among the k largest.  index and exact have
 * room for n; returns k. */
static size_t expect_mstopk(weir_codec_context *context, const float *e, size_t n, double cr,
                            uint32_t *index, uint32_t *exact, const char *name) {
  const weir_layout layout = {1, (const size_t[]){0, n}};
  size_t k = 0, common = 0;
  cr_assert_eq(weir_codecs[WEIR_CODEC_MSTOPK]->select(context, e, &layout, cr, index, n, &k),
               WEIR_OK);
  cr_assert_eq(k, (size_t)floor(cr * (double)n), "%s cr %g: %zu", name, cr, k);
  topk_oracle(e, n, k, 0, exact);
  for (size_t i = 1; i < k; i++) cr_assert_gt(index[i], index[i - 1]);
  for (size_t i = 0, j = 0; i < k && j < k;) {
    common += index[i] == exact[j];
    size_t low = index[i] <= exact[j];
    j += exact[j] <= index[i];
    i += low;
  }
  cr_assert(100 * common >= 99 * k, "%s cr %g: %zu of %zu", name, cr, common, k);
  return k;
}

/* What it is for: gradients of a model that learns, at its first step and when it knows a little.
 */
Test(kernels_select, mstopk_on_real_gradients) {
  weir_demo demo;
  const weir_status opened = weir_demo_open(&demo, 5, 0.05, 0.9);
  if (opened == WEIR_E_IO) cr_skip_test("no Fashion-MNIST here: %s", weir_last_error());
  cr_assert_eq(opened, WEIR_OK, "%s", weir_last_error());
  FREED uint32_t *index = malloc(demo.elements * sizeof *index);
  FREED uint32_t *exact = malloc(demo.elements * sizeof *exact);
  SCOPED weir_codec_context *const context = open_context();
  for (int step = 0; step <= 30; step++) {
    double loss = 0;
    cr_assert_eq(weir_trainer_backward(demo.trainer, &loss), WEIR_OK);
    for (double cr = 0.001; step % 30 == 0 && cr < 0.2; cr *= 10)
      (void)expect_mstopk(context, demo.gradient, demo.elements, cr, index, exact, "real");
    cr_assert_eq(weir_trainer_update(demo.trainer, NULL), WEIR_OK);
  }
  weir_demo_close(&demo);
}

/* The search's thresholds are the listing's, after any number of rounds: bit for bit those of one
 * that keeps the last of several that the same elements reach, and the elements that reach them are
 * those of the listing as it is printed, which keeps the first. */
static void expect_listings_thresholds(weir_codec_context *context, const float *e, size_t n,
                                       size_t k, const char *name) {
  static const unsigned rounds[] = {0, 1, 7, 30};
  for (size_t r = 0; r < sizeof rounds / sizeof *rounds; r++) {
    const listing last = mstopk_listing(e, n, k, rounds[r], true);
    const listing printed = mstopk_listing(e, n, k, rounds[r], false);
    weir_mstopk_thresholds got;
    weir_found found;
    cr_assert_eq(weir_mstopk_search(context, e, n, k, rounds[r], &got, &found), WEIR_OK);
    cr_assert(got.upper == last.thres1 && got.lower == last.thres2,
              "%s, %zu kept, %u rounds: %g and %g, listing %g and %g", name, k, rounds[r],
              got.upper, got.lower, last.thres1, last.thres2);
    cr_assert(last.k1 == printed.k1 && last.k2 == printed.k2);
  }
}

/* On every input: the listing's thresholds, exactly k out, and 99 % of them among the k largest. */
Test(kernels_select, mstopk_on_every_input) {
  enum { N = 40000 };
  FREED float *e = malloc(N * sizeof *e);
  FREED uint32_t *index = malloc(N * sizeof *index);
  FREED uint32_t *exact = malloc(N * sizeof *exact);
  SCOPED weir_codec_context *const context = open_context();
  weir_rng rng = weir_rng_of(61);
  for (int shape = 0; shape < SHAPES; shape++) {
    fill_shape(&rng, shape, e, N);
    for (double cr = 0.0005; cr < 0.6; cr *= 4) {
      const size_t k = expect_mstopk(context, e, N, cr, index, exact, shape_name(shape));
      expect_listings_thresholds(context, e, N, k, shape_name(shape));
    }
  }
}

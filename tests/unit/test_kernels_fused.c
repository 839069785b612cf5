/* Error feedback fused with exact top-k, against the two done one after the other. */
#include <criterion/criterion.h>

#include "kernels/internal.h"
#include "kernels_data.h"

enum { MOST = 100003 };
static float g[MOST], r[MOST], e[MOST], apart[MOST];
static uint32_t index_of[MOST + 1], expected[MOST];

/* In steps, in blocks that do not end where tensors do; in lent memory. */
static void check(weir_codec_context *context, const weir_layout *layout, double cr,
                  const char *what) {
  static float lent[3 * MOST];
  const size_t n = layout->offset[layout->tensors], k = weir_topk_kept(layout, cr);
  const float *part[8];
  for (size_t t = 0; t < layout->tensors; t++) part[t] = g + layout->offset[t];
  weir_moments want = {0};
  size_t got = 99;
  weir_ef_accumulate(g, r, apart, n, &want);
  cr_assert_eq(
      weir_codecs[WEIR_CODEC_TOPK]->select(context, apart, layout, cr, expected, MOST, &got),
      WEIR_OK);
  cr_assert_eq(got, k);
  memset(e, 0, n * sizeof *e);
  weir_codec_context_lend(context, lent, sizeof lent);
  cr_assert_eq(weir_ahead_begin(context, &(weir_ahead_of){.g = part, .r = r}, layout, e, cr),
               WEIR_OK);
  cr_assert_eq(context->ahead.e != NULL, weir_listable(n, k));
  weir_moments moments = {0};
  for (size_t at = 0; at < n; at += 4099) {
    const size_t count = n - at < 4099 ? n - at : 4099;
    weir_ahead_feed(context, at, g + at, r + at, e + at, count, &moments);
  }
  cr_assert(n == 0 || memcmp(e, apart, n * sizeof *e) == 0, "%s", what);
  cr_assert(moments.nonfinite == 0 &&
            fabs(moments.sum_square - want.sum_square) <= 1e-12 * want.sum_square);
  weir_codec_context_lend(context, lent, sizeof lent); /* again, as the engine does */
  const weir_codec *codec = weir_codecs[n % 2 ? WEIR_CODEC_TOPK : WEIR_CODEC_STAR];
  cr_assert_eq(codec->select(context, e, layout, cr, index_of, MOST, &got), WEIR_OK);
  cr_assert(got == k && memcmp(index_of, expected, k * sizeof *expected) == 0, "%s n=%zu cr=%g",
            what, n, cr);
  cr_assert_null(context->ahead.e, "a list serves once");
  weir_codec_context_lend(context, NULL, 0);
}

static void check_all(const weir_cpu_ops *cpu) {
  static const size_t sizes[] = {0, 1, 17, 5003, 40000, MOST};
  static const double ratios[] = {0.001, 0.01, 0.1, 0.35, 1.0};
  if (cpu == NULL) return;
  weir_cpu_force(cpu);
  SCOPED weir_codec_context *const context = open_context();
  weir_rng rng = weir_rng_of(51);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    size_t n = sizes[s];
    size_t offset[6] = {0, n / 7, n / 7, n / 2, n / 2 + (n > 2), n};
    weir_layout layout = {5, offset};
    for (int shape = 0; shape < SHAPES; shape++) {
      fill_shape(&rng, shape, g, n);
      for (size_t i = 0; i < n; i++) r[i] = shape % 2 ? 0.0F : (float)weir_rng_normal(&rng) * 0.3F;
      for (size_t c = 0; c < sizeof ratios / sizeof ratios[0]; c++)
        check(context, &layout, ratios[c], shape_name(shape));
    }
  }
  weir_cpu_force(NULL);
}

Test(kernels_fused, scalar_as_one_after_the_other) { check_all(&weir_cpu_scalar); }

Test(kernels_fused, avx2_as_one_after_the_other) { check_all(weir_cpu_avx2()); }

Test(kernels_fused, avx512_as_one_after_the_other) { check_all(weir_cpu_avx512()); }

/* The floor is estimated of what is going to be fed, of which u is the larger part here: few more
 * than are wanted reach it. */
Test(kernels_fused, looks_ahead_with_a_velocity) {
  SCOPED weir_codec_context *const context = open_context();
  static float u[MOST], v[MOST];
  const weir_layout layout = {1, (const size_t[]){0, MOST}};
  const size_t k = weir_topk_kept(&layout, 0.01);
  for (size_t i = 0; i < MOST; i++) {
    g[i] = (float)(i % 7) - 3;
    e[i] = (float)(i % 11) - 5;
    u[i] = (float)(i * 7919 % MOST);
    v[i] = u[i] / 2 + g[i];
  }
  const weir_ahead_of sum = {.g = (const float *const[]){g}, .u = u, .momentum = 0.5F, .r = e};
  cr_assert_eq(weir_ahead_begin(context, &sum, &layout, e, 0.01), WEIR_OK);
  weir_ahead_feed(context, 0, v, e, e, MOST, &(weir_moments){0});
  cr_assert(context->ahead.list.count >= k && context->ahead.list.count < 4 * k, "%zu of %zu",
            context->ahead.list.count, k);
}

/* What was listed ahead must not be taken for another e, or for what e has become. */
Test(kernels_fused, lists_that_do_not_fit_are_left) {
  SCOPED weir_codec_context *const context = open_context();
  const weir_layout layout = {1, (const size_t[]){0, MOST}};
  const float *const part[1] = {g};
  const weir_codec *topk = weir_codecs[WEIR_CODEC_TOPK];
  for (size_t i = 0; i < MOST; i++) g[i] = (float)(i % 1000);
  for (int use = 0; use < 4; use++) {
    size_t k = 0;
    memset(e, 0, sizeof e);
    cr_assert_eq(weir_ahead_begin(context, &(weir_ahead_of){.g = part, .r = e}, &layout, e, 0.01),
                 WEIR_OK);
    weir_ahead_feed(context, 0, g, e, e, MOST, &(weir_moments){0});
    cr_assert_not_null(context->ahead.e);
    if (use == 0) weir_ahead_forget(context);
    if (use == 1) weir_codec_context_use(context, NULL);
    if (use == 2) { /* another search has the room in between */
      for (size_t i = 0; i < MOST; i++) apart[i] = -(float)i;
      cr_assert_eq(topk->select(context, apart, &layout, 0.01, index_of, MOST, &k), WEIR_OK);
      cr_assert_eq(index_of[0], MOST - k);
    }
    if (use < 3) cr_assert_null(context->ahead.e);
    for (size_t i = 0; i < MOST && use < 3; i++) e[i] = (float)i;
    cr_assert_eq(topk->select(context, e, &layout, use < 3 ? 0.01 : 0.02, index_of, MOST, &k),
                 WEIR_OK);
    if (use < 3) cr_assert_eq(index_of[0], MOST - k);
    if (use == 3) cr_assert(k == 2000 && index_of[0] == 980 && index_of[k - 1] == 99999);
  }
}

/* The floor comes from a sample of g + r: a residual that undoes the gradient must not mislead. */
Test(kernels_fused, residuals_that_cancel) {
  SCOPED weir_codec_context *const context = open_context();
  weir_rng rng = weir_rng_of(52);
  size_t offset[3] = {0, 60000, MOST};
  weir_layout layout = {2, offset};
  for (size_t i = 0; i < MOST; i++) {
    g[i] = (float)weir_rng_normal(&rng);
    r[i] = i % 1000 == 7 ? 0.0F : -g[i];
  }
  check(context, &layout, 0.001, "cancelled");
  check(context, &layout, 0.01, "cancelled, more than there are");
}

Test(kernels_fused, what_is_not_finite_is_counted) {
  SCOPED weir_codec_context *const context = open_context();
  size_t offset[2] = {0, MOST};
  const weir_ahead_of sum = {.g = (const float *const[]){g}, .r = r};
  for (size_t n = 10; n <= MOST; n += MOST - 10) {
    offset[1] = n;
    for (size_t i = 0; i < n; i++) {
      g[i] = 1.0F + (float)i;
      r[i] = 0.0F;
    }
    g[3] = NAN;
    r[5] = -INFINITY;
    weir_moments moments = {0};
    cr_assert_eq(weir_ahead_begin(context, &sum, &(weir_layout){1, offset}, e, 0.5), WEIR_OK);
    weir_ahead_feed(context, 0, g, r, e, n, &moments);
    cr_assert_eq(moments.nonfinite, 2);
    cr_assert(isnan(e[3]) && isinf(e[5]) && e[4] == 5.0F && e[n - 1] == (float)n);
  }
}

/* Lent memory is used where it suffices, to the byte, and else left alone. */
Test(kernels_fused, lent_memory_suffices_or_is_left) {
  static const uint32_t codecs[] = {WEIR_CODEC_TOPK, WEIR_CODEC_MSTOPK, WEIR_CODEC_DGC};
  static float lent[3 * MOST];
  const weir_layout layout = {1, (const size_t[]){0, MOST}};
  weir_rng rng = weir_rng_of(53);
  fill_shape(&rng, 0, e, MOST);
  for (size_t i = 0; i < 3; i++) {
    const weir_codec *codec = weir_codecs[codecs[i]];
    const size_t kept = codec->kept(&layout, 0.01);
    const size_t room = weir_select_room(codec, MOST, kept + (i == 1), false);
    cr_assert(room > 0 && room <= sizeof lent);
    for (size_t less = 0; less < 2; less++) {
      SCOPED weir_codec_context *const context = open_context();
      size_t k = 0;
      weir_codec_context_lend(context, lent, room - 4 * less);
      cr_assert_eq(codec->select(context, e, &layout, 0.01, index_of, MOST, &k), WEIR_OK);
      cr_assert_eq(context->magnitude == lent, less == 0, "%s, %zu bytes less than %zu",
                   codec->name, 4 * less, room);
    }
  }
}

/* A list that is one too short is not searched; one of exactly k is. */
Test(kernels_fused, a_list_one_too_short_is_noticed) {
  enum { K = 1000 };
  SCOPED weir_codec_context *const context = open_context();
  cr_assert_eq(weir_context_reserve(context, MOST), WEIR_OK);
  for (size_t i = 0; i < MOST; i++) e[i] = (float)((i * 7919) % MOST);
  for (size_t count = K - 1; count <= K; count++) {
    const uint32_t floor = weir_magnitude((float)(MOST - count));
    cr_assert_eq(weir_compact(context, e, MOST, floor, MOST), count);
    const weir_found found = weir_list_conclude(context, e, MOST, K, floor, count);
    cr_assert_eq(found.listed, count == K ? K : 0);
    cr_assert(found.kth.bits == weir_magnitude((float)(MOST - K)) && found.kth.above == K - 1);
  }
}

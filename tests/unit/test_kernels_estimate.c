/* Selections that estimate (dgc, sidco) or draw (randomk): exactly k, and how good they are beside
 * the k largest. */
#include <criterion/criterion.h>

#include "kernels/sidco.h"
#include "kernels_data.h"

enum { LONG = 400000 };
static float e[LONG];
static uint32_t index_of[LONG], exact[LONG];

static double energy(const uint32_t *index, size_t k) {
  double sum = 0.0;
  for (size_t i = 0; i < k; i++) sum += (double)e[index[i]] * (double)e[index[i]];
  return sum;
}

/* Selects, and checks what holds whatever the estimate. */
static double select_checked(weir_codec_context *c, uint32_t codec, const weir_layout *layout,
                             double cr, const char *what) {
  size_t n = layout->offset[layout->tensors];
  size_t k = 0;
  size_t kept = weir_codecs[codec]->kept(layout, cr);
  index_of[kept < LONG ? kept : 0] = 0xdeadbeef;
  cr_assert_eq(weir_codecs[codec]->select(c, e, layout, cr, index_of, kept, &k), WEIR_OK);
  cr_assert_eq(k, kept);
  cr_assert(kept == LONG || kept == 0 || index_of[kept] == 0xdeadbeef);
  for (size_t i = 0; i < k; i++) {
    cr_assert(index_of[i] < n && (i == 0 || index_of[i] > index_of[i - 1]), "%s %s n=%zu cr=%g",
              weir_codecs[codec]->name, what, n, cr);
  }
  /* dgc keeps so many of each tensor. */
  uint32_t best = codec == WEIR_CODEC_DGC ? WEIR_CODEC_LWTOPK : WEIR_CODEC_TOPK;
  cr_assert_eq(weir_codecs[best]->select(c, e, layout, cr, exact, kept, &k), WEIR_OK);
  for (size_t t = 0, i = 0, j = 0; best == WEIR_CODEC_LWTOPK && t < layout->tensors; t++) {
    for (; i < k && index_of[i] < layout->offset[t + 1]; i++) {
    }
    for (; j < k && exact[j] < layout->offset[t + 1]; j++) {
    }
    cr_assert_eq(i, j);
  }
  double all = energy(exact, kept);
  return all > 0.0 ? energy(index_of, kept) / all : 1.0;
}

Test(kernels_estimate, exactly_k_on_every_input) {
  static const size_t sizes[] = {0, 1, 2, 127, 128, 129, 1000, 100003};
  static const double ratios[] = {0.001, 0.01, 0.1, 0.3, 1.0};
  SCOPED weir_codec_context *const c = open_context();
  weir_rng rng = weir_rng_of(41);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    size_t n = sizes[s];
    size_t offset[5] = {0, n / 2, n / 2, n - n / 9, n};
    weir_layout layout = {4, offset};
    for (int shape = 0; shape < SHAPES; shape++) {
      fill_shape(&rng, shape, e, n);
      for (size_t r = 0; r < 5; r++) {
        double dgc = select_checked(c, WEIR_CODEC_DGC, &layout, ratios[r], shape_name(shape));
        double sidco = select_checked(c, WEIR_CODEC_SIDCO, &layout, ratios[r], shape_name(shape));
        cr_assert(dgc <= 1.000001 && sidco <= 1.000001);
        cr_assert(dgc > 0.9, "%s n=%zu cr=%g: dgc %g", shape_name(shape), n, ratios[r], dgc);
      }
    }
  }
}

/* Layers whose scales are powers of ten apart, Laplace inside: what a whole gradient looks like. */
static void fill_layers(weir_rng *rng) {
  for (size_t i = 0; i < LONG; i++) {
    static const float scale[] = {1e-3F, 1e-2F, 3e-3F, 1e-1F, 1e-4F};
    e[i] = scale[i / 9000 % 5] * shape_value(rng, 1, i, LONG);
  }
}

Test(kernels_estimate, nearly_as_good_as_the_largest) {
  SCOPED weir_codec_context *const c = open_context();
  const weir_layout layout = {1, (const size_t[]){0, LONG}};
  weir_rng rng = weir_rng_of(42);
  for (int kind = 0; kind < 4; kind++) {
    if (kind < 3) {
      fill_shape(&rng, kind, e, LONG);
    } else {
      fill_layers(&rng);
    }
    for (double cr = 0.001; cr < 0.2; cr *= 10) {
      double dgc = select_checked(c, WEIR_CODEC_DGC, &layout, cr, "good");
      double sidco = select_checked(c, WEIR_CODEC_SIDCO, &layout, cr, "good");
      cr_assert(dgc > 0.97, "kind %d cr %g: dgc keeps %g", kind, cr, dgc);
      cr_assert(sidco > 0.84, "kind %d cr %g: sidco keeps %g", kind, cr, sidco);
    }
  }
}

/* --- dgc's rule ------------------------------------------------------------------------------- */

static int descending(const void *pa, const void *pb) {
  const float a = *(const float *)pa, b = *(const float *)pb;
  return (a < b) - (a > b);
}

/* dgc.c's three steps with plain loops; *filled: too few reached the first threshold. */
static void select_by_the_rule(size_t n, size_t k, uint32_t *out, bool *filled) {
  enum { LEAST = 8192 };
  static float sample[LEAST];
  cr_assert_lt(n / 100, LEAST);
  weir_sample(e, n, LEAST, sample);
  for (size_t i = 0; i < LEAST; i++) sample[i] = fabsf(sample[i]);
  qsort(sample, LEAST, sizeof *sample, descending);
  const double share = (double)k / (double)n * LEAST;
  const float high = sample[(size_t)ceil(share) - 1];
  const float low = sample[(size_t)ceil(share + 4.0 * sqrt(share) + 8.0) - 1];
  size_t above = 0, reach = 0, taken = 0;
  for (size_t i = 0; i < n; i++) {
    above += fabsf(e[i]) >= high;
    reach += fabsf(e[i]) >= low;
  }
  *filled = above < k && reach >= k;
  for (size_t i = 0, rest = k - above; *filled && i < n; i++) {
    const bool more = fabsf(e[i]) < high && fabsf(e[i]) >= low && rest > 0;
    rest -= more;
    if (more || fabsf(e[i]) >= high) out[taken++] = (uint32_t)i;
  }
  if (!*filled) {
    SCOPED weir_codec_context *const c = open_context();
    cr_assert_eq(weir_topk_indices(c, e, n, k, 0, out), WEIR_OK);
  }
}

/* Gradients that fall out either way, ties in bulk (more reach a threshold than there is room for),
 * and samples that see too much or nothing of what is large; with threads as without. */
Test(kernels_estimate, dgc_selects_by_its_rule) {
  enum { N = 300007, TRIES = 12 }; /* enough for threads */
  SCOPED weir_codec_context *const alone = open_context();
  SCOPED weir_codec_context *const shared = open_context();
  weir_pool *pool = NULL;
  cr_assert_eq(weir_pool_create(&pool, 3), WEIR_OK);
  weir_codec_context_use(shared, pool);
  const weir_layout layout = {1, (const size_t[]){0, N}};
  static uint32_t wanted[N];
  size_t ways[2] = {0, 0};
  weir_rng rng = weir_rng_of(43);
  for (int i = 0; i < 4 * TRIES; i++) {
    const int kind = i % 4;
    const double cr = i / 4 % 2 == 0 ? 0.01 : 0.1;
    uint64_t state = 1;
    fill_shape(&rng, 0, e, N);
    /* Two thirds of a normal's share above 1.44 and 2.43 deviations are the ratios. */
    const float to_half = 0.5F / (cr > 0.05 ? 1.44F : 2.43F);
    for (size_t at = 0; kind == 1 && at < N; at++) e[at] = at % 3 == 0 ? 0.5F : to_half * e[at];
    for (size_t at = 0; kind == 2 && at < N / 8; at++) e[at] *= 1e3F;
    for (size_t s = 0; kind == 3 && s < 8192; s++)
      e[weir_sample_at(s, N / 8192, &state)] *= i / 4 % 3 == 0 ? 0.01F : 1e2F;
    bool filled = false;
    size_t k = 0;
    const size_t kept = weir_kept_of(N, cr);
    select_by_the_rule(N, kept, wanted, &filled);
    ways[filled]++;
    weir_codec_context *const contexts[2] = {alone, shared};
    for (int c = 0; c < 2; c++) {
      cr_assert_eq(
          weir_codecs[WEIR_CODEC_DGC]->select(contexts[c], e, &layout, cr, index_of, LONG, &k),
          WEIR_OK);
      cr_assert_eq(k, kept);
      cr_assert_arr_eq(index_of, wanted, k * sizeof *wanted, "kind %d cr %g", kind, cr);
    }
  }
  cr_assert(ways[0] >= TRIES && ways[1] >= TRIES, "%zu of %d filled up", ways[1], 4 * TRIES);
  weir_pool_free(pool);
}

/* Only what is sampled is large, all of it different, so that as many reach the second threshold as
 * it ranks: more than k, k, one less (which must be noticed), and fewer. */
Test(kernels_estimate, dgc_notices_one_too_few) {
  enum { N = 40000 };
  SCOPED weir_codec_context *const c = open_context();
  static uint32_t wanted[N];
  const size_t offset[2] = {0, N};
  uint64_t state = 1;
  size_t one_less = 0;
  for (size_t i = 0; i < N; i++) e[i] = 0.5F;
  for (size_t s = 0; s < 8192; s++) e[weir_sample_at(s, N / 8192, &state)] = 1.0F + (float)s;
  for (size_t kept = 10; kept < 60; kept++) {
    const double share = (double)kept / N * 8192;
    bool filled = false;
    size_t k = 0;
    one_less += (size_t)ceil(share + 4.0 * sqrt(share) + 8.0) == kept - 1;
    select_by_the_rule(N, kept, wanted, &filled);
    cr_assert_eq(weir_codecs[WEIR_CODEC_DGC]->select(c, e, &(weir_layout){1, offset},
                                                     (double)kept / N, index_of, LONG, &k),
                 WEIR_OK);
    cr_assert(k == kept && memcmp(index_of, wanted, k * sizeof *wanted) == 0, "%zu", kept);
  }
  cr_assert_gt(one_less, 0);
}

/* --- sidco's fits ---------------------------------------------------------------------------- */

static weir_sidco_moments moments_of_gamma(double shape, double scale) {
  /* E ln x = psi(shape) + ln scale; psi by its asymptotic series after recurrence. */
  double psi = 0.0, x = shape;
  for (; x < 20.0; x += 1.0) psi -= 1.0 / x;
  psi += log(x) - 1 / (2 * x) - 1 / (12 * x * x) + 1 / (120 * pow(x, 4));
  return (weir_sidco_moments){shape * scale, shape * scale * scale, psi + log(scale)};
}

Test(kernels_estimate, fits_give_their_distributions_quantiles) {
  for (double share = 0.25; share > 1e-4; share /= 4) {
    /* Exponential of mean 3: P(x > t) = exp(-t / 3). */
    double t = weir_sidco_exponential((weir_sidco_moments){.mean = 3.0}, share);
    cr_assert_float_eq(exp(-t / 3.0), share, 1e-9 * share);
    /* s = ln mean - mean ln = 1/2: the shape is (5/2 + sqrt(25/4 + 12)) / 6 by the closed form. */
    const double shape = (2.5 + sqrt(18.25)) / 6;
    t = weir_sidco_gamma((weir_sidco_moments){.mean = 2.0, .mean_log = log(2.0) - 0.5}, share);
    cr_assert_float_eq(t, -(2.0 / shape) * (log(share) + lgamma(shape)), 1e-9);
    /* Gamma of shape 1 is the exponential, and the closed form of the shape is within 1.5 %. */
    t = weir_sidco_gamma(moments_of_gamma(1.0, 2.0), share);
    cr_assert_float_eq(t / (-2.0 * log(share)), 1.0, 0.02);
    /* Generalized Pareto of shape a < 1/2 and scale b: mean b / (1 - a),
     * variance b^2 / ((1 - a)^2 (1 - 2 a)), P(x > t) = (1 + a t / b)^(-1 / a). */
    for (double a = -0.4; a < 0.45; a += 0.2) {
      double b = 0.7;
      weir_sidco_moments m = {.mean = b / (1 - a),
                              .variance = b * b / ((1 - a) * (1 - a) * (1 - 2 * a))};
      t = weir_sidco_pareto(m, share);
      double reached = fabs(a) < 1e-12 ? exp(-t / b) : pow(1 + a * t / b, -1 / a);
      cr_assert_float_eq(reached, share, 1e-6 * share);
    }
  }
}

static size_t reaching(double threshold) {
  size_t count = 0;
  for (size_t i = 0; i < LONG; i++) count += fabs((double)e[i]) >= threshold;
  return count;
}

/* The exponential's stages worked out with plain loops; *before: the threshold of the last but
 * one. */
static double staged_exponential(double share, double *before) {
  double eta = 0.0;
  for (bool last = false; !last;) {
    last = share > 1.0 / 16;
    double part = last ? share : 0.25, sum = 0.0, count = 0.0;
    for (size_t i = 0; i < LONG; i++) {
      double m = fabs((double)e[i]);
      sum += m >= eta ? m - eta : 0.0;
      count += m >= eta;
    }
    *before = eta;
    eta += -(sum / count) * log(part);
    share /= part;
  }
  return eta;
}

Test(kernels_estimate, sidco_thresholds_come_near_k) {
  SCOPED weir_codec_context *const c = open_context();
  weir_rng rng = weir_rng_of(43);
  for (int shape = 0; shape < 2; shape++) {
    fill_shape(&rng, shape, e, LONG);
    for (double cr = 0.001; cr < 0.2; cr *= 10) {
      size_t k = (size_t)(cr * LONG + 0.5);
      for (weir_sidco_fit fit = WEIR_SIDCO_EXPONENTIAL; fit <= WEIR_SIDCO_PARETO; fit++) {
        double threshold = 0.0;
        size_t listed = 0;
        cr_assert_eq(weir_sidco_threshold(c, e, LONG, k, fit, &threshold, &listed), WEIR_OK);
        double ratio = (double)reaching(threshold) / (double)k;
        if (fit == WEIR_SIDCO_EXPONENTIAL) {
          double before;
          cr_assert_float_eq(threshold / staged_exponential((double)k / LONG, &before), 1.0, 1e-6);
        }
        cr_assert(ratio > 0.5 && ratio < 2.0, "shape %d cr %g fit %d: %g k", shape, cr, fit, ratio);
        /* Exponential data fit the exponential: within the paper's 20 %. */
        cr_assert(shape == 0 || fit == WEIR_SIDCO_GAMMA || fabs(ratio - 1) < 0.2, "%g", ratio);
      }
    }
  }
}

/* Uniform magnitudes have a thinner tail than the fit: too few reach the threshold, so these and,
 * from the lowest index up, those that reach the threshold before, of two stages or more; of one,
 * that of twice as many.  Else the largest. */
Test(kernels_estimate, sidco_fills_up_by_its_rule) {
  SCOPED weir_codec_context *const c = open_context();
  const size_t offset[2] = {0, LONG};
  size_t fills = 0;
  weir_rng rng = weir_rng_of(44);
  for (size_t i = 0; i < LONG; i++) e[i] = (float)(weir_rng_uniform(&rng) - 0.5);
  for (double cr = 0.003; cr < 0.2; cr *= 1.7) {
    const size_t kept = (size_t)(cr * LONG);
    const double share = (double)kept / LONG;
    double before = 0.0, mean = 0.0;
    for (size_t i = 0; i < LONG; i++) mean += fabs((double)e[i]) / LONG;
    const double eta = staged_exponential(share, &before);
    if (share > 1.0 / 16) before = -mean * log(2.0 * share);
    size_t above = reaching(eta), taken = 0, k = 0;
    const bool fill = above < kept && reaching(before) >= kept;
    fills += fill;
    for (size_t i = 0, rest = kept - above; fill && i < LONG; i++) {
      const double m = fabs((double)e[i]);
      const bool more = m < eta && m >= before && rest > 0;
      rest -= more;
      if (more || m >= eta) exact[taken++] = (uint32_t)i;
    }
    if (!fill) cr_assert_eq(weir_topk_indices(c, e, LONG, taken = kept, 0, exact), WEIR_OK);
    cr_assert_eq(weir_codecs[WEIR_CODEC_SIDCO]->select(c, e, &(weir_layout){1, offset}, cr,
                                                       index_of, LONG, &k),
                 WEIR_OK);
    cr_assert(k == kept && taken == kept && memcmp(index_of, exact, k * sizeof *exact) == 0,
              "cr %g", cr);
  }
  cr_assert_geq(fills, 4);
}

/* --- randomk ---------------------------------------------------------------------------------- */

Test(kernels_estimate, randomk_draws_exactly_k_from_the_seed) {
  static const size_t sizes[] = {0, 1, 2, 63, 64, 65, 1000, 100003};
  SCOPED weir_codec_context *const c = open_context();
  const weir_codec *codec = weir_codecs[WEIR_CODEC_RANDOMK];
  for (size_t s = 0; s < 8; s++) {
    const weir_layout layout = {1, (const size_t[]){0, sizes[s]}};
    for (double cr = 1.0; cr > 0.001; cr *= 0.6) {
      size_t kept = codec->kept(&layout, cr);
      size_t k = 0, again = 0;
      cr_assert_eq(codec->draw(c, &layout, cr, s, index_of, kept, &k), WEIR_OK);
      cr_assert_eq(codec->draw(c, &layout, cr, s, exact, kept, &again), WEIR_OK);
      cr_assert(k == kept && again == kept && memcmp(index_of, exact, 4 * k) == 0);
      for (size_t i = 0; i < k; i++)
        cr_assert(index_of[i] < sizes[s] && (i == 0 || index_of[i] > index_of[i - 1]));
      if (kept > 0) {
        cr_assert_eq(codec->draw(c, &layout, cr, s, exact, kept - 1, &again), WEIR_E_CAPACITY);
        cr_assert_eq(again, 0);
      }
    }
    cr_assert_eq(codec->draw(c, &layout, 0.0, s, exact, LONG, &(size_t){0}), WEIR_E_INVALID);
  }
}

/* All C(6, k) sets come up equally often: 2 of 6, and 4 of 6, which draws what is left out. */
Test(kernels_estimate, randomk_draws_every_set_alike) {
  enum { DRAWS = 30000 };
  SCOPED weir_codec_context *const c = open_context();
  const weir_layout layout = {1, (const size_t[]){0, 6}};
  for (size_t kept = 2; kept <= 4; kept += 2) {
    size_t seen[64] = {0};
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
      size_t k = 0;
      size_t set = 0;
      cr_assert_eq(weir_codecs[WEIR_CODEC_RANDOMK]->draw(c, &layout, (double)kept / 6, seed,
                                                         index_of, 6, &k),
                   WEIR_OK);
      for (size_t i = 0; i < k; i++) set |= (size_t)1 << index_of[i];
      seen[set]++;
    }
    for (size_t set = 0; set < 64; set++) {
      bool good = (size_t)__builtin_popcountll(set) == kept;
      double share = (double)seen[set] / DRAWS;
      cr_assert(good ? fabs(share - 1.0 / 15) < 5 * sqrt(1.0 / 15 / DRAWS) : seen[set] == 0);
    }
  }
}

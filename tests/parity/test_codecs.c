/* Selections of the table of codecs, device against scalar: of a given gradient, and with error
 * feedback. */
#include <float.h>

#include "selection.h"

enum { N = 100003, TENSORS = 6 };
static const size_t sizes[] = {1, 5, 1000, 33000, N};
#define SIZES (sizeof sizes / sizeof sizes[0])
static const double ratios[] = {0.001, 0.01, 0.1, 0.3, 0.7, 1.0};
enum { RATIOS = 6 };

/* A short tensor, an empty one, some long enough for a sample. */
static weir_layout spread(size_t n, size_t offset[TENSORS + 1]) {
  const size_t at[TENSORS + 1] = {0, 3, 3, n / 50 + 3, n / 2 + 1, n / 2 + 1, n};
  for (size_t t = 0; t <= TENSORS; t++) offset[t] = at[t] < n ? at[t] : n;
  return (weir_layout){TENSORS, offset};
}

static size_t select_on_cpu(arrays *a, const weir_codec *codec, const weir_layout *layout,
                            double cr, uint64_t seed) {
  size_t n = layout->offset[layout->tensors];
  size_t k = 0;
  must(codec->draw != NULL ? codec->draw(a->context, layout, cr, seed, a->wanted, n, &k)
                           : codec->select(a->context, a->e, layout, cr, a->wanted, n, &k));
  return k;
}

/* a->g and a->r, fused, or else a->g alone, selected from on both sides. */
static void check(weir_cuda *cuda, arrays *a, uint32_t codec, const weir_layout *layout, double cr,
                  bool fused, size_t skew, const char *what) {
  size_t n = layout->offset[layout->tensors];
  size_t room = weir_codecs[codec]->kept(layout, cr);
  size_t k = 0;
  const weir_moments none = {0};
  weir_moments moments;
  weir_moments wanted = {0};
  LENT device_buffer g = put(cuda, a->g, n * sizeof(float), skew);
  LENT device_buffer r = put(cuda, a->r, n * sizeof(float), skew);
  LENT device_buffer index = take(cuda, room * sizeof(uint32_t), 4);
  LENT device_buffer value = take(cuda, room * sizeof(float), 8);
  LENT device_buffer dm = put(cuda, &none, sizeof none, 0);
  weir_cuda_fed fed = {.e = g.data, .moments = dm.data};
  memcpy(a->e, a->g, n * sizeof(float));
  if (fused) {
    fed = (weir_cuda_fed){g.data, r.data, r.data, dm.data};
    weir_ef_accumulate(a->g, a->r, a->e, n, &wanted);
  }
  must(weir_cuda_reserve_tensors(cuda, layout));
  must(weir_cuda_select(cuda, codec, &fed, layout, cr, n, index.data, value.data, room, &k));
  cr_assert_eq(k, room);
  cr_assert_eq(select_on_cpu(a, weir_codecs[codec], layout, cr, n), k);
  get(cuda, &moments, dm, sizeof moments);
  cr_assert_eq(moments.nonfinite, wanted.nonfinite);
  cr_assert(fabs(moments.sum_square - wanted.sum_square) <=
            2.0 * (double)n * DBL_EPSILON * wanted.sum_square);
  get(cuda, a->index, index, k * sizeof(uint32_t));
  for (size_t i = 0; i < k; i++) {
    cr_assert_eq(a->index[i], a->wanted[i], "%s of %s, %zu of %zu: index %zu is %u, not %u",
                 weir_codecs[codec]->name, what, k, n, i, a->index[i], a->wanted[i]);
  }
  weir_gather(a->e, a->wanted, k, a->value);
  get(cuda, a->got, value, k * sizeof(float));
  same_floats(a->got, a->value, k, what);
  if (fused) weir_scatter_zero(a->e, a->wanted, k);
  get(cuda, a->got, fused ? r : g, n * sizeof(float));
  same_floats(a->got, a->e, n, what);
}

/* All shapes and sizes, either of the long ones for a third of the shapes; ratios in turn. */
static void check_codec(uint32_t codec, uint64_t seed) {
  OPENED weir_cuda *cuda = open_cuda(N, N);
  weir_rng rng = weir_rng_of(seed);
  arrays a = make_arrays(N);
  size_t offset[TENSORS + 1];
  for (int shape = 0; shape < SHAPES; shape++) {
    for (size_t s = 0; s < SIZES; s++) {
      size_t n = sizes[s];
      size_t whole[2] = {0, n};
      weir_layout layout = spread(n, offset);
      if (s >= SIZES - 2 && ((uint32_t)shape + codec + s) % 3 != 0) continue;
      if ((s + (size_t)shape) % 4 == 3) layout = (weir_layout){1, whole};
      fill_shape(&rng, shape, a.g, n);
      fill_shape(&rng, shape % 2 == 0 ? shape : 0, a.r, n);
      check(cuda, &a, codec, &layout, ratios[(s + (size_t)shape) % RATIOS],
            (s + (size_t)shape) % 2 == 0, 4 * (s % 4), shape_name(shape));
    }
  }
  free_arrays(a);
}

Test(parity_codecs, lwtopk_is_equal) { check_codec(WEIR_CODEC_LWTOPK, 41); }
Test(parity_codecs, dgc_is_equal) { check_codec(WEIR_CODEC_DGC, 42); }
/* A threshold could differ in its last bit; in none of these inputs does anything lie there. */
Test(parity_codecs, sidco_is_equal) { check_codec(WEIR_CODEC_SIDCO, 43); }
Test(parity_codecs, mstopk_is_equal) { check_codec(WEIR_CODEC_MSTOPK, 44); }
Test(parity_codecs, randomk_is_equal) { check_codec(WEIR_CODEC_RANDOMK, 45); }
Test(parity_codecs, topk_is_equal) { check_codec(WEIR_CODEC_TOPK, 46); }
/* star and var select as topk does; who selects is the engine's. */
Test(parity_codecs, star_and_var_are_topk) {
  OPENED weir_cuda *cuda = open_cuda(N, N);
  weir_rng rng = weir_rng_of(47);
  arrays a = make_arrays(N);
  size_t offset[TENSORS + 1];
  weir_layout layout = spread(N, offset);
  fill_shape(&rng, 0, a.g, N);
  fill_shape(&rng, 1, a.r, N);
  check(cuda, &a, WEIR_CODEC_STAR, &layout, 0.01, true, 0, "star");
  check(cuda, &a, WEIR_CODEC_VAR, &layout, 0.01, false, 4, "var");
  free_arrays(a);
}

/* No room for what is kept or written is another error than no operation. */
Test(parity_codecs, rows_say_which_operations_there_are) {
  OPENED weir_cuda *cuda = open_cuda(N, N);
  const weir_layout layout = {1, (const size_t[]){0, N}};
  const weir_cuda_fed fed = {0};
  size_t written = 0;
  for (uint32_t id = 0; id < WEIR_CODEC_COUNT; id++) {
    const weir_codec *codec = weir_codecs[id];
    const double cr = codec->bits.most / 32.0;
    weir_status status = WEIR_OK;
    if (codec->encode != NULL)
      status = weir_cuda_encode(cuda, id, NULL, &layout, cr, 0, NULL, 0, &written);
    else if (!codec->dense && !codec->low_rank)
      status = weir_cuda_select(cuda, id, &fed, &layout, 0.01, 0, NULL, NULL, 0, &written);
    /* Low rank is run in parts, of which there are none for one sum. */
    const bool there = status != WEIR_E_UNSUPPORTED && !codec->at_once;
    cr_expect_eq(there, codec->device, "%s", codec->name);
  }
}

/* Estimates that fall short are filled up from the lowest index, as on the CPU: over some inputs
 * what is kept must differ from the k largest, or this has not been tested. */
static void check_filling(uint32_t codec, int shape, double cr) {
  enum { TRIES = 4 };
  OPENED weir_cuda *cuda = open_cuda(N, N);
  weir_rng rng = weir_rng_of(51);
  arrays a = make_arrays(N);
  FREED uint32_t *exact = array(N, sizeof *exact);
  const weir_layout layout = {1, (const size_t[]){0, N}};
  size_t filled = 0;
  for (int i = 0; i < TRIES; i++) {
    fill_shape(&rng, shape, a.g, N);
    check(cuda, &a, codec, &layout, cr, false, 0, shape_name(shape));
    size_t k = weir_codecs[codec]->kept(&layout, cr);
    must(weir_topk_indices(a.context, a.e, N, k, 0, exact));
    filled += memcmp(exact, a.wanted, k * sizeof *exact) != 0;
  }
  cr_assert(filled > 0 && filled <= TRIES, "%zu of %d were filled up", filled, TRIES);
  free_arrays(a);
}

Test(parity_codecs, dgc_fills_up) { check_filling(WEIR_CODEC_DGC, 0, 0.01); }
/* One stage, and several. */
Test(parity_codecs, sidco_fills_up) {
  check_filling(WEIR_CODEC_SIDCO, 0, 0.1);
  check_filling(WEIR_CODEC_SIDCO, 0, 0.001);
}

/* Where dgc's sample looks (weir_sample_at): large values there and nowhere else, and the other way
 * round. */
Test(parity_codecs, dgc_notices_a_misleading_sample) {
  enum { SAMPLE = 8192, LENGTH = N - 3 };
  OPENED weir_cuda *cuda = open_cuda(N, N);
  weir_rng rng = weir_rng_of(52);
  arrays a = make_arrays(N);
  const weir_layout layout = {1, (const size_t[]){0, LENGTH}};
  for (int round = 0; round < 2; round++) {
    uint64_t state = 1;
    fill_shape(&rng, 0, a.g, LENGTH);
    for (size_t i = 0; i < LENGTH && round == 1; i++) a.g[i] += 200.0F;
    for (size_t i = 0; i < SAMPLE; i++) {
      size_t at = weir_sample_at(i, LENGTH / SAMPLE, &state);
      a.g[at] = round == 0 ? a.g[at] + 100.0F : 0.5F;
    }
    check(cuda, &a, WEIR_CODEC_DGC, &layout, 0.2, false, 0, "misleading");
    check(cuda, &a, WEIR_CODEC_DGC, &layout, 0.001, true, 4, "misleading");
  }
  free_arrays(a);
}

/* What is not finite counts as largest, on both sides. */
Test(parity_codecs, what_is_not_finite_is_kept) {
  OPENED weir_cuda *cuda = open_cuda(N, N);
  weir_rng rng = weir_rng_of(53);
  arrays a = make_arrays(N);
  size_t offset[TENSORS + 1];
  weir_layout layout = spread(N, offset);
  static const uint32_t codecs[] = {WEIR_CODEC_TOPK, WEIR_CODEC_LWTOPK, WEIR_CODEC_DGC,
                                    WEIR_CODEC_SIDCO, WEIR_CODEC_MSTOPK};
  for (size_t c = 0; c < sizeof codecs / sizeof codecs[0]; c++) {
    fill_shape(&rng, 0, a.g, N);
    for (size_t i = 0; i < 200; i++)
      a.g[weir_rng_below(&rng, N)] = i % 2 == 0 ? INFINITY : -INFINITY;
    check(cuda, &a, codecs[c], &layout, 0.01, false, 0, "infinities");
  }
  free_arrays(a);
}

Test(parity_codecs, errors_are_told_at_once) {
  OPENED weir_cuda *cuda = open_cuda(1000, 100);
  size_t offset[TENSORS + 1];
  size_t other[3] = {0, 400, 1000};
  size_t nothing[2] = {0, 0};
  weir_layout layout = spread(1000, offset);
  weir_layout empty = {1, nothing};
  weir_moments moments = {1, 1, 1};
  float x = 0.0F;
  device_buffer dm = put(cuda, &moments, sizeof moments, 0);
  must(weir_cuda_reserve_tensors(cuda, &layout));
  for (uint32_t c = 0; c <= WEIR_CODEC_COUNT; c++) {
    const weir_cuda_fed fed = {.e = &x};
    const weir_cuda_fed half = {.g = &x, .e = &x};
    const weir_cuda_fed nobody = {.moments = dm.data};
    const weir_codec *codec = weir_codec_find(c);
    size_t k = 1;
    if (codec == NULL || codec->encode == NULL) {
      cr_assert_eq(weir_cuda_encode(cuda, c, &x, &layout, 0.5, 0, NULL, 0, &k), WEIR_E_UNSUPPORTED);
      cr_assert_eq(weir_cuda_decode(cuda, c, NULL, 0, &layout, 0.5, &x, false), WEIR_E_UNSUPPORTED);
    }
    if (codec == NULL || (codec->select == NULL && codec->draw == NULL)) {
      cr_assert_eq(weir_cuda_select(cuda, c, &fed, &layout, 0.05, 0, NULL, NULL, 1000, &k),
                   WEIR_E_UNSUPPORTED);
      continue;
    }
    size_t kept = codec->kept(&layout, 0.05);
    cr_assert_eq(weir_cuda_select(cuda, c, &fed, &layout, 0.05, 0, NULL, NULL, kept - 1, &k),
                 WEIR_E_CAPACITY);
    cr_assert_eq(k, 0);
    cr_assert_eq(weir_cuda_select(cuda, c, &fed, &layout, 0.0, 0, NULL, NULL, 1000, &k),
                 WEIR_E_INVALID);
    cr_assert_eq(weir_cuda_select(cuda, c, &half, &layout, 0.05, 0, NULL, NULL, 1000, &k),
                 WEIR_E_INVALID);
    cr_assert_eq(weir_cuda_select(cuda, c, &fed, &layout, 0.5, 0, NULL, NULL, 1000, &k),
                 WEIR_E_STATE);
    if (c == WEIR_CODEC_LWTOPK || c == WEIR_CODEC_DGC) {
      weir_layout unknown = {2, other};
      cr_assert_eq(weir_cuda_select(cuda, c, &fed, &unknown, 0.05, 0, NULL, NULL, 1000, &k),
                   WEIR_E_STATE);
    }
    must(weir_cuda_select(cuda, c, &nobody, &empty, 0.05, 0, NULL, NULL, 0, &k));
    cr_assert_eq(k, 0);
    get(cuda, &moments, dm, sizeof moments);
    cr_assert(moments.sum == 0.0 && moments.sum_square == 0.0 && moments.nonfinite == 0);
  }
  weir_cuda_release(cuda, dm.block);
  must(weir_cuda_wait(cuda));
}

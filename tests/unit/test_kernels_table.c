/* The table of codecs: its rows, how many elements they keep, and what every selection refuses. */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/codec.h"

Test(kernels_table, ratio_times_size_is_rounded_as_documented) {
  static const struct {
    double cr;
    size_t n, k;
  } row[] = {{0.1, 10, 1},      {0.3, 10, 3},          {0.29, 100, 29},
             {0.57, 100, 57},   {0.7, 10, 7},          {0.001, 999, 1},
             {0.001, 1000, 1},  {0.001, 1999, 1},      {0.01, 12345, 123},
             {0.033, 1000, 33}, {0.999999, 1000, 999}, {1.0, 17, 17},
             {0.5, 1, 1},       {0.5, 0, 0},           {0.07, 4200000000U, 294000000}};
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
    const weir_layout layout = {1, (const size_t[]){0, row[i].n}};
    cr_expect_eq(weir_codecs[WEIR_CODEC_TOPK]->kept(&layout, row[i].cr), row[i].k, "%g of %zu",
                 row[i].cr, row[i].n);
  }
}

Test(kernels_table, refuses_what_it_cannot_do) {
  weir_codec_context *context = NULL;
  cr_assert_eq(weir_codec_context_create(&context), WEIR_OK);
  float e[4] = {1, 2, 3, 4};
  uint32_t index[4];
  size_t offset[2] = {0, 4};
  weir_layout layout = {1, offset};
  size_t k = 9;
  static const double bad[] = {0.0, -0.1, 1.5, NAN, INFINITY};
  for (uint32_t codec = WEIR_CODEC_LWTOPK; codec < WEIR_CODEC_COUNT; codec++) {
    if (weir_codecs[codec]->select == NULL) continue;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
      cr_expect_eq(weir_codecs[codec]->select(context, e, &layout, bad[i], index, 4, &k),
                   WEIR_E_INVALID);
      cr_expect_eq(k, 0);
    }
    offset[1] = (size_t)UINT32_MAX + 1;
    cr_expect_eq(weir_codecs[codec]->select(context, e, &layout, 1e-9, index, 4, &k),
                 WEIR_E_UNSUPPORTED);
    offset[1] = 4;
  }
  weir_codec_context_free(context);
  weir_codec_context_free(NULL);
}

Test(kernels_table, the_table_is_in_order) {
  for (uint32_t id = 0; id < WEIR_CODEC_COUNT; id++) {
    const weir_codec *codec = weir_codec_find(id);
    cr_assert_eq(codec->id, id);
    cr_expect_str_eq(codec->name, weir_codec_name(id));
    cr_expect_eq(codec->dense, id == WEIR_CODEC_NONE || id == WEIR_CODEC_BF16);
    cr_expect_eq(codec->dense + codec->low_rank + (codec->select != NULL) +
                     (codec->encode != NULL) + (codec->draw != NULL),
                 1);
    cr_expect_eq(codec->bound != NULL, codec->encode != NULL);
    cr_expect_eq(codec->decode != NULL, codec->encode != NULL);
    cr_expect_eq(codec->shared_indices,
                 id == WEIR_CODEC_STAR || id == WEIR_CODEC_VAR || id == WEIR_CODEC_RANDOMK);
    size_t offset[3] = {0, 3, 10};
    weir_layout layout = {2, offset};
    cr_expect_eq(codec->kept(&layout, 0.5),
                 codec->dense || codec->low_rank || codec->encode != NULL ? 10
                 : id == WEIR_CODEC_LWTOPK || id == WEIR_CODEC_DGC        ? 1 + 3
                                                                          : 5);
  }
  cr_expect_null(weir_codec_find(WEIR_CODEC_COUNT));
}

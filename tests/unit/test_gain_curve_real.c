/* The gain curve on gradients of the demo's trainer, error-fed as in a run, against the gain of
 * really compressing: within 1 % at 50 ratios, from all elements and from a sample as the engine
 * takes it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/codec.h"
#include "lab/demo.h"

#define RATIOS 50

typedef struct fed { /* the error-fed gradient of one rank that sends top-k at 0.01 */
  size_t n;
  float *e, *zero;
  uint32_t *index;
  weir_codec_context *context;
  weir_gain_curve *curve;
} fed;

/* From every element; and from every fifth beside the largest, as the engine does of a million. */
static void compare(fed *f, int step, size_t stride) {
  const weir_layout layout = {1, (const size_t[]){0, f->n}};
  const double whole = weir_sum_square(f->e, f->n);
  weir_gain_curve_fill(f->curve, f->e, f->n, stride);
  for (int i = 0; i < RATIOS; i++) {
    const double cr = 0.0003 * pow(1.0 / 0.0003, i / (RATIOS - 1.0));
    size_t k = 0;
    cr_assert_eq(weir_codecs[WEIR_CODEC_TOPK]->select(f->context, f->e, &layout, fmin(cr, 1.0),
                                                      f->index, f->n, &k),
                 WEIR_OK);
    double kept = 0.0;
    for (size_t j = 0; j < k; j++) kept += (double)f->e[f->index[j]] * (double)f->e[f->index[j]];
    const double gain = kept / whole;
    const double told = weir_gain_curve_gain(f->curve, fmin(cr, 1.0));
    cr_expect_leq(fabs(told - gain), 0.01 * gain, "step %d, stride %zu, cr %g: %g, measured %g",
                  step, stride, cr, told, gain);
  }
}

Test(gain_curve_real, within_one_percent_of_compressing) {
  weir_demo demo;
  const weir_status opened = weir_demo_open(&demo, 3, 0.1, 0.8);
  if (opened == WEIR_E_IO) cr_skip_test("no Fashion-MNIST here: %s", weir_last_error());
  cr_assert_eq(opened, WEIR_OK, "%s", weir_last_error());
  fed f = {.n = demo.elements};
  f.e = calloc(f.n, sizeof *f.e);
  f.index = calloc(f.n, sizeof *f.index);
  cr_assert(f.e && f.index);
  cr_assert_eq(weir_codec_context_create(&f.context), WEIR_OK);
  cr_assert_eq(weir_gain_curve_create(&f.curve), WEIR_OK);
  const size_t offset[2] = {0, f.n};
  for (int step = 0; step < 40; step++) {
    double loss = 0;
    size_t k = 0;
    weir_moments moments = {0};
    cr_assert_eq(weir_trainer_backward(demo.trainer, &loss), WEIR_OK);
    weir_ef_accumulate(demo.gradient, f.e, f.e, f.n, &moments);
    for (size_t stride = 1; step % 13 == 0 && stride <= 5; stride += 4) compare(&f, step, stride);
    cr_assert_eq(weir_trainer_update(demo.trainer, NULL), WEIR_OK);
    cr_assert_eq(weir_codecs[WEIR_CODEC_TOPK]->select(f.context, f.e, &(weir_layout){1, offset},
                                                      0.01, f.index, f.n, &k),
                 WEIR_OK);
    weir_scatter_zero(f.e, f.index, k);
  }
  weir_codec_context_free(f.context);
  weir_gain_curve_free(f.curve);
  weir_demo_close(&demo);
  free(f.e);
  free(f.index);
}

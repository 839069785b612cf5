/* The models: gradients against finite differences, numbers at their limits. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "lab/models/mlp.h"
#include "lab/models/model.h"

enum { LAYERS = 3, ROWS = 6 };
static const size_t width[LAYERS + 1] = {5, 9, 7, 4};
static const uint8_t label[ROWS] = {0, 3, 1, 2, 3, 0};

static weir_status backward(weir_mlp *mlp, size_t rows, const uint8_t *labels, double *loss) {
  const size_t classes = mlp->width[mlp->layers];
  *loss = 0;
  for (size_t r = 0; r < rows; r++)
    *loss += weir_cross_entropy(mlp->activation[mlp->layers] + r * classes, classes, labels[r],
                                1.0f / (float)rows) /
             (double)rows;
  return weir_mlp_backward(mlp, rows);
}

/* The mean loss in double, written from the definition, with one parameter moved. */
static double loss_in_double(const weir_mlp *mlp, const float *input, size_t moved, double by) {
  double total = 0;
  for (size_t r = 0; r < ROWS; r++) {
    double x[16], y[16];
    for (size_t i = 0; i < width[0]; i++) x[i] = (double)input[r * width[0] + i];
    for (size_t l = 0; l < LAYERS; l++) {
      for (size_t o = 0; o < width[l + 1]; o++) {
        const size_t b = mlp->bias[l] + o;
        y[o] = (double)mlp->parameter[b] + (b == moved ? by : 0);
        for (size_t i = 0; i < width[l]; i++) {
          const size_t w = mlp->weight[l] + o * width[l] + i;
          y[o] += ((double)mlp->parameter[w] + (w == moved ? by : 0)) * x[i];
        }
      }
      for (size_t o = 0; o < width[l + 1]; o++) x[o] = l + 1 < LAYERS ? fmax(y[o], 0) : y[o];
    }
    double sum = 0;
    for (size_t c = 0; c < width[LAYERS]; c++) sum += exp(x[c]);
    total += log(sum) - x[label[r]];
  }
  return total / ROWS;
}

Test(mlp, gradient_matches_finite_differences) {
  weir_mlp mlp;
  cr_assert_eq(weir_mlp_create(&mlp, LAYERS, width, ROWS), WEIR_OK);
  cr_assert_eq(mlp.parameters, 5 * 9 + 9 + 9 * 7 + 7 + 7 * 4 + 4);
  weir_mlp_init(&mlp, 11);
  weir_rng rng = weir_rng_of(12);
  float input[ROWS * 5];
  for (size_t i = 0; i < ROWS * 5; i++) input[i] = (float)weir_rng_normal(&rng);
  for (size_t l = 0; l < LAYERS; l++) /* biases start at zero; move them off it */
    for (size_t o = 0; o < width[l + 1]; o++)
      mlp.parameter[mlp.bias[l] + o] = (float)(0.1 * weir_rng_normal(&rng));
  memcpy(mlp.activation[0], input, sizeof input);
  double loss = 0;
  cr_assert_eq(weir_mlp_forward(&mlp, ROWS), WEIR_OK);
  cr_assert_eq(backward(&mlp, ROWS, label, &loss), WEIR_OK);
  cr_assert_float_eq(loss, loss_in_double(&mlp, input, SIZE_MAX, 0), 1e-6);
  double largest = 0;
  for (size_t p = 0; p < mlp.parameters; p++) {
    const double step = 1e-6;
    const double slope =
        (loss_in_double(&mlp, input, p, step) - loss_in_double(&mlp, input, p, -step)) / (2 * step);
    cr_assert_float_eq((double)mlp.gradient[p], slope, 2e-6, "parameter %zu: %g, expected %g", p,
                       (double)mlp.gradient[p], slope);
    largest = fmax(largest, fabs(slope));
  }
  cr_assert_gt(largest, 0.05); /* the comparison above was about something */
  weir_mlp_free(&mlp);
  weir_mlp_free(&mlp);
}

Test(mlp, tensors_lie_in_backward_order) {
  weir_mlp mlp;
  cr_assert_eq(weir_mlp_create(&mlp, LAYERS, width, ROWS), WEIR_OK);
  cr_assert_eq(mlp.weight[2], 0);
  cr_assert_eq(mlp.bias[2], 28);
  cr_assert_eq(mlp.weight[1], 32);
  cr_assert_eq(mlp.bias[1], 95);
  cr_assert_eq(mlp.weight[0], 102);
  cr_assert_eq(mlp.bias[0], 147);
  weir_mlp_free(&mlp);
}

/* He et al.: variance 2 / inputs; biases zero. */
Test(mlp, initial_weights) {
  const size_t wide[2] = {400, 300};
  weir_mlp mlp;
  cr_assert_eq(weir_mlp_create(&mlp, 1, wide, 1), WEIR_OK);
  weir_mlp_init(&mlp, 3);
  double sum = 0, square = 0;
  for (size_t i = 0; i < 120000; i++) {
    sum += (double)mlp.parameter[i];
    square += (double)mlp.parameter[i] * (double)mlp.parameter[i];
  }
  /* Five standard errors: sqrt(v/n) of the mean, v sqrt(2/n) of the variance. */
  cr_assert_float_eq(sum / 120000, 0, 5 * sqrt(0.005 / 120000));
  cr_assert_float_eq(square / 120000, 0.005, 5 * 0.005 * sqrt(2.0 / 120000));
  for (size_t i = 0; i < 300; i++) cr_assert_eq(mlp.parameter[120000 + i], 0.0f);
  weir_mlp_free(&mlp);
}

Test(mlp, large_logits_do_not_overflow) {
  const size_t narrow[2] = {1, 2};
  weir_mlp mlp;
  cr_assert_eq(weir_mlp_create(&mlp, 1, narrow, 1), WEIR_OK);
  mlp.parameter[0] = 500.0f; /* logits 500 and -500: softmax 1 and exp(-1000) */
  mlp.parameter[1] = -500.0f;
  mlp.activation[0][0] = 1.0f;
  const uint8_t wrong = 1;
  double loss = 0;
  cr_assert_eq(weir_mlp_forward(&mlp, 1), WEIR_OK);
  cr_assert_eq(backward(&mlp, 1, &wrong, &loss), WEIR_OK);
  cr_assert_float_eq(loss, 1000, 1e-3);
  cr_assert_eq(mlp.gradient[0], 1.0f);
  cr_assert_eq(mlp.gradient[1], -1.0f);
  weir_mlp_free(&mlp);
}

Test(mlp, nan_reaches_the_gradient) {
  const size_t two[3] = {2, 3, 2};
  weir_mlp mlp;
  cr_assert_eq(weir_mlp_create(&mlp, 2, two, 1), WEIR_OK);
  weir_mlp_init(&mlp, 1);
  mlp.activation[0][0] = NAN;
  const uint8_t any = 0;
  double loss = 0;
  cr_assert_eq(weir_mlp_forward(&mlp, 1), WEIR_OK);
  cr_assert_eq(backward(&mlp, 1, &any, &loss), WEIR_OK);
  cr_assert(isnan(loss));
  cr_assert(isnan(mlp.gradient[mlp.weight[1]]));
  weir_mlp_free(&mlp);
}

Test(mlp, bad_sizes) {
  weir_mlp mlp;
  const size_t with_zero[3] = {4, 0, 2}, huge[2] = {4, (size_t)1 << 40};
  cr_assert_eq(weir_mlp_create(&mlp, 0, width, 1), WEIR_E_INVALID);
  cr_assert_eq(weir_mlp_create(&mlp, WEIR_MLP_LAYERS_MAX + 1, width, 1), WEIR_E_INVALID);
  cr_assert_eq(weir_mlp_create(&mlp, 2, with_zero, 1), WEIR_E_INVALID);
  cr_assert_eq(weir_mlp_create(&mlp, 1, huge, 1), WEIR_E_INVALID);
  cr_assert_eq(weir_mlp_create(&mlp, LAYERS, width, 0), WEIR_E_INVALID);
  cr_assert_eq(weir_mlp_create(&mlp, LAYERS, width, 2), WEIR_OK);
  cr_assert_eq(weir_mlp_forward(&mlp, 3), WEIR_E_INVALID);
  cr_assert_eq(weir_mlp_forward(&mlp, 0), WEIR_E_INVALID);
  weir_mlp_free(&mlp);
}

static void product_of(weir_pace_of *pace, double least_s) {
  const float a[4] = {1, 2, 3, 4}, b[4] = {1, 0, 0, 1};
  float c[4];
  const weir_product product = {
      .m = 2, .n = 2, .k = 2, .a = {a, 2, false}, .b = {b, 2, false}, .c = c, .least_s = least_s};
  cr_assert_eq(weir_product_run(pace, &product), WEIR_OK);
  cr_assert_arr_eq(c, a, sizeof a);
}

/* Half a second behind a schedule of 0, 0.2 and 0.4 s: it is kept, and ends 0.1 s from now. */
Test(mlp, what_one_product_is_late_the_next_make_up) {
  weir_pace_of pace = {.late_s = 0.5, .virtual_time = true};
  const double begin = weir_thread_cpu_s();
  product_of(&pace, 0);
  cr_assert_geq(pace.late_s, 0.5);
  product_of(&pace, 0.2);
  cr_assert_geq(pace.late_s, 0.3);
  product_of(&pace, 0.4);
  const double took = weir_thread_cpu_s() - begin;
  cr_assert(took >= 0.0999 && took < 0.3, "%g s", took); /* and what a processor computes */
  /* On the clock as well; nothing is waited for, however busy the machine is. */
  pace = (weir_pace_of){.late_s = 5};
  product_of(&pace, 0);
  product_of(&pace, 2);
  cr_assert_geq(pace.late_s, 3);
}

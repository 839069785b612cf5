#include "lab/models/mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Rows start on a cache line. */
enum { ALIGN_FLOATS = 16 };
static size_t aligned(size_t floats) {
  return (floats + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static weir_status check(size_t layers, const size_t *width, size_t rows) {
  if (!layers || layers > WEIR_MLP_LAYERS_MAX)
    return weir_fail(WEIR_E_INVALID, "a perceptron of %zu layers, expected 1 to %d", layers,
                     WEIR_MLP_LAYERS_MAX);
  /* Far below what would overflow a product of three of them. */
  const size_t most = (size_t)1 << 16;
  if (!rows || rows > most)
    return weir_fail(WEIR_E_INVALID, "%zu rows at once, expected 1 to %zu", rows, most);
  for (size_t l = 0; l <= layers; l++)
    if (!width[l] || width[l] > most)
      return weir_fail(WEIR_E_INVALID, "a layer %zu wide, expected 1 to %zu", width[l], most);
  return WEIR_OK;
}

weir_status weir_mlp_create(weir_mlp *mlp, size_t layers, const size_t *width, size_t rows) {
  weir_status status = check(layers, width, rows);
  if (status) return status;
  *mlp = (weir_mlp){.layers = layers, .rows = rows};
  size_t widest = 0, activations = 0;
  for (size_t l = 0; l <= layers; l++) {
    mlp->width[l] = width[l];
    if (l < layers) mlp->slices[l] = 1;
    activations += aligned(rows * width[l]);
    if (width[l] > widest) widest = width[l];
  }
  for (size_t l = layers; l-- > 0;) {
    mlp->weight[l] = mlp->parameters;
    mlp->bias[l] = mlp->weight[l] + width[l] * width[l + 1];
    mlp->parameters = mlp->bias[l] + width[l + 1];
  }
  const size_t delta = aligned(rows * widest), parameters = aligned(mlp->parameters);
  const size_t bytes = (2 * parameters + activations + 2 * delta) * sizeof(float);
  float *at = mlp->memory = aligned_alloc(ALIGN_FLOATS * sizeof(float), bytes);
  if (!at) return weir_fail(WEIR_E_NOMEM, "no memory for a model of %zu bytes", bytes);
  memset(at, 0, bytes);
  mlp->parameter = at;
  mlp->gradient = at += parameters;
  at += parameters;
  for (size_t l = 0; l <= layers; l++) {
    mlp->activation[l] = at;
    at += aligned(rows * width[l]);
  }
  mlp->delta[0] = at;
  mlp->delta[1] = at + delta;
  return WEIR_OK;
}

void weir_mlp_free(weir_mlp *mlp) {
  if (!mlp) return;
  free(mlp->memory);
  *mlp = (weir_mlp){0};
}

void weir_mlp_slice(weir_mlp *mlp, size_t most) {
  for (size_t l = 0; l < mlp->layers; l++) {
    const size_t in = mlp->width[l], out = mlp->width[l + 1];
    const size_t rows = most / in ? most / in : 1; /* of a slice */
    mlp->slices[l] = most ? (out + rows - 1) / rows : 1;
  }
}

size_t weir_mlp_slice_row(const weir_mlp *mlp, size_t layer, size_t s) {
  return mlp->width[layer + 1] * s / mlp->slices[layer];
}

void weir_mlp_init(weir_mlp *mlp, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  memset(mlp->parameter, 0, mlp->parameters * sizeof(float));
  for (size_t l = 0; l < mlp->layers; l++) {
    const double deviation = sqrt(2.0 / (double)mlp->width[l]);
    float *w = mlp->parameter + mlp->weight[l];
    for (size_t i = 0; i < mlp->width[l] * mlp->width[l + 1]; i++)
      w[i] = (float)(deviation * weir_rng_normal(&rng));
  }
}

weir_status weir_mlp_forward(weir_mlp *mlp, size_t rows) {
  if (!rows || rows > mlp->rows)
    return weir_fail(WEIR_E_INVALID, "%zu rows, expected 1 to %zu", rows, mlp->rows);
  mlp->pace.late_s = 0;
  for (size_t l = 0; l < mlp->layers; l++) {
    const size_t in = mlp->width[l], out = mlp->width[l + 1];
    const float *bias = mlp->parameter + mlp->bias[l];
    float *y = mlp->activation[l + 1];
    weir_status status = weir_product_run(
        &mlp->pace, &(weir_product){.m = rows,
                                    .n = out,
                                    .k = in,
                                    .a = {mlp->activation[l], in, false},
                                    .b = {mlp->parameter + mlp->weight[l], in, true},
                                    .c = y,
                                    .least_s = mlp->pace.layer_s});
    if (status) return status;
    const int hidden = l + 1 < mlp->layers;
    for (size_t r = 0; r < rows; r++)
      for (size_t j = 0; j < out; j++) {
        const float value = y[r * out + j] + bias[j];
        /* Written so that NaN stays NaN: it must reach the gradient and be seen there. */
        y[r * out + j] = hidden && value < 0.0f ? 0.0f : value;
      }
  }
  return WEIR_OK;
}

static void sum_rows(const float *delta, size_t rows, size_t width, float *sum) {
  memset(sum, 0, width * sizeof *sum);
  for (size_t r = 0; r < rows; r++)
    for (size_t j = 0; j < width; j++) sum[j] += delta[r * width + j];
}

static weir_status tell(const weir_mlp *mlp, size_t tensor) {
  return mlp->ready ? mlp->ready(mlp->user, tensor) : WEIR_OK;
}

/* The gradient of a layer's weight, slice by slice; *told is the next tensor's number. */
static weir_status weight_gradient(weir_mlp *mlp, size_t l, size_t rows, const float *delta,
                                   size_t *told) {
  const size_t in = mlp->width[l], out = mlp->width[l + 1];
  weir_status status = WEIR_OK;
  for (size_t s = 0; s < mlp->slices[l] && !status; s++) {
    const size_t row = weir_mlp_slice_row(mlp, l, s);
    const size_t count = weir_mlp_slice_row(mlp, l, s + 1) - row;
    const weir_product slice = {.m = count,
                                .n = in,
                                .k = rows,
                                .a = {delta + row, out, true},
                                .b = {mlp->activation[l], in, false},
                                .c = mlp->gradient + mlp->weight[l] + row * in,
                                .least_s = 2 * mlp->pace.layer_s * (double)count / (double)out};
    status = weir_product_run(&mlp->pace, &slice);
    if (!status) status = tell(mlp, (*told)++);
  }
  return status;
}

weir_status weir_mlp_backward(weir_mlp *mlp, size_t rows) {
  const float *delta = mlp->activation[mlp->layers];
  size_t told = 0;
  for (size_t l = mlp->layers; l-- > 0;) {
    const size_t in = mlp->width[l], out = mlp->width[l + 1];
    const float *x = mlp->activation[l];
    weir_status status = weight_gradient(mlp, l, rows, delta, &told);
    if (status) return status;
    sum_rows(delta, rows, out, mlp->gradient + mlp->bias[l]);
    status = tell(mlp, told++);
    if (status) return status;
    if (!l) break;
    float *below = mlp->delta[l % 2];
    status = weir_product_run(&mlp->pace,
                              &(weir_product){.m = rows,
                                              .n = in,
                                              .k = out,
                                              .a = {delta, out, false},
                                              .b = {mlp->parameter + mlp->weight[l], in, false},
                                              .c = below});
    if (status) return status;
    for (size_t i = 0; i < rows * in; i++) below[i] = x[i] > 0.0f ? below[i] : 0.0f;
    delta = below;
  }
  return WEIR_OK;
}

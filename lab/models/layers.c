#include "lab/models/layers.h"

#include <math.h>
#include <string.h>

/* --- affine ----------------------------------------------------------------------------------- */

weir_affine weir_affine_add(weir_model *m, size_t in, size_t out, const char *name) {
  weir_affine a = {.in = in, .out = out};
  a.weight = weir_model_add(m, out, in, "%s.weight", name);
  a.bias = weir_model_add(m, 1, out, "%s.bias", name);
  return a;
}

weir_status weir_affine_forward(weir_model *m, const weir_affine *a, size_t rows, const float *x,
                                float *y) {
  const float *bias = m->parameter + a->bias;
  for (size_t r = 0; r < rows; r++) memcpy(y + r * a->out, bias, a->out * sizeof *y);
  return weir_product_run(&m->pace, &(weir_product){.m = rows,
                                                    .n = a->out,
                                                    .k = a->in,
                                                    .a = {x, a->in, false},
                                                    .b = {m->parameter + a->weight, a->in, true},
                                                    .c = y,
                                                    .beta = 1});
}

static void sum_rows(const float *restrict rows, size_t count, size_t width, float *restrict sum) {
  memset(sum, 0, width * sizeof *sum);
  for (size_t r = 0; r < count; r++)
    for (size_t j = 0; j < width; j++) sum[j] += rows[r * width + j];
}

weir_status weir_affine_backward(weir_model *m, const weir_affine *a, size_t rows, const float *x,
                                 const float *dy, float *dx) {
  weir_status status = weir_product_run(&m->pace, &(weir_product){.m = a->out,
                                                                  .n = a->in,
                                                                  .k = rows,
                                                                  .a = {dy, a->out, true},
                                                                  .b = {x, a->in, false},
                                                                  .c = m->gradient + a->weight});
  if (!status) status = weir_model_tell(m);
  if (status) return status;
  sum_rows(dy, rows, a->out, m->gradient + a->bias);
  status = weir_model_tell(m);
  if (status || !dx) return status;
  return weir_product_run(&m->pace, &(weir_product){.m = rows,
                                                    .n = a->in,
                                                    .k = a->out,
                                                    .a = {dy, a->out, false},
                                                    .b = {m->parameter + a->weight, a->in, false},
                                                    .c = dx});
}

/* --- norm ------------------------------------------------------------------------------------- */

weir_norm weir_norm_add(weir_model *m, size_t rows, size_t width, size_t channels,
                        const char *name) {
  weir_norm n = {.width = width, .channels = channels};
  n.weight = weir_model_add(m, 1, channels, "%s.weight", name);
  n.bias = weir_model_add(m, 1, channels, "%s.bias", name);
  n.hat = weir_model_floats(m, rows * width);
  n.inverse = weir_model_floats(m, rows);
  return n;
}

/* Four sums at a time: one after the other they would wait for each other. */
static float sum_of(const float *x, size_t count) {
  float part[4] = {0};
  size_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (size_t j = 0; j < 4; j++) part[j] += x[i + j];
  for (; i < count; i++) part[0] += x[i];
  return part[0] + part[1] + part[2] + part[3];
}

static float dot_of(const float *x, const float *y, size_t count) {
  float part[4] = {0};
  size_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (size_t j = 0; j < 4; j++) part[j] += x[i + j] * y[i + j];
  for (; i < count; i++) part[0] += x[i] * y[i];
  return part[0] + part[1] + part[2] + part[3];
}

static void normalise(const weir_norm *n, size_t row, const float *x) {
  const size_t width = n->width;
  float *hat = n->hat + row * width;
  const float mean = sum_of(x, width) / (float)width;
  for (size_t j = 0; j < width; j++) hat[j] = x[j] - mean;
  const float inverse = 1.0f / sqrtf(dot_of(hat, hat, width) / (float)width + 1e-5f);
  for (size_t j = 0; j < width; j++) hat[j] *= inverse;
  n->inverse[row] = inverse;
}

void weir_norm_forward(const weir_model *m, const weir_norm *n, size_t rows, const float *x,
                       float *y) {
  const float *weight = m->parameter + n->weight, *bias = m->parameter + n->bias;
  for (size_t r = 0; r < rows; r++) normalise(n, r, x + r * n->width);
  for (size_t i = 0; i < rows * n->width; i += n->channels)
    for (size_t j = 0; j < n->channels; j++) y[i + j] = n->hat[i + j] * weight[j] + bias[j];
}

static void norm_gradients(weir_model *m, const weir_norm *n, size_t rows, const float *dy) {
  float *restrict weight = m->gradient + n->weight, *restrict bias = m->gradient + n->bias;
  memset(weight, 0, n->channels * sizeof *weight);
  memset(bias, 0, n->channels * sizeof *bias);
  for (size_t i = 0; i < rows * n->width; i += n->channels)
    for (size_t j = 0; j < n->channels; j++) {
      weight[j] += dy[i + j] * n->hat[i + j];
      bias[j] += dy[i + j];
    }
}

/* What is left of g, the gradient of the normalised row, without its mean and its part along that
 * row. */
static void norm_row(const weir_norm *n, size_t row, const float *g, float *dx) {
  const float *hat = n->hat + row * n->width;
  const float mean = sum_of(g, n->width) / (float)n->width;
  const float along = dot_of(g, hat, n->width) / (float)n->width;
  for (size_t j = 0; j < n->width; j++) dx[j] += n->inverse[row] * (g[j] - mean - hat[j] * along);
}

weir_status weir_norm_backward(weir_model *m, const weir_norm *n, size_t rows, float *dy,
                               float *dx) {
  const float *weight = m->parameter + n->weight;
  norm_gradients(m, n, rows, dy);
  weir_status status = weir_model_tell(m);
  if (!status) status = weir_model_tell(m);
  if (status) return status;
  for (size_t i = 0; i < rows * n->width; i += n->channels)
    for (size_t j = 0; j < n->channels; j++) dy[i + j] *= weight[j];
  for (size_t r = 0; r < rows; r++) norm_row(n, r, dy + r * n->width, dx + r * n->width);
  return WEIR_OK;
}

/* --- ReLU and GELU ---------------------------------------------------------------------------- */

/* Written so that NaN stays NaN: it must reach the gradient and be seen there. */
void weir_relu(float *x, size_t count) {
  for (size_t i = 0; i < count; i++) x[i] = x[i] < 0.0f ? 0.0f : x[i];
}

void weir_relu_back(const float *x, float *gradient, size_t count) {
  for (size_t i = 0; i < count; i++) gradient[i] = x[i] > 0.0f ? gradient[i] : 0.0f;
}

void weir_gelu(float *x, float *slope, size_t count) {
  const float root = 0.79788456f, cube = 0.044715f; /* sqrt(2 / pi) */
  for (size_t i = 0; i < count; i++) {
    const float v = x[i], u = root * (v + cube * v * v * v);
    const float t = 1.0f - 2.0f / (expf(2.0f * u) + 1.0f); /* tanh u */
    slope[i] = 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * root * (1.0f + 3.0f * cube * v * v);
    x[i] = 0.5f * v * (1.0f + t);
  }
}

/* A model's loss and gradients against its definition in double, and small data to do it on. */
#ifndef WEIR_TESTS_MODEL_CHECK_H
#define WEIR_TESTS_MODEL_CHECK_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/models/model.h"

/* The offset of a tensor. */
static inline size_t tensor_at(const weir_model *m, const char *name) {
  for (size_t t = 0; t < m->count; t++)
    if (!strcmp(m->tensors[t].name, name)) return m->tensors[t].offset;
  cr_assert_fail("no tensor %s", name);
  return 0;
}

/* -log of the label's share in softmax. */
static inline double cross_entropy(const double *logit, size_t classes, size_t label) {
  double most = logit[0], sum = 0;
  for (size_t j = 1; j < classes; j++) most = fmax(most, logit[j]);
  for (size_t j = 0; j < classes; j++) sum += exp(logit[j] - most);
  return log(sum) + most - logit[label];
}

/* The mean loss of a batch by definition, from parameters p in double. */
typedef double (*definition)(const weir_model *m, const weir_batch *batch, const double *p);

/* The model's loss, and each stride-th element of its gradient, as the definition has them. */
static inline void check_gradient(weir_model *m, const weir_batch *batch, definition loss_of,
                                  size_t stride, double tolerance) {
  double *p = calloc(m->parameters, sizeof *p), loss = 0, largest = 0;
  cr_assert(p);
  cr_assert_eq(m->kind->forward(m, batch), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_model_backward(m, &loss), WEIR_OK, "%s", weir_last_error());
  for (size_t i = 0; i < m->parameters; i++) p[i] = (double)m->parameter[i];
  cr_assert_float_eq(loss, loss_of(m, batch, p), 1e-5);
  for (size_t i = 0; i < m->parameters; i += stride) {
    const double step = 1e-5, was = p[i];
    p[i] = was + step;
    const double above = loss_of(m, batch, p);
    p[i] = was - step;
    const double slope = (above - loss_of(m, batch, p)) / (2 * step);
    p[i] = was;
    cr_assert_float_eq((double)m->gradient[i], slope, tolerance, "parameter %zu: %g, expected %g",
                       i, (double)m->gradient[i], slope);
    largest = fmax(largest, fabs(slope));
  }
  cr_assert_gt(largest, 100 * tolerance, "the largest slope is %g", largest);
  free(p);
}

/* Moves every parameter off what it was initialised to. */
static inline void stir(weir_model *m, uint64_t seed, double deviation) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < m->parameters; i++)
    m->parameter[i] += (float)(deviation * weir_rng_normal(&rng));
}

/* A text in which each byte says much of the next. */
static inline weir_dataset small_text(size_t context, size_t windows) {
  weir_dataset data = {.name = "fortunes", .context = context, .train = windows, .test = windows};
  const size_t bytes = windows * context + 1;
  data.train_text = malloc(bytes);
  data.test_text = malloc(bytes);
  cr_assert(data.train_text && data.test_text);
  for (size_t i = 0; i < bytes; i++) {
    data.train_text[i] = (uint8_t)("the quick brown fox jumps over it. "[i % 35]);
    data.test_text[i] = (uint8_t)("over the quick fox it jumps, brown"[i % 34]);
  }
  return data;
}

#endif

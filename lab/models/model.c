#include "lab/models/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const weir_model_kind *const kinds[] = {&weir_model_mlp,         &weir_model_deep,
                                               &weir_model_cnn,         &weir_model_gpt,
                                               &weir_model_recommender, &weir_model_shaped};

const weir_model_kind *weir_model_find(const char *name) {
  for (size_t k = 0; name && k < G_N_ELEMENTS(kinds); k++)
    if (!strcmp(kinds[k]->name, name)) return kinds[k];
  return NULL;
}

const char *weir_model_names(void) { return "mlp, deep, cnn, gpt, recommender or shaped"; }

/* --- room ------------------------------------------------------------------------------------- */

size_t weir_model_add(weir_model *m, size_t rows, size_t columns, const char *format, ...) {
  m->tensors = g_renew(weir_model_tensor, m->tensors, m->count + 1);
  weir_model_tensor *tensor = &m->tensors[m->count++];
  *tensor = (weir_model_tensor){
      .offset = m->parameters, .numel = rows * columns, .rows = rows, .decays = rows > 1};
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(tensor->name, sizeof tensor->name, format, arguments);
  va_end(arguments);
  m->parameters += tensor->numel;
  return tensor->offset;
}

/* Not touched here: how much a model takes is asked before it is known whether there is so much,
 * and room that is taken and untouched costs none. */
float *weir_model_floats(weir_model *m, size_t count) {
  enum { LINE = 64 };
  const size_t bytes = count * sizeof(float);
  char *block = calloc(1, bytes + LINE);
  if (!block) {
    m->starved = true;
    return NULL;
  }
  g_ptr_array_add(m->blocks, block);
  m->bytes += bytes;
  return (float *)(void *)(block + LINE - (uintptr_t)block % LINE);
}

void weir_model_normal(float *to, size_t count, double deviation, weir_rng *rng) {
  for (size_t i = 0; i < count; i++) to[i] = (float)(deviation * weir_rng_normal(rng));
}

static weir_status check(const weir_model_config *c, const weir_dataset *data) {
  const weir_model_kind *kind = weir_model_find(c->name);
  if (!kind)
    return weir_fail(WEIR_E_INVALID, "model '%s' is unknown, expected %s", c->name ? c->name : "",
                     weir_model_names());
  if (!data->name || strcmp(kind->dataset, data->name))
    return weir_fail(WEIR_E_INVALID, "model %s learns %s, and the data set is %s", kind->name,
                     kind->dataset, data->name ? data->name : "none");
  if (c->slice && !kind->sliced)
    return weir_fail(WEIR_E_INVALID, "model %s has no slices", kind->name);
  return WEIR_OK;
}

weir_status weir_model_create(weir_model *m, const weir_model_config *config,
                              const weir_dataset *data) {
  *m = (weir_model){0};
  weir_status status = check(config, data);
  if (status) return status;
  m->kind = weir_model_find(config->name);
  m->data = data;
  m->blocks = g_ptr_array_new_with_free_func(free);
  status = m->kind->create(m, config);
  if (!status && !m->parameter) {
    m->parameter = weir_model_floats(m, m->parameters);
    m->gradient = weir_model_floats(m, m->parameters);
  }
  if (!status && m->starved)
    status = weir_fail(WEIR_E_NOMEM, "no memory for model %s; expected a smaller batch or model",
                       config->name);
  if (status) weir_model_free(m);
  return status;
}

void weir_model_free(weir_model *m) {
  if (!m->kind) return;
  if (m->kind->free) m->kind->free(m);
  g_ptr_array_unref(m->blocks);
  g_free(m->tensors);
  g_free(m->own);
  *m = (weir_model){0};
}

/* --- the loss --------------------------------------------------------------------------------- */

static bool likeliest(const float *logit, size_t classes, size_t label) {
  if (classes == 1) return (logit[0] > 0) == (label == 1);
  size_t best = 0;
  for (size_t j = 1; j < classes; j++)
    if (logit[j] > logit[best]) best = j;
  return best == label;
}

double weir_cross_entropy(float *logit, size_t classes, size_t label, float scale) {
  float most = logit[0];
  for (size_t j = 1; j < classes; j++)
    if (logit[j] > most) most = logit[j];
  const double answer = (double)logit[label] - (double)most;
  double sum = 0;
  for (size_t j = 0; j < classes; j++) {
    logit[j] = expf(logit[j] - most);
    sum += (double)logit[j];
  }
  const float over = (float)(1.0 / sum);
  for (size_t j = 0; j < classes; j++)
    logit[j] = (logit[j] * over - (j == label ? 1.0f : 0.0f)) * scale;
  return log(sum) - answer;
}

/* The same of a yes or no, which has one logit. */
static double logistic(float *logit, size_t label, float scale) {
  const double z = (double)*logit;
  *logit = (float)(1 / (1 + exp(-z)) - (double)label) * scale;
  return log1p(exp(-fabs(z))) + fmax(z, 0) - (label ? z : 0);
}

static double one_loss(weir_model *m, size_t answer, float scale) {
  float *logit = m->logits + answer * m->classes;
  return m->classes == 1 ? logistic(logit, m->label[answer], scale)
                         : weir_cross_entropy(logit, m->classes, m->label[answer], scale);
}

void weir_model_score(weir_model *m, weir_score *score) {
  for (size_t a = 0; a < m->outputs; a++) {
    score->right += likeliest(m->logits + a * m->classes, m->classes, m->label[a]);
    score->loss += one_loss(m, a, 1);
  }
  score->answers += m->outputs;
}

weir_status weir_model_tell(weir_model *m) {
  const size_t tensor = m->told++;
  return m->ready ? m->ready(m->user, tensor) : WEIR_OK;
}

weir_status weir_model_backward(weir_model *m, double *loss) {
  double total = 0;
  for (size_t a = 0; a < m->outputs; a++) total += one_loss(m, a, 1.0f / (float)m->outputs);
  m->told = 0;
  *loss = total / (double)m->outputs;
  return m->kind->backward(m);
}

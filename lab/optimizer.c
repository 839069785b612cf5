#include "lab/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* A step's constants, as the loops want them. */
typedef struct terms {
  float rate, mu, decay;
  float beta2, correct1, correct2; /* of moments that began at zero */
} terms;

struct weir_optimizer_kind {
  const char *name;
  int second; /* has second moments */
  void (*step)(weir_optimizer *optimizer, const weir_update *update, const terms *terms);
};

/* v = mu v + g + wd w; w = w - rate v */
static void descend(float *restrict w, float *restrict v, const float *restrict g, size_t n,
                    const terms *t) {
  const float rate = t->rate, mu = t->mu, wd = t->decay;
  for (size_t i = 0; i < n; i++) {
    v[i] = mu * v[i] + g[i] + wd * w[i];
    w[i] -= rate * v[i];
  }
}

static void sgd(weir_optimizer *o, const weir_update *u, const terms *t) {
  descend(u->weight, o->first + u->offset, u->gradient, u->count, t);
}

/* Of both moments the new value; m^ / (sqrt(v^) + 1e-8) + wd w in place of the i-th weight's step.
 */
static inline float adam(float *m, float *v, float g, float w, const terms *t) {
  *m = t->mu * *m + (1 - t->mu) * g;
  *v = t->beta2 * *v + (1 - t->beta2) * g * g;
  return *m * t->correct1 / (sqrtf(*v * t->correct2) + 1e-8f) + t->decay * w;
}

/* Loshchilov and Hutter 2019. */
static void adamw(weir_optimizer *o, const weir_update *u, const terms *terms_) {
  const terms t = *terms_;
  float *restrict m = o->first + u->offset, *restrict v = o->second + u->offset;
  float *restrict w = u->weight;
  const float *restrict g = u->gradient;
  for (size_t i = 0; i < u->count; i++) w[i] -= t.rate * adam(&m[i], &v[i], g[i], w[i], &t);
}

static double norm(const float *x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sqrt(sum);
}

/* You et al. 2017: v = mu v + local rate (g + wd w); w = w - v, the local rate being
 * rate |w| / (|g| + wd |w|) times the paper's 0.001, for a bias 0.001 rate. */
static void lars(weir_optimizer *o, const weir_update *u, const terms *t) {
  const double trust = 0.001, weight = u->matrix ? norm(u->weight, u->count) : 0;
  const double step = norm(u->gradient, u->count) + (double)t->decay * weight;
  const float rate =
      (float)((double)t->rate * trust * (weight > 0 && step > 0 ? weight / step : 1));
  float *restrict v = o->first + u->offset, *restrict w = u->weight;
  const float *restrict g = u->gradient;
  for (size_t i = 0; i < u->count; i++) {
    v[i] = t->mu * v[i] + rate * (g[i] + t->decay * w[i]);
    w[i] -= v[i];
  }
}

/* You et al. 2020: Adam's step, as long as the weights are times the rate. */
static void lamb(weir_optimizer *o, const weir_update *u, const terms *t) {
  float *restrict m = o->first + u->offset, *restrict v = o->second + u->offset;
  float *restrict w = u->weight;
  const float *restrict g = u->gradient;
  double weight = 0, step = 0;
  for (size_t i = 0; i < u->count; i++) {
    const double s = (double)adam(&m[i], &v[i], g[i], w[i], t);
    step += s * s;
    weight += (double)w[i] * (double)w[i];
  }
  const double trust = u->matrix && weight > 0 && step > 0 ? sqrt(weight / step) : 1;
  const float rate = (float)((double)t->rate * trust);
  for (size_t i = 0; i < u->count; i++)
    w[i] -= rate * (m[i] * t->correct1 / (sqrtf(v[i] * t->correct2) + 1e-8f) + t->decay * w[i]);
}

static const weir_optimizer_kind kinds[] = {
    {"sgd", 0, sgd}, {"adamw", 1, adamw}, {"lars", 0, lars}, {"lamb", 1, lamb}};

const weir_optimizer_kind *weir_optimizer_find(const char *name) {
  for (size_t k = 0; name && k < sizeof kinds / sizeof *kinds; k++)
    if (!strcmp(kinds[k].name, name)) return &kinds[k];
  return NULL;
}

static weir_status check(const weir_optimizer_config *c) {
  if (!weir_optimizer_find(c->name))
    return weir_fail(WEIR_E_INVALID, "optimizer '%s' is unknown, expected sgd, adamw, lars or lamb",
                     c->name);
  if (!(c->momentum >= 0 && c->momentum < 1))
    return weir_fail(WEIR_E_INVALID, "momentum %g, expected 0 <= momentum < 1", c->momentum);
  if (!(c->beta2 >= 0 && c->beta2 < 1))
    return weir_fail(WEIR_E_INVALID, "beta2 %g, expected 0 <= beta2 < 1", c->beta2);
  if (!isfinite(c->weight_decay) || c->weight_decay < 0)
    return weir_fail(WEIR_E_INVALID, "weight decay %g, expected 0 or more", c->weight_decay);
  return WEIR_OK;
}

weir_status weir_optimizer_create(weir_optimizer *o, const weir_optimizer_config *config,
                                  size_t parameters) {
  *o = (weir_optimizer){.config = *config, .parameters = parameters};
  if (!o->config.name) o->config.name = "sgd";
  weir_status status = check(&o->config);
  if (status) return status;
  o->kind = weir_optimizer_find(o->config.name);
  o->config.name = o->kind->name;
  o->first = calloc(parameters, sizeof *o->first);
  o->second = o->kind->second ? calloc(parameters, sizeof *o->second) : NULL;
  if (o->first && (o->second || !o->kind->second)) return WEIR_OK;
  weir_optimizer_free(o);
  return weir_fail(WEIR_E_NOMEM, "no memory for the moments of %zu parameters", parameters);
}

void weir_optimizer_free(weir_optimizer *o) {
  free(o->first);
  free(o->second);
  *o = (weir_optimizer){0};
}

void weir_optimizer_step(weir_optimizer *o, const weir_update *u) {
  const double next = (double)u->step + 1;
  const terms t = {.rate = (float)u->rate,
                   .mu = (float)o->config.momentum,
                   .decay = u->matrix ? (float)o->config.weight_decay : 0.0f,
                   .beta2 = (float)o->config.beta2,
                   .correct1 = (float)(1 / (1 - pow(o->config.momentum, next))),
                   .correct2 = (float)(1 / (1 - pow(o->config.beta2, next)))};
  o->kind->step(o, u, &t);
}

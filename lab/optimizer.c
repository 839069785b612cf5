#include "lab/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/adaptive.h"

#define TRUST 0.001  /* of LARS: as its paper has it */
#define EPSILON 1e-8 /* of Adam and LAMB */

/* A step's constants, as the loops want them. */
typedef struct terms {
  float rate; /* scaled */
  float mu, decay;
  weir_adam adam;
} terms;

typedef weir_status scale_fn(const weir_optimizer *optimizer, weir_session *session, uint64_t step,
                             const weir_scaled_tensor *tensors, size_t count, double *scales);

typedef weir_status move_fn(weir_optimizer *optimizer, weir_session *session, uint64_t step,
                            const weir_moved_tensor *tensors, size_t count);

struct weir_optimizer_kind {
  const char *name;
  int second;      /* has second moments */
  scale_fn *scale; /* of matrices' rates; NULL: there are none */
  double unscaled; /* the scale of the others */
  void (*step)(weir_optimizer *optimizer, const weir_update *update, const terms *terms);
  move_fn *move; /* all of it, divided; NULL: it cannot be */
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

static weir_moved moved(const weir_optimizer *o, const weir_update *u) {
  return (weir_moved){.weight = u->weight,
                      .gradient = u->gradient,
                      .first = o->first + u->offset,
                      .second = o->second ? o->second + u->offset : NULL,
                      .n = u->count};
}

/* Loshchilov and Hutter 2019.  LAMB's (You et al. 2020) is the same step at a scaled rate. */
static void adam(weir_optimizer *o, const weir_update *u, const terms *t) {
  const weir_moved m = moved(o, u);
  weir_adam_move(&m, &t->adam, t->rate);
}

static weir_lamb lamb_of(const weir_optimizer *o, uint64_t step) {
  return (weir_lamb){.struct_size = sizeof(weir_lamb),
                     .beta1 = o->config.momentum,
                     .beta2 = o->config.beta2,
                     .epsilon = EPSILON,
                     .weight_decay = o->config.weight_decay,
                     .step = step};
}

static weir_status scale_lamb(const weir_optimizer *o, weir_session *session, uint64_t step,
                              const weir_scaled_tensor *tensors, size_t count, double *scales) {
  const weir_lamb lamb = lamb_of(o, step);
  return weir_lamb_scales(session, &lamb, tensors, count, scales);
}

static weir_status move_lamb(weir_optimizer *o, weir_session *session, uint64_t step,
                             const weir_moved_tensor *tensors, size_t count) {
  const weir_lamb lamb = lamb_of(o, step);
  return weir_lamb_step(session, &lamb, tensors, count, &o->share);
}

/* You et al. 2017: v = mu v + scaled rate (g + wd w); w = w - v. */
static void lars(weir_optimizer *o, const weir_update *u, const terms *t) {
  const weir_moved m = moved(o, u);
  weir_lars_move(&m, t->mu, t->decay, t->rate);
}

static weir_lars lars_of(const weir_optimizer *o) {
  return (weir_lars){
      .struct_size = sizeof(weir_lars), .trust = TRUST, .weight_decay = o->config.weight_decay};
}

static weir_status scale_lars(const weir_optimizer *o, weir_session *session, uint64_t step,
                              const weir_scaled_tensor *tensors, size_t count, double *scales) {
  (void)step;
  const weir_lars lars = lars_of(o);
  return weir_lars_scales(session, &lars, tensors, count, scales);
}

static weir_status move_lars(weir_optimizer *o, weir_session *session, uint64_t step,
                             const weir_moved_tensor *tensors, size_t count) {
  (void)step;
  const weir_lars lars = lars_of(o);
  return weir_lars_step(session, &lars, o->config.momentum, tensors, count, &o->share);
}

static const weir_optimizer_kind kinds[] = {
    {"sgd", 0, NULL, 1, sgd, NULL},
    {"adamw", 1, NULL, 1, adam, NULL},
    {"lars", 0, scale_lars, TRUST, lars, move_lars},
    {"lamb", 1, scale_lamb, 1, adam, move_lamb},
};

const weir_optimizer_kind *weir_optimizer_find(const char *name) {
  for (size_t k = 0; name && k < sizeof kinds / sizeof *kinds; k++)
    if (!strcmp(kinds[k].name, name)) return &kinds[k];
  return NULL;
}

bool weir_optimizer_adapts(const char *name) {
  const weir_optimizer_kind *kind = weir_optimizer_find(name);
  return kind == NULL || kind->second || kind->scale != NULL;
}

bool weir_optimizer_divides(const char *name) {
  const weir_optimizer_kind *kind = weir_optimizer_find(name);
  return kind != NULL && kind->move != NULL;
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
  if (c->divided && !weir_optimizer_divides(c->name))
    return weir_fail(WEIR_E_INVALID, "the step of optimizer %s cannot be divided", c->name);
  return WEIR_OK;
}

/* Which moments this rank keeps: as many floats on every rank, for ranks that register other state
 * than the others' are refused. */
static weir_status share_moments(weir_optimizer *o, const size_t *numel, size_t tensors, int rank,
                                 int world_size) {
  for (size_t t = 0; t < tensors; t++) o->parameters += numel[t];
  o->moments = o->parameters;
  if (!o->config.divided) return WEIR_OK;
  o->share.struct_size = sizeof o->share;
  const weir_status status = weir_share_moments(numel, tensors, rank, world_size, &o->share);
  o->moments = o->share.room;
  return status;
}

weir_status weir_optimizer_create(weir_optimizer *o, const weir_optimizer_config *config,
                                  const size_t *numel, size_t tensors, int rank, int world_size) {
  *o = (weir_optimizer){.config = *config};
  if (!o->config.name) o->config.name = "sgd";
  weir_status status = check(&o->config);
  if (!status) status = share_moments(o, numel, tensors, rank, world_size);
  if (status) return status;
  o->kind = weir_optimizer_find(o->config.name);
  o->config.name = o->kind->name;
  o->first = o->share.first = calloc(o->moments + 1, sizeof *o->first);
  o->second = o->share.second = o->kind->second ? calloc(o->moments + 1, sizeof *o->second) : NULL;
  if (o->first && (o->second || !o->kind->second)) return WEIR_OK;
  weir_optimizer_free(o);
  return weir_fail(WEIR_E_NOMEM, "no memory for the moments of %zu parameters", o->parameters);
}

void weir_optimizer_free(weir_optimizer *o) {
  free(o->first);
  free(o->second);
  *o = (weir_optimizer){0};
}

static void step(weir_optimizer *o, const weir_update *u, double scale) {
  const double decay = u->matrix ? o->config.weight_decay : 0;
  const terms t = {
      .rate = (float)(u->rate * scale),
      .mu = (float)o->config.momentum,
      .decay = (float)decay,
      .adam = weir_adam_terms(o->config.momentum, o->config.beta2, EPSILON, decay, u->step)};
  o->kind->step(o, u, &t);
}

/* Of the matrices, in their order. */
static weir_status scale(const weir_optimizer *o, weir_session *session, const weir_update *updates,
                         size_t count, double *scales) {
  size_t matrices = 0;
  weir_scaled_tensor *tensors = malloc(count * sizeof *tensors);
  if (!tensors) return weir_fail(WEIR_E_NOMEM, "no memory to scale %zu tensors", count);
  for (size_t i = 0; i < count; i++) {
    const weir_update *u = &updates[i];
    if (u->matrix)
      tensors[matrices++] =
          (weir_scaled_tensor){u->count, u->weight, u->gradient, o->first + u->offset,
                               o->second ? o->second + u->offset : NULL};
  }
  const weir_status status = o->kind->scale(o, session, updates[0].step, tensors, matrices, scales);
  free(tensors);
  return status;
}

static weir_status move(weir_optimizer *o, weir_session *session, const weir_update *updates,
                        size_t count) {
  weir_moved_tensor *tensors = malloc((count + 1) * sizeof *tensors);
  if (!tensors) return weir_fail(WEIR_E_NOMEM, "no memory to move %zu tensors", count);
  for (size_t i = 0; i < count; i++) {
    const weir_update *u = &updates[i];
    tensors[i] = (weir_moved_tensor){.numel = u->count,
                                     .weight = u->weight,
                                     .gradient = u->gradient,
                                     .rate = u->matrix ? u->rate : u->rate * o->kind->unscaled,
                                     .plain = !u->matrix};
  }
  const weir_status status = o->kind->move(o, session, count ? updates[0].step : 0, tensors, count);
  free(tensors);
  return status;
}

weir_status weir_optimizer_update(weir_optimizer *o, weir_session *session,
                                  const weir_update *updates, size_t count) {
  if (o->config.divided) return move(o, session, updates, count);
  weir_status status = WEIR_OK;
  const double *next = NULL;
  double *scales = NULL;
  if (o->kind->scale && count) {
    next = scales = malloc(count * sizeof *scales);
    status = scales ? scale(o, session, updates, count, scales)
                    : weir_fail(WEIR_E_NOMEM, "no memory to scale %zu tensors", count);
  }
  for (size_t i = 0; i < count && !status; i++)
    step(o, &updates[i], updates[i].matrix && next ? *next++ : o->kind->unscaled);
  free(scales);
  return status;
}

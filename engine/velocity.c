/* Momentum correction with factor masking (kernels/decorate.h), for any codec: what is fed is the
 * velocity u = m u + g instead of the gradient.  The velocity of a step that fails is forgotten. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/state.h"
#include "kernels/decorate.h"

weir_status weir_velocity_create(weir_engine *engine) {
  const double momentum = engine->config.momentum;
  weir_velocity *velocity = &engine->velocity;
  if (!(momentum >= 0 && momentum < 1))
    return weir_fail(WEIR_E_INVALID, "momentum %g is not in [0, 1)", momentum);
  if (momentum == 0) return WEIR_OK;
  velocity->u = calloc(engine->n + 1, sizeof *velocity->u);
  velocity->next = calloc(engine->n + 1, sizeof *velocity->next);
  if (velocity->u == NULL || velocity->next == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for the momentum of %zu elements", engine->n);
  return WEIR_OK;
}

const float *weir_velocity_feed(weir_engine *engine, size_t at, const float *g, size_t n) {
  const weir_velocity *velocity = &engine->velocity;
  if (velocity->next == NULL) return g;
  weir_momentum_correct(g, velocity->u + at, velocity->next + at, n,
                        (float)engine->config.momentum);
  return velocity->next + at;
}

void weir_velocity_cut(const weir_group *group, size_t from, const uint32_t *index, size_t count) {
  const weir_velocity *velocity = &group->engine->velocity;
  if (velocity->next != NULL) weir_scatter_zero(velocity->next + group->at + from, index, count);
}

void weir_velocity_commit(weir_engine *engine) {
  weir_velocity *velocity = &engine->velocity;
  if (velocity->next == NULL) return;
  float *const held = velocity->u;
  velocity->u = velocity->next;
  velocity->next = held;
}

void weir_velocity_release(weir_velocity *velocity) {
  free(velocity->next);
  free(velocity->u);
}

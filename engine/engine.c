#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/state.h"

double weir_engine_clock(const weir_engine *engine) {
  return engine->config.virtual_network != NULL ? weir_thread_cpu_s() : weir_now_s();
}

void weir_engine_lap(weir_engine *engine, double *part) {
  const double now = weir_engine_clock(engine);
  *part += now - engine->mark;
  engine->mark = now;
}

weir_status weir_engine_break(weir_engine *engine, weir_status status) {
  engine->broken = status;
  (void)snprintf(engine->broken_text, sizeof engine->broken_text, "%s", weir_last_error());
  return status;
}

weir_status weir_engine_check(const weir_engine *engine) {
  if (engine->broken == WEIR_OK) return WEIR_OK;
  return weir_fail(engine->broken, "%s", engine->broken_text);
}

weir_status weir_engine_blame(weir_engine *engine, int culprit, weir_status status) {
  weir_transport *transport = engine->config.transport;
  if (transport != NULL && transport->ops->abort != NULL) transport->ops->abort(transport, culprit);
  return status;
}

static weir_status copy_layout(weir_engine *engine, const weir_layout *layout) {
  size_t *offset = malloc((layout->tensors + 1) * sizeof *offset);
  if (offset == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", layout->tensors);
  for (size_t t = 0; t <= layout->tensors; t++) offset[t] = layout->offset[t];
  engine->layout.tensors = layout->tensors;
  engine->layout.offset = offset;
  engine->n = offset[layout->tensors];
  return WEIR_OK;
}

/* Zeroed room for count things; never NULL for want of things. */
static void *zeroed(size_t count, size_t size) { return calloc(count > 0 ? count : 1, size); }

static weir_status allocate(weir_engine *engine) {
  const size_t n = engine->n, ranks = (size_t)engine->size;
  engine->submitted = zeroed(engine->layout.tensors, sizeof *engine->submitted);
  engine->residual = zeroed(n, sizeof(float));
  engine->fed = zeroed(n, sizeof(float));
  engine->spare = zeroed(n, sizeof(float));
  engine->block_bytes = zeroed(ranks, sizeof *engine->block_bytes);
  engine->notes = zeroed(ranks, sizeof *engine->notes);
  if (engine->submitted == NULL || engine->residual == NULL || engine->fed == NULL ||
      engine->spare == NULL || engine->block_bytes == NULL || engine->notes == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for a gradient of %zu elements", n);
  return WEIR_OK;
}

static weir_status check_layout(const weir_layout *layout) {
  if (layout->offset == NULL || layout->offset[0] != 0)
    return weir_fail(WEIR_E_INVALID, "a layout starts at offset 0");
  for (size_t t = 0; t < layout->tensors; t++)
    if (layout->offset[t + 1] < layout->offset[t])
      return weir_fail(WEIR_E_INVALID, "tensor %zu ends before it starts", t);
  if (layout->offset[layout->tensors] > UINT32_MAX)
    return weir_fail(WEIR_E_INVALID, "a gradient of %zu elements is longer than %u",
                     layout->offset[layout->tensors], UINT32_MAX);
  return WEIR_OK;
}

weir_status weir_engine_create(weir_engine **out, const weir_engine_config *config) {
  if (out == NULL || config == NULL || config->comm == NULL)
    return weir_fail(WEIR_E_INVALID, "an engine needs a place to go and a group");
  *out = NULL;
  weir_status status = check_layout(&config->layout);
  if (status == WEIR_OK) status = weir_plan_check(&config->first_plan);
  if (status != WEIR_OK) return status;
  weir_engine *engine = calloc(1, sizeof *engine);
  if (engine == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for an engine");
  engine->config = *config;
  engine->plan = config->first_plan;
  engine->rank = weir_comm_rank(config->comm);
  engine->size = weir_comm_size(config->comm);
  engine->residual_zero = true;
  engine->last_gain = 1;
  status = copy_layout(engine, &config->layout);
  if (status == WEIR_OK) status = allocate(engine);
  if (status == WEIR_OK) status = weir_codec_context_create(&engine->context);
  if (status == WEIR_OK && config->hooks.want_curve != NULL)
    status = weir_gain_curve_create(&engine->curve);
  if (status == WEIR_OK) status = weir_engine_reserve(engine, &engine->plan);
  if (status != WEIR_OK) {
    weir_engine_free(engine);
    return status;
  }
  *out = engine;
  return WEIR_OK;
}

void weir_engine_free(weir_engine *engine) {
  if (engine == NULL) return;
  weir_gain_curve_free(engine->curve);
  weir_codec_context_free(engine->context);
  weir_engine_release(engine);
  free(engine);
}

weir_status weir_engine_register_state(weir_engine *engine, void *data, size_t bytes) {
  if (data == NULL && bytes > 0) return weir_fail(WEIR_E_INVALID, "state of %zu bytes is NULL", bytes);
  if (engine->in_trial)
    return weir_fail(WEIR_E_STATE, "state is registered before the first step, not in a trial");
  if (bytes == 0) return WEIR_OK;
  weir_state *states = realloc(engine->states, (engine->state_count + 1) * sizeof *states);
  if (states == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to register state");
  engine->states = states;
  states[engine->state_count++] = (weir_state){data, bytes};
  return WEIR_OK;
}

weir_status weir_engine_register_hooks(weir_engine *engine, const weir_state_hooks *hooks) {
  if (hooks == NULL || hooks->bytes == NULL || hooks->save == NULL || hooks->load == NULL)
    return weir_fail(WEIR_E_INVALID, "state hooks need bytes, save and load");
  if (engine->in_trial)
    return weir_fail(WEIR_E_STATE, "hooks are registered before the first step, not in a trial");
  weir_state_hooks *all = realloc(engine->hooks, (engine->hook_count + 1) * sizeof *all);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to register hooks");
  engine->hooks = all;
  all[engine->hook_count++] = *hooks;
  return WEIR_OK;
}

void weir_engine_plan(const weir_engine *engine, weir_plan *plan) { *plan = engine->plan; }

uint64_t weir_engine_residual_digest(const weir_engine *engine) {
  return weir_hash(WEIR_HASH_INIT, engine->residual, engine->n * sizeof(float));
}

const float *weir_engine_residual(const weir_engine *engine) { return engine->residual; }

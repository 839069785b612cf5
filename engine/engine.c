#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/trace.h"
#include "engine/backend.h"
#include "engine/lowrank.h"

double weir_engine_clock(const weir_engine *engine) {
  return engine->config.virtual_network != NULL ? weir_thread_cpu_s() : weir_now_s();
}

static void lap(weir_bucket *bucket, double *part) {
  const double now = weir_engine_clock(bucket->engine);
  *part += now - bucket->stopwatch->mark;
  bucket->stopwatch->mark = now;
}

/* What a lab makes of the passes counts as theirs. */
static void tell_passed(const weir_bucket *bucket) {
  const weir_engine_hooks *hooks = &bucket->engine->config.hooks;
  const size_t elements = bucket->stopwatch->elements;
  bucket->stopwatch->elements = 0;
  if (hooks->passed != NULL && elements > 0)
    hooks->passed(hooks->user, bucket->stopwatch->mark, elements);
}

/* Within an exchange, what lies between the wire and the next lap is decoding. */
void weir_lap_compress(weir_bucket *bucket) {
  tell_passed(bucket);
  lap(bucket, &bucket->stopwatch->compress_s);
  if (bucket->trace == WEIR_TRACE_DECODE) {
    weir_trace_end();
    bucket->trace = WEIR_TRACE_WIRE;
  }
}

void weir_lap_comm(weir_bucket *bucket) {
  lap(bucket, &bucket->stopwatch->comm_s);
  if (bucket->trace == WEIR_TRACE_WIRE) {
    weir_trace_begin("decode", bucket->number);
    bucket->trace = WEIR_TRACE_DECODE;
  }
}

/* What this rank alone has failed in, the others are told of, who would wait for it; what the group
 * cannot run all find out alike. */
weir_status weir_engine_break(weir_engine *engine, weir_status status) {
  engine->broken = status;
  (void)snprintf(engine->broken_text, sizeof engine->broken_text, "%s", weir_last_error());
  const bool alone = status < WEIR_E_TIMEOUT && status != WEIR_E_UNSUPPORTED;
  const int rank = weir_comm_rank(engine->config.comm);
  return alone ? weir_engine_blame(engine, rank, status) : status;
}

bool weir_engine_ended(const weir_engine *engine) { return engine->broken != WEIR_OK; }

weir_status weir_engine_check(const weir_engine *engine) {
  if (engine->broken == WEIR_OK) return WEIR_OK;
  return weir_fail(engine->broken, "%s", engine->broken_text);
}

weir_status weir_engine_blame(weir_engine *engine, int culprit, weir_status status) {
  weir_transport *const transport = weir_comm_transport(engine->config.comm);
  if (transport->ops->abort != NULL) transport->ops->abort(transport, culprit);
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
  const size_t ranks = (size_t)engine->size;
  engine->submitted = zeroed(engine->layout.tensors, sizeof *engine->submitted);
  engine->types = zeroed(engine->layout.tensors, sizeof *engine->types); /* of zeros: fp32 */
  engine->profiler.gap =
      zeroed(engine->config.profile ? engine->layout.tensors : 0, sizeof *engine->profiler.gap);
  engine->table = zeroed(engine->layout.tensors, sizeof *engine->table);
  engine->headers = zeroed(ranks, sizeof *engine->headers);
  if (engine->submitted == NULL || engine->types == NULL || engine->table == NULL ||
      engine->profiler.gap == NULL || engine->headers == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", engine->layout.tensors);
  if (engine->config.types != NULL)
    memcpy(engine->types, engine->config.types, engine->layout.tensors * sizeof *engine->types);
  engine->config.types = NULL; /* copied */
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

static weir_status check_first(const weir_engine_config *config) {
  const weir_plan *plan = &config->first_plan;
  weir_status status = weir_plan_check(plan);
  if (status != WEIR_OK || plan->buckets == 0) return status;
  status = weir_buckets_check(config->first_buckets, plan->buckets, config->layout.tensors);
  if (status == WEIR_OK && weir_buckets_name(config->first_buckets, plan->buckets) != plan->layout)
    status =
        weir_fail(WEIR_E_INVALID, "the first plan names another table of buckets than its own");
  return status;
}

static weir_status adopt_first(weir_engine *engine) {
  const weir_plan *plan = &engine->config.first_plan;
  if (plan->buckets == 0) return weir_engine_adopt(engine, plan, NULL);
  memcpy(engine->table, engine->config.first_buckets, plan->buckets * sizeof *engine->table);
  engine->table_name = plan->layout;
  engine->table_count = plan->buckets;
  engine->config.first_buckets = NULL; /* borrowed for the creation only */
  return weir_engine_adopt(engine, plan, engine->table);
}

/* --- tables of buckets ------------------------------------------------------------------------ */

/* Rank 0's own table, from whoever proposed the plan. */
static weir_status ask_for_table(weir_engine *engine, const weir_plan *plan, size_t *count) {
  const weir_engine_hooks *hooks = &engine->config.hooks;
  if (hooks->buckets == NULL)
    return weir_fail(WEIR_E_INTERNAL, "a plan of %u buckets was proposed without its table",
                     plan->buckets);
  return hooks->buckets(hooks->user, plan->layout, engine->table, engine->layout.tensors, count);
}

static weir_status check_table(const weir_engine *engine, const weir_plan *plan, size_t bytes) {
  if (bytes != plan->buckets * sizeof *engine->table)
    return weir_fail(WEIR_E_PROTOCOL, "a table of %u buckets came as %zu bytes", plan->buckets,
                     bytes);
  if (weir_buckets_check(engine->table, plan->buckets, engine->layout.tensors) != WEIR_OK) {
    char why[256];
    (void)snprintf(why, sizeof why, "%s", weir_last_error());
    return weir_fail(WEIR_E_PROTOCOL, "rank 0 sent buckets that cannot be run: %s", why);
  }
  if (weir_buckets_name(engine->table, plan->buckets) != plan->layout)
    return weir_fail(WEIR_E_MISMATCH, "rank 0 sent another table of buckets than the plan names");
  return WEIR_OK;
}

/* All ranks hold the same table before, so all find alike whether they need another. */
weir_status weir_engine_fetch_table(weir_engine *engine, const weir_plan *plan) {
  static const char name[] = "weir table of buckets";
  if (plan->buckets == 0) return WEIR_OK;
  if (engine->table_name == plan->layout && engine->table_count == plan->buckets) return WEIR_OK;
  engine->table_name = 0;
  size_t count = 0, bytes = 0;
  weir_status status = WEIR_OK;
  if (engine->rank == 0) {
    status = ask_for_table(engine, plan, &count);
    bytes = count * sizeof *engine->table;
    if (status == WEIR_OK) status = check_table(engine, plan, bytes);
    if (status != WEIR_OK) /* the others wait for it already */
      return weir_engine_break(engine, weir_engine_blame(engine, 0, status));
  }
  weir_comm_step(engine->config.comm, weir_hash(weir_plan_digest(plan), name, sizeof name),
                 engine->exchanges);
  status = weir_broadcast(engine->config.comm, 0, engine->table,
                          engine->layout.tensors * sizeof *engine->table, &bytes);
  if (status == WEIR_OK) status = check_table(engine, plan, bytes);
  if (status != WEIR_OK) return status;
  engine->table_name = plan->layout;
  engine->table_count = plan->buckets;
  return WEIR_OK;
}

/* --- life ------------------------------------------------------------------------------------ */

weir_status weir_engine_create(weir_engine **out, const weir_engine_config *config) {
  if (out == NULL || config == NULL || config->comm == NULL)
    return weir_fail(WEIR_E_INVALID, "an engine needs a place to go and a group");
  *out = NULL;
  weir_status status = check_layout(&config->layout);
  if (status == WEIR_OK) status = check_first(config);
  if (status != WEIR_OK) return status;
  weir_engine *engine = calloc(1, sizeof *engine);
  if (engine == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for an engine");
  engine->config = *config;
  engine->config.rows = NULL; /* copied */
  engine->rank = weir_comm_rank(config->comm);
  engine->size = weir_comm_size(config->comm);
  engine->backend = config->device_ops != NULL ? &weir_device_backend : &weir_host_backend;
  engine->last_gain = 1;
  status = copy_layout(engine, &config->layout);
  if (status == WEIR_OK) status = allocate(engine);
  if (status == WEIR_OK) status = weir_warm_shape(engine, config->rows);
  if (status == WEIR_OK && !(config->momentum >= 0 && config->momentum < 1))
    status = weir_fail(WEIR_E_INVALID, "momentum %g is not in [0, 1)", config->momentum);
  if (status == WEIR_OK) status = engine->backend->open(engine);
  if (status == WEIR_OK) status = weir_codec_context_create(&engine->context);
  if (status == WEIR_OK && config->codec_threads > 1) {
    status = weir_pool_create(&engine->pool, config->codec_threads);
    if (status == WEIR_OK) weir_codec_context_use(engine->context, engine->pool);
  }
  if (status == WEIR_OK && config->hooks.want_curve != NULL)
    status = weir_gain_curve_create(&engine->curve);
  if (status == WEIR_OK) status = adopt_first(engine);
  if (status == WEIR_OK) status = weir_engine_fits(engine);
  if (status != WEIR_OK) {
    weir_engine_free(engine);
    return status;
  }
  *out = engine;
  return WEIR_OK;
}

void weir_engine_free(weir_engine *engine) {
  if (engine == NULL) return;
  weir_lanes_free(engine->lanes); /* before what they use */
  weir_gain_curve_free(engine->curve);
  weir_codec_context_free(engine->context);
  weir_pool_free(engine->pool);
  weir_engine_release(engine);
  free(engine);
}

weir_status weir_engine_register_state(weir_engine *engine, void *data, size_t bytes) {
  if (data == NULL && bytes > 0)
    return weir_fail(WEIR_E_INVALID, "state of %zu bytes is NULL", bytes);
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

size_t weir_engine_buckets(const weir_engine *engine, weir_plan_bucket *buckets, size_t capacity) {
  const size_t all = engine->set.count, count = all > 1 ? all : engine->plan.buckets;
  for (size_t k = 0; k < count && k < capacity; k++) {
    const weir_bucket *bucket = &engine->set.bucket[k];
    buckets[k] = (weir_plan_bucket){.end = (uint32_t)bucket->end, .place = bucket->place};
    weir_bucket_set_plan(&buckets[k], &bucket->plan);
  }
  return count;
}

const float *weir_engine_residual(const weir_engine *engine) {
  return engine->backend->residual(engine);
}

uint64_t weir_engine_residual_digest(const weir_engine *engine) {
  return weir_hash(WEIR_HASH_INIT, weir_engine_residual(engine), engine->n * sizeof(float));
}

/* The data way, in reading order:
 *
 *   step_begin   obey rank 0's directive: checkpoint, restore, switch plan, probe
 *   submit       borrow a tensor's gradient
 *   step_end     feed      e = g + r, with its moments
 *                note      this rank's telemetry
 *                exchange  the plan's composition (exchange_*.c): sum over ranks, next residual
 *                check     what all ranks' notes say
 *                publish   average into the submitted buffers
 *                commit    the residual
 *                conclude  counters, record, observer
 *
 * Nothing before commit changes the residual, so a failed step leaves it as it was. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "engine/state.h"

/* Elements that are still in the first cache when the next operation comes over them. */
#define BLOCK 4096

/* --- begin ---------------------------------------------------------------------------------- */

static weir_status obey(weir_engine *engine) {
  const weir_directive *directive = &engine->pending;
  const bool trial = directive->action == WEIR_ACTION_TRIAL;
  if (directive->action == WEIR_ACTION_PROBE && engine->config.hooks.probe != NULL)
    return engine->config.hooks.probe(engine->config.hooks.user);
  if (!trial && directive->action != WEIR_ACTION_SWITCH) return WEIR_OK;

  /* All memory first: a failure then has changed nothing, and the call can be repeated. */
  weir_status status = weir_engine_reserve(engine, &directive->plan);
  if (status == WEIR_OK && trial && !engine->in_trial) status = weir_checkpoint_prepare(engine);
  if (status != WEIR_OK) return status;
  if (engine->in_trial)
    weir_checkpoint_restore(engine);
  else if (trial)
    weir_checkpoint_take(engine);
  engine->in_trial = trial;
  engine->plan = directive->plan;
  return WEIR_OK;
}

weir_status weir_engine_step_begin(weir_engine *engine, weir_step_info *info) {
  weir_status status = weir_engine_check(engine);
  if (status != WEIR_OK) return status;
  if (engine->in_step)
    return weir_fail(WEIR_E_STATE, "the step has begun already; weir_step_end is due");
  engine->mark = weir_engine_clock(engine);
  engine->overhead_s = 0;
  status = obey(engine);
  if (status >= WEIR_E_TIMEOUT) return weir_engine_break(engine, status);
  if (status != WEIR_OK) return status;
  memset(&engine->pending, 0, sizeof engine->pending);
  memset(engine->submitted, 0, engine->layout.tensors * sizeof *engine->submitted);
  engine->in_step = true;
  weir_engine_lap(engine, &engine->overhead_s);
  engine->begun = engine->mark;
  if (info != NULL) {
    memset(info, 0, sizeof *info);
    info->step = engine->committed;
    info->trial = engine->in_trial;
    info->plan = engine->plan;
    info->overhead_s = engine->overhead_s;
    weir_telemetry_network(engine, &info->latency_s, &info->bandwidth_bytes_s);
  }
  return WEIR_OK;
}

/* --- submit --------------------------------------------------------------------------------- */

static size_t numel(const weir_engine *engine, size_t tensor) {
  return engine->layout.offset[tensor + 1] - engine->layout.offset[tensor];
}

weir_status weir_engine_submit(weir_engine *engine, uint32_t tensor, float *gradient) {
  weir_status status = weir_engine_check(engine);
  if (status != WEIR_OK) return status;
  if (!engine->in_step)
    return weir_fail(WEIR_E_STATE, "tensor %u comes outside of a step; weir_step_begin is due",
                     tensor);
  if (tensor >= engine->layout.tensors)
    return weir_fail(WEIR_E_INVALID, "tensor %u is not one of the %zu registered", tensor,
                     engine->layout.tensors);
  if (engine->submitted[tensor] != NULL)
    return weir_fail(WEIR_E_STATE, "tensor %u was handed in already in this step", tensor);
  static float nothing; /* stands for the buffer of an empty tensor; never written */
  if (gradient == NULL) {
    if (numel(engine, tensor) > 0)
      return weir_fail(WEIR_E_INVALID, "the gradient of tensor %u is NULL", tensor);
    gradient = &nothing;
  }
  engine->submitted[tensor] = gradient;
  return WEIR_OK;
}

static weir_status check_submitted(const weir_engine *engine) {
  if (!engine->in_step) return weir_fail(WEIR_E_STATE, "no step has begun");
  for (size_t t = 0; t < engine->layout.tensors; t++)
    if (engine->submitted[t] == NULL)
      return weir_fail(WEIR_E_STATE, "tensor %zu of %zu was not handed in", t,
                       engine->layout.tensors);
  return WEIR_OK;
}

/* --- end ------------------------------------------------------------------------------------ */

/* e = g where there is no residual: what the sum needs to know is whether e is finite. */
static void copy_with_square(const float *g, float *e, size_t count, weir_moments *moments) {
  for (size_t at = 0; at < count; at += BLOCK) {
    const size_t part = count - at < BLOCK ? count - at : BLOCK;
    memcpy(e + at, g + at, part * sizeof *e);
    moments->sum_square += weir_sum_square(e + at, part);
  }
}

/* e = g + r.  True when this rank's e is finite; else e is all zero: the rank takes part in the
 * exchange, so that nobody waits for it, and adds nothing. */
static bool feed(weir_engine *engine, weir_moments *moments) {
  const bool plain = engine->plan.codec == WEIR_CODEC_NONE && engine->residual_zero;
  memset(moments, 0, sizeof *moments);
  for (size_t t = 0; t < engine->layout.tensors; t++) {
    const size_t at = engine->layout.offset[t];
    if (plain)
      copy_with_square(engine->submitted[t], engine->fed + at, numel(engine, t), moments);
    else
      weir_ef_accumulate(engine->submitted[t], engine->residual + at, engine->fed + at,
                         numel(engine, t), moments);
  }
  if (moments->nonfinite == 0 && isfinite(moments->sum_square)) return true;
  memset(engine->fed, 0, engine->n * sizeof(float));
  memset(moments, 0, sizeof *moments);
  return false;
}

/* Average into the submitted buffers.  False when the sum overflowed, on all ranks alike. */
static bool publish(weir_engine *engine, const float *sum) {
  const float share = 1.0f / (float)engine->size;
  double square = 0;
  for (size_t t = 0; t < engine->layout.tensors; t++) {
    const float *from = sum + engine->layout.offset[t];
    float *to = engine->submitted[t];
    const size_t count = numel(engine, t);
    for (size_t at = 0; at < count; at += BLOCK) {
      const size_t part = count - at < BLOCK ? count - at : BLOCK;
      memcpy(to + at, from + at, part * sizeof *to);
      weir_scale(to + at, part, share);
      square += weir_sum_square(to + at, part);
    }
  }
  return isfinite(square);
}

static void publish_zero(weir_engine *engine) {
  for (size_t t = 0; t < engine->layout.tensors; t++)
    if (numel(engine, t) > 0)
      memset(engine->submitted[t], 0, numel(engine, t) * sizeof(float));
}

static void swap(float **a, float **b) {
  float *const held = *a;
  *a = *b;
  *b = held;
}

static void commit(weir_engine *engine, const float *next) {
  if (next == engine->fed)
    swap(&engine->residual, &engine->fed);
  else if (next == engine->spare)
    swap(&engine->residual, &engine->spare);
  else if (!engine->residual_zero)
    memset(engine->residual, 0, engine->n * sizeof(float));
  engine->residual_zero = next == NULL;
}

static weir_status exchange(weir_engine *engine, weir_passage *passage) {
  const weir_exchange *way = &weir_exchanges[engine->plan.collective];
  weir_notes notes = {engine->notes, sizeof *engine->notes};
  engine->bytes_before = engine->config.transport != NULL ? engine->config.transport->bytes_sent : 0;
  weir_comm_step(engine->config.comm, weir_plan_digest(&engine->plan), engine->exchanges);
  return way->run(engine, &weir_allreduces[way->allreduce], &notes, passage);
}

static void conclude(weir_engine *engine, const weir_passage *passage, bool counts,
                     weir_step_info *info) {
  const weir_engine_hooks *hooks = &engine->config.hooks;
  weir_step_record record;
  weir_telemetry_record(engine, passage, &record);
  if (info != NULL) *info = record.info;
  const double whole = passage->moments.sum_square;
  if (counts) engine->last_gain = whole > 0 ? fmin(passage->kept_square / whole, 1) : 1;
  engine->last_compress_s = engine->compress_s;
  engine->last_comm_s = engine->comm_s;
  engine->pending = engine->notes[0].directive;
  engine->exchanges++;
  engine->turn++;
  if (counts && !engine->in_trial) engine->committed++;
  if (hooks->observe != NULL) hooks->observe(hooks->user, engine->notes, engine->size, &record);
}

weir_status weir_engine_step_end(weir_engine *engine, weir_step_info *info) {
  weir_status status = weir_engine_check(engine);
  if (status == WEIR_OK) status = check_submitted(engine);
  if (status != WEIR_OK) return status;
  engine->mark = weir_engine_clock(engine);
  engine->compute_s = engine->mark - engine->begun;
  engine->compress_s = engine->comm_s = 0;
  engine->in_step = false;

  weir_passage passage = {0};
  const bool finite = feed(engine, &passage.moments);
  weir_telemetry_note(engine, &passage, !finite);
  bool lost = false;
  status = exchange(engine, &passage);
  /* All ranks hold the same notes and come to the same verdict: nobody need be told. */
  if (status == WEIR_OK) status = weir_telemetry_check(engine, &lost);
  if (status != WEIR_OK) return weir_engine_break(engine, status);

  if (!lost) lost = !publish(engine, passage.sum);
  if (lost)
    publish_zero(engine);
  else
    commit(engine, passage.next);
  weir_engine_lap(engine, &engine->compress_s);
  conclude(engine, &passage, !lost, info);
  if (!lost) return WEIR_OK;
  for (int r = 0; r < engine->size; r++)
    if (engine->notes[r].flags & WEIR_NOTE_NONFINITE)
      return weir_fail(WEIR_E_NONFINITE, "the gradient of rank %d holds NaN or Inf", r);
  return weir_fail(WEIR_E_NONFINITE, "the sum of the ranks' gradients is not finite");
}

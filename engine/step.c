/* The data way, in reading order:
 *
 *   step_begin   obey rank 0's directive: checkpoint, restore, switch plan, probe
 *   submit       borrow a tensor's gradient; when it completes a bucket, feed, compress, launch it
 *   step_end     feed      the last bucket: e = g + r, with its moments
 *                compress  select, encode or project; what is sent is taken off e
 *                drain     the buckets before it are through (lanes.c)
 *                header      this rank's telemetry
 *                exchange  the bucket's scheme (gather.c, shared.c, dense.c, lowrank.c, path.c)
 *                check     what all ranks' headers say
 *                publish   average into the submitted buffers
 *                commit    e becomes the residual; what else the next step starts from
 *                conclude  counters, record, observer
 *
 * Without buckets in the plan the last bucket is the whole gradient.  A step that is dropped, or
 * fails, leaves the residual as it was, because e is elsewhere (backend.h). */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "engine/average.h"
#include "engine/backend.h"
#include "engine/lowrank.h"
#include "kernels/half.h"

/* --- begin ---------------------------------------------------------------------------------- */

static weir_status obey(weir_engine *engine) {
  const weir_directive *directive = &engine->pending;
  const bool trial = directive->action == WEIR_ACTION_TRIAL;
  const bool thorough = directive->action == WEIR_ACTION_PROBE;
  if ((thorough || directive->action == WEIR_ACTION_SAMPLE) && engine->config.hooks.probe != NULL)
    return engine->config.hooks.probe(engine->config.hooks.user, thorough);
  const bool follow = directive->action == WEIR_ACTION_FOLLOW && engine->in_trial;
  if (!trial && !follow && directive->action != WEIR_ACTION_SWITCH) return WEIR_OK;
  /* Repeated by who had not heard yet that it has begun. */
  if (trial && engine->in_trial && directive->plan.id == engine->plan.id) return WEIR_OK;

  /* All memory first: a failure then has changed nothing, and the call can be repeated. */
  weir_status status = weir_engine_fetch_table(engine, &directive->plan);
  if (status == WEIR_OK && trial && !engine->in_trial) status = weir_checkpoint_prepare(engine);
  if (status != WEIR_OK) return status;
  weir_warm_age(engine);
  status = weir_engine_adopt(engine, &directive->plan,
                             directive->plan.buckets > 0 ? engine->table : NULL);
  if (status != WEIR_OK || follow) return status;
  if (engine->in_trial)
    weir_checkpoint_restore(engine);
  else if (trial)
    weir_checkpoint_take(engine);
  engine->in_trial = trial;
  return WEIR_OK;
}

static void reset_buckets(weir_engine *engine) {
  const weir_bucket_set *set = &engine->set;
  for (size_t k = 0; k < set->count; k++) {
    weir_bucket *bucket = &set->bucket[k];
    bucket->missing = bucket->end - bucket->first;
    bucket->ready = bucket->overflow = false;
    bucket->told = NULL;
    bucket->average = 0;
    memset(&bucket->times, 0, sizeof bucket->times);
  }
  engine->next = 0;
  engine->hidden_s = engine->exchange_s = 0;
  engine->stopwatch.compress_s = engine->stopwatch.comm_s = 0;
  engine->stopwatch.elements = 0;
  if (set->count > 1 && engine->lanes != NULL) weir_lanes_open(engine->lanes);
}

weir_status weir_engine_step_begin(weir_engine *engine, weir_step_info *info) {
  weir_status status = weir_engine_check(engine);
  if (status != WEIR_OK) return status;
  if (engine->in_step)
    return weir_fail(WEIR_E_STATE, "the step has begun already; weir_step_end is due");
  const double begin = weir_engine_clock(engine);
  status = obey(engine);
  if (status >= WEIR_E_TIMEOUT) return weir_engine_break(engine, status);
  if (status != WEIR_OK) return status;
  memset(&engine->pending, 0, sizeof engine->pending);
  memset(engine->submitted, 0, engine->layout.tensors * sizeof *engine->submitted);
  reset_buckets(engine);
  engine->in_step = true;
  engine->loss = NAN;
  engine->begun = weir_engine_clock(engine);
  engine->overhead_s = engine->begun - begin;
  if (engine->config.profile) weir_profiler_open(engine);
  if (info != NULL) {
    memset(info, 0, sizeof *info);
    info->step = engine->committed;
    info->trial = engine->in_trial;
    info->plan = engine->plan;
    info->overhead_s = engine->overhead_s;
    weir_engine_network(engine, info);
  }
  return WEIR_OK;
}

/* --- submit --------------------------------------------------------------------------------- */

static size_t numel(const weir_engine *engine, size_t tensor) {
  return engine->layout.offset[tensor + 1] - engine->layout.offset[tensor];
}

/* Before the step's first message: what all of its messages carry. */
static void open_exchange(weir_engine *engine) {
  const weir_engine_hooks *hooks = &engine->config.hooks;
  engine->bytes_before = weir_comm_transport(engine->config.comm)->bytes_sent;
  weir_comm_step(engine->config.comm, weir_plan_digest(&engine->plan), engine->exchanges);
  engine->counting = weir_telemetry_counts(engine);
  engine->curve_wanted = engine->curve != NULL && hooks->want_curve(hooks->user);
}

/* Whatever of a bucket the caller's thread does before its exchange. */
static void make_ready(weir_engine *engine, weir_bucket *bucket, bool here) {
  bucket->stopwatch = &engine->stopwatch;
  bucket->context = engine->context;
  bucket->one_thread = here;
  if (here || engine->curve_wanted) {
    weir_bucket_feed(bucket);
    engine->backend->show(bucket);
  }
  if (here) weir_bucket_compress(bucket);
}

/* In virtual time nothing goes on beside the caller; what a lane would do is done here, and the
 * record tells when it would have been done. */
static weir_status carry_here(weir_engine *engine, weir_bucket *bucket) {
  const weir_stopwatch before = engine->stopwatch;
  weir_status status = weir_bucket_exchange(bucket, NULL);
  if (status == WEIR_OK) status = weir_bucket_publish(bucket);
  if (status != WEIR_OK) return weir_engine_break(engine, status);
  weir_lap_compress(bucket);
  bucket->times.decode_s = engine->stopwatch.compress_s - before.compress_s;
  engine->hidden_s += engine->stopwatch.mark - before.mark;
  engine->stopwatch.compress_s = before.compress_s;
  engine->stopwatch.comm_s = before.comm_s;
  return WEIR_OK;
}

static weir_status launch(weir_engine *engine, weir_bucket *bucket) {
  engine->stopwatch.mark = weir_engine_clock(engine);
  if (bucket->number == 0) open_exchange(engine);
  const bool virtual_time = engine->lanes == NULL;
  const double before = engine->stopwatch.compress_s;
  make_ready(engine, bucket, virtual_time || bucket->place == WEIR_PLACE_CALLER);
  weir_lap_compress(bucket);
  bucket->times.compress_s = engine->stopwatch.compress_s - before;
  bucket->times.launched_s = engine->stopwatch.mark - engine->begun - engine->hidden_s;
  if (virtual_time) return carry_here(engine, bucket);
  weir_lanes_launch(engine->lanes, bucket);
  return WEIR_OK;
}

weir_status weir_engine_submit(weir_engine *engine, uint32_t tensor, void *gradient) {
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
  const size_t width = weir_type_bytes(engine->types[tensor]);
  if ((uintptr_t)gradient % width != 0)
    return weir_fail(WEIR_E_INVALID, "the gradient of tensor %u does not lie at a multiple of %zu",
                     tensor, width);
  if (numel(engine, tensor) > 0) status = engine->backend->check(engine, gradient);
  if (status != WEIR_OK) return status;
  if (engine->profiler.on) weir_profiler_came(engine, tensor);
  engine->submitted[tensor] = gradient;
  weir_bucket_set *set = &engine->set;
  set->bucket[set->of[tensor]].missing--;
  /* The last bucket is step_end's. */
  while (engine->next + 1 < set->count && set->bucket[engine->next].missing == 0 &&
         status == WEIR_OK)
    status = launch(engine, &set->bucket[engine->next++]);
  if (engine->profiler.on) weir_profiler_left(engine);
  return status;
}

weir_status weir_engine_report_loss(weir_engine *engine, double loss) {
  weir_status status = weir_engine_check(engine);
  if (status != WEIR_OK) return status;
  if (!engine->in_step)
    return weir_fail(WEIR_E_STATE, "a loss comes outside of a step; weir_step_begin is due");
  engine->loss = loss;
  return WEIR_OK;
}

bool weir_engine_exchanging(const weir_engine *engine) {
  return engine->in_step && engine->next > 0;
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

/* The last bucket's exchange, which carries the headers, after those of all others. */
static weir_status finish_exchange(weir_engine *engine, bool *lost) {
  weir_bucket *last = &engine->set.bucket[engine->set.count - 1];
  weir_headers headers = {engine->headers, sizeof *engine->headers};
  double sum_square = 0;
  bool finite = true;
  weir_status status = WEIR_OK;
  const double compressed_s = engine->stopwatch.compress_s;
  if (engine->set.count == 1) open_exchange(engine);
  make_ready(engine, last, true);
  if (engine->set.count > 1) {
    weir_lap_compress(last);
    last->times.launched_s = engine->stopwatch.mark - engine->begun - engine->hidden_s;
    if (engine->lanes != NULL) status = weir_lanes_drain(engine->lanes, &engine->exchange_s);
    weir_lap_comm(last);
    if (status != WEIR_OK) return status;
  }
  status = engine->backend->header(engine);
  if (status != WEIR_OK) return status;
  for (size_t k = 0; k < engine->set.count; k++) {
    sum_square += engine->set.bucket[k].passage.moments.sum_square;
    finite = finite && engine->set.bucket[k].finite;
  }
  weir_telemetry_tell(engine, sum_square, !finite);
  weir_lap_compress(last);
  const double before = engine->stopwatch.comm_s;
  engine->prepared_s = engine->stopwatch.compress_s;
  last->times.compress_s = engine->prepared_s - compressed_s;
  last->times.started_s = engine->stopwatch.mark - engine->begun - engine->hidden_s;
  status = weir_bucket_exchange(last, &headers);
  last->times.exchange_s = engine->stopwatch.comm_s - before;
  engine->exchange_s += last->times.exchange_s;
  /* All ranks hold the same headers and come to the same verdict: nobody need be told. */
  return status == WEIR_OK ? weir_telemetry_check(engine, lost) : status;
}

static void conclude(weir_engine *engine, bool counts, weir_step_info *info) {
  const weir_engine_hooks *hooks = &engine->config.hooks;
  weir_step_record record;
  weir_telemetry_record(engine, &record);
  if (engine->profiler.on && counts) weir_profiler_close(engine);
  if (info != NULL) *info = record.info;
  double whole = 0, kept = 0;
  for (size_t k = 0; k < engine->set.count; k++) {
    whole += engine->set.bucket[k].passage.moments.sum_square;
    kept += engine->set.bucket[k].passage.kept_square;
  }
  if (counts) engine->last_gain = whole > 0 ? fmin(kept / whole, 1) : 1;
  engine->last_compress_s = engine->compress_s;
  engine->last_comm_s = engine->exchange_s;
  engine->last_wait_s = engine->comm_s;
  weir_average_keep(engine, !counts);
  engine->pending = engine->headers[0].directive;
  engine->exchanges++;
  if (counts) engine->turn++; /* a dropped step is nobody's: whose turn it was has it again */
  if (counts && !engine->in_trial) engine->committed++;
  if (hooks->observe != NULL) hooks->observe(hooks->user, engine->headers, engine->size, &record);
}

static weir_status tell_lost(const weir_engine *engine) {
  for (int r = 0; r < engine->size; r++)
    if (engine->headers[r].flags & WEIR_HEADER_NONFINITE)
      return weir_fail(WEIR_E_NONFINITE, "the gradient of rank %d holds NaN or Inf", r);
  return weir_fail(
      WEIR_E_NONFINITE,
      "the sum of the ranks' gradients is not finite, or their average would not be in "
      "the type of a tensor");
}

/* Every bucket's next residual becomes the residual. */
static void commit(weir_engine *engine) {
  for (size_t k = 0; k < engine->set.count; k++) weir_warm_commit(&engine->set.bucket[k]);
  engine->backend->commit(engine);
  if (engine->backend->follow != NULL) engine->backend->follow(engine);
}

weir_status weir_engine_step_end(weir_engine *engine, weir_step_info *info) {
  weir_status status = weir_engine_check(engine);
  if (status == WEIR_OK) status = check_submitted(engine);
  if (status != WEIR_OK) return status;
  weir_stopwatch *stopwatch = &engine->stopwatch;
  stopwatch->mark = weir_engine_clock(engine);
  engine->compute_s = stopwatch->mark - engine->begun - engine->hidden_s - stopwatch->compress_s;
  engine->in_step = false;

  bool lost = false;
  weir_bucket *last = &engine->set.bucket[engine->set.count - 1];
  status = finish_exchange(engine, &lost);
  if (status == WEIR_OK && !lost) status = weir_bucket_publish(last);
  if (status == WEIR_OK) status = engine->backend->finish(engine);
  if (status != WEIR_OK) return weir_engine_break(engine, status);
  for (size_t k = 0; k < engine->set.count; k++) lost = lost || engine->set.bucket[k].overflow;
  if (!lost)
    commit(engine);
  else
    status = engine->backend->zero(engine);
  if (status != WEIR_OK) return weir_engine_break(engine, status);
  weir_lap_compress(last);
  last->times.decode_s = stopwatch->compress_s - engine->prepared_s;
  engine->compress_s = stopwatch->compress_s;
  engine->comm_s = stopwatch->comm_s;
  conclude(engine, !lost, info);
  return lost ? tell_lost(engine) : WEIR_OK;
}

/* What a step tells: this rank's header, what all ranks' headers say, and the record of the
 * step. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "engine/average.h"
#include "engine/backend.h"
#include "engine/headers.h"
#include "engine/memory.h"

/* Headers travel as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are little-endian");

void weir_telemetry_sample(weir_engine *engine, const weir_bucket *bucket) {
  const size_t stride = weir_gain_curve_stride(engine->n);
  if (bucket->number == 0)
    weir_gain_curve_fill(engine->curve, bucket->fed, bucket->n, stride);
  else
    weir_gain_curve_add(engine->curve, bucket->fed, bucket->n, stride);
}

/* What is dense is counted now and then only, in the same steps on all ranks. */
bool weir_telemetry_counts(const weir_engine *engine) {
  static const double dense = 0.5;
  static const uint64_t spacing = 16;
  return engine->host.counts && (engine->most_nonzero <= dense || engine->exchanges % spacing == 0);
}

static void hear_nonzero(weir_engine *engine) {
  double most = 0;
  for (int r = 0; r < engine->size; r++) {
    /* No fmax: gcc 12 for aarch64 ends with an internal error where it vectorizes one here. */
    const double told = (double)engine->headers[r].nonzero;
    if (told > most) most = told;
  }
  if (most > 0) engine->most_nonzero = most;
}

/* A gradient without a nonzero element counts as having one, as 0 is not counted. */
static void tell_nonzero(const weir_engine *engine, weir_header *header) {
  const size_t planned = engine->layout.offset[engine->layout.tensors - engine->config.full];
  size_t nonzero = 0, runs = 0;
  for (size_t k = 0; k < engine->set.count; k++) {
    nonzero += engine->set.bucket[k].passage.nonzero;
    runs += engine->set.bucket[k].passage.runs;
  }
  if (planned == 0) return;
  header->nonzero = (float)((double)(nonzero > 0 ? nonzero : 1) / (double)planned);
  header->runs = (float)((double)runs / (double)planned);
}

void weir_telemetry_tell(weir_engine *engine, double sum_square, bool nonfinite) {
  const weir_engine_hooks *hooks = &engine->config.hooks;
  weir_header *header = &engine->headers[engine->rank];
  memset(header, 0, sizeof *header);
  header->step = engine->exchanges;
  header->compute_s = engine->compute_s;
  header->compress_s = engine->last_compress_s;
  header->comm_s = engine->last_comm_s;
  header->wait_s = engine->last_wait_s;
  header->gain = engine->last_gain;
  header->sum_square = sum_square;
  header->loss = engine->loss;
  for (int i = 0; i < WEIR_CURVE_POINTS; i++)
    header->curve[i] = engine->curve_wanted && !nonfinite
                           ? weir_gain_curve_gain(engine->curve, weir_curve_cr[i])
                           : -1;
  if (engine->counting && !nonfinite) tell_nonzero(engine, header);
  weir_average_tell(engine, header);
  if (hooks->local != NULL) hooks->local(hooks->user, header);
  if (nonfinite) header->flags |= WEIR_HEADER_NONFINITE;
  if (engine->rank == 0 && hooks->propose != NULL) hooks->propose(hooks->user, &header->directive);
}

weir_status weir_telemetry_check(weir_engine *engine, bool *nonfinite) {
  *nonfinite = false;
  for (int r = 0; r < engine->size; r++) {
    const weir_header *header = &engine->headers[r];
    if (header->step != engine->exchanges)
      return weir_fail(WEIR_E_MISMATCH, "rank %d is at exchange %llu, this rank at %llu", r,
                       (unsigned long long)header->step, (unsigned long long)engine->exchanges);
    if (header->flags & WEIR_HEADER_NONFINITE) *nonfinite = true;
  }
  hear_nonzero(engine);
  weir_status status = weir_average_check(engine);
  if (status != WEIR_OK) return status;
  const weir_directive *directive = &engine->headers[0].directive;
  if (directive->action > WEIR_ACTION_FOLLOW)
    return weir_fail(WEIR_E_PROTOCOL, "rank 0 asks for action %u, which is unknown",
                     directive->action);
  if (weir_action_plans(directive->action)) {
    status = weir_plan_check(&directive->plan);
    if (status == WEIR_OK && directive->plan.buckets > engine->layout.tensors)
      status = weir_fail(WEIR_E_INVALID, "%u buckets of %zu tensors", directive->plan.buckets,
                         engine->layout.tensors);
    if (status != WEIR_OK) {
      char why[256];
      strncpy(why, weir_last_error(), sizeof why - 1);
      why[sizeof why - 1] = 0;
      return weir_fail(WEIR_E_PROTOCOL, "rank 0 asks for a plan that cannot be run: %s", why);
    }
  }
  return WEIR_OK;
}

/* Median of a value over the ranks that know it: the mean of the middle two for an even number. */
static double median(const weir_engine *engine, weir_header_value *value) {
  const weir_header *headers = engine->headers;
  const int known = weir_headers_knowing(headers, engine->size, value);
  if (known == 0) return 0;
  const int low = weir_headers_nth(headers, engine->size, value, (known - 1) / 2);
  const int high = weir_headers_nth(headers, engine->size, value, known / 2);
  return (value(&headers[low]) + value(&headers[high])) / 2;
}

void weir_engine_network(const weir_engine *engine, weir_step_info *info) {
  info->latency_s = median(engine, weir_header_latency);
  info->bandwidth_bytes_s = median(engine, weir_header_bandwidth);
  const double goodput = median(engine, weir_header_goodput);
  info->goodput_bytes_s =
      goodput > 0 ? fmin(goodput, info->bandwidth_bytes_s) : info->bandwidth_bytes_s;
}

bool weir_telemetry_link(const weir_engine *engine, weir_link *link) {
  weir_step_info now = {0};
  weir_engine_network(engine, &now);
  if (now.latency_s <= 0 || now.goodput_bytes_s <= 0) return false;
  *link = (weir_link){.alpha = now.latency_s, .beta = 1 / now.goodput_bytes_s};
  return true;
}

static double mean_gain(const weir_engine *engine) {
  double sum = 0;
  for (int r = 0; r < engine->size; r++) {
    const double gain = engine->headers[r].gain;
    sum += isfinite(gain) ? fmin(fmax(gain, 0), 1) : 0;
  }
  return sum / engine->size;
}

/* What a bucket's exchange is expected to cost, its codes as coding has made them.  A first step of
 * bilateral's sends as much in two sums. */
static weir_cost_terms expected_terms(const weir_bucket *bucket) {
  weir_cost_terms terms = bucket->terms;
  if (bucket->thin && bucket->codec->at_once && !bucket->at_once) terms.alpha_terms *= 2;
  const weir_shortened *shortened = &bucket->passage.shortened;
  if (shortened->whole > 0) weir_cost_scale(&terms, shortened->sent / shortened->whole);
  return terms;
}

/* What it cost: with the bytes it really sent.  What has been gathered is told as coded; but for
 * what stays inside of machines, where whole lengths are told. */
static weir_cost_terms executed_terms(const weir_bucket *bucket) {
  const bool gathered = bucket->passage.gathered > 0 && bucket->due > 0;
  weir_cost_terms terms =
      gathered && bucket->column == NULL ? bucket->terms : expected_terms(bucket);
  if (gathered)
    weir_cost_scale(&terms, bucket->passage.gathered / bucket->engine->size / bucket->due);
  terms.byte_terms = fmax(terms.byte_terms + bucket->passage.extra_bytes, 0);
  return terms;
}

/* Seconds that communication goes on once the last bucket is compressed, the buckets' exchanges
 * following one another: the recurrence of planner/fusion.h ("Cupcake", equations 1-3) with the
 * times at which this step's buckets were launched. */
static double exposed(const weir_engine *engine, const weir_link *link) {
  const weir_bucket_set *set = &engine->set;
  double end = 0;
  for (size_t k = 0; k < set->count; k++) {
    const weir_cost_terms terms = expected_terms(&set->bucket[k]);
    end = fmax(set->bucket[k].times.launched_s, end) + weir_cost_links(&terms, link);
  }
  return end - set->bucket[set->count - 1].times.launched_s;
}

/* Seconds that a bucket's exchange takes on the virtual network, with the bytes it really sent, if
 * it begins so long after the step has. */
static double virtual_seconds(const weir_engine *engine, const weir_bucket *bucket,
                              const weir_link *link, double begins_s) {
  const weir_engine_config *config = &engine->config;
  const weir_cost_terms terms = executed_terms(bucket);
  return config->virtual_exchange == NULL
             ? weir_cost_links(&terms, link)
             : fmax(0, config->virtual_exchange(config->virtual_user, begins_s, terms.alpha_terms,
                                                terms.byte_terms));
}

/* The same recurrence with what the exchanges took, and what it took to decode all but the last. */
static void set_virtual_times(weir_engine *engine) {
  const weir_bucket_set *set = &engine->set;
  const double compressed_s = engine->compute_s + engine->compress_s,
               launched_s = set->bucket[set->count - 1].times.launched_s;
  double alpha = 0, bandwidth = 0, end = 0;
  engine->config.virtual_network(engine->config.virtual_user, engine->committed, &alpha,
                                 &bandwidth);
  const weir_link link = {.alpha = alpha, .beta = bandwidth > 0 ? 1 / bandwidth : 0};
  engine->exchange_s = 0;
  for (size_t k = 0; k < set->count; k++) {
    weir_bucket_times *times = &set->bucket[k].times;
    const double begin = fmax(times->launched_s, end);
    times->exchange_s =
        virtual_seconds(engine, &set->bucket[k], &link, fmax(0, compressed_s + begin - launched_s));
    engine->exchange_s += times->exchange_s;
    end = begin + times->exchange_s + (k + 1 < set->count ? times->decode_s : 0);
  }
  engine->comm_s = end - launched_s;
}

/* Averages after which what elements usually are is known, where it was not followed from the first
 * step on: twice the 16 of which it is the mean. */
static const uint64_t long_enough = 32;

void weir_telemetry_record(weir_engine *engine, weir_step_record *record) {
  weir_shortened shortened = {0};
  memset(record, 0, sizeof *record);
  for (size_t k = 0; k < engine->set.count; k++) {
    const weir_cost_terms terms = executed_terms(&engine->set.bucket[k]);
    shortened.whole += engine->set.bucket[k].passage.shortened.whole;
    shortened.sent += engine->set.bucket[k].passage.shortened.sent;
    record->terms.alpha_terms += terms.alpha_terms;
    record->terms.byte_terms += terms.byte_terms;
    record->terms.spread_terms += terms.spread_terms;
  }
  if (shortened.whole > 0) record->shortened = shortened.sent / shortened.whole;
  if (engine->config.rooms && engine->size > 1)
    record->rooms = engine->config.rooms_inside ? WEIR_ROOMS_INSIDE : WEIR_ROOMS_ALL;
  if (record->rooms != WEIR_ROOMS_NONE)
    record->room_bytes = weir_room_takes(engine->backend->shared(engine));
  if (engine->config.virtual_network != NULL) set_virtual_times(engine);
  const uint64_t followed = engine->host.followed;
  record->squares_known =
      followed > 0 && (followed >= long_enough || followed >= engine->committed);
  weir_step_info *info = &record->info;
  info->step = engine->committed;
  info->trial = engine->in_trial;
  info->plan = engine->plan;
  info->compute_s = engine->compute_s;
  info->compress_s = engine->compress_s;
  info->comm_s = engine->comm_s;
  info->exchange_s = engine->exchange_s;
  info->wire_bytes = weir_comm_transport(engine->config.comm)->bytes_sent - engine->bytes_before;
  info->gain = mean_gain(engine);
  info->overhead_s = engine->overhead_s;
  weir_engine_network(engine, info);
  if (info->goodput_bytes_s > 0 && engine->size > 1) {
    const weir_link link = {.alpha = info->latency_s,
                            .beta = 1 / info->goodput_bytes_s,
                            .deviation = median(engine, weir_header_deviation)};
    info->predicted_comm_s = exposed(engine, &link);
  }
}

/* What a session tells of itself, and when. */
#include "session/inside.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/trace.h"
#include "base/trace_file.h"
#include "session/state.h"

static void copy_text(char *to, size_t room, const char *from) {
  (void)snprintf(to, room, "%.*s", (int)room - 1, from);
}

static void publish(weir_inside *inside) {
  weir_status_publish(inside->status.block, &inside->facts, inside->rows);
}

weir_status weir_inside_open(weir_session *session) {
  weir_inside *inside = &session->inside;
  const weir_options *options = &session->options;
  weir_log_open();
  weir_scope_open(&inside->scope, options->rank);
  inside->status.file = -1;
  const int ranks = weir_session_most(options);
  inside->rows = calloc((size_t)ranks, sizeof *inside->rows);
  if (inside->rows == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for the state of %d ranks", ranks);
  inside->facts.slow.rank = -1;
  weir_status status = weir_slow_open(&inside->slow, ranks);
  if (status == WEIR_OK) status = weir_tracer_open(&inside->scope.tracer, options->rank);
  if (status == WEIR_OK)
    status = weir_status_open(&inside->status, options->job_id, options->rank, ranks);
  if (status != WEIR_OK) return status;
  weir_scope_move(&inside->scope, &inside->status.block->live);
  copy_text(inside->facts.policy, sizeof inside->facts.policy, options->policy);
  publish(inside);
  return WEIR_OK;
}

void weir_inside_close(weir_session *session) {
  weir_inside *inside = &session->inside;
  if (weir_scope_here() == &inside->scope) weir_scope_leave(NULL);
  weir_tracer_close(inside->scope.tracer);
  weir_status_close(&inside->status);
  weir_slow_close(&inside->slow);
  free(inside->rows);
}

/* --- the start ------------------------------------------------------------------------------- */

void weir_inside_network(weir_session *session, const weir_snapshot *now) {
  weir_status_facts *facts = &session->inside.facts;
  facts->own_latency_s = now->latency_s;
  facts->latency_error = now->latency_error;
  facts->latency_age_s = now->latency_age_s;
  facts->own_bandwidth_bytes_s = now->bandwidth;
  facts->bandwidth_error = now->bandwidth_error;
  facts->bandwidth_age_s = now->bandwidth_age_s;
}

static int world(const weir_session *session) {
  const int room = (int)session->inside.status.block->capacity;
  return session->options.world_size < room ? session->options.world_size : room;
}

static void describe_network(const weir_status_facts *facts, char *text, size_t room) {
  if (facts->own_latency_s > 0 && facts->own_bandwidth_bytes_s > 0)
    (void)snprintf(text, room, "latency %.3g ms, bandwidth %.3g Gbit/s", 1e3 * facts->own_latency_s,
                   8e-9 * facts->own_bandwidth_bytes_s);
  else if (facts->own_latency_s > 0)
    (void)snprintf(text, room, "latency %.3g ms, bandwidth not measured yet",
                   1e3 * facts->own_latency_s);
  else if (facts->own_bandwidth_bytes_s > 0)
    (void)snprintf(text, room, "latency not measured yet, bandwidth %.3g Gbit/s",
                   8e-9 * facts->own_bandwidth_bytes_s);
  else
    (void)snprintf(text, room, "the network is not measured");
}

void weir_inside_started(weir_session *session) {
  weir_inside *inside = &session->inside;
  weir_status_facts *facts = &inside->facts;
  weir_plan plan;
  weir_snapshot now;
  weir_engine_plan(session->engine, &plan);
  inside->seen_plan = weir_plan_digest(&plan);
  atomic_store_explicit(&inside->scope.live->rank, session->options.rank, memory_order_relaxed);
  atomic_store_explicit(&inside->status.block->run, session->run, memory_order_release);
  weir_plan_format(&plan, facts->plan);
  copy_text(facts->transport, sizeof facts->transport, session->transport->ops->name);
  facts->world_size = world(session);
  facts->gradient_bytes = session->offset[session->tensors] * sizeof(float);
  facts->failed = WEIR_OK;
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  weir_inside_network(session, &now);
  publish(inside);
  char network[96];
  describe_network(facts, network, sizeof network);
  weir_log(WEIR_LOG_INFO,
           "started: rank %d of %d over %s, policy %s, plan %s, %zu tensors of %zu elements, %s",
           session->options.rank, session->options.world_size, facts->transport, facts->policy,
           facts->plan, session->tensors, session->offset[session->tensors], network);
}

void weir_inside_failed(weir_session *session) {
  weir_inside *inside = &session->inside;
  inside->facts.failed = session->broken;
  publish(inside);
  weir_log(WEIR_LOG_ERROR, "the group has ended: %s", session->broken_text);
  if (inside->scope.tracer != NULL) weir_tracer_flush(inside->scope.tracer);
}

/* --- a step ---------------------------------------------------------------------------------- */

void weir_inside_begin(weir_session *session) {
  session->inside.begun_s = weir_now_s();
  weir_trace_begin("begin", 0);
}

static void tell_switch(weir_session *session, const weir_step_info *info) {
  weir_inside *inside = &session->inside;
  const uint64_t digest = weir_plan_digest(&info->plan);
  if (digest == inside->seen_plan) return;
  char before[WEIR_PLAN_TEXT_MAX];
  copy_text(before, sizeof before, inside->facts.plan);
  weir_plan_format(&info->plan, inside->facts.plan);
  inside->seen_plan = digest;
  inside->facts.plan_steps = 0;
  weir_log(WEIR_LOG_INFO, "%s: %s, after %s%s", info->trial ? "on trial" : "plan in force",
           inside->facts.plan, before,
           strcmp(inside->facts.plan, before) ? "" : " of other buckets");
}

void weir_inside_begun(weir_session *session, const weir_step_info *info) {
  weir_inside *inside = &session->inside;
  weir_trace_end();
  if (info == NULL) return;
  weir_scope_step(&inside->scope, info->step);
  tell_switch(session, info);
  inside->facts.trial = info->trial;
  inside->computing_s = weir_now_s();
  weir_scope_phase(&inside->scope, "compute");
}

void weir_inside_end(weir_session *session) {
  weir_inside *inside = &session->inside;
  if (inside->scope.tracer != NULL)
    weir_tracer_span(
        inside->scope.tracer, 0, "compute", inside->computing_s, weir_now_s(), "\"step\":%llu",
        (unsigned long long)atomic_load_explicit(&inside->scope.live->step, memory_order_relaxed));
  weir_trace_begin("end", 0);
}

void weir_inside_ended(weir_session *session, const weir_step_info *info, weir_status status) {
  weir_inside *inside = &session->inside;
  weir_tracer *tracer = inside->scope.tracer;
  weir_trace_end();
  weir_scope_phase(&inside->scope, "between");
  if (tracer == NULL) return;
  if (status == WEIR_OK || status == WEIR_E_NONFINITE)
    weir_tracer_span(tracer, 0, "step", inside->begun_s, weir_now_s(),
                     "\"step\":%llu,\"trial\":%s,\"plan\":\"%s\",\"wire_bytes\":%llu",
                     (unsigned long long)info->step, info->trial ? "true" : "false",
                     inside->facts.plan, (unsigned long long)info->wire_bytes);
  weir_tracer_flush(tracer);
}

static void take_rows(weir_status_rank *rows, const weir_header *headers, int ranks) {
  for (int r = 0; r < ranks; r++)
    rows[r] = (weir_status_rank){.compute_s = headers[r].compute_s,
                                 .compress_s = headers[r].compress_s,
                                 .comm_s = headers[r].comm_s,
                                 .wait_s = headers[r].wait_s,
                                 .latency_s = headers[r].latency_s,
                                 .bandwidth_bytes_s = headers[r].bandwidth};
}

static void take_step(weir_inside *inside, const weir_step_info *info) {
  weir_status_facts *facts = &inside->facts;
  const double now_s = weir_now_s();
  facts->step_s = now_s - (inside->ended_s > 0 ? inside->ended_s : inside->begun_s);
  facts->time_s = inside->ended_s = now_s;
  facts->steps++;
  facts->plan_steps++;
  facts->compute_s = info->compute_s;
  facts->compress_s = info->compress_s;
  facts->comm_s = info->comm_s;
  facts->exchange_s = info->exchange_s;
  facts->predicted_comm_s = info->predicted_comm_s;
  facts->overhead_s = info->overhead_s;
  facts->gain = info->gain;
  facts->wire_bytes = info->wire_bytes;
  facts->latency_s = info->latency_s;
  facts->bandwidth_bytes_s = info->bandwidth_bytes_s;
  facts->goodput_bytes_s = info->goodput_bytes_s;
  facts->buckets = info->plan.buckets;
}

/* All ranks find the same; one says it. */
static void name_slow(weir_session *session, const weir_header *headers, int ranks) {
  weir_inside *inside = &session->inside;
  char text[160];
  const bool news = weir_slow_update(&inside->slow, headers, ranks, inside->ended_s);
  inside->facts.slow = inside->slow.verdict;
  if (!news || session->options.rank != 0 || !weir_log_on(WEIR_LOG_INFO)) return;
  weir_slow_say(&inside->slow.verdict, text, sizeof text);
  weir_log(WEIR_LOG_INFO, "%s", text);
}

static void log_step(const weir_inside *inside, const weir_step_info *info) {
  weir_log(WEIR_LOG_DEBUG,
           "%s%s: compute %.3f ms, compress %.3f, communicate %.3f (predicted %.3f), overhead "
           "%.3f, %llu bytes sent, gain %.3f",
           info->trial ? "on trial, " : "", inside->facts.plan, 1e3 * info->compute_s,
           1e3 * info->compress_s, 1e3 * info->comm_s, 1e3 * info->predicted_comm_s,
           1e3 * info->overhead_s, (unsigned long long)info->wire_bytes, info->gain);
}

void weir_inside_observe(weir_session *session, const weir_header *headers, int ranks,
                         const weir_step_record *record) {
  weir_inside *inside = &session->inside;
  take_step(inside, &record->info);
  take_rows(inside->rows, headers, world(session));
  name_slow(session, headers, ranks);
  if (session->controller != NULL)
    weir_controller_said(session->controller, inside->facts.decision,
                         sizeof inside->facts.decision);
  publish(inside);
  if (weir_log_on(WEIR_LOG_DEBUG)) log_step(inside, &record->info);
}

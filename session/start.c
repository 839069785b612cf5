/* Joining the group: transport, agreement on what was registered, monitor, engine, controller. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/calibrate.h"
#include "engine/memory.h"
#include "kernels/powersgd.h"
#include "session/state.h"

/* Values older than this are worth a probe. */
#define STALE_S 3.5
/* Probes hold the steps up: so much of the time may go to them for either reason. */
#define CREDIT_S 1.0
#define SUSPECT_SHARE 0.06
#define STALE_SHARE 0.03

weir_status weir_session_gather(weir_session *session, const void *mine, size_t bytes, void *all) {
  static const char name[] = "weir all-gather outside of steps";
  const int ranks = session->options.world_size, rank = session->options.rank;
  weir_comm_step(session->comm, weir_hash(WEIR_HASH_INIT, name, sizeof name), session->gathers++);
  memmove((unsigned char *)all + (size_t)rank * bytes, mine, bytes);
  session->gather_bytes[rank] = bytes;
  weir_status status = weir_allgather(session->comm, all, bytes, session->gather_bytes, NULL);
  if (status != WEIR_OK) return status;
  for (int r = 0; r < ranks; r++)
    if (session->gather_bytes[r] != bytes)
      return weir_fail(WEIR_E_MISMATCH, "rank %d gathers %zu bytes, rank %d gathers %zu", rank,
                       bytes, r, session->gather_bytes[r]);
  return WEIR_OK;
}

typedef struct fingerprint {
  uint64_t tensors;
  uint64_t elements;
  uint64_t plan;   /* the first one */
  uint64_t device; /* does this rank have one? */
  uint64_t memory_limit;
  uint64_t feedback; /* does it keep residuals? */
  uint64_t threads;  /* do its codecs have threads? */
  uint64_t follows;  /* in how many steps it may come to want to know what elements usually are */
  uint64_t table;    /* is the policy's damaged, or missing where it is needed? */
  double momentum;   /* correction */
  int64_t most;      /* max_ranks */
  uint64_t keeps;    /* what is not finite? */
  uint64_t run;      /* rank 0's draw names the run */
  weir_resume_told resume;
} fingerprint;

static uint64_t draw_run(const weir_session *session) {
  const double now_s = weir_now_s();
  const uint64_t parts[] = {session->options.job_id, (uint64_t)getpid(),
                            (uint64_t)(uintptr_t)session};
  const uint64_t run =
      weir_hash(weir_hash(WEIR_HASH_INIT, parts, sizeof parts), &now_s, sizeof now_s);
  return run != 0 ? run : 1;
}

uint64_t weir_session_digest_tensors(const weir_session *session) {
  uint64_t digest = WEIR_HASH_INIT;
  for (size_t t = 0; t < session->tensors; t++) {
    const uint64_t numel = session->offset[t + 1] - session->offset[t];
    digest = weir_hash(digest, session->names[t], strlen(session->names[t]) + 1);
    const uint64_t rows = session->rows[t];
    digest = weir_hash(digest, &numel, sizeof numel);
    digest = weir_hash(digest, &rows, sizeof rows);
    const uint64_t type = session->types[t];
    if (type != WEIR_FP32) digest = weir_hash(digest, &type, sizeof type);
  }
  const uint64_t full = session->full;
  return full > 0 ? weir_hash(digest, &full, sizeof full) : digest;
}

uint64_t weir_session_offer(const weir_session *session) {
  const weir_options *options = &session->options;
  const uint64_t parts[] = {weir_session_digest_tensors(session),
                            session->device_ops != NULL,
                            options->memory_limit,
                            (uint64_t)options->max_ranks,
                            weir_options_share(options),
                            options->error_feedback,
                            session->keep_nonfinite};
  uint64_t digest = weir_hash(WEIR_HASH_INIT, parts, sizeof parts);
  for (size_t i = 0; i < session->state_count; i++) {
    const uint64_t bytes = session->states[i].bytes;
    digest = weir_hash(digest, &bytes, sizeof bytes);
  }
  digest = weir_hash(digest, &options->momentum_correction, sizeof options->momentum_correction);
  return weir_hash(digest, options->policy, strlen(options->policy));
}

static const char *rule_of(const weir_session *session) {
  const char *said = session->options.update_rule;
  if (session->rule_unknown) return "unknown";
  return session->rule_adapts && said != NULL && strcmp(said, "sgd") == 0 ? "adaptive" : said;
}

static weir_beginning beginning_of(const weir_session *session) {
  const weir_options *o = &session->options;
  return (weir_beginning){o->world_size, o->risk, rule_of(session)};
}

weir_status weir_session_first_plan(const weir_session *session, uint64_t step, weir_plan *first) {
  const weir_options *o = &session->options;
  const weir_beginning with = beginning_of(session);
  const weir_status status = weir_policy_first_plan(o->policy, &with, first);
  if (status == WEIR_OK) first->cr = weir_policy_warm_ratio(first->cr, step, o->warmup_steps);
  return status;
}

weir_status weir_session_first_plans(const weir_session *session, uint64_t step,
                                     weir_plan first[WEIR_STAGES_MAX], size_t *count) {
  weir_stages stages;
  *count = 1;
  if (!weir_policy_stages(session->options.policy, &stages))
    return weir_session_first_plan(session, step, first);
  *count = stages.count;
  for (size_t i = 0; i < stages.count; i++) first[i] = stages.stage[i].plan;
  return WEIR_OK;
}

weir_status weir_session_compare(weir_session *session) {
  weir_plan first;
  const weir_status known = weir_session_first_plan(session, 0, &first);
  if (known != WEIR_OK) return known;
  const weir_beginning with = beginning_of(session);
  fingerprint mine = {weir_session_digest_tensors(session),
                      session->offset[session->tensors],
                      weir_plan_digest(&first),
                      session->device_ops != NULL,
                      session->options.memory_limit,
                      session->options.error_feedback,
                      session->options.codec_threads > 1,
                      weir_policy_follows(session->options.policy, &with),
                      session->table != WEIR_OK,
                      session->options.momentum_correction,
                      session->options.max_ranks,
                      session->keep_nonfinite,
                      draw_run(session),
                      {0}};
  weir_resume_tell(session, &mine.resume);
  const size_t ranks = (size_t)session->options.world_size;
  fingerprint *all = calloc(ranks, sizeof *all);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to compare %zu ranks", ranks);
  weir_status status = weir_session_gather(session, &mine, sizeof mine, all);
  session->devices = session->hosts = session->threads = false;
  session->follows = 0;
  session->memory_limit = 0;
  for (size_t r = 0; r < ranks; r++) {
    const uint64_t limit = all[r].memory_limit;
    session->devices = session->devices || all[r].device != 0;
    session->hosts = session->hosts || all[r].device == 0;
    session->threads = session->threads || all[r].threads != 0;
    if (all[r].follows > session->follows) session->follows = all[r].follows;
    if (limit > 0 && (session->memory_limit == 0 || limit < session->memory_limit))
      session->memory_limit = limit;
  }
  /* Under a limit policy weir does without, so that all of it is for plans. */
  weir_stages stages;
  if (session->devices ||
      (session->memory_limit > 0 && !weir_policy_stages(session->options.policy, &stages)))
    session->follows = 0;
  if (status == WEIR_OK && session->table != WEIR_OK)
    status = weir_fail(session->table, "%s", session->table_text);
  for (size_t r = 0; r < ranks && status == WEIR_OK; r++)
    if (all[r].table != 0)
      status =
          weir_fail(WEIR_E_MISMATCH, "rank %zu cannot read the table of policy %s, and says why", r,
                    session->options.policy);
  for (size_t r = 1; r < ranks && status == WEIR_OK; r++) {
    if (all[r].tensors != all[0].tensors || all[r].elements != all[0].elements)
      status =
          weir_fail(WEIR_E_MISMATCH,
                    "rank %zu registered other tensors (%llu elements) than rank 0 (%llu), or of "
                    "other types, or keeps others in full precision",
                    r, (unsigned long long)all[r].elements, (unsigned long long)all[0].elements);
    else if (all[r].plan != all[0].plan)
      status =
          weir_fail(WEIR_E_MISMATCH,
                    "rank %zu starts under another plan than rank 0: policy, risk and warmup_steps "
                    "have to be the same",
                    r);
    else if (all[r].feedback != all[0].feedback)
      status = weir_fail(WEIR_E_MISMATCH, "rank %zu goes with%s error_feedback, rank 0 with%s", r,
                         all[r].feedback ? "" : "out", all[0].feedback ? "" : "out");
    else if (all[r].momentum != all[0].momentum)
      status = weir_fail(WEIR_E_MISMATCH, "rank %zu has momentum_correction %g, rank 0 %g", r,
                         all[r].momentum, all[0].momentum);
    else if (all[r].most != all[0].most)
      status = weir_fail(WEIR_E_MISMATCH, "rank %zu has max_ranks %d, rank 0 %d", r,
                         (int)all[r].most, (int)all[0].most);
    else if (all[r].keeps != all[0].keeps)
      status = weir_fail(WEIR_E_MISMATCH, "rank %zu has nonfinite \"%s\", rank 0 \"%s\"", r,
                         all[r].keeps ? "keep" : "zero", all[0].keeps ? "keep" : "zero");
  }
  weir_resume_told *resumes = calloc(ranks, sizeof *resumes);
  for (size_t r = 0; resumes != NULL && r < ranks; r++) resumes[r] = all[r].resume;
  if (status == WEIR_OK)
    status = resumes != NULL ? weir_resume_agree(session, resumes)
                             : weir_fail(WEIR_E_NOMEM, "no memory to compare %zu ranks", ranks);
  free(resumes);
  session->run = all[0].run;
  free(all);
  return status;
}

/* Elements that a plan keeps, or floats that it sends, of all. */
static size_t kept_by(const weir_session *session, const weir_plan *plan) {
  const weir_layout layout = {session->tensors, session->offset};
  return weir_codecs[plan->codec]->low_rank
             ? weir_powersgd_kept(&layout, session->rows, weir_powersgd_rank(plan->cr))
             : weir_cost_kept(plan, session->offset[session->tensors]);
}

/* The largest room on a device that a policy's plans come to: once made it stays. */
static double largest_room(const weir_session *session) {
  weir_memory_form form = weir_memory_form_of(weir_comm_shape(session->comm), 0);
  double most = 0;
  weir_plan plan;
  form.rooms_inside = session->rooms_inside;
  for (size_t i = 0; session->rooms && weir_policy_heaviest(session->options.policy, i, &plan); i++)
    most = fmax(most, weir_plan_room(&plan, &form, session->offset[session->tensors],
                                     kept_by(session, &plan)));
  return most;
}

/* Residuals, and velocities. */
static double checkpoint_bytes(const weir_session *session) {
  const double gradient = 4.0 * (double)session->offset[session->tensors];
  return (session->options.momentum_correction > 0 ? 2 : 1) * gradient;
}

/* Of the limit, what is left for a plan beside the velocity and the checkpoint of trials that there
 * will be in any case. */
static double spare_memory(const weir_session *session) {
  const double checkpoint = checkpoint_bytes(session);
  const bool momentum = session->options.momentum_correction > 0;
  const bool tries = strncmp(session->options.policy, "paper", strlen("paper")) == 0;
  if (session->memory_limit == 0) return 0;
  return fmax(
      1.0, (double)session->memory_limit - (momentum ? checkpoint : 0) - (tries ? checkpoint : 0));
}

weir_status weir_session_check_memory(const weir_session *session) {
  weir_memory_form form =
      weir_memory_form_of(weir_comm_shape(session->comm), weir_session_most(&session->options));
  const size_t n = session->offset[session->tensors];
  const double room = largest_room(session), spare = spare_memory(session);
  char text[WEIR_PLAN_TEXT_MAX];
  weir_plan plan;
  form.without_feedback = !session->options.error_feedback;
  form.threads = session->threads;
  form.follows = session->follows > 0;
  for (size_t i = 0;
       session->memory_limit > 0 && weir_policy_heaviest(session->options.policy, i, &plan); i++) {
    const double bytes = weir_plan_memory(&plan, &form, n, kept_by(session, &plan)) + room;
    weir_plan_format(&plan, text);
    if (bytes > spare)
      return weir_fail(WEIR_E_UNSUPPORTED,
                       "policy %s runs plan %s, which takes %.0f bytes beyond the gradients and "
                       "checkpoints, and memory_limit leaves %.0f",
                       session->options.policy, text, bytes, spare);
  }
  return WEIR_OK;
}

/* Of plans that come in any case none may turn out in the middle of a training to be one that this
 * group cannot run. */
static weir_status check_later_plans(const weir_session *session) {
  weir_plan plan;
  weir_status status = WEIR_OK;
  for (size_t i = 0; status == WEIR_OK && weir_policy_heaviest(session->options.policy, i, &plan);
       i++)
    status = weir_engine_runs(session->engine, &plan);
  return status;
}

/* --- hooks of the engine -------------------------------------------------------------------- */

static void local(void *user, weir_header *header) {
  weir_session *session = user;
  weir_feed *feed = &session->feed;
  weir_snapshot now;
  weir_feed_collect(session);
  weir_netmon_snapshot(feed->monitor, weir_feed_now(session), &now);
  weir_inside_network(session, &now);
  header->latency_s = now.latency_s;
  header->latency_error = now.latency_error;
  header->bandwidth = now.bandwidth;
  header->bandwidth_error = now.bandwidth_error;
  header->goodput = now.goodput;
  header->goodput_error = now.goodput_error;
  header->deviation = (float)now.deviation;
  if (now.latency_changes != feed->latency_changes ||
      now.bandwidth_changes != feed->bandwidth_changes)
    header->flags |= WEIR_HEADER_NETWORK_CHANGED;
  if (session->options.virtual_network == NULL && session->options.active_probes) {
    weir_budget_pass(&session->budget, now.time_s, now.bandwidth);
    weir_probe_pace(session, &now);
    const double elapsed_s = weir_now_s() - session->started_s;
    if (session->probe_s < CREDIT_S + SUSPECT_SHARE * elapsed_s)
      header->flags |=
          (now.suspect ? WEIR_HEADER_SUSPECT : 0) | (now.risen ? WEIR_HEADER_RISEN : 0);
    const bool old = fmax(now.bandwidth_age_s, now.latency_age_s) > STALE_S;
    if ((old || session->rate_unsure) && weir_probe_affordable(session) &&
        session->probe_s < CREDIT_S + STALE_SHARE * elapsed_s)
      header->flags |= WEIR_HEADER_STALE;
  }
  feed->latency_changes = now.latency_changes;
  feed->bandwidth_changes = now.bandwidth_changes;
  if (session->options.max_ranks > 0)
    header->joiners = session->transport->ops->waiting(session->transport);
}

static void propose(void *user, weir_directive *directive) {
  weir_session *session = user;
  if (session->controller != NULL) weir_controller_propose(session->controller, directive);
}

/* Gaps change slowly: the first steps', then now and then. */
static void tell_gaps(weir_session *session) {
  const uint64_t turn = session->gap_turns++;
  if (turn >= 8 && turn % 16 != 0) return;
  for (uint32_t t = 0; t < session->tensors; t++)
    if (!weir_engine_gap(session->engine, t, &session->gap_s[t])) return;
  weir_controller_gaps(session->controller, session->gap_s);
}

/* Do all ranks know of the same who wait to join? */
static bool wait_alike(const weir_header *headers, int ranks) {
  for (int r = 1; r < ranks; r++)
    if (headers[r].joiners != headers[0].joiners) return false;
  return headers[0].joiners != 0;
}

static void observe(void *user, const weir_header *headers, int ranks,
                    const weir_step_record *record) {
  weir_session *session = user;
  session->grows = wait_alike(headers, ranks);
  weir_feed_exchange(session, headers, ranks, record);
  if (session->controller != NULL && session->gap_s != NULL) tell_gaps(session);
  if (session->controller != NULL)
    weir_controller_observe(session->controller, headers, ranks, record);
  weir_inside_observe(session, headers, ranks, record);
}

static bool want_curve(void *user) {
  weir_session *session = user;
  return session->controller != NULL && weir_controller_want_curve(session->controller);
}

static weir_status buckets(void *user, uint32_t layout, weir_plan_bucket *table, size_t capacity,
                           size_t *count) {
  weir_session *session = user;
  return weir_controller_buckets(session->controller, layout, table, capacity, count);
}

static void fed(void *user, size_t tensor, const float *e, size_t n) {
  weir_session *session = user;
  if (session->controller != NULL) weir_controller_fed(session->controller, tensor, e, n);
}

static bool sample(void *user, size_t tensor, size_t n, weir_runs *runs) {
  weir_session *session = user;
  return session->controller != NULL &&
         weir_controller_sample(session->controller, tensor, n, runs);
}

static void seen(void *user, size_t tensor, size_t n, const weir_runs *runs, const float *sample) {
  weir_session *session = user;
  if (session->controller != NULL)
    weir_controller_seen(session->controller, tensor, n, runs, sample);
}

bool (*weir_session_curve_hook(const weir_session *session))(void *) {
  return session->options.rank == 0 ? want_curve : NULL;
}

void weir_session_pace(weir_session *session, weir_pace_fn pace, void *user) {
  session->pace = pace;
  session->pace_user = user;
}

static void passed(void *user, double begin_s, size_t elements) {
  const weir_session *session = user;
  session->pace(session->pace_user, begin_s, elements);
}

/* --- start ---------------------------------------------------------------------------------- */

weir_status weir_session_create_engine(weir_session *session) {
  weir_plan first[WEIR_STAGES_MAX];
  size_t firsts = 0;
  const weir_status known = weir_session_first_plans(session, 0, first, &firsts);
  if (known != WEIR_OK) return known;
  const weir_layout layout = {session->tensors, session->offset};
  /* On every rank, as any of them may come to decide. */
  const size_t looks =
      session->device_ops != NULL ? weir_policy_samples(session->options.policy) : 0;
  weir_engine_config config = {
      .comm = session->comm,
      .layout = layout,
      .rows = session->rows,
      .types = session->types,
      .full = session->full,
      .momentum = session->options.momentum_correction,
      .memory_limit = (double)session->memory_limit,
      .hooks = {.user = session,
                .local = local,
                .propose = propose,
                .observe = observe,
                .probe = weir_probe_together,
                .want_curve = weir_session_curve_hook(session),
                .buckets = buckets,
                .passed = session->pace != NULL ? passed : NULL,
                .fed = session->device_ops != NULL ? NULL : fed,
                .sample = looks > 0 ? sample : NULL,
                .seen = seen,
                .sample_room = looks},
      .virtual_network = session->options.virtual_network,
      .virtual_exchange = session->options.virtual_exchange,
      .virtual_user = session->options.virtual_user,
      .codec_threads = (unsigned)session->options.codec_threads,
      .threads = session->threads,
      .device_ops = session->device_ops,
      .device = session->options.device,
      .stream = session->options.stream,
      .device_timeout_s = session->options.timeout_s,
      .devices = session->devices,
      .rooms = session->rooms,
      .rooms_inside = session->rooms_inside,
      .most_ranks = session->options.max_ranks,
      .counts = session->device_ops == NULL && !(session->options.momentum_correction > 0) &&
                weir_policy_counts(session->options.policy, session->options.risk),
      .follows = session->follows,
      .without_feedback = !session->options.error_feedback,
      .damped = weir_update_rule_adapts(rule_of(session)),
      .keep_nonfinite = session->keep_nonfinite,
      .profile = session->options.profile || session->options.overlap,
      .scope = &session->inside.scope};
  weir_status status = WEIR_E_UNSUPPORTED;
  for (size_t i = 0; status == WEIR_E_UNSUPPORTED && i < firsts; i++) {
    config.first_plan = first[i];
    status = weir_engine_create(&session->engine, &config);
  }
  for (size_t i = 0; i < session->state_count && status == WEIR_OK; i++)
    status = weir_engine_register_state(session->engine, session->states[i].data,
                                        session->states[i].bytes);
  for (size_t i = 0; i < session->hook_count && status == WEIR_OK; i++)
    status = weir_engine_register_hooks(session->engine, &session->hooks[i]);
  return status;
}

/* On this rank's device, where all have one: ranks that go on in step go as fast as the slowest,
 * which is one in host memory where there is any. */
static weir_status price(void *user, const weir_plan *plans, size_t count, double *seconds) {
  const weir_session *session = user;
  return weir_engine_price(session->engine, 0, plans, count, seconds);
}

static weir_status runs(void *user, const weir_plan *plan) {
  const weir_session *session = user;
  return weir_engine_runs(session->engine, plan);
}

weir_status weir_session_start_controller(weir_session *session, bool again, uint64_t step,
                                          bool alike) {
  const weir_layout layout = {session->tensors, session->offset};
  if (session->options.overlap && session->gap_s == NULL) {
    session->gap_s = calloc(session->tensors + 1, sizeof *session->gap_s);
    if (session->gap_s == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for gaps");
  }
  const weir_group_shape group = weir_comm_shape(session->comm);
  const weir_controller_config config = {
      .policy = session->options.policy,
      .risk = session->options.risk,
      .update_rule = rule_of(session),
      .memory_limit = spare_memory(session),
      .codec_threads = session->threads,
      .checkpoint_bytes = checkpoint_bytes(session),
      .trial_budget = session->options.trial_budget,
      .steps = session->options.steps,
      .world_size = session->options.world_size,
      .hosts = group.hosts,
      .largest = group.largest,
      .order = group.order,
      .told = group.told,
      .devices = session->devices,
      .layout = layout,
      .rows = session->rows,
      .names = (const char *const *)session->names,
      .full = session->full,
      .overlap = session->options.overlap,
      .seed = session->options.seed,
      .journal_path = session->options.journal_path,
      .journal_bytes = session->options.journal_bytes,
      .journal_goes_on = again,
      .warmup_steps = session->options.warmup_steps,
      .step = step,
      .saved = session->resume != NULL ? session->resume->controller : NULL,
      .saved_bytes = session->resume != NULL ? session->resume->controller_bytes : 0,
      .saved_alike = alike,
      /* The stages of a warm-up begin at the same step always. */
      .threaded = session->options.virtual_network == NULL && session->options.warmup_steps == 0,
      .measure = session->options.virtual_network == NULL,
      .price = session->devices && !session->hosts ? price : NULL,
      .price_user = session,
      .runs = runs,
      .runs_user = session};
  const weir_status status = weir_controller_create(&session->controller, &config);
  if (status == WEIR_OK) weir_controller_set_epoch(session->controller, session->epoch);
  return status;
}

/* What the ranks' processors take, for the controller's cost rows; and the rate where nothing has
 * told it yet, as where a transport has no trains.  Exchanges would have to, and these take
 * encoding and decoding, too, so that few bits would make a link look slow.  Collective. */
static weir_status calibrate(weir_session *session) {
  weir_snapshot now;
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  weir_link link = {.alpha = now.latency_s, .beta = now.bandwidth > 0 ? 1.0 / now.bandwidth : 0};
  const weir_status status = weir_calibrate_processors(session->comm, &link);
  session->feed.told_at_start = link.beta > 0 && session->transport->ops->within_memory;
  /* Of the link between two ranks: one that knows its own better keeps to that. */
  if (status == WEIR_OK && link.beta > 0 && !(now.bandwidth > 0))
    weir_feed_probe(session, 1 / link.beta, 0);
  /* Its messages wait for token buckets to fill: better than nothing, but not than trains. */
  if (session->rate_exact) weir_feed_skip_flows(session);
  if (status == WEIR_OK && session->controller != NULL)
    weir_controller_processors(session->controller, &link);
  return status;
}

weir_status weir_session_start_monitor(weir_session *session) {
  const weir_options *options = &session->options;
  weir_status status = weir_feed_open(session);
  if (status != WEIR_OK || options->virtual_network != NULL || !options->active_probes ||
      options->world_size == 1)
    return status;
  status = weir_probe_start(session);
  if (status == WEIR_OK) status = calibrate(session);
  if (status != WEIR_OK || session->transport->ops->echo == NULL) return status;
  return weir_echo_start(&session->echo, session->transport, session->next);
}

weir_status weir_session_start(weir_session *session) {
  if (session == NULL) return weir_fail(WEIR_E_INVALID, "the session is NULL");
  if (session->start_tried) return weir_fail(WEIR_E_STATE, "weir_session_start was called already");
  session->start_tried = true;
  weir_scope *before = weir_scope_enter(&session->inside.scope);
  weir_scope_phase(&session->inside.scope, "start");
  weir_session_find_driver(session);
  session->saved_likeness = weir_resume_likeness(session);
  weir_status status = weir_session_order(session);
  if (status == WEIR_OK) status = weir_session_connect(session);
  /* Not handed on: a group of one listens nowhere, nor does one that did not come so far. */
  if (session->options.listener > 0) (void)close(session->options.listener);
  session->options.listener = 0;
  if (status == WEIR_OK) status = weir_session_compare(session);
  if (status == WEIR_OK) status = weir_session_find_rooms(session);
  if (status == WEIR_OK) status = weir_session_check_memory(session);
  if (status == WEIR_OK) status = weir_session_create_engine(session);
  if (status == WEIR_OK) status = check_later_plans(session);
  bool alike_before = false;
  if (status == WEIR_OK) status = weir_resume_apply(session, &alike_before);
  /* A plan that this group cannot run, or a table that cannot be read: all ranks have compared what
   * that follows from, and all say so. */
  const bool alike = session->comm != NULL && (status == WEIR_E_UNSUPPORTED ||
                                               (status != WEIR_OK && status == session->table));
  if (status == WEIR_OK && session->options.rank == 0)
    status = weir_session_start_controller(session, session->resume_told.size > 0,
                                           session->resume_told.committed, alike_before);
  weir_resume_free(session->resume);
  session->resume = NULL;
  if (status == WEIR_OK) status = weir_session_start_monitor(session);
  session->started_s = weir_now_s();
  if (status == WEIR_OK) {
    session->started = true;
    weir_inside_started(session);
  } else if (session->transport != NULL && session->transport->ops->abort != NULL &&
             status < WEIR_E_TIMEOUT && !alike) {
    session->transport->ops->abort(session->transport, session->options.rank);
  }
  weir_scope_phase(&session->inside.scope, "between");
  (void)weir_session_keep_failure(session, status);
  weir_scope_leave(before);
  return status;
}

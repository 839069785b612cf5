#include "lab/worker.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/capture.h"
#include "lab/channel.h"
#include "lab/pace.h"
#include "lab/samples.h"
#include "lab/timings.h"
#include "session/pace.h"

/* So many steps in a row without a finite gradient, and the training is lost. */
#define NONFINITE_MAX 10
#define RUNNER_TIMEOUT_S 30.0

typedef struct worker {
  const weir_worker_config *config;
  weir_session *session;
  weir_trainer *trainer;
  weir_samples *samples; /* NULL: they are read where they lie */
  uint64_t steps_per_epoch, total, committed;
  double elapsed_s;          /* evaluation and the lab's own work excluded */
  double busy_s, exchange_s; /* of the last step, for virtual time */
  weir_row row;              /* of the last step; sent once it is known whether it was evaluated */
  bool row_waits;
  unsigned nonfinite;
  uint64_t steps;       /* executed */
  uint64_t saved;       /* steps that counted when the last checkpoint was due */
  uint32_t slot;        /* of the next one */
  bool said;            /* that one could not be saved */
  double begun_s;       /* the step under way; virtual time in a run without a network */
  double now_s;         /* virtual time */
  weir_timings timings; /* with config->capture */
  void **gradients;     /* with clip_norm: room for one a tensor */
} worker;

uint64_t weir_worker_steps_per_epoch(const weir_scenario *s, const weir_dataset *data) {
  if (s->steps_per_epoch) return s->steps_per_epoch;
  const uint64_t steps = data->train / ((uint64_t)s->batch * s->workers);
  return steps ? steps : 1;
}

/* --- telling the runner ----------------------------------------------------------------------- */

static weir_status tell(const worker *w, weir_message *message) {
  message->rank = (uint32_t)w->config->rank;
  if (w->config->told) return w->config->told(w->config->user, message);
  return weir_channel_send(w->config->channel, message, RUNNER_TIMEOUT_S);
}

static weir_status send_row(worker *w) {
  if (!w->row_waits) return WEIR_OK;
  w->row_waits = false;
  weir_message message = {.kind = WEIR_MESSAGE_STEP, .as.row = w->row};
  return tell(w, &message);
}

/* What "auto" came to is known to those who have met. */
static weir_status tell_transport(const worker *w) {
  weir_message message = {.kind = WEIR_MESSAGE_MET};
  const char *name;
  const weir_status status = weir_current_transport(w->session, &name);
  if (status) return status;
  (void)snprintf(message.as.transport, sizeof message.as.transport, "%s", name);
  return tell(w, &message);
}

/* --- set-up ----------------------------------------------------------------------------------- */

static weir_status create_trainer(worker *w) {
  const weir_scenario *s = w->config->scenario;
  uint64_t decay_steps[WEIR_SCENARIO_DECAYS_MAX];
  for (size_t d = 0; d < s->decays; d++)
    decay_steps[d] = (s->decay_epochs[d] - s->first_epoch) * w->steps_per_epoch;
  const weir_trainer_config config = {
      .model = s->model,
      .sizes = s->sizes,
      .seed = s->seed,
      .rank = w->config->rank,
      .world_size = (int)s->workers,
      .batch = s->batch,
      .learning_rate = s->learning_rate,
      .optimizer = {.name = s->optimizer,
                    .momentum = s->momentum_correction ? 0 : s->momentum,
                    .beta2 = s->beta2,
                    .weight_decay = s->weight_decay,
                    .divided = s->divided_step != 0},
      .rate_warmup_steps = s->rate_warmup_steps,
      .decay_factor = s->decay_factor,
      .decay_steps = decay_steps,
      .decays = s->decays,
      .threads = 1,
      .layer_s = s->layer_ms / 1e3,
      .flop_s = s->gflops > 0 ? 1e-9 / s->gflops : 0,
      .virtual_time = w->config->clock != NULL,
      .slice = s->slice};
  return weir_trainer_create(&w->trainer, &config, w->config->data);
}

/* Of fp32 elements. */
static void pass(void *user, double begin_s, size_t elements) {
  const weir_worker_config *c = ((worker *)user)->config;
  (void)weir_pace(c->clock != NULL, begin_s, 32e-9 * (double)elements / c->scenario->codec_gbps);
}

static weir_status create_session(worker *w) {
  const weir_worker_config *c = w->config;
  weir_options options;
  weir_options_init(&options);
  options.rank = c->rank;
  options.world_size = (int)c->scenario->workers;
  options.transport = c->transport ? c->transport : c->clock ? "inproc" : "tcp";
  options.rendezvous = c->rendezvous;
  options.bind_address = c->bind_address;
  options.job_id = c->job_id;
  options.secret = c->secret;
  /* Workers of an emulated network share this machine's processors and talk to nobody outside: the
   * cipher's time would be taken for the network's. */
  options.tls = c->secret != NULL ? "off" : "auto";
  options.timeout_s = c->scenario->timeout_s;
  options.policy = c->policy;
  options.risk = c->scenario->risk;
  options.full_precision = c->scenario->full_precision;
  options.error_feedback = c->scenario->error_feedback != 0;
  options.update_rule = weir_optimizer_adapts(c->scenario->optimizer) ? "adaptive" : "sgd";
  options.trial_budget = c->scenario->trial_budget;
  options.steps = w->total;
  options.seed = c->scenario->seed;
  options.journal_path = c->rank ? NULL : c->journal_path;
  options.journal_bytes = 0; /* reports show all of a run */
  options.active_probes = !c->clock;
  options.overlap = c->scenario->overlap;
  options.codec_threads = (int)c->scenario->codec_threads;
  options.tcp_streams = (int)c->scenario->tcp_streams;
  options.profile = c->capture != NULL;
  options.momentum_correction = c->scenario->momentum_correction ? c->scenario->momentum : 0;
  options.warmup_steps = w->steps_per_epoch * c->scenario->warmup_epochs;
  if (c->clock) {
    options.virtual_network = weir_sim_clock_network;
    options.virtual_exchange = weir_sim_clock_exchange;
    options.virtual_user = c->clock;
  }
  const weir_status status = weir_session_create(&w->session, &options);
  if (!status && c->scenario->codec_gbps > 0) weir_session_pace(w->session, pass, w);
  return status;
}

static weir_status forward_over(void *user) {
  return weir_mark_backward(((worker *)user)->session);
}

static weir_status gradient_ready(void *user, size_t tensor) {
  worker *w = user;
  if (w->config->scenario->clip_norm > 0) return WEIR_OK; /* its norm takes all of them */
  return weir_submit(w->session, (uint32_t)tensor, weir_trainer_gradient(w->trainer, tensor));
}

static weir_status register_all(worker *w) {
  for (size_t t = 0; t < weir_trainer_tensors(w->trainer); t++) {
    uint32_t number;
    const size_t rows = weir_trainer_tensor_rows(w->trainer, t);
    weir_status status =
        weir_register_matrix(w->session, weir_trainer_tensor_name(w->trainer, t), rows,
                             weir_trainer_tensor_numel(w->trainer, t) / rows, &number);
    if (status) return status;
    if (number != t)
      return weir_fail(WEIR_E_INTERNAL, "tensor %zu was numbered %" PRIu32, t, number);
  }
  weir_trainer_tell(w->trainer, &(weir_trainer_audience){
                                    .user = w, .forward = forward_over, .ready = gradient_ready});
  return weir_trainer_register(w->trainer, w->session);
}

static weir_status open_samples(worker *w) {
  const weir_scenario *s = w->config->scenario;
  const weir_samples_config config = {.data = w->config->data,
                                      .latency_s = s->source_ms / 1e3,
                                      .bytes_s = s->source_mb_s * 1e6,
                                      .cache_bytes = (uint64_t)s->cache_mb * 1000000,
                                      .batch = s->batch};
  if (s->source_ms <= 0 && s->source_mb_s <= 0 && !s->cache_mb) return WEIR_OK;
  const weir_status status = weir_samples_open(&w->samples, w->session, &config);
  if (status) return status;
  const weir_trainer_source source = weir_samples_source(w->samples);
  weir_trainer_read_from(w->trainer, &source);
  return WEIR_OK;
}

/* Where the run was when it was killed. */
static weir_status go_on(worker *w) {
  const weir_worker_config *c = w->config;
  if (!c->from) return WEIR_OK;
  weir_savepoint at = *c->from;
  at.rank = (uint32_t)c->rank;
  const weir_status status = weir_savepoint_load(c->keep, &at, w->trainer, w->session);
  w->committed = w->saved = at.committed;
  w->steps = at.executed;
  w->elapsed_s = at.elapsed_s;
  w->now_s = at.virtual_s;
  w->slot = 1 - at.slot;
  return status;
}

static weir_status set_up(worker *w) {
  weir_status status = create_session(w);
  if (!status) status = create_trainer(w);
  if (!status) status = register_all(w);
  if (!status) status = go_on(w);
  if (!status && w->config->scenario->clip_norm > 0) {
    w->gradients = calloc(weir_trainer_tensors(w->trainer), sizeof *w->gradients);
    if (!w->gradients) status = weir_fail(WEIR_E_NOMEM, "no memory to clip gradients");
  }
  if (!status && w->config->capture)
    status = weir_timings_open(&w->timings, weir_trainer_tensors(w->trainer));
  if (status) return status;
  const double begin = weir_now_s();
  status = weir_session_start(w->session);
  if (!status) status = open_samples(w);
  if (!w->config->clock) w->elapsed_s += weir_now_s() - begin;
  return status || !w->config->told || w->config->rank ? status : tell_transport(w);
}

/* --- epochs ----------------------------------------------------------------------------------- */

/* Every rank its share of the test set; the sum is taken in the ranks' order by all. */
static weir_status evaluate(worker *w, weir_row *row) {
  const uint64_t ranks = w->config->scenario->workers, rank = (uint64_t)w->config->rank;
  const uint64_t test = w->config->data->test;
  weir_score mine, sum = {0};
  weir_status status =
      weir_trainer_evaluate(w->trainer, test * rank / ranks, test * (rank + 1) / ranks, &mine);
  if (status) return status;
  weir_score *all = calloc(ranks, sizeof *all);
  if (!all) return weir_fail(WEIR_E_NOMEM, "no memory for %" PRIu64 " scores", ranks);
  status = weir_allgather_bytes(w->session, &mine, sizeof mine, all);
  for (uint64_t r = 0; r < ranks; r++) {
    sum.right += all[r].right;
    sum.answers += all[r].answers;
    sum.loss += all[r].loss;
  }
  free(all);
  row->accuracy = (double)sum.right / (double)sum.answers;
  row->test_loss = sum.loss / (double)sum.answers;
  return status;
}

/* Rank 0 has the runner set the network; nobody goes on before it is set. */
static weir_status open_epoch(worker *w, uint32_t epoch) {
  const weir_scenario *s = w->config->scenario;
  weir_status status = weir_set_epoch(w->session, epoch);
  if (status || w->config->clock || w->config->told) return status;
  if (!w->config->rank) {
    weir_message message = {.kind = WEIR_MESSAGE_EPOCH, .as.epoch = epoch};
    status = tell(w, &message);
    if (!status) status = weir_channel_receive(w->config->channel, &message, RUNNER_TIMEOUT_S);
    if (status) return status;
  }
  const bool changes = s->phase_count && epoch > s->first_epoch &&
                       weir_scenario_phase(s, epoch) != weir_scenario_phase(s, epoch - 1);
  if (!changes) return WEIR_OK;
  char *all = calloc(s->workers, 1);
  if (!all) return weir_fail(WEIR_E_NOMEM, "no memory for a byte a rank");
  status = weir_allgather_bytes(w->session, "", 1, all);
  free(all);
  return status;
}

/* Between two epochs: what the one before has reached, then the next one's network. */
static weir_status turn_epoch(worker *w) {
  const weir_scenario *s = w->config->scenario;
  const uint64_t over = w->committed / w->steps_per_epoch;
  weir_status status = w->committed == w->total ? weir_samples_rest(w->samples) : WEIR_OK;
  if (!status && over && (over % s->evaluate_every == 0 || w->committed == w->total))
    status = evaluate(w, &w->row);
  if (!status) status = send_row(w); /* before the runner changes what is in force */
  if (status || w->committed == w->total) return status;
  return open_epoch(w, s->first_epoch + (uint32_t)over);
}

/* --- checkpoints ------------------------------------------------------------------------------ */

/* The rows of the steps until now, which the runner has. */
static weir_status keep_rows(const worker *w) {
  if (w->config->rank) return WEIR_OK;
  weir_message message = {.kind = WEIR_MESSAGE_KEEP};
  weir_status status = tell(w, &message);
  if (!status) status = weir_channel_receive(w->config->channel, &message, RUNNER_TIMEOUT_S);
  if (status || !message.as.error.status) return status;
  message.as.error.text[sizeof message.as.error.text - 1] = 0;
  return weir_fail(WEIR_E_IO, "%s", message.as.error.text);
}

static weir_status save(worker *w) {
  const weir_worker_config *c = w->config;
  const weir_savepoint at = {.run = c->run,
                             .rank = (uint32_t)c->rank,
                             .workers = c->scenario->workers,
                             .committed = w->committed,
                             .executed = w->steps,
                             .elapsed_s = w->elapsed_s,
                             .virtual_s = w->now_s,
                             .slot = w->slot};
  const weir_status status = keep_rows(w);
  return status ? status : weir_savepoint_write(c->keep, &at, w->trainer, w->session);
}

/* All ranks' files, then the next generation's: what cannot be saved by one is none, and costs no
 * more than having to go on from further back.  Nobody goes on before all have, lest the step that
 * follows be measured too long. */
static weir_status checkpoint(worker *w) {
  const weir_worker_config *c = w->config;
  const uint64_t every = c->scenario->checkpoint_steps;
  if (!c->keep || !every || w->committed == w->saved || w->committed % every) return WEIR_OK;
  w->saved = w->committed;
  char mine = save(w) ? 0 : 1, good = 1;
  if (!mine && !w->said)
    (void)fprintf(stderr,
                  "weir: rank %d: no checkpoint after step %" PRIu64 ": %s; training goes on\n",
                  c->rank, w->committed, weir_last_error());
  w->said = w->said || !mine;
  char *all = calloc(c->scenario->workers, 1);
  if (!all) return weir_fail(WEIR_E_NOMEM, "no memory for a byte a rank");
  const weir_status status = weir_allgather_bytes(w->session, &mine, 1, all);
  for (uint32_t r = 0; r < c->scenario->workers; r++) good = good && all[r] == 1;
  free(all);
  if (good) w->slot = 1 - w->slot;
  return status;
}

/* --- a step ----------------------------------------------------------------------------------- */

static weir_status clip_and_submit(worker *w) {
  const size_t tensors = weir_trainer_tensors(w->trainer);
  for (size_t t = 0; t < tensors; t++) w->gradients[t] = weir_trainer_gradient(w->trainer, t);
  weir_status status = weir_clip(w->session, w->gradients, w->config->scenario->clip_norm, NULL);
  for (size_t t = 0; t < tensors && !status; t++)
    status = weir_submit(w->session, (uint32_t)t, w->gradients[t]);
  return status;
}

/* The fault a scenario asks for, with the gradient handed in and not yet exchanged. */
static void strike(const worker *w, const weir_step_info *info) {
  const weir_scenario *s = w->config->scenario;
  if (s->fault == WEIR_FAULT_NONE || w->config->from ||
      /* it struck */ (int)s->fault_rank != w->config->rank || info->trial ||
      info->step != s->fault_step)
    return;
  if (s->fault == WEIR_FAULT_EXIT) _exit(3);
  (void)kill(getpid(), s->fault == WEIR_FAULT_KILL ? SIGKILL : SIGSTOP);
}

static weir_status exchange(worker *w, double *loss, weir_step_info *info) {
  weir_status status = weir_step_begin(w->session, info);
  w->begun_s = w->config->clock ? w->now_s : weir_now_s();
  if (!status) status = weir_trainer_backward(w->trainer, loss);
  if (!status && w->config->scenario->report_loss) status = weir_report_loss(w->session, *loss);
  if (!status && w->config->scenario->clip_norm > 0) status = clip_and_submit(w);
  if (status) return status;
  strike(w, info);
  return weir_step_end(w->session, info);
}

static weir_status one_step(worker *w) {
  const uint32_t epoch =
      w->config->scenario->first_epoch + (uint32_t)(w->committed / w->steps_per_epoch);
  weir_step_info info = {.struct_size = sizeof info};
  double loss = NAN;
  const double begin = weir_now_s();
  weir_status status = exchange(w, &loss, &info);
  if (status == WEIR_E_NONFINITE) {
    if (++w->nonfinite >= NONFINITE_MAX)
      return weir_fail(status,
                       "%u steps in a row had no finite gradient; a smaller learning rate may help",
                       w->nonfinite);
    status = WEIR_OK;
  } else if (!status) {
    w->nonfinite = 0;
  }
  if (status) return status;
  const double cpu = weir_thread_cpu_s();
  if (!w->nonfinite) status = weir_trainer_update(w->trainer, w->session);
  if (status) return status;
  w->busy_s = info.compute_s + info.compress_s + info.overhead_s + weir_thread_cpu_s() - cpu;
  w->exchange_s = info.comm_s;
  if (w->config->capture) {
    const double step_s = w->config->clock ? w->busy_s + w->exchange_s : weir_now_s() - w->begun_s;
    status = weir_timings_add(&w->timings, w->session, w->steps, w->begun_s, step_s);
  }
  w->steps++;
  if (!w->config->clock) w->elapsed_s += weir_now_s() - begin;
  w->row = (weir_row){.info = info,
                      .epoch = epoch,
                      .loss = loss,
                      .accuracy = NAN,
                      .test_loss = NAN,
                      .elapsed_s = w->elapsed_s};
  w->row_waits = !w->config->rank;
  if (!info.trial) w->committed++;
  return status;
}

/* In virtual time, a step's end is known once all ranks have come here. */
static weir_status move_clock(worker *w) {
  weir_sim_clock *clock = w->config->clock;
  if (!clock) return WEIR_OK;
  const uint64_t at = w->committed < w->total ? w->committed : w->total - 1;
  const uint32_t epoch = w->config->scenario->first_epoch + (uint32_t)(at / w->steps_per_epoch);
  weir_sim_clock_network(clock, 0, &w->row.set_latency_s, &w->row.set_bandwidth);
  /* Others may still be evaluating, which is no communication: give them time. */
  weir_status status =
      weir_sim_clock_arrive(clock, w->busy_s, w->exchange_s, epoch,
                            w->config->scenario->timeout_s + 60, &w->row.elapsed_s);
  w->busy_s = w->exchange_s = 0;
  w->now_s = w->row.elapsed_s;
  return status;
}

static weir_status train(worker *w) {
  weir_status status = WEIR_OK;
  uint64_t turned = UINT64_MAX;
  if (w->config->from && w->committed < w->total) { /* its epoch had been opened */
    turned = w->committed;
    status = open_epoch(
        w, w->config->scenario->first_epoch + (uint32_t)(w->committed / w->steps_per_epoch));
  }
  for (;;) {
    if (!status && w->committed % w->steps_per_epoch == 0 && w->committed != turned) {
      turned = w->committed;
      status = turn_epoch(w);
    }
    if (!status) status = send_row(w);
    if (status || w->committed == w->total) return status;
    status = checkpoint(w);
    if (!status) status = one_step(w);
    if (!status) status = move_clock(w);
  }
}

/* Without a runner, the ranks compare their weights themselves: rank 0 says what all have. */
static weir_status compare_weights(worker *w, const char mine[65]) {
  const size_t ranks = w->config->scenario->workers;
  char(*all)[65] = calloc(ranks, sizeof *all);
  if (!all) return weir_fail(WEIR_E_NOMEM, "no memory for %zu digests", ranks);
  weir_status status = weir_allgather_bytes(w->session, mine, sizeof *all, all);
  for (size_t r = 0; r < ranks && !status; r++) {
    all[r][64] = '\0'; /* it came over the wire */
    if (strcmp(all[r], all[0]))
      status = weir_fail(WEIR_E_INTERNAL, "the weights of rank %zu differ from those of rank 0", r);
  }
  for (size_t r = 0; r < ranks && !status && !w->config->rank; r++) {
    weir_message message = {.kind = WEIR_MESSAGE_DONE, .rank = (uint32_t)r};
    memcpy(message.as.weights_sha256, all[r], sizeof *all);
    status = w->config->told(w->config->user, &message);
  }
  free(all);
  return status;
}

weir_status weir_worker_run(const weir_worker_config *config) {
  worker w = {.config = config};
  w.steps_per_epoch = weir_worker_steps_per_epoch(config->scenario, config->data);
  w.total = w.steps_per_epoch * config->scenario->epochs;
  weir_message message = {.kind = WEIR_MESSAGE_DONE};
  weir_status status = set_up(&w);
  if (!status) status = train(&w);
  if (!status && config->capture)
    status = weir_capture(w.session, w.trainer, config->rank, (int)config->scenario->workers,
                          config->capture);
  if (!status && config->capture)
    status = weir_timings_write(&w.timings, config->capture, config->rank);
  if (!status) {
    weir_trainer_weights_sha256(w.trainer, message.as.weights_sha256);
    if (config->told) status = compare_weights(&w, message.as.weights_sha256);
  }
  if (status) {
    message.kind = WEIR_MESSAGE_ERROR;
    message.as.error.status = status;
    (void)snprintf(message.as.error.text, sizeof message.as.error.text, "%s", weir_last_error());
    if (config->clock) weir_sim_clock_fail(config->clock, config->rank);
  }
  weir_samples_close(w.samples);
  weir_session_free(w.session); /* the journal is whole once the session is gone */
  weir_trainer_free(w.trainer);
  weir_timings_free(&w.timings);
  free(w.gradients);
  const weir_status told = config->told ? WEIR_OK : tell(&w, &message);
  if (status) (void)weir_fail(status, "%s", message.as.error.text);
  return status ? status : told;
}

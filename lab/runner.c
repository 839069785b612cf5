#include "lab/runner.h"

#include <errno.h>
#include <glib.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/base.h"
#include "base/schemes.h"
#include "controller/controller.h"
#include "controller/table.h"
#include "lab/report.h"
#include "lab/run_record.h"
#include "lab/runner_private.h"
#include "lab/stage.h"
#include "lab/uml.h"

/* A worker: about 18 arrays as large as the model (weights, moments, gradient, error-fed gradient,
 * residual, the same again in a trial's checkpoint, codecs' and collectives' buffers), activations,
 * and what a process with oneDNN takes. */
#define WORKER_ARRAYS 18.0
#define PROCESS_BYTES 24e6

/* --- prepare ---------------------------------------------------------------------------------- */

/* groups:FILE is given relative to where weir was called, and read by the worker of rank 0. */
static weir_status buckets_policy(const char *text, char **canonical) {
  weir_table_text table;
  weir_status status = weir_table_parse(text + strlen("groups:"), &table);
  if (status || table.kind != WEIR_TABLE_FILE) {
    *canonical = status ? NULL : g_strdup(text);
    return status;
  }
  if (access(table.path, R_OK))
    return weir_fail(WEIR_E_INVALID,
                     "policy %s: %s: %s; expected a table of buckets, or layers:PLAN, "
                     "bucket=MB:PLAN or even=N:PLAN",
                     text, table.path, strerror(errno));
  g_autofree char *path = g_canonicalize_filename(table.path, NULL);
  *canonical = g_strconcat("groups:", path, NULL);
  return WEIR_OK;
}

weir_status weir_run_policy(const char *text, char **canonical) {
  *canonical = NULL;
  if (!strncmp(text, "groups:", 7)) return buckets_policy(text, canonical);
  if (!strcmp(text, "weir")) {
    *canonical = g_strdup(text);
    return WEIR_OK;
  }
  if ((!strncmp(text, "bits", 4) && (text[4] == ':' || text[4] == '\0')) ||
      (!strncmp(text, "paper", 5) && (text[5] == ':' || text[5] == '\0')) ||
      !strncmp(text, "schedule:", 9)) {
    const weir_status status = weir_policy_check(text);
    if (!status) *canonical = g_strdup(text);
    return status;
  }
  const bool named = !strncmp(text, "fixed:", 6);
  if (!named && !strchr(text, ':'))
    return weir_fail(
        WEIR_E_INVALID,
        "policy %s is unknown; expected weir, paper[:CODECS], bits, fixed:CODEC:CR:COLLECTIVE, "
        "schedule:STAGES or groups:GROUPS",
        text);
  weir_plan plan;
  weir_status status = weir_plan_parse(text + (named ? 6 : 0), &plan);
  if (status) {
    g_autofree char *why = g_strdup(weir_last_error());
    status =
        weir_fail(WEIR_E_INVALID,
                  "policy %s: %s; expected fixed:CODEC:CR:COLLECTIVE that fit together", text, why);
    return status;
  }
  *canonical = g_strconcat(named ? "" : "fixed:", text, NULL);
  return WEIR_OK;
}

/* Put a place in front of the last message. */
static weir_status at_place(weir_status status, const char *path, int line) {
  g_autofree char *why = g_strdup(weir_last_error());
  (void)(line ? weir_fail(status, "%s:%d: %s", path, line, why)
              : weir_fail(status, "command line: %s", why));
  return status;
}

static weir_status apply_options(weir_run *run) {
  const weir_run_options *o = &run->options;
  weir_scenario *s = &run->scenario;
  if (o->workers >= 0) {
    if (o->workers < 1 || o->workers > WEIR_SCENARIO_WORKERS_MAX)
      return weir_fail(WEIR_E_INVALID,
                       "command line: --workers %" PRId64
                       " is not allowed; expected a whole number from 1 to %d",
                       o->workers, WEIR_SCENARIO_WORKERS_MAX);
    s->workers = (uint32_t)o->workers;
    s->workers_line = 0;
  }
  if (o->has_seed) s->seed = o->seed;
  weir_status status = weir_scenario_check_workers(s);
  if (status) return status;
  status = weir_run_policy(o->policy ? o->policy : s->policy, &run->policy);
  if (status) return at_place(status, s->path, o->policy ? 0 : s->policy_line);
  if (o->risk) (void)g_strlcpy(s->risk, o->risk, sizeof s->risk);
  status = weir_risk_check(s->risk);
  if (status) return at_place(status, s->path, o->risk ? 0 : s->risk_line);
  status = weir_filter_check(s->full_precision);
  if (status) return at_place(status, s->path, s->full_line);
  status = s->error_feedback ? WEIR_OK : weir_policy_check_without_feedback(run->policy);
  if (status) return at_place(status, s->path, s->feedback_line);
  if (s->warmup_epochs) status = weir_policy_check_warmup(run->policy);
  if (!status) return WEIR_OK;
  g_autofree char *why = g_strdup(weir_last_error());
  (void)weir_fail(status, "warmup_epochs = %" PRIu32 ": %s; expected 0, or such a policy",
                  s->warmup_epochs, why);
  return at_place(status, s->path, s->warmup_line);
}

static weir_status parse_network(weir_run *run) {
  static const char *const names[] = {"auto", "tc", "uml", "sim"};
  const char *text = run->options.network ? run->options.network : "auto";
  for (int k = WEIR_NETWORK_AUTO; k <= WEIR_NETWORK_SIM; k++)
    if (!strcmp(text, names[k])) {
      run->network = (weir_network_kind)k;
      if (run->network == WEIR_NETWORK_SIM && run->scenario.fault)
        return weir_fail(WEIR_E_INVALID,
                         "%s:%d: a fault needs worker processes, and --network sim has threads; "
                         "expected tc, uml or auto",
                         run->scenario.path, run->scenario.fault_line);
      return WEIR_OK;
    }
  return weir_fail(WEIR_E_INVALID,
                   "command line: --network %s is unknown; expected auto, tc, uml or sim", text);
}

/* A clock that is not real belongs to User-Mode Linux, which `auto` then means. */
static weir_status parse_clock(weir_run *run) {
  const char *text = run->options.clock;
  char why[512];
  if (text && !weir_uml_clock_parse(text, &run->clock))
    return weir_fail(WEIR_E_INVALID,
                     "command line: --clock %s is unknown; expected real, skip-idle or free-cpu",
                     text);
  if (run->clock == WEIR_UML_CLOCK_REAL || run->options.inside_uml) return WEIR_OK;
  if (run->network != WEIR_NETWORK_AUTO && run->network != WEIR_NETWORK_UML)
    return weir_fail(WEIR_E_INVALID,
                     "command line: --clock %s is a clock of User-Mode Linux's; expected --network "
                     "uml",
                     text);
  if (!weir_uml_available(run->clock, why))
    return weir_fail(WEIR_E_INVALID, "command line: --clock %s: %s", text, why);
  run->network = WEIR_NETWORK_UML;
  return WEIR_OK;
}

/* What a worker takes; a model that cannot be made is found here, too. */
static weir_status size_worker(weir_run *run, double *bytes) {
  const weir_scenario *s = &run->scenario;
  const weir_model_config config = {
      .name = s->model, .sizes = s->sizes, .samples = s->batch, .slice = s->slice};
  weir_model model;
  weir_status status = weir_model_create(&model, &config, &run->data);
  if (status) return at_place(status, s->path, s->model_line ? s->model_line : s->training_line);
  const double array = sizeof(float) * (double)model.parameters;
  *bytes = WORKER_ARRAYS * array + (double)model.bytes + PROCESS_BYTES;
  weir_model_free(&model);
  return WEIR_OK;
}

static weir_status check_memory(weir_run *run) {
  const weir_scenario *s = &run->scenario;
  double worker = 0;
  weir_status status = size_worker(run, &worker);
  if (status || run->options.launched) return status;
  const double need = s->workers * worker, have = weir_stage_memory();
  run->memory_bytes = (uint64_t)need;
  if (have <= 0 || need <= have) return WEIR_OK;
  if (worker > have) {
    (void)weir_fail(WEIR_E_INVALID,
                    "a worker needs about %.1f GiB of memory and %.1f GiB are available; expected "
                    "a smaller batch or model",
                    worker / 1073741824, have / 1073741824);
    return at_place(WEIR_E_INVALID, s->path, s->training_line);
  }
  (void)weir_fail(WEIR_E_INVALID,
                  "%" PRIu32
                  " workers need about %.1f GiB of memory and %.1f GiB are available; expected at "
                  "most %.0f workers",
                  s->workers, need / 1073741824, have / 1073741824, floor(have / worker));
  return at_place(WEIR_E_INVALID, s->path, s->workers_line);
}

static weir_status load_data(weir_run *run) {
  const weir_scenario *s = &run->scenario;
  const weir_run *like = run->options.like;
  run->borrows = like && (like->scenario.seed == s->seed || !weir_dataset_seeded(s->dataset));
  if (run->borrows) {
    run->data = like->data;
    return WEIR_OK;
  }
  weir_status status = weir_dataset_open(
      &run->data, &(weir_dataset_config){.name = s->dataset,
                                         .directory = *s->data_dir ? s->data_dir : NULL,
                                         .context = s->sizes.context,
                                         .seed = s->seed});
  if (!status) return WEIR_OK;
  g_autofree char *why = g_strdup(weir_last_error());
  (void)weir_fail(status, "data set: %s; expected the files of %s", why, s->dataset);
  return at_place(status, s->path, *s->data_dir ? s->data_dir_line : s->training_line);
}

static weir_status check_batch(weir_run *run) {
  const weir_scenario *s = &run->scenario;
  if (s->train_limit && s->train_limit < run->data.train) run->data.train = s->train_limit;
  const uint64_t samples = (uint64_t)s->batch * s->workers;
  if (samples <= run->data.train) return WEIR_OK;
  (void)weir_fail(WEIR_E_INVALID,
                  "a step of %" PRIu32 " workers takes %" PRIu64
                  " samples; expected at most the %zu there are",
                  s->workers, samples, run->data.train);
  return at_place(WEIR_E_INVALID, s->path, s->training_line);
}

uint64_t weir_run_steps(const weir_run *run) {
  return run->scenario.epochs * weir_worker_steps_per_epoch(&run->scenario, &run->data);
}

/* A fault that never strikes would show nothing, and look as if the run had withstood it. */
static weir_status check_fault(const weir_run *run) {
  const weir_scenario *s = &run->scenario;
  if (!s->fault || s->fault_step < weir_run_steps(run)) return WEIR_OK;
  (void)weir_fail(WEIR_E_INVALID,
                  "the fault's step %" PRIu32 " is none of the run's; expected 0 to %" PRIu64,
                  s->fault_step, weir_run_steps(run) - 1);
  return at_place(WEIR_E_INVALID, s->path, s->fault_line);
}

uint64_t weir_run_seed(const weir_run *run) { return run->scenario.seed; }

const char *weir_run_network(const weir_run *run) {
  if (run->options.launched) return run->options.network;
  if (run->options.inside_uml || run->network == WEIR_NETWORK_UML) return "uml";
  return run->network == WEIR_NETWORK_TC ? "tc" : "sim";
}

/* The first that works, and why not those before it. */
static weir_status choose_network(weir_run *run) {
  if (run->network == WEIR_NETWORK_SIM) return WEIR_OK;
  char why[512];
  char *said = NULL;
  if (run->network != WEIR_NETWORK_UML) {
    const weir_schedule schedule = weir_run_schedule(run);
    weir_status status = weir_tc_probe(weir_schedule_needs_netem(&schedule));
    if (!status) {
      run->network = WEIR_NETWORK_TC;
      return WEIR_OK;
    }
    if (run->network == WEIR_NETWORK_TC) {
      g_autofree char *lacks = g_strdup(weir_last_error());
      return weir_fail(status, "network tc is not available: %s; --network auto takes one that is",
                       lacks);
    }
    said = g_strdup_printf("tc: %s", weir_last_error());
  }
  if (weir_uml_available(run->clock, why)) {
    run->network = WEIR_NETWORK_UML;
  } else if (run->network == WEIR_NETWORK_UML) {
    return weir_fail(WEIR_E_UNSUPPORTED, "network uml is not available: %s", why);
  } else {
    char *more = g_strdup_printf("%s; uml: %s", said, why);
    g_free(said);
    said = more;
    if (run->scenario.fault) {
      weir_status status =
          weir_fail(WEIR_E_UNSUPPORTED, "a fault needs worker processes: %s", said);
      g_free(said);
      return status;
    }
    run->network = WEIR_NETWORK_SIM;
  }
  if (said) run->lacks = g_strdup_printf("network: %s (%s)", weir_run_network(run), said);
  g_free(said);
  return WEIR_OK;
}

/* In virtual time there are no packets that could be lost: whoever asks for it is told. */
static void tell_of_packets(weir_run *run) {
  const weir_scenario *s = &run->scenario;
  bool asked = false;
  for (size_t p = 0; p < s->phase_count; p++)
    asked = asked || s->phases[p].loss_percent > 0 || s->phases[p].reorder_percent > 0 ||
            s->phases[p].duplicate_percent > 0;
  if (run->network != WEIR_NETWORK_SIM || !asked) return;
  char *before = run->lacks;
  run->lacks = g_strdup_printf(
      "%s%snetwork sim has no packets: loss_percent, reorder_percent and "
      "duplicate_percent of %s change nothing in it",
      before ? before : "", before ? "\n" : "", s->path);
  g_free(before);
}

static weir_status not_there(const weir_run *run, const weir_plan *plan, const char *lacks) {
  const weir_scenario *s = &run->scenario;
  char name[WEIR_COLLECTIVE_TEXT_MAX];
  weir_plan_collective(plan, name);
  (void)weir_fail(WEIR_E_INVALID,
                  "policy %s: collective %s over network %s, where %s; expected another collective",
                  run->policy, name, weir_run_network(run), lacks);
  return at_place(WEIR_E_INVALID, s->path, run->options.policy ? 0 : s->policy_line);
}

/* Does the network have what the plan is exchanged by?  A session says so only once it is there. */
static weir_status check_plan(const weir_run *run, const weir_plan *plan) {
  if (run->scenario.workers == 1) return WEIR_OK;
  if (weir_sums_natively(plan)) return not_there(run, plan, "no library sums by itself");
  if (run->network != WEIR_NETWORK_SIM) return WEIR_OK;
  if (plan->scheme == WEIR_SCHEME_HITOPK || weir_sums_inside_natively(plan))
    return not_there(run, plan, "all workers are on one machine");
  return WEIR_OK;
}

/* What a policy begins with, and goes through whatever it costs. */
static weir_status check_plans(const weir_run *run) {
  weir_plan plan;
  weir_status status = weir_policy_first_plan(run->policy, NULL, &plan);
  if (!status) status = check_plan(run, &plan);
  for (size_t i = 0; !status && weir_policy_heaviest(run->policy, i, &plan); i++)
    status = check_plan(run, &plan);
  return status;
}

static weir_status check_source(const weir_run *run) {
  const weir_scenario *s = &run->scenario;
  if (run->network != WEIR_NETWORK_SIM) return WEIR_OK;
  if (s->source_ms <= 0 && s->source_mb_s <= 0 && !s->cache_mb) return WEIR_OK;
  (void)weir_fail(
      WEIR_E_INVALID,
      "source_ms, source_mb_s and cache_mb are for real time, and network sim has none; "
      "expected none of them, or network tc or uml");
  return at_place(WEIR_E_INVALID, s->path, s->training_line);
}

/* Which network it is going to be, and whether it will do. */
static weir_status settle_network(weir_run *run) {
  const weir_schedule schedule = weir_run_schedule(run);
  weir_status status = choose_network(run);
  if (!status && run->network != WEIR_NETWORK_SIM) status = weir_schedule_check(&schedule);
  if (!status) status = check_source(run);
  if (!status) tell_of_packets(run);
  return status ? status : check_plans(run);
}

/* The files of a division into buckets, or of several that take turns. */
static weir_status spare_tables(const weir_run *run, const char *out) {
  static const char buckets[] = "groups:";
  if (strncmp(run->policy, buckets, sizeof buckets - 1) != 0) return WEIR_OK;
  const char *text = run->policy + sizeof buckets - 1;
  if (!strncmp(text, "turns=", 6) && strchr(text, ':')) text = strchr(text, ':') + 1;
  g_auto(GStrv) part = g_strsplit(text, ";", -1);
  weir_status status = WEIR_OK;
  for (char **at = part; *at && !status; at++) {
    weir_table_text table;
    if (!weir_table_parse(*at, &table) && table.kind == WEIR_TABLE_FILE)
      status = weir_out_spares(out, "policy's table", table.path);
  }
  return status;
}

weir_status weir_run_spares(const weir_run *run, const char *out) {
  const weir_scenario *s = &run->scenario;
  weir_status status = weir_out_spares(out, "scenario", run->options.scenario);
  if (!status && *s->trace.file) status = weir_out_spares(out, "trace", s->trace.file);
  if (!status && *s->sizes.shape) status = weir_out_spares(out, "shape", s->sizes.shape);
  return status ? status : spare_tables(run, out);
}

weir_status weir_run_prepare(weir_run **out, const weir_run_options *options) {
  *out = NULL;
  weir_run *run = calloc(1, sizeof *run);
  if (!run) return weir_fail(WEIR_E_NOMEM, "no memory for a run");
  run->options = *options;
  run->lock = -1;
  run->out = g_canonicalize_filename(options->out, NULL);
  run->journal = g_build_filename(run->out, WEIR_OUT_JOURNAL, NULL);
  weir_status status = weir_scenario_read(&run->scenario, options->scenario);
  if (!status) status = apply_options(run);
  if (!status && !options->launched) status = parse_network(run);
  if (!status && !options->launched) status = parse_clock(run);
  if (!status) status = weir_trace_of(&run->trace, &run->scenario);
  if (!status && !options->launched) status = weir_out_check(run->out);
  if (!status) status = load_data(run);
  if (!status) status = check_memory(run);
  if (!status) status = check_batch(run);
  if (!status) status = check_fault(run);
  if (!status) status = weir_run_check_buckets(run);
  if (!status) status = weir_run_spares(run, run->out);
  if (!status && !options->launched) status = settle_network(run);
  if (status) {
    weir_run_free(run);
    return status;
  }
  *out = run;
  return WEIR_OK;
}

void weir_run_free(weir_run *run) {
  if (!run) return;
  weir_out_close(run->lock);
  if (!run->borrows) weir_dataset_free(&run->data);
  weir_trace_free(&run->trace);
  g_free(run->out);
  g_free(run->policy);
  g_free(run->journal);
  g_free(run->lacks);
  free(run);
}

/* --- execute ---------------------------------------------------------------------------------- */

weir_status weir_run_write_as(const weir_run *run, const weir_scenario *scenario,
                              const weir_steplog *log, const char (*weights_sha256)[65]) {
  g_autofree char *decisions = g_build_filename(run->out, "decisions.jsonl", NULL);
  weir_status status = WEIR_OK;
  /* A policy that never decides leaves no journal: the list is then empty, not missing. */
  if (rename(run->journal, decisions) && !g_file_set_contents(decisions, "", 0, NULL))
    status = weir_fail(WEIR_E_IO, "%s: cannot be written: %s", decisions, strerror(errno));
  const weir_summary summary = {
      .scenario = scenario,
      .log = log,
      .network = weir_run_network(run),
      .clock = run->network == WEIR_NETWORK_SIM ? "modelled" : weir_uml_clock_name(run->clock),
      .policy = run->policy,
      .weights_sha256 = weights_sha256};
  /* Either is worth having without the other. */
  const weir_status steps = weir_steplog_write(log, run->out);
  g_autofree char *why = g_strdup(steps ? weir_last_error() : "");
  const weir_status figures = weir_summary_write(&summary, run->out);
  if (!status && (steps || figures))
    status = weir_fail(WEIR_E_IO, "the training is done, but %s; all else of it is in %s",
                       steps ? why : weir_last_error(), run->out);
  return status;
}

weir_status weir_run_write(const weir_run *run, const weir_steplog *log,
                           const char (*weights_sha256)[65]) {
  return weir_run_write_as(run, &run->scenario, log, weights_sha256);
}

weir_status weir_run_report(const weir_run *run) {
  const weir_status status = weir_report_write(run->out);
  if (!status) return WEIR_OK;
  g_autofree char *why = g_strdup(weir_last_error());
  (void)weir_fail(status,
                  "the training is done and its files are in %s, but there is no report: %s; `weir "
                  "report %s` draws it",
                  run->out, why, run->out);
  return status;
}

/* The folder of a run that goes on, and where it was. */
static weir_status reopen(weir_run *run) {
  const weir_scenario *s = &run->scenario;
  weir_status status = weir_out_reopen(run->out, &run->lock);
  if (status) return status;
  run->goes_on = weir_savepoint_find(run->out, run->options.run, s->workers, &run->from);
  if (run->options.inside_uml) return status; /* the outer run says it */
  g_autofree char *line =
      run->goes_on
          ? g_strdup_printf("the run in %s goes on after step %" PRIu64, run->out,
                            run->from.committed)
          : g_strdup_printf("the run in %s has saved nothing yet: it begins again", run->out);
  weir_progress_say(&run->progress, line);
  return status;
}

weir_status weir_run_recall(const weir_run *run, weir_steplog *log) {
  return run->goes_on ? weir_steplog_recall(log, run->out, run->options.run, run->from.executed)
                      : WEIR_OK;
}

uint32_t weir_run_epoch(const weir_run *run) {
  const weir_scenario *s = &run->scenario;
  const uint64_t steps = weir_worker_steps_per_epoch(s, &run->data);
  return s->first_epoch + (run->goes_on ? (uint32_t)(run->from.committed / steps) : 0);
}

/* What a run may leave at the most: a quarter of its steps more are trials, but for short ones. */
weir_status weir_run_open(weir_run *run) {
  enum { ROW = 256, EVALUATION = 96, DIGEST = 80, REST = 65536 };
  const weir_scenario *s = &run->scenario;
  const size_t steps = weir_run_steps(run);
  weir_status status = WEIR_OK;
  if (run->options.resume)
    status = reopen(run);
  else if (!run->options.inside_uml) /* the outer run has done it */
    status = weir_out_open(run->out, &run->lock);
  if (!status) status = weir_out_reserve(run->out, "steps.csv", REST + ROW * (steps + steps / 4));
  if (!status)
    status = weir_out_reserve(run->out, "summary.json",
                              REST + (size_t)s->epochs * EVALUATION + s->workers * (size_t)DIGEST);
  return status;
}

/* For `weir top DIR`, which looks for the ranks on this machine; there while they run. */
static weir_status tell_job(const weir_run *run) {
  g_autofree char *text = g_strdup_printf("%016" PRIx64 "\n", run->job_id);
  return weir_out_write(run->out, "job", text);
}

/* From now on it can go on when it is killed. */
static weir_status write_record(weir_run *run) {
  if (!run->options.keep || run->options.resume || !run->scenario.checkpoint_steps) return WEIR_OK;
  run->options.run = run->job_id;
  g_autofree char *scenario = g_canonicalize_filename(run->options.scenario, NULL);
  g_autofree char *digest = weir_file_sha256(scenario);
  if (!digest) return weir_fail(WEIR_E_IO, "%s cannot be read again", scenario);
  return weir_run_record_write(&(weir_run_record){.run = run->options.run,
                                                  .scenario = scenario,
                                                  .scenario_sha256 = digest,
                                                  .policy = run->policy,
                                                  .risk = run->scenario.risk,
                                                  .network = (char *)weir_run_network(run),
                                                  .clock = (char *)weir_uml_clock_name(run->clock),
                                                  .workers = run->scenario.workers,
                                                  .seed = run->scenario.seed,
                                                  .profile = run->options.profile},
                               run->out);
}

static weir_status train(weir_run *run) {
  weir_status status = WEIR_OK;
  if (run->lacks) weir_progress_say(&run->progress, run->lacks);
  if (getrandom(&run->job_id, sizeof run->job_id, 0) != (ssize_t)sizeof run->job_id)
    return weir_fail(WEIR_E_IO, "no random number for the job: %s", strerror(errno));
  if (run->network == WEIR_NETWORK_UML) return weir_run_uml(run);
  const bool tc = run->network == WEIR_NETWORK_TC;
  status = write_record(run);
  if (!status) status = tell_job(run);
  if (!status) status = weir_stage_run(tc ? weir_run_tc : weir_run_sim, run);
  g_autofree char *job = g_build_filename(run->out, "job", NULL);
  (void)unlink(job);
  return status;
}

/* Its results are removed.  Where it has a checkpoint that stays, and where it was interrupted
 * before the first at least what is known of it. */
static weir_status ended_early(const weir_run *run, weir_status status) {
  weir_run_record record;
  weir_savepoint at;
  if (run->options.inside_uml) return status; /* the outer run sees to it */
  if (status != WEIR_E_STATE && weir_out_trained(run->out)) return status;
  g_autofree char *why = g_strdup(weir_last_error());
  const bool kept = run->options.keep && !weir_run_record_read(&record, run->out);
  const bool found = kept && weir_savepoint_find(run->out, record.run, record.workers, &at);
  if (kept) weir_run_record_free(&record);
  if (!found && !(kept && status == WEIR_E_STATE)) {
    weir_out_discard(run->out);
    return weir_fail(status, "%s", why);
  }
  weir_out_empty(run->out);
  if (!found) return weir_fail(status, "%s; `weir run --resume %s` begins again", why, run->out);
  return weir_fail(status, "%s; `weir run --resume %s` goes on after step %" PRIu64, why, run->out,
                   at.committed);
}

weir_status weir_run_execute(weir_run *run) {
  weir_progress_begin(&run->progress,
                      run->options.relay ? WEIR_PROGRESS_RELAY : weir_progress_style_here(),
                      &run->scenario, weir_worker_steps_per_epoch(&run->scenario, &run->data));
  weir_status status = train(run);
  weir_progress_end(&run->progress);
  if (status) return ended_early(run, status);
  if (run->options.inside_uml) return WEIR_OK;
  status = weir_run_report(run);
  weir_out_settle(run->out); /* without a report it is finished, too */
  return status;
}

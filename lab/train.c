#include "lab/train.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weir/launch.h>

#include "base/base.h"
#include "base/installed.h"
#include "base/log.h"
#include "lab/runner_private.h"
#include "session/state.h"

struct weir_train {
  weir_train_options options;
  weir_launch launch;
  weir_options session; /* what the environment says of one */
  weir_run *run;
  weir_scenario written; /* the scenario as rank 0 writes it down: its phases were not in force */
  weir_steplog log;
  char (*weights_sha256)[65]; /* rank 0: one a rank */
  char transport[16];         /* rank 0: that in use */
};

/* Rank 0's session tells this thread what else a runner would be told. */
static weir_status told(void *user, const weir_message *message) {
  weir_train *train = user;
  weir_row row = message->as.row;
  switch (message->kind) {
    case WEIR_MESSAGE_STEP:
      row.set_latency_s = row.set_bandwidth = NAN;
      weir_progress_row(&train->run->progress, &row);
      return weir_steplog_add(&train->log, &row);
    case WEIR_MESSAGE_MET:
      memcpy(train->transport, message->as.transport, sizeof train->transport);
      train->run->options.network = train->transport;
      return WEIR_OK;
    case WEIR_MESSAGE_DONE:
      memcpy(train->weights_sha256[message->rank], message->as.weights_sha256,
             sizeof *train->weights_sha256);
      return WEIR_OK;
    default: return weir_fail(WEIR_E_INTERNAL, "a worker says %u", message->kind);
  }
}

/* Over NCCL this worker's NCCL loads Weir's tuner, unless the user has named one, or an algorithm
 * for all.  No thread is there yet that might read the environment meanwhile. */
static weir_status offer_tuner(const char *transport) {
  static const char file[] = "libweir-nccl-tuner.so";
  char path[PATH_MAX];
  if (strstr(transport, "nccl") == NULL || getenv("NCCL_TUNER_PLUGIN") != NULL ||
      getenv("NCCL_ALGO") != NULL)
    return WEIR_OK;
  if (!weir_installed_find(WEIR_INSTALLED_MODULE, file, path, sizeof path))
    weir_log(WEIR_LOG_WARN, "%s is not there: NCCL chooses its all-reduce itself", file);
  else if (setenv("NCCL_TUNER_PLUGIN", path, 1) != 0)
    return weir_fail(WEIR_E_NOMEM, "no memory for NCCL_TUNER_PLUGIN");
  return WEIR_OK;
}

weir_status weir_train_prepare(weir_train **out, const weir_train_options *options) {
  *out = NULL;
  weir_train *train = calloc(1, sizeof *train);
  if (!train) return weir_fail(WEIR_E_NOMEM, "no memory for a worker");
  train->options = *options;
  weir_options_init(&train->session);
  train->session.transport = options->transport ? options->transport : "auto";
  train->launch.struct_size = sizeof train->launch;
  weir_status status = weir_options_from_environment(&train->session, &train->launch);
  if (!status) status = weir_options_check(&train->session); /* before anything is written */
  if (!status) status = offer_tuner(train->session.transport);
  const weir_run_options run = {.scenario = options->scenario,
                                .out = options->out,
                                .policy = options->policy,
                                .network = train->session.transport,
                                .workers = train->launch.world_size,
                                .has_seed = options->has_seed,
                                .seed = options->seed,
                                .launched = true};
  if (!status) status = weir_run_prepare(&train->run, &run);
  if (!status) {
    const uint32_t ranks = train->run->scenario.workers;
    train->weights_sha256 = calloc(ranks, sizeof *train->weights_sha256);
    if (!train->weights_sha256) status = weir_fail(WEIR_E_NOMEM, "no memory for %u digests", ranks);
  }
  if (!status && !train->launch.rank) status = weir_out_check(train->run->out);
  if (!status && !train->launch.rank) status = weir_run_open(train->run);
  if (status) {
    weir_train_free(train);
    return status;
  }
  *out = train;
  return WEIR_OK;
}

int weir_train_rank(const weir_train *train) { return train->launch.rank; }
const char *weir_train_weights_sha256(const weir_train *train) { return train->weights_sha256[0]; }

weir_status weir_train_execute(weir_train *train) {
  weir_run *run = train->run;
  train->written = run->scenario;
  train->written.phase_count = 0;
  train->written.trace.file[0] = '\0';
  if (!train->launch.rank)
    weir_progress_begin(&run->progress, weir_progress_style_here(), &run->scenario,
                        weir_worker_steps_per_epoch(&run->scenario, &run->data));
  if (!strcmp(train->launch.launcher, "none"))
    weir_progress_say(
        &run->progress,
        "no launcher has started this process (docs/guide/launch.md): it trains alone, as "
        "rank 0 of 1");
  const weir_worker_config config = {.scenario = &run->scenario,
                                     .data = &run->data,
                                     .rank = train->launch.rank,
                                     .policy = run->policy,
                                     .transport = train->session.transport,
                                     .rendezvous = train->session.rendezvous,
                                     .job_id = train->session.job_id,
                                     .journal_path = run->journal,
                                     .channel = -1,
                                     .told = told,
                                     .user = train};
  weir_status status = weir_worker_run(&config);
  if (train->launch.rank) return status;
  weir_progress_end(&run->progress);
  if (status) {
    weir_out_discard(run->out);
    return status;
  }
  status = weir_run_write_as(run, &train->written, &train->log,
                             (const char(*)[65])train->weights_sha256);
  return status ? status : weir_run_report(run);
}

void weir_train_free(weir_train *train) {
  if (!train) return;
  weir_steplog_free(&train->log);
  free(train->weights_sha256);
  weir_run_free(train->run);
  free(train);
}

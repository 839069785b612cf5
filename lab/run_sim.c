/* Workers as threads that train in earnest, over a network that is only computed. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/channel.h"
#include "lab/runner_private.h"
#include "lab/stage.h"

typedef struct sim_worker {
  weir_worker_config config;
  pthread_t thread;
  bool started;
} sim_worker;

static void *worker_thread(void *user) {
  sim_worker *worker = user;
  (void)weir_worker_run(&worker->config); /* it has told the runner */
  (void)close(worker->config.channel);
  return NULL;
}

static weir_status start(weir_run *run, weir_sim_clock *clock, const char *group,
                         sim_worker *workers, weir_supervisor_member *members) {
  for (uint32_t r = 0; r < run->scenario.workers; r++) {
    int ends[2];
    weir_status status = weir_channel_open(ends);
    if (status) return status;
    members[r].channel = ends[0];
    workers[r].config = (weir_worker_config){.scenario = &run->scenario,
                                             .data = &run->data,
                                             .rank = (int)r,
                                             .policy = run->policy,
                                             .rendezvous = group,
                                             .job_id = run->job_id,
                                             .journal_path = run->journal,
                                             .capture = run->options.profile ? run->out : NULL,
                                             .keep = run->options.keep ? run->out : NULL,
                                             .run = run->options.run,
                                             .from = run->goes_on ? &run->from : NULL,
                                             .channel = ends[1],
                                             .clock = clock};
    if (pthread_create(&workers[r].thread, NULL, worker_thread, &workers[r])) {
      (void)close(ends[1]);
      weir_sim_clock_fail(clock, (int)r);
      return weir_fail(WEIR_E_NOMEM, "no thread for worker %" PRIu32, r);
    }
    workers[r].started = true;
  }
  return WEIR_OK;
}

static weir_status simulate(weir_run *run, weir_sim_clock *clock, sim_worker *workers,
                            weir_supervisor_member *members, char (*digests)[65]) {
  char group[64];
  (void)snprintf(group, sizeof group, "weir-run-%016" PRIx64, run->job_id);
  weir_steplog log = {0};
  weir_supervisor supervisor = {.members = members,
                                .count = run->scenario.workers,
                                .timeout_s = run->scenario.timeout_s,
                                .log = &log,
                                .out = run->options.keep ? run->out : NULL,
                                .run = run->options.run,
                                .progress = &run->progress,
                                .weights_sha256 = digests};
  if (run->goes_on) weir_sim_clock_go_on(clock, run->from.virtual_s, weir_run_epoch(run));
  weir_status status = weir_run_recall(run, &log);
  if (!status) status = start(run, clock, group, workers, members);
  if (!status) status = weir_supervisor_run(&supervisor);
  /* An interrupted run does not wait for its threads: the process ends, and they with it. */
  for (uint32_t r = 0; r < run->scenario.workers && status != WEIR_E_STATE; r++)
    if (workers[r].started) (void)pthread_join(workers[r].thread, NULL);
  weir_progress_end(&run->progress);
  if (!status) status = weir_run_write(run, &log, (const char(*)[65])digests);
  weir_steplog_free(&log);
  return status;
}

weir_status weir_run_sim(void *user) {
  weir_run *run = user;
  const uint32_t n = run->scenario.workers;
  weir_sim_clock *clock = NULL;
  sim_worker *workers = calloc(n, sizeof *workers);
  weir_supervisor_member *members = calloc(n, sizeof *members);
  char(*digests)[65] = calloc(n, sizeof *digests);
  weir_status status = WEIR_OK;
  weir_stage_descriptors(n);
  if (!workers || !members || !digests)
    status = weir_fail(WEIR_E_NOMEM, "no memory for %" PRIu32 " workers", n);
  if (!status)
    status =
        weir_sim_clock_create(&clock, &run->scenario, run->trace.intervals ? &run->trace : NULL);
  if (!status) status = simulate(run, clock, workers, members, digests);
  if (status == WEIR_E_STATE) return status; /* threads may still use all of this */
  weir_sim_clock_free(clock);
  free(digests);
  free(members);
  free(workers);
  return status;
}

/* Workers as processes in network namespaces, links shaped by the kernel. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/channel.h"
#include "lab/runner_private.h"
#include "lab/stage.h"
#include "lab/topology.h"

#define RENDEZVOUS_PORT 7700

/* --- probe ------------------------------------------------------------------------------------ */

static weir_status probe(void *netem) {
  weir_status status = weir_topology_enter();
  return status ? status : weir_shaper_probe(*(bool *)netem);
}

weir_status weir_tc_probe(bool netem) { return weir_stage_run(probe, &netem); }

weir_schedule weir_run_schedule(const weir_run *run) {
  return (weir_schedule){&run->scenario, &run->trace};
}

/* --- the network ------------------------------------------------------------------------------ */

typedef struct tc_run {
  weir_run *run;
  weir_topology *topology;
  weir_supervisor_member *members;
  int *worker_ends;
  weir_shape in_force;
  char secret[33]; /* of this run alone: random, in hexadecimal */
} tc_run;

static weir_status set_network(void *user, uint32_t epoch, double time_s, weir_shape *in_force) {
  tc_run *tc = user;
  const weir_schedule schedule = weir_run_schedule(tc->run);
  weir_shape shape;
  weir_schedule_shape(&schedule, epoch, time_s, &shape);
  weir_status status = WEIR_OK;
  if (!weir_shape_equal(&shape, &tc->in_force)) status = weir_topology_shape(tc->topology, &shape);
  if (!status) *in_force = tc->in_force = shape;
  return status;
}

/* --- workers ---------------------------------------------------------------------------------- */

static void worker_process(const tc_run *tc, int rank) {
  const weir_run *run = tc->run;
  char name[16], rendezvous[WEIR_ADDRESS_MAX + 8], own[WEIR_ADDRESS_MAX], first[WEIR_ADDRESS_MAX];
  weir_stage_die_with_parent();
  (void)signal(SIGINT,
               SIG_IGN); /* a terminal sends it to all; the runner ends its workers itself */
  weir_stage_open_signals();
  (void)snprintf(name, sizeof name, "weir-worker-%d", rank);
  (void)prctl(PR_SET_NAME, name);
  for (uint32_t r = 0; r < run->scenario.workers; r++) {
    (void)close(tc->members[r].channel);
    if ((int)r != rank) (void)close(tc->worker_ends[r]);
  }
  weir_topology_address(rank, own);
  weir_topology_address(0, first);
  (void)snprintf(rendezvous, sizeof rendezvous, "%s:%d", first, RENDEZVOUS_PORT);
  const weir_worker_config config = {.scenario = &run->scenario,
                                     .data = &run->data,
                                     .rank = rank,
                                     .policy = run->policy,
                                     .rendezvous = rendezvous,
                                     .bind_address = own,
                                     .job_id = run->job_id,
                                     .secret = tc->secret,
                                     .journal_path = run->journal,
                                     .capture = run->options.profile ? run->out : NULL,
                                     .keep = run->options.keep ? run->out : NULL,
                                     .run = run->options.run,
                                     .from = run->goes_on ? &run->from : NULL,
                                     .channel = tc->worker_ends[rank]};
  weir_status status = weir_topology_join(tc->topology, rank);
  if (!status) status = weir_topology_segments(run->scenario.segments);
  if (!status) {
    status = weir_worker_run(&config);
  } else {
    weir_message message = {.kind = WEIR_MESSAGE_ERROR, .rank = (uint32_t)rank};
    message.as.error.status = status;
    (void)snprintf(message.as.error.text, sizeof message.as.error.text, "%s", weir_last_error());
    (void)weir_channel_send(config.channel, &message, 1);
  }
  _exit(status ? 1 : 0);
}

static weir_status fork_workers(tc_run *tc) {
  const uint32_t n = tc->run->scenario.workers;
  for (uint32_t r = 0; r < n; r++) {
    int ends[2];
    weir_status status = weir_channel_open(ends);
    if (status) return status;
    tc->members[r].channel = ends[0];
    tc->worker_ends[r] = ends[1];
  }
  (void)fflush(NULL);
  for (uint32_t r = 0; r < n; r++) {
    const pid_t pid = fork();
    if (pid < 0) return weir_fail(WEIR_E_NOMEM, "no process for worker %" PRIu32, r);
    if (pid == 0) worker_process(tc, (int)r);
    tc->members[r].pid = pid;
  }
  for (uint32_t r = 0; r < n; r++) {
    (void)close(tc->worker_ends[r]);
    tc->worker_ends[r] = -1;
  }
  return WEIR_OK;
}

/* --- the run ---------------------------------------------------------------------------------- */

static weir_status supervise(tc_run *tc) {
  weir_run *run = tc->run;
  const uint32_t n = run->scenario.workers;
  weir_steplog log = {0};
  char(*digests)[65] = calloc(n, sizeof *digests);
  if (!digests) return weir_fail(WEIR_E_NOMEM, "no memory for %" PRIu32 " digests", n);
  weir_supervisor supervisor = {
      .members = tc->members,
      .count = n,
      .timeout_s = run->scenario.timeout_s,
      .network = {set_network, tc, run->scenario.phase_count ? 0 : run->scenario.trace.interval_s},
      .log = &log,
      .out = run->options.keep ? run->out : NULL,
      .run = run->options.run,
      .elapsed_s = run->goes_on ? run->from.elapsed_s : 0,
      .progress = &run->progress,
      .weights_sha256 = digests};
  weir_status status = weir_run_recall(run, &log);
  if (!status)
    status = set_network(tc, weir_run_epoch(run), supervisor.elapsed_s, &supervisor.in_force);
  if (!status) status = fork_workers(tc);
  /* After a failed fork, those that were forked end with this process. */
  if (!status) status = weir_supervisor_run(&supervisor);
  weir_progress_end(&run->progress);
  if (!status) status = weir_run_write(run, &log, (const char(*)[65])digests);
  weir_steplog_free(&log);
  free(digests);
  return status;
}

static weir_status draw_secret(char secret[33]) {
  unsigned char drawn[16];
  if (getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
    return weir_fail(WEIR_E_IO, "the system has no random numbers");
  for (size_t i = 0; i < sizeof drawn; i++) (void)snprintf(secret + 2 * i, 3, "%02x", drawn[i]);
  return WEIR_OK;
}

/* The process that holds the network: its workers end with it, however it does. */
static weir_status inside(void *user) {
  tc_run tc = {.run = user};
  const uint32_t n = tc.run->scenario.workers;
  tc.members = calloc(n, sizeof *tc.members);
  tc.worker_ends = malloc(n * sizeof *tc.worker_ends);
  weir_status status = WEIR_OK;
  if (!tc.members || !tc.worker_ends)
    status = weir_fail(WEIR_E_NOMEM, "no memory for %" PRIu32 " workers", n);
  for (uint32_t r = 0; !status && r < n; r++) tc.members[r].channel = tc.worker_ends[r] = -1;
  if (!status) status = draw_secret(tc.secret);
  const weir_schedule schedule = weir_run_schedule(tc.run);
  if (!status) status = weir_topology_create(&tc.topology, (int)n, weir_schedule_window(&schedule));
  if (!status) status = supervise(&tc);
  weir_topology_free(tc.topology);
  free(tc.worker_ends);
  free(tc.members);
  return status;
}

weir_status weir_run_tc(void *user) {
  weir_status status = weir_topology_enter();
  return status ? status : weir_stage_run(inside, user);
}

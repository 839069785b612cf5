/* The runner's watch over its workers: whose silence counts. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lab/channel.h"
#include "lab/stage.h"
#include "lab/supervisor.h"

/* Turns take a tick of a tenth of a second, until Ctrl-Z holds the runner up for 200 s. */
Test(supervisor, a_runner_that_stood_still_takes_it_for_nobodys_silence) {
  weir_supervisor supervisor = {.last_word = 50, .turned = 100};
  weir_supervisor_turn(&supervisor, 100.1);
  cr_assert_float_eq(supervisor.last_word, 50, 1e-9);
  weir_supervisor_turn(&supervisor, 300.1);
  cr_assert_float_eq(supervisor.last_word, 250, 1e-9); /* silent for 50.1 s then, as before */
  cr_assert_eq(supervisor.failed_at, 0);
  weir_supervisor_turn(&supervisor, 300.2);
  cr_assert_float_eq(supervisor.last_word, 250, 1e-9);
}

/* A worker failed a second before: the others keep the time that they may take to end. */
Test(supervisor, nor_for_time_to_end) {
  weir_supervisor supervisor = {.last_word = 99, .turned = 100, .failed_at = 99};
  weir_supervisor_turn(&supervisor, 150);
  cr_assert_float_eq(supervisor.failed_at, 149, 1e-9);
}

static void nap(double seconds) {
  const struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
  (void)nanosleep(&time, NULL);
}

/* A worker whose time-out is 0.1 s and which is stopped for 0.4 s, or for good; then it works for
 * longer than the 2.2 s that others have to end once one has failed, and is done. */
static weir_status watch_stopped(bool goes_on) {
  int ends[2];
  cr_assert_eq(weir_channel_open(ends), WEIR_OK, "%s", weir_last_error());
  const int runner = ends[0], worker = ends[1];
  const pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid == 0) {
    (void)close(runner);
    (void)alarm(60);
    if (fork() == 0) {
      nap(0.4);
      if (goes_on) (void)kill(getppid(), SIGCONT);
      _exit(0);
    }
    (void)raise(SIGSTOP);
    nap(3.0);
    weir_message done = {.kind = WEIR_MESSAGE_DONE};
    memset(done.as.weights_sha256, 'a', 64);
    _exit(weir_channel_send(worker, &done, 1.0) == WEIR_OK ? 0 : 1);
  }
  (void)close(worker);
  weir_supervisor_member member = {.channel = runner, .pid = pid};
  char weights[1][65] = {""};
  weir_supervisor supervisor = {
      .members = &member, .count = 1, .timeout_s = 0.1, .weights_sha256 = weights};
  const weir_status status = weir_supervisor_run(&supervisor);
  if (member.channel >= 0) (void)close(member.channel);
  return status;
}

Test(supervisor, a_worker_that_is_stopped_briefly_goes_on) {
  cr_assert_eq(watch_stopped(true), WEIR_OK, "%s", weir_last_error());
}

Test(supervisor, one_that_stays_stopped_is_ended_and_named) {
  cr_assert_eq(watch_stopped(false), WEIR_E_PEER);
  cr_assert(strstr(weir_last_error(), "worker 0 froze"), "%s", weir_last_error());
}

/* What a signal to the runner finds done already: its child has it blocked, and ends well. */
static weir_status done_already(void *user) {
  (void)user;
  return kill(getppid(), SIGTERM) == 0 ? WEIR_OK : WEIR_E_INTERNAL;
}

static weir_status at_once(void *user) {
  (void)user;
  return WEIR_OK;
}

/* Else a runner that is asked to end between two of its children goes on with the next one. */
Test(supervisor, a_runner_that_is_asked_to_end_does_though_its_child_was_done) {
  cr_assert_eq(weir_stage_run(at_once, NULL), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_stage_run(done_already, NULL), WEIR_E_STATE);
  cr_assert_str_eq(weir_last_error(), "interrupted");
  cr_assert_eq(weir_stage_run(at_once, NULL), WEIR_OK, "%s", weir_last_error());
}

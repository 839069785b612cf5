#include "lab/stage.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

typedef struct outcome {
  uint32_t status; /* weir_status */
  char text[512];
} outcome;

static volatile sig_atomic_t child_pid;
static volatile sig_atomic_t asked_to_end; /* even where the child was too far on to hear of it */

static void pass_on(int number) {
  const int error = errno;
  asked_to_end = 1;
  if (child_pid > 0) (void)kill((pid_t)child_pid, number);
  errno = error;
}

void weir_stage_die_with_parent(void) { (void)prctl(PR_SET_PDEATHSIG, SIGKILL); }

void weir_stage_open_signals(void) {
  sigset_t none;
  (void)sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

void weir_stage_descriptors(size_t workers) {
  enum { EACH = 4, OTHERS = 64 };
  struct rlimit limit;
  const rlim_t wanted = (rlim_t)workers * EACH + OTHERS;
  if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

double weir_stage_memory(void) {
  FILE *file = fopen("/proc/meminfo", "re");
  char line[128];
  unsigned long long kib = 0;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %llu", &kib) == 1) break;
  if (file) (void)fclose(file);
  return (double)kib * 1024;
}

static void child(int to, weir_status (*body)(void *user), void *user) {
  weir_stage_die_with_parent();
  (void)signal(SIGTERM, SIG_DFL); /* blocked, not ignored: they wait for who reads them */
  (void)signal(SIGINT, SIG_DFL);
  outcome result = {.status = body(user)};
  if (result.status) (void)snprintf(result.text, sizeof result.text, "%s", weir_last_error());
  (void)fflush(NULL);
  const ssize_t written = write(to, &result, sizeof result);
  _exit(written == (ssize_t)sizeof result ? 0 : 1);
}

/* Until the child has closed its end.  What it wrote is less than a pipe's atomic size. */
static bool read_outcome(int from, outcome *result) {
  ssize_t got;
  do got = read(from, result, sizeof *result);
  while (got < 0 && errno == EINTR);
  result->text[sizeof result->text - 1] = 0;
  return got == (ssize_t)sizeof *result;
}

/* A library may end the process where it gets no memory (oneDNN, as it compiles code), which a
 * limit of the address space is the likeliest reason for. */
static weir_status untold(int code) {
  char how[96], limit[96] = "";
  struct rlimit space;
  if (WIFSIGNALED(code))
    (void)snprintf(how, sizeof how, "was killed by signal %d (%s)", WTERMSIG(code),
                   strsignal(WTERMSIG(code)));
  else
    (void)snprintf(how, sizeof how, "ended without saying why");
  const bool limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
  if (limited)
    (void)snprintf(limit, sizeof limit,
                   "; its address space is limited to %llu KiB (ulimit -v), expected more",
                   (unsigned long long)space.rlim_cur / 1024);
  return weir_fail(limited ? WEIR_E_NOMEM : WEIR_E_INTERNAL, "the runner %s%s", how, limit);
}

static weir_status wait_child(pid_t pid, int from) {
  outcome result;
  const bool told = read_outcome(from, &result);
  int code = 0;
  while (waitpid(pid, &code, 0) < 0 && errno == EINTR) continue;
  if (!told) return untold(code);
  return result.status ? weir_fail((weir_status)result.status, "%s", result.text) : WEIR_OK;
}

weir_status weir_stage_run(weir_status (*body)(void *user), void *user) {
  int ends[2];
  if (pipe(ends)) return weir_fail(WEIR_E_IO, "no pipe: %s", strerror(errno));
  struct sigaction forward = {.sa_handler = pass_on};
  struct sigaction old_term, old_int;
  sigset_t ends_us, old_mask;
  (void)sigemptyset(&ends_us);
  (void)sigaddset(&ends_us, SIGINT);
  (void)sigaddset(&ends_us, SIGTERM);
  child_pid = 0;
  asked_to_end = 0;
  (void)fflush(NULL);
  (void)sigprocmask(SIG_BLOCK, &ends_us, &old_mask);
  (void)sigaction(SIGTERM, &forward, &old_term);
  (void)sigaction(SIGINT, &forward, &old_int); /* a terminal sends it to the child as well */
  const pid_t pid = fork();
  weir_status status;
  if (pid == 0) {
    (void)close(ends[0]);
    child(ends[1], body, user);
  }
  child_pid = pid;
  /* Also where this is within a body itself, in which they are blocked. */
  (void)sigprocmask(SIG_UNBLOCK, &ends_us, NULL);
  (void)close(ends[1]);
  status = pid > 0 ? wait_child(pid, ends[0])
                   : weir_fail(WEIR_E_NOMEM, "no process: %s", strerror(errno));
  (void)sigprocmask(SIG_SETMASK, &old_mask, NULL);
  child_pid = 0;
  (void)sigaction(SIGTERM, &old_term, NULL);
  (void)sigaction(SIGINT, &old_int, NULL);
  (void)close(ends[0]);
  if (!status && asked_to_end) status = weir_fail(WEIR_E_STATE, "interrupted");
  return status;
}

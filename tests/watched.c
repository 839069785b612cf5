/* watched COMMAND...: runs a test, and runs it again if it failed while the machine stood still.
 *
 * Tests of time-outs have ranks that must answer within a second or so.  On a machine that gives
 * nobody any time for as long (suspended, or with a host that has others to serve) they fail, which
 * says nothing about what they test.  This process, which should wake every few milliseconds,
 * tells: a failure during which it slept for long, too, does not count.  A failure without such a
 * gap is one, at once. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS 5
#define STALL_S 0.2 /* the shortest time-out of any test is 0.5 s */

enum { SKIPPED = 77, NO_COMMAND = 127 };

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pid_t start(char **command) {
  const pid_t parent = getpid(), pid = fork();
  if (pid != 0) return pid;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(NO_COMMAND);
  (void)execvp(command[0], command);
  (void)fprintf(stderr, "watched: %s: %s\n", command[0], strerror(errno));
  _exit(NO_COMMAND);
}

/* Its exit code, or 128 and the signal that ended it; *gap_s: the longest time without a look, from
 * before it was started on. */
static int attend(pid_t pid, double last_s, double *gap_s) {
  const struct timespec nap = {0, 10000000};
  int status = 0;
  pid_t ended = 0;
  *gap_s = 0;
  while (ended == 0) {
    (void)nanosleep(&nap, NULL);
    const double seen_s = now_s();
    if (seen_s - last_s > *gap_s) *gap_s = seen_s - last_s;
    last_s = seen_s;
    ended = waitpid(pid, &status, WNOHANG);
  }
  if (ended != pid) return NO_COMMAND;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv) {
  if (argc < 2) return NO_COMMAND;
  for (int attempt = 1;; attempt++) {
    double gap_s = 0;
    const double begun_s = now_s();
    const pid_t pid = start(argv + 1);
    const int code = pid < 0 ? NO_COMMAND : attend(pid, begun_s, &gap_s);
    if (code == 0 || code == SKIPPED || pid < 0 || gap_s < STALL_S || attempt == ATTEMPTS)
      return code;
    printf("watched: it failed with %d, but the machine stood still for %.2f s: again\n", code,
           gap_s);
    (void)fflush(stdout);
  }
}

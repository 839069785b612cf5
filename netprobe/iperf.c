/* iperf3: a server that is kept alive, and client tests, each in a child, with a watchdog. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "netprobe/netprobe.h"

enum { TICK_MS = 50, RETRY_US = 2000 };

/* A child that dies with the helper and writes nowhere. */
static pid_t fork_child(void) {
  const pid_t parent = getpid(), pid = fork();
  if (pid != 0) return pid;
  const int null = open("/dev/null", O_RDWR);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent || null < 0) _exit(1);
  for (int fd = 0; fd < 3; fd++) (void)dup2(null, fd);
  (void)signal(SIGTERM, SIG_DFL);
  return 0;
}

static void end_child(pid_t pid) {
  int state;
  if (pid <= 0) return;
  (void)kill(pid, SIGKILL);
  while (waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
}

static void start_server(netprobe *self) {
  self->server = fork_child();
  if (self->server == 0) iperf_server_child(&self->serving);
}

void netprobe_keep_server(netprobe *self) {
  int state;
  if (self->server > 0 && waitpid(self->server, &state, WNOHANG) == self->server)
    start_server(self);
}

/* One attempt: a child, a pipe for its answer, and the time that is left. */
static void attempt(netprobe *self, const weir_helper_request *request, double deadline,
                    iperf_result *result) {
  int ends[2];
  memset(result, 0, sizeof *result);
  result->status = WEIR_E_TIMEOUT;
  (void)snprintf(result->text, sizeof result->text, "iperf3 to %s port %d gave no result in %g s",
                 request->name, (int)request->port, request->timeout_s);
  if (pipe2(ends, O_CLOEXEC)) return;
  const pid_t child = fork_child();
  if (child == 0) {
    iperf_result mine;
    iperf_client_test(request, &mine);
    _exit(write(ends[1], &mine, sizeof mine) != (ssize_t)sizeof mine);
  }
  close(ends[1]);
  struct pollfd fd = {.fd = ends[0], .events = POLLIN};
  while (child > 0 && weir_now_s() < deadline && !netprobe_alone(self)) {
    netprobe_keep_server(self);
    if (poll(&fd, 1, TICK_MS) <= 0) continue;
    iperf_result told;
    if (read(ends[0], &told, sizeof told) == (ssize_t)sizeof told)
      *result = told;
    else
      result->again = true; /* libiperf ended the process */
    break;
  }
  end_child(child);
  close(ends[0]);
}

void netprobe_measure(netprobe *self, const weir_helper_request *request,
                      weir_helper_reply *reply) {
  const double deadline = weir_now_s() + request->timeout_s;
  iperf_result result, last = {0};
  do {
    attempt(self, request, deadline, &result);
    if (result.status == WEIR_OK || !result.again) break;
    last = result;
    (void)usleep(RETRY_US);
  } while (weir_now_s() < deadline && !netprobe_alone(self));
  /* Time is up: what the attempts said is worth more than that they took too long. */
  const bool said = result.status != WEIR_OK && last.text[0];
  reply->status = said ? WEIR_E_TIMEOUT : result.status;
  reply->bandwidth = result.bandwidth;
  memcpy(reply->text, said ? last.text : result.text, sizeof reply->text);
}

void netprobe_serve(netprobe *self, const weir_helper_request *request, weir_helper_reply *reply) {
  if (self->server > 0) {
    reply->status = WEIR_E_STATE;
    (void)snprintf(reply->text, sizeof reply->text, "this helper serves already");
    return;
  }
  self->serving = *request;
  start_server(self);
}

void netprobe_end_server(netprobe *self) {
  end_child(self->server);
  self->server = 0;
}

/* The helper process: keeps a server alive and runs client tests, each in a child, with
 * a watchdog. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "netmon/iperf.h"

enum { TICK_MS = 50, RETRY_US = 2000 };

typedef struct helper {
  int socket;
  pid_t server;
  weir_iperf_request serving;
} helper;

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

static void start_server(helper *h) {
  h->server = fork_child();
  if (h->server == 0) weir_iperf_server_child(&h->serving);
}

static void keep_server(helper *h) {
  int state;
  if (h->server > 0 && waitpid(h->server, &state, WNOHANG) == h->server) start_server(h);
}

/* The owner closed its end, or is gone. */
static bool owner_gone(const helper *h) {
  struct pollfd fd = {.fd = h->socket, .events = 0};
  return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLHUP | POLLERR));
}

/* One attempt: a child, a pipe for its answer, and the time that is left. */
static void attempt(helper *h, const weir_iperf_request *request, double deadline,
                    weir_iperf_reply *reply) {
  int ends[2];
  memset(reply, 0, sizeof *reply);
  reply->status = WEIR_E_TIMEOUT;
  (void)snprintf(reply->text, sizeof reply->text, "iperf3 to %s port %d gave no result in %g s",
                 request->address, (int)request->port, request->timeout_s);
  if (pipe2(ends, O_CLOEXEC)) return;
  const pid_t child = fork_child();
  if (child == 0) {
    weir_iperf_reply mine;
    weir_iperf_client_test(request, &mine);
    _exit(write(ends[1], &mine, sizeof mine) != (ssize_t)sizeof mine);
  }
  close(ends[1]);
  struct pollfd fd = {.fd = ends[0], .events = POLLIN};
  while (child > 0 && weir_now_s() < deadline && !owner_gone(h)) {
    keep_server(h);
    if (poll(&fd, 1, TICK_MS) <= 0) continue;
    weir_iperf_reply told;
    if (read(ends[0], &told, sizeof told) == (ssize_t)sizeof told)
      *reply = told;
    else
      reply->again = 1; /* libiperf ended the process */
    break;
  }
  end_child(child);
  close(ends[0]);
}

static void measure(helper *h, const weir_iperf_request *request, weir_iperf_reply *reply) {
  const double deadline = weir_now_s() + request->timeout_s;
  weir_iperf_reply last = {0};
  do {
    attempt(h, request, deadline, reply);
    if (reply->status == WEIR_OK || !reply->again) break;
    last = *reply;
    (void)usleep(RETRY_US);
  } while (weir_now_s() < deadline && !owner_gone(h));
  if (reply->status != WEIR_OK && last.text[0]) {
    /* Time is up: what the attempts said is worth more than that they took too long. */
    reply->status = WEIR_E_TIMEOUT;
    memcpy(reply->text, last.text, sizeof reply->text);
  }
}

static void serve(helper *h, const weir_iperf_request *request, weir_iperf_reply *reply) {
  memset(reply, 0, sizeof *reply);
  if (h->server > 0) {
    reply->status = WEIR_E_STATE;
    (void)snprintf(reply->text, sizeof reply->text, "this helper serves already");
    return;
  }
  h->serving = *request;
  start_server(h);
}

_Noreturn void weir_iperf_helper(int socket) {
  helper h = {.socket = socket};
  (void)signal(SIGPIPE, SIG_IGN);
  (void)signal(SIGINT, SIG_IGN);
  for (;;) {
    struct pollfd fd = {.fd = socket, .events = POLLIN};
    if (h.server > 0) keep_server(&h);
    if (poll(&fd, 1, h.server > 0 ? TICK_MS : -1) <= 0) continue;
    weir_iperf_request request;
    weir_iperf_reply reply;
    if (recv(socket, &request, sizeof request, 0) != (ssize_t)sizeof request) break;
    request.address[sizeof request.address - 1] = 0;
    if (request.what == WEIR_IPERF_SERVE)
      serve(&h, &request, &reply);
    else
      measure(&h, &request, &reply);
    if (send(socket, &reply, sizeof reply, MSG_NOSIGNAL) != (ssize_t)sizeof reply) break;
  }
  end_child(h.server);
  _exit(0);
}

/* The owner's side of the iperf3 helper. */
#include "netmon/iperf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "netmon/netmon.h"

enum { GRACE_MS = 2000, HELPER_FD = 3 };
static const double longest_s = 300;

struct weir_iperf {
  pid_t pid;
  int socket;
};

weir_status weir_iperf_fork(weir_iperf **out) {
  *out = NULL;
  int ends[2];
  weir_iperf *helper = calloc(1, sizeof *helper);
  if (!helper) return weir_fail(WEIR_E_NOMEM, "no memory for the iperf3 helper");
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
    free(helper);
    return weir_fail(WEIR_E_IO, "no socket pair for the iperf3 helper: %s", strerror(errno));
  }
  helper->pid = fork();
  if (helper->pid == 0) {
    /* Nothing else of the owner's may be held open here. */
    if (dup2(ends[1], HELPER_FD) < 0 || close_range(HELPER_FD + 1, ~0u, 0)) _exit(1);
    weir_iperf_helper(HELPER_FD);
  }
  close(ends[1]);
  if (helper->pid < 0) {
    close(ends[0]);
    free(helper);
    return weir_fail(WEIR_E_IO, "cannot fork the iperf3 helper: %s", strerror(errno));
  }
  helper->socket = ends[0];
  *out = helper;
  return WEIR_OK;
}

void weir_iperf_free(weir_iperf *helper) {
  if (!helper) return;
  close(helper->socket); /* tells it to end its children and itself */
  int state;
  for (int ms = 0; ms < GRACE_MS; ms += 5) {
    if (waitpid(helper->pid, &state, WNOHANG) != 0) {
      free(helper);
      return;
    }
    (void)usleep(5000);
  }
  (void)kill(helper->pid, SIGKILL);
  while (waitpid(helper->pid, &state, 0) < 0 && errno == EINTR) continue;
  free(helper);
}

/* Send a request, wait for the reply a little longer than the helper may take. */
static weir_status ask(weir_iperf *helper, const weir_iperf_request *request,
                       weir_iperf_reply *reply) {
  struct pollfd fd = {.fd = helper->socket, .events = POLLIN};
  if (send(helper->socket, request, sizeof *request, MSG_NOSIGNAL) != (ssize_t)sizeof *request)
    return weir_fail(WEIR_E_IO, "the iperf3 helper is gone");
  const double deadline = weir_now_s() + request->timeout_s + GRACE_MS / 1000.0;
  int ready;
  do {
    const double left = deadline - weir_now_s();
    ready = poll(&fd, 1, left > 0 ? (int)ceil(left * 1000) : 0);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return weir_fail(WEIR_E_TIMEOUT, "the iperf3 helper did not answer");
  if (recv(helper->socket, reply, sizeof *reply, 0) != (ssize_t)sizeof *reply)
    return weir_fail(WEIR_E_IO, "the iperf3 helper is gone");
  reply->text[sizeof reply->text - 1] = 0;
  if (reply->status != WEIR_OK) return weir_fail((weir_status)reply->status, "%s", reply->text);
  return WEIR_OK;
}

static weir_status fill(weir_iperf_request *request, const char *address, int port,
                        struct sockaddr_in *where) {
  *where = (struct sockaddr_in){.sin_family = AF_INET};
  if (!address || strlen(address) >= sizeof request->address ||
      inet_pton(AF_INET, address, &where->sin_addr) != 1)
    return weir_fail(WEIR_E_INVALID, "'%.64s' is not an IPv4 address", address ? address : "");
  if (port < 1 || port > 65535) return weir_fail(WEIR_E_INVALID, "%d is not a port", port);
  where->sin_port = htons((uint16_t)port);
  (void)snprintf(request->address, sizeof request->address, "%s", address);
  request->port = port;
  return WEIR_OK;
}

weir_status weir_iperf_serve(weir_iperf *helper, const char *address, int port) {
  weir_iperf_request request = {.what = WEIR_IPERF_SERVE, .timeout_s = 5};
  weir_iperf_reply reply;
  struct sockaddr_in where;
  weir_status status = fill(&request, address, port, &where);
  if (status != WEIR_OK) return status;
  /* libiperf would say what is wrong to nobody: try the address first. */
  const int one = 1, trial = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (trial < 0) return weir_fail(WEIR_E_IO, "no socket: %s", strerror(errno));
  (void)setsockopt(trial, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(trial, (const struct sockaddr *)&where, sizeof where) || listen(trial, 1))
    status = weir_fail(WEIR_E_IO, "iperf3 cannot serve on %s port %d: %s", address, port,
                       strerror(errno));
  close(trial);
  return status == WEIR_OK ? ask(helper, &request, &reply) : status;
}

weir_status weir_iperf_measure(weir_iperf *helper, const char *address, int port, size_t bytes,
                               double timeout_s, double *bandwidth) {
  weir_iperf_request request = {.what = WEIR_IPERF_MEASURE, .bytes = bytes, .timeout_s = timeout_s};
  weir_iperf_reply reply;
  struct sockaddr_in where;
  weir_status status = fill(&request, address, port, &where);
  if (status != WEIR_OK) return status;
  if (bytes == 0 || !(timeout_s > 0 && timeout_s <= longest_s))
    return weir_fail(WEIR_E_INVALID, "an iperf3 test of %zu bytes in %g s", bytes, timeout_s);
  status = ask(helper, &request, &reply);
  if (status == WEIR_OK) *bandwidth = reply.bandwidth;
  return status;
}

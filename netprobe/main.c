/* weir-netprobe: started by libweir, it answers requests on a socket until that is closed or the
 * process that started it has ended. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netprobe/netprobe.h"

enum { TICK_MS = 50 };

bool netprobe_alone(const netprobe *self) {
  struct pollfd wait[] = {{.fd = self->socket, .events = 0}, {.fd = self->owner, .events = POLLIN}};
  return poll(wait, 2, 0) > 0 && (wait[0].revents & (POLLHUP | POLLERR) || wait[1].revents);
}

/* False: nothing has come within the tick, or before the owner's end. */
static bool wait_for_request(const netprobe *self) {
  struct pollfd wait[] = {{.fd = self->socket, .events = POLLIN},
                          {.fd = self->owner, .events = POLLIN}};
  return poll(wait, 2, self->server > 0 ? TICK_MS : -1) > 0 && (wait[0].revents & POLLIN);
}

static void ask_netlink(const weir_helper_request *request, weir_helper_reply *reply) {
  reply->status = request->what == WEIR_HELPER_LINK_BYTES
                      ? netprobe_link_bytes(request->name, &reply->bytes)
                      : netprobe_link_of_address(request->name, reply->name);
  if (reply->status != WEIR_OK)
    (void)snprintf(reply->text, sizeof reply->text, "%s", weir_last_error());
}

static void answer(netprobe *self, weir_helper_request *request, weir_helper_reply *reply) {
  request->name[sizeof request->name - 1] = 0;
  switch (request->what) {
    case WEIR_HELPER_SERVE: netprobe_serve(self, request, reply); return;
    case WEIR_HELPER_CLOSE: netprobe_end_server(self); return;
    case WEIR_HELPER_MEASURE: netprobe_measure(self, request, reply); return;
    case WEIR_HELPER_LINK_OF:
    case WEIR_HELPER_LINK_BYTES: ask_netlink(request, reply); return;
    default:
      reply->status = WEIR_E_PROTOCOL;
      (void)snprintf(reply->text, sizeof reply->text, "the helper knows no request %u",
                     request->what);
  }
}

/* One request; false: this is the end.  One of another version gets a reply from which that can be
 * told, and nothing else. */
static bool turn(netprobe *self) {
  weir_helper_request request;
  weir_helper_reply reply = {WEIR_HELPER_MAGIC, WEIR_HELPER_VERSION, .status = WEIR_OK};
  const ssize_t got = recv(self->socket, &request, sizeof request, MSG_TRUNC);
  if (got != (ssize_t)sizeof request || request.magic != WEIR_HELPER_MAGIC ||
      request.version != WEIR_HELPER_VERSION) {
    if (got > 0) (void)send(self->socket, &reply, sizeof reply, MSG_NOSIGNAL);
    return false;
  }
  answer(self, &request, &reply);
  reply.serial = request.serial;
  return send(self->socket, &reply, sizeof reply, MSG_NOSIGNAL) == (ssize_t)sizeof reply;
}

static bool is_ours(int descriptor) {
  int kind = 0;
  socklen_t length = sizeof kind;
  return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &kind, &length) == 0 && kind == SOCK_SEQPACKET;
}

int main(int argc, char **argv) {
  netprobe self = {.socket = WEIR_HELPER_FD};
  const long owner = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
  if (owner < 1 || !is_ours(self.socket)) {
    fputs("weir-netprobe is started by libweir, for which it runs iperf3 and asks netlink\n",
          stderr);
    return 2;
  }
  (void)fcntl(self.socket, F_SETFD, FD_CLOEXEC);
  if (fcntl(2, F_GETFD) < 0) (void)open("/dev/null", O_RDWR); /* which is then 2 */
  (void)signal(SIGPIPE, SIG_IGN);
  (void)signal(SIGINT, SIG_IGN);
  self.owner = pidfd_open((pid_t)owner, 0);
  if (getppid() != owner) return 0; /* it has ended meanwhile */
  do {
    netprobe_keep_server(&self);
  } while (wait_for_request(&self) ? turn(&self) : !netprobe_alone(&self));
  netprobe_end_server(&self);
  return 0;
}

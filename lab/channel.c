#include "lab/channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/base.h"

weir_status weir_channel_open(int ends[2]) {
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
    return weir_fail(WEIR_E_IO, "no socket pair: %s", strerror(errno));
  return WEIR_OK;
}

/* Until the socket can be read or written, or the time is over. */
static weir_status await(int end, short events, double timeout_s) {
  const double deadline = weir_now_s() + timeout_s;
  for (;;) {
    const double left = deadline - weir_now_s();
    struct pollfd wait = {.fd = end, .events = events};
    const int ready = poll(&wait, 1, left > 0 ? (int)(left * 1e3) + 1 : 0);
    if (ready > 0) return WEIR_OK;
    if (ready < 0 && errno != EINTR) return weir_fail(WEIR_E_IO, "poll: %s", strerror(errno));
    if (left <= 0)
      return weir_fail(WEIR_E_TIMEOUT, "the lab's other end did not answer in %.3g s", timeout_s);
  }
}

weir_status weir_channel_send(int end, const weir_message *message, double timeout_s) {
  weir_status status = await(end, POLLOUT, timeout_s);
  if (status) return status;
  if (send(end, message, sizeof *message, MSG_NOSIGNAL) == (ssize_t)sizeof *message) return WEIR_OK;
  return weir_fail(WEIR_E_PEER, "the lab's other end is gone: %s", strerror(errno));
}

weir_status weir_channel_receive(int end, weir_message *message, double timeout_s) {
  weir_status status = await(end, POLLIN, timeout_s);
  if (status) return status;
  const ssize_t got = recv(end, message, sizeof *message, MSG_DONTWAIT);
  if (got == (ssize_t)sizeof *message && message->kind >= WEIR_MESSAGE_EPOCH &&
      message->kind <= WEIR_MESSAGE_KEEP)
    return WEIR_OK;
  if (got == 0 || (got < 0 && errno == ECONNRESET))
    return weir_fail(WEIR_E_PEER, "the lab's other end is closed");
  if (got < 0) return weir_fail(WEIR_E_IO, "recv: %s", strerror(errno));
  return weir_fail(WEIR_E_PROTOCOL, "a record of %zd bytes on the lab's channel; expected %zu", got,
                   sizeof *message);
}

/* iperf3, by the helper program: what is asked, and what is refused before it is. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "netmon/helper.h"

#define GRACE_S 2.0
static const double longest_s = 300;

static weir_status fill(weir_helper_request *request, const char *address, int port,
                        struct sockaddr_in *where) {
  *where = (struct sockaddr_in){.sin_family = AF_INET};
  if (!address || strlen(address) >= sizeof request->name ||
      inet_pton(AF_INET, address, &where->sin_addr) != 1)
    return weir_fail(WEIR_E_INVALID, "'%.64s' is not an IPv4 address", address ? address : "");
  if (port < 1 || port > 65535) return weir_fail(WEIR_E_INVALID, "%d is not a port", port);
  where->sin_port = htons((uint16_t)port);
  (void)snprintf(request->name, sizeof request->name, "%s", address);
  request->port = port;
  return WEIR_OK;
}

weir_status weir_iperf_serve(weir_helper *helper, const char *address, int port) {
  weir_helper_request request = {.what = WEIR_HELPER_SERVE, .timeout_s = 5};
  weir_helper_reply reply;
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
  return status == WEIR_OK ? weir_helper_ask(helper, &request, GRACE_S, &reply) : status;
}

weir_status weir_iperf_close(weir_helper *helper) {
  weir_helper_request request = {.what = WEIR_HELPER_CLOSE, .timeout_s = 5};
  weir_helper_reply reply;
  return weir_helper_ask(helper, &request, GRACE_S, &reply);
}

weir_status weir_iperf_measure(weir_helper *helper, const char *address, int port, size_t bytes,
                               double timeout_s, double *bandwidth) {
  weir_helper_request request = {
      .what = WEIR_HELPER_MEASURE, .bytes = bytes, .timeout_s = timeout_s};
  weir_helper_reply reply;
  struct sockaddr_in where;
  weir_status status = fill(&request, address, port, &where);
  if (status != WEIR_OK) return status;
  if (bytes == 0 || !(timeout_s > 0 && timeout_s <= longest_s))
    return weir_fail(WEIR_E_INVALID, "an iperf3 test of %zu bytes in %g s", bytes, timeout_s);
  status = weir_helper_ask(helper, &request, GRACE_S, &reply);
  if (status != WEIR_OK) return status;
  if (!(reply.bandwidth > 0 && reply.bandwidth < 1e13))
    return weir_fail(WEIR_E_PROTOCOL, "the helper measured %g bytes/s", reply.bandwidth);
  *bandwidth = reply.bandwidth;
  return WEIR_OK;
}

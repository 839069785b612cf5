#include "netprobe/netlink.h"

#include <errno.h>
#include <netlink/errno.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/base.h"

weir_status weir_netlink_fail(int error, const char *doing) {
  const int code = error < 0 ? -error : error;
  weir_status status = WEIR_E_IO;
  if (code == NLE_PERM || code == NLE_NOACCESS || code == NLE_OBJ_NOTFOUND ||
      code == NLE_OPNOTSUPP || code == NLE_PROTO_MISMATCH || code == NLE_AF_NOSUPPORT)
    status = WEIR_E_UNSUPPORTED;
  if (code == NLE_NODEV) status = WEIR_E_INVALID;
  if (code == NLE_NOMEM) status = WEIR_E_NOMEM;
  return weir_fail(status, "%s: %s", doing, nl_geterror(code));
}

weir_status weir_netlink_open(struct nl_sock **out) {
  *out = NULL;
  struct nl_sock *socket = nl_socket_alloc();
  if (!socket) return weir_fail(WEIR_E_NOMEM, "no memory for a netlink socket");
  errno = 0;
  const int error = nl_connect(socket, NETLINK_ROUTE), why = errno;
  if (error < 0) {
    nl_socket_free(socket);
    const weir_status status = weir_netlink_fail(error, "cannot connect to rtnetlink");
    /* libnl knows few reasons */
    return why ? weir_fail(status, "cannot connect to rtnetlink: %s", strerror(why)) : status;
  }
  const struct timeval limit = {.tv_sec = 5};
  if (setsockopt(nl_socket_get_fd(socket), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit)) {
    const int reason = errno;
    nl_socket_free(socket);
    return weir_fail(WEIR_E_IO, "cannot bound the waits of a netlink socket: %s", strerror(reason));
  }
  *out = socket;
  return WEIR_OK;
}

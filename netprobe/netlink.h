/* The rtnetlink socket that the helper program and the lab share the making of.  One socket a
 * thread. */
#ifndef WEIR_NETPROBE_NETLINK_H
#define WEIR_NETPROBE_NETLINK_H

#include <weir/status.h>

struct nl_sock;

/* A connected rtnetlink socket whose waits are bounded; free it with nl_socket_free(). */
weir_status weir_netlink_open(struct nl_sock **out);
/* The status that says what libnl's error means to us, with a message "DOING: why". */
weir_status weir_netlink_fail(int error, const char *doing);

#endif

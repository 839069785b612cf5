/* Network interfaces, by netlink: which one has an address, and how many bytes it has sent. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netlink/addr.h>
#include <netlink/cache.h>
#include <netlink/errno.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/socket.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "netprobe/netlink.h"
#include "netprobe/netprobe.h"

weir_status netprobe_link_bytes(const char *interface_name, uint64_t *sent) {
  if (!interface_name || !*interface_name || strlen(interface_name) >= IFNAMSIZ)
    return weir_fail(WEIR_E_INVALID, "not the name of an interface");
  struct nl_sock *socket = NULL;
  weir_status status = weir_netlink_open(&socket);
  if (status != WEIR_OK) return status;
  struct rtnl_link *link = NULL;
  const int error = rtnl_link_get_kernel(socket, 0, interface_name, &link);
  if (error < 0) {
    status =
        weir_fail(WEIR_E_INVALID, "no interface '%s' here: %s", interface_name, nl_geterror(error));
  } else {
    *sent = rtnl_link_get_stat(link, RTNL_LINK_TX_BYTES);
    rtnl_link_put(link);
  }
  nl_socket_free(socket);
  return status;
}

/* Index of the interface that holds the address; 0 when none does. */
static int find_address(struct nl_cache *cache, const struct in_addr *wanted) {
  for (struct nl_object *o = nl_cache_get_first(cache); o; o = nl_cache_get_next(o)) {
    struct rtnl_addr *address = (struct rtnl_addr *)o;
    const struct nl_addr *local = rtnl_addr_get_local(address);
    if (local && nl_addr_get_family(local) == AF_INET && nl_addr_get_len(local) == sizeof *wanted &&
        !memcmp(nl_addr_get_binary_addr(local), wanted, sizeof *wanted))
      return rtnl_addr_get_ifindex(address);
  }
  return 0;
}

weir_status netprobe_link_of_address(const char *address, char name[16]) {
  struct in_addr wanted;
  if (!address || inet_pton(AF_INET, address, &wanted) != 1)
    return weir_fail(WEIR_E_INVALID, "'%.64s' is not an IPv4 address", address ? address : "");
  struct nl_sock *socket = NULL;
  weir_status status = weir_netlink_open(&socket);
  if (status != WEIR_OK) return status;
  struct nl_cache *cache = NULL;
  struct rtnl_link *link = NULL;
  int error = rtnl_addr_alloc_cache(socket, &cache);
  if (error < 0) {
    status = weir_netlink_fail(error, "listing addresses");
    goto free_socket;
  }
  const int index = find_address(cache, &wanted);
  if (!index) {
    status = weir_fail(WEIR_E_INVALID, "no interface here holds %s", address);
    goto free_cache;
  }
  error = rtnl_link_get_kernel(socket, index, NULL, &link);
  if (error < 0) {
    status = weir_netlink_fail(error, "asking for an interface");
    goto free_cache;
  }
  (void)snprintf(name, IFNAMSIZ, "%s", rtnl_link_get_name(link));
  rtnl_link_put(link);
free_cache:
  nl_cache_free(cache);
free_socket:
  nl_socket_free(socket);
  return status;
}

#include "lab/links.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/bridge.h>
#include <netlink/route/link/veth.h>
#include <netlink/route/route.h>
#include <string.h>

#include "base/base.h"
#include "netprobe/netlink.h"

static weir_status refused(int error, const char *what, const char *name) {
  return weir_fail(error == -NLE_NOMEM ? WEIR_E_NOMEM : WEIR_E_UNSUPPORTED,
                   "the kernel refuses %s %s: %s", what, name, nl_geterror(error));
}

weir_status weir_link_up(const char *name) {
  struct nl_sock *socket;
  weir_status status = weir_netlink_open(&socket);
  if (status) return status;
  struct rtnl_link *old = NULL, *change = rtnl_link_alloc();
  int error = change ? rtnl_link_get_kernel(socket, 0, name, &old) : -NLE_NOMEM;
  if (!error) {
    rtnl_link_set_flags(change, IFF_UP);
    error = rtnl_link_change(socket, old, change, 0);
  }
  rtnl_link_put(change);
  rtnl_link_put(old);
  nl_socket_free(socket);
  return error ? refused(error, "to bring up", name) : WEIR_OK;
}

weir_status weir_link_bridge(const char *name) {
  struct nl_sock *socket;
  weir_status status = weir_netlink_open(&socket);
  if (status) return status;
  const int error = rtnl_link_bridge_add(socket, name);
  nl_socket_free(socket);
  return error ? refused(error, "to add bridge", name) : WEIR_OK;
}

weir_status weir_link_pair(const char *name, const char *peer_name, int peer_namespace) {
  struct nl_sock *socket;
  weir_status status = weir_netlink_open(&socket);
  if (status) return status;
  struct rtnl_link *link = rtnl_link_veth_alloc();
  int error = -NLE_NOMEM;
  if (link) {
    struct rtnl_link *peer = rtnl_link_veth_get_peer(link);
    rtnl_link_set_name(link, name);
    rtnl_link_set_name(peer, peer_name);
    rtnl_link_set_ns_fd(peer, peer_namespace);
    error = rtnl_link_add(socket, link, NLM_F_CREATE | NLM_F_EXCL);
    rtnl_link_put(peer);
  }
  rtnl_link_veth_release(link);
  nl_socket_free(socket);
  return error ? refused(error, "to add veth pair", name) : WEIR_OK;
}

/* if_nametoindex asks through a socket, and so fails where no descriptor is left. */
static weir_status index_of(const char *name, int *index) {
  *index = (int)if_nametoindex(name);
  if (*index) return WEIR_OK;
  return weir_fail(WEIR_E_UNSUPPORTED, "interface %s cannot be looked up: %s", name,
                   strerror(errno));
}

weir_status weir_link_enslave(const char *name, const char *bridge) {
  struct nl_sock *socket;
  int under = 0, index = 0;
  weir_status status = index_of(bridge, &under);
  if (!status) status = index_of(name, &index);
  if (!status) status = weir_netlink_open(&socket);
  if (status) return status;
  const int error = rtnl_link_enslave_ifindex(socket, under, index);
  nl_socket_free(socket);
  return error ? refused(error, "to put on the bridge", name) : WEIR_OK;
}

static struct nl_addr *network_address(uint32_t address, int prefix) {
  const uint32_t wire = htonl(address);
  struct nl_addr *built = nl_addr_build(AF_INET, &wire, sizeof wire);
  if (built) nl_addr_set_prefixlen(built, prefix);
  return built;
}

static int add_address(struct nl_sock *socket, int index, struct nl_addr *local) {
  struct rtnl_addr *address = rtnl_addr_alloc();
  if (!address) return -NLE_NOMEM;
  rtnl_addr_set_ifindex(address, index);
  int error = rtnl_addr_set_local(address, local);
  if (!error) error = rtnl_addr_add(socket, address, 0);
  rtnl_addr_put(address);
  return error;
}

/* Replaces the route the kernel made with the address. */
static int widen_route(struct nl_sock *socket, int index, struct nl_addr *network,
                       struct nl_addr *source, uint32_t packets) {
  struct rtnl_route *route = rtnl_route_alloc();
  struct rtnl_nexthop *hop = rtnl_route_nh_alloc();
  int error = route && hop ? 0 : -NLE_NOMEM;
  if (!error) {
    rtnl_route_set_family(route, AF_INET);
    rtnl_route_set_table(route, RT_TABLE_MAIN);
    rtnl_route_set_scope(route, RT_SCOPE_LINK);
    rtnl_route_set_protocol(route, RTPROT_KERNEL);
    rtnl_route_nh_set_ifindex(hop, index);
    rtnl_route_add_nexthop(route, hop);
    hop = NULL; /* the route's now */
    error = rtnl_route_set_dst(route, network);
    if (!error) error = rtnl_route_set_pref_src(route, source);
    if (!error) error = rtnl_route_set_metric(route, RTAX_INITCWND, packets);
    if (!error) error = rtnl_route_set_metric(route, RTAX_INITRWND, packets);
    if (!error) error = rtnl_route_add(socket, route, NLM_F_CREATE | NLM_F_REPLACE);
  }
  if (hop) rtnl_route_nh_free(hop);
  rtnl_route_put(route);
  return error;
}

weir_status weir_link_address(const char *link, uint32_t address, int prefix,
                              uint32_t initial_packets) {
  struct nl_sock *socket;
  int index = 0;
  weir_status status = index_of(link, &index);
  if (!status) status = weir_netlink_open(&socket);
  if (status) return status;
  const uint32_t mask = prefix ? ~UINT32_C(0) << (32 - prefix) : 0;
  struct nl_addr *local = network_address(address, prefix);
  struct nl_addr *source = network_address(address, 32);
  struct nl_addr *network = network_address(address & mask, prefix);
  int error = local && source && network ? add_address(socket, index, local) : -NLE_NOMEM;
  if (!error) error = widen_route(socket, index, network, source, initial_packets);
  nl_addr_put(local);
  nl_addr_put(source);
  nl_addr_put(network);
  nl_socket_free(socket);
  return error ? refused(error, "an address on", link) : WEIR_OK;
}

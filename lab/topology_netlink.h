/* The few netlink requests the topology needs, each on a socket of its own in the caller's network
 * namespace.  Private to topology.c. */
#ifndef WEIR_LAB_TOPOLOGY_NETLINK_H
#define WEIR_LAB_TOPOLOGY_NETLINK_H

#include <stdint.h>
#include <weir/status.h>

weir_status weir_netlink_up(const char *link);
weir_status weir_netlink_bridge(const char *name);
/* A veth pair: name here, peer in the namespace of the descriptor. */
weir_status weir_netlink_veth(const char *name, const char *peer, int peer_namespace);
weir_status weir_netlink_enslave(const char *link, const char *bridge);
/* Give an IPv4 address (host byte order), and a route to its network on which TCP starts with so
 * many packets in flight. */
weir_status weir_netlink_address(const char *link, uint32_t address, int prefix,
                                 uint32_t initial_packets);

#endif

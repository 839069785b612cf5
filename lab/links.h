/* The kernel's links, by netlink, in the namespace that the calling thread is in: veth pairs, a
 * bridge, addresses.  WEIR_E_UNSUPPORTED where the kernel refuses. */
#ifndef WEIR_LAB_LINKS_H
#define WEIR_LAB_LINKS_H

#include <stdint.h>
#include <weir/status.h>

weir_status weir_link_up(const char *name);
weir_status weir_link_bridge(const char *name);
/* A veth pair: name here, peer in the namespace of the descriptor. */
weir_status weir_link_pair(const char *name, const char *peer_name, int peer_namespace);
weir_status weir_link_enslave(const char *name, const char *bridge);
/* Give an IPv4 address (host byte order), and a route to its network on which TCP starts with so
 * many packets in flight. */
weir_status weir_link_address(const char *link, uint32_t address, int prefix,
                              uint32_t initial_packets);

#endif

/* The emulated cluster: a network namespace per worker, a veth pair each, all on one bridge, and a
 * shaper on each worker's egress.  Everything lives in namespaces of the calling process and goes
 * with it: nothing is ever visible in the host's namespace, not even after SIGKILL. */
#ifndef WEIR_LAB_TOPOLOGY_H
#define WEIR_LAB_TOPOLOGY_H

#include <weir/status.h>

#include "lab/shaper.h"

#define WEIR_TOPOLOGY_BRIDGE "weir0"
#define WEIR_TOPOLOGY_LINK "eth0" /* a worker's interface, in its namespace */
#define WEIR_ADDRESS_MAX 16
#define WEIR_TOPOLOGY_WORKERS_MAX 1023 /* ports of a kernel's bridge */

typedef struct weir_topology weir_topology;

/* Take the calling process into namespaces of its own: a network namespace, and a user namespace
 * when it is not root.  Needs a process of one thread.  WEIR_E_UNSUPPORTED when the kernel refuses;
 * the message says what. */
weir_status weir_topology_enter(void);

/* Build the cluster.  window_bytes: the most that one connection will have to keep in flight
 * (largest bandwidth-delay product of the schedule); TCP's windows are opened that far from the
 * first packet on, so that a transfer after a pause runs at the link's rate. */
weir_status weir_topology_create(weir_topology **out, int workers, double window_bytes);

/* Set the egress of every worker, and read it back; a difference is WEIR_E_IO with what was set and
 * what the kernel says. */
weir_status weir_topology_shape(weir_topology *topology, const weir_shape *shape);

/* What comes in is as fast as this, as on a real port: the bridge's ends of the links.  In the
 * process that has made the cluster. */
weir_status weir_topology_shape_arrivals(const weir_topology *topology, double rate_bytes_s);

/* What has passed worker r's interface. */
weir_status weir_topology_count(weir_topology *topology, int worker,
                                weir_shaper_counters *counters);

/* Move the calling process (a worker, just forked) into worker r's namespace. */
weir_status weir_topology_join(const weir_topology *topology, int worker);

/* The descriptor of worker r's network namespace. */
int weir_topology_descriptor(const weir_topology *topology, int worker);

/* Have TCP in the caller's namespace send so many segments at a time at least: an emulated network
 * pays for packets in the processor time that the workers compute with.  0: as it is. */
weir_status weir_topology_segments(unsigned segments);

/* "10.77.x.y" of worker r. */
void weir_topology_address(int worker, char text[WEIR_ADDRESS_MAX]);

/* Remove links, qdiscs and namespaces; NULL is allowed. */
void weir_topology_free(weir_topology *topology);

#endif

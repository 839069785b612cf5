/* What links and processors are like, measured over a communicator before it is used. */
#ifndef WEIR_COLLECTIVES_CALIBRATE_H
#define WEIR_COLLECTIVES_CALIBRATE_H

#include "collectives/collective.h"
#include "collectives/cost.h"

/* Collective; all ranks get the same values.  Takes some tens of messages: about 30 one-way latencies
 * and 0.2 s of sending.  Uses weir_comm_find_hosts()'s grouping for which links lie inside of machines;
 * where there are none of a kind, its alpha and beta are those of the other.  One rank: all zero. */
weir_status weir_calibrate(weir_comm *comm, weir_link *link);

#endif

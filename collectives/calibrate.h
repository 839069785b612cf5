/* What links and processors are like, measured over a communicator before it is used. */
#ifndef WEIR_COLLECTIVES_CALIBRATE_H
#define WEIR_COLLECTIVES_CALIBRATE_H

#include "collectives/collective.h"
#include "collectives/cost.h"

/* Collective; all ranks get the same values.  Takes some hundred messages: about 250 one-way
 * latencies and 2 s of sending.  Uses weir_comm_find_hosts()'s grouping for which links lie inside
 * of machines; where there are none of a kind, its alpha and beta are those of the other.  One
 * rank: all zero. */
weir_status weir_calibrate(weir_comm *comm, weir_link *link);

/* What is not known from elsewhere, where rank 0's link holds alpha and beta between machines on
 * entry: message_s, answer_s, byte_s, sum_s and sums_s, beta where that was 0, and, where some
 * ranks share a machine and others do not, inner_alpha and inner_beta; all else 0.  About 120
 * latencies and 0.2 s of sending, and 40 and up to a second more for beta.  Nothing of all that but
 * the inner ones is measured, and all is 0, where alpha is unknown or so long that it hides the
 * rest. */
weir_status weir_calibrate_processors(weir_comm *comm, weir_link *link);

#endif

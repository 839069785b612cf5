/* For labs whose workers stand for others: how long passes over gradients take. */
#ifndef WEIR_SESSION_PACE_H
#define WEIR_SESSION_PACE_H

#include <stddef.h>
#include <weir/weir.h>

/* Told by whichever thread has compressed or added up, several at a time: that it began at begin_s
 * (weir_now_s; under a virtual network the thread's weir_thread_cpu_s) and has passed over so many
 * elements: one pass for error feedback, one for selecting or encoding (with art-*, on the rank
 * that selects), one for adding up what came, one for averaging.  The time until it returns counts
 * as theirs; what a compressed all-reduce does in its hops is told of before them. */
typedef void (*weir_pace_fn)(void *user, double begin_s, size_t elements);
/* Before weir_session_start. */
void weir_session_pace(weir_session *session, weir_pace_fn pace, void *user);

#endif

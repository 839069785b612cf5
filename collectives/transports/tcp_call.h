/* One call of tcp_transfer: tcp_transfer.c moves its messages, tcp_wait.c waits where none can.
 *
 * A way is a connection, by its index in peer[]: that of a rank's stream. */
#ifndef WEIR_TRANSPORTS_TCP_CALL_H
#define WEIR_TRANSPORTS_TCP_CALL_H

#include "collectives/transports/tcp.h"

typedef struct tcp_call {
  tcp *self;
  const weir_tag *tag;
  const weir_send *send;
  size_t sends;
  weir_recv *recv;
  size_t recvs;
  double deadline_s;
  uint32_t flows;  /* that the transport had recorded before */
  int ways;        /* in self->active */
  size_t open;     /* parts not complete, as far as they are known */
  unsigned waited; /* polls so far */
} tcp_call;

static inline int tcp_call_rank(const tcp_call *x, int way) { return way % x->self->base.size; }
static inline int tcp_call_stream(const tcp_call *x, int way) { return way / x->self->base.size; }

/* What of the message that a way is receiving comes on it; its header has come. */
tcp_part tcp_call_part(const tcp_call *x, int way);
/* May the message that this way is at be read: is it known to be divided?  Those known not to be
 * are passed over. */
bool tcp_call_due(tcp_call *x, int way);
/* Take what is there, until a read finds less than it has room for (recv_blocked). */
weir_status tcp_call_pull(tcp_call *x, int way);
/* Nothing has moved for a while: WEIR_OK, or why nothing will on this way. */
weir_status tcp_call_stalled(tcp_call *x, int way);
/* Until something can move.  WEIR_OK, or the end of the group. */
weir_status tcp_call_wait(tcp_call *x);

#endif

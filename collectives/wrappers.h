/* Transports around a transport, for tests and measurements: one vtable, so they stack.  Each owns
 * what it wraps and destroys it with itself; everything it does not change it passes on; what
 * shrinks comes out bare.  A group need not be wrapped alike on all ranks.  Used by one thread at a
 * time, like what they wrap. */
#ifndef WEIR_COLLECTIVES_WRAPPERS_H
#define WEIR_COLLECTIVES_WRAPPERS_H

#include "collectives/transport.h"

/* --- faults --------------------------------------------------------------------------------- */

typedef enum weir_strike_kind {
  WEIR_STRIKE_KILL = 0,  /* SIGKILL to this process */
  WEIR_STRIKE_STOP = 1,  /* SIGSTOP to this process; goes on where it was if it is continued */
  WEIR_STRIKE_RESET = 2, /* reset the connection to `peer`; of a transport without sockets: leave */
  WEIR_STRIKE_LEAVE = 3  /* this and every later transfer is WEIR_E_PEER here; nobody is told */
} weir_strike_kind;

typedef struct weir_strike {
  weir_strike_kind kind;
  uint64_t transfer; /* strikes at the begin of this transfer, counted from 0 */
  int peer;          /* for RESET; -1: all peers */
} weir_strike;

/* On failure *out is NULL and inner is untouched.  RESET closes nothing: the descriptor stays the
 * transport's own. */
weir_status weir_transport_fault(weir_transport **out, weir_transport *inner,
                                 const weir_strike *strike);

/* --- delay ---------------------------------------------------------------------------------- */

typedef struct weir_delay {
  double seconds;          /* before each transfer */
  double jitter_s;         /* and up to this much more, drawn uniformly */
  double seconds_per_byte; /* and this for each byte handed in */
  uint64_t seed;           /* of the draws */
} weir_delay;

/* Sleeps, but not past a transfer's deadline.  WEIR_E_INVALID for what is negative or
 * not finite. */
weir_status weir_transport_delay(weir_transport **out, weir_transport *inner,
                                 const weir_delay *delay);

/* --- trace ---------------------------------------------------------------------------------- */

typedef struct weir_transfer_entry {
  weir_tag tag;
  size_t sends, recvs;
  uint64_t bytes_out, bytes_in; /* payload; bytes_in counts only what a successful transfer took */
  double begin_s, end_s;        /* weir_now_s() */
  weir_status status;
} weir_transfer_entry;

/* The newest transfers: entry[i % capacity] is the i-th, for i in [count - capacity, count). */
typedef struct weir_transfer_log {
  weir_transfer_entry *entry; /* the caller's, outlives the transport */
  size_t capacity;            /* at least 1 */
  uint64_t count;
} weir_transfer_log;

weir_status weir_transport_trace(weir_transport **out, weir_transport *inner,
                                 weir_transfer_log *log);

#endif

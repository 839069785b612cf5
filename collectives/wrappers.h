/* A transport around a transport, for tests: a rank that fails at a chosen transfer.  It owns what
 * it wraps and destroys it with itself; everything it does not change it passes on; what shrinks
 * comes out bare.  A group need not be wrapped alike on all ranks.  Used by one thread at a time,
 * like what it wraps. */
#ifndef WEIR_COLLECTIVES_WRAPPERS_H
#define WEIR_COLLECTIVES_WRAPPERS_H

#include "collectives/transport.h"

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

#endif

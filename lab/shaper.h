/* The shaper: rate (htb) and delay (netem) of one interface's egress, through libnl.  A kernel
 * without netem can still be given shapes that need none.
 * Needs CAP_NET_ADMIN in the interface's network namespace; acts on the caller's namespace. */
#ifndef WEIR_LAB_SHAPER_H
#define WEIR_LAB_SHAPER_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/status.h>

typedef struct weir_shape {
  double rate_bytes_s; /* htb, > 0; packet headers included */
  double delay_s;      /* netem, >= 0 */
  double loss;         /* netem, fraction in [0, 1) */
  double reorder;      /* netem, fraction */
  double duplicate;    /* netem, fraction */
} weir_shape;

/* Is there delay, loss, reordering or duplication in it? */
bool weir_shape_needs_netem(const weir_shape *shape);
bool weir_shape_equal(const weir_shape *a, const weir_shape *b);
/* Can it be set?  WEIR_E_INVALID with what is out of range. */
weir_status weir_shape_check(const weir_shape *shape);

/* What has passed an interface since it was made, headers included. */
typedef struct weir_shaper_counters {
  uint64_t sent_bytes;      /* that left through the shaper */
  uint64_t sent_packets;    /* of at most the link's MTU each */
  uint64_t dropped_packets; /* at the shaper: its queue was full, or netem lost them */
  uint64_t received_bytes;  /* that came in */
} weir_shaper_counters;

typedef struct weir_shaper weir_shaper;
/* Opens a netlink socket in the caller's namespace; it stays in it even if the thread moves. */
weir_status weir_shaper_open(weir_shaper **out, const char *interface_name);
/* Set or change both; a live change drops no queue it need not drop. */
weir_status weir_shaper_apply(weir_shaper *shaper, const weir_shape *shape);
/* Read back what the kernel has in force. */
weir_status weir_shaper_read(weir_shaper *shaper, weir_shape *shape);
/* Remove our qdisc; fine when there is none. */
weir_status weir_shaper_clear(weir_shaper *shaper);
/* WEIR_E_STATE when nothing is set. */
weir_status weir_shaper_count(weir_shaper *shaper, weir_shaper_counters *counters);
void weir_shaper_free(weir_shaper *shaper);

/* Can this kernel do htb, and netem if that is needed, here?  Tries it on an interface that it
 * makes and removes.  WEIR_OK, or WEIR_E_UNSUPPORTED with what is missing. */
weir_status weir_shaper_probe(bool netem);

#endif

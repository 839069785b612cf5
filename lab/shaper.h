/* The shaper: rate (htb) and delay (netem) of one interface's egress, through libnl.
 * Needs CAP_NET_ADMIN in the interface's network namespace; acts on the caller's namespace. */
#ifndef WEIR_LAB_SHAPER_H
#define WEIR_LAB_SHAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/status.h>

typedef struct weir_shape {
  double rate_bytes_s; /* htb, > 0; packet headers included */
  double delay_s;      /* netem, >= 0 */
  double loss;         /* netem, fraction in [0, 1) */
  double reorder;      /* netem, fraction */
  double duplicate;    /* netem, fraction */
} weir_shape;

typedef struct weir_shaper weir_shaper;
/* Opens a netlink socket in the caller's namespace; it stays in it even if the thread moves. */
weir_status weir_shaper_open(weir_shaper **out, const char *interface_name);
/* Set or change both; a live change drops no queue it need not drop. */
weir_status weir_shaper_apply(weir_shaper *shaper, const weir_shape *shape);
/* Read back what the kernel has in force. */
weir_status weir_shaper_read(weir_shaper *shaper, weir_shape *shape);
/* Remove our qdisc; fine when there is none. */
weir_status weir_shaper_clear(weir_shaper *shaper);
void weir_shaper_free(weir_shaper *shaper);

/* Can this kernel do htb and netem here?  Tries both on a dummy interface it makes and removes.
 * WEIR_OK, or WEIR_E_UNSUPPORTED with what is missing. */
weir_status weir_shaper_probe(void);

#endif

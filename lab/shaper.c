/* htb for the rate, netem as its leaf for delay and loss:
 *
 *   1:0 htb, default class 1:1  ->  1:1 htb class (rate = ceil)  ->  10:0 netem
 *
 * Where the kernel has no netem, a shape that needs none gets a pfifo in its place.
 *
 * htb charges a GSO super-packet whole, and whatever fits its burst costs nothing.  Were the burst
 * 64 KiB at every rate, a message of 64 KiB would be free on a slow link.  So super-packets are
 * limited to what the rate sends in burst_s, and the burst with them. */
#include "lab/shaper.h"

#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <math.h>
#include <net/if.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/route/class.h>
#include <netlink/route/link.h>
#include <netlink/route/qdisc.h>
#include <netlink/route/qdisc/fifo.h>
#include <netlink/route/qdisc/htb.h>
#include <netlink/route/qdisc/netem.h>
#include <netlink/route/tc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "netprobe/netlink.h"

#define HTB_HANDLE TC_HANDLE(1, 0)
#define CLASS_HANDLE TC_HANDLE(1, 1)
#define LEAF_HANDLE TC_HANDLE(0x10, 0)

enum {
  MTU_BYTES = 1514,
  MIN_GSO_BYTES = 4096, /* two full packets and what TCP subtracts for headers */
  MAX_GSO_BYTES = 65536,
  MAX_GSO_SEGMENTS = 65535,
  QUANTUM_BYTES = 60000,
  SPARE_PACKETS = 10000
};
/* What a link that was idle may send at once, in seconds of its rate. */
static const double burst_s = 0.001;
/* Rates and delays the kernel's units hold: 1 kbit/s .. 1 Tbit/s, netem's delay in 32 bits of 64
 * ns. */
static const double min_rate = 125, max_rate = 125e9, max_delay_s = 60;

struct weir_shaper {
  struct nl_sock *socket;
  int ifindex;
  char name[IFNAMSIZ];
};

/* libnl ends the process when it cannot read the kernel's tick. */
static weir_status check_ticks(void) {
  unsigned ticks[4];
  FILE *file = fopen("/proc/net/psched", "re");
  const bool good =
      file && fscanf(file, "%x %x %x %x", &ticks[0], &ticks[1], &ticks[2], &ticks[3]) == 4;
  if (file) fclose(file);
  return good ? WEIR_OK
              : weir_fail(WEIR_E_UNSUPPORTED,
                          "traffic control needs /proc/net/psched, which cannot be read");
}

weir_status weir_shaper_open(weir_shaper **out, const char *interface_name) {
  *out = NULL;
  if (!interface_name || !*interface_name || strlen(interface_name) >= IFNAMSIZ)
    return weir_fail(WEIR_E_INVALID, "not the name of an interface: '%.32s'",
                     interface_name ? interface_name : "");
  weir_status status = check_ticks();
  if (status != WEIR_OK) return status;
  weir_shaper *shaper = calloc(1, sizeof *shaper);
  if (!shaper) return weir_fail(WEIR_E_NOMEM, "no memory for a shaper");
  status = weir_netlink_open(&shaper->socket);
  if (status == WEIR_OK) {
    struct rtnl_link *link = NULL;
    const int error = rtnl_link_get_kernel(shaper->socket, 0, interface_name, &link);
    if (error < 0) {
      status = weir_fail(WEIR_E_INVALID, "no interface '%s' here: %s", interface_name,
                         nl_geterror(error));
    } else {
      shaper->ifindex = rtnl_link_get_ifindex(link);
      rtnl_link_put(link);
      (void)snprintf(shaper->name, sizeof shaper->name, "%s", interface_name);
    }
  }
  if (status != WEIR_OK) {
    weir_shaper_free(shaper);
    return status;
  }
  *out = shaper;
  return WEIR_OK;
}

void weir_shaper_free(weir_shaper *shaper) {
  if (!shaper) return;
  if (shaper->socket) nl_socket_free(shaper->socket);
  free(shaper);
}

static weir_status fail_tc(const weir_shaper *shaper, int error, const char *what) {
  char doing[96];
  (void)snprintf(doing, sizeof doing, "%s on %s", what, shaper->name);
  return weir_netlink_fail(error, doing);
}

static bool is_missing(int error) { return error == -NLE_OBJ_NOTFOUND || error == -NLE_OPNOTSUPP; }

static weir_status fail_add(const weir_shaper *shaper, int error, const char *kind) {
  if (is_missing(error))
    return weir_fail(WEIR_E_UNSUPPORTED, "this kernel has no %s (sch_%s)", kind, kind);
  return fail_tc(shaper, error, kind);
}

/* Limit super-packets.  A socket keeps the limit it saw when it was connected until its route is
 * looked up again; setting the alias makes the kernel announce a change of the device, which
 * drops all cached routes, so sockets that are open follow at once. */
static weir_status set_gso(const weir_shaper *shaper, uint32_t bytes, const char *alias) {
  const struct ifinfomsg info = {.ifi_family = AF_UNSPEC, .ifi_index = shaper->ifindex};
  struct nl_msg *msg = nlmsg_alloc_simple(RTM_NEWLINK, 0);
  if (!msg) return weir_fail(WEIR_E_NOMEM, "no memory for a netlink message");
  int error = nlmsg_append(msg, (void *)(uintptr_t)&info, sizeof info, NLMSG_ALIGNTO);
  if (!error) error = nla_put_u32(msg, IFLA_GSO_MAX_SIZE, bytes);
  if (!error) error = nla_put_u32(msg, IFLA_GSO_MAX_SEGS, MAX_GSO_SEGMENTS);
  if (!error) error = nla_put_string(msg, IFLA_IFALIAS, alias);
  if (error < 0) {
    nlmsg_free(msg);
    return fail_tc(shaper, error, "building a message for GSO");
  }
  error = nl_send_sync(shaper->socket, msg); /* frees msg */
  return error < 0 ? fail_tc(shaper, error, "limiting GSO") : WEIR_OK;
}

/* The qdisc of this interface with that handle and kind; NULL when there is none. */
static weir_status find_qdisc(const weir_shaper *shaper, uint32_t handle, const char *kind,
                              struct rtnl_qdisc **qdisc) {
  struct nl_cache *cache = NULL;
  *qdisc = NULL;
  const int error = rtnl_qdisc_alloc_cache(shaper->socket, &cache);
  if (error < 0) return fail_tc(shaper, error, "listing qdiscs");
  struct rtnl_qdisc *found = rtnl_qdisc_get(cache, shaper->ifindex, handle);
  const char *its_kind = found ? rtnl_tc_get_kind(TC_CAST(found)) : NULL;
  if (found && its_kind && !strcmp(its_kind, kind))
    *qdisc = found;
  else if (found)
    rtnl_qdisc_put(found);
  nl_cache_free(cache);
  return WEIR_OK;
}

static weir_status apply_root(const weir_shaper *shaper) {
  struct rtnl_qdisc *qdisc = NULL;
  const weir_status status = find_qdisc(shaper, HTB_HANDLE, "htb", &qdisc);
  if (status != WEIR_OK) return status;
  if (qdisc) { /* ours is there: replacing it would drop what is queued */
    rtnl_qdisc_put(qdisc);
    return WEIR_OK;
  }
  qdisc = rtnl_qdisc_alloc();
  if (!qdisc) return weir_fail(WEIR_E_NOMEM, "no memory for a qdisc");
  rtnl_tc_set_ifindex(TC_CAST(qdisc), shaper->ifindex);
  rtnl_tc_set_parent(TC_CAST(qdisc), TC_H_ROOT);
  rtnl_tc_set_handle(TC_CAST(qdisc), HTB_HANDLE);
  int error = rtnl_tc_set_kind(TC_CAST(qdisc), "htb");
  if (!error) error = rtnl_htb_set_defcls(qdisc, TC_H_MIN(CLASS_HANDLE));
  if (!error) error = rtnl_qdisc_add(shaper->socket, qdisc, NLM_F_CREATE | NLM_F_REPLACE);
  rtnl_qdisc_put(qdisc);
  return error < 0 ? fail_add(shaper, error, "htb") : WEIR_OK;
}

static uint32_t gso_bytes(double rate) {
  const double bytes = rate * burst_s;
  if (bytes < MIN_GSO_BYTES) return MIN_GSO_BYTES;
  return bytes > MAX_GSO_BYTES ? MAX_GSO_BYTES : (uint32_t)bytes;
}

static weir_status apply_class(const weir_shaper *shaper, double rate) {
  const double burst = fmax(gso_bytes(rate), fmin(rate * burst_s / 2, (double)(1 << 26)));
  struct rtnl_class *class = rtnl_class_alloc();
  if (!class) return weir_fail(WEIR_E_NOMEM, "no memory for a class");
  rtnl_tc_set_ifindex(TC_CAST(class), shaper->ifindex);
  rtnl_tc_set_parent(TC_CAST(class), HTB_HANDLE);
  rtnl_tc_set_handle(TC_CAST(class), CLASS_HANDLE);
  rtnl_tc_set_mtu(TC_CAST(class), MTU_BYTES);
  int error = rtnl_tc_set_kind(TC_CAST(class), "htb");
  if (!error) error = rtnl_htb_set_rate64(class, (uint64_t)llround(rate));
  if (!error) error = rtnl_htb_set_ceil64(class, (uint64_t)llround(rate));
  if (!error) error = rtnl_htb_set_rbuffer(class, (uint32_t)burst);
  if (!error) error = rtnl_htb_set_cbuffer(class, (uint32_t)burst);
  if (!error) error = rtnl_htb_set_quantum(class, QUANTUM_BYTES);
  if (!error) error = rtnl_class_add(shaper->socket, class, NLM_F_CREATE);
  rtnl_class_put(class);
  return error < 0 ? fail_tc(shaper, error, "setting the rate (htb)") : WEIR_OK;
}

/* netem holds a probability as a fraction of 2^32 - 1. */
static int to_probability(double fraction) { return (int)(uint32_t)llround(fraction * UINT32_MAX); }
static double from_probability(int value) { return (uint32_t)value / (double)UINT32_MAX; }

bool weir_shape_needs_netem(const weir_shape *shape) {
  return shape->delay_s > 0 || shape->loss > 0 || shape->reorder > 0 || shape->duplicate > 0;
}

bool weir_shape_equal(const weir_shape *a, const weir_shape *b) {
  return a->rate_bytes_s == b->rate_bytes_s && a->delay_s == b->delay_s && a->loss == b->loss &&
         a->reorder == b->reorder && a->duplicate == b->duplicate;
}

static int delay_us(const weir_shape *shape) { return (int)lround(shape->delay_s * 1e6); }

static void describe_netem(struct rtnl_qdisc *qdisc, const weir_shape *shape, int packets) {
  rtnl_netem_set_delay(qdisc, delay_us(shape));
  rtnl_netem_set_limit(qdisc, packets);
  rtnl_netem_set_loss(qdisc, to_probability(shape->loss));
  rtnl_netem_set_duplicate(qdisc, to_probability(shape->duplicate));
  if (shape->reorder > 0) {
    rtnl_netem_set_gap(qdisc, 1);
    rtnl_netem_set_reorder_probability(qdisc, to_probability(shape->reorder));
  }
}

/* libnl's error.  The same handle and kind again is a change in place: what is queued stays. */
static int put_leaf(const weir_shaper *shaper, const char *kind, const weir_shape *shape,
                    int packets) {
  struct rtnl_qdisc *qdisc = rtnl_qdisc_alloc();
  if (!qdisc) return -NLE_NOMEM;
  rtnl_tc_set_ifindex(TC_CAST(qdisc), shaper->ifindex);
  rtnl_tc_set_parent(TC_CAST(qdisc), CLASS_HANDLE);
  rtnl_tc_set_handle(TC_CAST(qdisc), LEAF_HANDLE);
  int error = rtnl_tc_set_kind(TC_CAST(qdisc), kind);
  if (!error && !strcmp(kind, "netem")) describe_netem(qdisc, shape, packets);
  if (!error && !strcmp(kind, "pfifo")) error = rtnl_qdisc_fifo_set_limit(qdisc, packets);
  if (!error) error = rtnl_qdisc_add(shaper->socket, qdisc, NLM_F_CREATE | NLM_F_REPLACE);
  rtnl_qdisc_put(qdisc);
  return error;
}

static weir_status apply_leaf(const weir_shaper *shaper, const weir_shape *shape) {
  const double in_flight = shape->rate_bytes_s * shape->delay_s / MTU_BYTES;
  const int packets = (int)fmin(2 * in_flight + SPARE_PACKETS, 1e9);
  struct rtnl_qdisc *pfifo = NULL;
  const weir_status status = find_qdisc(shaper, LEAF_HANDLE, "pfifo", &pfifo);
  if (status != WEIR_OK) return status;
  /* A pfifo of ours is there for want of netem, and another kind cannot take its place. */
  int error = pfifo ? -NLE_OBJ_NOTFOUND : put_leaf(shaper, "netem", shape, packets);
  if (pfifo) rtnl_qdisc_put(pfifo);
  const bool netem = !is_missing(error) || weir_shape_needs_netem(shape);
  if (!netem) error = put_leaf(shaper, "pfifo", shape, packets);
  return error < 0 ? fail_add(shaper, error, netem ? "netem" : "pfifo") : WEIR_OK;
}

static bool is_fraction(double value) { return value >= 0 && value < 1; }

weir_status weir_shape_check(const weir_shape *shape) {
  if (!(shape->rate_bytes_s >= min_rate && shape->rate_bytes_s <= max_rate))
    return weir_fail(WEIR_E_INVALID, "a rate of %g bytes/s: %g to %g can be set",
                     shape->rate_bytes_s, min_rate, max_rate);
  if (!(shape->delay_s >= 0 && shape->delay_s <= max_delay_s))
    return weir_fail(WEIR_E_INVALID, "a delay of %g s: 0 to %g can be set", shape->delay_s,
                     max_delay_s);
  if (!is_fraction(shape->loss) || !is_fraction(shape->reorder) || !is_fraction(shape->duplicate))
    return weir_fail(WEIR_E_INVALID, "loss, reorder and duplicate are fractions in [0, 1)");
  if (shape->reorder > 0 && delay_us(shape) == 0)
    return weir_fail(WEIR_E_INVALID,
                     "reordering without a delay: packets overtake others that are held back");
  return WEIR_OK;
}

weir_status weir_shaper_apply(weir_shaper *shaper, const weir_shape *shape) {
  weir_status status = weir_shape_check(shape);
  if (status == WEIR_OK) status = apply_root(shaper);
  if (status == WEIR_OK) status = apply_class(shaper, shape->rate_bytes_s);
  if (status == WEIR_OK) status = apply_leaf(shaper, shape);
  if (status == WEIR_OK) status = set_gso(shaper, gso_bytes(shape->rate_bytes_s), "weir");
  return status;
}

/* Our class; NULL when there is none. */
static weir_status find_class(const weir_shaper *shaper, struct rtnl_class **class) {
  struct nl_cache *cache = NULL;
  const int error = rtnl_class_alloc_cache(shaper->socket, shaper->ifindex, &cache);
  if (error < 0) return fail_tc(shaper, error, "listing classes");
  *class = rtnl_class_get(cache, shaper->ifindex, CLASS_HANDLE);
  nl_cache_free(cache);
  return *class ? WEIR_OK : weir_fail(WEIR_E_STATE, "no rate is set on %s", shaper->name);
}

static weir_status read_rate(const weir_shaper *shaper, double *rate) {
  struct rtnl_class *class = NULL;
  weir_status status = find_class(shaper, &class);
  if (status != WEIR_OK) return status;
  uint64_t bytes_s = 0;
  if (rtnl_htb_get_rate64(class, &bytes_s))
    status = weir_fail(WEIR_E_STATE, "no rate is set on %s", shaper->name);
  rtnl_class_put(class);
  *rate = (double)bytes_s;
  return status;
}

/* Without netem there is none of what it does. */
weir_status weir_shaper_read(weir_shaper *shaper, weir_shape *shape) {
  struct rtnl_qdisc *netem = NULL;
  weir_shape read = {0};
  weir_status status = read_rate(shaper, &read.rate_bytes_s);
  if (status == WEIR_OK) status = find_qdisc(shaper, LEAF_HANDLE, "netem", &netem);
  if (status != WEIR_OK) return status;
  if (netem) {
    const int delay = rtnl_netem_get_delay(netem);
    read.delay_s = delay > 0 ? delay * 1e-6 : 0;
    read.loss = from_probability(rtnl_netem_get_loss(netem));
    /* Without a gap nothing is reordered, whatever probability the kernel keeps from before. */
    if (rtnl_netem_get_gap(netem) > 0)
      read.reorder = from_probability(rtnl_netem_get_reorder_probability(netem));
    read.duplicate = from_probability(rtnl_netem_get_duplicate(netem));
    rtnl_qdisc_put(netem);
  }
  *shape = read;
  return WEIR_OK;
}

static weir_status count_dropped(const weir_shaper *shaper, uint64_t *packets) {
  struct rtnl_qdisc *leaf = NULL;
  weir_status status = find_qdisc(shaper, LEAF_HANDLE, "netem", &leaf);
  if (status == WEIR_OK && !leaf) status = find_qdisc(shaper, LEAF_HANDLE, "pfifo", &leaf);
  if (status != WEIR_OK) return status;
  *packets = leaf ? rtnl_tc_get_stat(TC_CAST(leaf), RTNL_TC_DROPS) : 0;
  if (leaf) rtnl_qdisc_put(leaf);
  return WEIR_OK;
}

weir_status weir_shaper_count(weir_shaper *shaper, weir_shaper_counters *counters) {
  struct rtnl_class *class = NULL;
  struct rtnl_link *link = NULL;
  *counters = (weir_shaper_counters){0};
  weir_status status = find_class(shaper, &class);
  if (status != WEIR_OK) return status;
  counters->sent_bytes = rtnl_tc_get_stat(TC_CAST(class), RTNL_TC_BYTES);
  counters->sent_packets = rtnl_tc_get_stat(TC_CAST(class), RTNL_TC_PACKETS);
  rtnl_class_put(class);
  const int error = rtnl_link_get_kernel(shaper->socket, shaper->ifindex, NULL, &link);
  if (error < 0) return fail_tc(shaper, error, "reading the counters");
  counters->received_bytes = rtnl_link_get_stat(link, RTNL_LINK_RX_BYTES);
  rtnl_link_put(link);
  return count_dropped(shaper, &counters->dropped_packets);
}

weir_status weir_shaper_clear(weir_shaper *shaper) {
  struct rtnl_qdisc *qdisc = NULL;
  weir_status status = find_qdisc(shaper, HTB_HANDLE, "htb", &qdisc);
  if (status != WEIR_OK || !qdisc) return status;
  const int error = rtnl_qdisc_delete(shaper->socket, qdisc);
  rtnl_qdisc_put(qdisc);
  if (error < 0 && error != -NLE_OBJ_NOTFOUND) return fail_tc(shaper, error, "removing htb");
  return set_gso(shaper, MAX_GSO_BYTES, "");
}

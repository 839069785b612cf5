#include "lab/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/status.h>

#include "base/base.h"
#include "lab/links.h"
#include "lab/stage.h"

struct weir_topology {
  int workers;
  int home; /* the namespace of the bridge */
  int *namespaces;
  weir_shaper **shapers;
};

/* --- namespaces ------------------------------------------------------------------------------- */

static weir_status write_text(const char *path, const char *text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0)
    return weir_fail(WEIR_E_UNSUPPORTED, "%s: cannot be opened: %s", path, strerror(errno));
  const size_t length = strlen(text);
  const ssize_t written = write(file, text, length);
  const int error = errno;
  (void)close(file);
  if (written != (ssize_t)length)
    return weir_fail(WEIR_E_UNSUPPORTED, "%s: cannot write '%s': %s", path, text,
                     written < 0 ? strerror(error) : "cut short");
  return WEIR_OK;
}

/* Be root inside a user namespace, and nobody new outside. */
static weir_status map_identity(uid_t user, gid_t group) {
  char map[64];
  weir_status status = write_text("/proc/self/setgroups", "deny");
  (void)snprintf(map, sizeof map, "0 %u 1", (unsigned)user);
  if (!status) status = write_text("/proc/self/uid_map", map);
  (void)snprintf(map, sizeof map, "0 %u 1", (unsigned)group);
  return status ? status : write_text("/proc/self/gid_map", map);
}

weir_status weir_topology_enter(void) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNET | (user ? CLONE_NEWUSER : 0)))
    return weir_fail(WEIR_E_UNSUPPORTED, "no network namespace of our own: %s", strerror(errno));
  return user ? map_identity(user, group) : WEIR_OK;
}

static weir_status own_namespace(int *descriptor) {
  *descriptor = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (*descriptor < 0)
    return weir_fail(WEIR_E_UNSUPPORTED, "/proc/self/ns/net: cannot be opened: %s",
                     strerror(errno));
  return WEIR_OK;
}

static weir_status enter(int descriptor) {
  if (setns(descriptor, CLONE_NEWNET))
    return weir_fail(WEIR_E_UNSUPPORTED, "a network namespace cannot be entered: %s",
                     strerror(errno));
  return WEIR_OK;
}

/* --- a worker's end --------------------------------------------------------------------------- */

/* Long fat links: no slow start after a pause, no memory of older connections' losses, windows wide
 * enough from the begin, and no waiting for more to send. */
static weir_status open_windows(double window_bytes) {
  static const char *const fixed[][2] = {
      {"/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0"},
      {"/proc/sys/net/ipv4/tcp_no_metrics_save", "1"},
      {"/proc/sys/net/ipv4/tcp_autocorking", "0"},
  };
  weir_status status = WEIR_OK;
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed && !status; i++)
    status = write_text(fixed[i][0], fixed[i][1]);
  const double most = fmin(1 << 30, fmax(64 << 20, 4 * window_bytes));
  const double begin = fmin(most, fmax(4 << 20, 2 * window_bytes));
  char memory[96];
  (void)snprintf(memory, sizeof memory, "4096 %.0f %.0f", begin, most);
  if (!status) status = write_text("/proc/sys/net/ipv4/tcp_rmem", memory);
  if (!status) status = write_text("/proc/sys/net/ipv4/tcp_wmem", memory);
  /* Neighbour discovery of a protocol nobody uses here would be cross traffic. */
  if (!status && !access("/proc/sys/net/ipv6/conf/all/disable_ipv6", W_OK))
    status = write_text("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
  return status;
}

static uint32_t address_of(int worker) { return 10u << 24 | 77u << 16 | (uint32_t)(worker + 1); }

static weir_status configure_worker(int worker, double window_bytes) {
  const double packets = fmin(30000, fmax(1000, 1.5 * window_bytes / 1448));
  weir_status status = open_windows(window_bytes);
  if (!status) status = weir_link_up("lo");
  if (!status) status = weir_link_up(WEIR_TOPOLOGY_LINK);
  if (!status)
    status = weir_link_address(WEIR_TOPOLOGY_LINK, address_of(worker), 16, (uint32_t)packets);
  return status;
}

static weir_status add_worker(weir_topology *t, int worker, double window_bytes) {
  if (unshare(CLONE_NEWNET))
    return weir_fail(WEIR_E_UNSUPPORTED, "no network namespace for worker %d: %s", worker,
                     strerror(errno));
  weir_status status = own_namespace(&t->namespaces[worker]);
  weir_status home = enter(t->home);
  if (status || home) return status ? status : home;
  char name[IF_NAMESIZE];
  (void)snprintf(name, sizeof name, "w%d", worker);
  status = weir_link_pair(name, WEIR_TOPOLOGY_LINK, t->namespaces[worker]);
  if (!status) status = weir_link_enslave(name, WEIR_TOPOLOGY_BRIDGE);
  if (!status) status = weir_link_up(name);
  if (!status) status = enter(t->namespaces[worker]);
  if (!status) status = configure_worker(worker, window_bytes);
  if (!status) status = weir_shaper_open(&t->shapers[worker], WEIR_TOPOLOGY_LINK);
  home = enter(t->home);
  return status ? status : home;
}

weir_status weir_topology_create(weir_topology **out, int workers, double window_bytes) {
  *out = NULL;
  weir_stage_descriptors((size_t)workers);
  weir_topology *t = calloc(1, sizeof *t);
  weir_status status = WEIR_E_NOMEM;
  if (!t) return weir_fail(status, "no memory for the cluster");
  t->home = -1;
  t->namespaces = malloc((size_t)workers * sizeof *t->namespaces);
  t->shapers = calloc((size_t)workers, sizeof *t->shapers);
  if (!t->namespaces || !t->shapers) {
    status = weir_fail(status, "no memory for a cluster of %d workers", workers);
    goto failed;
  }
  t->workers = workers;
  for (int r = 0; r < workers; r++) t->namespaces[r] = -1;
  if ((status = own_namespace(&t->home))) goto failed;
  if ((status = weir_link_up("lo"))) goto failed;
  if ((status = weir_link_bridge(WEIR_TOPOLOGY_BRIDGE))) goto failed;
  if ((status = weir_link_up(WEIR_TOPOLOGY_BRIDGE))) goto failed;
  for (int r = 0; r < workers; r++)
    if ((status = add_worker(t, r, window_bytes))) goto failed;
  *out = t;
  return WEIR_OK;
failed:
  weir_topology_free(t);
  return status;
}

/* --- shaping ---------------------------------------------------------------------------------- */

static bool near(double set, double got, double relative, double absolute) {
  return fabs(set - got) <= fmax(relative * fabs(set), absolute);
}

/* The kernel keeps whole bytes a second, ticks of time and 32-bit fractions. */
static weir_status check_shape(int worker, const weir_shape *set, const weir_shape *got) {
  if (near(set->rate_bytes_s, got->rate_bytes_s, 1e-3, 1) &&
      near(set->delay_s, got->delay_s, 1e-3, 1e-5) && near(set->loss, got->loss, 1e-3, 1e-6) &&
      near(set->reorder, got->reorder, 1e-3, 1e-6) &&
      near(set->duplicate, got->duplicate, 1e-3, 1e-6))
    return WEIR_OK;
  return weir_fail(WEIR_E_IO,
                   "worker %d's link was set to %.6g Mbit/s, %.6g ms, loss %.4g, reordered %.4g, "
                   "twice %.4g, but the kernel has %.6g Mbit/s, %.6g ms, loss %.4g, reordered "
                   "%.4g, twice %.4g in force",
                   worker, set->rate_bytes_s * 8e-6, set->delay_s * 1e3, set->loss, set->reorder,
                   set->duplicate, got->rate_bytes_s * 8e-6, got->delay_s * 1e3, got->loss,
                   got->reorder, got->duplicate);
}

weir_status weir_topology_shape(weir_topology *t, const weir_shape *shape) {
  for (int r = 0; r < t->workers; r++) {
    weir_shape got = {0};
    weir_status status = weir_shaper_apply(t->shapers[r], shape);
    if (!status) status = weir_shaper_read(t->shapers[r], &got);
    if (!status) status = check_shape(r, shape, &got);
    if (status) return status;
  }
  return WEIR_OK;
}

weir_status weir_topology_shape_arrivals(const weir_topology *t, double rate_bytes_s) {
  const weir_shape shape = {.rate_bytes_s = rate_bytes_s};
  weir_status status = WEIR_OK;
  for (int r = 0; r < t->workers && status == WEIR_OK; r++) {
    char name[16];
    weir_shaper *shaper = NULL;
    (void)snprintf(name, sizeof name, "w%d", r);
    status = weir_shaper_open(&shaper, name);
    if (!status) status = weir_shaper_apply(shaper, &shape);
    weir_shaper_free(shaper);
  }
  return status;
}

weir_status weir_topology_count(weir_topology *t, int worker, weir_shaper_counters *counters) {
  return weir_shaper_count(t->shapers[worker], counters);
}

weir_status weir_topology_join(const weir_topology *t, int worker) {
  return enter(t->namespaces[worker]);
}

int weir_topology_descriptor(const weir_topology *t, int worker) { return t->namespaces[worker]; }

weir_status weir_topology_segments(unsigned segments) {
  char text[16];
  (void)snprintf(text, sizeof text, "%u", segments);
  return segments ? write_text("/proc/sys/net/ipv4/tcp_min_tso_segs", text) : WEIR_OK;
}

void weir_topology_address(int worker, char text[WEIR_ADDRESS_MAX]) {
  const uint32_t address = address_of(worker);
  (void)snprintf(text, WEIR_ADDRESS_MAX, "%u.%u.%u.%u", address >> 24, address >> 16 & 255,
                 address >> 8 & 255, address & 255);
}

void weir_topology_free(weir_topology *t) {
  if (!t) return;
  for (int r = 0; r < t->workers; r++) {
    if (t->shapers[r]) (void)weir_shaper_clear(t->shapers[r]);
    weir_shaper_free(t->shapers[r]);
    if (t->namespaces[r] >= 0) (void)close(t->namespaces[r]);
  }
  if (t->home >= 0) (void)close(t->home);
  free(t->shapers);
  free(t->namespaces);
  free(t);
}

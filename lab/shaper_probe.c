/* Finds out whether this kernel can shape traffic, in a child in a network namespace of its own, so
 * that nothing of the caller's is touched and libnl may even end the process. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netlink/netlink.h>
#include <netlink/route/link/veth.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/shaper.h"
#include "netprobe/netlink.h"

enum { PROBE_MS = 10000 };

static weir_status try_shape(bool netem) {
  const weir_shape want = {.rate_bytes_s = 1.25e6, .delay_s = netem ? 0.005 : 0};
  struct nl_sock *socket = NULL;
  weir_status status = weir_netlink_open(&socket);
  if (status != WEIR_OK) return status;
  const int error = rtnl_link_veth_add(socket, "weir0", "weir1", getpid());
  nl_socket_free(socket);
  if (error < 0) return weir_netlink_fail(error, "adding a veth pair");
  weir_shaper *shaper = NULL;
  weir_shape got;
  status = weir_shaper_open(&shaper, "weir0");
  if (status == WEIR_OK) status = weir_shaper_apply(shaper, &want);
  if (status == WEIR_OK) status = weir_shaper_read(shaper, &got);
  weir_shaper_free(shaper);
  if (status != WEIR_OK) return status;
  if (fabs(got.delay_s - want.delay_s) > 2e-6 || fabs(got.rate_bytes_s - want.rate_bytes_s) > 1)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "the kernel set %g bytes/s and %g s where %g and %g were asked",
                     got.rate_bytes_s, got.delay_s, want.rate_bytes_s, want.delay_s);
  return WEIR_OK;
}

static void run_child(int to, bool netem) {
  weir_status status = WEIR_OK;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) && unshare(CLONE_NEWNET))
    status = weir_fail(WEIR_E_UNSUPPORTED, "no network namespace can be made: %s", strerror(errno));
  if (status == WEIR_OK) status = try_shape(netem);
  const char *text = status == WEIR_OK ? "+" : weir_last_error();
  if (write(to, text, strlen(text)) < 0) _exit(1);
  _exit(0);
}

weir_status weir_shaper_probe(bool netem) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC))
    return weir_fail(WEIR_E_IO, "cannot make a pipe: %s", strerror(errno));
  const pid_t pid = fork();
  if (pid == 0) run_child(ends[1], netem);
  close(ends[1]);
  char said[256] = "";
  weir_status status = WEIR_OK;
  if (pid < 0) {
    status = weir_fail(WEIR_E_IO, "cannot fork: %s", strerror(errno));
  } else {
    struct pollfd wait = {.fd = ends[0], .events = POLLIN};
    int ready;
    while ((ready = poll(&wait, 1, PROBE_MS)) < 0 && errno == EINTR) continue;
    const ssize_t n = ready > 0 ? read(ends[0], said, sizeof said - 1) : 0;
    (void)kill(pid, SIGKILL); /* it has said what it knows, or it hangs */
    int state;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
    if (n <= 0)
      status = weir_fail(WEIR_E_UNSUPPORTED, "trying traffic control gave no answer");
    else if (strcmp(said, "+"))
      status = weir_fail(WEIR_E_UNSUPPORTED, "%s", said);
  }
  close(ends[0]);
  return status;
}

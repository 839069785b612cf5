/* Ports for processes that are about to be started: free, and none of the kernel's own. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

static int listen_at(int port) {
  const struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  cr_assert_geq(fd, 0);
  cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0, "port %d", port);
  cr_assert_eq(listen(fd, 1), 0);
  return fd;
}

/* Those that somebody listens at meanwhile are not given again. */
Test(port, is_free_and_not_the_kernels) {
  enum { PORTS = 200 };
  int from = 0, to = 0, fd[PORTS];
  FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
  cr_assert_not_null(range);
  cr_assert_eq(fscanf(range, "%d %d", &from, &to), 2);
  (void)fclose(range);
  const bool room = from >= 11000 || to < 64536;
  for (int i = 0; i < PORTS; i++) {
    const int port = weir_free_port();
    cr_assert(port >= 10000 && port <= 65535, "%d", port);
    cr_assert(!room || port < from || port > to, "%d is one of %d to %d", port, from, to);
    fd[i] = listen_at(port);
  }
  for (int i = 0; i < PORTS; i++) (void)close(fd[i]);
}

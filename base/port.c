/* A port for processes that are about to be started and have to be told of it. */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

#define LEAST 10000 /* below are the ports of known services */
#define MOST 65535
#define FEW 1000

/* What the kernel hands out to whoever asks for any port: such a one could be a connection's by the
 * time somebody listens there. */
static void kernels_own(int *first, int *last) {
  FILE *told = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
  *first = 32768;
  *last = 60999;
  if (told == NULL) return;
  int from, to;
  if (fscanf(told, "%d %d", &from, &to) == 2 && from >= 1 && from <= to && to <= MOST) {
    *first = from;
    *last = to;
  }
  (void)fclose(told);
}

/* The larger of the ranges below and above the kernel's; where it has nearly all, all. */
static void ours(int *first, int *count) {
  int kernels_first, kernels_last;
  kernels_own(&kernels_first, &kernels_last);
  const int below = kernels_first - LEAST, above = MOST - kernels_last;
  *first = below >= above ? LEAST : kernels_last + 1;
  *count = below >= above ? below : above;
  if (*count >= FEW) return;
  *first = LEAST;
  *count = MOST + 1 - LEAST;
}

static bool is_free(int port) {
  const struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool found = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
  (void)close(fd);
  return found;
}

int weir_free_port(void) {
  int first, count;
  ours(&first, &count);
  for (int tries = 0; tries < 100; tries++) {
    unsigned at;
    if (getrandom(&at, sizeof at, 0) != (ssize_t)sizeof at) return 0;
    const int port = first + (int)(at % (unsigned)count);
    if (is_free(port)) return port;
  }
  return 0;
}

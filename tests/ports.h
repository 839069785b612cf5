/* Ports for tests, from below those that the kernel hands out to whoever asks for any: such a port
 * could be a connection's between the moment it is found free and the moment a rank listens there.
 */
#ifndef WEIR_TESTS_PORTS_H
#define WEIR_TESTS_PORTS_H

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORTS_FIRST 12000
#define PORTS_COUNT 20000 /* the kernel's own begin at 32768 unless it is told otherwise */

/* A port of the loopback that was free a moment ago, drawn at random: tests run side by side. */
static inline int free_port(void) {
  for (int tries = 0; tries < 100; tries++) {
    unsigned at;
    if (getrandom(&at, sizeof at, 0) != (ssize_t)sizeof at) abort();
    const int port = PORTS_FIRST + (int)(at % PORTS_COUNT);
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) abort();
    const int taken = bind(fd, (const struct sockaddr *)&address, sizeof address);
    (void)close(fd);
    if (taken == 0) return port;
  }
  abort();
}

#endif

/* Sockets: addresses, listening, connecting and waiting, all with an end. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/log.h"
#include "collectives/transports/tcp.h"

/* Ranks send to one neighbour and wait for another by turns.  BBR takes the pauses for the link's
 * rate, paces the next message at it and drains queues that are not there: a ring at 30 Mbit/s then
 * takes 1.08 to 1.35 times what its bytes do, and with Reno 1.05, which is headers.  After a loss
 * Reno needs half a window of round trips to come back, so it is for links with short ones; and
 * inside a machine there is no link to share. */
static const double short_round_trip_s = 2e-3;

const char *tcp_congestion_control(bool near, uint32_t round_trip_us) {
  static const char unpaced[] = "reno"; /* open to every user */
  const bool is_short = round_trip_us > 0 && round_trip_us <= short_round_trip_s * 1e6;
  return near || is_short ? unpaced : NULL;
}

void tcp_settle(tcp *self, int way) {
  const char *own = self->peer[self->base.rank].address;
  tcp_peer *p = &self->peer[way];
  const int one = 1;
  struct tcp_info info = {0};
  socklen_t bytes = sizeof info;
  (void)setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  p->near = strcmp(self->peer[way % self->base.size].address, own) == 0;
  (void)getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes); /* else 0: not known */
  const char *control = tcp_congestion_control(p->near, info.tcpi_min_rtt);
  if (control != NULL)
    (void)setsockopt(p->fd, IPPROTO_TCP, TCP_CONGESTION, control, (socklen_t)strlen(control));
}

void tcp_sleep(double seconds) {
  const struct timespec pause = {.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

int tcp_poll_until(struct pollfd *fds, size_t count, double deadline_s) {
  const double left = deadline_s - weir_now_s();
  const int ms = left <= 0.0 ? 0 : left > 3600.0 ? 3600000 : (int)(left * 1e3) + 1;
  const int ready = poll(fds, (nfds_t)count, ms);
  return ready < 0 && errno == EINTR ? 0 : ready;
}

weir_status tcp_resolve(const char *where, double deadline_s, tcp_places *out) {
  const char *colon = where ? strrchr(where, ':') : NULL;
  char host[256];
  char *end = NULL;
  const long port = colon ? strtol(colon + 1, &end, 10) : 0;
  if (!colon || colon == where || (size_t)(colon - where) >= sizeof host || end == colon + 1 ||
      *end != '\0' || port < 1 || port > 65535)
    return weir_fail(WEIR_E_INVALID,
                     "rendezvous \"%s\" is not HOST:PORT, with a port of 1 to 65535",
                     where ? where : "");
  memcpy(host, where, (size_t)(colon - where));
  host[colon - where] = '\0';
  const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  struct addrinfo *found = NULL;
  int error = getaddrinfo(host, NULL, &hints, &found);
  while (error == EAI_AGAIN && weir_now_s() < deadline_s) {
    tcp_sleep(0.1);
    error = getaddrinfo(host, NULL, &hints, &found);
  }
  if (error != 0)
    return weir_fail(WEIR_E_INVALID, "no IPv4 address of \"%s\": %s", host, gai_strerror(error));
  out->count = 0;
  for (const struct addrinfo *a = found; a != NULL && out->count < TCP_PLACES_MAX; a = a->ai_next) {
    memcpy(&out->at[out->count], a->ai_addr, sizeof out->at[0]);
    out->at[out->count++].sin_port = htons((uint16_t)port);
  }
  freeaddrinfo(found);
  return WEIR_OK;
}

/* More may call in the 0.1 s for which a door is not looked at (tcp_datagram.c) than the usual 128;
 * who finds no place calls again only after a second. */
#define BACKLOG 1024
#define TAKEN_S 2.0 /* for which a port is waited for in silence: a job's that ends */

weir_status tcp_listen(struct sockaddr_in *address, double deadline_s, int *out) {
  const int one = 1;
  const double began_s = weir_now_s();
  bool told = false;
  socklen_t length = sizeof *address;
  char text[INET_ADDRSTRLEN] = "";
  (void)inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return weir_fail(WEIR_E_IO, "no socket to listen on: %s", strerror(errno));
  (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  while (bind(fd, (const struct sockaddr *)address, sizeof *address) != 0 ||
         listen(fd, BACKLOG) != 0) {
    const int error = errno;
    if (error == EADDRINUSE && weir_now_s() < deadline_s) {
      if (!told && weir_now_s() > began_s + TAKEN_S) {
        weir_log(WEIR_LOG_WARN, "%s:%u is taken by another program, and is waited for", text,
                 ntohs(address->sin_port));
        told = true;
      }
      tcp_sleep(0.02);
      continue;
    }
    (void)close(fd);
    return weir_fail(WEIR_E_IO, "cannot listen on %s:%u: %s", text, ntohs(address->sin_port),
                     strerror(error));
  }
  if (getsockname(fd, (struct sockaddr *)address, &length) != 0) {
    (void)close(fd);
    return weir_fail(WEIR_E_IO, "a listening socket has no name: %s", strerror(errno));
  }
  *out = fd;
  return WEIR_OK;
}

void tcp_turn_away(int listener) {
  enum { AT_ONCE = 64 };
  for (int i = 0; i < AT_ONCE; i++) {
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    (void)close(fd);
  }
}

/* On the loopback a connection to a free port can meet itself. */
static bool connected_to_itself(int fd) {
  struct sockaddr_in own, other;
  socklen_t own_length = sizeof own, other_length = sizeof other;
  if (getsockname(fd, (struct sockaddr *)&own, &own_length) != 0 ||
      getpeername(fd, (struct sockaddr *)&other, &other_length) != 0)
    return true;
  return own.sin_port == other.sin_port && own.sin_addr.s_addr == other.sin_addr.s_addr;
}

static bool established(int fd, const struct sockaddr_in *to, double deadline_s) {
  if (connect(fd, (const struct sockaddr *)to, sizeof *to) != 0) {
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t length = sizeof error;
    if (errno != EINPROGRESS || tcp_poll_until(&wait, 1, deadline_s) != 1) return false;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) return false;
  }
  return !connected_to_itself(fd);
}

weir_status tcp_connect_once(const struct sockaddr_in *to, const struct sockaddr_in *from,
                             double deadline_s, int *out) {
  *out = -1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return weir_fail(WEIR_E_IO, "no socket to connect with: %s", strerror(errno));
  if (from) {
    struct sockaddr_in local = *from;
    local.sin_port = 0;
    if (bind(fd, (const struct sockaddr *)&local, sizeof local) != 0) {
      const int error = errno;
      (void)close(fd);
      return weir_fail(WEIR_E_INVALID, "cannot use the local address: %s", strerror(error));
    }
  }
  if (!established(fd, to, deadline_s)) {
    (void)close(fd);
    return WEIR_OK;
  }
  *out = fd;
  return WEIR_OK;
}

bool tcp_write_all(int fd, const void *data, size_t count, double deadline_s) {
  const unsigned char *at = data;
  while (count > 0) {
    const ssize_t sent = send(fd, at, count, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      count -= (size_t)sent;
      continue;
    }
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (sent == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (tcp_poll_until(&wait, 1, deadline_s) <= 0 && weir_now_s() >= deadline_s) return false;
  }
  return true;
}

bool tcp_read_all(int fd, void *data, size_t count, double deadline_s) {
  unsigned char *at = data;
  while (count > 0) {
    const ssize_t got = recv(fd, at, count, 0);
    if (got > 0) {
      at += got;
      count -= (size_t)got;
      continue;
    }
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (tcp_poll_until(&wait, 1, deadline_s) <= 0 && weir_now_s() >= deadline_s) return false;
  }
  return true;
}

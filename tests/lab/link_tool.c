/* One end of a link, for test scripts:
 *   link_tool apply IF MBIT_S DELAY_MS [REORDERED_PERCENT] | read IF | clear IF | probe
 *   link_tool serve PORT              TCP sink that answers each burst, and UDP echo, until killed
 *   link_tool burst HOST PORT BYTES COUNT   Mbit/s of payload as the receiver saw it, median and
 * all link_tool echo HOST PORT COUNT          round-trip times in ms: smallest, median, largest */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/shaper.h"
#include "netmon/netmon.h"

static int die(const char *what) {
  fprintf(stderr, "link_tool: %s: %s\n", what, strerror(errno));
  return 1;
}

static int say(weir_status status) {
  if (status == WEIR_OK) return 0;
  fprintf(stderr, "link_tool: %s: %s\n", weir_status_name(status), weir_last_error());
  return status == WEIR_E_UNSUPPORTED ? 77 : 1;
}

static int shape(const char *what, const char *name, double mbit, double delay_ms,
                 double reordered) {
  weir_shaper *shaper = NULL;
  weir_shape s = {
      .rate_bytes_s = mbit * 1e6 / 8, .delay_s = delay_ms * 1e-3, .reorder = reordered / 100};
  weir_status status = weir_shaper_open(&shaper, name);
  if (status != WEIR_OK) return say(status);
  if (!strcmp(what, "apply"))
    status = weir_shaper_apply(shaper, &s);
  else if (!strcmp(what, "clear"))
    status = weir_shaper_clear(shaper);
  else if ((status = weir_shaper_read(shaper, &s)) == WEIR_OK)
    printf("%.3f %.3f %.3f\n", s.rate_bytes_s * 8e-6, s.delay_s * 1e3, s.reorder * 100);
  weir_shaper_free(shaper);
  return say(status);
}

static struct sockaddr_in address(const char *host, const char *port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  if (inet_pton(AF_INET, host, &a.sin_addr) != 1) exit(die(host));
  return a;
}

/* Each burst: its size in 8 bytes, then that many; the answer is the seconds from the arrival of
 * its first bytes to its last, and how many bytes the first read took. */
static int serve_one(int peer) {
  static char bytes[1 << 18];
  uint64_t size;
  while (recv(peer, &size, sizeof size, MSG_WAITALL) == (ssize_t)sizeof size) {
    ssize_t n = recv(peer, bytes, sizeof bytes, 0);
    const double start = weir_now_s();
    const uint64_t first = n > 0 ? (uint64_t)n : 0;
    uint64_t got = first;
    while (n > 0 && got < size) {
      n = recv(peer, bytes, size - got < sizeof bytes ? size - got : sizeof bytes, 0);
      if (n > 0) got += (uint64_t)n;
    }
    const double answer[2] = {weir_now_s() - start, (double)first};
    if (send(peer, answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer) return 1;
  }
  return 0;
}

static int serve(const char *port) {
  struct sockaddr_in a = address("0.0.0.0", port), from;
  const int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
  (void)setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(tcp, (struct sockaddr *)&a, sizeof a) || listen(tcp, 4) ||
      bind(udp, (struct sockaddr *)&a, sizeof a))
    return die("bind");
  for (;;) {
    struct pollfd fds[2] = {{.fd = tcp, .events = POLLIN}, {.fd = udp, .events = POLLIN}};
    if (poll(fds, 2, 60000) <= 0) return 0;
    if (fds[1].revents) {
      char bytes[64];
      socklen_t length = sizeof from;
      const ssize_t n = recvfrom(udp, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length);
      if (n > 0) (void)sendto(udp, bytes, (size_t)n, 0, (struct sockaddr *)&from, length);
    }
    if (fds[0].revents) {
      const int peer = accept(tcp, NULL, NULL);
      (void)serve_one(peer);
      close(peer);
    }
  }
}

static int burst(const char *host, const char *port, uint64_t size, int count) {
  struct sockaddr_in to = address(host, port);
  const int tcp = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  (void)setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  char *bytes = calloc(1, size + sizeof size);
  double *rate = calloc((size_t)count, sizeof *rate);
  if (!bytes || !rate || connect(tcp, (struct sockaddr *)&to, sizeof to)) return die("connect");
  memcpy(bytes, &size, sizeof size);
  fputs("all:", stdout);
  for (int i = 0; i < count; i++) {
    for (uint64_t sent = 0; sent < size + sizeof size;) {
      const ssize_t n = send(tcp, bytes + sent, size + sizeof size - sent, MSG_NOSIGNAL);
      if (n <= 0) return die("send");
      sent += (uint64_t)n;
    }
    double answer[2];
    if (recv(tcp, answer, sizeof answer, MSG_WAITALL) != (ssize_t)sizeof answer) return die("recv");
    rate[i] = ((double)size - answer[1]) * 8e-6 / answer[0];
    printf(" %.1f", rate[i]);
  }
  weir_sort(rate, (size_t)count);
  printf("\nmedian %.1f\n", rate[count / 2]);
  return 0;
}

static int echo(const char *host, const char *port, int count) {
  struct sockaddr_in to = address(host, port);
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  double *ms = calloc((size_t)count, sizeof *ms);
  if (!ms || connect(udp, (struct sockaddr *)&to, sizeof to)) return die("connect");
  for (int i = 0; i < count; i++) {
    int answer = -1;
    const double start = weir_now_s();
    struct pollfd fd = {.fd = udp, .events = POLLIN};
    if (send(udp, &i, sizeof i, 0) < 0) return die("send");
    while (answer != i && poll(&fd, 1, 2000) > 0)
      if (recv(udp, &answer, sizeof answer, 0) < 0) return die("recv");
    ms[i] = (weir_now_s() - start) * 1e3;
  }
  weir_sort(ms, (size_t)count);
  printf("%.3f %.3f %.3f\n", ms[0], ms[count / 2], ms[count - 1]);
  return 0;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if ((argc == 5 || argc == 6) && !strcmp(what, "apply"))
    return shape(what, argv[2], atof(argv[3]), atof(argv[4]), argc == 6 ? atof(argv[5]) : 0);
  if (argc == 3 && (!strcmp(what, "read") || !strcmp(what, "clear")))
    return shape(what, argv[2], 1, 0, 0);
  if (argc == 2 && !strcmp(what, "probe")) return say(weir_shaper_probe(true));
  if (argc == 3 && !strcmp(what, "serve")) return serve(argv[2]);
  if (argc == 6 && !strcmp(what, "burst"))
    return burst(argv[2], argv[3], strtoull(argv[4], NULL, 10), atoi(argv[5]));
  if (argc == 5 && !strcmp(what, "echo")) return echo(argv[2], argv[3], atoi(argv[4]));
  fputs("link_tool: see the head of tests/lab/link_tool.c\n", stderr);
  return 2;
}

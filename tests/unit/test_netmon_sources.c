/* TCP_INFO, interfaces and iperf3 on loopback. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../ports.h"
#include "base/base.h"
#include "lab/shaper.h"
#include "netmon/netmon.h"

typedef struct pair {
  int client, server;
} pair;

/* Two ends of a TCP connection over loopback; port says where it listens. */
static int listen_any(int *port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof a;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  cr_assert(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 1) &&
            !getsockname(fd, (struct sockaddr *)&a, &length));
  *port = ntohs(a.sin_port);
  return fd;
}

static pair connect_pair(void) {
  int port;
  const int listener = listen_any(&port);
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)port),
                          .sin_addr = {htonl(INADDR_LOOPBACK)}};
  pair p = {.client = socket(AF_INET, SOCK_STREAM, 0)};
  cr_assert_eq(connect(p.client, (struct sockaddr *)&a, sizeof a), 0);
  p.server = accept(listener, NULL, NULL);
  cr_assert(p.server >= 0);
  close(listener);
  return p;
}

static void move_bytes(pair p, size_t count) {
  static char bytes[65536];
  for (size_t moved = 0; moved < count;) {
    const ssize_t n = send(p.client, bytes, sizeof bytes, 0);
    cr_assert(n > 0);
    for (ssize_t got = 0; got < n;) {
      const ssize_t r = recv(p.server, bytes, sizeof bytes, 0);
      cr_assert(r > 0);
      got += r;
    }
    moved += (size_t)n;
  }
}

Test(netmon_tcp_info, counts_what_was_acknowledged) {
  const pair p = connect_pair();
  weir_tcp_reader reader = {0};
  weir_sample flow, rtt, loss;
  bool fresh = true;
  cr_assert_eq(weir_tcp_info_read(&reader, p.client, &flow, &fresh, &rtt, &loss), WEIR_OK);
  cr_assert(!fresh, "the first reading has nothing to compare with");
  cr_assert_eq(rtt.kind, WEIR_SAMPLE_TCP_RTT);
  cr_assert(rtt.value > 0 && rtt.value < 1, "%g", rtt.value);
  size_t moved = 0;
  double told = 0;
  const double start = weir_now_s();
  while (told == 0 && weir_now_s() < start + 60) {
    move_bytes(p, 1 << 20);
    moved += 1 << 20;
    cr_assert_eq(weir_tcp_info_read(&reader, p.client, &flow, &fresh, &rtt, &loss), WEIR_OK);
    if (fresh) told = flow.bytes;
  }
  const double seconds = weir_now_s() - start;
  /* All that was moved, but for acknowledgements still on their way and the handshake's one. */
  cr_assert(told > 0.9 * (double)moved && told <= (double)moved + 1, "%g of %zu", told, moved);
  cr_assert(flow.value >= 0.04 && flow.value <= seconds + 0.02, "%g of %g s", flow.value, seconds);
  cr_assert_eq(flow.kind, WEIR_SAMPLE_TCP_INFO);
  close(p.client);
  close(p.server);
}

Test(netmon_tcp_info, needs_a_tcp_socket) {
  weir_tcp_reader reader = {0};
  weir_sample flow, rtt, loss;
  bool fresh = true;
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  cr_assert_eq(weir_tcp_info_read(&reader, udp, &flow, &fresh, &rtt, &loss), WEIR_E_IO);
  cr_assert(!fresh);
  cr_assert_eq(weir_tcp_info_read(&reader, -1, &flow, &fresh, &rtt, &loss), WEIR_E_IO);
  close(udp);
}

static weir_helper *start_helper(void) {
  weir_helper *helper;
  cr_assert_eq(weir_helper_start(&helper), WEIR_OK, "%s", weir_last_error());
  return helper;
}

Test(netmon_link, loopback_holds_its_address) {
  weir_helper *helper = start_helper();
  char name[16] = "";
  cr_assert_eq(weir_link_of_address(helper, "127.0.0.1", name), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(name, "lo");
  weir_helper_free(helper);
}

/* A look may be late on a busy machine; the next one is not hurt by that. */
static void look(weir_helper *helper, uint64_t *bytes) {
  weir_status status = WEIR_E_TIMEOUT;
  for (int i = 0; i < 100 && status == WEIR_E_TIMEOUT; i++)
    status = weir_link_bytes(helper, "lo", bytes);
  cr_assert_eq(status, WEIR_OK, "%s", weir_last_error());
}

Test(netmon_link, counts_bytes_sent) {
  weir_helper *helper = start_helper();
  uint64_t before, after;
  look(helper, &before);
  const pair p = connect_pair();
  move_bytes(p, 1 << 20);
  look(helper, &after);
  cr_assert_geq(after - before, 1 << 20);
  close(p.client);
  close(p.server);
  weir_helper_free(helper);
}

Test(netmon_link, refuses_what_is_not_there) {
  weir_helper *helper = start_helper();
  char name[16];
  uint64_t sent;
  cr_assert_eq(weir_link_of_address(helper, "192.0.2.77", name), WEIR_E_INVALID); /* for tests */
  cr_assert_eq(weir_link_of_address(helper, "not an address", name), WEIR_E_INVALID);
  cr_assert_eq(weir_link_of_address(helper, NULL, name), WEIR_E_INVALID);
  cr_assert_eq(weir_link_bytes(helper, "", &sent), WEIR_E_INVALID);
  cr_assert_eq(weir_link_bytes(helper, "an interface name too long", &sent), WEIR_E_INVALID);
  look(helper, &sent); /* the helper is awake */
  cr_assert_eq(weir_link_bytes(helper, "nosuchlink0", &sent), WEIR_E_INVALID);
  weir_helper_free(helper);
}

/* Children of a process, from /proc. */
static int children_of(pid_t parent, pid_t *first) {
  int count = 0;
  DIR *dir = opendir("/proc");
  struct dirent *entry;
  while (dir && (entry = readdir(dir))) {
    char path[300];
    int pid, its_parent;
    (void)snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    if (fscanf(file, "%d (%*[^)]) %*c %d", &pid, &its_parent) == 2 && its_parent == parent) {
      count++;
      *first = pid;
    }
    fclose(file);
  }
  if (dir) closedir(dir);
  return count;
}

Test(netmon_iperf, measures_loopback_again_and_again) {
  weir_helper *server, *client;
  cr_assert_eq(weir_helper_start(&server), WEIR_OK);
  cr_assert_eq(weir_helper_start(&client), WEIR_OK);
  const int port = free_port();
  cr_assert_eq(weir_iperf_serve(server, "127.0.0.1", port), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_iperf_serve(server, "127.0.0.1", free_port()), WEIR_E_STATE);
  for (int i = 0; i < 5; i++) {
    double rate = 0;
    cr_assert_eq(weir_iperf_measure(client, "127.0.0.1", port, 4000000, 20, &rate), WEIR_OK,
                 "%d: %s", i, weir_last_error());
    cr_assert(rate > 1e6 && rate < 1e11, "%g bytes/s",
              rate); /* loopback: between 8 Mbit/s and 800 Gbit/s */
  }
  /* Closed to everybody, and open again when it is asked to. */
  double rate = 0;
  cr_assert_eq(weir_iperf_close(server), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_iperf_measure(client, "127.0.0.1", port, 100000, 0.3, &rate), WEIR_E_TIMEOUT);
  cr_assert_eq(weir_iperf_close(server), WEIR_OK, "nothing to close");
  cr_assert_eq(weir_iperf_serve(server, "127.0.0.1", port), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_iperf_measure(client, "127.0.0.1", port, 100000, 20, &rate), WEIR_OK, "%s",
               weir_last_error());
  weir_helper_free(client);
  weir_helper_free(server);
}

/* One helper serves and measures: what a worker does. */
Test(netmon_iperf, serves_itself) {
  weir_helper *helper;
  cr_assert_eq(weir_helper_start(&helper), WEIR_OK);
  const int port = free_port();
  double rate = 0;
  cr_assert_eq(weir_iperf_serve(helper, "127.0.0.1", port), WEIR_OK);
  cr_assert_eq(weir_iperf_measure(helper, "127.0.0.1", port, 300000, 20, &rate), WEIR_OK, "%s",
               weir_last_error());
  cr_assert(rate > 1e6);
  weir_helper_free(helper);
}

Test(netmon_iperf, times_out_when_nobody_serves) {
  weir_helper *helper;
  cr_assert_eq(weir_helper_start(&helper), WEIR_OK);
  double rate = -1;
  const double start = weir_now_s();
  cr_assert_eq(weir_iperf_measure(helper, "127.0.0.1", free_port(), 100000, 0.5, &rate),
               WEIR_E_TIMEOUT);
  cr_assert(strstr(weir_last_error(), "127.0.0.1"), "%s", weir_last_error());
  cr_assert_eq(rate, -1);
  cr_assert_lt(weir_now_s() - start, 20);
  weir_helper_free(helper);
}

/* Somebody accepts and says nothing. */
Test(netmon_iperf, times_out_when_the_server_is_mute) {
  weir_helper *helper;
  cr_assert_eq(weir_helper_start(&helper), WEIR_OK);
  int port;
  const int mute = listen_any(&port);
  double rate;
  cr_assert_eq(weir_iperf_measure(helper, "127.0.0.1", port, 100000, 0.5, &rate), WEIR_E_TIMEOUT);
  weir_helper_free(helper);
  close(mute);
}

Test(netmon_iperf, leaves_no_process) {
  pid_t first = 0, unused = 0;
  const int before = children_of(getpid(), &unused);
  weir_helper *helper;
  cr_assert_eq(weir_helper_start(&helper), WEIR_OK);
  cr_assert_eq(weir_iperf_serve(helper, "127.0.0.1", free_port()), WEIR_OK);
  cr_assert_eq(children_of(getpid(), &first), before + 1);
  pid_t server = 0;
  cr_assert_eq(children_of(first, &server), 1);
  weir_helper_free(helper);
  cr_assert_eq(children_of(getpid(), &unused), before);
  cr_assert_neq(kill(server, 0), 0, "the server outlived its helper");
  weir_helper_free(NULL);
}

/* The server's process is killed: the helper starts another. */
Test(netmon_iperf, restarts_a_dead_server) {
  weir_helper *helper;
  cr_assert_eq(weir_helper_start(&helper), WEIR_OK);
  const int port = free_port();
  cr_assert_eq(weir_iperf_serve(helper, "127.0.0.1", port), WEIR_OK);
  pid_t process = 0, server = 0;
  cr_assert_eq(children_of(getpid(), &process), 1);
  cr_assert_eq(children_of(process, &server), 1);
  cr_assert_eq(kill(server, SIGKILL), 0);
  double rate = 0;
  cr_assert_eq(weir_iperf_measure(helper, "127.0.0.1", port, 300000, 20, &rate), WEIR_OK, "%s",
               weir_last_error());
  cr_assert(rate > 1e6);
  weir_helper_free(helper);
}

/* The helper itself is killed: an error, no wait without end. */
Test(netmon_iperf, a_dead_helper_is_an_error) {
  weir_helper *helper;
  cr_assert_eq(weir_helper_start(&helper), WEIR_OK);
  pid_t process = 0;
  cr_assert_eq(children_of(getpid(), &process), 1);
  cr_assert_eq(kill(process, SIGKILL), 0);
  double rate;
  cr_assert_eq(weir_iperf_measure(helper, "127.0.0.1", free_port(), 1000, 1, &rate), WEIR_E_IO);
  weir_helper_free(helper);
}

Test(netmon_iperf, refuses_bad_arguments) {
  weir_helper *helper;
  double rate;
  cr_assert_eq(weir_helper_start(&helper), WEIR_OK);
  cr_assert_eq(weir_iperf_measure(helper, "nonsense", 1, 1, 1, &rate), WEIR_E_INVALID);
  cr_assert_eq(weir_iperf_measure(helper, "127.0.0.1", 0, 1, 1, &rate), WEIR_E_INVALID);
  cr_assert_eq(weir_iperf_measure(helper, "127.0.0.1", 70000, 1, 1, &rate), WEIR_E_INVALID);
  cr_assert_eq(weir_iperf_measure(helper, "127.0.0.1", 5201, 0, 1, &rate), WEIR_E_INVALID);
  cr_assert_eq(weir_iperf_measure(helper, "127.0.0.1", 5201, 1, 0, &rate), WEIR_E_INVALID);
  cr_assert_eq(weir_iperf_serve(helper, "192.0.2.77", 5201),
               WEIR_E_IO); /* not an address of ours */
  weir_helper_free(helper);
}

/* Either this kernel shapes, or it says what it lacks; the caller's interfaces stay as
 * they were. */
Test(netmon_shaper, probe_tells) {
  const weir_status status = weir_shaper_probe(true);
  cr_assert(status == WEIR_OK || status == WEIR_E_UNSUPPORTED, "%s", weir_last_error());
  if (status != WEIR_OK) cr_assert(strlen(weir_last_error()) > 10);
  char path[] = "/sys/class/net/weir0";
  cr_assert_neq(access(path, F_OK), 0);
}

Test(netmon_shaper, refuses_bad_arguments) {
  weir_shaper *shaper;
  cr_assert_eq(weir_shaper_open(&shaper, "nosuchlink0"), WEIR_E_INVALID);
  cr_assert_null(shaper);
  cr_assert_eq(weir_shaper_open(&shaper, "a name that is too long"), WEIR_E_INVALID);
  cr_assert_eq(weir_shaper_open(&shaper, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_shaper_open(&shaper, "lo"), WEIR_OK, "%s", weir_last_error());
  const weir_shape bad[] = {{.rate_bytes_s = 0},
                            {.rate_bytes_s = -1},
                            {.rate_bytes_s = NAN},
                            {.rate_bytes_s = 1e6, .delay_s = -0.001},
                            {.rate_bytes_s = 1e6, .delay_s = NAN},
                            {.rate_bytes_s = 1e6, .delay_s = 1e6},
                            {.rate_bytes_s = 1e6, .loss = 1},
                            {.rate_bytes_s = 1e6, .reorder = -0.1},
                            {.rate_bytes_s = 1e6, .delay_s = 4e-7, .reorder = 0.1},
                            {.rate_bytes_s = 1e6, .duplicate = NAN}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    cr_assert_eq(weir_shaper_apply(shaper, &bad[i]), WEIR_E_INVALID, "%zu", i);
  weir_shape shape;
  cr_assert_eq(weir_shaper_read(shaper, &shape), WEIR_E_STATE, "nothing is set on lo");
  weir_shaper_free(shaper);
  weir_shaper_free(NULL);
}

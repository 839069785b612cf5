/* Collectives over TCP between ranks whose links lose, reorder and repeat packets:
 *   lossy_ranks RANKS MBIT_S DELAY_MS LOSS REORDER DUPLICATE     (the last three in percent)
 * Prints what the kernel has in force, a digest of all results, which does not depend on the links,
 * and what TCP had to mend.  Exits with 77 where the kernel has no netem. */
#include <inttypes.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../multi/random_ops.h"
#include "lab/topology.h"

#define RANKS_MAX 16
#define TIMEOUT_S 120.0
#define PORT 7700
#define OPS 60

typedef struct result {
  weir_status status;
  char message[256];
  uint64_t digest;
  unsigned resent, reordered, repeated; /* packets, as the senders learnt of them */
} result;

static const size_t lengths[] = {1, 1000, 40009};

static float value(int rank, size_t n, size_t i) {
  weir_rng rng = weir_rng_of((uint64_t)rank * 1000003 + n * 31 + i);
  return (float)weir_rng_normal(&rng);
}

/* Every all-reduce with every format: the bits of the results. */
static weir_status all_reduces(random_ops *ops, uint64_t *digest) {
  weir_status status = WEIR_OK;
  for (uint32_t a = 0; a < WEIR_ALLREDUCE_COUNT; a++)
    for (int format = 0; format < 2; format++)
      for (size_t l = 0; status == WEIR_OK && l < sizeof lengths / sizeof *lengths; l++) {
        const size_t n = lengths[l];
        for (size_t i = 0; i < n; i++) ops->x[i] = value(ops->rank, n, i);
        weir_comm_step(ops->comm, 9, a * 16 + (uint64_t)format * 8 + l);
        status = weir_allreduces[a].run(ops->comm, ops->x, n, (weir_value_format)format, ops->error,
                                        NULL);
        *digest = weir_hash(*digest, ops->x, n * sizeof *ops->x);
      }
  return status;
}

static void count_mended(weir_transport *t, result *r) {
  for (int peer = 0; peer < t->size; peer++) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    const int fd = peer == t->rank ? -1 : t->ops->descriptor(t, peer);
    memset(&info, 0, sizeof info);
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    r->resent += info.tcpi_total_retrans;
    r->reordered += info.tcpi_reord_seen;
    r->repeated += info.tcpi_dsack_dups;
  }
}

static weir_status run(int rank, int ranks, result *r) {
  static const char secret[] = "of this test";
  char where[64], address[WEIR_ADDRESS_MAX], own[WEIR_ADDRESS_MAX];
  int name[RANKS_MAX];
  weir_transport *t = NULL;
  random_ops ops = {0};
  for (int i = 0; i < ranks; i++) name[i] = i;
  weir_topology_address(0, address);
  weir_topology_address(rank, own);
  (void)snprintf(where, sizeof where, "%s:%d", address, PORT);
  weir_status status =
      weir_transport_tcp_open(&t, &(weir_tcp_options){.rendezvous = where,
                                                      .bind_address = own,
                                                      .secret = secret,
                                                      .secret_bytes = sizeof secret,
                                                      .plain = true,
                                                      .job_id = 1,
                                                      .rank = rank,
                                                      .size = ranks,
                                                      .timeout_s = TIMEOUT_S});
  if (status == WEIR_OK) status = ops_open(&ops, t, name, 5, TIMEOUT_S);
  if (status == WEIR_OK) status = all_reduces(&ops, &r->digest);
  ops.scales = 15;
  for (uint64_t step = 0; status == WEIR_OK && step < OPS; step++) status = ops_next(&ops, step);
  if (t) count_mended(t, r);
  ops_close(&ops);
  if (t) t->ops->destroy(t);
  return status;
}

static void rank_main(const weir_topology *topology, int rank, int ranks, result *r) {
  r->digest = WEIR_HASH_INIT;
  r->status = weir_topology_join(topology, rank);
  if (r->status == WEIR_OK) r->status = run(rank, ranks, r);
  (void)snprintf(r->message, sizeof r->message, "%s", weir_last_error());
}

static int fail(const char *what) {
  fprintf(stderr, "lossy_ranks: %s: %s\n", what, weir_last_error());
  return 1;
}

static int judge(const result *r, int ranks) {
  unsigned resent = 0, reordered = 0, repeated = 0;
  for (int i = 0; i < ranks; i++) {
    if (r[i].status != WEIR_OK || r[i].digest != r[0].digest) {
      fprintf(stderr, "lossy_ranks: rank %d: %s, digest %016" PRIx64 ", rank 0's %016" PRIx64 "\n",
              i, r[i].status == WEIR_OK ? "OK" : r[i].message, r[i].digest, r[0].digest);
      return 1;
    }
    resent += r[i].resent;
    reordered += r[i].reordered;
    repeated += r[i].repeated;
  }
  printf("results %016" PRIx64 "\nmended %u resent, %u reordered, %u repeated\n", r[0].digest,
         resent, reordered, repeated);
  return 0;
}

int main(int argc, char **argv) {
  const int ranks = argc == 7 ? atoi(argv[1]) : 0;
  if (ranks < 2 || ranks > RANKS_MAX) {
    fputs("lossy_ranks: see the head of tests/lab/lossy_ranks.c\n", stderr);
    return 2;
  }
  const weir_shape shape = {.rate_bytes_s = atof(argv[2]) * 1e6 / 8,
                            .delay_s = atof(argv[3]) * 1e-3,
                            .loss = atof(argv[4]) / 100,
                            .reorder = atof(argv[5]) / 100,
                            .duplicate = atof(argv[6]) / 100};
  result *r =
      mmap(NULL, RANKS_MAX * sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (r == MAP_FAILED) return 1;
  weir_topology *topology = NULL;
  weir_status status = weir_topology_enter();
  if (status == WEIR_OK) status = weir_shaper_probe(true);
  if (status == WEIR_OK)
    status =
        weir_topology_create(&topology, ranks, 2 * shape.rate_bytes_s * shape.delay_s + (1 << 20));
  if (status == WEIR_OK) status = weir_topology_shape(topology, &shape); /* and reads it back */
  if (status != WEIR_OK) return status == WEIR_E_UNSUPPORTED ? 77 : fail("links");
  (void)fflush(NULL);
  for (int i = 0; i < ranks; i++) {
    r[i].status = WEIR_E_INTERNAL; /* unless it says otherwise */
    const pid_t pid = fork();
    if (pid < 0) return fail("fork");
    if (pid > 0) continue;
    (void)alarm(1200);
    rank_main(topology, i, ranks, &r[i]);
    _exit(0);
  }
  while (wait(NULL) > 0) continue;
  weir_topology_free(topology);
  return judge(r, ranks);
}

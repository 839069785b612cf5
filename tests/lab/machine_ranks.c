/* Collectives among ranks that share machines, and what cost rows say of them:
 *   machine_ranks MACHINES MBIT_S LATENCY_MS FLOATS [BEGINNING...]
 * MACHINES: a letter a rank, as in "abab".  Machines are network namespaces: ranks of one talk over
 * its loopback, those of two over links of that rate each way and that latency.  Prints a line a
 * row, of those whose names begin so, or of all: its name, the shortest and the median time in ms,
 * and what cost rows predict.  Exits with 77 where links cannot be shaped. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../held.h"
#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/compressed.h"
#include "collectives/cost.h"
#include "collectives/patterns/patterns.h"
#include "lab/topology.h"

#define RANKS_MAX 16
#define TIMEOUT_S 60.0
#define PORT 7750
#define REPEATS 7
#define WATCHDOG_S 600
#define WINDOW 4e6 /* bytes that a connection may have under way */

/* All-reduces among all ranks; of two levels with each of them between machines; all-gathers of one
 * rank's part each; compressed all-reduces. */
enum {
  HIER = WEIR_ALLREDUCE_COUNT,
  GATHER = 2 * WEIR_ALLREDUCE_COUNT,
  COMPRESSED = GATHER + WEIR_ALLGATHER_COUNT,
  ROWS = COMPRESSED + WEIR_COMPRESSED_COUNT
};

typedef struct board { /* shared with the ranks */
  pthread_barrier_t barrier;
  double end_s[ROWS][REPEATS][RANKS_MAX], begin_s[ROWS][REPEATS];
  struct {
    weir_status status;
    char message[256];
  } rank[RANKS_MAX];
} board;

typedef struct group {
  board *board;
  const char *machines;
  char *const *beginnings; /* of rows' names, up to a NULL; none: all rows */
  int host[RANKS_MAX];
  size_t floats;
  int rank, ranks;
  weir_group_shape shape;
  weir_link link;
} group;

static void name_of(int row, char name[64]) {
  const char *const level = row < HIER         ? ""
                            : row < GATHER     ? "hier-"
                            : row < COMPRESSED ? "gather-"
                                               : "compressed-";
  (void)snprintf(name, 64, "%s%s", level,
                 row < HIER         ? weir_allreduces[row].name
                 : row < GATHER     ? weir_allreduces[row - HIER].name
                 : row < COMPRESSED ? weir_allgathers[row - GATHER].name
                                    : weir_compressed[row - COMPRESSED].name);
}

static bool is_wanted(const group *g, int row) {
  char name[64];
  bool wanted = *g->beginnings == NULL;
  name_of(row, name);
  for (char *const *b = g->beginnings; *b != NULL && !wanted; b++)
    wanted = strncmp(name, *b, strlen(*b)) == 0;
  return wanted;
}

static weir_coder coder_of(void) {
  return (weir_coder){.codec = weir_codec_find(WEIR_CODEC_QSGD), .cr = 0.25};
}

static weir_status run_compressed(const group *g, weir_comm *comm, uint32_t row, float *x) {
  FREED float *const error = calloc(g->floats, sizeof *error);
  weir_coder coder = coder_of();
  weir_status status = weir_codec_context_create(&coder.context);
  if (status == WEIR_OK) status = weir_compressed[row].run(comm, &coder, x, g->floats, error, NULL);
  weir_codec_context_free(coder.context);
  return status;
}

static weir_hier_choice rings_of(int row) {
  return (weir_hier_choice){WEIR_REDUCE_SCATTER_RING, (uint32_t)(row - HIER), WEIR_ALLGATHER_RING,
                            false};
}

static size_t block_of(const group *g) { return g->floats / (size_t)g->ranks * sizeof(float); }

static weir_status run_row(const group *g, weir_comm *comm, int row, float *x) {
  size_t bytes[RANKS_MAX] = {0};
  const weir_hier_choice rings = rings_of(row);
  bytes[g->rank] = block_of(g);
  if (row < HIER) return weir_allreduces[row].run(comm, x, g->floats, WEIR_VALUE_FP32, NULL, NULL);
  if (row < GATHER)
    return weir_allreduce_hier(comm, &rings, x, g->floats, WEIR_VALUE_FP32, NULL, NULL);
  if (row < COMPRESSED) return weir_allgathers[row - GATHER].run(comm, x, block_of(g), bytes, NULL);
  return run_compressed(g, comm, (uint32_t)(row - COMPRESSED), x);
}

/* Sums of whole numbers are exact. */
static weir_status check(const group *g, int row, const float *x) {
  const double due = g->ranks * (g->ranks + 1) / 2.0;
  if (row >= GATHER || ((double)x[0] == due && (double)x[g->floats - 1] == due)) return WEIR_OK;
  return weir_fail(WEIR_E_INTERNAL, "row %d sums to %g, not %g", row, (double)x[0], due);
}

/* All rows, and all again; the first round is not counted. */
static weir_status measure(const group *g, weir_comm *comm) {
  weir_status status = WEIR_OK;
  FREED float *x = malloc(g->floats * sizeof *x);
  if (!x) return weir_fail(WEIR_E_NOMEM, "no memory");
  for (int i = -1; i < REPEATS && status == WEIR_OK; i++)
    for (int row = 0; row < ROWS && status == WEIR_OK; row++) {
      if (!is_wanted(g, row)) continue;
      for (size_t k = 0; k < g->floats; k++) x[k] = (float)(g->rank + 1);
      const struct timespec pause = {.tv_nsec = 30000000}; /* token buckets are full again */
      (void)nanosleep(&pause, NULL);
      (void)pthread_barrier_wait(&g->board->barrier);
      if (i >= 0 && g->rank == 0) g->board->begin_s[row][i] = weir_now_s();
      weir_comm_step(comm, 1, (uint64_t)((i + 1) * ROWS + row));
      status = run_row(g, comm, row, x);
      if (i >= 0) g->board->end_s[row][i][g->rank] = weir_now_s();
      if (status == WEIR_OK) status = check(g, row, x);
    }
  return status;
}

static weir_status run(const group *g) {
  static const char secret[] = "of this test";
  char where[64], address[WEIR_ADDRESS_MAX], own[WEIR_ADDRESS_MAX];
  weir_transport *t = NULL;
  weir_comm *comm = NULL;
  weir_topology_address(0, address);
  weir_topology_address(g->host[g->rank], own);
  (void)snprintf(where, sizeof where, "%s:%d", address, PORT);
  weir_status status = weir_transport_tcp_secret(&t, where, own, secret, sizeof secret, 1, g->rank,
                                                 g->ranks, TIMEOUT_S);
  if (status == WEIR_OK) status = weir_comm_create(&comm, t, TIMEOUT_S);
  if (status == WEIR_OK) status = weir_comm_find_hosts(comm, weir_host_identity(NULL));
  const int found = status == WEIR_OK ? weir_comm_hosts(comm) : g->shape.hosts;
  if (found != g->shape.hosts) status = weir_fail(WEIR_E_INTERNAL, "%d machines were found", found);
  if (status == WEIR_OK) status = measure(g, comm);
  weir_comm_free(comm);
  if (t) t->ops->destroy(t);
  return status;
}

static double predicted_ms(const group *g, int row) {
  const weir_hier_choice rings = rings_of(row);
  const weir_coder coder = coder_of();
  const weir_link *link = &g->link;
  const double bytes = sizeof(float) * (double)g->floats,
               whole = (double)weir_coder_bound(&coder, g->floats);
  if (row >= COMPRESSED) {
    const weir_cost_terms t = weir_cost_compressed_between((uint32_t)(row - COMPRESSED), g->shape,
                                                           link, &coder, g->floats, whole);
    return 1e3 * weir_cost_links(&t, link);
  }
  const weir_cost cost =
      row < HIER     ? weir_cost_row(WEIR_KIND_ALLREDUCE, (uint32_t)row, g->shape, link, bytes)
      : row < GATHER ? weir_cost_hier(&rings, g->shape, link, bytes)
                     : weir_cost_row(WEIR_KIND_ALLGATHER, (uint32_t)(row - GATHER), g->shape, link,
                                     (double)block_of(g));
  return 1e3 * weir_cost_predict(&cost, link);
}

static void tell(const group *g) {
  for (int row = 0; row < ROWS; row++) {
    double ms[REPEATS];
    char name[64];
    if (!is_wanted(g, row)) continue;
    name_of(row, name);
    for (int i = 0; i < REPEATS; i++) {
      double end = 0;
      for (int r = 0; r < g->ranks; r++)
        if (g->board->end_s[row][i][r] > end) end = g->board->end_s[row][i][r];
      ms[i] = 1e3 * (end - g->board->begin_s[row][i]);
    }
    weir_sort(ms, REPEATS);
    printf("%s %.2f %.2f %.2f\n", name, ms[0], ms[REPEATS / 2], predicted_ms(g, row));
  }
}

static int fail(const char *what, const char *why) {
  fprintf(stderr, "machine_ranks: %s: %s\n", what, why);
  return 1;
}

static int run_ranks(group *g, const weir_topology *topology) {
  (void)fflush(NULL);
  for (g->rank = 0; g->rank < g->ranks; g->rank++) {
    g->board->rank[g->rank].status = WEIR_E_INTERNAL; /* unless it says otherwise */
    const pid_t pid = fork();
    if (pid < 0) return fail("fork", "no process");
    if (pid > 0) continue;
    (void)alarm(WATCHDOG_S);
    weir_status status = weir_topology_join(topology, g->host[g->rank]);
    if (status == WEIR_OK) status = run(g);
    g->board->rank[g->rank].status = status;
    (void)snprintf(g->board->rank[g->rank].message, sizeof g->board->rank[g->rank].message, "%s",
                   weir_last_error());
    _exit(status == WEIR_OK ? 0 : 1);
  }
  while (wait(NULL) > 0) continue;
  for (int r = 0; r < g->ranks; r++)
    if (g->board->rank[r].status != WEIR_OK) return fail("a rank", g->board->rank[r].message);
  tell(g);
  return 0;
}

static bool read_machines(group *g) {
  uint64_t identity[RANKS_MAX];
  g->ranks = (int)strlen(g->machines);
  if (g->ranks < 2 || g->ranks > RANKS_MAX) return false;
  for (int r = 0; r < g->ranks; r++) identity[r] = (uint64_t)g->machines[r];
  const int hosts = weir_hosts_group(identity, g->ranks, g->host);
  g->shape = weir_shape_of(g->host, g->ranks, hosts);
  return hosts > 1;
}

int main(int argc, char **argv) {
  group g = {.machines = argc >= 5 ? argv[1] : "",
             .beginnings = argc >= 5 ? argv + 5 : argv,
             .floats = argc >= 5 ? strtoul(argv[4], NULL, 10) : 0};
  if (!read_machines(&g) || g.floats < RANKS_MAX)
    return fail("usage", "see the head of tests/lab/machine_ranks.c");
  g.board = mmap(NULL, sizeof *g.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (g.board == MAP_FAILED) return fail("board", "no memory");
  pthread_barrierattr_t shared;
  (void)pthread_barrierattr_init(&shared);
  (void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  (void)pthread_barrier_init(&g.board->barrier, &shared, (unsigned)g.ranks);
  const weir_shape shape = {.rate_bytes_s = atof(argv[2]) * 1e6 / 8,
                            .delay_s = atof(argv[3]) * 1e-3};
  g.link.alpha = shape.delay_s;
  g.link.beta = 1 / (0.957 * shape.rate_bytes_s); /* the share of payload in Ethernet's frames */
  weir_topology *topology = NULL;
  weir_status status = weir_topology_enter();
  if (status == WEIR_OK) status = weir_topology_create(&topology, g.shape.hosts, WINDOW);
  if (status == WEIR_OK) status = weir_topology_shape(topology, &shape); /* and reads it back */
  if (status == WEIR_OK) status = weir_topology_shape_arrivals(topology, shape.rate_bytes_s);
  if (status == WEIR_E_UNSUPPORTED) return 77;
  if (status != WEIR_OK) return fail("links", weir_last_error());
  const int code = run_ranks(&g, topology);
  weir_topology_free(topology);
  return code;
}

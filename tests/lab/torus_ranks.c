/* The torus beside hierarchical all-reduces, where ranks share machines:
 *   torus_ranks MACHINES RANKS_EACH MBIT_S
 * Machines are network namespaces, and ranks go round them: those of one talk over its loopback,
 * those of two over links of that rate.  Prints a line a row: its name, the shortest and the median
 * time in ms, and what the cost rows predict of such links.  Exits with 77 where links cannot be
 * shaped. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../held.h"
#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/cost.h"
#include "lab/topology.h"

#define RANKS_MAX 16
#define TIMEOUT_S 60.0
#define PORT 7750
#define FLOATS ((size_t)131072)
#define REPEATS 7
#define WATCHDOG_S 600

enum { TORUS = WEIR_ALLREDUCE_COUNT, ROWS }; /* before it: hierarchies with that row between */

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
  int machines, each, rank, ranks;
  weir_link link;
} group;

static weir_status run_row(weir_comm *comm, int row, float *x) {
  const weir_hier_choice rings = {WEIR_REDUCE_SCATTER_RING, (uint32_t)row, WEIR_ALLGATHER_RING,
                                  false};
  if (row == TORUS)
    return weir_allreduces[WEIR_ALLREDUCE_TORUS].run(comm, x, FLOATS, WEIR_VALUE_FP32, NULL, NULL);
  return weir_allreduce_hier(comm, &rings, x, FLOATS, WEIR_VALUE_FP32, NULL, NULL);
}

/* All rows, and all again; the first round is not counted. */
static weir_status measure(const group *g, weir_comm *comm) {
  weir_status status = WEIR_OK;
  FREED float *x = malloc(FLOATS * sizeof *x);
  if (!x) return weir_fail(WEIR_E_NOMEM, "no memory");
  for (int i = -1; i < REPEATS && status == WEIR_OK; i++)
    for (int row = 0; row < ROWS && status == WEIR_OK; row++) {
      const double due = g->ranks * (g->ranks + 1) / 2.0;
      for (size_t k = 0; k < FLOATS; k++) x[k] = (float)(g->rank + 1);
      const struct timespec pause = {.tv_nsec = 30000000}; /* token buckets are full again */
      (void)nanosleep(&pause, NULL);
      (void)pthread_barrier_wait(&g->board->barrier);
      if (i >= 0 && g->rank == 0) g->board->begin_s[row][i] = weir_now_s();
      weir_comm_step(comm, 1, (uint64_t)((i + 1) * ROWS + row));
      status = run_row(comm, row, x);
      if (i >= 0) g->board->end_s[row][i][g->rank] = weir_now_s();
      if (status == WEIR_OK && ((double)x[0] != due || (double)x[FLOATS - 1] != due))
        status = weir_fail(WEIR_E_INTERNAL, "row %d sums to %g, not %g", row, (double)x[0], due);
    }
  return status;
}

static weir_status run(const group *g) {
  static const char secret[] = "of this test";
  char where[64], address[WEIR_ADDRESS_MAX], own[WEIR_ADDRESS_MAX];
  weir_transport *t = NULL;
  weir_comm *comm = NULL;
  weir_topology_address(0, address);
  weir_topology_address(g->rank % g->machines, own);
  (void)snprintf(where, sizeof where, "%s:%d", address, PORT);
  weir_status status = weir_transport_tcp_secret(&t, where, own, secret, sizeof secret, 1, g->rank,
                                                 g->ranks, TIMEOUT_S);
  if (status == WEIR_OK) status = weir_comm_create(&comm, t, TIMEOUT_S);
  if (status == WEIR_OK) status = weir_comm_find_hosts(comm, weir_host_identity(NULL));
  if (status == WEIR_OK && weir_comm_hosts(comm) != g->machines)
    status = weir_fail(WEIR_E_INTERNAL, "%d machines were found", weir_comm_hosts(comm));
  if (status == WEIR_OK) status = measure(g, comm);
  weir_comm_free(comm);
  if (t) t->ops->destroy(t);
  return status;
}

static double predicted_ms(const group *g, int row) {
  const weir_group_shape shape = {g->ranks, g->machines, false, 0};
  const weir_hier_choice rings = {WEIR_REDUCE_SCATTER_RING, (uint32_t)row, WEIR_ALLGATHER_RING,
                                  false};
  const weir_link *link = &g->link;
  const double bytes = sizeof(float) * (double)FLOATS;
  const weir_cost cost =
      row == TORUS ? weir_cost_row(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_TORUS, shape, link, bytes)
                   : weir_cost_hier(&rings, shape, link, bytes);
  return 1e3 * weir_cost_predict(&cost, link);
}

static void tell(const group *g) {
  for (int row = 0; row < ROWS; row++) {
    double ms[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
      double end = 0;
      for (int r = 0; r < g->ranks; r++)
        if (g->board->end_s[row][i][r] > end) end = g->board->end_s[row][i][r];
      ms[i] = 1e3 * (end - g->board->begin_s[row][i]);
    }
    weir_sort(ms, REPEATS);
    printf("%s%s %.1f %.1f %.1f\n", row == TORUS ? "" : "hier-",
           row == TORUS ? "torus" : weir_allreduces[row].name, ms[0], ms[REPEATS / 2],
           predicted_ms(g, row));
  }
}

static int fail(const char *what, const char *why) {
  fprintf(stderr, "torus_ranks: %s: %s\n", what, why);
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
    weir_status status = weir_topology_join(topology, g->rank % g->machines);
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

int main(int argc, char **argv) {
  group g = {.machines = argc == 4 ? atoi(argv[1]) : 0, .each = argc == 4 ? atoi(argv[2]) : 0};
  g.ranks = g.machines * g.each;
  if (g.machines < 2 || g.each < 1 || g.ranks > RANKS_MAX)
    return fail("usage", "see the head of tests/lab/torus_ranks.c");
  g.board = mmap(NULL, sizeof *g.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (g.board == MAP_FAILED) return fail("board", "no memory");
  pthread_barrierattr_t shared;
  (void)pthread_barrierattr_init(&shared);
  (void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  (void)pthread_barrier_init(&g.board->barrier, &shared, (unsigned)g.ranks);
  const weir_shape shape = {.rate_bytes_s = atof(argv[3]) * 1e6 / 8};
  g.link.beta = 1 / (0.957 * shape.rate_bytes_s); /* the share of payload in Ethernet's frames */
  weir_topology *topology = NULL;
  weir_status status = weir_topology_enter();
  if (status == WEIR_OK) status = weir_topology_create(&topology, g.machines, 1 << 20);
  if (status == WEIR_OK) status = weir_topology_shape(topology, &shape); /* and reads it back */
  if (status == WEIR_E_UNSUPPORTED) return 77;
  if (status != WEIR_OK) return fail("links", weir_last_error());
  const int code = run_ranks(&g, topology);
  weir_topology_free(topology);
  return code;
}

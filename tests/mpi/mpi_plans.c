/* mpirun -n N mpi_plans PER_MACHINE ELEMENTS [nccl]: every plan over transport shm+mpi or nccl+mpi,
 * on machines of PER_MACHINE neighbouring ranks.  Every step conserves the gradient and gives all
 * ranks the same bits; those of MPI alone, too.  Prints "rank R: ok", or what is wrong and exits
 * with 1. */
#include <weir/launch.h>

#include "../multi/conserved.h"
#include "base/base.h"
#include "mpi_check.h"

enum { TENSORS = 5, PARTS = 4 /* gradient, residual before, after, update */ };
#define TIMEOUT_S 60.0

/* One way of doing all steps. */
typedef struct course {
  weir_transport *transport;
  weir_comm *comm;
  weir_engine *engine;
  float *part[PARTS];
  int step;
} course;

static size_t n, offset[TENSORS + 1];
static int per_machine;
static bool nccl;

static weir_plan plan_of(int step) {
  static const double ratios[] = {0.001, 0.01, 0.1, 0.5, 1};
  return group_plan((size_t)step, ratios[step % 5], (uint64_t)step);
}

static void propose(void *user, weir_directive *directive) {
  const course *c = user;
  if (c->step + 1 >= (int)GROUP_ARMS) return;
  directive->action = WEIR_ACTION_SWITCH;
  directive->plan = plan_of(c->step + 1);
}

static void open_course(course *c, bool machines) {
  size_t rows[TENSORS];
  group_rows(offset, TENSORS, rows);
  CHECK(weir_transport_mpi(&c->transport, 42, launch.rank, launch.world_size, TIMEOUT_S) == WEIR_OK,
        "transport");
  if (machines) join_machines(&c->transport, per_machine, nccl);
  CHECK(weir_comm_create(&c->comm, c->transport, TIMEOUT_S) == WEIR_OK, "communicator");
  CHECK(weir_comm_find_hosts(c->comm, (uint64_t)(launch.rank / per_machine)) == WEIR_OK, "hosts");
  for (int p = 0; p < PARTS; p++) c->part[p] = calloc(n + 1, sizeof(float));
  const weir_engine_config config = {.comm = c->comm,
                                     .layout = {TENSORS, offset},
                                     .rows = rows,
                                     .first_plan = plan_of(0),
                                     .hooks = {.user = c, .propose = propose}};
  CHECK(weir_engine_create(&c->engine, &config) == WEIR_OK, "engine");
}

static void close_course(course *c) {
  weir_engine_free(c->engine);
  for (int p = 0; p < PARTS; p++) free(c->part[p]);
  weir_comm_free(c->comm);
  c->transport->ops->destroy(c->transport);
}

static void fill(float *g, int step) {
  weir_rng rng = weir_rng_of((uint64_t)step * GROUP_MAX + (uint64_t)launch.rank);
  for (size_t i = 0; i < n; i++) {
    const float x = (float)weir_rng_normal(&rng);
    g[i] = x * x * x;
  }
}

static void take_step(course *c, int step) {
  weir_step_info info;
  c->step = step;
  CHECK(weir_engine_step_begin(c->engine, &info) == WEIR_OK, "step %d", step);
  const weir_plan due = plan_of(step);
  CHECK(weir_plan_digest(&info.plan) == weir_plan_digest(&due), "step %d: another plan", step);
  memcpy(c->part[1], weir_engine_residual(c->engine), n * sizeof(float));
  fill(c->part[0], step);
  memcpy(c->part[3], c->part[0], n * sizeof(float));
  for (uint32_t t = 0; t < TENSORS; t++)
    CHECK(weir_engine_submit(c->engine, t, c->part[3] + offset[t]) == WEIR_OK, "step %d", step);
  CHECK(weir_engine_step_end(c->engine, &info) == WEIR_OK, "step %d", step);
  memcpy(c->part[2], weir_engine_residual(c->engine), n * sizeof(float));
}

/* All ranks look at all that all ranks have, which goes over a group of its own. */
static void check(const course *c, weir_comm *comm, int step) {
  const int ranks = launch.world_size;
  const size_t part = n * sizeof(float), own = PARTS * part;
  size_t bytes[GROUP_MAX];
  char text[WEIR_PLAN_TEXT_MAX];
  const weir_plan plan = plan_of(step);
  unsigned char *all = malloc((size_t)ranks * own + 1);
  conserved_step s = {.ranks = ranks, .n = n};
  for (int r = 0; r < ranks; r++) bytes[r] = own;
  for (size_t p = 0; p < PARTS; p++)
    memcpy(all + (size_t)launch.rank * own + p * part, c->part[p], part);
  weir_comm_step(comm, 1, (uint64_t)step);
  CHECK(weir_allgather(comm, all, own, bytes, NULL) == WEIR_OK, "gather");
  weir_plan_format(&plan, text);
  for (int r = 0; r < ranks; r++) {
    const float *x = (const float *)(const void *)(all + (size_t)r * own);
    s.g[r] = x;
    s.before[r] = x + n;
    s.after[r] = x + 2 * n;
    CHECK(memcmp(x + 3 * n, c->part[3], part) == 0, "%s: rank %d has other bits", text, r);
  }
  double in = 0, out = 0;
  s.update = c->part[3];
  const size_t i = conserved_not(&s, &plan, &in, &out);
  CHECK(i == n, "%s, element %zu of %zu: %.9g came in, %.9g went out", text, i, n, in, out);
  free(all);
}

int main(int argc, char **argv) {
  course inside = {0}, alone = {0};
  weir_transport *witness = NULL;
  weir_comm *comm = NULL;
  (void)alarm(500);
  CHECK(argc >= 3 && weir_launch_read(&launch) == WEIR_OK, "launch");
  per_machine = atoi(argv[1]);
  n = (size_t)atoi(argv[2]);
  nccl = argc > 3 && strcmp(argv[3], "nccl") == 0;
  CHECK(per_machine > 0 && n > 9 && launch.world_size <= GROUP_MAX, "usage");
  const size_t ends[TENSORS + 1] = {0, n / 2, n / 2, n / 2 + n / 3, n - 1, n};
  memcpy(offset, ends, sizeof ends);
  CHECK(weir_transport_mpi(&witness, 42, launch.rank, launch.world_size, TIMEOUT_S) == WEIR_OK,
        "transport");
  CHECK(weir_comm_create(&comm, witness, TIMEOUT_S) == WEIR_OK, "communicator");
  open_course(&inside, true);
  open_course(&alone, false);
  for (int step = 0; step < (int)GROUP_ARMS; step++) {
    take_step(&inside, step);
    take_step(&alone, step);
    check(&inside, comm, step);
    for (int p = 0; p < PARTS; p++)
      CHECK(memcmp(inside.part[p], alone.part[p], n * sizeof(float)) == 0,
            "step %d: other bits than over MPI alone in part %d", step, p);
  }
  close_course(&alone);
  close_course(&inside);
  weir_comm_free(comm);
  witness->ops->destroy(witness);
  printf("rank %d: ok\n", launch.rank);
  return 0;
}

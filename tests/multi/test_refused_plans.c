/* Plans that this group of ranks cannot run: said so at once, by all ranks, and nothing
 * is changed. */
#include <criterion/criterion.h>

#include "../planned.h"
#include "group.h"

#define N 40

typedef struct request {
  const char *plan;     /* refused */
  const char *machines; /* a letter a rank; NULL: each has its own */
  const char *why;      /* part of the message */
  bool devices;         /* some rank's gradients are on one */
} request;

/* Rank 0 asks for the plan after the first step. */
static void propose(void *user, weir_directive *directive) {
  directive->action = WEIR_ACTION_SWITCH;
  directive->plan = planned(((const request *)user)->plan);
  directive->plan.id = 1;
}

static bool refused(member *m, weir_status status, const char *when) {
  const request *q = m->group->shared;
  if (status == WEIR_E_UNSUPPORTED && strstr(weir_last_error(), q->why) != NULL) return true;
  group_fail(m->group, "rank %d, %s: status %d, \"%s\"", m->rank, when, status, weir_last_error());
  return false;
}

static void body(member *m) {
  request *q = m->group->shared;
  const size_t offset[2] = {0, N};
  weir_engine_config config = {.comm = m->comm,
                               .layout = {1, offset},
                               .first_plan = planned(q->plan),
                               .devices = q->devices,
                               .hooks = {.user = q, .propose = propose}};
  weir_engine *engine = NULL;
  if (q->machines != NULL &&
      weir_comm_find_hosts(m->comm, (uint64_t)q->machines[m->rank]) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  if (!refused(m, weir_engine_create(&engine, &config), "as the first plan")) return;
  config.first_plan = planned("topk:0.1:ag");
  if (weir_engine_create(&engine, &config) != WEIR_OK) {
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
    return;
  }
  float g[N] = {0};
  g[m->rank] = 1;
  weir_plan plan;
  weir_step_info info;
  if (weir_engine_step_begin(engine, NULL) != WEIR_OK ||
      weir_engine_submit(engine, 0, g) != WEIR_OK || weir_engine_step_end(engine, &info) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  const uint64_t before = weir_engine_residual_digest(engine);
  (void)refused(m, weir_engine_step_begin(engine, NULL), "in its turn");
  weir_engine_plan(engine, &plan);
  if (plan.codec != WEIR_CODEC_TOPK || weir_engine_residual_digest(engine) != before)
    group_fail(m->group, "rank %d: a plan that was refused has changed something", m->rank);
  weir_engine_free(engine);
}

static void check(int ranks, request q) { group_well(ranks, body, &q, q.plan); }

/* Threads have no library with an all-reduce below them. */
Test(refused_plans, native_without_a_library) {
  check(3,
        (request){"none:1:native", NULL,
                  "collective native needs transport shm, mpi, shm+mpi, nccl or shm+nccl", false});
  check(1,
        (request){"powersgd:1:native", NULL,
                  "collective native needs transport shm, mpi, shm+mpi, nccl or shm+nccl", false});
}

Test(refused_plans, nccls_algorithms_elsewhere) {
  static const char why[] =
      "collective native-ring needs transport nccl, with "
      "NCCL_TUNER_PLUGIN=.../libweir-nccl-tuner.so and no NCCL_ALGO in every rank's environment: "
      "inproc cannot be told by which algorithm to sum";
  check(3, (request){"none:1:native-ring", NULL, why, false});
  check(2, (request){"randomk:0.1:art-native-tree", NULL,
                     "collective native-tree needs transport nccl", false});
}

Test(refused_plans, hitopk_on_one_machine) {
  check(3, (request){"topk:0.1:hitopk", "aaa", "all 3 ranks are on one", false});
}

/* Said by all ranks, of which these have none. */
Test(refused_plans, what_devices_have_no_operations_for) {
  check(3, (request){"nonzero:0.25:ag", NULL, "codec nonzero does not run on a device", true});
  check(3, (request){"bilateral:2:dense-ring", NULL, "codec bilateral does not run on a device",
                     true});
}

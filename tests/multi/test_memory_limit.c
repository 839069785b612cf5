/* weir_options.memory_limit: a plan that would take more is refused at the start, by all ranks and
 * with both figures. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "../planned.h"
#include "controller/decide.h"
#include "engine/memory.h"
#include "group.h"
#include "session_ranks.h"

#define RANKS 2
enum { N = 100000 };
#define GRADIENT (4.0 * N)

typedef struct starter {
  const char *policy;
  uint64_t limit;
  int rank, group, threads; /* of codecs, of rank 1 */
  weir_status status;
  char said[256];
} starter;

static void *start_rank(void *argument) {
  starter *s = argument;
  weir_session *session = NULL;
  char name[64];
  (void)snprintf(name, sizeof name, "limit-%d-%d", (int)getpid(), s->group);
  weir_options options = session_options(s->rank, RANKS, name, s->policy);
  options.active_probes = false;
  options.memory_limit = s->limit;
  if (s->rank == 1 && s->threads > 0) options.codec_threads = s->threads;
  s->status = session_open(&session, &options, N);
  if (s->status != WEIR_OK) (void)snprintf(s->said, sizeof s->said, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

static void start_threaded(const char *policy, const double limit[RANKS], int threads,
                           starter out[RANKS]) {
  static int groups;
  groups++;
  for (int r = 0; r < RANKS; r++)
    out[r] = (starter){policy, (uint64_t)limit[r], .rank = r, .group = groups, .threads = threads};
  session_threads(out, sizeof *out, RANKS, start_rank);
}

static void start(const char *policy, const double limit[RANKS], starter out[RANKS]) {
  start_threaded(policy, limit, 0, out);
}

/* Rank 1 names no limit, which is none at all. */
static void expect_start(const char *policy, double limit) {
  starter s[RANKS];
  start(policy, (double[]){limit, 0}, s);
  for (int r = 0; r < RANKS; r++)
    cr_assert_eq(s[r].status, WEIR_OK, "%s, rank %d: %s", policy, r, s[r].said);
}

static void expect_refusals(const char *policy, const double limit[RANKS], const char *a,
                            const char *b) {
  starter s[RANKS];
  start(policy, limit, s);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(s[r].status, WEIR_E_UNSUPPORTED, "%s, rank %d: %s", policy, r, s[r].said);
    cr_assert(strstr(s[r].said, a) != NULL && strstr(s[r].said, b) != NULL, "%s, rank %d: %s",
              policy, r, s[r].said);
  }
}

static void expect_refusal(const char *policy, double limit, const char *a, const char *b) {
  expect_refusals(policy, (double[]){limit, 0}, a, b);
}

/* topk of a tenth, by hand: residual, e and the sum, a list of indices and values, two messages of
 * 16 bytes and 8 an element, up to a multiple of 16 and 32 more, and a bit an element. */
Test(memory_limit, refuses_a_fixed_plan_that_takes_more) {
  const double bytes = 3 * GRADIENT + 8 * 10000 + 2 * (80016 + 32) + N / 8.0;
  expect_start("fixed:topk:0.1:ag", bytes);
  expect_refusal("fixed:topk:0.1:ag", bytes - 1, "takes 1452596 bytes", "memory_limit is 1452595");
}

/* A schedule that comes to ask what elements usually are follows it from the first step on, in two
 * bytes an element, under every stage. */
Test(memory_limit, knows_what_is_followed_for_a_later_stage) {
  static const char policy[] = "schedule:topk:0.1:ag;step=5:whitened:0.125:ag";
  const double bytes = 3 * GRADIENT + 8 * 10000 + 2 * (80016 + 32) + N / 8.0 + 2.0 * N;
  expect_start(policy, bytes);
  expect_refusal(policy, bytes - 1, "takes 1652596 bytes", "leaves 1652595");
}

/* A dense sum takes the sum, and the share of it that comes in around a ring; of bf16 what rounding
 * loses instead, which is e and then the residual.  Policy weir begins with that. */
Test(memory_limit, knows_what_sums_take) {
  expect_start("fixed:none:1:dense-ring", 1.5 * GRADIENT);
  expect_refusal("fixed:none:1:dense-ring", 1.5 * GRADIENT - 1, "takes 600000 bytes",
                 "memory_limit is 599999");
  expect_start("weir", 3 * GRADIENT);
  expect_refusal("weir", 3 * GRADIENT - 1, "takes 1200000 bytes", "memory_limit is 1199999");
}

Test(memory_limit, refuses_a_policy_that_tries_what_takes_more) {
  expect_start("paper", 6 * GRADIENT);
  expect_refusal("paper", 4 * GRADIENT, "policy paper runs plan mstopk:0.1:ag", "leaves 1200000");
}

Test(memory_limit, the_smallest_of_a_group_counts) {
  const double bytes = 1.5 * GRADIENT;
  for (int r = 0; r < RANKS; r++) {
    double limit[RANKS] = {2 * bytes, 2 * bytes};
    limit[r] = bytes - 1;
    expect_refusals("fixed:none:1:dense-ring", limit, "takes 600000 bytes",
                    "memory_limit is 599999");
  }
}

/* What several threads of a rank's codecs take counts on all ranks, so that all say the same. */
Test(memory_limit, ranks_differ_in_threads) {
  const weir_memory_form form = {.ranks = RANKS, .hosts = RANKS};
  const weir_plan plan = planned("topk:0.25:ag");
  const double limit[RANKS] = {weir_plan_memory(&plan, &form, N, 25000), 0};
  starter s[RANKS];
  start_threaded("fixed:topk:0.25:ag", limit, 2, s);
  for (int r = 0; r < RANKS; r++)
    cr_assert_eq(s[r].status, WEIR_E_UNSUPPORTED, "rank %d: %s", r, s[r].said);
}

/* --- machines that differ --------------------------------------------------------------------- */

typedef struct lopsided {
  const char *plan;
  double limit;
  unsigned threads; /* of codecs */
  weir_status status[4];
  bool fits; /* by what a decision knows of the group */
} lopsided;

/* Three ranks are on one machine, the fourth is on another. */
static void lopsided_rank(member *m) {
  lopsided *l = m->group->shared;
  const size_t offset[2] = {0, N};
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {1, offset},
                                     .first_plan = planned(l->plan),
                                     .codec_threads = l->threads,
                                     .memory_limit = l->limit};
  weir_engine *engine = NULL;
  if (weir_comm_find_hosts(m->comm, m->rank < 3 ? 1 : 2) != WEIR_OK)
    group_fail(m->group, "%s", weir_last_error());
  const weir_group_shape shape = weir_comm_shape(m->comm);
  const weir_decision_input in = {.workers = (uint64_t)shape.ranks,
                                  .hosts = (uint64_t)shape.hosts,
                                  .largest = (uint64_t)shape.largest,
                                  .elements = N,
                                  .threads = l->threads > 1,
                                  .memory_limit = l->limit};
  if (m->rank == 0) l->fits = weir_plan_fits(&in, &config.first_plan);
  l->status[m->rank] = weir_engine_create(&engine, &config);
  weir_engine_free(engine);
}

static void expect_threaded(const char *plan, unsigned threads, double limit, weir_status status) {
  lopsided l = {.plan = plan, .threads = threads, .limit = limit};
  group_well(4, lopsided_rank, &l, plan);
  for (int r = 0; r < 4; r++)
    cr_assert_eq(l.status[r], status, "%s in %.0f bytes, rank %d: %s", plan, limit, r,
                 weir_status_name(l.status[r]));
  cr_assert_eq(l.fits, status == WEIR_OK, "a decision: %s in %.0f bytes", plan, limit);
}

static void expect_lopsided(const char *plan, double limit, weir_status status) {
  expect_threaded(plan, 1, limit, status);
}

/* The sum, and on one rank of each machine all of what comes from inside of it; and of what comes
 * from the other machine half around a ring, all up a tree. */
Test(memory_limit, knows_what_sums_take_where_machines_differ) {
  expect_lopsided("none:1:dense-hier-ring", 2.5 * GRADIENT, WEIR_OK);
  expect_lopsided("none:1:dense-hier-ring", 2.5 * GRADIENT - 1, WEIR_E_UNSUPPORTED);
  expect_lopsided("none:1:dense-hier-tree", 3 * GRADIENT, WEIR_OK);
  expect_lopsided("none:1:dense-hier-tree", 3 * GRADIENT - 1, WEIR_E_UNSUPPORTED);
  expect_lopsided("none:1:dense-ring", 1.25 * GRADIENT, WEIR_OK);
}

/* Messages take the place of what they are made of. */
Test(memory_limit, knows_that_messages_are_summed_among_all_where_machines_differ) {
  expect_lopsided("qsgd:0.125:hier-sra", 3 * GRADIENT, WEIR_OK);
  expect_lopsided("qsgd:0.125:hier-sra", 3 * GRADIENT - 1, WEIR_E_UNSUPPORTED);
}

/* What is selected on two levels elsewhere is gathered among all: four messages as above. */
Test(memory_limit, knows_what_is_gathered_where_machines_differ) {
  const double bytes = 3 * GRADIENT + 8 * 10000 + 4 * (80016 + 32) + N / 8.0;
  expect_lopsided("topk:0.1:hitopk", bytes, WEIR_OK);
  expect_lopsided("topk:0.1:hitopk", bytes - 1, WEIR_E_UNSUPPORTED);
}

/* Each thread lists candidates of its own, and then they are put together: of a quarter of a
 * gradient the list has no room in the sum's place any more. */
Test(memory_limit, knows_that_lists_of_several_threads_take_more) {
  const weir_memory_form form = {.ranks = 4, .hosts = 4};
  const weir_plan plan = planned("topk:0.25:ag");
  const double bytes = weir_plan_memory(&plan, &form, N, 25000);
  expect_threaded("topk:0.25:ag", 1, bytes, WEIR_OK);
  expect_threaded("topk:0.25:ag", 2, bytes, WEIR_E_UNSUPPORTED);
  expect_threaded("topk:0.25:ag", 2, bytes + 2 * GRADIENT, WEIR_OK);
}

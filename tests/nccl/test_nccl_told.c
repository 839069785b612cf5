/* NCCL's ring and tree as plans name them: the plugin switches a group's communicator at the same
 * all-reduce on all ranks; groups that cannot be switched, and what goes wrong. */
#include <weir/inside.h>

#include "../multi/script.h"
#include "steps.h"

/* By what this rank's all-reduces ran, from one on. */
static weir_status check_ran(const rank *r, size_t from, const int *due, size_t count) {
  if (*r->mock.sums != from + count)
    return weir_fail(WEIR_E_INTERNAL, "%zu all-reduces of NCCL's, not %zu", *r->mock.sums,
                     from + count);
  for (size_t i = 0; i < count; i++)
    if (r->mock.ran[from + i] != due[i])
      return weir_fail(WEIR_E_INTERNAL, "all-reduce %zu ran by algorithm %d, not %d", from + i,
                       r->mock.ran[from + i], due[i]);
  return WEIR_OK;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* A step a line, and by what its all-reduces are to run, which differ in number. */
static const struct {
  const char *plan;
  int sums, algorithm;
} course[] = {{"none:1:native-ring", 1, MOCK_RING},
              {"none:1:native-ring", 1, MOCK_RING},
              {"none:1:native-tree", 1, MOCK_TREE},
              {"powersgd:2:native-tree", 2, MOCK_TREE},
              {"powersgd:2:native-ring", 2, MOCK_RING},
              {"none:1:native", 1, MOCK_OWN},
              {"none:1:dense-ring", 0, 0},
              {"none:1:native", 1, MOCK_OWN},
              {"none:1:native-tree", 1, MOCK_TREE},
              {"topk:0.1:ag", 0, 0},
              {"star:0.1:art-native-ring", 1, MOCK_RING},
              {"star:0.1:art-native-tree", 1, MOCK_TREE},
              {"star:0.1:art-native-tree:auto-fp32", 1, MOCK_TREE},
              {"randomk:0.1:art-native-ring", 1, MOCK_RING},
              {"none:1:native", 1, MOCK_OWN}};
enum { STEPS = sizeof course / sizeof *course };

/* A matrix and a vector. */
static const size_t offset[] = {0, 30000, N}, rows[] = {150, 0};

/* Rank 0 directs the next plan, as a policy does, and all ranks follow when the next step
 * begins. */
static weir_status course_body(rank *r) {
  script_step steps[STEPS] = {0};
  script s = {steps, STEPS, 0};
  OWNED weir_comm *comm = NULL;
  weir_engine *engine = NULL;
  weir_status status = weir_comm_create(&comm, r->t, TIMEOUT_S);
  for (int k = 0; k < STEPS && status == WEIR_OK; k++) {
    status = weir_plan_parse(course[k].plan, &steps[k].plan);
    steps[k].plan.id = (uint64_t)k;
    steps[k].action = WEIR_ACTION_SWITCH;
  }
  const weir_engine_config config = {.comm = comm,
                                     .layout = {2, offset},
                                     .rows = rows,
                                     .first_plan = steps[0].plan,
                                     .hooks = script_hooks(&s)};
  if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
  for (; s.at < STEPS && status == WEIR_OK; s.at++) {
    const int due[] = {course[s.at].algorithm, course[s.at].algorithm};
    const size_t before = *r->mock.sums;
    status = one_step(r, engine, 2, offset, s.at, course[s.at].plan);
    if (status == WEIR_OK) status = check_ran(r, before, due, (size_t)course[s.at].sums);
  }
  weir_engine_free(engine);
  return status;
}

Test(nccl_told, plans_switch_ring_and_tree_on_all_ranks) {
  load();
  for (int size = 2; size <= 4; size++) run_well(size, course_body);
}

/* --- by hand ---------------------------------------------------------------------------------- */

static weir_status sum_told(rank *r, weir_told_algorithm how, uint64_t plan) {
  FREED float *x = malloc(N * sizeof *x);
  const weir_tag tag = {.plan = plan, .step = 3};
  for (size_t i = 0; i < N; i++) x[i] = input_at(r->rank, i);
  weir_status status =
      r->t->ops->allreduce_told(r->t, how, &tag, x, N, NULL, 0, weir_now_s() + TIMEOUT_S);
  if (status == WEIR_OK) status = check_sum(r, x, "told");
  return status;
}

/* A plan of the other algorithm has another digest: no sum begins, and nobody waits. */
static weir_status other_plan_body(rank *r) {
  return r->rank == 1 ? sum_told(r, WEIR_TOLD_TREE, 6) : sum_told(r, WEIR_TOLD_RING, 5);
}

Test(nccl_told, another_plan_is_seen_before_nccl_sums) {
  load();
  crowd g = {.before = NULL};
  give_tuners(&g);
  run(&g, 3, other_plan_body);
  bool told = false;
  for (int r = 0; r < 3; r++) {
    cr_assert(g.ranks[r].status == WEIR_E_MISMATCH || g.ranks[r].status == WEIR_E_PEER,
              "rank %d: %d, %s", r, g.ranks[r].status, g.ranks[r].why);
    told |= g.ranks[r].status == WEIR_E_MISMATCH;
  }
  cr_assert(told);
}

/* Its last plan was a ring; survivors form a communicator of their own, which is told anew. */
static weir_status survivors_body(rank *r) {
  static const int first[] = {MOCK_RING, MOCK_RING}, then[] = {MOCK_RING, MOCK_TREE, MOCK_TREE};
  weir_status status = sum_told(r, WEIR_TOLD_RING, 5);
  if (status == WEIR_OK) status = sum_told(r, WEIR_TOLD_RING, 6);
  if (status == WEIR_OK) status = check_ran(r, 0, first, 2);
  if (status != WEIR_OK) return status;
  if (r->rank == 2) { /* as a process that ends */
    r->t->ops->destroy(r->t);
    r->t = NULL;
    return WEIR_OK;
  }
  if (sum_told(r, WEIR_TOLD_TREE, 7) == WEIR_OK)
    return weir_fail(WEIR_E_INTERNAL, "the loss of rank 2 was not seen");
  weir_transport *rest = NULL;
  int old_rank[MOST];
  status = r->t->ops->shrink(r->t, TIMEOUT_S, &rest, old_rank);
  if (status != WEIR_OK) return status;
  r->t->ops->destroy(r->t);
  r->t = rest;
  r->size = rest->size;
  const size_t before = *r->mock.sums;
  status = sum_told(r, WEIR_TOLD_RING, 8);
  if (status == WEIR_OK) status = sum_told(r, WEIR_TOLD_TREE, 9);
  if (status == WEIR_OK) status = sum_told(r, WEIR_TOLD_TREE, 10);
  return status == WEIR_OK ? check_ran(r, before, then, 3) : status;
}

Test(nccl_told, survivors_are_told_anew) {
  load();
  const size_t before = mock.living();
  crowd g = {.before = NULL};
  give_tuners(&g);
  run(&g, 3, survivors_body);
  all_well(&g);
  cr_assert_eq(mock.living(), before);
}

/* The last of a group's ranks has no NCCL below it, and goes on under the plan. */
static weir_status alone_body(rank *r) {
  const float asked[2] = {3, -5};
  float x[2] = {3, -5};
  weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, r->t, TIMEOUT_S);
  if (status == WEIR_OK && weir_comm_told(comm))
    status = weir_fail(WEIR_E_INTERNAL, "one rank has an NCCL to tell");
  if (status == WEIR_OK)
    status =
        weir_allreduces[WEIR_ALLREDUCE_NATIVE_TREE].run(comm, x, 2, WEIR_VALUE_FP32, NULL, NULL);
  weir_comm_free(comm);
  if (status == WEIR_OK && memcmp(x, asked, sizeof x) != 0)
    status = weir_fail(WEIR_E_INTERNAL, "a sum of one rank is another");
  return status;
}

Test(nccl_told, a_group_of_one_sums_nothing) {
  load();
  run_well(1, alone_body);
}

/* --- groups that cannot be switched ----------------------------------------------------------- */

/* Is a plan refused at once, by all ranks, while NCCL's own choice goes on? */
static weir_status refused_body(rank *r) {
  const size_t few[2] = {0, 64};
  float x[64] = {0};
  const weir_tag tag = {.plan = 1};
  weir_comm *comm = NULL;
  weir_engine *engine = NULL;
  weir_status status = weir_comm_create(&comm, r->t, TIMEOUT_S);
  weir_engine_config config = {.comm = comm, .layout = {1, few}};
  if (status == WEIR_OK) status = weir_plan_parse("none:1:native-tree", &config.first_plan);
  if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
  weir_engine_free(engine);
  weir_comm_free(comm);
  char why[sizeof r->why];
  (void)snprintf(why, sizeof why, "%s", weir_last_error());
  if (r->t->ops->allreduce(r->t, &tag, x, 64, NULL, 0, weir_now_s() + TIMEOUT_S) != WEIR_OK ||
      r->mock.ran[0] != MOCK_OWN)
    return weir_fail(WEIR_E_INTERNAL, "NCCL's own choice does not go on: %s", weir_last_error());
  return weir_fail(status, "%s", why);
}

static void check_refused(crowd *g, int who, const char *why) {
  run(g, 3, refused_body);
  for (int r = 0; r < 3; r++) {
    cr_assert_eq(g->ranks[r].status, WEIR_E_UNSUPPORTED, "rank %d: %d, %s", r, g->ranks[r].status,
                 g->ranks[r].why);
    cr_assert(strstr(g->ranks[r].why,
                     "NCCL's ring and tree need "
                     "NCCL_TUNER_PLUGIN=.../libweir-nccl-tuner.so and no "
                     "NCCL_ALGO in every rank's environment (rank ") != NULL,
              "rank %d: %s", r, g->ranks[r].why);
  }
  cr_assert(strstr(g->ranks[who].why, why) != NULL, "rank %d: %s, not %s", who, g->ranks[who].why,
            why);
}

Test(nccl_told, a_group_without_the_plugin) {
  load();
  crowd g = {.before = NULL};
  check_refused(&g, 0, "(rank 0: NCCL_TUNER_PLUGIN is not set)");
}

Test(nccl_told, one_rank_without_the_plugin) {
  load();
  crowd g = {.before = NULL};
  give_tuners(&g);
  g.tuner[1] = NULL;
  check_refused(&g, 1, "(rank 1: NCCL_TUNER_PLUGIN is not set)");
  for (int r = 0; r < 3; r += 2)
    cr_assert(strstr(g.ranks[r].why, "(rank 1: its NCCL cannot be told; it says why)") != NULL,
              "%s", g.ranks[r].why);
}

Test(nccl_told, a_plugin_that_is_not_there_or_another) {
  load();
  crowd g = {.before = NULL};
  give_tuners(&g);
  g.tuner[2] = "/nowhere/libweir-nccl-tuner.so";
  check_refused(&g, 2, "NCCL has not loaded the library that NCCL_TUNER_PLUGIN names");
  g.tuner[2] = WEIR_MOCK_NCCL;
  check_refused(&g, 2, "the library that NCCL_TUNER_PLUGIN names is not Weir's tuner");
}

Test(nccl_told, an_algorithm_for_all_in_the_environment) {
  load();
  crowd g = {.before = NULL};
  give_tuners(&g);
  cr_assert_eq(setenv("NCCL_ALGO", "Tree", 1), 0);
  check_refused(&g, 1, "(rank 1: NCCL_ALGO is set, which no tuner can change)");
  (void)unsetenv("NCCL_ALGO");
}

/* Ranks that share a plugin form their communicators in the same process at once. */
Test(nccl_told, several_communicators_at_once) {
  load();
  crowd g = {.before = NULL};
  give_tuners(&g);
  for (int r = 1; r < 3; r++) g.tuner[r] = g.tuner[0];
  run(&g, 3, refused_body);
  size_t say = 0;
  for (int r = 0; r < 3; r++) {
    cr_assert_eq(g.ranks[r].status, WEIR_E_UNSUPPORTED, "rank %d: %s", r, g.ranks[r].why);
    say += strstr(g.ranks[r].why,
                  "this process formed several communicators at once, and which is the group's is "
                  "not known") != NULL;
  }
  cr_assert_geq(say, 2); /* the last one to come sees no other */
}

/* --- what NCCL does not offer ----------------------------------------------------------------- */

static void no_tree(int r, const mock_controls *mine) {
  (void)r;
  *mine->lacks = MOCK_TREE;
}

static weir_status untaken_body(rank *r) {
  static const int due[] = {MOCK_OWN, MOCK_RING, MOCK_OWN};
  weir_status status = sum_told(r, WEIR_TOLD_TREE, 5);
  if (status == WEIR_OK) status = sum_told(r, WEIR_TOLD_RING, 6);
  if (status == WEIR_OK) status = sum_told(r, WEIR_TOLD_TREE, 7);
  return status == WEIR_OK ? check_ran(r, 0, due, 3) : status;
}

static void count_lines(void *user, const weir_log_line *line) {
  const char said[] = "NCCL does not offer its tree here, and chooses for itself";
  *(int *)user += line->level == WEIR_LOG_WARN && strcmp(line->text, said) == 0;
}

/* It sums all the same, and every rank says so once. */
Test(nccl_told, an_algorithm_that_is_not_on_offer_is_said) {
  int lines = 0;
  crowd g = {.before = no_tree};
  load();
  give_tuners(&g);
  weir_log_set(count_lines, &lines);
  run(&g, 3, untaken_body);
  weir_log_set(NULL, NULL);
  all_well(&g);
  cr_assert_eq(lines, 3, "%d lines", lines);
}

/* --- answers ---------------------------------------------------------------------------------- */

static mock_answers *answers(void) {
  mock_answers *(*of_thread)(void) = NULL;
  *(void **)&of_thread = dlsym(dlopen(WEIR_MOCK_TUNER, RTLD_NOW), "mock_answers_of_thread");
  cr_assert(of_thread != NULL);
  return of_thread();
}

static weir_status tell_body(rank *r) { return sum_told(r, WEIR_TOLD_TREE, 5); }

static void rank_1_is_busy(int r, const mock_controls *mine) {
  (void)mine;
  if (r == 1) answers()->answer = WEIR_NCCL_BUSY;
}
static void rank_1_is_late(int r, const mock_controls *mine) {
  (void)mine;
  if (r == 1) answers()->answer = WEIR_NCCL_LATE;
}
static void rank_1_does_not_know(int r, const mock_controls *mine) {
  (void)mine;
  if (r == 1) answers()->answer = WEIR_NCCL_INVALID;
}
static void rank_1_is_not_asked(int r, const mock_controls *mine) {
  (void)mine;
  if (r == 1) answers()->asks = 0;
}
static void rank_1_is_not_told(int r, const mock_controls *mine) {
  (void)mine;
  if (r == 1) answers()->come = 0;
}

static void use_mock_tuner(crowd *g) {
  for (int r = 0; r < MOST; r++) g->tuner[r] = WEIR_MOCK_TUNER;
}

/* What the tuner answers is an error of that rank, and ends the group: the others could only
 * wait. */
static void check_answer(void (*before)(int, const mock_controls *), weir_status status,
                         const char *why) {
  crowd g = {.before = before};
  load();
  use_mock_tuner(&g);
  run(&g, 3, tell_body);
  cr_assert_eq(g.ranks[1].status, status, "%d: %s", g.ranks[1].status, g.ranks[1].why);
  cr_assert(strstr(g.ranks[1].why, why) != NULL, "%s", g.ranks[1].why);
  for (int r = 0; r < 3; r += 2)
    cr_assert(g.ranks[r].status == WEIR_OK || strstr(g.ranks[r].why, "rank 1 is gone") != NULL,
              "rank %d: %s", r, g.ranks[r].why);
}

Test(nccl_told, a_rule_that_is_not_in_force_yet) {
  check_answer(rank_1_is_busy, WEIR_E_PEER,
               "NCCL's tuner has a rule that is not in force yet before all-reduce 0: something "
               "else than Weir switches this group's communicator");
}
Test(nccl_told, a_rule_that_comes_too_late) {
  check_answer(rank_1_is_late, WEIR_E_PEER,
               "NCCL has asked for all-reduce 0 before its algorithm was told: something else than "
               "Weir sums over this group's communicator");
}
Test(nccl_told, a_communicator_that_is_not_known) {
  check_answer(rank_1_does_not_know, WEIR_E_INTERNAL,
               "NCCL's tuner does not know this group's communicator");
}
Test(nccl_told, a_tuner_that_is_not_asked) {
  check_answer(rank_1_is_not_asked, WEIR_E_PEER,
               "NCCL has summed without asking its tuner by which algorithm");
}
Test(nccl_told, a_communicator_of_which_the_tuner_hears_nothing) {
  crowd g = {.before = rank_1_is_not_told};
  load();
  use_mock_tuner(&g);
  check_refused(&g, 1, "NCCL has not asked the tuner about this communicator");
}

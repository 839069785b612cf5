/* The tuner plugin against a mock of NCCL: it is loaded as NCCL loads it, and what it makes of a
 * cost table is judged as NCCL judges it (the smallest entry that is not negative). */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <weir/nccl_tuner.h>

#include "nccl/interface.h"

/* --- the mock --------------------------------------------------------------------------------- */

static struct plugin {
  void *handle;
  const nccl_tuner_v2 *v2;
  const nccl_tuner_v3 *v3;
  const nccl_tuner_v4 *v4;
  const nccl_tuner_v5 *v5;
  size_t (*communicators)(void);
  uint64_t (*asked)(size_t);
  uint64_t (*not_offered)(size_t);
  weir_nccl_answer (*change)(size_t, const weir_nccl_rule *);
  weir_nccl_answer (*begin_with)(const weir_nccl_rule *);
} nccl;

static void *symbol(const char *name) {
  void *found = dlsym(nccl.handle, name);
  cr_assert(found != NULL, "%s", dlerror());
  return found;
}

static void load(void) {
  nccl.handle = dlopen(WEIR_NCCL_TUNER_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  cr_assert(nccl.handle != NULL, "%s", dlerror());
  nccl.v2 = symbol("ncclTunerPlugin_v2");
  nccl.v3 = symbol("ncclTunerPlugin_v3");
  nccl.v4 = symbol("ncclTunerPlugin_v4");
  nccl.v5 = symbol("ncclTunerPlugin_v5");
  *(void **)&nccl.communicators = symbol("weir_nccl_tuner_communicators");
  *(void **)&nccl.asked = symbol("weir_nccl_tuner_asked");
  *(void **)&nccl.not_offered = symbol("weir_nccl_tuner_not_offered");
  *(void **)&nccl.change = symbol("weir_nccl_tuner_switch");
  *(void **)&nccl.begin_with = symbol("weir_nccl_tuner_begin_with");
}

static void unload(void) { cr_assert_eq(dlclose(nccl.handle), 0); }

static void *open_communicator(size_t ranks, size_t nodes) {
  void *context = NULL;
  cr_assert_eq(nccl.v5->init(&context, 0x1234, ranks, nodes, NULL, NULL, NULL), NCCL_OK);
  cr_assert(context != NULL);
  return context;
}

/* As NCCL leaves it on Ethernet: ring and tree with LL and Simple, the rest not there. */
typedef struct table {
  float cost[NCCL_ALGORITHMS][NCCL_PROTOCOLS];
} table;

static table usual(void) {
  table t;
  for (int a = 0; a < NCCL_ALGORITHMS; a++)
    for (int p = 0; p < NCCL_PROTOCOLS; p++) t.cost[a][p] = -1.0f;
  t.cost[NCCL_TREE][NCCL_LL] = 40.0f;
  t.cost[NCCL_TREE][NCCL_SIMPLE] = 60.0f;
  t.cost[NCCL_RING][NCCL_LL] = 50.0f;
  t.cost[NCCL_RING][NCCL_SIMPLE] = 45.0f;
  return t;
}

typedef struct choice {
  int algorithm, protocol;
} choice;

static choice smallest(const table *t) {
  choice best = {-1, -1};
  float least = INFINITY;
  for (int a = 0; a < NCCL_ALGORITHMS; a++)
    for (int p = 0; p < NCCL_PROTOCOLS; p++)
      if (t->cost[a][p] >= 0.0f && t->cost[a][p] < least) {
        least = t->cost[a][p];
        best = (choice){a, p};
      }
  return best;
}

static choice ask_of(void *context, nccl_function function, size_t bytes, table *t) {
  int channels = 0;
  cr_assert_eq(nccl.v5->get(context, function, bytes, 1, (float **)(void *)t->cost, NCCL_ALGORITHMS,
                            NCCL_PROTOCOLS, 0, &channels),
               NCCL_OK);
  cr_assert_eq(channels, 0); /* left to NCCL */
  return smallest(t);
}

static int ask(void *context, size_t bytes) {
  table t = usual();
  return ask_of(context, NCCL_FUNCTION_ALLREDUCE, bytes, &t).algorithm;
}

static weir_nccl_rule rule_of(uint64_t from, weir_nccl_choice what) {
  return (weir_nccl_rule){.from = from, .choice = what};
}

/* --- switching -------------------------------------------------------------------------------- */

Test(nccl_tuner, without_a_rule_nccl_chooses, .init = load, .fini = unload) {
  void *c = open_communicator(4, 4);
  table t = usual();
  const table before = usual();
  const choice own = ask_of(c, NCCL_FUNCTION_ALLREDUCE, 1 << 20, &t);
  cr_assert_eq(own.algorithm, NCCL_TREE);
  cr_assert_eq(memcmp(&t, &before, sizeof t), 0);
  cr_assert_eq(nccl.asked(0), 1);
  cr_assert_eq(nccl.v5->finalize(c), NCCL_OK);
}

Test(nccl_tuner, ring_and_tree_from_call_to_call, .init = load, .fini = unload) {
  void *c = open_communicator(4, 4);
  for (uint64_t k = 0; k < 64; k++) { /* the other one every two calls */
    const weir_nccl_rule rule = rule_of(k, k / 2 % 2 ? WEIR_NCCL_TREE : WEIR_NCCL_RING);
    if (k % 2 == 0) cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
    cr_assert_eq(ask(c, 1 << (k % 24)), k / 2 % 2 ? NCCL_TREE : NCCL_RING, "call %d", (int)k);
  }
  cr_assert_eq(nccl.asked(0), 64);
  const weir_nccl_rule own = rule_of(64, WEIR_NCCL_OWN);
  cr_assert_eq(nccl.change(0, &own), WEIR_NCCL_TAKEN);
  cr_assert_eq(ask(c, 100), NCCL_TREE);
  (void)nccl.v5->finalize(c);
}

/* NCCL keeps its protocol: the one it finds cheapest for the algorithm. */
Test(nccl_tuner, the_protocol_stays_nccls, .init = load, .fini = unload) {
  void *c = open_communicator(4, 4);
  weir_nccl_rule rule = rule_of(0, WEIR_NCCL_RING);
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
  table t = usual();
  choice got = ask_of(c, NCCL_FUNCTION_ALLREDUCE, 1 << 20, &t);
  cr_assert(got.algorithm == NCCL_RING && got.protocol == NCCL_SIMPLE);
  rule = rule_of(1, WEIR_NCCL_TREE);
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
  t = usual();
  got = ask_of(c, NCCL_FUNCTION_ALLREDUCE, 1 << 20, &t);
  cr_assert(got.algorithm == NCCL_TREE && got.protocol == NCCL_LL);
  /* What is not on offer is not brought into play, not even by a smaller number. */
  for (int a = 2; a < NCCL_ALGORITHMS; a++)
    for (int p = 0; p < NCCL_PROTOCOLS; p++) cr_assert(t.cost[a][p] < 0.0f);
  cr_assert(t.cost[NCCL_TREE][NCCL_LL128] < 0.0f && t.cost[NCCL_RING][NCCL_LL128] < 0.0f);
  (void)nccl.v5->finalize(c);
}

/* Ranks are told at different times; each switches at the same call. */
Test(nccl_tuner, ranks_switch_together, .init = load, .fini = unload) {
  enum { RANKS = 4, CALLS = 40, AT = 25 };
  void *c[RANKS];
  const weir_nccl_rule rule = rule_of(AT, WEIR_NCCL_RING);
  for (int r = 0; r < RANKS; r++) c[r] = open_communicator(RANKS, RANKS);
  cr_assert_eq(nccl.communicators(), RANKS);
  for (int k = 0; k < CALLS; k++)
    for (int r = 0; r < RANKS; r++) {
      if (k == 5 * r + 9) cr_assert_eq(nccl.change((size_t)r, &rule), WEIR_NCCL_TAKEN);
      cr_assert_eq(ask(c[r], 4096), k >= AT ? NCCL_RING : NCCL_TREE, "rank %d, call %d", r, k);
    }
  for (int r = 0; r < RANKS; r++) (void)nccl.v5->finalize(c[r]);
}

Test(nccl_tuner, too_late_changes_nothing, .init = load, .fini = unload) {
  void *c = open_communicator(2, 2);
  for (int k = 0; k < 3; k++) (void)ask(c, 8);
  weir_nccl_rule rule = rule_of(2, WEIR_NCCL_RING);
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_LATE);
  cr_assert_eq(ask(c, 8), NCCL_TREE);
  rule.from = 6;
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
  rule.from = 8;
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_BUSY);
  cr_assert_eq(ask(c, 8), NCCL_TREE); /* 4 */
  cr_assert_eq(ask(c, 8), NCCL_TREE);
  cr_assert_eq(ask(c, 8), NCCL_RING); /* 6 */
  rule = rule_of(8, WEIR_NCCL_TREE);
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
  cr_assert_eq(ask(c, 8), NCCL_RING);
  cr_assert_eq(ask(c, 8), NCCL_TREE);
  (void)nccl.v5->finalize(c);
}

/* NCCL asks on a thread of its own (blocking = 0).  A rule is in force from its call on or, when it
 * was too late, not at all: never from a call in between. */
#define THREAD_CALLS 200000
static unsigned char taken[THREAD_CALLS];
static void *asking(void *context) {
  for (int k = 0; k < THREAD_CALLS; k++) taken[k] = ask(context, 64) == NCCL_RING;
  return NULL;
}

Test(nccl_tuner, another_thread_asks, .init = load, .fini = unload) {
  static unsigned char due[THREAD_CALLS];
  void *c = open_communicator(2, 2);
  pthread_t thread;
  uint64_t from = 0;
  int changes = 0;
  bool ring = false;
  cr_assert_eq(pthread_create(&thread, NULL, asking, c), 0);
  while ((from = nccl.asked(0) + (uint64_t)(changes % 3)) < THREAD_CALLS - 10) {
    const weir_nccl_rule rule = rule_of(from, ring ? WEIR_NCCL_OWN : WEIR_NCCL_RING);
    weir_nccl_answer answer;
    while ((answer = nccl.change(0, &rule)) == WEIR_NCCL_BUSY) continue;
    if (answer != WEIR_NCCL_TAKEN) {
      cr_assert_eq(answer, WEIR_NCCL_LATE);
      continue;
    }
    ring = !ring;
    changes++;
    due[from] = 1; /* what is chosen changes here */
  }
  cr_assert_eq(pthread_join(thread, NULL), 0);
  bool now = false;
  for (int k = 0; k < THREAD_CALLS; k++) {
    if (due[k]) now = !now;
    cr_assert_eq(taken[k], now, "call %d of %d changes", k, changes);
  }
  cr_assert_gt(changes, 0);
  (void)nccl.v5->finalize(c);
}

/* --- by cost ---------------------------------------------------------------------------------- */

/* 8 machines, alpha 1 ms, beta 8 ns (1 Gbit/s).  Ring: 14 alpha + 14/8 S beta; tree: 6 alpha + 2 S
 * beta.  They meet at 8 alpha = S beta / 4, S = 4 MB. */
Test(nccl_tuner, the_cheapest_by_alpha_and_beta, .init = load, .fini = unload) {
  void *c = open_communicator(32, 8);
  const weir_nccl_rule rule = {.choice = WEIR_NCCL_CHEAPEST, .latency_s = 1e-3, .byte_s = 8e-9};
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
  cr_assert_eq(ask(c, 0), NCCL_TREE);
  cr_assert_eq(ask(c, 3900000), NCCL_TREE);
  cr_assert_eq(ask(c, 4100000), NCCL_RING);
  table t = usual();
  (void)ask_of(c, NCCL_FUNCTION_ALLREDUCE, 1000000, &t);
  /* 14 ms + 14 ms is the ring's best protocol, Simple; LL keeps its proportion of 50 to 45. */
  cr_assert_float_eq(t.cost[NCCL_RING][NCCL_SIMPLE], 28000.0f, 1.0f);
  cr_assert_float_eq(t.cost[NCCL_RING][NCCL_LL], 28000.0f * 50 / 45, 1.0f);
  /* 6 ms + 16 ms, preferred over everything: 0; Simple 60 to 40 of it. */
  cr_assert_eq(t.cost[NCCL_TREE][NCCL_LL], 0.0f);
  cr_assert_float_eq(t.cost[NCCL_TREE][NCCL_SIMPLE], 33000.0f, 1.0f);
  (void)nccl.v5->finalize(c);
}

/* One machine: every hop counts.  4 ranks, alpha 10 us, beta 1 ns: ring 6 alpha + 1.5 S beta, tree
 * 4 alpha + 2 S beta, which meet at 2 alpha = S beta / 2, S = 40 kB. */
Test(nccl_tuner, ranks_of_one_machine, .init = load, .fini = unload) {
  void *c = open_communicator(4, 1);
  const weir_nccl_rule rule = {.choice = WEIR_NCCL_CHEAPEST, .latency_s = 1e-5, .byte_s = 1e-9};
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
  cr_assert_eq(ask(c, 39000), NCCL_TREE);
  cr_assert_eq(ask(c, 41000), NCCL_RING);
  (void)nccl.v5->finalize(c);
}

/* --- what must not disturb -------------------------------------------------------------------- */

Test(nccl_tuner, other_collectives_are_nccls, .init = load, .fini = unload) {
  void *c = open_communicator(4, 4);
  const weir_nccl_rule rule = rule_of(0, WEIR_NCCL_RING);
  const table before = usual();
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
  for (nccl_function f = 0; f < 9; f++) {
    if (f == NCCL_FUNCTION_ALLREDUCE) continue;
    table t = usual();
    (void)ask_of(c, f, 100, &t);
    cr_assert_eq(memcmp(&t, &before, sizeof t), 0, "function %d", f);
  }
  cr_assert_eq(nccl.asked(0), 0);
  (void)nccl.v5->finalize(c);
}

Test(nccl_tuner, what_nccl_does_not_offer_is_not_forced, .init = load, .fini = unload) {
  void *c = open_communicator(4, 4);
  const weir_nccl_rule rule = rule_of(0, WEIR_NCCL_RING);
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
  table t = usual();
  t.cost[NCCL_RING][NCCL_LL] = t.cost[NCCL_RING][NCCL_SIMPLE] = -1.0f;
  cr_assert_eq(ask_of(c, NCCL_FUNCTION_ALLREDUCE, 100, &t).algorithm, NCCL_TREE);
  /* A table of one algorithm, or none at all. */
  float one[NCCL_PROTOCOLS] = {1, 2, 3};
  int channels = 0;
  cr_assert_eq(nccl.v5->get(c, NCCL_FUNCTION_ALLREDUCE, 100, 1, (float **)(void *)one, 1,
                            NCCL_PROTOCOLS, 0, &channels),
               NCCL_OK);
  cr_assert(one[0] == 1 && one[1] == 2 && one[2] == 3);
  cr_assert_eq(nccl.v5->get(c, NCCL_FUNCTION_ALLREDUCE, 100, 1, NULL, 0, 0, 0, &channels), NCCL_OK);
  cr_assert_eq(nccl.v5->get(NULL, NCCL_FUNCTION_ALLREDUCE, 100, 1, (float **)(void *)one, 1, 3, 0,
                            &channels),
               NCCL_OK);
  cr_assert_eq(nccl.asked(0), 3);
  cr_assert_eq(nccl.not_offered(0), 3);
  t = usual();
  cr_assert_eq(ask_of(c, NCCL_FUNCTION_ALLREDUCE, 100, &t).algorithm, NCCL_RING);
  const weir_nccl_rule own = rule_of(4, WEIR_NCCL_OWN);
  cr_assert_eq(nccl.change(0, &own), WEIR_NCCL_TAKEN);
  t.cost[NCCL_RING][NCCL_LL] = t.cost[NCCL_RING][NCCL_SIMPLE] = -1.0f;
  (void)ask_of(c, NCCL_FUNCTION_ALLREDUCE, 100, &t);
  cr_assert_eq(nccl.not_offered(0), 3); /* NCCL's own choice names nothing */
  cr_assert_eq(nccl.not_offered(7), 0);
  cr_assert_eq(nccl.v5->finalize(NULL), NCCL_OK);
  (void)nccl.v5->finalize(c);
}

Test(nccl_tuner, bad_rules_are_refused, .init = load, .fini = unload) {
  void *c = open_communicator(4, 4);
  weir_nccl_rule rule = rule_of(0, WEIR_NCCL_RING);
  cr_assert_eq(nccl.change(1, &rule), WEIR_NCCL_INVALID);
  cr_assert_eq(nccl.change(0, NULL), WEIR_NCCL_INVALID);
  rule.choice = WEIR_NCCL_CHEAPEST + 1;
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_INVALID);
  cr_assert_eq(nccl.begin_with(&rule), WEIR_NCCL_INVALID);
  rule.choice = WEIR_NCCL_CHEAPEST;
  const double wrong[] = {-1.0, NAN, INFINITY};
  for (int i = 0; i < 3; i++) {
    rule.latency_s = wrong[i];
    rule.byte_s = 1e-9;
    cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_INVALID);
    rule.latency_s = 1e-3;
    rule.byte_s = wrong[i];
    cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_INVALID);
  }
  cr_assert_eq(nccl.asked(7), 0);
  (void)nccl.v5->finalize(c);
  rule = rule_of(0, WEIR_NCCL_RING);
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_INVALID); /* it has ended */
}

Test(nccl_tuner, a_rule_for_all_that_come, .init = load, .fini = unload) {
  void *before = open_communicator(2, 2);
  const weir_nccl_rule rule = rule_of(99, WEIR_NCCL_RING);
  cr_assert_eq(nccl.begin_with(&rule), WEIR_NCCL_TAKEN);
  void *after = open_communicator(2, 2);
  cr_assert_eq(ask(before, 8), NCCL_TREE);
  cr_assert_eq(ask(after, 8), NCCL_RING);
  (void)nccl.v5->finalize(before);
  (void)nccl.v5->finalize(after);
}

/* --- older interfaces ------------------------------------------------------------------------- */

Test(nccl_tuner, versions_3_and_4, .init = load, .fini = unload) {
  void *three = NULL, *four = NULL;
  int channels = 0;
  const weir_nccl_rule rule = rule_of(0, WEIR_NCCL_RING);
  cr_assert_eq(nccl.begin_with(&rule), WEIR_NCCL_TAKEN);
  cr_assert_eq(nccl.v3->init(2, 2, NULL, &three), NCCL_OK);
  cr_assert_eq(nccl.v4->init(2, 2, NULL, &four), NCCL_OK);
  table t = usual(), u = usual();
  cr_assert_eq(nccl.v3->get(three, NCCL_FUNCTION_ALLREDUCE, 8, 1, (float **)(void *)t.cost,
                            NCCL_ALGORITHMS, NCCL_PROTOCOLS, &channels),
               NCCL_OK);
  cr_assert_eq(nccl.v4->get(four, NCCL_FUNCTION_ALLREDUCE, 8, 1, (float **)(void *)u.cost,
                            NCCL_ALGORITHMS, NCCL_PROTOCOLS, 1, &channels),
               NCCL_OK);
  cr_assert_eq(smallest(&t).algorithm, NCCL_RING);
  cr_assert_eq(smallest(&u).algorithm, NCCL_RING);
  cr_assert_eq(nccl.v3->destroy(three), NCCL_OK);
  cr_assert_eq(nccl.v4->destroy(four), NCCL_OK);
}

Test(nccl_tuner, version_2_names_its_choice, .init = load, .fini = unload) {
  void *c = NULL;
  int algorithm = -1, protocol = -1, channels = 0;
  cr_assert_eq(nccl.v2->init(2, 2, NULL, &c), NCCL_OK);
  cr_assert_eq(
      nccl.v2->get(c, NCCL_FUNCTION_ALLREDUCE, 8, 0, 0, 1, &algorithm, &protocol, &channels),
      NCCL_OK);
  cr_assert(algorithm == -1 && protocol == -1 && channels == 0);
  const weir_nccl_rule rule = rule_of(1, WEIR_NCCL_TREE);
  cr_assert_eq(nccl.change(0, &rule), WEIR_NCCL_TAKEN);
  cr_assert_eq(
      nccl.v2->get(c, NCCL_FUNCTION_ALLREDUCE, 1 << 24, 0, 0, 1, &algorithm, &protocol, &channels),
      NCCL_OK);
  cr_assert(algorithm == NCCL_TREE && protocol == NCCL_SIMPLE && channels == 0);
  cr_assert_eq(
      nccl.v2->get(c, NCCL_FUNCTION_ALLREDUCE, 64, 0, 0, 1, &algorithm, &protocol, &channels),
      NCCL_OK);
  cr_assert(algorithm == NCCL_TREE && protocol == NCCL_LL);
  cr_assert_eq(nccl.v2->destroy(c), NCCL_OK);
}

/* What NCCL looks for: one structure for each version of its tuner interface.  Every function
 * returns success: an error would fail the collective, and a communicator without a tuner is only
 * slower. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <weir/nccl_tuner.h>

#include "nccl/interface.h"

/* How far a new rule is. */
enum { TUNER_IDLE = 0, TUNER_PENDING = 1, TUNER_TAKING = 2 };

/* NCCL asks for one communicator on one thread at a time, which need not be the thread that
 * switches. `rule` is the asking side's; `next` is the switching side's while idle and the asking
 * side's while it takes it. */
typedef struct tuner_communicator {
  size_t ranks, nodes;
  atomic_uint_fast64_t asked;
  atomic_uint_fast64_t not_offered; /* of these, by what a rule names */
  weir_nccl_rule rule;
  weir_nccl_rule next;
  atomic_uint_fast64_t next_from;
  atomic_int state;
  atomic_bool missed; /* the last rule that was taken came too late, and was dropped */
  atomic_bool ended;
} tuner_communicator;

/* What NCCL would have chosen between, and what is preferred. */
typedef struct tuner_table {
  float *cost; /* [algorithms][protocols] */
  int algorithms, protocols;
} tuner_table;

/* Communicators of this process and the rules they follow. */

/* Communicators stay, so that their numbers do; there are few in a process's life. */
static struct {
  pthread_mutex_t mutex;
  tuner_communicator **all;
  size_t count, room;
  weir_nccl_rule first;
} tuner = {.mutex = PTHREAD_MUTEX_INITIALIZER};

__attribute__((destructor)) static void release(void) {
  for (size_t i = 0; i < tuner.count; i++) free(tuner.all[i]);
  free(tuner.all);
}

static bool add(tuner_communicator *c) {
  if (tuner.count == tuner.room) {
    const size_t room = tuner.room > 0 ? 2 * tuner.room : 8;
    tuner_communicator **all = realloc(tuner.all, room * sizeof *all);
    if (!all) return false;
    tuner.all = all;
    tuner.room = room;
  }
  tuner.all[tuner.count++] = c;
  return true;
}

/* NULL when there is no memory. */
static tuner_communicator *tuner_open(size_t ranks, size_t nodes) {
  tuner_communicator *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->ranks = ranks;
  c->nodes = nodes;
  (void)pthread_mutex_lock(&tuner.mutex);
  c->rule = tuner.first;
  const bool added = add(c);
  (void)pthread_mutex_unlock(&tuner.mutex);
  if (added) return c;
  free(c);
  return NULL;
}

static void tuner_close(tuner_communicator *c) {
  if (c) atomic_store(&c->ended, true);
}

/* An all-reduce is asked for: count it, and tell the rule in force for it. */
static weir_nccl_rule tuner_next(tuner_communicator *c) {
  /* The count first, then the look: who switches looks at the count after it has left the rule. */
  const uint64_t number = atomic_fetch_add(&c->asked, 1);
  int pending = TUNER_PENDING;
  if (number >= atomic_load(&c->next_from) &&
      atomic_compare_exchange_strong(&c->state, &pending, TUNER_TAKING)) {
    /* Exactly there or not at all: the other ranks begin there.  Only now is it sure which rule
     * this is; it may have been left since the first look, and not be due yet. */
    const uint64_t from = atomic_load(&c->next_from);
    if (number == from) c->rule = c->next;
    atomic_store(&c->missed, number > from);
    atomic_store(&c->state, number < from ? TUNER_PENDING : TUNER_IDLE);
  }
  return c->rule;
}

static tuner_communicator *find(size_t communicator) {
  tuner_communicator *c = NULL;
  (void)pthread_mutex_lock(&tuner.mutex);
  if (communicator < tuner.count) c = tuner.all[communicator];
  (void)pthread_mutex_unlock(&tuner.mutex);
  return c;
}

static bool is_valid(const weir_nccl_rule *rule) {
  if (!rule || rule->choice > WEIR_NCCL_CHEAPEST) return false;
  return rule->choice != WEIR_NCCL_CHEAPEST ||
         (isfinite(rule->latency_s) && isfinite(rule->byte_s) && rule->latency_s >= 0.0 &&
          rule->byte_s >= 0.0);
}

size_t weir_nccl_tuner_communicators(void) {
  (void)pthread_mutex_lock(&tuner.mutex);
  const size_t count = tuner.count;
  (void)pthread_mutex_unlock(&tuner.mutex);
  return count;
}

uint64_t weir_nccl_tuner_asked(size_t communicator) {
  tuner_communicator *c = find(communicator);
  return c ? (uint64_t)atomic_load(&c->asked) : 0;
}

uint64_t weir_nccl_tuner_not_offered(size_t communicator) {
  tuner_communicator *c = find(communicator);
  return c ? (uint64_t)atomic_load(&c->not_offered) : 0;
}

weir_nccl_answer weir_nccl_tuner_switch(size_t communicator, const weir_nccl_rule *rule) {
  tuner_communicator *c = find(communicator);
  if (!c || !is_valid(rule) || atomic_load(&c->ended)) return WEIR_NCCL_INVALID;
  if (atomic_load(&c->state) != TUNER_IDLE) return WEIR_NCCL_BUSY;
  if (atomic_load(&c->asked) > rule->from) return WEIR_NCCL_LATE;
  c->next = *rule;
  atomic_store(&c->next_from, rule->from);
  atomic_store(&c->state, TUNER_PENDING);
  if (atomic_load(&c->asked) <= rule->from) return WEIR_NCCL_TAKEN;
  /* It has been asked for meanwhile.  Take the rule back, unless the other side has it in hand. */
  int pending = TUNER_PENDING;
  if (atomic_compare_exchange_strong(&c->state, &pending, TUNER_IDLE)) return WEIR_NCCL_LATE;
  while (atomic_load(&c->state) == TUNER_TAKING) (void)sched_yield(); /* a few instructions long */
  return atomic_load(&c->missed) ? WEIR_NCCL_LATE : WEIR_NCCL_TAKEN;
}

weir_nccl_answer weir_nccl_tuner_begin_with(const weir_nccl_rule *rule) {
  if (!is_valid(rule)) return WEIR_NCCL_INVALID;
  (void)pthread_mutex_lock(&tuner.mutex);
  tuner.first = *rule;
  (void)pthread_mutex_unlock(&tuner.mutex);
  return WEIR_NCCL_TAKEN;
}

/* Ring and tree by alpha and beta, and NCCL's table made of it.  NCCL's own model never sees
 * what a network is really like: it is computed from the kind of the links once, at a
 * communicator's init.  Its tree is a double binary tree: each rank sends every byte about
 * twice, like in a ring, so that only the latencies differ. */

/* Hops that cost alpha are those between machines; on one machine, all. */
static double places(size_t ranks, size_t nodes) {
  return (double)(nodes > 1 && nodes <= ranks ? nodes : ranks);
}

/* Microseconds of an all-reduce over so many machines, by alpha and beta. 2(n-1) hops; every
 * byte crosses a link 2(n-1)/n times. */
static double tuner_ring_us(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes) {
  const double n = places(ranks, nodes);
  if (n < 2.0) return 0.0;
  return 1e6 *
         (2.0 * (n - 1.0) * rule->latency_s + 2.0 * (n - 1.0) / n * (double)bytes * rule->byte_s);
}

/* 2 ceil(log2 n) hops; either tree moves half of the bytes up and down again. */
static double tuner_tree_us(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes) {
  const double n = places(ranks, nodes);
  if (n < 2.0) return 0.0;
  return 1e6 * (2.0 * ceil(log2(n)) * rule->latency_s + 2.0 * (double)bytes * rule->byte_s);
}

/* NCCL_RING or NCCL_TREE; -1: NCCL's own choice. */
static int tuner_choose(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes) {
  switch (rule->choice) {
    case WEIR_NCCL_RING: return NCCL_RING;
    case WEIR_NCCL_TREE: return NCCL_TREE;
    case WEIR_NCCL_CHEAPEST:
      return tuner_ring_us(rule, ranks, nodes, bytes) <= tuner_tree_us(rule, ranks, nodes, bytes)
                 ? NCCL_RING
                 : NCCL_TREE;
    default: return -1;
  }
}

/* The cheapest protocol of an algorithm by what NCCL says; -1 when none is available. */
static int best_protocol(const tuner_table *table, int algorithm) {
  int best = -1;
  if (algorithm >= table->algorithms) return -1;
  const float *row = table->cost + algorithm * table->protocols;
  for (int p = 0; p < table->protocols; p++)
    if (row[p] >= 0.0f && (best < 0 || row[p] < row[best])) best = p;
  return best;
}

/* An algorithm's row becomes `us` for its best protocol, and more for the others in the proportion
 * in which NCCL has them. */
static void write_row(const tuner_table *table, int algorithm, double us) {
  const int best = best_protocol(table, algorithm);
  if (best < 0) return;
  float *row = table->cost + algorithm * table->protocols;
  const double least = (double)row[best];
  for (int p = 0; p < table->protocols; p++)
    if (row[p] >= 0.0f && p != best)
      row[p] = (float)(least > 0.0 ? us * (double)row[p] / least : us);
  row[best] = (float)us;
}

/* False: what the rule names is not on offer, and better NCCL's own choice than none. */
static bool tuner_fill(const weir_nccl_rule *rule, size_t ranks, size_t nodes, size_t bytes,
                       const tuner_table *table) {
  const int choice = tuner_choose(rule, ranks, nodes, bytes);
  const int protocol = choice < 0 ? -1 : best_protocol(table, choice);
  if (protocol < 0) return choice < 0;
  if (rule->choice == WEIR_NCCL_CHEAPEST) {
    write_row(table, NCCL_RING, tuner_ring_us(rule, ranks, nodes, bytes));
    write_row(table, NCCL_TREE, tuner_tree_us(rule, ranks, nodes, bytes));
  }
  /* Below everything else there may be, such as algorithms of which alpha and beta say nothing. */
  table->cost[choice * table->protocols + protocol] = 0.0f;
  return true;
}

/* Below so many bytes a message is all latency: the protocol of few bytes and no barrier.  Version
 * 2 wants both to be chosen; LL128 is not on offer everywhere. */
#define LL_MOST ((size_t)64 * 1024)

static nccl_result open_any(void **context, size_t ranks, size_t nodes) {
  if (context) *context = tuner_open(ranks, nodes);
  return NCCL_OK;
}

static nccl_result open_v2(size_t ranks, size_t nodes, nccl_logger logger, void **context) {
  (void)logger;
  return open_any(context, ranks, nodes);
}

static nccl_result open_v5(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                           nccl_logger logger, void *domains, void *constants) {
  (void)communicator;
  (void)logger;
  (void)domains;
  (void)constants;
  return open_any(context, ranks, nodes);
}

static nccl_result close_any(void *context) {
  tuner_close(context);
  return NCCL_OK;
}

static nccl_result get_table(void *context, nccl_function function, size_t bytes, float **table,
                             int algorithms, int protocols) {
  tuner_communicator *c = context;
  if (!c || function != NCCL_FUNCTION_ALLREDUCE) return NCCL_OK;
  const weir_nccl_rule rule = tuner_next(c);
  const tuner_table t = {(float *)(void *)table, table && protocols > 0 ? algorithms : 0,
                         protocols};
  if (!tuner_fill(&rule, c->ranks, c->nodes, bytes, &t)) (void)atomic_fetch_add(&c->not_offered, 1);
  return NCCL_OK;
}

static nccl_result get_v2(void *context, nccl_function function, size_t bytes, int collnet,
                          int nvls, int operations, int *algorithm, int *protocol, int *channels) {
  tuner_communicator *c = context;
  (void)collnet;
  (void)nvls;
  (void)operations;
  (void)channels;
  if (!c || function != NCCL_FUNCTION_ALLREDUCE) return NCCL_OK;
  const weir_nccl_rule rule = tuner_next(c);
  const int choice = tuner_choose(&rule, c->ranks, c->nodes, bytes);
  if (choice < 0 || !algorithm || !protocol) return NCCL_OK;
  *algorithm = choice;
  *protocol = bytes <= LL_MOST ? NCCL_LL : NCCL_SIMPLE;
  return NCCL_OK;
}

static nccl_result get_v3(void *context, nccl_function function, size_t bytes, int operations,
                          float **table, int algorithms, int protocols, int *channels) {
  (void)operations;
  (void)channels;
  return get_table(context, function, bytes, table, algorithms, protocols);
}

static nccl_result get_v4(void *context, nccl_function function, size_t bytes, int operations,
                          float **table, int algorithms, int protocols, int registered,
                          int *channels) {
  (void)registered;
  return get_v3(context, function, bytes, operations, table, algorithms, protocols, channels);
}

#define EXPORTED __attribute__((visibility("default"))) extern
EXPORTED const nccl_tuner_v2 ncclTunerPlugin_v2;
EXPORTED const nccl_tuner_v3 ncclTunerPlugin_v3;
EXPORTED const nccl_tuner_v4 ncclTunerPlugin_v4;
EXPORTED const nccl_tuner_v5 ncclTunerPlugin_v5;
const nccl_tuner_v2 ncclTunerPlugin_v2 = {"Weir", open_v2, get_v2, close_any};
const nccl_tuner_v3 ncclTunerPlugin_v3 = {"Weir", open_v2, get_v3, close_any};
const nccl_tuner_v4 ncclTunerPlugin_v4 = {"Weir", open_v2, get_v4, close_any};
const nccl_tuner_v5 ncclTunerPlugin_v5 = {"Weir", open_v5, get_v4, close_any};

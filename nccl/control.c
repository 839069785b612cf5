/* Communicators of this process and the rules they follow. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "nccl/state.h"

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

tuner_communicator *tuner_open(size_t ranks, size_t nodes) {
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

void tuner_close(tuner_communicator *c) {
  if (c) atomic_store(&c->ended, true);
}

weir_nccl_rule tuner_next(tuner_communicator *c) {
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

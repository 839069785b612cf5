/* What rank 0 asks for from step to step, as a policy would: plans that were written down before,
 * of buckets or of the whole gradient. */
#ifndef WEIR_TESTS_SCRIPT_H
#define WEIR_TESTS_SCRIPT_H

#include <stdbool.h>
#include <string.h>

#include "base/base.h"
#include "engine/engine.h"

enum { SCRIPT_TENSORS = 40 };

typedef struct script_step {
  uint32_t action; /* how the step's plan came about */
  weir_plan plan;
  weir_plan_bucket table[SCRIPT_TENSORS];
  bool shuffled; /* tensors are handed in in another order */
  int poisoned;  /* a rank whose gradient holds NaN; -1: none */
} script_step;

typedef struct script {
  const script_step *steps;
  int count, at; /* at: the step that is run */
} script;

static inline void script_propose(void *user, weir_directive *directive) {
  const script *s = user;
  if (s->at + 1 >= s->count) return;
  directive->action = s->steps[s->at + 1].action;
  directive->plan = s->steps[s->at + 1].plan;
}

static inline weir_status script_buckets(void *user, uint32_t layout, weir_plan_bucket *table,
                                         size_t capacity, size_t *count) {
  const script *s = user;
  const script_step *now = &s->steps[s->at];
  if (layout != now->plan.layout || capacity < now->plan.buckets)
    return weir_fail(WEIR_E_INTERNAL, "the engine asks for another table");
  *count = now->plan.buckets;
  memcpy(table, now->table, *count * sizeof *table);
  return WEIR_OK;
}

static inline weir_engine_hooks script_hooks(script *s) {
  return (weir_engine_hooks){.user = s, .propose = script_propose, .buckets = script_buckets};
}

static inline void script_add_bucket(script_step *s, size_t *count, uint32_t end, uint32_t place,
                                     const weir_plan *plan) {
  s->table[*count] = (weir_plan_bucket){.end = end, .place = place};
  weir_bucket_set_plan(&s->table[(*count)++], plan);
}

/* The step's plan becomes that of a table of so many buckets. */
static inline void script_close(script_step *s, size_t count, uint64_t id) {
  weir_plan_of_bucket(&s->table[0], &s->plan);
  s->plan.id = id;
  s->plan.buckets = (uint32_t)count;
  s->plan.layout = weir_buckets_name(s->table, count);
}

#endif

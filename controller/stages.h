/* A schedule: plans one after the other, each from an epoch or a step on. */
#ifndef WEIR_CONTROLLER_STAGES_H
#define WEIR_CONTROLLER_STAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>
#include <weir/status.h>

enum { WEIR_STAGES_MAX = 16 };

typedef struct weir_stages {
  size_t count; /* at least 1 */
  bool by_step; /* stages begin at steps, else at epochs as weir_set_epoch tells them */
  struct {
    uint64_t from; /* 0 of the first; ascending */
    weir_plan plan;
    bool left_out; /* this group cannot run it: weir_stages_at() passes over it */
  } stage[WEIR_STAGES_MAX];
} weir_stages;

/* "PLAN;epoch=N:PLAN;..." or "PLAN;step=N:PLAN;...": the first plan from the beginning on.
 * WEIR_E_INVALID says which stage is wrong, and why. */
weir_status weir_stages_parse(const char *text, weir_stages *stages);
/* The stage in force at an epoch, or a step.  In the place of one that is left out stands the one
 * before it; of the first, that which comes next. */
size_t weir_stages_at(const weir_stages *stages, uint64_t at);

#endif

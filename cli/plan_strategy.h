/* Printing what `weir plan strategy` found. */
#ifndef WEIR_CLI_PLAN_STRATEGY_H
#define WEIR_CLI_PLAN_STRATEGY_H

#include "plan.h"
#include "planner/strategy.h"

typedef struct strategy_found {
  const weir_profile *profile; /* tensors, or buckets of them */
  const weir_cluster *cluster;
  const weir_strategy_report *report;
  weir_strategy_method method; /* whose strategy is shown */
  const size_t *end;           /* of the buckets; NULL without fusion */
  double solve_s;
} strategy_found;

void plan_strategy_json(const strategy_found *found);
void plan_strategy_table(const strategy_found *found);

#endif

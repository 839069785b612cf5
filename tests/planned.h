/* Plans of tests, by their text. */
#ifndef WEIR_TESTS_PLANNED_H
#define WEIR_TESTS_PLANNED_H

#include <stdlib.h>
#include <weir/plan.h>

static inline weir_plan planned(const char *text) {
  weir_plan plan;
  if (weir_plan_parse(text, &plan) != WEIR_OK) abort();
  return plan;
}

#endif

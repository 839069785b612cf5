#include "session/budget.h"

#include <math.h>

static const double share = 0.01, credit = 4 << 20;
/* A rate is not stretched over longer than this without a look at it. */
static const double most_gap_s = 5;

void weir_budget_start(weir_probe_budget *budget, double now_s) {
  *budget = (weir_probe_budget){.time_s = now_s};
}

void weir_budget_pass(weir_probe_budget *budget, double now_s, double bandwidth) {
  const double gap_s = now_s - budget->time_s;
  if (!(gap_s > 0)) return;
  if (bandwidth > 0 && isfinite(bandwidth)) budget->capacity += bandwidth * fmin(gap_s, most_gap_s);
  budget->time_s = now_s;
}

double weir_budget_price(double bytes, double rate, double known) {
  return known > 0 && rate > known ? bytes * known / rate : bytes;
}

double weir_budget_left(const weir_probe_budget *budget) {
  return fmax(0, fmax(credit, share * budget->capacity) - (budget->spent - budget->spared));
}

/* What active probes may send: a hundredth of what the link could have carried so far, with some
 * of it in advance. */
#ifndef WEIR_SESSION_BUDGET_H
#define WEIR_SESSION_BUDGET_H

typedef struct weir_probe_budget {
  double capacity; /* bytes the link could have carried up to time_s */
  double time_s;
  double spent; /* bytes sent in probes */
} weir_probe_budget;

void weir_budget_start(weir_probe_budget *budget, double now_s);
/* Time has passed at this link rate, bytes/s; 0: unknown, adds nothing. */
void weir_budget_pass(weir_probe_budget *budget, double now_s, double bandwidth);
/* Bytes that may be sent now. */
double weir_budget_left(const weir_probe_budget *budget);

#endif

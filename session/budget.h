/* What active probes may send: a hundredth of what the link could have carried so far, with some
 * of it in advance. */
#ifndef WEIR_SESSION_BUDGET_H
#define WEIR_SESSION_BUDGET_H

typedef struct weir_probe_budget {
  double capacity; /* bytes the link could have carried up to time_s */
  double time_s;
  double spent; /* bytes sent in probes */
  /* Bytes of these that took none of the link's time as it was known, the link being faster. */
  double spared;
} weir_probe_budget;

void weir_budget_start(weir_probe_budget *budget, double now_s);
/* Time has passed at this link rate, bytes/s; 0: unknown, adds nothing. */
void weir_budget_pass(weir_probe_budget *budget, double now_s, double bandwidth);
/* What so many bytes take of the budget, which counts the link's time at the rate that is known (0:
 * none): fewer where a train has shown a larger rate (0: none has yet). */
double weir_budget_price(double bytes, double rate, double known);
/* Bytes that may be sent now, at the rate that is known. */
double weir_budget_left(const weir_probe_budget *budget);

#endif

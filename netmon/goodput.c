/* What messages get of a link that loses packets or lets them overtake each other.
 *
 * A loss costs TCP time that depends on the round trip and on its window, whatever the link could
 * carry, and losses are as frequent as packets: so a message of M bytes takes M / rate + M p c /
 * MSS, with p the share lost and c what a loss costs, and over many messages seconds a byte are
 * what predicts the next ones.  As with counts of rare events, the variance of its time grows with
 * its bytes, too: the root of seconds squared a byte is the deviation.  ("The Macroscopic Behavior
 * of the TCP Congestion Avoidance Algorithm", Mathis and others, 1997, has c for windows that are
 * always full.) */
#include <math.h>

#include "netmon/estimate.h"

/* Half weight after so many segments, and after so many messages of the usual length. */
static const double segments_kept = 4000, remember = 0.97;
/* Losses so rare are congestion's usual ones; so few may be chance. */
static const double least_lost = 0.001, least_disordered = 0.002, least_resent = 3;
enum { LEAST_MESSAGES = 4 };

void weir_goodput_message(weir_goodput *g, const weir_sample *s) {
  if (s->value <= 0 || s->bytes <= 0) return;
  g->bytes = remember * g->bytes + s->bytes;
  g->seconds = remember * g->seconds + s->value;
  g->square = remember * g->square + s->value * s->value / s->bytes;
  g->weight = remember * g->weight + 1;
  g->messages++;
}

void weir_goodput_loss(weir_goodput *g, const weir_sample *s) {
  const double keep = exp2(-s->bytes / segments_kept);
  g->segments = keep * g->segments + s->bytes;
  g->resent = keep * g->resent + s->value;
  g->disordered = keep * g->disordered + s->doubt;
}

double weir_goodput_lost(const weir_goodput *g) {
  return g->segments > 0 ? fmin(g->resent / g->segments, 1) : 0;
}

bool weir_goodput_matters(const weir_goodput *g) {
  return (g->resent >= least_resent && g->resent > least_lost * g->segments) ||
         (g->disordered >= least_resent && g->disordered > least_disordered * g->segments);
}

double weir_goodput_value(const weir_goodput *g, double *error, double *deviation) {
  *error = *deviation = 0;
  if (!weir_goodput_matters(g) || g->messages < LEAST_MESSAGES || !(g->seconds > 0)) return 0;
  const double mean = g->seconds / g->bytes;
  *deviation = sqrt(fmax(0, g->square - g->seconds * mean) / (g->weight - 1));
  *error = *deviation / (mean * sqrt(g->bytes));
  return 1 / mean;
}

/* One quantity followed through noise and steps: a window of samples, a quantile of them as the
 * settled value, and a two-sided CUSUM on logarithms, scaled by the noise seen so far, that
 * restarts the window at the sample where a change began.  Pure: time comes with the samples. */
#ifndef WEIR_NETMON_CHANNEL_H
#define WEIR_NETMON_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEIR_CHANNEL_KEPT = 64 };

typedef struct weir_channel_sample {
  double time_s;
  double x;     /* logarithm of the value */
  double error; /* relative error of this sample by itself, > 0 */
} weir_channel_sample;

typedef struct weir_channel {
  /* set by weir_channel_init */
  double quantile;  /* which quantile is the truth: low for delays, high for rates */
  double threshold; /* logarithm of the factor that counts as a change */
  double window_s;
  double chance; /* of a false change that is put up with, a sample */
  /* state */
  weir_channel_sample sample[WEIR_CHANNEL_KEPT]; /* oldest first */
  size_t count;
  double settled;   /* logarithm */
  double announced; /* settled value at the last counted change */
  double spread[2]; /* running mean deviation below and above the settled value */
  double beyond[2]; /* running share of samples further away than the threshold */
  double spread_at_onset[2], beyond_at_onset[2]; /* what they were before the sum left 0 */
  double sum[2];                                 /* CUSUM below and above */
  size_t onset[2];                               /* samples since that sum last left 0 */
  double newest_s;                               /* time of the newest sample */
  size_t since;                                  /* samples since the last counted change */
  uint32_t changes;
} weir_channel;

void weir_channel_init(weir_channel *channel, double quantile, double change_threshold,
                       double window_s);
/* Take a sample; value > 0.  True when it made the channel settle on a changed value. */
bool weir_channel_feed(weir_channel *channel, double time_s, double value, double error);
/* The same of one that may read low by more than its error, in logarithms: it then is so much
 * weaker a witness of a fall. */
bool weir_channel_feed_low(weir_channel *channel, double time_s, double value, double error,
                           double low_error);
/* Something was seen that could not be, had the value fallen. */
void weir_channel_contradict_fall(weir_channel *channel);
/* Take a value that needs no witness, measured with nothing else going on: where it departs by more
 * than the threshold it is the new settled value at once, and all doubt ends.  True as above. */
bool weir_channel_assert(weir_channel *channel, double time_s, double value, double error);
/* The settled value, 0 when there is none; and its relative standard error. */
double weir_channel_value(const weir_channel *channel);
double weir_channel_error(const weir_channel *channel);
/* Has evidence begun to move without having settled? */
bool weir_channel_moving(const weir_channel *channel);

#endif

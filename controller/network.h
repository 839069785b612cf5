/* One network estimate from the headers of all ranks. */
#ifndef WEIR_CONTROLLER_NETWORK_H
#define WEIR_CONTROLLER_NETWORK_H

#include <stdbool.h>

#include "engine/engine.h"

typedef struct weir_network {
  double latency, latency_error;     /* s one way; 0: unknown */
  double bandwidth, bandwidth_error; /* bytes/s; 0: unknown */
  double goodput, goodput_error;     /* what messages get of it, which predicts exchanges */
  double deviation;                  /* of their times, s for the root of a byte */
  bool changed;                      /* some rank's monitor says so in this step */
  int suspects, stale;               /* ranks whose monitor suspects a change; holds old values */
  int risen;                         /* ranks that saw more bandwidth than they know of */
} weir_network;

/* Latency: the median.  Goodput: the median, and never more than the bandwidth; without any, the
 * bandwidth; the deviation is that rank's.  Bandwidth: the median too, unless a rank whose own
 * error is small (at most a fifth) sees less than half of it, and does not think that it has risen:
 * collectives go at the pace of the slowest link, so the slowest such rank counts.  Errors are the
 * chosen rank's.  Zero, negative and non-finite values are left out; with nothing left the value is
 * 0.  With an even number of values the median is the lower middle for bandwidth and the upper for
 * latency: the one that costs more. */
void weir_network_reduce(const weir_header *headers, int ranks, weir_network *network);

#endif

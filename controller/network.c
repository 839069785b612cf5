#include "controller/network.h"

#include <math.h>
#include <stddef.h>

static const double sure = 0.2;   /* an outlier must be this sure of itself */
static const double slower = 0.5; /* and see less than this share of the median */

static bool counts(double value) { return isfinite(value) && value > 0.0; }

/* The rank whose value has exactly `below` smaller ones (ties by rank), by counting: no memory, and
 * ranks are few. */
static int nth(const weir_note *notes, int ranks, double (*value)(const weir_note *), int below) {
  for (int r = 0; r < ranks; r++) {
    const double mine = value(&notes[r]);
    if (!counts(mine)) continue;
    int smaller = 0;
    for (int o = 0; o < ranks; o++) {
      const double other = value(&notes[o]);
      if (counts(other) && (other < mine || (other == mine && o < r))) smaller++;
    }
    if (smaller == below) return r;
  }
  return -1;
}

static double latency_of(const weir_note *note) { return note->latency_s; }
static double bandwidth_of(const weir_note *note) { return note->bandwidth; }
static double goodput_of(const weir_note *note) { return note->goodput; }

static double error_of(double error) { return counts(error) ? error : 0.0; }

static int number(const weir_note *notes, int ranks, double (*value)(const weir_note *)) {
  int n = 0;
  for (int r = 0; r < ranks; r++) n += counts(value(&notes[r]));
  return n;
}

void weir_network_reduce(const weir_note *notes, int ranks, weir_network *network) {
  *network = (weir_network){0};
  const int latencies = number(notes, ranks, latency_of);
  const int bandwidths = number(notes, ranks, bandwidth_of);
  const int latency = nth(notes, ranks, latency_of, latencies / 2);
  int bandwidth = nth(notes, ranks, bandwidth_of, (bandwidths - 1) / 2);
  if (bandwidth >= 0) {
    const double median = notes[bandwidth].bandwidth;
    for (int r = 0; r < ranks; r++)
      if (counts(notes[r].bandwidth) && error_of(notes[r].bandwidth_error) <= sure &&
          !(notes[r].flags & WEIR_NOTE_RISEN) && notes[r].bandwidth < slower * median &&
          notes[r].bandwidth < notes[bandwidth].bandwidth)
        bandwidth = r;
    network->bandwidth = notes[bandwidth].bandwidth;
    network->bandwidth_error = error_of(notes[bandwidth].bandwidth_error);
  }
  if (latency >= 0) {
    network->latency = notes[latency].latency_s;
    network->latency_error = error_of(notes[latency].latency_error);
  }
  const int goodput = nth(notes, ranks, goodput_of, (number(notes, ranks, goodput_of) - 1) / 2);
  network->goodput = network->bandwidth;
  network->goodput_error = network->bandwidth_error;
  if (goodput >= 0 && notes[goodput].goodput < network->bandwidth) {
    network->goodput = notes[goodput].goodput;
    network->goodput_error = error_of(notes[goodput].goodput_error);
    network->deviation = error_of((double)notes[goodput].deviation);
  }
  for (int r = 0; r < ranks; r++) {
    network->changed |= (notes[r].flags & WEIR_NOTE_NETWORK_CHANGED) != 0;
    network->suspects += (notes[r].flags & WEIR_NOTE_SUSPECT) != 0;
    network->risen += (notes[r].flags & WEIR_NOTE_RISEN) != 0;
    network->stale += (notes[r].flags & WEIR_NOTE_STALE) != 0;
  }
}

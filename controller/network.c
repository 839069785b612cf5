#include "controller/network.h"

#include <math.h>
#include <stddef.h>

#include "engine/notes.h"

static const double sure = 0.2;   /* an outlier must be this sure of itself */
static const double slower = 0.5; /* and see less than this share of the median */

static double error_of(double error) { return weir_note_known(error) ? error : 0.0; }

void weir_network_reduce(const weir_note *notes, int ranks, weir_network *network) {
  *network = (weir_network){0};
  const int latencies = weir_notes_knowing(notes, ranks, weir_note_latency);
  const int bandwidths = weir_notes_knowing(notes, ranks, weir_note_bandwidth);
  const int latency = weir_notes_nth(notes, ranks, weir_note_latency, latencies / 2);
  int bandwidth = weir_notes_nth(notes, ranks, weir_note_bandwidth, (bandwidths - 1) / 2);
  if (bandwidth >= 0) {
    const double median = notes[bandwidth].bandwidth;
    for (int r = 0; r < ranks; r++)
      if (weir_note_known(notes[r].bandwidth) && error_of(notes[r].bandwidth_error) <= sure &&
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
  const int goodput = weir_notes_nth(notes, ranks, weir_note_goodput,
                                     (weir_notes_knowing(notes, ranks, weir_note_goodput) - 1) / 2);
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

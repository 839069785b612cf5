/* Places among the ranks of what their notes say. */
#include "engine/notes.h"

#include <math.h>

double weir_note_latency(const weir_note *note) { return note->latency_s; }
double weir_note_bandwidth(const weir_note *note) { return note->bandwidth; }
double weir_note_goodput(const weir_note *note) { return note->goodput; }
double weir_note_deviation(const weir_note *note) { return (double)note->deviation; }

bool weir_note_known(double value) { return isfinite(value) && value > 0.0; }

int weir_notes_knowing(const weir_note *notes, int ranks, weir_note_value *value) {
  int known = 0;
  for (int r = 0; r < ranks; r++) known += weir_note_known(value(&notes[r]));
  return known;
}

int weir_notes_nth(const weir_note *notes, int ranks, weir_note_value *value, int below) {
  for (int r = 0; r < ranks; r++) {
    const double mine = value(&notes[r]);
    if (!weir_note_known(mine)) continue;
    int smaller = 0;
    for (int o = 0; o < ranks; o++) {
      const double other = value(&notes[o]);
      if (weir_note_known(other) && (other < mine || (other == mine && o < r))) smaller++;
    }
    if (smaller == below) return r;
  }
  return -1;
}

/* What the ranks' notes say of the network: each value's median and the like, over the ranks that
 * know it.  Ranks are few, so that places are found by counting, without memory. */
#ifndef WEIR_ENGINE_NOTES_H
#define WEIR_ENGINE_NOTES_H

#include "engine/engine.h"

typedef double weir_note_value(const weir_note *note);
double weir_note_latency(const weir_note *note);
double weir_note_bandwidth(const weir_note *note);
double weir_note_goodput(const weir_note *note);
double weir_note_deviation(const weir_note *note);

/* Is it one: finite, and above 0? */
bool weir_note_known(double value);
/* How many ranks know it. */
int weir_notes_knowing(const weir_note *notes, int ranks, weir_note_value *value);
/* The rank whose value has exactly `below` smaller ones, or as large ones of lower ranks, among
 * those who know it; -1: none. */
int weir_notes_nth(const weir_note *notes, int ranks, weir_note_value *value, int below);

#endif

/* What the ranks' headers say of the network: each value's median and the like, over the ranks that
 * know it.  Ranks are few, so that places are found by counting, without memory. */
#ifndef WEIR_ENGINE_HEADERS_H
#define WEIR_ENGINE_HEADERS_H

#include "engine/engine.h"

typedef double weir_header_value(const weir_header *header);
double weir_header_latency(const weir_header *header);
double weir_header_bandwidth(const weir_header *header);
double weir_header_goodput(const weir_header *header);
double weir_header_deviation(const weir_header *header);

/* Is it one: finite, and above 0? */
bool weir_header_known(double value);
/* How many ranks know it. */
int weir_headers_knowing(const weir_header *headers, int ranks, weir_header_value *value);
/* The rank whose value has exactly `below` smaller ones, or as large ones of lower ranks, among
 * those who know it; -1: none. */
int weir_headers_nth(const weir_header *headers, int ranks, weir_header_value *value, int below);

#endif

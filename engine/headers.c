/* Places among the ranks of what their headers say. */
#include "engine/headers.h"

#include <math.h>

double weir_header_latency(const weir_header *header) { return header->latency_s; }
double weir_header_bandwidth(const weir_header *header) { return header->bandwidth; }
double weir_header_goodput(const weir_header *header) { return header->goodput; }
double weir_header_deviation(const weir_header *header) { return (double)header->deviation; }

bool weir_header_known(double value) { return isfinite(value) && value > 0.0; }

int weir_headers_knowing(const weir_header *headers, int ranks, weir_header_value *value) {
  int known = 0;
  for (int r = 0; r < ranks; r++) known += weir_header_known(value(&headers[r]));
  return known;
}

int weir_headers_nth(const weir_header *headers, int ranks, weir_header_value *value, int below) {
  for (int r = 0; r < ranks; r++) {
    const double mine = value(&headers[r]);
    if (!weir_header_known(mine)) continue;
    int smaller = 0;
    for (int o = 0; o < ranks; o++) {
      const double other = value(&headers[o]);
      if (weir_header_known(other) && (other < mine || (other == mine && o < r))) smaller++;
    }
    if (smaller == below) return r;
  }
  return -1;
}

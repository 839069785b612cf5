#include "controller/network.h"

#include "engine/headers.h"

static const double sure = 0.2;   /* an outlier must be this sure of itself */
static const double slower = 0.5; /* and see less than this share of the median */

static double error_of(double error) { return weir_header_known(error) ? error : 0.0; }

void weir_network_reduce(const weir_header *headers, int ranks, weir_network *network) {
  *network = (weir_network){0};
  const int latencies = weir_headers_knowing(headers, ranks, weir_header_latency);
  const int bandwidths = weir_headers_knowing(headers, ranks, weir_header_bandwidth);
  const int latency = weir_headers_nth(headers, ranks, weir_header_latency, latencies / 2);
  int bandwidth = weir_headers_nth(headers, ranks, weir_header_bandwidth, (bandwidths - 1) / 2);
  if (bandwidth >= 0) {
    const double median = headers[bandwidth].bandwidth;
    for (int r = 0; r < ranks; r++)
      if (weir_header_known(headers[r].bandwidth) && error_of(headers[r].bandwidth_error) <= sure &&
          !(headers[r].flags & WEIR_HEADER_RISEN) && headers[r].bandwidth < slower * median &&
          headers[r].bandwidth < headers[bandwidth].bandwidth)
        bandwidth = r;
    network->bandwidth = headers[bandwidth].bandwidth;
    network->bandwidth_error = error_of(headers[bandwidth].bandwidth_error);
  }
  if (latency >= 0) {
    network->latency = headers[latency].latency_s;
    network->latency_error = error_of(headers[latency].latency_error);
  }
  const int goodput =
      weir_headers_nth(headers, ranks, weir_header_goodput,
                       (weir_headers_knowing(headers, ranks, weir_header_goodput) - 1) / 2);
  network->goodput = network->bandwidth;
  network->goodput_error = network->bandwidth_error;
  if (goodput >= 0 && headers[goodput].goodput < network->bandwidth) {
    network->goodput = headers[goodput].goodput;
    network->goodput_error = error_of(headers[goodput].goodput_error);
    network->deviation = error_of((double)headers[goodput].deviation);
  }
  for (int r = 0; r < ranks; r++) {
    network->changed |= (headers[r].flags & WEIR_HEADER_NETWORK_CHANGED) != 0;
    network->suspects += (headers[r].flags & WEIR_HEADER_SUSPECT) != 0;
    network->risen += (headers[r].flags & WEIR_HEADER_RISEN) != 0;
    network->stale += (headers[r].flags & WEIR_HEADER_STALE) != 0;
  }
}

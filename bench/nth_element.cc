/* std::nth_element as a peer of the top-k selections: the k-th largest magnitude of n floats. */
#include <algorithm>
#include <cmath>
#include <cstddef>

extern "C" float weir_peer_nth_element(float *x, std::size_t n, std::size_t k) {
  std::nth_element(x, x + (k - 1), x + n,
                   [](float a, float b) { return std::fabs(a) > std::fabs(b); });
  return std::fabs(x[k - 1]);
}

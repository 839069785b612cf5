/* What ranks lose by waiting for each other where messages take times that differ, as over links
 * that lose packets.
 *
 * In every round rank i goes on with a message of another rank j once both have come so far:
 * T_i' = max(T_i, T_j) + X, X of mean m and deviation s, independent.  A round then takes longer
 * than m, as more often than not the later of the two decides.  Take the T for Gaussian, as Clark
 * does ("The Greatest of a Finite Set of Random Variables", Operations Research 9, 1961): the
 * greater of two with equal means, variances c_0 and covariance c_1 has a mean larger by
 * sqrt(D_1 / pi), D_d = c_0 - c_d, its variance is c_0 - D_1 / pi, and its covariances are means of
 * theirs.  Around a ring, j = i - 1, ranks d apart have
 *
 *   D_d' = (D_{d-1} + 2 D_d + D_{d+1}) / 4 - D_1 / pi + s^2,   D_0 = D_n = 0,
 *
 * which stands still where D is a parabola, D_1 = 2 (n - 1) s^2 / (1 + 2 (n - 1) / pi).  So a round
 * takes m + s sqrt(2 (n - 1) / (pi + 2 (n - 1))).  With other partners every round nearly the same
 * comes out.  Steps follow one another without a rest, so this is what each of their rounds takes.
 *
 * Losses make the variance of a message's time grow with its bytes: s is the deviation of a byte's
 * times the root of a message's bytes, taken as equal in all rounds. */
#include <math.h>

#include "collectives/cost.h"

double weir_cost_spread(int n, double rounds, double bytes) {
  static const double pi = 3.14159265358979323846;
  const double others = n - 1.0;
  return n > 1 ? sqrt(2.0 * others / (pi + 2.0 * others) * rounds * bytes) : 0.0;
}

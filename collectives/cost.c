#include "collectives/cost.h"

#include <math.h>

#include "kernels/codec.h"

/* Rounds of a binomial tree, and of Bruck's all-gather, over n ranks: ceil(log2 n). */
static int rounds(int n) {
  int r = 0;
  while (r < 31 && (INT64_C(1) << r) < n) r++;
  return r;
}

/* --- the paper's rows: Table I, equations 4a and 4b ------------------------------------------- */

double weir_cost_paper_star(int n, double alpha, double beta, double bytes) {
  if (n <= 1) return 0.0;
  return 2.0 * alpha + 2.0 * (n - 1) * bytes * beta;
}

double weir_cost_paper_ring(int n, double alpha, double beta, double bytes) {
  if (n <= 1) return 0.0;
  return 2.0 * (n - 1) * alpha + 2.0 * (n - 1) / n * bytes * beta;
}

double weir_cost_paper_tree(int n, double alpha, double beta, double bytes) {
  return 2.0 * rounds(n) * (alpha + bytes * beta);
}

double weir_cost_paper_broadcast(int n, double alpha, double beta, double bytes) {
  return rounds(n) * (alpha + bytes * beta);
}

double weir_cost_paper_allgather(int n, double alpha, double beta, double bytes) {
  if (n <= 1) return 0.0;
  return rounds(n) * alpha + (n - 1.0) * bytes * beta;
}

double weir_cost_paper(uint32_t collective, int n, double alpha, double beta, double bytes,
                       double cr) {
  const double kept = bytes * cr; /* bytes of the kept values; their indices take as many again */
  switch (collective) {
    case WEIR_COLL_DENSE_RING: return weir_cost_paper_ring(n, alpha, beta, bytes);
    case WEIR_COLL_DENSE_TREE: return weir_cost_paper_tree(n, alpha, beta, bytes);
    case WEIR_COLL_AG: return weir_cost_paper_allgather(n, alpha, beta, 2.0 * kept);
    case WEIR_COLL_ART_RING:
      return weir_cost_paper_broadcast(n, alpha, beta, kept) +
             weir_cost_paper_ring(n, alpha, beta, kept);
    case WEIR_COLL_ART_TREE:
      return weir_cost_paper_broadcast(n, alpha, beta, kept) +
             weir_cost_paper_tree(n, alpha, beta, kept);
    default: return INFINITY; /* never the cheapest */
  }
}

/* --- Weir's own algorithms, in true wire bytes ------------------------------------------------ */

/* Reduce-scatter and all-gather around the ring: 2(N-1) messages of a 1/N share each. */
static weir_cost_terms ring(int n, double bytes) {
  return (weir_cost_terms){2.0 * (n - 1), 2.0 * (n - 1) / n * bytes};
}

/* Binomial reduce and binomial broadcast: everything crosses 2L links one after the other. */
static weir_cost_terms tree(int n, double bytes) {
  return (weir_cost_terms){2.0 * rounds(n), 2.0 * rounds(n) * bytes};
}

weir_cost_terms weir_cost_plan(const weir_plan *plan, int n, size_t elements, size_t kept) {
  weir_cost_terms t = {0.0, 0.0};
  if (n <= 1) return t;
  const int levels = rounds(n);
  const weir_wire_format format = (weir_wire_format)plan->wire;
  const double dense_bytes = (plan->codec == WEIR_CODEC_BF16 ? 2.0 : 4.0) * (double)elements;
  const double value_bytes = (format == WEIR_WIRE_AUTO_BF16 ? 2.0 : 4.0) * (double)kept;
  switch (plan->collective) {
    case WEIR_COLL_DENSE_RING: return ring(n, dense_bytes);
    case WEIR_COLL_DENSE_TREE: return tree(n, dense_bytes);
    case WEIR_COLL_AG:
      t.alpha_terms = levels;
      t.byte_terms = (n - 1) * (weir_codec_find(plan->codec)->encode != NULL
                                    ? (double)kept /* bytes already */
                                    : weir_wire_expected(elements, kept, format, true));
      return t;
    case WEIR_COLL_ART_RING:
    case WEIR_COLL_ART_TREE:
      t = plan->collective == WEIR_COLL_ART_RING ? ring(n, value_bytes) : tree(n, value_bytes);
      if (plan->codec == WEIR_CODEC_RANDOMK) return t; /* no indices travel */
      t.alpha_terms += levels;
      t.byte_terms += levels * weir_wire_expected(elements, kept, format, false);
      /* The variances are gathered before the root is known: one more round of small messages,
       * whose few bytes vanish beside their latency. */
      if (plan->codec == WEIR_CODEC_VAR) t.alpha_terms += levels;
      return t;
    default: return (weir_cost_terms){INFINITY, INFINITY}; /* never the cheapest */
  }
}

double weir_cost_seconds(const weir_cost_terms *terms, double alpha, double beta) {
  return terms->alpha_terms * alpha + terms->byte_terms * beta;
}

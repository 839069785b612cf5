/* What a plan costs: the collectives that its exchange consists of, one after the other. */
#include <math.h>

#include "collectives/collective.h"
#include "collectives/cost.h"
#include "kernels/codec.h"

/* Which all-reduce a collective contains. */
static const struct {
  bool art;
  uint32_t allreduce;
} ways[WEIR_COLL_COUNT] = {
    [WEIR_COLL_DENSE_RING] = {false, WEIR_ALLREDUCE_RING},
    [WEIR_COLL_DENSE_TREE] = {false, WEIR_ALLREDUCE_TREE},
    [WEIR_COLL_DENSE_HALVING] = {false, WEIR_ALLREDUCE_HALVING},
    [WEIR_COLL_DENSE_DOUBLE_TREE] = {false, WEIR_ALLREDUCE_DOUBLE_TREE},
    [WEIR_COLL_DENSE_TORUS] = {false, WEIR_ALLREDUCE_TORUS},
    [WEIR_COLL_DENSE_STAR] = {false, WEIR_ALLREDUCE_STAR},
    [WEIR_COLL_AG] = {false, WEIR_ALLREDUCE_COUNT},
    [WEIR_COLL_ART_RING] = {true, WEIR_ALLREDUCE_RING},
    [WEIR_COLL_ART_TREE] = {true, WEIR_ALLREDUCE_TREE},
    [WEIR_COLL_ART_HALVING] = {true, WEIR_ALLREDUCE_HALVING},
    [WEIR_COLL_ART_DOUBLE_TREE] = {true, WEIR_ALLREDUCE_DOUBLE_TREE},
    [WEIR_COLL_ART_TORUS] = {true, WEIR_ALLREDUCE_TORUS},
    [WEIR_COLL_ART_STAR] = {true, WEIR_ALLREDUCE_STAR},
};

typedef struct part {
  weir_kind kind;
  uint32_t row;
  double bytes;
} part;
enum { PARTS = 3 };

/* How many; -1: the plan names no collective there is. */
static int parts_of(const weir_plan *plan, size_t elements, size_t kept, part out[PARTS]) {
  if (plan->collective >= WEIR_COLL_COUNT) return -1;
  const weir_wire_format format = (weir_wire_format)plan->wire;
  const uint32_t row = ways[plan->collective].allreduce;
  int count = 0;
  if (plan->collective == WEIR_COLL_AG) {
    const bool encoder = weir_codec_find(plan->codec)->encode != NULL; /* kept: bytes already */
    const double message =
        encoder ? (double)kept : weir_wire_expected(elements, kept, format, true);
    out[count++] = (part){WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_BRUCK, message};
  } else if (plan->codec == WEIR_CODEC_POWERSGD) { /* two sums of `kept` floats in all */
    out[count++] = (part){WEIR_KIND_ALLREDUCE, row, 2.0 * (double)kept};
    out[count++] = out[0];
  } else if (!ways[plan->collective].art) {
    const double width = plan->codec == WEIR_CODEC_BF16 ? 2.0 : 4.0;
    out[count++] = (part){WEIR_KIND_ALLREDUCE, row, width * (double)elements};
  } else {
    const double width = format >= WEIR_WIRE_AUTO_BF16 ? 2.0 : 4.0;
    out[count++] = (part){WEIR_KIND_ALLREDUCE, row, width * (double)kept};
    if (plan->codec != WEIR_CODEC_RANDOMK) /* which sends no indices */
      out[count++] = (part){WEIR_KIND_BROADCAST, WEIR_BROADCAST_BINOMIAL,
                            weir_wire_expected(elements, kept, format, false)};
    /* The variances are gathered before the root is known: small messages, whose few bytes vanish
     * beside their latency. */
    if (plan->codec == WEIR_CODEC_VAR)
      out[count++] = (part){WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_BRUCK, 0.0};
  }
  return count;
}

static weir_cost_terms terms_of(const part *p, int n) {
  switch (p->kind) {
    case WEIR_KIND_BROADCAST: return weir_cost_broadcast(p->row, n, p->bytes);
    case WEIR_KIND_ALLGATHER: return weir_cost_allgather(p->row, n, p->bytes);
    default: return weir_cost_allreduce(p->row, n, p->bytes);
  }
}

weir_cost_terms weir_cost_plan(const weir_plan *plan, int n, size_t elements, size_t kept) {
  weir_cost_terms sum = {0.0, 0.0};
  part parts[PARTS];
  if (n <= 1) return sum;
  const int count = parts_of(plan, elements, kept, parts);
  if (count < 0) return (weir_cost_terms){INFINITY, INFINITY}; /* never the cheapest */
  for (int i = 0; i < count; i++) {
    const weir_cost_terms terms = terms_of(&parts[i], n);
    sum.alpha_terms += terms.alpha_terms;
    sum.byte_terms += terms.byte_terms;
  }
  return sum;
}

double weir_cost_plan_predict(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                              size_t elements, size_t kept) {
  double seconds = 0.0;
  part parts[PARTS];
  if (shape.ranks <= 1) return 0.0;
  const int count = parts_of(plan, elements, kept, parts);
  if (count < 0) return INFINITY;
  for (int i = 0; i < count; i++) {
    const weir_cost cost =
        weir_cost_row(parts[i].kind, parts[i].row, shape, link, parts[i].bytes);
    seconds += weir_cost_predict(&cost, link);
  }
  return seconds;
}

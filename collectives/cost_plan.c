/* What processors add to a plan: the collectives that its exchange consists of, one after the
 * other. */
#include <math.h>

#include "base/ways.h"
#include "collectives/collective.h"
#include "collectives/cost.h"
#include "kernels/codec.h"
#include "kernels/powersgd.h"

size_t weir_cost_kept(const weir_plan *plan, size_t elements) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  const size_t offset[2] = {0, elements};
  const weir_layout layout = {1, offset};
  if (codec == NULL || elements == 0) return 0;
  if (codec->encode != NULL) return codec->bound(&layout, plan->cr);
  if (!codec->low_rank) return codec->kept(&layout, plan->cr);
  const size_t rank = weir_powersgd_rank(plan->cr), rows = (size_t)sqrt((double)elements);
  const size_t columns = (elements + rows - 1) / rows;
  return weir_powersgd_thins(rows, rows * columns, rank) ? rank * (rows + columns) : elements;
}

typedef struct part {
  weir_kind kind;
  uint32_t row;
  double bytes;
} part;
enum { PARTS = 3 };

static int summed(const weir_plan *plan, size_t elements, size_t kept, part out[PARTS]) {
  const weir_way_row *way = &weir_ways[plan->collective];
  const weir_wire_format format = (weir_wire_format)plan->wire;
  const weir_allreduce *row = weir_allreduce_find(way->algorithm);
  int count = 0;
  if (row == NULL) return 0;
  if (plan->codec == WEIR_CODEC_POWERSGD) { /* two sums of `kept` floats in all */
    out[count++] = (part){WEIR_KIND_ALLREDUCE, row->id, 2.0 * (double)kept};
    out[count++] = out[0];
  } else if (way->way == WEIR_WAY_DENSE) {
    const double width = plan->codec == WEIR_CODEC_BF16 ? 2.0 : 4.0;
    out[count++] = (part){WEIR_KIND_ALLREDUCE, row->id, width * (double)elements};
  } else {
    const double width = format >= WEIR_WIRE_AUTO_BF16 ? 2.0 : 4.0;
    out[count++] = (part){WEIR_KIND_ALLREDUCE, row->id, width * (double)kept};
    if (plan->codec != WEIR_CODEC_RANDOMK) /* which sends no indices */
      out[count++] = (part){WEIR_KIND_BROADCAST, WEIR_BROADCAST_BINOMIAL,
                            weir_wire_expected(elements, kept, format, false)};
    if (plan->codec == WEIR_CODEC_VAR) /* its variances */
      out[count++] = (part){WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_BRUCK, sizeof(float)};
  }
  return count;
}

static int parts_of(const weir_plan *plan, size_t elements, size_t kept, part out[PARTS]) {
  if (plan->collective >= WEIR_COLL_COUNT) return 0;
  const weir_way way = weir_ways[plan->collective].way;
  if (way == WEIR_WAY_DENSE || way == WEIR_WAY_ART) return summed(plan, elements, kept, out);
  if (way != WEIR_WAY_AG) return 0;
  out[0] =
      (part){WEIR_KIND_ALLGATHER, WEIR_ALLGATHER_BRUCK, weir_cost_gathered(plan, elements, kept)};
  return 1;
}

double weir_cost_plan_processors(const weir_plan *plan, weir_group_shape shape,
                                 const weir_link *link, size_t elements, size_t kept) {
  const weir_link alone = {.alpha = link->alpha,
                           .beta = link->beta,
                           .duplex_beta = link->duplex_beta,
                           .inner_alpha = link->inner_alpha,
                           .inner_beta = link->inner_beta,
                           .burst = link->burst,
                           .deviation = link->deviation};
  double seconds = 0.0;
  part parts[PARTS];
  const int count = shape.ranks > 1 ? parts_of(plan, elements, kept, parts) : 0;
  for (int i = 0; i < count; i++) {
    const weir_cost cost = weir_cost_row(parts[i].kind, parts[i].row, shape, link, parts[i].bytes);
    seconds += weir_cost_predict(&cost, link) - weir_cost_predict(&cost, &alone);
  }
  return seconds;
}

double weir_cost_plan_seconds(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                              size_t elements, size_t kept, weir_cost_terms *terms) {
  const weir_cost_terms due = weir_cost_plan_between(plan, shape, elements, kept);
  if (terms != NULL) *terms = due;
  return weir_cost_links(&due, link) + weir_cost_plan_processors(plan, shape, link, elements, kept);
}

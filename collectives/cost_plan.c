/* What a plan costs: the collectives that its exchange consists of, one after the other. */
#include <math.h>

#include "base/schemes.h"
#include "collectives/compressed.h"
#include "collectives/cost.h"
#include "collectives/path.h"
#include "kernels/codec.h"
#include "kernels/powersgd.h"

size_t weir_cost_kept(const weir_plan *plan, size_t elements) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  const size_t offset[2] = {0, elements};
  const weir_layout layout = {1, offset};
  if (codec == NULL || elements == 0) return 0;
  if (codec->encode != NULL) return weir_plan_bound(plan, &layout);
  if (!codec->low_rank) return codec->kept(&layout, plan->cr);
  const size_t rank = weir_powersgd_rank(plan->cr), rows = (size_t)sqrt((double)elements);
  const size_t columns = (elements + rows - 1) / rows;
  return weir_powersgd_thins(rows, rows * columns, rank) ? rank * (rows + columns) : elements;
}

/* --- what a plan's exchange consists of ------------------------------------------------------- */

typedef struct part {
  weir_kind kind;
  uint32_t row;
  bool levels; /* an all-reduce on two levels */
  weir_hier_choice choice;
  double bytes;
} part;
enum { PARTS = 3 };

static part sum_part(const weir_sum *sum, double bytes) {
  return (part){.kind = WEIR_KIND_ALLREDUCE,
                .row = sum->choice.between,
                .levels = sum->row == NULL,
                .choice = sum->choice,
                .bytes = bytes};
}

/* Values by an all-reduce; where one rank's indices are taken, their broadcast before. */
static int summed(const weir_plan *plan, size_t elements, size_t kept, part out[PARTS]) {
  const weir_wire_format format = (weir_wire_format)plan->wire;
  const double width = format >= WEIR_WIRE_AUTO_BF16 ? 2.0 : 4.0; /* of values that are chosen */
  weir_sum sum;
  int count = 0;
  if (plan->scheme >= WEIR_SCHEME_COUNT || !weir_sum_of(plan, &sum)) return 0;
  if (plan->scheme == WEIR_SCHEME_LOW_RANK && kept < elements) { /* `kept` values in all */
    const bool at_once = weir_codecs[plan->codec]->at_once;
    out[count++] = sum_part(&sum, (at_once ? 1.0 : 0.5) * width * (double)kept);
    if (!at_once) out[count++] = out[0];
  } else if (plan->scheme == WEIR_SCHEME_DENSE || plan->scheme == WEIR_SCHEME_LOW_RANK) {
    out[count++] =
        sum_part(&sum, (weir_codecs[plan->codec]->rounds ? 2.0 : 4.0) * (double)elements);
  } else {
    out[count++] = sum_part(&sum, width * (double)kept);
    if (weir_codecs[plan->codec]->draw == NULL) /* which sends no indices */
      out[count++] = (part){.kind = WEIR_KIND_BROADCAST,
                            .row = weir_list_broadcast(plan),
                            .bytes = weir_wire_expected(elements, kept, format, false)};
    if (weir_codecs[plan->codec]->by_variance) /* its variances, before the root is known */
      out[count++] =
          (part){.kind = WEIR_KIND_ALLGATHER, .row = WEIR_ALLGATHER_DIRECT, .bytes = sizeof(float)};
  }
  return count;
}

static int parts_of(const weir_plan *plan, size_t elements, size_t kept, part out[PARTS]) {
  const weir_plan named = weir_plan_usual(plan);
  if (plan->scheme != WEIR_SCHEME_GATHER) return summed(&named, elements, kept, out);
  out[0] = (part){.kind = WEIR_KIND_ALLGATHER,
                  .row = weir_gather_row_of(&named),
                  .bytes = weir_cost_gathered(plan, elements, kept)};
  return 1;
}

static weir_cost part_cost(const part *p, weir_group_shape shape, const weir_link *link) {
  if (p->levels) return weir_cost_hier(&p->choice, shape, link, p->bytes);
  weir_cost cost = weir_cost_row(p->kind, p->row, shape, link, p->bytes);
  if (p->kind == WEIR_KIND_BROADCAST && shape.hosts > 1) /* of a list, whose root changes */
    cost.outer = weir_cost_lists(p->row, shape, link, p->bytes);
  return cost;
}

/* --- links ------------------------------------------------------------------------------------ */

static const weir_cost_terms unknown = {INFINITY, INFINITY, 0.0};

/* On the links of the only machine, where there is no other. */
static weir_cost_terms part_terms(const part *p, weir_group_shape shape, const weir_link *link) {
  const weir_cost cost = part_cost(p, shape, link);
  return shape.hosts == 1 ? cost.inner : cost.outer;
}

static weir_cost_terms hitopk(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                              size_t elements) {
  if (shape.hosts == 1) shape.hosts = shape.ranks; /* it is not run there */
  return weir_cost_hitopk(shape, link, elements, plan->cr, (weir_wire_format)plan->wire).outer;
}

static weir_cost_terms compressed(const weir_plan *plan, weir_group_shape shape,
                                  const weir_link *link, size_t elements, size_t kept) {
  const weir_plan named = weir_plan_usual(plan);
  const weir_compressed_row *row = weir_compressed_of(&named);
  const weir_coder coder = {
      .codec = weir_codec_find(plan->codec), .cr = plan->cr, .bucket_log2 = plan->bucket_log2};
  if (row == NULL || coder.codec == NULL || coder.codec->bound == NULL) return unknown;
  return weir_cost_compressed_between(row->id, shape, link, &coder, elements, (double)kept);
}

/* Low rank whose sums are of messages, of so many values in all. */
static weir_cost_terms encoded_factors(const weir_plan *plan, weir_group_shape shape,
                                       const weir_link *link, size_t kept) {
  const weir_coder coder = weir_factor_coder(plan);
  const size_t sums = weir_codecs[plan->codec]->at_once ? 1 : 2, each = (kept + sums - 1) / sums;
  const weir_cost_terms one =
      weir_cost_compressed_between(weir_compressed_of(plan)->id, shape, link, &coder, each,
                                   (double)weir_coder_bound(&coder, each));
  const double times = (double)sums;
  return (weir_cost_terms){times * one.alpha_terms, times * one.byte_terms,
                           times * one.spread_terms};
}

/* HiTopKComm in a group that is known to have no two levels of equal machines, where each rank's
 * selection travels as it is (engine/schemes.c). */
static weir_plan run_as(const weir_plan *plan, weir_group_shape shape) {
  const bool levels = shape.hosts < shape.ranks && weir_shape_even(shape);
  weir_plan run = *plan;
  if (plan->scheme == WEIR_SCHEME_HITOPK && shape.largest > 0 && !levels)
    run.scheme = WEIR_SCHEME_GATHER;
  return run;
}

double weir_cost_gathered(const weir_plan *plan, size_t elements, size_t kept) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  if (plan->scheme != WEIR_SCHEME_GATHER) return 0.0;
  return codec->encode != NULL
             ? (double)kept
             : weir_wire_expected(elements, kept, (weir_wire_format)plan->wire, true);
}

weir_cost_terms weir_cost_plan_between(const weir_plan *asked, weir_group_shape shape,
                                       const weir_link *on, size_t elements, size_t kept) {
  const weir_plan run = run_as(asked, shape), *const plan = &run;
  const weir_link bare = on != NULL ? (weir_link){.alpha = on->alpha, .beta = on->beta}
                                    : (weir_link){.alpha = 0.0},
                  *const link = on != NULL ? &bare : NULL; /* bytes are all that travel */
  weir_cost_terms all = {0.0, 0.0, 0.0};
  part parts[PARTS];
  if (shape.ranks <= 1) return all;
  if (plan->scheme == WEIR_SCHEME_COMPRESSED) return compressed(plan, shape, link, elements, kept);
  if (weir_factors_encoded(plan)) return encoded_factors(plan, shape, link, kept);
  if (plan->scheme == WEIR_SCHEME_HITOPK) return hitopk(plan, shape, link, elements);
  if (plan->scheme == WEIR_SCHEME_PATH) return weir_cost_path(plan, shape, link, elements);
  const int count = parts_of(plan, elements, kept, parts);
  for (int i = 0; i < count; i++) {
    const weir_cost_terms one = part_terms(&parts[i], shape, link);
    all.alpha_terms += one.alpha_terms;
    all.byte_terms += one.byte_terms;
    all.spread_terms += one.spread_terms;
  }
  return count > 0 ? all : unknown; /* never the cheapest */
}

weir_cost_terms weir_cost_plan(const weir_plan *plan, int n, size_t elements, size_t kept) {
  const weir_group_shape apart = {.ranks = n, .hosts = n};
  return weir_cost_plan_between(plan, apart, NULL, elements, kept);
}

/* --- processors, and links inside of machines ------------------------------------------------- */

/* HiTopKComm, or a path. */
static double inside_of(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                        size_t elements) {
  const weir_cost_terms inside =
      plan->scheme == WEIR_SCHEME_PATH
          ? weir_cost_path_inside(plan, shape, elements)
          : weir_cost_hitopk(shape, link, elements, plan->cr, (weir_wire_format)plan->wire).inner;
  return weir_cost_seconds(&inside, link->inner_alpha, link->inner_beta);
}

double weir_cost_plan_processors(const weir_plan *asked, weir_group_shape shape,
                                 const weir_link *link, size_t elements, size_t kept) {
  const weir_plan run = run_as(asked, shape), *const plan = &run;
  weir_link all = *link, alone = {.alpha = link->alpha,
                                  .beta = link->beta,
                                  .duplex_beta = link->duplex_beta,
                                  .burst = link->burst,
                                  .deviation = link->deviation};
  if (shape.hosts == 1) { /* its own links are those that are known */
    all.inner_alpha = alone.inner_alpha = link->alpha;
    all.inner_beta = alone.inner_beta = link->beta;
  }
  double seconds = 0.0;
  part parts[PARTS];
  if ((plan->scheme == WEIR_SCHEME_HITOPK || plan->scheme == WEIR_SCHEME_PATH) && shape.hosts > 1)
    return inside_of(plan, shape, link, elements);
  const bool coded = plan->scheme == WEIR_SCHEME_COMPRESSED || plan->scheme == WEIR_SCHEME_HITOPK ||
                     plan->scheme == WEIR_SCHEME_PATH || weir_factors_encoded(plan);
  const int count = shape.ranks > 1 && !coded ? parts_of(plan, elements, kept, parts) : 0;
  for (int i = 0; i < count; i++) {
    const weir_cost cost = part_cost(&parts[i], shape, link);
    seconds += weir_cost_predict(&cost, &all) - weir_cost_predict(&cost, &alone);
  }
  return seconds;
}

double weir_cost_plan_seconds(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                              size_t elements, size_t kept, weir_cost_terms *terms) {
  const weir_cost_terms due = weir_cost_plan_between(plan, shape, link, elements, kept);
  if (terms != NULL) *terms = due;
  return weir_cost_links(&due, link) + weir_cost_plan_processors(plan, shape, link, elements, kept);
}

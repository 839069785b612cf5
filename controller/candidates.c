/* The model: what a plan costs and brings, from what was measured. */
#include <math.h>

#include "base/schemes.h"
#include "collectives/compressed.h"
#include "collectives/path.h"
#include "collectives/select.h"
#include "controller/decide.h"
#include "engine/memory.h"
#include "kernels/number.h"
#include "kernels/powersgd.h"

const weir_decision_constants weir_constants = {
    .progress_exponent = 0.3,
    .shared_progress = 0.6,
    .cr_low = 0.001,
    .cr_high = 1.0,
    .paper_cr_low = 0.001,
    .paper_cr_high = 0.1,
    .change = 0.10,
    .hysteresis = 0.05,
    .hysteresis_changed = 0.02,
    .spare = 0.01,
    .dwell = 3,
    .period = 50,
    .overlap_prior = 0.6,
};

bool weir_one_selects(uint32_t codec) {
  return weir_codecs[codec]->shared_indices && weir_codecs[codec]->draw == NULL;
}

/* Between the ranks that are known it grows with the rank but for tensors that change over from
 * being sent whole. */
size_t weir_plan_kept(const double *low_rank, const weir_plan *plan, uint64_t elements) {
  if (!weir_codecs[plan->codec]->low_rank || !(low_rank[0] > 0.0))
    return weir_cost_kept(plan, elements);
  const size_t rank = weir_powersgd_rank(plan->cr);
  size_t i = 0;
  while (i + 2 < WEIR_LOW_RANKS && rank > (size_t)2 << i) i++;
  const double share = (double)rank / (double)((size_t)1 << i) - 1.0;
  return (size_t)(low_rank[i] + share * (low_rank[i + 1] - low_rank[i]));
}

size_t weir_plan_touched(const weir_plan *plan, size_t kept, double nonzero, double runs) {
  return (size_t)((double)kept * weir_nonzero_share(nonzero, runs, plan->cr));
}

static size_t sends(const weir_decision_input *in, const weir_plan *plan) {
  const size_t kept = weir_plan_kept(in->low_rank, plan, in->elements);
  return weir_plan_sparse(plan) && weir_sparse_known(in)
             ? weir_plan_touched(plan, kept, in->nonzero, in->runs)
             : kept;
}

bool weir_plan_fits(const weir_decision_input *in, const weir_plan *plan) {
  weir_memory_form form = weir_memory_form_of(weir_input_shape(in), 0);
  form.rooms_inside = in->rooms == WEIR_ROOMS_INSIDE;
  form.threads = in->threads != 0;
  const size_t kept = weir_plan_kept(in->low_rank, plan, in->elements);
  const double room = in->rooms != 0 ? weir_plan_room(plan, &form, in->elements, kept) : 0.0;
  return in->memory_limit <= 0.0 ||
         weir_plan_memory(plan, &form, in->elements, kept) + fmax(room, in->room_bytes) <=
             in->memory_limit;
}

/* The first arm takes the least memory, and there is always something to choose. */
bool weir_arm_runs(const weir_decision_input *in, size_t a) {
  const weir_arm *arm = weir_arm_at(a);
  const weir_plan least = weir_arm_plan(in, arm, log(weir_constants.cr_low));
  if (a > 0 && !weir_plan_fits(in, &least)) return false;
  /* Of a device's gradients paths are run by the host, which no row tells of. */
  if (in->devices != 0 &&
      (!weir_codecs[arm->plan.codec]->device || arm->plan.scheme == WEIR_SCHEME_PATH))
    return false;
  const bool machines = in->hosts > 1 && in->hosts < in->workers;
  return !arm->machines || machines;
}

/* Has the training come far enough for a safe arm's bits, and is known what they need? */
static bool is_ripe(const weir_decision_input *in, const weir_arm *arm) {
  static const double sixteen = 0.5;
  /* It makes an optimizer's steps a little shorter, and is sent for as long as fewer bits wait. */
  if (weir_codecs[arm->plan.codec]->whitened)
    return in->squares_known != 0 && in->settled == WEIR_UNSETTLED;
  return arm->settled <= in->settled && (in->untried == 0 || arm->plan.cr >= sixteen);
}

bool weir_arm_counts(const weir_decision_input *in, size_t a) {
  const weir_arm *arm = weir_arm_at(a);
  if (!weir_arm_runs(in, a)) return false;
  if (in->risk == WEIR_RISK_BOLD) return a < WEIR_BOLD_ARMS;
  if (weir_plan_sparse(&arm->plan) && !weir_sparse_known(in)) return false;
  return (arm->safe && is_ripe(in, arm)) ||
         (in->risk == WEIR_RISK_MEASURED && arm->method < WEIR_METHODS &&
          in->shown[arm->method] > 0.0);
}

weir_group_shape weir_input_shape(const weir_decision_input *in) {
  return (weir_group_shape){(int)in->workers, (int)(in->hosts > 0 ? in->hosts : in->workers),
                            in->told != 0, (int)in->largest, in->order};
}

weir_plan weir_plan_told(const weir_decision_input *in, const weir_plan *plan) {
  weir_plan told = *plan;
  if (in->told == 0 || plan->inside != 0 || plan->scheme == WEIR_SCHEME_PATH ||
      weir_sums_rounded(plan))
    return told;
  told.algorithm = weir_algorithm_told(plan->algorithm);
  return weir_collective_legal(&told) ? told : *plan;
}

double weir_progress(uint32_t codec, double gain) {
  const double held = gain < 1e-6 ? 1e-6 : gain > 1.0 ? 1.0 : gain;
  return (weir_one_selects(codec) ? weir_constants.shared_progress : 1.0) *
         pow(held, weir_constants.progress_exponent);
}

/* A plan in force may be one that does not count any more: of fewer bits than the training has come
 * far enough for, by the rule that is believed now, or of a gradient that is no longer sparse. */
double weir_plan_progress(const weir_decision_input *in, const weir_plan *plan, double gain) {
  const bool measured = in->policy == WEIR_POLICY_WEIR && in->risk != WEIR_RISK_BOLD;
  const size_t a = weir_arm_of(plan);
  const weir_arm *arm = a < WEIR_ARMS ? weir_arm_at(a) : NULL;
  if (arm != NULL && arm->safe) {
    const bool early = measured && !is_ripe(in, arm);
    return early || (weir_plan_sparse(plan) && !weir_sparse_known(in)) ? 0.0 : 1.0;
  }
  if (!measured) return weir_progress(plan->codec, gain);
  const size_t method = weir_method_of(plan);
  return method < WEIR_METHODS ? in->shown[method] : 0.0;
}

double weir_curve_gain(const double *curve_cr, const double *curve, double cr) {
  double high_cr = 1.0, high = 1.0;
  if (cr >= 1.0) return 1.0;
  for (size_t i = 0; i < WEIR_CURVE_POINTS; i++) {
    const double low = fmax(0.0, fmin(curve[i], high)); /* less kept never gains more */
    if (cr >= curve_cr[i]) {
      const double share = log(cr / curve_cr[i]) / log(high_cr / curve_cr[i]);
      return low + share * (high - low);
    }
    high_cr = curve_cr[i];
    high = low;
  }
  return high * cr / high_cr;
}

double weir_shared_gain(double overlap, double top, double cr) {
  return overlap * top + (1.0 - overlap) * fmin(cr, top);
}

double weir_overlap(double shared, double top, double cr) {
  const double floor_gain = fmin(cr, top);
  if (!(top - floor_gain > 1e-9)) return 1.0; /* everything is kept: nothing to tell apart */
  return fmin(1.0, fmax(0.0, (shared - floor_gain) / (top - floor_gain)));
}

double weir_messages_decoded(const weir_codec *codec, uint64_t workers) {
  return codec->dense || codec->shared_indices || codec->low_rank ? 1.0 : (double)workers;
}

double weir_compress_prior(uint32_t codec, uint64_t workers, uint64_t elements, double cr) {
  const weir_codec *of = weir_codec_find(codec);
  const weir_codec_prior *row = &of->prior;
  const double messages = weir_messages_decoded(of, workers);
  return row->fixed + row->per_element * (double)elements +
         messages * (row->per_decoded * (double)elements +
                     row->per_kept * (double)weir_kept_of(elements, cr));
}

static bool sums_messages(const weir_plan *plan) { return plan->scheme == WEIR_SCHEME_COMPRESSED; }

/* Do devices encode and decode the messages of such a sum themselves?  Else, as what is rounded
 * does, its elements go over the host (docs/internals/device.md). */
static bool sums_on_devices(const weir_plan *plan) {
  const weir_plan usual = weir_plan_usual(plan);
  const weir_compressed_row *row = weir_compressed_of(&usual);
  return row != NULL && row->id != WEIR_COMPRESSED_HIER_SRA && !weir_codecs[plan->codec]->by_tensor;
}

/* What is left of a sum of messages is kept as of rounding, in a pass over all elements: of a
 * device's own as long as other passes of the codec take there. */
static double keeping_s(const weir_plan *plan, uint64_t workers, uint64_t elements, bool devices,
                        const double *compress) {
  uint32_t rounding = 0;
  while (!weir_codecs[rounding]->rounds) rounding++;
  return compress[devices && sums_on_devices(plan) ? plan->codec : rounding] *
         weir_compress_prior(rounding, workers, elements, 1.0);
}

/* Every task of a path is charged what it has to do: encoding what a rank holds there, decoding the
 * messages that it holds, and a pass of keeping for what compressing a sum loses.  *first: what of
 * it comes before the first communication. */
static double path_coding(const weir_plan *plan, weir_group_shape shape, uint64_t elements,
                          const double *compress, double *first) {
  const double scale = compress[plan->codec];
  double seconds = 0.0;
  weir_path path;
  *first = 0.0;
  if (!weir_path_of(plan, &path)) return 0.0;
  weir_path_held held = weir_path_begins(shape, elements);
  for (size_t i = 0; i < path.count; i++) {
    const uint64_t n = held.elements, messages = held.messages;
    const double encode = scale * weir_compress_prior(plan->codec, 0, n, plan->cr);
    weir_path_advance(&path, i, shape, &held);
    if (path.step[i].task == WEIR_TASK_COMP)
      seconds += encode + (i > 0 ? keeping_s(plan, 0, n, false, compress) : 0.0);
    if (path.step[i].task == WEIR_TASK_COMP && i == 0) *first = encode;
    if (path.step[i].task == WEIR_TASK_DECOMP)
      seconds += scale * weir_compress_prior(plan->codec, messages, n, plan->cr) - encode;
  }
  return seconds;
}

/* How often each rank decodes as many elements as there are: of a sum its own part of it and all
 * sums, of messages that go to all every one. */
static uint64_t decoded(const weir_plan *plan, uint64_t workers) {
  return plan->scheme == WEIR_SCHEME_GATHER || weir_compressed_to_all(plan) ? workers : 2;
}

/* Each rank shortens what it encodes, and restores what it decodes. */
static double shortening_s(const weir_plan *plan, uint64_t workers, uint64_t elements,
                           double scale) {
  static const double shorten = 0.6e-9, restore = 0.5e-9; /* s an element, as priors are */
  const double restored = (double)decoded(plan, workers);
  return plan->wire == WEIR_WIRE_HUFFMAN ? scale * (double)elements * (shorten + restored * restore)
                                         : 0.0;
}

double weir_coding_in_hops(const weir_plan *plan, weir_group_shape shape, uint64_t elements,
                           bool devices, const double *compress) {
  double first = 0.0;
  if (plan->scheme == WEIR_SCHEME_PATH)
    return path_coding(plan, shape, elements, compress, &first) - first;
  if (weir_factors_encoded(plan)) {
    const weir_coder coder = weir_factor_coder(plan);
    const double scale = devices ? 1.0 : compress[coder.codec->id];
    const size_t values = weir_cost_kept(plan, elements);
    const uint64_t workers = (uint64_t)shape.ranks;
    return scale * weir_compress_prior(coder.codec->id, decoded(plan, workers), values, coder.cr) +
           shortening_s(plan, workers, values, scale);
  }
  const double scale = compress[plan->codec];
  const double hops =
      sums_messages(plan) ? scale * weir_compress_prior(plan->codec, 2, elements, plan->cr) : 0.0;
  return hops + shortening_s(plan, (uint64_t)shape.ranks, elements, scale);
}

double weir_plan_compress(const weir_plan *plan, weir_group_shape shape, uint64_t elements,
                          bool devices, const double *compress) {
  const uint64_t workers = (uint64_t)shape.ranks;
  double first = 0.0;
  if (plan->scheme == WEIR_SCHEME_PATH) return path_coding(plan, shape, elements, compress, &first);
  if (sums_messages(plan))
    return weir_coding_in_hops(plan, shape, elements, devices, compress) +
           keeping_s(plan, workers, elements, devices, compress);
  return compress[plan->codec] * weir_compress_prior(plan->codec, workers, elements, plan->cr) +
         weir_coding_in_hops(plan, shape, elements, devices, compress);
}

double weir_input_goodput(const weir_decision_input *in) {
  return in->goodput > 0.0 ? fmin(in->goodput, in->bandwidth) : in->bandwidth;
}

weir_link weir_model_link(const weir_link *processors, double latency, double bandwidth) {
  weir_link link = *processors;
  link.alpha = latency;
  link.beta = link.duplex_beta = 1.0 / bandwidth;
  link.burst = 0.0; /* a bucket's depth is known of the link that was there at the start only */
  link.deviation = 0.0;
  return link;
}

weir_link weir_input_link(const weir_decision_input *in) {
  weir_link link = weir_model_link(&in->processors, in->latency, weir_input_goodput(in));
  link.deviation = in->deviation;
  return link;
}

double weir_overhead_at(double overhead, double latencies, const weir_cost_terms *terms,
                        const weir_link *link, double modelled) {
  const double before = latencies * link->alpha, now = terms->alpha_terms * link->alpha;
  if (!(overhead > 0.0 && before > 0.0)) return overhead;
  const double share = before / (before + fmax(0.0, modelled - now));
  return overhead * (1.0 - share + share * now / before);
}

double weir_input_overhead(const weir_decision_input *in, size_t arm, const weir_cost_terms *terms,
                           const weir_link *link, double modelled) {
  if (arm == WEIR_ARMS) return 0.0;
  return weir_overhead_at(in->overhead[arm], in->overhead_latencies[arm], terms, link, modelled);
}

static double plan_gain(const weir_decision_input *in, const weir_plan *plan) {
  if (weir_plan_safe(plan)) return 1.0;
  const double top = weir_curve_gain(in->curve_cr, in->curve, plan->cr);
  return weir_one_selects(plan->codec) ? weir_shared_gain(in->overlap, top, plan->cr) : top;
}

double weir_step_seconds(const weir_decision_input *in, const weir_candidate *candidate) {
  const size_t arm = weir_arm_of(&candidate->plan);
  const double saved_s = arm < WEIR_ARMS ? in->saved[arm] : 0.0;
  return in->compute + fmax(0.0, candidate->compress_s + candidate->comm_s - saved_s);
}

/* What coding leaves of messages until that has been seen.  Where a codec's row tells how many bits
 * it leaves out, the others; of squares about what it left on four trainings
 * (docs/reference/performance.md): few bits are more often zero than not, and codes of half bits
 * are longer than they need be.  Of others it is little, for them to be tried. */
static double usually_shortened(const weir_plan *plan) {
  const double bits = plan->cr * 32;
  const weir_codec *codec = weir_codecs[plan->codec];
  const double scales = 32.0 * codec->scales / (1U << WEIR_BUCKET_LOG2_USUAL);
  if (codec->spare_bits > 0.0) return 1.0 - codec->spare_bits / (bits + scales);
  if (codec->bits.halves == 0) return 0.8;
  return bits <= 3.5 ? 0.77 : bits <= 4.0 ? 0.87 : 0.9 * bits / ceil(bits);
}

double weir_plan_shortened(const double *shortened, const weir_plan *plan) {
  const size_t arm = weir_arm_of(plan);
  if (plan->wire != WEIR_WIRE_HUFFMAN) return 1.0;
  return arm < WEIR_ARMS && shortened[arm] > 0.0 ? shortened[arm] : usually_shortened(plan);
}

/* Seconds of the exchange by rows, and its terms. */
static double modelled_s(const weir_decision_input *in, const weir_plan *plan,
                         const weir_link *link, size_t kept, weir_cost_terms *terms) {
  const weir_group_shape shape = weir_input_shape(in);
  *terms = weir_cost_plan_between(plan, shape, link, in->elements, kept);
  weir_cost_scale(terms, weir_plan_shortened(in->shortened, plan));
  return weir_cost_links(terms, link) +
         weir_cost_plan_processors(plan, shape, link, in->elements, kept);
}

/* Of what no gradient has touched no codes are shortened. */
static double compress_s(const weir_decision_input *in, const weir_plan *plan) {
  const weir_group_shape shape = weir_input_shape(in);
  const bool devices = in->devices != 0;
  const double all = weir_plan_compress(plan, shape, in->elements, devices, in->compress);
  if (!weir_plan_sparse(plan) || plan->wire != WEIR_WIRE_HUFFMAN) return all;
  weir_plan plain = *plan;
  plain.wire = WEIR_WIRE_PAPER;
  const double without = weir_plan_compress(&plain, shape, in->elements, devices, in->compress);
  return without + in->nonzero * (all - without);
}

static void evaluate_as(const weir_decision_input *in, const weir_plan *plan, size_t kept,
                        weir_candidate *c) {
  const size_t arm = weir_arm_of(plan);
  const weir_link link = weir_input_link(in);
  weir_cost_terms terms;
  c->plan = *plan;
  c->plan.id = 0;
  c->gain = plan_gain(in, plan);
  c->compress_s = compress_s(in, plan);
  const double modelled = modelled_s(in, plan, &link, kept, &terms);
  const double overhead = weir_input_overhead(in, arm, &terms, &link, modelled);
  c->comm_s = fmax(0.5 * modelled, modelled + overhead);
  c->progress_per_s = !weir_plan_fits(in, plan)
                          ? 0.0
                          : weir_plan_progress(in, plan, c->gain) / weir_step_seconds(in, c);
}

void weir_evaluate(const weir_decision_input *in, const weir_plan *asked, weir_candidate *c) {
  const weir_link link = weir_input_link(in);
  const size_t kept = sends(in, asked);
  const weir_plan plan = weir_select_plan(asked, weir_input_shape(in), &link, in->elements, kept);
  evaluate_as(in, &plan, kept, c);
}

/* Entropy coding changes no value: it is a choice like that of an algorithm. */
void weir_evaluate_arm(const weir_decision_input *in, const weir_arm *arm, double log_cr,
                       weir_candidate *c) {
  weir_plan plan = weir_arm_plan(in, arm, log_cr);
  weir_candidate shortened;
  weir_evaluate(in, &plan, c);
  if (!weir_codes_shorten(&plan)) return;
  plan.wire = WEIR_WIRE_HUFFMAN;
  if (!weir_plan_fits(in, &plan)) return;
  weir_evaluate(in, &plan, &shortened);
  if (weir_step_seconds(in, &shortened) < weir_step_seconds(in, c)) *c = shortened;
}

void weir_best_of_arm(const weir_decision_input *in, const weir_arm *arm, weir_candidate *best) {
  weir_evaluate_arm(in, arm, 0.0, best);
  if (arm->plan.cr > 0.0) return;
  enum { SCAN = 192, SECTIONS = 32 };
  const double low = log(weir_constants.cr_low), high = log(weir_constants.cr_high);
  const double width = (high - low) / SCAN;
  size_t at = SCAN;
  weir_candidate c;
  for (size_t i = 0; i < SCAN; i++) {
    weir_evaluate_arm(in, arm, low + (double)i * width, &c);
    if (c.progress_per_s > best->progress_per_s) {
      *best = c;
      at = i;
    }
  }
  const double golden = 0.5 * (sqrt(5.0) - 1.0);
  double a = low + ((double)at - 1.0) * width, b = low + ((double)at + 1.0) * width;
  a = fmax(a, low);
  b = fmin(b, high);
  for (int i = 0; i < SECTIONS; i++) {
    weir_candidate left, right;
    weir_evaluate_arm(in, arm, b - golden * (b - a), &left);
    weir_evaluate_arm(in, arm, a + golden * (b - a), &right);
    if (left.progress_per_s >= right.progress_per_s)
      b = a + golden * (b - a);
    else
      a = b - golden * (b - a);
    const weir_candidate *better = left.progress_per_s >= right.progress_per_s ? &left : &right;
    if (better->progress_per_s > best->progress_per_s) *best = *better;
  }
}

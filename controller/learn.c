/* Learning online: how far measurement and model are apart, per arm and codec.
 *
 * Beyond alpha and beta an exchange costs time of the machine (system calls, copies, waking up),
 * which adds to the model and does not scale with it: a factor learnt on a fast network would be
 * absurd on a slow one.  So the difference is learnt, and after a change of the network each arm
 * keeps only the least it ever was. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/schemes.h"
#include "controller/loop.h"
#include "kernels/fit.h"

static const double weight = 0.2;       /* of a new value in a moving average */
static const double curve_weight = 0.1; /* of a curve one step after the last */
static const double departure = 0.4;    /* of measured from predicted communication time */
/* A leap: so far off, in shares of the expected time and in seconds, that no busy processor
 * explains it twice in a row. */
static const double leap = 1.5, leap_s = 0.03;
static const double forgotten = 0.002; /* of the most that was not zero, a step */
static const unsigned enough = 2;      /* samples before a prior gives way */
/* Bounds of what is believed of an arm: overhead in modelled times plus a constant. */
static const double overhead_times = 10.0, overhead_most_s = 0.05;

static double clamp(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}

/* The first value is taken whole: a prior is worth less than one measurement. */
static void blend(double *average, double value, bool first) {
  *average = first ? value : *average + weight * (value - *average);
}

/* --- medians: on a busy machine single steps are late by any amount --------------------------- */

static void push(weir_recent *recent, double value) {
  recent->value[recent->count++ % WEIR_RECENT] = value;
}

static double median(const weir_recent *recent) {
  const unsigned n = recent->count < WEIR_RECENT ? recent->count : WEIR_RECENT;
  double sorted[WEIR_RECENT];
  memcpy(sorted, recent->value, n * sizeof *sorted);
  weir_sort(sorted, n);
  return n == 0 ? 0.0 : 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
}

/* The mean of the middle half: where steps are of two kinds, a median leaps from one to the other.
 */
static double midmean(const weir_long_recent *recent) {
  const unsigned n = recent->count < WEIR_LONG_RECENT ? recent->count : WEIR_LONG_RECENT;
  double sorted[WEIR_LONG_RECENT], sum = 0.0;
  memcpy(sorted, recent->value, n * sizeof *sorted);
  weir_sort(sorted, n);
  const unsigned left_out = n > 2 ? (n + 1) / 4 : 0;
  for (unsigned i = left_out; i < n - left_out; i++) sum += sorted[i];
  return n == 0 ? 0.0 : sum / (double)(n - 2 * left_out);
}

void weir_learn_start(weir_learnt *l) {
  memset(l, 0, sizeof *l);
  for (size_t a = 0; a < WEIR_ARMS; a++) l->floor[a] = INFINITY;
  for (size_t a = 0; a < WEIR_ARMS; a++) l->bucket_costs.each_s[a] = -1.0;
  l->bucket_costs.taken_s = -1.0;
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) l->compress[c] = 1.0;
  l->overlap = weir_constants.overlap_prior;
  l->gain = -1.0;
  l->heard_id = UINT64_MAX;
}

/* Plans of the codecs that the arms may use at this risk, one each. */
static size_t codec_plans(const weir_loop *loop, weir_plan plans[WEIR_ARMS]) {
  static const double cr =
      0.01; /* in the middle of what is chosen from; the model scales from it */
  bool listed[WEIR_CODEC_COUNT] = {false};
  size_t count = 0;
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    const bool may = loop->risk == WEIR_RISK_BOLD   ? a < WEIR_BOLD_ARMS
                     : loop->risk == WEIR_RISK_SAFE ? weir_arm_at(a)->safe
                                                    : weir_arm_at(a)->plan.cr > 0.0;
    const uint32_t codec = weir_arm_at(a)->plan.codec, rule = loop->rounds.rule;
    const bool sgd_alone = weir_arm_at(a)->settled == WEIR_SETTLED_SGD;
    if (!may || listed[codec] || (sgd_alone && rule != WEIR_RULE_SGD)) continue;
    if (weir_codecs[codec]->whitened && rule != WEIR_RULE_ADAPTIVE) continue;
    if (loop->devices && !weir_codecs[codec]->device) continue;
    /* What a sparse gradient takes, a dense one does not tell. */
    if (weir_codecs[codec]->touched) continue;
    listed[codec] = true;
    plans[count++] = weir_kernel_fit_plan(codec, cr, WEIR_WIRE_AUTO_BF16);
  }
  return count;
}

/* A start waits for this, so two runs of each, and none of large sizes. */
static weir_status price_on_host(const weir_loop *loop, const weir_plan *plans, size_t count,
                                 double *seconds) {
  const weir_kernel_wanted wanted = {loop->elements, loop->elements, 2, 0.0};
  weir_kernel_cost cost[WEIR_ARMS];
  weir_kernel_probe *probe = NULL;
  weir_status status = weir_kernel_probe_create(&probe, WEIR_KERNEL_WINDOW);
  if (status == WEIR_OK) status = weir_kernel_fit(probe, plans, count, &wanted, cost);
  for (size_t i = 0; i < count && status == WEIR_OK; i++) {
    const weir_codec *row = weir_codec_find(plans[i].codec);
    const double messages = weir_messages_decoded(row, (uint64_t)loop->workers);
    seconds[i] = weir_kernel_seconds(&cost[i].compress, loop->elements) +
                 messages * weir_kernel_seconds(&cost[i].decode, loop->elements);
  }
  weir_kernel_probe_free(probe);
  return status;
}

static void say_prices(const weir_plan *plans, size_t count, const double *seconds, bool priced) {
  char text[256];
  size_t at = 0;
  if (!weir_log_on(WEIR_LOG_INFO)) return;
  for (size_t i = 0; i < count && at < sizeof text; i++)
    at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %.3g", i > 0 ? ", " : "",
                           weir_codec_name(plans[i].codec), 1e3 * seconds[i]);
  weir_log(WEIR_LOG_INFO, "ms that a step compresses for, timed %s: %s",
           priced ? "where gradients are" : "on this host's processors", text);
}

weir_status weir_learn_codecs(weir_loop *loop, weir_price_fn *price, void *user) {
  weir_plan plans[WEIR_ARMS];
  double seconds[WEIR_ARMS];
  const size_t count = codec_plans(loop, plans);
  const bool priced = price != NULL && price(user, plans, count, seconds) == WEIR_OK;
  if (price != NULL && !priced)
    weir_log(WEIR_LOG_WARN,
             "codecs could not be timed where gradients are, and are on this host's processors "
             "until steps tell: %s",
             weir_last_error());
  const weir_status status = priced ? WEIR_OK : price_on_host(loop, plans, count, seconds);
  if (status == WEIR_OK) say_prices(plans, count, seconds, priced);
  for (size_t i = 0; i < count && status == WEIR_OK; i++) {
    const uint32_t codec = plans[i].codec;
    const double prior =
        weir_compress_prior(codec, (uint64_t)loop->workers, loop->elements, plans[i].cr);
    if (prior > 0.0) loop->learnt.compress[codec] = clamp(seconds[i] / prior, 1e-3, 1e3);
  }
  return status;
}

void weir_learn_switched(weir_learnt *l) {
  l->gain = -1.0;
  l->gain_steps = 0;
  l->step_count = 0;
  l->departures = l->leaps = 0;
  l->absorb = 0;
}

/* An untried arm borrows from a tried one of the same collective, for they share the wire's ways;
 * else it gets the benefit of the doubt: the least that any arm was seen to need. */
static void share_overhead(weir_learnt *l) {
  double least = INFINITY;
  for (size_t a = 0; a < WEIR_ARMS; a++)
    if (l->tried[a]) least = fmin(least, fmax(0.0, l->overhead[a]));
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    if (l->tried[a]) continue;
    l->overhead[a] = isfinite(least) ? least : 0.0;
    l->latencies[a] = 0.0;
    for (size_t b = 0; b < WEIR_ARMS; b++)
      if (l->tried[b] && weir_same_collective(&weir_arm_at(a)->plan, &weir_arm_at(b)->plan)) {
        l->overhead[a] = l->overhead[b];
        l->latencies[a] = l->latencies[b];
      }
  }
}

void weir_learn_overhead(weir_learnt *l, size_t arm, double overhead, double modelled,
                         double latencies) {
  l->overhead[arm] = clamp(overhead, -0.5 * modelled, overhead_times * modelled + overhead_most_s);
  l->floor[arm] = fmin(l->floor[arm], fmax(0.0, l->overhead[arm]));
  l->latencies[arm] = latencies;
  l->tried[arm] = true;
  share_overhead(l);
}

/* The exchange's own time.  The rank that arrives last may find messages there that it would
 * otherwise have waited for, and the others wait for it as well: what lies between its time and all
 * ranks' mean is as likely as the model. */
static double own_comm(const weir_loop *loop, const weir_observation *seen) {
  const double least = seen->heard.comm;
  if (!weir_network_known(&seen->heard.network, loop->workers)) return least;
  const double modelled = weir_learn_modelled(loop, seen);
  return isfinite(modelled) ? clamp(modelled, least, fmax(least, seen->heard.mean_comm)) : least;
}

void weir_learn_blame(weir_loop *loop, const weir_observation *seen) {
  const size_t arm = weir_arm_of(&seen->heard.plan);
  const double modelled = weir_learn_modelled(loop, seen);
  if (arm == WEIR_ARMS || !(modelled > 0.0)) return;
  loop->learnt.excess[arm].count = 0;
  weir_learn_overhead(&loop->learnt, arm, own_comm(loop, seen) - modelled, modelled,
                      seen->heard.terms.alpha_terms);
}

/* What was seen of an arm, as if its exchanges had always had the latencies of these terms: of
 * another ratio it may have taken other pieces. */
static void move_overhead(weir_learnt *l, size_t arm, const weir_cost_terms *terms,
                          const weir_link *link, double modelled) {
  const double before = l->latencies[arm];
  weir_recent *excess = &l->excess[arm];
  if (before == terms->alpha_terms) return;
  for (unsigned i = 0; i < excess->count && i < WEIR_RECENT; i++)
    excess->value[i] = weir_overhead_at(excess->value[i], before, terms, link, modelled);
  l->overhead[arm] = weir_overhead_at(l->overhead[arm], before, terms, link, modelled);
  l->floor[arm] = weir_overhead_at(l->floor[arm], before, terms, link, modelled);
  l->latencies[arm] = terms->alpha_terms;
}

void weir_learn_network_changed(weir_learnt *l) {
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    l->excess[a].count = 0;
    if (l->tried[a]) l->overhead[a] = l->floor[a];
  }
  share_overhead(l);
}

weir_link weir_learn_link(const weir_loop *loop, const weir_network *network) {
  weir_link link = weir_model_link(&loop->processors, network->latency, network->goodput);
  link.deviation = network->deviation;
  return link;
}

double weir_learn_modelled(const weir_loop *loop, const weir_observation *seen) {
  const weir_network *network = &seen->heard.network;
  const weir_group_shape shape = weir_loop_shape(loop);
  const weir_link link = weir_learn_link(loop, network);
  size_t kept = weir_plan_kept(loop->low_rank, &seen->heard.plan, loop->elements);
  if (weir_plan_sparse(&seen->heard.plan) && loop->learnt.nonzero > 0.0)
    kept = weir_plan_touched(&seen->heard.plan, kept, loop->learnt.nonzero, loop->learnt.runs);
  return weir_cost_links(&seen->heard.terms, &link) +
         weir_cost_plan_processors(&seen->heard.plan, shape, &link, loop->elements, kept) +
         weir_coding_in_hops(&seen->heard.plan, shape, loop->elements, loop->devices,
                             loop->learnt.compress);
}

static void learn_comm(weir_loop *loop, const weir_observation *seen) {
  weir_learnt *l = &loop->learnt;
  const size_t arm = weir_arm_of(&seen->heard.plan);
  if (!weir_network_known(&seen->heard.network, loop->workers) || !(seen->heard.comm > 0.0)) return;
  const double modelled = weir_learn_modelled(loop, seen);
  if (!(modelled > 0.0) || !isfinite(modelled)) return;
  const weir_link link = weir_learn_link(loop, &seen->heard.network);
  if (arm < WEIR_ARMS) move_overhead(l, arm, &seen->heard.terms, &link, modelled);
  const double comm = own_comm(loop, seen);
  const double expected =
      fmax(0.5 * modelled, modelled + (arm < WEIR_ARMS ? l->overhead[arm] : 0.0));
  const bool departs = fabs(comm / expected - 1.0) > departure;
  l->departures = departs ? l->departures + 1 : 0;
  const double off = fabs(comm - expected);
  const bool leaps = off > leap_s && off > leap * fmin(comm, expected);
  l->leaps = leaps ? l->leaps + 1 : 0;
  const bool absorb = l->absorb > 0;
  if (absorb) l->absorb--;
  if (arm == WEIR_ARMS) return;
  /* A sudden departure is more likely the network's doing than the arm's: it must not be learnt as
   * the arm's own until probing has found nothing, or unless little was known of the arm. */
  if (departs && !absorb && l->excess[arm].count >= enough) return;
  push(&l->excess[arm], comm - modelled);
  if (l->excess[arm].count >= enough)
    weir_learn_overhead(l, arm, median(&l->excess[arm]), modelled, seen->heard.terms.alpha_terms);
}

/* Is what it sends another rank's choice every step, which a gain of its own tells of? */
static bool takes_turns(uint32_t codec) {
  return weir_one_selects(codec) && !weir_codecs[codec]->by_variance;
}

static void learn_codec(weir_loop *loop, const weir_observation *seen) {
  weir_learnt *l = &loop->learnt;
  const weir_plan *plan = &seen->heard.plan;
  const double prior =
      weir_compress_prior(plan->codec, (uint64_t)loop->workers, loop->elements, plan->cr);
  const bool in_hops = weir_coding_in_hops(plan, weir_loop_shape(loop), loop->elements,
                                           loop->devices, l->compress) > 0.0;
  if (seen->heard.compress > 0.0 && prior > 0.0 && (!in_hops || weir_factors_encoded(plan))) {
    weir_recent *factor = &l->factor[plan->codec];
    push(factor, clamp(seen->heard.compress / prior, 1e-3, 1e3));
    if (factor->count >= enough) l->compress[plan->codec] = median(factor);
  }
  if (takes_turns(plan->codec) && l->has_curve && seen->heard.gain > 0.0) {
    const double top = weir_curve_gain(weir_curve_cr, l->curve, plan->cr);
    if (top > plan->cr + 0.01) /* else it cannot be told */
      blend(&l->overlap, weir_overlap(seen->heard.gain, top, plan->cr), false);
  }
}

/* The arm of all buckets in force; WEIR_ARMS when they differ. */
static size_t arm_of_buckets(const weir_loop *loop) {
  size_t arm = WEIR_ARMS;
  for (size_t k = 0; k < loop->current.buckets; k++) {
    weir_plan plan = {0};
    weir_plan_of_bucket(&loop->table[k], &plan);
    if (k > 0 && weir_arm_of(&plan) != arm) return WEIR_ARMS;
    arm = weir_arm_of(&plan);
  }
  return arm;
}

/* Buckets share threads and links with the backward pass: what they take is not the arm's own, but
 * what every further bucket costs. */
static void learn_buckets(weir_loop *loop, const weir_observation *seen) {
  weir_learnt *l = &loop->learnt;
  const double further = (double)seen->heard.plan.buckets - 1.0;
  if (further < 1.0 || seen->heard.plan.id != loop->current.id) return;
  if (l->whole_computes.count >= enough && seen->heard.compute > 0.0) {
    push(&l->taken, fmax(0.0, seen->heard.compute - median(&l->whole_computes)) / further);
    if (l->taken.count >= enough) l->bucket_costs.taken_s = median(&l->taken);
  }
  const size_t arm = arm_of_buckets(loop);
  if (arm == WEIR_ARMS || !l->tried[arm] || !(seen->heard.comm > 0.0) ||
      !weir_network_known(&seen->heard.network, loop->workers))
    return;
  const weir_link link = weir_learn_link(loop, &seen->heard.network);
  const double modelled = weir_cost_links(&seen->heard.terms, &link);
  const double beyond = seen->heard.comm - modelled - fmax(0.0, l->overhead[arm]);
  push(&l->each[arm], clamp(beyond / further, 0.0, overhead_most_s));
  if (l->each[arm].count >= enough) l->bucket_costs.each_s[arm] = median(&l->each[arm]);
}

static void learn_compute(weir_loop *loop, const weir_observation *seen) {
  weir_learnt *l = &loop->learnt;
  if (seen->heard.valid) {
    const double own = seen->heard.plan.buckets > 0 ? seen->heard.wait : own_comm(loop, seen);
    l->rests.value[l->rests.count++ % WEIR_LONG_RECENT] =
        fmax(0.0, seen->heard.whole - seen->heard.compress - own);
    l->compute = midmean(&l->rests);
  } else if (l->rests.count == 0) {
    l->compute = seen->compute;
  }
  if (seen->compute > 0.0 && seen->plan.buckets == 0 && !seen->trial)
    push(&l->whole_computes, seen->compute);
}

/* One step's gradients are a sample: a curve counts the more, the longer ago the last one is. */
static void learn_curve(weir_learnt *l, const weir_observation *seen) {
  l->curve_age++;
  if (!seen->has_curve || seen->trial) return;
  const double share = l->has_curve ? 1.0 - pow(1.0 - curve_weight, (double)l->curve_age) : 1.0;
  for (size_t i = 0; i < WEIR_CURVE_POINTS; i++)
    l->curve[i] += share * (seen->curve[i] - l->curve[i]);
  l->has_curve = true;
  l->curve_age = 0;
}

/* The most of late: what was seen once is forgotten slowly. */
static void learn_nonzero(weir_learnt *l, const weir_observation *seen) {
  if (!(seen->nonzero > 0.0)) return;
  l->nonzero = fmax(seen->nonzero, (1.0 - forgotten) * l->nonzero);
  l->runs = fmax(seen->runs, (1.0 - forgotten) * l->runs);
}

/* What was seen of an arm tells less and less of its messages as the training goes on, and while
 * they go plain nothing tells more.  So what was worse than usual is taken for as usual again in
 * the end, for decisions to come back to it; what was better needs no help. */
static void forget_shares(weir_learnt *l) {
  static const double unseen[WEIR_ARMS], each_step = 1.0 / 1024;
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    if (l->shortened[a] == 0.0) continue;
    weir_plan plan = weir_arm_at(a)->plan;
    plan.wire = WEIR_WIRE_HUFFMAN;
    const double usual = weir_plan_shortened(unseen, &plan);
    if (l->shortened[a] > usual) l->shortened[a] -= each_step * (l->shortened[a] - usual);
  }
}

/* A table of buckets goes by its largest bucket's arm. */
static void learn_shortened(weir_learnt *l, const weir_observation *seen) {
  const size_t arm = weir_arm_of(&seen->plan);
  forget_shares(l);
  if (!(seen->shortened > 0.0) || arm == WEIR_ARMS) return;
  blend(&l->shortened[arm], clamp(seen->shortened, 0.01, 1.0), l->shortened[arm] == 0.0);
}

void weir_learn(weir_loop *loop, const weir_observation *seen) {
  weir_learnt *l = &loop->learnt;
  learn_nonzero(l, seen);
  learn_shortened(l, seen);
  learn_compute(loop, seen);
  learn_curve(l, seen);
  const bool paired = loop->rounds.phase != WEIR_ROUND_NONE; /* its trial runs as the plan would */
  if (!seen->heard.valid || (seen->heard.trial && !paired)) return;
  /* The first step under a plan pays for memory touched and paths opened for the first time. */
  const bool cold = seen->heard.plan.id != l->heard_id;
  l->heard_id = seen->heard.plan.id;
  if (cold) return;
  if (seen->heard.plan.buckets == 0) {
    learn_codec(loop, seen);
    learn_comm(loop, seen);
  } else {
    /* They are of the plan before: single buckets' exchanges are not compared with the model. */
    l->departures = l->leaps = 0;
    learn_buckets(loop, seen);
  }
  if (seen->heard.plan.id != loop->current.id) return;
  blend(&l->gain, seen->heard.gain, l->gain_steps == 0);
  l->gain_steps++;
  blend(&l->step_s, seen->heard.whole, l->step_count == 0);
  l->step_count++;
}

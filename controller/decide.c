#include "controller/decide.h"
#include "base/schemes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "controller/controller.h"

const char *weir_trigger_name(uint32_t trigger) {
  static const char *const names[WEIR_TRIGGER_COUNT] = {
      [WEIR_TRIGGER_NONE] = "none",         [WEIR_TRIGGER_START] = "start",
      [WEIR_TRIGGER_LATENCY] = "latency",   [WEIR_TRIGGER_BANDWIDTH] = "bandwidth",
      [WEIR_TRIGGER_GAIN] = "gain",         [WEIR_TRIGGER_PERIODIC] = "periodic",
      [WEIR_TRIGGER_FALLBACK] = "fallback", [WEIR_TRIGGER_STAGE] = "stage",
      [WEIR_TRIGGER_TRIAL] = "trial",       [WEIR_TRIGGER_SPARSITY] = "sparsity",
  };
  return trigger < WEIR_TRIGGER_COUNT ? names[trigger] : NULL;
}

weir_status weir_risk_parse(const char *text, uint32_t *risk) {
  static const char *const names[WEIR_RISK_COUNT] = {"bold", "measured", "safe"};
  for (uint32_t r = 0; text != NULL && r < WEIR_RISK_COUNT; r++)
    if (strcmp(text, names[r]) == 0) {
      *risk = r;
      return WEIR_OK;
    }
  return weir_fail(WEIR_E_INVALID, "risk is \"%s\"; expected safe, measured or bold",
                   text != NULL ? text : "(null)");
}

weir_status weir_update_rule_check(const char *rule) {
  uint32_t ignored;
  return weir_rule_parse(rule, &ignored);
}

bool weir_update_rule_adapts(const char *rule) {
  uint32_t known = WEIR_RULE_UNKNOWN;
  return weir_rule_parse(rule, &known) == WEIR_OK && known != WEIR_RULE_SGD;
}

weir_status weir_risk_check(const char *risk) {
  uint32_t ignored;
  return weir_risk_parse(risk, &ignored);
}

static bool in_range(const double *x, size_t n, double low, double high) {
  for (size_t i = 0; i < n; i++)
    if (!(x[i] >= low && x[i] <= high)) return false;
  return true;
}

/* A journal may have been edited: nothing in it is trusted. */
static weir_status check(const weir_decision_input *in) {
  if (in->policy >= WEIR_POLICY_COUNT || in->trigger >= WEIR_TRIGGER_COUNT)
    return weir_fail(WEIR_E_INVALID, "decision input: unknown policy or trigger");
  if (in->risk >= WEIR_RISK_COUNT) return weir_fail(WEIR_E_INVALID, "decision input: unknown risk");
  if (!in_range(&in->memory_limit, 1, 0.0, 1e18))
    return weir_fail(WEIR_E_INVALID, "decision input: memory_limit %g out of range",
                     in->memory_limit);
  if (in->rooms > WEIR_ROOMS_INSIDE)
    return weir_fail(WEIR_E_INVALID, "decision input: unknown rooms");
  if (!in_range(&in->room_bytes, 1, 0.0, 1e18))
    return weir_fail(WEIR_E_INVALID, "decision input: room_bytes %g out of range", in->room_bytes);
  /* Rounds are added up one by one: seconds for so many workers. */
  if (in->workers < 1 || in->workers > 1u << 16 || in->elements < 1 ||
      in->elements > UINT64_C(1) << 40)
    return weir_fail(WEIR_E_INVALID, "decision input: workers or elements out of range");
  if (in->hosts > in->workers)
    return weir_fail(WEIR_E_INVALID, "decision input: more hosts than workers");
  const uint64_t hosts = in->hosts > 0 ? in->hosts : in->workers;
  if (in->largest > in->workers - hosts + 1 ||
      (in->largest > 0 && in->largest * hosts < in->workers))
    return weir_fail(WEIR_E_INVALID, "decision input: no machine of %llu can be the largest",
                     (unsigned long long)in->largest);
  if (in->order > WEIR_ORDER_CYCLIC &&
      (in->workers > WEIR_ORDER_RANKS || in->order >> (4 * in->workers) != 0))
    return weir_fail(WEIR_E_INVALID, "decision input: order %llu is none of %llu workers",
                     (unsigned long long)in->order, (unsigned long long)in->workers);
  if (!in_range(&in->latency, 1, 0.0, 3600.0))
    return weir_fail(WEIR_E_INVALID, "decision input: latency_s %g out of range", in->latency);
  if (!in_range(&in->bandwidth, 1, 1e-3, 1e15))
    return weir_fail(WEIR_E_INVALID, "decision input: bandwidth_bytes_s %g out of range",
                     in->bandwidth);
  if (in->goodput != 0.0 && !in_range(&in->goodput, 1, 1e-3, 1e15))
    return weir_fail(WEIR_E_INVALID, "decision input: goodput_bytes_s %g out of range",
                     in->goodput);
  if (!in_range(&in->deviation, 1, 0.0, 3600.0))
    return weir_fail(WEIR_E_INVALID, "decision input: deviation %g out of range", in->deviation);
  const double processors[] = {in->processors.message_s, in->processors.answer_s,
                               in->processors.byte_s,    in->processors.sum_s,
                               in->processors.sums_s,    in->processors.inner_alpha,
                               in->processors.inner_beta};
  if (!in_range(processors, sizeof processors / sizeof *processors, 0.0, 1.0))
    return weir_fail(
        WEIR_E_INVALID,
        "decision input: message_s, answer_s, byte_s, sum_s, sums_s, inner_latency_s or "
        "inner_byte_s outside [0, 1]");
  if (!in_range(&in->compute, 1, 0.0, 1e6))
    return weir_fail(WEIR_E_INVALID, "decision input: compute_s %g out of range", in->compute);
  if (!in_range(in->curve, WEIR_CURVE_POINTS, 0.0, 1.0) || !in_range(&in->overlap, 1, 0.0, 1.0))
    return weir_fail(WEIR_E_INVALID, "decision input: curve or overlap outside [0, 1]");
  double above = 1.0;
  for (size_t i = 0; i < WEIR_CURVE_POINTS; above = in->curve_cr[i++])
    if (!(in->curve_cr[i] > 0.0 && in->curve_cr[i] < above))
      return weir_fail(WEIR_E_INVALID,
                       "decision input: curve_cr must fall from below 1 to above 0");
  if (!in_range(in->overhead, WEIR_ARMS, -1e4, 1e4) ||
      !in_range(in->overhead_latencies, WEIR_ARMS, 0.0, 1e12) ||
      !in_range(in->compress, WEIR_CODEC_COUNT, 1e-6, 1e6))
    return weir_fail(WEIR_E_INVALID, "decision input: overhead_s or compress out of range");
  if (!in_range(in->shown, WEIR_METHODS, 0.0, 1.0))
    return weir_fail(WEIR_E_INVALID, "decision input: shown outside [0, 1]");
  if (!in_range(&in->nonzero, 1, 0.0, 1.0) || !in_range(&in->runs, 1, 0.0, 1.0))
    return weir_fail(WEIR_E_INVALID, "decision input: nonzero or runs outside [0, 1]");
  if (!in_range(in->shortened, WEIR_ARMS, 0.0, 1.0))
    return weir_fail(WEIR_E_INVALID, "decision input: shortened outside [0, 1]");
  if (!in_range(in->saved, WEIR_ARMS, 0.0, 1e6))
    return weir_fail(WEIR_E_INVALID, "decision input: saved_s out of range");
  if (!in_range(in->low_rank, WEIR_LOW_RANKS, 0.0, 1e15))
    return weir_fail(WEIR_E_INVALID, "decision input: low_rank out of range");
  if (in->policy == WEIR_POLICY_PAPER && (!in_range(in->trial_compress, WEIR_TRIALS, 0.0, 1e6) ||
                                          !in_range(in->trial_gain, WEIR_TRIALS, 0.0, 1.0)))
    return weir_fail(WEIR_E_INVALID, "decision input: trial_compress_s or trial_gain out of range");
  if ((in->paper_gather != WEIR_CODEC_NONE && in->paper_gather != WEIR_CODEC_MSTOPK &&
       in->paper_gather != WEIR_CODEC_LWTOPK) ||
      (in->paper_shared != WEIR_CODEC_NONE && in->paper_shared != WEIR_CODEC_STAR &&
       in->paper_shared != WEIR_CODEC_VAR))
    return weir_fail(WEIR_E_INVALID,
                     "decision input: paper_gather or paper_shared is none of its codecs");
  if (in->trigger == WEIR_TRIGGER_FALLBACK) {
    const weir_status status = weir_plan_check(&in->previous);
    if (status != WEIR_OK) return status;
  }
  return weir_plan_check(&in->current);
}

weir_status weir_decide_search(const weir_moo_problem *problem, uint64_t seed,
                               weir_moo_front *front) {
  weir_moo_options options;
  weir_moo_options_init(&options);
  options.population = 40;
  options.generations = 40;
  options.seed = seed;
  if (weir_moo_nsga2(problem, &options, front) == WEIR_MOO_OK) return WEIR_OK;
  return weir_fail(WEIR_E_NOMEM, "no memory for the search of a plan");
}

/* The plan in force or, where the policy leaves the algorithm open and another promises enough, the
 * plan with that. */
static void find_algorithm(const weir_decision_input *in, weir_candidate *choice) {
  const weir_plan named = weir_plan_usual(&in->current);
  weir_plan asked = in->current;
  weir_candidate other;
  weir_evaluate(in, &named, choice);
  choice->plan = in->current;
  choice->plan.id = 0;
  const bool may = in->policy == WEIR_POLICY_FIXED || in->policy == WEIR_POLICY_SCHEDULE;
  if (!in->open || !may) return;
  asked.algorithm = asked.inside = asked.broadcast = WEIR_ALGORITHM_ANY;
  weir_evaluate(in, &asked, &other);
  if (other.comm_s < (1.0 - weir_constants.hysteresis) * choice->comm_s) *choice = other;
}

static weir_status keep_fixed(const weir_decision_input *in, weir_decision *d) {
  const bool stage = in->trigger == WEIR_TRIGGER_STAGE;
  find_algorithm(in, &d->choice);
  const bool other = !weir_same_plan(&d->choice.plan, &in->current);
  d->switched = stage || other;
  if (in->gain >= 0.0) { /* measured beats modelled */
    d->choice.gain = fmin(in->gain, 1.0);
    d->choice.progress_per_s =
        weir_plan_progress(in, &d->choice.plan, d->choice.gain) / weir_step_seconds(in, &d->choice);
  }
  d->candidate[0] = d->front[0] = d->choice;
  d->candidates = d->front_size = 1;
  d->predicted_s = weir_step_seconds(in, &d->choice);
  (void)snprintf(
      d->why, sizeof d->why, "%s",
      stage && in->policy == WEIR_POLICY_SCHEDULE
          ? "the next stage of the schedule; its gain is known as that of the stage before"
      : stage ? "the next stage of the warm-up; its gain is known as that of the stage before"
      : other ? "the algorithm that is the cheapest on this network"
      : in->policy == WEIR_POLICY_BITS     ? "a width for every tensor; this is the largest group's"
      : in->policy == WEIR_POLICY_SCHEDULE ? "the policy allows one plan at a time"
                                           : "the policy allows one plan");
  return WEIR_OK;
}

weir_status weir_decide(const weir_decision_input *input, weir_decision *decision) {
  memset(decision, 0, sizeof *decision);
  const weir_status status = check(input);
  if (status != WEIR_OK) return status;
  switch (input->policy) {
    case WEIR_POLICY_WEIR: return weir_decide_weir(input, decision);
    case WEIR_POLICY_PAPER: return weir_decide_paper(input, decision);
    default: return keep_fixed(input, decision);
  }
}

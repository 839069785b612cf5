/* The paper's controller: trials of five ratios, NSGA-II, the knee.
 *
 * A header tells of the step before it, and a directive rides on the next exchange; so the next
 * candidate is directed when nine steps of this one have been seen, which lets exactly ten run, and
 * the decision falls one step after the trials' end, whose headers bring the last of the ten.
 * Trials repeat as often as the gain moves: the paper sets no other limit. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "controller/loop.h"

static const int trial_steps = 10;
static const uint64_t settle_steps = 10; /* of smoothed gain before it is compared */

/* --- its codecs ------------------------------------------------------------------------------- */

static weir_status refuse(const char *text) {
  return weir_fail(
      WEIR_E_INVALID,
      "policy paper%s: expected paper:CODECS with one of mstopk and lwtopk, with star, "
      "var or both, joined by +, for example paper:lwtopk+var",
      text);
}

weir_status weir_paper_parse(const char *text, weir_paper_codecs *codecs) {
  static const uint32_t known[] = {WEIR_CODEC_MSTOPK, WEIR_CODEC_LWTOPK, WEIR_CODEC_STAR,
                                   WEIR_CODEC_VAR};
  bool named[4] = {false};
  for (const char *at = text; *at != '\0';) {
    const size_t length = strcspn(++at, "+"); /* behind ':' or '+' */
    size_t i = 0;
    while (i < 4 && (strlen(weir_codec_name(known[i])) != length ||
                     strncmp(at, weir_codec_name(known[i]), length) != 0))
      i++;
    if (i == 4 || named[i]) return refuse(text);
    named[i] = true;
    at += length;
  }
  if (named[0] && named[1]) return refuse(text);
  *codecs = (weir_paper_codecs){.gather = named[1] ? WEIR_CODEC_LWTOPK : WEIR_CODEC_MSTOPK,
                                .shared = named[3] && !named[2] ? WEIR_CODEC_VAR : WEIR_CODEC_STAR,
                                .both = named[2] && named[3]};
  return WEIR_OK;
}

/* Has a plan by all-gather or of shared indices name the codec for it; of both the one that takes
 * more memory. */
static void complete(const char *text, weir_plan *plan) {
  weir_paper_codecs codecs;
  if (weir_paper_parse(text, &codecs) != WEIR_OK) return;
  plan->codec = plan->scheme == WEIR_SCHEME_GATHER ? codecs.gather
                : codecs.both                      ? WEIR_CODEC_VAR
                                                   : codecs.shared;
}

static weir_status check(const char *text) {
  weir_paper_codecs codecs;
  return weir_paper_parse(text, &codecs);
}

/* --- trials ----------------------------------------------------------------------------------- */

static void direct_candidate(weir_loop *loop, const weir_observation *seen) {
  /* No trial has been measured yet where this asks for the cheapest collective: costs alone. */
  const weir_paper_codecs *codecs = &loop->trials.codecs;
  const weir_decision_input in = {.workers = (uint64_t)loop->workers,
                                  .told = loop->told,
                                  .elements = loop->elements,
                                  .latency = seen->network.latency,
                                  .bandwidth = seen->network.bandwidth,
                                  .goodput = seen->network.goodput,
                                  .paper_gather = codecs->gather,
                                  .paper_shared = codecs->both ? WEIR_CODEC_STAR : codecs->shared};
  weir_candidate c;
  weir_paper_candidate(&in, weir_trial_cr[loop->trials.candidate], &c);
  weir_loop_direct(loop, WEIR_ACTION_TRIAL, &c.plan);
}

static void start_trials(weir_loop *loop, const weir_observation *seen, uint32_t trigger) {
  loop->trials.phase = WEIR_TRIALS_RUN;
  loop->trials.trigger = trigger;
  loop->trials.candidate = 0;
  loop->trials.ran = 0;
  memset(loop->trials.of, 0, sizeof loop->trials.of);
  direct_candidate(loop, seen);
  loop->trials.first_id = loop->directive.plan.id;
}

/* Where what is told of a plan goes; NULL: it is not of these trials. */
static weir_paper_trial *trial_of(weir_loop *loop, const weir_plan *plan) {
  const size_t second = loop->trials.codecs.both && plan->codec == WEIR_CODEC_VAR;
  if (plan->id < loop->trials.first_id) return NULL;
  for (size_t i = 0; i < WEIR_TRIALS; i++)
    if (plan->cr == weir_trial_cr[i]) return &loop->trials.of[i][second];
  return NULL;
}

/* Running averages over steps; a header tells of the step before, but of this one's loss. */
static void hear_trial(weir_loop *loop, const weir_observation *seen) {
  weir_paper_trial *const before =
      seen->heard.valid && seen->heard.trial ? trial_of(loop, &seen->heard.plan) : NULL;
  weir_paper_trial *const now = seen->trial ? trial_of(loop, &seen->plan) : NULL;
  if (before != NULL) {
    before->heard++;
    before->compress += (seen->heard.compress - before->compress) / before->heard;
    before->gain += (seen->heard.gain - before->gain) / before->heard;
  }
  if (now != NULL && isfinite(seen->loss) && now->losses < trial_steps)
    now->loss += (seen->loss - now->loss) / ++now->losses;
}

static void run_trials(weir_loop *loop, const weir_observation *seen) {
  /* It has been ended from elsewhere, as there was no room for it: trials begin anew. */
  if (!seen->trial && loop->waiting == 0) loop->trials.phase = WEIR_TRIALS_NONE;
  if (!seen->trial || seen->plan.id != loop->last.plan.id) return; /* it is still on the way */
  if (++loop->trials.ran < trial_steps - 1) return;
  loop->trials.ran = 0;
  if (loop->trials.codecs.both && seen->plan.codec == WEIR_CODEC_STAR) {
    weir_plan other = seen->plan;
    other.codec = WEIR_CODEC_VAR;
    weir_loop_direct(loop, WEIR_ACTION_TRIAL, &other);
    return;
  }
  if (++loop->trials.candidate < WEIR_TRIALS) {
    direct_candidate(loop, seen);
    return;
  }
  loop->trials.phase = WEIR_TRIALS_DRAIN;
  weir_loop_direct(loop, WEIR_ACTION_SWITCH, &loop->current); /* restores what was before */
}

/* STAR or VAR, by the test performance with each (section 5): the lower mean loss over the trials
 * that both ran, from the same state over the same batches.  STAR where it cannot be told, which
 * the paper found usually better on clusters of small to medium size. */
static void choose_shared(weir_loop *loop) {
  int pairs = 0, unpaired = 0;
  double star = 0.0, var = 0.0;
  for (size_t i = 0; i < WEIR_TRIALS; i++) {
    const weir_paper_trial *t = loop->trials.of[i];
    if (t[1].heard == 0) continue;
    const bool told = t[0].losses == trial_steps && t[1].losses == trial_steps;
    pairs += told;
    unpaired += !told;
    star += told ? t[0].loss : 0.0;
    var += told ? t[1].loss : 0.0;
  }
  if (pairs + unpaired == 0) return;
  loop->trials.codecs.shared = var < star ? WEIR_CODEC_VAR : WEIR_CODEC_STAR;
  if (pairs > 0)
    weir_loop_say(loop, "%s goes on: mean loss of %d trials with star %.6g, with var %.6g",
                  weir_codec_name(loop->trials.codecs.shared), pairs, star / pairs, var / pairs);
  else
    weir_loop_say(loop,
                  "star goes on: without losses (weir_report_loss) nothing tells it from var");
}

/* What trials have found is known of the codec that goes on. */
static void conclude(weir_loop *loop) {
  if (loop->trials.codecs.both) choose_shared(loop);
  const bool second = loop->trials.codecs.both && loop->trials.codecs.shared == WEIR_CODEC_VAR;
  for (size_t i = 0; i < WEIR_TRIALS; i++) {
    const weir_paper_trial *t = loop->trials.of[i];
    if (second && t[1].heard > 0) t++;
    loop->trials.compress[i] = t->compress;
    loop->trials.gain[i] = t->gain;
  }
}

/* --- decisions -------------------------------------------------------------------------------- */

static weir_status decide(weir_loop *loop, const weir_observation *seen, uint32_t trigger) {
  weir_decision decision;
  const weir_status status = weir_loop_decide(loop, seen, trigger, &decision);
  if (status != WEIR_OK) return status;
  loop->trials.reference = decision.choice.gain;
  return WEIR_OK;
}

static weir_status step(weir_loop *loop, const weir_observation *seen) {
  if (loop->workers <= 1 || !weir_network_known(&seen->network, loop->workers)) return WEIR_OK;
  hear_trial(loop, seen);
  switch (loop->trials.phase) {
    case WEIR_TRIALS_NONE:
      if (loop->steps >= 2) start_trials(loop, seen, WEIR_TRIGGER_START);
      return WEIR_OK;
    case WEIR_TRIALS_RUN: run_trials(loop, seen); return WEIR_OK;
    case WEIR_TRIALS_DRAIN:
      if (seen->trial || seen->plan.id != loop->current.id) return WEIR_OK;
      loop->trials.phase = WEIR_TRIALS_DONE;
      conclude(loop);
      return decide(loop, seen, loop->trials.trigger);
    case WEIR_TRIALS_DONE: break;
  }
  const uint32_t moved = weir_loop_network_trigger(loop, &seen->network);
  if (moved != WEIR_TRIGGER_NONE) {
    weir_loop_probe_found(loop);
    return decide(loop, seen, moved);
  }
  if (loop->learnt.gain_steps >= settle_steps && fabs(loop->learnt.gain - loop->trials.reference) >=
                                                     weir_constants.change * loop->trials.reference)
    start_trials(loop, seen, WEIR_TRIGGER_GAIN);
  return WEIR_OK;
}

/* Trials are steps like others to the monitor, so it may want to look in their midst. */
static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  const weir_status status = step(loop, seen);
  if (status == WEIR_OK && loop->workers > 1 && weir_network_known(&seen->network, loop->workers))
    weir_loop_consider_probe(loop, seen);
  return status;
}

const weir_policy weir_policy_paper = {
    .name = "paper",
    .description = "paper[:CODECS], trials, NSGA-II and knee of the flexible-communication paper",
    .id = WEIR_POLICY_PAPER,
    .check = check,
    .complete = complete,
    .first = "mstopk:0.1:ag",
    .heaviest = {"mstopk:0.1:ag", "star:0.1:art-tree"},
    .consider = consider,
};

/* Which arm is tried when, and what comes of it: paired trials of policy weir.
 *
 * A round takes WEIR_ROUND_STEPS steps of an arm from a checkpoint, goes back, and the plan in
 * force takes the same batches: its steps count, so that a round costs the arm's steps alone.  A
 * header's loss is that of its own step, and a directive is in force two steps after the observation
 * it answers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "controller/loop.h"

static const uint64_t least_losses = 192; /* of steps that count, before the first trial */
static const double worth = 1.15;         /* an arm must be predicted to be so many times as fast */
/* What was shown is known for a quarter of the steps until then: then it is looked at again, and if
 * that cannot be done within two rounds' time, the arm is given up. */
static const uint64_t again_least = 100, again_share = 4;
static const uint64_t patience = 2 * (WEIR_ROUND_STEPS + 4);
static const uint64_t refused_for = 4; /* an arm refused at a step waits until so many times it */
static const unsigned vain_most = 2;   /* rounds that began with another loss */
static const uint64_t silence = 50;    /* steps without a loss, before it is said */
static const uint64_t follow_steps = 32;
/* An arm that is not believed to hold the loss is tried after those that are, however fast it is. */
static const double doubtful = 2.0;
static const uint64_t settled_early = 32, settled_falling = 128, settled_at = 192,
                      settled_unseen = 500;
static const uint64_t first_losses = 4;
static const double settled_share = 0.5; /* of the first losses: no plateau of the beginning */
static const double follow_clear = 6.0;  /* noises that a promise is worth before it is asked for */
static const double follow_failed = 0.5, follow_doubt = 0.7;

/* Once. */
static void say(weir_loop *loop, const char *text) {
  if (!loop->rounds.said) weir_log(WEIR_LOG_WARN, "%s", text);
  loop->rounds.said = true;
}

static bool known(const weir_observation *seen) { return isfinite(seen->loss); }

/* Losses of steps that count, and time. */
static void take_in(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  if (seen->heard.valid) r->elapsed_s += seen->heard.whole;
  if (seen->heard.valid && seen->heard.trial) r->spent_s += seen->heard.whole;
  if (seen->trial) return;
  if (!known(seen)) {
    r->losses = 0;
    if (++r->silent == silence && r->told == 0 && loop->risk == WEIR_RISK_MEASURED)
      say(loop,
          "no loss is reported (weir_report_loss), so only plans that are known to keep the loss "
          "are chosen");
    return;
  }
  if (r->told < first_losses) r->begun += seen->loss / (double)first_losses;
  r->told++;
  if (r->losses == WEIR_LOSSES)
    memmove(r->loss, r->loss + 1, (WEIR_LOSSES - 1) * sizeof *r->loss);
  else
    r->losses++;
  r->loss[r->losses - 1] = seen->loss;
}

static double newest_mean(const weir_rounds *r, size_t count) {
  double mean = 0.0;
  for (size_t i = r->losses - count; i < r->losses; i++) mean += r->loss[i] / (double)count;
  return mean;
}

static bool falls_over(const weir_rounds *r, size_t from_end, size_t count) {
  const weir_slope slope = weir_loss_slope(r->loss + r->losses - from_end, count);
  return weir_slope_clear(&slope);
}

/* A model may first have to leave a plateau, and rounding to 4 bits seems to keep it there for long
 * now and then (docs/reference/performance.md, "What a policy does to a training").  So 4 bits wait
 * until the loss is half of what it began with, or falls and goes on falling, and where none is
 * reported for longer. */
static bool has_settled(const weir_rounds *r, uint64_t step) {
  if (r->told == 0) return step >= settled_unseen;
  if (step < settled_early || r->losses < settled_early) return false;
  if (newest_mean(r, settled_early / 2) < settled_share * r->begun) return true;
  if (r->losses < WEIR_LOSSES) return false;
  if (step >= settled_at && falls_over(r, WEIR_LOSSES / 2, WEIR_LOSSES / 2)) return true;
  return step >= settled_falling && falls_over(r, WEIR_LOSSES / 2, WEIR_LOSSES / 4) &&
         falls_over(r, WEIR_LOSSES / 4, WEIR_LOSSES / 4);
}

/* Once it has, a decision is due. */
static void settle(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  if (r->settled || seen->trial || !has_settled(r, seen->step)) return;
  r->settled = true;
  loop->since_decision = weir_model.period;
}

/* The directive finds no room any more, or the round had to end before its time (controller.c). */
static bool cut_short(const weir_rounds *r, const weir_observation *seen) {
  return !seen->trial && (r->ran > 0 || seen->room < WEIR_ROUND_ROOM);
}

static void abandon(weir_rounds *r, uint64_t step) {
  r->phase = WEIR_ROUND_NONE;
  r->record[r->method].due = step + WEIR_ROUND_STEPS;
}

/* --- beginning -------------------------------------------------------------------------------- */

/* The fastest plan of a method, or with WEIR_METHODS of those that keep the loss. */
static bool fastest(const weir_decision_input *in, size_t method, weir_candidate *best) {
  bool found = false;
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    const weir_arm *arm = weir_arm_at(a);
    weir_candidate c;
    if (arm->plan.cr == 0.0 || !weir_arm_runs(in, a)) continue;
    if (method == WEIR_METHODS ? !arm->safe || !weir_arm_counts(in, a)
                               : arm->safe || arm->method != method)
      continue;
    const weir_plan plan = weir_arm_plan(arm, 0.0);
    weir_evaluate(in, &plan, &c);
    if (found && weir_step_seconds(in, &c) >= weir_step_seconds(in, best)) continue;
    *best = c;
    found = true;
  }
  return found;
}

/* What a method is believed to make of progress before anything is measured: it says what to try
 * first, no more. */
static double believed(const weir_plan *plan) {
  const weir_codec *codec = weir_codecs[plan->codec];
  if (codec->encode != NULL) return plan->cr > 2.5 / 32 ? 0.98 : 0.95;
  return codec->low_rank ? 0.95 : weir_progress(plan->codec, pow(plan->cr, 0.5));
}

/* Of the time so far or, where the training's length is known, of all of it, the rest taken by the
 * faster of both plans: it may be the one in force then. */
static bool affordable(const weir_loop *loop, uint64_t step, double step_s) {
  const weir_rounds *r = &loop->rounds;
  const double left =
      r->steps > step ? (double)(r->steps - step) * fmin(loop->learnt.step_s, step_s) : 0.0;
  return r->spent_s + WEIR_ROUND_STEPS * step_s <= r->budget * (r->elapsed_s + left);
}

static uint64_t again_after(uint64_t step) {
  return step / again_share > again_least ? step / again_share : again_least;
}

/* Two rounds are the least before an arm is taken, and then it has to be looked at again and again.
 * In the time for which the budget pays for that, would it bring back twice what all of it costs?
 * How long a training is may not be known: then it is tried, and the budget decides from look to
 * look. */
static bool repaid(const weir_loop *loop, uint64_t step, double now_s, double step_s) {
  const weir_rounds *r = &loop->rounds;
  if (r->steps == 0) return true;
  if (r->steps <= step) return false;
  const double left = r->budget * (r->elapsed_s + (double)(r->steps - step) * step_s) - r->spent_s;
  double cost = 2.0 * WEIR_ROUND_STEPS * step_s;
  uint64_t until = step + again_after(step);
  for (; until < r->steps && cost + WEIR_ROUND_STEPS * now_s <= left; until += again_after(until))
    cost += WEIR_ROUND_STEPS * now_s;
  if (until > r->steps) until = r->steps;
  return (double)(until - step) * (now_s - step_s) > 2.0 * cost;
}

static void begin(weir_loop *loop, size_t method, const weir_plan *plan, bool again) {
  weir_rounds *r = &loop->rounds;
  if (again && r->record[method].standing == WEIR_METHOD_SHOWN && r->record[method].due > 0) {
    weir_evidence_newest(&r->record[method].evidence); /* what it was, and now what it is */
    r->record[method].due = 0;
  }
  weir_loop_direct(loop, WEIR_ACTION_TRIAL, plan);
  r->phase = WEIR_ROUND_TRIAL;
  r->method = method;
  r->again = again;
  r->tried = loop->directive.plan;
  r->plan_id = loop->directive.plan.id;
  r->ran = r->paired = 0;
  r->dropped = loop->dropped;
}

static void try_one(weir_loop *loop, const weir_observation *seen, const weir_decision_input *in) {
  weir_rounds *r = &loop->rounds;
  weir_candidate best, now, reference;
  const size_t method = weir_method_of(&loop->current);
  weir_evaluate(in, &in->current, &now);
  if (method < WEIR_METHODS) { /* one that was shown: is it still as good? */
    if (seen->step >= r->record[method].due && fastest(in, WEIR_METHODS, &reference) &&
        affordable(loop, seen->step, weir_step_seconds(in, &reference)))
      begin(loop, method, &reference.plan, true);
    return;
  }
  if (!weir_plan_safe(&loop->current)) return;
  size_t first = WEIR_METHODS;
  double most = 0.0;
  weir_plan plan = {0};
  double step_s = 0.0;
  for (size_t m = 0; m < WEIR_METHODS; m++) {
    if (seen->step < r->record[m].due || !fastest(in, m, &best)) continue;
    const double faster = weir_step_seconds(in, &now) / weir_step_seconds(in, &best);
    const double rate = faster * pow(believed(&best.plan), doubtful);
    if (faster < worth || rate <= most ||
        !repaid(loop, seen->step, weir_step_seconds(in, &now), weir_step_seconds(in, &best)))
      continue;
    most = rate;
    first = m;
    plan = best.plan;
    step_s = weir_step_seconds(in, &best);
  }
  if (first < WEIR_METHODS && affordable(loop, seen->step, step_s))
    begin(loop, first, &plan, false);
}

/* --- ending ----------------------------------------------------------------------------------- */

/* What keeps less of the same codec is not tried for as long: it would hardly do better. */
static void refuse(weir_rounds *r, size_t method, uint64_t step) {
  const weir_arm *refused = weir_method_arm(method);
  for (size_t m = 0; m < WEIR_METHODS; m++) {
    const weir_arm *arm = weir_method_arm(m);
    if (arm->plan.codec != refused->plan.codec || arm->plan.cr > refused->plan.cr) continue;
    r->record[m].due = refused_for * step;
    r->record[m].evidence.count = 0;
    if (m == method) r->record[m].standing = WEIR_METHOD_REFUSED;
  }
}

static void keep_account(weir_loop *loop, uint64_t step) {
  weir_rounds *r = &loop->rounds;
  weir_method_record *of = &r->record[r->method];
  switch (r->judgement.verdict) {
    case WEIR_VERDICT_HOLDS:
      of->standing = WEIR_METHOD_SHOWN;
      of->progress = fmin(1.0, r->judgement.mean);
      of->due = step + again_after(step);
      of->good_until = of->due + patience;
      break;
    case WEIR_VERDICT_FALLS: refuse(r, r->method, step); break;
    case WEIR_VERDICT_MORE: of->due = r->again ? 0 : step; break;
  }
}

/* From now on the loss is held against where it is. */
static void follow_from(weir_rounds *r, uint64_t step) {
  r->following = true;
  r->anchor = (double)step - 0.5 * (double)follow_steps;
  r->anchor_loss = newest_mean(r, follow_steps);
}

static weir_status judge(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  weir_evidence *evidence = &r->record[r->method].evidence;
  const double *arm = r->again ? r->kept_loss : r->tried_loss;
  const double *reference = r->again ? r->tried_loss : r->kept_loss;
  char plan[WEIR_PLAN_TEXT_MAX];
  r->phase = WEIR_ROUND_NONE;
  r->slope = weir_loss_slope(r->loss, r->losses);
  if (!weir_round_add(evidence, arm, reference, &r->slope)) {
    abandon(r, seen->step);
    if (fabs(arm[0] - reference[0]) > 1e-3 * fabs(reference[0]) && ++r->in_vain == vain_most)
      say(loop,
          "steps from the same checkpoint had other losses: without weir_register_state and "
          "weir_register_hooks for all that a step depends on, nothing can be tried");
    return WEIR_OK;
  }
  r->judged = r->method;
  r->judged_again = r->again;
  r->judged_plan = r->again ? loop->current : r->tried;
  r->samples = *evidence;
  r->judgement = weir_progress_judge(evidence);
  keep_account(loop, seen->step);
  weir_plan_format(&r->judged_plan, plan);
  (void)snprintf(r->what, sizeof r->what,
                 "%s makes %.2f of the progress (%.2f to %.2f, %zu samples): %s", plan,
                 r->judgement.mean, r->judgement.low, r->judgement.high, r->samples.count,
                 r->judgement.verdict == WEIR_VERDICT_HOLDS   ? "it holds the loss"
                 : r->judgement.verdict == WEIR_VERDICT_FALLS ? "it does not hold the loss"
                                                              : "not sure yet");
  weir_decision decision;
  const weir_plan before = loop->current;
  const weir_status status = weir_loop_decide(loop, seen, WEIR_TRIGGER_TRIAL, &decision);
  if (status == WEIR_OK && decision.switched && !weir_plan_safe(&decision.choice.plan) &&
      weir_plan_safe(&before)) {
    r->promised = r->slope;
    r->promised_at = seen->step - WEIR_LOSSES / 2;
    follow_from(r, seen->step);
  }
  return status;
}

/* A slope that is g at step t is taken to be g t / (t + n) n steps later, as where a loss falls
 * with the logarithm of steps. */
static double promised_fall(const weir_rounds *r, double from, double to) {
  return r->promised.per_step * (double)r->promised_at * log(to / from);
}

/* Has the loss fallen less than half as far as promised since it was last asked for?  Asked once the
 * promise is far above what batches make of means.  Where it is less than it should be, the arm is
 * looked at again soon. */
static bool behind(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  const size_t method = weir_method_of(&loop->current);
  if (method == WEIR_METHODS) r->following = false;
  if (!r->following || seen->trial || r->losses < follow_steps) return false;
  const double middle = (double)seen->step - 0.5 * (double)follow_steps;
  if (middle < r->anchor + (double)follow_steps) return false;
  const double noise = r->promised.scatter * sqrt(2.0 / (double)follow_steps);
  const double promised = promised_fall(r, r->anchor, middle);
  if (promised < follow_clear * noise) return false;
  const double fallen = r->anchor_loss - newest_mean(r, follow_steps);
  weir_method_record *of = &r->record[method];
  if (fallen < follow_doubt * promised && of->due > seen->step) {
    of->due = seen->step;
    of->good_until = seen->step + patience;
  }
  follow_from(r, seen->step);
  return fallen < follow_failed * promised;
}

/* Has what the method in force once showed grown old, and could not be looked at again? */
static bool stale(const weir_loop *loop, const weir_observation *seen) {
  const size_t method = weir_method_of(&loop->current);
  return method < WEIR_METHODS && !seen->trial &&
         loop->rounds.record[method].standing == WEIR_METHOD_SHOWN &&
         seen->step >= loop->rounds.record[method].good_until;
}

/* Back to the fastest safe plan.  What only grew old may be tried again sooner. */
static weir_status give_up(weir_loop *loop, const weir_observation *seen, bool failed) {
  weir_rounds *r = &loop->rounds;
  const size_t method = weir_method_of(&loop->current);
  weir_method_record *of = &r->record[method];
  char plan[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(&loop->current, plan);
  r->following = false;
  if (failed) refuse(r, method, seen->step);
  of->standing = WEIR_METHOD_REFUSED;
  of->evidence.count = 0;
  of->due = seen->step + (failed ? seen->step / 2 : again_after(seen->step));
  r->judged = WEIR_METHODS;
  (void)snprintf(r->what, sizeof r->what,
                 failed ? "under %s the loss has fallen less than half as far as its trial promised"
                        : "what %s once showed is too old, and there was no time for another look",
                 plan);
  weir_decision decision;
  return weir_loop_decide(loop, seen, WEIR_TRIGGER_TRIAL, &decision);
}

/* --- a step ----------------------------------------------------------------------------------- */

static void in_trial(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  if (!seen->trial || seen->plan.id != r->plan_id) return; /* its directive is still on the way */
  if (r->ran == 0) r->first = seen->step;
  if (r->ran < WEIR_ROUND_STEPS) r->tried_loss[r->ran] = seen->loss;
  if (++r->ran < WEIR_ROUND_STEPS - 1 || r->phase != WEIR_ROUND_TRIAL) return;
  weir_loop_direct(loop, WEIR_ACTION_SWITCH, &loop->current); /* back to the checkpoint */
  r->phase = WEIR_ROUND_BACK;
}

static weir_status back(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  if (seen->trial) {
    in_trial(loop, seen); /* the last one's loss */
    return WEIR_OK;
  }
  if (seen->plan.id != loop->current.id) return WEIR_OK;
  if (seen->step != r->first + r->paired || loop->dropped != r->dropped ||
      r->ran < WEIR_ROUND_STEPS) {
    abandon(r, seen->step);
    return WEIR_OK;
  }
  r->kept_loss[r->paired++] = seen->loss;
  return r->paired == WEIR_ROUND_STEPS ? judge(loop, seen) : WEIR_OK;
}

weir_status weir_rounds_step(weir_loop *loop, const weir_observation *seen, bool *busy) {
  weir_rounds *r = &loop->rounds;
  *busy = false;
  if (loop->risk == WEIR_RISK_BOLD) return WEIR_OK;
  take_in(loop, seen);
  settle(loop, seen);
  if (r->phase == WEIR_ROUND_TRIAL) {
    if (cut_short(r, seen)) {
      weir_loop_direct(loop, WEIR_ACTION_SWITCH, &loop->current); /* wherever the directive is */
      abandon(r, seen->step);
    }
    in_trial(loop, seen);
    *busy = true;
    return WEIR_OK;
  }
  if (r->phase == WEIR_ROUND_BACK) {
    if (weir_loop_network_trigger(loop, &seen->network) != WEIR_TRIGGER_NONE && !seen->trial) {
      abandon(r, seen->step);
      return WEIR_OK;
    }
    *busy = true;
    return back(loop, seen);
  }
  const bool failed = behind(loop, seen);
  if (failed || stale(loop, seen)) {
    *busy = true;
    return give_up(loop, seen, failed);
  }
  return WEIR_OK;
}

void weir_rounds_consider(weir_loop *loop, const weir_observation *seen) {
  const weir_rounds *r = &loop->rounds;
  if (loop->risk != WEIR_RISK_MEASURED || r->phase != WEIR_ROUND_NONE || loop->has_directive ||
      loop->waiting > 0 || loop->decisions == 0 || r->losses < WEIR_LOSSES ||
      seen->step < least_losses || r->in_vain >= vain_most || loop->current.buckets > 0 ||
      !r->settled || seen->room < WEIR_ROUND_ROOM + WEIR_ROOM_LEAST)
    return;
  const weir_slope slope = weir_loss_slope(r->loss, r->losses);
  if (!weir_slope_clear(&slope)) return;
  weir_decision_input in;
  weir_loop_input(loop, seen, WEIR_TRIGGER_TRIAL, &in);
  try_one(loop, seen, &in);
}

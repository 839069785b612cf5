/* Which arm is tried when, and what comes of it: paired trials of policy weir.
 *
 * A round takes 18, 36 or 192 steps of an arm from a checkpoint, of which nothing remains, and
 * under other rules than SGD 48 of the plan in force from there; goes back, and the plan in force
 * takes the same batches.  These steps count, so that a round costs the others alone.  A header's
 * loss is that of its own step, and a directive is in force two steps after the observation it
 * answers. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "controller/loop.h"

static const double worth = 1.1; /* an arm must be predicted to be so many times as fast */
/* What was shown is known for as long as methods run in two rounds, or for a share of the steps
 * until then (weir_round_form), or until the budget pays for another round: then it has to be shown
 * again. */
static const uint64_t again_rounds = 2;
static const double known_most = 400.0,
                    known_share = 10.0; /* but not for so long, or of all steps */
static const uint64_t wait_steps = 24;  /* until what could not be tried is tried again */
static const uint64_t refused_for = 2;  /* an arm refused at a step waits until so many times it */
static const unsigned vain_most = 2;    /* rounds that began with another loss */
/* Steps in a row without a loss, after which no method is in force: nothing tells what it does. */
static const uint64_t silence = 50;
static const uint64_t follow_least = 32, follow_share = 32;
/* What a training ends with must not be missing what a method still holds back, or rounds by: the
 * last steps, and a share of all, are a safe plan's. */
static const uint64_t last_least = 48, last_share = 20;
/* Where it is not known which steps are the last, a method may be behind by so much of the loss. */
static const double most_debt = 0.01;
/* Where its length is not known, a training is taken to be no shorter than this: else a method that
 * is fast enough to pay for its trial within a few steps would wait until a training is half
 * over. */
static const uint64_t shortest = 1000;
/* And else by so much: what is further behind has left the way. */
static const double most_debt_ever = 0.25;
static const uint64_t settled_early = 32, settled_falling = 128, settled_at = 192,
                      settled_flat = 256;
static const uint64_t first_losses = 4;
/* Losses whose mean is half of the first ones': the loss has halved, or is about to have. */
static const size_t halved_over = 16, halves_over = 8;
static const double settled_share = 0.5; /* of the first losses */
static const double follow_risen = 6.0;  /* noises by which a loss has clearly risen */

/* Of the round under way. */
static const weir_round_form *form_of(const weir_rounds *r) {
  return weir_round_form_of(&r->tried, r->rule);
}

uint64_t weir_round_room(const weir_round_form *form) {
  return weir_round_batches(form) + 2 * WEIR_ROOM_LEAST;
}

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
  if (seen->heard.valid && !seen->heard.trial) r->timed++;
  if (seen->trial) return;
  if (!known(seen)) {
    r->losses = 0;
    r->course = (weir_course){0};
    if (++r->silent == silence && r->told == 0 && loop->risk == WEIR_RISK_MEASURED)
      say(loop,
          "no loss is reported (weir_report_loss), so only plans that are known to keep the loss "
          "are chosen");
    return;
  }
  r->silent = 0;
  if (r->told < first_losses) r->begun += seen->loss / (double)first_losses;
  r->told++;
  weir_course_add(&r->course, seen->loss);
  if (r->losses == WEIR_LOSSES)
    memmove(r->loss, r->loss + 1, (WEIR_LOSSES - 1) * sizeof *r->loss);
  else
    r->losses++;
  r->loss[r->losses - 1] = seen->loss;
}

double weir_rounds_shown(const weir_rounds *r, size_t method, uint64_t step) {
  const weir_method_record *of = &r->record[method];
  return of->standing == WEIR_METHOD_SHOWN && step < of->good_until && r->silent < silence
             ? of->progress
             : 0.0;
}

double weir_rounds_memory(const weir_rounds *r, double limit, bool checkpoint) {
  return limit > 0.0 && checkpoint ? fmax(1.0, limit - r->checkpoint_bytes) : limit;
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

/* Steps whose losses the slope is taken from: the later half of the training, as the loss fell
 * faster before.  Over fewer steps batches make the slope look steeper than it is now and then, and
 * beside too steep a slope all methods look as good as the plan in force. */
static uint64_t later_half(const weir_rounds *r) {
  const uint64_t steps = weir_course_steps(&r->course);
  return r->told / 2 < steps ? r->told / 2 : steps;
}

/* How far batches lie apart the newest losses tell: about a line through many the course of the
 * training lies as well. */
static weir_slope slope_now(const weir_rounds *r) {
  const uint64_t half = later_half(r);
  const size_t newest = half < r->losses ? (size_t)half : r->losses;
  weir_slope slope = weir_course_slope(&r->course, half);
  slope.scatter = weir_loss_slope(r->loss + r->losses - newest, newest).scatter;
  return slope;
}

/* What a method may be behind by is a share of the loss, or of what it has fallen by where that is
 * less: the rest may be there whatever a training does, such as a constant or noise. */
static double loss_at_stake(const weir_rounds *r, double loss) {
  return fmin(fabs(loss), fmax(r->begun - loss, DBL_MIN));
}

/* Has the loss come down to half of what the training began with, in the mean of so many steps?
 * One that begins below 0 has no half. */
static bool halved_in(const weir_rounds *r, size_t steps) {
  return r->begun > 0.0 && r->losses >= steps && newest_mean(r, steps) < settled_share * r->begun;
}

static bool halved(const weir_rounds *r) { return halved_in(r, halved_over); }

/* A model may first have to leave a plateau, which is over once the loss is half of what it began
 * with, or falls and goes on falling; where that is not seen it takes longer.  On it all methods
 * look alike, and one that sends less may keep the model there: nothing is tried. */
static bool plateau_left(const weir_rounds *r, uint64_t step) {
  if (step >= (r->told == 0 ? WEIR_SETTLED_AT_LAST : settled_flat)) return true;
  if (r->told == 0) return false;
  if (halved(r)) return r->rule == WEIR_RULE_SGD || step >= settled_early;
  if (r->losses < WEIR_LOSSES) return false;
  if (step >= settled_at && falls_over(r, WEIR_LOSSES / 2, WEIR_LOSSES / 2)) return true;
  return step >= settled_falling && falls_over(r, WEIR_LOSSES / 2, WEIR_LOSSES / 4) &&
         falls_over(r, WEIR_LOSSES / 4, WEIR_LOSSES / 4);
}

/* Under SGD a round may begin a little before a plateau counts as left, when the newest few losses
 * have halved.  By its end the mean over more of them has to have halved, too, else it tells
 * nothing (judge). */
static bool leaves_plateau(const weir_rounds *r) {
  return r->rule == WEIR_RULE_SGD && halved_in(r, halves_over);
}

/* Under Adam few bits may keep a model on a plateau, too: elements that are far smaller than the
 * rest of their bucket are little but noise then, of which Adam makes as much as of gradients
 * (docs/internals/progress.md).  SGD's steps are proportional to gradients and do not wait. */
static bool has_settled(const weir_rounds *r, uint64_t step) {
  return r->rule == WEIR_RULE_SGD || plateau_left(r, step);
}

/* Plans of what gradients touch leave alone what a method has held back of other elements, so they
 * wait for a step that sends every element.  A decision is due as soon as the plan of that step may
 * be left. */
static void keep_withheld(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  const uint64_t soon = weir_constants.period - weir_constants.dwell;
  const bool before = r->withheld;
  if (seen->trial || weir_plan_sparse(&seen->plan)) return;
  r->withheld = weir_method_of(&seen->plan) < WEIR_METHODS && !weir_plan_rounds(&seen->plan);
  if (before && !r->withheld && loop->since_decision < soon) loop->since_decision = soon;
}

/* Once it has, a decision is due. */
static void settle(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  if (r->settled || seen->trial || !has_settled(r, seen->step)) return;
  r->settled = true;
  loop->since_decision = weir_constants.period;
}

/* The directive finds no room any more, or the round had to end before its time (controller.c). */
static bool cut_short(const weir_rounds *r, const weir_observation *seen) {
  return !seen->trial && (r->ran > 0 || seen->room < weir_round_room(form_of(r)));
}

static void abandon(weir_rounds *r, uint64_t step) {
  r->phase = WEIR_ROUND_NONE;
  r->record[r->method].due = step + wait_steps;
}

/* --- beginning -------------------------------------------------------------------------------- */

/* The fastest plan of a method. */
static bool fastest(const weir_decision_input *in, size_t method, weir_candidate *best) {
  bool found = false;
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    const weir_arm *arm = weir_arm_at(a);
    weir_candidate c;
    if (arm->method != method || !weir_arm_runs(in, a)) continue;
    if (weir_plan_sparse(&arm->plan) && !weir_sparse_known(in)) continue;
    weir_evaluate_arm(in, arm, 0.0, &c);
    if (found && weir_step_seconds(in, &c) >= weir_step_seconds(in, best)) continue;
    *best = c;
    found = true;
  }
  return found;
}

/* The last steps, which are a safe plan's where it is known which these are. */
static uint64_t last_steps(const weir_rounds *r) {
  if (r->steps == 0) return 0;
  return r->steps / last_share > last_least ? r->steps / last_share : last_least;
}

/* Steps that a method may still be in force for; UINT64_MAX: as many as come. */
static uint64_t left_for_methods(const weir_rounds *r, uint64_t step) {
  const uint64_t last = last_steps(r);
  if (r->steps == 0) return UINT64_MAX;
  return r->steps > step + last ? r->steps - step - last : 0;
}

/* Seconds of the training's steps that are left, as far as its length is known, if a round of a
 * plan of step_s begins now: the plan in force takes the round's batches and the last steps, the
 * faster of both may take the others.  Where progress itself has to be seen, all are reckoned as
 * the faster one's: a round that begins early tells least there (docs/internals/progress.md).  A
 * network that is slower now than it was may become faster again, so no step is taken to be slower
 * than those so far. */
static double time_left(const weir_loop *loop, uint64_t step, const weir_round_form *form,
                        double step_s) {
  const weir_rounds *r = &loop->rounds;
  const uint64_t steps = r->steps > 0 ? r->steps : shortest;
  const double left = steps > step ? (double)(steps - step) : 0.0;
  const double kept = form->by_debt ? fmin(left, (double)(form->steps + last_steps(r))) : 0.0;
  const double so_far_s = r->timed > 0 ? (r->elapsed_s - r->spent_s) / (double)r->timed : INFINITY;
  const double now_s = fmin(loop->learnt.step_s, so_far_s);
  return kept * now_s + (left - kept) * fmin(now_s, step_s);
}

/* What the budget pays for in the whole of the training, but for a reserve: a plan that has not run
 * yet takes some per cent more or less than is predicted. */
static double budget_s(const weir_loop *loop, uint64_t step, const weir_round_form *form,
                       double step_s) {
  static const double spend = 0.95;
  return spend * loop->rounds.budget *
         (loop->rounds.elapsed_s + time_left(loop, step, form, step_s));
}

/* What a round of a plan of step_s costs. */
static double round_s(const weir_loop *loop, const weir_round_form *form, double step_s) {
  return (double)form->steps * step_s + (double)form->after * loop->learnt.step_s;
}

static bool affordable(const weir_loop *loop, uint64_t step, const weir_round_form *form,
                       double step_s) {
  return loop->rounds.spent_s + round_s(loop, form, step_s) <= budget_s(loop, step, form, step_s);
}

/* Rounds that the rest of the budget pays for. */
static double rounds_left(const weir_loop *loop, uint64_t step, const weir_round_form *form,
                          double step_s) {
  const weir_rounds *r = &loop->rounds;
  if (r->steps == 0) return affordable(loop, step, form, step_s) ? INFINITY : 0.0;
  const double paid = budget_s(loop, step, form, step_s) - r->spent_s;
  return fmax(0.0, floor(paid / round_s(loop, form, step_s)));
}

/* Steps for which a method is in force once it has been shown: those that are left are shared
 * between the rounds that can follow. */
static uint64_t known_for(const weir_loop *loop, uint64_t step, const weir_round_form *form,
                          double rounds) {
  const uint64_t left = left_for_methods(&loop->rounds, step);
  uint64_t steps = again_rounds * form->steps;
  const uint64_t share = (uint64_t)(form->known * (double)step);
  if (steps < share) steps = share;
  if (left < UINT64_MAX && rounds >= 1.0) {
    const double most = fmax(known_most, (double)loop->rounds.steps / known_share);
    const double each = fmin(most, (double)left / (rounds + 1.0));
    if ((double)steps < each) steps = (uint64_t)each;
  }
  return steps;
}

/* How likely a method is to hold after another round: as far as can be told before it, or by what
 * the rounds so far have shown. */
static double holds_likely(const weir_rounds *r, const weir_round_form *form,
                           const weir_plan *plan) {
  const weir_evidence *seen = &r->record[weir_method_of(plan)].evidence;
  if (seen->count > 0) return weir_progress_likely(seen, form, weir_belief_of(plan, form));
  if (weir_plan_rounds(plan)) return form->holds;
  return fmax(0.1,
              form->holds_lagging - form->holds_debt * weir_method_arm(weir_method_of(plan))->debt);
}

/* Seconds of the training that trying saves, as far as can be told before: by the share of such
 * arms that are expected to hold, and the steps that they are in force then.  Where most are, less
 * those it takes; else for a second that it takes, as several can be tried.  0 where it would not
 * save clearly more than it takes. */
static double worth_trying(const weir_loop *loop, uint64_t step, const weir_plan *plan,
                           double now_s, double step_s) {
  static const double repaid_least = 2.0;
  const weir_round_form *form = weir_round_form_of(plan, loop->rounds.rule);
  const double round = (double)weir_round_batches(form);
  const uint64_t left = left_for_methods(&loop->rounds, step);
  const double rounds = rounds_left(loop, step, form, step_s);
  if (rounds < 1.0 || (double)left < 2.0 * round) return 0.0;
  const double once = (double)known_for(loop, step, form, rounds - 1.0);
  const double steps = rounds >= 2.0 && left < UINT64_MAX ? (double)left : fmin((double)left, once);
  const double times = fmin(rounds, ceil(steps / once));
  const double taken = times * round_s(loop, form, step_s);
  const double tried = times * round; /* batches that the other plan takes */
  const double saved =
      holds_likely(&loop->rounds, form, plan) * fmax(0.0, steps - tried) * (now_s - step_s);
  if (saved <= repaid_least * taken) return 0.0;
  return form->by_debt ? saved - taken : saved / taken;
}

/* A trial's steps are not divided into buckets, and so must those not be that they are compared
 * with: first what is in force goes on undivided, by a decision like any other. */
static weir_status undivide(weir_loop *loop, const weir_observation *seen, const weir_plan *plan) {
  weir_rounds *r = &loop->rounds;
  char tried[WEIR_PLAN_TEXT_MAX];
  weir_decision decision;
  weir_plan_format(plan, tried);
  (void)snprintf(r->what, sizeof r->what, "no buckets for now, so that %s can be tried", tried);
  r->judged = WEIR_METHODS;
  r->undivided = true;
  const weir_status status = weir_loop_decide(loop, seen, WEIR_TRIGGER_TRIAL, &decision);
  r->undivided = false;
  return status;
}

static void begin(weir_loop *loop, uint64_t step, size_t method, const weir_plan *plan) {
  weir_rounds *r = &loop->rounds;
  weir_loop_direct(loop, WEIR_ACTION_TRIAL, plan);
  r->phase = WEIR_ROUND_TRIAL;
  r->kept = true;
  r->ahead = !plateau_left(r, step);
  if (r->record[method].standing == WEIR_METHOD_SHOWN) r->record[method].evidence.count = 0;
  r->method = method;
  r->tried = loop->directive.plan;
  r->plan_id = loop->directive.plan.id;
  r->follow_id = 0;
  r->ran = r->turned = r->paired = 0;
  r->dropped = loop->dropped;
}

/* Beside a method that holds much back nothing can be tried: what it owes would count against what
 * comes after it. */
static weir_status try_one(weir_loop *loop, const weir_observation *seen,
                           const weir_decision_input *in) {
  weir_rounds *r = &loop->rounds;
  weir_candidate best, now;
  const bool shown = weir_method_of(&loop->current) < WEIR_METHODS;
  if (!weir_plan_safe(&loop->current) && !(shown && weir_plan_rounds(&loop->current)))
    return WEIR_OK;
  weir_evaluate(in, &in->current, &now);
  const double now_s = weir_step_seconds(in, &now);
  size_t first = WEIR_METHODS;
  double most = 0.0;
  weir_plan plan = {0};
  weir_decision_input beside = *in;
  beside.memory_limit = weir_rounds_memory(r, loop->memory_limit, true);
  if (!weir_plan_fits(&beside, &loop->current)) return WEIR_OK;
  for (size_t m = 0; m < WEIR_METHODS; m++) {
    const weir_plan *own = &weir_method_arm(m)->plan; /* any of the method's */
    const weir_round_form *form = weir_round_form_of(own, r->rule);
    if (seen->step < r->record[m].due || !(weir_belief_of(own, form)->error > 0.0) ||
        r->losses < form->losses || seen->room < weir_round_room(form) + WEIR_ROOM_LEAST ||
        !fastest(&beside, m, &best))
      continue;
    const double step_s = weir_step_seconds(in, &best);
    const double saved = worth_trying(loop, seen->step, &best.plan, now_s, step_s);
    if (now_s < worth * step_s || saved <= most || !affordable(loop, seen->step, form, step_s))
      continue;
    most = saved;
    first = m;
    plan = best.plan;
  }
  if (first == WEIR_METHODS) return WEIR_OK;
  if (loop->current.buckets > 0) return undivide(loop, seen, &plan);
  begin(loop, seen->step, first, &plan);
  return WEIR_OK;
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

static void keep_account(weir_loop *loop, const weir_observation *seen, bool far_behind) {
  weir_rounds *r = &loop->rounds;
  weir_method_record *of = &r->record[r->method];
  const size_t beside = weir_method_of(&loop->current); /* what it was compared with */
  const double full = beside == WEIR_METHODS ? 1.0 : r->record[beside].progress;
  if (r->judgement.verdict == WEIR_VERDICT_FALLS || far_behind) {
    refuse(r, r->method, seen->step);
  } else if (r->judgement.verdict == WEIR_VERDICT_MORE) {
    of->due = seen->step;
  } else {
    weir_decision_input in;
    weir_candidate own;
    weir_loop_input(loop, seen, WEIR_TRIGGER_TRIAL, &in);
    weir_evaluate(&in, &r->tried, &own);
    const double rounds = rounds_left(loop, seen->step, form_of(r), weir_step_seconds(&in, &own));
    of->standing = WEIR_METHOD_SHOWN;
    of->progress = full * fmin(1.0, r->judgement.mean);
    of->good_until = seen->step + known_for(loop, seen->step, form_of(r), rounds);
    /* It is as good as what it was compared with, for as long as that is known. */
    if (beside < WEIR_METHODS && of->good_until > r->record[beside].good_until)
      of->good_until = r->record[beside].good_until;
  }
}

/* What a method is behind by at the end of a round, as a share of the loss. */
static double share_behind(const weir_rounds *r, const double *arm, const double *reference) {
  return weir_round_debt(arm, reference, form_of(r)->steps) / loss_at_stake(r, r->slope.level);
}

/* Where nobody knows how long the training is, it may end with what a method still holds back; and
 * where it is known, what is far behind after one round may not come back in the last steps.  What
 * leaps away at once is not followed any further. */
static bool too_far_behind(const weir_rounds *r, const double *arm, const double *reference) {
  const double most = r->steps == 0 ? most_debt : most_debt_ever;
  return share_behind(r, arm, reference) > most || weir_round_leaps(arm, reference, &r->slope);
}

/* Steps whose losses' mean says where the loss is, while it is watched: the slower it falls, the
 * more batches have to be out of the way. */
static size_t follow_steps(const weir_rounds *r) {
  const uint64_t share = r->told / follow_share;
  const uint64_t least =
      r->told / 2 < follow_least ? r->told / 2 : follow_least; /* all but early */
  return share < least ? least : share < WEIR_LOSSES ? share : WEIR_LOSSES;
}

/* From now on the loss is held against where it is, and against what is owed yet from there. */
static void follow_from(weir_rounds *r, uint64_t step, double owed) {
  const size_t wanted = follow_steps(r), steps = r->losses < wanted ? r->losses : wanted;
  r->following = true;
  r->anchor = (double)step - 0.5 * (double)steps;
  r->anchor_loss = newest_mean(r, steps) + owed;
}

static void tell(weir_rounds *r, bool far_behind) {
  const weir_judgement *j = &r->judgement;
  char plan[WEIR_PLAN_TEXT_MAX], shown[80], behind[96];
  const double level = r->slope.level;
  const char *whole = loss_at_stake(r, level) < fabs(level) ? "the fall of the loss" : "the loss";
  weir_plan_format(&r->judged_plan, plan);
  if (form_of(r)->by_debt)
    (void)snprintf(shown, sizeof shown, "is %.1f %% of %s behind (%.1f to %.1f",
                   100 * (1 - j->mean), whole, 100 * (1 - j->high), 100 * (1 - j->low));
  else
    (void)snprintf(shown, sizeof shown, "makes %.2f of the progress (%.2f to %.2f", j->mean, j->low,
                   j->high);
  (void)snprintf(behind, sizeof behind, "too far behind, by %.1f %% of %s%s",
                 100 * share_behind(r, r->tried_loss, r->kept_loss), whole,
                 r->steps == 0 ? ", as nobody knows when the training ends" : "");
  (void)snprintf(r->what, sizeof r->what, "%s %s, %zu samples): %s", plan, shown, r->samples.count,
                 j->low > form_of(r)->beyond
                     ? "more than there is to make, as when an optimizer takes smaller steps"
                 : j->verdict == WEIR_VERDICT_FALLS ? "it does not hold the loss"
                 : far_behind && weir_round_leaps(r->tried_loss, r->kept_loss, &r->slope)
                     ? "it leaves the way of the other at once"
                 : j->verdict == WEIR_VERDICT_MORE ? "not sure yet"
                 : far_behind                      ? behind
                                                   : "it holds the loss");
}

static weir_status judge(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  weir_evidence *evidence = &r->record[r->method].evidence;
  const double *arm = r->tried_loss, *reference = r->kept_loss;
  const weir_round_form *form = form_of(r);
  if (r->ahead && !plateau_left(r, seen->step)) {
    char tried[WEIR_PLAN_TEXT_MAX];
    weir_decision decision;
    weir_plan_format(&r->tried, tried);
    (void)snprintf(r->what, sizeof r->what,
                   "the round of %s does not count: the loss has not halved by its end, and on the "
                   "plateau of a beginning all methods look alike",
                   tried);
    r->judged = WEIR_METHODS;
    abandon(r, seen->step);
    return weir_loop_decide(loop, seen, WEIR_TRIGGER_TRIAL, &decision);
  }
  r->phase = WEIR_ROUND_NONE;
  r->slope = slope_now(r);
  /* What only rounds does not leap: then it is the trainer. */
  const bool comparable =
      weir_round_comparable(arm, reference, weir_round_batches(form)) &&
      !(weir_plan_rounds(&r->tried) && weir_round_leaps(arm, reference, &r->slope));
  if (comparable) r->in_vain = 0;
  if (!comparable || !weir_round_add(evidence, arm, reference, form, &r->slope,
                                     loss_at_stake(r, r->slope.level))) {
    abandon(r, seen->step);
    const bool complete = weir_round_complete(reference, weir_round_batches(form));
    if (!comparable && complete && ++r->in_vain == vain_most)
      say(loop,
          "steps from the same checkpoint had other losses: without weir_register_state and "
          "weir_register_hooks for all that a step depends on, nothing can be tried");
    return WEIR_OK;
  }
  r->judged = r->method;
  r->judged_plan = r->tried;
  r->samples = *evidence;
  r->judgement = weir_progress_judge(evidence, form, weir_belief_of(&r->tried, form));
  const bool far_behind = too_far_behind(r, arm, reference);
  keep_account(loop, seen, far_behind);
  tell(r, far_behind);
  weir_decision decision;
  const bool safe = weir_plan_safe(&loop->current);
  const weir_status status = weir_loop_decide(loop, seen, WEIR_TRIGGER_TRIAL, &decision);
  if (status == WEIR_OK && decision.switched && !weir_plan_safe(&decision.choice.plan)) {
    if (safe) r->promised = r->slope; /* that of a plan that was only shown may be less */
    if (safe) r->promised_at = seen->step - later_half(r) / 2;
    follow_from(r, seen->step, fmax(0.0, weir_round_debt(arm, reference, form->steps)));
  }
  return status;
}

/* A loss that falls by g a step at step t, where it is l, is taken to fall with the power g t / l
 * of steps: hardly other than with their logarithm where that is small, and never to the other side
 * of 0.  In the first steps of a training it falls with higher powers than it goes on with. */
static double promised_fall(const weir_rounds *r, double from, double to) {
  static const double most = 0.3;
  const weir_slope *g = &r->promised;
  const double power = fmin(most, g->per_step * (double)r->promised_at / fabs(g->level));
  return fabs(r->anchor_loss) * (1.0 - pow(from / to, power));
}

/* What was shown before is in force again, without a round: what it holds back builds up anew.
 * Under SGD that is no more than a round lets pass. */
static void come_back(weir_rounds *r, size_t method, uint64_t step) {
  const weir_arm *arm = weir_method_arm(method);
  const weir_round_form *form = weir_round_form_of(&arm->plan, r->rule);
  const double share = fmin(arm->debt, form->by_debt ? 1.0 - form->hold : most_debt_ever);
  follow_from(r, step, share * loss_at_stake(r, newest_mean(r, follow_steps(r))));
}

/* What SGD promises does not hold here: methods have to show progress itself, in other rounds, and
 * what they have shown counts no longer. */
static void doubt_rule(weir_rounds *r, uint32_t rule, uint64_t step) {
  if (r->rule == WEIR_RULE_UNKNOWN || r->rule == rule) return;
  if (r->rule == WEIR_RULE_SGD) r->settled = false; /* by the other rule it may not have */
  r->rule = rule;
  if (r->phase != WEIR_ROUND_NONE) abandon(r, step);
  for (size_t m = 0; m < WEIR_METHODS; m++) {
    r->record[m].evidence.count = 0;
    if (r->record[m].good_until > step) r->record[m].good_until = step;
  }
}

/* Has the loss fallen too little since it was last asked for, or risen?  Asked once the promise is
 * far above what batches make of means.  Where there is doubt, the arm has to show itself again. */
static bool behind(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  const size_t method = weir_method_of(&loop->current);
  const weir_round_form *form = weir_round_form_of(&loop->current, r->rule);
  if (method == WEIR_METHODS) r->following = false;
  const size_t steps = follow_steps(r);
  if (method == WEIR_METHODS || seen->trial || r->losses < steps || r->promised_at == 0)
    return false;
  if (!r->following) come_back(r, method, seen->step);
  const double middle = (double)seen->step - 0.5 * (double)steps;
  if (middle < r->anchor + (double)steps) return false;
  const double noise = r->promised.scatter * sqrt(2.0 / (double)steps);
  const double promised = promised_fall(r, r->anchor, middle);
  const double fallen = r->anchor_loss - newest_mean(r, steps);
  if (fallen < -follow_risen * noise) {
    doubt_rule(r, WEIR_RULE_ADAPTIVE, seen->step);
    return true;
  }
  if (promised < form->asked * noise) return false;
  weir_method_record *of = &r->record[method];
  if (fallen < form->doubt * promised) {
    of->good_until = seen->step;
    doubt_rule(r, WEIR_RULE_ADAPTIVE, seen->step);
  }
  follow_from(r, seen->step, 0.0);
  return fallen < form->failed * promised;
}

/* Has what the method in force once showed grown old? */
static bool stale(const weir_loop *loop, const weir_observation *seen) {
  const size_t method = weir_method_of(&loop->current);
  return method < WEIR_METHODS && !seen->trial &&
         loop->rounds.record[method].standing == WEIR_METHOD_SHOWN &&
         seen->step >= loop->rounds.record[method].good_until;
}

/* Where the loss falls too little nobody can tell since when, and what was compared with what. */
static void distrust_all(weir_rounds *r, uint64_t step) {
  for (size_t m = 0; m < WEIR_METHODS; m++) {
    if (r->record[m].standing != WEIR_METHOD_SHOWN) continue;
    r->record[m].standing = WEIR_METHOD_REFUSED;
    r->record[m].evidence.count = 0;
    r->record[m].due = step + wait_steps;
  }
}

typedef enum reason { FELL_BEHIND, GREW_OLD, LAST_STEPS, UNTOLD } reason;

/* Back to the fastest safe plan.  What only grew old is tried again as soon as the budget allows
 * it: what was known of it does not count any more. */
static weir_status give_up(weir_loop *loop, const weir_observation *seen, reason why) {
  static const char *const words[] = {
      [FELL_BEHIND] = "under %s the loss has fallen less than its trial promised",
      [GREW_OLD] = "what %s once showed is too old: it has to be shown again",
      [LAST_STEPS] =
          "the last steps are a safe plan's, so that nothing of what %s kept back is lost",
      [UNTOLD] = "no loss has been reported for some time, so nothing tells what %s does"};
  weir_rounds *r = &loop->rounds;
  const size_t method = weir_method_of(&loop->current);
  weir_method_record *of = &r->record[method];
  char plan[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(&loop->current, plan);
  r->following = false;
  of->standing = WEIR_METHOD_REFUSED;
  of->evidence.count = 0;
  if (why == FELL_BEHIND) {
    distrust_all(r, seen->step);
    refuse(r, method, seen->step);
  }
  of->due = seen->step + (why == FELL_BEHIND ? seen->step / 2 : 0);
  r->judged = WEIR_METHODS;
  r->phase = WEIR_ROUND_NONE; /* what was tried beside it has been compared with what failed */
  (void)snprintf(r->what, sizeof r->what, words[why], plan);
  weir_decision decision;
  return weir_loop_decide(loop, seen, WEIR_TRIGGER_TRIAL, &decision);
}

/* The trainer's rule has turned out to promise less.  The plan in force may be one that does not
 * count any more, so a decision is due at once; a trial that is under way is rolled back. */
static weir_status give_up_promise(weir_loop *loop, const weir_observation *seen, bool trying) {
  weir_rounds *r = &loop->rounds;
  r->following = false;
  r->judged = WEIR_METHODS;
  (void)snprintf(
      r->what, sizeof r->what, "%s",
      r->rule == WEIR_RULE_UNKNOWN
          ? "averages are thrown away, and with them what error feedback has held back of others"
          : "steps are not proportional to averages (gradients are clipped, say), so that what "
            "rounding adds to their norm counts");
  weir_decision decision;
  const weir_status status = weir_loop_decide(loop, seen, WEIR_TRIGGER_TRIAL, &decision);
  if (status == WEIR_OK && trying && !decision.switched)
    weir_loop_direct(loop, WEIR_ACTION_SWITCH, &loop->current);
  return status;
}

/* --- a step ----------------------------------------------------------------------------------- */

/* A step of the arm, or of the plan in force after it. */
static void in_trial(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  const weir_round_form *form = form_of(r);
  const bool follows = r->follow_id > 0 && seen->plan.id == r->follow_id;
  /* The trial's directive may be on the way yet. */
  if (!seen->trial || (seen->plan.id != r->plan_id && !follows)) return;
  if (r->ran == 0) r->first = seen->step;
  if (follows && r->turned == 0) r->turned = r->ran;
  if (r->ran < weir_round_batches(form)) r->tried_loss[r->ran] = seen->loss;
  r->ran++;
  if (r->phase != WEIR_ROUND_TRIAL) return;
  if (form->after > 0 && r->follow_id == 0 && r->ran + 1 >= form->steps) {
    weir_loop_direct(loop, WEIR_ACTION_FOLLOW, &loop->current);
    r->follow_id = loop->directive.plan.id;
  } else if (r->ran + 1 >= weir_round_batches(form)) {
    weir_loop_direct(loop, WEIR_ACTION_SWITCH, &loop->current); /* back to the checkpoint */
    r->phase = WEIR_ROUND_BACK;
  }
}

/* Was the plan in force back after the arm's steps, or hardly later? */
static bool turned(const weir_rounds *r) {
  const weir_round_form *form = form_of(r);
  return form->after == 0 || (r->turned > 0 && r->turned <= form->steps + form->after / 4);
}

static weir_status back(weir_loop *loop, const weir_observation *seen) {
  weir_rounds *r = &loop->rounds;
  if (seen->trial) {
    in_trial(loop, seen); /* the last one's loss */
    return WEIR_OK;
  }
  if (seen->plan.id != loop->current.id) return WEIR_OK;
  const size_t batches = weir_round_batches(form_of(r));
  if (seen->step != r->first + r->paired || loop->dropped != r->dropped || r->ran < batches ||
      !turned(r)) {
    abandon(r, seen->step);
    return WEIR_OK;
  }
  r->kept_loss[r->paired++] = seen->loss;
  return r->paired == batches ? judge(loop, seen) : WEIR_OK;
}

/* Has the network moved so that another plan that may be chosen is clearly faster than the one in
 * force?  Else the round goes on, whatever time its steps take now: the losses compared do not
 * depend on it. */
static bool overtaken(const weir_loop *loop, const weir_observation *seen) {
  const uint32_t trigger = weir_loop_network_trigger(loop, &seen->network);
  if (trigger == WEIR_TRIGGER_NONE) return false;
  weir_decision_input in;
  weir_candidate now, other;
  weir_loop_input(loop, seen, trigger, &in);
  weir_evaluate(&in, &in.current, &now);
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    if (!weir_arm_counts(&in, a)) continue;
    weir_best_of_arm(&in, weir_arm_at(a), &other);
    if (other.progress_per_s > (1.0 + weir_constants.change) * now.progress_per_s) return true;
  }
  return false;
}

weir_status weir_rounds_step(weir_loop *loop, const weir_observation *seen, bool *busy) {
  weir_rounds *r = &loop->rounds;
  *busy = false;
  if (loop->risk == WEIR_RISK_BOLD) return WEIR_OK;
  take_in(loop, seen);
  const bool trying = r->phase == WEIR_ROUND_TRIAL;
  const uint32_t before = r->rule;
  if (seen->adapts)
    doubt_rule(r, seen->unknown ? WEIR_RULE_UNKNOWN : WEIR_RULE_ADAPTIVE, seen->step);
  const bool doubted = r->rule != before;
  settle(loop, seen);
  keep_withheld(loop, seen);
  if (doubted && loop->decisions > 0) {
    *busy = true;
    return give_up_promise(loop, seen, trying);
  }
  if (r->phase == WEIR_ROUND_TRIAL) {
    if (cut_short(r, seen)) {
      weir_loop_direct(loop, WEIR_ACTION_SWITCH, &loop->current); /* wherever the directive is */
      abandon(r, seen->step);
    }
    in_trial(loop, seen);
    *busy = true;
    return WEIR_OK;
  }
  const bool failed = behind(loop, seen);
  if (r->phase == WEIR_ROUND_BACK && !failed) {
    if (!seen->trial && (weir_loop_denser(loop) || overtaken(loop, seen))) {
      abandon(r, seen->step);
      return WEIR_OK;
    }
    *busy = true;
    return back(loop, seen);
  }
  const bool method = weir_method_of(&loop->current) < WEIR_METHODS && !seen->trial;
  const bool last = method && left_for_methods(r, seen->step) == 0;
  const bool untold = method && r->silent >= silence;
  if (!failed && !last && !untold && !stale(loop, seen)) return WEIR_OK;
  *busy = true;
  return give_up(loop, seen, last ? LAST_STEPS : failed ? FELL_BEHIND : untold ? UNTOLD : GREW_OLD);
}

weir_status weir_rounds_consider(weir_loop *loop, const weir_observation *seen) {
  const weir_rounds *r = &loop->rounds;
  if (loop->risk != WEIR_RISK_MEASURED || r->phase != WEIR_ROUND_NONE || loop->has_directive ||
      loop->waiting > 0 || loop->decisions == 0 || r->in_vain >= vain_most || !r->settled)
    return WEIR_OK;
  const weir_slope slope = slope_now(r);
  const bool leaves = leaves_plateau(r);
  weir_decision_input in;
  if (!plateau_left(r, seen->step) && !leaves) return WEIR_OK; /* there all methods look alike */
  if (!weir_slope_clear(&slope) && !leaves && !(r->rule == WEIR_RULE_SGD && halved(r)))
    return WEIR_OK;
  weir_loop_input(loop, seen, WEIR_TRIGGER_TRIAL, &in);
  return try_one(loop, seen, &in);
}

/* The decision way, in reading order:
 *   headers of all ranks -> observation (controller.c, network.c) -> learn (learn.c)
 *   -> policy: is a decision due? (policy_*.c) -> decide (decide*.c: candidates, moo, guard)
 *   -> journal (journal.c) -> directive, which rides on rank 0's next header. */
#include "controller/loop.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

static const double most_error = 0.25, goodput_unrest = 0.1; /* beyond its error */
static const uint64_t repeat_after = 4; /* steps until a directive that had no effect is repeated */

bool weir_network_known(const weir_network *network, int workers) {
  return workers > 1 && network->latency > 0.0 && network->bandwidth > 0.0;
}

weir_group_shape weir_loop_shape(const weir_loop *loop) {
  return (weir_group_shape){loop->workers, loop->hosts > 0 ? loop->hosts : loop->workers,
                            loop->told, loop->largest, loop->order};
}

uint32_t weir_loop_open_trigger(const weir_loop *loop, const weir_observation *seen) {
  if (loop->steps < 3 || !weir_network_known(&seen->network, loop->workers))
    return WEIR_TRIGGER_NONE;
  if (loop->decisions == 0) return WEIR_TRIGGER_START;
  return loop->open ? weir_loop_network_trigger(loop, &seen->network) : WEIR_TRIGGER_NONE;
}

/* A value has moved when it left the threshold, or twice its own error when that is wider. */
static double excess(double now, double error, double before) {
  if (!(before > 0.0)) return 0.0;
  return fabs(now - before) / before - fmax(weir_constants.change, 2.0 * error);
}

/* Of a link without delay the latency is some microseconds, and moves by tenths of it all the time.
 * Few plans wait for more of them in a row than the two rings of low rank, 4 (N - 1), a bucket
 * after the other: where all of these together are hardly a part of a step, another plan would
 * hardly be the better one now. */
static bool hardly_felt(const weir_loop *loop, double moved_s) {
  static const double share = 0.01;
  const double buckets = loop->current.buckets > 1 ? (double)loop->current.buckets : 1.0;
  return buckets * 4.0 * (loop->workers - 1) * moved_s < share * loop->learnt.step_s;
}

uint32_t weir_loop_network_trigger(const weir_loop *loop, const weir_network *now) {
  const weir_network *before = &loop->at_decision;
  /* A monitor that announces a change has left its doubts behind.  It speaks for its own link,
   * though: whether the network is another one for all is what the values agreed on say. */
  const double most = now->changed ? 0.0 : most_error;
  const bool felt = loop->policy->id == WEIR_POLICY_PAPER || /* its rule knows no steps */
                    !hardly_felt(loop, fabs(now->latency - before->latency));
  const double latency =
      felt ? excess(now->latency, fmin(now->latency_error, most), before->latency) : 0.0;
  const double bandwidth =
      excess(now->bandwidth, fmin(now->bandwidth_error, most), before->bandwidth);
  /* It is that of the last messages, and varies as losses do. */
  const double goodput =
      excess(now->goodput, fmin(now->goodput_error, most_error) + goodput_unrest, before->goodput);
  if (latency <= 0.0 && bandwidth <= 0.0 && goodput <= 0.0) return WEIR_TRIGGER_NONE;
  return latency > fmax(bandwidth, goodput) ? WEIR_TRIGGER_LATENCY : WEIR_TRIGGER_BANDWIDTH;
}

void weir_loop_say(weir_loop *loop, const char *format, ...) {
  va_list list;
  va_start(list, format);
  (void)vsnprintf(loop->said, sizeof loop->said, format, list);
  va_end(list);
  weir_log(WEIR_LOG_INFO, "%s", loop->said);
}

void weir_loop_direct(weir_loop *loop, uint32_t action, const weir_plan *plan) {
  loop->directive = (weir_directive){.action = action, .plan = *plan};
  loop->has_directive = true;
  if (weir_action_plans(action)) {
    loop->directive.plan.id = loop->next_id++;
    loop->last = loop->directive;
    loop->waiting = 1;
  }
  if (action == WEIR_ACTION_SWITCH) {
    loop->current = loop->directive.plan;
    loop->dwell = 0;
    weir_learn_switched(&loop->learnt);
  }
}

bool weir_loop_denser(const weir_loop *loop) {
  static const double far = 1.5;
  return weir_plan_sparse(&loop->current) && loop->policy->id == WEIR_POLICY_WEIR &&
         loop->learnt.nonzero > far * loop->nonzero_at_decision;
}

void weir_loop_input(const weir_loop *loop, const weir_observation *seen, uint32_t trigger,
                     weir_decision_input *in) {
  const weir_learnt *l = &loop->learnt;
  memset(in, 0, sizeof *in);
  in->decision = loop->decisions;
  in->step = seen->step;
  in->epoch = seen->epoch;
  in->policy = loop->policy->id;
  in->trigger = trigger;
  in->seed = (loop->seed + loop->decisions) & ((UINT64_C(1) << 53) - 1);
  in->workers = (uint64_t)loop->workers;
  in->hosts = (uint64_t)loop->hosts;
  in->largest = (uint64_t)loop->largest;
  in->order = loop->order;
  in->devices = loop->devices ? 1 : 0;
  in->told = loop->told ? 1 : 0;
  in->risk = loop->risk;
  in->settled = !loop->rounds.settled                ? WEIR_UNSETTLED
                : loop->rounds.rule == WEIR_RULE_SGD ? WEIR_SETTLED_SGD
                                                     : WEIR_SETTLED;
  in->untried = loop->rounds.rule == WEIR_RULE_UNKNOWN ? 1 : 0;
  in->withheld = loop->rounds.withheld ? 1 : 0;
  in->squares_known = seen->squares_known && loop->rounds.rule == WEIR_RULE_ADAPTIVE ? 1 : 0;
  in->memory_limit = weir_rounds_memory(&loop->rounds, loop->memory_limit, loop->rounds.kept);
  in->threads = loop->codec_threads ? 1 : 0;
  in->rooms = seen->rooms;
  in->room_bytes = seen->room_bytes;
  in->open = loop->open ? 1 : 0;
  in->elements = loop->elements;
  in->latency = seen->network.latency;
  in->latency_error = seen->network.latency_error;
  in->bandwidth = seen->network.bandwidth;
  in->bandwidth_error = seen->network.bandwidth_error;
  in->goodput = seen->network.goodput;
  in->deviation = seen->network.deviation;
  in->processors = loop->processors;
  in->compute = l->compute;
  in->gain = l->gain;
  memcpy(in->curve, l->curve, sizeof in->curve);
  memcpy(in->curve_cr, weir_curve_cr, sizeof in->curve_cr);
  in->overlap = l->overlap;
  memcpy(in->overhead, l->overhead, sizeof in->overhead);
  memcpy(in->overhead_latencies, l->latencies, sizeof in->overhead_latencies);
  memcpy(in->compress, l->compress, sizeof in->compress);
  in->current = loop->current;
  in->previous = trigger == WEIR_TRIGGER_FALLBACK ? loop->probation.previous : loop->current;
  /* Codec, ratio and collective are decided for the gradient as a whole, buckets after that. */
  in->current.buckets = in->current.layout = in->previous.buckets = in->previous.layout = 0;
  in->dwell = loop->dwell;
  in->losses = loop->rounds.told;
  for (size_t m = 0; m < WEIR_METHODS; m++)
    in->shown[m] = weir_rounds_shown(&loop->rounds, m, seen->step);
  memcpy(in->trial_compress, loop->trials.compress, sizeof in->trial_compress);
  memcpy(in->trial_gain, loop->trials.gain, sizeof in->trial_gain);
  in->nonzero = l->nonzero;
  in->runs = l->runs;
  memcpy(in->shortened, l->shortened, sizeof in->shortened);
  memcpy(in->low_rank, loop->low_rank, sizeof in->low_rank);
  in->paper_gather = loop->trials.codecs.gather;
  in->paper_shared = loop->trials.codecs.shared;
}

static void explain_sparse(const weir_loop *loop, const weir_decision_input *in, weir_decision *d) {
  const size_t length = strlen(d->why);
  if (!weir_plan_sparse(&d->choice.plan) || !d->switched) return;
  (void)snprintf(d->why + length, sizeof d->why - length,
                 "; at most %.2g %% of a gradient is not zero, and no more is sent%s",
                 100.0 * in->nonzero,
                 loop->overlap ? ", without buckets: part of it may be dense" : "");
}

/* Also a plan that is kept may be divided anew, or lose its buckets. */
static void explain_division(const weir_loop *loop, const weir_plan *before, weir_decision *d) {
  const size_t length = strlen(d->why), room = sizeof d->why - length;
  if (loop->current.layout == before->layout || weir_plan_sparse(&d->choice.plan) ||
      loop->rounds.undivided)
    return;
  if (d->buckets > 0)
    (void)snprintf(d->why + length, room, "; in %zu %sbuckets", d->buckets,
                   d->buckets == before->buckets ? "other " : "");
  else
    (void)snprintf(d->why + length, room, "; without buckets%s",
                   loop->fuse_failed ? ", under which steps took longer than foretold" : "");
}

/* What the guard does not know of: buckets, a trial's outcome, and why others than safe plans were
 * left out. */
static void explain(const weir_loop *loop, const weir_decision_input *in, const weir_plan *before,
                    weir_decision *d) {
  char guard[sizeof d->why];
  explain_sparse(loop, in, d);
  explain_division(loop, before, d);
  if (loop->policy->id != WEIR_POLICY_WEIR || loop->risk != WEIR_RISK_MEASURED) return;
  (void)snprintf(guard, sizeof guard, "%s", d->why);
  if (in->trigger == WEIR_TRIGGER_TRIAL)
    (void)snprintf(d->why, sizeof d->why, "%s; %.80s", loop->rounds.what, guard);
  else if (in->losses == 0)
    (void)snprintf(d->why, sizeof d->why, "%.160s; no loss is reported: safe plans only", guard);
}

static void say_decision(weir_loop *loop, const weir_decision_input *in, const weir_decision *d) {
  char before[WEIR_PLAN_TEXT_MAX], choice[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(&in->current, before);
  weir_plan_format(&d->choice.plan, choice);
  weir_loop_say(loop, "decision %llu at step %llu, for %s: %s%s%s; %s",
                (unsigned long long)in->decision, (unsigned long long)in->step,
                weir_trigger_name(in->trigger), d->switched ? before : "keep ",
                d->switched ? " -> " : "", choice, d->why);
}

/* More than the estimate's own unrest: what was learnt of the arms may not hold any more. */
static bool another_network(const weir_network *before, const weir_network *now) {
  const double latency = fabs(log(now->latency / before->latency));
  const double bandwidth = fabs(log(now->bandwidth / before->bandwidth));
  return !(fmax(latency, bandwidth) <= log(1.5));
}

weir_status weir_loop_decide(weir_loop *loop, const weir_observation *seen, uint32_t trigger,
                             weir_decision *decision) {
  weir_decision_input input;
  /* Whatever it is for: the next one compares with the network of this one. */
  if (loop->policy->id == WEIR_POLICY_WEIR && loop->decisions > 0 &&
      another_network(&loop->at_decision, &seen->network))
    weir_learn_network_changed(&loop->learnt);
  weir_loop_input(loop, seen, trigger, &input);
  const weir_plan before = loop->current;
  weir_status status = weir_decide(&input, decision);
  if (status == WEIR_OK && loop->policy->id == WEIR_POLICY_WEIR)
    status = weir_loop_look_ahead(loop, &input, decision);
  if (status != WEIR_OK) return status;
  if (loop->policy->id == WEIR_POLICY_WEIR)
    status = weir_loop_divide(loop, &input, decision);
  else
    decision->buckets = loop->current.buckets;
  if (loop->policy->id != WEIR_POLICY_WEIR && decision->switched)
    weir_loop_direct(loop, WEIR_ACTION_SWITCH, &decision->choice.plan);
  if (status != WEIR_OK) return status;
  explain(loop, &input, &before, decision);
  decision->choice.plan.id = loop->current.id;
  loop->at_decision = seen->network;
  memcpy(loop->curve_at_decision, loop->learnt.curve, sizeof loop->curve_at_decision);
  loop->nonzero_at_decision = loop->learnt.nonzero;
  loop->since_decision = 0;
  loop->decisions++;
  say_decision(loop, &input, decision);
  /* What it has lost it says itself: what is decided, and what is made of that, goes on. */
  if (loop->journal) (void)weir_journal_write(loop->journal, loop, &input, decision);
  return WEIR_OK;
}

/* A directive can be lost with the step that carried it (a gradient that was not finite). */
static void repeat_lost_directive(weir_loop *loop, const weir_observation *seen) {
  if (loop->waiting == 0) return;
  if (seen->plan.id >= loop->last.plan.id) {
    loop->waiting = 0;
    return;
  }
  if (loop->waiting++ < repeat_after) return;
  loop->waiting = 1;
  loop->directive = loop->last;
  loop->has_directive = true;
}

weir_status weir_loop_step(weir_loop *loop, const weir_observation *seen) {
  loop->has_directive = false;
  loop->steps++;
  loop->since_decision++;
  if (!seen->trial && seen->plan.id == loop->current.id) loop->dwell++;
  weir_learn(loop, seen);
  repeat_lost_directive(loop, seen);
  const weir_status status = loop->policy->consider(loop, seen);
  loop->wants_curve = loop->curve && (!loop->learnt.has_curve ||
                                      loop->since_decision + 2 >= weir_constants.period ||
                                      loop->learnt.departures > 0);
  return status;
}

/* Policy weir: the front over the arms that count and their ratios, then the point of most progress
 * per second. */
#include <math.h>
#include <stdio.h>

#include "controller/decide.h"

/* The arms that count, and of which input: what the search's evaluations need. */
typedef struct choices {
  const weir_decision_input *in;
  uint32_t count;
  const weir_arm *arm[WEIR_ARMS];
  bool free; /* some ratio is to be searched for */
} choices;

static choices find_choices(const weir_decision_input *in) {
  choices all = {.in = in};
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    if (!weir_arm_counts(in, a)) continue;
    all.arm[all.count++] = weir_arm_at(a);
    all.free |= in->risk == WEIR_RISK_BOLD && weir_arm_at(a)->plan.cr == 0.0;
  }
  return all;
}

static double objectives(void *user, const double *x, const uint32_t *category, double *f) {
  const choices *all = user;
  const weir_plan plan = weir_arm_plan(all->in, all->arm[category[0]], x[0]);
  weir_candidate c;
  weir_evaluate(all->in, &plan, &c);
  f[0] = c.compress_s;
  f[1] = c.comm_s;
  f[2] = c.gain > 0.0 ? 1.0 / c.gain : INFINITY;
  return weir_plan_fits(all->in, &plan) ? 0.0 : 1.0;
}

static weir_status search_front(choices *all, weir_decision *d) {
  const double low = log(weir_constants.cr_low), high = log(weir_constants.cr_high);
  const weir_moo_problem problem = {.reals = 1,
                                    .lower = &low,
                                    .upper = &high,
                                    .categoricals = 1,
                                    .values = &all->count,
                                    .objectives = 3,
                                    .user = all,
                                    .evaluate = objectives};
  weir_moo_front front;
  const weir_status status = weir_decide_search(&problem, all->in->seed, &front);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < front.count && i < WEIR_FRONT_MAX; i++) {
    const weir_plan plan = weir_arm_plan(all->in, all->arm[front.category[i]], front.x[i]);
    weir_evaluate(all->in, &plan, &d->front[d->front_size++]);
  }
  weir_moo_front_free(&front);
  return WEIR_OK;
}

/* Where all ratios are given there is nothing to search: candidates that none beats. */
static void list_front(weir_decision *d) {
  for (size_t i = 0; i < d->candidates; i++) {
    const weir_candidate *c = &d->candidate[i];
    bool beaten = false;
    for (size_t k = 0; k < d->candidates; k++) {
      const weir_candidate *other = &d->candidate[k];
      beaten |=
          other->compress_s <= c->compress_s && other->comm_s <= c->comm_s &&
          other->gain >= c->gain &&
          (other->compress_s < c->compress_s || other->comm_s < c->comm_s || other->gain > c->gain);
    }
    if (!beaten && d->front_size < WEIR_FRONT_MAX) d->front[d->front_size++] = *c;
  }
}

static weir_status go_back(const weir_decision_input *in, weir_decision *d) {
  weir_evaluate(in, &in->previous, &d->choice);
  d->switched = true;
  d->predicted_s = weir_step_seconds(in, &d->choice);
  (void)snprintf(d->why, sizeof d->why, "slower than foretold and than the plan before it");
  return WEIR_OK;
}

/* Where it hardly costs any speed, gradients travel in more bits: where computing takes most of a
 * step, the fewest are fastest by little, and harm a training, if they do, for nothing. */
static const weir_candidate *with_most_bits(const weir_decision *d, const weir_candidate *best) {
  const double enough = (1.0 - weir_constants.spare) * best->progress_per_s;
  const weir_candidate *most = best;
  for (size_t i = 0; i < d->candidates; i++) {
    const weir_candidate *c = &d->candidate[i];
    const double bits = weir_plan_bits(&c->plan), before = weir_plan_bits(&most->plan);
    if (c->progress_per_s >= enough &&
        (bits > before || (bits == before && c->progress_per_s > most->progress_per_s)))
      most = c;
  }
  return most;
}

weir_status weir_decide_weir(const weir_decision_input *in, weir_decision *d) {
  choices all = find_choices(in);
  const weir_candidate *best = NULL;
  for (size_t a = 0; a < all.count; a++) {
    weir_candidate *c = &d->candidate[d->candidates++];
    weir_best_of_arm(in, all.arm[a], c);
    if (!best || c->progress_per_s > best->progress_per_s) best = c;
  }
  if (all.free) {
    const weir_status status = search_front(&all, d);
    if (status != WEIR_OK) return status;
  } else {
    list_front(d);
  }
  /* The search can hit a better point than scan and section where the model is not unimodal. */
  for (size_t i = 0; i < d->front_size; i++)
    if (d->front[i].progress_per_s > best->progress_per_s) best = &d->front[i];
  if (in->trigger == WEIR_TRIGGER_FALLBACK) return go_back(in, d);
  const weir_candidate chosen = *(in->risk == WEIR_RISK_BOLD ? best : with_most_bits(d, best));
  weir_guard(in, &chosen, d);
  return WEIR_OK;
}

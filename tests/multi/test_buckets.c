/* Plans of several buckets: whatever the buckets and however they change between steps, nothing of
 * a gradient is lost or invented, all ranks get the same bits, each group does what its own plan
 * says, and trials leave nothing behind. */
#include <criterion/criterion.h>
#include <math.h>

#include "group.h"
#include "reference.h"
#include "script.h"

#define TENSORS SCRIPT_TENSORS

typedef struct course {
  size_t n, offset[TENSORS + 1];
  script_step *steps;
  int count;
  float *g[GROUP_MAX], *before[GROUP_MAX], *after[GROUP_MAX], *update[GROUP_MAX], *kept[GROUP_MAX];
  uint64_t seed;
} course;

/* --- random plans --------------------------------------------------------------------------- */

static weir_plan random_arm(weir_rng *rng) {
  static const double ratios[] = {0.001, 0.01, 0.1, 0.5, 1};
  return group_plan(weir_rng_below(rng, GROUP_ARMS), ratios[weir_rng_below(rng, 5)], 0);
}

static void random_table(script_step *s, weir_rng *rng, bool equal) {
  const uint64_t density = 1 + weir_rng_below(rng, 12); /* from one tensor a group to few buckets */
  const weir_plan common = random_arm(rng);
  size_t count = 0;
  for (uint32_t t = 1; t <= TENSORS; t++) {
    if (t < TENSORS && weir_rng_below(rng, density) != 0) continue;
    const weir_plan plan = equal ? common : random_arm(rng);
    script_add_bucket(s, &count, t, (uint32_t)weir_rng_below(rng, WEIR_PLACE_COUNT), &plan);
  }
  script_close(s, count, s->plan.id);
}

static void write_script(course *c, int steps, weir_rng *rng) {
  c->count = steps;
  c->steps = calloc((size_t)steps, sizeof *c->steps);
  bool trial = false;
  for (int i = 0; i < steps; i++) {
    script_step *s = &c->steps[i];
    s->plan.id = (uint64_t)i;
    if (weir_rng_below(rng, 8) == 0) { /* the whole gradient at once now and then */
      s->plan = random_arm(rng);
      s->plan.id = (uint64_t)i;
    } else {
      random_table(s, rng, weir_rng_below(rng, 3) == 0);
    }
    trial = i > 0 && weir_rng_below(rng, trial ? 2 : 10) == 0;
    s->action = trial ? WEIR_ACTION_TRIAL : WEIR_ACTION_SWITCH;
    s->shuffled = weir_rng_below(rng, 4) == 0;
  }
}

/* --- one step ------------------------------------------------------------------------------- */

static void fill(float *g, size_t n, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < n; i++) {
    const float x = (float)weir_rng_normal(&rng);
    g[i] = x * x * x;
  }
}

static weir_status hand_in(const course *c, const script_step *s, weir_engine *engine,
                           float *update, uint64_t seed) {
  uint32_t order[TENSORS];
  weir_rng rng = weir_rng_of(seed);
  for (uint32_t t = 0; t < TENSORS; t++) order[t] = t;
  for (uint32_t t = TENSORS; s->shuffled && t > 1; t--) {
    const uint32_t j = (uint32_t)weir_rng_below(&rng, t), held = order[t - 1];
    order[t - 1] = order[j];
    order[j] = held;
  }
  weir_status status = WEIR_OK;
  for (size_t t = 0; t < TENSORS && status == WEIR_OK; t++)
    status = weir_engine_submit(engine, order[t], update + c->offset[order[t]]);
  return status;
}

static void check_conservation(group *g, const course *c, int step) {
  for (size_t i = 0; i < c->n; i++) {
    double in = 0, out = g->size * (double)c->update[0][i], size = 0;
    for (int r = 0; r < g->size; r++) {
      in += (double)c->g[r][i] + (double)c->before[r][i];
      out += (double)c->after[r][i];
      size += fabs((double)c->g[r][i]) + fabs((double)c->before[r][i]) +
              fabs((double)c->after[r][i]); /* an encoder may send more than the element */
    }
    if (!(fabs(in - out) <= (g->size + 6) * 0x1p-23 * size + 1e-37)) {
      group_fail(g, "%d ranks, step %d, element %zu: %.9g came in, %.9g went out", g->size, step, i,
                 in, out);
      return;
    }
  }
}

/* What stays behind of a group whose codec is exact: nothing of dense ones; of top-k all but the
 * k largest. */
static void check_bucket(member *m, const course *c, const weir_plan *plan, size_t from, size_t to,
                         int step) {
  const float *after = c->after[m->rank];
  bool kept[2500] = {false};
  if (plan->codec == WEIR_CODEC_TOPK && plan->wire != WEIR_WIRE_AUTO_BF16)
    reference_top(c->kept[m->rank], from, to, reference_kept(to - from, plan->cr), kept);
  else if (plan->codec != WEIR_CODEC_NONE)
    return;
  for (size_t i = from; i < to; i++) {
    const float expected = plan->codec == WEIR_CODEC_NONE || kept[i] ? 0 : c->kept[m->rank][i];
    if (after[i] == expected) continue;
    group_fail(m->group, "step %d, rank %d, element %zu of group [%zu, %zu): residual %g, not %g",
               step, m->rank, i, from, to, (double)after[i], (double)expected);
    return;
  }
}

static void check_step(member *m, const course *c, int step) {
  const script_step *s = &c->steps[step];
  if (memcmp(c->update[m->rank], c->update[0], c->n * sizeof(float)) != 0)
    group_fail(m->group, "step %d: rank %d has another result than rank 0", step, m->rank);
  if (m->rank == 0) check_conservation(m->group, c, step);
  size_t first = 0;
  for (size_t k = 0; k < s->plan.buckets; first = s->table[k++].end) {
    weir_plan plan;
    weir_plan_of_bucket(&s->table[k], &plan);
    check_bucket(m, c, &plan, c->offset[first], c->offset[s->table[k].end], step);
  }
  if (s->plan.buckets == 0) check_bucket(m, c, &s->plan, 0, c->n, step);
}

static bool one_step(member *m, course *c, weir_engine *engine, int step) {
  const script_step *s = &c->steps[step];
  weir_step_info begun, ended;
  const int r = m->rank;
  if (weir_engine_step_begin(engine, &begun) != WEIR_OK) return false;
  memcpy(c->before[r], weir_engine_residual(engine), c->n * sizeof(float));
  fill(c->g[r], c->n, c->seed * 1000003 + (uint64_t)step * GROUP_MAX + (uint64_t)r);
  memcpy(c->update[r], c->g[r], c->n * sizeof(float));
  for (size_t i = 0; i < c->n; i++) c->kept[r][i] = c->g[r][i] + c->before[r][i];
  if (hand_in(c, s, engine, c->update[r], c->seed + (uint64_t)step) != WEIR_OK) return false;
  if (weir_engine_step_end(engine, &ended) != WEIR_OK) return false;
  memcpy(c->after[r], weir_engine_residual(engine), c->n * sizeof(float));
  const uint64_t planned = weir_plan_digest(&s->plan);
  if (weir_plan_digest(&begun.plan) != planned || weir_plan_digest(&ended.plan) != planned)
    group_fail(m->group, "rank %d ran another plan than agreed at step %d", r, step);
  if (weir_engine_buckets(engine, NULL, 0) != s->plan.buckets)
    group_fail(m->group, "rank %d runs %zu buckets at step %d", r,
               weir_engine_buckets(engine, NULL, 0), step);
  return true;
}

/* A trial begins where the steps that count have come to, and its end goes back there. */
static void follow_trials(member *m, const course *c, int step, float *point) {
  const bool trial = c->steps[step].action == WEIR_ACTION_TRIAL;
  const bool tried = step > 0 && c->steps[step - 1].action == WEIR_ACTION_TRIAL;
  const float *before = c->before[m->rank];
  if (tried && memcmp(point, before, c->n * sizeof(float)) != 0)
    group_fail(m->group, "rank %d, step %d: the trial left something behind", m->rank, step);
  if (trial && !tried) memcpy(point, before, c->n * sizeof(float));
}

static void run_course(member *m) {
  course *c = m->group->shared;
  script v = {c->steps, c->count, 0};
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, c->offset},
                                     .first_plan = c->steps[0].plan,
                                     .first_buckets = c->steps[0].table,
                                     .hooks = script_hooks(&v)};
  weir_engine *engine;
  if (weir_engine_create(&engine, &config) != WEIR_OK) {
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
    return;
  }
  FREED float *point = calloc(c->n + 1, sizeof *point);
  for (v.at = 0; v.at < c->count; v.at++) {
    if (one_step(m, c, engine, v.at))
      follow_trials(m, c, v.at, point);
    else
      group_fail(m->group, "%d ranks, step %d, rank %d: %s", m->size, v.at, m->rank,
                 weir_last_error());
    group_barrier(m);
    check_step(m, c, v.at);
    group_barrier(m);
    const bool stop = group_failed(m->group);
    group_barrier(m); /* all have looked before anybody can fail again */
    if (stop) break;
  }
  weir_engine_free(engine);
}

static void run(int ranks, int steps) {
  course c = {.seed = (uint64_t)ranks * 7 + 1};
  weir_rng rng = weir_rng_of(c.seed);
  for (size_t t = 0; t < TENSORS; t++) {
    static const size_t most[] = {1, 4, 30, 200};
    c.offset[t + 1] = c.offset[t] + weir_rng_below(&rng, most[t % 4] + 1); /* some are empty */
  }
  c.n = c.offset[TENSORS];
  cr_assert_leq(c.n, 2500);
  write_script(&c, steps, &rng);
  for (int r = 0; r < ranks; r++) {
    float **all[] = {&c.g[r], &c.before[r], &c.after[r], &c.update[r], &c.kept[r]};
    for (size_t i = 0; i < 5; i++) *all[i] = calloc(c.n + 1, sizeof(float));
  }
  group g;
  group_run(&g, ranks, run_course, &c);
  for (int r = 0; r < ranks; r++) {
    float *all[] = {c.g[r], c.before[r], c.after[r], c.update[r], c.kept[r]};
    for (size_t i = 0; i < 5; i++) free(all[i]);
  }
  free(c.steps);
  cr_assert(!g.failed, "%s", g.failure);
}

Test(buckets, thousand_random_plan_changes) { run(4, GROUP_SLOW ? 200 : 1000); }

Test(buckets, any_number_of_ranks) {
  static const int sizes[] = {1, 2, 3, 7, 8};
  for (size_t i = 0; i < 5; i++) run(sizes[i], GROUP_SLOW ? 40 : 150);
}

/* Momentum correction with HiTopKComm: a machine's ranks together are one worker of the paper's,
 * whose momentum is cut off where its sum was sent, on every rank of it. */
#include <criterion/criterion.h>
#include <math.h>

#include "engine/state.h"
#include "group.h"
#include "script.h"

enum { N = 60, STEPS = 14 };
#define MOMENTUM 0.5

typedef struct course {
  const char *machines; /* a letter a rank */
  size_t n;
  int steps, failing; /* failing: step with a NaN on the last rank; -1: none */
  script_step step[STEPS];
  float g[STEPS][GROUP_MAX][N];
  /* What came of it. */
  bool trial[STEPS];
  float update[GROUP_MAX][STEPS][N];
  float velocity[GROUP_MAX][N], residual[GROUP_MAX][N];
} course;

static weir_engine *create(member *m, script *v, const size_t *offset) {
  const course *c = m->group->shared;
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {1, offset},
                                     .momentum = MOMENTUM,
                                     .first_plan = c->step[0].plan,
                                     .hooks = script_hooks(v)};
  weir_engine *engine = NULL;
  if (weir_comm_find_hosts(m->comm, (uint64_t)c->machines[m->rank]) != WEIR_OK ||
      weir_engine_create(&engine, &config) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  return engine;
}

static void body(member *m) {
  course *c = m->group->shared;
  script v = {c->step, c->steps, 0};
  const size_t offset[2] = {0, c->n};
  weir_engine *engine = create(m, &v, offset);
  for (v.at = 0; engine != NULL && v.at < c->steps; v.at++) {
    float *const g = c->update[m->rank][v.at];
    weir_step_info info = {0};
    weir_status status = weir_engine_step_begin(engine, &info);
    memcpy(g, c->g[v.at][m->rank], c->n * sizeof *g);
    if (v.at == c->failing && m->rank == m->size - 1) g[0] = NAN;
    if (status == WEIR_OK) status = weir_engine_submit(engine, 0, g);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    if (status != (v.at == c->failing ? WEIR_E_NONFINITE : WEIR_OK))
      group_fail(m->group, "rank %d, step %d: %s", m->rank, v.at, weir_last_error());
    if (m->rank == 0) c->trial[v.at] = info.trial;
  }
  if (engine == NULL) return;
  memcpy(c->velocity[m->rank], engine->host.velocity, c->n * sizeof(float));
  memcpy(c->residual[m->rank], weir_engine_residual(engine), c->n * sizeof(float));
  weir_engine_free(engine);
}

static void run(course *c) { group_well((int)strlen(c->machines), body, c, c->machines); }

/* --- by hand ---------------------------------------------------------------------------------- */

/* Two machines of two ranks with the same gradients, momentum 1/2; rank 0 selects from elements 0
 * and 1, rank 1 from 2 and 3, one of two.  A machine's sum of gradients is (4, 3, 8, 2) in every
 * step:
 *   u = (4, 3, 8, 2):    e = (4, 3, 8, 2),     4 and 8 go,    u = (0, 3, 0, 2)
 *   u = (4, 4.5, 8, 3):  e = (4, 7.5, 8, 5),   7.5 and 8 go,  u = (4, 0, 0, 3)
 *   u = (6, 3, 8, 3.5):  e = (10, 3, 8, 8.5),  10 and 8.5 go, u = (0, 3, 8, 0)
 *   u = (4, 4.5, 12, 2): e = (4, 7.5, 20, 2),  7.5 and 20 go, u = (4, 0, 0, 2)
 * and the average is half of what goes. */
Test(momentum_hosts, is_cut_off_on_all_ranks_of_a_machine) {
  static const float first[4] = {4, 3, 4, 1}, second[4] = {0, 0, 4, 1};
  static const float want[4][4] = {
      {2, 0, 4, 0}, {0, 3.75F, 4, 0}, {5, 0, 0, 4.25F}, {0, 3.75F, 10, 0}};
  static course c = {.machines = "aabb", .n = 4, .steps = 4, .failing = -1};
  for (int s = 0; s < 4; s++) {
    cr_assert_eq(weir_plan_parse("topk:0.5:hitopk", &c.step[s].plan), WEIR_OK);
    for (int r = 0; r < 4; r++) memcpy(c.g[s][r], r % 2 == 0 ? first : second, sizeof first);
  }
  run(&c);
  for (int r = 0; r < 4; r++)
    for (int s = 0; s < 4; s++)
      for (size_t i = 0; i < 4; i++)
        cr_assert_eq(c.update[r][s][i], want[s][i], "rank %d, step %d, element %zu: %g", r, s, i,
                     (double)c.update[r][s][i]);
  /* Of what is left, rank 0 has made (4, 0, 0, 1) and rank 1 (0, 0, 0, 1): g of the last two
   * steps. */
  static const float left[2][4] = {{4, 0, 0, 1}, {0, 0, 0, 1}},
                     kept[2][4] = {{4, 0, 0, 0}, {0, 0, 0, 2}};
  for (int r = 0; r < 4; r++)
    for (size_t i = 0; i < 4; i++) {
      cr_assert_eq(c.velocity[r][i], left[r % 2][i], "rank %d, element %zu", r, i);
      cr_assert_eq(c.residual[r][i], kept[r % 2][i], "rank %d, element %zu", r, i);
    }
}

/* --- against a plain reference ---------------------------------------------------------------- */

/* A machine as the paper's worker: its velocity and residual. */
typedef struct worker {
  float u[N], r[N];
} worker;

/* The k elements of e that are the largest of a share, lower indices first, go. */
static void send_share(worker *w, size_t begin, size_t count, double cr, float *sum) {
  const size_t asked = (size_t)(cr * (double)count), k = count == 0 ? 0 : asked > 0 ? asked : 1;
  for (size_t sent = 0; sent < k; sent++) {
    size_t best = begin;
    for (size_t i = begin; i < begin + count; i++)
      if (fabsf(w->r[i]) > fabsf(w->r[best])) best = i;
    sum[best] += w->r[best];
    w->u[best] = w->r[best] = 0;
  }
}

/* Zeros may be sent as well, and are not told from others in the sums. */
static void expect_step(const course *c, int step, worker *machine, int hosts, float *sum) {
  const int size = (int)strlen(c->machines), inside = size / hosts;
  memset(sum, 0, N * sizeof *sum);
  for (int m = 0; m < hosts; m++) {
    worker *w = &machine[m];
    for (size_t i = 0; i < c->n; i++) {
      float g = 0;
      for (int r = 0; r < size; r++) g += c->machines[r] == 'a' + m ? c->g[step][r][i] : 0;
      w->u[i] = w->u[i] / 2 + g;
      w->r[i] += w->u[i];
    }
    for (size_t p = 0, begin = 0; p < (size_t)inside; p++) {
      const size_t count = c->n / (size_t)inside + (p < c->n % (size_t)inside);
      send_share(w, begin, count, c->step[step].plan.cr, sum);
      begin += count;
    }
  }
}

static void check(course *c, int hosts) {
  const int size = (int)strlen(c->machines);
  worker machine[GROUP_MAX] = {0}, before[GROUP_MAX];
  float sum[N];
  run(c);
  for (int s = 0; s < c->steps; s++) {
    if (c->trial[s] && !c->trial[s - 1]) memcpy(before, machine, sizeof before);
    if (s > 0 && !c->trial[s] && c->trial[s - 1]) memcpy(machine, before, sizeof before);
    if (s == c->failing) continue;
    expect_step(c, s, machine, hosts, sum);
    for (int r = 0; r < size; r++)
      for (size_t i = 0; i < c->n; i++)
        cr_assert_eq(c->update[r][s][i], sum[i] * (1.0F / (float)size),
                     "%s, rank %d, step %d, element %zu of %zu: %g, not %g", c->machines, r, s, i,
                     c->n, (double)c->update[r][s][i], (double)(sum[i] * (1.0F / (float)size)));
  }
  for (int m = 0; m < hosts; m++)
    for (size_t i = 0; i < c->n; i++) {
      float u = 0, r = 0;
      for (int k = 0; k < size; k++) {
        u += c->machines[k] == 'a' + m ? c->velocity[k][i] : 0;
        r += c->machines[k] == 'a' + m ? c->residual[k][i] : 0;
      }
      cr_assert(u == machine[m].u[i] && r == machine[m].r[i], "%s, machine %d, element %zu: %g %g",
                c->machines, m, i, (double)u, (double)r);
    }
}

/* Whole numbers, so that every sum is exact; a step that fails, and a trial that is rolled back. */
Test(momentum_hosts, follows_the_sums_of_machines) {
  static const struct {
    const char *machines;
    int hosts;
  } groups[] = {{"aabb", 2}, {"abab", 2}, {"aaabbb", 2}, {"aabbcc", 3}, {"abcabc", 3}};
  static const char *const plans[] = {"topk:0.1:hitopk", "topk:0.4:hitopk:auto-fp32"};
  static course c;
  for (size_t l = 0; l < sizeof groups / sizeof *groups; l++)
    for (uint64_t seed = 0; seed < 6; seed++) {
      weir_rng rng = weir_rng_of(seed * 100 + l);
      c = (course){.machines = groups[l].machines,
                   .n = N - (size_t)seed,
                   .steps = STEPS,
                   .failing = seed % 3 == 0 ? -1 : 2 + (int)weir_rng_below(&rng, 10)};
      for (int s = 0; s < STEPS; s++) {
        cr_assert_eq(weir_plan_parse(plans[seed % 2], &c.step[s].plan), WEIR_OK);
        c.step[s].plan.id = (uint64_t)(s >= 9 ? 2 : s >= 6 ? 1 : 0);
        c.step[s].action = s == 6   ? WEIR_ACTION_TRIAL
                           : s == 9 ? WEIR_ACTION_SWITCH
                                    : WEIR_ACTION_KEEP;
        for (int r = 0; r < GROUP_MAX; r++)
          for (size_t i = 0; i < N; i++)
            c.g[s][r][i] = (float)((int)weir_rng_below(&rng, 17) - 8) * 1024;
      }
      check(&c, groups[l].hosts);
    }
}

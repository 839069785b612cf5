/* Exchanges by a path: every path of the decision tree, on machines of several shapes, and some of
 * them against plain loops. */
#include <criterion/criterion.h>
#include <math.h>

#include "../sampled.h"
#include "base/base.h"
#include "base/path.h"
#include "group.h"
#include "planner/options.h"

#define PATHS 174 /* worked out in tests/unit/test_planner_options.c */
#define STEPS_MAX (PATHS * 4)
#define TENSORS 3

typedef struct course {
  size_t n, offset[TENSORS + 1];
  const char *machines; /* a letter a rank */
  weir_plan plan[STEPS_MAX];
  int steps;
  bool exact; /* gradients are small multiples of a quarter, whose sums are exact */
  float *g[GROUP_MAX], *before[GROUP_MAX], *after[GROUP_MAX], *update[GROUP_MAX];
} course;

typedef struct script {
  const course *course;
  int step;
} script;

static void propose(void *user, weir_directive *directive) {
  script *s = user;
  if (s->step + 1 >= s->course->steps) return;
  directive->action = WEIR_ACTION_SWITCH;
  directive->plan = s->course->plan[s->step + 1];
}

static void fill(const course *c, float *g, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < c->n; i++)
    g[i] = c->exact ? (float)((int)weir_rng_below(&rng, 65) - 32) / 4
                    : (float)(weir_rng_normal(&rng) * (weir_rng_below(&rng, 10) == 0 ? 50 : 1));
}

/* N * update + residuals after = gradients + residuals before; and where nothing is lost on the
 * way, update is their mean, and nothing is left. */
static void check(group *g, const course *c, int step) {
  const weir_plan *plan = &c->plan[step];
  char text[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(plan, text);
  for (int r = 1; r < g->size; r++)
    if (memcmp(c->update[r], c->update[0], c->n * sizeof(float)) != 0)
      group_fail(g, "%s, step %d, %s: rank %d has another result", c->machines, step, text, r);
  for (size_t i = 0; i < c->n; i++) {
    double before = 0, after = 0, size = 0;
    for (int r = 0; r < g->size; r++) {
      before += (double)c->g[r][i] + (double)c->before[r][i];
      after += (double)c->after[r][i];
      size +=
          fabs((double)c->g[r][i]) + fabs((double)c->before[r][i]) + fabs((double)c->after[r][i]);
    }
    const double sum = g->size * (double)c->update[0][i];
    if (fabs(before - after - sum) > (2 * g->size + 8) * 0x1p-23 * (size + fabs(sum)) + 1e-37)
      group_fail(g, "%s, step %d, %s, element %zu: %.9g came in, %.9g went out", c->machines, step,
                 text, i, before, after + sum);
    if (plan->cr == 1 && c->exact && after != 0)
      group_fail(g, "%s, step %d, %s, element %zu: %g is left", c->machines, step, text, i, after);
    if (plan->cr == 1 && c->exact && c->update[0][i] != (float)before * (1.0f / (float)g->size))
      group_fail(g, "%s, step %d, %s, element %zu: %g is not the mean", c->machines, step, text, i,
                 (double)c->update[0][i]);
  }
}

static bool one_step(member *m, course *c, weir_engine *engine, int step) {
  const size_t bytes = c->n * sizeof(float);
  const int r = m->rank;
  if (weir_engine_step_begin(engine, NULL) != WEIR_OK) return false;
  memcpy(c->before[r], weir_engine_residual(engine), bytes);
  fill(c, c->g[r], (uint64_t)(step * GROUP_MAX + r));
  memcpy(c->update[r], c->g[r], bytes);
  for (uint32_t t = 0; t < TENSORS; t++)
    if (weir_engine_submit(engine, t, c->update[r] + c->offset[t]) != WEIR_OK) return false;
  if (weir_engine_step_end(engine, NULL) != WEIR_OK) return false;
  memcpy(c->after[r], weir_engine_residual(engine), bytes);
  return true;
}

static void run_course(member *m) {
  course *c = m->group->shared;
  script s = {c, 0};
  weir_engine *engine = NULL;
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, c->offset},
                                     .first_plan = c->plan[0],
                                     .hooks = {.user = &s, .propose = propose}};
  if (weir_comm_find_hosts(m->comm, (uint64_t)c->machines[m->rank]) != WEIR_OK ||
      weir_engine_create(&engine, &config) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  group_barrier(m);
  for (; s.step < c->steps && !group_failed(m->group); s.step++) {
    if (!one_step(m, c, engine, s.step)) {
      char text[WEIR_PLAN_TEXT_MAX];
      weir_plan_format(&c->plan[s.step], text);
      group_fail(m->group, "%s, %zu elements, %s, rank %d: %s", c->machines, c->n, text, m->rank,
                 weir_last_error());
    }
    group_barrier(m);
    if (m->rank == 0 && !group_failed(m->group)) check(m->group, c, s.step);
    group_barrier(m);
  }
  weir_engine_free(engine);
}

static void run(course *c) {
  const int ranks = (int)strlen(c->machines);
  const size_t ends[TENSORS + 1] = {0, c->n / 3, c->n - c->n / 5, c->n};
  memcpy(c->offset, ends, sizeof ends);
  for (int r = 0; r < ranks; r++) {
    float **const all[] = {&c->g[r], &c->before[r], &c->after[r], &c->update[r]};
    for (size_t i = 0; i < 4; i++) *all[i] = calloc(c->n + 1, sizeof(float));
  }
  group_well(ranks, run_course, c, NULL);
}

static void forget(course *c) {
  for (size_t r = 0; r < strlen(c->machines); r++) {
    float *const all[] = {c->g[r], c->before[r], c->after[r], c->update[r]};
    for (size_t i = 0; i < 4; i++) free(all[i]);
  }
}

/* --- all paths -------------------------------------------------------------------------------- */

typedef struct listing {
  course *course;
  const char *codec;
  int repeats;
} listing;

/* Compression at one place, as there are no others in the engine's paths. */
static void add(void *user, const weir_option *option) {
  const listing *l = user;
  char path[WEIR_COLLECTIVE_TEXT_MAX], text[128];
  weir_plan plan;
  (void)weir_path_format(option, path, sizeof path);
  (void)snprintf(text, sizeof text, l->codec, path);
  if (!weir_path_compresses(option)) (void)snprintf(text, sizeof text, "none:1:path=%s", path);
  if (weir_plan_parse(text, &plan) != WEIR_OK) {
    fprintf(stderr, "bad plan %s: %s\n", text, weir_last_error());
    abort();
  }
  for (int i = 0; i < l->repeats; i++) {
    plan.id = (uint64_t)l->course->steps;
    l->course->plan[l->course->steps++] = plan;
  }
}

static void all_paths(const char *machines, size_t n, const char *codec, int repeats, bool exact) {
  FREED course *c = calloc(1, sizeof *c);
  listing l = {c, codec, repeats};
  size_t count = 0;
  *c = (course){.n = n, .machines = machines, .exact = exact};
  cr_assert_eq(weir_options_visit(&(weir_option_limits){.no_gpu = true}, add, &l, &count), WEIR_OK);
  cr_assert_eq(count, PATHS);
  run(c);
  forget(c);
}

/* 2 x 2, 2 x 4, 1 x 4, 4 x 1, one rank, and machines of different sizes. */
static const char *const shapes[] = {"aabb", "abab", "aaaabbbb", "aaaa",
                                     "abcd", "a",    "aaab",     "abbcccc"};

Test(paths, every_path_gives_the_mean_where_nothing_is_lost) {
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    if (sampled(2)) all_paths(shapes[s], s % 2 == 0 ? 97 : 16, "topk:1:path=%s", 1, true);
}

Test(paths, every_path_conserves) {
  static const char *const codecs[] = {"qsgd:0.125:path=%s",
                                       "topk:0.1:path=%s",
                                       "mstopk:0.3:path=%s:auto-bf16",
                                       "onebit:0.03125:path=%s",
                                       "fp16:0.5:path=%s",
                                       "topk:0.02:path=%s:auto-fp32",
                                       "terngrad:0.0625:path=%s",
                                       "qsgd:0.0625:path=%s:bucket=64",
                                       "minifloat:0.25:path=%s",
                                       "companded:0.125:path=%s"};
  static const size_t lengths[] = {1000, 333, 129, 5, 1, 0};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (size_t k = 0; k < sizeof codecs / sizeof *codecs; k++)
      if (sampled(4)) all_paths(shapes[s], lengths[(s + k) % 6], codecs[k], 3, false);
}

/* --- against plain loops ---------------------------------------------------------------------- */

/* Keeps the largest fourth of x[begin..end) in kept[], in what is left of x the rest. */
static void top(float *x, size_t begin, size_t end, float *kept) {
  const size_t k = (end - begin) / 4 > 0 ? (end - begin) / 4 : 1;
  for (size_t i = begin; i < end; i++) kept[i] = 0;
  for (size_t taken = 0; taken < k && end > begin; taken++) {
    size_t best = begin;
    for (size_t i = begin; i < end; i++)
      if (fabsf(x[i]) > fabsf(x[best])) best = i;
    kept[best] = x[best];
    x[best] = 0;
  }
}

enum { N = 32, RANKS = 4 };

static void sum_into(float *to, const float *from, size_t begin, size_t end) {
  for (size_t i = begin; i < end; i++) to[i] += from[i];
}

/* Machines are ranks 0 and 1, 2 and 3.  left[r]: rank r's residual; sum: what is published times N.
 * Sums of small multiples of a quarter are exact, in whatever order. */
typedef void reference_fn(float e[RANKS][N], float left[RANKS][N], float *sum);

/* c.a2a.d.c.ag.d: of every eighth what each keeps of it to its rank, which keeps of the sum
 * again. */
static void twice_among_all(float e[RANKS][N], float left[RANKS][N], float *sum) {
  float kept[N];
  for (size_t part = 0; part < RANKS; part++) {
    const size_t begin = part * N / RANKS, end = begin + N / RANKS;
    float owned[N] = {0};
    for (size_t r = 0; r < RANKS; r++) {
      top(e[r], begin, end, kept);
      sum_into(owned, kept, begin, end);
      sum_into(left[r], e[r], begin, end);
    }
    top(owned, begin, end, sum);
    sum_into(left[part], owned, begin, end);
  }
}

/* r.c.g.d.b.c.b.d: sums at 0 and 2, both compressed to 0, which sends the sum to 2; then each of
 * them compresses it for its machine, and as they are alike one keeps the loss. */
static void by_roots(float e[RANKS][N], float left[RANKS][N], float *sum) {
  float kept[N], all[N] = {0};
  for (size_t root = 0; root < RANKS; root += 2) {
    sum_into(e[root], e[root + 1], 0, N);
    top(e[root], 0, N, kept);
    sum_into(all, kept, 0, N);
    sum_into(left[root], e[root], 0, N);
  }
  top(all, 0, N, sum);
  sum_into(left[0], all, 0, N);
}

/* c.a2a.a2a.ag.ag.d: quarters of each rank's own, which nobody adds up on the way. */
static void passed_on(float e[RANKS][N], float left[RANKS][N], float *sum) {
  float kept[N];
  memset(sum, 0, N * sizeof *sum);
  for (size_t r = 0; r < RANKS; r++) {
    for (size_t part = 0; part < RANKS; part++)
      top(e[r], part * N / RANKS, (part + 1) * N / RANKS, kept);
    sum_into(sum, kept, 0, N);
    sum_into(left[r], e[r], 0, N);
  }
}

/* rs.c.ag.d.c.ag.d: halves of machines' sums, gathered between them and added up, then compressed
 * for the machine: the half of place p leaves its loss on machine p. */
static void again_inside(float e[RANKS][N], float left[RANKS][N], float *sum) {
  for (size_t place = 0; place < 2; place++) {
    const size_t begin = place * N / 2, end = begin + N / 2;
    float kept[N], all[N] = {0};
    for (size_t machine = 0; machine < 2; machine++) {
      float *const own = e[2 * machine + place];
      sum_into(own, e[2 * machine + 1 - place], begin, end);
      top(own, begin, end, kept);
      sum_into(all, kept, begin, end);
      sum_into(left[2 * machine + place], own, begin, end);
      for (size_t i = begin; i < end; i++) e[2 * machine + 1 - place][i] = 0;
    }
    top(all, begin, end, sum);
    sum_into(left[2 * place + place], all, begin, end);
  }
}

Test(paths, four_of_them_by_plain_loops) {
  static const struct {
    const char *plan;
    reference_fn *reference;
  } cases[] = {{"topk:0.25:path=c.a2a.d.c.ag.d", twice_among_all},
               {"topk:0.25:path=r.c.g.d.b.c.b.d", by_roots},
               {"topk:0.25:path=c.a2a.a2a.ag.ag.d", passed_on},
               {"topk:0.25:path=rs.c.ag.d.c.ag.d", again_inside}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    course c = {.n = N, .machines = "aabb", .steps = 1, .exact = true};
    float e[RANKS][N], left[RANKS][N] = {{0}}, sum[N] = {0};
    cr_assert_eq(weir_plan_parse(cases[k].plan, &c.plan[0]), WEIR_OK, "%s", weir_last_error());
    run(&c);
    for (size_t r = 0; r < RANKS; r++) memcpy(e[r], c.g[r], sizeof e[r]);
    cases[k].reference(e, left, sum);
    for (size_t i = 0; i < N; i++) {
      cr_assert_eq(c.update[0][i], sum[i] / RANKS, "%s, element %zu: %g, not %g", cases[k].plan, i,
                   (double)c.update[0][i], (double)sum[i] / RANKS);
      for (size_t r = 0; r < RANKS; r++)
        cr_assert_eq(c.after[r][i], left[r][i], "%s, rank %zu, element %zu: %g, not %g",
                     cases[k].plan, r, i, (double)c.after[r][i], (double)left[r][i]);
    }
    forget(&c);
  }
}

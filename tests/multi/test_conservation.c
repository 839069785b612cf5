/* Nothing of a gradient is lost or invented (conserved.h), whatever the plan and however plans
 * change, and every rank gets the same bits.  Short gradients are also compared with a slow
 * reference. */
#include <criterion/criterion.h>
#include <fenv.h>

#include "../sampled.h"
#include "base/base.h"
#include "conserved.h"
#include "reference.h"

#define STEPS_MAX 128
#define EXACT_MOST 1000

typedef struct course {
  size_t n;
  size_t offset[6];
  const char *machines; /* a letter a rank; NULL: each has its own */
  const char *sharing;  /* the same of memory: they go over TCP otherwise; NULL: one process */
  weir_plan plans[STEPS_MAX];
  int steps;
  uint64_t seed;
  float *g[GROUP_MAX], *before[GROUP_MAX], *e[GROUP_MAX], *after[GROUP_MAX], *update[GROUP_MAX];
  bool *kept[GROUP_MAX]; /* by the reference; short gradients only */
  double gain[GROUP_MAX];
  double last_gain; /* mean over ranks, of the step before */
  bool last_gain_known;
} course;

typedef struct script {
  const course *course;
  int step;
} script;

static void propose(void *user, weir_directive *directive) {
  script *s = user;
  const int next = s->step + 1;
  if (next >= s->course->steps ||
      weir_plan_digest(&s->course->plans[next]) == weir_plan_digest(&s->course->plans[next - 1]))
    return;
  directive->action = WEIR_ACTION_SWITCH;
  directive->plan = s->course->plans[next];
}

/* Many ties and zeros in short gradients; magnitudes over several powers of ten. */
static void fill(float *g, size_t n, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < n; i++) {
    const uint64_t bits = weir_rng_next(&rng);
    const float x = (float)((int32_t)(bits >> 32)) / 2147483648.0f;
    if (n <= EXACT_MOST && (bits & 3) == 0)
      g[i] = (float)((int)(x * 4)) / 4; /* one of few values */
    else
      g[i] = x * x * x * ((bits & 12) == 0 ? 100.0f : 1.0f);
  }
}

static bool sparse(const weir_plan *plan) { return plan->codec >= WEIR_CODEC_LWTOPK; }

static bool reference_knows(const course *c, const weir_plan *plan) {
  /* On machines of several ranks HiTopKComm selects from sums; a path does so from parts. */
  if (plan->scheme == WEIR_SCHEME_HITOPK && c->machines != NULL) return false;
  if (plan->scheme == WEIR_SCHEME_PATH) return false;
  return c->n <= EXACT_MOST && plan->codec <= WEIR_CODEC_VAR && plan->codec != WEIR_CODEC_MSTOPK;
}

/* This rank's own choice of elements. */
static void mark_own(course *c, const weir_plan *plan, int rank) {
  bool *kept = c->kept[rank];
  for (size_t i = 0; i < c->n; i++) kept[i] = !sparse(plan);
  if (plan->codec == WEIR_CODEC_LWTOPK)
    for (int t = 0; t < 5; t++)
      reference_top(c->e[rank], c->offset[t], c->offset[t + 1],
                    reference_kept(c->offset[t + 1] - c->offset[t], plan->cr), kept);
  else if (sparse(plan))
    reference_top(c->e[rank], 0, c->n, reference_kept(c->n, plan->cr), kept);
}

static int root_of(const course *c, const weir_plan *plan, int step, int ranks) {
  if (plan->codec == WEIR_CODEC_STAR) return step % ranks;
  int root = 0;
  float largest = -1;
  for (int r = 0; r < ranks; r++) {
    const float variance = (float)reference_variance(c->e[r], c->n);
    if (variance > largest) {
      largest = variance;
      root = r;
    }
  }
  return root;
}

static void check_conservation(group *g, const course *c, const weir_plan *plan, const char *what) {
  conserved_step step = {.ranks = g->size, .n = c->n, .update = c->update[0]};
  double in = 0, out = 0;
  for (int r = 0; r < g->size; r++) {
    step.g[r] = c->g[r];
    step.before[r] = c->before[r];
    step.after[r] = c->after[r];
  }
  const size_t i = conserved_not(&step, plan, &in, &out);
  if (i < c->n)
    group_fail(g, "%s, element %zu of %zu: %.9g came in, %.9g went out", what, i, c->n, in, out);
}

/* Element i of the averaged gradient and of the residuals, against the reference. */
static bool matches(const course *c, const weir_plan *plan, const bool *const *kept, int ranks,
                    size_t i) {
  const bool rounded = plan->codec == WEIR_CODEC_BF16 || plan->wire == WEIR_WIRE_AUTO_BF16;
  const bool gathered = plan->scheme == WEIR_SCHEME_GATHER || plan->scheme == WEIR_SCHEME_HITOPK;
  float in_order = 0;
  double sum = 0, size = 0;
  for (int r = 0; r < ranks; r++) {
    const float e = c->e[r][i];
    if (!kept[r][i]) {
      if (c->after[r][i] != e) return false;
      continue;
    }
    const float sent = rounded ? reference_bf16(e) : e;
    if (gathered && c->after[r][i] != e - sent) return false;
    if (!rounded && c->after[r][i] != 0) return false;
    in_order += sent;
    sum += e;
    size += fabs((double)e);
  }
  const float update = c->update[0][i];
  if (gathered) return update == in_order * (1.0f / (float)ranks);
  /* The order of an all-reduce's sum is its own; bf16 rounds partial sums to 8 bits. */
  const double bound = size * (rounded ? 0x1p-8 * (ranks + 1) : 0x1p-23 * (ranks + 1));
  return fabs((double)update * ranks - sum) <= bound;
}

static void check_reference(group *g, course *c, const weir_plan *plan, int step,
                            const char *what) {
  const bool *kept[GROUP_MAX];
  const bool shared = plan->codec == WEIR_CODEC_STAR || plan->codec == WEIR_CODEC_VAR;
  const int root = shared ? root_of(c, plan, step, g->size) : 0;
  double gain = 0;
  for (int r = 0; r < g->size; r++) {
    kept[r] = c->kept[shared ? root : r];
    double whole = 0, part = 0;
    for (size_t i = 0; i < c->n; i++) {
      whole += (double)c->e[r][i] * c->e[r][i];
      if (kept[r][i]) part += (double)c->e[r][i] * c->e[r][i];
    }
    gain += whole > 0 ? part / whole : 1;
  }
  c->last_gain = gain / g->size;
  for (size_t i = 0; i < c->n; i++)
    if (!matches(c, plan, kept, g->size, i)) {
      group_fail(g, "%s: element %zu of %zu is not what the reference gives (update %.9g)", what, i,
                 c->n, (double)c->update[0][i]);
      return;
    }
}

/* What an encoder loses of a rank's own gradient, and of sums that the rank encodes, is what it
 * keeps back. */
static void tell_by_residuals(const group *g, course *c) {
  c->last_gain = 0;
  for (int r = 0; r < g->size; r++) {
    double whole = 0, lost = 0;
    for (size_t i = 0; i < c->n; i++) {
      whole += (double)c->e[r][i] * c->e[r][i];
      lost += (double)c->after[r][i] * c->after[r][i];
    }
    c->last_gain += (whole > 0 ? fmax(1 - lost / whole, 0) : 1) / g->size;
  }
}

static void check_step(member *m, course *c, int step) {
  group *g = m->group;
  const weir_plan *plan = &c->plans[step];
  char what[128], text[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(plan, text);
  snprintf(what, sizeof what, "%d ranks, step %d, %s", g->size, step, text);
  if (memcmp(c->update[m->rank], c->update[0], c->n * sizeof(float)) != 0)
    group_fail(g, "%s: rank %d has another result than rank 0", what, m->rank);
  if (m->rank != 0) return;
  check_conservation(g, c, plan, what);
  c->last_gain_known = reference_knows(c, plan);
  if (c->last_gain_known) check_reference(g, c, plan, step, what);
  if (c->last_gain_known || weir_codec_find(plan->codec)->encode == NULL) return;
  c->last_gain_known = plan->scheme == WEIR_SCHEME_GATHER || plan->scheme == WEIR_SCHEME_COMPRESSED;
  if (c->last_gain_known) tell_by_residuals(g, c);
}

static bool one_step(member *m, course *c, weir_engine *engine, int step) {
  const size_t n = c->n;
  weir_step_info begun, ended;
  if (weir_engine_step_begin(engine, &begun) != WEIR_OK) return false;
  memcpy(c->before[m->rank], weir_engine_residual(engine), n * sizeof(float));
  fill(c->g[m->rank], n, c->seed * 1000 + (uint64_t)step * GROUP_MAX + (uint64_t)m->rank);
  memcpy(c->update[m->rank], c->g[m->rank], n * sizeof(float));
  for (size_t i = 0; i < n; i++) c->e[m->rank][i] = c->g[m->rank][i] + c->before[m->rank][i];
  if (reference_knows(c, &c->plans[step])) mark_own(c, &c->plans[step], m->rank);
  for (uint32_t t = 0; t < 5; t++)
    if (weir_engine_submit(engine, t, c->update[m->rank] + c->offset[t]) != WEIR_OK) return false;
  if (weir_engine_step_end(engine, &ended) != WEIR_OK) return false;
  memcpy(c->after[m->rank], weir_engine_residual(engine), n * sizeof(float));
  const uint64_t planned = weir_plan_digest(&c->plans[step]);
  if (weir_plan_digest(&begun.plan) != planned || weir_plan_digest(&ended.plan) != planned)
    group_fail(m->group, "rank %d ran another plan than agreed at step %d", m->rank, step);
  if (c->last_gain_known && fabs(ended.gain - c->last_gain) > 1e-5)
    group_fail(m->group, "step %d tells gain %.9g, the reference %.9g", step, ended.gain,
               c->last_gain);
  return true;
}

static void run_course(member *m) {
  course *c = m->group->shared;
  script s = {c, 0};
  size_t rows[5];
  group_rows(c->offset, 5, rows);
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {5, c->offset},
                                     .rows = rows,
                                     .first_plan = c->plans[0],
                                     .hooks = {.user = &s, .propose = propose}};
  weir_engine *engine;
  if (c->machines != NULL &&
      weir_comm_find_hosts(m->comm, (uint64_t)c->machines[m->rank]) != WEIR_OK) {
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
    return;
  }
  if (weir_engine_create(&engine, &config) != WEIR_OK) {
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
    return;
  }
  for (s.step = 0; s.step < c->steps; s.step++) {
    if (!one_step(m, c, engine, s.step))
      group_fail(m->group, "%d ranks, %zu elements, step %d, rank %d: %s", m->size, c->n, s.step,
                 m->rank, weir_last_error());
    if (group_failed_by_now(m)) break;
    check_step(m, c, s.step);
    if (group_failed_by_now(m)) break;
  }
  weir_engine_free(engine);
}

/* Plans in random order, each once, some for two steps. */
static void write_script(course *c, size_t first, size_t arms, weir_rng *rng) {
  static const double ratios[] = {0.001, 0.01, 0.1, 0.5, 1};
  size_t order[GROUP_ARMS];
  for (size_t i = 0; i < arms; i++) order[i] = first + i;
  for (size_t i = arms; i > 1; i--) {
    const size_t j = (size_t)weir_rng_below(rng, i), held = order[j];
    order[j] = order[i - 1];
    order[i - 1] = held;
  }
  c->steps = 0;
  for (size_t i = 0; i < arms && c->steps + 2 < STEPS_MAX; i++) {
    const weir_plan plan = group_plan(order[i], ratios[weir_rng_below(rng, 5)], i);
    c->plans[c->steps++] = plan;
    if (c->n <= EXACT_MOST && weir_rng_below(rng, 3) == 0) c->plans[c->steps++] = plan;
  }
}

static void run_over(int ranks, size_t n, size_t first, size_t arms, const char *machines,
                     const char *sharing) {
  course c = {.n = n, .seed = n * 31 + (uint64_t)ranks, .machines = machines, .sharing = sharing};
  weir_rng rng = weir_rng_of(c.seed);
  const size_t ends[6] = {0, n / 2, n / 2, n / 2 + n / 3, n > 0 ? n - 1 : 0, n};
  memcpy(c.offset, ends, sizeof ends);
  if (c.offset[4] < c.offset[3]) c.offset[4] = c.offset[3];
  write_script(&c, first, arms, &rng);
  for (int r = 0; r < ranks; r++) {
    float **all[] = {&c.g[r], &c.before[r], &c.e[r], &c.after[r], &c.update[r]};
    for (size_t i = 0; i < 5; i++) *all[i] = calloc(n + 1, sizeof(float));
    c.kept[r] = calloc(n + 1, sizeof(bool));
  }
  group g;
  group_run_over(&g, ranks, run_course, &c, c.sharing);
  for (int r = 0; r < ranks; r++) {
    float *all[] = {c.g[r], c.before[r], c.e[r], c.after[r], c.update[r]};
    for (size_t i = 0; i < 5; i++) free(all[i]);
    free(c.kept[r]);
  }
  cr_assert(!g.failed, "%s", g.failure);
}

static void run(int ranks, size_t n, size_t first, size_t arms, const char *machines) {
  run_over(ranks, n, first, arms, machines, NULL);
}

static const int sizes[] = {1, 2, 3, 4, 7, 8};

Test(conservation, short_gradients) {
  const size_t lengths[] = {0, 1, 5, 1000};
  for (size_t s = 0; s < 6; s++)
    for (size_t l = 0; l < 4; l++)
      if (sampled(2)) run(sizes[s], lengths[l], 0, GROUP_ARMS, NULL);
}

/* Ranks that share machines, two of them or more: evenly, and not. */
Test(conservation, short_gradients_on_shared_machines) {
  static const char *const layouts[] = {"ab",      "aab",      "aabb",    "abab",
                                        "abbbcca", "aaaabbbb", "aabbccdd"};
  const size_t lengths[] = {0, 1, 5, 1000};
  for (size_t m = 0; m < sizeof layouts / sizeof *layouts; m++)
    for (size_t l = 0; l < 4; l++)
      if (sampled(4)) run((int)strlen(layouts[m]), lengths[l], 0, GROUP_ARMS, layouts[m]);
}

/* Longer than what gains are sampled from (2^18 elements), two ranks' shares too, and several
 * blocks of an encoder a share; some groups exchange a third of that. */
Test(conservation, long_gradient) {
  static const struct {
    int ranks;
    size_t n;
    const char *machines;
  } cases[] = {{1, 100003, NULL},   {2, 600011, NULL}, {3, 300007, NULL},
               {4, 300007, "abab"}, {7, 100003, NULL}, {8, 300007, NULL}};
  for (size_t i = 0; i < 6; i++)
    if (!GROUP_SLOW)
      run(cases[i].ranks, cases[i].n, 0, GROUP_ARMS, cases[i].machines);
    else if (i % 2 == 0)
      run(cases[i].ranks, i == 2 ? 1000003 : 300007, i * 3, 5, NULL);
}

/* Messages through memory inside of machines, and through sockets between them. */
Test(conservation, mixed) {
  static const char *const layouts[] = {"aabb", "aaab", "aaaa", "aaaabbbb"};
  for (size_t m = 0; m < sizeof layouts / sizeof *layouts; m++) {
    const int ranks = (int)strlen(layouts[m]);
    const char *machines = strchr(layouts[m], 'b') ? layouts[m] : NULL; /* or hitopk is refused */
    if (sampled(4)) run_over(ranks, 1000, 0, GROUP_ARMS, machines, layouts[m]);
    if (!GROUP_SLOW) run_over(ranks, 100003, 0, GROUP_ARMS, machines, layouts[m]);
  }
}

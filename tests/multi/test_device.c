/* The engine's steps on a device, beside the same steps in host memory: the same gradients give the
 * same bits in averages and residuals where codecs are exact, and lose nothing where their sums run
 * in another order; over changing plans, buckets and trials, and in buckets of ranks with and without
 * a device.  tests/emulate's device does nothing before it is waited for. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "device.h"
#include "engine/device.h"
#include "group.h"
#include "script.h"

#define TENSORS 6
#define STEPS_MAX 40

typedef struct course {
  test_device device;
  size_t n, offset[TENSORS + 1], rows[TENSORS];
  double momentum;
  bool apart;           /* tensors do not follow one another in memory */
  bool blind;           /* nobody looks at residuals */
  bool huge;            /* sums of some elements are larger than the largest float */
  const char *machines; /* a letter a rank; NULL: each has its own */
  int harmed;           /* step in which what rank 1 receives is harmed; -1: none */
  script_step steps[STEPS_MAX];
  int count;
  unsigned where; /* bit r: rank r has a device */
  /* n floats a step and rank: what came out, and the residual before and after it. */
  float *update[GROUP_MAX], *before[GROUP_MAX], *after[GROUP_MAX];
  weir_status status[GROUP_MAX][STEPS_MAX];
  uint64_t allocated[STEPS_MAX], waits[GROUP_MAX][STEPS_MAX];
  uint64_t seed;
} course;

static void fill(float *g, size_t n, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < n; i++) {
    const float x = (float)weir_rng_normal(&rng);
    g[i] = i % 5 == 0 ? (float)(int)x : x * x * x;
  }
}

/* --- harm ------------------------------------------------------------------------------------- */

static const weir_transport_ops *unharmed;
static weir_transport_ops harming;

/* Messages of selected elements begin with the one, encoders' with the other. */
static weir_status harm(weir_transport *t, const weir_tag *tag, const weir_send *send, size_t sends,
                        weir_recv *recv, size_t recvs, double deadline_s) {
  const weir_status status = unharmed->transfer(t, tag, send, sends, recv, recvs, deadline_s);
  for (size_t i = 0; i < recvs; i++)
    for (size_t b = 0; status == WEIR_OK && b + 4 <= recv[i].bytes; b++)
      if (memcmp((char *)recv[i].data + b, "WRM1", 4) == 0 ||
          memcmp((char *)recv[i].data + b, "WRE1", 4) == 0)
        ((char *)recv[i].data)[b] ^= 1;
  return status;
}

static void begin_harm(member *m) {
  unharmed = m->transport->ops;
  harming = *unharmed;
  harming.transfer = harm;
  m->transport->ops = &harming;
}

/* --- one rank --------------------------------------------------------------------------------- */

/* A rank's gradients. */
typedef struct buffers {
  float *g[TENSORS];
} buffers;

static void make_buffers(const course *c, bool device, buffers *b) {
  const size_t gap = c->apart ? 3 : 0; /* and then not at a multiple of 16 bytes either */
  const size_t bytes = (c->n + TENSORS * gap + 1) * sizeof(float);
  float *g = device ? c->device.memory(bytes) : malloc(bytes);
  for (size_t t = 0; t < TENSORS; t++) b->g[t] = g + c->offset[t] + t * gap;
}

static void free_buffers(const course *c, bool device, buffers *b) {
  if (device)
    c->device.forget(b->g[0]);
  else
    free(b->g[0]);
}

static weir_status hand_in(const course *c, weir_engine *engine, const buffers *b, bool device,
                           const float *all) {
  for (uint32_t t = 0; t < TENSORS; t++) {
    const size_t bytes = (c->offset[t + 1] - c->offset[t]) * sizeof(float);
    if (device)
      c->device.put(b->g[t], all + c->offset[t], bytes); /* queued, as backward passes are */
    else
      memcpy(b->g[t], all + c->offset[t], bytes);
    const weir_status status = weir_engine_submit(engine, t, b->g[t]);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

static weir_status one_step(member *m, course *c, weir_engine *engine, const buffers *b, int step) {
  const bool device = c->where >> m->rank & 1;
  const size_t n = c->n, at = (size_t)step * n;
  FREED float *all = malloc((n + 1) * sizeof *all);
  fill(all, n, c->seed * 1000 + (uint64_t)step * GROUP_MAX + (uint64_t)m->rank);
  if (c->steps[step].poisoned == m->rank) all[n / 2] = NAN;
  for (size_t i = 0; i < n && c->huge; i += 3) all[i] = i % 2 == 0 ? 3e38F : -3e38F;
  weir_status status = weir_engine_step_begin(engine, NULL);
  if (status == WEIR_OK) {
    if (!c->blind) memcpy(c->before[m->rank] + at, weir_engine_residual(engine), n * sizeof(float));
    status = hand_in(c, engine, b, device, all);
  }
  if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
  for (size_t t = 0; t < TENSORS; t++) {
    float *const to = c->update[m->rank] + at + c->offset[t];
    const size_t bytes = (c->offset[t + 1] - c->offset[t]) * sizeof(float);
    if (device)
      c->device.get(to, b->g[t], bytes);
    else
      memcpy(to, b->g[t], bytes);
  }
  if (!c->blind) memcpy(c->after[m->rank] + at, weir_engine_residual(engine), n * sizeof(float));
  return status;
}

static void body(member *m) {
  course *c = m->group->shared;
  const bool device = c->where >> m->rank & 1;
  script v = {c->steps, c->count, 0};
  buffers b;
  weir_engine *engine = NULL;
  const weir_engine_config config = {.comm = m->comm,
                                     .transport = m->transport,
                                     .layout = {TENSORS, c->offset},
                                     .rows = c->rows,
                                     .momentum = c->momentum,
                                     .first_plan = c->steps[0].plan,
                                     .first_buckets = c->steps[0].table,
                                     .hooks = script_hooks(&v),
                                     .device_ops = device ? c->device.ops : NULL,
                                     .device = device ? m->rank % c->device.devices() : 0,
                                     .device_timeout_s = 20,
                                     .devices = c->where != 0};
  weir_status status = WEIR_OK;
  if (c->machines != NULL) status = weir_comm_find_hosts(m->comm, (uint64_t)c->machines[m->rank]);
  if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
  make_buffers(c, device, &b);
  for (int s = 0; s < c->count && (status == WEIR_OK || status == WEIR_E_NONFINITE); s++) {
    v.at = s;
    if (s == c->harmed && m->rank == 1) begin_harm(m);
    status = c->status[m->rank][s] = one_step(m, c, engine, &b, s);
    if (device) c->waits[m->rank][s] = c->device.ops->waits(engine->device->device);
    if (c->harmed >= 0) continue;
    group_barrier(m);
    if (m->rank == 0) c->allocated[s] = c->device.allocated();
    group_barrier(m);
  }
  if (m->rank == 1 && c->harmed >= 0) m->transport->ops = unharmed;
  if (status != WEIR_OK && status != WEIR_E_NONFINITE && c->harmed < 0)
    group_fail(m->group, "rank %d, step %d: %s", m->rank, v.at, weir_last_error());
  weir_engine_free(engine);
  free_buffers(c, device, &b);
}

/* --- comparing -------------------------------------------------------------------------------- */

static void make_room(course *c) {
  for (int r = 0; r < GROUP_MAX; r++) {
    const size_t bytes = (size_t)c->count * c->n * sizeof(float) + 1;
    c->update[r] = malloc(bytes);
    c->before[r] = malloc(bytes);
    c->after[r] = malloc(bytes);
  }
}

static void free_room(course *c) {
  for (int r = 0; r < GROUP_MAX; r++) {
    free(c->update[r]);
    free(c->before[r]);
    free(c->after[r]);
  }
}

/* Sums over a gradient or a tensor decide, and on a device they run in another order: where it is the
 * device that selects or encodes. */
static bool is_exact(const weir_plan *plan) {
  const uint32_t codec = plan->codec;
  const bool there = plan->scheme == WEIR_SCHEME_GATHER || plan->scheme == WEIR_SCHEME_HITOPK;
  return !there ||
         (codec != WEIR_CODEC_MSTOPK && codec != WEIR_CODEC_SIDCO && codec != WEIR_CODEC_TERNGRAD &&
          codec != WEIR_CODEC_ONEBIT && codec != WEIR_CODEC_EFSIGNSGD);
}

static void same(const float *a, const float *b, size_t n, const char *what, int rank, int step) {
  for (size_t i = 0; i < n; i++)
    cr_assert(memcmp(&a[i], &b[i], sizeof a[i]) == 0,
              "%s of rank %d, step %d: element %zu is %.9g on the device and %.9g on the host",
              what, rank, step, i, (double)a[i], (double)b[i]);
}

/* N update + sum of residuals after = sum of gradients and residuals before. */
static void conserved(const course *c, int ranks, int step) {
  FREED float *g = malloc((c->n + 1) * sizeof *g);
  FREED double *sum = calloc(c->n + 1, sizeof *sum), *size = calloc(c->n + 1, sizeof *size);
  const size_t at = (size_t)step * c->n;
  for (int r = 0; r < ranks; r++) {
    fill(g, c->n, c->seed * 1000 + (uint64_t)step * GROUP_MAX + (uint64_t)r);
    for (size_t i = 0; i < c->n; i++) {
      const double before = (double)g[i] + (double)c->before[r][at + i];
      const double after = (double)c->after[r][at + i] + (double)c->update[r][at + i];
      sum[i] += before - after;
      size[i] += fabs((double)g[i]) + fabs((double)c->before[r][at + i]) +
                 2 * fabs((double)c->after[r][at + i]);
    }
  }
  for (size_t i = 0; i < c->n; i++)
    cr_assert(fabs(sum[i]) <= (ranks + 8) * 0x1p-23 * size[i] + 1e-37,
              "step %d: element %zu of %zu has lost %g", step, i, c->n, sum[i]);
}

static void run_course(course *c, int ranks, unsigned where) {
  c->where = where;
  group_well(ranks, body, c, NULL);
}

/* The largest divisor of n up to most and its root; 1 of none. */
static size_t rows_of(size_t n, size_t most) {
  size_t rows = 1;
  for (size_t d = 2; d <= most && d * d <= n; d++)
    if (n % d == 0) rows = d;
  return rows;
}

static void lay_out(course *c, size_t n) {
  c->harmed = -1;
  /* One tensor is empty, one is a single element. */
  const size_t offset[TENSORS + 1] = {0, n / 3, n / 3, n / 3 + 1, n / 2 + 1, 3 * n / 4 + 1, n};
  c->n = n;
  memcpy(c->offset, offset, sizeof offset);
  for (size_t t = 0; t < TENSORS; t++) c->rows[t] = rows_of(offset[t + 1] - offset[t], n);
}

static weir_plan plan_of(const char *text, uint64_t id) {
  weir_plan plan;
  cr_assert_eq(weir_plan_parse(text, &plan), WEIR_OK, "%s: %s", text, weir_last_error());
  plan.id = id;
  return plan;
}

/* The same course in host memory and on devices; bits: also of the residuals. */
static void compare(course *c, int ranks, unsigned where, bool bits) {
  course host = *c;
  make_room(c);
  make_room(&host);
  run_course(c, ranks, where);
  run_course(&host, ranks, 0);
  for (int s = 0; s < c->count; s++)
    for (int r = 0; r < ranks; r++) {
      const size_t at = (size_t)s * c->n;
      cr_assert_eq(c->status[r][s], host.status[r][s]);
      same(c->update[r] + at, c->update[0] + at, c->n, "another average", r, s);
      if (!bits) continue;
      same(c->update[r] + at, host.update[r] + at, c->n, "average", r, s);
      same(c->after[r] + at, host.after[r] + at, c->n, "residual", r, s);
    }
  for (int s = 0; s < c->count; s++)
    if (c->momentum == 0 && c->status[0][s] == WEIR_OK && !c->huge) conserved(c, ranks, s);
  free_room(&host);
  free_room(c);
}

static const char *const arms[] = {"topk:0.1:ag",
                                   "topk:0.01:ag:auto-fp32",
                                   "topk:0.3:ag:auto-bf16",
                                   "lwtopk:0.05:ag",
                                   "lwtopk:0.2:ag:auto-bf16",
                                   "mstopk:0.1:ag:auto-fp16",
                                   "dgc:0.1:ag",
                                   "dgc:0.05:ag:auto-fp16",
                                   "sidco:0.1:ag:auto-fp32",
                                   "topk:1:ag",
                                   "fp16:0.5:ag",
                                   "qsgd:0.125:ag",
                                   "qsgd:0.0625:ag",
                                   "qsgd-nearest:0.125:ag",
                                   "qsgd-l2:0.125:ag",
                                   "qsgd:0.125:ag:bucket=1024",
                                   "qsgd-l2-nearest:0.25:ag:bucket=64",
                                   "terngrad:0.0625:ag",
                                   "onebit:0.03125:ag",
                                   "efsignsgd:0.03125:ag",
                                   "none:1:dense-ring",
                                   "bf16:1:dense-tree",
                                   "none:1:dense-halving",
                                   "bf16:1:dense-torus",
                                   "star:0.1:art-ring",
                                   "star:0.05:art-tree:auto-bf16",
                                   "var:0.1:art-ring",
                                   "var:0.2:art-tree:auto-fp32",
                                   "randomk:0.1:art-ring",
                                   "randomk:0.3:art-tree:auto-bf16",
                                   "powersgd:1:dense-ring",
                                   "powersgd:5:dense-tree"};
#define ARMS (sizeof arms / sizeof *arms)

/* Compressed on the way, by every encoder and row. */
static const char *const encoders[] = {
    "fp16:0.5",           "qsgd:0.25",        "qsgd:0.125",           "qsgd:0.0625",
    "qsgd-nearest:0.125", "qsgd-l2:0.125",    "qsgd-l2-nearest:0.25", "terngrad:0.0625",
    "onebit:0.03125",     "efsignsgd:0.03125"};
static const char *const rows[] = {"sra", "compressed-ring", "compressed-tree", "hier-sra"};
#define ENCODERS (sizeof encoders / sizeof *encoders)
#define ROWS (sizeof rows / sizeof *rows)

static const char *summed(char text[WEIR_PLAN_TEXT_MAX], size_t encoder, size_t row) {
  (void)snprintf(text, WEIR_PLAN_TEXT_MAX, "%s:%s", encoders[encoder], rows[row]);
  return text;
}

/* What works inside of machines, or with other buckets of elements. */
static const char *const inside_arms[] = {"topk:0.1:hitopk",
                                          "topk:0.02:hitopk:auto-fp32",
                                          "topk:0.3:hitopk:auto-bf16",
                                          "mstopk:0.1:hitopk:auto-fp16",
                                          "sidco:0.1:hitopk:auto-fp32",
                                          "qsgd:0.0625:sra:bucket=64",
                                          "qsgd-l2:0.25:compressed-ring:bucket=8192",
                                          "qsgd:0.125:path=c.a2a.d.c.g.d.b.ag",
                                          "onebit:0.03125:path=r.c.g.d.c.b.d.c.b.d",
                                          "none:1:path=r.ar.b"};
#define INSIDE_ARMS (sizeof inside_arms / sizeof *inside_arms)

/* Machines; who has a device. */
static const struct {
  const char *machines;
  unsigned where;
} places[] = {{"aabb", 15}, {"abab", 5},    {"abcd", 15}, {"aaab", 10},
              {"aba", 7},   {"aaabbb", 41}, {"ab", 1},    {"ababab", 63}};
#define PLACES (sizeof places / sizeof *places)

static void try_at(course *c, const char *text, size_t place, size_t n) {
  const char *machines = places[place].machines;
  const weir_plan plan = plan_of(text, 1);
  if (c->momentum > 0 && !is_exact(&plan)) return;
  lay_out(c, n);
  c->apart = place % 2 == 1;
  c->seed = place + 1;
  c->count = 4;
  c->machines = machines;
  for (int s = 0; s < c->count; s++) c->steps[s] = (script_step){.plan = plan, .poisoned = -1};
  compare(c, (int)strlen(machines), places[place].where, is_exact(&plan));
}

/* A share of a few elements is shorter than its message; the longest gradient is several messages
 * a share. */
static void try_encoders(double momentum) {
  static const size_t lengths[] = {1500, 13, 9001, 70001};
  static course c;
  char text[WEIR_PLAN_TEXT_MAX];
  c.device = test_device_open();
  c.momentum = momentum;
  for (size_t e = 0; e < ENCODERS; e++)
    for (size_t row = 0; row < ROWS; row++)
      for (size_t l = 0; l < (GROUP_SLOW ? 2 : (e + row) % 3 == 0 ? 4 : 3); l++)
        try_at(&c, summed(text, e, row), (e + row + l) % PLACES, lengths[l]);
}

Test(device, sums_of_messages_have_the_bits_of_the_host) { try_encoders(0); }

/* Some ranks have a share of nothing. */
Test(device, sums_of_few_elements_have_the_bits_of_the_host) {
  static course c;
  char text[WEIR_PLAN_TEXT_MAX];
  c.device = test_device_open();
  for (size_t n = 1; n < 4; n++)
    for (size_t place = 0; place < PLACES; place++) {
      for (size_t row = 0; row < ROWS; row++)
        try_at(&c, summed(text, (n + place) % ENCODERS, row), place, n);
      for (size_t arm = 0; arm < INSIDE_ARMS; arm += 2) try_at(&c, inside_arms[arm], place, n);
    }
}

Test(device, sums_of_messages_have_the_bits_of_the_host_with_momentum) { try_encoders(0.9); }

/* What is larger than the largest float counts as that, where sums are encoded, and no residual becomes
 * Inf. */
Test(device, large_sums_have_the_bits_of_the_host) {
  static const char *const plans[] = {
      "qsgd:0.125:sra",   "qsgd:0.125:compressed-ring", "qsgd-l2:0.25:compressed-tree",
      "topk:0.01:hitopk", "fp16:0.5:compressed-tree",   "onebit:0.03125:sra"};
  static course c;
  c.device = test_device_open();
  c.huge = true;
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
    for (int mixed = 0; mixed < 2; mixed++) {
      const weir_plan plan = plan_of(plans[p], 1);
      lay_out(&c, 1500);
      c.machines = "aabb";
      c.seed = p + 1;
      c.count = 1;
      c.steps[0] = (script_step){.plan = plan, .poisoned = -1};
      compare(&c, 4, mixed ? 6 : 15, true);
    }
}

static void try_inside(double momentum) {
  static course c;
  c.device = test_device_open();
  c.momentum = momentum;
  for (size_t arm = 0; arm < INSIDE_ARMS; arm++)
    for (size_t place = 0; place < PLACES; place++)
      try_at(&c, inside_arms[arm], place, (arm + place) % 3 == 0 ? 9001 : place == 1 ? 7 : 1500);
}

Test(device, what_machines_sum_has_the_bits_of_the_host) { try_inside(0); }

Test(device, what_machines_sum_has_the_bits_of_the_host_with_momentum) { try_inside(0.9); }

static void try_arms(double momentum) {
  static course c;
  c.device = test_device_open();
  c.momentum = momentum;
  for (size_t arm = 0; arm < ARMS; arm++)
    for (int shape = 0; shape < (GROUP_SLOW ? 1 : 2); shape++) {
      const weir_plan plan = plan_of(arms[arm], 1);
      if (momentum > 0 && !is_exact(&plan)) continue;
      lay_out(&c, shape == 0 ? 1500 : 9001);
      c.apart = shape == 1;
      c.seed = arm + 1;
      c.count = 4;
      for (int s = 0; s < c.count; s++) c.steps[s] = (script_step){.plan = plan, .poisoned = -1};
      compare(&c, 2 + shape, shape == 0 ? 3 : 7, is_exact(&plan));
    }
}

Test(device, every_arm_gives_the_bits_of_the_host) { try_arms(0); }

/* What a step does to the velocity, the next one's average shows. */
Test(device, momentum_correction_gives_the_bits_of_the_host) { try_arms(0.9); }

/* Of more rows than its sums run through at once a matrix has another Q than on the host; what that
 * does not send stays in the residual. */
Test(device, tall_matrices_lose_nothing) {
  static course c;
  c.device = test_device_open();
  lay_out(&c, 12000);
  for (size_t t = 0; t < TENSORS; t++) {
    const size_t n = c.offset[t + 1] - c.offset[t];
    c.rows[t] = n > 0 ? n / rows_of(n, 4) : 1;
  }
  cr_assert_gt(c.rows[0], 512);
  c.seed = 5;
  c.count = 4;
  for (int s = 0; s < c.count; s++)
    c.steps[s] = (script_step){.plan = plan_of("powersgd:1:dense-ring", 1), .poisoned = -1};
  compare(&c, 2, 3, false);
}

/* --- courses of changing plans ---------------------------------------------------------------- */

static weir_plan random_arm(weir_rng *rng) {
  weir_plan plan;
  char text[WEIR_PLAN_TEXT_MAX];
  do {
    if (weir_rng_below(rng, 2) == 0)
      plan = plan_of(arms[weir_rng_below(rng, ARMS)], 0);
    else if (weir_rng_below(rng, 2) == 0)
      plan = plan_of(inside_arms[weir_rng_below(rng, INSIDE_ARMS)], 0);
    else
      plan = plan_of(summed(text, weir_rng_below(rng, ENCODERS), weir_rng_below(rng, ROWS)), 0);
  } while (!is_exact(&plan));
  return plan;
}

static void random_step(script_step *s, weir_rng *rng, uint64_t id) {
  size_t count = 0;
  s->poisoned = -1;
  if (weir_rng_below(rng, 3) == 0) { /* the whole gradient at once now and then */
    s->plan = random_arm(rng);
    s->plan.id = id;
    return;
  }
  for (uint32_t t = 1; t <= TENSORS; t++) {
    if (t < TENSORS && weir_rng_below(rng, 2) != 0) continue;
    const weir_plan plan = random_arm(rng);
    script_add_bucket(s, &count, t, (uint32_t)weir_rng_below(rng, 2), &plan);
  }
  script_close(s, count, id);
}

static void random_course(course *c, uint64_t seed, int ranks) {
  weir_rng rng = weir_rng_of(seed);
  memset(c->steps, 0, sizeof c->steps);
  c->seed = seed;
  c->count = STEPS_MAX;
  bool trial = false;
  for (int s = 0; s < c->count; s++) {
    random_step(&c->steps[s], &rng, (uint64_t)s);
    trial = s > 0 && weir_rng_below(&rng, trial ? 2 : 5) == 0;
    c->steps[s].action = trial ? WEIR_ACTION_TRIAL : WEIR_ACTION_SWITCH;
    if (weir_rng_below(&rng, 8) == 0)
      c->steps[s].poisoned = (int)weir_rng_below(&rng, (uint64_t)ranks);
  }
}

Test(device, groups_trials_and_poisoned_gradients_leave_the_bits_of_the_host) {
  static course c;
  c.device = test_device_open();
  for (uint64_t seed = 1; seed <= (GROUP_SLOW ? 1 : 4); seed++) {
    lay_out(&c, seed % 2 == 0 ? 700 : 5000);
    c.apart = seed % 3 == 0;
    c.momentum = seed % 2 == 0 ? 0 : 0.75;
    c.machines = seed % 2 == 0 ? "aabb" : "abab";
    random_course(&c, seed, 4);
    compare(&c, 4, 15, true);
  }
}

/* Steps of a trial build upon each other, and of all of them nothing is left. */
Test(device, long_trials_leave_no_velocity) {
  static const char *const tried[] = {
      "topk:0.1:ag",           "qsgd:0.125:ag",   "star:0.1:art-ring", "none:1:dense-ring",
      "powersgd:2:dense-ring", "topk:0.1:hitopk", "qsgd:0.125:sra"};
  static course c;
  c.device = test_device_open();
  for (size_t k = 0; k < sizeof tried / sizeof *tried; k++) {
    lay_out(&c, 1500);
    memset(c.steps, 0, sizeof c.steps);
    c.momentum = 0.9;
    c.count = 9;
    for (int s = 0; s < c.count; s++) {
      const bool trial = s >= 2 && s < 6;
      c.steps[s] = (script_step){.plan = plan_of(trial ? tried[k] : "topk:0.2:ag", (uint64_t)trial),
                                 .poisoned = -1,
                                 .action = s == 2   ? WEIR_ACTION_TRIAL
                                           : s == 6 ? WEIR_ACTION_SWITCH
                                                    : WEIR_ACTION_KEEP};
    }
    c.machines = "aabb";
    compare(&c, 4, 7, true);
  }
}

/* Whoever decodes, every rank gets the same; and what ranks in host memory keep is their own. */
Test(device, ranks_with_and_without_one_make_a_group) {
  static course c;
  c.device = test_device_open();
  for (uint64_t seed = 11; seed <= (GROUP_SLOW ? 11 : 13); seed++) {
    lay_out(&c, 2000);
    c.momentum = seed == 12 ? 0 : 0.9;
    c.machines = seed == 12 ? "aabb" : "abab";
    random_course(&c, seed, 4);
    compare(&c, 4, seed == 11 ? 1 : seed == 12 ? 6 : 11, true);
  }
}

static void three_buckets(script_step *s, const char *text) {
  const weir_plan plan = plan_of(text, 0);
  const uint32_t end[3] = {1, 4, TENSORS};
  for (size_t k = 0; k < 3;) script_add_bucket(s, &k, end[k], WEIR_PLACE_THREAD, &plan);
  script_close(s, 3, 1);
}

/* A message or values leave the device with one wait, and the step ends with one; ART's indices are
 * a wait more where they come from a rank.  Sums of messages that the device makes take one for each
 * time that messages leave it: sra for values and for sums (fp16's values go in two parts), a ring of
 * two for either hop, a tree once.  HiTopKComm's message is made when a machine's ranks have summed. */
Test(device, steps_wait_once_a_group_and_allocate_nothing) {
  static course c;
  const struct {
    const char *plan;
    uint64_t whole, buckets; /* waits a step */
  } kinds[] = {{"topk:0.1:ag", 2, 4},        {"qsgd:0.125:ag", 2, 4},
               {"none:1:dense-ring", 2, 4},  {"bf16:1:dense-ring", 2, 4},
               {"star:0.1:art-ring", 3, 7},  {"lwtopk:0.1:ag:auto-bf16", 2, 4},
               {"qsgd:0.125:sra", 4, 10},    {"qsgd:0.25:compressed-ring", 4, 10},
               {"fp16:0.5:sra", 5, 13},      {"qsgd:0.125:compressed-tree", 3, 7},
               {"onebit:0.03125:sra", 2, 4}, {"qsgd:0.125:path=c.ag.d", 2, 4},
               {"topk:0.1:hitopk", 3, 7}};
  c.device = test_device_open();
  c.blind = true;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int buckets = 0; buckets < 2; buckets++) {
      lay_out(&c, 3000);
      const bool shares = strstr(kinds[k].plan, "hitopk") != NULL;
      c.machines = shares ? "aabb" : NULL;
      memset(c.steps, 0, sizeof c.steps);
      c.count = 6;
      for (int s = 0; s < c.count; s++) {
        c.steps[s] = (script_step){.plan = plan_of(kinds[k].plan, 1), .poisoned = -1};
        if (buckets) three_buckets(&c.steps[s], kinds[k].plan);
      }
      make_room(&c);
      run_course(&c, shares ? 4 : 2, shares ? 15 : 3);
      for (int s = 2; s < c.count; s++) {
        cr_assert_eq(c.allocated[s], c.allocated[1], "%s allocates in step %d", kinds[k].plan, s);
        for (int r = 0; r < 2; r++)
          cr_assert_eq(c.waits[r][s] - c.waits[r][s - 1],
                       buckets ? kinds[k].buckets : kinds[k].whole, "%s waits %d times",
                       kinds[k].plan, (int)(c.waits[r][s] - c.waits[r][s - 1]));
      }
      free_room(&c);
    }
}

/* Found before anything is made of it; the residual is what it was. */
static void harm_one_of(const char *text, int buckets, const char *machines) {
  static course c;
  c.device = test_device_open();
  lay_out(&c, 3000);
  c.machines = machines;
  memset(c.steps, 0, sizeof c.steps);
  c.count = 4;
  c.harmed = 2;
  for (int s = 0; s < c.count; s++) {
    c.steps[s] = (script_step){.plan = plan_of(text, 1), .poisoned = -1};
    if (buckets) three_buckets(&c.steps[s], text);
  }
  make_room(&c);
  run_course(&c, machines != NULL ? 4 : 2, machines != NULL ? 15 : 3);
  cr_assert_eq(c.status[1][1], WEIR_OK);
  cr_assert_eq(c.status[1][2], WEIR_E_PROTOCOL, "%d", (int)c.status[1][2]);
  same(c.after[1] + 2 * c.n, c.before[1] + 2 * c.n, c.n, "residual", 1, 2);
  free_room(&c);
}

Test(device, a_harmed_message_changes_nothing) {
  static const char *const plans[] = {"topk:0.1:ag", "qsgd:0.125:sra", "fp16:0.5:compressed-ring",
                                      "qsgd:0.125:compressed-tree", "onebit:0.03125:sra"};
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
    for (int buckets = 0; buckets < 2; buckets++) harm_one_of(plans[p], buckets, NULL);
  harm_one_of("topk:0.1:hitopk", 0, "aabb");
  harm_one_of("qsgd:0.125:hier-sra", 1, "aabb");
}

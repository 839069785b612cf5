/* Gradients of 16 bits an element beside others: a step gives what it gives of the same numbers as
 * floats, with the average rounded once.  So with every plan, in buckets, with momentum and
 * without, in host memory and on a device: averages, residuals and what headers tell, bit for
 * bit.  But for whitened, whose units follow averages as they were published, rounded. */
#include <criterion/criterion.h>
#include <math.h>

#include "../sampled.h"
#include "base/base.h"
#include "device.h"
#include "group.h"
#include "half.h"
#include "script.h"

enum { TENSORS = 9, STEPS = 6, TOLD = 4 };

typedef struct course {
  test_device device;
  unsigned where; /* bit r: rank r has a device */
  uint8_t types[TENSORS];
  size_t offset[TENSORS + 1], rows[TENSORS], n;
  double momentum;
  bool apart, keep, typed;
  unsigned threads;
  script_step steps[STEPS];
  int count;
  uint64_t seed;
  /* Of floats, and of types: n a step each. */
  float *average[2][GROUP_MAX], *residual[2][GROUP_MAX];
  weir_status status[2][GROUP_MAX][STEPS];
  double told[2][GROUP_MAX][STEPS][TOLD];
} course;

static size_t width(const course *c, size_t t) {
  return c->typed && c->types[t] != WEIR_FP32 ? 2 : 4;
}

static size_t numel(const course *c, size_t t) { return c->offset[t + 1] - c->offset[t]; }

/* What a rank's gradient is in a step: numbers that the tensors' types have. */
static void fill(const course *c, int rank, int step, float *g) {
  weir_rng rng = weir_rng_of(c->seed * 1000 + (uint64_t)step * GROUP_MAX + (uint64_t)rank);
  for (size_t t = 0; t < TENSORS; t++)
    for (size_t i = c->offset[t]; i < c->offset[t + 1]; i++) {
      const double x = weir_rng_normal(&rng);
      g[i] = (float)(i % 4 == 1 ? 0 : x * x * x * (t % 3 == 0 ? 0x1p-22 : 1));
      if (c->types[t] != WEIR_FP32) g[i] = (float)half_nearest(c->types[t], (double)g[i]);
    }
  if (c->steps[step].poisoned == rank) g[c->n / 2] = NAN;
}

static void to_type(const course *c, size_t t, const float *from, void *to) {
  for (size_t i = 0; i < numel(c, t); i++)
    if (width(c, t) == 4)
      ((float *)to)[i] = from[i];
    else
      ((uint16_t *)to)[i] = isnan(from[i]) ? 0xffff : half_bits(c->types[t], (double)from[i]);
}

static void from_type(const course *c, size_t t, const void *from, float *to) {
  for (size_t i = 0; i < numel(c, t); i++)
    to[i] = width(c, t) == 4 ? ((const float *)from)[i]
                             : (float)half_value(c->types[t], ((const uint16_t *)from)[i]);
}

/* --- one rank --------------------------------------------------------------------------------- */

typedef struct rank {
  course *course;
  int number;
  script script;
  bool device;
  unsigned char *memory, *at[TENSORS], *host;
} worker;

static void observe(void *user, const weir_header *headers, int ranks,
                    const weir_step_record *record) {
  const script *s = user;
  worker *r = (worker *)(void *)((char *)user - offsetof(worker, script));
  double *told = r->course->told[r->course->typed][r->number][s->at];
  (void)ranks;
  told[0] = (double)headers[r->number].nonzero;
  told[1] = (double)headers[r->number].runs;
  told[2] = headers[r->number].sum_square;
  told[3] = record->info.gain;
}

/* A tensor may begin at any multiple of its elements' size. */
static void place(worker *r) {
  const course *c = r->course;
  const size_t bytes = 4 * c->n + (size_t)TENSORS * 16 + 16;
  size_t at = 0;
  r->memory = r->device ? c->device.memory(bytes) : malloc(bytes);
  r->host = malloc(bytes);
  for (size_t t = 0; t < TENSORS; t++) {
    const size_t w = width(c, t);
    at = (at + (c->apart ? 3 * w : 0) + w - 1) / w * w;
    r->at[t] = r->memory + at;
    at += numel(c, t) * w;
  }
}

static void leave(worker *r) {
  if (r->device)
    r->course->device.forget(r->memory);
  else
    free(r->memory);
  free(r->host);
}

static weir_status hand_in(worker *r, weir_engine *engine, const float *g) {
  const course *c = r->course;
  weir_status status = WEIR_OK;
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++) {
    const size_t bytes = numel(c, t) * width(c, t);
    unsigned char *const host = r->host + (r->at[t] - r->memory);
    to_type(c, t, g + c->offset[t], r->device ? host : r->at[t]);
    if (r->device && bytes > 0) c->device.put(r->at[t], host, bytes);
    status = weir_engine_submit(engine, t, bytes > 0 ? r->at[t] : NULL);
  }
  return status;
}

static void take_out(worker *r, float *to) {
  const course *c = r->course;
  for (size_t t = 0; t < TENSORS; t++) {
    unsigned char *const host = r->host + (r->at[t] - r->memory);
    if (r->device) c->device.get(host, r->at[t], numel(c, t) * width(c, t));
    from_type(c, t, r->device ? host : r->at[t], to + c->offset[t]);
  }
}

static void body(member *m) {
  course *c = m->group->shared;
  worker r = {.course = c,
              .number = m->rank,
              .script = {c->steps, c->count, 0},
              .device = c->where >> m->rank & 1};
  weir_engine *engine = NULL;
  weir_engine_hooks hooks = script_hooks(&r.script);
  hooks.observe = observe;
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, c->offset},
                                     .rows = c->rows,
                                     .types = c->typed ? c->types : NULL,
                                     .momentum = c->momentum,
                                     .first_plan = c->steps[0].plan,
                                     .first_buckets = c->steps[0].table,
                                     .hooks = hooks,
                                     .codec_threads = c->threads,
                                     .counts = c->where == 0 && c->momentum == 0,
                                     .keep_nonfinite = c->keep,
                                     .device_ops = r.device ? c->device.ops : NULL,
                                     .device_timeout_s = 20,
                                     .devices = c->where != 0};
  weir_status status = weir_engine_create(&engine, &config);
  FREED float *g = malloc((c->n + 1) * sizeof *g);
  place(&r);
  for (int s = 0; s < c->count && (status == WEIR_OK || status == WEIR_E_NONFINITE); s++) {
    r.script.at = s;
    fill(c, m->rank, s, g);
    status = weir_engine_step_begin(engine, NULL);
    if (status == WEIR_OK) status = hand_in(&r, engine, g);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    c->status[c->typed][m->rank][s] = status;
    if (status != WEIR_OK && status != WEIR_E_NONFINITE) break;
    take_out(&r, c->average[c->typed][m->rank] + (size_t)s * c->n);
    memcpy(c->residual[c->typed][m->rank] + (size_t)s * c->n, weir_engine_residual(engine),
           c->n * sizeof *g);
  }
  if (status != WEIR_OK && status != WEIR_E_NONFINITE)
    group_fail(m->group, "rank %d, step %d: %s", m->rank, r.script.at, weir_last_error());
  weir_engine_free(engine);
  leave(&r);
}

/* --- comparing -------------------------------------------------------------------------------- */

/* What element i of tensor t should be where floats have x. */
static bool as_due(const course *c, size_t t, bool lost, float x, float found) {
  if (lost) return c->keep ? isnan(found) : found == 0;
  if (c->types[t] == WEIR_FP32) return memcmp(&x, &found, sizeof x) == 0;
  return (double)found == half_nearest(c->types[t], (double)x);
}

static void compare_step(const course *c, int rank, int step, const char *what) {
  const size_t at = (size_t)step * c->n;
  const float *floats = c->average[0][rank] + at, *types = c->average[1][rank] + at;
  const weir_status status = c->status[0][rank][step];
  cr_assert_eq(c->status[1][rank][step], status, "%s, step %d", what, step);
  cr_assert_eq(status, c->steps[step].poisoned >= 0 ? WEIR_E_NONFINITE : WEIR_OK);
  for (size_t t = 0; t < TENSORS; t++)
    for (size_t i = c->offset[t]; i < c->offset[t + 1]; i++)
      cr_assert(as_due(c, t, status != WEIR_OK, floats[i], types[i]),
                "%s, rank %d, step %d, tensor %zu of type %u: element %zu is %.9g, of floats %.9g",
                what, rank, step, t, c->types[t], i, (double)types[i], (double)floats[i]);
  cr_assert_eq(memcmp(c->residual[0][rank] + at, c->residual[1][rank] + at, c->n * sizeof(float)),
               0, "%s, rank %d, step %d: residuals differ", what, rank, step);
  if (!c->keep || status == WEIR_OK)
    cr_assert_eq(memcmp(types, c->average[1][0] + at, c->n * sizeof *types), 0,
                 "%s, step %d: ranks 0 and %d differ", what, step, rank);
  cr_assert_eq(memcmp(c->told[0][rank][step], c->told[1][rank][step], sizeof c->told[0][0][0]), 0,
               "%s, step %d: headers differ", what, step);
}

static void run_both(course *c, int ranks, const char *what) {
  for (int r = 0; r < ranks; r++)
    for (int k = 0; k < 2; k++) {
      c->average[k][r] = calloc((size_t)c->count * c->n + 1, sizeof(float));
      c->residual[k][r] = calloc((size_t)c->count * c->n + 1, sizeof(float));
    }
  for (int k = 0; k < 2; k++) {
    c->typed = k;
    group_well(ranks, body, c, what);
  }
  for (int r = 0; r < ranks; r++)
    for (int s = 0; s < c->count; s++) compare_step(c, r, s, what);
  for (int r = 0; r < ranks; r++)
    for (int k = 0; k < 2; k++) {
      free(c->average[k][r]);
      free(c->residual[k][r]);
    }
}

/* --- courses ---------------------------------------------------------------------------------- */

static void shape(course *c, weir_rng *rng, size_t longest) {
  c->n = 0;
  for (size_t t = 0; t < TENSORS; t++) {
    const size_t n = t == 3 ? 0 : t == 5 ? 1 : 1 + weir_rng_below(rng, longest);
    c->types[t] = (uint8_t)weir_rng_below(rng, 3);
    c->offset[t] = c->n;
    c->n += n;
  }
  c->types[1] = WEIR_FP16; /* one of each at least */
  c->types[2] = WEIR_BF16;
  c->types[7] = WEIR_FP32;
  c->offset[TENSORS] = c->n;
  group_rows(c->offset, TENSORS, c->rows);
}

/* The whole gradient, or three buckets. */
static void plan_of(script_step *s, const weir_plan *plan, bool buckets, uint64_t id) {
  size_t count = 0;
  s->plan = *plan;
  s->plan.id = id;
  s->poisoned = -1;
  if (!buckets) return;
  script_add_bucket(s, &count, 2, WEIR_PLACE_CALLER, plan);
  script_add_bucket(s, &count, 5, WEIR_PLACE_THREAD, plan);
  script_add_bucket(s, &count, TENSORS, WEIR_PLACE_CALLER, plan);
  script_close(s, count, id);
}

/* The plan, a lost step, a flush of what is kept back, and the plan again. */
static void make(course *c, const weir_plan *plan, weir_rng *rng, int ranks) {
  const weir_plan dense = group_plan(0, 1, 99);
  const bool buckets = weir_rng_below(rng, 2) == 0;
  c->count = STEPS;
  for (int s = 0; s < STEPS; s++) {
    plan_of(&c->steps[s], s == 4 ? &dense : plan, buckets && s != 4, s == 4 ? 99 : 1);
    c->steps[s].action = s == 4 || s == 5 ? WEIR_ACTION_SWITCH : WEIR_ACTION_KEEP;
  }
  c->steps[2].poisoned = (int)weir_rng_below(rng, (uint64_t)ranks);
  c->momentum = !group_hands_over(plan) && weir_rng_below(rng, 2) == 0 ? 0.5 : 0;
  c->apart = weir_rng_below(rng, 2) == 0;
}

static void try_arm(size_t arm, int ranks, unsigned where, const test_device *device) {
  static const double ratios[] = {0.3, 0.05, 1};
  static uint64_t seed = 1;
  static course c;
  char what[160], text[WEIR_PLAN_TEXT_MAX];
  weir_rng rng = weir_rng_of(++seed);
  const weir_plan plan = group_plan(arm, ratios[seed % 3], 1);
  c = (course){.seed = seed, .where = where, .threads = seed % 2 ? 1 : 3};
  if (device != NULL) c.device = *device;
  c.keep = seed % 5 < 2;
  shape(&c, &rng, where != 0 ? 900 : seed % 4 == 0 ? 9000 : 700);
  make(&c, &plan, &rng, ranks);
  weir_plan_format(&plan, text);
  snprintf(what, sizeof what, "seed %d, %s, %d ranks, devices %#x, momentum %g", (int)seed, text,
           ranks, where, c.momentum);
  run_both(&c, ranks, what);
}

static bool whitens(size_t arm) { return weir_codec_find(group_plan(arm, 0.1, 0).codec)->whitened; }

Test(half, every_plan_gives_what_it_gives_of_floats_rounded_once) {
  for (int turn = 0; turn < 2; turn++)
    for (size_t arm = 0; arm < GROUP_ARMS; arm++)
      for (int ranks = 2; ranks <= 3; ranks++)
        if (sampled_of_dear(10) && !whitens(arm)) try_arm(arm, ranks, 0, NULL);
}

Test(half, so_it_does_on_devices) {
  const test_device device = test_device_open();
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) {
    const weir_plan plan = group_plan(arm, 0.1, 0);
    for (int ranks = 2; ranks <= 3; ranks++)
      if (sampled_of_dear(16) && weir_codec_find(plan.codec)->device)
        try_arm(arm, ranks, ranks == 2 ? 3 : arm % 2 ? 7 : 5, &device);
  }
}

/* Long enough that a tensor is fed in parts, by one thread and by three. */
Test(half, long_tensors_are_fed_in_parts) {
  static const char *const plans[] = {"none:1:dense-ring", "topk:0.01:ag", "qsgd:0.125:ag",
                                      "nonzero:0.25:ag"};
  for (int i = 0; i < 3; i++)
    for (unsigned threads = 1; threads <= 3; threads += 2) {
      static course c;
      if (!sampled_of_dear(6)) continue;
      weir_rng rng = weir_rng_of(7);
      weir_plan plan;
      cr_assert_eq(weir_plan_parse(plans[i], &plan), WEIR_OK);
      c = (course){.seed = 7, .threads = threads, .count = 2};
      shape(&c, &rng, 100);
      for (size_t t = 2; t <= TENSORS; t++) c.offset[t] += ((size_t)1 << 20) + 77;
      c.n = c.offset[TENSORS];
      for (size_t t = 0; t < TENSORS; t++) c.rows[t] = 1;
      for (int s = 0; s < 2; s++) plan_of(&c.steps[s], &plan, false, 1);
      run_both(&c, 2, plans[i]);
    }
}

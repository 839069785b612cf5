/* Averages that 16 bits cannot hold: error feedback has kept back of an element what makes its next
 * one too large.  The step is lost on all ranks, whatever way the average goes, nothing of what is
 * kept back is, and with gradients of half the scale the training goes on. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "device.h"
#include "group.h"
#include "half.h"

/* A vector whose only element is sent first, and a matrix all of which is kept back then. */
enum { ROWS = 40, COLUMNS = 150, N = 1 + ROWS * COLUMNS };
static const size_t offset[] = {0, 1, N}, rows[] = {1, ROWS};

typedef struct course {
  const char *plan; /* of the steps after the first */
  unsigned type;
  int size;
  bool keep, on_device;
  test_device device;
  double first,
      second[4];   /* the vector's gradient, and in each step that of the matrix' elements */
  double scale[4]; /* of the gradient in each step, and of what is kept back */
  weir_status status[GROUP_MAX][4];
  double average[GROUP_MAX][4], residual[GROUP_MAX][4]; /* of the matrix' last element */
  bool zero[GROUP_MAX];                                 /* after the lost step all elements are */
} course;

typedef struct told {
  const course *course;
  int step;
} told;

static void propose(void *user, weir_directive *directive) {
  const told *t = user;
  if (t->step != 0) return;
  directive->action = WEIR_ACTION_SWITCH;
  (void)weir_plan_parse(t->course->plan, &directive->plan);
  directive->plan.id = 2;
}

static void put(const course *c, uint16_t *g, uint16_t *on, int step) {
  for (size_t i = 0; i < N; i++)
    g[i] = half_bits(c->type, (i == 0 ? c->first : c->second[step]) * c->scale[step]);
  if (c->on_device) c->device.put(on, g, N * sizeof *g);
}

static bool all_lost(const course *c, const uint16_t *g) {
  bool lost = true;
  for (size_t i = 0; i < N; i++)
    lost = lost && (c->keep ? isnan(half_value(c->type, g[i])) : half_value(c->type, g[i]) == 0);
  return lost;
}

static void body(member *m) {
  course *c = m->group->shared;
  told t = {c, 0};
  weir_plan first;
  weir_engine *engine = NULL;
  (void)weir_plan_parse("topk:0.0001:ag", &first);
  first.id = 1;
  const uint8_t types[] = {(uint8_t)c->type, (uint8_t)c->type};
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {2, offset},
                                     .rows = rows,
                                     .types = types,
                                     .first_plan = first,
                                     .hooks = {.user = &t, .propose = propose},
                                     .keep_nonfinite = c->keep,
                                     .device_ops = c->on_device ? c->device.ops : NULL,
                                     .device_timeout_s = 20,
                                     .devices = c->on_device};
  FREED uint16_t *g = malloc(N * sizeof *g);
  uint16_t *const on = c->on_device ? c->device.memory(N * sizeof *g) : g;
  weir_status status = weir_engine_create(&engine, &config);
  for (t.step = 0; t.step < 4 && (status == WEIR_OK || status == WEIR_E_NONFINITE); t.step++) {
    put(c, g, on, t.step);
    /* What a loss scaler does that has found a step lost. */
    if (t.step > 0 && c->scale[t.step] != c->scale[t.step - 1])
      status = weir_engine_rescale(engine, (float)(c->scale[t.step] / c->scale[t.step - 1]));
    if (status == WEIR_OK || status == WEIR_E_NONFINITE)
      status = weir_engine_step_begin(engine, NULL);
    if (status == WEIR_OK) status = weir_engine_submit(engine, 0, on);
    if (status == WEIR_OK) status = weir_engine_submit(engine, 1, on + 1);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    if (c->on_device) c->device.get(g, on, N * sizeof *g);
    c->status[m->rank][t.step] = status;
    c->average[m->rank][t.step] = half_value(c->type, g[N - 1]);
    c->residual[m->rank][t.step] = (double)weir_engine_residual(engine)[N - 1];
    if (t.step == 1) c->zero[m->rank] = all_lost(c, g);
  }
  if (status != WEIR_OK && status != WEIR_E_NONFINITE)
    group_fail(m->group, "rank %d, step %d: %s", m->rank, t.step, weir_last_error());
  weir_engine_free(engine);
  if (c->on_device) c->device.forget(on);
}

static void check(course *c, const char *plan) {
  c->plan = plan;
  group_well(c->size, body, c, plan);
  for (int r = 0; r < c->size; r++) {
    cr_assert_eq(c->status[r][0], WEIR_OK);
    cr_assert_eq(c->residual[r][0], c->second[0], "%s: all of it is kept back", plan);
    cr_assert_eq(c->status[r][1], WEIR_E_NONFINITE, "%s, type %u", plan, c->type);
    cr_assert(c->zero[r], "%s", plan);
    cr_assert_eq(c->residual[r][1], c->second[0], "%s: nothing of it is lost", plan);
    cr_assert_eq(c->status[r][2], WEIR_OK, "%s", plan);
    const double in = (c->second[0] + c->second[2]) * c->scale[2];
    cr_assert_float_eq(c->average[r][2] + c->residual[r][2], in, in * 0x1p-7, "%s: %g and %g of %g",
                       plan, c->average[r][2], c->residual[r][2], in);
  }
}

/* Sums, lists, shared lists, matrices, and those that travel whole. */
static const char *const plans[] = {
    "none:1:dense-ring",     "bf16:1:dense-tree", "topk:1:ag",
    "star:1:art-ring",       "qsgd:0.25:ag",      "qsgd:0.25:sra",
    "powersgd:1:dense-ring", "fp16:0.5:ag",       "randomk:1:art-tree:auto-fp32"};
#define PLANS (sizeof plans / sizeof *plans)

/* 40000 is kept back, and comes again: 80000 is no half.  Of half the scale it is 40000. */
Test(half_lost, an_average_beyond_the_largest_half_loses_the_step) {
  for (size_t p = 0; p < PLANS; p++)
    for (int size = 1; size <= 3; size++) {
      if (strcmp(plans[p], "fp16:0.5:ag") == 0) continue; /* its messages saturate at the largest */
      course c = {.type = WEIR_FP16,
                  .size = size,
                  .keep = size == 2,
                  .first = 60000,
                  .second = {40000, 40000, 40000, 40000},
                  .scale = {1, 1, 0.5, 0.5}};
      check(&c, plans[p]);
    }
}

/* A message of halves saturates, so that the average is the largest of them and the rest kept
 * back. */
Test(half_lost, what_saturates_in_a_message_is_kept_back) {
  course c = {.type = WEIR_FP16,
              .size = 2,
              .first = 60000,
              .second = {40000, 40000, 40000, 40000},
              .plan = "fp16:0.5:ag",
              .scale = {1, 1, 1, 1}};
  group_well(2, body, &c, "fp16");
  for (int r = 0; r < 2; r++) {
    cr_assert(c.status[r][1] == WEIR_OK && c.average[r][1] == 65504, "%g", c.average[r][1]);
    cr_assert_eq(c.residual[r][1], 80000 - 65504);
  }
}

/* Alone, since what two ranks have of these would be infinite as a sum of floats before: the
 * largest bfloat16 and half a unit of it that was kept back. */
Test(half_lost, an_average_beyond_the_largest_bfloat16_loses_the_step) {
  const double largest = 0x1.fep127, half_unit = 0x1p119;
  for (size_t p = 0; p < PLANS; p++) {
    if (strchr("nr", plans[p][0]) == NULL) continue; /* others' arithmetic has no room for it */
    course c = {.type = WEIR_BF16,
                .size = 1,
                .keep = p > 0,
                .first = largest,
                .second = {half_unit, largest, largest, largest},
                .scale = {1, 1, 0.5, 0.5}};
    check(&c, plans[p]);
  }
}

Test(half_lost, so_it_is_on_devices) {
  const test_device device = test_device_open();
  for (size_t p = 0; p < PLANS; p++) {
    if (strcmp(plans[p], "fp16:0.5:ag") == 0) continue;
    course c = {.type = WEIR_FP16,
                .size = 2,
                .keep = p % 2 == 0,
                .on_device = true,
                .device = device,
                .first = 60000,
                .second = {40000, 40000, 40000, 40000},
                .scale = {1, 1, 0.5, 0.5}};
    check(&c, plans[p]);
  }
}

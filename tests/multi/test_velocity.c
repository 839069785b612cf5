/* The velocity of momentum correction through random steps: of every codec and collective, in
 * buckets and whole, in trials and between them.  A step that is dropped leaves velocity and
 * residual as they were, bit for bit; one that counts leaves m u + g, which is followed in double
 * precision here, or 0 where something was sent. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#define GROUP_MAX 20

#include "base/base.h"
#include "engine/state.h"
#include "group.h"
#include "script.h"

enum { TENSORS = 5, STEPS = 14, MOST = 400 };
static const size_t small[TENSORS + 1] = {0, 130, 300, 301, 700, 1400};
#define MOMENTUM 0.9

typedef struct course {
  const size_t *offset;
  int steps;
  script_step step[MOST]; /* poisoned: whose gradient holds NaN */
  uint64_t seed;
  unsigned threads;
  int ranks;
  int dropped, counted, trials; /* as rank 0 saw them */
} course;

/* --- what is expected of one rank ------------------------------------------------------------- */

typedef struct memory {
  size_t n;
  float *u, *residual;  /* of the engine, after the last step that counts */
  double *want, *error; /* the velocity in double precision, and how far u may be from it */
  float *g, *given;
} memory;

static memory remember(size_t n) {
  memory m = {.n = n};
  m.u = calloc(n, sizeof *m.u);
  m.residual = calloc(n, sizeof *m.residual);
  m.want = calloc(n, sizeof *m.want);
  m.error = calloc(n, sizeof *m.error);
  m.g = calloc(n, sizeof *m.g);
  m.given = calloc(n, sizeof *m.given);
  if (!m.u || !m.residual || !m.want || !m.error || !m.g || !m.given) abort();
  return m;
}

static void forget(memory *m) {
  free(m->u);
  free(m->residual);
  free(m->want);
  free(m->error);
  free(m->g);
  free(m->given);
}

static bool is_as_before(weir_engine *engine, const memory *m) {
  return memcmp(engine->host.velocity, m->u, m->n * sizeof *m->u) == 0 &&
         memcmp(weir_engine_residual(engine), m->residual, m->n * sizeof *m->residual) == 0;
}

/* Of a group that has selected: what it sent is gone from the residual, but for what 16 bits lose
 * of it and of sums, and the velocity there is zero; elsewhere the residual is all of e.  Returns
 * how many elements it sent. */
static size_t look_at_selected(const weir_bucket *part, memory *m, const float *u,
                               const float *residual, const char **wrong) {
  const size_t end = part->at + part->n;
  size_t sent = 0;
  double most = 5; /* of a few elements that of the other ranks may be larger */
  for (size_t i = part->at; i < end; i++)
    most = fmax(most, fabs((double)m->residual[i] + m->want[i]));
  for (size_t i = part->at; i < end; i++) {
    const double e = (double)m->residual[i] + m->want[i];
    const bool whole =
        fabs((double)residual[i] - e) <= m->error[i] + (fabs(e) + fabs(m->want[i])) * FLT_EPSILON;
    if (u[i] != 0) {
      if (!whole) *wrong = "cut where nothing was sent";
    } else if (!whole || fabs(m->want[i]) > m->error[i]) { /* else it is too small for e */
      sent++;
      const bool saturates = fabs(e) > 65504; /* in half precision; the rest stays behind */
      if (!saturates && fabs((double)residual[i]) > most * 0.01 * part->engine->size)
        *wrong = "not sent";
      m->want[i] = m->error[i] = 0;
    }
  }
  return sent;
}

/* A step counts. */
static void follow(weir_engine *engine, memory *m, const char **wrong) {
  const float *const u = engine->host.velocity, *const residual = weir_engine_residual(engine);
  for (size_t i = 0; i < m->n; i++) {
    m->want[i] = MOMENTUM * m->want[i] + (double)m->given[i];
    /* The engine's momentum is a float; e, r and v are rounded once each. */
    m->error[i] = MOMENTUM * m->error[i] +
                  (2 * fabs(m->want[i]) + fabs((double)m->residual[i])) * 2 * FLT_EPSILON;
  }
  for (size_t k = 0; k < engine->set.count; k++) {
    const weir_bucket *part = &engine->set.bucket[k];
    const weir_codec *codec = weir_codec_find(part->plan.codec);
    if (codec->select == NULL && codec->draw == NULL) continue;
    const size_t sent = look_at_selected(part, m, u, residual, wrong);
    if (part->plan.codec != WEIR_CODEC_SIDCO && sent != part->kept) *wrong = "another number";
  }
  for (size_t i = 0; i < m->n; i++)
    if (!(fabs((double)u[i] - m->want[i]) <= m->error[i])) *wrong = "another velocity";
  memcpy(m->u, u, m->n * sizeof *u);
  memcpy(m->residual, residual, m->n * sizeof *residual);
}

/* --- a course --------------------------------------------------------------------------------- */

static weir_engine *create(member *m, script *v) {
  const course *c = m->group->shared;
  size_t rows[TENSORS];
  group_rows(c->offset, TENSORS, rows);
  const script_step *first = &c->step[0];
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {TENSORS, c->offset},
                                     .rows = rows,
                                     .momentum = MOMENTUM,
                                     .codec_threads = c->threads,
                                     .first_plan = first->plan,
                                     .first_buckets = first->plan.buckets > 0 ? first->table : NULL,
                                     .hooks = script_hooks(v)};
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  return engine;
}

static void draw(member *m, memory *mine, int step, int poisoned) {
  const course *c = m->group->shared;
  weir_rng rng = weir_rng_of(c->seed * 1000 + (uint64_t)(step * GROUP_MAX + m->rank));
  for (size_t i = 0; i < mine->n; i++) mine->given[i] = (float)weir_rng_normal(&rng);
  /* The last step's sum overflows, if all of it travels. */
  if (step == c->steps - 1) mine->given[mine->n / 2] = 3e38F;
  if (poisoned == m->rank) mine->given[mine->n - 1] = NAN;
  memcpy(mine->g, mine->given, mine->n * sizeof *mine->g);
}

static void body(member *m) {
  course *c = m->group->shared;
  script v = {c->step, c->steps, 0};
  weir_engine *engine = create(m, &v);
  memory mine = remember(c->offset[TENSORS]);
  for (v.at = 0; engine != NULL && v.at < c->steps && !group_failed(m->group); v.at++) {
    const script_step *s = &c->step[v.at];
    const char *wrong = NULL;
    char plan[WEIR_PLAN_TEXT_MAX];
    weir_plan_format(&s->plan, plan);
    draw(m, &mine, v.at, s->poisoned);
    weir_step_info info = {0};
    weir_status status = weir_engine_step_begin(engine, &info);
    if (!info.trial && !is_as_before(engine, &mine)) wrong = "another state before the step";
    for (uint32_t i = 0; i < TENSORS && status == WEIR_OK; i++) {
      const uint32_t t = s->shuffled ? TENSORS - 1 - i : i;
      status = weir_engine_submit(engine, t, mine.g + c->offset[t]);
    }
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    if (status == WEIR_E_NONFINITE) {
      if (!info.trial && !is_as_before(engine, &mine))
        wrong = "another state after a step that was dropped";
    } else if (status != WEIR_OK || s->poisoned >= 0) {
      wrong = weir_last_error();
    } else if (!info.trial) {
      follow(engine, &mine, &wrong);
    }
    if (m->rank == 0) {
      c->dropped += status == WEIR_E_NONFINITE;
      c->trials += info.trial;
      c->counted += status == WEIR_OK && !info.trial;
    }
    if (wrong)
      group_fail(m->group, "seed %d, rank %d of %d, step %d of %s (%d buckets): %s", (int)c->seed,
                 m->rank, m->size, v.at, plan, (int)s->plan.buckets, wrong);
  }
  forget(&mine);
  weir_engine_free(engine);
}

static void run(course *c) { group_well(c->ranks, body, c, NULL); }

/* --- random courses --------------------------------------------------------------------------- */

static weir_plan any_plan(weir_rng *rng, size_t arm, uint64_t id) {
  static const double cr[] = {0.02, 0.1, 0.45, 0.9};
  const weir_plan plan = group_plan(arm, cr[weir_rng_next(rng) % 4], id);
  /* Refused with momentum. */
  return group_hands_over(&plan) ? group_plan(0, 1, id) : plan;
}

/* Of the arm, whole or in buckets, of which the others are of any. */
static void any_step(script_step *s, weir_rng *rng, size_t arm, uint64_t id) {
  s->plan = any_plan(rng, arm, id);
  if (weir_rng_next(rng) % 2 == 0) return;
  size_t count = 0;
  for (uint32_t t = 1; t <= TENSORS; t++) {
    if (t < TENSORS && weir_rng_next(rng) % 2 == 0) continue;
    const uint32_t place = weir_rng_next(rng) % 2 == 0 ? WEIR_PLACE_CALLER : WEIR_PLACE_THREAD;
    const weir_plan plan = any_plan(rng, count == 0 ? arm : weir_rng_next(rng) % GROUP_ARMS, id);
    script_add_bucket(s, &count, t, place, &plan);
  }
  script_close(s, count, id);
}

/* Plans last for some steps, and one step in four is dropped. */
static void make_course(course *c, size_t arm, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed * 7919 + arm);
  *c = (course){.offset = small, .steps = STEPS, .seed = seed * 100 + arm};
  c->ranks = 1 + (int)(weir_rng_next(&rng) % 4);
  for (int i = 0; i < c->steps; i++) {
    script_step *s = &c->step[i];
    const uint64_t turn = weir_rng_next(&rng) % 8;
    if (i > 0 && turn > 2) {
      *s = c->step[i - 1];
      s->action = WEIR_ACTION_KEEP;
    } else {
      any_step(s, &rng, turn == 0 ? weir_rng_next(&rng) % GROUP_ARMS : arm, (uint64_t)i + 1);
      s->action = turn == 1 ? WEIR_ACTION_TRIAL : WEIR_ACTION_SWITCH;
    }
    s->shuffled = weir_rng_next(&rng) % 2 == 0;
    s->poisoned = weir_rng_next(&rng) % 4 == 0 ? (int)(weir_rng_next(&rng) % 4) % c->ranks : -1;
  }
}

Test(velocity, is_that_of_the_steps_that_count) {
  static course c;
  int dropped = 0, counted = 0, trials = 0;
  for (size_t arm = 0; arm < GROUP_ARMS; arm++)
    for (uint64_t seed = 1; seed <= (GROUP_SLOW ? 2 : 6); seed++) {
      make_course(&c, arm, seed);
      run(&c);
      dropped += c.dropped;
      counted += c.counted;
      trials += c.trials;
    }
  cr_assert(dropped > 100 && counted > 300 && trials > 50, "%d %d %d", dropped, counted, trials);
}

/* It does not go astray in hundreds of steps. */
Test(velocity, stays_what_it_is) {
  static const char *const plans[] = {"topk:0.01:ag:auto-fp32", "dgc:0.05:ag:auto-fp16",
                                      "star:0.01:art-ring:auto-bf16", "qsgd:0.125:ag",
                                      "star:0.4:art-tree:auto-fp32"};
  static course c;
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
    c = (course){.offset = small, .steps = MOST, .seed = p, .ranks = 2};
    for (int i = 0; i < MOST; i++) {
      cr_assert_eq(weir_plan_parse(plans[p], &c.step[i].plan), WEIR_OK);
      c.step[i].poisoned = i % 50 == 7 ? 0 : -1;
    }
    run(&c);
    cr_assert_geq(c.counted, MOST - 9);
  }
}

/* Messages that are longer together than the gradient, in a trial and outside of one. */
Test(velocity, of_long_messages) {
  static const size_t longer[TENSORS + 1] = {0, 5, 6000, 6001, 6100, 24000};
  static const struct {
    const char *plan;
    int ranks;
  } rows[] = {{"fp16:0.5:ag", 4},
              {"qsgd:0.25:ag", 8},
              {"terngrad:0.0625:ag", GROUP_MAX},
              {"topk:0.9:ag", 4},
              {"topk:0.6:ag:auto-bf16", 4}};
  static course c;
  for (size_t p = 0; p < sizeof rows / sizeof *rows; p++) {
    c = (course){.offset = longer, .steps = STEPS, .seed = p, .ranks = rows[p].ranks};
    for (int i = 0; i < STEPS; i++) {
      cr_assert_eq(weir_plan_parse(rows[p].plan, &c.step[i].plan), WEIR_OK);
      c.step[i].poisoned = i % 5 == 2 ? i % 4 : -1;
      c.step[i].action = i == 6   ? WEIR_ACTION_TRIAL
                         : i == 8 ? WEIR_ACTION_SWITCH
                                  : WEIR_ACTION_KEEP;
    }
    run(&c);
    cr_assert(c.counted >= 8 && c.trials == 2, "%d %d", c.counted, c.trials);
  }
}

/* A tensor that several threads share. */
Test(velocity, of_many_elements) {
  static const size_t large[TENSORS + 1] = {0, 5, 1100000, 1100001, 1100100, 1200000};
  static const char *const plans[] = {"topk:0.01:ag", "none:1:dense-ring", "qsgd:0.125:ag"};
  static course c;
  for (size_t p = 0; p < sizeof plans / sizeof *plans && !GROUP_SLOW; p++) {
    c = (course){.offset = large, .steps = 6, .seed = p, .ranks = 2, .threads = 2};
    for (int i = 0; i < c.steps; i++) {
      cr_assert_eq(weir_plan_parse(plans[p], &c.step[i].plan), WEIR_OK);
      c.step[i].poisoned = i == 2 ? 1 : -1;
    }
    run(&c);
    cr_assert_geq(c.counted, 4);
  }
}

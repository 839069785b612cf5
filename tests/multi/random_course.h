/* A course of steps that follows from its seed alone: a group of ranks on machines, tensors of all
 * types, an engine's options, what gradients look like, and plans that come and go in every way a
 * policy could ask for. */
#ifndef WEIR_TESTS_RANDOM_COURSE_H
#define WEIR_TESTS_RANDOM_COURSE_H

#include <math.h>

#include "base/base.h"
#include "group.h"
#include "script.h"

enum { COURSE_STEPS = 40, COURSE_TENSORS = SCRIPT_TENSORS };

/* What the elements of a step's gradients are. */
typedef enum course_values {
  COURSE_UNIFORM,
  COURSE_SCALES,   /* over several powers of ten */
  COURSE_FEW,      /* one in 32 is not 0 */
  COURSE_ZERO,     /* all are 0 */
  COURSE_TIES,     /* few values, many of each */
  COURSE_TINY,     /* around the least normal number */
  COURSE_OUTLIERS, /* some far larger than the rest */
  COURSE_SMALL,    /* below what fp16 holds well */
  COURSE_VALUES
} course_values;

typedef struct random_course {
  uint64_t seed;
  int ranks;
  char machines[GROUP_MAX + 1]; /* a letter a rank; "": each has its own */
  bool several;                 /* machines have more than one letter */
  size_t tensors, offset[COURSE_TENSORS + 1], rows[COURSE_TENSORS], n;
  size_t full; /* tensors at the end that stay in full precision */
  uint8_t types[COURSE_TENSORS];
  double momentum;
  unsigned threads;
  bool curve, keep_nonfinite, without_feedback, damped;
  int count;                       /* of steps */
  int number[COURSE_STEPS];        /* what a step's gradients are drawn by */
  script_step steps[COURSE_STEPS]; /* with the plan that is in force, whatever the action */
  bool trial[COURSE_STEPS];
  course_values values[COURSE_STEPS];
  float poison[COURSE_STEPS]; /* what the poisoned rank's gradient holds here and there */
} random_course;

static inline bool course_coin(weir_rng *rng) { return weir_rng_below(rng, 2) == 0; }
static inline bool course_one_in(weir_rng *rng, uint64_t of) {
  return weir_rng_below(rng, of) == 0;
}

/* --- the group and its tensors ---------------------------------------------------------------- */

static inline void course_draw_group(random_course *c, weir_rng *rng) {
  static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 3, 5, 6};
  const uint64_t letters = 1 + weir_rng_below(rng, 4);
  c->ranks = sizes[weir_rng_below(rng, sizeof sizes / sizeof *sizes)];
  if (course_coin(rng)) return;
  for (int r = 0; r < c->ranks; r++) {
    c->machines[r] = (char)('a' + (int)weir_rng_below(rng, letters));
    c->several |= c->machines[r] != c->machines[0];
  }
}

static inline size_t course_draw_size(weir_rng *rng, bool large) {
  const uint64_t most[] = {1, 2, 10, 100, 700, large ? 5500 : 900};
  return weir_rng_below(rng, most[weir_rng_below(rng, sizeof most / sizeof *most)]);
}

/* Vectors, and matrices that are more or less square. */
static inline size_t course_draw_rows(weir_rng *rng, size_t n) {
  size_t rows = 1;
  if (course_coin(rng)) return rows;
  for (size_t r = 2; r * r <= n; r++)
    if (n % r == 0 && course_coin(rng)) rows = r;
  return rows;
}

static inline void course_draw_tensors(random_course *c, weir_rng *rng) {
  const bool many = course_one_in(rng, 3), large = !many && course_one_in(rng, 8);
  const bool halves = course_coin(rng);
  c->tensors = 1 + weir_rng_below(rng, many ? COURSE_TENSORS : 7);
  for (size_t t = 0; t < c->tensors; t++) {
    const size_t n = many ? weir_rng_below(rng, 60) : course_draw_size(rng, large);
    c->offset[t + 1] = c->offset[t] + n;
    c->rows[t] = course_draw_rows(rng, n);
    c->types[t] = (uint8_t)(halves ? weir_rng_below(rng, 3) : WEIR_FP32);
  }
  c->n = c->offset[c->tensors];
}

static inline void course_draw_options(random_course *c, weir_rng *rng) {
  c->full = course_one_in(rng, 3) ? weir_rng_below(rng, c->tensors + 1) : 0;
  c->threads = course_one_in(rng, 3) ? 3 : 1;
  c->curve = course_coin(rng);
  c->keep_nonfinite = course_coin(rng);
  c->without_feedback = course_one_in(rng, 10);
  c->damped = course_coin(rng);
  c->momentum = course_one_in(rng, 3) && !c->without_feedback ? 0.9 : 0;
}

/* --- its plans -------------------------------------------------------------------------------- */

/* Would the engine refuse it here? */
static inline bool course_refuses(const random_course *c, const weir_plan *plan) {
  if (c->without_feedback && !weir_codec_find(plan->codec)->unbiased) return true;
  if (c->momentum > 0 && group_hands_over(plan)) return true;
  return plan->scheme == WEIR_SCHEME_HITOPK && c->ranks > 1 && c->machines[0] != '\0' &&
         !c->several;
}

static inline weir_plan course_draw_arm(const random_course *c, weir_rng *rng) {
  static const double ratios[] = {0.001, 0.01, 0.1, 0.3, 0.55, 1};
  for (;;) {
    const size_t arm = weir_rng_below(rng, GROUP_ARMS);
    const weir_plan plan =
        group_plan(arm, ratios[weir_rng_below(rng, sizeof ratios / sizeof *ratios)], 0);
    if (!course_refuses(c, &plan)) return plan;
  }
}

/* From one bucket for all tensors to one a tensor. */
static inline void course_draw_table(const random_course *c, script_step *s, uint64_t id,
                                     weir_rng *rng) {
  const uint64_t longest = 1 + weir_rng_below(rng, c->tensors);
  size_t count = 0;
  for (size_t t = 0; t < c->tensors;) {
    const weir_plan plan = course_draw_arm(c, rng);
    t += 1 + weir_rng_below(rng, longest);
    if (t > c->tensors) t = c->tensors;
    script_add_bucket(s, &count, (uint32_t)t, (uint32_t)weir_rng_below(rng, WEIR_PLACE_COUNT),
                      &plan);
  }
  script_close(s, count, id);
}

static inline uint32_t course_draw_action(weir_rng *rng) {
  static const uint32_t actions[] = {WEIR_ACTION_KEEP,   WEIR_ACTION_KEEP,   WEIR_ACTION_SWITCH,
                                     WEIR_ACTION_SWITCH, WEIR_ACTION_SWITCH, WEIR_ACTION_TRIAL,
                                     WEIR_ACTION_TRIAL,  WEIR_ACTION_FOLLOW};
  return actions[weir_rng_below(rng, sizeof actions / sizeof *actions)];
}

/* How it comes about, and what is then in force; outside of a trial nothing follows one. */
static inline void course_draw_plan(random_course *c, int step, weir_rng *rng) {
  script_step *s = &c->steps[step];
  const bool tried = step > 0 && c->trial[step - 1];
  s->action = step == 0 ? WEIR_ACTION_SWITCH : course_draw_action(rng);
  const bool stays = s->action == WEIR_ACTION_KEEP || (s->action == WEIR_ACTION_FOLLOW && !tried);
  c->trial[step] = s->action == WEIR_ACTION_TRIAL || (tried && s->action != WEIR_ACTION_SWITCH);
  if (stays) {
    s->plan = s[-1].plan;
    memcpy(s->table, s[-1].table, sizeof s->table);
  } else if (!course_one_in(rng, 4)) {
    course_draw_table(c, s, (uint64_t)step, rng);
  } else {
    s->plan = course_draw_arm(c, rng);
    s->plan.id = (uint64_t)step;
  }
}

static inline void course_draw_step(random_course *c, int step, weir_rng *rng) {
  static const float poisons[] = {NAN, INFINITY, 3e38F};
  script_step *s = &c->steps[step];
  course_draw_plan(c, step, rng);
  c->number[step] = step;
  c->values[step] = (course_values)weir_rng_below(rng, COURSE_VALUES);
  s->shuffled = course_coin(rng);
  s->poisoned = course_one_in(rng, 8) ? (int)weir_rng_below(rng, (uint64_t)c->ranks) : -1;
  c->poison[step] = poisons[weir_rng_below(rng, 3)];
}

static inline void course_draw(random_course *c, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  *c = (random_course){.seed = seed, .count = COURSE_STEPS};
  course_draw_group(c, &rng);
  course_draw_tensors(c, &rng);
  course_draw_options(c, &rng);
  for (int s = 0; s < COURSE_STEPS; s++) course_draw_step(c, s, &rng);
}

/* The same course, had nobody tried anything.  What ends a trial is a switch. */
static inline void course_leave_trials_out(random_course *c) {
  int count = 0;
  for (int s = 0; s < c->count; s++) {
    if (c->trial[s]) continue;
    c->number[count] = c->number[s];
    c->steps[count] = c->steps[s];
    c->trial[count] = false;
    c->values[count] = c->values[s];
    c->poison[count++] = c->poison[s];
  }
  c->count = count;
}

/* --- its gradients ---------------------------------------------------------------------------- */

static inline float course_value(weir_rng *rng, course_values values) {
  const uint64_t bits = weir_rng_next(rng);
  const float x = (float)((int32_t)(bits >> 32)) / 2147483648.0F; /* in [-1, 1) */
  switch (values) {
    case COURSE_SCALES: return x * x * x * ((bits & 12) == 0 ? 100.0F : 1.0F);
    case COURSE_FEW: return (bits & 31) == 0 ? x : 0;
    case COURSE_ZERO: return 0;
    case COURSE_TIES: return (float)((int)(x * 4)) / 4;
    case COURSE_TINY: return x * 1e-38F;
    case COURSE_OUTLIERS: return x * ((bits & 63) == 0 ? 3e4F : 1.0F);
    case COURSE_SMALL: return x * 1e-6F;
    default: return x;
  }
}

static inline uint64_t course_seed(const random_course *c, int step, int rank) {
  return (c->seed * COURSE_STEPS + (uint64_t)c->number[step]) * GROUP_MAX + (uint64_t)rank;
}

/* Of a rank in a step, as floats that its type may not have yet. */
static inline void course_gradient(const random_course *c, int step, int rank, float *g) {
  weir_rng rng = weir_rng_of(course_seed(c, step, rank));
  for (size_t i = 0; i < c->n; i++) g[i] = course_value(&rng, c->values[step]);
  for (int k = 0; k < 3 && c->n > 0 && rank == c->steps[step].poisoned; k++)
    g[weir_rng_below(&rng, c->n)] = c->poison[step];
}

/* The order in which a rank hands its tensors in. */
static inline void course_order(const random_course *c, int step, int rank, uint32_t *order) {
  weir_rng rng = weir_rng_of(~course_seed(c, step, rank));
  for (uint32_t t = 0; t < c->tensors; t++) order[t] = t;
  for (size_t t = c->tensors; c->steps[step].shuffled && t > 1; t--) {
    const size_t j = weir_rng_below(&rng, t);
    const uint32_t held = order[t - 1];
    order[t - 1] = order[j];
    order[j] = held;
  }
}

/* --- in words --------------------------------------------------------------------------------- */

static inline void course_print_step(const random_course *c, int step) {
  static const char *const actions[] = {[WEIR_ACTION_KEEP] = "keep",
                                        [WEIR_ACTION_SWITCH] = "switch",
                                        [WEIR_ACTION_TRIAL] = "trial",
                                        [WEIR_ACTION_FOLLOW] = "follow"};
  const script_step *s = &c->steps[step];
  char text[WEIR_PLAN_TEXT_MAX];
  fprintf(stderr, "  %2d %-6s values %d", step, actions[s->action], (int)c->values[step]);
  if (s->poisoned >= 0) fprintf(stderr, ", %g on rank %d", (double)c->poison[step], s->poisoned);
  if (s->plan.buckets == 0) {
    weir_plan_format(&s->plan, text);
    fprintf(stderr, ", %s", text);
  }
  for (uint32_t k = 0; k < s->plan.buckets; k++) {
    weir_plan plan = {0};
    weir_plan_of_bucket(&s->table[k], &plan);
    weir_plan_format(&plan, text);
    fprintf(stderr, "%s %s to tensor %u%s", k == 0 ? "," : ";", text, s->table[k].end,
            s->table[k].place == WEIR_PLACE_THREAD ? " on a thread" : "");
  }
  fprintf(stderr, "\n");
}

static inline void course_print(const random_course *c) {
  static const char *const types[] = {"fp32", "fp16", "bf16"};
  fprintf(stderr, "course %llu: %d ranks, machines \"%s\", momentum %g, %u threads%s%s%s%s\n",
          (unsigned long long)c->seed, c->ranks, c->machines, c->momentum, c->threads,
          c->curve ? ", curve" : "", c->keep_nonfinite ? ", keeps NaN" : "",
          c->without_feedback ? ", without feedback" : "", c->damped ? ", damped" : "");
  for (size_t t = 0; t < c->tensors; t++)
    fprintf(stderr, "  tensor %zu: %zu elements, %zu rows, %s%s\n", t,
            c->offset[t + 1] - c->offset[t], c->rows[t], types[c->types[t]],
            t >= c->tensors - c->full ? ", in full" : "");
  for (int s = 0; s < c->count; s++) course_print_step(c, s);
}

#endif

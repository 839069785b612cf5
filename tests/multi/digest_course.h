/* What the ranks of a row of digests do: the tensors, and the plans from step to step. */
#ifndef WEIR_TESTS_DIGEST_COURSE_H
#define WEIR_TESTS_DIGEST_COURSE_H

#include "../planned.h"
#include "base/base.h"
#include "base/schemes.h"
#include "digest_table.h"
#include "group.h"
#include "kernels/codec.h"
#include "script.h"

enum { TENSORS = 11, STEPS = 20, PLANS_MAX = 512 };
#define MOMENTUM 0.9

typedef enum kind {
  PLAIN,
  MOMENTUM_CORRECTED,
  LARGE,
  GROUPS,
  BUCKETS_MOMENTUM,
  WINDOWS,
  KINDS
} kind;
static const char *const kind_name[KINDS] = {"plain",  "momentum",        "large",
                                             "groups", "groups-momentum", "windows"};

/* Tensors as they are registered: matrices of rows x columns, or vectors (rows 0). */
typedef struct shape {
  size_t rows, columns;
} shape;
/* Some are empty, one has one element; the sum is a multiple of no vector's width. */
static const shape small[TENSORS] = {{0, 0},   {0, 1},   {0, 129}, {24, 36}, {0, 0}, {0, 517},
                                     {40, 25}, {0, 333}, {0, 3},   {17, 13}, {0, 5}};
static const shape large[TENSORS] = {{0, 0},     {0, 1},   {0, 20011}, {24, 36}, {0, 0}, {0, 517},
                                     {250, 200}, {0, 333}, {0, 3},     {17, 13}, {0, 5}};

typedef struct course {
  kind kind;
  const char *machines; /* a letter a rank */
  weir_plan plan;
  char key[DIGEST_KEY];
  int steps;
  int first, last; /* seeds, from 0 */
  bool print;      /* the digests of every step */
  script_step script[STEPS];
  size_t offset[TENSORS + 1], rows[TENSORS];
  int refused[GROUP_MAX];
  uint64_t averages[GROUP_MAX][DIGEST_SEEDS], residuals[GROUP_MAX][DIGEST_SEEDS];
} course;

/* --- plans ------------------------------------------------------------------------------------ */

/* Whatever the codec is, one of these ratios is legal: most of them for selections, 1 for dense
 * codecs, bits an element / 32 for encoders, rank / 64 for low rank. */
static const double usual[] = {0.125, 0.0625, 0.03125, 0.5, 1, 0};
static const double fewer[] = {0.01, 0.25, 0.0625, 0.03125, 0.5, 1, 0};
static const double more[] = {0.4, 0.21875, 0.0625, 0.03125, 0.5, 1, 0};

/* The plan with the first of these ratios that it may have; false: with none. */
static inline bool with_ratio(weir_plan *plan, const double *ratio) {
  for (; *ratio > 0; ratio++) {
    plan->cr = *ratio;
    if (weir_plan_check(plan) == WEIR_OK) return true;
  }
  return false;
}

/* Of all-gathers one stands for all: what is added up, and when, does not depend on them. */
static inline bool tells_sums_apart(const weir_plan *plan) {
  return (plan->algorithm == WEIR_ALGORITHM_ANY) ==
         (plan->scheme == WEIR_SCHEME_GATHER || plan->scheme == WEIR_SCHEME_HITOPK);
}

static inline size_t legal_plans(weir_plan *plan) {
  size_t count = 0;
  weir_plan next = {0};
  do {
    if (!tells_sums_apart(&next)) continue;
    for (next.codec = 0; next.codec < WEIR_CODEC_COUNT; next.codec++)
      for (next.wire = 0; next.wire < WEIR_WIRE_COUNT && count < PLANS_MAX; next.wire++) {
        plan[count] = next;
        if (weir_codec_find(next.codec)->low_rank && next.scheme == WEIR_SCHEME_DENSE)
          plan[count].scheme = WEIR_SCHEME_LOW_RANK;
        count += with_ratio(&plan[count], usual);
      }
  } while (weir_collective_next(&next));
  return count;
}

/* --- what is run from step to step ------------------------------------------------------------ */

static inline void at(course *c, int step, uint32_t action, const weir_plan *plan) {
  c->script[step].action = action;
  c->script[step].plan = *plan;
  c->script[step].plan.id = (uint64_t)step;
}

/* The same plan throughout. */
static inline void write_steady(course *c) {
  for (int step = 0; step < STEPS; step++) {
    c->script[step].action = WEIR_ACTION_KEEP;
    c->script[step].plan = c->plan;
  }
}

/* The plan with three ratios, two other plans in between, and a trial in the middle. */
static inline void write_plans(course *c) {
  weir_plan sparse = c->plan, dense = c->plan;
  (void)with_ratio(&sparse, fewer);
  (void)with_ratio(&dense, more);
  const weir_plan topk = planned("topk:0.05:ag"), bf16 = planned("bf16:1:dense-tree");
  const struct {
    int until;
    uint32_t action;
    const weir_plan *plan;
  } part[] = {{5, WEIR_ACTION_SWITCH, &c->plan},    {6, WEIR_ACTION_SWITCH, &topk},
              {8, WEIR_ACTION_SWITCH, &sparse},     {10, WEIR_ACTION_TRIAL, &c->plan},
              {12, WEIR_ACTION_SWITCH, &sparse},    {13, WEIR_ACTION_SWITCH, &bf16},
              {16, WEIR_ACTION_SWITCH, &c->plan},   {18, WEIR_ACTION_SWITCH, &dense},
              {STEPS, WEIR_ACTION_SWITCH, &c->plan}};
  for (int step = 0, p = 0; step < STEPS; step++) {
    const bool first = step == (p > 0 ? part[p - 1].until : 0);
    at(c, step, first ? part[p].action : WEIR_ACTION_KEEP, part[p].plan);
    if (!first) c->script[step].plan.id = c->script[step - 1].plan.id;
    p += step + 1 == part[p].until;
  }
}

/* Plans that run in any group of ranks, for tables of groups. */
static const char *const group_plans[] = {"none:1:dense-ring",
                                          "bf16:1:dense-halving",
                                          "topk:0.1:ag",
                                          "lwtopk:0.05:ag:auto-fp32",
                                          "mstopk:0.02:ag:auto-fp16",
                                          "dgc:0.1:ag:auto-bf16",
                                          "sidco:0.05:ag:auto-fp32",
                                          "star:0.1:art-ring",
                                          "var:0.2:art-tree:auto-bf16",
                                          "randomk:0.1:art-double-tree",
                                          "qsgd:0.125:ag",
                                          "qsgd-nearest:0.25:sra",
                                          "qsgd-l2:0.125:compressed-ring",
                                          "terngrad:0.0625:compressed-tree",
                                          "onebit:0.03125:ag",
                                          "efsignsgd:0.03125:sra",
                                          "fp16:0.5:ag",
                                          "powersgd:2:dense-tree",
                                          "star:0.3:art-hier-ring:auto-fp32",
                                          "qsgd:0.125:hier-sra"};

/* Another table every other step; a trial in the middle. */
static inline void write_tables(course *c) {
  weir_rng rng = weir_rng_of(29 + (uint64_t)c->kind);
  for (int step = 0; step < STEPS; step++) {
    script_step *s = &c->script[step];
    if (step % 2 == 1) {
      *s = s[-1];
      s->action = WEIR_ACTION_KEEP;
      continue;
    }
    size_t count = 0;
    for (uint32_t t = 1; t <= TENSORS; t++) {
      if (t < TENSORS && weir_rng_below(&rng, 3) != 0) continue;
      const uint64_t drawn = weir_rng_below(&rng, sizeof group_plans / sizeof *group_plans);
      const weir_plan plan = planned(group_plans[drawn]);
      script_add_bucket(s, &count, t, (uint32_t)weir_rng_below(&rng, WEIR_PLACE_COUNT), &plan);
    }
    script_close(s, count, (uint64_t)step);
    s->action = step == 10 ? WEIR_ACTION_TRIAL : WEIR_ACTION_SWITCH;
  }
}

static inline void lay_out(course *c) {
  const shape *tensor = c->kind == LARGE ? large : small;
  for (size_t t = 0; t < TENSORS; t++) {
    const size_t n = tensor[t].rows > 0 ? tensor[t].rows * tensor[t].columns : tensor[t].columns;
    c->offset[t + 1] = c->offset[t] + n;
    c->rows[t] = tensor[t].rows;
  }
}

#endif

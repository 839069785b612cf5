/* NaN or Inf on one rank: every rank drops the step, nothing is poisoned, training goes on. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "engine/state.h"
#include "group.h"

#define N 257

typedef struct misfortune {
  size_t arm;
  int victim; /* rank; -1: all, by overflow of the sum */
  size_t where;
  float value;
  int step;
  bool survived; /* the step counts all the same */
  bool apart;    /* every rank has it one element behind the rank before */
} misfortune;

static void fill(float *g, int rank, int step) {
  weir_rng rng = weir_rng_of((uint64_t)(rank * 100 + step));
  for (size_t i = 0; i < N; i++) g[i] = (float)weir_rng_normal(&rng);
}

static void expect_lost(member *m, weir_engine *engine, weir_status status, const float *g,
                        uint64_t digest, const misfortune *f) {
  char name[16];
  snprintf(name, sizeof name, "rank %d", f->victim);
  if (status != WEIR_E_NONFINITE)
    group_fail(m->group, "rank %d: status %s", m->rank, weir_status_name(status));
  else if (f->victim >= 0 && strstr(weir_last_error(), name) == NULL)
    group_fail(m->group, "rank %d is not told who: %s", m->rank, weir_last_error());
  for (size_t i = 0; i < N; i++)
    if (g[i] != 0) group_fail(m->group, "rank %d: element %zu is not zero", m->rank, i);
  if (weir_engine_residual_digest(engine) != digest)
    group_fail(m->group, "rank %d: the residual changed", m->rank);
}

/* Each rank's huge value is beside others that are nothing next to it; 16 bits round it. */
static void expect_each(member *m, const float *g, const misfortune *f) {
  const float mean = f->value / (float)m->size;
  for (int r = 0; r < m->size; r++)
    if (!(fabsf(g[f->where + (size_t)r] - mean) <= 0.01f * mean))
      group_fail(m->group, "rank %d: %g instead of %g of rank %d", m->rank,
                 (double)g[f->where + (size_t)r], (double)mean, r);
}

/* What a rank's hooks look at. */
typedef struct witness {
  member *m;
  weir_engine *engine;
  int step;
} witness;

static bool sits_out(const witness *w, int rank) {
  const misfortune *f = w->m->group->shared;
  return w->step == f->step && rank == f->victim;
}

/* Just before the exchange: a rank that sits it out takes part with zeros, and with
 * nothing else. */
static void look_at_fed(void *user, weir_header *header) {
  const witness *w = user;
  (void)header;
  if (!sits_out(w, w->m->rank)) return;
  for (size_t i = 0; i < N; i++)
    if (w->engine->set.bucket[0].fed[i] != 0) {
      group_fail(w->m->group, "rank %d takes element %zu into the exchange", w->m->rank, i);
      return;
    }
}

static void read_headers(void *user, const weir_header *headers, int ranks,
                         const weir_step_record *record) {
  const witness *w = user;
  (void)record;
  for (int r = 0; r < ranks; r++)
    if (sits_out(w, r) ? headers[r].sum_square != 0 || !(headers[r].flags & WEIR_HEADER_NONFINITE)
                       : !(headers[r].sum_square > 0) || (headers[r].flags & WEIR_HEADER_NONFINITE))
      group_fail(w->m->group, "step %d: rank %d headers a square of %g, flags %u", w->step, r,
                 headers[r].sum_square, (unsigned)headers[r].flags);
}

static void suffer(member *m) {
  const misfortune *f = m->group->shared;
  witness w = {.m = m};
  const size_t offset[] = {0, 100, N}, rows[] = {10, 1};
  const weir_plan plan = group_plan(f->arm, 0.1, 0);
  const weir_engine_config config = {
      .comm = m->comm,
      .layout = {2, offset},
      .rows = rows,
      .first_plan = plan,
      .hooks = {.user = &w, .local = look_at_fed, .observe = read_headers}};
  weir_engine *engine;
  float g[N];
  if (weir_engine_create(&engine, &config) != WEIR_OK) abort();
  w.engine = engine;
  for (int step = 0; step < 6; step++) {
    w.step = step;
    fill(g, m->rank, step);
    if (step == f->step && (f->victim < 0 || f->victim == m->rank))
      g[f->where + (size_t)(f->apart ? m->rank : 0)] = f->value;
    const uint64_t digest = weir_engine_residual_digest(engine);
    weir_step_info info;
    weir_status status = weir_engine_step_begin(engine, NULL);
    if (status == WEIR_OK) status = weir_engine_submit(engine, 0, g);
    if (status == WEIR_OK) status = weir_engine_submit(engine, 1, g + 100);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, &info);
    if (step == f->step && !f->survived)
      expect_lost(m, engine, status, g, digest, f);
    else if (status != WEIR_OK)
      group_fail(m->group, "rank %d, step %d: %s", m->rank, step, weir_last_error());
    else if (info.step != (uint64_t)(step > f->step && !f->survived ? step - 1 : step))
      group_fail(m->group, "a lost step was counted: %d tells %d", step, (int)info.step);
    if (step == f->step && f->apart) expect_each(m, g, f);
    for (size_t i = 0; i < N; i++)
      if (!isfinite(g[i]) || !isfinite(weir_engine_residual(engine)[i]))
        group_fail(m->group, "rank %d, step %d: element %zu is poisoned", m->rank, step, i);
  }
  weir_engine_free(engine);
}

Test(nonfinite, one_rank_with_every_plan) {
  static const float values[] = {NAN, INFINITY, -INFINITY};
  weir_rng rng = weir_rng_of(5);
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) {
    const int ranks = 1 + (int)weir_rng_below(&rng, 5);
    misfortune f = {arm,
                    (int)weir_rng_below(&rng, (uint64_t)ranks),
                    (size_t)weir_rng_below(&rng, N),
                    values[arm % 3],
                    (int)weir_rng_below(&rng, 5),
                    false,
                    false};
    group_well(ranks, suffer, &f, group_arms[arm]);
  }
}

static bool holds_back(const weir_plan *plan) {
  return group_encodes(plan) || weir_codec_find(plan->codec)->low_rank ||
         plan->wire == WEIR_WIRE_AUTO_FP16;
}

/* 3e38 is finite; the sum of three is not, and all three are the largest element of their rank. */
Test(nonfinite, sum_that_overflows) {
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) {
    misfortune f = {arm, -1, 77, 3e38f, 2, false, false};
    const weir_plan plan = group_plan(arm, 0.1, 0);
    /* randomk may not draw it. */
    if (holds_back(&plan) || plan.codec == WEIR_CODEC_RANDOMK) continue;
    group_well(3, suffer, &f, group_arms[arm]);
  }
}

/* Nor do they overflow where they lie at different elements, though all are their rank's largest:
 * what is gathered goes through, whole. */
Test(nonfinite, huge_values_that_do_not_meet) {
  int arms = 0;
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) {
    const misfortune f = {.arm = arm,
                          .victim = -1,
                          .where = 77,
                          .value = 3e38f,
                          .step = 2,
                          .survived = true,
                          .apart = true};
    const weir_plan plan = group_plan(arm, 0.1, 0);
    if (holds_back(&plan) || plan.scheme != WEIR_SCHEME_GATHER) continue;
    arms++;
    for (int ranks = 2; ranks <= 3; ranks++) {
      group g;
      group_run(&g, ranks, suffer, (void *)&f);
      cr_assert(!g.failed, "%s, %d ranks: %s", group_arms[arm], ranks, g.failure);
    }
  }
  cr_assert_geq(arms, 8);
}

/* An encoder does not send such a value whole: it saturates or spreads it, and the step counts; so
 * it does where kept values travel as fp16.  Low rank leaves the matrix where it is. */
Test(nonfinite, encoders_and_low_rank_hold_a_huge_value_back) {
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) {
    misfortune f = {arm, -1, 77, 3e38f, 2, true, false};
    const weir_plan plan = group_plan(arm, 0.1, 0);
    if (!holds_back(&plan)) continue;
    group_well(3, suffer, &f, group_arms[arm]);
  }
}

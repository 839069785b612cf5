/* Plans of several buckets when something is wrong: a rank with another table, a table that cannot
 * be run, a gradient that is not finite, a rank that stays away. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "group.h"

#define TENSORS 6
#define N 600
static const size_t offset[TENSORS + 1] = {0, 100, 200, 300, 400, 500, N};

typedef struct deed {
  int victim;
  size_t bad_element;
  weir_plan_bucket bad; /* what the victim's second group is instead */
  bool no_table, bad_table;
} deed;

static void make_table(weir_plan_bucket table[3], const char *plan) {
  weir_plan p;
  if (weir_plan_parse(plan, &p) != WEIR_OK) abort();
  memset(table, 0, 3 * sizeof *table);
  for (uint32_t k = 0; k < 3; k++) {
    table[k].end = 2 * (k + 1);
    table[k].place = k == 1 ? WEIR_PLACE_THREAD : WEIR_PLACE_CALLER;
    weir_bucket_set_plan(&table[k], &p);
  }
}

static weir_plan plan_of(const weir_plan_bucket *table, size_t count, uint64_t id) {
  weir_plan plan = {.id = id};
  weir_plan_of_bucket(&table[0], &plan);
  plan.buckets = (uint32_t)count;
  plan.layout = weir_buckets_name(table, count);
  return plan;
}

static weir_engine *create(member *m, weir_comm *comm, const weir_plan *plan,
                           const weir_plan_bucket *table, weir_engine_hooks hooks) {
  const weir_engine_config config = {.comm = comm,
                                     .layout = {TENSORS, offset},
                                     .first_plan = *plan,
                                     .first_buckets = table,
                                     .hooks = hooks};
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  return engine;
}

static void fill(float *g, int rank, int step) {
  weir_rng rng = weir_rng_of((uint64_t)(rank * 100 + step));
  for (size_t i = 0; i < N; i++) g[i] = (float)weir_rng_normal(&rng);
}

static weir_status step(weir_engine *engine, float *g) {
  weir_status status = weir_engine_step_begin(engine, NULL);
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++)
    status = weir_engine_submit(engine, t, g + offset[t]);
  return status == WEIR_OK ? weir_engine_step_end(engine, NULL) : status;
}

/* --- one group is no group ------------------------------------------------------------------ */

static void compare_with_whole(member *m) {
  const size_t arm = *(const size_t *)m->group->shared;
  const weir_plan plain = group_plan(arm, 0.1, 1);
  weir_plan_bucket table = {.end = TENSORS};
  weir_bucket_set_plan(&table, &plain);
  const weir_plan grouped = plan_of(&table, 1, 1);
  weir_engine *whole = create(m, m->comm, &plain, NULL, (weir_engine_hooks){0});
  weir_engine *one = create(m, m->comm, &grouped, &table, (weir_engine_hooks){0});
  float a[N], b[N];
  for (int s = 0; s < 5 && whole != NULL && one != NULL; s++) {
    fill(a, m->rank, s);
    memcpy(b, a, sizeof b);
    if (step(whole, a) != WEIR_OK || step(one, b) != WEIR_OK)
      group_fail(m->group, "%s: %s", group_arms[arm], weir_last_error());
    if (memcmp(a, b, sizeof a) != 0 ||
        weir_engine_residual_digest(whole) != weir_engine_residual_digest(one))
      group_fail(m->group, "%s, step %d: one group is another thing than none", group_arms[arm], s);
  }
  weir_engine_free(one);
  weir_engine_free(whole);
}

Test(buckets_faults, one_group_gives_the_bits_of_none) {
  for (size_t arm = 0; arm < GROUP_ARMS; arm++) {
    group_well(3, compare_with_whole, &arm, NULL);
  }
}

/* --- another table on one rank -------------------------------------------------------------- */

static void run_stranger(member *m) {
  const deed *d = m->group->shared;
  weir_plan_bucket table[3];
  make_table(table, "topk:0.1:ag");
  if (m->rank == d->victim) table[1] = d->bad;
  const weir_plan plan = plan_of(table, 3, 1);
  weir_engine *engine = create(m, m->comm, &plan, table, (weir_engine_hooks){0});
  if (engine == NULL) return;
  float g[N];
  fill(g, m->rank, 0);
  const weir_status status = step(engine, g);
  if (status != WEIR_E_MISMATCH && status != WEIR_E_PEER)
    group_fail(m->group, "rank %d ends with %s", m->rank, weir_status_name(status));
  if (step(engine, g) != status) group_fail(m->group, "rank %d goes on after that", m->rank);
  weir_engine_free(engine);
}

Test(buckets_faults, a_rank_with_other_groups_is_found_out) {
  weir_plan_bucket table[3];
  make_table(table, "topk:0.1:ag");
  deed d = {.victim = 1, .bad = table[1]};
  for (int i = 0; i < 3; i++) {
    d.bad = table[1];
    if (i == 0) d.bad.end = 3;
    if (i == 1) d.bad.cr = 0.2;
    if (i == 2) d.bad.place = WEIR_PLACE_CALLER;
    group g;
    group_run(&g, 3, run_stranger, &d);
    cr_assert(!g.failed, "%d: %s", i, g.failure);
  }
}

/* --- a switch to a table that is not there or cannot be run ---------------------------------- */

typedef struct herald {
  const deed *deed;
  weir_plan plan;
  weir_plan_bucket table[3];
} herald;

static void propose(void *user, weir_directive *directive) {
  const herald *h = user;
  directive->action = WEIR_ACTION_SWITCH;
  directive->plan = h->plan;
}

static weir_status give(void *user, uint32_t layout, weir_plan_bucket *table, size_t capacity,
                        size_t *count) {
  const herald *h = user;
  if (h->deed->no_table)
    return weir_fail(WEIR_E_INTERNAL, "there is no table %08x of at most %zu", layout, capacity);
  memcpy(table, h->table, sizeof h->table);
  if (h->deed->bad_table) table[2].end = TENSORS - 1;
  *count = 3;
  return WEIR_OK;
}

static void run_switch(member *m) {
  herald h = {.deed = m->group->shared};
  make_table(h.table, "topk:0.1:ag");
  h.plan = plan_of(h.table, 3, 2);
  const weir_plan first = group_plan(0, 1, 1);
  weir_engine *engine =
      create(m, m->comm, &first, NULL,
             (weir_engine_hooks){.user = &h, .propose = propose, .buckets = give});
  if (engine == NULL) return;
  float g[N];
  fill(g, m->rank, 0);
  /* Rank 0 gives up at its next step's begin, when others may still be at the end of this one. */
  weir_status status = step(engine, g);
  if (status == WEIR_OK) status = step(engine, g);
  const weir_status own = h.deed->no_table ? WEIR_E_INTERNAL : WEIR_E_PROTOCOL;
  const weir_status expected = m->rank == 0 ? own : WEIR_E_PEER;
  if (status != expected)
    group_fail(m->group, "rank %d ends with %s: %s", m->rank, weir_status_name(status),
               weir_last_error());
  if (step(engine, g) != status) group_fail(m->group, "rank %d goes on after that", m->rank);
  weir_engine_free(engine);
}

Test(buckets_faults, a_table_that_is_missing_or_wrong_ends_the_group) {
  for (int i = 0; i < 2; i++) {
    deed d = {.no_table = i == 0, .bad_table = i == 1};
    group g;
    group_run(&g, 3, run_switch, &d);
    cr_assert(!g.failed, "%d: %s", i, g.failure);
  }
}

/* --- not finite ----------------------------------------------------------------------------- */

static void run_nonfinite(member *m) {
  const deed *d = m->group->shared;
  weir_plan_bucket table[3];
  make_table(table, "topk:0.1:ag");
  const weir_plan plan = plan_of(table, 3, 1);
  weir_engine *engine = create(m, m->comm, &plan, table, (weir_engine_hooks){0});
  if (engine == NULL) return;
  float g[N];
  uint64_t digest = 0;
  for (int s = 0; s < 4; s++) {
    fill(g, m->rank, s);
    if (s == 2 && m->rank == d->victim) g[d->bad_element] = NAN;
    if (s == 2 && d->victim < 0) g[d->bad_element] = 3e38f; /* their sum is infinite */
    const weir_status status = step(engine, g);
    if (status != (s == 2 ? WEIR_E_NONFINITE : WEIR_OK))
      group_fail(m->group, "step %d: %s", s, weir_status_name(status));
    if (s == 2 && weir_engine_residual_digest(engine) != digest)
      group_fail(m->group, "rank %d: the residual changed", m->rank);
    for (size_t i = 0; i < N && s == 2; i++)
      if (g[i] != 0) group_fail(m->group, "rank %d: element %zu is not zero", m->rank, i);
    digest = weir_engine_residual_digest(engine);
  }
  weir_engine_free(engine);
}

Test(buckets_faults, what_is_not_finite_in_any_group_drops_the_step) {
  for (size_t k = 0; k < 3; k++)
    for (int victim = -1; victim < 2; victim++) {
      deed d = {.victim = victim, .bad_element = 200 * k + 77};
      group g;
      group_run(&g, 3, run_nonfinite, &d);
      cr_assert(!g.failed, "group %zu, rank %d: %s", k, victim, g.failure);
    }
}

/* --- a rank that stays away ------------------------------------------------------------------ */

static void run_absent(member *m) {
  const deed *d = m->group->shared;
  weir_plan_bucket table[3];
  make_table(table, "topk:0.1:ag");
  const weir_plan plan = plan_of(table, 3, 1);
  weir_comm *comm = NULL;
  if (weir_comm_create(&comm, m->transport, 0.5) != WEIR_OK) abort();
  weir_engine *engine = create(m, comm, &plan, table, (weir_engine_hooks){0});
  float g[N];
  for (int s = 0; s < 2 && engine != NULL; s++) {
    fill(g, m->rank, s);
    const double begin = weir_now_s();
    if (s == 1 && m->rank == d->victim) { /* one group, and no more */
      (void)weir_engine_step_begin(engine, NULL);
      (void)weir_engine_submit(engine, 0, g);
      (void)weir_engine_submit(engine, 1, g + 100);
      break;
    }
    const weir_status status = step(engine, g);
    const bool lost = status == WEIR_E_TIMEOUT || status == WEIR_E_PEER;
    if (s == 0 ? status != WEIR_OK : !lost)
      group_fail(m->group, "rank %d, step %d: %s", m->rank, s, weir_status_name(status));
    /* Two buckets are waited for at most: the first one goes through. */
    if (s == 1 && weir_now_s() - begin > 20) group_fail(m->group, "rank %d hung", m->rank);
  }
  group_barrier(m); /* the absent rank is silent, not gone */
  weir_engine_free(engine);
  weir_comm_free(comm);
}

Test(buckets_faults, a_rank_that_stops_in_mid_step_is_reported_in_time) {
  for (int victim = 0; victim < 3; victim++) {
    deed d = {.victim = victim};
    group g;
    group_run(&g, 3, run_absent, &d);
    cr_assert(!g.failed, "rank %d: %s", victim, g.failure);
  }
}

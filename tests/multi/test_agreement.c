/* All ranks run the same plan at the same step, whatever each of them measures; where they cannot,
 * every one of them says so. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "group.h"

#define N 300
#define STEPS 40

typedef struct log_of_plans {
  uint64_t digest[GROUP_MAX][STEPS];
  double latency[GROUP_MAX][STEPS];
  double bandwidth[GROUP_MAX][STEPS];
} log_of_plans;

typedef struct voice {
  int rank, size, step;
  weir_rng rng;
  double heard[GROUP_MAX]; /* latencies in the headers of the last exchange */
  uint64_t id;
  weir_directive bad; /* what a broken rank 0 sends; action 0: it is not broken */
} voice;

/* Each rank measures something else, and some do not know at all. */
static void local(void *user, weir_header *header) {
  voice *v = user;
  header->latency_s = v->rank == 2 ? 0 : 1e-3 * (1 + v->rank) + 1e-6 * v->step;
  header->bandwidth = 1e6 * (10 - v->rank);
}

static void propose(void *user, weir_directive *directive) {
  voice *v = user;
  if (v->bad.action != 0) {
    *directive = v->bad;
    return;
  }
  if (weir_rng_below(&v->rng, 2) == 0) return;
  directive->action = weir_rng_below(&v->rng, 3) == 0 ? WEIR_ACTION_TRIAL : WEIR_ACTION_SWITCH;
  directive->plan = group_plan((size_t)weir_rng_below(&v->rng, GROUP_ARMS), 0.05, ++v->id);
}

static void observe(void *user, const weir_header *headers, int ranks,
                    const weir_step_record *record) {
  voice *v = user;
  (void)record;
  for (int r = 0; r < ranks; r++) v->heard[r] = headers[r].latency_s;
}

static weir_engine *create(member *m, voice *v, weir_plan first) {
  static const size_t offset[] = {0, 1, N};
  const weir_engine_config config = {
      .comm = m->comm,
      .layout = {2, offset},
      .first_plan = first,
      .hooks = {.user = v, .local = local, .propose = propose, .observe = observe}};
  v->rank = m->rank;
  v->size = m->size;
  v->rng = weir_rng_of(7);
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK)
    group_fail(m->group, "%s", weir_last_error());
  return engine;
}

static weir_status step(weir_engine *engine, float *g, weir_step_info *info) {
  for (size_t i = 0; i < N; i++) g[i] = (float)((i * 7919) % 101) - 50;
  weir_status status = weir_engine_step_begin(engine, NULL);
  if (status == WEIR_OK) status = weir_engine_submit(engine, 0, g);
  if (status == WEIR_OK) status = weir_engine_submit(engine, 1, g + 1);
  if (status == WEIR_OK) status = weir_engine_step_end(engine, info);
  return status;
}

static void agree(member *m) {
  log_of_plans *log = m->group->shared;
  voice v = {0};
  weir_engine *engine = create(m, &v, group_plan(6, 0.1, 0));
  if (engine == NULL) return;
  float g[N];
  for (v.step = 0; v.step < STEPS; v.step++) {
    weir_step_info info;
    if (step(engine, g, &info) != WEIR_OK) {
      group_fail(m->group, "rank %d, step %d: %s", m->rank, v.step, weir_last_error());
      break;
    }
    log->digest[m->rank][v.step] = weir_plan_digest(&info.plan);
    log->latency[m->rank][v.step] = info.latency_s;
    log->bandwidth[m->rank][v.step] = info.bandwidth_bytes_s;
    for (int r = 0; r < m->size; r++) {
      const double said = r == 2 ? 0 : 1e-3 * (1 + r) + 1e-6 * v.step;
      if (v.heard[r] != said) group_fail(m->group, "rank %d misheard rank %d", m->rank, r);
    }
  }
  weir_engine_free(engine);
}

Test(agreement, same_plan_at_the_same_step) {
  static log_of_plans log;
  group_well(5, agree, &log, NULL);
  int changes = 0;
  for (int s = 0; s < STEPS; s++) {
    for (int r = 1; r < 5; r++) cr_assert_eq(log.digest[r][s], log.digest[0][s]);
    changes += s > 0 && log.digest[0][s] != log.digest[0][s - 1];
    for (int r = 0; r < 5; r++) {
      /* Ranks 0, 1, 3, 4 know: 1, 2, 4, 5 ms; the median is the mean of 2 and 4. */
      cr_assert_float_eq(log.latency[r][s], 3e-3 + 1e-6 * s, 1e-12);
      cr_assert_float_eq(log.bandwidth[r][s], 8e6, 1e-3);
    }
  }
  cr_assert_geq(changes, 10);
}

/* One rank starts under another plan: an error on every rank, before any sum is used, and it
 * stays. */
static void differ(member *m) {
  voice v = {0};
  const int stranger = *(int *)m->group->shared;
  weir_engine *engine = create(m, &v, group_plan(6, m->rank == stranger ? 0.2 : 0.1, 0));
  if (engine == NULL) return;
  float g[N];
  const weir_status status = step(engine, g, NULL);
  if (status != WEIR_E_MISMATCH && status != WEIR_E_PEER)
    group_fail(m->group, "rank %d: %s", m->rank, weir_status_name(status));
  for (size_t i = 0; i < N; i++)
    if (g[i] != (float)((i * 7919) % 101) - 50)
      group_fail(m->group, "rank %d used a sum over different plans", m->rank);
  char message[512];
  snprintf(message, sizeof message, "%s", weir_last_error());
  const weir_status again = weir_engine_step_begin(engine, NULL);
  if (again != status || strcmp(message, weir_last_error()) != 0)
    group_fail(m->group, "rank %d forgot why: %s, then %s", m->rank, message, weir_last_error());
  weir_engine_free(engine);
}

Test(agreement, another_plan_is_an_error) {
  for (int stranger = 0; stranger < 3; stranger++) {
    group_well(3, differ, &stranger, NULL);
  }
}

/* Rank 0 asks for what cannot be. */
static void refuse(member *m) {
  voice v = {.bad = *(weir_directive *)m->group->shared};
  weir_engine *engine = create(m, &v, group_plan(0, 1, 0));
  if (engine == NULL) return;
  float g[N];
  const weir_status status = step(engine, g, NULL);
  if (status != WEIR_E_PROTOCOL)
    group_fail(m->group, "rank %d: %s", m->rank, weir_status_name(status));
  weir_engine_free(engine);
}

Test(agreement, impossible_directives_are_refused) {
  weir_directive bad[3] = {
      {.action = 9}, {.action = WEIR_ACTION_SWITCH}, {.action = WEIR_ACTION_TRIAL}};
  bad[1].plan = group_plan(6, 0.1, 1);
  bad[1].plan.cr = 7;
  bad[2].plan = group_plan(6, 0.1, 1);
  bad[2].plan.scheme = 77;
  for (int i = 0; i < 3; i++) {
    group_well(3, refuse, &bad[i], NULL);
  }
}

/* Of ranks 0 to 3: what of their headers is believed lies within what can be. */
static void tell_absurdly(void *user, weir_header *header) {
  static const double gain[] = {NAN, -3, 7, 0.5};
  const voice *v = user;
  header->gain = gain[v->rank];
  header->bandwidth = 1e6;
  header->goodput = v->rank == 3 ? NAN : 1e9;
}

static void believe(member *m) {
  static const size_t offset[] = {0, 1, N};
  voice v = {.rank = m->rank};
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {2, offset},
                                     .first_plan = group_plan(6, 0.1, 0),
                                     .hooks = {.user = &v, .local = tell_absurdly}};
  weir_engine *engine;
  if (weir_engine_create(&engine, &config) != WEIR_OK) abort();
  float g[N];
  weir_step_info info = {0};
  if (step(engine, g, &info) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  else if (info.gain != (0 + 0 + 1 + 0.5) / 4 || info.goodput_bytes_s != 1e6)
    group_fail(m->group, "rank %d: gain %g, goodput %g", m->rank, info.gain, info.goodput_bytes_s);
  weir_engine_free(engine);
}

Test(agreement, absurd_headers_are_kept_within_bounds) { group_well(4, believe, NULL, NULL); }

/* Rank 0 asks once for a probe and once for a look: every rank does so before the following step,
 * and the plan stays. */
typedef struct prober {
  voice voice; /* first: the other hooks take it for theirs */
  int probes, probed_at, looked_at;
} prober;

static void propose_probe(void *user, weir_directive *directive) {
  const voice *v = user;
  if (v->step == 2) directive->action = WEIR_ACTION_PROBE;
  if (v->step == 4) directive->action = WEIR_ACTION_SAMPLE;
}

static weir_status count_probe(void *user, bool thorough) {
  prober *p = user;
  int *at = thorough ? &p->probed_at : &p->looked_at;
  p->probes++;
  *at = p->voice.step;
  return WEIR_OK;
}

static void probe_once(member *m) {
  static const size_t offset[] = {0, 1, N};
  prober p = {.voice = {.rank = m->rank}};
  const weir_plan plan = group_plan(6, 0.1, 5);
  const weir_engine_config config = {
      .comm = m->comm,
      .layout = {2, offset},
      .first_plan = plan,
      .hooks = {.user = &p, .propose = propose_probe, .probe = count_probe}};
  weir_engine *engine;
  if (weir_engine_create(&engine, &config) != WEIR_OK) abort();
  float g[N];
  for (; p.voice.step < 6; p.voice.step++) {
    weir_step_info info;
    if (step(engine, g, &info) != WEIR_OK)
      group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
    else if (weir_plan_digest(&info.plan) != weir_plan_digest(&plan))
      group_fail(m->group, "rank %d: a probe changed the plan", m->rank);
  }
  if (p.probes != 2 || p.probed_at != 3 || p.looked_at != 5)
    group_fail(m->group, "rank %d probed %d times, before step %d, looked before step %d", m->rank,
               p.probes, p.probed_at, p.looked_at);
  weir_engine_free(engine);
}

Test(agreement, every_rank_probes_when_asked) { group_well(3, probe_once, NULL, NULL); }

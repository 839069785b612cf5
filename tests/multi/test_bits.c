/* Policy bits while it trains: whatever widths it assigns and however they change, nothing of a
 * gradient is lost or invented, all ranks get the same bits, and what is kept in full precision
 * leaves no residual; and through the public API every tensor comes back in its own buffer. */
#include <criterion/criterion.h>
#include <math.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/base.h"
#include "controller/bits.h"
#include "controller/controller.h"
#include "group.h"
#include "session_ranks.h"

#define TENSORS 12
#define STEPS 60

typedef struct course {
  size_t n, offset[TENSORS + 1];
  const char *names[TENSORS];
  const char *policy;
  const char *machines; /* a letter a rank; NULL: each has its own */
  float *g[4], *before[4], *after[4], *update[4];
  uint64_t plan[4]; /* digest of the plan each rank ran */
  int tables;       /* how often the buckets have changed */
} course;

typedef struct voice {
  weir_controller *controller; /* rank 0's */
} voice;

static void tell_network(void *user, weir_header *header) {
  (void)user;
  header->latency_s = 1e-4;
  header->bandwidth = 1e8;
}

static void propose(void *user, weir_directive *directive) {
  weir_controller_propose(((voice *)user)->controller, directive);
}

static void observe(void *user, const weir_header *headers, int ranks,
                    const weir_step_record *record) {
  voice *v = user;
  if (v->controller != NULL) weir_controller_observe(v->controller, headers, ranks, record);
}

static void fed(void *user, size_t tensor, const float *e, size_t n) {
  voice *v = user;
  if (v->controller != NULL) weir_controller_fed(v->controller, tensor, e, n);
}

static weir_status buckets(void *user, uint32_t layout, weir_plan_bucket *table, size_t capacity,
                           size_t *count) {
  return weir_controller_buckets(((voice *)user)->controller, layout, table, capacity, count);
}

/* How large a tensor's gradient is changes every ten steps, so that other widths are right. */
static void fill(const course *c, float *g, int step, int rank) {
  weir_rng rng;
  for (size_t t = 0; t < TENSORS; t++) {
    rng = weir_rng_of(977 * t + (uint64_t)step / 10);
    const float scale = (float)exp(2.0 * weir_rng_normal(&rng));
    rng = weir_rng_of((t * STEPS + (uint64_t)step) * 8 + (uint64_t)rank);
    for (size_t i = c->offset[t]; i < c->offset[t + 1]; i++)
      g[i] = scale * (float)weir_rng_normal(&rng);
  }
}

static void check_conservation(member *m, const course *c, int step) {
  for (size_t i = 0; i < c->n; i++) {
    double in = 0, out = m->size * (double)c->update[0][i], size = 0;
    for (int r = 0; r < m->size; r++) {
      in += (double)c->g[r][i] + (double)c->before[r][i];
      out += (double)c->after[r][i];
      size +=
          fabs((double)c->g[r][i]) + fabs((double)c->before[r][i]) + fabs((double)c->after[r][i]);
    }
    if (fabs(in - out) <= (m->size + 6) * 0x1p-23 * size + 1e-37) continue;
    group_fail(m->group, "%d ranks, step %d, element %zu: %.9g came in, %.9g went out", m->size,
               step, i, in, out);
    return;
  }
}

static void check_step(member *m, const course *c, weir_engine *engine, int step) {
  weir_plan_bucket table[TENSORS];
  const size_t count = weir_engine_buckets(engine, table, TENSORS);
  if (memcmp(c->update[m->rank], c->update[0], c->n * sizeof(float)) != 0)
    group_fail(m->group, "step %d: rank %d has another result than rank 0", step, m->rank);
  if (c->plan[m->rank] != c->plan[0])
    group_fail(m->group, "step %d: rank %d runs another plan than rank 0", step, m->rank);
  if (m->rank == 0) check_conservation(m, c, step);
  if (step > 2 && count == 0) group_fail(m->group, "step %d: no buckets", step);
  for (size_t t = 0; t < TENSORS && step > 2; t++) {
    size_t k = 0;
    while (table[k].end <= t) k++;
    const bool whole = weir_bits_keeps(c->names[t], c->offset[t + 1] - c->offset[t]);
    if (table[k].codec != (whole ? WEIR_CODEC_NONE : WEIR_CODEC_QSGD))
      group_fail(m->group, "step %d: %s goes by codec %u", step, c->names[t], table[k].codec);
    if (!whole && (table[k].scheme == WEIR_SCHEME_PATH) != (c->machines != NULL))
      group_fail(m->group, "step %d: %s goes by scheme %u", step, c->names[t], table[k].scheme);
    for (size_t i = c->offset[t]; whole && i < c->offset[t + 1]; i++)
      if (c->after[m->rank][i] != 0)
        group_fail(m->group, "step %d: %s leaves a residual", step, c->names[t]);
  }
}

static bool one_step(member *m, course *c, weir_engine *engine, int step) {
  const int r = m->rank;
  weir_step_info info = {.struct_size = sizeof info};
  weir_plan plan;
  const size_t bytes = c->n * sizeof(float);
  if (weir_engine_step_begin(engine, NULL) != WEIR_OK) return false;
  memcpy(c->before[r], weir_engine_residual(engine), bytes);
  fill(c, c->g[r], step, r);
  memcpy(c->update[r], c->g[r], bytes);
  for (size_t t = 0; t < TENSORS; t++)
    if (weir_engine_submit(engine, (uint32_t)t, c->update[r] + c->offset[t]) != WEIR_OK)
      return false;
  if (weir_engine_step_end(engine, &info) != WEIR_OK) return false;
  memcpy(c->after[r], weir_engine_residual(engine), bytes);
  weir_engine_plan(engine, &plan);
  c->plan[r] = weir_plan_digest(&plan);
  return true;
}

static void run_course(member *m) {
  course *c = m->group->shared;
  voice v = {NULL};
  weir_engine *engine = NULL;
  const weir_layout layout = {TENSORS, c->offset};
  weir_controller_config deciding = {
      .policy = c->policy, .world_size = m->size, .layout = layout, .names = c->names, .seed = 1};
  weir_engine_config config = {.comm = m->comm,
                               .layout = layout,
                               .hooks = {.user = &v,
                                         .local = tell_network,
                                         .propose = propose,
                                         .observe = observe,
                                         .fed = fed,
                                         .buckets = buckets}};
  weir_status status = weir_policy_first_plan(c->policy, NULL, &config.first_plan);
  if (status == WEIR_OK && c->machines != NULL)
    status = weir_comm_find_hosts(m->comm, (uint64_t)c->machines[m->rank]);
  deciding.hosts = weir_comm_hosts(m->comm);
  if (status == WEIR_OK && m->rank == 0) status = weir_controller_create(&v.controller, &deciding);
  if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
  if (status != WEIR_OK) group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  uint32_t table = 0;
  group_barrier(m);
  bool stop = group_failed(m->group);
  for (int step = 0; step < STEPS && !stop; step++) {
    if (!one_step(m, c, engine, step))
      group_fail(m->group, "%d ranks, step %d, rank %d: %s", m->size, step, m->rank,
                 weir_last_error());
    weir_plan plan;
    weir_engine_plan(engine, &plan);
    if (m->rank == 0) c->tables += plan.layout != table;
    table = plan.layout;
    group_barrier(m);
    check_step(m, c, engine, step);
    group_barrier(m); /* all have looked before anybody writes */
    stop = group_failed(m->group);
    group_barrier(m); /* ... or can fail again */
  }
  weir_engine_free(engine);
  weir_controller_free(v.controller);
}

static void run(int ranks, const char *policy, const char *machines, uint64_t seed) {
  static const char *const kinds[] = {"conv.weight", "conv.bias", "bn.weight", "fc"};
  course c = {.policy = policy, .machines = machines};
  weir_rng rng = weir_rng_of(seed);
  for (size_t t = 0; t < TENSORS; t++) {
    c.names[t] = kinds[weir_rng_below(&rng, t < 2 ? 1 : 4)];
    c.offset[t + 1] = c.offset[t] + (t < 2 ? 900 : weir_rng_below(&rng, 700));
  }
  c.n = c.offset[TENSORS];
  for (int r = 0; r < ranks; r++) {
    float **all[] = {&c.g[r], &c.before[r], &c.after[r], &c.update[r]};
    for (size_t i = 0; i < 4; i++) *all[i] = calloc(c.n, sizeof(float));
  }
  group g;
  group_run(&g, ranks, run_course, &c);
  for (int r = 0; r < ranks; r++) {
    float *all[] = {c.g[r], c.before[r], c.after[r], c.update[r]};
    for (size_t i = 0; i < 4; i++) free(all[i]);
  }
  cr_assert(!g.failed, "%s", g.failure);
  /* The first table, and others after it where there is a network to know. */
  cr_assert_geq(c.tables, ranks > 1 ? 3 : 1, "%d ranks, %s: %d tables", ranks, policy, c.tables);
}

Test(bits, nothing_is_lost_when_widths_change) {
  static const char *const policies[] = {"bits:knapsack:1:4", "bits:knapsack:2:5",
                                         "bits:kmeans:3:3", "bits:linear:3:4"};
  for (int ranks = 1; ranks <= 4; ranks++)
    for (uint64_t i = 0; i < (GROUP_SLOW ? 1 : 4); i++)
      run(ranks, policies[(i + (uint64_t)ranks) % 4], NULL, 100 * (uint64_t)ranks + i);
}

/* Where each machine's sum is encoded, and those are gathered. */
Test(bits, nothing_is_lost_between_two_machines) {
  run(4, "bits:knapsack:2:5", "aabb", 500);
  run(4, "bits:kmeans:3:3", "abab", 501);
}

/* --- through the public API ----------------------------------------------------------------- */

#define API_RANKS 3
#define API_TENSORS 5
static const char *const api_names[API_TENSORS] = {"a.bias", "a.weight", "b.bn", "b.weight",
                                                   "b.bias"};
static const size_t api_numel[API_TENSORS] = {10, 400, 300, 700, 3};

typedef struct worker {
  int rank;
  const char *group;
  weir_status status;
  char message[256];
  float g[API_TENSORS][700];
  size_t count;
  weir_plan_bucket table[API_TENSORS];
} worker;

static weir_status train(worker *w, weir_session *session) {
  weir_status status = WEIR_OK;
  for (int step = 0; step < 30 && status == WEIR_OK; step++) {
    status = weir_step_begin(session, NULL);
    for (uint32_t t = 0; t < API_TENSORS && status == WEIR_OK; t++) {
      /* Buckets of one value come back as they are; the residual stays empty. */
      for (size_t i = 0; i < api_numel[t]; i++)
        w->g[t][i] = (float)((t + 1) * (size_t)(w->rank + step));
      status = weir_submit(session, t, w->g[t]);
    }
    if (status == WEIR_OK) status = weir_step_end(session, NULL);
  }
  return status == WEIR_OK ? weir_current_buckets(session, w->table, API_TENSORS, &w->count)
                           : status;
}

static void *work(void *argument) {
  worker *w = argument;
  weir_options options = session_options(w->rank, API_RANKS, w->group, "bits:knapsack:2:5");
  weir_session *session = NULL;
  options.virtual_network = session_slow_link;
  w->status = weir_session_create(&session, &options);
  for (size_t t = 0; t < API_TENSORS && w->status == WEIR_OK; t++)
    w->status = weir_register_tensor(session, api_names[t], api_numel[t], NULL);
  if (w->status == WEIR_OK) w->status = weir_session_start(session);
  if (w->status == WEIR_OK) w->status = train(w, session);
  if (w->status != WEIR_OK) snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

Test(bits, tensors_keep_their_buffers) {
  static worker w[API_RANKS];
  char name[64];
  snprintf(name, sizeof name, "bits %d", (int)getpid());
  for (int r = 0; r < API_RANKS; r++) w[r] = (worker){.rank = r, .group = name};
  session_threads(w, sizeof *w, API_RANKS, work);
  for (int r = 0; r < API_RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_OK, "rank %d: %s", r, w[r].message);
    for (size_t t = 0; t < API_TENSORS; t++)
      for (size_t i = 0; i < api_numel[t]; i++) /* ranks 0, 1, 2 in step 29: the mean is rank 1's */
        cr_assert_float_eq(w[r].g[t][i], (float)(30 * (t + 1)), 1e-4, "tensor %zu, element %zu: %g",
                           t, i, (double)w[r].g[t][i]);
    /* Both weights first, then the three in full precision, together. */
    cr_assert_geq(w[r].count, 2);
    cr_assert_eq(w[r].table[w[r].count - 1].codec, WEIR_CODEC_NONE);
    cr_assert_eq(w[r].table[w[r].count - 2].end, 2);
    cr_assert_eq(w[r].table[w[r].count - 2].codec, WEIR_CODEC_QSGD);
  }
}

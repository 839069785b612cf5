/* Work divided among ranks: everybody has all results, whoever computed them; and what LARS and
 * LAMB scale steps by, by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <weir/parallel.h>

#include "../sampled.h"
#include "../unit/trainer_data.h"
#include "collectives/comm.h"
#include "collectives/wrappers.h"
#include "device.h"
#include "engine/device.h"
#include "ranks.h"
#include "session/state.h"
#include "session_ranks.h"

#define RANKS 5

/* --- a group of threads ----------------------------------------------------------------------- */

typedef struct crowd crowd;
typedef struct worker {
  const crowd *crowd;
  int rank;
  weir_session *session;
  weir_status status;
  char message[256];
} worker;

struct crowd {
  const char *transport;
  int size;
  unsigned devices; /* bit r: rank r has one */
  weir_status (*body)(worker *w, void *user);
  void *user;
  char where[64];
  pthread_barrier_t started;
};

static void *work(void *argument) {
  worker *w = argument;
  weir_options options;
  weir_options_init(&options);
  options.rank = w->rank;
  options.world_size = w->crowd->size;
  options.transport = w->crowd->transport;
  options.rendezvous = w->crowd->where;
  options.policy = "fixed:none:1:dense-ring";
  options.active_probes = false;
  options.device = w->crowd->devices >> w->rank & 1 ? 0 : -1;
  w->status = session_open(&w->session, &options, 4);
  (void)pthread_barrier_wait((pthread_barrier_t *)&w->crowd->started);
  if (w->status == WEIR_OK) w->status = w->crowd->body(w, w->crowd->user);
  (void)snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  (void)pthread_barrier_wait((pthread_barrier_t *)&w->crowd->started);
  weir_session_free(w->session);
  return NULL;
}

static void run_on(unsigned devices, worker *w, const char *transport, int size,
                   weir_status (*body)(worker *, void *), void *user) {
  static int serial;
  crowd c = {.transport = transport, .size = size, .devices = devices, .body = body, .user = user};
  (void)alarm(GROUP_WATCHDOG_S);
  (void)snprintf(c.where, sizeof c.where, "parallel-%d-%d", (int)getpid(), serial++);
  cr_assert_eq(pthread_barrier_init(&c.started, NULL, (unsigned)size), 0);
  for (int r = 0; r < size; r++) w[r] = (worker){.crowd = &c, .rank = r};
  session_threads(w, sizeof *w, size, work);
  (void)pthread_barrier_destroy(&c.started);
}

static void run(worker *w, const char *transport, int size, weir_status (*body)(worker *, void *),
                void *user) {
  run_on(0, w, transport, size, body, user);
}

/* --- memory of whichever kind a rank has ------------------------------------------------------ */

static test_device the_device;

static void use_device(void) {
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  the_device = test_device_open();
}

static bool on_device(const worker *w) {
  return w != NULL && (w->crowd->devices >> w->rank & 1) != 0;
}

static float *lent(const worker *w, size_t n, const float *from) {
  float *made =
      on_device(w) ? the_device.memory(n * sizeof *made + 4) : malloc(n * sizeof *made + 4);
  if (made == NULL) abort();
  if (on_device(w))
    the_device.put(made, from, n * sizeof *made);
  else
    memcpy(made, from, n * sizeof *made);
  return made;
}

static void seen(const worker *w, float *to, const float *from, size_t n) {
  if (on_device(w))
    the_device.get(to, from, n * sizeof *to);
  else
    memcpy(to, from, n * sizeof *to);
}

static void drop(const worker *w, float *memory) {
  if (on_device(w))
    the_device.forget(memory);
  else
    free(memory);
}

static void all_well(const worker *w, int size) {
  for (int r = 0; r < size; r++) cr_assert_eq(w[r].status, WEIR_OK, "rank %d: %s", r, w[r].message);
}

/* --- results ---------------------------------------------------------------------------------- */

/* What each rank was asked for; a result is its item's number, squared, again and again. */
typedef struct job {
  size_t bytes, first, count, calls;
} job;

static unsigned char due(size_t item, size_t at) { return (unsigned char)(item * item + 7 * at); }

static weir_status squares(void *user, size_t first, size_t count, void *results) {
  job *j = user;
  unsigned char *to = results;
  j->first = first;
  j->count = count;
  j->calls++;
  for (size_t i = 0; i < count; i++)
    for (size_t b = 0; b < j->bytes; b++) *to++ = due(first + i, b);
  return WEIR_OK;
}

typedef struct question {
  size_t count, bytes;
  const size_t *work;
  job job[RANKS];
} question;

static weir_status ask(worker *w, void *user) {
  question *q = user;
  job *const j = &q->job[w->rank];
  *j = (job){.bytes = q->bytes};
  const weir_map map = {sizeof map, q->count, q->bytes, q->work, squares, j};
  FREED unsigned char *const results = malloc(q->count * q->bytes + 1);
  if (results == NULL) return WEIR_E_NOMEM;
  results[q->count * q->bytes] = 0xA5;
  weir_status status = weir_parallel_map(w->session, &map, results);
  for (size_t i = 0; status == WEIR_OK && i < q->count; i++)
    for (size_t b = 0; b < q->bytes; b++)
      if (results[i * q->bytes + b] != due(i, b))
        status = weir_fail(WEIR_E_INTERNAL, "item %zu of %zu, byte %zu", i, q->count, b);
  if (status == WEIR_OK && results[q->count * q->bytes] != 0xA5)
    status = weir_fail(WEIR_E_INTERNAL, "a byte behind the results was written");
  return status;
}

/* Runs of neighbours, rank by rank, and every item once. */
static void shares_are_whole(const question *q, int ranks) {
  size_t next = 0;
  for (int r = 0; r < ranks; r++) {
    const job *j = &q->job[r];
    cr_assert_leq(j->calls, 1);
    if (j->calls == 0) continue;
    cr_assert_eq(j->first, next, "rank %d begins at item %zu, not %zu", r, j->first, next);
    next += j->count;
  }
  cr_assert_eq(next, q->count);
}

Test(parallel, everybody_has_all_results) {
  static const size_t counts[] = {0, 1, 3, 4, 5, 6, 10, 1000, 4099};
  static const char *const transports[] = {"inproc", "shm"};
  for (size_t t = 0; t < 2; t++)
    for (int ranks = 1; ranks <= RANKS; ranks += 2)
      for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t bytes = 1; bytes <= 4096; bytes *= 64) {
          question q = {.count = counts[c], .bytes = bytes};
          worker w[RANKS];
          if (c % 3 != t && ranks > 1 && bytes > 64) continue; /* a third of the large ones */
          if (!sampled(3)) continue;
          run(w, transports[t], ranks, ask, &q);
          all_well(w, ranks);
          shares_are_whole(&q, ranks);
          for (int r = 0; r < ranks; r++)
            cr_assert_leq(q.job[r].count, (q.count + (size_t)ranks - 1) / (size_t)ranks);
        }
}

/* At most the mean and one item: also where one item is most of it, and where there is none. */
Test(parallel, shares_are_of_equal_work) {
  enum { ITEMS = 200 };
  weir_rng rng = weir_rng_of(3);
  for (int turn = 0; turn < 20; turn++) {
    size_t amount[ITEMS], all = 0, most = 0;
    for (size_t i = 0; i < ITEMS; i++) {
      amount[i] = turn == 0 ? 0 : (size_t)weir_rng_below(&rng, 1000);
      if (turn == 1 && i == 150) amount[i] = 1000000;
      all += amount[i];
      most = amount[i] > most ? amount[i] : most;
    }
    question q = {.count = ITEMS, .bytes = 12, .work = amount};
    worker w[RANKS];
    run(w, "inproc", RANKS, ask, &q);
    all_well(w, RANKS);
    shares_are_whole(&q, RANKS);
    for (int r = 0; r < RANKS; r++) {
      size_t mine = 0;
      for (size_t i = 0; i < q.job[r].count; i++) mine += amount[q.job[r].first + i];
      cr_assert_leq(mine, all / RANKS + 1 + most, "rank %d has %zu of %zu", r, mine, all);
    }
  }
}

/* --- failures --------------------------------------------------------------------------------- */

typedef struct failure {
  weir_status told;
  int who;
} failure;

typedef struct failing {
  const failure *failure;
  int rank;
} failing;

static weir_status fail_there(void *user, size_t first, size_t count, void *results) {
  const failing *f = user;
  memset(results, (int)first, count * 4);
  return f->rank == f->failure->who || f->rank == f->failure->who + 1 ? f->failure->told : WEIR_OK;
}

static weir_status fail_once(worker *w, void *user) {
  failing f = {user, w->rank};
  unsigned char results[40];
  const weir_map map = {sizeof map, 10, 4, NULL, fail_there, &f};
  const weir_status status = weir_parallel_map(w->session, &map, results);
  question q = {.count = 10, .bytes = 4};
  char kept[256];
  (void)snprintf(kept, sizeof kept, "%s", weir_last_error());
  const weir_status after = ask(w, &q); /* the group goes on */
  return after != WEIR_OK ? after : weir_fail(status, "%s", kept);
}

Test(parallel, a_failure_reaches_all_ranks) {
  static const weir_status told[] = {WEIR_E_IO, WEIR_E_NOMEM, WEIR_E_NONFINITE, WEIR_E_PEER,
                                     (weir_status)-3};
  for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
    failure f = {told[i], (int)i % 4};
    const weir_status expected = i < 2 ? told[i] : WEIR_E_INVALID;
    char who[32];
    (void)snprintf(who, sizeof who, "rank %d", f.who);
    worker w[RANKS];
    run(w, "inproc", RANKS, fail_once, &f);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(w[r].status, expected, "rank %d: %d", r, (int)w[r].status);
      cr_assert_not_null(strstr(w[r].message, who), "%s", w[r].message);
    }
    f.who = 0; /* alone */
    failing alone = {&f, 0};
    char results[40];
    const weir_map map = {sizeof map, 10, 4, NULL, fail_there, &alone};
    cr_assert_eq(weir_parallel_map(NULL, &map, results), expected);
  }
}

static weir_status ask_another(worker *w, void *user) {
  question q = *(const question *)user;
  const size_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2};
  if (w->rank == 1) {
    if (q.count == 11) q.count = 10;
    if (q.bytes == 5) q.bytes = 4;
    if (q.count == 10 && q.bytes == 4) q.work = ones;
  }
  return ask(w, &q);
}

Test(parallel, ranks_that_ask_another_thing_are_refused) {
  static const size_t forms[][2] = {{11, 4}, {10, 5}, {10, 4}};
  for (size_t i = 0; i < 3; i++) {
    question q = {.count = forms[i][0], .bytes = forms[i][1]};
    worker w[2];
    run(w, "inproc", 2, ask_another, &q);
    for (int r = 0; r < 2; r++)
      cr_assert(w[r].status == WEIR_E_MISMATCH || w[r].status == WEIR_E_PEER, "%d: %s",
                (int)w[r].status, w[r].message);
    cr_assert(w[0].status == WEIR_E_MISMATCH || w[1].status == WEIR_E_MISMATCH);
  }
}

Test(parallel, arguments_that_are_refused) {
  job j = {.bytes = 1};
  char results[16];
  const size_t much[] = {SIZE_MAX, 1};
  const weir_map good = {sizeof good, 2, 1, NULL, squares, &j};
  weir_map bad[6];
  for (size_t i = 0; i < 6; i++) bad[i] = good;
  bad[0].struct_size = 0;
  bad[1].bytes = 0;
  bad[2].fn = NULL;
  bad[3].work = much;
  bad[4].count = SIZE_MAX / 2;
  bad[4].bytes = 3;
  bad[5].struct_size = sizeof good + 8;
  cr_assert_eq(weir_parallel_map(NULL, &good, results), WEIR_OK);
  cr_assert_eq(weir_parallel_map(NULL, &good, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_parallel_map(NULL, NULL, results), WEIR_E_INVALID);
  for (size_t i = 0; i < 6; i++)
    cr_assert_eq(weir_parallel_map(NULL, &bad[i], results), WEIR_E_INVALID, "%zu", i);
  weir_options options;
  weir_session *session = NULL;
  weir_options_init(&options);
  options.world_size = 1;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK);
  cr_assert_eq(weir_parallel_map(session, &good, results), WEIR_E_STATE); /* not started */
  weir_session_free(session);
}

/* Rank 0 leaves in the middle; the others divide the work anew. */
static weir_status lose_one(worker *w, void *user) {
  question *q = user;
  if (w->rank == 0) {
    FREED weir_transport *faulty = NULL;
    const weir_strike strike = {WEIR_STRIKE_LEAVE, 1, -1};
    weir_status status = weir_transport_fault(&faulty, w->session->transport, &strike);
    if (status != WEIR_OK) return status;
    w->session->comm->transport = faulty;
    status = ask(w, q);
    w->session->comm->transport = w->session->transport;
    return status >= WEIR_E_TIMEOUT ? WEIR_OK : weir_fail(WEIR_E_INTERNAL, "rank 0 stayed");
  }
  const weir_status status = ask(w, q);
  if (status < WEIR_E_TIMEOUT) return weir_fail(WEIR_E_INTERNAL, "status %d", (int)status);
  weir_survivors left = {.struct_size = sizeof left};
  const weir_status shrunk = weir_shrink(w->session, &left);
  if (shrunk != WEIR_OK) return shrunk;
  if (left.world_size != RANKS - 1) return weir_fail(WEIR_E_INTERNAL, "%d left", left.world_size);
  return ask(w, q);
}

Test(parallel, survivors_divide_anew) {
  question q = {.count = 1000, .bytes = 16};
  worker w[RANKS];
  run(w, "inproc", RANKS, lose_one, &q);
  all_well(w, RANKS);
  for (int r = 1; r < RANKS; r++) cr_assert_eq(q.job[r].count, 250);
}

/* --- LARS and LAMB ---------------------------------------------------------------------------- */

static const float weight[] = {3, -4}, gradient[] = {0.6f, 0.8f}, zero[] = {0, 0};

Test(scales, lars_by_hand) {
  const weir_scaled_tensor t[] = {{2, weight, gradient, NULL, NULL},
                                  {2, zero, gradient, NULL, NULL},
                                  {2, weight, zero, NULL, NULL},
                                  {0, NULL, NULL, NULL, NULL}};
  double scale[4];
  /* 0.5 * 5 / (1 + 0.2 * 5 + 0.5) = 1, and without a gradient 0.5 * 5 / (0 + 1 + 0.5) = 5/3 */
  weir_lars c = {sizeof c, 0.5, 0.2, 0.5, 0, 0};
  cr_assert_eq(weir_lars_scales(NULL, &c, t, 4, scale), WEIR_OK, "%s", weir_last_error());
  cr_assert_float_eq(scale[0], 1, 1e-7);
  cr_assert_float_eq(scale[1], 0.5, 1e-12);
  cr_assert_float_eq(scale[2], 5.0 / 3, 1e-12);
  cr_assert_float_eq(scale[3], 0.5, 1e-12);
  c.least = 0.7;
  c.most = 1.2;
  cr_assert_eq(weir_lars_scales(NULL, &c, t, 3, scale), WEIR_OK);
  cr_assert_float_eq(scale[0], 1, 1e-7);
  cr_assert_float_eq(scale[1], 0.7, 1e-12);
  cr_assert_float_eq(scale[2], 1.2, 1e-12);
  c = (weir_lars){sizeof c, 0.5, 0, 0, 0, 0}; /* nothing to divide by */
  cr_assert_eq(weir_lars_scales(NULL, &c, t, 3, scale), WEIR_OK);
  cr_assert_float_eq(scale[0], 2.5, 1e-7);
  cr_assert_eq(scale[2], 0.5);
}

Test(scales, lamb_by_hand) {
  /* In the first step m / (1 - beta1) = g and v / (1 - beta2) = g^2: u = (1, 1) + 0.1 (3, -4). */
  const weir_scaled_tensor t[] = {{2, weight, gradient, zero, zero},
                                  {2, zero, gradient, zero, zero}};
  weir_lamb c = {sizeof c, 0.9, 0.99, 1e-12, 0.1, 0, 0, 0};
  double scale[2];
  cr_assert_eq(weir_lamb_scales(NULL, &c, t, 2, scale), WEIR_OK, "%s", weir_last_error());
  cr_assert_float_eq(scale[0], 5 / hypot(1.3, 0.6), 1e-5);
  cr_assert_eq(scale[1], 1);
  c.most = 2; /* |w| counts as 2 */
  cr_assert_eq(weir_lamb_scales(NULL, &c, t, 2, scale), WEIR_OK);
  cr_assert_float_eq(scale[0], 2 / hypot(1.3, 0.6), 1e-5);
  /* The second step, from moments m = (1, -1), v = (4, 1): 0.9 m + 0.1 g over 1 - 0.81, and
   * 0.99 v + 0.01 g^2 over 1 - 0.9801. */
  const float m[] = {1, -1}, v[] = {4, 1};
  const weir_scaled_tensor second = {2, weight, gradient, m, v};
  c = (weir_lamb){sizeof c, 0.9, 0.99, 0.5, 0, 0, 0, 1};
  const double u0 = (0.96 / 0.19) / (sqrt(3.9636 / 0.0199) + 0.5);
  const double u1 = (-0.82 / 0.19) / (sqrt(0.9964 / 0.0199) + 0.5);
  cr_assert_eq(weir_lamb_scales(NULL, &c, &second, 1, scale), WEIR_OK);
  cr_assert_float_eq(scale[0], 5 / hypot(u0, u1), 1e-5);
}

/* A weight's norm of 0, or that is not finite, says nothing, and no bound makes a norm of it. */
Test(scales, a_norm_that_says_nothing_is_not_held_within_bounds) {
  const float zeros[3] = {0}, ones[3] = {1, 1, 1}, huge[3] = {INFINITY, 1, 1};
  const weir_scaled_tensor t[] = {{3, zeros, ones, zeros, zeros}, {3, huge, ones, zeros, zeros}};
  const weir_lamb lamb = {sizeof lamb, 0.9, 0.99, 1e-6, 0, 5, 7, 0};
  double scale[2] = {0};
  cr_assert_eq(weir_lamb_scales(NULL, &lamb, t, 2, scale), WEIR_OK, "%s", weir_last_error());
  cr_assert(scale[0] == 1 && scale[1] == 1, "%g, %g", scale[0], scale[1]);
}

Test(scales, arguments_that_are_refused) {
  const weir_scaled_tensor t = {2, weight, gradient, zero, zero};
  const weir_lars lars = {sizeof lars, 0.001, 0, 0, 0, 0};
  const weir_lamb lamb = {sizeof lamb, 0.9, 0.99, 1e-6, 0, 0, 0, 0};
  double scale;
  weir_lars a[6];
  weir_lamb b[6];
  for (size_t i = 0; i < 6; i++) {
    a[i] = lars;
    b[i] = lamb;
  }
  a[0].trust = 0;
  a[1].weight_decay = -1;
  a[2].epsilon = (double)NAN;
  a[3].least = 2, a[3].most = 1;
  a[4].struct_size = 4;
  a[5].least = -1;
  b[0].beta1 = 1;
  b[1].beta2 = -0.1;
  b[2].epsilon = 0;
  b[3].weight_decay = (double)INFINITY;
  b[4].most = (double)NAN;
  b[5].struct_size = 1000;
  for (size_t i = 0; i < 6; i++) {
    cr_assert_eq(weir_lars_scales(NULL, &a[i], &t, 1, &scale), WEIR_E_INVALID, "%zu", i);
    cr_assert_eq(weir_lamb_scales(NULL, &b[i], &t, 1, &scale), WEIR_E_INVALID, "%zu", i);
  }
  const weir_scaled_tensor bare = {2, weight, gradient, NULL, zero};
  cr_assert_eq(weir_lamb_scales(NULL, &lamb, &bare, 1, &scale), WEIR_E_INVALID);
  cr_assert_eq(weir_lars_scales(NULL, &lars, &bare, 1, &scale), WEIR_OK);
  cr_assert_eq(weir_lars_scales(NULL, &lars, NULL, 1, &scale), WEIR_E_INVALID);
  cr_assert_eq(weir_lars_scales(NULL, &lars, &t, 1, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_lars_scales(NULL, NULL, &t, 1, &scale), WEIR_E_INVALID);
  cr_assert_eq(weir_lamb_scales(NULL, NULL, &t, 1, &scale), WEIR_E_INVALID);
}

/* Tensors of several pieces and of none; one dominates. */
static const size_t numel[] = {7, 0, 65536, 65537, 700001, 1, 200000};
enum { TENSORS = sizeof numel / sizeof *numel, ALL = 7 + 65536 + 65537 + 700001 + 1 + 200000 };

typedef struct model {
  float *data[4]; /* weights, gradients, moments */
  weir_scaled_tensor tensor[TENSORS];
  double serial[2][TENSORS]; /* LARS, LAMB */
} model;

static const weir_lars lars_of = {sizeof lars_of, 0.001, 1e-4, 1e-9, 0, 0};
static const weir_lamb lamb_of = {sizeof lamb_of, 0.9, 0.999, 1e-6, 0.01, 0, 0, 7};

static void lay_out(model *m) {
  for (size_t t = 0, at = 0; t < TENSORS; at += numel[t++])
    m->tensor[t] = (weir_scaled_tensor){numel[t], m->data[0] + at, m->data[1] + at, m->data[2] + at,
                                        m->data[3] + at};
}

static void fill(model *m) {
  weir_rng rng = weir_rng_of(11);
  for (size_t k = 0; k < 4; k++) {
    m->data[k] = malloc(ALL * sizeof(float));
    cr_assert_not_null(m->data[k]);
    for (size_t i = 0; i < ALL; i++) {
      const float x = (float)weir_rng_uniform(&rng) - 0.5f;
      m->data[k][i] = k == 3 ? x * x : x;
    }
  }
  lay_out(m);
}

static weir_status compare(worker *w, void *user) {
  const model *m = user;
  model own;
  double scale[2][TENSORS];
  for (size_t k = 0; k < 4; k++) own.data[k] = lent(w, ALL, m->data[k]);
  lay_out(&own);
  weir_status status = weir_lars_scales(w->session, &lars_of, own.tensor, TENSORS, scale[0]);
  if (status == WEIR_OK)
    status = weir_lamb_scales(w->session, &lamb_of, own.tensor, TENSORS, scale[1]);
  for (size_t k = 0; k < 4; k++) drop(w, own.data[k]);
  if (status == WEIR_OK && memcmp(scale, m->serial, sizeof scale) != 0)
    return weir_fail(WEIR_E_INTERNAL, "scales differ from the serial form's");
  return status;
}

/* In double, one after the other. */
static void by_definition(const weir_scaled_tensor *t, double scale[2]) {
  double w2 = 0, g2 = 0, u2 = 0;
  for (size_t i = 0; i < t->numel; i++) {
    const double w = (double)t->weight[i], g = (double)t->gradient[i];
    const double m = 0.9 * (double)t->first[i] + 0.1 * g;
    const double v = 0.999 * (double)t->second[i] + 0.001 * g * g;
    const double u = m / (1 - pow(0.9, 8)) / (sqrt(v / (1 - pow(0.999, 8))) + 1e-6) + 0.01 * w;
    w2 += w * w;
    g2 += g * g;
    u2 += u * u;
  }
  scale[0] = t->numel > 0 ? 0.001 * sqrt(w2) / (sqrt(g2) + 1e-4 * sqrt(w2) + 1e-9) : 0.001;
  scale[1] = t->numel > 0 ? sqrt(w2) / sqrt(u2) : 1;
}

Test(scales, are_the_same_bits_however_many_ranks) {
  model m;
  fill(&m);
  cr_assert_eq(weir_lars_scales(NULL, &lars_of, m.tensor, TENSORS, m.serial[0]), WEIR_OK);
  cr_assert_eq(weir_lamb_scales(NULL, &lamb_of, m.tensor, TENSORS, m.serial[1]), WEIR_OK);
  for (size_t t = 0; t < TENSORS; t++) {
    double expected[2];
    by_definition(&m.tensor[t], expected);
    for (size_t k = 0; k < 2; k++)
      cr_assert_float_eq(m.serial[k][t], expected[k], 1e-4 * expected[k], "%zu, %zu: %g, not %g", k,
                         t, m.serial[k][t], expected[k]);
  }
  for (int ranks = 1; ranks <= RANKS; ranks++) {
    worker w[RANKS];
    run(w, ranks % 2 ? "inproc" : "shm", ranks, compare, &m);
    all_well(w, ranks);
  }
  use_device();
  for (int ranks = 1; ranks <= 3; ranks++) {
    worker w[RANKS];
    run_on(ranks == 2 ? 1 : 7, w, "inproc", ranks, compare, &m);
    all_well(w, ranks);
  }
  for (size_t k = 0; k < 4; k++) free(m.data[k]);
}

/* --- whole steps ------------------------------------------------------------------------------ */

enum { STEPS = 3, MOST_RANKS = 8 };

typedef struct moves {
  bool lamb;
  size_t tensors;
  const size_t *numel;
  float *weights[2]; /* at first; after the serial form's steps */
  float *moments[2]; /* after the serial form's steps */
  size_t all;
  size_t kept[MOST_RANKS]; /* moments of each rank */
} moves;

/* A g that is another one in every step. */
static float slope(size_t i, int step) {
  const uint32_t bits = ((uint32_t)i * 2654435761u) ^ ((uint32_t)step * 0x9e3779b9u);
  return (float)(int32_t)(bits * 0x85ebca6bu) * 0x1p-32f;
}

static weir_status step_once(weir_session *session, const moves *m, float *const *w,
                             float *const *g, int step, weir_moment_share *share) {
  weir_moved_tensor tensor[TENSORS];
  for (size_t t = 0; t < m->tensors; t++)
    tensor[t] = (weir_moved_tensor){m->numel[t], w[t], g[t], 0.01 * (double)(t + 1), t % 3 == 0};
  weir_lamb lamb = lamb_of;
  lamb.step = (uint64_t)step;
  return m->lamb ? weir_lamb_step(session, &lamb, tensor, m->tensors, share)
                 : weir_lars_step(session, &lars_of, 0.9, tensor, m->tensors, share);
}

/* Every tensor has memory of its own; ends with all weights, one after the other, in `out`.  by
 * NULL: alone. */
static weir_status steps(const worker *by, const moves *m, weir_moment_share *share, float *out) {
  float *w[TENSORS], *g[TENSORS], *slopes = malloc(m->all * sizeof *slopes + 1);
  weir_status status = WEIR_OK;
  for (size_t t = 0, at = 0; t < m->tensors; at += m->numel[t++])
    w[t] = lent(by, m->numel[t], m->weights[0] + at);
  for (int step = 0; step < STEPS && status == WEIR_OK; step++) {
    for (size_t i = 0; i < m->all; i++) slopes[i] = slope(i, step);
    for (size_t t = 0, at = 0; t < m->tensors; at += m->numel[t++])
      g[t] = lent(by, m->numel[t], slopes + at);
    status = step_once(by != NULL ? by->session : NULL, m, w, g, step, share);
    for (size_t t = 0; t < m->tensors; t++) drop(by, g[t]);
  }
  for (size_t t = 0, at = 0; t < m->tensors; at += m->numel[t++]) {
    seen(by, out + at, w[t], m->numel[t]);
    drop(by, w[t]);
  }
  free(slopes);
  return status;
}

/* Moments of zero, where w's weights are; NULL: in host memory. */
static weir_status divide_on(const worker *w, const moves *m, int rank, int ranks,
                             weir_moment_share *share) {
  *share = (weir_moment_share){.struct_size = sizeof *share};
  const weir_status status = weir_share_moments(m->numel, m->tensors, rank, ranks, share);
  FREED float *const zeros = calloc(share->room + 1, sizeof *zeros);
  share->first = lent(w, share->room, zeros);
  share->second = m->lamb ? lent(w, share->room, zeros) : NULL;
  return status;
}

static weir_status divide_for(const moves *m, int rank, int ranks, weir_moment_share *share) {
  return divide_on(NULL, m, rank, ranks, share);
}

static weir_status move_together(worker *w, void *user) {
  moves *m = user;
  weir_moment_share share;
  float *out = malloc(m->all * sizeof(float) + 1);
  weir_status status = divide_on(w, m, w->rank, w->crowd->size, &share);
  m->kept[w->rank] = share.count;
  if (status == WEIR_OK) status = steps(w, m, &share, out);
  if (status == WEIR_OK && memcmp(out, m->weights[1], m->all * sizeof(float)) != 0)
    status = weir_fail(WEIR_E_INTERNAL, "weights differ from the serial form's");
  for (int k = 0; status == WEIR_OK && k < (m->lamb ? 2 : 1); k++) {
    seen(w, out, k ? share.second : share.first, share.count);
    if (memcmp(out, m->moments[k] + share.begin, share.count * sizeof(float)) != 0)
      status = weir_fail(WEIR_E_INTERNAL, "moments differ from the serial form's");
  }
  drop(w, share.first);
  if (m->lamb) drop(w, share.second);
  free(out);
  return status;
}

/* In double, from the definitions, by one after the other. */
static void by_hand(const moves *m, double *w) {
  double *first = calloc(m->all + 1, sizeof *first), *second = calloc(m->all + 1, sizeof *second);
  double *u = calloc(m->all + 1, sizeof *u);
  for (size_t i = 0; i < m->all; i++) w[i] = (double)m->weights[0][i];
  for (int step = 0; step < STEPS; step++)
    for (size_t t = 0, at = 0; t < m->tensors; at += m->numel[t++]) {
      const bool plain = t % 3 == 0;
      const double decay = plain ? 0 : m->lamb ? 0.01 : 1e-4;
      double w2 = 0, g2 = 0, u2 = 0;
      for (size_t i = at; i < at + m->numel[t]; i++) {
        const double g = (double)slope(i, step);
        if (m->lamb) {
          first[i] = 0.9 * first[i] + 0.1 * g;
          second[i] = 0.999 * second[i] + 0.001 * g * g;
          u[i] = first[i] / (1 - pow(0.9, step + 1)) /
                     (sqrt(second[i] / (1 - pow(0.999, step + 1))) + 1e-6) +
                 decay * w[i];
        }
        w2 += w[i] * w[i];
        g2 += g * g;
        u2 += u[i] * u[i];
      }
      const double lars = 0.001 * sqrt(w2) / (sqrt(g2) + 1e-4 * sqrt(w2) + 1e-9);
      const double scale = plain ? 1 : m->lamb ? sqrt(w2) / sqrt(u2) : lars;
      const double rate = 0.01 * (double)(t + 1) * scale;
      for (size_t i = at; i < at + m->numel[t]; i++) {
        if (!m->lamb) first[i] = 0.9 * first[i] + rate * ((double)slope(i, step) + decay * w[i]);
        w[i] -= m->lamb ? rate * u[i] : first[i];
      }
    }
  free(first);
  free(second);
  free(u);
}

static void move_lists(const size_t *lengths, size_t tensors, bool lamb) {
  moves m = {.lamb = lamb, .tensors = tensors, .numel = lengths};
  for (size_t t = 0; t < tensors; t++) m.all += lengths[t];
  for (int k = 0; k < 2; k++) m.weights[k] = malloc(m.all * sizeof(float) + 1);
  for (size_t i = 0; i < m.all; i++) m.weights[0][i] = slope(i, 99) * 2;
  weir_moment_share whole;
  cr_assert_eq(divide_for(&m, 0, 1, &whole), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(whole.count, m.all);
  cr_assert_eq(steps(NULL, &m, &whole, m.weights[1]), WEIR_OK, "%s", weir_last_error());
  m.moments[0] = whole.first;
  m.moments[1] = whole.second;
  double *due_weights = malloc(m.all * sizeof *due_weights + 1);
  by_hand(&m, due_weights);
  for (size_t i = 0; i < m.all; i++)
    cr_assert_float_eq((double)m.weights[1][i], due_weights[i], 2e-5, "element %zu: %.9g, not %.9g",
                       i, (double)m.weights[1][i], due_weights[i]);
  for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
    worker w[MOST_RANKS];
    size_t kept = 0;
    if (!sampled(3)) continue;
    run(w, ranks % 2 ? "inproc" : "shm", ranks, move_together, &m);
    all_well(w, ranks);
    for (int r = 0; r < ranks; r++) kept += m.kept[r];
    cr_assert_eq(kept, m.all, "%d ranks keep %zu moments of %zu", ranks, kept, m.all);
    for (int r = 0; r < ranks; r++)
      cr_assert_lt(m.kept[r], m.all / (size_t)ranks + 2 * 65536, "rank %d of %d: %zu", r, ranks,
                   m.kept[r]);
  }
  use_device();
  for (int ranks = 1; ranks <= 4; ranks++) {
    worker w[MOST_RANKS];
    if (!sampled(3)) continue;
    run_on(ranks == 4 ? 9 : 7, w, ranks % 2 ? "inproc" : "shm", ranks, move_together, &m);
    all_well(w, ranks);
  }
  free(due_weights);
  free(whole.first);
  free(whole.second);
  for (int k = 0; k < 2; k++) free(m.weights[k]);
}

Test(steps, lamb_has_the_serial_form_s_bits) { move_lists(numel, TENSORS, true); }
Test(steps, lars_has_the_serial_form_s_bits) { move_lists(numel, TENSORS, false); }

/* Fewer pieces than ranks, and none at all. */
Test(steps, of_next_to_nothing) {
  static const size_t few[] = {3, 1};
  move_lists(few, 2, true);
  move_lists(few, 1, false);
  move_lists(few, 0, true);
}

/* Moments of another group, of other tensors, and what is not there. */
static weir_status wrong_moments(worker *w, void *user) {
  const moves *m = user;
  float x[4] = {1, 2, 3, 4}, g[4] = {1, 1, 1, 1};
  const weir_moved_tensor good = {4, x, g, 0.1, 0};
  weir_moment_share alone, wide;
  weir_status status = divide_for(m, 0, 1, &alone);
  if (status == WEIR_OK) status = divide_for(m, w->rank, 2, &wide);
  if (status != WEIR_OK) return status;
  weir_moment_share bare = wide, longer = wide;
  bare.first = NULL;
  longer.count++;
  weir_moved_tensor endless = good, absent = good;
  endless.rate = (double)INFINITY;
  absent.weight = NULL;
  const weir_status got[] = {
      weir_lamb_step(w->session, &lamb_of, &good, 1, &alone),
      weir_lamb_step(NULL, &lamb_of, &good, 1, &wide),
      weir_lamb_step(w->session, &lamb_of, &good, 1, &longer),
      weir_lamb_step(w->session, &lamb_of, &endless, 1, &wide),
      weir_lamb_step(w->session, &lamb_of, &absent, 1, &wide),
      weir_lamb_step(w->session, &lamb_of, NULL, 1, &wide),
      weir_lamb_step(w->session, &lamb_of, &good, 1, NULL),
      weir_lamb_step(w->session, NULL, &good, 1, &wide),
      weir_lars_step(w->session, &lars_of, 1.0, &good, 1, &wide),
      w->rank == 0 ? weir_lamb_step(w->session, &lamb_of, &good, 1, &bare) : WEIR_E_INVALID,
  };
  for (size_t i = 0; i < sizeof got / sizeof *got; i++)
    if (got[i] != (i < 2 ? WEIR_E_STATE : WEIR_E_INVALID))
      status = weir_fail(WEIR_E_INTERNAL, "%zu: status %d", i, (int)got[i]);
  if (status == WEIR_OK && (x[0] != 1 || x[3] != 4))
    status = weir_fail(WEIR_E_INTERNAL, "a refused step moved weights");
  if (status == WEIR_OK) status = weir_lamb_step(w->session, &lamb_of, &good, 1, &wide);
  free(alone.first);
  free(alone.second);
  free(wide.first);
  free(wide.second);
  return status;
}

Test(steps, arguments_that_are_refused) {
  static const size_t four[] = {4};
  moves m = {.lamb = true, .tensors = 1, .numel = four};
  worker w[2];
  run(w, "inproc", 2, wrong_moments, &m);
  all_well(w, 2);
  weir_moment_share share = {.struct_size = sizeof share};
  const size_t much[] = {SIZE_MAX, 1};
  cr_assert_eq(weir_share_moments(four, 1, 2, 2, &share), WEIR_E_INVALID);
  cr_assert_eq(weir_share_moments(four, 1, -1, 2, &share), WEIR_E_INVALID);
  cr_assert_eq(weir_share_moments(four, 1, 0, 0, &share), WEIR_E_INVALID);
  cr_assert_eq(weir_share_moments(NULL, 1, 0, 1, &share), WEIR_E_INVALID);
  cr_assert_eq(weir_share_moments(much, 2, 0, 1, &share), WEIR_E_INVALID);
  cr_assert_eq(weir_share_moments(four, 1, 0, 1, NULL), WEIR_E_INVALID);
  share.struct_size = 8;
  cr_assert_eq(weir_share_moments(four, 1, 0, 1, &share), WEIR_E_INVALID);
}

/* A device's session takes memory of its device alone; others are told so, and nothing is moved. */
static weir_status elsewhere(worker *w, void *user) {
  const moves *m = user;
  float x[4] = {1, 2, 3, 4}, g[4] = {1, 1, 1, 1};
  weir_moment_share here, there;
  weir_status status = divide_for(m, 0, 1, &here);
  if (status == WEIR_OK) status = divide_on(w, m, 0, 1, &there);
  if (status != WEIR_OK) return status;
  float *const weights = lent(w, 4, x), *const gradients = lent(w, 4, g);
  const weir_moved_tensor good = {4, weights, gradients, 0.1, 0}, bad = {4, x, gradients, 0.1, 0},
                          worse = {4, weights, g, 0.1, 0};
  const weir_scaled_tensor scaled = {4, weights, gradients, there.first, here.second};
  weir_moment_share mixed = there;
  mixed.second = here.second;
  double scale;
  const weir_status got[] = {weir_lamb_step(w->session, &lamb_of, &bad, 1, &there),
                             weir_lamb_step(w->session, &lamb_of, &worse, 1, &there),
                             weir_lamb_step(w->session, &lamb_of, &good, 1, &here),
                             weir_lamb_step(w->session, &lamb_of, &good, 1, &mixed),
                             weir_lamb_scales(w->session, &lamb_of, &scaled, 1, &scale)};
  for (size_t i = 0; i < sizeof got / sizeof *got; i++)
    if (got[i] != WEIR_E_INVALID || strstr(weir_last_error(), "memory of the host") == NULL)
      status = weir_fail(WEIR_E_INTERNAL, "%zu: status %d", i, (int)got[i]);
  if (status == WEIR_OK) status = weir_lars_scales(w->session, &lars_of, &scaled, 1, &scale);
  float after[4];
  seen(w, after, weights, 4);
  if (status == WEIR_OK && memcmp(after, x, sizeof x) != 0)
    status = weir_fail(WEIR_E_INTERNAL, "a refused step moved weights");
  if (status == WEIR_OK) status = weir_lamb_step(w->session, &lamb_of, &good, 1, &there);
  float *const all[] = {weights, gradients, there.first, there.second};
  for (size_t i = 0; i < 4; i++) drop(w, all[i]);
  free(here.first);
  free(here.second);
  return status;
}

Test(steps, memory_of_the_host_is_refused_on_a_device) {
  static const size_t four[] = {4};
  moves m = {.lamb = true, .tensors = 1, .numel = four};
  worker w[1];
  use_device();
  run_on(1, w, "inproc", 1, elsewhere, &m);
  all_well(w, 1);
}

/* --- a device that fails --- */

static weir_status no_squares(weir_device *device, const weir_tensor_piece *pieces, size_t count,
                              const weir_adam *terms, weir_squares *out) {
  (void)device, (void)pieces, (void)count, (void)terms, (void)out;
  return WEIR_E_TIMEOUT;
}

static weir_status no_move(weir_device *device, const weir_mover *movers, size_t count) {
  (void)device, (void)movers, (void)count;
  return WEIR_E_TIMEOUT;
}

/* A failure in the norms is told to all, moves nothing, and the group goes on; one after them ends
 * the group, and nobody waits for the time-out. */
static weir_status fail_on_one(worker *w, void *user) {
  const moves *m = user;
  weir_on_device *on = w->session->engine->device;
  const weir_device_ops *whole = on->ops;
  weir_device_ops broken = *whole;
  float out[8], first[8];
  weir_moment_share share;
  weir_status status = divide_on(w, m, w->rank, 2, &share);
  broken.squares = no_squares;
  if (w->rank == 1) on->ops = &broken;
  if (status == WEIR_OK && steps(w, m, &share, out) != WEIR_E_INVALID)
    status = weir_fail(WEIR_E_INTERNAL, "a failure in the norms is not told to all");
  if (status == WEIR_OK && memcmp(out, m->weights[0], m->all * sizeof *out) != 0)
    status = weir_fail(WEIR_E_INTERNAL, "it has moved weights");
  seen(w, first, share.first, share.count);
  for (size_t i = 0; i < share.count && status == WEIR_OK; i++)
    if (first[i] != 0) status = weir_fail(WEIR_E_INTERNAL, "it has moved moments");
  broken = *whole;
  if (status == WEIR_OK) status = steps(w, m, &share, out);
  broken.move = no_move;
  const double begun = weir_now_s();
  if (status == WEIR_OK && steps(w, m, &share, out) < WEIR_E_TIMEOUT)
    status = weir_fail(WEIR_E_INTERNAL, "a step that failed on one rank counts");
  if (status == WEIR_OK && weir_now_s() - begun > 5)
    status = weir_fail(WEIR_E_INTERNAL, "it was waited for");
  on->ops = whole;
  drop(w, share.first);
  if (m->lamb) drop(w, share.second);
  return status;
}

Test(steps, a_device_that_fails_is_told_of) {
  static const size_t few[] = {5, 3};
  static float weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int lamb = 0; lamb < 2; lamb++) {
    moves m = {.lamb = lamb != 0, .tensors = 2, .numel = few, .all = 8, .weights = {weights}};
    worker w[2];
    use_device();
    run_on(3, w, "inproc", 2, fail_on_one, &m);
    all_well(w, 2);
  }
}

/* A rank that leaves while weights are gathered: the others are told, and moments that were divided
 * for the old group are refused in the new one. */
static weir_status lose_one_in_a_step(worker *w, void *user) {
  moves *m = user;
  weir_moment_share share;
  float *out = malloc(m->all * sizeof(float) + 1);
  weir_status status = divide_for(m, w->rank, RANKS, &share);
  weir_transport *faulty = NULL;
  if (status == WEIR_OK && w->rank == 0) {
    const weir_strike strike = {WEIR_STRIKE_LEAVE, 4, -1};
    status = weir_transport_fault(&faulty, w->session->transport, &strike);
    if (status == WEIR_OK) w->session->comm->transport = faulty;
  }
  if (status == WEIR_OK && steps(w, m, &share, out) < WEIR_E_TIMEOUT)
    status = weir_fail(WEIR_E_INTERNAL, "nobody was lost");
  if (faulty) w->session->comm->transport = w->session->transport;
  free(faulty);
  if (status == WEIR_OK && w->rank != 0) {
    weir_survivors left = {.struct_size = sizeof left};
    status = weir_shrink(w->session, &left);
    if (status == WEIR_OK && steps(w, m, &share, out) != WEIR_E_STATE)
      status = weir_fail(WEIR_E_INTERNAL, "moments of a larger group are taken");
  }
  free(share.first);
  free(share.second);
  free(out);
  return status;
}

Test(steps, moments_end_with_the_group) {
  moves m = {.lamb = true, .tensors = TENSORS, .numel = numel, .all = ALL};
  m.weights[0] = calloc(ALL, sizeof(float));
  worker w[RANKS];
  run(w, "inproc", RANKS, lose_one_in_a_step, &m);
  all_well(w, RANKS);
  free(m.weights[0]);
}

/* --- the lab's trainer ------------------------------------------------------------------------ */

typedef struct training {
  weir_trainer_config config;
  const weir_dataset *data;
  char serial[65]; /* SHA-256 of the weights after the steps, all by one rank */
} training;

/* Three updates from gradients that stand for averages. */
static weir_status three_updates(const training *t, int rank, int ranks, weir_session *session,
                                 char sha256[65]) {
  weir_trainer *trainer = NULL;
  weir_trainer_config config = t->config;
  config.rank = rank;
  config.world_size = ranks;
  weir_rng rng = weir_rng_of(23);
  weir_status status = weir_trainer_create(&trainer, &config, t->data);
  for (int step = 0; step < 3 && status == WEIR_OK; step++) {
    for (size_t i = 0; i < weir_trainer_tensors(trainer); i++)
      for (size_t k = 0; k < weir_trainer_tensor_numel(trainer, i); k++)
        weir_trainer_gradient(trainer, i)[k] = (float)weir_rng_uniform(&rng) - 0.4f;
    status = weir_trainer_update(trainer, session);
  }
  if (status == WEIR_OK) weir_trainer_weights_sha256(trainer, sha256);
  weir_trainer_free(trainer);
  return status;
}

static weir_status train_together(worker *w, void *user) {
  const training *t = user;
  char sha256[65];
  const weir_status status = three_updates(t, w->rank, w->crowd->size, w->session, sha256);
  if (status == WEIR_OK && strcmp(sha256, t->serial) != 0)
    return weir_fail(WEIR_E_INTERNAL, "weights differ from the serial form's");
  return status;
}

Test(trainer, weights_are_those_of_the_serial_form) {
  static const char *const names[] = {"lars", "lamb"};
  weir_dataset data = synthetic();
  for (size_t k = 0; k < 2; k++)
    for (int ranks = 3; ranks <= 4; ranks++) {
      if (!sampled(2)) continue;
      training t = {.config = plain(), .data = &data};
      t.config.model = "deep";
      t.config.optimizer = (weir_optimizer_config){names[k], 0.9, 0.99, 0.01, false};
      cr_assert_eq(three_updates(&t, 0, 1, NULL, t.serial), WEIR_OK, "%s", weir_last_error());
      worker w[RANKS];
      for (int divided = 0; divided < 2; divided++) {
        t.config.optimizer.divided = divided != 0;
        run(w, "inproc", ranks, train_together, &t);
        all_well(w, ranks);
      }
    }
  weir_dataset_free(&data);
}

/* One rank of `weir bench pto`. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/optimizer.h"
#include "pto.h"

#define RATE 1e-3

static const weir_lars lars_of = {sizeof lars_of, 0.001, 1e-4, 0, 0, 0};
static const weir_optimizer_config lamb_of = {"lamb", 0.9, 0.999, 0.01, false};

typedef struct bench {
  const pto_plan *p;
  int rank;
  weir_session *session;
  weir_optimizer lamb, shared; /* with all moments; with this rank's share of them */
  float *weight, *gradient;
  weir_update *updates;
  weir_scaled_tensor *tensors;
  double *scales;
  guint64 step;
} bench;

gsize weir_pto_numel(const pto_plan *p, int tensor) {
  const gsize half = p->tensors > 1 ? p->elements / 2 : 0, rest = p->elements - half;
  const gsize others = (gsize)(p->tensors > 1 ? p->tensors - 1 : 1);
  if (tensor == 0 && half > 0) return half;
  const gsize at = (gsize)(half > 0 ? tensor - 1 : tensor);
  return rest / others + (at < rest % others);
}

/* --- what is timed ---------------------------------------------------------------------------- */

static weir_lamb lamb_now(const bench *b) {
  return (weir_lamb){.struct_size = sizeof(weir_lamb),
                     .beta1 = lamb_of.momentum,
                     .beta2 = lamb_of.beta2,
                     .epsilon = 1e-8,
                     .weight_decay = lamb_of.weight_decay,
                     .step = b->step};
}

static weir_status scale_lars(bench *b, weir_session *session) {
  return weir_lars_scales(session, &lars_of, b->tensors, (size_t)b->p->tensors, b->scales);
}

static weir_status scale_lamb(bench *b, weir_session *session) {
  const weir_lamb lamb = lamb_now(b);
  return weir_lamb_scales(session, &lamb, b->tensors, (size_t)b->p->tensors, b->scales);
}

static weir_status step_lamb(bench *b, weir_session *session) {
  for (int t = 0; t < b->p->tensors; t++) b->updates[t].step = b->step;
  b->step++;
  return weir_optimizer_update(&b->lamb, session, b->updates, (size_t)b->p->tensors);
}

static weir_status move_lamb(bench *b, weir_session *session) {
  if (session == NULL) return step_lamb(b, NULL);
  for (int t = 0; t < b->p->tensors; t++) b->updates[t].step = b->step;
  b->step++;
  return weir_optimizer_update(&b->shared, session, b->updates, (size_t)b->p->tensors);
}

static weir_status (*const works[])(bench *, weir_session *) = {
    [PTO_LARS] = scale_lars,
    [PTO_LAMB] = scale_lamb,
    [PTO_STEP] = step_lamb,
    [PTO_MOVE] = move_lamb,
};

/* --- measuring -------------------------------------------------------------------------------- */

/* The same on all ranks, and before everything that is timed: forms take turns. */
static void reset(bench *b, guint64 step) {
  const weir_moment_share *share = &b->shared.share;
  guint32 x = 1;
  for (gsize i = 0; i < b->p->elements; i++) {
    x = x * 1664525u + 1013904223u;
    b->weight[i] = (float)(x >> 8) * 0x1p-24f - 0.5f;
    b->gradient[i] = (float)(x & 0xffff) * 0x1p-16f - 0.5f;
    b->lamb.first[i] = b->gradient[i] * b->weight[i];
    b->lamb.second[i] = b->gradient[i] * b->gradient[i];
  }
  memcpy(b->shared.first, b->lamb.first + share->begin, share->count * sizeof(float));
  memcpy(b->shared.second, b->lamb.second + share->begin, share->count * sizeof(float));
  b->step = step;
}

static guint64 digest(const bench *b, pto_work work) {
  if (work < PTO_STEP)
    return weir_hash(WEIR_HASH_INIT, b->scales, (size_t)b->p->tensors * sizeof *b->scales);
  return weir_hash(WEIR_HASH_INIT, b->weight, b->p->elements * sizeof *b->weight);
}

static weir_status measure(bench *b, pto_work work, pto_form form, int repeat) {
  pto_board *board = b->p->board;
  pto_cell *cell = &board->cell[work][form];
  weir_status status = WEIR_OK;
  reset(b, (guint64)repeat);
  (void)pthread_barrier_wait(&board->barrier);
  const double cpu = weir_thread_cpu_s();
  cell->begin_s[repeat][b->rank] = weir_now_s();
  if (form != PTO_ALONE || b->rank == 0)
    status = works[work](b, form == PTO_DIVIDED ? b->session : NULL);
  cell->end_s[repeat][b->rank] = weir_now_s();
  cell->cpu_s[repeat][b->rank] = weir_thread_cpu_s() - cpu;
  guint64 *sum = &board->digest[work][form][b->rank];
  *sum = weir_hash(repeat == 0 ? WEIR_HASH_INIT : *sum, &(guint64){digest(b, work)}, sizeof *sum);
  return status;
}

static void lay_out(bench *b) {
  gsize at = 0;
  for (int t = 0; t < b->p->tensors; t++) {
    const gsize n = weir_pto_numel(b->p, t);
    float *const weight = b->weight + at, *const gradient = b->gradient + at;
    b->updates[t] = (weir_update){weight, gradient, at, n, RATE, 0, 1};
    b->tensors[t] =
        (weir_scaled_tensor){n, weight, gradient, b->lamb.first + at, b->lamb.second + at};
    at += n;
  }
}

static weir_status create_optimizers(bench *b) {
  const size_t tensors = (size_t)b->p->tensors;
  weir_optimizer_config config = lamb_of;
  size_t *numel = calloc(tensors, sizeof *numel);
  if (!numel) return weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", tensors);
  for (int t = 0; t < b->p->tensors; t++) numel[t] = weir_pto_numel(b->p, t);
  weir_status status = weir_optimizer_create(&b->lamb, &config, numel, tensors, 0, 1);
  config.divided = true;
  if (status == WEIR_OK)
    status = weir_optimizer_create(&b->shared, &config, numel, tensors, b->rank, b->p->ranks);
  free(numel);
  return status;
}

static weir_status create(bench *b) {
  const size_t tensors = (size_t)b->p->tensors, elements = b->p->elements;
  b->weight = calloc(elements, sizeof *b->weight);
  b->gradient = calloc(elements, sizeof *b->gradient);
  b->updates = calloc(tensors, sizeof *b->updates);
  b->tensors = calloc(tensors, sizeof *b->tensors);
  b->scales = calloc(tensors, sizeof *b->scales);
  if (!b->weight || !b->gradient || !b->updates || !b->tensors || !b->scales)
    return weir_fail(WEIR_E_NOMEM, "no memory for %zu elements", elements);
  weir_status status = create_optimizers(b);
  if (status == WEIR_OK) lay_out(b);
  return status;
}

static weir_status start(bench *b) {
  weir_options options;
  weir_options_init(&options);
  options.rank = b->rank;
  options.world_size = b->p->ranks;
  options.transport = b->p->transport;
  options.rendezvous = b->p->where;
  options.job_id = b->p->job;
  options.policy = "fixed:none:1:dense-ring";
  options.timeout_s = 60;
  options.active_probes = false;
  weir_status status = weir_session_create(&b->session, &options);
  if (status == WEIR_OK) status = weir_register_tensor(b->session, "none", 0, NULL);
  return status == WEIR_OK ? weir_session_start(b->session) : status;
}

void weir_pto_rank(const pto_plan *p, int rank) {
  bench b = {.p = p, .rank = rank};
  weir_status status = create(&b);
  if (status == WEIR_OK) status = start(&b);
  for (int work = 0; work < PTO_WORKS; work++)
    for (int i = 0; i < p->repeats && (p->work == PTO_WORKS || p->work == work); i++)
      for (int form = 0; form < PTO_FORMS && status == WEIR_OK; form++)
        status = measure(&b, (pto_work)work, (pto_form)form, i);
  p->board->rank[rank].status = status;
  if (status != WEIR_OK)
    (void)g_strlcpy(p->board->rank[rank].message, weir_last_error(),
                    sizeof p->board->rank[rank].message);
  weir_session_free(b.session);
  weir_optimizer_free(&b.shared);
  weir_optimizer_free(&b.lamb);
  free(b.scales);
  free(b.tensors);
  free(b.updates);
  free(b.gradient);
  free(b.weight);
}

/* Courses of steps on devices and the same in host memory, to be compared (test_device.c,
 * test_device_rooms.c). */
#ifndef WEIR_TESTS_DEVICE_COURSE_H
#define WEIR_TESTS_DEVICE_COURSE_H

#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "device.h"
#include "engine/device.h"
#include "group.h"
#include "script.h"

#define TENSORS 6
#define STEPS_MAX 40

typedef struct course {
  test_device device;
  size_t n, offset[TENSORS + 1], rows[TENSORS];
  double momentum;
  bool apart;             /* tensors do not follow one another in memory */
  bool blind;             /* nobody looks at residuals */
  bool loose;             /* ranks do not wait for each other between steps */
  bool huge;              /* sums of some elements are larger than the largest float */
  const char *machines;   /* a letter a rank; NULL: each has its own */
  bool rooms;             /* ranks with a device try to read each other's memory, */
  bool inside;            /* of the same machine */
  bool stayed[GROUP_MAX]; /* and did, in the last step */
  const weir_device_ops *other[GROUP_MAX]; /* instead of the device's; NULL: those */
  int harmed; /* step in which what rank 1 receives is harmed; -1: none */
  script_step steps[STEPS_MAX];
  int count;
  unsigned where; /* bit r: rank r has a device */
  /* n floats a step and rank: what came out, and the residual before and after it. */
  float *update[GROUP_MAX], *before[GROUP_MAX], *after[GROUP_MAX];
  weir_status status[GROUP_MAX][STEPS_MAX];
  uint64_t sent[GROUP_MAX]; /* bytes, over the transport */
  uint64_t held[STEPS_MAX];
  uint64_t allocated[STEPS_MAX], waits[GROUP_MAX][STEPS_MAX];
  uint64_t seed;
} course;

/* Nearly normal, of one draw: the sum of its four parts. */
static inline void fill(float *g, size_t n, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < n; i++) {
    const uint64_t bits = weir_rng_next(&rng);
    double sum = 0;
    for (int part = 0; part < 64; part += 16) sum += (double)(bits >> part & 0xffff);
    const float x = (float)(sum / 0x1p16 - 2) * 1.7320508F; /* of variance 1 */
    g[i] = i % 5 == 0 ? (float)(int)x : x * x * x;
  }
}

/* --- harm ------------------------------------------------------------------------------------- */

static const weir_transport_ops *unharmed;
static weir_transport_ops harming;

/* Messages of selected elements begin with the one, encoders' with the other. */
static inline weir_status harm(weir_transport *t, const weir_tag *tag, const weir_send *send,
                               size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  const weir_status status = unharmed->transfer(t, tag, send, sends, recv, recvs, deadline_s);
  for (size_t i = 0; i < recvs; i++)
    for (size_t b = 0; status == WEIR_OK && b + 4 <= recv[i].bytes; b++)
      if (memcmp((char *)recv[i].data + b, "WRM1", 4) == 0 ||
          memcmp((char *)recv[i].data + b, "WRE1", 4) == 0)
        ((char *)recv[i].data)[b] ^= 1;
  return status;
}

static inline void begin_harm(member *m) {
  unharmed = m->transport->ops;
  harming = *unharmed;
  harming.transfer = harm;
  m->transport->ops = &harming;
}

/* --- one rank --------------------------------------------------------------------------------- */

/* A rank's gradients. */
typedef struct buffers {
  float *g[TENSORS];
} buffers;

static inline void make_buffers(const course *c, bool device, buffers *b) {
  const size_t gap = c->apart ? 3 : 0; /* and then not at a multiple of 16 bytes either */
  const size_t bytes = (c->n + TENSORS * gap + 1) * sizeof(float);
  float *g = device ? c->device.memory(bytes) : malloc(bytes);
  for (size_t t = 0; t < TENSORS; t++) b->g[t] = g + c->offset[t] + t * gap;
}

static inline void free_buffers(const course *c, bool device, buffers *b) {
  if (device)
    c->device.forget(b->g[0]);
  else
    free(b->g[0]);
}

static inline weir_status hand_in(const course *c, weir_engine *engine, const buffers *b,
                                  bool device, const float *all) {
  for (uint32_t t = 0; t < TENSORS; t++) {
    const size_t bytes = (c->offset[t + 1] - c->offset[t]) * sizeof(float);
    if (device)
      c->device.put(b->g[t], all + c->offset[t], bytes); /* queued, as backward passes are */
    else
      memcpy(b->g[t], all + c->offset[t], bytes);
    const weir_status status = weir_engine_submit(engine, t, b->g[t]);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

static inline weir_status one_step(member *m, course *c, weir_engine *engine, const buffers *b,
                                   int step) {
  const bool device = c->where >> m->rank & 1;
  const size_t n = c->n, at = (size_t)step * n;
  FREED float *all = malloc((n + 1) * sizeof *all);
  fill(all, n, c->seed * 1000 + (uint64_t)step * GROUP_MAX + (uint64_t)m->rank);
  const int poisoned = c->steps[step].poisoned;
  if (poisoned == m->rank || poisoned == GROUP_MAX) all[n / 2] = NAN;
  for (size_t i = 0; i < n && c->huge; i += 3) all[i] = i % 2 == 0 ? 3e38F : -3e38F;
  weir_status status = weir_engine_step_begin(engine, NULL);
  if (status == WEIR_OK) {
    if (!c->blind) memcpy(c->before[m->rank] + at, weir_engine_residual(engine), n * sizeof(float));
    status = hand_in(c, engine, b, device, all);
  }
  if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
  for (size_t t = 0; t < TENSORS; t++) {
    float *const to = c->update[m->rank] + at + c->offset[t];
    const size_t bytes = (c->offset[t + 1] - c->offset[t]) * sizeof(float);
    if (device)
      c->device.get(to, b->g[t], bytes);
    else
      memcpy(to, b->g[t], bytes);
  }
  if (!c->blind) memcpy(c->after[m->rank] + at, weir_engine_residual(engine), n * sizeof(float));
  return status;
}

static inline weir_engine_config config_of(const member *m, const course *c, script *v) {
  const bool device = c->where >> m->rank & 1;
  const weir_device_ops *const ops = c->other[m->rank] != NULL ? c->other[m->rank] : c->device.ops;
  return (weir_engine_config){.comm = m->comm,
                              .layout = {TENSORS, c->offset},
                              .rows = c->rows,
                              .momentum = c->momentum,
                              .first_plan = c->steps[0].plan,
                              .first_buckets = c->steps[0].table,
                              .hooks = script_hooks(v),
                              .device_ops = device ? ops : NULL,
                              .device = device ? m->rank % c->device.devices() : 0,
                              .device_timeout_s = 20,
                              .devices = c->where != 0,
                              .damped = c->seed % 2 == 0,
                              .rooms = c->rooms && c->where == (1U << m->size) - 1,
                              .rooms_inside = c->inside && c->rooms};
}

static inline void body(member *m) {
  course *c = m->group->shared;
  const bool device = c->where >> m->rank & 1;
  script v = {c->steps, c->count, 0};
  buffers b;
  weir_engine *engine = NULL;
  const weir_engine_config config = config_of(m, c, &v);
  weir_status status = WEIR_OK;
  if (c->machines != NULL) status = weir_comm_find_hosts(m->comm, (uint64_t)c->machines[m->rank]);
  if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
  make_buffers(c, device, &b);
  for (int s = 0; s < c->count && (status == WEIR_OK || status == WEIR_E_NONFINITE); s++) {
    v.at = s;
    if (s == c->harmed && m->rank == 1) begin_harm(m);
    status = c->status[m->rank][s] = one_step(m, c, engine, &b, s);
    if (device) c->waits[m->rank][s] = c->device.ops->waits(engine->device->device);
    if (c->harmed >= 0 || c->loose) continue;
    group_barrier(m);
    if (m->rank == 0) c->allocated[s] = c->device.allocated();
    if (m->rank == 0) c->held[s] = c->device.held();
    group_barrier(m);
  }
  if (m->rank == 1 && c->harmed >= 0) m->transport->ops = unharmed;
  if (status != WEIR_OK && status != WEIR_E_NONFINITE && c->harmed < 0)
    group_fail(m->group, "rank %d, step %d: %s", m->rank, v.at, weir_last_error());
  c->stayed[m->rank] = device && engine != NULL && engine->device->half > 0;
  c->sent[m->rank] = m->transport->bytes_sent;
  weir_engine_free(engine);
  free_buffers(c, device, &b);
}

/* --- comparing -------------------------------------------------------------------------------- */

static inline void make_room(course *c) {
  for (int r = 0; r < GROUP_MAX; r++) {
    const size_t bytes = (size_t)c->count * c->n * sizeof(float) + 1;
    c->update[r] = malloc(bytes);
    c->before[r] = malloc(bytes);
    c->after[r] = malloc(bytes);
  }
}

static inline void free_room(course *c) {
  for (int r = 0; r < GROUP_MAX; r++) {
    free(c->update[r]);
    free(c->before[r]);
    free(c->after[r]);
  }
}

/* Sums over a gradient or a tensor decide, and on a device they run in another order: where it is
 * the device that selects or encodes. */
static inline bool is_exact(const weir_plan *plan) {
  const uint32_t codec = plan->codec;
  const bool there = plan->scheme == WEIR_SCHEME_GATHER || plan->scheme == WEIR_SCHEME_HITOPK;
  return !there ||
         (codec != WEIR_CODEC_MSTOPK && codec != WEIR_CODEC_SIDCO && codec != WEIR_CODEC_TERNGRAD &&
          codec != WEIR_CODEC_ONEBIT && codec != WEIR_CODEC_EFSIGNSGD);
}

static inline void same(const float *a, const float *b, size_t n, const char *what, int rank,
                        int step) {
  if (memcmp(a, b, n * sizeof *a) == 0) return;
  for (size_t i = 0; i < n; i++)
    cr_assert(memcmp(&a[i], &b[i], sizeof a[i]) == 0,
              "%s of rank %d, step %d: element %zu is %.9g on the device and %.9g on the host",
              what, rank, step, i, (double)a[i], (double)b[i]);
}

/* N update + sum of residuals after = sum of gradients and residuals before. */
static inline void conserved(const course *c, int ranks, int step) {
  FREED float *g = malloc((c->n + 1) * sizeof *g);
  FREED double *sum = calloc(c->n + 1, sizeof *sum), *size = calloc(c->n + 1, sizeof *size);
  const size_t at = (size_t)step * c->n;
  for (int r = 0; r < ranks; r++) {
    fill(g, c->n, c->seed * 1000 + (uint64_t)step * GROUP_MAX + (uint64_t)r);
    for (size_t i = 0; i < c->n; i++) {
      const double before = (double)g[i] + (double)c->before[r][at + i];
      const double after = (double)c->after[r][at + i] + (double)c->update[r][at + i];
      sum[i] += before - after;
      size[i] += fabs((double)g[i]) + fabs((double)c->before[r][at + i]) +
                 2 * fabs((double)c->after[r][at + i]);
    }
  }
  size_t i = 0;
  while (i < c->n && fabs(sum[i]) <= (ranks + 8) * 0x1p-23 * size[i] + 1e-37) i++;
  cr_assert(i == c->n, "step %d: element %zu of %zu has lost %g", step, i, c->n, sum[i]);
}

static inline void run_course(course *c, int ranks, unsigned where) {
  c->where = where;
  group_well(ranks, body, c, NULL);
}

/* The largest divisor of n up to most and its root; 1 of none. */
static inline size_t rows_of(size_t n, size_t most) {
  size_t rows = 1;
  for (size_t d = 2; d <= most && d * d <= n; d++)
    if (n % d == 0) rows = d;
  return rows;
}

static inline void lay_out(course *c, size_t n) {
  c->harmed = -1;
  /* One tensor is empty, one is a single element. */
  const size_t offset[TENSORS + 1] = {0, n / 3, n / 3, n / 3 + 1, n / 2 + 1, 3 * n / 4 + 1, n};
  c->n = n;
  memcpy(c->offset, offset, sizeof offset);
  for (size_t t = 0; t < TENSORS; t++) c->rows[t] = rows_of(offset[t + 1] - offset[t], n);
}

static inline weir_plan plan_of(const char *text, uint64_t id) {
  weir_plan plan;
  cr_assert_eq(weir_plan_parse(text, &plan), WEIR_OK, "%s: %s", text, weir_last_error());
  plan.id = id;
  return plan;
}

/* The same course in host memory and on devices; bits: also of the residuals. */
static inline void compare(course *c, int ranks, unsigned where, bool bits) {
  course host = *c;
  make_room(c);
  make_room(&host);
  run_course(c, ranks, where);
  run_course(&host, ranks, 0);
  for (int s = 0; s < c->count; s++)
    for (int r = 0; r < ranks; r++) {
      const size_t at = (size_t)s * c->n;
      cr_assert_eq(c->status[r][s], host.status[r][s]);
      same(c->update[r] + at, c->update[0] + at, c->n, "another average", r, s);
      if (!bits) continue;
      same(c->update[r] + at, host.update[r] + at, c->n, "average", r, s);
      same(c->after[r] + at, host.after[r] + at, c->n, "residual", r, s);
    }
  for (int s = 0; s < c->count; s++)
    if (c->momentum == 0 && c->status[0][s] == WEIR_OK && !c->huge) conserved(c, ranks, s);
  free_room(&host);
  free_room(c);
}

static const char *const arms[] = {"topk:0.1:ag",
                                   "topk:0.01:ag:auto-fp32",
                                   "topk:0.3:ag:auto-bf16",
                                   "lwtopk:0.05:ag",
                                   "lwtopk:0.2:ag:auto-bf16",
                                   "mstopk:0.1:ag:auto-fp16",
                                   "dgc:0.1:ag",
                                   "dgc:0.05:ag:auto-fp16",
                                   "sidco:0.1:ag:auto-fp32",
                                   "topk:1:ag",
                                   "fp16:0.5:ag",
                                   "qsgd:0.125:ag",
                                   "qsgd:0.0625:ag",
                                   "qsgd-nearest:0.125:ag",
                                   "qsgd-l2:0.125:ag",
                                   "qsgd:0.125:ag:bucket=1024",
                                   "qsgd-l2-nearest:0.25:ag:bucket=64",
                                   "minifloat:0.25:ag",
                                   "minifloat:0.1875:ag",
                                   "companded:0.125:ag",
                                   "companded:0.21875:ag",
                                   "terngrad:0.0625:ag",
                                   "onebit:0.03125:ag",
                                   "efsignsgd:0.03125:ag",
                                   "none:1:dense-ring",
                                   "bf16:1:dense-tree",
                                   "none:1:dense-halving",
                                   "bf16:1:dense-torus",
                                   "star:0.1:art-ring",
                                   "star:0.05:art-tree:auto-bf16",
                                   "var:0.1:art-ring",
                                   "var:0.2:art-tree:auto-fp32",
                                   "randomk:0.1:art-ring",
                                   "randomk:0.3:art-tree:auto-bf16",
                                   "powersgd:1:dense-ring",
                                   "powersgd:5:dense-tree",
                                   "powersgd:3:dense-ring:auto-bf16",
                                   "powersgd:2:dense-hier-tree:auto-bf16",
                                   "powersgd:2:dense-sra",
                                   "powersgd:16:dense-sra"};
#define ARMS (sizeof arms / sizeof *arms)

#endif

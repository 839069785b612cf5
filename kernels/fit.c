/* Fitting compression times; fit.h. */
#include "kernels/fit.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/base.h"
#include "kernels/internal.h"
#include "kernels/powersgd.h"

/* So many different values; after them they repeat, and one draws no million of normals. */
#define DRAWN ((size_t)1 << 14)
#define HUGE_PAGE ((size_t)1 << 21)

struct weir_kernel_probe {
  size_t most, room;
  float *g, *r, *e, *value, *sum;
  uint32_t *index;
  uint8_t *message;
  weir_codec_context *context;
  double accumulate[WEIR_KERNEL_KNOTS]; /* s; 0: not measured */
  unsigned turn;
  double clock; /* s that reading it takes */
};

const size_t weir_kernel_knots[WEIR_KERNEL_KNOTS] = {
    1024,    8192,    4 * WEIR_SAMPLE - 1, 4 * WEIR_SAMPLE, 1 << 16,
    1 << 18, 1 << 20, WEIR_KERNEL_FIT_MOST};
/* Runs that count at each, after one that does not; but one and no other at the last. */
static const int knot_runs[WEIR_KERNEL_KNOTS] = {8, 6, 3, 3, 3, 2, 1, 1};
#define LAST (WEIR_KERNEL_KNOTS - 1)

/* --- buffers ---------------------------------------------------------------------------------- */

/* In large pages where the system has them: they are there sooner, and a gradient's walk through
 * them costs what it costs in an engine's buffers after a while. */
static void *allocate(size_t bytes) {
  size_t whole = (bytes / HUGE_PAGE + 1) * HUGE_PAGE;
  void *memory = bytes < HUGE_PAGE ? malloc(bytes) : aligned_alloc(HUGE_PAGE, whole);
  if (memory != NULL && bytes >= HUGE_PAGE) {
    (void)madvise(memory, whole, MADV_HUGEPAGE); /* without, it is only slower */
  }
  return memory;
}

static void fill(weir_kernel_probe *p) {
  weir_rng rng;
  weir_rng_seed(&rng, 1);
  for (size_t i = 0; i < p->most; i++) {
    p->g[i] = i < DRAWN ? 1e-3F * (float)weir_rng_normal(&rng) : p->g[i - DRAWN];
  }
  /* All three look like gradients. */
  memcpy(p->r, p->g, p->most * sizeof *p->r);
  memcpy(p->e, p->g, p->most * sizeof *p->e);
  memset(p->sum, 0, p->most * sizeof *p->sum);
  memset(p->value, 0, p->most * sizeof *p->value);
  memset(p->message, 0, 2 * p->most);
}

static void time_clock(weir_kernel_probe *p) {
  p->clock = INFINITY;
  for (int i = 0; i < 20; i++) {
    double start = weir_thread_cpu_s();
    p->clock = fmin(p->clock, weir_thread_cpu_s() - start);
  }
}

static double since(const weir_kernel_probe *p, double start) {
  return fmax(weir_thread_cpu_s() - start - p->clock, 0.0);
}

weir_status weir_kernel_probe_create(weir_kernel_probe **out, size_t most) {
  weir_kernel_probe *p = calloc(1, sizeof *p);
  *out = NULL;
  if (p == NULL || most == 0 || most > SIZE_MAX / 64) {
    free(p);
    return weir_fail(WEIR_E_NOMEM, "no memory to time kernels on %zu elements", most);
  }
  p->most = most;
  p->room = 8 * most + 4096;
  float **const floats[] = {&p->g, &p->r, &p->e, &p->value, &p->sum};
  bool enough = true;
  for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
    *floats[i] = allocate(most * sizeof **floats[i]);
    enough = enough && *floats[i] != NULL;
  }
  p->index = allocate(most * sizeof *p->index);
  p->message = allocate(p->room);
  weir_status status = weir_codec_context_create(&p->context);
  if (!enough || !p->index || !p->message || status != WEIR_OK) {
    weir_kernel_probe_free(p);
    return weir_fail(WEIR_E_NOMEM, "no memory to time kernels on %zu elements", most);
  }
  fill(p);
  time_clock(p);
  *out = p;
  return WEIR_OK;
}

void weir_kernel_probe_free(weir_kernel_probe *probe) {
  if (probe == NULL) {
    return;
  }
  free(probe->g);
  free(probe->r);
  free(probe->e);
  free(probe->value);
  free(probe->sum);
  free(probe->index);
  free(probe->message);
  weir_codec_context_free(probe->context);
  free(probe);
}

/* --- timing ---------------------------------------------------------------------------------- */

/* One run: a gradient e of the layout's elements under a plan, and what its message took. */
typedef struct run {
  weir_kernel_probe *probe;
  const weir_plan *plan;
  const weir_codec *codec;
  const weir_layout *layout;
  float *e;
  size_t n, k, bytes;
} run;

/* The n elements as the squarest matrix; p, and q behind it, lie in value. */
typedef struct thin {
  size_t rows, columns, rank;
  float *p, *q;
} thin;

static bool find_thin(const weir_kernel_probe *probe, const weir_plan *plan, size_t n, thin *t) {
  t->rows = (size_t)sqrt((double)n);
  t->columns = t->rows > 0 ? n / t->rows : 0;
  t->rank = weir_powersgd_rank(plan->cr);
  t->p = probe->value;
  t->q = probe->value + t->rank * t->rows;
  return weir_powersgd_thins(t->rows, t->rows * t->columns, t->rank);
}

static void compress_low_rank(const run *r) {
  thin t;
  if (!find_thin(r->probe, r->plan, r->n, &t)) {
    return;
  }
  weir_powersgd_project(r->e, t.rows, t.columns, r->probe->g, t.columns, t.rank, t.p);
  weir_powersgd_orthogonalise(t.p, t.rows, t.rank);
  weir_powersgd_project_back(r->e, t.rows, t.columns, t.p, t.rank, t.q);
  weir_powersgd_expand(t.p, t.rows, t.q, t.columns, t.rank, r->e, true);
}

static void decode_low_rank(const run *r) {
  thin t;
  if (find_thin(r->probe, r->plan, r->n, &t)) {
    weir_powersgd_expand(t.p, t.rows, t.q, t.columns, t.rank, r->probe->sum, false);
  }
}

static weir_status compress(run *r) {
  weir_kernel_probe *p = r->probe;
  weir_status status = WEIR_OK;
  r->k = r->n;
  r->bytes = 0;
  if (r->codec->low_rank) {
    compress_low_rank(r);
    return WEIR_OK;
  }
  if (r->codec->encode != NULL) {
    return r->codec->encode(p->context, r->e, r->layout, r->plan->cr, 1, p->message, p->room,
                            &r->bytes);
  }
  if (r->codec->dense) {
    if (r->plan->codec == WEIR_CODEC_BF16) {
      weir_bf16_encode(r->e, r->n, (uint16_t *)(void *)p->message, p->value);
    }
    return WEIR_OK;
  }
  if (r->codec->draw != NULL) {
    status = r->codec->draw(p->context, r->layout, r->plan->cr, 1, p->index, r->n, &r->k);
  } else {
    status = r->codec->select(p->context, r->e, r->layout, r->plan->cr, p->index, r->n, &r->k);
  }
  if (status != WEIR_OK) {
    return status;
  }
  weir_gather(r->e, p->index, r->k, p->value);
  weir_scatter_zero(r->e, p->index, r->k);
  return r->codec->shared_indices
             ? WEIR_OK
             : weir_wire_encode(r->n, p->index, p->value, r->k, (weir_wire_format)r->plan->wire,
                                p->message, p->room, &r->bytes, NULL);
}

static weir_status decode(const run *r) {
  weir_kernel_probe *p = r->probe;
  if (r->codec->low_rank) {
    decode_low_rank(r);
    return WEIR_OK;
  }
  if (r->codec->encode != NULL) {
    return r->codec->decode(p->context, p->message, r->bytes, r->layout, p->sum, true);
  }
  if (r->plan->codec == WEIR_CODEC_BF16) {
    weir_bf16_decode((const uint16_t *)(const void *)p->message, r->n, p->sum);
  } else if (!r->codec->dense && r->codec->shared_indices) {
    weir_scatter_add(p->sum, p->index, p->value, r->k);
  } else if (!r->codec->dense) {
    return weir_wire_decode_add(p->context, p->message, r->bytes, r->n, p->sum);
  }
  return WEIR_OK;
}

/* What compressing took away from e, back again, so that all runs find the same. */
static void restore(const run *r) {
  thin t;
  if (r->codec->low_rank && find_thin(r->probe, r->plan, r->n, &t)) {
    memcpy(r->e, r->e == r->probe->g ? r->probe->r : r->probe->g, r->n * sizeof *r->e);
  } else if (r->codec->select != NULL || r->codec->draw != NULL) {
    weir_scatter_add(r->e, r->probe->index, r->probe->value, r->k);
  }
}

static void accumulate(const weir_kernel_probe *p, size_t n) {
  weir_moments moments = {0};
  weir_ef_accumulate(p->g, p->r, p->e, n, &moments);
}

weir_status weir_kernel_time(weir_kernel_probe *probe, const weir_plan *plan, size_t n, int runs,
                             double *compress_s, double *decode_s) {
  const size_t offset[2] = {0, n};
  const weir_layout layout = {1, offset};
  run r = {.probe = probe,
           .plan = plan,
           .codec = weir_codec_find(plan->codec),
           .layout = &layout,
           .e = probe->e,
           .n = n};
  if (n > probe->most) {
    return weir_fail(WEIR_E_INVALID, "%zu elements to time, and room for %zu", n, probe->most);
  }
  *compress_s = *decode_s = INFINITY;
  for (int i = -1; i < runs; i++) {
    double start = weir_thread_cpu_s();
    accumulate(probe, n);
    weir_status status = compress(&r);
    double first = since(probe, start);
    start = weir_thread_cpu_s();
    status = status == WEIR_OK ? decode(&r) : status;
    double second = since(probe, start);
    if (status != WEIR_OK) {
      return status;
    }
    if (i >= 0) {
      *compress_s = fmin(*compress_s, first);
      *decode_s = fmin(*decode_s, second);
    }
  }
  return WEIR_OK;
}

/* --- fitting --------------------------------------------------------------------------------- */

weir_kernel_line weir_kernel_line_at(const weir_kernel_curve *curve, size_t n) {
  if (n > weir_kernel_knots[LAST]) {
    return (weir_kernel_line){0.0, curve->seconds[LAST] / (double)weir_kernel_knots[LAST]};
  }
  size_t at = 1;
  while (weir_kernel_knots[at] < n) {
    at++;
  }
  double from = (double)weir_kernel_knots[at - 1];
  double beta =
      (curve->seconds[at] - curve->seconds[at - 1]) / ((double)weir_kernel_knots[at] - from);
  return (weir_kernel_line){curve->seconds[at - 1] - beta * from, beta};
}

double weir_kernel_seconds(const weir_kernel_curve *curve, size_t n) {
  weir_kernel_line line = weir_kernel_line_at(curve, n);
  return fmax(line.alpha + line.beta * (double)n, 0.0);
}

/* e = g + r is the same for all, and part of all. */
static double accumulate_seconds(weir_kernel_probe *probe, size_t knot) {
  double best = INFINITY;
  if (probe->accumulate[knot] > 0.0) {
    return probe->accumulate[knot];
  }
  for (int i = -1; i < knot_runs[knot]; i++) {
    if (knot == LAST) { /* from memory: nothing of the last run is left in a cache */
      memset(probe->sum, 0, probe->most * sizeof *probe->sum);
      memset(probe->value, 0, probe->most * sizeof *probe->value);
    }
    double start = weir_thread_cpu_s();
    accumulate(probe, weir_kernel_knots[knot]);
    best = i >= 0 ? fmin(best, since(probe, start)) : best;
  }
  probe->accumulate[knot] = fmax(best, 1e-9); /* a clock's tick at least */
  return probe->accumulate[knot];
}

static weir_status fit_knot(weir_kernel_probe *probe, const weir_plan *plan, size_t knot,
                            weir_kernel_cost *cost) {
  const size_t offset[2] = {0, weir_kernel_knots[knot]};
  const weir_layout layout = {1, offset};
  run r = {.probe = probe,
           .plan = plan,
           .codec = weir_codec_find(plan->codec),
           .layout = &layout,
           .e = probe->e,
           .n = offset[1]};
  int runs = knot_runs[knot];
  if (knot == LAST) { /* in memory: each time another gradient, none of them left in a cache */
    float *const gradients[] = {probe->g, probe->r, probe->e};
    r.e = gradients[probe->turn++ % 3];
  }
  double best[2] = {INFINITY, INFINITY};
  for (int i = knot == LAST ? 0 : -1; i < runs; i++) {
    double start = weir_thread_cpu_s();
    weir_status status = compress(&r);
    double first = since(probe, start);
    start = weir_thread_cpu_s();
    status = status == WEIR_OK ? decode(&r) : status;
    double second = since(probe, start);
    if (status != WEIR_OK) {
      return status;
    }
    restore(&r);
    if (i >= 0) {
      best[0] = fmin(best[0], first);
      best[1] = fmin(best[1], second);
    }
  }
  cost->compress.seconds[knot] = accumulate_seconds(probe, knot) + best[0];
  cost->decode.seconds[knot] = best[1];
  return WEIR_OK;
}

weir_status weir_kernel_fit(weir_kernel_probe *probe, const weir_plan *plan,
                            weir_kernel_cost *cost) {
  if (probe->most < WEIR_KERNEL_FIT_MOST) {
    return weir_fail(WEIR_E_INVALID, "%zu elements to fit on, not %zu", probe->most,
                     WEIR_KERNEL_FIT_MOST);
  }
  /* What a codec's scratch grows to is not part of its time. */
  bool grown = probe->context->capacity >= WEIR_KERNEL_FIT_MOST / 2;
  weir_status status = weir_context_reserve(probe->context, WEIR_KERNEL_FIT_MOST / 2);
  if (status == WEIR_OK && !grown) {
    memset(probe->context->magnitude, 0, WEIR_KERNEL_FIT_MOST / 2 * sizeof(float));
    memset(probe->context->position, 0, WEIR_KERNEL_FIT_MOST / 2 * sizeof(uint32_t));
  }
  for (size_t knot = 0; status == WEIR_OK && knot < WEIR_KERNEL_KNOTS; knot++) {
    status = fit_knot(probe, plan, knot, cost);
  }
  return status;
}

weir_plan weir_kernel_fit_plan(uint32_t codec, double cr, weir_wire_format wire) {
  const weir_codec *row = weir_codec_find(codec);
  weir_plan plan = {.codec = codec, .cr = row->dense ? 1.0 : cr};
  if (row->low_rank) {
    plan.cr = 4.0 / WEIR_POWERSGD_RANK_MAX;
    plan.collective = WEIR_COLL_DENSE_RING;
    return plan;
  }
  if (!row->dense && row->encode == NULL) {
    plan.wire = wire;
    plan.collective = row->shared_indices ? WEIR_COLL_ART_RING : WEIR_COLL_AG;
    return plan;
  }
  plan.collective = row->dense ? WEIR_COLL_DENSE_RING : WEIR_COLL_AG;
  static const double widths[] = {4, 2, 1, 8, 16, 32};
  for (size_t i = 0; row->encode != NULL && i < sizeof widths / sizeof widths[0]; i++) {
    plan.cr = widths[i] / 32.0;
    if (weir_plan_check(&plan) == WEIR_OK) {
      break;
    }
  }
  return plan;
}

weir_status weir_kernel_fit_all(double cr, weir_wire_format wire,
                                weir_kernel_cost cost[WEIR_CODEC_COUNT]) {
  weir_kernel_probe *probe = NULL;
  weir_status status = weir_kernel_probe_create(&probe, WEIR_KERNEL_FIT_MOST);
  for (uint32_t codec = 0; status == WEIR_OK && codec < WEIR_CODEC_COUNT; codec++) {
    weir_plan plan = weir_kernel_fit_plan(codec, cr, wire);
    status = weir_kernel_fit(probe, &plan, &cost[codec]);
  }
  weir_kernel_probe_free(probe);
  return status;
}

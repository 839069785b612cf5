/* Fitting compression times; fit.h. */
#include "kernels/fit.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/internal.h"

/* So many different values; after them they repeat, and one draws no million of normals. */
#define DRAWN ((size_t)1 << 14)

struct weir_kernel_probe {
  size_t most, room;
  float *g, *r, *e, *value;
  uint32_t *index;
  uint8_t *message;
  weir_codec_context *context;
};

weir_status weir_kernel_probe_create(weir_kernel_probe **out, size_t most) {
  weir_kernel_probe *p = calloc(1, sizeof *p);
  *out = NULL;
  if (p == NULL || most == 0 || most > SIZE_MAX / 64) {
    free(p);
    return weir_fail(WEIR_E_NOMEM, "no memory to time kernels on %zu elements", most);
  }
  p->most = most;
  p->room = 8 * most + 4096;
  p->g = malloc(most * sizeof *p->g);
  p->r = calloc(most, sizeof *p->r);
  p->e = malloc(most * sizeof *p->e);
  p->value = malloc(most * sizeof *p->value);
  p->index = malloc(most * sizeof *p->index);
  p->message = malloc(p->room);
  weir_status status = weir_codec_context_create(&p->context);
  if (!p->g || !p->r || !p->e || !p->value || !p->index || !p->message || status != WEIR_OK) {
    weir_kernel_probe_free(p);
    return weir_fail(WEIR_E_NOMEM, "no memory to time kernels on %zu elements", most);
  }
  weir_rng rng;
  weir_rng_seed(&rng, 1);
  for (size_t i = 0; i < most; i++) {
    p->g[i] = i < DRAWN ? 1e-3F * (float)weir_rng_normal(&rng) : p->g[i - DRAWN];
  }
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
  free(probe->index);
  free(probe->message);
  weir_codec_context_free(probe->context);
  free(probe);
}

/* --- timing ---------------------------------------------------------------------------------- */

typedef struct sent {
  size_t k, bytes;
} sent;

static weir_status compress(weir_kernel_probe *p, const weir_plan *plan, const weir_layout *layout,
                            sent *out) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  size_t n = layout->offset[1];
  weir_moments moments = {0};
  weir_status status = WEIR_OK;
  weir_ef_accumulate(p->g, p->r, p->e, n, &moments);
  *out = (sent){n, 0};
  if (codec->encode != NULL) {
    return codec->encode(p->context, p->e, layout, plan->cr, 1, p->message, p->room, &out->bytes);
  }
  if (codec->dense) {
    if (plan->codec == WEIR_CODEC_BF16) {
      weir_bf16_encode(p->e, n, (uint16_t *)(void *)p->message, p->value);
    }
    return status;
  }
  if (codec->draw != NULL) {
    status = codec->draw(p->context, layout, plan->cr, 1, p->index, n, &out->k);
  } else {
    status = codec->select(p->context, p->e, layout, plan->cr, p->index, n, &out->k);
  }
  if (status != WEIR_OK) {
    return status;
  }
  weir_gather(p->e, p->index, out->k, p->value);
  weir_scatter_zero(p->e, p->index, out->k);
  return codec->shared_indices
             ? WEIR_OK
             : weir_wire_encode(n, p->index, p->value, out->k, (weir_wire_format)plan->wire,
                                p->message, p->room, &out->bytes, NULL);
}

/* Into e, which the next run makes anew. */
static weir_status decode(weir_kernel_probe *p, const weir_plan *plan, const weir_layout *layout,
                          sent message) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  if (codec->encode != NULL) {
    return codec->decode(p->context, p->message, message.bytes, layout, p->e, true);
  }
  if (plan->codec == WEIR_CODEC_BF16) {
    weir_bf16_decode((const uint16_t *)(const void *)p->message, message.k, p->e);
  } else if (!codec->dense && codec->shared_indices) {
    weir_scatter_add(p->e, p->index, p->value, message.k);
  } else if (!codec->dense) {
    return weir_wire_decode_add(p->message, message.bytes, layout->offset[1], p->e);
  }
  return WEIR_OK;
}

weir_status weir_kernel_time(weir_kernel_probe *probe, const weir_plan *plan, size_t n, int runs,
                             double *compress_s, double *decode_s) {
  const size_t offset[2] = {0, n};
  const weir_layout layout = {1, offset};
  if (n > probe->most) {
    return weir_fail(WEIR_E_INVALID, "%zu elements to time, and room for %zu", n, probe->most);
  }
  *compress_s = *decode_s = INFINITY;
  for (int run = -1; run < runs; run++) {
    sent message;
    double start = weir_thread_cpu_s();
    weir_status status = compress(probe, plan, &layout, &message);
    double between = weir_thread_cpu_s();
    if (status == WEIR_OK) {
      status = decode(probe, plan, &layout, message);
    }
    double end = weir_thread_cpu_s();
    if (status != WEIR_OK) {
      return status;
    }
    if (run >= 0) {
      *compress_s = fmin(*compress_s, between - start);
      *decode_s = fmin(*decode_s, end - between);
    }
  }
  return WEIR_OK;
}

/* --- fitting --------------------------------------------------------------------------------- */

weir_kernel_line weir_kernel_line_through(const size_t *n, const double *seconds, size_t count) {
  /* Weighted by 1 / t^2: sums of w, w n, w n^2, w t, w n t. */
  double w = 0.0, wn = 0.0, wnn = 0.0, wt = 0.0, wnt = 0.0;
  for (size_t i = 0; i < count; i++) {
    double x = (double)n[i];
    double t = seconds[i] > 1e-9 ? seconds[i] : 1e-9; /* a clock's tick at least */
    w += 1.0 / (t * t);
    wn += x / (t * t);
    wnn += x * x / (t * t);
    wt += 1.0 / t;
    wnt += x / t;
  }
  double det = w * wnn - wn * wn;
  weir_kernel_line line = {0.0, wnt / wnn}; /* through the origin */
  if (det > 1e-12 * w * wnn) {
    weir_kernel_line free_line = {(wt * wnn - wnt * wn) / det, (w * wnt - wn * wt) / det};
    line = free_line.alpha < 0.0 ? line
           : free_line.beta < 0.0 ? (weir_kernel_line){wt / w, 0.0}
                                  : free_line;
  }
  return line;
}

weir_status weir_kernel_fit(weir_kernel_probe *probe, const weir_plan *plan,
                            weir_kernel_cost *cost) {
  /* The smallest is beyond the second cache with all that is touched, so that one line can hold; it
   * costs the least, and is run the most often. */
  static const struct {
    size_t share;
    int runs;
  } size[] = {{6, 8}, {2, 4}, {1, 3}};
  enum { SIZES = sizeof size / sizeof size[0] };
  size_t sizes[SIZES];
  double compress_s[SIZES];
  double decode_s[SIZES];
  for (size_t i = 0; i < SIZES; i++) {
    sizes[i] = WEIR_KERNEL_FIT_MOST / size[i].share;
    weir_status status = weir_kernel_time(probe, plan, sizes[i], size[i].runs, &compress_s[i],
                                          &decode_s[i]);
    if (status != WEIR_OK) {
      return status;
    }
  }
  cost->compress = weir_kernel_line_through(sizes, compress_s, SIZES);
  cost->decode = weir_kernel_line_through(sizes, decode_s, SIZES);
  return WEIR_OK;
}

weir_plan weir_kernel_fit_plan(uint32_t codec, double cr, weir_wire_format wire) {
  const weir_codec *row = weir_codec_find(codec);
  weir_plan plan = {.codec = codec, .cr = row->dense ? 1.0 : cr};
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

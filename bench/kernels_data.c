/* Inputs of `weir bench kernels`. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "kernels.h"
#include "lab/demo.h"

const char *const kernel_data_names[DATA_KINDS] = {"normal",   "gradient", "equal", "huge",
                                                   "denormal", "sorted",   "zero"};

static float value(weir_rng *rng, kernel_data data, gsize i, gsize n) {
  switch (data) {
    case DATA_NORMAL: return (float)weir_rng_normal(rng);
    case DATA_EQUAL: return weir_rng_next(rng) & 1 ? 0.1f : -0.1f;
    case DATA_HUGE: return i == n / 2 ? 3e38f : 1e-3f * (float)weir_rng_normal(rng);
    case DATA_DENORMAL: return ((float)weir_rng_below(rng, 10001) - 5000.0f) * 1.4e-45f;
    case DATA_SORTED: return (float)i;
    case DATA_ZERO: return weir_rng_below(rng, 1000) == 0 ? (float)weir_rng_normal(rng) : 0.0f;
    default: /* heavy tails, scales that change from stretch to stretch as from layer to layer */
      return (float)(weir_rng_normal(rng) / sqrt(0.05 + weir_rng_uniform(rng)) *
                     pow(10.0, -(double)(i * 61 / n % 4)));
  }
}

/* Gradients of the demo's trainer, one step's after the other's, as many as fit. */
static weir_status from_trainer(kernel_bench *b) {
  weir_demo demo;
  weir_status status = weir_demo_open(&demo, 1, 0.05, 0.9);
  for (gsize filled = 0; status == WEIR_OK && filled < b->n;) {
    const gsize part = MIN(demo.elements, b->n - filled);
    double loss = 0;
    status = weir_trainer_backward(demo.trainer, &loss);
    if (status != WEIR_OK) break;
    memcpy(b->g + filled, demo.gradient, part * sizeof(float));
    filled += part;
    status = weir_trainer_update(demo.trainer, NULL);
  }
  weir_demo_close(&demo);
  return status;
}

weir_status weir_kernel_fill(kernel_bench *b, kernel_data data, const char **from) {
  weir_rng rng = weir_rng_of(1 + (guint64)data);
  *from = NULL;
  weir_status status = WEIR_OK;
  if (data == DATA_GRADIENT) {
    status = from_trainer(b);
    *from = status == WEIR_OK ? "the demo's trainer, step after step"
                              : "drawn: heavy tails, layers of four scales (no Fashion-MNIST here)";
  }
  if (data != DATA_GRADIENT || status == WEIR_E_IO)
    for (gsize i = 0; i < b->n; i++) b->g[i] = value(&rng, data, i, b->n);
  else if (status != WEIR_OK)
    return status;
  memset(b->r, 0, b->n * sizeof *b->r);
  memcpy(b->e, b->g, b->n * sizeof *b->e);
  return WEIR_OK;
}

/* Milliseconds of the CUDA operations and their share of the device's copy bandwidth: medians of 7,
 * each the mean of 10 queued one after the other; one JSON document.  Exit code 77 without a device.
 * Usage: bench_cuda [elements [ratio]], 100 million and 0.01 by default */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cuda/cuda.h"

enum { ROUNDS = 7, QUEUED = 10, SKIPPED = 77, SEEDS = 1 << 20 };

typedef struct bench {
  weir_cuda *cuda;
  size_t n, k, size;
  float *host;
  float *g, *r, *e, *value;
  uint32_t *index;
  void *message;
  size_t message_bytes;
  weir_moments *moments;
  weir_cuda_gain_bin *bins;
  double copy_gbps; /* read and written, together */
} bench;

typedef weir_status (*work_fn)(bench *b);

static void must(weir_status status) {
  if (status != WEIR_OK) {
    fprintf(stderr, "bench_cuda: %s\n", weir_last_error());
    exit(1);
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_ms(work_fn work, bench *b) {
  double ms[ROUNDS];
  must(work(b));
  must(weir_cuda_wait(b->cuda));
  for (int i = 0; i < ROUNDS; i++) {
    double start = weir_now_s();
    for (int q = 0; q < QUEUED; q++) {
      must(work(b));
    }
    must(weir_cuda_wait(b->cuda));
    ms[i] = 1e3 * (weir_now_s() - start) / QUEUED;
  }
  qsort(ms, ROUNDS, sizeof ms[0], ascending);
  return ms[ROUNDS / 2];
}

/* bytes: what the operation is charged with. */
static void report(bench *b, const char *what, const char *input, double bytes, work_fn work) {
  double ms = median_ms(work, b);
  double gbps = bytes / ms / 1e6;
  printf(",\n  {\"operation\": \"%s\", \"input\": \"%s\", \"ms\": %.4f, \"gbps\": %.1f, "
         "\"share_of_copy\": %.3f}",
         what, input, ms, gbps, gbps / b->copy_gbps);
  fflush(stdout);
}

static weir_status copy(bench *b) {
  return weir_cuda_copy(b->cuda, b->e, b->g, b->n * sizeof(float));
}
static weir_status accumulate(bench *b) {
  return weir_cuda_ef_accumulate(b->cuda, b->g, b->r, b->e, b->n, b->moments);
}
static weir_status ef_topk(bench *b) {
  return weir_cuda_ef_topk(b->cuda, b->g, b->r, b->e, b->n, b->k, b->index, b->value, b->moments);
}
static weir_status topk(bench *b) {
  return weir_cuda_topk(b->cuda, b->g, b->n, b->k, b->index, b->value);
}
static weir_status mstopk(bench *b) {
  return weir_cuda_mstopk(b->cuda, b->g, b->n, b->k, b->index, b->value);
}
static weir_status scatter_add(bench *b) {
  return weir_cuda_scatter_add(b->cuda, b->e, b->n, b->index, b->value, b->k);
}
static weir_status qsgd_encode(bench *b) {
  size_t bytes;
  return weir_cuda_qsgd_encode(b->cuda, b->g, b->n, 4, 1, b->message, b->message_bytes, &bytes);
}
static weir_status qsgd_decode(bench *b) {
  return weir_cuda_qsgd_decode(b->cuda, b->message, b->message_bytes, b->n, 4, b->e, false);
}
static weir_status bf16_encode(bench *b) {
  return weir_cuda_bf16_encode(b->cuda, b->g, b->n, b->message, NULL);
}
static weir_status gain(bench *b) {
  return weir_cuda_gain_histogram(b->cuda, b->g, b->n, 1, b->bins);
}
static weir_status gain_sampled(bench *b) {
  return weir_cuda_gain_histogram(b->cuda, b->g, b->n, 64, b->bins);
}

/* --- inputs ---------------------------------------------------------------------------------- */

static const char *const inputs[] = {"gaussian",  "all equal", "one huge",
                                     "denormals", "sorted",    "mostly zero"};
enum { INPUTS = sizeof inputs / sizeof inputs[0] };

/* Gaussians from a table, varied by a factor: drawing each would take longer than all the rest. */
static void fill(bench *b, int input) {
  static float table[SEEDS];
  weir_rng rng;
  weir_rng_seed(&rng, 1);
  for (size_t i = 0; i < SEEDS; i++) {
    table[i] = (float)weir_rng_normal(&rng);
  }
  for (size_t i = 0; i < b->n; i++) {
    float x = table[i % SEEDS] * (1.0F + (float)(i / SEEDS) * 1e-4F);
    switch (input) {
      case 0:
        b->host[i] = x;
        break;
      case 1:
        b->host[i] = 0.1F;
        break;
      case 2:
        b->host[i] = i == b->n / 2 ? 1e38F : x * 1e-3F;
        break;
      case 3:
        b->host[i] = x * 1e-41F;
        break;
      case 4:
        b->host[i] = (float)i;
        break;
      default:
        b->host[i] = i % 1009 == 0 ? x : 0.0F;
    }
  }
  must(weir_cuda_copy(b->cuda, b->g, b->host, b->n * sizeof(float)));
  memset(b->host, 0, b->n * sizeof(float));
  must(weir_cuda_copy(b->cuda, b->r, b->host, b->n * sizeof(float)));
  must(weir_cuda_wait(b->cuda));
}

static void open_bench(bench *b, size_t n, double cr) {
  size_t offset[2] = {0, n};
  const weir_layout layout = {1, offset};
  b->n = n;
  b->k = weir_codecs[WEIR_CODEC_TOPK].kept(&layout, cr);
  b->message_bytes = weir_codecs[WEIR_CODEC_QSGD].bound(&layout, 4.0 / 32);
  b->host = malloc(n * sizeof(float));
  if (b->host == NULL) {
    fputs("bench_cuda: no memory\n", stderr);
    exit(1);
  }
  must(weir_cuda_create(0, NULL, &b->cuda));
  must(weir_cuda_reserve(b->cuda, n, b->k + 1));
  must(weir_cuda_alloc(b->cuda, n * sizeof(float), (void **)&b->g));
  must(weir_cuda_alloc(b->cuda, n * sizeof(float), (void **)&b->r));
  must(weir_cuda_alloc(b->cuda, n * sizeof(float), (void **)&b->e));
  must(weir_cuda_alloc(b->cuda, b->k * sizeof(float), (void **)&b->value));
  must(weir_cuda_alloc(b->cuda, b->k * sizeof(uint32_t), (void **)&b->index));
  /* bf16's halves are the longest message here. */
  must(weir_cuda_alloc(b->cuda, 2 * n + b->message_bytes, &b->message));
  must(weir_cuda_alloc(b->cuda, sizeof *b->moments, (void **)&b->moments));
  must(weir_cuda_alloc(b->cuda, WEIR_CUDA_GAIN_BINS * sizeof *b->bins, (void **)&b->bins));
}

static void close_bench(bench *b) {
  weir_cuda_release(b->cuda, b->g);
  weir_cuda_release(b->cuda, b->r);
  weir_cuda_release(b->cuda, b->e);
  weir_cuda_release(b->cuda, b->value);
  weir_cuda_release(b->cuda, b->index);
  weir_cuda_release(b->cuda, b->message);
  weir_cuda_release(b->cuda, b->moments);
  weir_cuda_release(b->cuda, b->bins);
  weir_cuda_free(b->cuda);
  free(b->host);
}

int main(int argc, char *argv[]) {
  if (weir_cuda_devices() == 0) {
    puts("bench_cuda: skipped: no CUDA device here");
    return SKIPPED;
  }
  bench b = {0};
  size_t n = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 100000000;
  double cr = argc > 2 ? strtod(argv[2], NULL) : 0.01;
  if (n < 1 || n > UINT32_MAX || !(cr > 0.0 && cr < 1.0)) {
    fputs("usage: bench_cuda [elements [ratio]]\n", stderr);
    return 2;
  }
  open_bench(&b, n, cr);
  fill(&b, 0);
  double elements = (double)n;
  double kept = (double)b.k;
  double ms = median_ms(copy, &b);
  b.copy_gbps = 8.0 * elements / ms / 1e6;
  printf("{\"elements\": %zu, \"kept\": %zu, \"results\": [\n"
         "  {\"operation\": \"copy\", \"ms\": %.4f, \"gbps\": %.1f}",
         n, b.k, ms, b.copy_gbps);
  report(&b, "ef_accumulate", inputs[0], 12.0 * elements, accumulate);
  for (int input = INPUTS - 1; input >= 0; input--) { /* ends with the Gaussians */
    fill(&b, input);
    report(&b, "ef_topk", inputs[input], 20.0 * elements, ef_topk);
    report(&b, "topk", inputs[input], 4.0 * elements, topk);
  }
  report(&b, "mstopk", inputs[0], 4.0 * elements, mstopk);
  report(&b, "scatter_add", inputs[0], 16.0 * kept, scatter_add);
  report(&b, "qsgd_encode", inputs[0], 4.0 * elements + (double)b.message_bytes, qsgd_encode);
  report(&b, "qsgd_decode", inputs[0], 4.0 * elements + (double)b.message_bytes, qsgd_decode);
  report(&b, "bf16_encode", inputs[0], 6.0 * elements, bf16_encode);
  report(&b, "gain_histogram", inputs[0], 4.0 * elements, gain);
  report(&b, "gain_histogram/64", inputs[0], 4.0 * elements / 64, gain_sampled);
  puts("\n]}");
  close_bench(&b);
  return 0;
}

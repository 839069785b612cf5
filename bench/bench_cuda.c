/* Milliseconds of the CUDA operations and their share of the device's copy bandwidth: medians of 7,
 * each the mean of 10 queued one after the other; one JSON document.  Every codec of the table is
 * there, and what is wanted of fused error feedback and top-k is told beside what was measured. The
 * gradient is 160 tensors, of which 64 are short.  Exit code 77 without a device.
 * Usage: bench_cuda [elements [ratio]], 100 million and 0.01 by default */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cuda/cuda.h"
#include "kernels/powersgd.h"

enum { ROUNDS = 7, QUEUED = 10, SKIPPED = 77, SEEDS = 1 << 20 };
enum { TENSORS = 160, SHORT = 64, SHORT_LENGTH = 1000, RANK = 4, COLUMNS = 4096 };
#define WANTED_SHARE \
  0.7 /* of the copy bandwidth, by error feedback and top-k on 20 bytes an element */

typedef struct bench {
  weir_cuda *cuda;
  size_t n, k, room;
  float *host;
  float *g, *r, *e, *value;
  uint32_t *index;
  void *message;
  size_t message_bytes;
  uint64_t *length;
  weir_moments *moments;
  weir_cuda_gain_bin *bins;
  double copy_gbps; /* read and written, together */
  size_t offset[TENSORS + 1];
  weir_layout layout;
  /* The codec that is measured. */
  uint32_t codec;
  double cr;
  size_t bytes; /* of its message */
  float *p, *q; /* powersgd */
  size_t rows;
} bench;

typedef weir_status (*work_fn)(bench *b);

static void must(weir_status status) {
  if (status != WEIR_OK) {
    fprintf(stderr, "bench_cuda: %s\n", weir_last_error());
    exit(1);
  }
}

static double median_ms(work_fn work, bench *b) {
  double ms[ROUNDS];
  must(work(b));
  must(weir_cuda_wait(b->cuda));
  for (int i = 0; i < ROUNDS; i++) {
    double start = weir_now_s();
    for (int q = 0; q < QUEUED; q++) must(work(b));
    must(weir_cuda_wait(b->cuda));
    ms[i] = 1e3 * (weir_now_s() - start) / QUEUED;
  }
  weir_sort(ms, ROUNDS);
  return ms[ROUNDS / 2];
}

/* bytes: what the operation is charged with. */
static double report(bench *b, const char *what, const char *input, double bytes, work_fn work) {
  double ms = median_ms(work, b);
  double gbps = bytes / ms / 1e6;
  printf(
      ",\n  {\"operation\": \"%s\", \"input\": \"%s\", \"ms\": %.4f, \"gbps\": %.1f, "
      "\"share_of_copy\": %.3f}",
      what, input, ms, gbps, gbps / b->copy_gbps);
  fflush(stdout);
  return gbps / b->copy_gbps;
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
static weir_status scatter_add(bench *b) {
  return weir_cuda_scatter_add(b->cuda, b->e, b->n, b->index, b->value, b->k);
}
static weir_status select_fed(bench *b) {
  const weir_cuda_fed fed = {b->g, b->r, b->e, b->moments};
  size_t k;
  return weir_cuda_select(b->cuda, b->codec, &fed, &b->layout, b->cr, 1, b->index, b->value,
                          b->room, &k);
}
static weir_status encode(bench *b) {
  return weir_cuda_encode(b->cuda, b->codec, b->g, &b->layout, b->cr, 1, b->message,
                          b->message_bytes, &b->bytes);
}
static weir_status ef_encode(bench *b) {
  const weir_cuda_fed fed = {b->g, b->r, b->e, b->moments};
  return weir_cuda_ef_encode(b->cuda, b->codec, &fed, &b->layout, b->cr, 1, b->message,
                             b->message_bytes, &b->bytes, b->moments + 1);
}
static weir_status decode(bench *b) {
  return weir_cuda_decode(b->cuda, b->codec, b->message, b->bytes, &b->layout, b->cr, b->e, false);
}
static weir_status decode_add(bench *b) {
  return weir_cuda_decode(b->cuda, b->codec, b->message, b->bytes, &b->layout, b->cr, b->e, true);
}
static weir_status wire(bench *b) {
  return weir_cuda_wire_encode(b->cuda, b->n, b->index, b->value, b->k, WEIR_WIRE_AUTO_BF16,
                               b->message, b->message_bytes, b->length, NULL);
}
static weir_status read_wire(bench *b) {
  return weir_cuda_wire_decode_to(b->cuda, b->message, b->bytes, b->n, b->e, true);
}
static weir_status project(bench *b) {
  return weir_cuda_powersgd_project(b->cuda, b->g, b->rows, COLUMNS, b->q, COLUMNS, RANK, b->p);
}
static weir_status project_back(bench *b) {
  return weir_cuda_powersgd_project_back(b->cuda, b->g, b->rows, COLUMNS, b->p, RANK, b->q);
}
static weir_status expand(bench *b) {
  return weir_cuda_powersgd_expand(b->cuda, b->p, b->rows, b->q, COLUMNS, RANK, b->e, true);
}
static weir_status bf16_encode(bench *b) {
  return weir_cuda_bf16_encode(b->cuda, b->g, b->n, b->message, NULL);
}
static weir_status bf16_decode(bench *b) {
  return weir_cuda_bf16_decode(b->cuda, b->message, b->n, b->e);
}
static weir_status gain(bench *b) { return weir_cuda_gain_histogram(b->cuda, b->g, b->n, b->bins); }

/* --- inputs ---------------------------------------------------------------------------------- */

static const char *const inputs[] = {"gaussian",  "all equal", "one huge",
                                     "denormals", "sorted",    "mostly zero"};
enum { INPUTS = sizeof inputs / sizeof inputs[0] };

/* Gaussians from a table, varied by a factor: drawing each would take longer than all the rest. */
static void fill(bench *b, int input) {
  static float table[SEEDS];
  weir_rng rng = weir_rng_of(1);
  for (size_t i = 0; i < SEEDS; i++) table[i] = (float)weir_rng_normal(&rng);
  for (size_t i = 0; i < b->n; i++) {
    float x = table[i % SEEDS] * (1.0F + (float)(i / SEEDS) * 1e-4F);
    switch (input) {
      case 0: b->host[i] = x; break;
      case 1: b->host[i] = 0.1F; break;
      case 2: b->host[i] = i == b->n / 2 ? 1e38F : x * 1e-3F; break;
      case 3: b->host[i] = x * 1e-41F; break;
      case 4: b->host[i] = (float)i; break;
      default: b->host[i] = i % 1009 == 0 ? x : 0.0F;
    }
  }
  must(weir_cuda_copy(b->cuda, b->g, b->host, b->n * sizeof(float)));
  memset(b->host, 0, b->n * sizeof(float));
  must(weir_cuda_copy(b->cuda, b->r, b->host, b->n * sizeof(float)));
  must(weir_cuda_wait(b->cuda));
}

/* Short tensors, and longer and longer ones; one tensor where there are too few elements
 * for that. */
static void lay_out(bench *b) {
  size_t left = b->n;
  b->layout = (weir_layout){1, b->offset};
  b->offset[1] = b->n;
  if (b->n < 10 * SHORT * SHORT_LENGTH) return;
  b->layout.tensors = TENSORS;
  size_t weights = (TENSORS - SHORT) * (TENSORS - SHORT + 1) / 2; /* 1 + 2 + .. still to come */
  for (size_t t = 0; t < TENSORS; t++) {
    size_t weight = t < SHORT ? 0 : t - SHORT + 1;
    size_t count = t < SHORT ? SHORT_LENGTH : left / weights * weight;
    count = t + 1 < TENSORS ? count : left;
    b->offset[t + 1] = b->offset[t] + count;
    left -= count;
    weights -= weight;
  }
}

static void open_bench(bench *b, size_t n, double cr) {
  b->n = n;
  b->rows = n / COLUMNS;
  lay_out(b);
  b->k = weir_codecs[WEIR_CODEC_TOPK]->kept(&b->layout, cr);
  b->room =
      weir_codecs[WEIR_CODEC_LWTOPK]->kept(&b->layout, cr); /* the most that a selection keeps */
  b->room = b->room > b->k ? b->room : b->k;
  b->message_bytes = weir_codecs[WEIR_CODEC_FP16]->bound(&b->layout, 0.5); /* the longest */
  size_t pairs = weir_cuda_wire_bound(n, b->k, WEIR_WIRE_AUTO_BF16);
  b->message_bytes = b->message_bytes > pairs ? b->message_bytes : pairs;
  b->host = malloc(n * sizeof(float));
  if (b->host == NULL) {
    fputs("bench_cuda: no memory\n", stderr);
    exit(1);
  }
  must(weir_cuda_create(0, NULL, &b->cuda));
  must(weir_cuda_reserve(b->cuda, n, b->room + 1 < n ? b->room + 1 : n));
  must(weir_cuda_reserve_tensors(b->cuda, &b->layout));
  must(weir_cuda_alloc(b->cuda, n * sizeof(float), (void **)&b->g));
  must(weir_cuda_alloc(b->cuda, n * sizeof(float), (void **)&b->r));
  must(weir_cuda_alloc(b->cuda, n * sizeof(float), (void **)&b->e));
  must(weir_cuda_alloc(b->cuda, b->room * sizeof(float), (void **)&b->value));
  must(weir_cuda_alloc(b->cuda, b->room * sizeof(uint32_t), (void **)&b->index));
  must(weir_cuda_alloc(b->cuda, b->message_bytes, &b->message));
  must(weir_cuda_alloc(b->cuda, sizeof *b->length, (void **)&b->length));
  must(weir_cuda_alloc(b->cuda, 2 * sizeof *b->moments, (void **)&b->moments));
  must(weir_cuda_alloc(b->cuda, WEIR_CUDA_GAIN_BINS * sizeof *b->bins, (void **)&b->bins));
  must(weir_cuda_alloc(b->cuda, RANK * b->rows * sizeof(float), (void **)&b->p));
  must(weir_cuda_alloc(b->cuda, RANK * COLUMNS * sizeof(float), (void **)&b->q));
}

static void close_bench(bench *b) {
  weir_cuda_release(b->cuda, b->g);
  weir_cuda_release(b->cuda, b->r);
  weir_cuda_release(b->cuda, b->e);
  weir_cuda_release(b->cuda, b->value);
  weir_cuda_release(b->cuda, b->index);
  weir_cuda_release(b->cuda, b->message);
  weir_cuda_release(b->cuda, b->length);
  weir_cuda_release(b->cuda, b->moments);
  weir_cuda_release(b->cuda, b->bins);
  weir_cuda_release(b->cuda, b->p);
  weir_cuda_release(b->cuda, b->q);
  weir_cuda_free(b->cuda);
  free(b->host);
}

/* --- what is measured ------------------------------------------------------------------------ */

/* Exact top-k on every input, ending with the Gaussians; the share of the copy that the fused pass
 * reaches on these. */
static double measure_topk(bench *b) {
  double share = 0.0;
  for (int input = INPUTS - 1; input >= 0; input--) {
    fill(b, input);
    share = report(b, "ef_topk", inputs[input], 20.0 * (double)b->n, ef_topk);
    (void)report(b, "topk", inputs[input], 4.0 * (double)b->n, topk);
  }
  return share;
}

/* Writing the message of what top-k has kept, and adding it up as a rank does that has received it:
 * charged with its bytes and with what is added to. */
static void measure_wire(bench *b) {
  uint64_t length = 0;
  (void)report(b, "auto-bf16 message", inputs[0], 10.0 * (double)b->k, wire);
  must(weir_cuda_copy(b->cuda, &length, b->length, sizeof length));
  must(weir_cuda_wait(b->cuda));
  b->bytes = length;
  (void)report(b, "auto-bf16 message read and added", inputs[0],
               (double)length + 8.0 * (double)b->k, read_wire);
}

/* A selection with error feedback is charged like top-k's, an encoder, at 4 bits or what is
 * nearest, with what it must read and write: with error feedback g, r and what is left. */
static void measure_codecs(bench *b, double cr) {
  char what[64];
  for (b->codec = 0; b->codec < WEIR_CODEC_COUNT; b->codec++) {
    const weir_codec *codec = weir_codecs[b->codec];
    const char *name = codec->name;
    if (!codec->device) continue;
    if (codec->select != NULL || codec->draw != NULL) {
      b->cr = cr;
      snprintf(what, sizeof what, "ef + %s", name);
      (void)report(b, what, inputs[0], 20.0 * (double)b->n, select_fed);
    } else if (codec->encode != NULL) {
      b->cr = fmin(fmax(4, codec->bits.least), codec->bits.most) / 32;
      double bytes = 4.0 * (double)b->n + (double)codec->bound(&b->layout, b->cr);
      snprintf(what, sizeof what, "%s encode", name);
      (void)report(b, what, inputs[0], bytes, encode);
      snprintf(what, sizeof what, "ef + %s encode", name);
      (void)report(b, what, inputs[0], bytes + 8.0 * (double)b->n, ef_encode);
      snprintf(what, sizeof what, "%s decode", name);
      (void)report(b, what, inputs[0], bytes, decode);
      snprintf(what, sizeof what, "%s decode and add", name);
      (void)report(b, what, inputs[0], bytes + 4.0 * (double)b->n, decode_add);
    }
  }
}

static void measure_powersgd(bench *b) {
  const double bytes = 4.0 * (double)b->rows * COLUMNS;
  float *q = malloc(RANK * COLUMNS * sizeof *q);
  if (q == NULL || b->rows < RANK) {
    free(q);
    return; /* too few elements for a matrix */
  }
  weir_powersgd_draw(q, (size_t)RANK * COLUMNS, 1);
  must(weir_cuda_copy(b->cuda, b->q, q, RANK * COLUMNS * sizeof *q));
  must(weir_cuda_wait(b->cuda));
  (void)report(b, "powersgd, rank 4: M Q", inputs[0], bytes, project);
  (void)report(b, "powersgd, rank 4: M^T P", inputs[0], bytes, project_back);
  (void)report(b, "powersgd, rank 4: M - P Q^T", inputs[0], 2.0 * bytes, expand);
  free(q);
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
  double ms = median_ms(copy, &b);
  b.copy_gbps = 8.0 * elements / ms / 1e6;
  printf(
      "{\"elements\": %zu, \"kept\": %zu, \"results\": [\n"
      "  {\"operation\": \"copy\", \"ms\": %.4f, \"gbps\": %.1f}",
      n, b.k, ms, b.copy_gbps);
  (void)report(&b, "ef_accumulate", inputs[0], 12.0 * elements, accumulate);
  double share = measure_topk(&b);
  (void)report(&b, "scatter_add", inputs[0], 16.0 * (double)b.k, scatter_add);
  measure_wire(&b);
  measure_codecs(&b, cr);
  measure_powersgd(&b);
  (void)report(&b, "bf16 encode", inputs[0], 6.0 * elements, bf16_encode);
  (void)report(&b, "bf16 decode", inputs[0], 6.0 * elements, bf16_decode);
  (void)report(&b, "gain_histogram", inputs[0], 4.0 * elements, gain);
  printf("\n], \"ef_topk_share_of_copy\": %.3f, \"wanted\": %.2f}\n", share, WANTED_SHARE);
  close_bench(&b);
  return 0;
}

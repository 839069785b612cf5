/* Milliseconds of the kernels' passes on one core: medians of 7 over Gaussian gradients, beside a
 * plain read pass over the same floats.  Usage: bench_kernels [scalar|avx2|avx512] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/codec.h"
#include "kernels/cpu/cpu.h"

enum { ROUNDS = 7 };

typedef struct bench {
  size_t n, k, size;
  float *g, *r, *e, *value;
  uint32_t *index;
  uint8_t *bytes;
  weir_codec_context *context;
  weir_gain_curve *curve;
  uint32_t codec;
  double cr;
  weir_wire_format format;
  double read_ms;
} bench;

typedef void (*work_fn)(bench *b);

static volatile double sink;

static void check(weir_status status) {
  if (status != WEIR_OK) {
    fprintf(stderr, "bench_kernels: %s\n", weir_last_error());
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
  work(b);
  for (int i = 0; i < ROUNDS; i++) {
    double start = weir_now_s();
    work(b);
    ms[i] = 1e3 * (weir_now_s() - start);
  }
  qsort(ms, ROUNDS, sizeof ms[0], ascending);
  return ms[ROUNDS / 2];
}

static void report(bench *b, const char *what, work_fn work) {
  double ms = median_ms(work, b);
  b->read_ms = b->read_ms > 0.0 ? b->read_ms : ms;
  printf("%10zu  %-34s %9.3f ms  %6.1f x read\n", b->n, what, ms, ms / b->read_ms);
}

static void do_read(bench *b) {
  sink = (double)weir_cpu()->count(b->e, b->n, 1);
}

static void do_accumulate(bench *b) {
  weir_moments moments = {0};
  weir_ef_accumulate(b->g, b->r, b->e, b->n, &moments);
  sink = moments.sum_square;
}

static void do_select(bench *b) {
  size_t offset[2] = {0, b->n};
  weir_layout layout = {1, offset};
  check(weir_codecs[b->codec].select(b->context, b->e, &layout, b->cr, b->index, b->n, &b->k));
}

static void do_draw(bench *b) {
  size_t offset[2] = {0, b->n};
  check(weir_codecs[WEIR_CODEC_RANDOMK].draw(b->context, &(weir_layout){1, offset}, b->cr, 1,
                                             b->index, b->n, &b->k));
}

static void do_encode(bench *b) {
  check(weir_wire_encode(b->n, b->index, b->value, b->k, b->format, b->bytes,
                         weir_wire_bound(b->n, b->k, b->format), &b->size, NULL));
}

static void do_decode(bench *b) {
  size_t k = 0;
  check(weir_wire_decode(b->bytes, b->size, b->n, b->index, b->value, b->k, &k));
}

static void do_decode_add(bench *b) {
  check(weir_wire_decode_add(b->bytes, b->size, b->n, b->r));
}

static void do_bf16(bench *b) {
  weir_bf16_encode(b->e, b->n, (uint16_t *)(void *)b->bytes, b->r);
}

static void do_copy(bench *b) {
  memcpy(b->value, b->e, b->n * sizeof *b->e);
}

static void do_encoder(bench *b) {
  size_t offset[2] = {0, b->n};
  check(weir_codecs[b->codec].encode(b->context, b->e, &(weir_layout){1, offset}, b->cr, 1, b->bytes,
                                     4 * b->n, &b->size));
}

static void do_decoder(bench *b) {
  size_t offset[2] = {0, b->n};
  check(weir_codecs[b->codec].decode(b->context, b->bytes, b->size, &(weir_layout){1, offset},
                                     b->value, false));
}

static void do_decoder_add(bench *b) {
  size_t offset[2] = {0, b->n};
  check(weir_codecs[b->codec].decode(b->context, b->bytes, b->size, &(weir_layout){1, offset},
                                     b->value, true));
}

static void encoder_rows(bench *b) {
  static const struct {
    uint32_t codec;
    double bits;
  } row[] = {{WEIR_CODEC_FP16, 16},    {WEIR_CODEC_QSGD, 4},   {WEIR_CODEC_QSGD, 8},
             {WEIR_CODEC_TERNGRAD, 2}, {WEIR_CODEC_ONEBIT, 1}, {WEIR_CODEC_EFSIGNSGD, 1}};
  report(b, "copy", do_copy);
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
    char what[64];
    b->codec = row[i].codec;
    b->cr = row[i].bits / 32;
    snprintf(what, sizeof what, "%s %g bits encode", weir_codecs[b->codec].name, row[i].bits);
    report(b, what, do_encoder);
    snprintf(what, sizeof what, "%s %g bits decode (%.3f B)", weir_codecs[b->codec].name,
             row[i].bits, (double)b->size / (double)b->n);
    report(b, what, do_decoder);
    snprintf(what, sizeof what, "%s %g bits decode, add", weir_codecs[b->codec].name, row[i].bits);
    report(b, what, do_decoder_add);
  }
}

static void do_gain(bench *b) {
  weir_gain_curve_fill(b->curve, b->e, b->n, 1);
  sink = weir_gain_curve_gain(b->curve, 0.01);
}

static void wire_rows(bench *b) {
  char what[64];
  for (b->format = WEIR_WIRE_PAPER; b->format < WEIR_WIRE_COUNT; b->format++) {
    weir_gather(b->e, b->index, b->k, b->value);
    const char *name = weir_wire_name(b->format);
    snprintf(what, sizeof what, "encode %s cr %g", name, b->cr);
    report(b, what, do_encode);
    snprintf(what, sizeof what, "decode %s cr %g (%.2f B)", name, b->cr,
             (double)b->size / (double)b->k);
    report(b, what, do_decode);
    snprintf(what, sizeof what, "decode_add %s cr %g", name, b->cr);
    report(b, what, do_decode_add);
  }
}

static void run(size_t n) {
  bench b = {.n = n};
  b.g = malloc(4 * n);
  b.r = calloc(n, 4);
  b.e = malloc(4 * n);
  b.value = malloc(4 * n);
  b.index = malloc(4 * n);
  b.bytes = malloc(weir_wire_bound(n, n, WEIR_WIRE_PAPER));
  if (!b.g || !b.r || !b.e || !b.value || !b.index || !b.bytes) {
    fprintf(stderr, "bench_kernels: no memory for %zu floats\n", n);
    exit(1);
  }
  check(weir_codec_context_create(&b.context));
  check(weir_gain_curve_create(&b.curve));
  weir_rng rng;
  weir_rng_seed(&rng, 1);
  for (size_t i = 0; i < n; i++) {
    b.g[i] = (float)weir_rng_normal(&rng);
  }
  memcpy(b.e, b.g, 4 * n);
  report(&b, "read", do_read);
  report(&b, "ef_accumulate", do_accumulate);
  report(&b, "gain curve", do_gain);
  static const double ratio[] = {0.1, 0.01, 0.001};
  for (size_t c = 0; c < 3; c++) {
    char what[64];
    b.cr = ratio[c];
    b.codec = WEIR_CODEC_MSTOPK;
    snprintf(what, sizeof what, "mstopk cr %g", b.cr);
    report(&b, what, do_select);
    b.codec = WEIR_CODEC_TOPK;
    snprintf(what, sizeof what, "topk cr %g", b.cr);
    report(&b, what, do_select);
    wire_rows(&b);
  }
  for (b.codec = WEIR_CODEC_DGC; b.codec <= WEIR_CODEC_SIDCO; b.codec++) {
    char what[64];
    b.cr = 0.01;
    snprintf(what, sizeof what, "%s cr %g", weir_codecs[b.codec].name, b.cr);
    report(&b, what, do_select);
  }
  report(&b, "randomk cr 0.01", do_draw);
  report(&b, "bf16 encode with error", do_bf16);
  encoder_rows(&b);
  weir_codec_context_free(b.context);
  weir_gain_curve_free(b.curve);
  free(b.g);
  free(b.r);
  free(b.e);
  free(b.value);
  free(b.index);
  free(b.bytes);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    const weir_cpu_ops *ops = strcmp(argv[1], "scalar") == 0   ? &weir_cpu_scalar
                              : strcmp(argv[1], "avx2") == 0   ? weir_cpu_avx2()
                              : strcmp(argv[1], "avx512") == 0 ? weir_cpu_avx512()
                                                               : NULL;
    if (ops == NULL) {
      fprintf(stderr, "usage: bench_kernels [scalar|avx2|avx512], as far as this processor goes\n");
      return 2;
    }
    weir_cpu_force(ops);
  }
  printf("%s\n", weir_cpu()->name);
  run(1000000);
  run(25600000);
  return 0;
}

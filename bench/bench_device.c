/* Milliseconds of a step on a CUDA device, alone in its group: error feedback, compressing,
 * shipping the message to the host, looking through it there, decoding and averaging; medians of 15
 * after 5. bench_cuda has the kernels by themselves.  And what of that a step counts as
 * compressing, of the codecs that policy weir chooses among, beside what it is foretold as at a
 * start.  One JSON document; exit code 77 without a device.
 * Usage: bench_device [elements [priced]]: 25.6 million by default, in 160 tensors; foretold from so
 * many at the most, by default as many as at a start */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

#include "base/base.h"
#include "engine/engine.h"
#include "kernels/cuda/cuda.h"
#include "session/state.h"

enum { WARM = 5, ROUNDS = 15, SKIPPED = 77, TENSORS = 160 };

static void must(weir_status status) {
  if (status == WEIR_OK) return;
  fprintf(stderr, "bench_device: %s\n", weir_last_error());
  exit(1);
}

/* Tensor t of n elements begins here, with a gap behind each when they are to lie apart. */
static size_t begin_of(size_t n, size_t t, bool apart) {
  return n / TENSORS * t + (apart ? 64 * t : 0);
}

static double median(double ms[ROUNDS]) {
  weir_sort(ms, ROUNDS);
  return ms[ROUNDS / 2];
}

/* Tensors are square matrices where they can be. */
static weir_session *start(const weir_cuda *cuda, size_t n, const char *policy) {
  weir_options options;
  weir_session *session = NULL;
  size_t rows = 1;
  while (rows * rows < n / TENSORS) rows++;
  weir_options_init(&options);
  options.policy = policy;
  options.device = 0;
  options.stream = weir_cuda_stream(cuda);
  must(weir_session_create(&session, &options));
  for (size_t t = 0; t < TENSORS; t++)
    must(rows * rows == n / TENSORS ? weir_register_matrix(session, "t", rows, rows, NULL)
                                    : weir_register_tensor(session, "t", n / TENSORS, NULL));
  must(weir_session_start(session));
  return session;
}

/* And what the step says it has compressed for, unless that is NULL. */
static double step_ms(weir_cuda *cuda, const float *fresh, float *g, size_t n, bool apart,
                      const char *policy, double *compress_ms) {
  weir_session *session = start(cuda, n, policy);
  weir_step_info info = {.struct_size = sizeof info};
  double ms[ROUNDS], compressed[ROUNDS];
  for (int round = -WARM; round < ROUNDS; round++) {
    must(weir_cuda_copy(cuda, g, fresh, (n + 64 * TENSORS) * sizeof *g));
    must(weir_cuda_wait(cuda));
    const double begin_s = weir_now_s();
    must(weir_step_begin(session, NULL));
    for (uint32_t t = 0; t < TENSORS; t++) must(weir_submit(session, t, g + begin_of(n, t, apart)));
    must(weir_step_end(session, &info));
    must(weir_cuda_wait(cuda));
    if (round < 0) continue;
    ms[round] = (weir_now_s() - begin_s) * 1e3;
    compressed[round] = info.compress_s * 1e3;
  }
  weir_session_free(session);
  if (compress_ms != NULL) *compress_ms = median(compressed);
  return median(ms);
}

/* Foretold of a session like those that are measured, all codecs at once as at a start. */
static void print_prices(weir_cuda *cuda, const float *fresh, float *g, size_t n, size_t most) {
  static const char *const texts[] = {"none:1:dense-ring",
                                      "bf16:1:dense-ring",
                                      "topk:0.01:ag:auto-bf16",
                                      "star:0.01:art-ring:auto-bf16",
                                      "fp16:0.5:ag",
                                      "qsgd:0.125:ag",
                                      "powersgd:4:dense-ring"};
  enum { PLANS = sizeof texts / sizeof *texts };
  weir_plan plans[PLANS];
  double priced[PLANS], compress_ms;
  char policy[64];
  for (size_t p = 0; p < PLANS; p++) must(weir_plan_parse(texts[p], &plans[p]));
  weir_session *session = start(cuda, n, "fixed:topk:0.01:ag");
  const double begin_s = weir_now_s();
  must(weir_engine_price(session->engine, most, plans, PLANS, priced));
  printf("], \"pricing_ms\": %.1f, \"codecs\": [", (weir_now_s() - begin_s) * 1e3);
  weir_session_free(session);
  for (size_t p = 0; p < PLANS; p++) {
    (void)snprintf(policy, sizeof policy, "fixed:%s", texts[p]);
    (void)step_ms(cuda, fresh, g, n, false, policy, &compress_ms);
    printf("%s\n  {\"plan\": \"%s\", \"compress_ms\": %.3f, \"priced_ms\": %.3f, \"ratio\": %.2f}",
           p > 0 ? "," : "", texts[p], compress_ms, priced[p] * 1e3, priced[p] * 1e3 / compress_ms);
  }
}

/* Gradients with the heavy tails that they have. */
static void fill(float *g, size_t n) {
  weir_rng rng = weir_rng_of(1);
  for (size_t i = 0; i < n; i++) {
    const float x = (float)(int32_t)(weir_rng_next(&rng) >> 32) / 2147483648.0F;
    g[i] = x * x * x;
  }
}

int main(int argc, char *argv[]) {
  static const char *const policies[] = {"fixed:topk:0.01:ag",       "fixed:topk:0.01:ag:auto-bf16",
                                         "fixed:lwtopk:0.01:ag",     "fixed:qsgd:0.125:ag",
                                         "fixed:star:0.01:art-ring", "fixed:bf16:1:dense-ring"};
  const size_t asked = argc > 1 ? strtoull(argv[1], NULL, 10) : 25600000;
  const size_t n = asked / TENSORS * TENSORS, bytes = (n + 64 * TENSORS) * sizeof(float);
  if (weir_cuda_devices() == 0) {
    puts("skipped: no CUDA device here");
    return SKIPPED;
  }
  weir_cuda *cuda = NULL;
  void *g = NULL, *fresh = NULL;
  float *host = malloc(bytes);
  if (n == 0 || host == NULL) {
    fprintf(stderr, "bench_device: no memory for %zu elements\n", asked);
    return 1;
  }
  must(weir_cuda_create(0, NULL, &cuda));
  must(weir_cuda_alloc(cuda, bytes, &g));
  must(weir_cuda_alloc(cuda, bytes, &fresh));
  fill(host, bytes / sizeof *host);
  must(weir_cuda_copy(cuda, fresh, host, bytes));
  must(weir_cuda_wait(cuda));
  printf("{\"elements\": %zu, \"tensors\": %d, \"steps\": [", n, TENSORS);
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    printf("%s\n  {\"policy\": \"%s\", \"ms\": %.3f, \"apart_ms\": %.3f}", p > 0 ? "," : "",
           policies[p], step_ms(cuda, fresh, g, n, false, policies[p], NULL),
           step_ms(cuda, fresh, g, n, true, policies[p], NULL));
  print_prices(cuda, fresh, g, n, argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
  printf("\n]}\n");
  weir_cuda_release(cuda, fresh);
  weir_cuda_release(cuda, g);
  weir_cuda_free(cuda);
  free(host);
  return 0;
}

/* Milliseconds of a step on a CUDA device, alone in its group: error feedback, compressing,
 * shipping the message to the host, looking through it there, decoding and averaging; medians of 15
 * after 5. bench_cuda has the kernels by themselves.  One JSON document; exit code 77 without a
 * device. Usage: bench_device [elements], 25.6 million by default, in 160 tensors */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

#include "base/base.h"
#include "kernels/cuda/cuda.h"

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

static double step_ms(weir_cuda *cuda, const float *fresh, float *g, size_t n, bool apart,
                      const char *policy) {
  weir_options options;
  weir_session *session = NULL;
  double ms[ROUNDS];
  weir_options_init(&options);
  options.policy = policy;
  options.device = 0;
  options.stream = weir_cuda_stream(cuda);
  must(weir_session_create(&session, &options));
  for (size_t t = 0; t < TENSORS; t++) must(weir_register_tensor(session, "t", n / TENSORS, NULL));
  must(weir_session_start(session));
  for (int round = -WARM; round < ROUNDS; round++) {
    must(weir_cuda_copy(cuda, g, fresh, (n + 64 * TENSORS) * sizeof *g));
    must(weir_cuda_wait(cuda));
    const double begin_s = weir_now_s();
    must(weir_step_begin(session, NULL));
    for (uint32_t t = 0; t < TENSORS; t++) must(weir_submit(session, t, g + begin_of(n, t, apart)));
    must(weir_step_end(session, NULL));
    must(weir_cuda_wait(cuda));
    if (round >= 0) ms[round] = (weir_now_s() - begin_s) * 1e3;
  }
  weir_session_free(session);
  weir_sort(ms, ROUNDS);
  return ms[ROUNDS / 2];
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
           policies[p], step_ms(cuda, fresh, g, n, false, policies[p]),
           step_ms(cuda, fresh, g, n, true, policies[p]));
  printf("\n]}\n");
  weir_cuda_release(cuda, fresh);
  weir_cuda_release(cuda, g);
  weir_cuda_free(cuda);
  free(host);
  return 0;
}

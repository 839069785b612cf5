/* Milliseconds of a step on a CUDA device, alone in its group: error feedback, compressing,
 * shipping the message to the host, looking through it there, decoding and averaging; medians of 15
 * after 5. bench_cuda has the kernels by themselves.  And what of that a step counts as
 * compressing, of the codecs that policy weir chooses among, beside what it is foretold as at a
 * start.  With --pair, of two processes that share the device, over shared memory of the host and
 * with messages that stay on the device.  One JSON document; exit code 77 without a device.
 * Usage: bench_device [--pair] [elements [priced]]: 25.6 million by default, in 160 tensors;
 * foretold from so many at the most, by default as many as at a start */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
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

static weir_options options_of(const char *policy) {
  weir_options options;
  weir_options_init(&options);
  options.policy = policy;
  return options;
}

/* Tensors are square matrices where they can be. */
static weir_session *start(const weir_cuda *cuda, size_t n, weir_options options) {
  weir_session *session = NULL;
  size_t rows = 1;
  while (rows * rows < n / TENSORS) rows++;
  options.device = 0;
  options.stream = weir_cuda_stream(cuda);
  must(weir_session_create(&session, &options));
  for (size_t t = 0; t < TENSORS; t++)
    must(rows * rows == n / TENSORS ? weir_register_matrix(session, "t", rows, rows, NULL)
                                    : weir_register_tensor(session, "t", n / TENSORS, NULL));
  must(weir_session_start(session));
  return session;
}

/* What a rank measures of its steps. */
typedef struct measured {
  double ms, compress_ms;
  uint64_t wire; /* bytes that it sends in one */
} measured;

/* All of it goes to *told, unless that is NULL. */
static double step_ms(weir_cuda *cuda, const float *fresh, float *g, size_t n, bool apart,
                      weir_options options, measured *told) {
  weir_session *session = start(cuda, n, options);
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
  const double median_ms = median(ms);
  if (told != NULL) *told = (measured){median_ms, median(compressed), info.wire_bytes};
  return median_ms;
}

/* Foretold of a session like those that are measured, all codecs at once as at a start. */
static void print_prices(weir_cuda *cuda, const float *fresh, float *g, size_t n, size_t most) {
  static const char *const texts[] = {"none:1:dense-ring",
                                      "bf16:1:dense-ring",
                                      "topk:0.01:ag:auto-bf16",
                                      "star:0.01:art-ring:auto-bf16",
                                      "fp16:0.5:ag",
                                      "qsgd:0.125:ag",
                                      "minifloat:0.25:ag",
                                      "companded:0.125:ag",
                                      "powersgd:4:dense-ring"};
  enum { PLANS = sizeof texts / sizeof *texts };
  weir_plan plans[PLANS];
  double priced[PLANS];
  char policy[64];
  for (size_t p = 0; p < PLANS; p++) must(weir_plan_parse(texts[p], &plans[p]));
  weir_session *session = start(cuda, n, options_of("fixed:topk:0.01:ag"));
  const double begin_s = weir_now_s();
  must(weir_engine_price(session->engine, most, plans, PLANS, priced));
  printf("], \"pricing_ms\": %.1f, \"codecs\": [", (weir_now_s() - begin_s) * 1e3);
  weir_session_free(session);
  for (size_t p = 0; p < PLANS; p++) {
    (void)snprintf(policy, sizeof policy, "fixed:%s", texts[p]);
    measured told;
    (void)step_ms(cuda, fresh, g, n, false, options_of(policy), &told);
    printf("%s\n  {\"plan\": \"%s\", \"compress_ms\": %.3f, \"priced_ms\": %.3f, \"ratio\": %.2f}",
           p > 0 ? "," : "", texts[p], told.compress_ms, priced[p] * 1e3,
           priced[p] * 1e3 / told.compress_ms);
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

/* A device's gradient, and what it is made of anew for every step. */
typedef struct ground {
  weir_cuda *cuda;
  void *g, *fresh;
  size_t n;
} ground;

static void open_ground(ground *on, size_t n) {
  const size_t bytes = (n + 64 * TENSORS) * sizeof(float);
  float *host = malloc(bytes);
  if (n == 0 || host == NULL) {
    fprintf(stderr, "bench_device: no memory for %zu elements\n", n);
    exit(1);
  }
  on->n = n;
  must(weir_cuda_create(0, NULL, &on->cuda));
  must(weir_cuda_alloc(on->cuda, bytes, &on->g));
  must(weir_cuda_alloc(on->cuda, bytes, &on->fresh));
  fill(host, bytes / sizeof *host);
  must(weir_cuda_copy(on->cuda, on->fresh, host, bytes));
  must(weir_cuda_wait(on->cuda));
  free(host);
}

static void close_ground(const ground *on) {
  weir_cuda_release(on->cuda, on->fresh);
  weir_cuda_release(on->cuda, on->g);
  weir_cuda_free(on->cuda);
}

static int alone(size_t n, size_t most) {
  static const char *const policies[] = {"fixed:topk:0.01:ag",       "fixed:topk:0.01:ag:auto-bf16",
                                         "fixed:lwtopk:0.01:ag",     "fixed:qsgd:0.125:ag",
                                         "fixed:star:0.01:art-ring", "fixed:bf16:1:dense-ring"};
  ground on;
  if (weir_cuda_devices() == 0) {
    puts("skipped: no CUDA device here");
    return SKIPPED;
  }
  open_ground(&on, n);
  printf("{\"elements\": %zu, \"tensors\": %d, \"steps\": [", n, TENSORS);
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
    const weir_options options = options_of(policies[p]);
    printf("%s\n  {\"policy\": \"%s\", \"ms\": %.3f, \"apart_ms\": %.3f}", p > 0 ? "," : "",
           policies[p], step_ms(on.cuda, on.fresh, on.g, n, false, options, NULL),
           step_ms(on.cuda, on.fresh, on.g, n, true, options, NULL));
  }
  print_prices(on.cuda, on.fresh, on.g, n, most);
  printf("\n]}\n");
  close_ground(&on);
  return 0;
}

/* --- two processes ---------------------------------------------------------------------------- */

/* out, what rank 0 measures: in memory that the processes share. */
static int be_rank(int rank, size_t n, const char *policy, const char *where, const char *ipc,
                   measured *out) {
  ground on;
  measured mine;
  if (weir_cuda_devices() == 0) return SKIPPED;
  must(setenv("WEIR_DEVICE_IPC", ipc, 1) == 0 ? WEIR_OK : WEIR_E_NOMEM);
  open_ground(&on, n);
  weir_options options = options_of(policy);
  options.rank = rank;
  options.world_size = 2;
  options.transport = "shm";
  options.rendezvous = where;
  options.timeout_s = 60;
  (void)step_ms(on.cuda, on.fresh, on.g, n, false, options, &mine);
  if (rank == 0) *out = mine;
  close_ground(&on);
  return 0;
}

/* No process but those of the ranks uses the device: what has used it cannot be forked. */
static int both_ranks(size_t n, const char *policy, const char *ipc, measured *out) {
  static int serial;
  char where[64];
  pid_t pid[2];
  int code = 0;
  (void)snprintf(where, sizeof where, "bench device %d %d", (int)getpid(), serial++);
  (void)fflush(NULL);
  for (int r = 0; r < 2; r++) {
    pid[r] = fork();
    if (pid[r] == 0) _exit(be_rank(r, n, policy, where, ipc, out));
  }
  for (int r = 0; r < 2; r++) {
    int ended = 0;
    if (pid[r] < 0 || waitpid(pid[r], &ended, 0) < 0 || !WIFEXITED(ended))
      code = 1;
    else if (WEXITSTATUS(ended) != 0)
      code = WEXITSTATUS(ended);
  }
  return code;
}

static int pair(size_t n) {
  static const char *const policies[] = {"fixed:topk:0.01:ag", "fixed:topk:0.1:ag",
                                         "fixed:qsgd:0.125:ag", "fixed:fp16:0.5:ag",
                                         "fixed:qsgd:0.125:sra"};
  measured *out =
      mmap(NULL, 2 * sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int code = (void *)out == MAP_FAILED;
  for (size_t p = 0; p < sizeof policies / sizeof *policies && code == 0; p++) {
    code = both_ranks(n, policies[p], "off", &out[0]);
    if (code == 0) code = both_ranks(n, policies[p], "auto", &out[1]);
    if (code != 0) break;
    if (p == 0)
      printf("{\"elements\": %zu, \"tensors\": %d, \"ranks\": 2, \"steps\": [", n, TENSORS);
    printf(
        "%s\n  {\"policy\": \"%s\", \"host_ms\": %.3f, \"host_wire\": %llu, \"rooms_ms\": %.3f, "
        "\"rooms_wire\": %llu}",
        p > 0 ? "," : "", policies[p], out[0].ms, (unsigned long long)out[0].wire, out[1].ms,
        (unsigned long long)out[1].wire);
  }
  puts(code == SKIPPED ? "skipped: no CUDA device here" : "\n]}");
  return code;
}

int main(int argc, char *argv[]) {
  const bool two = argc > 1 && strcmp(argv[1], "--pair") == 0;
  const char *const asked = argc > 1 + two ? argv[1 + two] : "25600000";
  const size_t n = strtoull(asked, NULL, 10) / TENSORS * TENSORS;
  const size_t most = argc > 2 + two ? strtoull(argv[2 + two], NULL, 10) : 0;
  return two ? pair(n) : alone(n, most);
}

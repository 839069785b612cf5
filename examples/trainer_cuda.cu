/* trainer.c on a CUDA device: weights, gradients and averages are the device's, and nothing of the
 * loop waits for it but Weir, once a step and bucket.
 *
 *   nvcc trainer_cuda.cu -o trainer_cuda $(pkg-config --cflags --libs weir)
 *   export WEIR_SECRET=$(head -c 16 /dev/urandom | base64)
 *   ./trainer_cuda 0 2 127.0.0.1:29400 0 & ./trainer_cuda 1 2 127.0.0.1:29400 1 */
#include <cuda_runtime.h>
#include <weir/weir.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int FEATURES = 32;
constexpr int BATCH = 64;
constexpr int STEPS = 300;

static void check(weir_status status) {
  if (status != WEIR_OK) {
    std::fprintf(stderr, "trainer: %s: %s\n", weir_status_name(status), weir_last_error());
    std::exit(1);
  }
}

static void check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "trainer: CUDA: %s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

/* Uniform in [-1, 1), from where a number stands in the data. */
__device__ static float draw(unsigned long long place) {
  unsigned long long x = (place + 1) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return (float)(x >> 40) / 8388608.0f - 1.0f;
}

/* Gradient of the mean logistic loss over a fresh batch, a thread a feature.  The label is 1 where
 * the features with even numbers outweigh the others. */
__global__ static void gradient(const float *w, float *g, int rank, unsigned long long step) {
  const int mine = (int)threadIdx.x;
  float sum = 0.0f;
  for (int b = 0; b < BATCH; b++) {
    const unsigned long long sample = ((step << 8 | (unsigned)rank) * BATCH + b) * FEATURES;
    float score = 0.0f;
    float truth = 0.0f;
    for (int i = 0; i < FEATURES; i++) {
      const float x = draw(sample + i);
      score += w[i] * x;
      truth += i % 2 != 0 ? -x : x;
    }
    sum += (1.0f / (1.0f + expf(-score)) - (truth > 0.0f ? 1.0f : 0.0f)) * draw(sample + mine);
  }
  g[mine] = sum / BATCH;
}

__global__ static void update(float *w, const float *g, float rate) {
  w[threadIdx.x] -= rate * g[threadIdx.x];
}

/* What a trial puts back: the weights, which lie on the device. */
static size_t weight_bytes(void *) { return FEATURES * sizeof(float); }
static void save(void *w, void *to) {
  check(cudaMemcpy(to, w, FEATURES * sizeof(float), cudaMemcpyDeviceToHost));
}
static void load(void *w, const void *from) {
  check(cudaMemcpy(w, from, FEATURES * sizeof(float), cudaMemcpyHostToDevice));
}

/* Of all bits of the weights (FNV-1a). */
static unsigned digest(const float *w) {
  unsigned char bytes[FEATURES * sizeof *w];
  unsigned hash = 2166136261U;
  std::memcpy(bytes, w, sizeof bytes);
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 16777619U;
  return hash;
}

int main(int argc, char **argv) {
  if (argc < 5 || argc > 6) {
    std::fprintf(stderr, "usage: trainer_cuda RANK RANKS HOST:PORT DEVICE [POLICY]\n");
    return 2;
  }
  weir_options options;
  weir_options_init(&options);
  options.rank = std::atoi(argv[1]);
  options.world_size = std::atoi(argv[2]);
  options.rendezvous = argv[3];
  options.update_rule = "sgd"; /* what is done with an average below */
  options.device = std::atoi(argv[4]);
  if (argc == 6) options.policy = argv[5];

  weir_session *session;
  check(weir_session_create(&session, &options));
  float *w;
  float *g;
  check(cudaSetDevice(options.device));
  check(cudaMalloc(&w, FEATURES * sizeof *w));
  check(cudaMalloc(&g, FEATURES * sizeof *g));
  check(cudaMemset(w, 0, FEATURES * sizeof *w));

  uint32_t tensor;
  weir_step_info info = {};
  const weir_state_hooks hooks = {sizeof hooks, w, weight_bytes, save, load};
  info.struct_size = sizeof info;
  check(weir_register_tensor(session, "w", FEATURES, &tensor));
  check(weir_register_hooks(session, &hooks));
  check(weir_session_start(session));

  /* A trial's steps are rolled back and do not count. */
  for (uint64_t done = 0; done < STEPS; done = info.step + !info.trial) {
    check(weir_step_begin(session, &info));
    gradient<<<1, FEATURES>>>(w, g, options.rank, info.step);
    check(weir_submit(session, tensor, g));
    check(weir_step_end(session, &info));
    update<<<1, FEATURES>>>(w, g, 2.0f); /* on the same stream: g is the average by then */
  }

  float all[FEATURES];
  check(cudaMemcpy(all, w, sizeof all, cudaMemcpyDeviceToHost));
  std::printf("rank %d: weights %.6f %.6f ... %.6f, digest %08x\n", options.rank, all[0], all[1],
              all[FEATURES - 1], digest(all));
  weir_session_free(session);
  check(cudaFree(g));
  check(cudaFree(w));
  return 0;
}

/* The gain curve's histogram.  Energies are summed exactly, as integers: an element's mantissa,
 * squared, has at most 48 bits, so that a block can add up 2^16 of them in 64, and all blocks in
 * two words; within a bin all elements have the same exponent.  The result does not depend on the
 * order of anything. */
#include <cmath>
#include <cstdlib>

#include "kernels/cuda/device.cuh"

extern "C" {
void weir_gain_curve_load(weir_gain_curve *curve, size_t n, const uint64_t *count,
                          const double *energy);
}

static_assert(WEIR_CUDA_GAIN_BINS == WEIR_GAIN_BINS, "the same bins");
constexpr unsigned HALF = WEIR_GAIN_BINS / 2; /* bins of a block: what shared memory holds */
constexpr size_t CHUNK = 65536;

struct gain_run {
  uint32_t bin;
  uint32_t count;
  unsigned long long square;
};

__device__ static inline void flush(gain_run run, unsigned long long *square, uint32_t *count) {
  if (run.count > 0) {
    atomicAdd(&square[run.bin], run.square);
    atomicAdd(&count[run.bin], run.count);
  }
}

/* Even blocks count the lower half of the bins, odd ones the upper. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    histogram(const float *e, size_t n, weir_cuda_gain_bin *bins) {
  __shared__ unsigned long long square[HALF];
  __shared__ uint32_t count[HALF];
  uint32_t first = blockIdx.x % 2 * HALF;
  for (size_t begin = blockIdx.x / 2 * CHUNK; begin < n; begin += gridDim.x / 2 * CHUNK) {
    for (unsigned b = threadIdx.x; b < HALF; b += WEIR_CUDA_BLOCK) {
      square[b] = 0;
      count[b] = 0;
    }
    __syncthreads();
    size_t end = begin + CHUNK < n ? begin + CHUNK : n;
    gain_run run = {0, 0, 0};
    for (size_t i = begin + threadIdx.x; i < end; i += WEIR_CUDA_BLOCK) {
      uint32_t bits = weir_magnitude(e[i]);
      uint32_t bin = (bits >> WEIR_GAIN_SHIFT) - first;
      if (bin >= HALF) {
        continue; /* the other block's */
      }
      if (bin != run.bin) {
        flush(run, square, count);
        run = gain_run{bin, 0, 0};
      }
      uint32_t hidden = bits >= 0x00800000U ? 0x00800000U : 0;
      unsigned long long mantissa = (bits & 0x007fffffU) | hidden;
      run.count++;
      run.square += mantissa * mantissa;
    }
    flush(run, square, count);
    __syncthreads();
    for (unsigned b = threadIdx.x; b < HALF; b += WEIR_CUDA_BLOCK) {
      if (count[b] > 0) {
        weir_cuda_gain_bin *to = &bins[first + b];
        atomicAdd((unsigned long long *)&to->low, square[b] & 0xffffffffULL);
        atomicAdd((unsigned long long *)&to->high, square[b] >> 32);
        atomicAdd((unsigned long long *)&to->count, (unsigned long long)count[b]);
      }
    }
    __syncthreads();
  }
}

weir_status weir_cuda_gain_histogram(weir_cuda *cuda, const float *e, size_t n,
                                     weir_cuda_gain_bin *bins) {
  weir_status status = weir_cuda_clear(cuda, bins, WEIR_CUDA_GAIN_BINS * sizeof *bins);
  if (status != WEIR_OK || n == 0) return status;
  return weir_cuda_launch(cuda, "gain curve", 2 * weir_cuda_grid(cuda, n, CHUNK), WEIR_CUDA_BLOCK,
                          histogram, e, n, bins);
}

weir_status weir_cuda_gain_curve(const weir_cuda_gain_bin *bins, size_t n, weir_gain_curve *curve) {
  uint64_t *count = (uint64_t *)malloc(WEIR_GAIN_BINS * sizeof *count);
  double *energy = (double *)malloc(WEIR_GAIN_BINS * sizeof *energy);
  weir_status status = WEIR_OK;
  if (count == NULL || energy == NULL) {
    status = weir_fail(WEIR_E_NOMEM, "no memory for a gain curve");
    goto done;
  }
  for (unsigned b = 0; b < WEIR_GAIN_BINS; b++) {
    int exponent = (int)(b >> (23 - WEIR_GAIN_SHIFT));
    double sum = ldexp((double)bins[b].high, 32) + (double)bins[b].low;
    count[b] = bins[b].count;
    energy[b] = ldexp(sum, 2 * ((exponent > 0 ? exponent : 1) - 150));
  }
  weir_gain_curve_load(curve, n, count, energy);
done:
  free(count);
  free(energy);
  return status;
}

/* powersgd (PowerSGD, Vogels et al. 2019, algorithms 1 and 2): the parts of kernels/powersgd.h, on
 * the device.  M has rows x columns elements, row after row; P and Q column after column.
 *
 * The products read M once for each four columns.  Their sums run in the CPU's order where that
 * leaves enough to do at a time: a row times Q in 16 lanes; a column times P row after row, which
 * is split into stripes of rows, added in order, only where there are more rows than a
 * stripe has. */
#include "kernels/cuda/device.cuh"

constexpr unsigned LANES = 16;
constexpr unsigned AT_ONCE = 4;  /* columns of P or Q */
constexpr unsigned STRIPE = 512; /* rows */

/* Sixteen threads a row; thread l adds up the elements l, l + 16, .., and the sums meet in halves.
 * Lanes without a row, too, take part in the exchange. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    project(const float *m, size_t rows, size_t columns, const float *q, size_t stride,
            unsigned rank, float *p) {
  size_t row = ((size_t)blockIdx.x * WEIR_CUDA_BLOCK + threadIdx.x) / LANES;
  unsigned lane = threadIdx.x % LANES;
  const float *from = m + row * columns;
  for (unsigned first = 0; first < rank; first += AT_ONCE) {
    float sum[AT_ONCE] = {0.0F, 0.0F, 0.0F, 0.0F};
    for (size_t j = lane; row < rows && j < columns; j += LANES) {
      float x = from[j];
      for (unsigned k = 0; k < AT_ONCE; k++) {
        if (first + k < rank) sum[k] += x * q[(first + k) * stride + j];
      }
    }
    for (unsigned k = 0; k < AT_ONCE; k++) {
      for (unsigned width = LANES / 2; width > 0; width /= 2)
        sum[k] += __shfl_down_sync(WEIR_ALL_LANES, sum[k], width, LANES);
      if (lane == 0 && row < rows && first + k < rank) p[(first + k) * rows + row] = sum[k];
    }
  }
}

/* A thread a column of M and stripe of rows.  Stripe s of column k goes to out[s][k]. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    project_back(const float *m, size_t rows, size_t columns, const float *p, unsigned rank,
                 float *out) {
  size_t across = (columns + WEIR_CUDA_BLOCK - 1) / WEIR_CUDA_BLOCK;
  size_t j = blockIdx.x % across * WEIR_CUDA_BLOCK + threadIdx.x;
  size_t stripe = blockIdx.x / across;
  size_t end = (stripe + 1) * STRIPE < rows ? (stripe + 1) * STRIPE : rows;
  if (j >= columns) return;
  float sum[AT_ONCE] = {0.0F, 0.0F, 0.0F, 0.0F};
  for (size_t i = stripe * STRIPE; i < end; i++) {
    float x = m[i * columns + j];
    for (unsigned k = 0; k < AT_ONCE; k++) {
      if (k < rank) sum[k] += x * p[k * rows + i];
    }
  }
  for (unsigned k = 0; k < AT_ONCE && k < rank; k++)
    out[(stripe * rank + k) * columns + j] = sum[k];
}

/* Adds the stripes up in order; count = rank * columns. */
__global__ static void add_stripes(const float *partial, size_t stripes, size_t count, float *q) {
  WEIR_CUDA_EACH(i, count) {
    float sum = partial[i];
    for (size_t s = 1; s < stripes; s++) sum += partial[s * count + i];
    q[i] = sum;
  }
}

__global__ static void expand(const float *p, size_t rows, const float *q, size_t columns,
                              unsigned rank, float *to, bool subtract) {
  WEIR_CUDA_EACH(at, rows * columns) {
    uint32_t i = (uint32_t)at / (uint32_t)columns; /* all below 2^32, and so divided the faster */
    uint32_t j = (uint32_t)at % (uint32_t)columns;
    float sum = 0.0F;
    for (unsigned k = 0; k < rank; k++) sum += q[k * columns + j] * p[k * rows + i];
    to[at] = subtract ? to[at] - sum : sum;
  }
}

/* --- the host's side ------------------------------------------------------------------------- */

size_t weir_cuda_powersgd_partial(size_t n) {
  return n / (STRIPE / (2 * AT_ONCE)); /* stripes <= 2 rows / STRIPE where there are two or more */
}

static weir_status ready(const weir_cuda *cuda, size_t rows, size_t columns, size_t rank) {
  if (rank < 1 || rank > WEIR_POWERSGD_RANK_MAX) {
    return weir_fail(WEIR_E_INVALID, "powersgd takes rank 1 to %d, not %zu", WEIR_POWERSGD_RANK_MAX,
                     rank);
  }
  if (columns > 0 && rows > UINT32_MAX / columns) {
    return weir_fail(WEIR_E_UNSUPPORTED, "a matrix of %zu x %zu elements is too large", rows,
                     columns);
  }
  return weir_cuda_ready(cuda, rows * columns, 0);
}

weir_status weir_cuda_powersgd_project(weir_cuda *cuda, const float *m, size_t rows, size_t columns,
                                       const float *q, size_t stride, size_t rank, float *p) {
  weir_status status = ready(cuda, rows, columns, rank);
  size_t blocks = (rows * LANES + WEIR_CUDA_BLOCK - 1) / WEIR_CUDA_BLOCK;
  return status == WEIR_OK && rows > 0
             ? weir_cuda_launch(cuda, "projecting", blocks, WEIR_CUDA_BLOCK, project, m, rows,
                                columns, q, stride, (unsigned)rank, p)
             : status;
}

weir_status weir_cuda_powersgd_project_back(weir_cuda *cuda, const float *m, size_t rows,
                                            size_t columns, const float *p, size_t rank, float *q) {
  weir_status status = ready(cuda, rows, columns, rank);
  size_t stripes = rows > 0 ? (rows + STRIPE - 1) / STRIPE : 1;
  size_t across = (columns + WEIR_CUDA_BLOCK - 1) / WEIR_CUDA_BLOCK;
  for (size_t first = 0; first < rank && columns > 0 && status == WEIR_OK; first += AT_ONCE) {
    size_t part = rank - first < AT_ONCE ? rank - first : AT_ONCE;
    float *to = q + first * columns;
    status = weir_cuda_launch(cuda, "projecting back", across * stripes, WEIR_CUDA_BLOCK,
                              project_back, m, rows, columns, p + first * rows, (unsigned)part,
                              stripes > 1 ? cuda->partial : to);
    if (status == WEIR_OK && stripes > 1) {
      status = weir_cuda_launch(
          cuda, "projecting back", weir_cuda_grid(cuda, part * columns, WEIR_CUDA_BLOCK),
          WEIR_CUDA_BLOCK, add_stripes, cuda->partial, stripes, part * columns, to);
    }
  }
  return status;
}

weir_status weir_cuda_powersgd_expand(weir_cuda *cuda, const float *p, size_t rows, const float *q,
                                      size_t columns, size_t rank, float *to, bool subtract) {
  weir_status status = ready(cuda, rows, columns, rank);
  return status == WEIR_OK && rows * columns > 0
             ? weir_cuda_launch(
                   cuda, "expanding", weir_cuda_grid(cuda, rows * columns, 4 * WEIR_CUDA_BLOCK),
                   WEIR_CUDA_BLOCK, expand, p, rows, q, columns, (unsigned)rank, to, subtract)
             : status;
}

/* Decoding qsgd's messages (qsgd.cuh), as many as there are in one pass. */
#include "kernels/cuda/qsgd.cuh"

/* Header and scales of messages from the wire: nothing is decoded from a bad one. */
__global__ static void check(weir_intake in, weir_qsgd_form form, unsigned parts, uint32_t *fault) {
  bool l2 = (form.mode & WEIR_QSGD_L2) != 0;
  bool good = true;
  const weir_member me = weir_member_of(in.series, form.n, parts, 0);
  const size_t step_by = (size_t)parts * blockDim.x;
  size_t units = (me.n + form.bucket - 1) / form.bucket;
  for (uint32_t m = 0; m < in.count; m++) {
    const uint8_t *message = in.first + m * in.pitch + me.number * in.series.each;
    bool aligned = weir_qsgd_aligned(form, message);
    if (me.part == 0 && threadIdx.x < WEIR_MESSAGE_HEADER)
      good = good &&
             message[threadIdx.x] == weir_header_byte(weir_qsgd_header(form, me.n), threadIdx.x);
    for (size_t unit = (size_t)me.part * blockDim.x + threadIdx.x; unit < units; unit += step_by) {
      const uint8_t *from = message + WEIR_MESSAGE_HEADER + unit * form.unit_bytes;
      float step = weir_load_float(from, aligned);
      double base = l2 ? 0.0 : fabs((double)weir_load_float(from + sizeof(float), aligned));
      good = good && step >= 0.0F && (double)step * form.levels + base <= (double)FLT_MAX;
    }
  }
  if (!good) atomicOr(fault, WEIR_FAULT_MESSAGE);
}

__device__ static inline uint64_t load_group(const uint8_t *from, unsigned bits, bool aligned) {
  uint64_t w = 0;
  if (aligned && bits == 4) {
    w = *(const uint32_t *)from;
  } else {
    for (unsigned b = 0; b < bits; b++) w |= (uint64_t)from[b] << 8 * b;
  }
  return weir_unpack8(w, bits);
}

/* A thread's elements of a piece of a message, stored or added to sum. */
template <bool L2>
__device__ static inline void add_piece(const weir_qsgd_form &form, const weir_qsgd_bucket &at,
                                        const uint8_t *message, unsigned piece, uint64_t *group,
                                        bool add, float sum[WEIR_QSGD_EACH]) {
  unsigned lane = threadIdx.x % WEIR_QSGD_LANES;
  bool aligned = weir_qsgd_aligned(form, message);
  const uint8_t *from = message + WEIR_MESSAGE_HEADER + at.unit * form.unit_bytes;
  float step = at.count > 0 ? weir_load_float(from, aligned) : 0.0F;
  float base = !L2 && at.count > 0 ? weir_load_float(from + sizeof(float), aligned) : 0.0F;
  unsigned top = L2 ? 2U * form.levels : form.levels;
  float zero = L2 ? (float)form.levels : 0.0F;
  __syncwarp(); /* the last piece's codes have been read */
  if (piece * WEIR_QSGD_PIECE + 8 * lane < at.count) {
    group[lane] = load_group(from + form.scale_bytes + (piece * WEIR_QSGD_LANES + lane) * form.bits,
                             form.bits, aligned);
  }
  __syncwarp();
  for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) {
    unsigned in_piece = lane + WEIR_QSGD_LANES * j;
    if (piece * WEIR_QSGD_PIECE + in_piece < at.count) {
      unsigned code = ((const uint8_t *)group)[in_piece];
      float value = weir_qsgd_value(code < top ? code : top, base, step, zero);
      sum[j] = add ? sum[j] + value : value;
    }
  }
}

template <bool L2>
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    decode(weir_intake in, weir_qsgd_form form, unsigned parts, const uint32_t *fault) {
  __shared__ uint64_t codes[WEIR_QSGD_BUCKETS][WEIR_QSGD_PIECE / 8]; /* a byte each */
  if (*fault != 0) return;
  const weir_member me = weir_member_of(in.series, form.n, parts, 0);
  in.to += me.at;
  in.first += me.number * in.series.each;
  weir_qsgd_bucket at = weir_qsgd_place(form, me.n, me.part);
  float *to = in.to + at.begin;
  bool finite = true;
  for (unsigned piece = 0; piece < weir_qsgd_pieces(form); piece++) {
    float sum[WEIR_QSGD_EACH];
    for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) {
      uint32_t i = piece * WEIR_QSGD_PIECE + threadIdx.x % WEIR_QSGD_LANES + WEIR_QSGD_LANES * j;
      sum[j] = in.add && i < at.count ? to[i] : 0.0F;
    }
    for (uint32_t m = 0; m < in.count; m++) {
      add_piece<L2>(form, at, in.first + m * in.pitch, piece, codes[threadIdx.x / WEIR_QSGD_LANES],
                    in.add || m > 0, sum);
    }
    for (unsigned j = 0; j < WEIR_QSGD_EACH; j++) {
      uint32_t i = piece * WEIR_QSGD_PIECE + threadIdx.x % WEIR_QSGD_LANES + WEIR_QSGD_LANES * j;
      if (i < at.count) finite = weir_publish(in, sum[j], &to[i]) && finite;
    }
  }
  weir_report_overflow(in, finite);
}

weir_status weir_cuda_qsgd_take(weir_cuda *cuda, const weir_intake &in, size_t n,
                                weir_qsgd_options options) {
  weir_status status = weir_qsgd_ready(n, options);
  if (status != WEIR_OK) return status;
  weir_qsgd_form form = weir_qsgd_form_of(n, options);
  if (in.bytes != weir_qsgd_series_bytes(form, in.series))
    return weir_fail(WEIR_E_PROTOCOL, "malformed qsgd message: wrong length");
  const size_t count = weir_series_count(in.series, n);
  const size_t buckets = weir_series_block(in.series, n) / form.bucket + 1;
  const size_t checked = weir_cuda_grid(cuda, buckets, WEIR_CUDA_BLOCK);
  status = weir_cuda_launch(cuda, "checking qsgd", count * checked, WEIR_CUDA_BLOCK, check, in,
                            form, (unsigned)checked, cuda->fault);
  auto kernel = options.l2 ? decode<true> : decode<false>;
  const size_t parts = (buckets + WEIR_QSGD_BUCKETS - 1) / WEIR_QSGD_BUCKETS;
  return status == WEIR_OK ? weir_cuda_launch(cuda, "qsgd", count * parts, WEIR_CUDA_BLOCK, kernel,
                                              in, form, (unsigned)parts, cuda->fault)
                           : status;
}

weir_status weir_cuda_qsgd_decode(weir_cuda *cuda, const void *message, size_t bytes, size_t n,
                                  weir_qsgd_options options, float *to, bool add) {
  const weir_intake in = {(const uint8_t *)message, bytes, 0, 1, add, to, 1.0F, NULL, {}};
  return weir_cuda_qsgd_take(cuda, in, n, options);
}

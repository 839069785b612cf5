/* Decoding qsgd's messages (qsgd.cuh). */
#include "kernels/cuda/qsgd.cuh"

weir_status weir_cuda_qsgd_take(weir_cuda *cuda, const weir_intake &in, size_t n,
                                weir_qsgd_options options) {
  const weir_status status = weir_qsgd_ready(n, options);
  if (status != WEIR_OK) return status;
  auto decode = options.l2 ? weir_buckets_decode_on<weir_qsgd<true, false>>
                           : weir_buckets_decode_on<weir_qsgd<false, false>>;
  return decode(cuda, in, weir_qsgd_form(n, options));
}

weir_status weir_cuda_qsgd_decode(weir_cuda *cuda, const void *message, size_t bytes, size_t n,
                                  weir_qsgd_options options, float *to, bool add) {
  const weir_intake in = {(const uint8_t *)message, bytes, 0, 1, add, to, 1.0F, NULL, {}};
  return weir_cuda_qsgd_take(cuda, in, n, options);
}

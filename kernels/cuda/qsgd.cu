/* Encoding by qsgd (qsgd.cuh), and what that loses. */
#include "kernels/cuda/qsgd.cuh"

weir_status weir_cuda_qsgd_feed(weir_cuda *cuda, const weir_feed &feed, size_t n,
                                weir_qsgd_options options, uint64_t seed, void *out,
                                size_t capacity, size_t *bytes) {
  *bytes = 0;
  const weir_status status = weir_qsgd_ready(n, options);
  if (status != WEIR_OK) return status;
  auto encode = options.l2        ? options.nearest ? weir_buckets_encode_on<weir_qsgd<true, true>>
                                                    : weir_buckets_encode_on<weir_qsgd<true, false>>
                       : options.nearest ? weir_buckets_encode_on<weir_qsgd<false, true>>
                                  : weir_buckets_encode_on<weir_qsgd<false, false>>;
  return encode(cuda, feed, weir_qsgd_form(n, options), seed, out, capacity, bytes);
}

weir_status weir_cuda_qsgd_encode(weir_cuda *cuda, const float *e, size_t n,
                                  weir_qsgd_options options, uint64_t seed, void *out,
                                  size_t capacity, size_t *bytes) {
  const weir_feed feed = {e, NULL, NULL, NULL, NULL, {}};
  return weir_cuda_qsgd_feed(cuda, feed, n, options, seed, out, capacity, bytes);
}

/* The table of codecs on the device, and selecting, encoding and decoding by it. */
#include "kernels/cuda/codecs.cuh"

extern "C" {
/* kernels/internal.h, which is C alone. */
weir_status weir_select_check(const weir_layout *layout, double cr, size_t kept, size_t capacity);
}

/* --- qsgd's four codecs ---------------------------------------------------------------------- */

/* Of a plan: what is no whole number of bits gives 0 of them, which is refused. */
template <bool L2, bool NEAREST>
static weir_qsgd_options options_of(const weir_cuda *cuda, double cr) {
  uint32_t bucket = cuda->bucket_log2 == 0 ? 128 : 1U << cuda->bucket_log2;
  return weir_qsgd_options{weir_code_bits(cr, 2, 8), bucket, NEAREST, L2};
}

template <bool L2, bool NEAREST>
static weir_status qsgd_encode(weir_cuda *cuda, const weir_feed &feed, const weir_layout *layout,
                               double cr, uint64_t seed, void *out, size_t capacity,
                               size_t *bytes) {
  return weir_cuda_qsgd_feed(cuda, feed, layout->offset[layout->tensors],
                             options_of<L2, NEAREST>(cuda, cr), seed, out, capacity, bytes);
}

template <bool L2, bool NEAREST>
static weir_status qsgd_decode(weir_cuda *cuda, const weir_intake &in, const weir_layout *layout,
                               double cr) {
  return weir_cuda_qsgd_take(cuda, in, layout->offset[layout->tensors],
                             options_of<L2, NEAREST>(cuda, cr));
}

/* --- the table ------------------------------------------------------------------------------- */

/* The codecs that have operations here, which their rows say (kernels/codec.h).  none and bf16 go
 * through an all-reduce, powersgd in parts: what they need are functions of cuda.h. */
static const weir_cuda_codec codecs[] = {
    {WEIR_CODEC_LWTOPK, weir_cuda_pick_topk, 0, NULL, NULL},
    {WEIR_CODEC_MSTOPK, weir_cuda_pick_mstopk, 1, NULL, NULL},
    {WEIR_CODEC_TOPK, weir_cuda_pick_topk, 0, NULL, NULL},
    {WEIR_CODEC_STAR, weir_cuda_pick_topk, 0, NULL, NULL},
    {WEIR_CODEC_VAR, weir_cuda_pick_topk, 0, NULL, NULL},
    {WEIR_CODEC_FP16, NULL, 0, weir_cuda_fp16_encode, weir_cuda_fp16_decode},
    {WEIR_CODEC_QSGD, NULL, 0, qsgd_encode<false, false>, qsgd_decode<false, false>},
    {WEIR_CODEC_TERNGRAD, NULL, 0, weir_cuda_terngrad_encode, weir_cuda_terngrad_decode},
    {WEIR_CODEC_ONEBIT, NULL, 0, weir_cuda_onebit_encode, weir_cuda_onebit_decode},
    {WEIR_CODEC_EFSIGNSGD, NULL, 0, weir_cuda_efsignsgd_encode, weir_cuda_efsignsgd_decode},
    {WEIR_CODEC_DGC, weir_cuda_pick_dgc, 0, NULL, NULL},
    {WEIR_CODEC_SIDCO, weir_cuda_pick_sidco, 0, NULL, NULL},
    {WEIR_CODEC_RANDOMK, weir_cuda_pick_randomk, 0, NULL, NULL},
    {WEIR_CODEC_QSGD_NEAREST, NULL, 0, qsgd_encode<false, true>, qsgd_decode<false, true>},
    {WEIR_CODEC_QSGD_L2, NULL, 0, qsgd_encode<true, false>, qsgd_decode<true, false>},
    {WEIR_CODEC_QSGD_L2_NEAREST, NULL, 0, qsgd_encode<true, true>, qsgd_decode<true, true>},
    {WEIR_CODEC_MINIFLOAT, NULL, 0, weir_cuda_minifloat_encode, weir_cuda_minifloat_decode},
    {WEIR_CODEC_COMPANDED, NULL, 0, weir_cuda_companded_encode, weir_cuda_companded_decode},
};

/* The codec's row if it has what is asked for. */
static weir_status find(uint32_t id, bool selects, const weir_cuda_codec **out) {
  *out = NULL;
  for (const weir_cuda_codec &codec : codecs) {
    if (codec.id == id && (selects ? codec.pick != NULL : codec.encode != NULL)) {
      *out = &codec;
      return WEIR_OK;
    }
  }
  return weir_fail(WEIR_E_UNSUPPORTED, "codec %u does not %s", id, selects ? "select" : "encode");
}

/* What every selection checks first. */
static weir_status check(const weir_cuda *cuda, const weir_cuda_codec *codec,
                         const weir_cuda_fed *fed, const weir_layout *layout, double cr, size_t k,
                         size_t capacity) {
  size_t n = layout->offset[layout->tensors];
  weir_status status = weir_select_check(layout, cr, k, capacity);
  if (status == WEIR_OK && n > 0 && (fed->g == NULL) != (fed->r == NULL))
    return weir_fail(WEIR_E_INVALID, "a gradient without a residual, or the other way round");
  size_t room = k + codec->spare <= n ? k + codec->spare : k;
  return status == WEIR_OK ? weir_cuda_ready(cuda, n, room) : status;
}

weir_status weir_cuda_select(weir_cuda *cuda, uint32_t codec, const weir_cuda_fed *fed,
                             const weir_layout *layout, double cr, uint64_t seed, uint32_t *index,
                             float *value, size_t capacity, size_t *k) {
  const weir_cuda_codec *row;
  *k = 0;
  weir_status status = find(codec, true, &row);
  if (status != WEIR_OK) return status;
  size_t n = layout->offset[layout->tensors];
  size_t kept = weir_codecs[codec]->kept(layout, cr);
  status = check(cuda, row, fed, layout, cr, kept, capacity);
  if (status != WEIR_OK) return status;
  /* Moments are made on the way of e = g + r; of no elements, by themselves. */
  bool fused = fed->r != NULL;
  weir_pick pick = {
      fed->g, fed->r, fed->e, n, kept, 0, index, value, fused, fused ? fed->moments : NULL, seed};
  if (kept == 0) {
    status = weir_cuda_ef_accumulate(cuda, NULL, NULL, NULL, 0, fed->moments);
  } else {
    status = weir_codecs[codec]->by_tensor
                 ? weir_cuda_select_tensors(cuda, pick, layout, cr, row->pick)
                 : row->pick(cuda, pick);
  }
  *k = status == WEIR_OK ? kept : 0;
  return status;
}

/* --- encoders -------------------------------------------------------------------------------- */

/* One block. */
__global__ static void __launch_bounds__(WEIR_CUDA_BLOCK)
    fold_fed(const weir_sums *sums, size_t count, weir_moments *moments, weir_moments *lost) {
  weir_sums all = weir_fold_sums(sums, count);
  if (threadIdx.x == 0 && moments != NULL)
    *moments = weir_moments{all.sum[WEIR_FED_SUM], all.sum[WEIR_FED_SQUARE], (size_t)all.count};
  if (threadIdx.x == 0 && lost != NULL) *lost = weir_moments{0.0, all.sum[WEIR_FED_LOST], 0};
}

weir_status weir_cuda_fold_fed(weir_cuda *cuda, const weir_sums *sums, size_t count,
                               weir_moments *moments, weir_moments *lost) {
  return weir_cuda_launch(cuda, "adding up", 1, WEIR_CUDA_BLOCK, fold_fed, sums, count, moments,
                          lost);
}

static weir_status encode(weir_cuda *cuda, uint32_t codec, const weir_feed &feed,
                          const weir_layout *layout, double cr, uint64_t seed, void *out,
                          size_t capacity, size_t *bytes) {
  const weir_cuda_codec *row;
  *bytes = 0;
  weir_status status = find(codec, false, &row);
  return status == WEIR_OK ? row->encode(cuda, feed, layout, cr, seed, out, capacity, bytes)
                           : status;
}

weir_status weir_cuda_encode(weir_cuda *cuda, uint32_t codec, const float *e,
                             const weir_layout *layout, double cr, uint64_t seed, void *out,
                             size_t capacity, size_t *bytes) {
  const weir_feed feed = {e, NULL, NULL, NULL, NULL, {}};
  return encode(cuda, codec, feed, layout, cr, seed, out, capacity, bytes);
}

weir_status weir_cuda_ef_encode(weir_cuda *cuda, uint32_t codec, const weir_cuda_fed *fed,
                                const weir_layout *layout, double cr, uint64_t seed, void *out,
                                size_t capacity, size_t *bytes, weir_moments *lost) {
  bool given = fed->g == NULL;
  const weir_feed feed = {given ? fed->e : fed->g,     fed->r, fed->e,
                          given ? NULL : fed->moments, lost,   {}};
  *bytes = 0;
  const bool apart = codec < WEIR_CODEC_COUNT && weir_codecs[codec]->by_tensor;
  if ((given && fed->r != NULL) || (!given && fed->r == NULL && apart) || lost == NULL)
    return weir_fail(WEIR_E_INVALID, "a gradient without a residual, or the other way round");
  weir_status status = weir_cuda_ready(cuda, layout->offset[layout->tensors], 0);
  return status == WEIR_OK ? encode(cuda, codec, feed, layout, cr, seed, out, capacity, bytes)
                           : status;
}

/* Of what tells tensors apart: a message has to be all of them. */
static weir_status check_series(uint32_t codec, const weir_cuda_series *series) {
  if (codec < WEIR_CODEC_COUNT && weir_codecs[codec]->by_tensor)
    return weir_fail(WEIR_E_UNSUPPORTED, "codec %u takes what is lost off e in its place", codec);
  return series->block > 0 && series->block % WEIR_TILE == 0
             ? WEIR_OK
             : weir_fail(WEIR_E_INVALID, "messages of %zu elements", series->block);
}

weir_status weir_cuda_encode_series(weir_cuda *cuda, uint32_t codec, const float *x, size_t n,
                                    const weir_cuda_series *series, double cr, void *out,
                                    size_t capacity, size_t *bytes, float *left,
                                    weir_moments *lost) {
  const weir_feed feed = {x, NULL, left, NULL, lost, {series->block, series->each}};
  const size_t offset[2] = {0, n};
  const weir_layout layout = {1, offset};
  *bytes = 0;
  weir_status status = check_series(codec, series);
  if (status == WEIR_OK) status = weir_cuda_ready(cuda, n, 0);
  return status == WEIR_OK
             ? encode(cuda, codec, feed, &layout, cr, series->draws, out, capacity, bytes)
             : status;
}

static weir_status decode(weir_cuda *cuda, uint32_t codec, const weir_intake &in,
                          const weir_layout *layout, double cr) {
  const weir_cuda_codec *row;
  weir_status status = find(codec, false, &row);
  return status == WEIR_OK ? row->decode(cuda, in, layout, cr) : status;
}

weir_status weir_cuda_decode(weir_cuda *cuda, uint32_t codec, const void *message, size_t bytes,
                             const weir_layout *layout, double cr, float *to, bool add) {
  const weir_intake in = {(const uint8_t *)message, bytes, 0, 1, add, to, 1.0F, NULL, {}};
  return decode(cuda, codec, in, layout, cr);
}

weir_status weir_cuda_decode_series(weir_cuda *cuda, uint32_t codec, const void *messages,
                                    size_t bytes, size_t n, const weir_cuda_series *series,
                                    double cr, float *to, bool add) {
  const weir_intake in = {(const uint8_t *)messages,    bytes, 0, 1, add, to, 1.0F, NULL,
                          {series->block, series->each}};
  const size_t offset[2] = {0, n};
  const weir_layout layout = {1, offset};
  const weir_status status = check_series(codec, series);
  return status == WEIR_OK ? decode(cuda, codec, in, &layout, cr) : status;
}

weir_status weir_cuda_decode_sum(weir_cuda *cuda, uint32_t codec,
                                 const weir_cuda_messages *messages, const weir_layout *layout,
                                 double cr, float *to, float share, uint32_t *overflow) {
  if (messages->count == 0 || messages->count > UINT32_MAX)
    return weir_fail(WEIR_E_INVALID, "a sum of %zu messages", messages->count);
  const weir_intake in = {(const uint8_t *)messages->first,
                          messages->bytes,
                          messages->pitch,
                          (uint32_t)messages->count,
                          false,
                          to,
                          share,
                          overflow,
                          {}};
  return decode(cuda, codec, in, layout, cr);
}

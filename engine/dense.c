/* Every element, summed in place by an all-reduce: as fp32, as bf16 with the rounding kept back, or
 * as an encoder's messages; and HiTopKComm, which sums inside of machines and selects from that.
 *
 * What earlier plans left in the residuals is part of e, so a sum flushes it.  Encoding and
 * selecting are part of the hops, so all of it counts as communication. */
#include <math.h>

#include "base/base.h"
#include "base/schemes.h"
#include "engine/backend.h"

/* Sum and loss of all elements go to where they belong, and nothing is left to settle. */
weir_status weir_bucket_store(weir_bucket *bucket) {
  const weir_status status = bucket->engine->backend->store(bucket, bucket->summed);
  bucket->settled = status == WEIR_OK;
  weir_lap_compress(bucket);
  return status;
}

weir_status weir_exchange_dense(weir_bucket *bucket, weir_headers *headers) {
  const weir_engine *engine = bucket->engine;
  const weir_status status =
      weir_sum_run(&bucket->sum, engine->config.comm, bucket->summed, bucket->n,
                   bucket->lost != NULL ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32, bucket->lost, headers);
  weir_lap_comm(bucket);
  return status == WEIR_OK ? weir_bucket_store(bucket) : status;
}

/* Partial sums travel as messages, and whoever encodes keeps what that loses, of its own gradient
 * and of the sums that it encodes again. */
weir_coder weir_bucket_coder(const weir_bucket *bucket) {
  const uint64_t words[2] = {bucket->engine->turn, bucket->number};
  return (weir_coder){.codec = bucket->codec,
                      .context = bucket->context,
                      .cr = bucket->plan.cr,
                      .bucket_log2 = bucket->plan.bucket_log2,
                      .seed = weir_hash(WEIR_HASH_INIT, words, sizeof words),
                      .ops = bucket->parts ? bucket->engine->backend->coder : NULL,
                      .user = (void *)bucket,
                      .room = bucket->parts ? bucket->room : NULL,
                      .native = weir_sums_inside_natively(&bucket->plan),
                      .stays = bucket->parts && bucket->stays,
                      .huffman = bucket->plan.wire == WEIR_WIRE_HUFFMAN};
}

weir_status weir_exchange_compressed(weir_bucket *bucket, weir_headers *headers) {
  weir_passage *passage = &bucket->passage;
  weir_coder coder = weir_bucket_coder(bucket);
  coder.shortened = &passage->shortened;
  const weir_status status = bucket->compressed->run(
      bucket->engine->config.comm, &coder, bucket->summed, bucket->n, bucket->lost, headers);
  weir_lap_comm(bucket);
  if (status != WEIR_OK) return status;
  if (bucket->stays) passage->extra_bytes = -bucket->terms.byte_terms;
  bucket->settled = bucket->parts; /* and the backend knows what is lost */
  if (bucket->parts) return WEIR_OK;
  const weir_status stored = weir_bucket_store(bucket);
  const double lost = weir_sum_square(bucket->lost, bucket->n);
  passage->kept_square = fmax(passage->moments.sum_square - lost, 0);
  return stored;
}

/* A machine's residual lies with the rank that selected from that part of its sum.  The gain is
 * that of the machines' sums: what of them was sent, told as part of this rank's own. */
weir_status weir_exchange_hitopk(weir_bucket *bucket, weir_headers *headers) {
  const weir_engine *engine = bucket->engine;
  float *const next = engine->host.next;
  weir_hitopk_away away = {0};
  weir_hitopk_told told = {.sent = bucket->stale};
  if (bucket->parts) {
    away = *engine->backend->away;
    away.user = bucket;
    away.room = bucket->room + bucket->stride;
    told.away = &away;
  }
  const weir_status status = weir_hitopk(engine->config.comm, bucket->codec, bucket->context,
                                         bucket->plan.cr, (weir_wire_format)bucket->plan.wire,
                                         bucket->fed, next != NULL ? next + bucket->at : NULL,
                                         bucket->n, bucket->summed, &told, headers);
  bucket->stale_count = told.sent_count;
  weir_lap_comm(bucket);
  if (status != WEIR_OK) return status;
  bucket->passage.kept_square = told.share * bucket->passage.moments.sum_square;
  bucket->passage.extra_bytes = told.bytes - bucket->terms.byte_terms;
  return weir_bucket_store(bucket);
}

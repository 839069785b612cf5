/* Gathering: what each rank sends, kept elements or its encoded gradient, is all-gathered and added
 * up in rank order. */
#include "base/base.h"
#include "engine/backend.h"

/* Draws differ from rank to rank, step to step and bucket to bucket, follow from these alone, and
 * are drawn again alike after a trial. */
uint64_t weir_gather_seed(const weir_bucket *bucket) {
  const uint64_t words[3] = {bucket->engine->turn, (uint64_t)bucket->engine->rank, bucket->number};
  return weir_hash(WEIR_HASH_INIT, words, (bucket->number > 0 ? 3 : 2) * sizeof *words);
}

static weir_status add_up(weir_bucket *bucket) {
  const weir_engine *engine = bucket->engine;
  for (int r = 0; r < engine->size; r++) {
    const weir_status status = engine->backend->add(bucket, r);
    if (status != WEIR_OK) return weir_comm_refuse(engine->config.comm, r, status);
  }
  return WEIR_OK;
}

weir_status weir_exchange_gather(weir_bucket *bucket, weir_headers *headers) {
  weir_status status = bucket->gather->run(bucket->engine->config.comm, bucket->blocks,
                                           bucket->stride, bucket->block_bytes, headers);
  weir_lap_comm(bucket);
  if (status != WEIR_OK) return status;
  for (int r = 0; r < bucket->engine->size; r++)
    bucket->passage.gathered += (double)bucket->block_bytes[r];
  status = add_up(bucket);
  weir_lap_compress(bucket);
  return status;
}

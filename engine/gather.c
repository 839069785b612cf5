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

/* Devices take no other message, and all ranks are to drop the same steps. */
weir_status weir_gather_due(const weir_bucket *bucket, const void *message) {
  return bucket->codec->encode != NULL ? weir_plan_made(&bucket->plan, message)
                                       : weir_wire_made(bucket->kept, message);
}

static weir_status add_up(weir_bucket *bucket) {
  const weir_engine *engine = bucket->engine;
  for (int r = 0; r < engine->size; r++) {
    const weir_status status = engine->backend->add(bucket, r);
    if (status != WEIR_OK) return weir_comm_refuse(engine->config.comm, r, status);
  }
  return WEIR_OK;
}

/* Messages that stay on devices are complete once their lengths are there; 0: of zeros. */
static weir_status gather_lengths(weir_bucket *bucket, weir_headers *headers) {
  weir_engine *engine = bucket->engine;
  size_t *const bytes = bucket->block_bytes;
  uint64_t *const told = (uint64_t *)(void *)bucket->blocks;
  told[engine->rank] = bytes[engine->rank];
  bytes[engine->rank] = sizeof *told;
  const weir_status status =
      weir_allgather(engine->config.comm, told, sizeof *told, bytes, headers);
  for (int r = 0; r < engine->size && status == WEIR_OK; r++) {
    if (bytes[r] != sizeof *told || told[r] > bucket->stride)
      return weir_comm_refuse(
          engine->config.comm, r,
          weir_fail(WEIR_E_PROTOCOL, "malformed length of a message on its device: %llu, %zu bytes",
                    bytes[r] == sizeof *told ? (unsigned long long)told[r] : 0ULL, bytes[r]));
    bytes[r] = (size_t)told[r];
  }
  bucket->passage.gathered += (double)engine->size * sizeof *told;
  return status;
}

/* Of several machines each has its messages between the ranks at one place once, which then lie in
 * these ranks' rooms. */
static weir_status gather_between(weir_bucket *bucket, weir_headers *headers) {
  weir_engine *engine = bucket->engine;
  const weir_comm *comm = engine->config.comm;
  weir_status status = gather_lengths(bucket, NULL);
  for (int r = 0; r < engine->size && status == WEIR_OK; r++)
    if (weir_comm_host_of(comm, r) != weir_comm_host_of(comm, engine->rank))
      bucket->passage.gathered += (double)bucket->block_bytes[r];
  if (status == WEIR_OK) status = engine->backend->pass_on(bucket);
  return status == WEIR_OK ? weir_comm_meet(engine->config.comm, headers) : status;
}

/* --- codes by how often they occur ------------------------------------------------------------ */

weir_status weir_gather_shorten(weir_bucket *bucket, unsigned char *message, size_t *bytes) {
  if (bucket->plan.wire != WEIR_WIRE_HUFFMAN) return WEIR_OK;
  return weir_message_shorten(bucket->engine->config.comm, bucket->codec, message, bytes);
}

weir_status weir_gather_restore(weir_bucket *bucket, int r, unsigned char *message, size_t *bytes) {
  weir_shortened *const shortened = &bucket->passage.shortened;
  if (bucket->plan.wire != WEIR_WIRE_HUFFMAN) return WEIR_OK;
  shortened->sent += (double)*bytes;
  const weir_status status = weir_message_restore(bucket->engine->config.comm, bucket->codec, r,
                                                  message, bucket->n, bucket->kept, bytes);
  shortened->whole += (double)*bytes;
  return status;
}

static weir_status gather(weir_bucket *bucket, weir_headers *headers) {
  if (bucket->column != NULL) return gather_between(bucket, headers);
  if (bucket->stays) return gather_lengths(bucket, headers);
  const size_t rank = (size_t)bucket->engine->rank;
  weir_status status = weir_gather_shorten(bucket, bucket->blocks + rank * bucket->stride,
                                           &bucket->block_bytes[rank]);
  if (status != WEIR_OK) return status;
  status = bucket->gather->run(bucket->engine->config.comm, bucket->blocks, bucket->stride,
                               bucket->block_bytes, headers);
  for (int r = 0; r < bucket->engine->size && status == WEIR_OK; r++) {
    bucket->passage.gathered += (double)bucket->block_bytes[r];
    status = weir_gather_restore(bucket, r, bucket->blocks + (size_t)r * bucket->stride,
                                 &bucket->block_bytes[r]);
  }
  return status;
}

weir_status weir_exchange_gather(weir_bucket *bucket, weir_headers *headers) {
  weir_status status = gather(bucket, headers);
  weir_lap_comm(bucket);
  if (status != WEIR_OK) return status;
  status = add_up(bucket);
  weir_lap_compress(bucket);
  return status;
}

/* Paths: a bucket's exchange task by task, as its plan writes them (collectives/path.h).  e is made
 * where the sum will be; what compressing loses gathers where the next residual is. */
#include "collectives/path.h"

#include "base/base.h"
#include "engine/state.h"

weir_group_shape weir_path_shape(const weir_engine *engine) {
  const weir_comm *comm = engine->config.comm;
  const int hosts = weir_comm_levelled(comm) ? weir_comm_hosts(comm) : engine->size;
  return (weir_group_shape){engine->size, hosts, false, 0, 0};
}

/* The length of what has been compressed beforehand stands where those of messages do. */
static weir_path_run run_of(const weir_bucket *bucket) {
  const weir_path_room room =
      weir_path_room_of(&bucket->plan, weir_path_shape(bucket->engine), bucket->n);
  const weir_engine *engine = bucket->engine;
  const uint64_t words[2] = {engine->turn, bucket->number};
  return (weir_path_run){.comm = engine->config.comm,
                         .plan = &bucket->plan,
                         .context = bucket->context,
                         .seed = weir_hash(WEIR_HASH_INIT, words, sizeof words),
                         .x = bucket->summed,
                         .error = bucket->lost,
                         .n = bucket->n,
                         .room = room,
                         .buffer = {bucket->blocks, bucket->blocks + room.bytes[0]},
                         .index = bucket->index,
                         .value = bucket->value,
                         .rounded = bucket->error,
                         .bytes = bucket->block_bytes[0],
                         .share = 1};
}

weir_status weir_path_prepare(weir_bucket *bucket) {
  weir_path_run run = run_of(bucket);
  const weir_status status = weir_path_run_first(&run);
  bucket->block_bytes[0] = run.bytes;
  bucket->passage.kept_square = run.share * bucket->passage.moments.sum_square;
  return status;
}

weir_status weir_exchange_path(weir_bucket *bucket, weir_headers *headers) {
  weir_path_run run = run_of(bucket);
  const weir_status status = weir_path_run_rest(&run, headers);
  bucket->passage.kept_square *= run.share;
  weir_lap_comm(bucket);
  return status == WEIR_OK ? weir_bucket_store(bucket) : status;
}

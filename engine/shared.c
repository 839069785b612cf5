/* Shared indices (AR-Topk): one rank broadcasts its indices, or all draw the same, and all ranks
 * all-reduce their values there. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/log.h"
#include "engine/backend.h"

int weir_shared_root(const weir_bucket *bucket) {
  return (int)(bucket->engine->turn % (uint64_t)bucket->engine->size);
}

/* VAR's root: largest variance of the error-fed gradient. */
static weir_status root_of_variance(weir_bucket *bucket, int *root) {
  weir_engine *engine = bucket->engine;
  const float mine = (float)weir_variance(&bucket->passage.moments, bucket->n);
  float *const variance = bucket->value; /* rank order; nothing else is there yet */
  variance[engine->rank] = mine;
  bucket->block_bytes[engine->rank] = sizeof mine;
  weir_lap_compress(bucket);
  weir_status status = weir_allgathers[WEIR_ALLGATHER_DIRECT].run(
      engine->config.comm, variance, sizeof mine, bucket->block_bytes, NULL);
  weir_lap_comm(bucket);
  if (status != WEIR_OK) return status;
  for (int r = 0; r < engine->size; r++) {
    if (bucket->block_bytes[r] != sizeof mine) {
      status = weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu bytes where its variance takes %zu", r,
                         bucket->block_bytes[r], sizeof mine);
      return weir_engine_blame(engine, r, status);
    }
  }
  *root = weir_variance_root(variance, engine->size);
  if (weir_log_on(WEIR_LOG_TRACE)) weir_log(WEIR_LOG_TRACE, "rank %d selects for all", *root);
  return WEIR_OK;
}

/* Indices that all ranks draw alike, from the step alone: nothing to send.  Buckets draw alike too:
 * they are different elements. */
weir_status weir_shared_draw(weir_bucket *bucket) {
  size_t k = 0;
  const uint64_t turn = bucket->engine->turn;
  const uint64_t seed = weir_hash(WEIR_HASH_INIT, &turn, sizeof turn);
  bucket->listed = true;
  return bucket->codec->draw(bucket->context, &bucket->layout, bucket->plan.cr, seed, bucket->index,
                             bucket->kept, &k);
}

/* Where lists stay on devices the root's length goes to all, which each reads from its room. */
static weir_status read_list(weir_bucket *bucket, int root, size_t *bytes) {
  weir_engine *engine = bucket->engine;
  uint64_t *const told = (uint64_t *)(void *)bucket->blocks;
  size_t got = sizeof *told;
  *told = *bytes;
  weir_status status = bucket->broadcast->run(engine->config.comm, root, told, sizeof *told, &got);
  weir_lap_comm(bucket);
  if (status != WEIR_OK) return status;
  *bytes = got;
  if (got != sizeof *told || *told > bucket->stride)
    status = weir_fail(WEIR_E_PROTOCOL, "malformed length of a list on its device: %llu, %zu bytes",
                       got == sizeof *told ? (unsigned long long)*told : 0ULL, got);
  else
    status = engine->backend->read(bucket, root, (size_t)*told);
  if (status == WEIR_E_PROTOCOL) return weir_comm_refuse(engine->config.comm, root, status);
  return status == WEIR_OK ? WEIR_OK : weir_engine_blame(engine, engine->rank, status);
}

/* The root's list, *bytes of it, from it to all. */
static weir_status take_list(weir_bucket *bucket, int root, size_t *bytes) {
  weir_engine *engine = bucket->engine;
  size_t got = 0;
  if (bucket->stays) return read_list(bucket, root, bytes);
  weir_status status =
      bucket->broadcast->run(engine->config.comm, root, bucket->blocks, bucket->stride, bytes);
  weir_lap_comm(bucket);
  if (status != WEIR_OK || (bucket->listed && root == engine->rank)) return status;
  status =
      weir_wire_decode(bucket->blocks, *bytes, bucket->n, bucket->index, NULL, bucket->kept, &got);
  if (status != WEIR_OK) return weir_comm_refuse(engine->config.comm, root, status);
  if (got == bucket->kept) return WEIR_OK;
  return weir_engine_blame(
      engine, root,
      weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu indices where the plan keeps %zu", root, got,
                bucket->kept));
}

/* *bytes: that the root has sent. */
static weir_status share_indices(weir_bucket *bucket, int *root, size_t *bytes) {
  weir_engine *engine = bucket->engine;
  weir_status status = WEIR_OK;
  if (bucket->codec->by_variance) status = root_of_variance(bucket, root);
  if (status != WEIR_OK) return status;
  if (engine->rank == *root) status = engine->backend->list(bucket, bytes);
  weir_lap_compress(bucket);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  return take_list(bucket, *root, bytes);
}

/* A list may be longer or shorter than was to be expected, or stay where it is. */
static void count_list(weir_bucket *bucket, size_t bytes) {
  const double expected =
      weir_wire_expected(bucket->n, bucket->kept, (weir_wire_format)bucket->plan.wire, false);
  const uint32_t row = bucket->broadcast->id;
  const weir_group_shape shape = weir_comm_shape(bucket->engine->config.comm);
  bucket->passage.extra_bytes = weir_cost_lists(row, shape, NULL, (double)bytes).byte_terms -
                                weir_cost_lists(row, shape, NULL, expected).byte_terms;
}

static weir_status fetch(weir_bucket *bucket, int root) {
  weir_engine *engine = bucket->engine;
  const weir_status status = engine->backend->fetch(bucket);
  if (status == WEIR_E_PROTOCOL) return weir_comm_refuse(engine->config.comm, root, status);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  bucket->passage.kept_square = weir_sum_square(bucket->value, bucket->kept);
  if (bucket->error != NULL) memset(bucket->error, 0, bucket->kept * sizeof(float));
  weir_lap_compress(bucket);
  return WEIR_OK;
}

weir_status weir_exchange_shared(weir_bucket *bucket, weir_headers *headers) {
  const weir_engine *engine = bucket->engine;
  const bool rounds = bucket->plan.wire == WEIR_WIRE_AUTO_BF16;
  int root = weir_shared_root(bucket);
  size_t bytes = 0;
  weir_status status = WEIR_OK;
  if (bucket->codec->draw == NULL) {
    status = share_indices(bucket, &root, &bytes);
    count_list(bucket, bytes);
  } else if (!bucket->listed) {
    status = weir_shared_draw(bucket);
    if (status != WEIR_OK) return weir_engine_blame(bucket->engine, engine->rank, status);
  }
  if (status == WEIR_OK) status = fetch(bucket, root);
  if (status != WEIR_OK) return status;
  status = weir_sum_run(&bucket->sum, engine->config.comm, bucket->value, bucket->kept,
                        rounds ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32, bucket->error, headers);
  weir_lap_comm(bucket);
  if (status != WEIR_OK) return status;
  bucket->overflow = !isfinite(weir_sum_square(bucket->value, bucket->kept));
  status = engine->backend->settle(bucket, bucket->value);
  bucket->settled = status == WEIR_OK;
  weir_lap_compress(bucket);
  return status;
}

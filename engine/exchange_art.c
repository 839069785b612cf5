/* AR-Topk: one rank broadcasts its indices, all ranks all-reduce their values there. */
#include <string.h>

#include "base/base.h"
#include "engine/state.h"

/* VAR's root: largest variance of the error-fed gradient, the lowest rank on ties.  A value that
 * is no number wins nowhere. */
static weir_status root_of_variance(weir_engine *engine, const weir_passage *passage, int *root) {
  const float mine = (float)weir_variance(&passage->moments, engine->n);
  float *variance = (float *)(void *)engine->blocks; /* rank order, 4 bytes each */
  variance[engine->rank] = mine;
  engine->block_bytes[engine->rank] = sizeof mine;
  weir_engine_lap(engine, &engine->compress_s);
  weir_status status = weir_allgather(engine->config.comm, engine->blocks, sizeof mine,
                                      engine->block_bytes, NULL);
  weir_engine_lap(engine, &engine->comm_s);
  if (status != WEIR_OK) return status;
  *root = 0;
  for (int r = 0; r < engine->size; r++) {
    if (engine->block_bytes[r] != sizeof mine) {
      status = weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu bytes where its variance takes %zu", r,
                         engine->block_bytes[r], sizeof mine);
      return weir_engine_blame(engine, r, status);
    }
    if (variance[r] > variance[*root]) *root = r;
  }
  return WEIR_OK;
}

/* The root's index list, on every rank in engine->index. */
static weir_status share_indices(weir_engine *engine, int root, size_t k, size_t *bytes) {
  const weir_codec *codec = weir_codec_find(engine->plan.codec);
  weir_status status = WEIR_OK;
  size_t got = 0;
  *bytes = 0;
  if (engine->rank == root) {
    status = codec->select(engine->context, engine->fed, &engine->layout, engine->plan.cr,
                           engine->index, engine->kept_capacity, &got);
    if (status == WEIR_OK)
      status = weir_wire_encode(engine->n, engine->index, NULL, got,
                                (weir_wire_format)engine->plan.wire, engine->blocks,
                                engine->stride, bytes, NULL);
  }
  weir_engine_lap(engine, &engine->compress_s);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  status = weir_broadcast(engine->config.comm, root, engine->blocks, engine->stride, bytes);
  weir_engine_lap(engine, &engine->comm_s);
  if (status != WEIR_OK || engine->rank == root) return status;
  status = weir_wire_decode(engine->blocks, *bytes, engine->n, engine->index, NULL,
                            engine->kept_capacity, &got);
  if (status == WEIR_OK && got != k)
    status = weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu indices where the plan keeps %zu", root,
                       got, k);
  return status == WEIR_OK ? WEIR_OK : weir_engine_blame(engine, root, status);
}

/* Indices that all ranks draw alike, from the step alone: nothing to send. */
static weir_status draw_indices(weir_engine *engine, const weir_codec *codec) {
  size_t k = 0;
  const uint64_t seed = weir_hash(WEIR_HASH_INIT, &engine->turn, sizeof engine->turn);
  weir_status status = codec->draw(engine->context, &engine->layout, engine->plan.cr, seed,
                                   engine->index, engine->kept_capacity, &k);
  weir_engine_lap(engine, &engine->compress_s);
  return status == WEIR_OK ? WEIR_OK : weir_engine_blame(engine, engine->rank, status);
}

static double levels(int ranks) {
  double count = 0;
  for (int reach = 1; reach < ranks; reach *= 2) count++;
  return count;
}

weir_status weir_exchange_art(weir_engine *engine, const weir_allreduce *allreduce,
                              weir_notes *notes, weir_passage *passage) {
  const weir_codec *codec = weir_codec_find(engine->plan.codec);
  const weir_wire_format wire = (weir_wire_format)engine->plan.wire;
  const size_t k = codec->kept(&engine->layout, engine->plan.cr);
  int root = (int)(engine->turn % (uint64_t)engine->size);
  weir_status status = WEIR_OK;
  if (engine->plan.codec == WEIR_CODEC_VAR) status = root_of_variance(engine, passage, &root);
  if (status != WEIR_OK) return status;
  size_t bytes = 0;
  status = codec->draw != NULL ? draw_indices(engine, codec)
                               : share_indices(engine, root, k, &bytes);
  if (status != WEIR_OK) return status;

  weir_gather(engine->fed, engine->index, k, engine->value);
  passage->kept_square = weir_sum_square(engine->value, k);
  memset(engine->error, 0, k * sizeof(float));
  weir_engine_lap(engine, &engine->compress_s);
  status = allreduce->run(engine->config.comm, engine->value, k,
                          wire == WEIR_WIRE_AUTO_BF16 ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32,
                          engine->error, notes);
  weir_engine_lap(engine, &engine->comm_s);
  if (status != WEIR_OK) return status;

  const double expected = codec->draw != NULL ? 0 : weir_wire_expected(engine->n, k, wire, false);
  passage->extra_bytes = levels(engine->size) * ((double)bytes - expected);
  memset(engine->spare, 0, engine->n * sizeof(float));
  weir_scatter_add(engine->spare, engine->index, engine->value, k);
  weir_scatter_zero(engine->fed, engine->index, k);
  weir_scatter_add(engine->fed, engine->index, engine->error, k);
  passage->sum = engine->spare;
  passage->next = engine->fed;
  weir_engine_lap(engine, &engine->compress_s);
  return WEIR_OK;
}

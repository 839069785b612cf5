/* AG: each rank's kept elements, all-gathered and added up in rank order. */
#include <string.h>

#include "engine/state.h"

/* Select, and encode into this rank's own place among the blocks.  What bf16 loses is left in
 * error[]. */
static weir_status encode_own(weir_engine *engine, weir_passage *passage, size_t *k) {
  const weir_codec *codec = weir_codec_find(engine->plan.codec);
  weir_status status = codec->select(engine->context, engine->fed, &engine->layout, engine->plan.cr,
                                     engine->index, engine->kept_capacity, k);
  if (status != WEIR_OK) return status;
  weir_gather(engine->fed, engine->index, *k, engine->value);
  passage->kept_square = weir_sum_square(engine->value, *k);
  memset(engine->error, 0, *k * sizeof(float));
  return weir_wire_encode(engine->n, engine->index, engine->value, *k,
                          (weir_wire_format)engine->plan.wire,
                          engine->blocks + (size_t)engine->rank * engine->stride, engine->stride,
                          &engine->block_bytes[engine->rank], engine->error);
}

weir_status weir_exchange_ag(weir_engine *engine, const weir_allreduce *allreduce,
                             weir_notes *notes, weir_passage *passage) {
  (void)allreduce;
  if (weir_codec_find(engine->plan.codec)->encode != NULL)
    return weir_exchange_encoded(engine, notes, passage);
  size_t k = 0;
  weir_status status = encode_own(engine, passage, &k);
  weir_engine_lap(engine, &engine->compress_s);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  status = weir_allgather(engine->config.comm, engine->blocks, engine->stride, engine->block_bytes,
                          notes);
  weir_engine_lap(engine, &engine->comm_s);
  if (status != WEIR_OK) return status;

  float *sum = engine->spare;
  memset(sum, 0, engine->n * sizeof(float));
  double bytes = 0;
  for (int r = 0; r < engine->size; r++) {
    /* Our own block too is decoded from its bytes: every rank adds the same values. */
    status = weir_wire_decode_add(engine->blocks + (size_t)r * engine->stride,
                                  engine->block_bytes[r], engine->n, sum);
    if (status != WEIR_OK) return weir_engine_blame(engine, r, status);
    bytes += (double)engine->block_bytes[r];
  }
  const double expected =
      weir_wire_expected(engine->n, k, (weir_wire_format)engine->plan.wire, true);
  passage->extra_bytes = (engine->size - 1) * (bytes / engine->size - expected);
  weir_scatter_zero(engine->fed, engine->index, k);
  weir_scatter_add(engine->fed, engine->index, engine->error, k);
  passage->sum = sum;
  passage->next = engine->fed;
  weir_engine_lap(engine, &engine->compress_s);
  return WEIR_OK;
}

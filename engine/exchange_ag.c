/* AG: each rank's kept elements, all-gathered and added up in rank order. */
#include <string.h>

#include "engine/state.h"

/* Select, and encode into this rank's own place among the blocks.  What bf16 loses is left in
 * error[]. */
weir_status weir_prepare_ag(weir_group *group) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  if (codec->encode != NULL) return weir_prepare_encoded(group);
  const int rank = group->engine->rank;
  size_t k = 0;
  weir_status status = codec->select(group->context, group->fed, &group->layout, group->plan.cr,
                                     group->index, group->kept_capacity, &k);
  if (status != WEIR_OK) return status;
  weir_gather(group->fed, group->index, k, group->value);
  group->passage.kept_square = weir_sum_square(group->value, k);
  memset(group->error, 0, k * sizeof(float));
  return weir_wire_encode(group->n, group->index, group->value, k,
                          (weir_wire_format)group->plan.wire,
                          group->blocks + (size_t)rank * group->stride, group->stride,
                          &group->block_bytes[rank], group->error);
}

weir_status weir_exchange_ag(weir_group *group, const weir_allreduce *allreduce,
                             weir_notes *notes) {
  (void)allreduce;
  if (weir_codec_find(group->plan.codec)->encode != NULL)
    return weir_exchange_encoded(group, notes);
  weir_engine *engine = group->engine;
  weir_passage *passage = &group->passage;
  weir_status status =
      weir_allgather(engine->config.comm, group->blocks, group->stride, group->block_bytes, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;

  float *sum = group->spare;
  double bytes = 0;
  for (int r = 0; r < engine->size; r++) {
    /* Our own block too is decoded from its bytes: every rank adds the same values. */
    const unsigned char *block = group->blocks + (size_t)r * group->stride;
    status =
        r == 0 ? weir_wire_decode_dense(group->context, block, group->block_bytes[r], group->n, sum)
               : weir_wire_decode_add(group->context, block, group->block_bytes[r], group->n, sum);
    if (status != WEIR_OK) return weir_engine_blame(engine, r, status);
    bytes += (double)group->block_bytes[r];
  }
  const double expected =
      weir_wire_expected(group->n, group->kept, (weir_wire_format)group->plan.wire, true);
  passage->extra_bytes = (engine->size - 1) * (bytes / engine->size - expected);
  weir_scatter_zero(group->fed, group->index, group->kept);
  weir_scatter_add(group->fed, group->index, group->error, group->kept);
  passage->sum = sum;
  passage->next = group->fed;
  weir_lap_compress(group);
  return WEIR_OK;
}

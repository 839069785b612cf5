#include "collectives/algorithms/values.h"

#include "kernels/codec.h"

weir_values weir_values_of(float *x, float *error, weir_value_format format) {
  const bool bf16 = format == WEIR_VALUE_BF16;
  return (weir_values){x, error, bf16, bf16 ? sizeof(uint16_t) : sizeof(float)};
}

const void *weir_values_partial(const weir_values *v, weir_chunk chunk, void *staging) {
  if (!v->bf16) return v->x + chunk.begin;
  weir_bf16_encode(v->x + chunk.begin, chunk.count, staging,
                   v->error ? v->error + chunk.begin : NULL);
  return staging;
}

void weir_values_settle(const weir_values *v, weir_chunk chunk, void *staging) {
  if (!v->bf16) return;
  (void)weir_values_partial(v, chunk, staging);
  weir_bf16_decode(staging, chunk.count, v->x + chunk.begin);
}

const void *weir_values_settled(const weir_values *v, weir_chunk chunk, void *staging) {
  if (!v->bf16) return v->x + chunk.begin;
  weir_bf16_encode(v->x + chunk.begin, chunk.count, staging, NULL);
  return staging;
}

void weir_values_add(const weir_values *v, weir_chunk chunk, const void *from) {
  if (v->bf16)
    weir_add_bf16(v->x + chunk.begin, from, chunk.count);
  else
    weir_add_fp32(v->x + chunk.begin, from, chunk.count);
}

void *weir_values_place(const weir_values *v, weir_chunk chunk, void *staging) {
  return v->bf16 ? staging : (void *)(v->x + chunk.begin);
}

void weir_values_received(const weir_values *v, weir_chunk chunk, const void *staging) {
  if (v->bf16) weir_bf16_decode(staging, chunk.count, v->x + chunk.begin);
}

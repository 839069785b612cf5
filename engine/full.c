/* Tensors that stay in full precision: a bucket of their own behind those of every plan. */
#include <string.h>

#include "engine/backend.h"

/* What a short sum takes is latency: the fewest rounds up to here. */
#define SHORT_ELEMENTS ((size_t)16 * 1024)

static weir_plan dense_plan(size_t elements) {
  return (weir_plan){
      .codec = WEIR_CODEC_NONE,
      .scheme = WEIR_SCHEME_DENSE,
      .algorithm = elements <= SHORT_ELEMENTS ? WEIR_ALGORITHM_DOUBLING : WEIR_ALGORITHM_HALVING,
      .cr = 1};
}

size_t weir_full_table(const weir_engine *engine, const weir_plan *plan,
                       const weir_plan_bucket *table, weir_plan_bucket *out) {
  const size_t tensors = engine->layout.tensors, planned = tensors - engine->config.full;
  size_t count = table != NULL ? plan->buckets : 1;
  if (table != NULL) {
    memcpy(out, table, count * sizeof *out);
  } else {
    out[0] = (weir_plan_bucket){.end = (uint32_t)tensors};
    weir_bucket_set_plan(&out[0], plan);
  }
  /* The whole gradient in full precision travels as one. */
  if (planned == tensors || (count == 1 && out[0].codec == WEIR_CODEC_NONE)) return count;
  while (count > 0 && (count > 1 ? out[count - 2].end : 0) >= planned) count--;
  if (count > 0) out[count - 1].end = (uint32_t)planned;
  const weir_plan dense =
      dense_plan(engine->layout.offset[tensors] - engine->layout.offset[planned]);
  out[count] = (weir_plan_bucket){.end = (uint32_t)tensors, .place = WEIR_PLACE_CALLER};
  weir_bucket_set_plan(&out[count], &dense);
  return count + 1;
}

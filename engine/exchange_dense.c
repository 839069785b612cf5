/* Every element, summed by an all-reduce: as fp32, or as bf16 with the rounding kept back.
 *
 * What earlier sparse plans left in the residuals is part of e, so the sum flushes it. */
#include <string.h>

#include "engine/state.h"

weir_status weir_exchange_dense(weir_engine *engine, const weir_allreduce *allreduce,
                                weir_notes *notes, weir_passage *passage) {
  const bool rounded = engine->plan.codec == WEIR_CODEC_BF16;
  if (rounded) memset(engine->spare, 0, engine->n * sizeof(float));
  passage->kept_square = passage->moments.sum_square;
  passage->sum = engine->fed;
  passage->next = rounded ? engine->spare : NULL;
  weir_engine_lap(engine, &engine->compress_s);
  weir_status status =
      allreduce->run(engine->config.comm, engine->fed, engine->n,
                     rounded ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32, passage->next, notes);
  weir_engine_lap(engine, &engine->comm_s);
  return status;
}

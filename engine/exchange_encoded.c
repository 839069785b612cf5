/* Encoders through AG: each rank's encoded gradient, all-gathered, decoded and added up in rank
 * order.  Only this rank's own loss, e - decode(its own message), stays behind. */
#include <math.h>

#include "base/base.h"
#include "engine/state.h"

/* Draws differ from rank to rank and step to step, follow from both alone, and are drawn again
 * alike after a trial. */
static uint64_t seed_of(const weir_engine *engine) {
  const uint64_t words[2] = {engine->turn, (uint64_t)engine->rank};
  return weir_hash(WEIR_HASH_INIT, words, sizeof words);
}

static unsigned char *block(const weir_engine *engine, int rank) {
  return engine->blocks + (size_t)rank * engine->stride;
}

/* The sum over ranks, after this rank's own message has told what it lost.  The spare buffer holds
 * first the one, then the other. */
static weir_status decode_all(weir_engine *engine, const weir_codec *codec,
                              weir_passage *passage) {
  float *const sum = engine->spare;
  const int own = engine->rank;
  weir_status status = codec->decode(engine->context, block(engine, own), engine->block_bytes[own],
                                     &engine->layout, sum, false);
  if (status != WEIR_OK) return weir_engine_blame(engine, own, status);
  const double lost = weir_ef_subtract(engine->fed, sum, engine->n);
  passage->kept_square = fmax(passage->moments.sum_square - lost, 0);
  for (int r = 0; r < engine->size; r++) {
    if (r == 0 && own == 0) continue; /* decoded just now */
    status = codec->decode(engine->context, block(engine, r), engine->block_bytes[r],
                           &engine->layout, sum, r > 0);
    if (status != WEIR_OK) return weir_engine_blame(engine, r, status);
  }
  return WEIR_OK;
}

weir_status weir_exchange_encoded(weir_engine *engine, weir_notes *notes, weir_passage *passage) {
  const weir_codec *codec = weir_codec_find(engine->plan.codec);
  weir_status status = codec->encode(engine->context, engine->fed, &engine->layout, engine->plan.cr,
                                     seed_of(engine), block(engine, engine->rank), engine->stride,
                                     &engine->block_bytes[engine->rank]);
  weir_engine_lap(engine, &engine->compress_s);
  if (status != WEIR_OK) return weir_engine_blame(engine, engine->rank, status);
  status = weir_allgather(engine->config.comm, engine->blocks, engine->stride, engine->block_bytes,
                          notes);
  weir_engine_lap(engine, &engine->comm_s);
  if (status != WEIR_OK) return status;
  status = decode_all(engine, codec, passage);
  if (status != WEIR_OK) return status;
  passage->sum = engine->spare;
  passage->next = engine->fed;
  weir_engine_lap(engine, &engine->compress_s);
  return WEIR_OK;
}

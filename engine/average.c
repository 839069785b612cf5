/* What ranks tell each other of the averages they took. */
#include "engine/average.h"

#include "base/base.h"
#include "engine/backend.h"

void weir_average_keep(weir_engine *engine, bool lost) {
  engine->average = lost ? 1 : 0; /* whether it is lost is to be the same everywhere, too */
  for (size_t k = 0; k < engine->set.count && !lost; k++)
    engine->average += engine->set.bucket[k].average;
  engine->average_known = engine->backend->digests;
  engine->average_step = engine->committed;
}

void weir_average_tell(const weir_engine *engine, weir_header *header) {
  if (!engine->average_known) return;
  header->average = engine->average;
  header->flags |= WEIR_HEADER_AVERAGE;
}

static bool tells(const weir_header *header) { return (header->flags & WEIR_HEADER_AVERAGE) != 0; }

/* How many ranks tell the same as rank r. */
static int supporters(const weir_engine *engine, int r) {
  const weir_header *headers = engine->headers;
  int count = 0;
  for (int o = 0; o < engine->size && tells(&headers[r]); o++)
    count += tells(&headers[o]) && headers[o].average == headers[r].average;
  return count;
}

/* The first rank that tells something else than rank r; -1: none. */
static int differs(const weir_engine *engine, int r) {
  const weir_header *headers = engine->headers;
  for (int o = 0; o < engine->size && r >= 0; o++)
    if (tells(&headers[o]) && headers[o].average != headers[r].average) return o;
  return -1;
}

static int first_told(const weir_engine *engine) {
  for (int r = 0; r < engine->size; r++)
    if (tells(&engine->headers[r])) return r;
  return -1;
}

static weir_status fail(weir_engine *engine) {
  const unsigned long long step = engine->average_step;
  int most = 0, told = 0;
  for (int r = 0; r < engine->size; r++) {
    told += tells(&engine->headers[r]);
    if (supporters(engine, r) > supporters(engine, most)) most = r;
  }
  const int with = supporters(engine, most), other = differs(engine, most);
  engine->diverged = true;
  if (2 * with <= told)
    return weir_fail(WEIR_E_MISMATCH,
                     "ranks %d and %d hold different averages of step %llu, and no majority tells "
                     "which is right: their weights are no longer the same",
                     most, other, step);
  return weir_fail(
      WEIR_E_MISMATCH,
      "rank %d holds another average of step %llu than %d of %d ranks: its weights are "
      "no longer theirs",
      other, step, with, told);
}

weir_status weir_average_check(weir_engine *engine) {
  return differs(engine, first_told(engine)) < 0 ? WEIR_OK : fail(engine);
}

bool weir_engine_diverged(const weir_engine *engine) { return engine->diverged; }

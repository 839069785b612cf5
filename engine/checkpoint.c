/* Checkpoints of trials, so that these leave nothing behind: residual, velocity, powersgd's
 * columns, registered memory, hooks' state and the engine's own counters are kept in memory, the
 * first two by the backend.  The exchange counter runs on: it names messages. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/backend.h"
#include "engine/lowrank.h"

static size_t aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }

/* Of the columns there were when the checkpoint was prepared. */
static size_t warm_bytes(const weir_engine *engine) {
  return engine->checkpoint.warm_rank * engine->warm.width * sizeof(float);
}

weir_status weir_checkpoint_prepare(weir_engine *engine) {
  weir_checkpoint *point = &engine->checkpoint;
  if (engine->hook_count > point->hook_capacity) {
    size_t *bytes = realloc(point->hook_bytes, engine->hook_count * sizeof *bytes);
    if (bytes == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a checkpoint");
    point->hook_bytes = bytes;
    point->hook_capacity = engine->hook_count;
  }
  const weir_status status = engine->backend->keep_room(engine);
  if (status != WEIR_OK) return status;
  point->warm_rank = engine->warm.rank;
  size_t need = aligned(1) + aligned(warm_bytes(engine));
  for (size_t i = 0; i < engine->state_count; i++) need += aligned(engine->states[i].bytes);
  for (size_t i = 0; i < engine->hook_count; i++) {
    point->hook_bytes[i] = engine->hooks[i].bytes(engine->hooks[i].user);
    need += aligned(point->hook_bytes[i]);
  }
  if (need <= point->capacity) return WEIR_OK;
  unsigned char *memory = malloc(need);
  if (memory == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for a checkpoint of %zu bytes", need);
  free(point->memory);
  point->memory = memory;
  point->capacity = need;
  return WEIR_OK;
}

void weir_checkpoint_take(weir_engine *engine) {
  weir_checkpoint *point = &engine->checkpoint;
  unsigned char *to = point->memory;
  engine->backend->keep(engine, false);
  if (warm_bytes(engine) > 0) memcpy(to, engine->warm.values, warm_bytes(engine));
  to += aligned(warm_bytes(engine));
  for (size_t i = 0; i < engine->state_count; i++) {
    memcpy(to, engine->states[i].data, engine->states[i].bytes);
    to += aligned(engine->states[i].bytes);
  }
  for (size_t i = 0; i < engine->hook_count; i++) {
    engine->hooks[i].save(engine->hooks[i].user, to);
    to += aligned(point->hook_bytes[i]);
  }
  point->turn = engine->turn;
}

void weir_checkpoint_restore(weir_engine *engine) {
  const weir_checkpoint *point = &engine->checkpoint;
  const unsigned char *from = point->memory;
  engine->backend->keep(engine, true);
  if (warm_bytes(engine) > 0) memcpy(engine->warm.values, from, warm_bytes(engine));
  weir_warm_draw(&engine->warm, point->warm_rank); /* what a trial of higher rank has added */
  from += aligned(warm_bytes(engine));
  for (size_t i = 0; i < engine->state_count; i++) {
    memcpy(engine->states[i].data, from, engine->states[i].bytes);
    from += aligned(engine->states[i].bytes);
  }
  for (size_t i = 0; i < engine->hook_count; i++) {
    engine->hooks[i].load(engine->hooks[i].user, from);
    from += aligned(point->hook_bytes[i]);
  }
  engine->turn = point->turn;
}

/* What a step starts from, for those who save it and go on later. */
#include <string.h>

#include "base/base.h"
#include "engine/backend.h"
#include "engine/lowrank.h"

static weir_status between(const weir_engine *engine) {
  weir_status status = weir_engine_check(engine);
  if (status != WEIR_OK) return status;
  for (size_t t = 0; engine->in_step && t < engine->layout.tensors; t++)
    if (engine->submitted[t] != NULL)
      return weir_fail(WEIR_E_STATE, "tensor %zu was handed in; weir_step_end is due", t);
  return WEIR_OK;
}

weir_status weir_engine_memory_open(weir_engine *engine, size_t rank, bool squares,
                                    weir_engine_memory *memory) {
  weir_status status = between(engine);
  if (status == WEIR_OK && engine->in_trial)
    status = weir_fail(WEIR_E_STATE, "a trial is under way, of which nothing will remain");
  if (status == WEIR_OK) status = weir_warm_reserve(engine, rank);
  if (status != WEIR_OK) return status;
  *memory = (weir_engine_memory){.committed = engine->committed,
                                 .turn = engine->turn,
                                 .columns = engine->warm.values,
                                 .rank = engine->warm.rank,
                                 .width = engine->warm.width,
                                 .at = engine->warm.at,
                                 .plan = engine->plan,
                                 .table = engine->table,
                                 .gain = engine->last_gain};
  if (engine->pending.action == WEIR_ACTION_SWITCH) memory->pending = engine->pending;
  return engine->backend->recall(engine, squares, memory);
}

/* WEIR_E_UNSUPPORTED: this group cannot run it. */
static weir_status take_plan(weir_engine *engine, const weir_plan *plan,
                             const weir_plan_bucket *table) {
  const weir_plan first = engine->plan;
  if (memcmp(plan, &first, sizeof first) == 0) return WEIR_OK;
  if (plan->buckets > 0) memcpy(engine->table, table, plan->buckets * sizeof *engine->table);
  engine->table_name = plan->layout;
  engine->table_count = plan->buckets;
  weir_status status = weir_engine_adopt(engine, plan, plan->buckets > 0 ? engine->table : NULL);
  if (status == WEIR_OK) status = weir_engine_fits(engine);
  if (status == WEIR_OK) return status;
  const weir_status back = weir_engine_adopt(engine, &first, NULL);
  return back == WEIR_OK ? status : back;
}

weir_status weir_engine_memory_take(weir_engine *engine, const weir_engine_memory *memory) {
  const weir_status status = take_plan(engine, &memory->plan, memory->table);
  if (status != WEIR_OK && status != WEIR_E_UNSUPPORTED) return status;
  if (status == WEIR_OK) engine->pending = memory->pending;
  engine->committed = memory->committed;
  engine->turn = memory->turn;
  engine->last_gain = memory->gain;
  return engine->backend->take(engine, memory);
}

/* In a trial, too: what was kept before it stays at the scale of then, which comes back with the
 * rest of the trainer's state. */
weir_status weir_engine_rescale(weir_engine *engine, float factor) {
  const weir_status status = between(engine);
  return status == WEIR_OK ? engine->backend->scale(engine, factor) : status;
}

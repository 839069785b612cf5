/* What optimizers do to weights and moments on a device (session/scales.c, session/divided.c): on
 * the caller's stream, behind what has made them. */
#include <string.h>

#include "engine/device.h"

weir_status weir_engine_check_memory(const weir_engine *engine, const void *memory) {
  return engine->backend->check(engine, memory);
}

/* Page-locked memory that grows; what it held is lost. */
static weir_status grow(const weir_on_device *on, size_t bytes, void **memory, size_t *room) {
  void *made = NULL;
  if (*memory != NULL && bytes <= *room) return WEIR_OK;
  const weir_status status = weir_on_device_status(on, on->ops->pin(on->device, bytes, &made));
  if (status != WEIR_OK) return status;
  on->ops->unpin(on->device, *memory);
  *memory = made;
  *room = bytes;
  return WEIR_OK;
}

weir_status weir_engine_squares(const weir_engine *engine, const weir_tensor_piece *pieces,
                                size_t count, const weir_adam *terms, weir_squares *out) {
  weir_on_device *on = engine->device;
  const size_t bytes = count * sizeof *pieces;
  weir_status status = grow(on, bytes + count * sizeof *out, &on->table, &on->table_bytes);
  if (status != WEIR_OK || count == 0) return status;
  weir_squares *const told = (weir_squares *)(void *)((unsigned char *)on->table + bytes);
  memcpy(on->table, pieces, bytes);
  status = on->ops->squares(on->device, on->table, count, terms, told);
  if (status == WEIR_OK) status = on->ops->settle_all(on->device);
  if (status == WEIR_OK) memcpy(out, told, count * sizeof *out);
  return weir_on_device_status(on, status);
}

weir_status weir_engine_lend(const weir_engine *engine, size_t bytes, void **memory) {
  weir_on_device *on = engine->device;
  const weir_status status = grow(on, bytes, &on->lent, &on->lent_bytes);
  *memory = on->lent;
  return status;
}

weir_status weir_engine_move(const weir_engine *engine, const weir_mover *movers, size_t count) {
  weir_on_device *on = engine->device;
  weir_status status = grow(on, count * sizeof *movers, &on->table, &on->table_bytes);
  if (status != WEIR_OK || count == 0) return status;
  memcpy(on->table, movers, count * sizeof *movers);
  status = on->ops->move(on->device, on->table, count);
  if (status == WEIR_OK) status = on->ops->settle_all(on->device);
  return weir_on_device_status(on, status);
}

weir_status weir_engine_copy(const weir_engine *engine, void *to, const void *from, size_t bytes) {
  const weir_on_device *on = engine->device;
  return weir_on_device_status(on, on->ops->copy(on->device, to, from, bytes));
}

weir_status weir_engine_copied(const weir_engine *engine) {
  const weir_on_device *on = engine->device;
  return weir_on_device_status(on, on->ops->settle_all(on->device));
}

/* Messages that stay on devices, gathered ones, those of sums and AR-Topk's lists: every rank has a room in
 * its device's memory, which those of the others read, and of a message at most its length goes through
 * the host.
 *
 * A room has two halves, which steps use in turns.  A half is written again two steps later, when all
 * ranks have read it: a rank comes to a step once its step before is through, in which it has waited
 * for all that its device was to read (finish), and nobody is through a step to which some rank has
 * not come: lengths come from all, and sums are of all.  That is so of steps that are dropped and of
 * trials, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/log.h"
#include "engine/device.h"

/* What ranks tell each other of their rooms. */
typedef struct offer {
  uint64_t made; /* is there one? */
  weir_device_room room;
} offer;

unsigned char *weir_on_device_room(const weir_bucket *bucket, int rank) {
  const weir_engine *engine = bucket->engine;
  const weir_on_device *on = engine->device;
  return on->room[rank] + engine->exchanges % 2 * on->half + bucket->stays_at;
}

static void close_others(weir_engine *engine) {
  weir_on_device *on = engine->device;
  for (int r = 0; r < on->rooms; r++) {
    if (r == engine->rank) continue;
    on->ops->close_room(on->device, on->room[r]);
    on->room[r] = NULL;
  }
}

/* All ranks tell each other so many bytes. */
static weir_status tell(weir_engine *engine, void *all, size_t bytes) {
  const size_t ranks = (size_t)engine->size;
  size_t *const lengths = calloc(ranks, sizeof *lengths);
  if (lengths == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to ask %zu ranks", ranks);
  lengths[engine->rank] = bytes;
  weir_status status = weir_allgather(engine->config.comm, all, bytes, lengths, NULL);
  for (size_t r = 0; r < ranks && status == WEIR_OK; r++)
    if (lengths[r] != bytes)
      status = weir_fail(WEIR_E_PROTOCOL, "rank %zu tells %zu bytes of its device, not %zu", r,
                         lengths[r], bytes);
  free(lengths);
  return status;
}

static void say_why_not(void) {
  weir_log(WEIR_LOG_INFO, "messages of devices go over the host: %s", weir_last_error());
}

/* This rank's own failure is the last error still. */
static bool all_made(const weir_engine *engine, const offer *all, size_t bytes) {
  bool good = all[engine->rank].made == 1;
  for (int r = 0; r < engine->size && good; r++) {
    good = all[r].made == 1 && all[r].room.bytes >= bytes;
    if (!good)
      (void)weir_fail(WEIR_E_UNSUPPORTED, "rank %d has no room for %zu bytes on its device", r,
                      bytes);
  }
  return good;
}

static bool open_others(weir_engine *engine, const offer *all) {
  weir_on_device *on = engine->device;
  weir_status status = WEIR_OK;
  for (int r = 0; r < engine->size && status == WEIR_OK; r++) {
    void *room = NULL;
    if (r == engine->rank) continue;
    status = weir_on_device_status(
        on, on->ops->open_room(on->device, &all[r].room, engine->rank, &room));
    on->room[r] = room;
  }
  return status == WEIR_OK;
}

/* Does every rank read every other's?  The first that does not is named.  all: room for a word a rank. */
static weir_status agree(weir_engine *engine, bool mine, uint64_t *all, bool *yes) {
  if (!mine) say_why_not();
  all[engine->rank] = mine;
  const weir_status status = tell(engine, all, sizeof *all);
  *yes = status == WEIR_OK;
  for (int r = 0; r < engine->size && *yes; r++) {
    if (all[r] == 1) continue;
    *yes = false;
    if (!mine) break;
    (void)weir_fail(WEIR_E_UNSUPPORTED, "the device of rank %d does not read the others'", r);
    say_why_not();
  }
  return status;
}

/* The rooms before are no longer used: whoever comes here is through its last step.  Each rank's own
 * goes when the others have closed it, which is when all have told of the next. */
static weir_status replace(weir_engine *engine, size_t bytes, offer *all, bool *yes) {
  static const char name[] = "weir rooms on devices";
  weir_on_device *on = engine->device;
  offer *const mine = &all[engine->rank];
  void *own = NULL;
  close_others(engine);
  mine->made = weir_on_device_status(
                   on, on->ops->make_room(on->device, 2 * bytes, &own, &mine->room)) == WEIR_OK;
  weir_comm_step(engine->config.comm, weir_hash(WEIR_HASH_INIT, name, sizeof name),
                 engine->exchanges);
  weir_status status = tell(engine, all, sizeof *all);
  on->ops->close_room(on->device, on->room[engine->rank]);
  on->room[engine->rank] = own;
  const bool made = status == WEIR_OK && all_made(engine, all, 2 * bytes);
  const bool reads = made && open_others(engine, all);
  return status == WEIR_OK ? agree(engine, reads, (uint64_t *)(void *)all, yes) : status;
}

weir_status weir_on_device_share(weir_engine *engine, size_t bytes, bool *yes) {
  weir_on_device *on = engine->device;
  *yes = on->half >= bytes;
  if (*yes) return WEIR_OK;
  if (on->room == NULL) on->room = calloc((size_t)engine->size, sizeof *on->room);
  offer *all = calloc((size_t)engine->size, sizeof *all);
  if (on->room == NULL || all == NULL) {
    free(all);
    return weir_fail(WEIR_E_NOMEM, "no memory for the rooms of %d ranks", engine->size);
  }
  on->rooms = engine->size;
  const weir_status status = replace(engine, bytes, all, yes);
  free(all);
  if (status == WEIR_OK && *yes) {
    on->half = bytes;
    weir_log(WEIR_LOG_INFO, "messages stay on the devices, in rooms of %zu bytes", 2 * bytes);
    return WEIR_OK;
  }
  weir_on_device_unshare(engine);
  if (status == WEIR_OK) engine->config.rooms = false; /* asked once, and all have the answer */
  return status;
}

void weir_on_device_unshare(weir_engine *engine) {
  weir_on_device *on = engine->device;
  for (int r = 0; r < on->rooms; r++) on->ops->close_room(on->device, on->room[r]);
  free(on->room);
  on->room = NULL;
  on->rooms = 0;
  on->half = 0;
}

/* A rank's message of a bucket, which its room still holds: it is not written before this rank is
 * through its step. */
static weir_status look_through(weir_engine *engine, const weir_bucket *bucket, int rank,
                                void *message) {
  const weir_on_device *on = engine->device;
  const size_t bytes = bucket->block_bytes[rank];
  if (bytes == 0) return WEIR_OK;
  weir_status status = on->ops->copy(on->device, message, weir_on_device_room(bucket, rank), bytes);
  if (status == WEIR_OK) status = on->ops->settle_all(on->device);
  if (status != WEIR_OK) return WEIR_OK; /* what the device has found stays said */
  return weir_on_device_check(bucket, message, bytes);
}

weir_status weir_on_device_find_culprit(weir_engine *engine, weir_status status) {
  char found[256];
  (void)snprintf(found, sizeof found, "%s", weir_last_error());
  const weir_on_device *on = engine->device;
  for (size_t k = 0; k < engine->set.count; k++) {
    const weir_bucket *bucket = &engine->set.bucket[k];
    void *message = NULL;
    if (!bucket->stays || bucket->scheme != WEIR_SCHEME_GATHER ||
        on->ops->pin(on->device, bucket->stride, &message) != WEIR_OK)
      continue;
    int r = 0;
    while (r < engine->size && look_through(engine, bucket, r, message) == WEIR_OK) r++;
    on->ops->unpin(on->device, message);
    if (r < engine->size) return weir_comm_refuse(engine->config.comm, r, WEIR_E_PROTOCOL);
  }
  return weir_engine_blame(engine, engine->rank, weir_fail(status, "%s", found));
}

/* Messages that stay on devices, gathered ones, those of sums and AR-Topk's lists: every rank has a
 * room in its device's memory, which those of the others read, and of a message at most its length
 * goes through the host.  Where ranks are on several machines that is so of gathered messages
 * inside of each; those of the others come over the transport to the rank at the same place, in
 * whose room they are then read.
 *
 * A room has two halves, which steps use in turns.  A half is written again two steps later, when
 * all ranks have read it: a rank comes to a step once its step before is through, in which it has
 * waited for all that its device was to read (finish), and nobody is through a step to which some
 * rank has not come: lengths come from all, and sums are of all.  That is so of steps that are
 * dropped and of trials, too. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/log.h"
#include "engine/device.h"
#include "engine/memory.h"

/* What ranks tell each other of their rooms. */
typedef struct offer {
  uint64_t made; /* is there one? */
  weir_device_room room;
} offer;

unsigned char *weir_on_device_room(const weir_bucket *bucket, int rank) {
  const weir_engine *engine = bucket->engine;
  const weir_on_device *on = engine->device;
  return on->room[on->from[rank]] + engine->exchanges % 2 * on->half + bucket->stays_at +
         (size_t)on->slot[rank] * weir_room_stride(bucket->stride);
}

unsigned char *weir_on_device_column(const weir_bucket *bucket, int rank) {
  return bucket->column != NULL
             ? bucket->column + (size_t)bucket->engine->device->slot[rank] * bucket->stride
             : NULL;
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

/* A machine's ranks read what one of them has taken from those at its place of the others. */
static void find_places(weir_engine *engine) {
  const weir_comm *comm = engine->config.comm;
  weir_on_device *on = engine->device;
  const int here = weir_comm_host_of(comm, engine->rank);
  for (int r = 0; r < engine->size; r++) {
    const int host = weir_comm_host_of(comm, r);
    int place = 0, mine = 0;
    on->from[r] = r;
    on->slot[r] = 0;
    if (!engine->config.rooms_inside) continue;
    for (int q = 0; q < r; q++) place += weir_comm_host_of(comm, q) == host;
    while (weir_comm_host_of(comm, mine) != here || place-- > 0) mine++;
    on->from[r] = mine;
    on->slot[r] = host;
  }
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

/* Of this machine's ranks, whose messages are in their own rooms. */
static bool open_others(weir_engine *engine, const offer *all) {
  weir_on_device *on = engine->device;
  weir_status status = WEIR_OK;
  int reader = 0; /* among those that read a room */
  for (int r = 0; r < engine->rank; r++) reader += on->from[r] == r;
  for (int r = 0; r < engine->size && status == WEIR_OK; r++) {
    void *room = NULL;
    if (r == engine->rank || on->from[r] != r) continue;
    status = weir_on_device_status(on, on->ops->open_room(on->device, &all[r].room, reader, &room));
    on->room[r] = room;
  }
  return status == WEIR_OK;
}

/* Does every rank read every other's?  The first that does not is named.  all: room for a word a
 * rank. */
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

/* The rooms before are no longer used: whoever comes here is through its last step.  Each rank's
 * own goes when the others have closed it, which is when all have told of the next. */
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
  if (on->from == NULL) on->from = calloc((size_t)engine->size, 2 * sizeof *on->from);
  offer *all = calloc((size_t)engine->size, sizeof *all);
  if (on->room == NULL || on->from == NULL || all == NULL) {
    free(all);
    return weir_fail(WEIR_E_NOMEM, "no memory for the rooms of %d ranks", engine->size);
  }
  on->rooms = engine->size;
  on->slot = on->from + engine->size;
  find_places(engine);
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
  free(on->from);
  free(on->room);
  on->from = on->slot = NULL;
  on->room = NULL;
  on->rooms = 0;
  on->half = 0;
}

/* Checked here, so that who passes it on is not to blame for another machine. */
static weir_status take_over(weir_bucket *bucket, int rank) {
  weir_engine *engine = bucket->engine;
  const weir_on_device *on = engine->device;
  unsigned char *message = weir_on_device_column(bucket, rank);
  size_t bytes = bucket->column_bytes[on->slot[rank]];
  weir_status status = bytes > 0 ? weir_gather_restore(bucket, rank, message, &bytes) : WEIR_OK;
  if (status != WEIR_OK) return status;
  if (bytes != bucket->block_bytes[rank])
    status = weir_fail(WEIR_E_PROTOCOL, "malformed message of %zu bytes, not %zu", bytes,
                       bucket->block_bytes[rank]);
  else if (bytes > 0)
    status = weir_on_device_check(bucket, message, bytes);
  if (status != WEIR_OK) return weir_comm_refuse(engine->config.comm, rank, status);
  if (bytes == 0) return WEIR_OK;
  status =
      weir_on_device_status(on, on->ops->leave(on->device, bucket->number,
                                               weir_on_device_room(bucket, rank), message, bytes));
  return status == WEIR_OK ? WEIR_OK : weir_engine_blame(engine, engine->rank, status);
}

weir_status weir_on_device_pass_on(weir_bucket *bucket) {
  weir_engine *engine = bucket->engine;
  const weir_on_device *on = engine->device;
  size_t *const own = &bucket->column_bytes[on->slot[engine->rank]];
  weir_status status = WEIR_OK;
  *own = bucket->block_bytes[engine->rank];
  if (*own > 0)
    status = weir_gather_shorten(bucket, weir_on_device_column(bucket, engine->rank), own);
  if (status == WEIR_OK)
    status = weir_allgather_between(engine->config.comm, bucket->gather, bucket->column,
                                    bucket->stride, bucket->column_bytes);
  weir_lap_comm(bucket);
  for (int r = 0; r < engine->size && status == WEIR_OK; r++)
    if (on->from[r] == engine->rank && r != engine->rank) status = take_over(bucket, r);
  weir_lap_compress(bucket);
  return status;
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

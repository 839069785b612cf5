/* What this rank holds.  Nothing that is held is ever dropped for something else: an epoch uses
 * every sample once, so whatever is kept is as good as what would replace it, and throwing out the
 * least recently used would throw out what is needed next. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "cache/cache.h"

/* What malloc takes beside the bytes asked for, at most. */
#define ALLOCATION 32

void cache_count(weir_cache *c, uint64_t *counter) {
  (void)pthread_mutex_lock(&c->mutex);
  ++*counter;
  (void)pthread_mutex_unlock(&c->mutex);
}

static weir_status check_source(uint32_t index, int error, size_t bytes, size_t room,
                                const char *what) {
  if (error != 0)
    return weir_fail(WEIR_E_IO, "the %s of sample %" PRIu32 " failed: %s", what, index,
                     strerror(error));
  if (bytes > room)
    return weir_fail(WEIR_E_INVALID,
                     "the %s of sample %" PRIu32 " says it wrote %zu bytes, with room for %zu",
                     what, index, bytes, room);
  return WEIR_OK;
}

static weir_status read_source(weir_cache *c, uint32_t index, const cache_scratch *scratch,
                               size_t *bytes) {
  const weir_cache_options *o = &c->options;
  const size_t room = o->decode != NULL ? o->source_bytes : o->sample_bytes;
  unsigned char *to = o->decode != NULL ? scratch->source : scratch->sample;
  size_t got = room;
  cache_count(c, &c->stats.source_reads);
  const int error = o->read(o->user, index, to, &got);
  weir_status status = check_source(index, error, got, room, "reading");
  *bytes = got;
  if (status != WEIR_OK || o->decode == NULL) return status;
  *bytes = o->sample_bytes;
  const int wrong = o->decode(o->user, index, scratch->source, got, scratch->sample, bytes);
  return check_source(index, wrong, *bytes, o->sample_bytes, "decoding");
}

/* From the file where it is there and whole, else from the source. */
static weir_status load(weir_cache *c, const cache_held *held, uint32_t index,
                        const cache_scratch *scratch, cache_found *found) {
  size_t bytes = 0;
  found->data = scratch->sample;
  if (held->at != 0 && cache_disk_read(c, held, scratch->sample)) {
    *found = (cache_found){scratch->sample, held->bytes, held->crc, CACHE_DISK};
    return WEIR_OK;
  }
  if (held->at != 0) cache_count(c, &c->stats.corrupt);
  const weir_status status = read_source(c, index, scratch, &bytes);
  if (status != WEIR_OK) return status;
  *found = (cache_found){scratch->sample, (uint32_t)bytes, weir_crc32c(0, scratch->sample, bytes),
                         CACHE_SOURCE};
  return WEIR_OK;
}

/* A copy in memory, if the limit allows it. */
static unsigned char *copy(weir_cache *c, const cache_found *found) {
  const uint64_t cost = found->bytes + ALLOCATION, limit = c->options.memory_limit;
  (void)pthread_mutex_lock(&c->mutex);
  const bool room = limit == 0 || c->memory_bytes + cost <= limit;
  if (room) c->memory_bytes += cost;
  (void)pthread_mutex_unlock(&c->mutex);
  unsigned char *data = room ? malloc(found->bytes > 0 ? found->bytes : 1) : NULL;
  if (data != NULL) memcpy(data, found->data, found->bytes);
  if (data != NULL || !room) return data;
  (void)pthread_mutex_lock(&c->mutex);
  c->memory_bytes -= cost;
  (void)pthread_mutex_unlock(&c->mutex);
  return NULL;
}

/* What this thread was loading is held as `now` says, and who waits for it may look. */
static void settle(weir_cache *c, cache_held *held, const cache_held *now) {
  (void)pthread_mutex_lock(&c->mutex);
  *held = *now;
  (void)pthread_cond_broadcast(&c->loaded);
  (void)pthread_mutex_unlock(&c->mutex);
}

/* Wait until no other thread reads this sample: no longer than the caller's own read and decode
 * take.  Then it is in memory, or this thread's to load. */
static cache_held claim(weir_cache *c, uint32_t index) {
  cache_held *held = &c->held[index];
  (void)pthread_mutex_lock(&c->mutex);
  while (held->loading) (void)pthread_cond_wait(&c->loaded, &c->mutex);
  held->loading = held->data == NULL;
  const cache_held now = *held;
  (void)pthread_mutex_unlock(&c->mutex);
  return now;
}

weir_status cache_find(weir_cache *c, uint32_t index, const cache_scratch *scratch,
                       cache_found *found) {
  cache_held now = claim(c, index);
  if (now.data != NULL) {
    *found = (cache_found){now.data, now.bytes, now.crc, CACHE_MEMORY};
    return WEIR_OK;
  }
  const weir_status status = load(c, &now, index, scratch, found);
  if (status == WEIR_OK) {
    const bool on_disk = found->place == CACHE_DISK;
    now.data = copy(c, found);
    if (now.data == NULL && !on_disk) now.at = cache_disk_write(c, index, found);
    now.bytes = found->bytes;
    now.crc = found->crc;
  }
  now.loading = false;
  settle(c, &c->held[index], &now);
  return status;
}

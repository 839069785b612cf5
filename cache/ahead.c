/* The order of an epoch, and the threads that read it ahead: a window of options.ahead places moves
 * over it as the trainer takes samples. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cache/cache.h"

static cache_slot *slot_of(const weir_cache *c, uint64_t place) {
  return &c->ahead.slot[place % c->options.ahead];
}

static unsigned char *bytes_of(const weir_cache *c, uint64_t place) {
  return c->ahead.data + place % c->options.ahead * c->options.sample_bytes;
}

/* Is there a place in the window that nobody has begun, with its slot free? */
static bool work_left(const weir_cache *c) {
  const cache_ahead *a = &c->ahead;
  return a->next < a->first + a->count && a->next < a->head + c->options.ahead &&
         !slot_of(c, a->next)->busy;
}

/* With the mutex held, which is let go meanwhile. */
static void fill_slot(weir_cache *c, uint32_t who, uint64_t place) {
  cache_ahead *a = &c->ahead;
  cache_slot *slot = slot_of(c, place);
  *slot = (cache_slot){.index = a->order[place - a->first], .busy = true};
  a->busy++;
  (void)pthread_mutex_unlock(&a->mutex);
  const weir_status status = cache_fetch(c, slot->index, who, bytes_of(c, place), &slot->bytes);
  if (status != WEIR_OK)
    (void)snprintf(slot->failure, sizeof slot->failure, "%s", weir_last_error());
  (void)pthread_mutex_lock(&a->mutex);
  slot->status = status;
  slot->busy = false;
  a->busy--;
  (void)pthread_cond_broadcast(&a->changed);
}

typedef struct reader {
  weir_cache *cache;
  uint32_t who;
} reader;

static void *read_ahead(void *argument) {
  const reader me = *(reader *)argument;
  cache_ahead *a = &me.cache->ahead;
  free(argument);
  (void)pthread_mutex_lock(&a->mutex);
  while (!a->stop) {
    if (work_left(me.cache))
      fill_slot(me.cache, me.who, a->next++);
    else
      (void)pthread_cond_wait(&a->changed, &a->mutex); /* for the trainer, or for the end */
  }
  (void)pthread_mutex_unlock(&a->mutex);
  return NULL;
}

weir_status cache_ahead_start(weir_cache *c) {
  cache_ahead *a = &c->ahead;
  for (; a->threads < c->options.readers; a->threads++) {
    reader *r = malloc(sizeof *r);
    if (r != NULL) *r = (reader){c, a->threads + 1};
    if (r == NULL || pthread_create(&a->thread[a->threads], NULL, read_ahead, r) != 0) {
      free(r);
      return weir_fail(WEIR_E_NOMEM, "no thread to read samples ahead");
    }
  }
  return WEIR_OK;
}

void cache_ahead_stop(weir_cache *c) {
  cache_ahead *a = &c->ahead;
  (void)pthread_mutex_lock(&a->mutex);
  a->stop = true;
  (void)pthread_cond_broadcast(&a->changed);
  (void)pthread_mutex_unlock(&a->mutex);
  for (uint32_t t = 0; t < a->threads; t++) (void)pthread_join(a->thread[t], NULL);
}

/* --- the order ------------------------------------------------------------------------------ */

/* Fisher-Yates from the identity, of which this rank's places move to the front. */
static size_t shuffle(const weir_cache *c, uint64_t epoch) {
  const uint32_t samples = (uint32_t)c->options.samples;
  uint32_t *order = c->ahead.order;
  size_t count = 0;
  weir_rng rng;
  const uint64_t seed = weir_hash(WEIR_HASH_INIT, &c->options.seed, sizeof c->options.seed);
  rng = weir_rng_of(weir_hash(seed, &epoch, sizeof epoch));
  for (uint32_t i = 0; i < samples; i++) order[i] = i;
  for (uint32_t i = samples; i > 1; i--) {
    const uint32_t j = (uint32_t)weir_rng_below(&rng, i), swap = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swap;
  }
  for (uint64_t i = (uint64_t)c->rank; i < samples; i += (uint64_t)c->size)
    order[count++] = order[i];
  return count;
}

/* With the mutex held: nothing of the old order is begun any more, nor awaited. */
static void new_order(cache_ahead *a) {
  a->count = 0;
  a->first = a->head = a->next;
}

weir_status weir_cache_epoch(weir_cache *c, uint64_t epoch, const uint32_t **order, size_t *count) {
  if (c == NULL) return weir_fail(WEIR_E_INVALID, "no cache");
  cache_ahead *a = &c->ahead;
  (void)pthread_mutex_lock(&a->mutex);
  new_order(a);
  a->count = shuffle(c, epoch);
  if (order != NULL) *order = a->order;
  if (count != NULL) *count = a->count;
  (void)pthread_cond_broadcast(&a->changed);
  (void)pthread_mutex_unlock(&a->mutex);
  return WEIR_OK;
}

weir_status weir_cache_ahead(weir_cache *c, const uint32_t *order, size_t count) {
  if (c == NULL || (order == NULL && count > 0) || count > c->options.samples)
    return weir_fail(WEIR_E_INVALID, "no cache, no order, or one of more than all samples");
  for (size_t i = 0; i < count; i++)
    if (order[i] >= c->options.samples)
      return weir_fail(WEIR_E_INVALID, "the order has sample %" PRIu32 " of %" PRIu64, order[i],
                       c->options.samples);
  cache_ahead *a = &c->ahead;
  (void)pthread_mutex_lock(&a->mutex);
  new_order(a);
  if (count > 0) memmove(a->order, order, count * sizeof *order);
  a->count = count;
  (void)pthread_cond_broadcast(&a->changed);
  while (count == 0 && a->busy > 0) (void)pthread_cond_wait(&a->changed, &a->mutex);
  (void)pthread_mutex_unlock(&a->mutex);
  return WEIR_OK;
}

/* --- taking --------------------------------------------------------------------------------- */

/* The place of a sample in the window; UINT64_MAX: it is not there. */
static uint64_t find_place(const weir_cache *c, uint32_t index) {
  const cache_ahead *a = &c->ahead;
  for (uint64_t p = a->head; p < a->first + a->count && p < a->head + c->options.ahead; p++)
    if (a->order[p - a->first] == index) return p;
  return UINT64_MAX;
}

static weir_status hand_over(const cache_slot *slot, const void *from, void *buffer,
                             size_t capacity, size_t *bytes) {
  if (slot->status != WEIR_OK) return weir_fail(slot->status, "%s", slot->failure);
  if (slot->bytes > capacity)
    return weir_fail(WEIR_E_CAPACITY, "sample %" PRIu32 " has %zu bytes, and the buffer %zu",
                     slot->index, slot->bytes, capacity);
  memcpy(buffer, from, slot->bytes);
  if (bytes != NULL) *bytes = slot->bytes;
  return WEIR_OK;
}

/* A sample that nobody has begun to read. */
static weir_status get_now(weir_cache *c, uint32_t index, void *buffer, size_t capacity,
                           size_t *bytes) {
  cache_slot now = {.index = index};
  now.status = cache_fetch(c, index, 0, c->scratch[0].sample, &now.bytes);
  if (now.status != WEIR_OK) return now.status;
  return hand_over(&now, c->scratch[0].sample, buffer, capacity, bytes);
}

weir_status weir_cache_get(weir_cache *c, uint64_t index, void *buffer, size_t capacity,
                           size_t *bytes) {
  if (c == NULL || index >= c->options.samples || (buffer == NULL && capacity > 0))
    return weir_fail(WEIR_E_INVALID, "no cache, no buffer, or no sample %" PRIu64, index);
  cache_ahead *a = &c->ahead;
  (void)pthread_mutex_lock(&a->mutex);
  const uint64_t place = find_place(c, (uint32_t)index);
  const bool found = place != UINT64_MAX, begun = found && place < a->next;
  const cache_slot *slot = slot_of(c, found ? place : 0);
  /* No longer than the other ranks' time-outs and the caller's own read take. */
  while (begun && slot->busy) (void)pthread_cond_wait(&a->changed, &a->mutex);
  weir_status status = WEIR_OK;
  if (begun) status = hand_over(slot, bytes_of(c, place), buffer, capacity, bytes);
  if (found) a->head = place + 1;
  if (found && a->next < a->head) a->next = a->head;
  (void)pthread_cond_broadcast(&a->changed);
  (void)pthread_mutex_unlock(&a->mutex);
  return begun ? status : get_now(c, (uint32_t)index, buffer, capacity, bytes);
}

/* Threads that answer other ranks: one accepts, and each connection has one of its own, which
 * proves whose it is before it is told anything. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "cache/cache.h"
#include "collectives/transports/tcp.h"

/* Connections at a time that have not yet proved anything. */
#define UNKNOWN_MOST 16

/* --- one connection ------------------------------------------------------------------------- */

/* Room to read a sample into.  Few samples are read for other ranks at a time, so that the memory
 * for it has a bound; a rank that waits in vain gives up by its own time-out. */
static cache_scratch borrow(cache_service *s) {
  (void)pthread_mutex_lock(&s->mutex);
  while (s->spare == 0) (void)pthread_cond_wait(&s->freed, &s->mutex);
  const cache_scratch scratch = s->scratch[--s->spare];
  (void)pthread_mutex_unlock(&s->mutex);
  return scratch;
}

static void give_back(cache_service *s, cache_scratch scratch) {
  (void)pthread_mutex_lock(&s->mutex);
  s->scratch[s->spare++] = scratch;
  (void)pthread_cond_signal(&s->freed);
  (void)pthread_mutex_unlock(&s->mutex);
}

static bool reply(const weir_cache *c, int fd, uint32_t index, const cache_found *found) {
  const double deadline_s = weir_now_s() + c->options.timeout_s;
  cache_word word;
  cache_message message = {.kind = CACHE_CANNOT, .index = index};
  if (found != NULL) message = (cache_message){CACHE_HERE, index, found->bytes, found->crc};
  cache_word_write(&word, &message);
  return tcp_write_all(fd, &word, sizeof word, deadline_s) &&
         (found == NULL || tcp_write_all(fd, found->data, found->bytes, deadline_s));
}

static bool in_memory(weir_cache *c, uint32_t index, cache_found *found) {
  (void)pthread_mutex_lock(&c->mutex);
  const cache_held held = c->held[index];
  (void)pthread_mutex_unlock(&c->mutex);
  *found = (cache_found){held.data, held.bytes, held.crc, CACHE_MEMORY};
  return held.data != NULL;
}

static bool answer(weir_cache *c, int fd, uint32_t index) {
  cache_found found;
  if (in_memory(c, index, &found)) return reply(c, fd, index, &found);
  const cache_scratch scratch = borrow(&c->service);
  const weir_status status = cache_find(c, index, &scratch, &found);
  const bool good = reply(c, fd, index, status == WEIR_OK ? &found : NULL);
  give_back(&c->service, scratch);
  return good;
}

/* Requests come whenever the other rank wants something, so that this waits for the end of
 * either. */
static bool next_request(const weir_cache *c, int fd, cache_message *request) {
  struct pollfd wait[] = {{.fd = fd, .events = POLLIN}, {.fd = c->service.stop, .events = POLLIN}};
  cache_word word;
  while (poll(wait, 2, -1) < 0)
    if (errno != EINTR) return false;
  return wait[1].revents == 0 &&
         tcp_read_all(fd, &word, sizeof word, weir_now_s() + c->options.timeout_s) &&
         cache_word_request(&word, c->options.samples, request);
}

static void know(cache_guest *g) {
  cache_service *s = &g->cache->service;
  (void)pthread_mutex_lock(&s->mutex);
  g->state = GUEST_KNOWN;
  (void)pthread_mutex_unlock(&s->mutex);
}

static void leave(cache_guest *g) {
  cache_service *s = &g->cache->service;
  (void)pthread_mutex_lock(&s->mutex);
  (void)close(g->fd);
  g->state = GUEST_GONE;
  (void)pthread_mutex_unlock(&s->mutex);
}

static void *serve_guest(void *argument) {
  cache_guest *g = argument;
  weir_cache *c = g->cache;
  cache_message request;
  const int one = 1;
  (void)setsockopt(g->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  (void)setsockopt(g->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  if (cache_admit(c, g->fd, weir_now_s() + c->options.timeout_s)) {
    know(g);
    while (next_request(c, g->fd, &request) && answer(c, g->fd, request.index)) continue;
  } else {
    cache_count(c, &c->stats.strangers);
  }
  leave(g);
  return NULL;
}

/* --- accepting ------------------------------------------------------------------------------ */

/* A place for one more, after the threads of those who are gone; NULL: there are enough. */
static cache_guest *find_place(cache_service *s) {
  cache_guest *place = NULL;
  unsigned unknown = 0;
  (void)pthread_mutex_lock(&s->mutex);
  for (size_t i = 0; i < s->guests; i++) {
    cache_guest *g = &s->guest[i];
    if (g->state == GUEST_GONE) {
      (void)pthread_join(g->thread, NULL); /* it has nothing left to do */
      *g = (cache_guest){.cache = NULL};
    }
    unknown += g->state == GUEST_UNKNOWN;
    if (g->state == GUEST_NONE) place = g;
  }
  (void)pthread_mutex_unlock(&s->mutex);
  return unknown < UNKNOWN_MOST ? place : NULL;
}

static void take_in(weir_cache *c, int fd) {
  cache_guest *g = find_place(&c->service);
  if (g != NULL) {
    *g = (cache_guest){.cache = c, .fd = fd, .state = GUEST_UNKNOWN}; /* nobody else looks yet */
    if (pthread_create(&g->thread, NULL, serve_guest, g) == 0) return;
    *g = (cache_guest){.cache = NULL};
  }
  (void)close(fd);
}

static void *accept_all(void *argument) {
  weir_cache *c = argument;
  cache_service *s = &c->service;
  struct pollfd wait[] = {{.fd = s->listener, .events = POLLIN}, {.fd = s->stop, .events = POLLIN}};
  for (;;) {
    if (poll(wait, 2, -1) < 0 && errno != EINTR) return NULL;
    if (wait[1].revents != 0) return NULL;
    const int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
      take_in(c, fd);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
      tcp_sleep(0.05);
  }
}

weir_status cache_serve_start(weir_cache *c) {
  cache_service *s = &c->service;
  if (s->listener < 0) return WEIR_OK;
  s->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  s->running = s->stop >= 0 && pthread_create(&s->thread, NULL, accept_all, c) == 0;
  return s->running ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no thread to serve samples");
}

/* After the accepting thread's end: whoever talks or listens to a guest is interrupted. */
static void end_guests(cache_service *s) {
  (void)pthread_mutex_lock(&s->mutex);
  for (size_t i = 0; i < s->guests; i++)
    if (s->guest[i].state == GUEST_UNKNOWN || s->guest[i].state == GUEST_KNOWN)
      (void)shutdown(s->guest[i].fd, SHUT_RDWR);
  (void)pthread_mutex_unlock(&s->mutex);
  for (size_t i = 0; i < s->guests; i++)
    if (s->guest[i].cache != NULL) (void)pthread_join(s->guest[i].thread, NULL);
}

void cache_serve_stop(weir_cache *c) {
  cache_service *s = &c->service;
  if (s->running) {
    (void)eventfd_write(s->stop, 1); /* stays readable: all see it */
    (void)pthread_join(s->thread, NULL);
    end_guests(s);
  }
  if (s->stop >= 0) (void)close(s->stop);
  if (s->listener >= 0) (void)close(s->listener);
}

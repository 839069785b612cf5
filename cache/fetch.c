/* A sample from whoever owns it. */
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "cache/cache.h"
#include "collectives/transports/tcp.h"

#define AGAIN_S 0.02

/* Ranks take turns; a lost rank's samples are dealt out among those left, and all others stay where
 * they are. */
int cache_owner(const weir_cache *c, uint32_t index) {
  const uint32_t size = (uint32_t)c->size;
  uint32_t left = 0;
  if (!atomic_load(&c->peer[index % size].lost)) return (int)(index % size);
  for (uint32_t r = 0; r < size; r++) left += !atomic_load(&c->peer[r].lost);
  uint32_t turn = left > 0 ? index / size % left : 0;
  for (uint32_t r = 0; r < size; r++)
    if (!atomic_load(&c->peer[r].lost) && turn-- == 0) return (int)r;
  return c->rank; /* lost ones have become more meanwhile */
}

static void hang_up(int *link) {
  if (*link >= 0) (void)close(*link);
  *link = -1;
}

static void lose(weir_cache *c, int peer, const char *why) {
  if (atomic_exchange(&c->peer[peer].lost, true)) return;
  (void)pthread_mutex_lock(&c->mutex);
  c->stats.lost++;
  (void)pthread_mutex_unlock(&c->mutex);
  weir_log(WEIR_LOG_WARN, "the cache asks rank %d no more, %s: the others own its samples", peer,
           why);
}

/* A rank that many call at once hangs up on those for whom it has no place yet. */
static bool link_up(const weir_cache *c, int peer, int *link, double deadline_s) {
  const struct sockaddr_in own = {.sin_family = AF_INET,
                                  .sin_addr = c->peer[c->rank].address.sin_addr};
  const int one = 1;
  while (*link < 0 && !atomic_load(&c->peer[peer].lost)) {
    if (tcp_connect_once(&c->peer[peer].address, &own, deadline_s, link) != WEIR_OK || *link < 0)
      return false;
    (void)setsockopt(*link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (cache_greet(c, *link, peer, deadline_s)) return true;
    hang_up(link);
    if (weir_now_s() >= deadline_s) return false;
    tcp_sleep(AGAIN_S);
  }
  return *link >= 0;
}

/* What became of a request; the words for what was wrong with the peer. */
static const char *const answers[] = {"",
                                      "",
                                      "which does not answer",
                                      "which has hung up or is silent",
                                      "which breaks the protocol",
                                      "whose bytes arrive damaged"};
typedef enum answer { HERE, CANNOT, NO_LINK, NO_ANSWER, WRONG, DAMAGED } answer;

static answer ask(const weir_cache *c, uint32_t index, int link, unsigned char *to, size_t *bytes,
                  double deadline_s) {
  cache_word word;
  cache_message reply;
  cache_word_write(&word, &(cache_message){.kind = CACHE_ASK, .index = index});
  if (!tcp_write_all(link, &word, sizeof word, deadline_s) ||
      !tcp_read_all(link, &word, sizeof word, deadline_s))
    return NO_ANSWER;
  if (!cache_word_reply(&word, index, c->options.sample_bytes, &reply)) return WRONG;
  if (reply.kind == CACHE_CANNOT) return CANNOT;
  if (!tcp_read_all(link, to, reply.bytes, deadline_s)) return NO_ANSWER;
  *bytes = reply.bytes;
  return weir_crc32c(0, to, reply.bytes) == reply.crc ? HERE : DAMAGED;
}

static answer ask_peer(weir_cache *c, uint32_t index, int peer, uint32_t who, unsigned char *to,
                       size_t *bytes) {
  const double deadline_s = weir_now_s() + c->options.timeout_s;
  int *link = &c->link[who * (uint32_t)c->size + (uint32_t)peer];
  answer a = NO_LINK;
  if (link_up(c, peer, link, deadline_s)) a = ask(c, index, *link, to, bytes, deadline_s);
  if (a <= CANNOT) return a;
  hang_up(link);
  lose(c, peer, answers[a]);
  return a;
}

static weir_status fetch_own(weir_cache *c, uint32_t index, uint32_t who, unsigned char *to,
                             size_t *bytes) {
  cache_found found;
  uint64_t *const counters[] = {&c->stats.from_memory, &c->stats.from_peers, &c->stats.from_disk,
                                &c->stats.from_source};
  const weir_status status =
      cache_find(c, index, &(cache_scratch){to, c->scratch[who].source}, &found);
  if (status != WEIR_OK) return status;
  if (found.data != to) memcpy(to, found.data, found.bytes);
  *bytes = found.bytes;
  cache_count(c, counters[found.place]);
  return WEIR_OK;
}

static bool held_here(weir_cache *c, uint32_t index) {
  (void)pthread_mutex_lock(&c->mutex);
  const bool held = c->held[index].data != NULL || c->held[index].at != 0;
  (void)pthread_mutex_unlock(&c->mutex);
  return held;
}

/* A rank that cannot, because its source fails, is no worse than this one: its own source then says
 * what is wrong. */
weir_status cache_fetch(weir_cache *c, uint32_t index, uint32_t who, unsigned char *to,
                        size_t *bytes) {
  while (!held_here(c, index)) {
    const int owner = cache_owner(c, index);
    if (owner == c->rank) break;
    const answer a = ask_peer(c, index, owner, who, to, bytes);
    if (a == HERE) cache_count(c, &c->stats.from_peers);
    if (a == HERE) return WEIR_OK;
    if (a == CANNOT) break;
  }
  return fetch_own(c, index, who, to, bytes);
}

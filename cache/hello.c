/* Who may connect: both ends prove that they know the cache's key, whoever connects first, so that
 * a stranger learns nothing to try keys on. */
#include <endian.h>

#include "cache/cache.h"
#include "collectives/transports/tcp.h"
#include "collectives/transports/tcp_hello.h"

_Static_assert(TCP_NONCE <= WEIR_PROOF_BYTES, "a greeting has room for a nonce");

static bool say(int fd, const cache_greeting *g, double deadline_s) {
  return tcp_write_all(fd, g, sizeof *g, deadline_s);
}

static bool hear(int fd, cache_greeting *g, double deadline_s) {
  return tcp_read_all(fd, g, sizeof *g, deadline_s);
}

static bool proves(const cache_greeting *g, const unsigned char due[WEIR_PROOF_BYTES]) {
  return weir_proof_equal(g->said, due, WEIR_PROOF_BYTES);
}

bool cache_greet(const weir_cache *c, int fd, int peer, double deadline_s) {
  cache_greeting hello = {0}, challenge, proof = {0}, welcome;
  unsigned char due[WEIR_PROOF_BYTES];
  tcp_nonce(hello.said);
  cache_greeting_seal(&hello, CACHE_HELLO, c->rank, peer);
  if (!say(fd, &hello, deadline_s) || !hear(fd, &challenge, deadline_s) ||
      !cache_greeting_is(&challenge, CACHE_CHALLENGE, peer, c->rank))
    return false;
  cache_prove(&c->key, CACHE_PROOF, &hello, &challenge, proof.said);
  cache_greeting_seal(&proof, CACHE_PROOF, c->rank, peer);
  cache_prove(&c->key, CACHE_WELCOME, &hello, &challenge, due);
  return say(fd, &proof, deadline_s) && hear(fd, &welcome, deadline_s) &&
         cache_greeting_is(&welcome, CACHE_WELCOME, peer, c->rank) && proves(&welcome, due);
}

bool cache_admit(const weir_cache *c, int fd, double deadline_s) {
  cache_greeting hello, challenge = {0}, proof, welcome = {0};
  unsigned char due[WEIR_PROOF_BYTES];
  if (!hear(fd, &hello, deadline_s) || !cache_greeting_is(&hello, CACHE_HELLO, -1, c->rank))
    return false;
  const uint32_t from = le32toh(hello.from);
  if (from >= (uint32_t)c->size) return false;
  tcp_nonce(challenge.said);
  cache_greeting_seal(&challenge, CACHE_CHALLENGE, c->rank, (int)from);
  cache_prove(&c->key, CACHE_PROOF, &hello, &challenge, due);
  if (!say(fd, &challenge, deadline_s) || !hear(fd, &proof, deadline_s) ||
      !cache_greeting_is(&proof, CACHE_PROOF, (int)from, c->rank) || !proves(&proof, due))
    return false;
  cache_prove(&c->key, CACHE_WELCOME, &hello, &challenge, welcome.said);
  cache_greeting_seal(&welcome, CACHE_WELCOME, c->rank, (int)from);
  return say(fd, &welcome, deadline_s);
}

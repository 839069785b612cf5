/* What travels between the caches of two ranks: fixed words, little-endian, each with a checksum of
 * its own.  Nothing of them is used before it has been checked.
 *
 * The one who connects:  hello ->    <- challenge    proof ->    <- welcome
 * and then, any number of times:     request ->      <- reply and the sample's bytes */
#ifndef WEIR_CACHE_WIRE_H
#define WEIR_CACHE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/secret.h"

enum { CACHE_HELLO = 1, CACHE_CHALLENGE = 2, CACHE_PROOF = 3, CACHE_WELCOME = 4 };

/* A hello and a challenge carry a nonce, the other two a proof: an HMAC over these. */
typedef struct cache_greeting {
  uint32_t magic;
  uint16_t version, kind;
  uint32_t from, to; /* ranks */
  unsigned char said[WEIR_PROOF_BYTES];
  uint32_t checksum; /* of the bytes before it */
} cache_greeting;
_Static_assert(sizeof(cache_greeting) == 52, "a greeting has no padding");

enum { CACHE_ASK = 5, CACHE_HERE = 6, CACHE_CANNOT = 7 };

/* A request (ASK), or a reply (HERE with bytes behind it, CANNOT). */
typedef struct cache_word {
  uint32_t magic;
  uint16_t version, kind;
  uint64_t index;
  uint32_t bytes, crc; /* of the sample */
  uint32_t zero, checksum;
} cache_word;
_Static_assert(sizeof(cache_word) == 32, "a word has no padding");

/* A word's meaning. */
typedef struct cache_message {
  int kind;
  uint32_t index, bytes, crc;
} cache_message;

void cache_word_write(cache_word *word, const cache_message *message);
/* Is it a request for one of so many samples? */
bool cache_word_request(const cache_word *word, uint64_t samples, cache_message *message);
/* Is it a reply to the request for that sample, of at most so many bytes? */
bool cache_word_reply(const cache_word *word, uint32_t index, size_t capacity,
                      cache_message *message);

void cache_greeting_seal(cache_greeting *greeting, int kind, int from, int to);
/* Is it whole, of this kind and between these ranks? from -1: any. */
bool cache_greeting_is(const cache_greeting *greeting, int kind, int from, int to);
/* The proof of whoever says `kind`. */
void cache_prove(const weir_key *key, int kind, const cache_greeting *hello,
                 const cache_greeting *challenge, unsigned char proof[WEIR_PROOF_BYTES]);

#endif

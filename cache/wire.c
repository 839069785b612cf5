#include "cache/wire.h"

#include <endian.h>

#include "base/crc32c.h"

#define MAGIC UINT32_C(0x43494557) /* "WEIC" */
#define VERSION 1

static uint32_t word_checksum(const cache_word *w) {
  return htole32(weir_crc32c(0, w, offsetof(cache_word, checksum)));
}

void cache_word_write(cache_word *w, const cache_message *m) {
  *w = (cache_word){.magic = htole32(MAGIC),
                    .version = htole16(VERSION),
                    .kind = htole16((uint16_t)m->kind),
                    .index = htole64(m->index),
                    .bytes = htole32(m->bytes),
                    .crc = htole32(m->crc)};
  w->checksum = word_checksum(w);
}

static bool read_word(const cache_word *w, cache_message *m) {
  const uint64_t index = le64toh(w->index);
  *m = (cache_message){.kind = le16toh(w->kind),
                       .index = (uint32_t)index,
                       .bytes = le32toh(w->bytes),
                       .crc = le32toh(w->crc)};
  return le32toh(w->magic) == MAGIC && le16toh(w->version) == VERSION && w->zero == 0 &&
         index <= UINT32_MAX && w->checksum == word_checksum(w);
}

bool cache_word_request(const cache_word *w, uint64_t samples, cache_message *m) {
  return read_word(w, m) && m->kind == CACHE_ASK && m->index < samples && m->bytes == 0;
}

bool cache_word_reply(const cache_word *w, uint32_t index, size_t capacity, cache_message *m) {
  if (!read_word(w, m) || m->index != index) return false;
  return m->kind == CACHE_HERE ? m->bytes <= capacity : m->kind == CACHE_CANNOT && m->bytes == 0;
}

static uint32_t greeting_checksum(const cache_greeting *g) {
  return htole32(weir_crc32c(0, g, offsetof(cache_greeting, checksum)));
}

void cache_greeting_seal(cache_greeting *g, int kind, int from, int to) {
  g->magic = htole32(MAGIC);
  g->version = htole16(VERSION);
  g->kind = htole16((uint16_t)kind);
  g->from = htole32((uint32_t)from);
  g->to = htole32((uint32_t)to);
  g->checksum = greeting_checksum(g);
}

bool cache_greeting_is(const cache_greeting *g, int kind, int from, int to) {
  return le32toh(g->magic) == MAGIC && le16toh(g->version) == VERSION && le16toh(g->kind) == kind &&
         (from < 0 || le32toh(g->from) == (uint32_t)from) && le32toh(g->to) == (uint32_t)to &&
         g->checksum == greeting_checksum(g);
}

void cache_prove(const weir_key *key, int kind, const cache_greeting *hello,
                 const cache_greeting *challenge, unsigned char proof[WEIR_PROOF_BYTES]) {
  const weir_piece piece[] = {{hello, sizeof *hello}, {challenge, sizeof *challenge}};
  weir_prove(key, kind == CACHE_PROOF ? "weir cache caller" : "weir cache host", piece, 2, proof);
}

#include "collectives/transports/tcp_word.h"

#include <endian.h>
#include <string.h>

#define WORD_MAGIC UINT32_C(0x57494557) /* "WEIW" */

static size_t set_bytes(int size) {
  const size_t words = ((size_t)size + WEIR_JOIN_MOST + 63) / 64;
  return (words < SYNOD_WORDS ? words : SYNOD_WORDS) * sizeof(uint64_t);
}

size_t tcp_word_bytes(int size) { return sizeof(tcp_word) + 2 * set_bytes(size); }

static uint32_t checksum(const unsigned char *bytes, int size) {
  unsigned char all[TCP_WORD_MAX];
  memcpy(all, bytes, tcp_word_bytes(size));
  memset(all + offsetof(tcp_word, checksum), 0, sizeof(uint32_t));
  return tcp_checksum(all, tcp_word_bytes(size));
}

static void put_set(unsigned char *bytes, int size, const weir_ranks *set) {
  for (size_t w = 0; w < set_bytes(size) / sizeof(uint64_t); w++) {
    const uint64_t word = htole64(set->word[w]);
    memcpy(bytes + w * sizeof word, &word, sizeof word);
  }
}

static weir_ranks get_set(const unsigned char *bytes, int size) {
  weir_ranks set = {{0}};
  for (size_t w = 0; w < set_bytes(size) / sizeof(uint64_t); w++) {
    uint64_t word;
    memcpy(&word, bytes + w * sizeof word, sizeof word);
    set.word[w] = le64toh(word);
  }
  return set;
}

void tcp_word_write(unsigned char *bytes, uint64_t generation, int size, const synod_word *word) {
  tcp_word head = {.magic = htole32(WORD_MAGIC),
                   .version = htole16(TCP_VERSION),
                   .kind = htole16((uint16_t)word->kind),
                   .generation = htole64(generation),
                   .ballot = htole64(word->ballot),
                   .other = htole64(word->other),
                   .size = htole32((uint32_t)size)};
  memcpy(bytes, &head, sizeof head);
  put_set(bytes + sizeof head, size, &word->members);
  put_set(bytes + sizeof head + set_bytes(size), size, &word->dead);
  head.checksum = htole32(checksum(bytes, size));
  memcpy(bytes, &head, sizeof head);
}

bool tcp_word_read(const unsigned char *bytes, uint64_t generation, int size, synod_word *word) {
  tcp_word head;
  memcpy(&head, bytes, sizeof head);
  *word = (synod_word){.kind = le16toh(head.kind),
                       .ballot = le64toh(head.ballot),
                       .other = le64toh(head.other),
                       .members = get_set(bytes + sizeof head, size),
                       .dead = get_set(bytes + sizeof head + set_bytes(size), size)};
  return le32toh(head.magic) == WORD_MAGIC && le16toh(head.version) == TCP_VERSION &&
         le64toh(head.generation) == generation && le32toh(head.size) == (uint32_t)size &&
         le32toh(head.checksum) == checksum(bytes, size);
}

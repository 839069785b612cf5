/* The words of survivors' agreement (synod.h) on a connection. */
#ifndef WEIR_TRANSPORTS_TCP_WORD_H
#define WEIR_TRANSPORTS_TCP_WORD_H

#include "collectives/transports/synod.h"
#include "collectives/transports/tcp.h"

/* Little-endian on the wire; behind it lie two sets of ranks, 8 bytes for each 64 of the group and
 * of the guests that it may have: the members, and the dead. */
typedef struct tcp_word {
  uint32_t magic;
  uint16_t version;
  uint16_t kind;
  uint64_t generation; /* of the group that has ended */
  uint64_t ballot;
  uint64_t other;
  uint32_t size;
  uint32_t checksum; /* of all but this */
} tcp_word;
_Static_assert(sizeof(tcp_word) == 40, "a word has no padding");

#define TCP_WORD_MAX (sizeof(tcp_word) + 2 * sizeof(weir_ranks))

size_t tcp_word_bytes(int size);
void tcp_word_write(unsigned char *bytes, uint64_t generation, int size, const synod_word *word);
/* False: it is damaged, or of another version, generation or size. */
bool tcp_word_read(const unsigned char *bytes, uint64_t generation, int size, synod_word *word);

#endif

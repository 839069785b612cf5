/* Survivors agree on who they are.
 *
 * Each tells all others whom it has met, in rounds, until in one round all of them have said the
 * same: what somebody has not met, and who is silent or gone, drops out for the next round, and is
 * told so should it wake up.  Whoever has seen such a round confirms it, and it stands unless one
 * of the others comes with another round instead: that one has missed somebody's word.  Who dies
 * after it has given its word is a member, and the next collective finds it out. */
#ifndef WEIR_TRANSPORTS_TCP_AGREE_H
#define WEIR_TRANSPORTS_TCP_AGREE_H

#include "collectives/transports/tcp.h"

#define TCP_WORDS ((WEIR_RANKS_MAX + 63) / 64)

typedef struct tcp_ranks {
  uint64_t word[TCP_WORDS]; /* a bit a rank */
} tcp_ranks;

static inline bool tcp_ranks_has(const tcp_ranks *set, int rank) {
  return (set->word[rank / 64] >> rank % 64 & 1) != 0;
}
static inline void tcp_ranks_add(tcp_ranks *set, int rank) {
  set->word[rank / 64] |= UINT64_C(1) << rank % 64;
}
static inline void tcp_ranks_drop(tcp_ranks *set, int rank) {
  set->word[rank / 64] &= ~(UINT64_C(1) << rank % 64);
}

/* Little-endian on the wire. */
typedef struct tcp_view {
  uint32_t magic;
  uint16_t version;
  uint16_t kind; /* VIEW_TELL or VIEW_CONFIRM */
  uint64_t generation;
  uint32_t round;
  uint32_t size;
  tcp_ranks met;  /* with oneself */
  tcp_ranks dead; /* whose processes are known to have ended */
  uint32_t reserved;
  uint32_t checksum; /* of the bytes before it */
} tcp_view;
_Static_assert(sizeof(tcp_view) == 32 + 2 * sizeof(tcp_ranks), "a view has no padding");
enum { VIEW_TELL = 1, VIEW_CONFIRM = 2 };

void tcp_view_seal(tcp_view *view);
/* Is it whole, of our version, generation and size, and of a known kind? */
bool tcp_view_is(const tcp_view *view, uint64_t generation, int size);

/* fd[r] is the connection to rank r of size, -1 where there is none.  met and dead: in, what this
 * rank knows; out, what all agree on.  Each wait is bounded by timeout_s. */
weir_status tcp_agree(const int *fd, int rank, int size, uint64_t generation, double timeout_s,
                      tcp_ranks *met, tcp_ranks *dead);

#endif

/* Who goes on after a loss: single-decree consensus, the Synod (L. Lamport, "The part-time
 * parliament", 1998; "Paxos made simple", 2001), over the members of the group that has ended.
 *
 * A pure state machine: words in, words out, no clock and no socket.  What carries the words says
 * who has been met, who is known dead, when it is this rank's turn to propose and when it need not
 * wait for the others any longer.  What is decided is the set of ranks that go on.
 *
 * A ballot is a number and the rank that holds it.  Its holder asks all for their promise to take
 * no part in lower ballots, and hears what each has accepted last.  Once it need not wait for more,
 * it proposes those who have answered, and they accept.  It departs from the text book in this:
 *
 * - A quorum is more than half of the group, or half of it with rank 0, or any ranks when all
 *   others are known dead.  Those known dead travel with every word, and a ballot counts on those
 *   that were known when it proposed, no later ones; words of the dead are not listened to.  So
 *   two quorums have a rank in common, or those of one of them are all dead.
 * - A holder that hears of an earlier proposal takes it over only if some quorum may have accepted
 *   it, going by who has answered without having done so.  Else it proposes those who answer.
 *   Nobody who has answered is therefore left out, unless a quorum may have decided before.
 * - Who comes while a proposal is out, and is not in it, has it made again in a new ballot.
 * - A group that has lost nobody may take others in, its guests: ranks from `size` on, which have
 *   no vote.  A promise of a rank that has accepted nothing tells which have come to it, and where
 *   all ranks promise so, the proposal holds the guests of all of them.  So every rank knows whom
 *   it is to accept.
 *
 * Whatever was promised and accepted stays with the group from one attempt to the next, so that
 * attempts meet, however many each rank has made.  All of it is explored in
 * tests/unit/test_synod.c. */
#ifndef WEIR_TRANSPORTS_SYNOD_H
#define WEIR_TRANSPORTS_SYNOD_H

#include <stdbool.h>
#include <stdint.h>

#ifndef SYNOD_RANKS_MAX /* the explorer's states are small */
#include "collectives/transports/common.h"
#define SYNOD_RANKS_MAX WEIR_RANKS_MAX
#endif
#define SYNOD_WORDS ((SYNOD_RANKS_MAX + 63) / 64)

typedef struct weir_ranks {
  uint64_t word[SYNOD_WORDS]; /* a bit a rank */
} weir_ranks;

static inline bool weir_ranks_has(const weir_ranks *set, int rank) {
  return (set->word[rank / 64] >> rank % 64 & 1) != 0;
}
static inline void weir_ranks_add(weir_ranks *set, int rank) {
  set->word[rank / 64] |= UINT64_C(1) << rank % 64;
}

enum {
  SYNOD_PREPARE = 1, /* the holder asks for a promise */
  SYNOD_PROMISE,     /* ... and this is it, with what was accepted last */
  SYNOD_ACCEPT,      /* the holder proposes members */
  SYNOD_ACCEPTED,
  SYNOD_REFUSED, /* a higher ballot was promised: `other` */
  SYNOD_DECIDED
};

typedef struct synod_word {
  int kind;
  uint64_t ballot;
  uint64_t other;     /* PROMISE: the ballot of what was accepted, 0: nothing; REFUSED: see there */
  weir_ranks members; /* PROMISE (where `other` is 0: guests alone), ACCEPT, DECIDED */
  weir_ranks dead;    /* whom the speaker knows to be dead */
} synod_word;

static inline int synod_holder(uint64_t ballot) { return (int)(ballot & 0xffff); }

enum { SYNOD_IDLE, SYNOD_PREPARING, SYNOD_PROPOSING };

typedef struct weir_synod {
  int rank, size;
  uint64_t highest;  /* number of any ballot that was heard of */
  uint64_t promised; /* lower ballots are refused */
  uint64_t accepted; /* the ballot of `members`; 0: none */
  weir_ranks members;
  weir_ranks dead;
  weir_ranks guests; /* who has come to this rank: set before it has said a word, or between two
                        attempts as long as it has said nothing of guests */
  bool decided;      /* on `members` */
  /* This rank's own ballot, unless it is idle. */
  int phase;
  bool hasty;           /* need not wait for more */
  bool open;            /* the proposal is of this rank's own making */
  uint64_t ballot;      /* this rank's */
  weir_ranks answered;  /* who has promised, or accepted */
  weir_ranks buried;    /* who was known dead when it proposed */
  uint64_t best;        /* the highest ballot of what those who promised had accepted */
  weir_ranks candidate; /* what that was */
  weir_ranks holders;   /* which of those who promised had accepted it */
  weir_ranks common;    /* guests of all who promised */
} weir_synod;

/* Where words go: to another rank, or nowhere when there is no way to it. */
typedef struct synod_post {
  void (*send)(void *user, int to, const synod_word *word);
  void *user;
} synod_post;

void weir_synod_begin(weir_synod *s, int rank, int size);
/* There is a way to this rank, a new one perhaps: what was said on an old one may be lost. */
void weir_synod_meet(weir_synod *s, int rank, const synod_post *post);
/* This rank's process is known to have ended before it can have gone on. */
void weir_synod_bury(weir_synod *s, int rank, const synod_post *post);
/* Begin a ballot above all that were heard of. */
void weir_synod_propose(weir_synod *s, const synod_post *post);
/* Those who have not answered this rank's ballot need not be waited for. */
void weir_synod_hurry(weir_synod *s, const synod_post *post);
/* Say again what the others still have to answer. */
void weir_synod_remind(const weir_synod *s, const synod_post *post);
/* Take a word of another rank.  False: no rank of ours can have said that. */
bool weir_synod_hear(weir_synod *s, int from, const synod_word *word, const synod_post *post);

/* May these go on as the group of `size`, when those are dead?  See shrink in transport.h. */
bool weir_synod_quorum(const weir_ranks *some, const weir_ranks *dead, int size);

#endif

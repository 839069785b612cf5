/* Ranks that agree on who goes on, the words that are under way between them, and what has to hold:
 * one state of what tests/unit/test_synod.c explores.
 *
 * Words between two ranks keep their order, as on a connection; a rank that tries again loses what
 * was under way to and from it. */
#ifndef WEIR_TESTS_SYNOD_WORLD_H
#define WEIR_TESTS_SYNOD_WORLD_H

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SYNOD_RANKS_MAX 5
#include "collectives/transports/synod.c"

#define RANKS_MAX SYNOD_RANKS_MAX
#define MAIL_MAX 160

/* Mistakes, each made from outside of the state machine. */
typedef enum mistake {
  NO_MISTAKE,
  FORGETS_PROMISES, /* accepts and promises below what it has promised */
  FORGETS_ON_RETRY, /* begins anew with an empty head */
  IGNORES_VOTES,    /* proposes as if nobody had accepted anything */
  BURIES_LIVING,    /* takes a rank for dead that lives */
  TAKES_ANY_GUEST   /* has every promise tell of all guests */
} mistake;

typedef struct world {
  weir_synod rank[RANKS_MAX];
  uint8_t here;     /* bits: who has begun */
  uint8_t crashed;  /* bits */
  uint8_t proposed; /* bits: who has ever made a ballot */
  uint8_t faults, ballots;
  bool buried, hurried; /* was anyone known dead, not waited for, or gone for a while? */
  uint8_t letters;
  uint64_t mail[MAIL_MAX]; /* packed; by channel, and oldest first on each */
} world;

/* Most worlds have few letters. */
static void copy_world(world *to, const world *from) {
  memcpy(to, from, offsetof(world, mail) + from->letters * sizeof from->mail[0]);
}

/* Two guests: all ranks know the first, and all but the highest the second. */
static weir_ranks guests_of(int rank, int size) {
  weir_ranks guests = {{0}};
  weir_ranks_add(&guests, size);
  if (rank < size - 1) weir_ranks_add(&guests, size + 1);
  return guests;
}

static bool has(uint8_t bits, int rank) { return (bits >> rank & 1) != 0; }
static bool lives(const world *w, int rank) { return !has(w->crashed, rank); }

/* --- letters -------------------------------------------------------------------------------- */

/* Where a letter's parts begin in its 64 bits. */
enum { MEMBERS_AT = 0, DEAD_AT = 7, KIND_AT = 12, BALLOT_AT = 15, OTHER_AT = 24, CHANNEL_AT = 58 };
enum { NUMBER_MOST = 63 };

/* Nine bits: number, holder. */
static uint64_t pack_ballot(uint64_t ballot) {
  cr_assert_leq(ballot >> 16, NUMBER_MOST, "a higher ballot than the test has room for");
  return ballot >> 16 << 3 | (ballot & 7);
}

static uint64_t part_of(uint64_t letter, int at, int bits) {
  return letter >> at & ((UINT64_C(1) << bits) - 1);
}
static uint64_t ballot_of(uint64_t letter, int at) {
  const uint64_t packed = part_of(letter, at, 9);
  return packed >> 3 << 16 | (packed & 7);
}
static unsigned channel(int from, int to) { return (unsigned)(from << 3 | to); }
static unsigned channel_of(uint64_t letter) { return (unsigned)(letter >> CHANNEL_AT); }
static int from_of(uint64_t letter) { return (int)(letter >> (CHANNEL_AT + 3)); }
static int to_of(uint64_t letter) { return (int)(letter >> CHANNEL_AT & 7); }
static int kind_of(uint64_t letter) { return (int)part_of(letter, KIND_AT, 3); }

static uint64_t pack_letter(int from, int to, const synod_word *v) {
  return (uint64_t)channel(from, to) << CHANNEL_AT | pack_ballot(v->other) << OTHER_AT |
         pack_ballot(v->ballot) << BALLOT_AT | (uint64_t)v->kind << KIND_AT |
         v->dead.word[0] << DEAD_AT | v->members.word[0] << MEMBERS_AT;
}

static synod_word unpack_letter(uint64_t letter) {
  synod_word v = {.kind = kind_of(letter),
                  .ballot = ballot_of(letter, BALLOT_AT),
                  .other = ballot_of(letter, OTHER_AT)};
  v.members.word[0] = part_of(letter, MEMBERS_AT, 7);
  v.dead.word[0] = part_of(letter, DEAD_AT, 5);
  return v;
}

typedef struct sender {
  world *w;
  int from;
} sender;

static void post_letter(void *user, int to, const synod_word *word) {
  const sender *s = user;
  world *w = s->w;
  if (!has(w->here, to) || has(w->crashed, to)) return;
  cr_assert_lt(w->letters, MAIL_MAX, "more letters than the test has room for");
  int i = w->letters++;
  for (; i > 0 && channel_of(w->mail[i - 1]) > channel(s->from, to); i--)
    w->mail[i] = w->mail[i - 1];
  w->mail[i] = pack_letter(s->from, to, word);
}

#define POST(w, r) (&(synod_post){post_letter, &(sender){(w), (r)}})

/* The first letter between these two, which is the only one that can be delivered. */
static bool is_first(const world *w, int i) {
  return i == 0 || channel_of(w->mail[i - 1]) != channel_of(w->mail[i]);
}

static void drop_letters_of(world *w, int rank, bool from_too) {
  uint8_t kept = 0;
  for (int i = 0; i < w->letters; i++)
    if (to_of(w->mail[i]) != rank && !(from_too && from_of(w->mail[i]) == rank))
      w->mail[kept++] = w->mail[i];
  w->letters = kept;
}

/* Who has decided listens to nothing but questions. */
static bool is_idle_talk(const world *w, uint64_t letter) {
  const bool asks = kind_of(letter) == SYNOD_PREPARE || kind_of(letter) == SYNOD_ACCEPT;
  return w->rank[to_of(letter)].decided && !asks;
}

/* Whenever it is delivered, it changes nothing: it comes from a rank that is known dead, or answers
 * a ballot that is no more, and tells of no ballot and of nobody's death that was not known. */
static bool is_stale(const world *w, uint64_t letter) {
  const weir_synod *s = &w->rank[to_of(letter)];
  const int kind = kind_of(letter);
  if (weir_ranks_has(&s->dead, from_of(letter))) return true;
  if (s->decided || kind == SYNOD_PREPARE || kind == SYNOD_ACCEPT || kind == SYNOD_DECIDED)
    return false;
  const uint64_t ballot = ballot_of(letter, BALLOT_AT), other = ballot_of(letter, OTHER_AT);
  const bool current = s->phase != SYNOD_IDLE && ballot == s->ballot &&
                       !(kind == SYNOD_PROMISE && s->phase == SYNOD_PROPOSING);
  return !current && ballot >> 16 <= s->highest && other >> 16 <= s->highest &&
         (part_of(letter, DEAD_AT, 5) & ~s->dead.word[0]) == 0;
}

static void drop_vain(world *w, bool stale_too) {
  uint8_t kept = 0;
  for (int i = 0; i < w->letters; i++)
    if (!is_idle_talk(w, w->mail[i]) && !(stale_too && is_stale(w, w->mail[i])))
      w->mail[kept++] = w->mail[i];
  w->letters = kept;
}

/* --- what happens ----------------------------------------------------------------------------- */

static void begin_rank(world *w, int size, int rank) {
  w->here |= (uint8_t)(1u << rank);
  for (int r = 0; r < size; r++)
    if (r != rank && has(w->here, r) && !has(w->crashed, r)) {
      weir_synod_meet(&w->rank[rank], r, POST(w, rank));
      weir_synod_meet(&w->rank[r], rank, POST(w, r));
    }
}

static void propose(world *w, int rank) {
  w->ballots++;
  w->proposed |= (uint8_t)(1u << rank);
  weir_synod_propose(&w->rank[rank], POST(w, rank));
}

static void bury(world *w, int rank, int dead) {
  w->buried = w->hurried = true;
  weir_synod_bury(&w->rank[rank], dead, POST(w, rank));
}

static void deliver(world *w, int i, mistake m) {
  const uint64_t letter = w->mail[i];
  const int from = from_of(letter), to = to_of(letter);
  synod_word word = unpack_letter(letter);
  memmove(&w->mail[i], &w->mail[i + 1], (size_t)(--w->letters - i) * sizeof *w->mail);
  weir_synod *s = &w->rank[to];
  if (m == FORGETS_PROMISES && !s->decided) s->promised = 0;
  if (m == IGNORES_VOTES && !s->decided) s->accepted = 0;
  if (m == TAKES_ANY_GUEST && word.kind == SYNOD_PROMISE && word.other == 0)
    word.members = guests_of(0, s->size);
  const bool taken = weir_synod_hear(s, from, &word, POST(w, to));
  /* What is said by mistake may not fit the rank that hears it. */
  cr_assert(taken || m != NO_MISTAKE, "a word of ours is refused");
}

/* --- what has to hold ------------------------------------------------------------------------- */

static const char *unsafe(const world *w, int size) {
  int first = -1;
  weir_ranks crashed = {{w->crashed}};
  for (int r = 0; r < size; r++) {
    const weir_synod *s = &w->rank[r];
    if (!s->decided) continue;
    if (!weir_synod_quorum(&s->members, &crashed, size)) return "too few go on";
    const uint64_t group = (UINT64_C(1) << size) - 1, in = s->members.word[0];
    uint64_t known = ~group;
    for (int q = 0; q < size; q++) known &= w->rank[q].guests.word[0];
    if ((in & ~group & ~known) != 0) return "a guest is in that has not come to all";
    if ((in & ~group) != 0 && (in & group) != group) return "a guest is in though a rank is lost";
    if (!w->faults && !w->hurried && (in & group) != group)
      return "one was left out though all were waited for";
    /* Of two ballots the second need not know whom the first had asked in. */
    if (!w->faults && !w->hurried && w->ballots <= 1 && in != (group | known))
      return "a guest was left out though it had come to all";
    if (!lives(w, r) && w->buried) continue; /* those left need not know what it has done */
    if (first >= 0 && !equal(&w->rank[first].members, &s->members))
      return "two groups have been decided on";
    if (first < 0) first = r;
  }
  return NULL;
}

static bool all_decided(const world *w, int size) {
  for (int r = 0; r < size; r++)
    if (lives(w, r) && !w->rank[r].decided) return false;
  return true;
}

static void settle(world *w) {
  while (w->letters > 0) deliver(w, 0, NO_MISTAKE);
}

/* From here on nothing is lost, late or crashes.  `first` proposes, or the lowest rank that is left
 * where that cannot. */
static bool ends_well(const world *now, int size, int first, bool lost, bool known) {
  world w;
  copy_world(&w, now);
  for (int r = 0; r < size; r++)
    if (lives(&w, r) && !has(w.here, r)) begin_rank(&w, size, r);
  if (lost) {
    w.letters = 0;
    for (int r = 0; r < size; r++)
      if (lives(&w, r)) begin_rank(&w, size, r);
  }
  for (int r = 0; known && r < size; r++)
    for (int d = 0; lives(&w, r) && d < size; d++)
      if (!lives(&w, d)) bury(&w, r, d);
  settle(&w);
  for (int turn = 0; turn < 4; turn++)
    for (int i = -1; i < size; i++) {
      const int r = i < 0 ? first : i;
      if (!lives(&w, r) || w.rank[r].decided) continue;
      propose(&w, r);
      settle(&w);
      weir_synod_hurry(&w.rank[r], POST(&w, r));
      settle(&w);
      break;
    }
  return all_decided(&w, size) && unsafe(&w, size) == NULL;
}

static const char *stuck(const world *w, int size, int first) {
  weir_ranks living = {{((1u << size) - 1) & ~(unsigned)w->crashed}};
  if (!ends_well(w, size, first, false, true)) return "not all decide though all words arrive";
  if (!ends_well(w, size, first, true, true)) return "not all decide after a loss of words";
  if (weir_synod_quorum(&living, &(weir_ranks){{0}}, size) &&
      !ends_well(w, size, first, true, false))
    return "a majority does not decide without knowing who is dead";
  return NULL;
}

#endif

/* The agreement of survivors, explored: every order in which words are delivered, ranks come late,
 * propose, lose their patience, crash, are found dead, and try again.
 *
 * Words between two ranks keep their order, as on a connection; a rank that tries again loses what
 * was under way to and from it.  A word that is never delivered is one that is lost, as every state
 * is looked at.  Which rank proposes, and when, is left open here; how often is bounded.
 *
 * Looked at in every state: that no two living ranks have decided differently, that who goes on may,
 * and who is among them; and that from there, once nothing else happens, all decide.
 *
 * Small groups are looked at in all their states, larger ones in as many as WEIR_SYNOD_STATES says
 * (else in what takes seconds), found on walks from the begin in which chance picks what happens
 * next. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define SYNOD_RANKS_MAX 5
#include "collectives/transports/synod.c"

#define RANKS_MAX SYNOD_RANKS_MAX
#define MAIL_MAX 160

typedef struct letter {
  uint8_t from, to;
  synod_word word;
} letter;

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
  uint8_t here;    /* bits: who has begun */
  uint8_t crashed; /* bits */
  uint8_t faults, ballots;
  bool buried, hurried; /* was anyone known dead, not waited for, or gone for a while? */
  uint8_t letters;
  letter mail[MAIL_MAX]; /* oldest first */
} world;

/* Two guests: all ranks know the first, and all but the highest the second. */
static weir_ranks guests_of(int rank, int size) {
  weir_ranks guests = {{0}};
  weir_ranks_add(&guests, size);
  if (rank < size - 1) weir_ranks_add(&guests, size + 1);
  return guests;
}

typedef struct inquiry {
  bool guests;
  int size, late; /* the highest so many begin late */
  int faults, ballots;
  mistake mistake;
  size_t states_max; /* 0: all; else so many by chance */
  uint64_t seed;
  /* Out. */
  size_t states, decided; /* seen; and those in which all who live have decided */
  const char *wrong;      /* the first thing that was, or NULL */
} inquiry;

/* --- one world ------------------------------------------------------------------------------ */

typedef struct sender {
  world *w;
  int from;
} sender;

static bool has(uint8_t bits, int rank) { return (bits >> rank & 1) != 0; }

static void post_letter(void *user, int to, const synod_word *word) {
  const sender *s = user;
  world *w = s->w;
  if (!has(w->here, to) || has(w->crashed, to)) return;
  cr_assert_lt(w->letters, MAIL_MAX, "more letters than the test has room for");
  letter *l = &w->mail[w->letters++];
  memset(l, 0, sizeof *l);
  l->from = (uint8_t)s->from;
  l->to = (uint8_t)to;
  memcpy(&l->word, word, sizeof *word);
}

#define POST(w, r) (&(synod_post){post_letter, &(sender){(w), (r)}})

static void drop_letters_of(world *w, int rank, bool from_too) {
  uint8_t kept = 0;
  for (int i = 0; i < w->letters; i++)
    if (w->mail[i].to != rank && !(from_too && w->mail[i].from == rank))
      w->mail[kept++] = w->mail[i];
  w->letters = kept;
}

static void begin_rank(world *w, int size, int rank) {
  w->here |= (uint8_t)(1u << rank);
  for (int r = 0; r < size; r++)
    if (r != rank && has(w->here, r) && !has(w->crashed, r)) {
      weir_synod_meet(&w->rank[rank], r, POST(w, rank));
      weir_synod_meet(&w->rank[r], rank, POST(w, r));
    }
}

static void deliver(world *w, int i, mistake m) {
  letter l = w->mail[i];
  memmove(&w->mail[i], &w->mail[i + 1], (size_t)(--w->letters - i) * sizeof *w->mail);
  weir_synod *s = &w->rank[l.to];
  if (m == FORGETS_PROMISES && !s->decided) s->promised = 0;
  if (m == IGNORES_VOTES && !s->decided) s->accepted = 0;
  if (m == TAKES_ANY_GUEST && l.word.kind == SYNOD_PROMISE && l.word.other == 0)
    l.word.members = guests_of(0, s->size);
  const bool taken = weir_synod_hear(s, l.from, &l.word, POST(w, l.to));
  /* What is said by mistake may not fit the rank that hears it. */
  cr_assert(taken || m != NO_MISTAKE, "a word of ours is refused");
}

/* Who has decided listens to nothing but questions. */
static void drop_idle_talk(world *w) {
  uint8_t kept = 0;
  for (int i = 0; i < w->letters; i++) {
    const letter *l = &w->mail[i];
    const bool asks = l->word.kind == SYNOD_PREPARE || l->word.kind == SYNOD_ACCEPT;
    if (asks || !w->rank[l->to].decided) w->mail[kept++] = *l;
  }
  w->letters = kept;
}

/* The first letter between these two, which is the only one that can be delivered. */
static bool is_first(const world *w, int i) {
  for (int j = 0; j < i; j++)
    if (w->mail[j].from == w->mail[i].from && w->mail[j].to == w->mail[i].to) return false;
  return true;
}

static bool lives(const world *w, int rank) { return !has(w->crashed, rank); }

/* --- what has to hold ----------------------------------------------------------------------- */

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

/* From here on nothing is lost, late or crashes, and the lowest rank that is left proposes. */
static bool ends_well(const world *now, int size, bool lost, bool known) {
  world w = *now;
  for (int r = 0; r < size; r++)
    if (lives(&w, r) && !has(w.here, r)) begin_rank(&w, size, r);
  if (lost) {
    w.letters = 0;
    for (int r = 0; r < size; r++)
      if (lives(&w, r)) begin_rank(&w, size, r);
  }
  for (int r = 0; known && r < size; r++)
    for (int d = 0; lives(&w, r) && d < size; d++)
      if (!lives(&w, d)) {
        w.buried = true;
        weir_synod_bury(&w.rank[r], d, POST(&w, r));
      }
  settle(&w);
  for (int turn = 0; turn < 4; turn++)
    for (int r = 0; r < size; r++) {
      if (!lives(&w, r) || w.rank[r].decided) continue;
      weir_synod_propose(&w.rank[r], POST(&w, r));
      w.ballots++;
      settle(&w);
      weir_synod_hurry(&w.rank[r], POST(&w, r));
      settle(&w);
      break;
    }
  return all_decided(&w, size) && unsafe(&w, size) == NULL;
}

static const char *stuck(const world *w, int size) {
  weir_ranks living = {{((1u << size) - 1) & ~(unsigned)w->crashed}};
  if (!ends_well(w, size, false, true)) return "not all decide though all words arrive";
  if (!ends_well(w, size, true, true)) return "not all decide after a loss of words";
  if (weir_synod_quorum(&living, &(weir_ranks){{0}}, size) && !ends_well(w, size, true, false))
    return "a majority does not decide without knowing who is dead";
  return NULL;
}

/* --- states that have been seen --------------------------------------------------------------- */

typedef struct seen {
  uint64_t *slot;
  size_t slots, used;
} seen;

static uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
  return h ^ h >> 29;
}

static uint64_t mix_word(uint64_t h, const synod_word *v) {
  h = mix(h, (uint64_t)v->kind << 48 ^ v->ballot << 24 ^ v->other);
  return mix(h, v->members.word[0] << 8 | v->dead.word[0]);
}

static uint64_t digest(const world *w, int size) {
  uint64_t h = mix(w->here, (uint64_t)w->crashed << 32 | (uint64_t)w->faults << 24 |
                                (uint64_t)w->ballots << 16 | (uint64_t)w->buried << 1 | w->hurried);
  for (int r = 0; r < size; r++) {
    const weir_synod *s = &w->rank[r];
    const bool own = s->phase != SYNOD_IDLE;
    h = mix(h, (uint64_t)s->decided << 3 | (uint64_t)s->phase << 1 | (uint64_t)(own && s->hasty));
    h = mix(h, s->highest << 40 ^ s->members.word[0] << 8 ^ s->dead.word[0]);
    h = mix(h, s->decided ? 0 : s->promised << 32 ^ s->accepted);
    if (!own) continue;
    h = mix(h, s->ballot << 20 ^ s->answered.word[0] << 8 ^ (uint64_t)s->open);
    h = mix(h, s->best << 20 ^ s->candidate.word[0] << 8 ^ s->holders.word[0]);
    h = mix(h, s->phase == SYNOD_PROPOSING ? s->buried.word[0] : s->common.word[0]);
  }
  /* Letters between different ranks have no order. */
  for (int a = 0; a < size; a++)
    for (int b = 0; b < size; b++)
      for (int i = 0; i < w->letters; i++)
        if (w->mail[i].from == a && w->mail[i].to == b)
          h = mix_word(mix(h, (uint64_t)a << 8 | (uint64_t)b), &w->mail[i].word);
  return h != 0 ? h : 1;
}

/* True when it is new. */
static bool note(seen *s, uint64_t h) {
  if (2 * s->used >= s->slots) {
    seen larger = {calloc(2 * s->slots, sizeof *s->slot), 2 * s->slots, 0};
    cr_assert_not_null(larger.slot);
    for (size_t i = 0; i < s->slots; i++)
      if (s->slot[i] != 0) (void)note(&larger, s->slot[i]);
    free(s->slot);
    *s = larger;
  }
  size_t i = (size_t)(h >> 7) & (s->slots - 1);
  while (s->slot[i] != 0 && s->slot[i] != h) i = (i + 1) & (s->slots - 1);
  if (s->slot[i] == h) return false;
  s->slot[i] = h;
  s->used++;
  return true;
}

/* --- the search ------------------------------------------------------------------------------- */

typedef struct search {
  inquiry *q;
  seen seen;
  bool walks;   /* of all that can happen next, take one */
  weir_rng rng; /* ... drawn by this */
  uint64_t choices;
  world chosen;
} search;

static void visit(search *e, const world *w);

/* A state that has not been seen before: true while there is nothing wrong and room for more. */
static bool look(search *e, const world *w) {
  inquiry *q = e->q;
  if (q->wrong != NULL || !note(&e->seen, digest(w, q->size))) return false;
  q->states++;
  q->decided += all_decided(w, q->size);
  q->wrong = unsafe(w, q->size);
  if (q->wrong == NULL && q->mistake == NO_MISTAKE) q->wrong = stuck(w, q->size);
  return q->wrong == NULL;
}

static void go_on(search *e, world *w) {
  drop_idle_talk(w);
  if (e->walks) {
    if (weir_rng_next(&e->rng) % ++e->choices == 0) e->chosen = *w;
  } else if (look(e, w)) {
    visit(e, w);
  }
}

static void try_words(search *e, const world *w) {
  for (int i = 0; i < w->letters; i++) {
    if (!is_first(w, i)) continue;
    world next = *w;
    deliver(&next, i, e->q->mistake);
    go_on(e, &next);
  }
}

static void try_turns(search *e, const world *w, int r) {
  const weir_synod *s = &w->rank[r];
  if (!s->decided && w->ballots < e->q->ballots) {
    world next = *w;
    next.ballots++;
    weir_synod_propose(&next.rank[r], POST(&next, r));
    go_on(e, &next);
  }
  if (s->phase == SYNOD_PREPARING && !s->hasty) {
    world next = *w;
    next.hurried = true;
    weir_synod_hurry(&next.rank[r], POST(&next, r));
    go_on(e, &next);
  }
  for (int d = 0; d < e->q->size; d++) {
    if (d == r || weir_ranks_has(&s->dead, d) || s->decided) continue;
    if (!has(w->crashed, d) && e->q->mistake != BURIES_LIVING) continue;
    world next = *w;
    next.buried = next.hurried = true;
    weir_synod_bury(&next.rank[r], d, POST(&next, r));
    go_on(e, &next);
  }
}

static void try_faults(search *e, const world *w, int r) {
  if (w->faults >= e->q->faults) return;
  world next = *w;
  next.faults++;
  next.crashed |= (uint8_t)(1u << r);
  drop_letters_of(&next, r, false); /* what it has said may still arrive */
  go_on(e, &next);
  if (!has(w->here, r) || w->rank[r].decided) return;
  next = *w; /* it gives up, and comes again some time */
  next.faults++;
  next.here &= (uint8_t) ~(1u << r);
  next.rank[r].phase = SYNOD_IDLE;
  if (e->q->mistake == FORGETS_ON_RETRY) weir_synod_begin(&next.rank[r], r, e->q->size);
  drop_letters_of(&next, r, true);
  go_on(e, &next);
}

static void visit(search *e, const world *w) {
  try_words(e, w);
  for (int r = 0; r < e->q->size; r++) {
    if (!lives(w, r)) continue;
    if (has(w->here, r)) {
      try_turns(e, w, r);
    } else {
      world next = *w;
      begin_rank(&next, e->q->size, r);
      go_on(e, &next);
    }
    try_faults(e, w, r);
  }
}

/* From the begin on, again and again, by chance, until so many states have been seen. */
static void walk(search *e, const world *begin) {
  e->walks = true;
  weir_rng_seed(&e->rng, e->q->seed);
  while (e->q->wrong == NULL && e->q->states < e->q->states_max) {
    world w = *begin;
    do {
      e->choices = 0;
      visit(e, &w);
      w = e->chosen;
      (void)look(e, &w);
    } while (e->choices > 0 && e->q->wrong == NULL);
  }
}

static void explore(inquiry *q) {
  search e = {.q = q, .seen = {calloc(1024, sizeof(uint64_t)), 1024, 0}};
  world w;
  memset(&w, 0, sizeof w);
  for (int r = 0; r < q->size; r++) {
    weir_synod_begin(&w.rank[r], r, q->size);
    if (q->guests) w.rank[r].guests = guests_of(r, q->size);
    if (r < q->size - q->late) w.here |= (uint8_t)(1u << r);
  }
  if (q->states_max > 0)
    walk(&e, &w);
  else if (look(&e, &w))
    visit(&e, &w);
  free(e.seen.slot);
}

/* --- tests ------------------------------------------------------------------------------------ */

/* states_max: by chance, so many; 0: all that there are. */
static void holds_with(bool guests, int size, int late, int faults, int ballots,
                       size_t states_max) {
  inquiry q = {.guests = guests,
               .size = size,
               .late = late,
               .faults = faults,
               .ballots = ballots,
               .states_max = states_max,
               .seed = 1};
  explore(&q);
  printf("%d ranks, %d late, %d faults, %d ballots: %zu states%s, all have decided in %zu\n", size,
         late, faults, ballots, q.states, states_max > 0 ? " of many" : ", which are all",
         q.decided);
  (void)fflush(stdout);
  cr_assert_null(q.wrong, "%d ranks, %d late: %s", size, late, q.wrong);
  cr_assert_gt(q.decided, 0);
}

static void holds(int size, int late, int faults, int ballots, size_t states_max) {
  holds_with(false, size, late, faults, ballots, states_max);
}

static size_t states_wanted(void) {
  const char *said = getenv("WEIR_SYNOD_STATES");
  return said != NULL ? (size_t)strtoull(said, NULL, 10) : 60000;
}

Test(synod, two_ranks) {
  for (int late = 0; late <= 1; late++) holds(2, late, 2, 3, 0);
}
Test(synod, three_ranks) {
  for (int late = 0; late <= 1; late++) {
    holds(3, late, 2, 1, 0);
    holds(3, late, 2, 3, states_wanted());
  }
}
Test(synod, four_ranks) {
  for (int late = 0; late <= 1; late++) holds(4, late, 2, 3, states_wanted());
}
Test(synod, five_ranks) {
  for (int late = 0; late <= 1; late++) holds(5, late, 2, 3, states_wanted());
}

/* A group that grows: who comes in, and that nobody does where it also shrinks. */
Test(synod, guests) {
  for (int late = 0; late <= 1; late++) {
    holds_with(true, 2, late, 2, 3, 0);
    holds_with(true, 3, late, 2, 1, 0);
    holds_with(true, 4, late, 2, 3, states_wanted());
  }
}

/* Each of the mistakes is found out. */
static void is_found(mistake m, int size, const char *due) {
  inquiry q = {.guests = m == TAKES_ANY_GUEST,
               .size = size,
               .faults = 2,
               .ballots = 3,
               .mistake = m,
               .states_max = 3000000,
               .seed = 2};
  explore(&q);
  printf("mistake %d among %d ranks: found after %zu states\n", (int)m, size, q.states);
  cr_assert_not_null(q.wrong, "mistake %d was not found in %zu states", (int)m, q.states);
  cr_assert_str_eq(q.wrong, due);
}

#define TWO_GROUPS "two groups have been decided on"
Test(synod, promises_that_are_forgotten) { is_found(FORGETS_PROMISES, 3, TWO_GROUPS); }
Test(synod, votes_that_are_forgotten) { is_found(FORGETS_ON_RETRY, 3, TWO_GROUPS); }
Test(synod, votes_that_are_ignored) { is_found(IGNORES_VOTES, 3, TWO_GROUPS); }
Test(synod, guests_of_some) {
  is_found(TAKES_ANY_GUEST, 3, "a guest is in that has not come to all");
}
Test(synod, living_that_are_buried) { is_found(BURIES_LIVING, 3, "too few go on"); }

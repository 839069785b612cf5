/* All states of a world of ranks that agree (synod_world.h), or many of them: every order in which
 * words are delivered, ranks come late, propose, lose their patience, crash, are found dead, and
 * try again.
 *
 * A word that is never delivered is one that is lost, as every state is looked at.  Which rank
 * proposes, and when, is left open; how often is bounded, as is how often a rank crashes or gives
 * up and tries again (faults).
 *
 * A reduced search looks at fewer states, and leaves out none that could be wrong in another way:
 *
 * - Words that change nothing whenever they are delivered are taken away at once.
 * - A rank takes another for dead just before it does something: until then nobody can tell.  A
 *   rank with a ballot of its own does so at any time, as it may act on that.
 * - It loses its patience only where it then proposes: else it may as well do so later.
 * - Only a fixed set of as many ranks as there are ballots proposes, and every such set has its
 *   turn, up to renaming.  Ranks that have not proposed and will not are alike, as no order of
 *   ballots is theirs (but rank 0 in even groups, whose vote breaks ties, and the highest where
 *   there are guests): of all states that differ in their names alone one is looked at.
 * - What no rank can come to use any more does not tell states apart.
 *
 * States that have been seen are known by fingerprints of 128 bits. */
#ifndef WEIR_TESTS_SYNOD_SEARCH_H
#define WEIR_TESTS_SYNOD_SEARCH_H

#include <stdlib.h>

#include "../held.h"
#include "base/base.h"
#include "synod_world.h"

#define ORDERS_MAX 120 /* of five ranks */

/* --- what has been seen ----------------------------------------------------------------------- */

typedef struct print {
  uint64_t a, b;
} print;

typedef struct seen {
  print *slot; /* b 0: free */
  size_t slots, used;
} seen;

static print mix(print h, uint64_t v) {
  h.a = (h.a ^ v) * UINT64_C(0x9e3779b97f4a7c15);
  h.b = (h.b + v) * UINT64_C(0xd6e8feb86659fd93);
  return (print){h.a ^ h.a >> 29, h.b ^ h.b >> 32};
}

/* True when it is new. */
static bool note(seen *s, print h) {
  if (4 * s->used >= 3 * s->slots) {
    seen larger = {.slots = s->slots > 0 ? 2 * s->slots : 1024};
    larger.slot = calloc(larger.slots, sizeof *larger.slot);
    cr_assert_not_null(larger.slot, "no memory for so many states");
    for (size_t i = 0; i < s->slots; i++)
      if (s->slot[i].b != 0) (void)note(&larger, s->slot[i]);
    free(s->slot);
    *s = larger;
  }
  h.b |= 1;
  size_t i = (size_t)(h.a >> 7) & (s->slots - 1);
  while (s->slot[i].b != 0 && (s->slot[i].a != h.a || s->slot[i].b != h.b))
    i = (i + 1) & (s->slots - 1);
  if (s->slot[i].b != 0) return false;
  s->slot[i] = h;
  s->used++;
  return true;
}

/* --- the search ------------------------------------------------------------------------------- */

typedef struct inquiry {
  bool guests, reduced;
  int size, late; /* the highest so many begin late */
  int faults, ballots;
  mistake mistake;
  size_t states_most; /* 0: all, else so many: */
  bool walks;         /* ... by chance, on walks from the begin; else the first that are found */
  uint64_t seed;
  seen *outcomes; /* NULL, or what ranks decide: who lives, who has decided, and on what */
  /* Out. */
  size_t states, decided; /* seen; and those in which all who live have decided */
  const char *wrong;      /* the first thing that was, or NULL */
} inquiry;

typedef struct search {
  inquiry *q;
  seen seen;
  uint8_t proposers; /* bits: who may propose */
  weir_rng rng;      /* of walks: what happens next */
  uint64_t choices;
  world chosen;
} search;

/* --- ranks that are alike --------------------------------------------------------------------- */

/* An order of the ranks: which of them is at each place. */
typedef struct order {
  int at[RANKS_MAX];
  int place[RANKS_MAX]; /* the inverse */
  uint8_t set[1 << 7];  /* a set of ranks, each put at its place; guests stay where they are */
} order;

static order orders[ORDERS_MAX];
static int orders_of; /* how many ranks they are for */
static int order_count;

static void add_order(const int *at, int size) {
  order *o = &orders[order_count++];
  memset(o, 0, sizeof *o);
  for (int i = 0; i < size; i++) {
    o->at[i] = at[i];
    o->place[at[i]] = i;
  }
  for (int set = 0; set < 1 << 7; set++) {
    o->set[set] = (uint8_t)(set >> size << size);
    for (int r = 0; r < size; r++)
      if (set >> r & 1) o->set[set] |= (uint8_t)(1u << o->place[r]);
  }
}

static void add_orders(int *at, int from, int size) {
  if (from == size) add_order(at, size);
  for (int i = from; i < size && i < RANKS_MAX; i++) {
    int swapped[RANKS_MAX];
    memcpy(swapped, at, sizeof swapped);
    swapped[from] = at[i];
    swapped[i] = at[from];
    add_orders(swapped, from + 1, size);
  }
}

static void make_orders(int size) {
  int at[RANKS_MAX] = {0, 1, 2, 3, 4};
  if (orders_of == size) return;
  orders_of = size;
  order_count = 0;
  add_orders(at, 0, size);
}

/* Which ranks can be told from the others by their number? */
static uint8_t special(const inquiry *q) {
  return (uint8_t)((q->size % 2 == 0 ? 1u : 0u) | (q->guests ? 1u << (q->size - 1) : 0u));
}

static uint8_t alike(const search *e, const world *w) {
  const unsigned all = (1u << e->q->size) - 1, left = w->ballots < e->q->ballots ? e->proposers : 0;
  return (uint8_t)(all & ~(w->proposed | left | special(e->q)));
}

/* --- fingerprints ----------------------------------------------------------------------------- */

/* What of a rank makes a difference, its sets of ranks as an order has them. */
static print mix_rank(print h, const search *e, const world *w, int r, const uint8_t *set) {
  const weir_synod *s = &w->rank[r];
  const uint64_t members = set[s->members.word[0]], dead = set[s->dead.word[0]];
  if (!lives(w, r)) return mix(h, 1 | (s->decided ? members << 8 | 2 : 0));
  if (s->decided) return mix(h, 4 | members << 8 | dead << 16);
  const bool proposes = w->ballots < e->q->ballots && has(e->proposers, r);
  const uint64_t number = s->phase != SYNOD_IDLE || proposes ? s->highest : 0;
  h = mix(h, 8 | (uint64_t)s->phase << 4 | members << 8 | dead << 16 | number << 24 |
                 pack_ballot(s->promised) << 32 | pack_ballot(s->accepted) << 41);
  if (s->phase == SYNOD_PREPARING)
    return mix(h, pack_ballot(s->ballot) | (uint64_t)set[s->answered.word[0]] << 9 |
                      (uint64_t)s->hasty << 16 | pack_ballot(s->best) << 17 |
                      (uint64_t)set[s->candidate.word[0]] << 26 |
                      (uint64_t)set[s->holders.word[0]] << 33 | s->common.word[0] << 38);
  if (s->phase == SYNOD_PROPOSING)
    return mix(h, pack_ballot(s->ballot) | (uint64_t)set[s->answered.word[0]] << 9 |
                      (uint64_t)s->open << 16 | (uint64_t)set[s->buried.word[0]] << 17);
  return h;
}

static print mix_letter(print h, uint64_t letter, const order *o) {
  const uint64_t rest = letter & ((UINT64_C(1) << CHANNEL_AT) - 1) & ~UINT64_C(0xfff);
  return mix(h, rest | (uint64_t)o->set[part_of(letter, DEAD_AT, 5)] << DEAD_AT |
                    o->set[part_of(letter, MEMBERS_AT, 7)] |
                    (uint64_t)channel(o->place[from_of(letter)], o->place[to_of(letter)])
                        << CHANNEL_AT);
}

/* The world with its ranks in that order. */
static print print_of(const search *e, const world *w, const order *o) {
  const int size = e->q->size;
  uint8_t begin[1 << 6];
  memset(begin, 0xff, sizeof begin);
  for (int i = w->letters; i-- > 0;) begin[channel_of(w->mail[i])] = (uint8_t)i;
  print h = {1, 2};
  h = mix(h, o->set[w->here] | (uint64_t)o->set[w->crashed] << 8 | (uint64_t)w->faults << 16 |
                 (uint64_t)w->ballots << 24 | (uint64_t)w->buried << 32 |
                 (uint64_t)(w->hurried || w->faults > 0) << 33 |
                 (uint64_t)o->set[w->proposed] << 40);
  for (int i = 0; i < size; i++) h = mix_rank(h, e, w, o->at[i], o->set);
  for (int a = 0; a < size; a++)
    for (int b = 0; b < size; b++) {
      const unsigned c = channel(o->at[a], o->at[b]);
      for (int i = begin[c]; i < w->letters && channel_of(w->mail[i]) == c; i++)
        h = mix_letter(h, w->mail[i], o);
    }
  return h;
}

/* The same of all worlds that differ in the names of ranks that are alike. */
static print canonical(const search *e, const world *w) {
  const uint8_t same = e->q->reduced ? alike(e, w) : 0;
  uint64_t sort[RANKS_MAX]; /* what of a rank its name does not show in */
  print least = {UINT64_MAX, UINT64_MAX};
  for (int r = 0; r < e->q->size; r++) {
    const weir_synod *s = &w->rank[r];
    sort[r] = !has(same, r)
                  ? 0
                  : (uint64_t)has(w->here, r) | (uint64_t)!lives(w, r) << 1 |
                        (uint64_t)s->decided << 2 |
                        (lives(w, r) && !s->decided ? s->accepted << 32 ^ s->promised << 8 : 0);
  }
  for (int i = 0; i < order_count; i++) {
    const order *o = &orders[i];
    bool fits = true;
    int last = -1; /* the one before of those that are alike */
    for (int p = 0; fits && p < e->q->size; p++) {
      fits = has(same, p) ? has(same, o->at[p]) : o->at[p] == p;
      if (fits && has(same, p)) {
        fits = last < 0 || sort[o->at[last]] <= sort[o->at[p]];
        last = p;
      }
    }
    if (!fits) continue;
    const print h = print_of(e, w, o);
    if (h.a < least.a || (h.a == least.a && h.b < least.b)) least = h;
  }
  return least;
}

static print outcome_of(const world *w, int size, const order *o) {
  print h = {0, 1};
  for (int i = 0; i < size; i++) {
    const weir_synod *s = &w->rank[o->at[i]];
    h.a = h.a << 9 | (uint64_t)lives(w, o->at[i]) << 8 | (uint64_t)s->decided << 7 |
          (s->decided ? o->set[s->members.word[0]] : 0);
  }
  return h;
}

/* And those of all searches that this one stands for, in which the proposers, in their order, and
 * those who are alike are others.  Where some begin late, ranks are looked at as if they had no
 * names. */
static void note_outcomes(const search *e, const world *w) {
  const inquiry *q = e->q;
  for (int i = 0; i < order_count; i++) {
    const order *o = &orders[i];
    bool fits = q->reduced || q->late > 0 || i == 0;
    for (int p = 0, last = -1; fits && p < q->size; p++) {
      fits = !has(special(q), p) || o->at[p] == p;
      if (!fits || q->late > 0 || !has(e->proposers, o->at[p])) continue;
      fits = last < 0 || o->at[last] < o->at[p];
      last = p;
    }
    if (fits) (void)note(q->outcomes, outcome_of(w, q->size, o));
  }
}

/* --- what happens next ------------------------------------------------------------------------ */

static void visit(search *e, const world *w);

/* A state that has not been seen before: true while there is nothing wrong and room for more. */
static bool look(search *e, const world *w) {
  inquiry *q = e->q;
  const print h = canonical(e, w);
  if (q->wrong != NULL || (!q->walks && q->states_most > 0 && q->states >= q->states_most) ||
      !note(&e->seen, h))
    return false;
  q->states++;
  q->decided += all_decided(w, q->size);
  q->wrong = unsafe(w, q->size);
  /* Whoever proposes: one of them in each state. */
  const int first = q->reduced ? (int)(h.a >> 20 & 0xffff) % q->size : 0;
  if (q->wrong == NULL && q->mistake == NO_MISTAKE) q->wrong = stuck(w, q->size, first);
  if (q->outcomes != NULL) note_outcomes(e, w);
  return q->wrong == NULL;
}

static void go_on(search *e, world *w) {
  drop_vain(w, e->q->reduced);
  if (e->q->walks) {
    if (weir_rng_next(&e->rng) % ++e->choices == 0) copy_world(&e->chosen, w);
  } else if (look(e, w)) {
    visit(e, w);
  }
}

/* Whom a rank that has not decided may take for dead. */
static uint8_t to_bury(const search *e, const world *w, int r) {
  const unsigned all = (1u << e->q->size) - 1, self = 1u << r;
  const unsigned dead = e->q->mistake == BURIES_LIVING ? all & ~self : w->crashed;
  return w->rank[r].decided ? 0 : (uint8_t)(dead & ~w->rank[r].dead.word[0]);
}

/* The same world, and where nobody is told of a burial those in which r has just found others dead:
 * false when there are no more.  *which: 0 at first. */
static bool next_before(const search *e, const world *w, int r, unsigned *which, world *next) {
  const unsigned some = e->q->reduced && w->rank[r].phase == SYNOD_IDLE ? to_bury(e, w, r) : 0;
  const unsigned set =
      *which >> 1; /* counts through the subsets of `some`; the lowest bit: begun */
  if ((*which & 1) != 0 && set == 0) return false;
  copy_world(next, w);
  for (int d = 0; d < e->q->size; d++)
    if (set >> d & 1) bury(next, r, d);
  *which = ((set - some) & some) << 1 | 1;
  return true;
}

static void try_words(search *e, const world *w) {
  for (int i = 0; i < w->letters; i++) {
    if (!is_first(w, i)) continue;
    world next;
    for (unsigned which = 0; next_before(e, w, to_of(w->mail[i]), &which, &next);) {
      deliver(&next, i, e->q->mistake);
      go_on(e, &next);
    }
  }
}

static void try_turns(search *e, const world *w, int r) {
  const weir_synod *s = &w->rank[r];
  world next;
  if (!s->decided && w->ballots < e->q->ballots && has(e->proposers, r))
    for (unsigned which = 0; next_before(e, w, r, &which, &next);) {
      propose(&next, r);
      go_on(e, &next);
    }
  if (s->phase == SYNOD_PREPARING && !s->hasty) {
    copy_world(&next, w);
    next.hurried = true;
    weir_synod_hurry(&next.rank[r], POST(&next, r));
    if (!e->q->reduced || next.rank[r].phase != SYNOD_PREPARING) go_on(e, &next);
  }
  for (int d = 0; d < e->q->size; d++) {
    if (!has(to_bury(e, w, r), d) || (e->q->reduced && s->phase == SYNOD_IDLE)) continue;
    copy_world(&next, w);
    bury(&next, r, d);
    go_on(e, &next);
  }
}

static void try_faults(search *e, const world *w, int r) {
  if (w->faults >= e->q->faults) return;
  world next;
  copy_world(&next, w);
  next.faults++;
  next.crashed |= (uint8_t)(1u << r);
  drop_letters_of(&next, r, false); /* what it has said may still arrive */
  go_on(e, &next);
  if (!has(w->here, r) || w->rank[r].decided) return;
  copy_world(&next, w); /* it gives up, and comes again some time */
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
      world next;
      copy_world(&next, w);
      begin_rank(&next, e->q->size, r);
      go_on(e, &next);
    }
    try_faults(e, w, r);
  }
}

/* From the begin on, again and again, by chance, until so many states have been seen. */
static void walk(search *e, const world *begin) {
  while (e->q->wrong == NULL && e->q->states < e->q->states_most) {
    world w;
    copy_world(&w, begin);
    do {
      e->choices = 0;
      visit(e, &w);
      copy_world(&w, &e->chosen);
      (void)look(e, &w);
    } while (e->choices > 0 && e->q->wrong == NULL);
  }
}

static void explore_with(inquiry *q, uint8_t proposers) {
  FREED search *e = calloc(1, sizeof *e);
  FREED world *w = calloc(1, sizeof *w);
  cr_assert(e != NULL && w != NULL);
  e->q = q;
  e->proposers = proposers;
  e->rng = weir_rng_of(q->seed);
  make_orders(q->size);
  for (int r = 0; r < q->size; r++) {
    weir_synod_begin(&w->rank[r], r, q->size);
    if (q->guests) w->rank[r].guests = guests_of(r, q->size);
    if (r < q->size - q->late) w->here |= (uint8_t)(1u << r);
  }
  if (q->walks)
    walk(e, w);
  else if (look(e, w))
    visit(e, w);
  free(e->seen.slot);
}

static int count_of(unsigned set) { return __builtin_popcount(set); }

/* Two sets of proposers are of one kind where those who are special or late are at the same places
 * among them. */
static unsigned kind_of_set(const inquiry *q, unsigned set) {
  unsigned kind = 0;
  for (int r = 0; r < q->size; r++) {
    if (!has(special(q), r) && r < q->size - q->late) continue;
    kind = kind * 16 + ((set >> r & 1) != 0 ? 1 + (unsigned)count_of(set & ((1u << r) - 1)) : 0);
  }
  return kind;
}

static void explore(inquiry *q) {
  const unsigned all = (1u << q->size) - 1;
  const int some = q->ballots < q->size ? q->ballots : q->size;
  if (!q->reduced) {
    explore_with(q, (uint8_t)all);
    return;
  }
  for (unsigned set = 1; set <= all && q->wrong == NULL; set++) {
    if (count_of(set) != some) continue;
    unsigned before = 1;
    while (before < set &&
           (count_of(before) != some || kind_of_set(q, before) != kind_of_set(q, set)))
      before++;
    if (before == set) explore_with(q, (uint8_t)set);
  }
}

#endif

#include "collectives/transports/synod.h"

#include <string.h>

#define NUMBER_MAX (UINT64_C(1) << 40) /* nobody makes so many attempts */

static bool equal(const weir_ranks *a, const weir_ranks *b) { return memcmp(a, b, sizeof *a) == 0; }

static void merge(weir_ranks *all, const weir_ranks *more) {
  for (int w = 0; w < SYNOD_WORDS; w++) all->word[w] |= more->word[w];
}

static weir_ranks without(const weir_ranks *some, const weir_ranks *others) {
  weir_ranks rest;
  for (int w = 0; w < SYNOD_WORDS; w++) rest.word[w] = some->word[w] & ~others->word[w];
  return rest;
}

static weir_ranks everyone(int size) {
  weir_ranks all = {{0}};
  for (int r = 0; r < size; r++) weir_ranks_add(&all, r);
  return all;
}

static weir_ranks both(const weir_ranks *a, const weir_ranks *b) {
  const weir_ranks rest = without(a, b);
  return without(a, &rest);
}

/* Does it hold ranks of the group alone, and these? */
static bool within(const weir_ranks *some, int size, const weir_ranks *these) {
  weir_ranks all = everyone(size);
  merge(&all, these);
  all = without(some, &all);
  return equal(&all, &(weir_ranks){{0}});
}

bool weir_synod_quorum(const weir_ranks *some, const weir_ranks *dead, int size) {
  int count = 0, missing = 0;
  for (int r = 0; r < size; r++) {
    if (weir_ranks_has(some, r))
      count++;
    else if (!weir_ranks_has(dead, r))
      missing++;
  }
  return missing == 0 || 2 * count > size || (2 * count == size && weir_ranks_has(some, 0));
}

void weir_synod_begin(weir_synod *s, int rank, int size) {
  memset(s, 0, sizeof *s);
  s->rank = rank;
  s->size = size;
}

static void say(const weir_synod *s, int to, synod_word word, const synod_post *post) {
  word.dead = s->dead;
  post->send(post->user, to, &word);
}

static void say_all(const weir_synod *s, synod_word word, const synod_post *post) {
  for (int r = 0; r < s->size; r++)
    if (r != s->rank && !weir_ranks_has(&s->dead, r)) say(s, r, word, post);
}

/* What this rank has to say unasked. */
static synod_word statement(const weir_synod *s) {
  if (s->decided) return (synod_word){.kind = SYNOD_DECIDED, .members = s->members};
  if (s->phase == SYNOD_PREPARING) return (synod_word){.kind = SYNOD_PREPARE, .ballot = s->ballot};
  return (synod_word){.kind = SYNOD_ACCEPT, .ballot = s->ballot, .members = s->members};
}

static void decide(weir_synod *s, const weir_ranks *members, const synod_post *post) {
  s->decided = true;
  s->phase = SYNOD_IDLE;
  s->members = *members;
  say_all(s, statement(s), post);
}

/* --- the holder of a ballot ----------------------------------------------------------------- */

/* May some quorum have accepted, or accept yet, what was proposed before? */
static bool may_be_decided(const weir_synod *s) {
  const weir_ranks all = everyone(s->size);
  weir_ranks some = without(&all, &s->answered);
  merge(&some, &s->holders);
  return s->best != 0 && weir_synod_quorum(&some, &s->dead, s->size);
}

static void look_at_votes(weir_synod *s, const synod_post *post) {
  if (weir_synod_quorum(&s->answered, &s->buried, s->size)) decide(s, &s->members, post);
}

static void look_at_promises(weir_synod *s, const synod_post *post) {
  const weir_ranks all = everyone(s->size), living = without(&s->answered, &s->dead);
  weir_ranks known = s->answered;
  merge(&known, &s->dead);
  if (!s->hasty && !equal(&known, &all)) return;
  if (!weir_synod_quorum(&living, &s->dead, s->size)) return;
  s->open = !may_be_decided(s);
  s->phase = SYNOD_PROPOSING;
  s->accepted = s->ballot;
  s->members = s->open ? living : s->candidate;
  if (s->open && equal(&living, &all)) merge(&s->members, &s->common);
  s->buried = s->dead;
  s->answered = (weir_ranks){{0}};
  weir_ranks_add(&s->answered, s->rank);
  say_all(s, statement(s), post);
  look_at_votes(s, post);
}

void weir_synod_propose(weir_synod *s, const synod_post *post) {
  if (s->decided || s->highest >= NUMBER_MAX) return;
  s->ballot = s->promised = ++s->highest << 16 | (uint64_t)s->rank;
  s->phase = SYNOD_PREPARING;
  s->hasty = false;
  s->best = s->accepted;
  s->candidate = s->members;
  s->answered = s->holders = (weir_ranks){{0}};
  weir_ranks_add(&s->answered, s->rank);
  if (s->accepted != 0) weir_ranks_add(&s->holders, s->rank);
  s->common = s->accepted != 0 ? (weir_ranks){{0}} : s->guests;
  say_all(s, statement(s), post);
  look_at_promises(s, post);
}

void weir_synod_hurry(weir_synod *s, const synod_post *post) {
  if (s->phase != SYNOD_PREPARING) return;
  s->hasty = true;
  look_at_promises(s, post);
}

void weir_synod_remind(const weir_synod *s, const synod_post *post) {
  if (s->decided || s->phase != SYNOD_IDLE) say_all(s, statement(s), post);
}

void weir_synod_meet(weir_synod *s, int rank, const synod_post *post) {
  if (weir_ranks_has(&s->dead, rank)) return;
  if (s->phase == SYNOD_PROPOSING && s->open && !weir_ranks_has(&s->members, rank))
    weir_synod_propose(s, post);
  else if (s->decided || s->phase != SYNOD_IDLE)
    say(s, rank, statement(s), post);
}

void weir_synod_bury(weir_synod *s, int rank, const synod_post *post) {
  weir_ranks_add(&s->dead, rank);
  if (s->phase == SYNOD_PREPARING) look_at_promises(s, post);
}

static void take_promise(weir_synod *s, int from, const synod_word *word) {
  weir_ranks_add(&s->answered, from);
  s->common = word->other != 0 ? (weir_ranks){{0}} : both(&s->common, &word->members);
  if (word->other > s->best) {
    if (!equal(&s->candidate, &word->members)) s->holders = (weir_ranks){{0}};
    s->best = word->other;
    s->candidate = word->members;
  }
  if (word->other != 0 && equal(&s->candidate, &word->members)) weir_ranks_add(&s->holders, from);
}

/* --- everybody ------------------------------------------------------------------------------ */

static void promise(weir_synod *s, uint64_t ballot) {
  if (s->promised < ballot) s->phase = SYNOD_IDLE; /* one's own is a lower one */
  s->promised = ballot;
}

/* A holder has asked for something. */
static void answer(weir_synod *s, int from, const synod_word *word, const synod_post *post) {
  synod_word reply = {.kind = SYNOD_REFUSED, .ballot = word->ballot, .other = s->promised};
  if (word->ballot >= s->promised) {
    promise(s, word->ballot);
    if (word->kind == SYNOD_ACCEPT) {
      s->accepted = word->ballot;
      s->members = word->members;
      reply = (synod_word){.kind = SYNOD_ACCEPTED, .ballot = word->ballot};
    } else {
      reply = (synod_word){.kind = SYNOD_PROMISE,
                           .ballot = word->ballot,
                           .other = s->accepted,
                           .members = s->accepted != 0 ? s->members : s->guests};
    }
  }
  say(s, from, reply, post);
}

static bool is_sound(const weir_synod *s, int from, const synod_word *word) {
  const bool asks = word->kind == SYNOD_PREPARE || word->kind == SYNOD_ACCEPT;
  if (from < 0 || from >= s->size || from == s->rank || word->kind < SYNOD_PREPARE ||
      word->kind > SYNOD_DECIDED || !within(&word->dead, s->size, &(weir_ranks){{0}}) ||
      word->ballot >> 16 > NUMBER_MAX || word->other >> 16 > NUMBER_MAX)
    return false;
  /* Nobody speaks to those it knows dead, nor of itself as one of them. */
  if (weir_ranks_has(&word->dead, s->rank) || weir_ranks_has(&word->dead, from)) return false;
  const bool proposed = word->kind == SYNOD_ACCEPT || word->kind == SYNOD_DECIDED ||
                        (word->kind == SYNOD_PROMISE && word->other != 0);
  if (proposed && (!within(&word->members, s->size, &s->guests) ||
                   !weir_synod_quorum(&word->members, &word->dead, s->size)))
    return false;
  if (word->kind == SYNOD_DECIDED) return true;
  if (synod_holder(word->ballot) != (asks ? from : s->rank)) return false;
  return word->kind != SYNOD_PROMISE || word->other <= word->ballot;
}

static void note_number(weir_synod *s, uint64_t ballot) {
  if (ballot >> 16 > s->highest) s->highest = ballot >> 16;
}

bool weir_synod_hear(weir_synod *s, int from, const synod_word *word, const synod_post *post) {
  if (!is_sound(s, from, word)) return false;
  if (weir_ranks_has(&s->dead, from)) return true;
  if (s->decided) {
    if (word->kind == SYNOD_PREPARE || word->kind == SYNOD_ACCEPT) say(s, from, statement(s), post);
    return true;
  }
  merge(&s->dead, &word->dead);
  note_number(s, word->ballot);
  note_number(s, word->other);
  const bool mine = s->phase != SYNOD_IDLE && word->ballot == s->ballot;
  switch (word->kind) {
    case SYNOD_PREPARE:
    case SYNOD_ACCEPT: answer(s, from, word, post); break;
    case SYNOD_PROMISE:
      if (mine && s->phase == SYNOD_PREPARING) take_promise(s, from, word);
      break;
    case SYNOD_ACCEPTED:
      if (mine && s->phase == SYNOD_PROPOSING) {
        weir_ranks_add(&s->answered, from);
        look_at_votes(s, post);
      }
      break;
    case SYNOD_REFUSED:
      if (mine && word->other > s->ballot) s->phase = SYNOD_IDLE;
      break;
    default: decide(s, &word->members, post); break;
  }
  if (s->phase == SYNOD_PREPARING) look_at_promises(s, post);
  return true;
}

/* The agreement of survivors, explored (synod_search.h): safety and termination in every state.
 *
 * Looked at in every state: that no two living ranks have decided differently, that who goes on
 * may, and who is among them; and that from there, once nothing else happens, all decide.
 *
 * What is tried here takes seconds.  WEIR_SYNOD_BOUNDS="RANKS LATE FAULTS BALLOTS" explores all
 * states below these bounds instead, or as many as WEIR_SYNOD_STATES says, 22 bytes of memory each
 * at the least and 43 while their table grows: docs/internals/testing.md has what was found so.
 * WEIR_SYNOD_STATES is also how many states are looked at where walks go on by chance. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "../sampled.h"
#include "synod_search.h"

static void tell(const inquiry *q) {
  printf("%d ranks, %d late, %d faults, %d ballots%s%s: %zu states%s, all have decided in %zu\n",
         q->size, q->late, q->faults, q->ballots, q->guests ? ", guests" : "",
         q->reduced ? ", reduced" : "", q->states,
         q->states_most == 0 || (!q->walks && q->states < q->states_most) ? ", which are all"
                                                                          : " of many",
         q->decided);
  (void)fflush(stdout);
}

static void holds_in(inquiry q) {
  explore(&q);
  tell(&q);
  cr_assert_null(q.wrong, "%d ranks, %d late: %s", q.size, q.late, q.wrong);
  cr_assert_gt(q.decided, 0);
}

static size_t states_wanted(size_t otherwise) {
  const char *said = getenv("WEIR_SYNOD_STATES");
  return said != NULL ? (size_t)strtoull(said, NULL, 10) : otherwise;
}

/* All states, every one of them, and fewer that stand for all of them. */
static void holds(bool guests, bool reduced, int size, int late, int faults, int ballots) {
  holds_in((inquiry){.guests = guests,
                     .reduced = reduced,
                     .size = size,
                     .late = late,
                     .faults = faults,
                     .ballots = ballots});
}

/* Some states of very many. */
static void holds_on_walks(bool guests, int size, int late) {
  holds_in((inquiry){.guests = guests,
                     .size = size,
                     .late = late,
                     .faults = 2,
                     .ballots = 3,
                     .states_most = states_wanted(60000),
                     .walks = true,
                     .seed = 1});
}

Test(synod, two_ranks) {
  for (int late = 0; late <= 1; late++) holds(false, false, 2, late, 2, 3);
}
Test(synod, three_ranks) {
  for (int late = 0; late <= 1; late++) {
    holds(false, false, 3, late, 2, 1);
    holds(false, true, 3, late, 1, 2);
    holds_on_walks(false, 3, late);
  }
}
Test(synod, four_ranks) {
  for (int late = 0; late <= 1; late++) {
    if (sampled(8)) holds(false, true, 4, late, 2, 1);
    holds_on_walks(false, 4, late);
  }
}
Test(synod, five_ranks) {
  if (sampled(8)) holds(false, true, 5, 0, 2, 1);
  for (int late = 0; late <= 1; late++) holds_on_walks(false, 5, late);
}

/* A group that grows: who comes in, and that nobody does where it also shrinks. */
Test(synod, guests) {
  for (int late = 0; late <= 1; late++) {
    holds(true, false, 2, late, 2, 3);
    holds(true, false, 3, late, 2, 1);
    holds_on_walks(true, 4, late);
  }
}

Test(synod, as_far_as_asked, .timeout = 1e6) {
  const char *said = getenv("WEIR_SYNOD_BOUNDS");
  inquiry q = {.reduced = true, .states_most = states_wanted(0)};
  if (said == NULL) cr_skip("WEIR_SYNOD_BOUNDS is not set");
  cr_assert_eq(sscanf(said, "%d %d %d %d", &q.size, &q.late, &q.faults, &q.ballots), 4);
  cr_assert(q.size >= 2 && q.size <= RANKS_MAX && q.late >= 0 && q.late <= q.size);
  holds_in(q);
}

/* --- the reduced search is right -------------------------------------------------------------- */

/* It comes to the same outcomes as the full one, whose names are changed in all ways that make no
 * difference. */
static void is_the_same(bool guests, int size, int late, int faults, int ballots) {
  seen outcomes[2] = {{0}};
  size_t states[2];
  for (int reduced = 0; reduced < 2; reduced++) {
    inquiry q = {.guests = guests,
                 .reduced = reduced == 1,
                 .size = size,
                 .late = late,
                 .faults = faults,
                 .ballots = ballots,
                 .outcomes = &outcomes[reduced]};
    explore(&q);
    tell(&q);
    cr_assert_null(q.wrong, "%s", q.wrong);
    states[reduced] = q.states;
  }
  printf("... and %zu outcomes\n", outcomes[0].used);
  cr_assert_lt(states[1], states[0]);
  cr_assert_eq(outcomes[0].used, outcomes[1].used, "%zu outcomes, and %zu of the reduced search",
               outcomes[0].used, outcomes[1].used);
  for (size_t i = 0; i < outcomes[0].slots; i++)
    if (outcomes[0].slot[i].b != 0) cr_assert(!note(&outcomes[1], outcomes[0].slot[i]));
  free(outcomes[0].slot);
  free(outcomes[1].slot);
}

Test(synod, reduced_is_the_same) {
  for (int late = 0; late <= 1; late++) {
    is_the_same(false, 2, late, 2, 3);
    is_the_same(true, 2, late, 2, 2);
    if (sampled(8)) is_the_same(false, 3, late, 2, 1);
    if (sampled(8)) is_the_same(true, 3, late, 1, 1);
    if (sampled(8)) is_the_same(false, 3, late, 1 - late, 2);
  }
}

/* --- each of the mistakes is found out -------------------------------------------------------- */

static void is_found(mistake m, int faults, int ballots, const char *due) {
  for (int reduced = 0; reduced < 2; reduced++) {
    inquiry q = {.guests = m == TAKES_ANY_GUEST,
                 .reduced = reduced == 1,
                 .size = 3,
                 .faults = faults,
                 .ballots = ballots,
                 .mistake = m};
    explore(&q);
    printf("mistake %d%s: found after %zu states\n", (int)m, reduced ? ", reduced" : "", q.states);
    cr_assert_not_null(q.wrong, "mistake %d was not found in %zu states", (int)m, q.states);
    cr_assert_str_eq(q.wrong, due);
  }
}

#define TWO_GROUPS "two groups have been decided on"
Test(synod, promises_that_are_forgotten) { is_found(FORGETS_PROMISES, 0, 2, TWO_GROUPS); }
Test(synod, votes_that_are_forgotten) { is_found(FORGETS_ON_RETRY, 1, 2, TWO_GROUPS); }
Test(synod, votes_that_are_ignored) { is_found(IGNORES_VOTES, 0, 2, TWO_GROUPS); }
Test(synod, guests_of_some) {
  is_found(TAKES_ANY_GUEST, 0, 1, "a guest is in that has not come to all");
}
Test(synod, living_that_are_buried) { is_found(BURIES_LIVING, 0, 1, "too few go on"); }

/* Who is to blame when somebody has waited in vain, by hand. */
#include <criterion/criterion.h>

#include "collectives/transports/common.h"

static weir_waiter waiter_of(const void *group, int rank) {
  const weir_waiter *known = group;
  return known[rank];
}

/* Rank 0 has waited for rank 1, in a group of 5. */
Test(blame, goes_along_who_waits_for_whom) {
  static const struct {
    weir_waiter known[5];
    int culprit;
  } rows[] = {
      /* 1 waits for 2, which waits for 3, which waits for nobody. */
      {{{true, 1}, {true, 2}, {true, 3}, {true, -1}, {true, -1}}, 3},
      /* 2 does not answer: what it was last seen to wait for does not count. */
      {{{true, 1}, {true, 2}, {false, 3}, {true, -1}, {true, -1}}, 2},
      /* 1 itself does not answer. */
      {{{true, 1}, {false, 0}, {true, 0}, {true, 0}, {true, 0}}, 1},
      /* 1 waits for 0: all are there; or 4, elsewhere, is not. */
      {{{true, 1}, {true, 0}, {true, 0}, {true, 0}, {true, 0}}, 1},
      {{{true, 1}, {true, 0}, {true, 0}, {true, 0}, {false, -1}}, 4},
      /* A circle that 0 is not in. */
      {{{true, 1}, {true, 2}, {true, 3}, {true, 1}, {true, 0}}, 1},
      {{{true, 1}, {true, 2}, {true, 3}, {true, 1}, {false, 0}}, 4},
      /* Nobody of the group. */
      {{{true, 1}, {true, 7}, {true, 0}, {true, 0}, {true, 0}}, 1},
      /* Who asks is not to blame, though it has not answered itself. */
      {{{false, 1}, {true, 0}, {true, 0}, {true, 0}, {true, 0}}, 1},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    cr_assert_eq(weir_end_of_chain(rows[i].known, waiter_of, 5, 0, 1), rows[i].culprit,
                 "row %zu: %d", i, weir_end_of_chain(rows[i].known, waiter_of, 5, 0, 1));
}

/* Threads of one process follow the chain through whoever asks, to who waits for nobody. */
Test(blame, may_pass_who_asks) {
  static const weir_waiter known[] = {{true, 2}, {true, 0}, {true, -1}};
  cr_assert_eq(weir_end_of_chain(known, waiter_of, 3, -1, 1), 2);
}

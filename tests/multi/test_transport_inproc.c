/* What comes in between while a rank copies a message: it must not be slept through, nor be taken
 * for something else. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "ranks.h"

#define LARGE ((size_t)64 << 20) /* its copy takes milliseconds */
#define DEADLINE_S 20.0

typedef struct between {
  double after_s; /* rank 0 acts so long after rank 1 has posted the large message */
  bool abort;     /* it ends the group; else it sends a byte */
  void *large;
  double took_s;    /* of rank 2's transfer */
  atomic_bool done; /* it is over: the others, who would wake it by leaving, may leave */
} between;

/* Rank 2 expects a byte of rank 0 and the large message of rank 1, in this order. */
static weir_status between_body(weir_transport *t, void *user) {
  between *b = user;
  unsigned char byte = 1;
  const weir_tag tag = {1, 1, 1, 0};
  const double begin_s = weir_now_s();
  if (t->rank == 2) {
    weir_recv recv[2] = {{0, &byte, 1, 0, 0}, {1, b->large, LARGE, 0, 0}};
    const weir_status status = t->ops->transfer(t, &tag, NULL, 0, recv, 2, begin_s + DEADLINE_S);
    b->took_s = weir_now_s() - begin_s;
    atomic_store(&b->done, true);
    return status;
  }
  unsigned char *const data = t->rank == 0 ? &byte : (unsigned char *)b->large + LARGE;
  const weir_send send = {2, data, t->rank == 0 ? 1 : LARGE, 0};
  weir_status status = WEIR_OK;
  if (t->rank == 0) group_nap(b->after_s);
  if (t->rank == 0 && b->abort)
    t->ops->abort(t, 0);
  else
    status = t->ops->transfer(t, &tag, &send, 1, NULL, 0, begin_s + DEADLINE_S);
  while (!atomic_load(&b->done)) group_nap(1e-3);
  return status;
}

static void between_case(bool abort) {
  FREED unsigned char *large = malloc(2 * LARGE);
  cr_assert_not_null(large);
  memset(large, 7, 2 * LARGE);
  for (int ms = 0; ms < 40; ms += 2) {
    between b = {.after_s = ms * 1e-3, .abort = abort, .large = large};
    ENDED group g = group_new(GROUP_THREADS, 3, between_body, &b);
    group_run(&g);
    cr_assert_eq(g.result[2].status, abort ? WEIR_E_PEER : WEIR_OK, "%s", g.result[2].message);
    cr_assert_lt(b.took_s, DEADLINE_S / 2, "it slept until its deadline (%d ms)", ms);
  }
}

Test(inproc, a_message_during_a_copy) { between_case(false); }
Test(inproc, an_end_during_a_copy) { between_case(true); }

/* --- an end, of which some messages are withdrawn and others not yet -------------------------- */

typedef struct withdrawn {
  double after_s;        /* rank 0 ends the group so long after the others have begun */
  unsigned char *large;  /* 5 * LARGE: where two messages come in, and what both are of */
  atomic_int copies_yet; /* of ranks 1 and 2 */
} withdrawn;

/* Rank 1 copies a large message of rank 4 and then expects two bytes of rank 3, which sends a
 * larger one to rank 2 between them.  Rank 0 ends the group meanwhile: rank 3 takes back the first
 * byte and then waits for rank 2's copy. */
static weir_status withdrawn_body(weir_transport *t, void *user) {
  withdrawn *w = user;
  unsigned char byte[2] = {1, 2};
  unsigned char *const longer = w->large + LARGE, *const from = w->large + 3 * LARGE;
  const weir_tag tag = {1, 1, 1, 0};
  weir_recv few[] = {{4, w->large, LARGE, 0, 0}, {3, byte, 1, 0, 0}, {3, byte + 1, 1, 1, 0}};
  weir_recv one = {3, longer, 2 * LARGE, 0, 0};
  const weir_send bytes[] = {{1, byte, 1, 0}, {2, from, 2 * LARGE, 0}, {1, byte, 1, 1}};
  const weir_send large = {1, from, LARGE, 0};
  const weir_send *const send[] = {NULL, NULL, NULL, bytes, &large};
  weir_recv *const recv[] = {NULL, few, &one, NULL, NULL};
  static const size_t sends[] = {0, 0, 0, 3, 1}, recvs[] = {0, 3, 1, 0, 0};
  weir_status status = WEIR_OK;
  if (t->rank == 0) {
    group_nap(w->after_s);
    t->ops->abort(t, 0);
  } else {
    status = t->ops->transfer(t, &tag, send[t->rank], sends[t->rank], recv[t->rank], recvs[t->rank],
                              weir_now_s() + DEADLINE_S);
  }
  if (recv[t->rank] != NULL) atomic_fetch_sub(&w->copies_yet, 1);
  while (atomic_load(&w->copies_yet) > 0) group_nap(1e-3);
  return status;
}

Test(inproc, an_end_with_messages_half_withdrawn) {
  FREED unsigned char *large = malloc(5 * LARGE);
  cr_assert_not_null(large);
  memset(large, 7, 5 * LARGE);
  for (int ms = 0; ms < 40; ms++) {
    withdrawn w = {.after_s = ms * 1e-3, .large = large, .copies_yet = 2};
    ENDED group g = group_new(GROUP_THREADS, 5, withdrawn_body, &w);
    group_run(&g);
    for (int r = 1; r < 5; r++)
      cr_assert(g.result[r].status == WEIR_OK || g.result[r].status == WEIR_E_PEER, "%d ms: %s", ms,
                g.result[r].message);
  }
}

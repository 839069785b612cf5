/* A rank wrapped in faults: it is struck as asked, and everything else passes. */
#include <criterion/criterion.h>

#include "collectives/wrappers.h"
#include "ranks.h"

#define N 20000 /* floats: messages that leave flow samples behind */

/* Sums 1 + 2 + ... over the ranks, `times` times. */
static weir_status sums(weir_transport *t, int times) {
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 3.0);
  if (status != WEIR_OK) return status;
  FREED float *x = malloc(N * sizeof *x);
  for (int i = 0; status == WEIR_OK && i < times; i++) {
    for (size_t k = 0; k < N; k++) x[k] = (float)(t->rank + 1);
    weir_comm_step(comm, 5, (uint64_t)i);
    status = weir_allreduces[WEIR_ALLREDUCE_RING].run(comm, x, N, WEIR_VALUE_FP32, NULL, NULL);
    const float due = (float)(t->size * (t->size + 1) / 2);
    for (size_t k = 0; status == WEIR_OK && k < N; k++)
      if (x[k] != due) status = weir_fail(WEIR_E_INTERNAL, "sum %g", (double)x[k]);
  }
  return status;
}

/* Around a rank that is never struck: its bytes and flows are the transport's, and so is what it is
 * asked. */
static weir_status passing_body(weir_transport *t, void *user) {
  const enum group_kind kind = *(const enum group_kind *)user;
  weir_transport *top = NULL;
  weir_status status =
      weir_transport_fault(&top, t, &(weir_strike){WEIR_STRIKE_KILL, UINT64_MAX, -1});
  if (status == WEIR_OK) status = sums(top, 3);
  if (status != WEIR_OK) return status;
  if (top->bytes_sent != t->bytes_sent || top->flows != t->flows)
    return weir_fail(WEIR_E_INTERNAL, "other counters");
  if ((top->ops->echo != NULL) != (kind == GROUP_TCP)) return weir_fail(WEIR_E_INTERNAL, "echo");
  double rtt = 0.0;
  if (top->ops->echo && top->ops->echo(top, (t->rank + 1) % 3, 2.0, &rtt) != WEIR_OK)
    return weir_fail(WEIR_E_INTERNAL, "echo through the wrapper: %s", weir_last_error());
  if ((top->ops->descriptor != NULL) != (kind == GROUP_TCP) ||
      (kind == GROUP_TCP &&
       top->ops->descriptor(top, (t->rank + 1) % 3) != t->ops->descriptor(t, (t->rank + 1) % 3)))
    return weir_fail(WEIR_E_INTERNAL, "descriptor");
  status = sums(top, 1); /* nobody leaves while others ask */
  free(top);             /* the group's helper destroys t itself */
  return status;
}

static void passing_case(enum group_kind kind) { group_passes(kind, 3, passing_body, &kind); }
Test(wrappers, pass_threads) { passing_case(GROUP_THREADS); }
Test(wrappers, pass_tcp) { passing_case(GROUP_TCP); }
Test(wrappers, pass_shm) { passing_case(GROUP_SHM); }

#define VICTIM 1

/* The victim is struck at its 6th transfer, in the second of endless sums. */
static weir_status struck_body(weir_transport *t, void *user) {
  FREED weir_transport *top = NULL;
  if (t->rank != VICTIM) return sums(t, 1000000);
  weir_status status = weir_transport_fault(&top, t, user);
  if (status != WEIR_OK) return status;
  status = sums(top, 1000000);
  return status;
}

static void struck_case(enum group_kind kind, weir_strike strike) {
  ENDED group g = group_new(kind, 3, struck_body, &strike);
  if (kind == GROUP_THREADS) {
    group_run(&g);
  } else {
    group_start(&g);
    for (int r = 0; r < 3; r++)
      if (r != VICTIM) (void)waitpid(g.pid[r], NULL, 0);
    /* What is cut off or leaves ends by itself, and has something to say first. */
    if (strike.kind < WEIR_STRIKE_RESET) (void)kill(g.pid[VICTIM], SIGKILL);
    (void)waitpid(g.pid[VICTIM], NULL, 0);
  }
  for (int r = 0; r < 3; r++) {
    if (r == VICTIM) continue;
    cr_assert(g.result[r].status == WEIR_E_PEER || g.result[r].status == WEIR_E_TIMEOUT,
              "kind %d, strike %d, rank %d: %s %s", (int)kind, (int)strike.kind, r,
              weir_status_name(g.result[r].status), g.result[r].message);
    /* A connection that is reset has two ends, and either may be named. */
    if (strike.kind != WEIR_STRIKE_RESET)
      cr_assert_eq(strncmp(g.result[r].message, "rank 1", 6), 0, "%s", g.result[r].message);
  }
  if (strike.kind >= WEIR_STRIKE_RESET)
    cr_assert_eq(g.result[VICTIM].status, WEIR_E_PEER, "%s", g.result[VICTIM].message);
}

Test(wrappers, strikes) {
  static const enum group_kind kinds[] = {GROUP_THREADS, GROUP_TCP, GROUP_SHM};
  for (int k = 0; k < 3; k++)
    for (int kind = k == 0 ? WEIR_STRIKE_RESET : WEIR_STRIKE_KILL; kind <= WEIR_STRIKE_LEAVE;
         kind++)
      struck_case(kinds[k], (weir_strike){(weir_strike_kind)kind, 5, kind % 2 ? -1 : 2});
}

Test(wrappers, bad_arguments) {
  weir_transport *t = NULL, *out = NULL;
  cr_assert_eq(weir_transport_inproc(&t, "wrapped alone", 0, 1, 1.0), WEIR_OK);
  cr_assert_eq(weir_transport_fault(&out, t, &(weir_strike){WEIR_STRIKE_KILL, 0, 1}),
               WEIR_E_INVALID);
  cr_assert_eq(weir_transport_fault(&out, t, &(weir_strike){WEIR_STRIKE_KILL, 0, -2}),
               WEIR_E_INVALID);
  cr_assert_null(out);
  /* A wrapper takes what it wraps with it. */
  cr_assert_eq(weir_transport_fault(&out, t, &(weir_strike){WEIR_STRIKE_KILL, 9, -1}), WEIR_OK);
  out->ops->destroy(out);
}

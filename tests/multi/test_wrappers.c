/* Transports around transports: what they add happens, and everything else passes. */
#include <criterion/criterion.h>
#include <math.h>

#include "collectives/wrappers.h"
#include "ranks.h"

#define N 20000 /* floats: messages that leave flow samples behind */

/* Sums 1 + 2 + ... over the ranks, `times` times. */
static weir_status sums(weir_transport *t, int times) {
  weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 3.0);
  if (status != WEIR_OK) return status;
  float *x = malloc(N * sizeof *x);
  for (int i = 0; status == WEIR_OK && i < times; i++) {
    for (size_t k = 0; k < N; k++) x[k] = (float)(t->rank + 1);
    weir_comm_step(comm, 5, (uint64_t)i);
    status = weir_allreduces[WEIR_ALLREDUCE_RING].run(comm, x, N, WEIR_VALUE_FP32, NULL, NULL);
    const float due = (float)(t->size * (t->size + 1) / 2);
    for (size_t k = 0; status == WEIR_OK && k < N; k++)
      if (x[k] != due) status = weir_fail(WEIR_E_INTERNAL, "sum %g", (double)x[k]);
  }
  free(x);
  weir_comm_free(comm);
  return status;
}

/* Two wrappers deep.  The ring of 3 ranks sums in 4 transfers of a third each way, and the trace's
 * bytes are the transport's. */
static weir_status stacked_body(weir_transport *t, void *user) {
  const enum group_kind kind = *(const enum group_kind *)user;
  weir_transfer_entry entry[4] = {0};
  weir_transfer_log log = {entry, 4, 0};
  weir_transport *slow = NULL, *top = NULL;
  const weir_delay delay = {
      .seconds = 0.002, .jitter_s = 0.001, .seconds_per_byte = 1e-9, .seed = 3};
  weir_status status = weir_transport_delay(&slow, t, &delay);
  if (status == WEIR_OK) status = weir_transport_trace(&top, slow, &log);
  if (status == WEIR_OK) status = sums(top, 3);
  if (status != WEIR_OK) return status;
  const size_t frame = kind == GROUP_TCP ? 48 + 4 : kind == GROUP_SHM ? 40 : 0;
  if (log.count != 12 || top->bytes_sent != t->bytes_sent || top->flows != t->flows)
    return weir_fail(WEIR_E_INTERNAL, "%llu transfers", (unsigned long long)log.count);
  uint64_t out = 0;
  for (int i = 0; i < 4; i++) {
    const weir_transfer_entry *e = &entry[i];
    const size_t third = 4 * (size_t)(N / 3);
    if (e->status != WEIR_OK || e->tag.step != 2 || e->sends != 1 || e->recvs != 1 ||
        e->bytes_out < third || e->bytes_out > third + 8 || e->bytes_in < third)
      return weir_fail(WEIR_E_INTERNAL, "transfer %d: %zu sends, %llu bytes", i, e->sends,
                       (unsigned long long)e->bytes_out);
    if (e->end_s - e->begin_s < 0.002 + 1e-9 * (double)third)
      return weir_fail(WEIR_E_INTERNAL, "it took %g s", e->end_s - e->begin_s);
    out += e->bytes_out + frame;
  }
  if (t->bytes_sent != 3 * out) return weir_fail(WEIR_E_INTERNAL, "bytes");
  if ((top->ops->echo != NULL) != (kind == GROUP_TCP)) return weir_fail(WEIR_E_INTERNAL, "echo");
  double rtt = 0.0;
  if (top->ops->echo && top->ops->echo(top, (t->rank + 1) % 3, 2.0, &rtt) != WEIR_OK)
    return weir_fail(WEIR_E_INTERNAL, "echo through two wrappers: %s", weir_last_error());
  /* The group's helper destroys t itself: take the wrappers off without it. */
  if (top->ops->descriptor(top, (t->rank + 1) % 3) != t->ops->descriptor(t, (t->rank + 1) % 3))
    return weir_fail(WEIR_E_INTERNAL, "descriptor");
  status = sums(top, 1); /* nobody leaves while others ask */
  free(top);
  free(slow);
  return status;
}

static void stacked_case(enum group_kind kind) {
  group g;
  group_init(&g, kind, 3, stacked_body, &kind);
  group_run(&g);
  for (int r = 0; r < 3; r++)
    cr_assert_eq(g.result[r].status, WEIR_OK, "rank %d: %s", r, g.result[r].message);
  group_done(&g);
}
Test(wrappers, stack_threads) { stacked_case(GROUP_THREADS); }
Test(wrappers, stack_tcp) { stacked_case(GROUP_TCP); }
Test(wrappers, stack_shm) { stacked_case(GROUP_SHM); }

#define VICTIM 1

/* The victim is struck at its 6th transfer, in the second of endless sums. */
static weir_status struck_body(weir_transport *t, void *user) {
  weir_transport *top = NULL;
  if (t->rank != VICTIM) return sums(t, 1000000);
  weir_status status = weir_transport_fault(&top, t, user);
  if (status != WEIR_OK) return status;
  status = sums(top, 1000000);
  free(top);
  return status;
}

static void struck_case(enum group_kind kind, weir_strike strike) {
  group g;
  group_init(&g, kind, 3, struck_body, &strike);
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
  group_done(&g);
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
  cr_assert_eq(weir_transport_delay(&out, t, &(weir_delay){.seconds = -1}), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_delay(&out, t, &(weir_delay){.jitter_s = NAN}), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_delay(&out, t, &(weir_delay){.seconds_per_byte = INFINITY}),
               WEIR_E_INVALID);
  cr_assert_eq(weir_transport_trace(&out, t, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_transport_trace(&out, t, &(weir_transfer_log){0}), WEIR_E_INVALID);
  cr_assert_null(out);
  /* A wrapper takes what it wraps with it. */
  cr_assert_eq(weir_transport_delay(&out, t, &(weir_delay){0}), WEIR_OK);
  out->ops->destroy(out);
}

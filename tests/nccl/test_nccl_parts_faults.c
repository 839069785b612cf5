/* NCCL as a part when something is wrong: ranks that die, are silent, lack a device or mean another
 * transport, an NCCL that fails; who is through meanwhile; and survivors. */
#include "crowd.h"

#define PATIENCE_S 60.0 /* for what goes well, on however busy a machine */

static const int two_and_two[] = {7, 7, 3, 3}, two_and_one[] = {7, 7, 3};

static crowd crowd_of(const int *machine, bool inside) {
  return (crowd){.machine = machine, .inside = inside, .shares = !inside, .timeout_s = PATIENCE_S};
}

/* A rank to which rank 3 of two_and_two is connected by NCCL. */
static int partner(const rank *r) { return r->crowd->inside ? 2 : 0; }

static weir_status sum(rank *r, uint64_t step, double timeout_s) {
  weir_comm *comm = NULL;
  FREED float *x = malloc(N * sizeof *x);
  weir_status status = weir_comm_create(&comm, r->t, timeout_s);
  for (size_t i = 0; i < N; i++) x[i] = input_at(r->t->rank, i);
  if (status != WEIR_OK) return status;
  weir_comm_step(comm, 9, step);
  status = weir_allreduces[WEIR_ALLREDUCE_RING].run(comm, x, N, WEIR_VALUE_FP32, NULL, NULL);
  weir_comm_free(comm);
  const rank now = {.size = r->t->size};
  return status == WEIR_OK ? check_sum(&now, x, "ring") : status;
}

static weir_status sum_body(rank *r) { return sum(r, 1, PATIENCE_S); }

/* --- survivors -------------------------------------------------------------------------------- */

static int dying;
static const char *left_name;

static weir_status survive(rank *r) {
  weir_transport *left = NULL;
  int old_rank[MOST], machine[MOST];
  weir_status status = r->t->ops->shrink(r->t, PATIENCE_S, &left, old_rank);
  if (status != WEIR_OK) return status;
  r->t->ops->destroy(r->t);
  r->t = left;
  for (int i = 0; i < left->size; i++) machine[i] = r->crowd->machine[old_rank[i]];
  status = share_memory(r, machine);
  if (status == WEIR_OK && (left->size != r->size - 1 || strcmp(left->ops->name, left_name) != 0))
    status = weir_fail(WEIR_E_INTERNAL, "%d ranks over %s", left->size, left->ops->name);
  return status == WEIR_OK ? sum(r, 1, PATIENCE_S) : status;
}

static weir_status dying_body(rank *r) {
  const weir_status before = sum(r, 1, PATIENCE_S);
  char name[16];
  (void)snprintf(name, sizeof name, "rank %d", dying);
  if (before != WEIR_OK) return before;
  if (r->rank == dying) {
    vanish((tcp *)((nct *)r->t)->control);
    return WEIR_OK;
  }
  const weir_status lost = sum(r, 2, PATIENCE_S);
  if (lost != WEIR_E_PEER || strstr(weir_last_error(), name) == NULL)
    return weir_fail(WEIR_E_INTERNAL, "its loss came as %d: %s", lost, weir_last_error());
  return survive(r);
}

static void dies(const int *machine, int size, int who, bool inside, const char *name) {
  crowd g = crowd_of(machine, inside);
  load();
  dying = who;
  left_name = name;
  const size_t before = mock.living();
  run(&g, size, dying_body);
  all_well(&g);
  cr_assert_eq(mock.living(), before);
}

Test(nccl_parts_faults, survivors_go_on_over_nccl_and_tcp) {
  dies(two_and_two, 4, 3, true, "nccl+tcp");
}
Test(nccl_parts_faults, survivors_share_memory_anew) { dies(two_and_two, 4, 3, false, "shm+nccl"); }
Test(nccl_parts_faults, survivors_of_one_machine_each_have_tcp_alone) {
  dies(two_and_one, 3, 1, true, "tcp");
}
Test(nccl_parts_faults, survivors_of_one_machine_each_have_nccl_alone) {
  dies(two_and_one, 3, 1, false, "nccl");
}

/* --- while NCCL carries ----------------------------------------------------------------------- */

enum { LONG = 20000 };
static unsigned char received[LONG];

/* Rank 3 announces a long message, and does not send it. */
static weir_status announce(rank *r, int to) {
  weir_transport *control = ((nct *)r->t)->control;
  const nct_word word = {NCT_MAGIC, 1, LONG};
  const weir_tag tag = {.plan = 5, .step = 2};
  const weir_send send = {to, &word, sizeof word, 0};
  return control->ops->transfer(control, &tag, &send, 1, NULL, 0, weir_now_s() + PATIENCE_S);
}

static weir_status receive(rank *r, double timeout_s) {
  const weir_tag tag = {.plan = 5, .step = 2};
  weir_recv recv = {3, received, LONG, 0, 0};
  return r->t->ops->transfer(r->t, &tag, NULL, 0, &recv, 1, weir_now_s() + timeout_s);
}

static weir_status cut_off_body(rank *r) {
  if (r->rank == partner(r)) return receive(r, PATIENCE_S);
  if (r->rank != 3) return WEIR_OK;
  const weir_status status = announce(r, partner(r));
  vanish((tcp *)((nct *)r->t)->control);
  return status;
}

static weir_status silent_body(rank *r) {
  if (r->rank == partner(r)) return receive(r, TIMEOUT_S);
  return r->rank == 3 ? announce(r, partner(r)) : WEIR_OK;
}

static void fails_to_send(bool inside, weir_status (*body)(rank *), weir_status due,
                          const char *said) {
  crowd g = crowd_of(two_and_two, inside);
  load();
  run(&g, 4, body);
  const rank *r = &g.ranks[inside ? 2 : 0];
  cr_assert_eq(r->status, due, "%d %s", r->status, r->why);
  cr_assert_not_null(strstr(r->why, said), "%s", r->why);
  cr_assert_lt(r->seconds, PATIENCE_S / 2);
}

Test(nccl_parts_faults, who_dies_before_it_sends_is_named) {
  fails_to_send(true, cut_off_body, WEIR_E_PEER, "rank 3 is gone");
  fails_to_send(false, cut_off_body, WEIR_E_PEER, "rank 3 is gone");
}
Test(nccl_parts_faults, who_is_silent_is_named) {
  fails_to_send(true, silent_body, WEIR_E_TIMEOUT, "rank 3 did not answer in time");
  fails_to_send(false, silent_body, WEIR_E_TIMEOUT, "rank 3 did not answer in time");
}

/* Rank 0, of another machine, is through and leaves while rank 2 waits for NCCL. */
static weir_status send_late(rank *r) {
  nct *self = (nct *)r->t;
  weir_status status = announce(r, 2);
  if (status == WEIR_OK) status = nct_reserve(self, LONG);
  if (status != WEIR_OK) return status;
  memset(self->memory, 77, LONG);
  tcp_sleep(1.0); /* four times what is given to a rank that leaves */
  (void)library.group_start();
  (void)library.send(self->memory, LONG, ncclUint8, 0, self->comm, self->stream);
  status = nct_result(self, library.group_end(), "to send");
  return status == WEIR_OK ? nct_wait(self, 2, 2, weir_now_s() + PATIENCE_S) : status;
}

static weir_status through_body(rank *r) {
  if (r->rank == 0) vanish((tcp *)((nct *)r->t)->control);
  pthread_barrier_wait(&r->crowd->barrier);
  if (r->rank == 3) return send_late(r);
  if (r->rank != 2) return WEIR_OK;
  const weir_status status = receive(r, PATIENCE_S);
  if (status == WEIR_OK && (received[0] != 77 || received[LONG - 1] != 77))
    return differs("a message", 3, LONG);
  return status;
}

Test(nccl_parts_faults, who_owes_nothing_may_leave) {
  crowd g = crowd_of(two_and_two, true);
  load();
  run(&g, 4, through_body);
  all_well(&g);
}

static void rank_3_fails(int r, const mock_controls *mine) {
  if (r == 3) *mine->fail_groups = ncclSystemError;
}

/* On one rank of one machine, and the group ends on all. */
Test(nccl_parts_faults, what_nccl_says_is_told) {
  load();
  for (int inside = 0; inside < 2; inside++) {
    crowd g = crowd_of(two_and_two, inside == 1);
    const size_t before = mock.living();
    g.before = rank_3_fails;
    run(&g, 4, sum_body);
    for (int r = 0; r < 4; r++) {
      cr_assert_eq(g.ranks[r].status, WEIR_E_PEER, "rank %d: %s", r, g.ranks[r].why);
      const char *due = r == 3 ? "NCCL failed to carry messages: an error (mock)" : "rank 3";
      cr_assert_not_null(strstr(g.ranks[r].why, due), "rank %d: %s", r, g.ranks[r].why);
    }
    cr_assert_eq(mock.living(), before);
  }
}

/* --- coming together -------------------------------------------------------------------------- */

/* All are told, and who is to blame says why. */
static void refused(crowd *g, int size, int who, const char *why) {
  const size_t before = mock.living();
  run(g, size, sum_body);
  for (int r = 0; r < size; r++) {
    cr_assert_eq(g->ranks[r].status, WEIR_E_UNSUPPORTED, "rank %d: %s", r, g->ranks[r].why);
    char due[64];
    (void)snprintf(due, sizeof due, "rank %d cannot use NCCL; it says why", who);
    cr_assert_not_null(strstr(g->ranks[r].why, r == who ? why : due), "rank %d: %s", r,
                       g->ranks[r].why);
  }
  cr_assert_eq(mock.living(), before);
}

static void rank_1_has_no_device(int r, const mock_controls *mine) {
  if (r == 1) *mine->devices = 0;
}

Test(nccl_parts_faults, who_lacks_a_device_is_named) {
  load();
  for (int inside = 0; inside < 2; inside++) {
    crowd g = crowd_of(two_and_one, inside == 1);
    g.before = rank_1_has_no_device;
    refused(&g, 3, 1, "CUDA failed to count its devices: no device");
  }
}

static _Thread_local bool nameless;
static ncclResult_t (*name_well)(ncclUniqueId *id);
static ncclResult_t name(ncclUniqueId *id) { return nameless ? ncclSystemError : name_well(id); }
static void rank_2_is_nameless(int r, const mock_controls *mine) {
  (void)mine;
  nameless = r == 2;
}

/* The first rank of the other machine. */
Test(nccl_parts_faults, who_cannot_name_a_communicator_is_named) {
  load();
  name_well = library.get_unique_id;
  library.get_unique_id = name;
  crowd g = crowd_of(two_and_two, true);
  g.before = rank_2_is_nameless;
  refused(&g, 4, 2, "NCCL failed to name a group: an error (mock)");
}

static weir_status other_rule_body(rank *r) {
  weir_transport *control = r->t;
  return nct_create(&r->t, control,
                    &(nct_options){.lib = &library,
                                   .inside = r->rank == 1,
                                   .machine = (uint64_t)r->crowd->machine[r->rank],
                                   .timeout_s = PATIENCE_S});
}

Test(nccl_parts_faults, who_means_another_transport_is_refused) {
  load();
  crowd g = {.plain = true, .machine = two_and_one};
  run(&g, 3, other_rule_body);
  bool seen = false;
  for (int r = 0; r < 3; r++) {
    cr_assert(g.ranks[r].status == WEIR_E_MISMATCH || g.ranks[r].status == WEIR_E_PEER,
              "rank %d: %d %s", r, g.ranks[r].status, g.ranks[r].why);
    seen = seen || strstr(g.ranks[r].why, "does not speak of NCCL as this rank does") != NULL;
  }
  cr_assert(seen);
}

/* The NCCL transport when something is wrong: ranks on other plans, gone, silent or without a
 * device, an NCCL that fails or is not there; and survivors. */
#include "crowd.h"

static weir_status sum_native(rank *r, uint64_t plan) {
  FREED float *x = malloc(N * sizeof *x);
  const weir_tag tag = {.plan = plan, .step = 3};
  for (size_t i = 0; i < N; i++) x[i] = input_at(r->rank, i);
  weir_status status = r->t->ops->allreduce(r->t, &tag, x, N, NULL, 0, weir_now_s() + TIMEOUT_S);
  if (status == WEIR_OK) status = check_sum(r, x, "native");
  return status;
}

static weir_status other_plan_body(rank *r) { return sum_native(r, r->rank == 1 ? 6 : 5); }

Test(nccl, another_plan_is_seen_before_anything_is_summed) {
  load();
  const size_t before = mock.carried();
  crowd g = {.before = NULL};
  run(&g, 3, other_plan_body);
  for (int r = 0; r < 3; r++)
    cr_assert(g.ranks[r].status == WEIR_E_MISMATCH || g.ranks[r].status == WEIR_E_PEER,
              "rank %d: %d, %s", r, g.ranks[r].status, g.ranks[r].why);
  cr_assert_eq(mock.carried(), before);
}

static weir_status too_long_body(rank *r) {
  static unsigned char data[MOST][20000];
  const weir_tag tag = {.plan = 5, .step = 1};
  weir_send send = {1, data[0], sizeof data[0], 0};
  weir_recv recv = {0, data[1], sizeof data[0] - 1, 0, 0};
  return r->t->ops->transfer(r->t, &tag, &send, r->rank == 0, &recv, r->rank == 1,
                             weir_now_s() + TIMEOUT_S);
}

Test(nccl, a_message_that_is_too_long_is_refused) {
  load();
  const size_t before = mock.carried();
  crowd g = {.before = NULL};
  run(&g, 2, too_long_body);
  cr_assert_eq(g.ranks[1].status, WEIR_E_PROTOCOL);
  cr_assert(strstr(g.ranks[1].why, "rank 0 sends 20000 bytes where at most 19999 are due") != NULL,
            "%s", g.ranks[1].why);
  cr_assert_neq(g.ranks[0].status, WEIR_OK);
  cr_assert_eq(mock.carried(), before);
}

/* Takes part up to where NCCL begins, as a process does that dies there. */
static weir_status announce_only(rank *r) {
  weir_transport *control = ((nct *)r->t)->control;
  const weir_tag tag = {.plan = 5, .step = 3};
  unsigned char nothing[1];
  weir_send send[MOST];
  weir_recv recv[MOST];
  size_t n = 0;
  for (int p = 0; p < r->size; p++) {
    if (p == r->rank) continue;
    send[n] = (weir_send){p, nothing, 0, 0};
    recv[n++] = (weir_recv){p, nothing, 0, 0, 0};
  }
  return control->ops->transfer(control, &tag, send, n, recv, n, weir_now_s() + TIMEOUT_S);
}

/* Rank 2 is gone while the others sum; they end, name it, and go on as two. */
static weir_status gone_body(rank *r) {
  if (r->rank == 2) {
    const weir_status status = announce_only(r);
    vanish((tcp *)((nct *)r->t)->control);
    return status;
  }
  const weir_status lost = sum_native(r, 5);
  if (lost != WEIR_E_PEER || strstr(weir_last_error(), "rank 2") == NULL)
    return weir_fail(WEIR_E_INTERNAL, "the loss of rank 2 came as %d: %s", lost, weir_last_error());
  if (sum_native(r, 5) != WEIR_E_PEER)
    return weir_fail(WEIR_E_INTERNAL, "a group that has ended sums");
  weir_transport *left = NULL;
  int old_rank[MOST] = {-1, -1, -1};
  weir_status status = r->t->ops->shrink(r->t, TIMEOUT_S, &left, old_rank);
  if (status != WEIR_OK) return status;
  r->t->ops->destroy(r->t);
  r->t = left;
  r->size = left->size;
  if (left->size != 2 || left->rank != r->rank || old_rank[0] != 0 || old_rank[1] != 1)
    return weir_fail(WEIR_E_INTERNAL, "the survivors are %d ranks", left->size);
  return sum_native(r, 5);
}

Test(nccl, a_rank_that_dies_is_named_and_survivors_go_on) {
  load();
  const size_t before = mock.living();
  crowd g = {.before = NULL};
  run(&g, 3, gone_body);
  all_well(&g);
  cr_assert_eq(mock.living(), before);
}

/* Rank 1 is there and does nothing more. */
static weir_status silent_body(rank *r) {
  if (r->rank != 1) return sum_native(r, 5);
  const weir_status status = announce_only(r);
  tcp_sleep(TIMEOUT_S + 1.5);
  return status;
}

Test(nccl, a_silent_rank_is_named_in_time) {
  load();
  crowd g = {.before = NULL};
  run(&g, 3, silent_body);
  for (int r = 0; r < 3; r += 2) {
    cr_assert_eq(g.ranks[r].status, WEIR_E_TIMEOUT, "rank %d: %s", r, g.ranks[r].why);
    cr_assert(strstr(g.ranks[r].why, "rank 1 did not answer in time") != NULL, "%s",
              g.ranks[r].why);
    cr_assert_lt(g.ranks[r].seconds, TIMEOUT_S + 10.0);
  }
}

static void rank_1_fails(int r, const mock_controls *mine) {
  if (r == 1) *mine->fail_groups = ncclSystemError;
}

static weir_status native_body(rank *r) { return sum_native(r, 5); }

/* NCCL fails on one rank with nobody gone: that rank says what NCCL says, the others name it. */
Test(nccl, what_nccl_says_is_told) {
  load();
  crowd g = {.before = rank_1_fails};
  run(&g, 3, native_body);
  for (int r = 0; r < 3; r++)
    cr_assert_eq(g.ranks[r].status, WEIR_E_PEER, "rank %d: %d, %s", r, g.ranks[r].status,
                 g.ranks[r].why);
  cr_assert(
      strstr(g.ranks[1].why, "NCCL failed to carry messages: an error (mock): why (mock)") != NULL,
      "%s", g.ranks[1].why);
  for (int r = 0; r < 3; r += 2)
    cr_assert(strstr(g.ranks[r].why, "rank 1 is gone") != NULL, "rank %d: %s", r, g.ranks[r].why);
}

static void rank_1_has_no_device(int r, const mock_controls *mine) {
  if (r == 1) *mine->devices = 0;
}

Test(nccl, a_rank_without_a_device_is_named_before_nccl_begins) {
  load();
  const size_t before = mock.living();
  crowd g = {.before = rank_1_has_no_device};
  run(&g, 3, native_body);
  for (int r = 0; r < 3; r++) cr_assert_eq(g.ranks[r].status, WEIR_E_UNSUPPORTED);
  cr_assert(strstr(g.ranks[1].why, "CUDA failed to count its devices: no device") != NULL, "%s",
            g.ranks[1].why);
  cr_assert(strstr(g.ranks[0].why, "rank 1 cannot use NCCL") != NULL, "%s", g.ranks[0].why);
  cr_assert_eq(mock.living(), before);
}

/* All on one machine with one device: NCCL refuses, as it does without an NCCL_HOSTID. */
static void rank_1_cannot_join(int r, const mock_controls *mine) {
  *mine->devices = 1;
  if (r == 1) *mine->fail_init = ncclInvalidUsage;
}

Test(nccl, a_group_that_nccl_refuses_says_what_to_do) {
  load();
  const size_t before = mock.living();
  crowd g = {.before = rank_1_cannot_join};
  run(&g, 3, native_body);
  for (int r = 0; r < 3; r++)
    cr_assert_eq(g.ranks[r].status, WEIR_E_PEER, "rank %d: %d, %s", r, g.ranks[r].status,
                 g.ranks[r].why);
  cr_assert(strstr(g.ranks[1].why,
                   "3 ranks share a device: each needs an NCCL_HOSTID of its own") != NULL,
            "%s", g.ranks[1].why);
  cr_assert(strstr(g.ranks[0].why, "rank 1 is gone") != NULL, "%s", g.ranks[0].why);
  cr_assert_eq(mock.living(), before);
}

Test(nccl, libraries_that_are_not_there) {
  nct_library none;
  cr_assert_eq(nct_load_from(&none, "libno-such-nccl.so", WEIR_MOCK_NCCL), WEIR_E_UNSUPPORTED);
  cr_assert(strstr(weir_last_error(), "libno-such-nccl.so cannot be loaded") != NULL);
  cr_assert_eq(nct_load_from(&none, WEIR_MOCK_NCCL, "libno-such-cudart.so"), WEIR_E_UNSUPPORTED);
  cr_assert(strstr(weir_last_error(), "libno-such-cudart.so cannot be loaded") != NULL);
  cr_assert_eq(nct_load_from(&none, "libm.so.6", WEIR_MOCK_NCCL), WEIR_E_UNSUPPORTED);
  cr_assert(strstr(weir_last_error(), "libm.so.6 has no ncclGetUniqueId") != NULL);
}

/* The NCCL transport: announcements, long and short messages, memory of the host and the device,
 * all collectives, the engine's steps. */
#include "steps.h"

/* --- messages --------------------------------------------------------------------------------- */

static const size_t lengths[] = {0, 1, NCT_SHORT, NCT_SHORT + 1, 100003};
#define LENGTHS (sizeof lengths / sizeof *lengths)

static unsigned char byte_of(int from, size_t message, size_t i) {
  return (unsigned char)((size_t)from * 91 + message * 37 + i * 7 + i / 251);
}

/* Memory of either kind; the mock's device can be written by anybody. */
static unsigned char *room(bool on_device, size_t bytes) {
  void *memory = NULL;
  if (!on_device) return malloc(bytes + 1);
  return library.allocate(&memory, bytes + 1) == cudaSuccess ? memory : NULL;
}
static void give_back(bool on_device, unsigned char *memory) {
  if (on_device)
    (void)library.release(memory);
  else
    free(memory);
}

/* All lengths to both neighbours at once, in order, from and to either kind of memory. */
static weir_status exchange_once(rank *r, bool out_there, bool in_there, uint64_t step) {
  const weir_tag tag = {.plan = 5, .step = step};
  const int peer[2] = {(r->rank + 1) % r->size, (r->rank + r->size - 1) % r->size};
  const size_t neighbours = r->size > 2 ? 2 : 1, n = neighbours * LENGTHS;
  weir_send send[2 * LENGTHS];
  weir_recv recv[2 * LENGTHS];
  for (size_t i = 0; i < n; i++) {
    const size_t m = i % LENGTHS;
    unsigned char *out = room(out_there, lengths[m]), *in = room(in_there, lengths[m] + 9);
    for (size_t k = 0; k < lengths[m]; k++) out[k] = byte_of(r->rank, m, k);
    memset(in, 0, lengths[m] + 9);
    send[i] = (weir_send){peer[i / LENGTHS], out, lengths[m], (uint32_t)m};
    recv[i] = (weir_recv){peer[i / LENGTHS], in, lengths[m] + 9, (uint32_t)m, 0};
  }
  weir_status status = r->t->ops->transfer(r->t, &tag, send, n, recv, n, weir_now_s() + TIMEOUT_S);
  for (size_t i = 0; i < n; i++) {
    const size_t m = i % LENGTHS;
    const unsigned char *in = recv[i].data;
    bool same = recv[i].bytes == lengths[m];
    for (size_t k = 0; k < lengths[m] && same; k++) same = in[k] == byte_of(recv[i].peer, m, k);
    if (status == WEIR_OK && !same) status = differs("a message", recv[i].peer, lengths[m]);
    give_back(out_there, (unsigned char *)(uintptr_t)send[i].data);
    give_back(in_there, recv[i].data);
  }
  return status;
}

static weir_status exchange_body(rank *r) {
  weir_status status = WEIR_OK;
  for (int way = 0; way < 4 && status == WEIR_OK; way++)
    status = exchange_once(r, way & 1, way & 2, (uint64_t)way);
  return status;
}

Test(nccl, messages_of_any_length_and_place) {
  load();
  const size_t before = mock.carried();
  for (int size = 2; size <= MOST; size++) run_well(size, exchange_body);
  /* What is longer than short went through NCCL, and nothing else: with 2 ranks once, else
   * to both. */
  const size_t a_step = lengths[3] + lengths[4];
  size_t expected = 2 * 4 * a_step;
  for (int size = 3; size <= MOST; size++) expected += (size_t)size * 2 * 4 * a_step;
  /* A short message on the device has no way but NCCL's: half of the steps. */
  expected += 2 * 2 * (lengths[1] + lengths[2]);
  for (int size = 3; size <= MOST; size++)
    expected += (size_t)size * 2 * 2 * (lengths[1] + lengths[2]);
  cr_assert_eq(mock.carried() - before, expected);
}

/* --- collectives ------------------------------------------------------------------------------ */

static weir_status sums_body(rank *r) {
  OWNED weir_comm *comm = NULL;
  FREED float *x = malloc(N * sizeof *x);
  unsigned char block[MOST][8];
  weir_headers headers = {block, sizeof *block};
  weir_status status = weir_comm_create(&comm, r->t, TIMEOUT_S);
  if (status == WEIR_OK && !weir_comm_native(comm))
    status = weir_fail(WEIR_E_INTERNAL, "no native row");
  for (uint32_t row = 0; row < WEIR_ALLREDUCE_ROWS && status == WEIR_OK; row++) {
    for (size_t i = 0; i < N; i++) x[i] = input_at(r->rank, i);
    memset(block, 0, sizeof block);
    memset(block[r->rank], r->rank + 1, sizeof *block);
    weir_comm_step(comm, 9, row);
    const uint64_t before = r->t->bytes_sent;
    status = weir_allreduces[row].run(comm, x, N, WEIR_VALUE_FP32, NULL, &headers);
    if (status == WEIR_OK) status = check_sum(r, x, weir_allreduces[row].name);
    for (int p = 0; p < r->size && status == WEIR_OK; p++)
      if (block[p][0] != p + 1 || block[p][7] != p + 1)
        status =
            weir_fail(WEIR_E_INTERNAL, "%s: the header of rank %d", weir_allreduces[row].name, p);
    if (status == WEIR_OK && r->t->bytes_sent - before < N * sizeof *x / (size_t)r->size)
      status = weir_fail(WEIR_E_INTERNAL, "%s: bytes are not counted", weir_allreduces[row].name);
  }
  return status;
}

Test(nccl, every_all_reduce) {
  load();
  for (int size = 2; size <= MOST; size++) run_well(size, sums_body);
}

/* No memory after the first step. */
static size_t warm;

static weir_status engine_body(rank *r) {
  static const char *const plans[] = {
      "none:1:native", "bf16:1:dense-ring",       "topk:0.1:ag",
      "qsgd:0.25:sra", "star:0.01:art-hier-tree", "powersgd:2:native"};
  const size_t offset[2] = {0, N};
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, r->t, TIMEOUT_S);
  for (size_t p = 0; p < sizeof plans / sizeof *plans && status == WEIR_OK; p++) {
    weir_engine *engine = NULL;
    weir_engine_config config = {.comm = comm, .layout = {1, offset}};
    status = weir_plan_parse(plans[p], &config.first_plan);
    if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
    for (int s = 0; s < 4 && status == WEIR_OK; s++) {
      status = one_step(r, engine, 1, offset, s, plans[p]);
      if (r->rank == 0 && s == 1) warm = mock.allocations();
      pthread_barrier_wait(&r->crowd->barrier);
      if (status == WEIR_OK && s == 3 && mock.allocations() != warm)
        status = weir_fail(WEIR_E_INTERNAL, "%s: device memory for every step", plans[p]);
    }
    weir_engine_free(engine);
  }
  return status;
}

Test(nccl, steps_of_the_engine) {
  load();
  run_well(3, engine_body);
}

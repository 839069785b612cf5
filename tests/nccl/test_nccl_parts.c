/* NCCL as a part: among the ranks of a machine with TCP between machines, and between machines with
 * memory inside.  Which messages it carries, and the bits of TCP alone. */
#include "../multi/every_row.h"
#include "../multi/random_ops.h"
#include "../sampled.h"

#define MOST 8
#include "crowd.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define PATIENCE_S 60.0 /* for what goes well, on however busy a machine */

typedef struct layout {
  int size, per_machine; /* neighbours that share one; 0: others do */
  int machine[MOST];
} layout;

static const layout layouts[] = {{4, 2, {7, 7, 3, 3}},
                                 {4, 3, {7, 7, 7, 3}},
                                 {8, 4, {5, 5, 5, 5, 9, 9, 9, 9}},
                                 {5, 0, {4, 8, 4, 8, 8}},
                                 {4, 0, {1, 6, 6, 2}}};

static crowd crowd_of(const layout *l, bool inside) {
  return (crowd){
      .machine = l->machine, .inside = inside, .shares = !inside, .timeout_s = PATIENCE_S};
}

/* NCCL inside of machines, and between them. */
static void run_both(const layout *l, int streams, weir_status (*body)(rank *)) {
  load();
  for (int inside = 0; inside < 2; inside++) {
    crowd g = crowd_of(l, inside == 1);
    g.streams = streams;
    run_well_as(&g, l->size, body);
  }
}

/* What tests say of each rank, in its machine's memory. */
static bool share_machine(const rank *r, int peer) {
  return r->crowd->machine[peer] == r->crowd->machine[r->rank];
}
static bool by_nccl(const rank *r, int peer) { return share_machine(r, peer) == r->crowd->inside; }

/* --- messages --------------------------------------------------------------------------------- */

/* About announcements, a header's own length, and what is short; the last is another between
 * machines, so that counts tell which have gone which way. */
static const size_t lengths[] = {0, 1, sizeof(nct_word), NCT_SHORT, NCT_SHORT + 1, 100003};
enum { LENGTHS = sizeof lengths / sizeof *lengths, MESSAGES = LENGTHS * (MOST - 1) };

static size_t length_of(const crowd *g, int from, int to, size_t m) {
  const bool apart = g->machine[from] != g->machine[to];
  return lengths[m] + (m == LENGTHS - 1 && apart ? 4096 : 0);
}

static unsigned char byte_of(int from, int to, size_t m, size_t i) {
  return (unsigned char)((size_t)from * 91 + (size_t)to * 53 + m * 37 + i * 7 + i / 251);
}

static weir_status check_messages(const rank *r, const weir_recv *recv, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const size_t m = recv[i].hop, due = length_of(r->crowd, recv[i].peer, r->rank, m);
    const unsigned char *in = recv[i].data;
    bool same = recv[i].bytes == due;
    for (size_t k = 0; k < due && same; k++) same = in[k] == byte_of(recv[i].peer, r->rank, m, k);
    if (!same) return differs("a message", recv[i].peer, due);
  }
  return WEIR_OK;
}

/* All lengths to and from all others at once. */
static weir_status all_pairs(rank *r, uint64_t step) {
  const weir_tag tag = {.plan = 5, .step = step};
  weir_send send[MESSAGES];
  weir_recv recv[MESSAGES];
  size_t n = 0;
  for (int p = 0; p < r->size; p++)
    for (size_t m = 0; p != r->rank && m < LENGTHS; m++, n++) {
      const size_t out_bytes = length_of(r->crowd, r->rank, p, m);
      const size_t in_bytes = length_of(r->crowd, p, r->rank, m) + 9;
      unsigned char *out = malloc(out_bytes + 1);
      for (size_t k = 0; k < out_bytes; k++) out[k] = byte_of(r->rank, p, m, k);
      send[n] = (weir_send){p, out, out_bytes, (uint32_t)m};
      recv[n] = (weir_recv){p, calloc(1, in_bytes), in_bytes, (uint32_t)m, 0};
    }
  weir_status status = r->t->ops->transfer(r->t, &tag, send, n, recv, n, weir_now_s() + PATIENCE_S);
  if (status == WEIR_OK) status = check_messages(r, recv, n);
  for (size_t i = 0; i < n; i++) {
    free((void *)(uintptr_t)send[i].data);
    free(recv[i].data);
  }
  return status;
}

static weir_status named(const rank *r, const char *name) {
  if (strcmp(r->t->ops->name, name) == 0) return WEIR_OK;
  return weir_fail(WEIR_E_INTERNAL, "transport %s, not %s", r->t->ops->name, name);
}

static weir_status messages_body(rank *r) {
  weir_status status = named(r, r->crowd->inside ? "nccl+tcp" : "shm+nccl");
  for (uint64_t step = 0; step < 3 && status == WEIR_OK; step++) status = all_pairs(r, step);
  return status;
}

/* Bytes of the long messages of pairs that NCCL is to carry, of three steps. */
static size_t due_by_nccl(const layout *l, const crowd *g) {
  size_t bytes = 0;
  for (int from = 0; from < l->size; from++)
    for (int to = 0; to < l->size; to++)
      for (size_t m = 0; m < LENGTHS; m++)
        if (from != to && lengths[m] > NCT_SHORT &&
            (l->machine[from] == l->machine[to]) == g->inside)
          bytes += 3 * length_of(g, from, to, m);
  return bytes;
}

static void all_messages(bool inside) {
  load();
  for (size_t i = 0; i < COUNT(layouts); i++) {
    if (layouts[i].size == 8 && !sampled(2)) continue;
    crowd g = crowd_of(&layouts[i], inside);
    const size_t before = mock.carried();
    run_well_as(&g, layouts[i].size, messages_body);
    cr_assert_eq(mock.carried() - before, due_by_nccl(&layouts[i], &g), "layout %zu: %zu bytes", i,
                 mock.carried() - before);
  }
}

Test(nccl_parts, inside_of_machines_it_carries_what_is_long) { all_messages(true); }
Test(nccl_parts, between_machines_it_carries_what_is_long) { all_messages(false); }

/* To and from memory of the device, between ranks that NCCL connects. */
static weir_status device_body(rank *r) {
  const weir_tag tag = {.plan = 5, .step = 1};
  void *memory[2] = {NULL, NULL};
  int peer = 0;
  while (peer == r->rank || !by_nccl(r, peer)) peer++;
  for (int i = 0; i < 2; i++)
    if (library.allocate(&memory[i], 50000) != cudaSuccess) return WEIR_E_NOMEM;
  memset(memory[0], r->rank + 1, 50000);
  memset(memory[1], 0, 50000);
  const weir_send send[] = {{peer, memory[0], 3, 0}, {peer, memory[0], 49999, 1}};
  unsigned char *in = memory[1];
  weir_recv recv[] = {{peer, in, 3, 0, 0}, {peer, in + 1, 49999, 1, 0}};
  weir_status status = r->t->ops->transfer(r->t, &tag, send, 2, recv, 2, weir_now_s() + PATIENCE_S);
  for (size_t i = 0; i < 50000 && status == WEIR_OK; i++)
    if (in[i] != peer + 1) status = differs("a message", peer, 49999);
  for (int i = 0; i < 2; i++) (void)library.release(memory[i]);
  return status;
}

Test(nccl_parts, buffers_on_devices) {
  static const layout pairs = {4, 0, {2, 1, 1, 2}}, apart = {2, 1, {1, 2}};
  load();
  crowd inside = crowd_of(&pairs, true), between = crowd_of(&apart, false);
  run_well_as(&inside, pairs.size, device_body);
  run_well_as(&between, apart.size, device_body);
}

/* Over several connections, among which TCP divides what is long, in memory as well. */
static weir_status divided_body(rank *r) {
  enum { LONG = 3 * TCP_DIVIDE_LEAST + 1 };
  const weir_tag tag = {.plan = 5, .step = 1};
  weir_send send[MOST];
  weir_recv recv[MOST];
  size_t n = 0;
  unsigned char *out = malloc(LONG), *in = calloc((size_t)r->size, LONG);
  for (size_t k = 0; k < LONG; k++) out[k] = byte_of(r->rank, 0, 0, k);
  for (int p = 0; p < r->size; p++) {
    if (p == r->rank) continue;
    send[n] = (weir_send){p, out, LONG, 0};
    recv[n++] = (weir_recv){p, in + (size_t)p * LONG, LONG, 0, 0};
  }
  weir_status status = r->t->ops->transfer(r->t, &tag, send, n, recv, n, weir_now_s() + PATIENCE_S);
  for (size_t i = 0; i < n && status == WEIR_OK; i++)
    for (size_t k = 0; k < LONG && status == WEIR_OK; k++)
      if (((unsigned char *)recv[i].data)[k] != byte_of(recv[i].peer, 0, 0, k))
        status = differs("a message", recv[i].peer, LONG);
  free(in);
  free(out);
  return status;
}

Test(nccl_parts, over_several_streams) { run_both(&layouts[0], 3, divided_body); }

/* Operations whose results each rank works out alone, drawn at random. */
static weir_status random_body(rank *r) {
  static const int name[] = {0, 1, 2, 3}; /* two of them share a machine, as in layout 0 */
  random_ops ops;
  weir_status status = ops_open(&ops, r->t, name, 11, PATIENCE_S);
  for (uint64_t step = 0; status == WEIR_OK && step < 100; step++) status = ops_next(&ops, step);
  ops_close(&ops);
  return status;
}

Test(nccl_parts, random_operations) { run_both(&layouts[0], 0, random_body); }

/* --- what it comes to ------------------------------------------------------------------------- */

static weir_status all_by_nccl_body(rank *r) {
  weir_status status = named(r, "nccl");
  if (status == WEIR_OK && r->t->ops->allreduce == NULL)
    status = weir_fail(WEIR_E_INTERNAL, "no sum of its own");
  return status == WEIR_OK ? all_pairs(r, 1) : status;
}
static weir_status all_by_tcp_body(rank *r) {
  const weir_status status = named(r, "tcp");
  return status == WEIR_OK ? all_pairs(r, 1) : status;
}
static weir_status all_in_memory_body(rank *r) {
  const weir_status status = named(r, "shm+nccl");
  return status == WEIR_OK ? all_pairs(r, 1) : status;
}

Test(nccl_parts, machines_of_one_rank_and_one_machine) {
  static const layout one = {3, 0, {4, 4, 4}}, lone = {3, 0, {4, 2, 9}};
  const size_t longs = 3 * 2 * (lengths[4] + lengths[5]);
  load();
  const struct {
    const layout *l;
    bool inside;
    weir_status (*body)(rank *);
    size_t carried;
  } cases[] = {{&one, true, all_by_nccl_body, longs},
               {&lone, true, all_by_tcp_body, 0},
               {&one, false, all_in_memory_body, 0},
               {&lone, false, all_by_nccl_body, longs + 3 * 2 * 4096}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    crowd g = crowd_of(cases[i].l, cases[i].inside);
    const size_t before = mock.carried();
    run_well_as(&g, 3, cases[i].body);
    cr_assert_eq(mock.carried() - before, cases[i].carried, "case %zu", i);
  }
}

static void rank_3_has_no_device(int r, const mock_controls *mine) {
  if (r == 3) *mine->devices = 0;
}

Test(nccl_parts, who_is_alone_on_a_machine_needs_no_device) {
  load();
  crowd g = crowd_of(&layouts[1], true);
  g.before = rank_3_has_no_device;
  run_well_as(&g, 4, messages_body);
}

/* --- the same bits as over TCP ---------------------------------------------------------------- */

static uint64_t digest[MOST][ROWS_ALL];
static int neighbours;

static weir_status rows_body(rank *r) {
  return rows_digest(r->t, neighbours, 10007, PATIENCE_S, digest[r->rank]);
}

Test(nccl_parts, every_row_has_the_bits_of_tcp) {
  static uint64_t alone[MOST][ROWS_ALL];
  load();
  for (size_t i = 0; i < COUNT(layouts) && layouts[i].per_machine > 0; i++) {
    if (layouts[i].size == 8 && !sampled(2)) continue;
    neighbours = layouts[i].per_machine;
    crowd tcp_alone = {.plain = true, .timeout_s = PATIENCE_S};
    run_well_as(&tcp_alone, layouts[i].size, rows_body);
    memcpy(alone, digest, sizeof alone);
    /* Of eight ranks one of the two, as all rows of so many threads take long. */
    for (int inside = layouts[i].size == 8; inside < 2; inside++) {
      memset(digest, 0, sizeof digest);
      crowd g = crowd_of(&layouts[i], inside == 1);
      run_well_as(&g, layouts[i].size, rows_body);
      cr_assert_arr_eq(digest, alone, sizeof alone, "layout %zu, inside %d", i, inside);
    }
  }
}

/* What three steps of each plan come to: averages and residuals. */
static const char *const plans[] = {
    "none:1:dense-hier-ring", "bf16:1:dense-ring", "topk:0.1:ag",
    "topk:0.05:hitopk",       "qsgd:0.25:sra",     "star:0.01:art-hier-tree"};
static uint64_t steps[MOST][COUNT(plans)];

static weir_status run_plan(rank *r, weir_comm *comm, const char *text, bool whole,
                            uint64_t *so_far) {
  const size_t offset[2] = {0, N};
  FREED float *x = malloc(N * sizeof *x);
  weir_engine *engine = NULL;
  weir_engine_config config = {.comm = comm, .layout = {1, offset}};
  weir_status status = weir_plan_parse(text, &config.first_plan);
  if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
  for (size_t s = 0; s < 3 && status == WEIR_OK; s++) {
    for (size_t i = 0; i < N; i++)
      x[i] = whole ? nearbyintf(input_at(r->rank, i + s)) : input_at(r->rank, i + s);
    status = weir_engine_step_begin(engine, NULL);
    if (status == WEIR_OK) status = weir_engine_submit(engine, 0, x);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    *so_far = weir_hash(*so_far, x, N * sizeof *x);
  }
  const float *residual = status == WEIR_OK ? weir_engine_residual(engine) : NULL;
  if (residual) *so_far = weir_hash(*so_far, residual, N * sizeof *x);
  weir_engine_free(engine);
  return status;
}

static weir_status open_comm(const rank *r, weir_comm **comm) {
  const weir_status status = weir_comm_create(comm, r->t, PATIENCE_S);
  return status == WEIR_OK ? weir_comm_find_hosts(*comm, (uint64_t)r->crowd->machine[r->rank] + 1)
                           : status;
}

static weir_status plans_body(rank *r) {
  OWNED weir_comm *comm = NULL;
  weir_status status = open_comm(r, &comm);
  for (size_t p = 0; p < COUNT(plans) && status == WEIR_OK; p++)
    status = run_plan(r, comm, plans[p], false, &steps[r->rank][p]);
  return status;
}

Test(nccl_parts, steps_have_the_bits_of_tcp) {
  static uint64_t alone[MOST][COUNT(plans)];
  load();
  for (size_t i = 0; i < 3; i++) {
    if (layouts[i].size == 8 && !sampled(2)) continue;
    memset(steps, 0, sizeof steps);
    crowd tcp_alone = {.plain = true, .machine = layouts[i].machine, .timeout_s = PATIENCE_S};
    run_well_as(&tcp_alone, layouts[i].size, plans_body);
    memcpy(alone, steps, sizeof alone);
    for (int inside = 0; inside < 2; inside++) {
      memset(steps, 0, sizeof steps);
      crowd g = crowd_of(&layouts[i], inside == 1);
      run_well_as(&g, layouts[i].size, plans_body);
      cr_assert_arr_eq(steps, alone, sizeof alone, "layout %zu, inside %d", i, inside);
    }
  }
}

/* --- NCCL's own sum --------------------------------------------------------------------------- */

static weir_status native_body(rank *r) {
  OWNED weir_comm *comm = NULL;
  FREED float *x = malloc(N * sizeof *x);
  for (size_t i = 0; i < N; i++) x[i] = input_at(r->rank, i);
  weir_status status = weir_comm_create(&comm, r->t, PATIENCE_S);
  if (status != WEIR_OK) return status;
  weir_comm_step(comm, 9, 1);
  const bool native = weir_comm_native(comm);
  if (native == r->crowd->inside)
    status = weir_fail(WEIR_E_INTERNAL, "native: %s", native ? "yes" : "no");
  if (native && status == WEIR_OK)
    status = weir_allreduces[WEIR_ALLREDUCE_NATIVE].run(comm, x, N, WEIR_VALUE_FP32, NULL, NULL);
  if (native && status == WEIR_OK) status = check_sum(r, x, "native");
  return status;
}

/* Over nccl+tcp no communicator has all ranks. */
Test(nccl_parts, a_sum_of_all_where_there_is_a_communicator_of_all) {
  run_both(&layouts[1], 0, native_body);
}

/* Of whole numbers sums have the same bits in any order, and with them all that follows: as NCCL's
 * among a machine's ranks, so by messages.  Each of these plans has one sum a step. */
static const char *const inside[] = {"none:1:dense-hier-ring", "none:1:dense-hier-double-tree",
                                     "bf16:1:dense-hier-tree", "star:0.05:art-hier-ring",
                                     "qsgd:0.25:hier-sra"};
static uint64_t sums[MOST][COUNT(inside)];

static int ranks_beside(const rank *r, int peer) {
  int ranks = 0;
  for (int p = 0; p < r->size; p++) ranks += r->crowd->machine[p] == r->crowd->machine[peer];
  return ranks;
}

/* Of machines that differ hier-sra sums by messages among all. */
static size_t sums_by_nccl(const rank *r) {
  size_t a_step = COUNT(inside);
  for (int p = 0; p < r->size; p++)
    if (ranks_beside(r, p) != ranks_beside(r, r->rank)) a_step = COUNT(inside) - 1;
  return r->crowd->plain || ranks_beside(r, r->rank) == 1 ? 0 : 3 * a_step;
}

static weir_status inside_body(rank *r) {
  weir_comm *comm = NULL;
  weir_status status = open_comm(r, &comm);
  *r->mock.sums = 0;
  for (size_t p = 0; p < COUNT(inside) && status == WEIR_OK; p++) {
    char text[WEIR_PLAN_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s%s", inside[p], r->crowd->plain ? "" : "+native");
    status = run_plan(r, comm, text, true, &sums[r->rank][p]);
  }
  weir_comm_free(comm);
  const size_t due = sums_by_nccl(r);
  if (status == WEIR_OK && *r->mock.sums != due)
    status = weir_fail(WEIR_E_INTERNAL, "NCCL has summed %zu times, not %zu", *r->mock.sums, due);
  return status;
}

Test(nccl_parts, sums_inside_of_machines) {
  static const layout one = {3, 3, {4, 4, 4}};
  static uint64_t alone[MOST][COUNT(inside)];
  load();
  for (size_t i = 0; i <= COUNT(layouts); i++) {
    const layout *l = i < COUNT(layouts) ? &layouts[i] : &one;
    memset(sums, 0, sizeof sums);
    crowd tcp_alone = {.plain = true, .machine = l->machine, .timeout_s = PATIENCE_S};
    run_well_as(&tcp_alone, l->size, inside_body);
    memcpy(alone, sums, sizeof alone);
    memset(sums, 0, sizeof sums);
    crowd g = crowd_of(l, true);
    run_well_as(&g, l->size, inside_body);
    cr_assert_arr_eq(sums, alone, sizeof alone, "layout %zu", i);
  }
}

static weir_status refused_body(rank *r) {
  static const char why[] = "a sum by native inside of machines needs NCCL there";
  static const char *const texts[] = {"none:1:dense-hier-ring+native",
                                      "qsgd:0.125:hier-sra+native"};
  const size_t offset[2] = {0, N};
  OWNED weir_comm *comm = NULL;
  weir_status status = open_comm(r, &comm);
  for (size_t p = 0; p < COUNT(texts) && status == WEIR_OK; p++) {
    weir_engine *engine = NULL;
    weir_engine_config config = {.comm = comm, .layout = {1, offset}};
    status = weir_plan_parse(texts[p], &config.first_plan);
    if (status == WEIR_OK && (weir_engine_create(&engine, &config) != WEIR_E_UNSUPPORTED ||
                              strstr(weir_last_error(), why) == NULL))
      status = weir_fail(WEIR_E_INTERNAL, "%s: %s", texts[p], weir_last_error());
    weir_engine_free(engine);
  }
  return status;
}

/* By all ranks, one that is alone on its machine among them. */
Test(nccl_parts, no_sum_inside_where_nccl_is_between_machines) {
  load();
  crowd both = {.machine = layouts[1].machine, .timeout_s = PATIENCE_S};
  run_well_as(&both, 4, refused_body);
  crowd memory = crowd_of(&layouts[1], false);
  run_well_as(&memory, 4, refused_body);
  crowd neither = {.plain = true, .machine = layouts[1].machine, .timeout_s = PATIENCE_S};
  run_well_as(&neither, 4, refused_body);
}

/* --- measuring -------------------------------------------------------------------------------- */

/* Over nccl+tcp the links between machines are TCP's to measure: echoes, TCP_INFO, arrivals. */
static weir_status measured_body(rank *r) {
  enum { LONG = 8 << 20 }; /* more than sockets hold: it does not arrive at once */
  const weir_tag tag = {.plan = 5, .step = 1};
  unsigned char *out = calloc(1, LONG), *in = malloc(2 * (size_t)LONG);
  const int near = r->rank ^ 1, far = r->rank ^ 2;
  const weir_send send[] = {{near, out, LONG, 0}, {far, out, LONG, 0}};
  weir_recv recv[] = {{near, in, LONG, 0, 0}, {far, in + LONG, LONG, 0, 0}};
  double rtt_s = 0;
  weir_status status = r->t->ops->transfer(r->t, &tag, send, 2, recv, 2, weir_now_s() + PATIENCE_S);
  free(out);
  free(in);
  if (status == WEIR_OK && (r->t->flows != 1 || r->t->flow[0].peer != far))
    status = weir_fail(WEIR_E_INTERNAL, "%u arrivals, of rank %d", r->t->flows, r->t->flow[0].peer);
  if (status == WEIR_OK) status = r->t->ops->echo(r->t, far, PATIENCE_S, &rtt_s);
  if (status == WEIR_OK && !(rtt_s > 0)) status = weir_fail(WEIR_E_INTERNAL, "no round trip");
  if (status == WEIR_OK &&
      (r->t->ops->descriptor(r->t, near) != -1 || r->t->ops->descriptor(r->t, far) < 0 ||
       r->t->ops->descriptor(r->t, r->rank) != -1 || r->t->ops->descriptor(r->t, 4) != -1))
    status = weir_fail(WEIR_E_INTERNAL, "descriptors %d and %d", r->t->ops->descriptor(r->t, near),
                       r->t->ops->descriptor(r->t, far));
  return status;
}

Test(nccl_parts, links_between_machines_are_measured_as_over_tcp) {
  load();
  crowd g = crowd_of(&layouts[0], true);
  run_well_as(&g, 4, measured_body);
}

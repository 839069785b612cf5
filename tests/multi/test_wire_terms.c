/* Cost rows against what transports count: bytes and rounds of a step, predicted, recorded and
 * really sent, to the byte. */
#define GROUP_MAX 24
#include <criterion/criterion.h>
#include <math.h>

#include "collectives/comm.h"
#include "collectives/select.h"
#include "group.h"

enum { N = 24000 };

/* Plans under which the links of all ranks carry as much, so that the critical path is the mean. */
typedef struct row {
  const char *plan;
  int ranks;
  bool uneven;          /* how long its messages are nobody foretells */
  const char *machines; /* a letter a rank: links are those between machines; NULL: of all ranks */
} row;

/* Of eight elements one is large; the others grow. */
static const row rows[] = {
    {"none:1:dense-ring", 4, false, NULL},
    {"bf16:1:dense-torus", 4, false, NULL},
    {"none:1:dense-halving", 8, false, NULL},
    {"bf16:1:dense-ring", 3, false, NULL},
    {"qsgd:0.125:sra", 4, false, NULL},
    {"qsgd:0.125:compressed-ring", 4, false, NULL},
    {"randomk:0.125:art-ring", 4, false, NULL},
    {"topk:0.125:ag", 3, false, NULL},
    {"topk:0.125:ag:auto-fp32", 4, false, NULL},
    {"topk:0.125:ag:auto-bf16", 8, false, NULL},
    {"qsgd:0.125:ag", 4, false, NULL},
    {"terngrad:0.0625:ag", 4, false, NULL},
    {"topk:0.125:ag", 8, false, NULL}, /* longer together than the gradient, as the following */
    {"topk:0.3:ag:auto-bf16", 8, true, NULL},
    {"topk:0.5:ag:auto-fp32", 4, true, NULL},
    {"fp16:0.5:ag", 4, false, NULL},
    {"fp16:0.5:ag", 7, false, NULL},
    {"qsgd:0.25:ag", 8, false, NULL},
    {"terngrad:0.0625:ag", 24, false, NULL},
    /* Machines' selections. */
    {"topk:0.0625:hitopk", 4, false, "aabb"},
    {"topk:0.01:hitopk:auto-bf16", 8, false, "abcdabcd"},
    {"topk:0.125:hitopk", 4, false, "aabb"},
    {"topk:0.29:hitopk", 4, false, "aabb"}, /* 3480 of a share, where doubles make 3479.99 */
    {"topk:0.6:hitopk", 4, false, "aabb"},
    {"topk:0.6:hitopk:auto-fp16", 8, true, "abcdabcd"},
    {"qsgd:0.125:hier-sra", 4, false, "aabb"},
    {"fp16:0.5:hier-sra", 8, false, "abcdabcd"},
    {"topk:0.55:hitopk:auto-fp16", 6, true, "abbaab"},
    /* Three ranks and one: all exchange with each other. */
    {"topk:0.125:hitopk", 4, false, "aaab"},
    {"qsgd:0.125:hier-sra", 4, false, "aaab"},
    /* Paths: every message has its place and length in front. */
    {"none:1:path=rs.ag", 4, false, NULL},
    {"qsgd:0.125:path=c.ag.d", 4, false, NULL},
    {"topk:0.125:path=c.ag.d", 3, false, NULL},
    {"qsgd:0.125:path=c.a2a.d.c.ag.d", 4, false, NULL},
    {"qsgd:0.125:path=c.a2a.ag.d", 4, false, NULL},
    {"fp16:0.5:path=rs.c.a2a.d.ag.ag", 8, false, "abcdabcd"},
    {"qsgd:0.125:path=rs.c.ag.ag.d", 4, false, "aabb"},
    {"none:1:path=rs.ar.ag", 4, false, "aabb"},
    {"qsgd:0.25:path=c.a2a.a2a.ag.ag.d", 8, false, "abcdabcd"},
    /* Entropy-coded: of a sum each rank knows what its own messages have become. */
    {"companded:0.125:ag:huffman", 4, true, NULL},
    {"qsgd:0.0625:ag:huffman", 7, true, NULL},
    {"nonzero:0.125:ag", 4, true, NULL},
    {"nonzero:0.125:ag:huffman", 4, true, NULL},
    {"companded:0.09375:sra:huffman", 4, true, NULL},
    {"companded:0.109375:sra:huffman", 4, true, NULL},
    {"powersgd:2:dense-one-shot:huffman", 4, true, NULL},
    {"companded:0.125:hier-sra:huffman", 4, true, "aabb"},
};

typedef struct course {
  const row *row;
  atomic_ullong sent;  /* by all ranks, without headers and frames' headers */
  weir_cost_terms due; /* by the cost row */
  weir_step_record record[GROUP_MAX];
  int links, peers;
} course;

typedef struct listener {
  course *c;
  int rank;
} listener;

static void observe(void *user, const weir_header *headers, int ranks,
                    const weir_step_record *record) {
  const listener *l = user;
  (void)headers, (void)ranks;
  l->c->record[l->rank] = *record;
}

/* What this rank says of the network. */
static void local(void *user, weir_header *header) {
  const listener *l = user;
  header->latency_s = 1e-3 * (1 + l->rank);
  header->bandwidth = 1e6;
  header->goodput = 1e5 * (4 + l->rank % 3);
  header->deviation = 1e-4f * (float)(1 + l->rank);
}

static void run_rank(member *m) {
  static const size_t offset[] = {0, N};
  course *c = m->group->shared;
  listener l = {c, m->rank};
  weir_plan plan = {0};
  weir_engine *engine = NULL;
  weir_step_info info;
  FREED float *const gradient = malloc(N * sizeof *gradient);
  for (size_t i = 0; i < N; i++) gradient[i] = (i % 8 == 0 ? 1.0f : 1e-3f) * (float)(N + i);
  weir_status status = weir_plan_parse(c->row->plan, &plan);
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {1, offset},
                                     .first_plan = plan,
                                     .hooks = {.user = &l, .local = local, .observe = observe}};
  if (status == WEIR_OK && c->row->machines != NULL)
    status = weir_comm_find_hosts(m->comm, (uint64_t)c->row->machines[m->rank]);
  if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
  if (status == WEIR_OK) status = weir_engine_step_begin(engine, &info);
  const uint64_t before = m->transport->bytes_sent;
  if (status == WEIR_OK) status = weir_engine_submit(engine, 0, gradient);
  if (status == WEIR_OK) status = weir_engine_step_end(engine, &info);
  if (status != WEIR_OK)
    group_fail(m->group, "%s, rank %d: %s", c->row->plan, m->rank, weir_last_error());
  /* Every rank passes on the headers of all others once, or sends its own to all; between machines
   * it does so with those of its place. */
  const bool levels = weir_comm_levelled(m->comm);
  const int others = levels ? weir_comm_hosts(m->comm) - 1 : m->size - 1;
  const uint64_t all =
      levels ? m->comm->hosts.outer_view->bytes_sent : m->transport->bytes_sent - before;
  atomic_fetch_add(&c->sent, all - (uint64_t)others * sizeof(weir_header));
  if (m->rank == 0) {
    const weir_group_shape shape = weir_comm_shape(m->comm);
    c->links = shape.hosts;
    c->peers = levels ? shape.hosts : m->size;
    c->due = weir_cost_plan_between(&plan, shape, N, weir_cost_kept(&plan, N));
  }
  group_barrier(m);
  weir_engine_free(engine);
}

static bool near(double got, double want) { return fabs(got - want) <= 1e-9 * fabs(want); }

/* By hand, of medians: a ring among 4 takes 6 latencies of 2.5 ms, 144 kB at 450 kB/s, and at a
 * deviation of 2.5e-4 that of 6 / (pi + 6) * 6 * 144000 = 567079 bytes: 0.015 + 0.32 + 0.18826 s.
 */
Test(wire_terms, predictions_go_by_the_headers) {
  course c = {.row = &rows[0]};
  group_well(c.row->ranks, run_rank, &c, NULL);
  for (int k = 0; k < c.row->ranks; k++) {
    const double predicted = c.record[k].info.predicted_comm_s;
    cr_assert_float_eq(predicted, 0.52326, 1e-5, "rank %d: %.9g s", k, predicted);
  }
}

Test(wire_terms, rows_charge_the_bytes_that_are_sent) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const row *r = &rows[i];
    course c = {.row = r};
    group_well(r->ranks, run_rank, &c, NULL);
    const double sent = (double)atomic_load(&c.sent) / c.links;
    for (int k = 0; k < r->ranks; k++) {
      const weir_cost_terms *t = &c.record[k].terms;
      /* What coding leaves of messages inside of machines, which are longer, is less. */
      const bool about = strstr(r->plan, ":ag:") == NULL && strstr(r->plan, "huffman") != NULL;
      const double most = r->machines != NULL ? 0.03 : 0.01;
      cr_assert(about ? fabs(t->byte_terms / sent - 1) < most : near(t->byte_terms, sent),
                "%s: %.17g bytes recorded, %.17g sent", r->plan, t->byte_terms, sent);
      if (!r->uneven)
        cr_assert(near(c.due.byte_terms, sent) && near(c.due.alpha_terms, t->alpha_terms),
                  "%s: %.17g bytes foretold of %.17g", r->plan, c.due.byte_terms, sent);
      const bool lists = strstr(r->plan, ":hitopk") != NULL;
      const bool straight = lists && c.peers < r->ranks; /* to all machines at once */
      if (strstr(r->plan, ":ag") == NULL && !lists) continue;
      cr_assert(near(t->alpha_terms, straight ? 1.0 : ceil(log2(c.peers))), "%s: %g latencies",
                r->plan, t->alpha_terms);
    }
  }
}

/* --- latencies and messages of single rows ---------------------------------------------------- */

/* Every rank's clock counts latencies: a message is there one after it was sent, and who waits for
 * it goes on then. */
typedef struct clocks {
  weir_kind kind;
  uint32_t row;
  const weir_transport_ops *ops; /* those that send */
  double now[GROUP_MAX], sent_at[GROUP_MAX][GROUP_MAX][32];
  unsigned sent[GROUP_MAX][GROUP_MAX], taken[GROUP_MAX][GROUP_MAX];
  double messages, bytes; /* what goes to one rank at once is a message */
} clocks;
static clocks seen;
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

static weir_status clocked(weir_transport *t, const weir_tag *tag, const weir_send *send,
                           size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  const int rank = t->rank;
  pthread_mutex_lock(&looking);
  for (size_t i = 0; i < sends; i++) {
    const int to = send[i].peer;
    bool first = true;
    for (size_t k = 0; k < i; k++) first = first && send[k].peer != to;
    seen.messages += first;
    seen.bytes += (double)send[i].bytes;
    seen.sent_at[rank][to][seen.sent[rank][to]++ % 32] = seen.now[rank];
  }
  pthread_mutex_unlock(&looking);
  const weir_status status = seen.ops->transfer(t, tag, send, sends, recv, recvs, deadline_s);
  pthread_mutex_lock(&looking);
  for (size_t i = 0; i < recvs; i++) {
    const int from = recv[i].peer;
    const double sent = seen.sent_at[from][rank][seen.taken[from][rank]++ % 32];
    seen.now[rank] = fmax(seen.now[rank], sent + 1);
  }
  pthread_mutex_unlock(&looking);
  return status;
}

enum { FEW = 840 }; /* elements; divides by all numbers of ranks */

static weir_status run_row(member *m, float *x, size_t bytes[GROUP_MAX]) {
  const size_t all = FEW * sizeof *x;
  size_t length = all;
  bytes[m->rank] = all;
  switch (seen.kind) {
    case WEIR_KIND_ALLREDUCE:
      return weir_allreduces[seen.row].run(m->comm, x, FEW, WEIR_VALUE_FP32, NULL, NULL);
    case WEIR_KIND_BROADCAST: return weir_broadcasts[seen.row].run(m->comm, 0, x, all, &length);
    case WEIR_KIND_ALLGATHER: return weir_allgathers[seen.row].run(m->comm, x, all, bytes, NULL);
    case WEIR_KIND_REDUCE_SCATTER:
      return weir_reduce_scatters[seen.row].run(m->comm, x, FEW, WEIR_VALUE_FP32, NULL);
    case WEIR_KIND_REDUCE:
      return weir_reduces[seen.row].run(m->comm, 0, x, FEW, WEIR_VALUE_FP32, NULL);
    default: return weir_gathers[seen.row].run(m->comm, 0, x, all, bytes);
  }
}

static void clock_rank(member *m) {
  static weir_transport_ops counting;
  FREED float *const x = calloc((size_t)m->size * FEW, sizeof *x);
  size_t bytes[GROUP_MAX] = {0};
  if (m->rank == 0) {
    counting = *(seen.ops = m->transport->ops);
    counting.transfer = clocked;
  }
  group_barrier(m);
  m->transport->ops = &counting;
  weir_comm_step(m->comm, 1, 1);
  if (run_row(m, x, bytes) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
}

/* A chain sends its length ahead, 8 bytes with each first message, which no row charges. */
Test(wire_terms, rows_have_the_latencies_and_messages_that_are_sent) {
  static const weir_link link = {.alpha = 1};
  for (weir_kind kind = 0; kind < WEIR_KIND_COUNT; kind++)
    for (uint32_t id = 0; id < weir_rows(kind); id++)
      for (int n = 2; n <= 8; n++) {
        const char *const name = weir_row_name(kind, id);
        const weir_group_shape shape = {n, n, false, 1};
        const weir_cost due = weir_cost_row(kind, id, shape, &link, 4.0 * FEW);
        const bool chain = kind == WEIR_KIND_BROADCAST && id == WEIR_BROADCAST_CHAIN;
        double last = 0;
        seen = (clocks){.kind = kind, .row = id};
        group_well(n, clock_rank, NULL, name);
        for (int r = 0; r < n; r++) last = fmax(last, seen.now[r]);
        cr_assert(near(due.outer.alpha_terms, last), "%s of %d: %g latencies, not %g", name, n,
                  due.outer.alpha_terms, last);
        cr_assert(near(due.messages, seen.messages), "%s of %d: %g messages, not %g", name, n,
                  due.messages, seen.messages);
        cr_assert(near(due.traffic, seen.bytes - (chain ? 8.0 * (n - 1) : 0.0)),
                  "%s of %d: %g bytes, not %g", name, n, due.traffic, seen.bytes);
      }
}

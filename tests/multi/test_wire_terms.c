/* Cost rows against what transports count: bytes and rounds of a step, predicted, recorded and
 * really sent, to the byte. */
#define GROUP_MAX 24
#include <criterion/criterion.h>
#include <math.h>

#include "../sampled.h"
#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"
#include "collectives/select.h"
#include "group.h"

enum { N = 24000, MACHINES = 8 };

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
    /* Among all ranks, some of which share a link. */
    {"none:1:dense-ring", 4, false, "aabb"},
    {"none:1:dense-ring", 8, false, "abcdabcd"},
    {"none:1:dense-halving", 4, false, "abab"},
    {"none:1:dense-halving", 8, false, "aaaabbbb"},
    {"bf16:1:dense-doubling", 4, false, "aabb"},
    {"none:1:dense-direct", 6, false, "aabbcc"},
    {"bf16:1:dense-torus", 6, false, "abcabc"},
    {"randomk:0.125:art-ring", 4, false, "aabb"},
    {"topk:0.125:ag", 4, false, "aabb"},
    {"topk:0.125:ag-ring", 6, false, "abcabc"},
    {"fp16:0.5:ag-direct", 4, false, "aaab"},
    {"qsgd:0.125:sra", 4, false, "abab"},
    {"qsgd:0.125:sra", 6, false, "aabbcc"},
    {"qsgd:0.125:compressed-ring", 4, false, "aabb"},
    {"qsgd:0.125:path=c.a2a.d.c.ag.d", 4, false, "abab"},
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
    {"bilateral:2:dense-one-shot:huffman", 4, true, NULL},
    {"companded:0.125:hier-sra:huffman", 4, true, "aabb"},
    {"whitened:0.125:sra:huffman", 4, true, NULL},
    {"dithered:0.125:ag:huffman", 4, true, NULL},
};

typedef struct course {
  const row *row;
  atomic_ullong sent;                        /* by all ranks, without headers and frames' headers */
  atomic_ullong out[MACHINES], in[MACHINES]; /* over machines' links, likewise */
  weir_cost_terms due;                       /* by the cost row */
  weir_step_record record[GROUP_MAX];
  int peers;
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

static const weir_transport_ops *sending; /* those that send */
static course *counted;

/* Headers are of one length, and several of them one behind the other. */
static bool is_headers(size_t bytes, int ranks) {
  return bytes % sizeof(weir_header) == 0 && bytes <= (size_t)ranks * sizeof(weir_header);
}

static weir_status counting(weir_transport *t, const weir_tag *tag, const weir_send *send,
                            size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  const char *const machines = counted->row->machines;
  for (size_t i = 0; i < sends && machines != NULL; i++) {
    const char from = machines[t->rank], to = machines[send[i].peer];
    if (from == to || is_headers(send[i].bytes, t->size)) continue;
    atomic_fetch_add(&counted->out[from - 'a'], send[i].bytes);
    atomic_fetch_add(&counted->in[to - 'a'], send[i].bytes);
  }
  return sending->transfer(t, tag, send, sends, recv, recvs, deadline_s);
}

/* Over the link of the machine that has most. */
static double most_loaded(const course *c) {
  double most = 0;
  for (int h = 0; h < MACHINES; h++)
    most = fmax(most, fmax((double)atomic_load(&c->out[h]), (double)atomic_load(&c->in[h])));
  return most;
}

static void run_rank(member *m) {
  static const size_t offset[] = {0, N};
  static weir_transport_ops ops;
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
  if (m->rank == 0) {
    counted = c;
    ops = *(sending = m->transport->ops);
    ops.transfer = counting;
  }
  group_barrier(m);
  m->transport->ops = &ops;
  if (status == WEIR_OK) status = weir_engine_step_begin(engine, &info);
  const uint64_t before = m->transport->bytes_sent;
  if (status == WEIR_OK) status = weir_engine_submit(engine, 0, gradient);
  if (status == WEIR_OK) status = weir_engine_step_end(engine, &info);
  if (status != WEIR_OK)
    group_fail(m->group, "%s, rank %d: %s", c->row->plan, m->rank, weir_last_error());
  /* Every rank passes on the headers of all others once, or sends its own to all. */
  const uint64_t all = m->transport->bytes_sent - before;
  atomic_fetch_add(&c->sent, all - (uint64_t)(m->size - 1) * sizeof(weir_header));
  if (m->rank == 0) {
    const weir_group_shape shape = weir_comm_shape(m->comm);
    c->peers = weir_comm_levelled(m->comm) ? shape.hosts : m->size;
    c->due = weir_cost_plan_between(&plan, shape, NULL, N, weir_cost_kept(&plan, N));
  }
  group_barrier(m);
  m->transport->ops = sending;
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
    const double sent =
        r->machines != NULL ? most_loaded(&c) : (double)atomic_load(&c.sent) / r->ranks;
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
      const bool gathers = strstr(r->plan, ":ag") != NULL && r->machines == NULL;
      if (!gathers && !lists) continue;
      cr_assert(near(t->alpha_terms, straight ? 1.0 : ceil(log2(c.peers))), "%s: %g latencies",
                r->plan, t->alpha_terms);
    }
  }
}

/* --- single rows: what transports are told to send, and how long it takes --------------------- */

enum { CALLS = 96, ENDS = 32 };

/* What a rank has called its transport with: peers, and bytes sent. */
typedef struct call {
  int sends, recvs;
  int to[ENDS], from[ENDS];
  double bytes[ENDS];
} call;

typedef struct record {
  weir_kind kind; /* WEIR_KIND_COUNT: a row of weir_compressed[] */
  uint32_t row;
  size_t floats;                 /* of the message */
  const char *machines;          /* a letter a rank; NULL: one each */
  const weir_transport_ops *ops; /* those that send */
  int calls[GROUP_MAX];
  call call[GROUP_MAX][CALLS];
} record;
static record seen;
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

static weir_status recorded(weir_transport *t, const weir_tag *tag, const weir_send *send,
                            size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  pthread_mutex_lock(&looking);
  cr_assert(seen.calls[t->rank] < CALLS && sends <= ENDS && recvs <= ENDS);
  call *const c = &seen.call[t->rank][seen.calls[t->rank]++];
  *c = (call){.sends = 0};
  for (; c->sends < (int)sends; c->sends++) {
    c->to[c->sends] = send[c->sends].peer;
    c->bytes[c->sends] = (double)send[c->sends].bytes;
  }
  for (; c->recvs < (int)recvs; c->recvs++) c->from[c->recvs] = recv[c->recvs].peer;
  pthread_mutex_unlock(&looking);
  return seen.ops->transfer(t, tag, send, sends, recv, recvs, deadline_s);
}

enum { FEW = 840 }; /* elements; divides by all numbers of ranks */

static weir_coder four_bits(void) {
  return (weir_coder){.codec = weir_codec_find(WEIR_CODEC_QSGD), .cr = 0.125};
}

static weir_status run_compressed(member *m, float *x) {
  FREED float *const error = calloc(seen.floats, sizeof *error);
  weir_coder coder = four_bits();
  weir_status status = weir_codec_context_create(&coder.context);
  if (status == WEIR_OK)
    status = weir_compressed[seen.row].run(m->comm, &coder, x, seen.floats, error, NULL);
  weir_codec_context_free(coder.context);
  return status;
}

static weir_status run_row(member *m, float *x, size_t bytes[GROUP_MAX]) {
  const size_t all = seen.floats * sizeof *x;
  size_t length = all;
  bytes[m->rank] = all;
  switch (seen.kind) {
    case WEIR_KIND_ALLREDUCE:
      return weir_allreduces[seen.row].run(m->comm, x, seen.floats, WEIR_VALUE_FP32, NULL, NULL);
    case WEIR_KIND_BROADCAST: return weir_broadcasts[seen.row].run(m->comm, 0, x, all, &length);
    case WEIR_KIND_ALLGATHER: return weir_allgathers[seen.row].run(m->comm, x, all, bytes, NULL);
    case WEIR_KIND_REDUCE_SCATTER:
      return weir_reduce_scatters[seen.row].run(m->comm, x, seen.floats, WEIR_VALUE_FP32, NULL);
    case WEIR_KIND_REDUCE:
      return weir_reduces[seen.row].run(m->comm, 0, x, seen.floats, WEIR_VALUE_FP32, NULL);
    case WEIR_KIND_GATHER: return weir_gathers[seen.row].run(m->comm, 0, x, all, bytes);
    default: return run_compressed(m, x);
  }
}

static void record_rank(member *m) {
  static weir_transport_ops counting;
  FREED float *const x = calloc((size_t)m->size * seen.floats, sizeof *x);
  size_t bytes[GROUP_MAX] = {0};
  if (seen.machines != NULL &&
      weir_comm_find_hosts(m->comm, (uint64_t)seen.machines[m->rank]) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  if (m->rank == 0) {
    counting = *(seen.ops = m->transport->ops);
    counting.transfer = recorded;
  }
  group_barrier(m);
  m->transport->ops = &counting;
  weir_comm_step(m->comm, 1, 1);
  if (run_row(m, x, bytes) != WEIR_OK)
    group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  m->transport->ops = seen.ops;
}

static void record_row(weir_kind kind, uint32_t id, const char *machines, int n, size_t floats) {
  memset(&seen, 0, sizeof seen);
  seen.kind = kind;
  seen.row = id;
  seen.machines = machines;
  seen.floats = floats;
  group_well(n, record_rank, NULL, machines);
}

static bool crosses(int a, int b) {
  return seen.machines == NULL || seen.machines[a] != seen.machines[b];
}

/* Every rank's clock counts latencies: a message from another machine is there one after it was
 * sent, and who waits for it goes on then.  What the last clock says. */
static double latencies(int n) {
  static double at[GROUP_MAX][GROUP_MAX][CALLS];
  double now[GROUP_MAX] = {0}, last = 0;
  int turn[GROUP_MAX] = {0}, sent[GROUP_MAX][GROUP_MAX] = {{0}},
      taken[GROUP_MAX][GROUP_MAX] = {{0}};
  bool told[GROUP_MAX][CALLS] = {{false}};
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < n; r++) {
      if (turn[r] == seen.calls[r]) continue;
      const call *c = &seen.call[r][turn[r]];
      for (int i = 0; i < c->sends && !told[r][turn[r]]; i++)
        at[r][c->to[i]][sent[r][c->to[i]]++] = now[r] + (crosses(r, c->to[i]) ? 1 : 0);
      told[r][turn[r]] = true;
      bool all = true;
      for (int i = 0; i < c->recvs; i++) all = all && taken[c->from[i]][r] < sent[c->from[i]][r];
      if (!all) continue;
      for (int i = 0; i < c->recvs; i++)
        now[r] = fmax(now[r], at[c->from[i]][r][taken[c->from[i]][r]++]);
      last = fmax(last, now[r]);
      turn[r]++;
      moved = true;
    }
  }
  for (int r = 0; r < n; r++) cr_assert_eq(turn[r], seen.calls[r], "rank %d never ends", r);
  return last;
}

/* Messages and bytes of all ranks; what goes to one rank at once is a message. */
static void totals(int n, double *messages, double *bytes) {
  *messages = *bytes = 0;
  for (int r = 0; r < n; r++)
    for (int k = 0; k < seen.calls[r]; k++)
      for (int i = 0; i < seen.call[r][k].sends; i++) {
        bool first = true;
        for (int j = 0; j < i; j++) first = first && seen.call[r][k].to[j] != seen.call[r][k].to[i];
        *messages += first ? 1 : 0;
        *bytes += seen.call[r][k].bytes[i];
      }
}

/* A chain sends its length ahead, 8 bytes with each first message, which no row charges. */
Test(wire_terms, rows_have_the_latencies_and_messages_that_are_sent) {
  static const weir_link link = {.alpha = 1};
  for (weir_kind kind = 0; kind < WEIR_KIND_COUNT; kind++)
    for (uint32_t id = 0; id < weir_rows(kind); id++)
      for (int n = 2; n <= 8; n++) {
        const char *const name = weir_row_name(kind, id);
        const weir_group_shape shape = {.ranks = n, .hosts = n, .largest = 1};
        const weir_cost due = weir_cost_row(kind, id, shape, &link, 4.0 * FEW);
        const bool chain = kind == WEIR_KIND_BROADCAST && id == WEIR_BROADCAST_CHAIN;
        double messages, bytes;
        record_row(kind, id, NULL, n, FEW);
        totals(n, &messages, &bytes);
        cr_assert(near(due.outer.alpha_terms, latencies(n)), "%s of %d: %g latencies, not %g", name,
                  n, due.outer.alpha_terms, latencies(n));
        cr_assert(near(due.messages, messages), "%s of %d: %g messages, not %g", name, n,
                  due.messages, messages);
        cr_assert(near(due.traffic, bytes - (chain ? 8.0 * (n - 1) : 0.0)),
                  "%s of %d: %g bytes, not %g", name, n, due.traffic, bytes);
      }
}

/* --- among machines of several ranks ---------------------------------------------------------- */

enum { SLICES = 10000 };

/* Bytes that cross a machine's link: out or in, whatever is more, of the machine that has most; and
 * of the one that has most both ways together. */
static void loads(int n, double *one_way, double *both) {
  double out[MACHINES] = {0}, in[MACHINES] = {0};
  for (int r = 0; r < n; r++)
    for (int k = 0; k < seen.calls[r]; k++)
      for (int i = 0; i < seen.call[r][k].sends; i++) {
        const int to = seen.call[r][k].to[i];
        if (!crosses(r, to)) continue;
        out[seen.machines[r] - 'a'] += seen.call[r][k].bytes[i];
        in[seen.machines[to] - 'a'] += seen.call[r][k].bytes[i];
      }
  *one_way = *both = 0;
  for (int h = 0; h < MACHINES; h++) {
    *one_way = fmax(*one_way, fmax(out[h], in[h]));
    *both = fmax(*both, out[h] + in[h]);
  }
}

/* A message on its way over links: leaving, and waiting at the receiver's, whose queue has sent
 * `due` bytes in all when it is through. */
typedef struct packet {
  int from, to;
  double left, last_s, due; /* last_s: when its last byte comes to the receiver's link */
  bool sent, queued, there;
} packet;

typedef struct wire {
  int n, count;
  double alpha, beta, slice_s;
  packet packet[GROUP_MAX * CALLS];
  int turn[GROUP_MAX];
  bool told[GROUP_MAX];
  int taken[GROUP_MAX][GROUP_MAX];
  double queued[MACHINES], served[MACHINES]; /* bytes that have come to a receiver's link */
  double *coming;                            /* [slice * MACHINES + machine], with the latency */
} wire;

static int host_of(int rank) { return seen.machines[rank] - 'a'; }

/* The next message from a to b that b has not taken yet, or one of those behind it. */
static const packet *next_of(const wire *w, int a, int b, int skip) {
  skip += w->taken[a][b];
  for (int i = 0; i < w->count; i++)
    if (w->packet[i].from == a && w->packet[i].to == b && skip-- == 0) return &w->packet[i];
  return NULL;
}

/* Ranks call their transports as they did, and wait for what they receive.  Whether all are done.
 * */
static bool call_on(wire *w) {
  bool done = true;
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < w->n; r++) {
      if (w->turn[r] == seen.calls[r]) continue;
      const call *c = &seen.call[r][w->turn[r]];
      for (int i = 0; i < c->sends && !w->told[r]; i++) {
        const bool link = crosses(r, c->to[i]);
        w->packet[w->count++] = (packet){r, c->to[i], c->bytes[i], 0, 0, !link, !link, !link};
      }
      w->told[r] = true;
      bool all = true;
      for (int i = 0; i < c->recvs; i++) {
        int before = 0;
        for (int j = 0; j < i; j++) before += c->from[j] == c->from[i];
        const packet *p = next_of(w, c->from[i], r, before);
        all = all && p != NULL && p->there;
      }
      if (!all) continue;
      for (int i = 0; i < c->recvs; i++) w->taken[c->from[i]][r]++;
      w->turn[r]++;
      w->told[r] = false;
      moved = true;
    }
  }
  for (int r = 0; r < w->n; r++) done = done && w->turn[r] == seen.calls[r];
  return done;
}

/* What leaves a machine in a slice, in the order of sending. */
static void send_on(wire *w, long slice, long behind, long slices) {
  double room[MACHINES];
  for (int h = 0; h < MACHINES; h++) room[h] = w->slice_s / w->beta;
  for (int i = 0; i < w->count; i++) {
    packet *p = &w->packet[i];
    if (p->sent || room[host_of(p->from)] <= 0) continue;
    const double part = fmin(room[host_of(p->from)], p->left);
    p->left -= part;
    room[host_of(p->from)] -= part;
    if (slice + behind < slices) w->coming[(slice + behind) * MACHINES + host_of(p->to)] += part;
    p->sent = p->left <= 1e-9;
    p->last_s = (double)(slice + behind) * w->slice_s;
  }
}

/* What has come to receivers' links goes through them in its order. */
static void receive_on(wire *w, long slice) {
  for (int h = 0; h < MACHINES; h++) w->queued[h] += w->coming[slice * MACHINES + h];
  for (int i = 0; i < w->count; i++) {
    packet *p = &w->packet[i];
    if (!p->sent || p->queued || p->last_s > ((double)slice + 0.5) * w->slice_s) continue;
    p->queued = true;
    p->due = w->queued[host_of(p->to)];
  }
  for (int h = 0; h < MACHINES; h++)
    w->served[h] = fmin(w->queued[h], w->served[h] + w->slice_s / w->beta);
  for (int i = 0; i < w->count; i++) {
    packet *p = &w->packet[i];
    p->there = p->there || (p->queued && w->served[host_of(p->to)] >= p->due - 1e-6);
  }
}

/* Seconds that what was recorded takes on links of machines, slice by slice, about so many of
 * them. */
static double play(int n, double alpha, double beta, double about_s) {
  static wire w;
  memset(&w, 0, sizeof w);
  w.n = n;
  w.alpha = alpha;
  w.beta = beta;
  w.slice_s = fmax(about_s, 1e-9) / SLICES;
  const long slices = 6L * SLICES, behind = (long)(alpha / w.slice_s + 0.5);
  FREED double *const coming = calloc((size_t)slices * MACHINES, sizeof *coming);
  w.coming = coming;
  for (long slice = 0; slice < slices; slice++) {
    if (call_on(&w)) return (double)slice * w.slice_s;
    send_on(&w, slice, behind, slices);
    receive_on(&w, slice);
  }
  return INFINITY;
}

static weir_group_shape row_shape(const char *machines) {
  int of[GROUP_MAX];
  uint64_t identity[GROUP_MAX];
  const int n = (int)strlen(machines);
  for (int r = 0; r < n; r++) identity[r] = (uint64_t)machines[r];
  const int hosts = weir_hosts_group(identity, n, of);
  return weir_shape_of(of, n, hosts);
}

/* The row's terms on this group of machines. */
static weir_cost_terms row_terms(const char *machines, const weir_link *link) {
  const weir_group_shape shape = row_shape(machines);
  const weir_coder coder = four_bits();
  const double bytes = 4.0 * (double)seen.floats;
  if (seen.kind == WEIR_KIND_COUNT) {
    const size_t offset[2] = {0, seen.floats};
    const weir_layout layout = {1, offset};
    const weir_plan plan = {.codec = WEIR_CODEC_QSGD, .cr = coder.cr};
    return weir_cost_compressed_between(seen.row, shape, link, &coder, seen.floats,
                                        (double)weir_plan_bound(&plan, &layout));
  }
  return weir_cost_row(seen.kind, seen.row, shape, link, bytes).outer;
}

static const char *name_of(void) {
  return seen.kind == WEIR_KIND_COUNT ? weir_compressed[seen.row].name
                                      : weir_row_name(seen.kind, seen.row);
}

/* What crosses links in one direction, from a root or to it, and then in the other. */
static bool is_there_and_back(void) {
  if (seen.kind == WEIR_KIND_COUNT) return seen.row == WEIR_COMPRESSED_TREE;
  return seen.kind == WEIR_KIND_ALLREDUCE &&
         (seen.row == WEIR_ALLREDUCE_TREE || seen.row == WEIR_ALLREDUCE_STAR);
}

/* Nobody waits while a machine's link has anything to carry: rows in which all ranks do alike, or
 * which have one root. */
static bool is_regular(const char *machines) {
  const bool even =
      row_shape(machines).largest * row_shape(machines).hosts == (int)strlen(machines);
  const bool tidy = even && (strlen(machines) & (strlen(machines) - 1)) == 0;
  if (seen.kind == WEIR_KIND_COUNT)
    return seen.row != WEIR_COMPRESSED_TREE || strcmp(machines, "aabb") == 0;
  switch (seen.kind) {
    case WEIR_KIND_ALLREDUCE:
      return seen.row == WEIR_ALLREDUCE_RING || seen.row == WEIR_ALLREDUCE_DIRECT ||
             seen.row == WEIR_ALLREDUCE_STAR || (even && seen.row == WEIR_ALLREDUCE_TORUS) ||
             (tidy && seen.row != WEIR_ALLREDUCE_DOUBLE_TREE && strcmp(machines, "abba") != 0);
    case WEIR_KIND_ALLGATHER: return tidy || seen.row != WEIR_ALLGATHER_DOUBLING;
    case WEIR_KIND_BROADCAST:
      return seen.row == WEIR_BROADCAST_DIRECT || (tidy && seen.row != WEIR_BROADCAST_CHAIN);
    case WEIR_KIND_REDUCE: return tidy;
    default: return true;
  }
}

/* Trees send on in an order that the times of messages on the same machine decide. */
static double bound(void) {
  const bool tree = (seen.kind == WEIR_KIND_ALLREDUCE && seen.row == WEIR_ALLREDUCE_TREE) ||
                    (seen.kind == WEIR_KIND_BROADCAST && seen.row == WEIR_BROADCAST_BINOMIAL) ||
                    (seen.kind == WEIR_KIND_COUNT && seen.row == WEIR_COMPRESSED_TREE);
  return tree ? 0.12 : 0.01;
}

static const char *const groups[] = {"aab",      "aba",      "abb",      "aabb",     "abab",
                                     "abba",     "aaab",     "abbb",     "aabbc",    "ababa",
                                     "aabbcc",   "abcabc",   "aaabbb",   "ababab",   "abbaab",
                                     "aabbccdd", "abcdabcd", "aaaabbbb", "abababab", "aaaaabbb"};

static uint32_t rows_of(int kind) {
  return kind == WEIR_KIND_COUNT ? WEIR_COMPRESSED_COUNT : weir_rows((weir_kind)kind);
}

/* Latencies, and bytes on the machine's link that has most of them, by what was sent. */
static void hold_counts(const char *machines) {
  const int n = (int)strlen(machines);
  const weir_cost_terms t = row_terms(machines, NULL);
  double one_way, both;
  loads(n, &one_way, &both);
  cr_assert(near(t.alpha_terms, latencies(n)), "%s on %s: %g latencies, not %g", name_of(),
            machines, t.alpha_terms, latencies(n));
  const double due = is_there_and_back() ? both : one_way;
  cr_assert(t.byte_terms >= 0.997 * one_way, "%s on %s: %g bytes over a link that has %g",
            name_of(), machines, t.byte_terms, one_way);
  if (is_regular(machines))
    cr_assert(near(t.byte_terms, due), "%s on %s: %g bytes, not %g", name_of(), machines,
              t.byte_terms, due);
}

/* From links that take no time but for bytes to those that take little but latencies. */
static void hold_times(const char *machines, double bound) {
  const double alphas[] = {0, 0.1, 0.5, 3}, beta = 1 / (4.0 * (double)seen.floats);
  for (size_t k = 0; k < sizeof alphas / sizeof *alphas; k++) {
    const weir_link link = {.alpha = alphas[k], .beta = beta};
    const weir_cost_terms t = row_terms(machines, &link);
    const double due = weir_cost_links(&t, &link);
    const double got = play((int)strlen(machines), link.alpha, beta, due);
    cr_assert(fabs(due / got - 1) < bound, "%s on %s, latency %g: %g foretold, %g played",
              name_of(), machines, link.alpha, due, got);
  }
}

Test(wire_terms, rows_among_machines_take_what_is_sent, .timeout = 300) {
  for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
    for (int kind = 0; kind <= WEIR_KIND_COUNT; kind++)
      for (uint32_t id = 0; id < rows_of(kind); id++) {
        if (!sampled(3)) continue; /* what is played has one thread */
        record_row((weir_kind)kind, id, groups[g], (int)strlen(groups[g]), FEW);
        hold_counts(groups[g]);
        hold_times(groups[g], bound());
      }
}

/* Of ten chunks a tree, and of twenty; which rank of a machine sends first, where two do at once,
 * is not told. */
Test(wire_terms, pipelines_among_machines_take_what_is_sent, .timeout = 300) {
  static const char *const some[] = {"aabb", "abab", "aaab", "aabbcc", "abcdabcd", "aaaabbbb"};
  for (size_t g = 0; g < sizeof some / sizeof *some; g++) {
    if (g > 0 && !sampled(1)) continue;
    record_row(WEIR_KIND_ALLREDUCE, WEIR_ALLREDUCE_DOUBLE_TREE, some[g], (int)strlen(some[g]),
               400 * FEW);
    hold_times(some[g], 0.05);
    record_row(WEIR_KIND_BROADCAST, WEIR_BROADCAST_CHAIN, some[g], (int)strlen(some[g]), 400 * FEW);
    hold_times(some[g], 0.05);
  }
}

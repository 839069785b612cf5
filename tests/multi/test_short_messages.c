/* Whatever a rank sends in a collective may come a byte short, and whoever gets it notices: for
 * each rank, and each of its messages in every collective, the last byte is left out.  Then either
 * some rank refuses it and all end in bounded time, or, where lengths are no rank's to know
 * beforehand, the ranks that got it are told its length.  A rank that is at the same kind of
 * collective, but one further on, is refused.  And whatever the plan is, a message that is short
 * ends the step. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/schemes.h"
#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "collectives/transports/common.h"
#include "collectives/transports/wrap.h"
#include "engine/engine.h"
#include "group.h"

enum { SIZE = 5, N = 43, BLOCK = 40, HEADER = 24, AT_ONCE = 64 };

/* What a rank works on. */
typedef struct field {
  float x[N], error[N];
  unsigned char all[SIZE * BLOCK], headers[SIZE * HEADER];
  size_t bytes[SIZE];
  bool told; /* out: of a block or a list that is not of the due length */
} field;

typedef struct course {
  const char *name;
  weir_status (*run)(weir_comm *comm, uint32_t row, field *f);
  uint32_t rows;
  const char *machines; /* a letter a rank; NULL: each is a machine of its own */
} course;

/* --- a way out on which a byte is lost -------------------------------------------------------- */

typedef struct cutter {
  weir_wrap wrap;
  int which, seen; /* of the messages that are not empty */
} cutter;

static weir_status cutting_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                                    size_t sends, weir_recv *recv, size_t recvs,
                                    double deadline_s) {
  cutter *c = (cutter *)t;
  weir_send said[AT_ONCE];
  if (sends > AT_ONCE) abort();
  for (size_t i = 0; i < sends; i++) {
    said[i] = send[i];
    if (send[i].bytes > 0 && c->seen++ == c->which) said[i].bytes--;
  }
  return weir_wrap_transfer(&c->wrap, tag, said, sends, recv, recvs, deadline_s);
}

/* --- the collectives -------------------------------------------------------------------------- */

static weir_headers headers_of(field *f) { return (weir_headers){f->headers, HEADER}; }

static weir_value_format format_of(uint32_t row, uint32_t rows) {
  return row < rows ? WEIR_VALUE_FP32 : WEIR_VALUE_BF16;
}

static weir_status all_reduce(weir_comm *comm, uint32_t row, field *f) {
  enum { ROWS = WEIR_ALLREDUCE_COUNT };
  weir_headers headers = headers_of(f);
  return weir_allreduces[row % ROWS].run(comm, f->x, N, format_of(row, ROWS), f->error, &headers);
}

static weir_status hier(weir_comm *comm, uint32_t row, field *f) {
  const bool other = row % 2 != 0;
  const weir_hier_choice choice = {
      .scatter = other ? WEIR_REDUCE_SCATTER_PAIRWISE : WEIR_REDUCE_SCATTER_RING,
      .between = WEIR_ALLREDUCE_HALVING,
      .gather = other ? WEIR_ALLGATHER_DOUBLING : WEIR_ALLGATHER_RING};
  weir_headers headers = headers_of(f);
  return weir_allreduce_hier(comm, &choice, f->x, N, format_of(row, 2), f->error, &headers);
}

static weir_status reduce_scatter(weir_comm *comm, uint32_t row, field *f) {
  enum { ROWS = WEIR_REDUCE_SCATTER_COUNT };
  return weir_reduce_scatters[row % ROWS].run(comm, f->x, N, format_of(row, ROWS), f->error);
}

static weir_status reduce(weir_comm *comm, uint32_t row, field *f) {
  return weir_reduces[0].run(comm, 1, f->x, N, format_of(row, 1), f->error);
}

static void look(field *f, int ranks) {
  for (int r = 0; r < ranks; r++) f->told = f->told || f->bytes[r] != BLOCK;
}

static weir_status all_gather(weir_comm *comm, uint32_t row, field *f) {
  weir_headers headers = headers_of(f);
  f->bytes[weir_comm_rank(comm)] = BLOCK;
  const weir_status status = weir_allgathers[row].run(comm, f->all, BLOCK, f->bytes, &headers);
  look(f, weir_comm_size(comm));
  return status;
}

static weir_status gather(weir_comm *comm, uint32_t row, field *f) {
  f->bytes[weir_comm_rank(comm)] = BLOCK;
  const weir_status status = weir_gathers[row].run(comm, 2, f->all, BLOCK, f->bytes);
  if (weir_comm_rank(comm) == 2) look(f, weir_comm_size(comm));
  return status;
}

static weir_status broadcast(weir_comm *comm, uint32_t row, field *f) {
  size_t bytes = weir_comm_rank(comm) == 3 ? BLOCK : 0;
  const weir_status status = weir_broadcasts[row].run(comm, 3, f->all, BLOCK, &bytes);
  f->told = bytes != BLOCK;
  return status;
}

static weir_status meet(weir_comm *comm, uint32_t row, field *f) {
  weir_headers headers = headers_of(f);
  (void)row;
  return weir_comm_meet(comm, &headers);
}

static weir_status find_hosts(weir_comm *comm, uint32_t row, field *f) {
  (void)row, (void)f;
  return weir_comm_find_hosts(comm, (uint64_t)weir_comm_rank(comm) / 2);
}

static weir_status tell(weir_comm *comm, uint32_t row, field *f) {
  const weir_tag tag = {.plan = row};
  return weir_transport_tell(weir_comm_transport(comm), &tag, f->all, BLOCK, weir_now_s() + 20);
}

/* Each rank's block in two places. */
static weir_status places(weir_comm *comm, uint32_t row, field *f) {
  weir_block_part span[2 * SIZE];
  size_t first[SIZE + 1];
  weir_headers headers = headers_of(f);
  for (size_t r = 0; r <= SIZE; r++) first[r] = 2 * r;
  for (size_t r = 0; r < SIZE; r++) {
    span[2 * r] = (weir_block_part){f->all + r * BLOCK, r + 1};
    span[2 * r + 1] = (weir_block_part){f->all + r * BLOCK + SIZE, BLOCK - SIZE};
  }
  const weir_places all = {.span = span, .first = first};
  return weir_allgather_places(comm, &all, row, &headers);
}

static weir_status compressed(weir_comm *comm, uint32_t row, field *f) {
  weir_headers headers = headers_of(f);
  weir_coder coder = {.codec = weir_codec_find(WEIR_CODEC_COMPANDED),
                      .cr = 0.15625,
                      .seed = 7,
                      .huffman = row >= WEIR_COMPRESSED_COUNT};
  weir_status status = weir_codec_context_create(&coder.context);
  const weir_compressed_row *by = &weir_compressed[row % WEIR_COMPRESSED_COUNT];
  if (status == WEIR_OK) status = by->run(comm, &coder, f->x, N, f->error, &headers);
  weir_codec_context_free(coder.context);
  return status;
}

static const course courses[] = {
    {"all-reduce", all_reduce, 2 * WEIR_ALLREDUCE_COUNT, NULL},
    {"all-reduce", all_reduce, 2 * WEIR_ALLREDUCE_COUNT, "aabb"},
    {"hierarchical all-reduce", hier, 4, "aabb"},
    {"hierarchical all-reduce", hier, 4, "aabab"},
    {"reduce-scatter", reduce_scatter, 2 * WEIR_REDUCE_SCATTER_COUNT, NULL},
    {"reduce", reduce, 2 * WEIR_REDUCE_COUNT, NULL},
    {"all-gather", all_gather, WEIR_ALLGATHER_COUNT, NULL},
    {"gather", gather, WEIR_GATHER_COUNT, NULL},
    {"broadcast", broadcast, WEIR_BROADCAST_COUNT, NULL},
    {"meeting", meet, 1, NULL},
    {"finding of machines", find_hosts, 1, NULL},
    {"telling", tell, 1, NULL},
    {"all-gather into places", places, WEIR_ALLGATHER_COUNT, NULL},
    {"compressed all-reduce", compressed, WEIR_COMPRESSED_COUNT, NULL},
    {"compressed all-reduce", compressed, 2 * WEIR_COMPRESSED_COUNT, "aabb"},
};

/* --- all of them ------------------------------------------------------------------------------ */

typedef struct trial {
  const course *c;
  uint32_t row;
  int liar, which; /* -1: none, but the liar is one collective ahead */
  bool there;      /* out: the liar had such a message */
  bool told[SIZE];
  weir_status status[SIZE];
} trial;

static void body(member *m) {
  trial *t = m->group->shared;
  field f = {.told = false};
  for (int i = 0; i < N; i++) f.x[i] = (float)(i % 5 + m->rank);
  if (t->c->machines != NULL &&
      weir_comm_find_hosts(m->comm, (uint64_t)t->c->machines[m->rank]) != WEIR_OK)
    abort();
  group_barrier(m); /* who is through with that may end the group */
  weir_wrap *wrap = NULL;
  weir_transport *const inner = m->transport;
  if (m->rank == t->liar) {
    if (weir_wrap_create(&wrap, sizeof(cutter), inner, "cutter") != WEIR_OK) abort();
    wrap->ops.transfer = cutting_transfer;
    ((cutter *)wrap)->which = t->which;
    m->comm->transport = &wrap->base;
  }
  weir_comm_step(m->comm, 1, 1);
  if (m->rank == t->liar && t->which < 0 && weir_comm_begin(m->comm, NULL) != WEIR_OK) abort();
  t->status[m->rank] = t->c->run(m->comm, t->row, &f);
  t->told[m->rank] = f.told;
  if (wrap == NULL) return;
  t->there = ((cutter *)wrap)->seen > t->which; /* ahead: if it has sent anything */
  m->transport = &wrap->base;                   /* owns the other one, and goes with the member */
}

static bool run(const course *c, uint32_t row, int liar, int which) {
  const int size = c->machines != NULL ? (int)strlen(c->machines) : SIZE;
  trial t = {.c = c, .row = row, .liar = liar, .which = which};
  group g;
  bool noticed = false;
  group_run(&g, size, body, &t);
  cr_assert(!g.failed, "%s", g.failure);
  for (int r = 0; r < size; r++) {
    noticed = noticed || t.status[r] != WEIR_OK || t.told[r];
    cr_assert(t.status[r] == WEIR_OK || t.status[r] == WEIR_E_PROTOCOL ||
                  t.status[r] == WEIR_E_PEER || t.status[r] == WEIR_E_MISMATCH,
              "%s %u, message %d of rank %d: rank %d has status %d", c->name, row, which, liar, r,
              (int)t.status[r]);
  }
  cr_assert_eq(noticed, t.there, "%s %u, message %d of rank %d: %s", c->name, row, which, liar,
               t.there ? "nobody has noticed" : "a whole one is refused");
  return t.there;
}

Test(short_messages, are_noticed) {
  for (size_t k = 0; k < sizeof courses / sizeof *courses; k++) {
    const course *c = &courses[k];
    const int size = c->machines != NULL ? (int)strlen(c->machines) : SIZE;
    int messages = 0;
    for (uint32_t row = 0; row < c->rows; row++)
      for (int liar = 0; liar < size; liar++)
        for (int which = 0; run(c, row, liar, which); which++) messages++;
    cr_assert_gt(messages, 0, "%s", c->name);
  }
}

Test(short_messages, and_those_of_another_collective) {
  for (size_t k = 0; k < sizeof courses / sizeof *courses; k++) {
    const course *c = &courses[k];
    const int size = c->machines != NULL ? (int)strlen(c->machines) : SIZE;
    const bool numbers_itself = c->run == find_hosts || c->run == tell;
    for (uint32_t row = 0; row < c->rows && !numbers_itself; row++)
      for (int liar = 0; liar < size; liar++)
        cr_assert(run(c, row, liar, -1), "%s %u: rank %d has sent nothing", c->name, row, liar);
  }
}

/* --- in a step of every plan ------------------------------------------------------------------ */

enum { RANKS = 4, ELEMENTS = 600 };

/* The trial's row is the arm. */
static void step_body(member *m) {
  static const size_t offset[] = {0, 250, ELEMENTS};
  static const size_t rows[] = {10, 14};
  trial *t = m->group->shared;
  float g[ELEMENTS];
  weir_engine *engine = NULL;
  weir_wrap *wrap = NULL;
  if (weir_comm_find_hosts(m->comm, (uint64_t)m->rank / 2) != WEIR_OK) abort();
  if (m->rank == t->liar) {
    if (weir_wrap_create(&wrap, sizeof(cutter), m->transport, "cutter") != WEIR_OK) abort();
    wrap->ops.transfer = cutting_transfer;
    ((cutter *)wrap)->which = t->which;
    m->comm->transport = &wrap->base;
  }
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {2, offset},
                                     .rows = rows,
                                     .first_plan = group_plan(t->row, 0.1, 1)};
  if (weir_engine_create(&engine, &config) != WEIR_OK) abort();
  for (int i = 0; i < ELEMENTS; i++) g[i] = (float)((i * 31 + m->rank) % 97) - 48;
  group_barrier(m);
  weir_status status = weir_engine_step_begin(engine, NULL);
  for (uint32_t k = 0; status == WEIR_OK && k < 2; k++)
    status = weir_engine_submit(engine, k, g + offset[k]);
  t->status[m->rank] = status == WEIR_OK ? weir_engine_step_end(engine, NULL) : status;
  weir_engine_free(engine);
  if (wrap == NULL) return;
  t->there = ((cutter *)wrap)->seen > t->which;
  m->transport = &wrap->base;
}

static bool step_is_lost(uint32_t arm, int liar, int which) {
  trial t = {.row = arm, .liar = liar, .which = which};
  group g;
  bool noticed = false;
  group_run(&g, RANKS, step_body, &t);
  for (int r = 0; r < RANKS; r++) {
    noticed = noticed || t.status[r] != WEIR_OK;
    cr_assert(
        t.status[r] == WEIR_OK || t.status[r] == WEIR_E_PROTOCOL || t.status[r] == WEIR_E_PEER,
        "%s, message %d: rank %d has status %d", group_arms[arm], which, r, (int)t.status[r]);
  }
  cr_assert_eq(noticed, t.there, "%s, message %d: %s", group_arms[arm], which,
               t.there ? "nobody has noticed" : "a whole one is refused");
  return t.there;
}

Test(short_messages, end_the_step_of_any_plan) {
  int messages = 0;
  for (uint32_t arm = 0; arm < GROUP_ARMS; arm++)
    for (int liar = 0; liar < 2; liar++) /* rank 0 is the one that selects for all */
      for (int which = 0; step_is_lost(arm, liar, which); which++) messages++;
  cr_assert_gt(messages, 0);
}

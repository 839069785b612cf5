/* Messages that went wrong on their way: who cannot complete the step hears of it in bounded time,
 * is told whose they were, and keeps the residual from before it; nobody reads beyond a buffer. */
#include <criterion/criterion.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "collectives/transports/wrap.h"
#include "group.h"

enum { N = 24000, LIAR = 1, PATIENCE = 20, AT_ONCE = 16 };

typedef enum spoil_kind {
  SPOIL_BYTE,  /* exclusive or with `mask`, `at` bytes from the begin of a codec's message */
  SPOIL_COUNT, /* the same, in the eight bytes in front of it */
  SPOIL_BEGIN, /* `at` is where the elements of a path's message begin, as its front says */
  SPOIL_MORE,  /* a list of fp32 becomes one of a third more elements in bf16, as long as before */
  SPOIL_SHORT, /* the transport's message ends a byte early */
  SPOIL_FEWER, /* it is a list of indices: of one less, and as good */
  SPOIL_ANY    /* as SPOIL_BYTE, from the begin of the transport's message */
} spoil_kind;

typedef struct spoil {
  const char *plan, *machines; /* a letter a rank */
  int which;                   /* of those with a codec's message in them, of the step */
  bool inside;                 /* a message to a rank of the own machine; else to another machine */
  spoil_kind kind;
  size_t at;
  unsigned char mask;
  bool found; /* out: there was such a message */
} spoil;

typedef struct outcome {
  spoil *s;
  weir_status status[GROUP_MAX];
  char said[GROUP_MAX][512];
  bool changed[GROUP_MAX]; /* the residual is not what it was */
} outcome;

/* --- a way out that changes what is sent ------------------------------------------------------ */

typedef struct liar {
  weir_wrap wrap;
  spoil *s;
  bool on;
  int seen;
} liar;

/* Of selected elements or of an encoder; entropy-coded it begins with companded's bucket, number
 * and 4 bits. */
static unsigned char *message_in(const void *data, size_t bytes) {
  static const struct {
    const char *text;
    size_t length;
  } begins[] = {{"WRM1", 4}, {"WRE1", 4}, {"\x80\0\0\0\x16\x04\0\x01", 8}};
  unsigned char *at = NULL;
  for (size_t i = 0; i < sizeof begins / sizeof *begins && at == NULL && bytes > 0; i++)
    at = memmem(data, bytes, begins[i].text, begins[i].length);
  return at;
}

static bool picks(liar *l, const weir_send *send) {
  const char *const machines = l->s->machines;
  const bool inside = machines[send->peer] == machines[LIAR];
  return l->on && inside == l->s->inside && message_in(send->data, send->bytes) != NULL &&
         l->seen++ == l->s->which;
}

static void keep_more(unsigned char *message) {
  uint32_t k;
  memcpy(&k, message + 4, sizeof k);
  const size_t bytes = 8 * (size_t)k;
  k = k / 3 * 4;
  memset(message + 16, 0, bytes);
  memcpy(message + 4, &k, sizeof k);
  message[13] = 2; /* bfloat16 */
  for (uint32_t i = 0; i < k; i++) memcpy(message + 16 + 4 * i, &i, sizeof i);
}

static void leave_out_the_last(unsigned char *message, size_t *bytes) {
  static uint32_t index[N];
  size_t k = 0;
  const size_t room = *bytes;
  if (weir_wire_decode(message, room, N, index, NULL, N, &k) != WEIR_OK ||
      weir_wire_encode(N, index, NULL, k - 1, WEIR_WIRE_AUTO_FP32, message, room, bytes, NULL) !=
          WEIR_OK)
    abort();
}

static void change(spoil *s, unsigned char *data, size_t *bytes) {
  unsigned char *const message = message_in(data, *bytes);
  s->found = true;
  if (s->kind == SPOIL_BYTE) message[s->at] ^= s->mask;
  if (s->kind == SPOIL_COUNT) message[(ptrdiff_t)s->at - 8] ^= s->mask;
  if (s->kind == SPOIL_BEGIN)
    memcpy(message - 24, &(uint64_t){s->at}, 8); /* begin, count, bytes of eight each */
  if (s->kind == SPOIL_MORE) keep_more(message);
  if (s->kind == SPOIL_SHORT) (*bytes)--;
  if (s->kind == SPOIL_FEWER) leave_out_the_last(message, bytes);
  if (s->kind == SPOIL_ANY) data[s->at % *bytes] ^= s->mask;
}

static weir_status lying_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                                  size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  liar *l = (liar *)t;
  weir_send said[AT_ONCE];
  FREED unsigned char *copy = NULL;
  if (sends > AT_ONCE) abort();
  for (size_t i = 0; i < sends; i++) {
    said[i] = send[i];
    if (!picks(l, &send[i])) continue;
    copy = malloc(send[i].bytes);
    memcpy(copy, send[i].data, send[i].bytes);
    change(l->s, copy, &said[i].bytes);
    said[i].data = copy;
  }
  const weir_status status =
      weir_wrap_transfer(&l->wrap, tag, said, sends, recv, recvs, deadline_s);
  return status;
}

static liar *become_liar(member *m, spoil *s) {
  weir_wrap *wrap = NULL;
  if (weir_wrap_create(&wrap, sizeof(liar), m->transport, "liar") != WEIR_OK) abort();
  wrap->ops.transfer = lying_transfer;
  ((liar *)wrap)->s = s;
  m->transport = &wrap->base;
  weir_comm_free(m->comm);
  if (weir_comm_create(&m->comm, m->transport, PATIENCE) != WEIR_OK) abort();
  return (liar *)wrap;
}

/* --- a step that goes well, and one that does not --------------------------------------------- */

static weir_status step(weir_engine *engine, int rank, int number, float *g) {
  for (size_t i = 0; i < N; i++)
    g[i] = (i % 7 == 0 ? 1.0f : 0.01f) * (float)(1 + (i * 31 + (size_t)(rank + number)) % 97);
  weir_step_info info;
  weir_status status = weir_engine_step_begin(engine, &info);
  if (status == WEIR_OK) status = weir_engine_submit(engine, 0, g);
  return status == WEIR_OK ? weir_engine_step_end(engine, &info) : status;
}

static void run_rank(member *m) {
  static const size_t offset[] = {0, N};
  outcome *o = m->group->shared;
  liar *l = m->rank == LIAR ? become_liar(m, o->s) : NULL;
  group_barrier(m);
  weir_plan plan = {0};
  weir_engine *engine = NULL;
  weir_status status = weir_comm_find_hosts(m->comm, (uint64_t)o->s->machines[m->rank]);
  if (status == WEIR_OK) status = weir_plan_parse(o->s->plan, &plan);
  const weir_engine_config config = {.comm = m->comm, .layout = {1, offset}, .first_plan = plan};
  if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
  FREED float *const g = malloc(N * sizeof *g);
  if (status == WEIR_OK) status = step(engine, m->rank, 0, g);
  if (status != WEIR_OK) group_fail(m->group, "%s: %s", o->s->plan, weir_last_error());
  group_barrier(m);
  if (!group_failed(m->group)) {
    const uint64_t digest = weir_engine_residual_digest(engine);
    if (l != NULL) l->on = true;
    o->status[m->rank] = step(engine, m->rank, 1, g);
    if (o->status[m->rank] != WEIR_OK)
      (void)snprintf(o->said[m->rank], sizeof o->said[0], "%s", weir_last_error());
    o->changed[m->rank] = weir_engine_residual_digest(engine) != digest;
  }
  group_barrier(m);
  weir_engine_free(engine);
}

static int run(spoil *s, outcome *o) {
  const int ranks = (int)strlen(s->machines);
  memset(o, 0, sizeof *o);
  o->s = s;
  group_well(ranks, run_rank, o, NULL);
  cr_assert(s->found, "%s: there is no such message", s->plan);
  for (int r = 0; r < ranks; r++) {
    cr_assert_neq(o->status[r], WEIR_E_TIMEOUT, "%s, kind %d at %zu: rank %d: %s", s->plan,
                  (int)s->kind, s->at, r, o->said[r]);
    cr_assert(o->status[r] == WEIR_OK || !o->changed[r], "%s, kind %d at %zu: rank %d", s->plan,
              (int)s->kind, s->at, r);
  }
  return ranks;
}

/* Who finds it malformed says what must be said, and nobody else is blamed.  Headers may have come
 * with what was malformed, so that other ranks complete the step. */
static void expect_refused(spoil *s, const char *due) {
  outcome o;
  const int ranks = run(s, &o);
  int told = 0;
  for (int r = 0; r < ranks; r++) {
    if (o.status[r] != WEIR_E_PROTOCOL) continue;
    cr_assert(strstr(o.said[r], due) != NULL, "%s, kind %d at %zu: rank %d says: %s", s->plan,
              (int)s->kind, s->at, r, o.said[r]);
    told++;
  }
  cr_assert_gt(told, 0, "%s, kind %d at %zu: nobody says \"%s\"", s->plan, (int)s->kind, s->at,
               due);
}

/* --- HiTopKComm ------------------------------------------------------------------------------- */

/* Machines' messages, short ones and such as are longer together than the gradient. */
static const struct {
  const char *plan;
  int which;
} machines_of_two[] = {{"topk:0.01:hitopk", 0},
                       {"topk:0.6:hitopk", 0},
                       {"topk:0.01:path=rs.c.ag.ag.d", 0},
                       {"topk:0.1:path=rs.c.a2a.d.c.ag.d.ag", 1}};
enum { FORMS = 4 };

Test(malformed, another_machine_is_named) {
  /* Of magic, k, n, encodings of indices and values, what must be 0, and the first index. */
  static const size_t at[] = {0, 4, 7, 8, 11, 12, 13, 15, 19};
  for (size_t f = 0; f < FORMS; f++) {
    spoil s = {.plan = machines_of_two[f].plan, .machines = "aabb", .mask = 0x80};
    s.which = machines_of_two[f].which;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
      s.at = at[i];
      expect_refused(&s, "machine 0 sent a malformed message");
    }
    s.kind = SPOIL_SHORT;
    expect_refused(&s, "machine 0 sent a malformed message");
  }
}

/* Inside of a machine a rank passes on what machines sent, each with its length in front. */
Test(malformed, the_place_inside_is_named) {
  for (size_t f = 0; f < FORMS; f += 2) {
    spoil s = {.plan = machines_of_two[f].plan, .machines = "aabb", .inside = true, .mask = 0x80};
    s.kind = SPOIL_COUNT;
    for (s.at = 0; s.at < 8; s.at++) expect_refused(&s, "place 1 of this machine sent ");
    s.kind = SPOIL_BYTE;
    for (s.at = 0; s.at < 16; s.at += 4) expect_refused(&s, "place 1 of this machine sent ");
    s.kind = SPOIL_SHORT;
    expect_refused(&s, "place 1 of this machine sent ");
  }
}

/* Of the half that rank 0 has after the first all-to-all either quarter is due once, for a machine
 * each.  Twice the second, or a part of both, is as many elements, and would not have room among
 * those for the second machine. */
Test(malformed, every_part_is_due_once) {
  static const char *const plans[] = {"topk:0.6:path=c.a2a.a2a.d.c.ag.ag.d",
                                      "qsgd:0.25:path=c.a2a.a2a.ag.ag.d"};
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
    spoil s = {.plan = plans[p], .machines = "aabb", .inside = true, .kind = SPOIL_BEGIN};
    for (s.at = N / 4; s.at > 0; s.at -= N / 8)
      expect_refused(&s, "place 1 of this machine sent a malformed message, of other elements");
  }
}

/* All ranks are through with the step, which is what it returns, or somebody says whose message was
 * malformed. */
static bool run_to_an_end(spoil *s) {
  outcome o;
  const int ranks = run(s, &o);
  int through = 0, told = 0;
  for (int r = 0; r < ranks; r++) {
    through += o.status[r] == WEIR_OK || o.status[r] == WEIR_E_NONFINITE;
    told += o.status[r] == WEIR_E_PROTOCOL;
  }
  cr_assert(through == ranks || told > 0, "%s at %zu: %d of %d", s->plan, s->at, through, ranks);
  return through == ranks;
}

/* Whatever byte it is, all ranks are through with the step, or somebody says whose message was
 * malformed.  Numbers are believed; only a rank that finds them not finite may drop a step that
 * others count. */
Test(malformed, any_byte) {
  weir_rng rng = weir_rng_of(7);
  const int runs = GROUP_SLOW ? 60 : 300, least = runs / 20; /* of either kind */
  int refused = 0, taken = 0;
  for (int i = 0; i < runs; i++) {
    const size_t f = (size_t)weir_rng_below(&rng, FORMS);
    spoil s = {.plan = machines_of_two[f].plan, .machines = "aabb", .kind = SPOIL_ANY};
    s.inside = f % 2 == 0 && weir_rng_below(&rng, 2) == 0;
    s.at = (size_t)weir_rng_below(&rng, weir_rng_below(&rng, 2) == 0 ? 32 : 1 << 20);
    s.mask = (unsigned char)(1 + weir_rng_below(&rng, 255));
    const bool through = run_to_an_end(&s);
    refused += !through;
    taken += through;
  }
  cr_assert(refused >= least && taken >= least, "%d refused, %d taken", refused, taken);
}

/* --- all others ------------------------------------------------------------------------------- */

Test(malformed, the_rank_is_named) {
  static const struct {
    const char *plan, *machines;
    int which;
  } forms[] = {{"topk:0.1:ag", "abc", 0},
               {"topk:0.3:ag:auto-bf16", "abcdefgh", 0},
               {"qsgd:0.125:ag", "abc", 0},
               {"qsgd:0.25:ag", "abcdefgh", 0},
               {"nonzero:0.25:ag", "abc", 0},
               {"star:0.1:art-ring", "abc", 0},
               {"star:0.5:art-tree:auto-fp32", "abc", 0},
               {"qsgd:0.125:sra", "abc", 0},
               {"terngrad:0.0625:compressed-ring", "abc", 1},
               {"onebit:0.03125:compressed-tree", "abcd", 0},
               {"qsgd:0.125:path=c.a2a.d.c.ag.d", "abc", 1},
               {"topk:0.1:path=c.g.d.b", "abc", 0}};
  /* Magic, k or n, codec or encoding of indices, and what must be 0. */
  static const size_t at[] = {0, 4, 7, 12, 15};
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
    spoil s = {.plan = forms[f].plan, .machines = forms[f].machines, .mask = 0x80};
    s.which = forms[f].which;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
      s.at = at[i];
      expect_refused(&s, "rank 1 sent a malformed ");
    }
    s.kind = SPOIL_SHORT;
    expect_refused(&s, "rank 1 sent ");
  }
}

/* As many bytes, and read alike: but qsgd's messages of the other rounding, and those of more
 * elements, are of another plan, of which devices take none, and so hosts go on with none. */
Test(malformed, what_another_plan_has_made_is_refused) {
  static const char *const plans[] = {"qsgd:0.125:ag", "qsgd:0.125:sra",
                                      "qsgd:0.125:compressed-ring", "qsgd:0.125:compressed-tree",
                                      "qsgd:0.125:path=c.a2a.d.c.ag.d"};
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
    spoil s = {.plan = plans[p], .machines = "abc", .at = 14, .mask = 2};
    expect_refused(&s, "rank 1 sent a malformed message, made by another plan");
  }
  spoil more = {.plan = "topk:0.1:ag", .machines = "abc", .kind = SPOIL_MORE};
  expect_refused(&more, "rank 1 sent a malformed message, made by another plan");
  more = (spoil){.plan = "topk:0.1:path=c.ag.d", .machines = "abc", .kind = SPOIL_MORE};
  expect_refused(&more, "rank 1 sent a malformed message, made by another plan");
  more = (spoil){.plan = "topk:0.1:hitopk", .machines = "aabb", .kind = SPOIL_MORE};
  expect_refused(&more, "machine 0 sent a malformed message");
}

/* A list that is well-formed, and not what the plan has all ranks make room for and sum up. */
Test(malformed, a_list_of_another_length) {
  spoil s = {.plan = "star:0.1:art-ring:auto-fp32", .machines = "abc", .kind = SPOIL_FEWER};
  expect_refused(&s, "rank 1 sent 2399 indices where the plan keeps 2400");
}

/* Bucket, codec, bits, mode and whether it is entropy-coded; then scales, lengths of codes and of
 * streams and, behind all, the length of the block: in either round. */
Test(malformed, entropy_coded) {
  static const size_t at[] = {0, 3, 4, 5, 6, 7};
  for (int which = 0; which <= 2; which += 2) {
    spoil s = {.plan = "companded:0.125:sra:huffman", .machines = "abc", .which = which};
    s.mask = 0x80;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
      s.at = at[i];
      expect_refused(&s, "rank 1 sent a malformed ");
    }
    s.kind = SPOIL_SHORT;
    expect_refused(&s, "rank 1 sent a malformed ");
  }
  weir_rng rng = weir_rng_of(8);
  for (int i = 0; i < (GROUP_SLOW ? 20 : 80); i++) {
    spoil s = {.plan = "companded:0.125:sra:huffman", .machines = "abc", .kind = SPOIL_ANY};
    s.which = (int)weir_rng_below(&rng, 4);
    s.at = (size_t)weir_rng_below(&rng, 1 << 20);
    s.mask = (unsigned char)(1 + weir_rng_below(&rng, 255));
    (void)run_to_an_end(&s);
  }
}

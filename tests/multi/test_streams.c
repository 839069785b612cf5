/* Several TCP connections between each two ranks: every byte arrives where it belongs, whichever
 * way it took, and groups end, shrink and refuse as over one. */
#include <criterion/criterion.h>

#include "base/crc32c.h"
#include "collectives/transports/tcp.h"
#include "ranks.h"

#define HEADER (48 + 4)              /* and what closes a message */
#define DIVIDED ((size_t)256 * 1024) /* messages from here on travel in parts */
#define MOST ((size_t)5 << 18)       /* 160 KiB a stream where there are eight */

static unsigned char byte_of(int from, int to, size_t message, size_t at) {
  return (unsigned char)(7 * from + 31 * to + 13 * (int)message + (int)(at % 251) +
                         (int)(at >> 12));
}

/* --- random messages ------------------------------------------------------------------------ */

#define MESSAGES 5
#define ROUNDS 12

/* Everybody knows what everybody sends: drawn from the round, the sender and the receiver. */
static size_t length_of(int round, int from, int to, size_t message) {
  static const size_t edges[] = {0, 1, DIVIDED - 1, DIVIDED, DIVIDED + 1, DIVIDED + 64, MOST};
  const uint64_t draw =
      weir_hash(WEIR_HASH_INIT, (int[]){round, from, to, (int)message}, 4 * sizeof(int));
  const size_t kind = draw % 10;
  return kind < 7 ? edges[kind] : (size_t)(draw >> 8) % (kind == 7 ? 4096 : MOST);
}

static size_t parts(const weir_transport *t, size_t bytes) {
  return bytes >= DIVIDED ? (size_t)((const tcp *)t)->streams : 1;
}

static weir_status talk(weir_transport *t, void *user) {
  const size_t messages = (size_t)(t->size - 1) * MESSAGES;
  FREED weir_send *send = calloc(messages, sizeof *send);
  FREED weir_recv *recv = calloc(messages, sizeof *recv);
  FREED unsigned char *memory = malloc(2 * messages * (MOST + 1));
  weir_status status = send && recv && memory ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "memory");
  for (int round = 0; status == WEIR_OK && round < ROUNDS; round++) {
    size_t n = 0;
    uint64_t due = t->bytes_sent;
    /* In turns, so that messages to one peer do not lie side by side. */
    for (size_t m = 0; m < MESSAGES; m++)
      for (int peer = 0; peer < t->size; peer++) {
        if (peer == t->rank) continue;
        unsigned char *out = memory + 2 * n * (MOST + 1), *in = out + MOST + 1;
        const size_t bytes = length_of(round, t->rank, peer, m);
        for (size_t i = 0; i < bytes; i++) out[i] = byte_of(t->rank, peer, m, i);
        memset(in, 0xee, MOST + 1);
        send[n] = (weir_send){.peer = peer, .data = out, .bytes = bytes, .hop = (uint32_t)m};
        const size_t takes = length_of(round, peer, t->rank, m);
        recv[n] = (weir_recv){.peer = peer, .data = in, .hop = (uint32_t)m};
        recv[n++].capacity = round % 2 ? takes : MOST; /* what is due, or more */
        due += bytes + HEADER * parts(t, bytes);
      }
    const weir_tag tag = {.plan = 5, .step = (uint64_t)round, .op = 1};
    status = t->ops->transfer(t, &tag, send, n, recv, n, weir_now_s() + 20.0);
    n = 0;
    for (size_t m = 0; m < MESSAGES; m++)
      for (int peer = 0; peer < t->size && status == WEIR_OK; peer++) {
        if (peer == t->rank) continue;
        const unsigned char *in = recv[n].data;
        const size_t bytes = length_of(round, peer, t->rank, m);
        bool good = recv[n++].bytes == bytes && in[bytes] == 0xee;
        for (size_t i = 0; good && i < bytes; i++) good = in[i] == byte_of(peer, t->rank, m, i);
        if (!good) status = weir_fail(WEIR_E_INTERNAL, "round %d, message %zu", round, m);
      }
    if (status == WEIR_OK && t->bytes_sent != due)
      status = weir_fail(WEIR_E_INTERNAL, "counted %llu bytes, not %llu",
                         (unsigned long long)t->bytes_sent, (unsigned long long)due);
  }
  (void)user;
  return status;
}

Test(streams, every_byte_arrives) {
  static const int streams[] = {1, 2, 3, 8};
  for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
    ENDED group g = group_new(GROUP_TCP, 2 + (int)i % 2, talk, NULL);
    g.streams = streams[i];
    group_run(&g);
    group_well(&g);
  }
}

/* By hand: 3 parts of 300000 bytes, each but the last of whole lines of 64. */
Test(streams, parts_cover_a_message_once) {
  tcp self = {.streams = 3};
  cr_assert_eq(tcp_part_of(&self, 300000, 0).begin, 0);
  cr_assert_eq(tcp_part_of(&self, 300000, 0).bytes, 100032);
  cr_assert_eq(tcp_part_of(&self, 300000, 1).begin, 100032);
  cr_assert_eq(tcp_part_of(&self, 300000, 1).bytes, 100032);
  cr_assert_eq(tcp_part_of(&self, 300000, 2).begin, 200064);
  cr_assert_eq(tcp_part_of(&self, 300000, 2).bytes, 99936);
  cr_assert(!tcp_part_of(&self, DIVIDED - 1, 1).any);
  cr_assert_eq(tcp_part_of(&self, DIVIDED - 1, 0).bytes, DIVIDED - 1);
  for (self.streams = 1; self.streams <= WEIR_TCP_STREAMS_MAX; self.streams++)
    for (size_t bytes = DIVIDED - 3; bytes < DIVIDED + 3000; bytes++) {
      size_t end = 0;
      for (int s = 0; s < self.streams; s++) {
        const tcp_part part = tcp_part_of(&self, bytes, s);
        cr_assert(part.bytes == 0 || part.begin == end);
        end += part.bytes;
      }
      cr_assert_eq(end, bytes);
    }
}

/* --- what is refused ------------------------------------------------------------------------ */

static weir_status nothing(weir_transport *t, void *user) {
  (void)t;
  (void)user;
  return WEIR_OK;
}

static void open_more_than_rank_0(group *g, int rank) { g->streams = 2 + rank; }

Test(streams, another_number_is_refused) {
  ENDED group g = group_new(GROUP_TCP, 2, nothing, NULL);
  g.timeout_s = 3.0;
  g.prepare = open_more_than_rank_0;
  group_run(&g);
  cr_assert_eq(g.result[1].status, WEIR_E_MISMATCH, "%s", g.result[1].message);
  cr_assert(strstr(g.result[1].message, "another number of streams"), "%s", g.result[1].message);
  cr_assert_eq(g.result[0].status, WEIR_E_TIMEOUT, "%s", g.result[0].message);
  for (int streams = -1; streams <= WEIR_TCP_STREAMS_MAX + 1; streams += 10) {
    weir_transport *t = NULL;
    const weir_tcp_options options = {.rendezvous = "127.0.0.1:5000",
                                      .job_id = 1,
                                      .size = 2,
                                      .streams = streams,
                                      .timeout_s = 0.2};
    cr_assert_eq(weir_transport_tcp_open(&t, &options), WEIR_E_INVALID, "%d", streams);
    cr_assert_null(t);
  }
}

/* Rank 1 writes headers itself: streams[] says which each claims to be, lengths[] what it tells. */
typedef struct forgery {
  int streams[2];
  size_t lengths[2];
  const char *said;
} forgery;

static weir_status forge(weir_transport *t, void *user) {
  const forgery *f = user;
  tcp *self = (tcp *)t;
  const weir_tag tag = {.plan = 1, .step = 2, .op = 3};
  FREED unsigned char *in = malloc(MOST);
  weir_status status = WEIR_OK;
  if (t->rank == 0) {
    weir_recv recv = {.peer = 1, .data = in, .capacity = MOST, .hop = 0};
    status = t->ops->transfer(t, &tag, NULL, 0, &recv, 1, weir_now_s() + 10.0);
  } else {
    memset(in, 0, MOST);
    for (int s = 0; s < 2; s++) {
      tcp_frame frame;
      tcp_frame_write(&frame, 1, &tag, 0, f->lengths[s], f->streams[s]);
      const int fd = self->peer[s * t->size].fd;
      const size_t bytes = tcp_part_of(self, f->lengths[s], s).bytes;
      const uint32_t crc = weir_crc32c(weir_crc32c(0, &frame, sizeof frame), in, bytes);
      (void)(tcp_write_all(fd, &frame, sizeof frame, weir_now_s() + 5.0) &&
             tcp_write_all(fd, in, bytes, weir_now_s() + 5.0) &&
             tcp_write_all(fd, &crc, sizeof crc, weir_now_s() + 5.0));
    }
    char byte; /* until rank 0 hangs up */
    (void)tcp_read_all(self->peer[0].fd, &byte, 1, weir_now_s() + 10.0);
  }
  return status;
}

Test(streams, parts_that_do_not_fit_end_the_group) {
  static const forgery forgeries[] = {
      {{0, 1}, {DIVIDED, DIVIDED}, NULL},
      {{0, 0}, {DIVIDED, DIVIDED}, "for stream 0 came on stream 1"},
      {{1, 1}, {DIVIDED, DIVIDED}, "for stream 1 came on stream 0"},
      {{0, 1}, {DIVIDED, DIVIDED + 64}, "262144 bytes by stream 0 and 262208 by stream 1"},
      {{0, 1}, {MOST + 1, MOST + 1}, "sent 1310721 bytes where at most 1310720 were due"},
  };
  for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
    forgery f = forgeries[i];
    ENDED group g = group_new(GROUP_TCP, 2, forge, &f);
    g.streams = 2;
    group_run(&g);
    const group_result *zero = &g.result[0];
    cr_assert_eq(zero->status, f.said ? WEIR_E_PROTOCOL : WEIR_OK, "%zu: %s", i, zero->message);
    cr_assert(f.said == NULL || strstr(zero->message, f.said), "%zu: %s", i, zero->message);
  }
}

/* --- sums, and survivors -------------------------------------------------------------------- */

#define N ((size_t)1 << 19) /* a quarter of it, which a ring of four sends, travels in parts */

static weir_status sum(weir_transport *t, int steps, int victim, float due) {
  OWNED weir_comm *comm = NULL;
  FREED float *x = malloc(N * sizeof *x);
  weir_status status = weir_comm_create(&comm, t, 20.0);
  for (int step = 0; status == WEIR_OK && step < steps; step++) {
    for (size_t i = 0; i < N; i++) x[i] = (float)(t->rank + 1) + (float)(i % 16);
    if (step == 2 && t->rank == victim) (void)raise(SIGKILL);
    weir_comm_step(comm, 3, (uint64_t)step);
    status =
        weir_allreduces[step % WEIR_ALLREDUCE_STAR].run(comm, x, N, WEIR_VALUE_FP32, NULL, NULL);
    for (size_t i = 0; status == WEIR_OK && i < N; i++)
      if (x[i] != due + (float)(t->size * (int)(i % 16)))
        status = weir_fail(WEIR_E_INTERNAL, "step %d: %g at %zu", step, (double)x[i], i);
  }
  return status;
}

/* Rank 2 of 4 dies; the others go on over one connection each. */
static weir_status sum_and_lose_one(weir_transport *t, void *user) {
  int old[GROUP_MAX];
  weir_transport *left = NULL;
  const int rank = t->rank;
  weir_status status = sum(t, 4, 2, 1 + 2 + 3 + 4);
  (void)user;
  if (status != WEIR_E_PEER && status != WEIR_E_TIMEOUT)
    return weir_fail(WEIR_E_INTERNAL, "rank %d: status %d without rank 2", rank, (int)status);
  status = t->ops->shrink(t, 8.0, &left, old);
  if (status != WEIR_OK) return status;
  const tcp *self = (const tcp *)left;
  if (left->size != 3 || self->streams != 1) status = weir_fail(WEIR_E_INTERNAL, "another group");
  if (status == WEIR_OK) status = sum(left, 7, -1, 1 + 2 + 3);
  left->ops->destroy(left);
  return status;
}

Test(streams, survivors_go_on_over_one) {
  ENDED group g = group_new(GROUP_TCP, 4, sum_and_lose_one, NULL);
  g.streams = 3;
  group_run(&g);
  for (int r = 0; r < g.size; r++)
    if (r != 2) cr_assert_eq(g.result[r].status, WEIR_OK, "rank %d: %s", r, g.result[r].message);
}

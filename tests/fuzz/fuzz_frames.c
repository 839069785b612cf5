/* libFuzzer: what comes over an established connection, and in datagrams.  The input is taken as
 *   - a frame's header, as it is and with its checksum put right;
 *   - a datagram, likewise, by a rank that answers;
 *   - a program that writes a stream of frames, good ones and others, which a transfer then reads;
 *   - the same stream through a ring in memory, whose positions it may spoil;
 *   - one that does so on several streams, among which messages are divided.
 * What a transfer returns as received is what was sent, and nothing is written past the
 * room given. */
#include <endian.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "collectives/transports/tcp_datagram.h"
#include "demand.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define RANKS 3
#define MESSAGES 4
#define ROOM 300 /* of each message */
#define STREAM 4096
#define STREAMS 3
#define CANARY 0xa5

static tcp self;
static tcp_peer peers[STREAMS * RANKS];
static int active[STREAMS * RANKS];
static struct pollfd polls[STREAMS * RANKS + 1];
static unsigned char stage[STREAMS][TCP_STAGE];

static void seal(void *block, size_t bytes) {
  const uint32_t sum = htole32(tcp_checksum(block, bytes - sizeof sum));
  memcpy((unsigned char *)block + bytes - sizeof sum, &sum, sizeof sum);
}

/* --- headers -------------------------------------------------------------------------------- */

static void feed_frame(const tcp_frame *frame, size_t capacity) {
  const weir_tag tag = {le64toh(frame->plan), le64toh(frame->step), le32toh(frame->op), 0};
  size_t length = SIZE_MAX;
  const weir_status status =
      tcp_frame_check(frame, 1, &tag, le32toh(frame->hop), capacity, 0, &length);
  demand(status == WEIR_OK || status == WEIR_E_PROTOCOL || status == WEIR_E_MISMATCH, "status");
  demand(status != WEIR_OK ||
             (length <= capacity && length == le64toh(frame->length) && le16toh(frame->from) == 1),
         "took a frame that does not fit");
  demand(status != WEIR_OK || frame->stream == 0, "took a frame of another stream");
  demand(status == WEIR_OK || length == SIZE_MAX, "told a length with an error");
}

/* --- datagrams ------------------------------------------------------------------------------ */

static void feed_datagram(datagram d, size_t length) {
  const struct sockaddr_in from = {.sin_family = AF_INET};
  if (!tcp_datagram_is_good(&self, &d, length)) return;
  const uint32_t rank = le32toh(d.from);
  demand(rank < RANKS && rank != 0 && le64toh(d.job) == self.job,
         "took a datagram of somebody else");
  for (int64_t stamp = 0; stamp < 3; stamp++) tcp_datagram_react(&self, &d, &from, stamp);
  weir_end end;
  demand(!tcp_abort_seen(&self, &end), "an abort without a proof ended the group");
  for (int r = 1; r < RANKS; r++) peers[r].train = (tcp_train_state){0};
}

/* --- streams -------------------------------------------------------------------------------- */

typedef struct stream {
  unsigned char byte[STREAM];
  size_t count;
  size_t taken[MESSAGES]; /* where the payload of a good frame lies that a transfer has to take */
  size_t length[MESSAGES];
  int good;    /* so many of them come first */
  bool spoilt; /* something else has come */
} stream;

static const weir_tag due = {11, 12, 13, 0};

static void append(stream *s, const void *from, size_t count) {
  if (count > STREAM - s->count) count = STREAM - s->count;
  if (count > 0) memcpy(s->byte + s->count, from, count);
  s->count += count;
}

static bool in_memory; /* where payloads are not summed up */

/* What closes the frame that begins there, right or wrong. */
static void close_frame(stream *s, size_t begin, bool wrong) {
  const size_t whole = s->count - begin;
  const size_t summed = in_memory && whole > sizeof(tcp_frame) ? sizeof(tcp_frame) : whole;
  uint32_t crc = weir_crc32c(0, s->byte + begin, summed);
  crc = htole32(crc ^ wrong);
  append(s, &crc, sizeof crc);
}

/* One instruction; tells how many bytes of the program it took. */
static size_t write_some(stream *s, const uint8_t *program, size_t left) {
  tcp_frame frame;
  if (program[0] & 1 || left < 8) { /* bytes as they are */
    const size_t count = (size_t)program[0] / 2 < left - 1 ? (size_t)program[0] / 2 : left - 1;
    append(s, program + 1, count);
    s->spoilt = s->spoilt || count > 0;
    return 1 + count;
  }
  /* A frame; what is odd about it depends on bits that are rarely set. */
  const size_t length = program[1] | (size_t)(program[2] & 1) << 8;
  weir_tag tag = due;
  if (program[0] & 2 && program[3] < 8) tag.step++;
  if (program[0] & 4 && program[3] < 8) tag.plan++;
  tcp_frame_write(&frame, program[0] & 8 && program[3] < 8 ? 2 : 1, &tag,
                  program[4] < 250 ? (uint32_t)s->good : program[5], length, 0);
  const bool good = memcmp(&tag, &due, sizeof tag) == 0 && le16toh(frame.from) == 1 &&
                    le32toh(frame.hop) == (uint32_t)s->good && length <= ROOM &&
                    STREAM - s->count >= sizeof frame + length + TCP_TRAILER;
  const bool wrong = program[0] & 16 && program[3] < 8;
  const size_t begin = s->count;
  append(s, &frame, sizeof frame);
  if (!s->spoilt && good && !wrong && s->good < MESSAGES) {
    s->taken[s->good] = s->count;
    s->length[s->good++] = length;
  } else {
    s->spoilt = true;
  }
  for (size_t i = 0; i < length; i++) append(s, &program[4 + (i & 3)], 1);
  close_frame(s, begin, wrong);
  return 8;
}

static void check_messages(const stream *s, weir_status status, const weir_recv *recv,
                           unsigned char data[MESSAGES][ROOM + 1], size_t messages) {
  demand(status == WEIR_OK || status == WEIR_E_PROTOCOL || status == WEIR_E_MISMATCH ||
             status == WEIR_E_PEER,
         "a transfer's status");
  demand(messages > (size_t)s->good || status == WEIR_OK, "refused a good stream");
  /* Bytes as they are may happen to be a frame. */
  demand(messages <= (size_t)s->good || status != WEIR_OK || s->spoilt, "took what was not sent");
  for (size_t i = 0; i < messages; i++) {
    demand(data[i][ROOM] == CANARY, "written past the end");
    if (status == WEIR_OK && i < (size_t)s->good)
      demand(recv[i].bytes == s->length[i] &&
                 memcmp(data[i], s->byte + s->taken[i], recv[i].bytes) == 0,
             "other bytes than were sent");
  }
}

/* All of the stream in a ring of its length, from any place of it on; true: its end is told
 * wrong. */
static bool write_ring(const stream *s, const uint8_t *program, size_t size, weir_memory *m) {
  static _Alignas(64) unsigned char ring[2][sizeof(weir_memory_ring) + STREAM];
  const uint64_t begin = (uint64_t)program[size - 1] * 251;
  const bool spoils = program[0] >= 240;
  memset(ring, 0, sizeof ring);
  *m = (weir_memory){.in = (weir_memory_ring *)(void *)ring[0],
                     .out = (weir_memory_ring *)(void *)ring[1],
                     .ring_bytes = STREAM,
                     .tail = begin};
  weir_ring_write(ring[0] + sizeof(weir_memory_ring), STREAM, begin, s->byte, s->count);
  atomic_store(&m->in->head, begin + s->count + (spoils ? STREAM + 1 : 0));
  return spoils;
}

static void feed_stream(const uint8_t *program, size_t size, bool memory) {
  static stream s;
  weir_memory connection;
  in_memory = memory;
  static unsigned char data[MESSAGES][ROOM + 1];
  weir_recv recv[MESSAGES];
  int pair[2];
  memset(&s, 0, sizeof s);
  const size_t messages = 1 + program[0] % MESSAGES;
  for (size_t at = 1; at < size && s.count < STREAM;) at += write_some(&s, program + at, size - at);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) abort();
  if (!memory && s.count > 0 && send(pair[1], s.byte, s.count, 0) != (ssize_t)s.count) abort();
  if (memory && write_ring(&s, program, size, &connection)) {
    s.good = 0;
    s.spoilt = true;
  }
  (void)shutdown(pair[1], SHUT_WR);
  memset(data, CANARY, sizeof data);
  for (size_t i = 0; i < messages; i++)
    recv[i] = (weir_recv){.peer = 1, .data = data[i], .capacity = ROOM, .hop = (uint32_t)i};
  self.streams = 1;
  connection.bell = pair[0];
  peers[1] = (tcp_peer){.fd = pair[0], .stage = stage[0], .memory = memory ? &connection : NULL};
  self.ended = (weir_end){WEIR_OK, 0, 0};
  const weir_status status =
      tcp_transfer(&self.base, &due, NULL, 0, recv, messages, weir_now_s() + 5.0);
  check_messages(&s, status, recv, data, messages);
  demand(status == WEIR_OK || self.ended.culprit == 1, "another rank is to blame");
  in_memory = false;
  (void)close(pair[0]);
  (void)close(pair[1]);
}

/* --- several streams ------------------------------------------------------------------------ */

static unsigned char byte_of(int message, size_t i) {
  return (unsigned char)(message * 89 + i * 7);
}

/* One message, on all of its streams; odd: on some stream its header tells another length. */
static void write_message(stream s[STREAMS], int number, size_t length, int odd, size_t other) {
  for (int k = 0; k < STREAMS; k++) {
    const tcp_part part = tcp_part_of(&self, length, k);
    tcp_frame frame;
    if (!part.any) continue;
    const size_t begin = s[k].count;
    tcp_frame_write(&frame, 1, &due, (uint32_t)number, k == odd ? other : length, k);
    append(&s[k], &frame, sizeof frame);
    for (size_t i = 0; i < part.bytes; i++) {
      const unsigned char byte = byte_of(number, part.begin + i);
      append(&s[k], &byte, 1);
    }
    close_frame(&s[k], begin, false);
  }
}

/* Returns whether only good messages were written. */
static bool write_streams(stream s[STREAMS], size_t length[MESSAGES], const uint8_t *program,
                          size_t size) {
  bool good = true;
  for (size_t at = 0, m = 0; at + 4 <= size && m < MESSAGES; at += 4, m++) {
    const uint8_t *p = program + at;
    length[m] = (p[0] | (size_t)(p[1] & 1) << 8) % ROOM;
    const size_t other = (p[2] | (size_t)(p[1] & 2) << 7) % (2 * ROOM);
    const int odd = p[3] >= 224 ? p[3] % STREAMS : -1;
    if (p[1] >= 224) append(&s[p[3] % STREAMS], p, p[2] % 5); /* bytes that are no frame */
    good = good && p[1] < 224 && (odd < 0 || other == length[m]);
    write_message(s, (int)m, length[m], odd, other);
  }
  return good;
}

static void feed_streams(const uint8_t *program, size_t size) {
  static stream s[STREAMS];
  static unsigned char data[MESSAGES][ROOM + 1];
  const size_t messages = size / 4 < MESSAGES ? size / 4 : MESSAGES;
  size_t length[MESSAGES] = {0};
  weir_recv recv[MESSAGES];
  int pair[STREAMS][2];
  memset(s, 0, sizeof s);
  self.streams = STREAMS;
  const bool good = write_streams(s, length, program, size);
  for (int k = 0; k < STREAMS; k++) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair[k]) != 0) abort();
    if (send(pair[k][1], s[k].byte, s[k].count, 0) != (ssize_t)s[k].count) abort();
    (void)shutdown(pair[k][1], SHUT_WR);
    peers[k * RANKS + 1] = (tcp_peer){.fd = pair[k][0], .stage = stage[k]};
  }
  memset(data, CANARY, sizeof data);
  for (size_t i = 0; i < messages; i++)
    recv[i] = (weir_recv){.peer = 1, .data = data[i], .capacity = ROOM, .hop = (uint32_t)i};
  self.ended = (weir_end){WEIR_OK, 0, 0};
  const weir_status status =
      tcp_transfer(&self.base, &due, NULL, 0, recv, messages, weir_now_s() + 5.0);
  demand(status == WEIR_OK || (!good && self.ended.culprit == 1), "a transfer over streams");
  for (size_t i = 0; i < messages; i++) {
    demand(data[i][ROOM] == CANARY, "written past the end");
    for (size_t b = 0; good && b < length[i]; b++)
      demand(recv[i].bytes == length[i] && data[i][b] == byte_of((int)i, b), "other bytes");
  }
  for (int k = 0; k < STREAMS; k++) {
    (void)close(pair[k][0]);
    (void)close(pair[k][1]);
  }
}

/* --- */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  self.base.size = RANKS;
  self.job = 7;
  self.peer = peers;
  self.active = active;
  self.poll = polls;
  self.udp = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0); /* an answer finds no way */
  self.wake = eventfd(1, EFD_NONBLOCK); /* nobody need wait to hear why a connection closed */
  self.listener = self.stop = -1;
  memset(self.group_key.bytes, 0x42, sizeof self.group_key.bytes);
  atomic_init(&self.waiting_on, -1);
  atomic_init(&self.abort, 0);
  atomic_init(&self.abort_ns, 0);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tcp_frame frame = {0};
  datagram d = {0};
  memcpy(&frame, data, size < sizeof frame ? size : sizeof frame);
  memcpy(&d, data, size < sizeof d ? size : sizeof d);
  feed_frame(&frame, size);
  seal(&frame, sizeof frame);
  feed_frame(&frame, size);
  feed_datagram(d, size);
  seal(&d, sizeof d);
  feed_datagram(d, sizeof d);
  feed_datagram(d, TRAIN_DATAGRAM);
  tcp_datagram_sign(&self, &d);
  seal(&d, sizeof d);
  feed_datagram(d, sizeof d);
  feed_datagram(d, TRAIN_DATAGRAM);
  if (size > 0) feed_stream(data, size, false);
  if (size > 0) feed_stream(data, size, true);
  if (size >= 4) feed_streams(data, size);
  return 0;
}

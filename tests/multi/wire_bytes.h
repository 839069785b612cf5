/* The TCP transport's protocol, spoken badly or well by a test: frames, greetings, tables and
 * datagrams put together byte by byte, over plain sockets, and a rank 0 of ours to send them to. */
#ifndef WEIR_TESTS_WIRE_BYTES_H
#define WEIR_TESTS_WIRE_BYTES_H

#include <criterion/criterion.h>
#include <poll.h>

#include "hmac.h"
#include "ranks.h"

#define WIRE_VERSION 16 /* of the protocol over TCP */

#define HELLO 96
#define FRAME 48
#define DATAGRAM 64
#define ENTRY 8
#define PAYLOAD 64
#define TRAILER 4 /* behind every message */
enum {
  REGISTER = 1,
  MESH,
  TABLE,
  REFUSED,
  CHALLENGE,
  PROOF,
  WELCOME,
  REJOIN,
  STREAM,
  WAIT,
  ABSENT,
  JOIN
};
enum { GARBAGE = 1, VERSION, JOB, SIZE, RANK, SECRET, STREAMS, USER, TLS, OFFER };
#define NONCE_AT 40
#define PROOF_AT 56

/* --- bytes ---------------------------------------------------------------------------------- */

static inline void put(unsigned char *to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(value >> 8 * i);
}

static inline uint64_t get(const unsigned char *from, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)from[i] << 8 * i;
  return value;
}

/* FNV-1a of 64 bits, its halves folded. */
static inline uint32_t checksum(const unsigned char *from, int bytes) {
  uint64_t hash = 14695981039346656037u;
  for (int i = 0; i < bytes; i++) hash = (hash ^ from[i]) * 1099511628211u;
  return (uint32_t)(hash ^ hash >> 32);
}

static inline void seal(unsigned char *block, int bytes) {
  put(block + bytes - 4, checksum(block, bytes - 4), 4);
}

/* The job's key: there is no secret unless a test sets one. */
static const char *job_secret = "";

static inline void job_key(uint64_t job, unsigned char key[32]) {
  unsigned char text[17] = "weir job";
  put(text + 9, job, 8);
  hmac(job_secret, strlen(job_secret), text, sizeof text, key);
}

/* HMAC(key, label 0 a b c). */
static inline void prove(const unsigned char key[32], const char *label, const void *a,
                         size_t a_bytes, const void *b, size_t b_bytes, const void *c,
                         size_t c_bytes, unsigned char proof[32]) {
  unsigned char text[1024];
  size_t at = strlen(label) + 1;
  memcpy(text, label, at);
  if (a_bytes > 0) memcpy(text + at, a, a_bytes);
  at += a_bytes;
  if (b_bytes > 0) memcpy(text + at, b, b_bytes);
  at += b_bytes;
  if (c_bytes > 0) memcpy(text + at, c, c_bytes);
  hmac(key, 32, text, at + c_bytes, proof);
}

typedef struct greeting {
  uint16_t version, kind;
  uint64_t job;
  uint32_t size, rank;
  uint16_t data_port, echo_port; /* travel in network order */
  uint32_t detail;
  uint64_t generation;
  unsigned char nonce, proof[32]; /* the nonce: 16 times this byte */
  uint16_t more_streams, stream;  /* one is what there is without any */
} greeting;

static inline void write_hello(unsigned char *to, greeting g) {
  memset(to, 0, HELLO);
  memcpy(to, "WEIH", 4);
  put(to + 4, g.version, 2);
  put(to + 6, g.kind, 2);
  put(to + 8, g.job, 8);
  put(to + 16, g.size, 4);
  put(to + 20, g.rank, 4);
  put(to + 24, htons(g.data_port), 2);
  put(to + 26, htons(g.echo_port), 2);
  put(to + 28, g.detail, 4);
  put(to + 32, g.generation, 8);
  memset(to + NONCE_AT, g.nonce, 16);
  memcpy(to + PROOF_AT, g.proof, 32);
  put(to + PROOF_AT + 32, 1 + g.more_streams, 2);
  put(to + PROOF_AT + 34, g.stream, 2);
  seal(to, HELLO);
}

static const weir_tag due = {UINT64_C(0x1122334455667788), 9, 4, 0};

static inline void write_frame(unsigned char *to, uint16_t from, uint64_t length) {
  memset(to, 0, FRAME);
  memcpy(to, "WEIR", 4);
  put(to + 4, WIRE_VERSION, 2);
  put(to + 6, from, 2);
  put(to + 8, due.plan, 8);
  put(to + 16, due.step, 8);
  put(to + 24, due.op, 4);
  put(to + 28, due.hop, 4);
  put(to + 32, length, 8);
  seal(to, FRAME);
}

/* CRC32C, bit by bit, of the frame and the message behind it. */
static inline void close_frame(unsigned char *frame, size_t length) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < FRAME + length; i++) {
    crc ^= frame[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  put(frame + FRAME + length, ~crc, TRAILER);
}

static unsigned char group_key[32]; /* as learnt from the table */

static inline void write_datagram(unsigned char *to, int kind, uint64_t job, uint32_t culprit,
                                  uint32_t reason, uint32_t from) {
  memset(to, 0, DATAGRAM);
  memcpy(to, "WEID", 4);
  put(to + 4, WIRE_VERSION, 2);
  put(to + 6, (uint64_t)kind, 2);
  put(to + 8, job, 8);
  put(to + 44, culprit, 4);
  put(to + 48, reason, 4);
  put(to + 52, from, 4);
  unsigned char proof[32];
  prove(group_key, "weir abort", to + 44, 12, NULL, 0, NULL, 0, proof);
  memcpy(to + 16, proof, 8);
  seal(to, DATAGRAM);
}

/* --- sockets -------------------------------------------------------------------------------- */

static inline struct sockaddr_in loopback(int port) {
  return (struct sockaddr_in){.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static inline int dial(const char *where) {
  const struct sockaddr_in to = loopback(atoi(strchr(where, ':') + 1));
  for (int i = 0; i < 1000; i++) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) return fd;
    (void)close(fd);
    group_nap(0.01);
  }
  cr_assert_fail("nobody listens at %s", where);
  return -1;
}

static inline void send_all(int fd, const void *data, size_t bytes) {
  if (bytes > 0) cr_assert_eq(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* Bytes that came before the end of the connection or of 20 s. */
static inline size_t receive(int fd, unsigned char *to, size_t bytes) {
  size_t got = 0;
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  while (got < bytes && poll(&wait, 1, 20000) == 1) {
    const ssize_t part = recv(fd, to + got, bytes - got, 0);
    if (part <= 0) break;
    got += (size_t)part;
  }
  return got;
}

/* --- rank 0 of ours, rank 1 of the test's --------------------------------------------------- */

static inline weir_status expect_body(weir_transport *t, void *user) {
  const double *wait_s = user;
  unsigned char data[PAYLOAD + 1] = {0};
  weir_recv recv = {1, data, PAYLOAD, 0, 0};
  const weir_status status = t->ops->transfer(t, &due, NULL, 0, &recv, 1, weir_now_s() + *wait_s);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < recv.bytes; i++)
    if (data[i] != (unsigned char)i) return weir_fail(WEIR_E_INTERNAL, "byte %zu is wrong", i);
  if (data[PAYLOAD] != 0) return weir_fail(WEIR_E_INTERNAL, "written past the end");
  return recv.bytes == PAYLOAD ? WEIR_OK : weir_fail(WEIR_E_INTERNAL, "%zu bytes", recv.bytes);
}

static double patience_s = 20.0;
static void (*before_it_joins)(group *g, int rank); /* of ranks of ours */

static inline void start_zero(group *g) {
  group_init(g, GROUP_TCP, 2, expect_body, &patience_s);
  g->prepare = before_it_joins;
  group_start_rank(g, 0);
}

static inline void end_zero(group *g, weir_status status, const char *said) {
  (void)waitpid(g->pid[0], NULL, 0);
  const group_result *r = &g->result[0];
  cr_assert_eq(r->status, status, "%s instead of %s: %s", weir_status_name(r->status),
               weir_status_name(status), r->message);
  if (said) cr_assert(strstr(r->message, said) != NULL, "no \"%s\" in: %s", said, r->message);
  group_done(g);
}

static inline greeting registration(const group *g) {
  return (greeting){.version = WIRE_VERSION,
                    .kind = REGISTER,
                    .job = g->job,
                    .size = 2,
                    .rank = 1,
                    .data_port = 9,
                    .echo_port = 9,
                    .detail = *job_secret != 0}; /* a job with a secret encrypts */
}

/* Say hello and prove to know the secret; the answer is still to be read.  said: hello and
 * challenge. */
static inline int introduce(const group *g, greeting own, unsigned char said[2 * HELLO]) {
  unsigned char key[32], message[HELLO];
  const int fd = dial(g->where);
  write_hello(said, own);
  send_all(fd, said, HELLO);
  cr_assert_eq(receive(fd, said + HELLO, HELLO), HELLO);
  cr_assert_eq(memcmp(said + HELLO, "WEIH", 4), 0);
  cr_assert_eq(get(said + HELLO + 6, 2), CHALLENGE);
  cr_assert_eq(get(said + HELLO + 92, 4), checksum(said + HELLO, 92));
  job_key(g->job, key);
  prove(key, "weir caller", said, 2 * HELLO, NULL, 0, NULL, 0, own.proof);
  own.kind = PROOF;
  write_hello(message, own);
  send_all(fd, message, HELLO);
  return fd;
}

/* What rank 0 has to say in the end, past whom it still waits for. */
static inline void receive_verdict(int fd, unsigned char answer[HELLO]) {
  do cr_assert_eq(receive(fd, answer, HELLO), HELLO);
  while (get(answer + 6, 2) == WAIT);
}

/* Register as rank 1 and read the table; *echo_port is where rank 0 takes datagrams. */
static inline int enrol(const group *g, int *echo_port) {
  unsigned char said[2 * HELLO], answer[HELLO], table[2 * ENTRY], key[32], proof[32], text[256];
  const int fd = introduce(g, registration(g), said);
  receive_verdict(fd, answer);
  cr_assert_eq(memcmp(answer, "WEIH", 4), 0);
  cr_assert_eq(get(answer + 6, 2), TABLE);
  cr_assert_eq(get(answer + 92, 4), checksum(answer, 92));
  cr_assert_eq(receive(fd, table, sizeof table), sizeof table);
  cr_assert_eq(get(answer + 28, 4), checksum(table, sizeof table));
  job_key(g->job, key);
  memcpy(text, answer, PROOF_AT);
  memcpy(text + PROOF_AT, table, sizeof table);
  prove(key, "weir host", said, sizeof said, text, PROOF_AT + sizeof table, NULL, 0, proof);
  cr_assert_eq(memcmp(proof, answer + PROOF_AT, 32), 0);
  prove(key, "weir group", answer + NONCE_AT, 16, NULL, 0, NULL, 0, group_key);
  if (echo_port) *echo_port = ntohs((uint16_t)get(table + 6, 2));
  return fd;
}

/* The message of PAYLOAD bytes behind a frame, and what closes it. */
static inline void payload(unsigned char *frame) {
  for (int i = 0; i < PAYLOAD; i++) frame[FRAME + i] = (unsigned char)i;
  close_frame(frame, PAYLOAD);
}

#endif

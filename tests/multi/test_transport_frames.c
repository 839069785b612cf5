/* A peer that sends frames or datagrams which are damaged, too long, cut short or not its own: each
 * is refused by what is said about it, and none is taken for a message. */
#include "wire_bytes.h"

/* Rank 0's verdict on these bytes. */
static void verdict(const unsigned char *bytes, size_t count, bool hang_up, weir_status status,
                    const char *said) {
  group g;
  start_zero(&g);
  const int fd = enrol(&g, NULL);
  send_all(fd, bytes, count);
  if (hang_up) (void)shutdown(fd, SHUT_WR);
  end_zero(&g, status, said);
  (void)close(fd);
}

Test(frames, a_good_one_is_taken) {
  unsigned char bytes[FRAME + PAYLOAD + TRAILER];
  write_frame(bytes, 1, PAYLOAD);
  payload(bytes);
  verdict(bytes, sizeof bytes, false, WEIR_OK, NULL);
}

/* Any byte of the header: nothing is taken for a message. */
Test(frames, damage_in_any_byte) {
  for (int at = 0; at < FRAME; at++) {
    unsigned char bytes[FRAME + PAYLOAD + TRAILER];
    write_frame(bytes, 1, PAYLOAD);
    payload(bytes);
    bytes[at] ^= (unsigned char)(1 << at % 8);
    const char *said = at < 4   ? "what rank 1 sent is no message of ours"
                       : at < 6 ? "rank 1 sends messages of version"
                                : "a message header of rank 1 is damaged";
    verdict(bytes, sizeof bytes, false, WEIR_E_PROTOCOL, said);
  }
}

/* Any bit of the message, or of what closes it, is missed. */
Test(frames, damage_behind_the_header) {
  for (int at = FRAME; at < FRAME + PAYLOAD + TRAILER; at += at < FRAME + PAYLOAD ? 5 : 1) {
    unsigned char bytes[FRAME + PAYLOAD + TRAILER];
    write_frame(bytes, 1, PAYLOAD);
    payload(bytes);
    bytes[at] ^= (unsigned char)(1 << at % 8);
    verdict(bytes, sizeof bytes, false, WEIR_E_PROTOCOL,
            "a message of rank 1 was damaged on its way");
  }
}

/* The message of another frame, whole by itself. */
Test(frames, anothers_message) {
  unsigned char bytes[FRAME + PAYLOAD + TRAILER];
  write_frame(bytes, 1, PAYLOAD);
  put(bytes + 28, 1, 4);
  seal(bytes, FRAME);
  payload(bytes);
  write_frame(bytes, 1, PAYLOAD);
  verdict(bytes, sizeof bytes, false, WEIR_E_PROTOCOL,
          "a message of rank 1 was damaged on its way");
}

Test(frames, another_version) {
  unsigned char bytes[FRAME];
  char said[64];
  write_frame(bytes, 1, 0);
  put(bytes + 4, WIRE_VERSION + 1, 2);
  seal(bytes, FRAME);
  (void)snprintf(said, sizeof said, "rank 1 sends messages of version %d, this rank %d",
                 WIRE_VERSION + 1, WIRE_VERSION);
  verdict(bytes, sizeof bytes, false, WEIR_E_PROTOCOL, said);
}

Test(frames, from_somebody_else) {
  unsigned char bytes[FRAME];
  write_frame(bytes, 3, 0);
  verdict(bytes, sizeof bytes, false, WEIR_E_PROTOCOL,
          "a message of rank 1 says it is from rank 3");
}

Test(frames, too_long) {
  unsigned char bytes[FRAME];
  write_frame(bytes, 1, PAYLOAD + 1);
  verdict(bytes, sizeof bytes, false, WEIR_E_PROTOCOL,
          "rank 1 sent 65 bytes where at most 64 were due");
  write_frame(bytes, 1, UINT64_MAX);
  verdict(bytes, sizeof bytes, false, WEIR_E_PROTOCOL,
          "rank 1 sent 18446744073709551615 bytes where at most 64 were due");
}

Test(frames, cut_short) {
  unsigned char bytes[FRAME + PAYLOAD + TRAILER];
  write_frame(bytes, 1, PAYLOAD);
  payload(bytes);
  verdict(bytes, 0, true, WEIR_E_PEER, "rank 1 is gone");
  verdict(bytes, 20, true, WEIR_E_PEER, "rank 1 is gone");
  verdict(bytes, FRAME, true, WEIR_E_PEER, "rank 1 is gone");
  verdict(bytes, FRAME + PAYLOAD - 1, true, WEIR_E_PEER, "rank 1 is gone");
  verdict(bytes, FRAME + PAYLOAD + TRAILER - 1, true, WEIR_E_PEER, "rank 1 is gone");
  patience_s = 0.3;
  verdict(bytes, 20, false, WEIR_E_TIMEOUT, "rank 1 did not answer in time (step 9)");
  verdict(bytes, FRAME + 3, false, WEIR_E_TIMEOUT, "rank 1 did not answer in time (step 9)");
}

/* --- datagrams ------------------------------------------------------------------------------ */

static void to_echo_port(int port, const unsigned char *bytes, size_t count) {
  const struct sockaddr_in to = loopback(port);
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  cr_assert_eq(sendto(fd, bytes, count, 0, (const struct sockaddr *)&to, sizeof to),
               (ssize_t)count);
  (void)close(fd);
}

/* An abort of somebody else, damaged, or naming a rank that is none, ends nothing. */
Test(datagrams, that_do_not_belong_are_not_heard) {
  unsigned char d[DATAGRAM + 1] = {0}, bytes[FRAME + PAYLOAD + TRAILER];
  int port = 0;
  group g;
  start_zero(&g);
  const int fd = enrol(&g, &port);
  write_datagram(d, 3, g.job, 2, 11, 1); /* no rank 2 */
  to_echo_port(port, d, DATAGRAM);
  write_datagram(d, 3, g.job, UINT32_MAX, 11, 1);
  to_echo_port(port, d, DATAGRAM);
  write_datagram(d, 3, g.job, 1, 11, 0); /* from rank 0 itself */
  to_echo_port(port, d, DATAGRAM);
  write_datagram(d, 3, g.job, 1, 11, 2); /* from no rank */
  to_echo_port(port, d, DATAGRAM);
  write_datagram(d, 3, g.job + 1, 1, 11, 1); /* of another job */
  to_echo_port(port, d, DATAGRAM);
  write_datagram(d, 3, g.job, 1, 11, 1);
  to_echo_port(port, d, DATAGRAM - 1); /* too short, too long, empty */
  to_echo_port(port, d, 0);
  to_echo_port(port, d, DATAGRAM + 1);
  write_datagram(d, 4, g.job, 1, 11, 1); /* of a train, but too short for one */
  to_echo_port(port, d, DATAGRAM);
  write_datagram(d, 9, g.job, 1, 11, 1); /* of no known kind */
  to_echo_port(port, d, DATAGRAM);
  for (int at = 16; at < 24; at++) { /* whole, but without a proof */
    write_datagram(d, 3, g.job, 1, 11, 1);
    d[at] ^= 1;
    seal(d, DATAGRAM);
    to_echo_port(port, d, DATAGRAM);
  }
  for (int at = 0; at < DATAGRAM; at += 5) {
    write_datagram(d, 3, g.job, 1, 11, 1);
    d[at] ^= 32;
    to_echo_port(port, d, DATAGRAM);
  }
  group_nap(0.2);
  write_frame(bytes, 1, PAYLOAD);
  payload(bytes);
  send_all(fd, bytes, sizeof bytes);
  end_zero(&g, WEIR_OK, NULL);
  (void)close(fd);
}

/* What comes back for so many bytes within so long. */
static size_t ask(int port, const unsigned char *bytes, size_t count,
                  unsigned char answer[DATAGRAM], int within_ms) {
  const struct sockaddr_in to = loopback(port);
  struct pollfd wait = {.fd = socket(AF_INET, SOCK_DGRAM, 0), .events = POLLIN};
  cr_assert_eq(connect(wait.fd, (const struct sockaddr *)&to, sizeof to), 0);
  cr_assert_eq(send(wait.fd, bytes, count, 0), (ssize_t)count);
  const ssize_t got =
      poll(&wait, 1, within_ms) == 1 ? recv(wait.fd, answer, DATAGRAM, MSG_DONTWAIT) : 0;
  (void)close(wait.fd);
  return got > 0 ? (size_t)got : 0;
}

/* A question (kind 1), or the one datagram of a train (kind 4); the proof lies at 44 and covers
 * what is there beside it, but for a train's index and a reply's time, and the checksum. */
static void write_question(unsigned char d[1400], int kind, const group *g, uint64_t sequence) {
  unsigned char proof[32];
  memset(d, 0, 1400);
  memcpy(d, "WEID", 4);
  put(d + 4, WIRE_VERSION, 2);
  put(d + 6, (uint64_t)kind, 2);
  put(d + 8, g->job, 8);
  put(d + 16, sequence, 8);
  put(d + 52, 1, 4); /* from rank 1 */
  put(d + 58, kind == 4, 2);
  prove(group_key, "weir datagram", d, DATAGRAM, NULL, 0, NULL, 0, proof);
  memcpy(d + 44, proof, 8);
  seal(d, DATAGRAM);
}

/* Who does not know the group's key is not answered, and its trains are not looked at. */
Test(datagrams, strangers_are_not_answered) {
  unsigned char d[1400], answer[DATAGRAM], proof[32], bytes[FRAME + PAYLOAD + TRAILER];
  int port = 0;
  group g;
  start_zero(&g);
  const int fd = enrol(&g, &port);
  for (int train = 0; train < 2; train++) {
    const int kind = train ? 4 : 1;
    const size_t length = train ? sizeof d : DATAGRAM;
    for (int at = 44; at < 52; at++) {
      write_question(d, kind, &g, 1000 + (uint64_t)at);
      d[at] ^= 1;
      seal(d, DATAGRAM);
      cr_assert_eq(ask(port, d, length, answer, 50), 0, "kind %d, byte %d", kind, at);
    }
    write_question(d, kind, &g, 77);
    cr_assert_eq(ask(port, d, length, answer, 20000), DATAGRAM, "kind %d", kind);
    cr_assert_eq(get(answer + 6, 2), train ? 5 : 2);
    cr_assert_eq(get(answer + 16, 8), 77);
    cr_assert_eq(get(answer + 52, 4), 0);
    /* And the answer is proved likewise. */
    const uint64_t said = get(answer + 44, 8);
    memset(answer + 44, 0, 8);
    memset(answer + 60, 0, 4);
    if (!train) memset(answer + 32, 0, 8);
    prove(group_key, "weir datagram", answer, DATAGRAM, NULL, 0, NULL, 0, proof);
    cr_assert_eq(said, get(proof, 8));
  }
  write_frame(bytes, 1, PAYLOAD);
  payload(bytes);
  send_all(fd, bytes, sizeof bytes);
  end_zero(&g, WEIR_OK, NULL);
  (void)close(fd);
}

/* A good one ends the group at once; a reason it does not know reads as a rank that is gone. */
Test(datagrams, an_abort_is_heard) {
  const struct {
    uint32_t reason;
    weir_status status;
  } cases[] = {{WEIR_E_PEER, WEIR_E_PEER},
               {WEIR_E_TIMEOUT, WEIR_E_TIMEOUT},
               {WEIR_E_MISMATCH, WEIR_E_MISMATCH},
               {WEIR_E_PROTOCOL, WEIR_E_PROTOCOL},
               {0, WEIR_E_PEER},
               {77777, WEIR_E_PEER}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    unsigned char d[DATAGRAM];
    int port = 0;
    group g;
    start_zero(&g);
    const int fd = enrol(&g, &port);
    write_datagram(d, 3, g.job, 1, cases[i].reason, 1);
    to_echo_port(port, d, sizeof d);
    end_zero(&g, cases[i].status, "rank 1");
    (void)close(fd);
  }
}

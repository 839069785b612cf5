/* Registrations and tables of ranks that are damaged, of another version, job or size. */
#include <netinet/tcp.h>

#include "wire_bytes.h"

/* --- registrations -------------------------------------------------------------------------- */

static void turned_away(const group *g, const unsigned char *hello, uint32_t why) {
  unsigned char answer[HELLO];
  const int fd = dial(g->where);
  send_all(fd, hello, HELLO);
  cr_assert_eq(receive(fd, answer, sizeof answer), sizeof answer, "no refusal (%u)", why);
  cr_assert_eq(get(answer + 6, 2), REFUSED);
  cr_assert_eq(get(answer + 28, 4), why, "refused for %u instead of %u",
               (unsigned)get(answer + 28, 4), why);
  cr_assert_eq(get(answer + 92, 4), checksum(answer, 92));
  (void)close(fd);
}

Test(registrations, that_do_not_fit_are_told_why) {
  unsigned char hello[HELLO], bytes[FRAME + PAYLOAD + TRAILER];
  group g;
  start_zero(&g);
  greeting other = registration(&g);
  other.version = WIRE_VERSION + 1;
  write_hello(hello, other);
  turned_away(&g, hello, VERSION);
  other = registration(&g);
  other.more_streams = 1;
  write_hello(hello, other);
  turned_away(&g, hello, STREAMS);
  other = registration(&g);
  other.kind = MESH;
  write_hello(hello, other);
  turned_away(&g, hello, GARBAGE);
  other = registration(&g);
  other.job++;
  write_hello(hello, other);
  turned_away(&g, hello, JOB);
  const uint32_t sizes[] = {0, 1, 3, UINT32_MAX};
  for (int i = 0; i < 4; i++) {
    other = registration(&g);
    other.size = sizes[i];
    write_hello(hello, other);
    turned_away(&g, hello, SIZE);
  }
  const uint32_t ranks[] = {0, 2, 0x80000001u, UINT32_MAX};
  for (int i = 0; i < 4; i++) {
    other = registration(&g);
    other.rank = ranks[i];
    write_hello(hello, other);
    turned_away(&g, hello, RANK);
  }
  write_hello(hello, registration(&g));
  hello[20] ^= 1; /* the checksum no longer fits */
  turned_away(&g, hello, GARBAGE);
  /* None of them has done harm. */
  const int fd = enrol(&g, NULL);
  write_frame(bytes, 1, PAYLOAD);
  payload(bytes);
  send_all(fd, bytes, sizeof bytes);
  end_zero(&g, WEIR_OK, NULL);
  (void)close(fd);
}

/* --- a rank of ours, rank 0 of the test's --------------------------------------------------- */

typedef struct zero {
  group g;
  int listener, fd;
  unsigned char said[2 * HELLO]; /* its hello and the test's challenge */
} zero;

static weir_status no_body(weir_transport *t, void *user) {
  (void)t;
  (void)user;
  return WEIR_OK;
}

/* Rank `size` - 1 registers with the test. */
static void start_other(zero *z, int size, double timeout_s) {
  unsigned char hello[HELLO];
  const int one = 1, rank = size - 1;
  group_init(&z->g, GROUP_TCP, size, no_body, NULL);
  z->g.prepare = before_it_joins;
  z->g.timeout_s = timeout_s;
  z->listener = socket(AF_INET, SOCK_STREAM, 0);
  const struct sockaddr_in at = loopback(atoi(strchr(z->g.where, ':') + 1));
  (void)setsockopt(z->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  cr_assert_eq(bind(z->listener, (const struct sockaddr *)&at, sizeof at), 0);
  cr_assert_eq(listen(z->listener, 8), 0);
  (void)fflush(NULL);
  z->g.pid[0] = fork();
  cr_assert_geq(z->g.pid[0], 0);
  if (z->g.pid[0] == 0) {
    (void)close(z->listener);
    (void)alarm(GROUP_WATCHDOG_S);
    group_rank(&z->g, rank);
    _exit(0);
  }
  z->fd = accept(z->listener, NULL, NULL);
  cr_assert_geq(z->fd, 0);
  cr_assert_eq(receive(z->fd, hello, sizeof hello), sizeof hello);
  memcpy(z->said, hello, HELLO);
  cr_assert_eq(get(hello + 6, 2), REGISTER);
  cr_assert_eq(get(hello + 16, 4), size);
  cr_assert_eq(get(hello + 20, 4), rank);
  cr_assert_eq(get(hello + 92, 4), checksum(hello, 92));
}

/* Challenge it, and check its proof. */
static void challenge(zero *z) {
  unsigned char proof[HELLO], key[32], due_proof[32];
  write_hello(z->said + HELLO, (greeting){.version = WIRE_VERSION,
                                          .kind = CHALLENGE,
                                          .job = z->g.job,
                                          .size = (uint32_t)z->g.size,
                                          .nonce = 7});
  send_all(z->fd, z->said + HELLO, HELLO);
  cr_assert_eq(receive(z->fd, proof, sizeof proof), sizeof proof);
  cr_assert_eq(get(proof + 6, 2), PROOF);
  job_key(z->g.job, key);
  prove(key, "weir caller", z->said, sizeof z->said, NULL, 0, NULL, 0, due_proof);
  cr_assert_eq(memcmp(proof + PROOF_AT, due_proof, 32), 0);
}

static void end_other(zero *z, weir_status status, const char *said) {
  const int rank = z->g.size - 1;
  (void)waitpid(z->g.pid[0], NULL, 0);
  const group_result *r = &z->g.result[rank];
  cr_assert_eq(r->status, status, "%s instead of %s: %s", weir_status_name(r->status),
               weir_status_name(status), r->message);
  if (said) cr_assert(strstr(r->message, said) != NULL, "no \"%s\" in: %s", said, r->message);
  (void)close(z->fd);
  (void)close(z->listener);
  group_done(&z->g);
}

static greeting table_of(const zero *z, const unsigned char *table) {
  return (greeting){.version = WIRE_VERSION,
                    .kind = TABLE,
                    .job = z->g.job,
                    .size = (uint32_t)z->g.size,
                    .detail = checksum(table, z->g.size * ENTRY)};
}

/* Addresses 127.0.0.1, data ports as given. */
static void write_table(unsigned char *to, int size, int port) {
  memset(to, 0, (size_t)size * ENTRY);
  for (int r = 0; r < size; r++) {
    put(to + r * ENTRY, htonl(INADDR_LOOPBACK), 4);
    put(to + r * ENTRY + 4, htons((uint16_t)port), 2);
    put(to + r * ENTRY + 6, htons(9), 2);
  }
}

/* With a good proof. */
static void answer(zero *z, greeting h, const unsigned char *table) {
  unsigned char bytes[HELLO], key[32], text[256];
  challenge(z);
  write_hello(bytes, h);
  memcpy(text, bytes, PROOF_AT);
  if (table) memcpy(text + PROOF_AT, table, (size_t)z->g.size * ENTRY);
  job_key(z->g.job, key);
  prove(key, "weir host", z->said, sizeof z->said, text,
        PROOF_AT + (table ? (size_t)z->g.size * ENTRY : 0), NULL, 0, h.proof);
  write_hello(bytes, h);
  send_all(z->fd, bytes, sizeof bytes);
  if (table) send_all(z->fd, table, (size_t)z->g.size * ENTRY);
}

static void answered(zero *z, greeting h, weir_status status, const char *said) {
  answer(z, h, NULL);
  end_other(z, status, said);
}

Test(tables, a_good_one_is_taken) {
  zero z;
  unsigned char table[2 * ENTRY];
  start_other(&z, 2, 20.0);
  write_table(table, 2, 9);
  answer(&z, table_of(&z, table), table);
  end_other(&z, WEIR_OK, NULL);
}

Test(tables, that_are_damaged_or_not_ours) {
  unsigned char table[2 * ENTRY], hello[HELLO];
  zero z;
  for (int at = 0; at < 2 * ENTRY; at++) {
    start_other(&z, 2, 20.0);
    write_table(table, 2, 9);
    const greeting h = table_of(&z, table);
    table[at] ^= 4;
    answer(&z, h, table);
    end_other(&z, WEIR_E_PROTOCOL, "rank 0's table of ranks is damaged");
  }
  for (int at = 0; at < HELLO; at += 3) {
    start_other(&z, 2, 20.0);
    write_table(table, 2, 9);
    write_hello(hello, table_of(&z, table));
    hello[at] ^= 64;
    challenge(&z);
    send_all(z.fd, hello, sizeof hello);
    end_other(&z, WEIR_E_PROTOCOL, "who listens at the rendezvous is not rank 0 of ours");
  }
  const uint32_t sizes[] = {0, 1, 3, UINT32_MAX};
  for (int i = 0; i < 4; i++) {
    start_other(&z, 2, 20.0);
    write_table(table, 2, 9);
    greeting h = table_of(&z, table);
    h.size = sizes[i];
    answered(&z, h, WEIR_E_PROTOCOL, "rank 0 answered a registration with something else");
  }
  start_other(&z, 2, 20.0);
  greeting h = table_of(&z, table);
  h.job++;
  answered(&z, h, WEIR_E_PROTOCOL, "rank 0 answered a registration with something else");
  start_other(&z, 2, 20.0);
  h = table_of(&z, table);
  h.version = WIRE_VERSION + 1;
  answered(&z, h, WEIR_E_PROTOCOL, "who listens at the rendezvous is not rank 0 of ours");
}

Test(tables, refusals_of_every_kind) {
  static const struct {
    uint32_t detail;
    weir_status status;
    const char *said;
  } refusals[] = {
      {0, WEIR_E_MISMATCH, "it does not say why"},
      {GARBAGE, WEIR_E_MISMATCH, "it does not speak our protocol"},
      {VERSION, WEIR_E_MISMATCH, "it is of another version"},
      {JOB, WEIR_E_MISMATCH, "it belongs to another job"},
      {SIZE, WEIR_E_MISMATCH, "it expects another number of ranks"},
      {RANK, WEIR_E_INVALID, "its rank is taken or does not belong here"},
      {SECRET, WEIR_E_MISMATCH, "it does not know this job's secret"},
      {STREAMS, WEIR_E_MISMATCH, "it expects another number of streams"},
      {USER, WEIR_E_MISMATCH, "it is another user's"},
      {TLS, WEIR_E_MISMATCH, "one of the two encrypts its messages and the other does not"},
      {OFFER, WEIR_E_MISMATCH, "it has registered other tensors or state than the group"},
      {11, WEIR_E_MISMATCH, "it does not say why"},
      {UINT32_MAX, WEIR_E_MISMATCH, "it does not say why"},
  };
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    zero z;
    start_other(&z, 2, 20.0);
    answered(&z,
             (greeting){.version = WIRE_VERSION,
                        .kind = REFUSED,
                        .job = z.g.job,
                        .size = 2,
                        .detail = refusals[i].detail},
             refusals[i].status, refusals[i].said);
  }
}

/* Rank 0 goes away before it answers, or names a place where nobody is. */
Test(tables, that_lead_nowhere) {
  zero z;
  unsigned char table[3 * ENTRY];
  start_other(&z, 2, 0.5);
  (void)shutdown(z.fd, SHUT_RDWR);
  end_other(&z, WEIR_E_TIMEOUT, "rank 0");
  start_other(&z, 2, 0.5); /* with its challenge comes its end: that is no other user's */
  const int together = 1;
  unsigned char hello[HELLO];
  write_hello(
      hello,
      (greeting){
          .version = WIRE_VERSION, .kind = CHALLENGE, .job = z.g.job, .size = 2, .nonce = 7});
  (void)setsockopt(z.fd, IPPROTO_TCP, TCP_CORK, &together, sizeof together);
  send_all(z.fd, hello, sizeof hello);
  (void)close(z.fd);
  z.fd = -1;
  end_other(&z, WEIR_E_TIMEOUT, "rank 0");
  start_other(&z, 2, 0.5); /* stopped until its time is up, and then told to wait */
  (void)kill(z.g.pid[0], SIGSTOP);
  write_hello(hello, (greeting){.version = WIRE_VERSION, .kind = WAIT, .job = z.g.job, .size = 2});
  send_all(z.fd, hello, sizeof hello);
  group_nap(0.6);
  (void)kill(z.g.pid[0], SIGCONT);
  end_other(&z, WEIR_E_TIMEOUT, "rank 0");
  const int nobody = free_port();
  start_other(&z, 3, 0.5);
  write_table(table, 3, nobody);
  answer(&z, table_of(&z, table), table);
  end_other(&z, WEIR_E_TIMEOUT, "rank 1 could not be reached at 127.0.0.1");
}

/* --- another user, who does not look whose the other end is ---------------------------------- */

static void become_nobody(group *g, int rank) {
  static const uid_t nobody = 65534;
  (void)g, (void)rank;
  if (setresuid(nobody, nobody, nobody) != 0) _exit(1);
}

/* Without a secret anybody can make the proof up; rank 0 of ours, of another user than this test,
 * lets it in no further all the same. */
Test(users, who_registers_is_refused_whatever_it_proves) {
  unsigned char said[2 * HELLO], answer[HELLO];
  if (geteuid() != 0) cr_skip_test("only root can be two users");
  group g;
  before_it_joins = become_nobody;
  patience_s = 2.0;
  start_zero(&g);
  const int fd = introduce(&g, registration(&g), said);
  receive_verdict(fd, answer);
  cr_assert_eq(get(answer + 6, 2), REFUSED);
  cr_assert_eq(get(answer + 28, 4), USER, "refused for %u", (unsigned)get(answer + 28, 4));
  (void)close(fd);
  (void)kill(g.pid[0], SIGKILL); /* it waits for its own rank 1 */
  (void)waitpid(g.pid[0], NULL, 0);
  group_done(&g);
}

/* And a rank of ours proves nothing to a rank 0 that is another user's. */
Test(users, who_listens_gets_no_proof) {
  zero z;
  unsigned char message[HELLO];
  if (geteuid() != 0) cr_skip_test("only root can be two users");
  before_it_joins = become_nobody;
  start_other(&z, 2, 5.0);
  greeting own = registration(&z.g);
  own.kind = CHALLENGE;
  own.rank = 0;
  write_hello(message, own);
  send_all(z.fd, message, HELLO);
  cr_assert_eq(receive(z.fd, message, 1), 0, "it goes on");
  (void)waitpid(z.g.pid[0], NULL, 0);
  cr_assert_eq(z.g.result[1].status, WEIR_E_PROTOCOL, "%s", z.g.result[1].message);
  cr_assert_not_null(strstr(z.g.result[1].message, "another user"), "%s", z.g.result[1].message);
  (void)close(z.fd);
  (void)close(z.listener);
  group_done(&z.g);
}

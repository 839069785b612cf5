/* libFuzzer: what is said before ranks are a group.  The first byte says which part of a
 * conversation the input is a program for:
 *   - strangers at a meeting, of survivors or of those who want to join: connect, say anything,
 *     prove or not, hang up, in any order;
 *   - a host that answers a rank of ours, at a meeting or with the table of ranks;
 *   - what survivors say about who they are.
 * Messages are bytes as they are, or well formed but for what the program changes in them.  Nobody
 * gets in without a proof, and no descriptor is left behind. */
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* For what it keeps to itself: how a rank reads rank 0's answers. */
#include "collectives/transports/tcp_rendezvous.c"
#include "collectives/transports/tcp_word.h"
#include "demand.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define RANKS 5
#define OWN 2 /* hears 3 and 4, calls 0 and 1 */
#define CLIENTS 3

static tcp self;
static tcp_peer peers[RANKS];
static int door;
static struct sockaddr_un door_name = {.sun_family = AF_UNIX};

/* Nonces are the same in every run: a program's effect is its own. */
ssize_t getrandom(void *to, size_t bytes, unsigned flags) {
  (void)flags;
  memset(to, 0x5a, bytes);
  return (ssize_t)bytes;
}

typedef struct program {
  const uint8_t *at;
  size_t left;
} program;

static uint8_t next(program *p) {
  if (p->left == 0) return 0;
  p->left--;
  return *p->at++;
}

/* Overwrite some bytes of a block with the program's. */
static void change(program *p, void *block, size_t bytes) {
  const size_t count = next(p) % 8;
  unsigned char *to = block;
  for (size_t i = 0; i < count; i++) {
    const size_t at = next(p) % bytes;
    to[at] = next(p);
  }
}

static void say(int fd, const void *data, size_t bytes) {
  if (bytes > 0) (void)send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say_anything(program *p, int fd) {
  const size_t wanted = next(p), count = wanted < p->left ? wanted : p->left;
  say(fd, p->at, count);
  p->at += count;
  p->left -= count;
}

/* --- strangers at a meeting ----------------------------------------------------------------- */

typedef struct client {
  int fd; /* -1: none */
  tcp_hello hello, challenge;
  bool proved;
} client;

static void greet(program *p, client *c, int kind) {
  c->hello = tcp_compose(&self, kind, self.generation);
  c->hello.rank = htole32(kind == HELLO_JOIN ? 0 : 3 + (uint32_t)next(p) % 2);
  if (kind == HELLO_JOIN) c->hello.size = 0; /* nothing is asked for */
  change(p, &c->hello, sizeof c->hello);
  if (next(p) < 240) tcp_hello_seal(&c->hello);
  say(c->fd, &c->hello, sizeof c->hello);
}

static void prove(program *p, client *c, bool right) {
  tcp_hello proof = tcp_compose(&self, HELLO_PROOF, self.generation);
  if (recv(c->fd, &c->challenge, sizeof c->challenge, MSG_DONTWAIT) != (ssize_t)sizeof c->challenge)
    return;
  tcp_prove_caller(&self.key, &c->hello, &c->challenge, proof.proof);
  const tcp_hello good = proof;
  if (!right) change(p, proof.proof, sizeof proof.proof);
  if (!right && memcmp(&proof, &good, sizeof proof) == 0) proof.proof[0] ^= 1;
  tcp_hello_seal(&proof);
  say(c->fd, &proof, sizeof proof);
  c->proved = c->proved || right;
}

static void hang_up(client *c) {
  if (c->fd >= 0) (void)close(c->fd);
  *c = (client){.fd = -1};
}

static void act(program *p, client *c, int kind) {
  const uint8_t what = next(p);
  if (c->fd < 0) {
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (connect(c->fd, (const struct sockaddr *)&door_name, sizeof door_name) != 0) hang_up(c);
    return;
  }
  switch (what % 6) {
    case 0: say_anything(p, c->fd); break;
    case 1: greet(p, c, kind); break;
    case 2: prove(p, c, true); break;
    case 3: prove(p, c, false); break;
    case 4: (void)shutdown(c->fd, SHUT_WR); break;
    default: hang_up(c); break;
  }
}

/* Who has proved itself says that it is here, or anything else. */
static void say_here(program *p, const client *c) {
  tcp_hello h = tcp_compose(&self, HELLO_HERE, next(p));
  if (next(p) % 2) change(p, &h, sizeof h);
  if (c->fd >= 0) say(c->fd, &h, sizeof h);
}

static void feed_strangers(program *p, int kind) {
  client c[CLIENTS];
  tcp_meeting *m = NULL;
  bool proved = false;
  for (int i = 0; i < CLIENTS; i++) c[i] = (client){.fd = -1};
  if (tcp_meeting_open(&m, &self, door, kind, self.generation) != WEIR_OK) abort();
  m->logged = ~0U; /* nothing is logged */
  weir_status status = WEIR_OK;
  while (p->left > 0 && status == WEIR_OK && m->missing > 0) {
    client *one = &c[next(p) % CLIENTS];
    act(p, one, kind);
    if (kind == HELLO_JOIN && next(p) % 4 == 0) say_here(p, one);
    proved = proved || one->proved;
    for (int turns = 0; turns < 3 && status == WEIR_OK; turns++) status = tcp_meeting_turn(m, 0);
    demand(status == WEIR_OK, "a stranger ended the meeting");
    demand(m->guests <= TCP_STRANGERS, "too many guests");
    for (int i = 0; i < m->guests; i++)
      demand(m->guest[i].due < GUEST_JOINER || (kind == HELLO_JOIN && proved),
             "lets somebody wait without a proof");
    for (int r = 0; r < RANKS; r++)
      demand(m->arrival[r].fd < 0 || (r > OWN && proved), "let in somebody without a proof");
  }
  for (int i = 0; i < CLIENTS; i++) hang_up(&c[i]);
  tcp_meeting_close(m);
  for (int fd; (fd = accept(door, NULL, NULL)) >= 0;) (void)close(fd);
}

/* --- hosts ---------------------------------------------------------------------------------- */

static tcp_hello answer(program *p, int kind, const tcp_hello *hello, const tcp_hello *challenge,
                        bool *proved) {
  tcp_hello h = tcp_compose(&self, kind, self.generation);
  h.rank = htole32(next(p) % RANKS);
  if (kind == HELLO_REFUSED) h.detail = htole32(next(p));
  change(p, &h, sizeof h);
  if (kind == HELLO_WELCOME && next(p) % 2) {
    tcp_prove_host(&self.key, hello, challenge, &h, NULL, 0, h.proof);
    *proved = true;
  }
  if (next(p) < 240) tcp_hello_seal(&h);
  return h;
}

/* This rank has called somebody who listens in place of rank 1. */
static void feed_host(program *p) {
  static const int kinds[] = {HELLO_CHALLENGE, HELLO_WELCOME, HELLO_REFUSED, HELLO_MESH};
  int pair[2];
  bool proved = false;
  tcp_meeting *m = NULL;
  tcp_hello hello = {0}, challenge = {0};
  if (tcp_meeting_open(&m, &self, door, HELLO_REJOIN, self.generation) != WEIR_OK) abort();
  m->logged = ~0U;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) abort();
  tcp_meeting_call(m, 1, pair[0]);
  (void)recv(pair[1], &hello, sizeof hello, MSG_DONTWAIT);
  weir_status status = WEIR_OK;
  for (int i = 0; i < 8 && p->left > 0 && status == WEIR_OK; i++) {
    const uint8_t what = next(p);
    if (what % 5 == 4) {
      say_anything(p, pair[1]);
    } else {
      const tcp_hello h = answer(p, kinds[what % 5], &hello, &challenge, &proved);
      if (kinds[what % 5] == HELLO_CHALLENGE) challenge = h;
      say(pair[1], &h, sizeof h);
    }
    for (int turns = 0; turns < 2 && status == WEIR_OK; turns++) status = tcp_meeting_turn(m, 0);
    demand(status == WEIR_OK || status == WEIR_E_PROTOCOL || status == WEIR_E_PEER,
           "a host's status");
  }
  demand(m->arrival[1].fd < 0 || proved, "took a host that has proved nothing");
  (void)close(pair[1]);
  tcp_meeting_close(m);
}

/* Rank 0, or who listens in its place, answers a registration. */
static void feed_table(program *p) {
  tcp_table_entry table[RANKS];
  int pair[2];
  bool known = false, right = next(p) % 2;
  const tcp_hello hello = tcp_compose(&self, HELLO_REGISTER, 0);
  tcp_hello challenge = tcp_compose(&self, HELLO_CHALLENGE, 0);
  tcp_hello h = tcp_compose(&self, HELLO_TABLE, 0);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) abort();
  change(p, &challenge, sizeof challenge);
  if (next(p) < 240) tcp_hello_seal(&challenge);
  memset(table, next(p), sizeof table);
  h.detail = htole32(tcp_checksum(table, sizeof table));
  if (next(p) % 4 == 0) change(p, &h, sizeof h);
  if (right) tcp_prove_host(&self.key, &hello, &challenge, &h, table, sizeof table, h.proof);
  tcp_table_entry proved[RANKS];
  memcpy(proved, table, sizeof table);
  if (next(p) % 4 == 0) change(p, table, sizeof table);
  const bool other = memcmp(table, proved, sizeof table) != 0;
  if (next(p) < 240) tcp_hello_seal(&h);
  say(pair[1], &challenge, sizeof challenge);
  say(pair[1], &h, sizeof h);
  say(pair[1], table, next(p) < 240 ? sizeof table : p->left % sizeof table);
  (void)shutdown(pair[1], SHUT_WR);
  int missing = -1;
  const weir_status status = introduce(&self, pair[0], weir_now_s() + 5.0, &known, &missing);
  /* WEIR_E_TIMEOUT: rank 0 says which rank has not come. */
  demand(status == WEIR_OK || status == WEIR_E_PROTOCOL || status == WEIR_E_MISMATCH ||
             status == WEIR_E_INVALID || status == WEIR_E_TIMEOUT,
         "an introduction's status");
  demand(status != WEIR_OK || !known || (right && !other), "took a table that proves nothing");
  (void)close(pair[0]);
  (void)close(pair[1]);
}

/* --- survivors ------------------------------------------------------------------------------ */

/* Takes what this rank says, and looks whether it could be said to it. */
static void answer_word(void *user, int to, const synod_word *word) {
  unsigned char bytes[TCP_WORD_MAX];
  synod_word same;
  demand(to >= 0 && to < RANKS && to != OWN, "says something to nobody");
  tcp_word_write(bytes, self.generation, RANKS, word);
  demand(tcp_word_read(bytes, self.generation, RANKS, &same) && same.kind == word->kind &&
             same.ballot == word->ballot && same.other == word->other,
         "says what cannot be read");
  (*(int *)user)++;
}

static void feed_words(program *p) {
  weir_synod s;
  int said = 0;
  const synod_post post = {answer_word, &said};
  weir_synod_begin(&s, OWN, RANKS);
  for (int turn = 0; turn < 40 && p->left > 0; turn++) {
    const int from = next(p) % RANKS;
    switch (next(p) % 8) {
      case 0: weir_synod_propose(&s, &post); break;
      case 1: weir_synod_hurry(&s, &post); break;
      case 2:
        if (from != OWN) weir_synod_bury(&s, from, &post);
        break;
      case 3:
        if (from != OWN) weir_synod_meet(&s, from, &post);
        break;
      default: break;
    }
    synod_word word = {.kind = next(p) % 8,
                       .ballot = (uint64_t)(next(p) % 4) << 16 | next(p) % 6,
                       .other = (uint64_t)(next(p) % 4) << 16 | next(p) % 6,
                       .members = {{next(p) % 64}},
                       .dead = {{next(p) % 64}}};
    unsigned char bytes[TCP_WORD_MAX];
    tcp_word_write(bytes, self.generation, RANKS, &word);
    change(p, bytes, tcp_word_bytes(RANKS));
    const bool decided = s.decided;
    const weir_ranks members = s.members;
    if (tcp_word_read(bytes, self.generation, RANKS, &word))
      (void)weir_synod_hear(&s, from, &word, &post);
    demand(!decided || memcmp(&members, &s.members, sizeof members) == 0, "decides twice");
    demand(!s.decided || weir_synod_quorum(&s.members, &s.dead, RANKS) || decided, "too few go on");
    demand(s.members.word[0] >> RANKS == 0, "goes on with nobody");
  }
}

/* --- a hello by itself ---------------------------------------------------------------------- */

static void feed_hello(const uint8_t *data, size_t size) {
  const tcp_terms terms = {
      .job = 7, .generation = 1, .size = 5, .kind = HELLO_MESH, .first = 2, .end = 5, .streams = 1};
  tcp_hello hello = {0};
  memcpy(&hello, data, size < sizeof hello ? size : sizeof hello);
  for (int sealed = 0; sealed < 2; sealed++) {
    const size_t bytes = sealed || size > sizeof hello ? sizeof hello : size;
    if (sealed) tcp_hello_seal(&hello);
    const int reason = tcp_hello_judge(&hello, bytes, &terms);
    demand(reason >= REFUSE_NOT && reason <= REFUSE_EARLY, "reason");
    if (reason != REFUSE_NOT || bytes < sizeof hello) continue;
    const uint32_t rank = le32toh(hello.rank);
    demand(rank >= 2 && rank < 5 && le64toh(hello.job) == 7 && le32toh(hello.size) == 5 &&
               le64toh(hello.generation) == 1 && tcp_hello_is(&hello, HELLO_MESH),
           "let in somebody it should not");
  }
}

/* --- */

static int lowest_free(void) {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  (void)close(fd);
  return fd;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  self.base.size = RANKS;
  self.base.rank = OWN;
  self.job = 7;
  self.streams = 1;
  self.generation = 4;
  self.peer = peers;
  self.secret = true; /* its ends are no sockets whose user the kernel could tell */
  memset(self.key.bytes, 0x42, sizeof self.key.bytes);
  (void)snprintf(door_name.sun_path + 1, sizeof door_name.sun_path - 1, "weir-fuzz-%d",
                 (int)getpid());
  door = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (bind(door, (const struct sockaddr *)&door_name, sizeof door_name) != 0 ||
      listen(door, 64) != 0)
    abort();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  program p = {data, size};
  const int first_free = lowest_free();
  feed_hello(data, size);
  switch (next(&p) % 5) {
    case 0: feed_strangers(&p, HELLO_REJOIN); break;
    case 4: feed_strangers(&p, HELLO_JOIN); break;
    case 1: feed_host(&p); break;
    case 2: feed_table(&p); break;
    default: feed_words(&p); break;
  }
  demand(lowest_free() == first_free, "a descriptor is left behind");
  return 0;
}

#include "collectives/transports/tcp_meeting.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/log.h"

#define TABLE_S 0.1 /* for a table to leave, for which there is room in any socket */

void tcp_set_peer(tcp_peer *p, struct in_addr address, in_port_t data, in_port_t echo) {
  p->data = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = data, .sin_addr = address};
  p->echo = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = echo, .sin_addr = address};
  (void)inet_ntop(AF_INET, &address, p->address, sizeof p->address);
}

tcp_hello tcp_compose(const tcp *self, int kind, uint64_t generation) {
  const tcp_peer *own = &self->peer[self->base.rank];
  tcp_hello h = {.kind = htole16((uint16_t)kind),
                 .job = htole64(self->job),
                 .size = htole32((uint32_t)self->base.size),
                 .rank = htole32((uint32_t)self->base.rank),
                 .data_port = own->data.sin_port,
                 .echo_port = own->echo.sin_port,
                 .detail = htole32(self->sealed),
                 .generation = htole64(generation),
                 .streams = htole16((uint16_t)self->streams)};
  tcp_nonce(h.nonce);
  tcp_hello_seal(&h);
  return h;
}

weir_status tcp_meeting_open(tcp_meeting **out, tcp *self, int listener, int kind,
                             uint64_t generation) {
  const int size = self->base.size, rank = self->base.rank;
  tcp_meeting *m = calloc(1, sizeof *m);
  *out = NULL;
  if (m) m->arrival = calloc((size_t)size, sizeof *m->arrival);
  if (!m || !m->arrival) {
    free(m);
    return weir_fail(WEIR_E_NOMEM, "no memory to receive the other ranks");
  }
  m->self = self;
  m->listener = listener;
  m->terms = (tcp_terms){.job = self->job,
                         .generation = generation,
                         .size = (uint32_t)size,
                         .kind = (uint32_t)kind,
                         .first = (uint32_t)rank + 1,
                         .end = (uint32_t)size,
                         .streams = (uint16_t)self->streams,
                         .offer = self->offer};
  m->missing = size - rank - 1;
  for (int r = 0; r < size; r++) m->arrival[r].fd = -1;
  *out = m;
  return WEIR_OK;
}

void tcp_meeting_close(tcp_meeting *m) {
  if (!m) return;
  for (int i = 0; i < m->guests; i++) (void)close(m->guest[i].fd);
  for (int r = 0; r < m->self->base.size; r++)
    if (m->arrival[r].fd >= 0) (void)close(m->arrival[r].fd);
  free(m->arrival);
  free(m);
}

void tcp_meeting_forget(tcp_meeting *m, int i) {
  memmove(&m->guest[i], &m->guest[i + 1], (size_t)(--m->guests - i) * sizeof *m->guest);
}

static void drop(tcp_meeting *m, int i) {
  (void)close(m->guest[i].fd);
  tcp_meeting_forget(m, i);
}

/* A few bytes over a connection on which nothing waits to be sent: all at once, or it has ended. */
static bool tell(const tcp_guest *guest, const tcp_hello *h) {
  return send(guest->fd, h, sizeof *h, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *h;
}

static void refuse(tcp_meeting *m, int i, int reason) {
  const tcp_guest *guest = &m->guest[i];
  if (!(m->logged & 1u << reason)) {
    char text[INET_ADDRSTRLEN] = "?", users[TCP_USERS_MAX] = "";
    (void)inet_ntop(AF_INET, &guest->from.sin_addr, text, sizeof text);
    if (reason == REFUSE_USER) tcp_tell_users(guest->fd, users);
    weir_log(WEIR_LOG_WARN, "rank %d refused a connection from %s: %s%s", m->self->base.rank, text,
             tcp_refusal((uint32_t)reason), users);
    m->logged |= 1u << reason;
  }
  tcp_hello h = tcp_compose(m->self, HELLO_REFUSED, m->terms.generation);
  h.detail = htole32((uint32_t)reason);
  tcp_hello_seal(&h);
  (void)tell(guest, &h);
  drop(m, i);
}

/* Its other end has hung up, or was reset on the way. */
static bool has_ended(int fd) {
  char byte;
  const ssize_t got = recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* A survivor that comes again has given up its last connection; before that, who has lost its first
 * one may come again. */
static bool is_taken(const tcp_meeting *m, int rank) {
  if (m->terms.kind == HELLO_JOIN || m->terms.kind == HELLO_REJOIN) return false;
  return m->arrival[rank].fd >= 0 && !has_ended(m->arrival[rank].fd);
}

static void admit(tcp_meeting *m, int i, int rank, const tcp_hello *ports) {
  const tcp_guest *guest = &m->guest[i];
  tcp_arrival *a = &m->arrival[rank];
  if (a->fd >= 0)
    (void)close(a->fd);
  else
    m->missing--;
  *a = (tcp_arrival){guest->fd,    guest->from.sin_addr, ports->data_port, ports->echo_port,
                     guest->hello, guest->challenge,     ++m->admitted};
  tcp_meeting_forget(m, i);
}

/* --- those who come ------------------------------------------------------------------------- */

/* It goes on to the other members, whom it finds in the table.  Half of the seats are for
 * others. */
static void receive_joiner(tcp_meeting *m, int i) {
  tcp_guest *guest = &m->guest[i];
  int joiners = 0;
  for (int g = 0; g < m->guests; g++) joiners += m->guest[g].due >= GUEST_JOINER;
  guest->due = GUEST_JOINER;
  guest->got = 0;
  if (joiners >= TCP_STRANGERS / 2 ||
      !tcp_tell_table(m->self, guest->fd, &guest->hello, &guest->challenge,
                      tcp_compose(m->self, HELLO_GROUP, m->terms.generation),
                      weir_now_s() + TABLE_S))
    drop(m, i);
}

static void heard_joiner(tcp_meeting *m, int i) {
  tcp_guest *guest = &m->guest[i];
  guest->got = 0;
  if (guest->due == GUEST_JOINER && tcp_hello_is(&guest->said, HELLO_HERE))
    guest->due = GUEST_READY;
  else
    drop(m, i);
}

static void heard_hello(tcp_meeting *m, int i) {
  tcp_guest *guest = &m->guest[i];
  const int rank = (int)le32toh(guest->said.rank);
  if (is_taken(m, rank)) {
    refuse(m, i, REFUSE_RANK);
    return;
  }
  guest->rank = rank;
  guest->hello = guest->said;
  guest->challenge = tcp_compose(m->self, HELLO_CHALLENGE, m->terms.generation);
  guest->due = GUEST_PROOF;
  guest->got = 0;
  if (!tell(guest, &guest->challenge)) drop(m, i);
}

static void heard_proof(tcp_meeting *m, int i) {
  tcp_guest *guest = &m->guest[i];
  const tcp_owner owner = m->self->secret ? TCP_OWN : tcp_owner_of(guest->fd);
  unsigned char proof[WEIR_PROOF_BYTES];
  tcp_prove_caller(&m->self->key, &guest->hello, &guest->challenge, proof);
  if (!tcp_hello_is(&guest->said, HELLO_PROOF)) {
    refuse(m, i, REFUSE_GARBAGE);
  } else if (!weir_proof_equal(proof, guest->said.proof, sizeof proof)) {
    refuse(m, i, REFUSE_SECRET);
  } else if (le32toh(guest->hello.detail) != m->self->sealed) {
    refuse(m, i, REFUSE_TLS);
  } else if (owner == TCP_CLOSED) { /* it has given up meanwhile */
    drop(m, i);
  } else if (owner == TCP_OTHERS) {
    refuse(m, i, REFUSE_USER);
  } else if (is_taken(m, guest->rank)) { /* its double was faster */
    refuse(m, i, REFUSE_RANK);
  } else if (m->terms.kind == HELLO_JOIN) {
    receive_joiner(m, i);
  } else if (m->terms.kind == HELLO_REGISTER) { /* the table will be its welcome */
    admit(m, i, guest->rank, &guest->hello);
  } else {
    tcp_hello h = tcp_compose(m->self, HELLO_WELCOME, m->terms.generation);
    tcp_prove_host(&m->self->key, &guest->hello, &guest->challenge, &h, NULL, 0, h.proof);
    tcp_hello_seal(&h);
    if (tell(guest, &h))
      admit(m, i, guest->rank, &guest->hello);
    else
      drop(m, i);
  }
}

/* --- those this rank calls ------------------------------------------------------------------ */

static bool make_room(tcp_meeting *m);

bool tcp_meeting_has_called(const tcp_meeting *m, int rank) {
  for (int i = 0; i < m->guests; i++)
    if (m->guest[i].due >= GUEST_CHALLENGE && m->guest[i].rank == rank) return true;
  return m->arrival[rank].fd >= 0;
}

bool tcp_meeting_may_call(const tcp_meeting *m) {
  int called = 0;
  for (int i = 0; i < m->guests; i++)
    called += m->guest[i].due == GUEST_CHALLENGE || m->guest[i].due == GUEST_WELCOME;
  return called < TCP_STRANGERS / 2;
}

void tcp_meeting_call(tcp_meeting *m, int rank, int fd) {
  if (!tcp_meeting_may_call(m) || (m->guests == TCP_STRANGERS && !make_room(m))) {
    (void)close(fd);
    return;
  }
  tcp_guest *guest = &m->guest[m->guests++];
  *guest =
      (tcp_guest){.fd = fd, .due = GUEST_CHALLENGE, .rank = rank, .from = m->self->peer[rank].data};
  guest->hello = tcp_compose(m->self, (int)m->terms.kind, m->terms.generation);
  guest->hello.stream = htole16(m->terms.stream);
  tcp_hello_seal(&guest->hello);
  if (!tell(guest, &guest->hello)) drop(m, m->guests - 1);
}

static void heard_challenge(tcp_meeting *m, int i) {
  tcp_guest *guest = &m->guest[i];
  guest->challenge = guest->said;
  guest->due = GUEST_WELCOME;
  guest->got = 0;
  tcp_hello h = tcp_compose(m->self, HELLO_PROOF, m->terms.generation);
  tcp_prove_caller(&m->self->key, &guest->hello, &guest->challenge, h.proof);
  tcp_hello_seal(&h);
  if (!tell(guest, &h)) drop(m, i);
}

/* Nobody can keep a stranger from listening where a rank has died: survivors take it for nobody. */
static weir_status imposter(tcp_meeting *m, int i, const char *what) {
  const int rank = m->guest[i].rank;
  if (m->terms.kind == HELLO_REJOIN) {
    drop(m, i);
    return WEIR_OK;
  }
  return weir_fail(WEIR_E_PROTOCOL, "who listens in place of rank %d %s", rank, what);
}

static weir_status heard_welcome(tcp_meeting *m, int i) {
  const tcp_guest *guest = &m->guest[i];
  const int rank = guest->rank;
  const tcp_hello said = guest->said;
  unsigned char proof[WEIR_PROOF_BYTES];
  tcp_prove_host(&m->self->key, &guest->hello, &guest->challenge, &said, NULL, 0, proof);
  if (!weir_proof_equal(proof, said.proof, sizeof proof) || le32toh(said.rank) != (uint32_t)rank)
    return imposter(m, i, "does not know this job's secret");
  admit(m, i, rank, &said);
  return WEIR_OK;
}

static weir_status heard_host(tcp_meeting *m, int i) {
  const tcp_guest *guest = &m->guest[i];
  const int rank = guest->rank;
  const bool first = guest->due == GUEST_CHALLENGE;
  tcp_owner owner = TCP_OWN;
  if (tcp_hello_is(&guest->said, HELLO_REFUSED) && m->terms.kind != HELLO_REJOIN)
    return tcp_refused(rank, le32toh(guest->said.detail));
  if (!tcp_hello_is(&guest->said, first ? HELLO_CHALLENGE : HELLO_WELCOME))
    return imposter(m, i, "is not of ours");
  if (!first) return heard_welcome(m, i);
  /* While it waits for the proof its socket is its own yet, unless it has given up. */
  if (!m->self->secret) owner = tcp_owner_of(guest->fd);
  if (owner == TCP_CLOSED) {
    drop(m, i);
    return WEIR_OK;
  }
  if (owner == TCP_OTHERS) {
    char what[64 + TCP_USERS_MAX] = "is another user, and this job has no secret";
    tcp_tell_users(guest->fd, what + strlen(what));
    return imposter(m, i, what);
  }
  heard_challenge(m, i);
  return WEIR_OK;
}

/* --- the loop ------------------------------------------------------------------------------- */

/* Reads no further than what is due: behind it come frames. */
static weir_status listen_to(tcp_meeting *m, int i) {
  tcp_guest *guest = &m->guest[i];
  const ssize_t got = recv(guest->fd, (unsigned char *)&guest->said + guest->got,
                           sizeof guest->said - guest->got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return WEIR_OK;
  if (got <= 0) {
    /* One that hangs up in mid-word is no rank of ours; one that has said nothing has
     * done nothing. */
    if (guest->due == GUEST_HELLO && guest->got > 0)
      refuse(m, i, REFUSE_GARBAGE);
    else
      drop(m, i);
    return WEIR_OK;
  }
  guest->got += (size_t)got;
  const int reason =
      guest->due == GUEST_HELLO ? tcp_hello_judge(&guest->said, guest->got, &m->terms) : REFUSE_NOT;
  if (reason == REFUSE_EARLY) {
    drop(m, i);
    return WEIR_OK;
  }
  if (reason != REFUSE_NOT) {
    refuse(m, i, reason);
    return WEIR_OK;
  }
  if (guest->got < sizeof guest->said) return WEIR_OK;
  if (guest->due == GUEST_HELLO)
    heard_hello(m, i);
  else if (guest->due == GUEST_PROOF)
    heard_proof(m, i);
  else if (guest->due >= GUEST_JOINER)
    heard_joiner(m, i);
  else
    return heard_host(m, i);
  return WEIR_OK;
}

/* All seats taken: hear everybody who has come, then let the longest silent go.  It is told
 * nothing, so that a rank of ours that was merely slow tries again. */
static bool make_room(tcp_meeting *m) {
  for (int i = m->guests; i-- > 0;)
    if (m->guest[i].due < GUEST_CHALLENGE) (void)listen_to(m, i); /* only callees can fail it */
  if (m->guests < TCP_STRANGERS) return true;
  for (int due = GUEST_HELLO; due < GUEST_CHALLENGE; due++)
    for (int i = 0; i < m->guests; i++)
      if (m->guest[i].due == due) {
        drop(m, i);
        return true;
      }
  return false;
}

/* Whoever calls waits where nobody comes for it, and the call goes on being told of.  A start ends
 * with that at once; those who live, or are left, have more to do than to hear others. */
static weir_status cannot_accept(tcp_meeting *m, int error) {
  const bool starts = m->terms.kind != HELLO_JOIN && m->terms.kind != HELLO_REJOIN;
  const weir_status status = weir_fail(WEIR_E_IO, "rank %d cannot accept those who call: %s",
                                       m->self->base.rank, strerror(error));
  if (starts) return status;
  if (!m->deaf) weir_log(WEIR_LOG_WARN, "%s", weir_last_error());
  m->deaf = true;
  return WEIR_OK;
}

/* Not more at a time than that those who have come are heard soon, however many call. */
static weir_status accept_all(tcp_meeting *m) {
  for (int i = 0; i < 2 * TCP_STRANGERS; i++) {
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    if (m->guests == TCP_STRANGERS && !make_room(m)) return WEIR_OK;
    const int fd =
        accept4(m->listener, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
      return cannot_accept(m, errno);
    if (fd < 0) return WEIR_OK;
    m->guest[m->guests++] = (tcp_guest){.fd = fd, .due = GUEST_HELLO, .rank = -1, .from = from};
  }
  return WEIR_OK;
}

weir_status tcp_meeting_turn(tcp_meeting *m, double deadline_s) {
  struct pollfd fds[TCP_STRANGERS + 1];
  weir_status status = WEIR_OK;
  const int guests = m->guests;
  fds[guests] = (struct pollfd){.fd = m->listener, .events = POLLIN};
  for (int i = 0; i < guests; i++) fds[i] = (struct pollfd){.fd = m->guest[i].fd, .events = POLLIN};
  (void)tcp_poll_until(fds, (size_t)guests + 1, deadline_s);
  for (int i = guests;
       status == WEIR_OK && i-- > 0;) /* downward: those behind one that leaves move up */
    if (fds[i].revents) status = listen_to(m, i);
  return status == WEIR_OK && fds[guests].revents ? accept_all(m) : status;
}

weir_status tcp_meeting_hold(tcp_meeting *m, double deadline_s) {
  weir_status status = WEIR_OK;
  while (status == WEIR_OK && m->missing > 0 && weir_now_s() < deadline_s)
    status = tcp_meeting_turn(m, deadline_s);
  return status;
}

/* How ranks find each other.  Rank 0 listens where all know; every other rank registers there with
 * the ports it listens on, and the registration stays as the connection between the two.  Rank 0
 * answers with the table of all ranks; then every rank connects to the ranks between 0 and itself
 * and accepts those above.  How each proves to the other that it knows the job's secret is in
 * tcp_hello.h. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/tcp_meeting.h"

#define RETRY_S 0.02
#define TURN_S 1.0  /* for one of several addresses to answer */
#define SLICE_S 0.1 /* how soon a call that was cut off is made again */

static bool is_anywhere(struct in_addr at) { return at.s_addr == htonl(INADDR_ANY); }

static bool is_loopback(struct in_addr at) { return ntohl(at.s_addr) >> 24 == IN_LOOPBACKNET; }

/* The lowest rank that has not come, from 1. */
static int lowest_absent(const tcp_meeting *m) {
  int r = 1;
  while (r + 1 < m->self->base.size && (m->arrival[r].fd >= 0 || r == m->self->base.rank)) r++;
  return r;
}

static weir_status absent(int rank, int from) {
  return weir_fail(WEIR_E_TIMEOUT, "rank %d did not connect to rank %d in time", rank, from);
}

/* A machine's own name often leads to its loopback, which nobody else reaches. */
static weir_status absent_at(int rank, const struct sockaddr_in *at) {
  char text[INET_ADDRSTRLEN] = "?";
  (void)inet_ntop(AF_INET, &at->sin_addr, text, sizeof text);
  return weir_fail(WEIR_E_TIMEOUT,
                   "rank %d did not connect to rank 0 in time, which listens at %s:%u%s", rank,
                   text, ntohs(at->sin_port),
                   is_loopback(at->sin_addr) ? ", where its own machine alone reaches it" : "");
}

weir_status tcp_open_own(tcp *self, struct in_addr address, double deadline_s) {
  tcp_peer *own = &self->peer[self->base.rank];
  tcp_set_peer(own, address, 0, 0);
  const weir_status status = tcp_listen(&own->data, deadline_s, &self->listener);
  return status == WEIR_OK ? tcp_datagram_open(self, &own->echo) : status;
}

void tcp_find_own_address(tcp *self, struct in_addr named) {
  tcp_peer *own = &self->peer[self->base.rank];
  struct in_addr found;
  if (inet_pton(AF_INET, own->address, &found) != 1) return;
  if (!is_anywhere(own->data.sin_addr)) return;
  for (int r = 0; r <= self->base.size; r++) {
    struct sockaddr_in here = {.sin_addr = named};
    socklen_t length = sizeof here;
    if (r < self->base.size &&
        (self->peer[r].fd < 0 ||
         getsockname(self->peer[r].fd, (struct sockaddr *)&here, &length) != 0 ||
         here.sin_family != AF_INET))
      continue;
    if (is_anywhere(found) || (is_loopback(found) && !is_anywhere(here.sin_addr)))
      found = here.sin_addr;
    if (!is_loopback(found) && !is_anywhere(found)) break;
  }
  if (!is_anywhere(found)) (void)inet_ntop(AF_INET, &found, own->address, sizeof own->address);
}

/* --- rank 0 --------------------------------------------------------------------------------- */

bool tcp_tell_table(const tcp *self, int fd, const tcp_hello *hello, const tcp_hello *challenge,
                    tcp_hello h, double deadline_s) {
  const size_t size = (size_t)self->base.size, bytes = size * sizeof(tcp_table_entry);
  tcp_table_entry *table = calloc(size, sizeof *table);
  if (!table) return false;
  for (size_t r = 0; r < size; r++)
    table[r] = (tcp_table_entry){self->peer[r].data.sin_addr, self->peer[r].data.sin_port,
                                 self->peer[r].echo.sin_port};
  h.detail = htole32(tcp_checksum(table, bytes));
  tcp_prove_host(&self->key, hello, challenge, &h, table, bytes, h.proof);
  tcp_hello_seal(&h);
  const bool told =
      tcp_write_all(fd, &h, sizeof h, deadline_s) && tcp_write_all(fd, table, bytes, deadline_s);
  free(table);
  return told;
}

/* Its nonce names the group. */
static weir_status send_table(tcp *self, const tcp_meeting *m, double deadline_s) {
  const tcp_hello h = tcp_compose(self, HELLO_TABLE, 0);
  self->group_key = weir_key_of_group(&self->key, h.nonce, sizeof h.nonce);
  for (int r = 1; r < self->base.size; r++) {
    const tcp_arrival *a = &m->arrival[r];
    if (!tcp_tell_table(self, a->fd, &a->hello, &a->challenge, h, deadline_s))
      return weir_fail(WEIR_E_PEER, "rank %d is gone before the group was complete", r);
  }
  return WEIR_OK;
}

/* Each rank gives up at a time of its own, and shall then know whom the group has waited for. */
static void tell_absent(const tcp_meeting *m, int kind, int *told) {
  const int missing = lowest_absent(m);
  tcp_hello h = tcp_compose(m->self, kind, 0);
  h.detail = htole32((uint32_t)missing);
  tcp_hello_seal(&h);
  for (int r = 1; r < m->self->base.size; r++) {
    const int fd = m->arrival[r].fd;
    if (fd < 0 || told[r] == missing) continue;
    told[r] = missing;
    if (send(fd, &h, sizeof h, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof h)
      (void)shutdown(fd, SHUT_RDWR); /* half of a hello would not be understood */
  }
}

static weir_status hear_all(tcp_meeting *m, const struct sockaddr_in *at, double deadline_s) {
  const size_t size = (size_t)m->self->base.size;
  int *told = calloc(size, sizeof *told);
  if (!told) return weir_fail(WEIR_E_NOMEM, "no memory for %zu ranks", size);
  weir_status status = WEIR_OK;
  while (status == WEIR_OK && m->missing > 0 && weir_now_s() < deadline_s) {
    tell_absent(m, HELLO_WAIT, told);
    status = tcp_meeting_turn(m, deadline_s);
  }
  if (status == WEIR_OK && m->missing > 0) {
    memset(told, 0, size * sizeof *told);
    tell_absent(m, HELLO_ABSENT, told);
    status = absent_at(lowest_absent(m), at);
  }
  free(told);
  return status;
}

/* Where others may join, rank 0 goes on listening where all know it to. */
static weir_status keep_door(tcp *self, const struct sockaddr_in *at, int door) {
  tcp_peer *own = &self->peer[self->base.rank];
  self->listener = door;
  tcp_set_peer(own, at->sin_addr, at->sin_port, 0);
  return tcp_datagram_open(self, &own->echo);
}

static weir_status host(tcp *self, struct sockaddr_in at, double deadline_s) {
  int door = self->door > 0 ? self->door : -1; /* only for the rendezvous */
  tcp_meeting *m = NULL;
  weir_status status = WEIR_OK;
  self->door = 0;
  if (door < 0)
    status = tcp_listen(&at, deadline_s, &door);
  else if (fcntl(door, F_SETFL, O_NONBLOCK) != 0)
    status = weir_fail(WEIR_E_IO, "the listener cannot be used: %s", strerror(errno));
  if (status == WEIR_OK && self->most > 0)
    status = keep_door(self, &at, door);
  else if (status == WEIR_OK)
    status = tcp_open_own(self, at.sin_addr, deadline_s);
  if (status == WEIR_OK) status = tcp_meeting_open(&m, self, door, HELLO_REGISTER, 0);
  if (status == WEIR_OK) status = hear_all(m, &at, deadline_s);
  for (int r = 1; status == WEIR_OK && r < self->base.size; r++)
    tcp_set_peer(&self->peer[r], m->arrival[r].address, m->arrival[r].data_port,
                 m->arrival[r].echo_port);
  if (status == WEIR_OK) status = send_table(self, m, deadline_s);
  for (int r = 1; status == WEIR_OK && r < self->base.size; r++) {
    self->peer[r].fd = m->arrival[r].fd;
    m->arrival[r].fd = -1;
  }
  tcp_meeting_close(m);
  if (door >= 0 && door != self->listener) (void)close(door);
  return status;
}

/* --- the other ranks ------------------------------------------------------------------------ */

/* The first of these to be there; each is tried in turn, as one may swallow what it is sent. */
static weir_status reach_any(const tcp_places *to, const struct sockaddr_in *from, int rank,
                             double deadline_s, int *fd) {
  while (weir_now_s() < deadline_s) {
    for (size_t i = 0; i < to->count; i++) {
      const double turn_s = weir_now_s() + TURN_S;
      const double until_s = to->count > 1 && turn_s < deadline_s ? turn_s : deadline_s;
      const weir_status status = tcp_connect_once(&to->at[i], from, until_s, fd);
      if (status != WEIR_OK || *fd >= 0) return status;
    }
    tcp_sleep(RETRY_S);
  }
  char text[INET_ADDRSTRLEN] = "?";
  (void)inet_ntop(AF_INET, &to->at[0].sin_addr, text, sizeof text);
  return weir_fail(WEIR_E_TIMEOUT, "rank %d could not be reached at %s:%u%s in time", rank, text,
                   ntohs(to->at[0].sin_port),
                   to->count > 1 ? ", or where else its name leads," : "");
}

static weir_status reach(const struct sockaddr_in *to, const struct sockaddr_in *from, int rank,
                         double deadline_s, int *fd) {
  return reach_any(&(tcp_places){.at = {*to}, .count = 1}, from, rank, deadline_s, fd);
}

/* Read a message of rank 0; *missing: whom it waits for, as far as it has said.  WEIR_OK with
 * *known false: the connection ended, and may be tried again. */
static weir_status hear(int fd, int kind, tcp_hello *h, double deadline_s, bool *known,
                        int *missing) {
  do {
    *known = tcp_read_all(fd, h, sizeof *h, deadline_s);
    if (!*known) return WEIR_OK;
    if (tcp_hello_is(h, HELLO_WAIT)) *missing = (int)(le32toh(h->detail) & INT32_MAX);
  } while (tcp_hello_is(h, HELLO_WAIT) && weir_now_s() < deadline_s);
  *known = !tcp_hello_is(h, HELLO_WAIT); /* else its time is up */
  if (!*known) return WEIR_OK;
  if (tcp_hello_is(h, HELLO_ABSENT)) return absent((int)(le32toh(h->detail) & INT32_MAX), 0);
  if (tcp_hello_is(h, HELLO_REFUSED)) return tcp_refused(0, le32toh(h->detail));
  if (!tcp_hello_is(h, HELLO_CHALLENGE) && !tcp_hello_is(h, HELLO_TABLE))
    return weir_fail(WEIR_E_PROTOCOL, "who listens at the rendezvous is not rank 0 of ours");
  if (!tcp_hello_is(h, kind))
    return weir_fail(WEIR_E_PROTOCOL, "rank 0 answered a registration with something else");
  return WEIR_OK;
}

weir_status tcp_read_table(const tcp *self, int fd, const tcp_hello *hello,
                           const tcp_hello *challenge, const tcp_hello *h, size_t size,
                           double deadline_s, tcp_table_entry **table) {
  const size_t bytes = size * sizeof **table;
  unsigned char proof[WEIR_PROOF_BYTES];
  tcp_table_entry *t = calloc(size, sizeof *t);
  *table = NULL;
  if (!t) return weir_fail(WEIR_E_NOMEM, "no memory for a table of %zu ranks", size);
  if (!tcp_read_all(fd, t, bytes, deadline_s)) {
    free(t);
    return WEIR_OK;
  }
  tcp_prove_host(&self->key, hello, challenge, h, t, bytes, proof);
  const bool whole = tcp_checksum(t, bytes) == le32toh(h->detail);
  if (whole && weir_proof_equal(proof, h->proof, sizeof proof)) {
    *table = t;
    return WEIR_OK;
  }
  free(t);
  return weir_fail(WEIR_E_PROTOCOL, whole
                                        ? "who listens at the rendezvous does not know this job's "
                                          "secret"
                                        : "rank 0's table of ranks is damaged");
}

static weir_status read_entries(tcp *self, int fd, const tcp_hello *hello,
                                const tcp_hello *challenge, const tcp_hello *h, double deadline_s,
                                bool *known) {
  const size_t size = (size_t)self->base.size;
  tcp_table_entry *table = NULL;
  if (le64toh(h->job) != self->job || le32toh(h->size) != size)
    return weir_fail(WEIR_E_PROTOCOL, "rank 0 answered a registration with something else");
  const weir_status status =
      tcp_read_table(self, fd, hello, challenge, h, size, deadline_s, &table);
  *known = table != NULL;
  for (size_t r = 0; table && r < size; r++)
    if (r != (size_t)self->base.rank)
      tcp_set_peer(&self->peer[r], table[r].address, table[r].data_port, table[r].echo_port);
  if (table) self->group_key = weir_key_of_group(&self->key, h->nonce, sizeof h->nonce);
  free(table);
  return status;
}

/* Prove who this rank is and learn where all are.  WEIR_OK with *known false: it may be tried
 * again. */
static weir_status introduce(tcp *self, int fd, double deadline_s, bool *known, int *missing) {
  const tcp_hello hello = tcp_compose(self, HELLO_REGISTER, 0);
  tcp_hello challenge, proof, table;
  tcp_owner owner = TCP_OWN;
  *known = false;
  if (!tcp_write_all(fd, &hello, sizeof hello, deadline_s)) return WEIR_OK;
  weir_status status = hear(fd, HELLO_CHALLENGE, &challenge, deadline_s, known, missing);
  if (status != WEIR_OK || !*known) return status;
  if (!self->secret) owner = tcp_owner_of(fd);
  *known = owner != TCP_CLOSED;
  if (!*known) return WEIR_OK;
  if (owner == TCP_OTHERS) {
    char users[TCP_USERS_MAX];
    tcp_tell_users(fd, users);
    return weir_fail(WEIR_E_PROTOCOL,
                     "who listens at the rendezvous is another user, and this job has no secret%s",
                     users);
  }
  proof = tcp_compose(self, HELLO_PROOF, 0);
  tcp_prove_caller(&self->key, &hello, &challenge, proof.proof);
  tcp_hello_seal(&proof);
  *known = tcp_write_all(fd, &proof, sizeof proof, deadline_s);
  if (!*known) return WEIR_OK;
  status = hear(fd, HELLO_TABLE, &table, deadline_s, known, missing);
  if (status != WEIR_OK || !*known) return status;
  return read_entries(self, fd, &hello, &challenge, &table, deadline_s, known);
}

/* Register with rank 0. */
static weir_status enrol(tcp *self, const tcp_places *to, const struct sockaddr_in *from,
                         double deadline_s) {
  for (;;) {
    int fd = -1, missing = 0;
    bool known = false;
    weir_status status = reach_any(to, from, 0, deadline_s, &fd);
    if (status != WEIR_OK) return status;
    struct sockaddr_in local, remote;
    socklen_t local_length = sizeof local, remote_length = sizeof remote;
    const bool named = getsockname(fd, (struct sockaddr *)&local, &local_length) == 0 &&
                       getpeername(fd, (struct sockaddr *)&remote, &remote_length) == 0;
    if (named && self->listener < 0) status = tcp_open_own(self, local.sin_addr, deadline_s);
    if (named && status == WEIR_OK) status = introduce(self, fd, deadline_s, &known, &missing);
    if (status == WEIR_OK && known) {
      tcp_peer *zero = &self->peer[0];
      tcp_set_peer(zero, remote.sin_addr, zero->data.sin_port, zero->echo.sin_port);
      zero->fd = fd;
      return WEIR_OK;
    }
    (void)close(fd);
    if (status != WEIR_OK) return status;
    if (weir_now_s() >= deadline_s && missing > 0) return absent(missing, 0);
    if (weir_now_s() >= deadline_s)
      return weir_fail(WEIR_E_TIMEOUT, "rank 0 did not gather all ranks in time");
    tcp_sleep(RETRY_S);
  }
}

weir_status tcp_gather(tcp_meeting *m, const struct sockaddr_in *from, int first,
                       double deadline_s) {
  const tcp *self = m->self;
  const int rank = self->base.rank;
  weir_status status = WEIR_OK;
  if (rank > first) m->missing += rank - first;
  while (status == WEIR_OK && m->missing > 0 && weir_now_s() < deadline_s) {
    for (int r = first; status == WEIR_OK && r < rank && tcp_meeting_may_call(m); r++) {
      int fd = -1;
      if (tcp_meeting_has_called(m, r)) continue;
      status = reach(&self->peer[r].data, from, r, deadline_s, &fd);
      if (status == WEIR_OK) tcp_meeting_call(m, r, fd);
    }
    const double slice_s = weir_now_s() + SLICE_S;
    if (status == WEIR_OK)
      status = tcp_meeting_hold(m, slice_s < deadline_s ? slice_s : deadline_s);
  }
  return status;
}

/* Connect to the ranks between 0 and this one, hear those above, until all are there. */
static weir_status mesh(tcp *self, const struct sockaddr_in *from, double deadline_s) {
  tcp_meeting *m = NULL;
  weir_status status = tcp_meeting_open(&m, self, self->listener, HELLO_MESH, 0);
  if (status != WEIR_OK) return status;
  status = tcp_gather(m, from, 1, deadline_s);
  if (status == WEIR_OK && m->missing > 0) status = absent(lowest_absent(m), self->base.rank);
  for (int r = 1; status == WEIR_OK && r < self->base.size; r++) {
    self->peer[r].fd = m->arrival[r].fd;
    m->arrival[r].fd = -1;
  }
  tcp_meeting_close(m);
  return status;
}

static weir_status join(tcp *self, const tcp_places *to, const struct sockaddr_in *from,
                        double deadline_s) {
  const weir_status status = enrol(self, to, from, deadline_s);
  return status == WEIR_OK ? mesh(self, from, deadline_s) : status;
}

weir_status tcp_check_place(const tcp *self, const struct sockaddr_in *at, const char *where) {
  if (self->secret || is_loopback(at->sin_addr)) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID,
                   "a group that meets at %s needs a secret: set WEIR_SECRET or WEIR_SECRET_FILE "
                   "on all ranks, "
                   "or meet on the loopback",
                   where);
}

/* Where this machine can listen, of the addresses that a name has; the first, if nowhere. */
static struct sockaddr_in own_place(const tcp_places *places) {
  for (size_t i = 0; i < places->count; i++) {
    struct sockaddr_in any = places->at[i];
    any.sin_port = 0;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool own = fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any) == 0;
    if (fd >= 0) (void)close(fd);
    if (own) return places->at[i];
  }
  return places->at[0];
}

weir_status tcp_rendezvous(tcp *self, const char *where, const char *bind_address,
                           double deadline_s) {
  struct sockaddr_in own = {.sin_family = AF_INET};
  tcp_places zero;
  weir_status status = tcp_resolve(where, deadline_s, &zero);
  if (status != WEIR_OK) return status;
  if (bind_address && inet_pton(AF_INET, bind_address, &own.sin_addr) != 1)
    return weir_fail(WEIR_E_INVALID, "local address \"%s\" is not an IPv4 address", bind_address);
  const struct in_addr named = zero.at[0].sin_addr;
  if (self->base.rank == 0 && bind_address) {
    zero.at[0].sin_addr = own.sin_addr;
    zero.count = 1;
  }
  const bool alone = self->base.size == 1 && self->most == 0;
  if (alone) {
    tcp_set_peer(&self->peer[0], zero.at[0].sin_addr, 0, 0);
    return WEIR_OK;
  }
  for (size_t i = 0; status == WEIR_OK && i < zero.count; i++)
    status = tcp_check_place(self, &zero.at[i], where);
  if (status != WEIR_OK) return status;
  status = self->base.rank == 0 ? host(self, own_place(&zero), deadline_s)
                                : join(self, &zero, bind_address ? &own : NULL, deadline_s);
  if (status == WEIR_OK) tcp_find_own_address(self, named);
  for (int r = 0; status == WEIR_OK && r < self->base.size; r++)
    if (self->peer[r].fd >= 0) tcp_settle(self, r);
  if (status == WEIR_OK) status = tcp_streams_open(self, bind_address ? &own : NULL, deadline_s);
  return status;
}

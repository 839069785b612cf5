/* How ranks find each other.  Rank 0 listens where all know; every other rank registers there with
 * the ports it listens on, and the registration stays as the connection between the two.  Rank 0
 * answers with the table of all ranks; then every rank connects to the ranks between 0 and itself
 * and accepts those above.  Whoever does not show the job's number is refused and harms nobody. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/tcp.h"

#define HELLO_MAGIC UINT32_C(0x48494557) /* "WEIH" */
#define RETRY_S 0.02
#define STRANGERS 64 /* connections that have not said yet who they are */

enum { HELLO_REGISTER = 1, HELLO_MESH = 2, HELLO_TABLE = 3, HELLO_REFUSED = 4 };
enum { REFUSE_NOT, REFUSE_GARBAGE, REFUSE_VERSION, REFUSE_JOB, REFUSE_SIZE, REFUSE_RANK,
       REFUSE_COUNT };
static const char *const refusals[REFUSE_COUNT] = {
    "",
    "it does not speak our protocol",
    "it is of another version",
    "it belongs to another job",
    "it expects another number of ranks",
    "its rank is taken or does not belong here",
};

/* Little-endian on the wire, but for ports. */
typedef struct hello {
  uint32_t magic;
  uint16_t version;
  uint16_t kind;
  uint64_t job;
  uint32_t size;
  uint32_t rank;
  in_port_t data_port; /* network order */
  in_port_t echo_port;
  uint32_t detail; /* of a refusal: why; of a table: checksum of the entries that follow */
  uint32_t reserved;
  uint32_t checksum;
} hello;
_Static_assert(sizeof(hello) == 40, "a hello has no padding");

typedef struct table_entry {
  struct in_addr address;
  in_port_t data_port;
  in_port_t echo_port;
} table_entry;
_Static_assert(sizeof(table_entry) == 8, "a table entry has no padding");

static hello compose(const tcp *self, int kind, uint32_t detail) {
  const tcp_peer *own = &self->peer[self->base.rank];
  hello h = {.magic = htole32(HELLO_MAGIC),
             .version = htole16(TCP_VERSION),
             .kind = htole16((uint16_t)kind),
             .job = htole64(self->job),
             .size = htole32((uint32_t)self->base.size),
             .rank = htole32((uint32_t)self->base.rank),
             .data_port = own->data.sin_port,
             .echo_port = own->echo.sin_port,
             .detail = htole32(detail)};
  h.checksum = htole32(tcp_checksum(&h, offsetof(hello, checksum)));
  return h;
}

static bool is_ours(const hello *h) {
  return le32toh(h->magic) == HELLO_MAGIC && le16toh(h->version) == TCP_VERSION &&
         le32toh(h->checksum) == tcp_checksum(h, offsetof(hello, checksum));
}

static void set_peer(tcp_peer *p, struct in_addr address, in_port_t data, in_port_t echo) {
  p->data = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = data, .sin_addr = address};
  p->echo = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = echo, .sin_addr = address};
  (void)inet_ntop(AF_INET, &address, p->address, sizeof p->address);
}

/* --- accepting ------------------------------------------------------------------------------ */

typedef struct stranger {
  int fd;
  size_t got;
  hello said;
  struct sockaddr_in from;
} stranger;

typedef struct reception {
  tcp *self;
  int listener;
  int kind;  /* of hello due */
  int first; /* ranks first .. size-1 are due */
  int missing;
  int strangers;
  stranger guest[STRANGERS];
  unsigned logged; /* a bit per reason: each is logged once */
} reception;

static int judge(const reception *r, const hello *h) {
  const tcp *self = r->self;
  if (le32toh(h->magic) != HELLO_MAGIC) return REFUSE_GARBAGE;
  if (le16toh(h->version) != TCP_VERSION) return REFUSE_VERSION;
  if (!is_ours(h) || le16toh(h->kind) != r->kind) return REFUSE_GARBAGE;
  if (le64toh(h->job) != self->job) return REFUSE_JOB;
  if (le32toh(h->size) != (uint32_t)self->base.size) return REFUSE_SIZE;
  const uint32_t rank = le32toh(h->rank);
  if (rank < (uint32_t)r->first || rank >= (uint32_t)self->base.size ||
      self->peer[rank].fd >= 0)
    return REFUSE_RANK;
  return REFUSE_NOT;
}

static void forget(reception *r, int i) {
  memmove(&r->guest[i], &r->guest[i + 1], (size_t)(--r->strangers - i) * sizeof *r->guest);
}

static void refuse(reception *r, int i, int reason) {
  stranger *guest = &r->guest[i];
  if (!(r->logged & 1u << reason)) {
    char text[INET_ADDRSTRLEN] = "?";
    (void)inet_ntop(AF_INET, &guest->from.sin_addr, text, sizeof text);
    (void)fprintf(stderr, "weir: rank %d refused a connection from %s: %s\n", r->self->base.rank,
                  text, refusals[reason]);
    r->logged |= 1u << reason;
  }
  const hello h = compose(r->self, HELLO_REFUSED, (uint32_t)reason);
  (void)send(guest->fd, &h, sizeof h, MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)close(guest->fd);
  forget(r, i);
}

static void admit(reception *r, int i) {
  const stranger *guest = &r->guest[i];
  tcp_peer *p = &r->self->peer[le32toh(guest->said.rank)];
  p->fd = guest->fd;
  if (r->kind == HELLO_REGISTER)
    set_peer(p, guest->from.sin_addr, guest->said.data_port, guest->said.echo_port);
  r->missing--;
  forget(r, i);
}

/* Reads no further than the hello: what follows it are frames. */
static void listen_to(reception *r, int i) {
  stranger *guest = &r->guest[i];
  const ssize_t got = recv(guest->fd, (unsigned char *)&guest->said + guest->got,
                           sizeof guest->said - guest->got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) guest->got += (size_t)got;
  const bool complete = guest->got == sizeof guest->said;
  if (got > 0 && !complete && guest->got >= sizeof guest->said.magic &&
      le32toh(guest->said.magic) != HELLO_MAGIC) {
    refuse(r, i, REFUSE_GARBAGE);
    return;
  }
  if (got > 0 && !complete) return;
  const int reason = complete ? judge(r, &guest->said) : REFUSE_GARBAGE;
  if (reason == REFUSE_NOT)
    admit(r, i);
  else
    refuse(r, i, reason);
}

/* All seats taken: hear everybody, then let the longest silent go.  It is told nothing, so that a
 * rank of ours that was merely slow tries again. */
static void make_room(reception *r) {
  for (int i = r->strangers; i-- > 0;) listen_to(r, i);
  if (r->strangers < STRANGERS) return;
  (void)close(r->guest[0].fd);
  forget(r, 0);
}

static void accept_all(reception *r) {
  for (;;) {
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    const int fd = accept4(r->listener, (struct sockaddr *)&from, &length,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (r->strangers == STRANGERS) make_room(r);
    r->guest[r->strangers++] = (stranger){.fd = fd, .from = from};
  }
}

static weir_status receive_ranks(tcp *self, int listener, int kind, double deadline_s) {
  const int first = kind == HELLO_REGISTER ? 1 : self->base.rank + 1;
  reception *r = calloc(1, sizeof *r);
  if (!r) return weir_fail(WEIR_E_NOMEM, "no memory to receive the other ranks");
  *r = (reception){.self = self, .listener = listener, .kind = kind, .first = first,
                   .missing = self->base.size - first};
  while (r->missing > 0 && weir_now_s() < deadline_s) {
    struct pollfd fds[STRANGERS + 1];
    const int strangers = r->strangers;
    fds[strangers] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (int i = 0; i < strangers; i++)
      fds[i] = (struct pollfd){.fd = r->guest[i].fd, .events = POLLIN};
    (void)tcp_poll_until(fds, (size_t)strangers + 1, deadline_s);
    for (int i = strangers; i-- > 0;) /* downward: those behind one that leaves move up */
      if (fds[i].revents) listen_to(r, i);
    if (fds[strangers].revents) accept_all(r);
  }
  for (int i = 0; i < r->strangers; i++) (void)close(r->guest[i].fd);
  const bool complete = r->missing == 0;
  free(r);
  if (complete) return WEIR_OK;
  int absent = first;
  while (self->peer[absent].fd >= 0) absent++;
  return weir_fail(WEIR_E_TIMEOUT, "rank %d did not connect to rank %d in time", absent,
                   self->base.rank);
}

/* --- connecting ----------------------------------------------------------------------------- */

static weir_status refused(int by, uint32_t reason) {
  const char *why =
      reason > REFUSE_NOT && reason < REFUSE_COUNT ? refusals[reason] : "it does not say why";
  const weir_status status = reason == REFUSE_RANK ? WEIR_E_INVALID : WEIR_E_MISMATCH;
  return weir_fail(status, "rank %d refused this rank: %s", by, why);
}

/* Keep trying until somebody listens. */
static weir_status reach(const struct sockaddr_in *to, const struct sockaddr_in *from, int rank,
                         double deadline_s, int *fd) {
  while (weir_now_s() < deadline_s) {
    const weir_status status = tcp_connect_once(to, from, deadline_s, fd);
    if (status != WEIR_OK || *fd >= 0) return status;
    tcp_sleep(RETRY_S);
  }
  char text[INET_ADDRSTRLEN] = "?";
  (void)inet_ntop(AF_INET, &to->sin_addr, text, sizeof text);
  return weir_fail(WEIR_E_TIMEOUT, "rank %d could not be reached at %s:%u in time", rank, text,
                   ntohs(to->sin_port));
}

/* Read rank 0's answer to a registration.  WEIR_OK with *known false: the connection ended. */
static weir_status read_table(tcp *self, int fd, double deadline_s, bool *known) {
  const size_t size = (size_t)self->base.size;
  hello h;
  *known = false;
  if (!tcp_read_all(fd, &h, sizeof h, deadline_s)) return WEIR_OK;
  if (!is_ours(&h))
    return weir_fail(WEIR_E_PROTOCOL, "who listens at the rendezvous is not rank 0 of ours");
  if (le16toh(h.kind) == HELLO_REFUSED) return refused(0, le32toh(h.detail));
  if (le16toh(h.kind) != HELLO_TABLE || le64toh(h.job) != self->job || le32toh(h.size) != size)
    return weir_fail(WEIR_E_PROTOCOL, "rank 0 answered a registration with something else");
  table_entry *table = calloc(size, sizeof *table);
  if (!table) return weir_fail(WEIR_E_NOMEM, "no memory for a table of %zu ranks", size);
  const bool read = tcp_read_all(fd, table, size * sizeof *table, deadline_s);
  const bool intact = read && tcp_checksum(table, size * sizeof *table) == le32toh(h.detail);
  for (size_t r = 0; intact && r < size; r++)
    if (r != (size_t)self->base.rank)
      set_peer(&self->peer[r], table[r].address, table[r].data_port, table[r].echo_port);
  free(table);
  if (read && !intact) return weir_fail(WEIR_E_PROTOCOL, "rank 0's table of ranks is damaged");
  *known = read;
  return WEIR_OK;
}

static weir_status send_table(tcp *self, double deadline_s) {
  const size_t size = (size_t)self->base.size;
  table_entry *table = calloc(size, sizeof *table);
  if (!table) return weir_fail(WEIR_E_NOMEM, "no memory for a table of %zu ranks", size);
  for (size_t r = 0; r < size; r++)
    table[r] = (table_entry){self->peer[r].data.sin_addr, self->peer[r].data.sin_port,
                             self->peer[r].echo.sin_port};
  const hello h = compose(self, HELLO_TABLE, tcp_checksum(table, size * sizeof *table));
  weir_status status = WEIR_OK;
  for (size_t r = 1; status == WEIR_OK && r < size; r++)
    if (!tcp_write_all(self->peer[r].fd, &h, sizeof h, deadline_s) ||
        !tcp_write_all(self->peer[r].fd, table, size * sizeof *table, deadline_s))
      status = weir_fail(WEIR_E_PEER, "rank %zu is gone before the group was complete", r);
  free(table);
  return status;
}

/* This rank's own addresses: everything is bound to `address` and nothing else. */
static weir_status open_own(tcp *self, struct in_addr address, double deadline_s, int *listener) {
  tcp_peer *own = &self->peer[self->base.rank];
  set_peer(own, address, 0, 0);
  const weir_status status = tcp_listen(&own->data, deadline_s, listener);
  return status == WEIR_OK ? tcp_datagram_open(self, &own->echo) : status;
}

/* --- the two sides -------------------------------------------------------------------------- */

static weir_status host(tcp *self, struct sockaddr_in at, double deadline_s) {
  tcp_peer *own = &self->peer[0];
  int listener = -1;
  weir_status status = tcp_listen(&at, deadline_s, &listener);
  if (status != WEIR_OK) return status;
  set_peer(own, at.sin_addr, at.sin_port, 0);
  status = tcp_datagram_open(self, &own->echo);
  if (status == WEIR_OK) status = receive_ranks(self, listener, HELLO_REGISTER, deadline_s);
  if (status == WEIR_OK) status = send_table(self, deadline_s);
  (void)close(listener);
  return status;
}

/* Register with rank 0 and learn where all ranks are; *listener is opened on the way. */
static weir_status enrol(tcp *self, const struct sockaddr_in *to, const struct sockaddr_in *from,
                         double deadline_s, int *listener) {
  for (;;) {
    int fd = -1;
    bool known = false;
    weir_status status = reach(to, from, 0, deadline_s, &fd);
    if (status != WEIR_OK) return status;
    struct sockaddr_in local, remote;
    socklen_t local_length = sizeof local, remote_length = sizeof remote;
    const bool named = getsockname(fd, (struct sockaddr *)&local, &local_length) == 0 &&
                       getpeername(fd, (struct sockaddr *)&remote, &remote_length) == 0;
    if (named && *listener < 0) status = open_own(self, local.sin_addr, deadline_s, listener);
    const hello h = compose(self, HELLO_REGISTER, 0);
    if (status == WEIR_OK && named && tcp_write_all(fd, &h, sizeof h, deadline_s))
      status = read_table(self, fd, deadline_s, &known);
    if (status == WEIR_OK && known) {
      tcp_peer *zero = &self->peer[0];
      set_peer(zero, remote.sin_addr, zero->data.sin_port, zero->echo.sin_port);
      zero->fd = fd;
      return WEIR_OK;
    }
    (void)close(fd);
    if (status != WEIR_OK) return status;
    if (weir_now_s() >= deadline_s)
      return weir_fail(WEIR_E_TIMEOUT, "rank 0 did not gather all ranks in time");
    tcp_sleep(RETRY_S);
  }
}

static weir_status join(tcp *self, const struct sockaddr_in *to, const struct sockaddr_in *from,
                        double deadline_s) {
  int listener = -1;
  weir_status status = enrol(self, to, from, deadline_s, &listener);
  for (int r = 1; status == WEIR_OK && r < self->base.rank; r++) {
    tcp_peer *p = &self->peer[r];
    const hello h = compose(self, HELLO_MESH, 0);
    status = reach(&p->data, from, r, deadline_s, &p->fd);
    if (status == WEIR_OK && !tcp_write_all(p->fd, &h, sizeof h, deadline_s))
      status = weir_fail(WEIR_E_PEER, "rank %d is gone before the group was complete", r);
  }
  if (status == WEIR_OK) status = receive_ranks(self, listener, HELLO_MESH, deadline_s);
  if (listener >= 0) (void)close(listener);
  return status;
}

weir_status tcp_rendezvous(tcp *self, const char *where, const char *bind_address,
                           double deadline_s) {
  struct sockaddr_in zero, own = {.sin_family = AF_INET};
  weir_status status = tcp_resolve(where, &zero);
  if (status != WEIR_OK) return status;
  if (bind_address && inet_pton(AF_INET, bind_address, &own.sin_addr) != 1)
    return weir_fail(WEIR_E_INVALID, "local address \"%s\" is not an IPv4 address", bind_address);
  if (self->base.rank == 0 && bind_address) zero.sin_addr = own.sin_addr;
  if (self->base.size == 1) {
    set_peer(&self->peer[0], zero.sin_addr, 0, 0);
    return WEIR_OK;
  }
  status = self->base.rank == 0
               ? host(self, zero, deadline_s)
               : join(self, &zero, bind_address ? &own : NULL, deadline_s);
  for (int r = 0; status == WEIR_OK && r < self->base.size; r++) {
    const int one = 1;
    if (self->peer[r].fd >= 0)
      (void)setsockopt(self->peer[r].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  return status;
}

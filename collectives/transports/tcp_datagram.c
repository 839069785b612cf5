/* The UDP side: echo, abort, and the thread that answers while the main thread computes.
 *
 * rtt = (t4 - t1) - (t3 - t2): t1 when the question leaves, t2 and t4 the kernels' own arrival
 * stamps, t3 when the answer leaves; neither side's scheduling counts (as in RFC 5905,
 * section 8). */
#include "collectives/transports/tcp_datagram.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/tcp_joiners.h"

#define TRIES 3
#define TAKEN_AT_ONCE 32
#define PROOF_AT offsetof(datagram, culprit)
_Static_assert(offsetof(datagram, from) == PROOF_AT + sizeof(uint64_t), "a proof has its place");

int64_t tcp_wall_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

datagram tcp_datagram_compose(const tcp *self, int kind, uint64_t sequence) {
  return (datagram){.magic = htole32(DATAGRAM_MAGIC),
                    .version = htole16(TCP_VERSION),
                    .kind = htole16((uint16_t)kind),
                    .job = htole64(self->job),
                    .sequence = htole64(sequence),
                    .from = htole32((uint32_t)self->base.rank)};
}

void tcp_datagram_send(int fd, datagram *d, const struct sockaddr_in *to) {
  d->checksum = htole32(tcp_checksum(d, offsetof(datagram, checksum)));
  (void)sendto(fd, d, sizeof *d, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)to,
               sizeof *to);
}

static uint64_t proof_of(const tcp *self, const datagram *d) {
  const int kind = le16toh(d->kind);
  datagram said = *d;
  said.culprit = 0;
  said.reason = said.checksum = 0;
  if (kind == KIND_REPLY) said.sent_ns = 0;
  if (kind == KIND_TRAIN) said.index = 0;
  const weir_piece piece = {&said, sizeof said};
  unsigned char proof[WEIR_PROOF_BYTES];
  uint64_t first;
  weir_prove(&self->group_key, "weir datagram", &piece, 1, proof);
  memcpy(&first, proof, sizeof first);
  return first;
}

uint64_t tcp_datagram_proof(const datagram *d) {
  uint64_t proof;
  memcpy(&proof, (const unsigned char *)d + PROOF_AT, sizeof proof);
  return proof;
}

void tcp_datagram_sign(const tcp *self, datagram *d) {
  const uint64_t proof = proof_of(self, d);
  memcpy((unsigned char *)d + PROOF_AT, &proof, sizeof proof);
}

bool tcp_datagram_is_proved(const tcp *self, const datagram *d) {
  const uint64_t due = proof_of(self, d), said = tcp_datagram_proof(d);
  return weir_proof_equal((const unsigned char *)&due, (const unsigned char *)&said, sizeof due);
}

/* An abort's proof. */
static uint64_t abort_proof(const tcp *self, const datagram *d) {
  const uint32_t said[] = {(uint32_t)d->culprit, d->reason, d->from};
  const weir_piece piece = {said, sizeof said};
  unsigned char proof[WEIR_PROOF_BYTES];
  uint64_t first;
  weir_prove(&self->group_key, "weir abort", &piece, 1, proof);
  memcpy(&first, proof, sizeof first);
  return first;
}

/* What a call takes at once: a train comes faster than single calls could take it. */
typedef struct batch {
  datagram d[TAKEN_AT_ONCE];
  struct sockaddr_in from[TAKEN_AT_ONCE];
  int64_t stamp[TAKEN_AT_ONCE];
  bool good[TAKEN_AT_ONCE];
  int count;
} batch;

bool tcp_datagram_is_good(const tcp *self, const datagram *d, size_t length) {
  if (length < sizeof *d || le32toh(d->magic) != DATAGRAM_MAGIC) return false;
  const size_t due = le16toh(d->kind) == KIND_TRAIN ? TRAIN_DATAGRAM : sizeof *d;
  return length == due && le16toh(d->version) == TCP_VERSION && le64toh(d->job) == self->job &&
         le32toh(d->checksum) == tcp_checksum(d, offsetof(datagram, checksum)) &&
         le32toh(d->from) < (uint32_t)self->base.size &&
         le32toh(d->from) != (uint32_t)self->base.rank;
}

static int64_t stamp_of(struct msghdr *message) {
  for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
      struct timespec at;
      memcpy(&at, CMSG_DATA(c), sizeof at);
      return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
    }
  return tcp_wall_ns();
}

/* Take what is there, at most `most`; false when nothing is. */
static bool take(const tcp *self, int fd, unsigned most, batch *b) {
  struct mmsghdr message[TAKEN_AT_ONCE];
  struct iovec piece[TAKEN_AT_ONCE];
  _Alignas(
      struct cmsghdr) unsigned char control[TAKEN_AT_ONCE][CMSG_SPACE(sizeof(struct timespec))];
  for (unsigned i = 0; i < most; i++) {
    piece[i] = (struct iovec){&b->d[i], sizeof b->d[i]};
    message[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &b->from[i],
                                              .msg_namelen = sizeof b->from[i],
                                              .msg_iov = &piece[i],
                                              .msg_iovlen = 1,
                                              .msg_control = control[i],
                                              .msg_controllen = sizeof control[i]}};
  }
  b->count = recvmmsg(fd, message, most, MSG_DONTWAIT | MSG_TRUNC, NULL);
  if (b->count < 0) {
    b->count = 0;
    return errno != EAGAIN;
  }
  for (int i = 0; i < b->count; i++) {
    b->good[i] = tcp_datagram_is_good(self, &b->d[i], message[i].msg_len);
    if (b->good[i]) b->stamp[i] = stamp_of(&message[i].msg_hdr);
  }
  return b->count > 0;
}

int tcp_datagram_take(const tcp *self, int fd, datagram *d, struct sockaddr_in *from,
                      int64_t *stamp) {
  batch one;
  if (!take(self, fd, 1, &one)) return -1;
  if (one.count < 1 || !one.good[0] || !tcp_datagram_is_proved(self, &one.d[0])) return 0;
  *d = one.d[0];
  *from = one.from[0];
  *stamp = one.stamp[0];
  return 1;
}

static int open_socket(struct sockaddr_in *address) {
  const int one = 1, train = 512 << 10;
  socklen_t length = sizeof *address;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  address->sin_port = 0;
  if (bind(fd, (const struct sockaddr *)address, sizeof *address) != 0 ||
      getsockname(fd, (struct sockaddr *)address, &length) != 0) {
    const int error = errno;
    (void)close(fd);
    errno = error;
    return -1;
  }
  (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
  /* As far as they are granted. */
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &train, sizeof train);
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &train, sizeof train);
  return fd;
}

weir_status tcp_datagram_open(tcp *self, struct sockaddr_in *address) {
  self->udp = open_socket(address);
  if (self->udp < 0) return weir_fail(WEIR_E_IO, "no datagram socket: %s", strerror(errno));
  return WEIR_OK;
}

/* --- the answering thread ------------------------------------------------------------------- */

static uint_fast64_t pack(const weir_end *end) {
  return UINT64_C(1) << 48 | (uint64_t)end->reason << 32 | (uint64_t)end->culprit << 16 |
         (uint64_t)end->reporter;
}

bool tcp_abort_seen(tcp *self, weir_end *end) {
  const uint_fast64_t packed = atomic_load_explicit(&self->abort, memory_order_acquire);
  if (packed == 0) return false;
  *end = (weir_end){(weir_status)(packed >> 32 & 0xffff), (int)(packed >> 16 & 0xffff),
                    (int)(packed & 0xffff)};
  return true;
}

static void note_abort(tcp *self, const datagram *d, int64_t stamp) {
  const uint32_t culprit = le32toh((uint32_t)d->culprit);
  const uint32_t reason = le32toh(d->reason);
  const uint64_t proof = abort_proof(self, d);
  if (culprit >= (uint32_t)self->base.size ||
      !weir_proof_equal((const unsigned char *)&proof, (const unsigned char *)&d->sequence,
                        sizeof proof))
    return;
  const bool known = reason == WEIR_E_TIMEOUT || reason == WEIR_E_PEER ||
                     reason == WEIR_E_PROTOCOL || reason == WEIR_E_MISMATCH;
  const weir_end end = {known ? (weir_status)reason : WEIR_E_PEER, (int)culprit,
                        (int)le32toh(d->from)};
  uint_fast64_t none = 0;
  if (atomic_load(&self->abort) == 0)
    atomic_store(&self->abort_ns, stamp); /* one thread at a time comes here */
  if (atomic_compare_exchange_strong(&self->abort, &none, pack(&end)))
    (void)eventfd_write(self->wake, 1);
}

static void answer(tcp *self, datagram *d, const struct sockaddr_in *from, int64_t stamp) {
  datagram reply = tcp_datagram_compose(self, KIND_REPLY, le64toh(d->sequence));
  const int waiting = atomic_load_explicit(&self->waiting_on, memory_order_relaxed);
  reply.waiting_on = (int32_t)htole32((uint32_t)waiting);
  reply.received_ns = (int64_t)htole64((uint64_t)stamp);
  tcp_datagram_sign(self, &reply);
  reply.sent_ns = (int64_t)htole64((uint64_t)tcp_wall_ns());
  tcp_datagram_send(self->udp, &reply, from);
}

void tcp_datagram_react(tcp *self, datagram *d, const struct sockaddr_in *from, int64_t stamp) {
  switch (le16toh(d->kind)) {
    case KIND_ASK:
      if (tcp_datagram_is_proved(self, d)) answer(self, d, from, stamp);
      break;
    case KIND_ABORT: note_abort(self, d, stamp); break;
    case KIND_TRAIN: tcp_train_arrived(self, d, from, stamp); break;
    default: break; /* replies have no business here */
  }
}

void tcp_datagram_read(tcp *self) {
  batch b;
  (void)pthread_mutex_lock(&self->reading);
  while (take(self, self->udp, TAKEN_AT_ONCE, &b))
    for (int i = 0; i < b.count; i++)
      if (b.good[i]) tcp_datagram_react(self, &b.d[i], &b.from[i], b.stamp[i]);
  (void)pthread_mutex_unlock(&self->reading);
}

static bool any_ready(const struct pollfd *fds, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (fds[i].revents) return true;
  return false;
}

/* How often the door is looked at, so that strangers cost a bounded part of a processor however
 * many call and however little each says: so often in a span, and then not until it is over. */
typedef struct porch {
  double begin_s; /* of the span */
  int looks;
} porch;
#define PORCH_S 0.1
#define PORCH_LOOKS 10

/* Milliseconds until the door may be looked at again; 0: now. */
static int rest_ms(const porch *p) {
  if (p->looks < PORCH_LOOKS) return 0;
  const double left_s = p->begin_s + PORCH_S - weir_now_s();
  return left_s > 0.0 ? 1 + (int)(1e3 * left_s) : 0;
}

static void looked(porch *p) {
  const double now_s = weir_now_s();
  if (now_s >= p->begin_s + PORCH_S) *p = (porch){now_s, 0};
  p->looks++;
}

static void *answerer_main(void *argument) {
  enum { LOOK_MS = 100 };
  tcp *self = argument;
  porch door = {0};
  for (;;) {
    const bool meeting = atomic_load(&self->meeting);
    const int rest = meeting ? 0 : rest_ms(&door);
    const bool opens = !meeting && rest == 0;
    struct pollfd fds[3 + TCP_STRANGERS] = {{.fd = self->udp, .events = POLLIN},
                                            {.fd = self->stop, .events = POLLIN},
                                            {.fd = opens ? self->listener : -1, .events = POLLIN}};
    const size_t guests = opens ? tcp_joiners_poll(self->joiners, fds + 3) : 0;
    /* Ends with the stop event. */
    (void)poll(fds, 3 + guests, meeting ? LOOK_MS : rest > 0 ? rest : -1);
    if (fds[1].revents) return NULL;
    if (any_ready(fds + 2, 1 + guests)) looked(&door);
    /* While a group lives that nobody may join nobody has business at the door, and whoever sat
     * there would take the place of survivors.  One of these that comes early calls again. */
    if (self->joiners != NULL && any_ready(fds + 2, 1 + guests)) tcp_joiners_turn(self);
    if (self->joiners == NULL && fds[2].revents && !atomic_load(&self->meeting))
      tcp_turn_away(self->listener);
    tcp_datagram_read(self);
  }
}

weir_status tcp_answerer_start(tcp *self) {
  const weir_status status = tcp_joiners_open(self);
  if (status != WEIR_OK) return status;
  const int error = pthread_create(&self->answerer, NULL, answerer_main, self);
  if (error != 0) return weir_fail(WEIR_E_NOMEM, "no thread to answer: %s", strerror(error));
  self->answering = true;
  return WEIR_OK;
}

void tcp_answerer_stop(tcp *self) {
  if (!self->answering) return;
  (void)eventfd_write(self->stop, 1);
  (void)pthread_join(self->answerer, NULL);
  self->answering = false;
}

void tcp_send_abort(tcp *self, weir_status reason, int culprit) {
  if (self->udp < 0) return;
  datagram d = tcp_datagram_compose(self, KIND_ABORT, 0);
  d.culprit = (int32_t)htole32((uint32_t)culprit);
  d.reason = htole32((uint32_t)reason);
  d.sequence = abort_proof(self, &d);
  for (int i = 0; i < TRIES; i++) /* datagrams get lost */
    for (int r = 0; r < self->base.size; r++)
      if (r != self->base.rank) tcp_datagram_send(self->udp, &d, &self->peer[r].echo);
}

/* --- asking --------------------------------------------------------------------------------- */

int tcp_asking_socket(const tcp *self, uint64_t *sequence) {
  struct sockaddr_in own = self->peer[self->base.rank].echo;
  if (getrandom(sequence, sizeof *sequence, 0) != (ssize_t)sizeof *sequence) *sequence = 0;
  return open_socket(&own);
}

bool tcp_ended_meanwhile(const tcp *self, int fd, double until_s) {
  struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = self->wake, .events = POLLIN}};
  (void)tcp_poll_until(fds, 2, until_s);
  if (!fds[1].revents) return false;
  (void)close(fd);
  (void)weir_fail(WEIR_E_PEER, "the group has ended");
  return true;
}

weir_status tcp_echo(weir_transport *t, int peer, double timeout_s, double *rtt_s) {
  tcp *self = (tcp *)t;
  uint64_t sequence;
  int64_t asked[TRIES + 1];
  if (peer < 0 || peer >= t->size || peer == t->rank || !(timeout_s > 0.0))
    return weir_fail(WEIR_E_INVALID, "rank %d cannot ask rank %d for %g s", t->rank, peer,
                     timeout_s);
  const int fd = tcp_asking_socket(self, &sequence);
  if (fd < 0) return weir_fail(WEIR_E_IO, "no datagram socket: %s", strerror(errno));
  const double begin_s = weir_now_s();
  weir_status status = WEIR_E_TIMEOUT;
  for (int i = 0; status != WEIR_OK && i <= TRIES; i++) {
    const double until_s = begin_s + timeout_s * (i + 1) / (TRIES + 1);
    datagram d = tcp_datagram_compose(self, KIND_ASK, sequence + (uint64_t)i);
    tcp_datagram_sign(self, &d);
    asked[i] = tcp_wall_ns();
    tcp_datagram_send(fd, &d, &self->peer[peer].echo);
    while (status != WEIR_OK && weir_now_s() < until_s) {
      struct sockaddr_in from;
      int64_t stamp = 0;
      if (tcp_ended_meanwhile(self, fd, until_s)) return WEIR_E_PEER;
      if (tcp_datagram_take(self, fd, &d, &from, &stamp) != 1 || le16toh(d.kind) != KIND_REPLY)
        continue;
      const uint64_t which = le64toh(d.sequence) - sequence;
      if (which > (uint64_t)i || le32toh(d.from) != (uint32_t)peer) continue;
      const int64_t held =
          (int64_t)(le64toh((uint64_t)d.sent_ns) - le64toh((uint64_t)d.received_ns));
      const int64_t rtt = stamp - asked[which] - held;
      if (held < 0 || rtt <= 0) continue; /* a clock was set meanwhile */
      *rtt_s = 1e-9 * (double)rtt;
      status = WEIR_OK;
    }
  }
  (void)close(fd);
  if (status != WEIR_OK)
    return weir_fail(status, "rank %d did not answer an echo within %g s", peer, timeout_s);
  return WEIR_OK;
}

/* Take replies until until_s, an abort, or no rank is missing; returns how many still are. */
static int collect(tcp *self, int fd, uint64_t sequence, tcp_reply *reply, int missing,
                   double until_s) {
  const bool over = self->ended.reason != WEIR_OK; /* then survivors are asked for */
  struct pollfd fds[2] = {{.fd = fd, .events = POLLIN},
                          {.fd = over ? -1 : self->wake, .events = POLLIN}};
  while (missing > 0 && weir_now_s() < until_s) {
    (void)tcp_poll_until(fds, 2, until_s);
    if (fds[1].revents) return 0;
    datagram d;
    struct sockaddr_in from;
    int64_t stamp = 0;
    const int got = tcp_datagram_take(self, fd, &d, &from, &stamp);
    const uint32_t rank = got == 1 ? le32toh(d.from) : 0;
    if (got != 1 || le16toh(d.kind) != KIND_REPLY || le64toh(d.sequence) != sequence + rank ||
        reply[rank].alive)
      continue;
    const int32_t waiting = (int32_t)le32toh((uint32_t)d.waiting_on);
    reply[rank] = (tcp_reply){true, waiting >= 0 && waiting < self->base.size ? waiting : -1};
    missing--;
  }
  return missing;
}

void tcp_ask_all(tcp *self, tcp_reply *reply, double deadline_s) {
  uint64_t sequence;
  const int fd = tcp_asking_socket(self, &sequence);
  if (fd < 0) return;
  const double begin_s = weir_now_s();
  int missing = self->base.size - 1;
  for (int i = 0; i < TRIES && missing > 0; i++) {
    for (int r = 0; r < self->base.size; r++) {
      if (r == self->base.rank || reply[r].alive) continue;
      datagram d = tcp_datagram_compose(self, KIND_ASK, sequence + (uint64_t)r);
      tcp_datagram_sign(self, &d);
      tcp_datagram_send(fd, &d, &self->peer[r].echo);
    }
    missing = collect(self, fd, sequence, reply, missing,
                      begin_s + (deadline_s - begin_s) * (i + 1) / TRIES);
  }
  (void)close(fd);
}

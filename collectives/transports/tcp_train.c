/* A train of datagrams, stamped by the receiving kernel: neither side's scheduling counts, and no
 * congestion window holds it back.  Its first half empties token buckets, its second half
 * is timed. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/tcp_datagram.h"

/* What a link carries for each: UDP, IP and Ethernet headers too. */
#define LINK_BYTES (TRAIN_DATAGRAM + 42)
#define MOST 192 /* datagrams a train */
#define AT_ONCE 32

void tcp_train_arrived(tcp *self, const datagram *d, const struct sockaddr_in *from,
                       int64_t stamp) {
  tcp_train_state *train = &self->peer[le32toh(d->from)].train;
  const uint64_t sequence = le64toh(d->sequence);
  const uint64_t proof = tcp_datagram_proof(d);
  if (train->arrived == 0 || train->sequence != sequence || train->proof != proof) {
    if (!tcp_datagram_is_proved(self, d)) return;
    *train = (tcp_train_state){.sequence = sequence, .proof = proof};
  }
  const uint16_t count = le16toh(d->count);
  train->last_ns = stamp;
  if (train->arrived > count / 2)
    train->timed++;
  else
    train->begin_ns = stamp;
  train->arrived++;
  if (le16toh(d->index) + 1 != count) return;
  datagram reply = tcp_datagram_compose(self, KIND_ARRIVED, sequence);
  reply.received_ns = (int64_t)htole64((uint64_t)train->begin_ns);
  reply.sent_ns = (int64_t)htole64((uint64_t)train->last_ns);
  reply.index = htole16(train->timed);
  tcp_datagram_sign(self, &reply);
  tcp_datagram_send(self->udp, &reply, from);
  train->arrived = 0;
}

/* What does not fit the socket's buffer waits until there is room again: half of the buffer is on
 * its way yet then, so that the train does not break off. */
static void send_train(const tcp *self, int fd, const struct sockaddr_in *to, uint64_t sequence,
                       uint16_t count, double until_s) {
  static const unsigned char padding[TRAIN_DATAGRAM - sizeof(datagram)];
  datagram first = tcp_datagram_compose(self, KIND_TRAIN, sequence), header[AT_ONCE];
  struct iovec piece[AT_ONCE][2];
  struct mmsghdr message[AT_ONCE];
  first.count = htole16(count);
  tcp_datagram_sign(self, &first);
  for (uint16_t index = 0; index < count;) {
    unsigned filled = 0;
    for (; filled < AT_ONCE && index + filled < count; filled++) {
      datagram *d = &header[filled];
      *d = first;
      d->index = htole16((uint16_t)(index + filled));
      d->checksum = htole32(tcp_checksum(d, offsetof(datagram, checksum)));
      piece[filled][0] = (struct iovec){d, sizeof *d};
      piece[filled][1] = (struct iovec){(void *)(uintptr_t)padding, sizeof padding};
      message[filled] = (struct mmsghdr){.msg_hdr = {.msg_name = (void *)(uintptr_t)to,
                                                     .msg_namelen = sizeof *to,
                                                     .msg_iov = piece[filled],
                                                     .msg_iovlen = 2}};
    }
    const int sent = sendmmsg(fd, message, filled, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return;
    if (sent > 0) index = (uint16_t)(index + sent);
    if (sent == (int)filled) continue;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (tcp_poll_until(&room, 1, until_s) <= 0) return;
  }
}

weir_status tcp_train(weir_transport *t, int peer, size_t *bytes, double timeout_s,
                      double *seconds) {
  tcp *self = (tcp *)t;
  uint64_t sequence;
  const size_t wanted = *bytes / LINK_BYTES;
  const uint16_t count = (uint16_t)(wanted < 2 ? 2 : wanted > MOST ? MOST : wanted);
  *bytes = 0;
  *seconds = 0;
  if (peer < 0 || peer >= t->size || peer == t->rank || !(timeout_s > 0.0))
    return weir_fail(WEIR_E_INVALID, "rank %d cannot send rank %d a train for %g s", t->rank, peer,
                     timeout_s);
  const int fd = tcp_asking_socket(self, &sequence);
  if (fd < 0) return weir_fail(WEIR_E_IO, "no datagram socket: %s", strerror(errno));
  const double until_s = weir_now_s() + timeout_s;
  send_train(self, fd, &self->peer[peer].echo, sequence, count, until_s);
  weir_status status = WEIR_E_TIMEOUT;
  while (status != WEIR_OK && weir_now_s() < until_s) {
    struct sockaddr_in from;
    datagram d;
    int64_t stamp = 0;
    if (tcp_ended_meanwhile(self, fd, until_s)) return WEIR_E_PEER;
    if (tcp_datagram_take(self, fd, &d, &from, &stamp) != 1 || le16toh(d.kind) != KIND_ARRIVED ||
        le32toh(d.from) != (uint32_t)peer || le64toh(d.sequence) != sequence)
      continue;
    const int64_t took = (int64_t)(le64toh((uint64_t)d.sent_ns) - le64toh((uint64_t)d.received_ns));
    const uint16_t timed = le16toh(d.index);
    if (took < 0 || timed > count) break; /* a clock was set meanwhile */
    *bytes = (size_t)timed * LINK_BYTES;
    *seconds = 1e-9 * (double)took;
    status = WEIR_OK;
  }
  (void)close(fd);
  if (status != WEIR_OK)
    return weir_fail(status, "rank %d did not report on a train within %g s", peer, timeout_s);
  return WEIR_OK;
}

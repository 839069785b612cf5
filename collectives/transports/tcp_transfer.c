/* Moving messages.  Header and payload of several messages leave in one system call, and one call
 * takes what is there of a payload and whatever follows it; polls and clock readings happen only
 * where nothing else can be done, because a system call is dear on an emulated machine.
 *
 * Every message is summed up (CRC32C) on its way through the cache: before the kernel copies it
 * out, and after it has copied it in.
 *
 * With several streams a long message is divided among them by its length, which its header on
 * stream 0 tells: another stream is read only as far as those headers are known. */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "collectives/transports/tcp_call.h"
#include "collectives/transports/tcp_tls.h"

#define BATCH 32 /* messages in one sendmsg */
#define SUM_MOST ((size_t)256 * 1024)

static tcp_part part_of_send(const tcp_call *x, int way, size_t i) {
  return tcp_part_of(x->self, x->send[i].bytes, tcp_call_stream(x, way));
}

tcp_part tcp_call_part(const tcp_call *x, int way) {
  const weir_recv *r = &x->recv[x->self->peer[way].recv_at];
  return tcp_part_of(x->self, r->bytes, tcp_call_stream(x, way));
}

/* The next message after i of which something travels on this way. */
static size_t send_after(const tcp_call *x, int way, size_t i) {
  do i = weir_send_after(x->send, x->sends, i);
  while (i < x->sends && !part_of_send(x, way, i).any);
  return i;
}

static tcp_peer *enlist(tcp_call *x, int way) {
  tcp_peer *p = &x->self->peer[way];
  for (int i = 0; i < x->ways; i++)
    if (x->self->active[i] == way) return p;
  x->self->active[x->ways++] = way;
  p->send_at = x->sends;
  p->recv_at = x->recvs;
  p->sent = p->received = p->summed = 0;
  p->headed = p->send_blocked = p->recv_blocked = false;
  p->flow = (weir_flow_track){0};
  return p;
}

/* Peers are served in the order of the caller's messages: those that others wait for come first. */
static void begin(tcp_call *x) {
  const int size = x->self->base.size;
  x->open = x->recvs;
  for (int s = 0; s < x->self->streams; s++) {
    for (size_t i = 0; i < x->sends; i++) {
      const int way = s * size + x->send[i].peer;
      if (!part_of_send(x, way, i).any) continue;
      tcp_peer *p = enlist(x, way);
      if (p->send_at == x->sends) p->send_at = i;
      x->open++;
    }
    for (size_t i = 0; i < x->recvs; i++) {
      if (s > 0 && x->recv[i].capacity < TCP_DIVIDE_LEAST) continue;
      tcp_peer *p = enlist(x, s * size + x->recv[i].peer);
      if (p->recv_at == x->recvs) p->recv_at = i;
    }
  }
}

static void add_piece(struct iovec *piece, size_t *pieces, size_t *total, const void *data,
                      size_t bytes, size_t *skip) {
  if (*skip >= bytes) {
    *skip -= bytes;
    return;
  }
  piece[*pieces].iov_base = (unsigned char *)(uintptr_t)data + *skip;
  piece[(*pieces)++].iov_len = bytes - *skip;
  *total += bytes - *skip;
  *skip = 0;
}

static void advance_sent(tcp_call *x, int way, size_t bytes) {
  tcp_peer *p = &x->self->peer[way];
  p->sent += bytes;
  while (p->send_at < x->sends) {
    const size_t due = sizeof(tcp_frame) + part_of_send(x, way, p->send_at).bytes + TCP_TRAILER;
    if (p->sent < due) return;
    p->sent -= due;
    x->self->base.bytes_sent += due;
    p->send_at = send_after(x, way, p->send_at);
    p->summed = 0;
    x->open--;
  }
}

/* Payloads that travel through memory are not summed up. */
static uint32_t sum_up(const tcp_peer *p, uint32_t crc, const void *data, size_t bytes) {
  return p->memory != NULL ? crc : weir_crc32c(crc, data, bytes);
}

/* What leaves in one system call: as much as is summed up while it passes through the cache. */
typedef struct parcel {
  tcp_frame frame[BATCH];
  uint32_t trailer[BATCH];
  struct iovec piece[3 * BATCH];
  size_t pieces, total;
} parcel;

/* Of message i, which is number m of the parcel: skip bytes of it have left.  Returns whether all
 * of it is in.  Only of the first one a part is put in, so that nothing is summed up twice. */
static bool pack(const tcp_call *x, int way, size_t i, int m, parcel *c, size_t skip) {
  tcp_peer *p = &x->self->peer[way];
  const tcp_part part = part_of_send(x, way, i);
  const unsigned char *data = (const unsigned char *)x->send[i].data + part.begin;
  const bool first = i == p->send_at;
  if (!first && part.bytes > SUM_MOST - c->total) return false;
  const size_t left = skip < sizeof(tcp_frame) ? 0 : skip - sizeof(tcp_frame);
  size_t summed = first ? p->summed : 0, end = left + (SUM_MOST - c->total);
  uint32_t crc = first ? p->send_crc : 0;
  if (end > part.bytes) end = part.bytes;
  tcp_frame_write(&c->frame[m], x->self->base.rank, x->tag, x->send[i].hop, x->send[i].bytes,
                  tcp_call_stream(x, way));
  if (summed == 0) crc = weir_crc32c(0, &c->frame[m], sizeof c->frame[m]);
  if (summed < end) crc = sum_up(p, crc, data + summed, end - summed);
  if (summed < end) summed = end;
  if (first) {
    p->send_crc = crc;
    p->summed = summed;
  }
  add_piece(c->piece, &c->pieces, &c->total, &c->frame[m], sizeof c->frame[m], &skip);
  add_piece(c->piece, &c->pieces, &c->total, data, summed, &skip);
  if (summed < part.bytes) return false;
  c->trailer[m] = htole32(crc);
  add_piece(c->piece, &c->pieces, &c->total, &c->trailer[m], TCP_TRAILER, &skip);
  return true;
}

static ssize_t send_some(tcp_peer *p, struct iovec *piece, size_t pieces) {
  const struct msghdr message = {.msg_iov = piece, .msg_iovlen = pieces};
  if (p->memory != NULL) return weir_memory_send(p->memory, piece, pieces);
  return p->tls != NULL ? tcp_tls_send(p, piece, pieces)
                        : sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t receive_some(tcp_peer *p, struct iovec *piece, size_t pieces) {
  struct msghdr message = {.msg_iov = piece, .msg_iovlen = pieces};
  if (p->memory != NULL) return weir_memory_recv(p->memory, piece, pieces);
  return p->tls != NULL ? tcp_tls_recv(p, piece, pieces) : recvmsg(p->fd, &message, MSG_DONTWAIT);
}

/* The bytes that come are not those of a cipher, or of a ring. */
static weir_status blame_bytes(tcp_call *x, int way) {
  const int peer = tcp_call_rank(x, way);
  const unsigned long long step = x->tag->step;
  const weir_status status =
      x->self->peer[way].memory != NULL
          ? weir_memory_spoilt(peer, step)
          : weir_fail(WEIR_E_PROTOCOL,
                      "a message of rank %d was damaged on its way: it cannot be decrypted (step "
                      "%llu)",
                      peer, step);
  return tcp_blame_frame(x->self, peer, status);
}

static weir_status push(tcp_call *x, int way) {
  tcp_peer *p = &x->self->peer[way];
  while (p->send_at < x->sends && !p->send_blocked) {
    parcel c;
    bool whole = true;
    size_t i = p->send_at;
    const int batch = p->tls != NULL ? 1 : BATCH;
    c.pieces = c.total = 0;
    for (int m = 0; whole && m < batch && i < x->sends && c.total < SUM_MOST; m++) {
      whole = pack(x, way, i, m, &c, m == 0 ? p->sent : 0);
      i = send_after(x, way, i);
    }
    const ssize_t sent = send_some(p, c.piece, c.pieces);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EBADMSG) return blame_bytes(x, way);
    if (sent < 0 && errno != EAGAIN)
      return tcp_blame_closed(x->self, tcp_call_rank(x, way), x->tag->step, errno);
    if (sent > 0) advance_sent(x, way, (size_t)sent);
    p->send_blocked = sent < (ssize_t)c.total;
  }
  return WEIR_OK;
}

static void finish_recv(tcp_call *x, tcp_peer *p) {
  const weir_recv *r = &x->recv[p->recv_at];
  /* The read that brought the end may have brought the begin of the next message. */
  if (p->flow.first_s > 0.0) {
    const size_t arrived = r->bytes + p->stage_end - p->stage_at;
    weir_flow_sample flow = weir_flow_end(&p->flow, r->peer, arrived, weir_now_s());
    if (x->sends >= x->recvs) flow.place = x->self->base.flows - x->flows;
    weir_flow_record(&x->self->base, flow);
  }
  p->flow = (weir_flow_track){0};
  p->headed = false;
  p->received = 0;
  p->recv_at = weir_recv_after(x->recv, x->recvs, p->recv_at);
  x->open--;
}

/* Does this stream's header fit the message, whose length stream 0 tells? */
static weir_status take_header(tcp_call *x, int way) {
  const tcp_peer *p = &x->self->peer[way];
  weir_recv *r = &x->recv[p->recv_at];
  const int peer = tcp_call_rank(x, way), stream = tcp_call_stream(x, way);
  size_t length = 0;
  const weir_status status =
      tcp_frame_check(p->stage + p->stage_at, peer, x->tag, r->hop, r->capacity, stream, &length);
  if (status != WEIR_OK) return status;
  if (stream > 0 && length != r->bytes)
    return weir_fail(WEIR_E_PROTOCOL,
                     "a message of rank %d has %zu bytes by stream 0 and %zu by stream %d", peer,
                     r->bytes, length, stream);
  if (stream > 0) return WEIR_OK;
  r->bytes = length;
  for (int s = 1; s < x->self->streams; s++)
    if (tcp_part_of(x->self, length, s).any) x->open++;
  return WEIR_OK;
}

/* What was read ahead: the header of the next message, and what there is of its payload. */
static weir_status unstage(tcp_call *x, int way) {
  tcp_peer *p = &x->self->peer[way];
  const weir_recv *r = &x->recv[p->recv_at];
  const weir_status status = take_header(x, way);
  if (status != WEIR_OK) return tcp_blame_frame(x->self, tcp_call_rank(x, way), status);
  const tcp_part part = tcp_call_part(x, way);
  p->headed = true;
  p->recv_crc = weir_crc32c(0, p->stage + p->stage_at, sizeof(tcp_frame));
  p->stage_at += sizeof(tcp_frame);
  const size_t there = p->stage_end - p->stage_at;
  p->received = there < part.bytes ? there : part.bytes;
  if (p->received > 0)
    memcpy((unsigned char *)r->data + part.begin, p->stage + p->stage_at, p->received);
  p->recv_crc = sum_up(p, p->recv_crc, p->stage + p->stage_at, p->received);
  p->stage_at += p->received;
  return WEIR_OK;
}

/* All of the payload is there: has it come as it was sent? */
static weir_status take_trailer(tcp_call *x, int way) {
  tcp_peer *p = &x->self->peer[way];
  const int peer = tcp_call_rank(x, way);
  uint32_t said;
  memcpy(&said, p->stage + p->stage_at, sizeof said);
  if (le32toh(said) != p->recv_crc)
    return tcp_blame_frame(
        x->self, peer,
        weir_fail(WEIR_E_PROTOCOL,
                  "a message of rank %d was damaged on its way: its checksum does not fit (step "
                  "%llu)",
                  peer, (unsigned long long)x->tag->step));
  p->stage_at += TCP_TRAILER;
  finish_recv(x, p);
  return WEIR_OK;
}

/* One read: the rest of the payload to its place, what follows it to the stage. */
static weir_status fill(tcp_call *x, int way) {
  tcp_peer *p = &x->self->peer[way];
  weir_recv *r = &x->recv[p->recv_at];
  const size_t kept = p->stage_end - p->stage_at;
  if (kept > 0) memmove(p->stage, p->stage + p->stage_at, kept);
  p->stage_at = 0;
  p->stage_end = kept;
  const tcp_part part = p->headed ? tcp_call_part(x, way) : (tcp_part){false, 0, 0};
  const size_t rest = part.bytes - p->received;
  struct iovec piece[2];
  size_t pieces = 0;
  if (rest > 0)
    piece[pieces++] = (struct iovec){(unsigned char *)r->data + part.begin + p->received, rest};
  piece[pieces++] = (struct iovec){p->stage + kept, TCP_STAGE - kept};
  const ssize_t got = receive_some(p, piece, pieces);
  if (got < 0 && errno == EINTR) return WEIR_OK;
  if (got < 0 && errno == EBADMSG) return blame_bytes(x, way);
  if (got == 0 || (got < 0 && errno != EAGAIN))
    return tcp_blame_closed(x->self, tcp_call_rank(x, way), x->tag->step, got == 0 ? 0 : errno);
  p->recv_blocked = got < (ssize_t)(rest + TCP_STAGE - kept);
  const size_t bytes = got < 0 ? 0 : (size_t)got;
  const size_t payload = bytes < rest ? bytes : rest;
  if (payload > 0)
    p->recv_crc =
        sum_up(p, p->recv_crc, (const unsigned char *)r->data + part.begin + p->received, payload);
  p->received += payload;
  p->stage_end += bytes - payload;
  /* The first chunk is all that had arrived when this rank looked. */
  if (r->bytes >= WEIR_FLOW_MIN && part.bytes == r->bytes && bytes > 0 && rest > 0 &&
      (payload < rest || p->flow.first_s > 0.0))
    weir_flow_read(&p->flow, r->bytes, p->received, bytes,
                   weir_flow_due(&p->flow, r->bytes, p->received) ? weir_now_s() : 0.0);
  return WEIR_OK;
}

weir_status tcp_call_stalled(tcp_call *x, int way) {
  const tcp_peer *p = &x->self->peer[way];
  if (p->tls == NULL || !tcp_call_due(x, way)) return WEIR_OK;
  const size_t payload = p->headed ? tcp_call_part(x, way).bytes - p->received
                                   : sizeof(tcp_frame) + x->recv[p->recv_at].capacity;
  const size_t due = payload + TCP_TRAILER - (p->stage_end - p->stage_at);
  return tcp_tls_torn(p, due) ? blame_bytes(x, way) : WEIR_OK;
}

bool tcp_call_due(tcp_call *x, int way) {
  tcp_peer *p = &x->self->peer[way];
  if (tcp_call_stream(x, way) == 0) return p->recv_at < x->recvs;
  const tcp_peer *first = &x->self->peer[tcp_call_rank(x, way)];
  while (p->recv_at < x->recvs) {
    if (p->recv_at > first->recv_at || (p->recv_at == first->recv_at && !first->headed))
      return false;
    if (p->headed || tcp_call_part(x, way).any) return true;
    p->recv_at = weir_recv_after(x->recv, x->recvs, p->recv_at);
  }
  return false;
}

weir_status tcp_call_pull(tcp_call *x, int way) {
  tcp_peer *p = &x->self->peer[way];
  while (tcp_call_due(x, way)) {
    weir_status status = WEIR_OK;
    const size_t staged = p->stage_end - p->stage_at;
    if (!p->headed && staged >= sizeof(tcp_frame))
      status = unstage(x, way);
    else if (p->headed && p->received == tcp_call_part(x, way).bytes && staged >= TCP_TRAILER)
      status = take_trailer(x, way);
    else if (!p->recv_blocked)
      status = fill(x, way);
    else
      return WEIR_OK;
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

static weir_status complete(tcp_call *x) {
  for (;;) {
    for (int i = 0; i < x->ways; i++) {
      weir_status status = push(x, x->self->active[i]);
      if (status == WEIR_OK) status = tcp_call_pull(x, x->self->active[i]);
      if (status != WEIR_OK) return status;
    }
    if (x->open == 0) return WEIR_OK;
    const weir_status status = tcp_call_wait(x);
    if (status != WEIR_OK) return status;
  }
}

weir_status tcp_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                         size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  tcp *self = (tcp *)t;
  weir_end end;
  weir_status status = weir_messages_check(t, send, sends, recv, recvs);
  if (status != WEIR_OK) return status;
  if (self->ended.reason != WEIR_OK) return weir_end_fail(&self->ended, t->rank);
  if (tcp_abort_seen(self, &end)) return tcp_blame_abort(self, &end);
  tcp_call x = {.self = self,
                .tag = tag,
                .send = send,
                .sends = sends,
                .recv = recv,
                .recvs = recvs,
                .deadline_s = deadline_s,
                .flows = t->flows};
  begin(&x);
  status = complete(&x);
  atomic_store_explicit(&self->waiting_on, -1, memory_order_relaxed);
  return status;
}

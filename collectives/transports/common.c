#include "collectives/transports/common.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

weir_status weir_transport_check(int rank, int size, double timeout_s) {
  if (size < 1 || size > WEIR_RANKS_MAX)
    return weir_fail(WEIR_E_INVALID, "a group of %d ranks is outside 1 .. %d", size,
                     WEIR_RANKS_MAX);
  if (rank < 0 || rank >= size)
    return weir_fail(WEIR_E_INVALID, "rank %d is outside 0 .. %d", rank, size - 1);
  if (!(timeout_s > 0.0 && timeout_s < 1e9))
    return weir_fail(WEIR_E_INVALID, "time-out of %g s is not in (0, 1e9)", timeout_s);
  return WEIR_OK;
}

bool weir_crowded(int size) {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < size;
}

static bool is_peer(const weir_transport *t, int peer) {
  return peer >= 0 && peer < t->size && peer != t->rank;
}

weir_status weir_messages_check(const weir_transport *t, const weir_send *send, size_t sends,
                                const weir_recv *recv, size_t recvs) {
  for (size_t i = 0; i < sends; i++)
    if (!is_peer(t, send[i].peer))
      return weir_fail(WEIR_E_INVALID, "rank %d cannot send to rank %d of %d", t->rank,
                       send[i].peer, t->size);
  for (size_t i = 0; i < recvs; i++)
    if (!is_peer(t, recv[i].peer))
      return weir_fail(WEIR_E_INVALID, "rank %d cannot receive from rank %d of %d", t->rank,
                       recv[i].peer, t->size);
  return WEIR_OK;
}

size_t weir_send_after(const weir_send *send, size_t sends, size_t i) {
  const int peer = send[i].peer;
  while (++i < sends && send[i].peer != peer) continue;
  return i;
}

size_t weir_recv_after(const weir_recv *recv, size_t recvs, size_t i) {
  const int peer = recv[i].peer;
  while (++i < recvs && recv[i].peer != peer) continue;
  return i;
}

weir_status weir_tag_check(int peer, const weir_tag *expected, const weir_tag *got) {
  const unsigned long long step = expected->step, other_step = got->step;
  if (got->step != expected->step)
    return weir_fail(WEIR_E_MISMATCH, "rank %d is at step %llu, this rank at step %llu", peer,
                     other_step, step);
  if (got->plan != expected->plan)
    return weir_fail(WEIR_E_MISMATCH,
                     "rank %d runs plan %016llx, this rank plan %016llx (step %llu)", peer,
                     (unsigned long long)got->plan, (unsigned long long)expected->plan, step);
  if (got->op != expected->op)
    return weir_fail(WEIR_E_MISMATCH,
                     "rank %d is at operation %u, this rank at operation %u (step %llu)", peer,
                     got->op, expected->op, step);
  if (got->hop != expected->hop)
    return weir_fail(WEIR_E_MISMATCH,
                     "rank %d sent message %u where %u was due (step %llu, operation %u)", peer,
                     got->hop, expected->hop, step, expected->op);
  return WEIR_OK;
}

#define FRAME_MAGIC UINT32_C(0x57504d31)
#define FRAME_VERSION 1

weir_frame weir_frame_of(int from, const weir_tag *tag, uint32_t hop, size_t length) {
  return (weir_frame){.magic = FRAME_MAGIC,
                      .version = FRAME_VERSION,
                      .from = (uint16_t)from,
                      .plan = tag->plan,
                      .step = tag->step,
                      .op = tag->op,
                      .hop = hop,
                      .length = length};
}

weir_status weir_frame_check(const weir_frame *frame, int peer, const weir_tag *tag, uint32_t hop,
                             size_t capacity) {
  if (frame->magic != FRAME_MAGIC || frame->version != FRAME_VERSION || frame->from != peer)
    return weir_fail(WEIR_E_PROTOCOL, "rank %d sent something that is not a frame of Weir's", peer);
  weir_tag due = *tag;
  due.hop = hop;
  const weir_tag got = {frame->plan, frame->step, frame->op, frame->hop};
  const weir_status status = weir_tag_check(peer, &due, &got);
  if (status != WEIR_OK) return status;
  if (frame->length > capacity)
    return weir_fail(WEIR_E_PROTOCOL, "rank %d sent %llu bytes where at most %zu were due", peer,
                     (unsigned long long)frame->length, capacity);
  return WEIR_OK;
}

weir_status weir_end_fail(const weir_end *end, int rank) {
  const char *self = end->culprit == rank ? " (this rank)" : "";
  const char *own = end->reporter == rank ? " (this rank)" : "";
  switch (end->reason) {
    case WEIR_E_TIMEOUT:
      return weir_fail(WEIR_E_TIMEOUT, "rank %d%s did not answer in time, says rank %d%s",
                       end->culprit, self, end->reporter, own);
    case WEIR_E_MISMATCH:
      return weir_fail(WEIR_E_MISMATCH,
                       "rank %d%s and rank %d%s are not on the same plan, step or operation",
                       end->culprit, self, end->reporter, own);
    case WEIR_E_PROTOCOL:
      return weir_fail(WEIR_E_PROTOCOL, "rank %d%s broke the protocol, says rank %d%s",
                       end->culprit, self, end->reporter, own);
    default:
      return weir_fail(WEIR_E_PEER, "rank %d%s is gone, says rank %d%s", end->culprit, self,
                       end->reporter, own);
  }
}

int weir_end_of_chain(const void *group, weir_waiter_of *of, int size, int own, int peer) {
  int rank = peer;
  for (int i = 0; i < size && rank != own; i++) {
    const weir_waiter w = of(group, rank);
    if (!w.answers || w.waiting_on < 0 || w.waiting_on >= size) return rank;
    rank = w.waiting_on;
  }
  for (int r = 0; r < size; r++)
    if (r != own && !of(group, r).answers) return r;
  return peer;
}

weir_status weir_survivors_check(const bool *member, const bool *dead, int size) {
  int count = 0, silent = -1;
  for (int r = 0; r < size; r++) {
    if (member[r]) count++;
    if (!member[r] && !dead[r] && silent < 0) silent = r;
  }
  if (silent < 0 || 2 * count > size || (2 * count == size && member[0])) return WEIR_OK;
  return weir_fail(WEIR_E_PEER,
                   "%d of %d ranks cannot go on: rank %d is silent and may be going on elsewhere",
                   count, size, silent);
}

static weir_status exchange(weir_transport *t, const weir_tag *tag, unsigned char *all,
                            size_t bytes, weir_send *send, weir_recv *recv, double deadline_s) {
  size_t n = 0;
  for (int r = 0; r < t->size; r++) {
    if (r == t->rank) continue;
    send[n] = (weir_send){r, all + (size_t)t->rank * bytes, bytes, 0};
    recv[n++] = (weir_recv){r, all + (size_t)r * bytes, bytes, 0, 0};
  }
  const weir_status status = t->ops->transfer(t, tag, send, n, recv, n, deadline_s);
  for (size_t i = 0; status == WEIR_OK && i < n; i++)
    if (recv[i].bytes != bytes) {
      t->ops->abort(t, recv[i].peer);
      return weir_fail(WEIR_E_MISMATCH, "rank %d tells %zu bytes, this rank %zu", recv[i].peer,
                       recv[i].bytes, bytes);
    }
  return status;
}

weir_status weir_transport_tell(weir_transport *t, const weir_tag *tag, void *all, size_t bytes,
                                double deadline_s) {
  const size_t size = (size_t)t->size;
  weir_send *send = calloc(size, sizeof *send);
  weir_recv *recv = calloc(size, sizeof *recv);
  const weir_status status = send && recv
                                 ? exchange(t, tag, all, bytes, send, recv, deadline_s)
                                 : weir_fail(WEIR_E_NOMEM, "no memory for %zu ranks", size);
  free(recv);
  free(send);
  return status;
}

void weir_ring_write(unsigned char *ring, size_t size, uint64_t at, const void *data,
                     size_t bytes) {
  const size_t begin = (size_t)at & (size - 1);
  const size_t head = bytes < size - begin ? bytes : size - begin;
  if (head > 0) memcpy(ring + begin, data, head);
  if (bytes > head) memcpy(ring, (const unsigned char *)data + head, bytes - head);
}

void weir_ring_read(const unsigned char *ring, size_t size, uint64_t at, void *data, size_t bytes) {
  const size_t begin = (size_t)at & (size - 1);
  const size_t head = bytes < size - begin ? bytes : size - begin;
  if (head > 0) memcpy(data, ring + begin, head);
  if (bytes > head) memcpy((unsigned char *)data + head, ring, bytes - head);
}

void weir_flow_record(weir_transport *t, weir_flow_sample flow) {
  const size_t slots = sizeof t->flow / sizeof *t->flow;
  t->flow[t->flows++ % slots] = flow;
}

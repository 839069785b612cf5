/* Some ranks of a group as a group of their own, over the parent's connections. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/transports/common.h"

typedef struct view {
  weir_transport base;
  weir_transport *parent;
  int *member;
  weir_send *send;
  weir_recv *recv;
  size_t sends, recvs; /* capacity */
} view;

static weir_status reserve(view *self, size_t sends, size_t recvs) {
  if (sends > self->sends) {
    weir_send *more = realloc(self->send, sends * sizeof *more);
    if (!more) return weir_fail(WEIR_E_NOMEM, "no memory for %zu messages", sends);
    self->send = more;
    self->sends = sends;
  }
  if (recvs > self->recvs) {
    weir_recv *more = realloc(self->recv, recvs * sizeof *more);
    if (!more) return weir_fail(WEIR_E_NOMEM, "no memory for %zu messages", recvs);
    self->recv = more;
    self->recvs = recvs;
  }
  return WEIR_OK;
}

static weir_status view_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                                 size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  view *self = (view *)t;
  weir_status status = weir_messages_check(t, send, sends, recv, recvs);
  if (status == WEIR_OK) status = reserve(self, sends, recvs);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < sends; i++) {
    self->send[i] = send[i];
    self->send[i].peer = self->member[send[i].peer];
  }
  for (size_t i = 0; i < recvs; i++) {
    self->recv[i] = recv[i];
    self->recv[i].peer = self->member[recv[i].peer];
  }
  const uint64_t before = self->parent->bytes_sent;
  status = self->parent->ops->transfer(self->parent, tag, self->send, sends, self->recv, recvs,
                                       deadline_s);
  t->bytes_sent += self->parent->bytes_sent - before;
  for (size_t i = 0; i < recvs; i++) recv[i].bytes = self->recv[i].bytes;
  return status;
}

static weir_status view_echo(weir_transport *t, int peer, double timeout_s, double *rtt_s) {
  const view *self = (const view *)t;
  if (peer < 0 || peer >= t->size || peer == t->rank)
    return weir_fail(WEIR_E_INVALID, "rank %d cannot ask rank %d of %d", t->rank, peer, t->size);
  if (!self->parent->ops->echo) return weir_fail(WEIR_E_UNSUPPORTED, "the transport has no echo");
  return self->parent->ops->echo(self->parent, self->member[peer], timeout_s, rtt_s);
}

static int view_descriptor(weir_transport *t, int peer) {
  const view *self = (const view *)t;
  if (!self->parent->ops->descriptor || peer < 0 || peer >= t->size) return -1;
  return self->parent->ops->descriptor(self->parent, self->member[peer]);
}

static const char *view_address(weir_transport *t, int rank) {
  const view *self = (const view *)t;
  if (!self->parent->ops->address || rank < 0 || rank >= t->size) return NULL;
  return self->parent->ops->address(self->parent, self->member[rank]);
}

static void view_abort(weir_transport *t, int culprit) {
  const view *self = (const view *)t;
  const bool known = culprit >= 0 && culprit < t->size;
  self->parent->ops->abort(self->parent, self->member[known ? culprit : t->rank]);
}

static void view_destroy(weir_transport *t) {
  view *self = (view *)t;
  free(self->recv);
  free(self->send);
  free(self->member);
  free(self);
}

static const weir_transport_ops view_ops = {.name = "view",
                                            .transfer = view_transfer,
                                            .echo = view_echo,
                                            .descriptor = view_descriptor,
                                            .address = view_address,
                                            .abort = view_abort,
                                            .destroy = view_destroy};

/* The caller's place among the members; -1 when they are no such list. */
static int place_of(const weir_transport *parent, const int *member, int size) {
  int place = -1;
  for (int i = 0; i < size; i++) {
    if (member[i] < 0 || member[i] >= parent->size) return -1;
    for (int j = 0; j < i; j++)
      if (member[j] == member[i]) return -1;
    if (member[i] == parent->rank) place = i;
  }
  return place;
}

weir_status weir_transport_view(weir_transport **out, weir_transport *parent, const int *member,
                                int size) {
  *out = NULL;
  const int place = size >= 1 ? place_of(parent, member, size) : -1;
  if (place < 0)
    return weir_fail(WEIR_E_INVALID,
                     "the %d ranks of a view are not different ranks of %d, with rank "
                     "%d among them",
                     size, parent->size, parent->rank);
  view *self = calloc(1, sizeof *self);
  if (self) self->member = malloc((size_t)size * sizeof *self->member);
  if (!self || !self->member) {
    free(self);
    return weir_fail(WEIR_E_NOMEM, "no memory for a view of %d ranks", size);
  }
  memcpy(self->member, member, (size_t)size * sizeof *self->member);
  self->base.ops = &view_ops;
  self->base.rank = place;
  self->base.size = size;
  self->parent = parent;
  *out = &self->base;
  return WEIR_OK;
}

int weir_transport_rank_of(const weir_transport *t, int peer) {
  return t->ops == &view_ops ? ((const view *)t)->member[peer] : peer;
}

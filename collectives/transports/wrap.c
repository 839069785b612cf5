#include "collectives/transports/wrap.h"

#include <stdlib.h>

#include "base/base.h"

static weir_transport *inner_of(weir_transport *t) { return ((weir_wrap *)t)->inner; }

static weir_status pass_echo(weir_transport *t, int peer, double timeout_s, double *rtt_s) {
  return inner_of(t)->ops->echo(inner_of(t), peer, timeout_s, rtt_s);
}

static int pass_descriptor(weir_transport *t, int peer) {
  return inner_of(t)->ops->descriptor(inner_of(t), peer);
}

static const char *pass_address(weir_transport *t, int rank) {
  return inner_of(t)->ops->address(inner_of(t), rank);
}

static void pass_abort(weir_transport *t, int culprit) {
  inner_of(t)->ops->abort(inner_of(t), culprit);
}

/* The survivors' group is not wrapped. */
static weir_status pass_shrink(weir_transport *t, double timeout_s, weir_transport **out,
                               int *old_rank) {
  return inner_of(t)->ops->shrink(inner_of(t), timeout_s, out, old_rank);
}

static void pass_destroy(weir_transport *t) {
  if (!t) return;
  inner_of(t)->ops->destroy(inner_of(t));
  free(t);
}

weir_status weir_wrap_create(weir_wrap **out, size_t bytes, weir_transport *inner,
                             const char *name) {
  weir_wrap *wrap = calloc(1, bytes);
  *out = wrap;
  if (!wrap) return weir_fail(WEIR_E_NOMEM, "no memory for a transport");
  wrap->ops = (weir_transport_ops){.name = name,
                                   .echo = inner->ops->echo ? pass_echo : NULL,
                                   .descriptor = inner->ops->descriptor ? pass_descriptor : NULL,
                                   .address = inner->ops->address ? pass_address : NULL,
                                   .abort = pass_abort,
                                   .destroy = pass_destroy,
                                   .shrink = inner->ops->shrink ? pass_shrink : NULL};
  wrap->inner = inner;
  wrap->base = *inner;
  wrap->base.ops = &wrap->ops;
  return WEIR_OK;
}

weir_status weir_wrap_transfer(weir_wrap *wrap, const weir_tag *tag, const weir_send *send,
                               size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  weir_transport *inner = wrap->inner;
  const uint32_t slots = sizeof inner->flow / sizeof inner->flow[0];
  const weir_status status = inner->ops->transfer(inner, tag, send, sends, recv, recvs, deadline_s);
  wrap->base.bytes_sent = inner->bytes_sent;
  if (inner->flows - wrap->base.flows > slots) wrap->base.flows = inner->flows - slots;
  for (; wrap->base.flows != inner->flows; wrap->base.flows++)
    wrap->base.flow[wrap->base.flows % slots] = inner->flow[wrap->base.flows % slots];
  return status;
}

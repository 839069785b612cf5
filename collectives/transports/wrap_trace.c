/* What was transferred, when. */
#include "base/base.h"
#include "collectives/transports/wrap.h"

typedef struct traced {
  weir_wrap wrap;
  weir_transfer_log *log;
} traced;

static weir_status traced_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                                   size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  traced *self = (traced *)t;
  weir_transfer_log *log = self->log;
  weir_transfer_entry entry = {.tag = *tag, .sends = sends, .recvs = recvs};
  for (size_t i = 0; i < sends; i++) entry.bytes_out += send[i].bytes;
  entry.begin_s = weir_now_s();
  entry.status = weir_wrap_transfer(&self->wrap, tag, send, sends, recv, recvs, deadline_s);
  entry.end_s = weir_now_s();
  for (size_t i = 0; entry.status == WEIR_OK && i < recvs; i++) entry.bytes_in += recv[i].bytes;
  log->entry[log->count++ % log->capacity] = entry;
  return entry.status;
}

weir_status weir_transport_trace(weir_transport **out, weir_transport *inner,
                                 weir_transfer_log *log) {
  *out = NULL;
  if (!log || !log->entry || log->capacity < 1)
    return weir_fail(WEIR_E_INVALID, "a trace needs room for at least one transfer");
  weir_wrap *wrap = NULL;
  const weir_status status = weir_wrap_create(&wrap, sizeof(traced), inner, "trace");
  if (status != WEIR_OK) return status;
  ((traced *)wrap)->log = log;
  wrap->ops.transfer = traced_transfer;
  *out = &wrap->base;
  return WEIR_OK;
}

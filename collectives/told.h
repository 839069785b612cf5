/* What a transfer of messages is told to those who look inside: for whom this rank waits
 * (base/scope.h), its messages in the trace file, and as log lines. */
#ifndef WEIR_COLLECTIVES_TOLD_H
#define WEIR_COLLECTIVES_TOLD_H

#include "collectives/transport.h"

typedef struct weir_told {
  double begin_s;
  uint64_t bytes_before;
} weir_told;

/* Around a transfer.  The end tells nothing of messages that failed. */
weir_told weir_told_begin(const weir_transport *t, const weir_send *send, size_t sends,
                          const weir_recv *recv, size_t recvs);
void weir_told_end(const weir_transport *t, const weir_told *told, const weir_send *send,
                   size_t sends, const weir_recv *recv, size_t recvs, weir_status status);

#endif

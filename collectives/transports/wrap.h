/* Passing on what a wrapper does not change; its own struct begins with a weir_wrap. */
#ifndef WEIR_TRANSPORTS_WRAP_H
#define WEIR_TRANSPORTS_WRAP_H

#include "collectives/wrappers.h"

typedef struct weir_wrap {
  weir_transport base;
  weir_transport_ops ops; /* a table of its own: what the inner one lacks, it lacks */
  weir_transport *inner;
} weir_wrap;

/* A zeroed wrapper of `bytes` that passes everything on but transfers. */
weir_status weir_wrap_create(weir_wrap **out, size_t bytes, weir_transport *inner,
                             const char *name);
/* The inner transfer; takes over its counters. */
weir_status weir_wrap_transfer(weir_wrap *wrap, const weir_tag *tag, const weir_send *send,
                               size_t sends, weir_recv *recv, size_t recvs, double deadline_s);

#endif

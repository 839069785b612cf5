/* What libweir and its helper program, weir-netprobe, say to each other.
 *
 * One request and one reply at a time, each a message of a socket pair (SOCK_SEQPACKET).  Both ends
 * run on one machine and are installed together; the words in front tell when they are not. */
#ifndef WEIR_NETMON_HELPER_H
#define WEIR_NETMON_HELPER_H

#include <stdint.h>
#include <weir/status.h>

#include "netmon/netmon.h"

#define WEIR_HELPER_MAGIC UINT32_C(0x504e4557) /* "WENP" */
#define WEIR_HELPER_VERSION 2u
/* The descriptor of the helper's end; its one argument is the process that started it. */
#define WEIR_HELPER_FD 3

enum {
  WEIR_HELPER_SERVE = 1,      /* iperf3 on name:port, until CLOSE or the helper's end */
  WEIR_HELPER_MEASURE = 2,    /* send `bytes` to name:port -> bandwidth */
  WEIR_HELPER_LINK_OF = 3,    /* address `name` -> name of its interface */
  WEIR_HELPER_LINK_BYTES = 4, /* interface `name` -> bytes it has sent */
  WEIR_HELPER_CLOSE = 5       /* no longer serve, if it does */
};

typedef struct weir_helper_request {
  uint32_t magic, version; /* of every version, first */
  uint32_t serial;         /* counts requests; the reply repeats it */
  uint32_t what;
  uint64_t bytes;
  double timeout_s; /* the helper takes no longer */
  int32_t port;
  char name[68];
} weir_helper_request;
_Static_assert(sizeof(weir_helper_request) == 104, "a request has no padding");

typedef struct weir_helper_reply {
  uint32_t magic, version;
  uint32_t serial;
  uint32_t status;  /* weir_status */
  double bandwidth; /* payload bytes/s */
  uint64_t bytes;
  char name[16];
  char text[176]; /* where status is not WEIR_OK */
} weir_helper_reply;
_Static_assert(sizeof(weir_helper_reply) == 224, "a reply has no padding");

/* Fill in the words in front, send the request, and wait for its reply, grace_s longer than the
 * helper may take.  WEIR_E_IO: the helper is gone. */
weir_status weir_helper_ask(weir_helper *helper, weir_helper_request *request, double grace_s,
                            weir_helper_reply *reply);

#endif

/* What the iperf3 helper and its owner say to each other, and one test in a process of its own.
 * Used by netmon/iperf*.c only. */
#ifndef WEIR_NETMON_IPERF_H
#define WEIR_NETMON_IPERF_H

#include <stdint.h>
#include <weir/status.h>

enum { WEIR_IPERF_SERVE = 1, WEIR_IPERF_MEASURE = 2 };

typedef struct weir_iperf_request {
  uint32_t what;
  int32_t port;
  uint64_t bytes;
  double timeout_s;
  char address[64];
} weir_iperf_request;

typedef struct weir_iperf_reply {
  uint32_t status;  /* weir_status */
  uint32_t again;   /* the server was busy or between two tests: worth another try */
  double bandwidth; /* payload bytes/s */
  char text[176];
} weir_iperf_reply;

/* In a child: serve until it goes wrong; does not return. */
_Noreturn void weir_iperf_server_child(const weir_iperf_request *request);
/* In a child: one client test. */
void weir_iperf_client_test(const weir_iperf_request *request, weir_iperf_reply *reply);
/* The helper's life: requests from `socket` until it is closed. */
_Noreturn void weir_iperf_helper(int socket);

#endif

/* Inside of weir-netprobe, the program that libweir starts beside a session (netmon/helper.h says
 * what the two say to each other).
 *
 * main.c        requests and replies, and the end: with the socket, or with the process that
 *               started this one
 * iperf.c       the server that is kept alive, and tests with a watchdog, each in a child
 * iperf_test.c  one side of a test
 * link.c        what netlink knows of interfaces */
#ifndef WEIR_NETPROBE_H
#define WEIR_NETPROBE_H

#include <stdbool.h>
#include <sys/types.h>

#include "netmon/helper.h"

typedef struct netprobe {
  int socket;
  int owner; /* descriptor of the process that started this one; -1: the socket alone tells */
  pid_t server;
  weir_helper_request serving;
} netprobe;

/* The owner has closed its end, or has ended. */
bool netprobe_alone(const netprobe *self);

/* Serve, and measure: fill in the reply. */
void netprobe_serve(netprobe *self, const weir_helper_request *request, weir_helper_reply *reply);
void netprobe_measure(netprobe *self, const weir_helper_request *request, weir_helper_reply *reply);
/* A server that has ended is started again; the last one. */
void netprobe_keep_server(netprobe *self);
void netprobe_end_server(netprobe *self);

typedef struct iperf_result {
  weir_status status;
  bool again;       /* the server was busy or between two tests: worth another try */
  double bandwidth; /* payload bytes/s */
  char text[sizeof(((weir_helper_reply *)0)->text)];
} iperf_result;
/* In a child: serve until it goes wrong; does not return. */
_Noreturn void iperf_server_child(const weir_helper_request *request);
/* In a child: one client test. */
void iperf_client_test(const weir_helper_request *request, iperf_result *result);

weir_status netprobe_link_bytes(const char *interface_name, uint64_t *sent);
weir_status netprobe_link_of_address(const char *address, char name[16]);

#endif

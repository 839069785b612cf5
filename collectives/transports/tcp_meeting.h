/* Ranks that come together: each connects to those below it and hears those above it, all at once.
 * Whoever does not prove to know the job's secret is refused and harms nobody. */
#ifndef WEIR_TRANSPORTS_TCP_MEETING_H
#define WEIR_TRANSPORTS_TCP_MEETING_H

#include "collectives/transports/tcp.h"
#include "collectives/transports/tcp_hello.h"

#define TCP_STRANGERS 64 /* connections that have not proved yet who they are */

enum { /* what is due from it */
       GUEST_HELLO,
       GUEST_PROOF,
       GUEST_CHALLENGE,
       GUEST_WELCOME,
       GUEST_JOINER, /* that other members have let it in, too */
       GUEST_READY   /* nothing, until it is called */
};

typedef struct tcp_guest {
  int fd;
  int due;
  int rank; /* of one this rank has called; else -1 until it has said */
  size_t got;
  tcp_hello said; /* what is being read */
  tcp_hello hello, challenge;
  struct sockaddr_in from;
} tcp_guest;

typedef struct tcp_arrival {
  int fd; /* -1: not there */
  struct in_addr address;
  in_port_t data_port, echo_port;
  tcp_hello hello, challenge; /* for a table's proof */
  unsigned serial;            /* tells this connection from others of the rank's */
} tcp_arrival;

typedef struct tcp_meeting {
  tcp *self;
  int listener;
  tcp_terms terms;
  tcp_arrival *arrival; /* per rank */
  int missing;
  unsigned admitted; /* so many connections have been */
  int guests;
  tcp_guest guest[TCP_STRANGERS];
  unsigned logged; /* a bit per reason: each is logged once */
  bool deaf;       /* for want of descriptors, as has been logged */
} tcp_meeting;

weir_status tcp_meeting_open(tcp_meeting **out, tcp *self, int listener, int kind,
                             uint64_t generation);
/* May this rank call another one?  Of the seats half are for those whom it calls, however many
 * strangers have come, and half for those who come. */
bool tcp_meeting_may_call(const tcp_meeting *m);
/* Begin to speak to a rank below this one over a connection to it; takes the descriptor over. */
void tcp_meeting_call(tcp_meeting *m, int rank, int fd);
/* Hear and answer until no rank is missing, the deadline, or a rank's refusal, which is
 * an error. */
weir_status tcp_meeting_hold(tcp_meeting *m, double deadline_s);
/* The same, until something has been heard. */
weir_status tcp_meeting_turn(tcp_meeting *m, double deadline_s);
/* Is this rank being spoken to? */
bool tcp_meeting_has_called(const tcp_meeting *m, int rank);
/* A guest goes, and its connection stays open. */
void tcp_meeting_forget(tcp_meeting *m, int i);
/* Closes what has not been taken out of arrival[]. */
void tcp_meeting_close(tcp_meeting *m);

/* Tell the table of this rank's group behind a hello, which names its kind, and prove it to the one
 * who has said `hello` over fd and was challenged; false: the connection ends, or the deadline
 * passes. */
bool tcp_tell_table(const tcp *self, int fd, const tcp_hello *hello, const tcp_hello *challenge,
                    tcp_hello h, double deadline_s);
/* The table of `size` ranks behind such a hello, to be freed; WEIR_OK with NULL: the connection has
 * ended. */
weir_status tcp_read_table(const tcp *self, int fd, const tcp_hello *hello,
                           const tcp_hello *challenge, const tcp_hello *h, size_t size,
                           double deadline_s, tcp_table_entry **table);
tcp_hello tcp_compose(const tcp *self, int kind, uint64_t generation);
/* Call the ranks from `first` to this one, hear those above, until none is missing or the deadline;
 * a call that was cut off is made again. */
weir_status tcp_gather(tcp_meeting *m, const struct sockaddr_in *from, int first,
                       double deadline_s);
void tcp_set_peer(tcp_peer *p, struct in_addr address, in_port_t data, in_port_t echo);

#endif

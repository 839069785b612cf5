/* Inside of the TCP transport.
 *
 * tcp.c            life and the table of operations
 * tcp_hello.c      what ranks say and prove to each other before they are a group
 * tcp_meeting.c    ranks that come together, and strangers that are refused
 * tcp_shrink.c     survivors that come together anew; who they are: synod.c, by tcp_word.c
 * tcp_joiners.c    those who wait to join a group that runs
 * tcp_join.c       how a rank joins one
 * tcp_rendezvous.c how ranks find each other and become a full mesh
 * tcp_streams.c    further connections between each two ranks, and what travels on which
 * tcp_user.c       which local user is at the other end
 * tcp_tls.c        the same connections, encrypted
 * tcp_share.c      connections that move into memory which ranks share (memory.h)
 * tcp_socket.c     opening, connecting and accepting, all with deadlines
 * tcp_transfer.c   moving messages: every send and receive of a call makes progress at once
 * tcp_wait.c       waiting until something moves; both share tcp_call.h
 * tcp_frame.c      the header in front of every message
 * tcp_datagram.c   the UDP socket: echo, abort, and the thread that answers
 * tcp_train.c      trains of datagrams, timed as they arrive
 * tcp_blame.c      who is to blame when a transfer fails */
#ifndef WEIR_TRANSPORTS_TCP_H
#define WEIR_TRANSPORTS_TCP_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "collectives/credentials.h"
#include "collectives/secret.h"
#include "collectives/transports/common.h"
#include "collectives/transports/flow.h"
#include "collectives/transports/memory.h"

#define TCP_VERSION 16
#define TCP_STAGE ((size_t)16 * 1024)

/* --- frames --------------------------------------------------------------------------------- */

/* Little-endian on the wire.  Behind it comes the message, or a stream's part of it, and behind
 * that the CRC32C of both. */
typedef struct tcp_frame {
  uint32_t magic;
  uint16_t version;
  uint16_t from; /* rank */
  uint64_t plan;
  uint64_t step;
  uint32_t op;
  uint32_t hop;
  uint64_t length;   /* of the message; a divided one has only its stream's part behind this */
  uint32_t stream;   /* of several between these two ranks, from 0 */
  uint32_t checksum; /* of the 44 bytes before it */
} tcp_frame;
_Static_assert(sizeof(tcp_frame) == 48, "the frame header has no padding");
#define TCP_TRAILER sizeof(uint32_t)

void tcp_frame_write(tcp_frame *frame, int from, const weir_tag *tag, uint32_t hop, size_t length,
                     int stream);
/* Check a header from `peer` against what is due; *length is its message's, at most capacity. */
weir_status tcp_frame_check(const void *bytes, int peer, const weir_tag *tag, uint32_t hop,
                            size_t capacity, int stream, size_t *length);
uint32_t tcp_checksum(const void *bytes, size_t count);

/* --- a rank's end --------------------------------------------------------------------------- */

/* The train of datagrams that a peer is sending. */
typedef struct tcp_train_state {
  uint64_t sequence, proof;
  int64_t begin_ns, last_ns; /* when half of it had come; when the newest came */
  uint16_t arrived;
  uint16_t timed; /* of those, after begin_ns */
} tcp_train_state;

/* How messages are encrypted; what ranks tell each other when they meet (tcp_hello.detail). */
typedef enum tcp_seal { TCP_PLAIN, TCP_BY_KEY, TCP_BY_CERTIFICATE } tcp_seal;

/* One connection: of rank r its stream s is at [s * size + r].  Addresses, trains and whether it is
 * dead are kept with stream 0. */
typedef struct tcp_peer {
  int fd;                  /* -1: oneself */
  struct tcp_tls *tls;     /* NULL: what travels is not encrypted */
  weir_memory *memory;     /* not NULL: it travels there, and fd is the bell */
  struct sockaddr_in data; /* where it listens */
  struct sockaddr_in echo; /* its UDP socket */
  char address[INET_ADDRSTRLEN];
  bool near; /* on this machine */
  bool dead; /* its process was known to have ended just after the group had */
  /* Bytes read ahead of the message they belong to. */
  unsigned char *stage;
  size_t stage_at;
  size_t stage_end;
  /* Progress in the running transfer. */
  size_t send_at;    /* message being sent; == sends: none left */
  size_t sent;       /* bytes of it, header and trailer included */
  size_t recv_at;    /* message being received; == recvs: none left */
  size_t received;   /* payload bytes of it */
  bool headed;       /* its header has been taken */
  uint32_t send_crc; /* of the header and of `summed` bytes of the part being sent */
  size_t summed;
  uint32_t recv_crc; /* of the header and of what has been received */
  bool send_blocked; /* until poll says otherwise */
  bool recv_blocked;
  int lump;              /* bytes that must be there before poll tells; 0: the system's own, 1 */
  tcp_train_state train; /* of the answering thread alone */
  weir_flow_track flow;  /* of the message being received, when it is long */
} tcp_peer;

typedef struct tcp {
  weir_transport base;
  weir_transport_ops ops; /* those of base, once some of its ranks share memory */
  weir_machine_memory shared;
  uint64_t job;
  int door;    /* rank 0, before it meets the others: where it listens already; 0: nowhere */
  bool secret; /* the job has one */
  tcp_seal sealed;
  weir_credentials *credentials; /* NULL: none */
  weir_key key;                  /* of the job: who may join */
  weir_key group_key;            /* of this group: who may end it */
  int listener;                  /* -1: a group of one; later for the survivors of this group */
  uint64_t generation;           /* how often the group has shrunk */
  unsigned reunions;             /* how often that was tried with this one */
  struct weir_synod *synod;      /* what survivors have said of it; NULL: nothing */
  int most;                      /* ranks that it may have; 0: nobody may join */
  uint64_t offer;                /* what those who join must have registered */
  bool called; /* those who wait have been called, and survivors' words may tell of them */
  struct tcp_joiners *joiners; /* NULL: nobody may join, or is heard yet */
  int streams;                 /* connections to every other rank */
  bool left_out;               /* the others have gone on without this rank */
  tcp_peer *peer;              /* streams * size entries */
  int *active;                 /* of the running transfer, indices of peer[] */
  struct pollfd *poll;
  bool crowded; /* not a processor for each rank of the group, were they all here */
  /* Waiting awake: times it was in vain, in time since then, and waits to come without it. */
  unsigned in_vain, in_time, abstain;
  weir_end ended;   /* why no transfer can succeed any more, as this thread knows it */
  int64_t ended_ns; /* when this rank said so to the others, by tcp_wall_ns(); 0: it did not */

  int udp;  /* -1: a group of one */
  int wake; /* eventfd: an abort has arrived */
  int stop; /* eventfd: the answering thread shall end */
  bool answering;
  atomic_bool meeting; /* survivors are expected at the listener */
  pthread_t answerer;
  pthread_mutex_t reading;      /* of what comes in at udp */
  atomic_int waiting_on;        /* the peer the transfer waits for; -1 outside one */
  atomic_uint_fast64_t abort;   /* 0, or the first abort that came */
  atomic_int_fast64_t abort_ns; /* when it came, by the kernel's stamp; set before `abort` */
} tcp;

/* --- sockets -------------------------------------------------------------------------------- */

/* "HOST:PORT" to the IPv4 addresses that HOST has, in the order in which this machine is told them:
 * at most as many.  Where nobody can be asked for the moment they are asked again until the
 * deadline. */
#define TCP_PLACES_MAX 8
typedef struct tcp_places {
  struct sockaddr_in at[TCP_PLACES_MAX];
  size_t count; /* 1 at least */
} tcp_places;
weir_status tcp_resolve(const char *where, double deadline_s, tcp_places *out);
/* Listen on address (port 0: any), and write the port into it.  Retries while the port is taken. */
weir_status tcp_listen(struct sockaddr_in *address, double deadline_s, int *fd);
/* One attempt to connect; fd is -1 when the other side is not there (yet).  from may be NULL. */
weir_status tcp_connect_once(const struct sockaddr_in *to, const struct sockaddr_in *from,
                             double deadline_s, int *fd);
/* Write or read exactly count bytes; false when the connection ends or the deadline passes. */
bool tcp_write_all(int fd, const void *data, size_t count, double deadline_s);
bool tcp_read_all(int fd, void *data, size_t count, double deadline_s);
void tcp_sleep(double seconds);
/* The congestion control of a connection whose least round trip is known (0: not), inside of a
 * machine or not; NULL: the system's choice. */
const char *tcp_congestion_control(bool near, uint32_t round_trip_us);
/* How the established connection peer[way] shall behave; the ranks' addresses are known. */
void tcp_settle(tcp *self, int way);
/* Poll until deadline_s, rounded up to a millisecond. */
int tcp_poll_until(struct pollfd *fds, size_t count, double deadline_s);

/* Hang up on all who call, as nobody is expected. */
void tcp_turn_away(int listener);
/* Whose the other end of a connection on the loopback is: this rank's user's, another's (or nobody
 * can tell), or nobody's any more, as it has been closed. */
typedef enum tcp_owner { TCP_OWN, TCP_OTHERS, TCP_CLOSED } tcp_owner;
tcp_owner tcp_owner_of(int fd);
/* Which users the two are, as far as the other can be told: in brackets, behind a blank. */
#define TCP_USERS_MAX 64
void tcp_tell_users(int fd, char text[TCP_USERS_MAX]);

/* --- rendezvous ----------------------------------------------------------------------------- */

/* This rank's own listener and UDP socket, on `address` and nothing else. */
weir_status tcp_open_own(tcp *self, struct in_addr address, double deadline_s);
/* What this rank says of where it is (its peer's `address`, and not where it binds), if it listens
 * at all addresses of its machine: one by which another rank has come, else `named`.  One that is
 * not the loopback's is preferred, as other machines may reach it.  Where neither is known it stays
 * what was said before, or 0.0.0.0. */
void tcp_find_own_address(tcp *self, struct in_addr named);
/* Is it on the loopback, or does the job have a secret?  Else WEIR_E_INVALID. */
weir_status tcp_check_place(const tcp *self, const struct sockaddr_in *at, const char *where);
/* Fill in every peer's fd and addresses. */
weir_status tcp_rendezvous(tcp *self, const char *where, const char *bind_address,
                           double deadline_s);

/* --- life ----------------------------------------------------------------------------------- */

/* A rank's end with its memory, not connected to anything. */
weir_status tcp_create(tcp **out, uint64_t job, int rank, int size, int streams);
/* Whether its messages are encrypted, and by what. */
void tcp_seal_by(tcp *self, bool plain, weir_credentials *credentials);
weir_status tcp_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank);
weir_status tcp_grow(weir_transport *t, double timeout_s, weir_transport **out);
void tcp_take_memory(weir_transport *t, weir_machine_memory *shared);

/* --- streams -------------------------------------------------------------------------------- */

/* Shorter messages travel on stream 0 whole. */
#ifndef TCP_DIVIDE_LEAST /* fuzzers divide what fits their inputs */
#define TCP_DIVIDE_LEAST ((size_t)256 * 1024)
#endif

/* Whoever meets over stream 0 already: connect the others.  from may be NULL. */
weir_status tcp_streams_open(tcp *self, const struct sockaddr_in *from, double deadline_s);
/* What of a message of so many bytes travels on a stream. */
typedef struct tcp_part {
  bool any; /* a header at least */
  size_t begin, bytes;
} tcp_part;
tcp_part tcp_part_of(const tcp *self, size_t bytes, int stream);

/* --- transfer ------------------------------------------------------------------------------- */

weir_status tcp_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                         size_t sends, weir_recv *recv, size_t recvs, double deadline_s);

/* --- datagrams ------------------------------------------------------------------------------ */

/* Open the UDP socket on the address; its port is written back. */
weir_status tcp_datagram_open(tcp *self, struct sockaddr_in *address);
weir_status tcp_answerer_start(tcp *self);
void tcp_answerer_stop(tcp *self);

weir_status tcp_echo(weir_transport *t, int peer, double timeout_s, double *rtt_s);
weir_status tcp_train(weir_transport *t, int peer, size_t *bytes, double timeout_s,
                      double *seconds);

/* What a rank answered to an echo. */
typedef struct tcp_reply {
  bool alive;
  int waiting_on; /* -1: in no transfer */
} tcp_reply;
/* Ask all ranks but oneself at once, three times, until all have answered, the deadline passes or
 * an abort arrives. */
void tcp_ask_all(tcp *self, tcp_reply *reply, double deadline_s);

void tcp_send_abort(tcp *self, weir_status reason, int culprit);
/* The first abort that came in, if any: fills in *end. */
bool tcp_abort_seen(tcp *self, weir_end *end);
/* The clock of the kernel's stamps. */
int64_t tcp_wall_ns(void);

/* --- blame ---------------------------------------------------------------------------------- */

/* Each decides, tells the other ranks, marks the group as ended and returns the error. */
weir_status tcp_blame_silence(tcp *self, int peer, uint64_t step);
weir_status tcp_blame_closed(tcp *self, int peer, uint64_t step, int error);
weir_status tcp_blame_frame(tcp *self, int peer, weir_status status);
weir_status tcp_blame_abort(tcp *self, const weir_end *end);
/* The same for who waits elsewhere. */
extern const weir_watch_ops tcp_watch_ops;

#endif

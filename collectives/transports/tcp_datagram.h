/* Datagrams of the TCP transport, as tcp_datagram.c and tcp_train.c share them. */
#ifndef WEIR_TRANSPORTS_TCP_DATAGRAM_H
#define WEIR_TRANSPORTS_TCP_DATAGRAM_H

#include "collectives/transports/tcp.h"

#define DATAGRAM_MAGIC UINT32_C(0x44494557) /* "WEID" */
#define TRAIN_DATAGRAM 1400                 /* payload bytes of each of a train */
enum { KIND_ASK = 1, KIND_REPLY = 2, KIND_ABORT = 3, KIND_TRAIN = 4, KIND_ARRIVED = 5 };

/* Little-endian on the wire.  Each carries 8 bytes of a proof under the group's key, so that
 * strangers neither end a group nor bend what it measures: an abort's takes the place of
 * `sequence`, all others' that of `culprit` and `reason`, which only an abort has. */
typedef struct datagram {
  uint32_t magic;
  uint16_t version;
  uint16_t kind;
  uint64_t job;
  uint64_t sequence;   /* of a question or train, given back in its reply */
  int64_t received_ns; /* ARRIVED: when half of the train had come */
  int64_t sent_ns;     /* ARRIVED: when its last came */
  int32_t waiting_on;
  int32_t culprit;
  uint32_t reason;
  uint32_t from;  /* rank */
  uint16_t index; /* TRAIN: from 0 on; ARRIVED: how many came in the second half */
  uint16_t count; /* TRAIN: of the whole train */
  uint32_t checksum;
} datagram;
_Static_assert(sizeof(datagram) == 64, "a datagram has no padding");

datagram tcp_datagram_compose(const tcp *self, int kind, uint64_t sequence);
void tcp_datagram_send(int fd, datagram *d, const struct sockaddr_in *to);
/* Prove all but an abort: what it says is settled but for a reply's sent_ns, which is filled in
 * last, and a train's index, so that one proof does for all of it. */
void tcp_datagram_sign(const tcp *self, datagram *d);
bool tcp_datagram_is_proved(const tcp *self, const datagram *d);
uint64_t tcp_datagram_proof(const datagram *d);
/* One datagram of this job from another rank of it, proved, with the kernel's stamp.  1: there is
 * one; 0: something else came; -1: nothing is there. */
int tcp_datagram_take(const tcp *self, int fd, datagram *d, struct sockaddr_in *from,
                      int64_t *stamp);
/* Is it whole, of our version and job, and from another rank of it?  length: what came, of which at
 * most sizeof *d lie there. */
bool tcp_datagram_is_good(const tcp *self, const datagram *d, size_t length);
/* All that have come until now: what the answering thread does, and whoever has to know before that
 * thread may have had its turn. */
void tcp_datagram_read(tcp *self);
/* What becomes of a good one. */
void tcp_datagram_react(tcp *self, datagram *d, const struct sockaddr_in *from, int64_t stamp);
/* A socket of its own for every caller, so that replies cannot go astray between threads, and a
 * random sequence number to begin with.  -1: errno says why. */
int tcp_asking_socket(const tcp *self, uint64_t *sequence);
/* Wait for an answer at fd.  True: the group has ended, so that survivors wait for this rank
 * elsewhere; fd is closed and the failure noted. */
bool tcp_ended_meanwhile(const tcp *self, int fd, double until_s);
/* The answering thread: one of a train has come. */
void tcp_train_arrived(tcp *self, const datagram *d, const struct sockaddr_in *from, int64_t stamp);

#endif

/* Connections inside of a machine whose bytes travel through memory that both processes share
 * (weir_transport_tcp_share in transport.h).
 *
 * Such a connection is a ring of bytes in each direction, with one writer and one reader; the frames
 * in it are those that every connection carries, and so whatever is true of the others (tags, lengths,
 * time-outs, blame) is true of it.  Its socket stays.  It is the bell: whoever is about to sleep in poll
 * says so in the ring, and the other side then writes a byte to the socket, which means nothing else.
 * And it is what tells that the other process has ended, as everywhere.
 *
 * Payloads are not summed up (CRC32C): nothing damages them on their way that would not damage them
 * where they lie. */
#ifndef WEIR_TRANSPORTS_TCP_MEMORY_H
#define WEIR_TRANSPORTS_TCP_MEMORY_H

#include <sys/uio.h>

#include "collectives/transports/tcp.h"

/* Rings lie in the segment one behind the other, each with its bytes behind it.  A side keeps its own
 * position and checks the other's: what another process writes there cannot lead outside of a ring. */
typedef struct tcp_ring {
  _Alignas(64) _Atomic uint64_t head; /* bytes ever written */
  _Atomic uint32_t hungry;            /* the reader sleeps until there are some */
  _Alignas(64) _Atomic uint64_t tail; /* bytes ever read */
  _Atomic uint32_t starved;           /* the writer sleeps until there is room */
} tcp_ring;
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "atomics between processes need no lock");

/* One side of such a connection. */
typedef struct tcp_memory {
  tcp_ring *out, *in;
  size_t ring_bytes;   /* a power of two */
  uint64_t head, tail; /* this side's own positions in out and in */
  bool ended;          /* the other side has closed the connection, or its process has ended */
  int error;           /* errno of that; 0: as it should */
} tcp_memory;

/* As sendmsg and recvmsg, without waiting.  errno EBADMSG: the other side has spoilt the ring. */
ssize_t tcp_memory_send(tcp_peer *p, const struct iovec *piece, size_t pieces);
ssize_t tcp_memory_recv(tcp_peer *p, const struct iovec *piece, size_t pieces);
/* Is there something to read, or room to write, as asked for, or nothing more to be waited for? */
bool tcp_memory_ready(const tcp_peer *p, bool in, bool out);
/* Before this rank sleeps: have the other side ring when there is something, as asked for.  True:
 * there is already. */
bool tcp_memory_doze(tcp_peer *p, bool in, bool out);
/* And afterwards; rung: poll has told of the socket. */
void tcp_memory_wake(tcp_peer *p, bool rung);
/* Of all connections. */
void tcp_memory_close(tcp *self);

#endif

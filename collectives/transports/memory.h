/* Memory that the ranks of a machine share, below any transport that connects them
 * (weir_transport_share in transport.h).
 *
 * memory_share.c     how ranks come to share it, over the connections that they have
 * memory.c           the bytes of a connection that travel there
 * memory_messages.c  whole messages, for a transport below which there are no bytes to replace
 *
 * A connection in memory is a ring of bytes in each direction, with one writer and one reader.
 * What travels in it is its transport's affair, and so whatever is true of the transport's other
 * connections (tags, lengths, time-outs, blame) is true of it.
 *
 * It may have a bell, a socket to the other side: whoever is about to sleep in poll says so in the
 * ring, and the other side then writes a byte to the socket, which means nothing else.  And its end
 * tells that the other process has ended.  A transport that looks again and again needs none.
 *
 * Payloads are not summed up (CRC32C): nothing damages them on their way that would not damage them
 * where they lie. */
#ifndef WEIR_TRANSPORTS_MEMORY_H
#define WEIR_TRANSPORTS_MEMORY_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "collectives/transports/common.h"

/* Rings lie in the segment one behind the other, each with its bytes behind it.  A side keeps its
 * own position and checks the other's: what another process writes there cannot lead outside of a
 * ring. */
typedef struct weir_memory_ring {
  _Alignas(64) _Atomic uint64_t head; /* bytes ever written */
  _Atomic uint32_t hungry;            /* the reader sleeps until there are some */
  _Alignas(64) _Atomic uint64_t tail; /* bytes ever read */
  _Atomic uint32_t starved;           /* the writer sleeps until there is room */
} weir_memory_ring;
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "atomics between processes need no lock");

/* One side of a connection. */
typedef struct weir_memory {
  weir_memory_ring *out, *in; /* NULL: this connection is not in memory */
  size_t ring_bytes;          /* a power of two */
  uint64_t head, tail;        /* this side's own positions in out and in */
  int bell;                   /* -1: none */
  bool ended;                 /* the other side has closed its bell, or its process has ended */
  int error;                  /* errno of that; 0: as it should */
} weir_memory;

/* What a rank has of its machine's. */
struct weir_machine_memory {
  void *segment; /* NULL, as is memory: this machine shares none */
  size_t bytes;
  weir_memory *memory; /* of each connection: of rank r's stream s at [s * size + r] */
};
void weir_machine_memory_close(weir_machine_memory *shared);

/* --- bytes ----------------------------------------------------------------------------------- */

/* As sendmsg and recvmsg, without waiting.  errno EBADMSG: the other side has spoilt the ring. */
ssize_t weir_memory_send(weir_memory *m, const struct iovec *piece, size_t pieces);
ssize_t weir_memory_recv(weir_memory *m, const struct iovec *piece, size_t pieces);
/* Is there something to read, or room to write, as asked for, or nothing more to be waited for? */
bool weir_memory_ready(const weir_memory *m, bool in, bool out);
/* Before this rank sleeps: have the other side ring when there is something, as asked for.  True:
 * there is already. */
bool weir_memory_doze(weir_memory *m, bool in, bool out);
/* And afterwards; rung: poll has told of the bell. */
void weir_memory_wake(weir_memory *m, bool rung);
/* What to say of a ring that is spoilt; the group is to end for it. */
weir_status weir_memory_spoilt(int peer, uint64_t step);

/* --- messages -------------------------------------------------------------------------------- */

/* How far the messages to and from a rank are. */
typedef struct weir_memory_progress {
  size_t send_at;   /* message being sent; == sends: none left */
  size_t sent;      /* bytes of it, frame included */
  size_t recv_at;   /* message being received; == recvs: none left */
  size_t received;  /* bytes of it, frame included */
  weir_frame frame; /* of that one */
} weir_memory_progress;

/* Those of a transfer's messages that travel in memory. */
typedef struct weir_memory_call {
  const weir_transport *t;
  const weir_machine_memory *shared;
  const weir_tag *tag;
  const weir_send *send;
  size_t sends;
  weir_recv *recv;
  size_t recvs;
  weir_memory_progress *progress; /* of each rank; the transport's */
  int *active;                    /* room for each rank; the transport's */
  int peers;                      /* in active[] */
  size_t open;                    /* messages that are not complete */
  int culprit;                    /* of what weir_memory_turn found to be wrong */
} weir_memory_call;

/* Do messages to and from that rank travel in memory? */
bool weir_memory_reaches(const weir_machine_memory *shared, int rank);
/* With what stands before progress set. */
void weir_memory_begin(weir_memory_call *call);
/* Move whatever can be moved; *moved is set where something was.  No byte of a message whose frame
 * is not what is due gets to its place. */
weir_status weir_memory_turn(weir_memory_call *call, bool *moved);
/* A rank that a message is due from, else one that a message is due to; -1: none. */
int weir_memory_waits_for(const weir_memory_call *call);

#endif

/* Transports: moving messages between ranks.  One file and one create function each.
 *
 * A transport carries ordered, reliable messages between each pair of ranks.  Every wait is bounded
 * by a deadline.  Used by one thread at a time, except where said. */
#ifndef WEIR_COLLECTIVES_TRANSPORT_H
#define WEIR_COLLECTIVES_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

/* What proves that both ends mean the same message; in every frame header, checked on arrival.
 * A difference is WEIR_E_MISMATCH, and no byte of the payload is used. */
typedef struct weir_tag {
  uint64_t plan; /* weir_plan_digest of the plan executed */
  uint64_t step; /* exchange number, trials included */
  uint32_t op;   /* running number of the collective within the step */
  uint32_t hop;  /* message number within the collective */
} weir_tag;

typedef struct weir_send {
  int peer;
  const void *data;
  size_t bytes;
  uint32_t hop;
} weir_send;

typedef struct weir_recv {
  int peer;
  void *data;
  size_t capacity; /* a longer message is WEIR_E_PROTOCOL */
  uint32_t hop;
  size_t bytes; /* out: bytes received */
} weir_recv;

/* Arrival of one large message, for the network monitor: what came in after its first chunk, and
 * after half of it, by when token buckets on the way are empty. */
typedef struct weir_flow_sample {
  int peer;
  /* Its place among those of the same exchange, if this rank sent as many messages in that as it
   * received: they share the links on their way.  0: the first, the only one, or
   * the transport does not tell (MPI). */
  uint32_t place;
  size_t length;     /* bytes of all of it; 0: not told, nor is its place */
  size_t bytes;      /* bytes that arrived after first_s; 0: all was there at once */
  size_t late_bytes; /* of these, after half_s; 0: all was there by then */
  size_t doubt;      /* by so many late_bytes may be wrong */
  double first_s;    /* weir_now_s() when the first bytes had arrived */
  double half_s;     /* when half of the message had */
  double last_s;     /* when the last byte had */
} weir_flow_sample;

/* Blocks of an all-gather that lie in several places, the same on all ranks but for their
 * addresses. */
typedef struct weir_block_part {
  void *data;
  size_t bytes;
} weir_block_part;
typedef struct weir_places {
  const weir_block_part *span; /* of all ranks, in their order */
  const size_t *first; /* size + 1: span[first[r]] up to span[first[r + 1]] are rank r's block */
  /* Leaves bytes [begin, begin + bytes) of one's own span there; called for all of them, in order,
   * as they are due to be sent.  NULL: they are there already. */
  void (*make)(void *user, size_t span, size_t begin, size_t bytes);
  void *user;
} weir_places;
/* Of a rank's block. */
static inline size_t weir_places_bytes(const weir_places *places, int rank) {
  size_t bytes = 0;
  for (size_t i = places->first[rank]; i < places->first[rank + 1]; i++)
    bytes += places->span[i].bytes;
  return bytes;
}

/* What a library that sums by itself can be told to do it by. */
typedef enum weir_told_algorithm { WEIR_TOLD_RING, WEIR_TOLD_TREE } weir_told_algorithm;

typedef struct weir_transport weir_transport;
typedef struct weir_machine_memory weir_machine_memory; /* transports/memory.h */

/* What a transport above needs that waits for a library of which this one knows nothing: NCCL.  One
 * thread at a time, as transfer. */
typedef struct weir_watch_ops {
  /* Whom this rank waits for, as others who ask are told; -1: nobody. */
  void (*wait_for)(weir_transport *t, int peer);
  /* Has another rank ended the group?  The error is then its verdict, and the group has ended
   * here. */
  weir_status (*look)(weir_transport *t);
  bool (*ended)(const weir_transport *t); /* as this rank knows it */
  /* Has that rank left the group, or its connection closed? */
  bool (*left)(weir_transport *t, int peer);
  /* End the group, as `peer` is silent (WEIR_E_TIMEOUT) or has left (WEIR_E_PEER).  Returns the
   * error, which names who is to blame. */
  weir_status (*blame)(weir_transport *t, int peer, weir_status reason, uint64_t step);
} weir_watch_ops;

typedef struct weir_transport_ops {
  const char *name;
  /* Messages go through one machine's memory alone.  Its rate is measured once, at the start: it
   * does not change as networks do, and exchanges there mostly tell how long ranks wait for
   * processors. */
  bool within_memory;
  /* Complete all sends and receives concurrently, in any order; the caller's buffers may be reused
   * on return.  Several messages to or from one peer keep their array order. */
  weir_status (*transfer)(weir_transport *t, const weir_tag *tag, const weir_send *send,
                          size_t sends, weir_recv *recv, size_t recvs, double deadline_s);
  /* Round-trip time to a peer in seconds without the peer's holding time; thread-safe; bounded by
   * timeout_s.  NULL when the transport has no echo. */
  weir_status (*echo)(weir_transport *t, int peer, double timeout_s, double *rtt_s);
  /* Send about *bytes back to back in datagrams; tells how many bytes of the link's arrived in its
   * second half (0: none), and over how many seconds, by the receiving kernel's clock.
   * Thread-safe; bounded by timeout_s.  WEIR_E_TIMEOUT when its end or the reply got lost.  NULL
   * when the transport has no trains. */
  weir_status (*train)(weir_transport *t, int peer, size_t *bytes, double timeout_s,
                       double *seconds);
  /* Socket of the connection to a peer for TCP_INFO, or -1.  NULL when there are none. */
  int (*descriptor)(weir_transport *t, int peer);
  /* Local address in use, for binding probes; NULL when it has none.  NULL when no rank has. */
  const char *(*address)(weir_transport *t, int rank);
  /* Tell all ranks that `culprit` ends the group; best effort, never blocks. */
  void (*abort)(weir_transport *t, int culprit);
  void (*destroy)(weir_transport *t);
  /* All-reduce of the transport's own, or of the library below; NULL where there is none.  Sums
   * x[0..n) over ranks in place;
   * the caller's own block of blocks[size * block_bytes] is filled in, on WEIR_OK all are.  Tag and
   * deadline as in transfer.  Counts towards bytes_sent what the algorithm sends at the most. */
  weir_status (*allreduce)(weir_transport *t, const weir_tag *tag, float *x, size_t n, void *blocks,
                           size_t block_bytes, double deadline_s);
  /* The same by an algorithm that the library below is told for this sum; allreduce then leaves the
   * choice to the library again.  NULL, with the next: it cannot be told. */
  weir_status (*allreduce_told)(weir_transport *t, weir_told_algorithm how, const weir_tag *tag,
                                float *x, size_t n, void *blocks, size_t block_bytes,
                                double deadline_s);
  /* Can it be, in this group?  The same on all ranks; WEIR_E_UNSUPPORTED: no, and the last error
   * says why. */
  weir_status (*tells)(const weir_transport *t);
  /* The same among the ranks of this rank's machine, without blocks: sums_inside says whether it
   * does so, machine[size] being the machine of each rank, by any numbers; the same answer on all
   * ranks.  Both NULL: never. */
  bool (*sums_inside)(const weir_transport *t, const int *machine);
  weir_status (*allreduce_inside)(weir_transport *t, const weir_tag *tag, float *x, size_t n,
                                  double deadline_s);
  /* All-gather of the transport's own, as allreduce; on WEIR_OK all spans are filled in. */
  weir_status (*allgather)(weir_transport *t, const weir_tag *tag, const weir_places *places,
                           void *blocks, size_t block_bytes, double deadline_s);
  /* After the group has ended: come together with the ranks that are left.  Every survivor calls
   * it, within timeout_s of the others; bounded by three times that and 2 s.  On WEIR_OK *out is a
   * group of the survivors, numbered anew in their old order, and old_rank[0 .. (*out)->size) (room
   * for t->size) are their old numbers, the same on all.  t cannot transfer any more and is still
   * to be destroyed.  A rank that has not come although its process is not known to have ended
   * could be on the other side of a broken network: so the survivors must then be more than half of
   * the group, or half of it with the lowest rank; else WEIR_E_PEER.  After a failure it may be
   * called again; one that the others have gone on without stays out, and one that was found
   * silent, or tries again, takes nobody's process for ended that has not been seen to at once.
   * NULL: this transport cannot. */
  weir_status (*shrink)(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank);
  /* Which ranks wait to join, as this rank knows it: a name of that set, the same on all ranks that
   * know the same, never 0; 0: none, or there is no room.  Takes no lock and no system call as long
   * as there are none.  NULL, with the next two: nobody can join. */
  uint32_t (*waiting)(weir_transport *t);
  /* Once `waiting` has told the same on all ranks and not been called since: as shrink, of a group
   * that has not ended.  *out has the ranks of t in their order, and behind them those of that set
   * which are there.  Where a rank is lost meanwhile, or calls shrink, it is what shrink makes. */
  weir_status (*grow)(weir_transport *t, double timeout_s, weir_transport **out);
  /* At which port of its address a rank hears those who want to join. */
  int (*port)(weir_transport *t, int rank);
  /* Of weir_transport_share: messages to ranks with memory in *shared travel there from now on, and
   * the transport goes by its other name.  Takes what it keeps out of *shared.  NULL: it can do no
   * such thing. */
  void (*take_memory)(weir_transport *t, weir_machine_memory *shared);
  /* How many connections each two ranks have; NULL: one. */
  int (*streams)(const weir_transport *t);
  const weir_watch_ops *watch; /* NULL: NCCL cannot go beside it */
} weir_transport_ops;

struct weir_transport {
  const weir_transport_ops *ops;
  int rank;
  int size;
  uint64_t bytes_sent; /* payload and frame headers, running total */
  /* Arrivals of messages of at least 16 KiB since the reader last looked: a ring of the newest. */
  weir_flow_sample flow[64];
  uint32_t flows; /* running total; the newest is flow[(flows - 1) % 64] */
};

/* Threads of one process; group is any name, the same for all ranks of the group, with the same
 * size.  Blocks until all ranks joined or timeout_s passed. */
weir_status weir_transport_inproc(weir_transport **out, const char *group, int rank, int size,
                                  double timeout_s);

/* Processes or threads of one host and one user, over a POSIX shared memory segment.  group is any
 * name, the same for all ranks; a rank of another job, version or size is refused.  Blocks until
 * all ranks joined or timeout_s passed; nothing has a name in the file system once they have.  At
 * most 128 ranks; up to 48 MiB of shared memory a group (83 MiB at 128 ranks).  A process that ends
 * is found out within about 20 ms. */
weir_status weir_transport_shm(weir_transport **out, const char *group, uint64_t job_id, int rank,
                               int size, double timeout_s);
/* Is there room for such a group's segment?  To be asked before ranks wait for each other there:
 * where rank 0 cannot make one, the others find that out by the time-out alone.  WEIR_E_NOMEM: the
 * last error says how much is due. */
weir_status weir_transport_shm_fits(int size);

/* Processes of one MPI job: rank and size must be those of MPI_COMM_WORLD, and all ranks create the
 * transport at the same time.  MPI is initialised (MPI_THREAD_MULTIPLE) if the process has not done
 * so, and then finalised when it exits; a process that has needs MPI_THREAD_SERIALIZED at least.
 * WEIR_E_UNSUPPORTED where the module that holds it, libweir_mpi, or an MPI library cannot be
 * loaded.  What Open MPI 4.1 cannot do: mpirun ends the whole
 * job when a rank dies, before the others could say so; a send that was under way when a transfer
 * failed cannot be cancelled, so that MPI may still read its buffer if the process goes on calling
 * MPI; messages move only while a rank is in a call. */
weir_status weir_transport_mpi(weir_transport **out, uint64_t job_id, int rank, int size,
                               double timeout_s);
/* Can the module be loaded? */
bool weir_transport_has_mpi(void);

/* Full mesh of TCP connections plus one UDP socket for echo and abort.  rendezvous is "HOST:PORT"
 * of rank 0; bind_address may be NULL.  A peer of another job, version or size, or one that cannot
 * prove to know the job's secret, is refused, and so is this rank by the others; messages are
 * encrypted then (TLS 1.3).  Without a secret the rendezvous must be on the loopback. */
#define WEIR_TCP_STREAMS_MAX 8
typedef struct weir_tcp_options {
  const char *rendezvous, *bind_address;
  const void *secret;
  size_t secret_bytes; /* 0: none */
  uint64_t job_id;
  int rank, size;
  int streams; /* connections between each two ranks, the same on all; 0 and 1: one.  More divide
                  long messages among them: on long links a loss then halves the window of one, and
                  small receive windows add up.  A divided message leaves no flow sample;
                  survivors (shrink) go on over one. */
  /* Rank 0: a socket that listens at the rendezvous already, which is closed once the group has met
   * or failed to; 0: none. */
  int listener;
  double timeout_s;
  bool plain; /* with a secret, and yet messages are not encrypted; the same on all ranks */
  /* With a secret: who this rank is; NULL: who knows the secret is of the group.  All ranks have
   * some or none. The transport holds them. */
  struct weir_credentials *credentials;
  /* Others may join, up to so many ranks in all; the same on all ranks.  0: nobody may.  Rank 0
   * then goes on listening at the rendezvous, also in a group of one. */
  int most;
  uint64_t offer; /* what those who join must tell, too */
} weir_tcp_options;
weir_status weir_transport_tcp_open(weir_transport **out, const weir_tcp_options *options);
/* Join a group that runs, of which one member at least listens at rendezvous, "HOST:PORT[,...]",
 * and all let this rank in; rank, size, streams and listener are not used.  It takes at most wait_s
 * until the group takes this rank in, and then three times timeout_s and 2 s.  *members: how many
 * ranks there were before, the lowest.  WEIR_E_TIMEOUT: nobody is there, or there was no place.
 * WEIR_E_MISMATCH: the group has refused this rank. */
weir_status weir_transport_tcp_join(weir_transport **out, const weir_tcp_options *options,
                                    double wait_s, int *members);
/* How many may join at once; and not more than there are. */
#define WEIR_JOIN_MOST 32
/* The same over one stream. */
weir_status weir_transport_tcp_secret(weir_transport **out, const char *rendezvous,
                                      const char *bind_address, const void *secret,
                                      size_t secret_bytes, uint64_t job_id, int rank, int size,
                                      double timeout_s);
/* The same without a secret. */
weir_status weir_transport_tcp(weir_transport **out, const char *rendezvous,
                               const char *bind_address, uint64_t job_id, int rank, int size,
                               double timeout_s);

/* Processes with a CUDA device each, over NCCL.  They have met over TCP or MPI (but not for others
 * to join): `met` is owned from the call on, even when it fails, and announces every message;
 * NCCL's own connections know nothing of a secret.  Long messages go through NCCL, from and to
 * memory of the device, or through a copy where a buffer lies in the host's.  A rank's device is
 * its place among the ranks of its machine; ranks that share one need an NCCL_HOSTID each.
 * WEIR_E_UNSUPPORTED in a build without NCCL's headers, and when a rank has not the libraries or a
 * device, which all ranks are told.
 *
 * inside, the same on all ranks: NCCL among the ranks of a machine alone ("nccl+tcp", "nccl+mpi"),
 * and what they have met over between machines, for which buffers lie in the host's memory; a rank
 * that is alone on its machine needs no device.  It is "nccl" where all ranks share a machine, and
 * *out is `met` where no two do. */
weir_status weir_transport_nccl(weir_transport **out, weir_transport *met, bool inside,
                                double timeout_s);

/* Ranks of one machine exchange messages through memory that they share from now on, all others as
 * before, over TCP, MPI or NCCL; machine[t->size] is the machine of each rank, by any numbers, and
 * the same on all.  Collective, on a transport that has it not yet and is idle; a group that others
 * are made of by shrink or grow is to be asked anew.  The transport then goes by the name "mixed"
 * (TCP), "shm+mpi" or "shm+nccl", on all ranks alike, unless no machine has several ranks which
 * could open what one of them has made (Linux's memfd, of at most 32 MiB and 4 KiB a pair): that is
 * no failure, and the log says why.  WEIR_E_UNSUPPORTED: this transport cannot. */
weir_status weir_transport_share(weir_transport *t, const int *machine, double timeout_s);

/* Some ranks of a group as a group of their own: member[i] is the parent's rank of rank i, without
 * repetition, in the same order on all members, the caller's own among them.  The parent is
 * borrowed and must not be used meanwhile by another thread; its errors name the parent's ranks.
 * bytes_sent counts what went through the view and grows in the parent too; flow samples are the
 * parent's. */
weir_status weir_transport_view(weir_transport **out, weir_transport *parent, const int *member,
                                int size);
/* A peer's rank in the whole group: of a view's, its number in the parent. */
int weir_transport_rank_of(const weir_transport *t, int peer);

#endif

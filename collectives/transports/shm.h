/* Inside of the shared-memory transport: one host, ranks as processes or threads.
 *
 * shm.c          life and the table of operations
 * shm_join.c     how ranks find the segment and one another
 * shm_transfer.c moving messages through the rings
 * shm_sum.c      all-reduce and all-gather in the segment itself
 * shm_shrink.c   what is left of a group comes together anew
 * shm_blame.c    who is alive, and who is to blame when a transfer fails
 *
 * A group has one POSIX shared memory segment.  Rank 0 creates it and takes its name away as soon
 * as all ranks have joined, so that whatever happens afterwards leaves nothing behind; a segment
 * that rank 0 left when it died before that is known by the lock nobody holds, and replaced.
 *
 * Between each ordered pair of ranks lies a ring of bytes with one writer and one reader.  A
 * message is a frame and its payload; a message longer than the ring passes through it piece by
 * piece. Each side keeps its own position and checks the other's: what another process writes into
 * the segment can end the group but not lead outside of a ring.
 *
 * Beside the rings every rank has a board and slots that all others read: there the group sums up
 * without messages (shm_sum.c).
 *
 * A rank with nothing to do sleeps on its bell, a futex that others ring after they have changed
 * something it may wait for. */
#ifndef WEIR_TRANSPORTS_SHM_H
#define WEIR_TRANSPORTS_SHM_H

#include <stdatomic.h>

#include "collectives/transports/common.h"

#define SHM_MAGIC UINT32_C(0x4d494557) /* "WEIM" */
#define SHM_VERSION 15
#define SHM_RANKS_MAX 128 /* of one host */
#define SHM_LINE 64
#define SHM_NAME_MAX 64
#define SHM_REUNIONS 4 /* groups of survivors that may be decided on */

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "atomics between processes need no lock");

enum { SHM_FREE = 0, SHM_TAKEN, SHM_CLAIMED, SHM_FIXED };       /* shm_member.state */
enum { SHM_GATHERING = 0, SHM_COMPLETE = 1, SHM_GIVEN_UP = 2 }; /* shm_header.phase */

typedef struct shm_header {
  uint32_t magic;
  uint32_t version;
  uint64_t job;
  uint64_t bytes; /* of the segment */
  uint64_t ring_bytes;
  uint64_t pid_space; /* the pid namespace of rank 0 */
  uint64_t nonce;     /* tells this group from others of its name */
  uint32_t size;
  _Atomic uint32_t open; /* the fields above are set */
  _Atomic uint32_t phase;
  _Alignas(SHM_LINE) _Atomic uint64_t end; /* 0, or why the group has ended (shm_end) */
  _Atomic uint32_t decided[SHM_REUNIONS];  /* 1 + the rank whose proposal holds; 0: none yet */
} shm_header;

typedef struct shm_member {
  _Alignas(SHM_LINE) _Atomic uint32_t state;
  _Atomic int32_t pid;
  _Alignas(SHM_LINE) _Atomic uint32_t bell;
  _Atomic uint32_t sleeping;
  _Alignas(SHM_LINE) _Atomic uint32_t beat; /* moves while the rank is in a transfer and runs */
  _Atomic int32_t waiting_on;               /* the peer it waits for; -1 outside a transfer */
  _Atomic uint32_t gone;                    /* it has left */
  _Atomic uint32_t came;                    /* some process has ever claimed this place */
  _Atomic uint32_t asks; /* for the group of the survivors: 1 + the attempt that it is in; 0: not */
  _Atomic uint32_t moved;                              /* it is in that group */
  uint64_t proposal[SHM_REUNIONS][SHM_RANKS_MAX / 64]; /* who they are, a bit a rank */
} shm_member;

typedef struct shm_ring {
  _Alignas(SHM_LINE) _Atomic uint64_t head; /* bytes ever written */
  _Alignas(SHM_LINE) _Atomic uint64_t tail; /* bytes ever read */
  _Atomic uint32_t starved;                 /* the writer waits for room */
} shm_ring;

/* --- sums (shm_sum.c) ----------------------------------------------------------------------- */

/* What a rank is about to sum up; its data are used once all others have compared it
 * with theirs. */
typedef struct shm_record {
  uint64_t plan;
  uint64_t step;
  uint32_t op;
  uint32_t header_bytes;
  uint64_t elements;
  unsigned char header[256];
} shm_record;

enum { SHM_IN = 0, SHM_REDUCED = 1, SHM_OUT = 2, SHM_STAGES = 3 };

/* A rank's board; it alone writes.  Chunks are numbered through over all operations of
 * the group. */
typedef struct shm_board {
  _Alignas(SHM_LINE) _Atomic uint64_t done[SHM_STAGES]; /* chunks that are through a stage */
  _Alignas(SHM_LINE) shm_record record[2]; /* of this operation and of the one before */
} shm_board;

#define SHM_SLOTS 4 /* chunks of a rank that may be under way */

typedef struct shm_peer {
  int pidfd; /* -1: oneself, or a thread of this process */
  bool dead; /* its process has ended */
  shm_ring *out, *in;
  unsigned char *out_bytes, *in_bytes;
  uint64_t head, tail; /* this rank's own positions in out and in */
  /* Progress in the running transfer. */
  size_t send_at;  /* message being sent; == sends: none left */
  size_t sent;     /* payload bytes of it */
  size_t recv_at;  /* message being received; == recvs: none left */
  size_t received; /* payload bytes of it */
  bool send_headed, recv_headed;
} shm_peer;

typedef struct shm {
  weir_transport base;
  uint64_t job;
  char name[SHM_NAME_MAX];
  int fd; /* -1 once the group is complete */
  unsigned char *segment;
  size_t bytes;
  size_t ring_bytes; /* a power of two */
  shm_header *header;
  shm_member *member;   /* size entries */
  shm_peer *peer;       /* size entries */
  int *active;          /* peers of the running transfer */
  bool crowded;         /* more ranks than processors: a wait must not spin */
  shm_board *board;     /* size entries */
  unsigned char *slots; /* SHM_SLOTS of slot_bytes a rank */
  size_t slot_bytes;
  uint64_t sums, chunks; /* operations and chunks begun */
  bool left_out;         /* the others have gone on without this rank */
  uint32_t reunions;     /* groups of survivors that have not come about */
} shm;

/* --- the segment ---------------------------------------------------------------------------- */

/* Bytes of each ring, of each slot, and of the whole segment, of a group of `size`. */
size_t shm_ring_size(int size);
size_t shm_slot_size(int size);
size_t shm_segment_size(int size);
/* Where a group's segment has its name. */
void shm_segment_name(const char *group, char name[SHM_NAME_MAX]);

/* Find the segment and wait until all ranks have. */
weir_status shm_join(shm *self, const char *group, double deadline_s);

/* --- bells ---------------------------------------------------------------------------------- */

void shm_ring_bell(shm *self, int rank);
void shm_ring_all(shm *self);
/* Sleep until one's own bell differs from `seen`, at most so long; false when the time is over. */
bool shm_sleep(shm *self, uint32_t seen, double seconds);
/* The same, but something may come at once: look a little before sleeping. */
bool shm_pause(shm *self, uint32_t seen, double seconds);

/* --- transfer ------------------------------------------------------------------------------- */

weir_status shm_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                         size_t sends, weir_recv *recv, size_t recvs, double deadline_s);

weir_status shm_sum(weir_transport *t, const weir_tag *tag, float *x, size_t n, void *blocks,
                    size_t block_bytes, double deadline_s);
weir_status shm_gather(weir_transport *t, const weir_tag *tag, const weir_places *places,
                       void *blocks, size_t block_bytes, double deadline_s);
/* Has `peer` begun a sum that this rank has not? */
bool shm_sum_ahead(const shm *self, int peer);

weir_status shm_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank);

/* --- blame ---------------------------------------------------------------------------------- */

/* Open a descriptor for every other process, to learn when it ends. */
weir_status shm_open_pidfds(shm *self);
/* It has left, or its process is known to have ended; `look` asks the kernel. */
bool shm_gone(shm *self, int peer, bool look);

/* Has the group ended?  Fills in *end. */
bool shm_ended(const shm *self, weir_end *end);
/* End it, unless it has ended already, and wake everybody. */
void shm_end(shm *self, weir_status reason, int culprit);

/* Each decides, tells the others and returns the error. */
weir_status shm_blame_gone(shm *self, int peer, uint64_t step);
weir_status shm_blame_silence(shm *self, int peer, uint64_t step);

#endif

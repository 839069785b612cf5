/* Inside of the MPI transport, which is a module of its own (collectives/transports/mpi_module.h).
 *
 * module.c       what the module shows to libweir, and where its errors go
 * mpi_init.c     MPI itself: initialising it in bounded time, ending it when the process ends
 * mpi.c          life and the table of operations
 * mpi_transfer.c moving messages: every send and receive of a call makes progress at once
 * mpi_control.c  small messages beside the data: who waits for whom, aborts, farewells
 * mpi_native.c   the library's own all-reduce
 *
 * A message is a frame (header, and the payload if it is short) followed, for a longer payload, by
 * its head and its body, each a message of MPI's own tag.  Receives of head and body are posted
 * once the header has been checked, so that no byte of a wrong message reaches the caller's buffer
 * and no length can surprise MPI.  The head exists so that the body's rate can be told from its
 * latency.
 *
 * Messages to ranks that share memory travel there instead (collectives/transports/memory.h), and a
 * transfer looks there and at MPI's messages by turns; control messages go over MPI for all.
 *
 * Nothing but the calls made here moves MPI's messages (Open MPI 4.1 has no progress of its own),
 * so a rank answers control messages only while it is in a transfer. */
#ifndef WEIR_COLLECTIVES_MPI_H
#define WEIR_COLLECTIVES_MPI_H

#include <mpi.h>

#include "collectives/transports/common.h"
#include "collectives/transports/memory.h"

#define MPT_VERSION 8
#define MPT_MAGIC UINT32_C(0x57504d31)

enum { MPT_TAG_FRAME = 1, MPT_TAG_HEAD = 2, MPT_TAG_BODY = 3, MPT_TAG_CONTROL = 4 };

/* --- frames --------------------------------------------------------------------------------- */

/* Header and payload in one piece, within the eager limit of Open MPI's shared memory (4 KiB). */
#define MPT_INLINE ((size_t)3840)
typedef struct mpt_stage {
  weir_frame frame;
  unsigned char payload[MPT_INLINE];
} mpt_stage;

/* The body is a whole number of blocks: a count is an int, a payload may be longer than that. */
#define MPT_BLOCK ((size_t)64 * 1024)

/* --- control -------------------------------------------------------------------------------- */

typedef enum mpt_kind {
  MPT_ASK = 0,   /* are you there, and whom do you wait for? */
  MPT_REPLY = 1, /* culprit: the rank that the sender waits for */
  MPT_ABORT = 2, /* reason, culprit */
  MPT_LEAVE = 3, /* nothing comes after this */
  MPT_KINDS = 4
} mpt_kind;

typedef struct mpt_control {
  uint32_t magic;
  uint32_t kind;
  uint32_t reason;
  int32_t culprit;
} mpt_control;

/* --- a rank's end --------------------------------------------------------------------------- */

enum { MPT_PARTS = 3 }; /* frame, head, body */

typedef struct mpt_peer {
  bool gone;
  bool answered;  /* since the last question */
  int waiting_on; /* what it answered */
  mpt_control out[MPT_KINDS];
  MPI_Request out_request[MPT_KINDS];
} mpt_peer;

/* Progress of one message. */
typedef struct mpt_message {
  int parts; /* requests not complete */
  /* Receives whose flow is measured: when it began, and at which poll; 0.0 for the others. */
  double first_s;
  unsigned first_poll;
} mpt_message;

typedef struct mpt {
  weir_transport base;
  weir_transport_ops ops;     /* those of base, once some of its ranks share memory */
  weir_machine_memory shared; /* with the ranks of this machine, whose messages then travel there */
  weir_memory_progress *progress;
  int *active; /* size entries, as progress */
  MPI_Comm comm;
  MPI_Datatype block;
  mpt_peer *peer; /* size entries */
  mpt_control in;
  weir_end ended; /* why no transfer can succeed any more */
  int waiting_on; /* what this rank answers; -1: nobody */
  /* Of the running transfer: request 0 receives control messages, whether one runs or not; then
   * MPT_PARTS for every receive, then for every send. */
  MPI_Request *request;
  int *index;
  MPI_Status *status;
  mpt_message *message;
  mpt_stage *stage;
  size_t room;  /* messages these have room for */
  bool joining; /* MPI may be forming the communicator */
  bool joined;  /* all ranks have */
  bool dirty;   /* a transfer failed: MPI may still look at these, and at the communicator */
  unsigned char *scratch; /* of MPI's own collectives */
  size_t scratch_bytes;
} mpt;

/* weir_transport_mpi() of collectives/transport.h. */
weir_status mpt_open(weir_transport **out, uint64_t job_id, int rank, int size, double timeout_s);

/* --- MPI itself ------------------------------------------------------------------------------ */

/* Initialise MPI, unless it is.  Bounded by the deadline; thread-safe. */
weir_status mpt_initialise(double deadline_s);
/* From now on this process ends without MPI_Finalize, which might wait for a rank that is gone. */
void mpt_do_not_finalise(void);
/* What MPI says about an error. */
weir_status mpt_error(int code, const char *doing);

/* Room of at least so many bytes in scratch; what was there is lost. */
weir_status mpt_scratch(mpt *self, size_t bytes);

/* --- waiting --------------------------------------------------------------------------------- */

/* Between two polls that found nothing: first again at once, then after letting others run, at last
 * after a nap.  Start with {0}. */
typedef struct mpt_pause {
  unsigned polls;
  double idle_since_s;
} mpt_pause;
void mpt_pause_turn(mpt_pause *pause);

/* Until the request is complete.  WEIR_E_TIMEOUT without a message when it is not in time. */
weir_status mpt_wait(MPI_Request *request, double deadline_s, const char *doing);

/* --- control -------------------------------------------------------------------------------- */

weir_status mpt_control_open(mpt *self);
/* Request 0 is complete: act on what has come, and receive the next. */
weir_status mpt_control_take(mpt *self);
/* Look whether one has come. */
weir_status mpt_control_poll(mpt *self);
void mpt_tell(mpt *self, int rank, mpt_kind kind, weir_status reason, int culprit);
/* To all other ranks. */
void mpt_tell_all(mpt *self, mpt_kind kind, weir_status reason, int culprit);
/* Say farewell and wait, not longer than the deadline, for everybody's: true when all have left and
 * nothing of ours is on its way. */
bool mpt_farewell(mpt *self, double deadline_s);

/* Each decides, tells the other ranks, marks the group as ended and returns the error. */
weir_status mpt_blame_silence(mpt *self, int peer, uint64_t step);
weir_status mpt_blame_gone(mpt *self, int peer, uint64_t step);
weir_status mpt_blame(mpt *self, int peer, weir_status status);
/* The same for who waits elsewhere. */
extern const weir_watch_ops mpt_watch_ops;

/* --- moving --------------------------------------------------------------------------------- */

weir_status mpt_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                         size_t sends, weir_recv *recv, size_t recvs, double deadline_s);
weir_status mpt_allreduce(weir_transport *t, const weir_tag *tag, float *x, size_t n, void *blocks,
                          size_t block_bytes, double deadline_s);

#endif

/* Inside of the NCCL transport.
 *
 * nccl.c          life: a group over one that has met, its end, and its survivors
 * nccl_form.c     how NCCL's communicators come about, and who is in which
 * nccl_library.c  NCCL and CUDA, loaded when they are first needed
 * nccl_memory.c   device memory, and copies to and from it
 * nccl_transfer.c messages and NCCL's own all-reduce
 * nccl_tuner.c    NCCL's ring and tree, as plans name them
 * nccl_wait.c     waiting for NCCL with an end, and who is to blame
 *
 * Every message is announced over the group below, which has met over TCP or MPI: there tags and
 * lengths are checked and whoever is dead or silent is found; short ones come along with that, long
 * ones follow through NCCL on a stream of the transport's own.  So NCCL only carries what both ends
 * agree on.
 *
 * Between which ranks NCCL carries messages is one rule, nct_carries: between those of its
 * communicator that do not share memory.  All other messages are the group's below, as they are,
 * and for them a buffer lies in the host's memory.  By this rule there are these transports:
 *
 * nccl      one communicator of all ranks
 * nccl+tcp  one for each machine (nct_options.inside): between machines NCCL then needs neither a
 *           route nor a port, and a rank that is alone on its machine needs no device.  No
 *           communicator knows all ranks, so NCCL's own all-reduce sums inside of machines alone
 * nccl+mpi  the same with MPI below
 * shm+nccl  one of all ranks, as any two of different machines exchange messages, and `native` is
 *           the sum of all; the group over TCP shares memory inside of machines (take_memory) */
#ifndef WEIR_TRANSPORTS_NCCL_H
#define WEIR_TRANSPORTS_NCCL_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <weir/nccl_tuner.h>

#include "collectives/transports/common.h"
#include "collectives/transports/memory.h"

#if NCCL_VERSION_CODE < 21400
#error "NCCL 2.14 or later is needed: communicators that do not block"
#endif

/* What is used of both libraries. */
typedef struct nct_library {
  ncclResult_t (*get_unique_id)(ncclUniqueId *id);
  ncclResult_t (*init)(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                       ncclConfig_t *config);
  ncclResult_t (*async_error)(ncclComm_t comm, ncclResult_t *state);
  ncclResult_t (*finalise)(ncclComm_t comm);
  ncclResult_t (*destroy)(ncclComm_t comm);
  ncclResult_t (*abort)(ncclComm_t comm);
  ncclResult_t (*group_start)(void);
  ncclResult_t (*group_end)(void);
  ncclResult_t (*send)(const void *data, size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*recv)(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream);
  ncclResult_t (*all_reduce)(const void *from, void *to, size_t count, ncclDataType_t type,
                             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
  const char *(*error_string)(ncclResult_t result);
  const char *(*last_error)(ncclComm_t comm); /* why, in NCCL's words; comm may be NULL */

  cudaError_t (*device_count)(int *count);
  cudaError_t (*get_device)(int *device);
  cudaError_t (*set_device)(int device);
  cudaError_t (*stream_create)(cudaStream_t *stream, unsigned int flags);
  cudaError_t (*stream_destroy)(cudaStream_t stream);
  cudaError_t (*stream_query)(cudaStream_t stream);
  cudaError_t (*allocate)(void **memory, size_t bytes);
  cudaError_t (*release)(void *memory);
  cudaError_t (*copy)(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                      cudaStream_t stream);
  cudaError_t (*attributes)(struct cudaPointerAttributes *attributes, const void *memory);
  cudaError_t (*last_cuda_error)(void); /* and forget it */
  const char *(*cuda_error_string)(cudaError_t error);
  const char *tuner; /* the plugin's file; NULL: the one that NCCL_TUNER_PLUGIN names */
} nct_library;

/* The libraries of this machine, loaded once; WEIR_E_UNSUPPORTED when one is not there. */
weir_status nct_load(const nct_library **out);
/* The same from files of these names (tests); *out is filled in. */
weir_status nct_load_from(nct_library *out, const char *nccl, const char *cudart);

typedef struct nct_options {
  const nct_library *lib; /* NULL: those of this machine */
  bool inside;            /* NCCL among the ranks of a machine alone; the same on all ranks */
  uint64_t machine;       /* equal on ranks that share one */
  double timeout_s;
} nct_options;
/* Weir's tuner plugin, as far as it is this group's. */
typedef struct nct_tuner {
  void *library; /* held */
  size_t (*communicators)(void);
  uint64_t (*asked)(size_t communicator);
  uint64_t (*not_offered)(size_t communicator);
  weir_nccl_answer (*change)(size_t communicator, const weir_nccl_rule *rule);
  size_t before;           /* communicators of this process before the group's */
  size_t communicator;     /* the group's */
  weir_nccl_choice choice; /* in force, from all-reduce `from` on */
  uint64_t from;
  bool due;      /* NCCL has not run that one yet */
  bool said;     /* that NCCL does not offer what a plan names */
  bool tells;    /* all ranks can switch */
  char why[256]; /* they cannot */
} nct_tuner;

typedef struct nct {
  weir_transport base;
  weir_transport_ops ops; /* those of base */
  char name[16];          /* theirs, where NCCL is inside of machines alone */
  nct_options options;
  const nct_library *lib;
  weir_transport *control; /* owned; over TCP or MPI */
  int *place;              /* of each rank in this rank's communicator; -1: it is not in there */
  bool *in_memory;         /* messages to and from that rank travel in memory */
  int members;             /* ranks in there; less than 2: there is none */
  ncclComm_t comm;         /* NULL: not formed, or aborted */
  cudaStream_t stream;
  bool has_stream;
  int device, devices;   /* the transport's own, of so many that there are */
  unsigned char *memory; /* on the device; grows only */
  size_t capacity;
  unsigned char *words; /* messages over the group below, and the lists of them; grows only */
  size_t words_capacity;
  nct_tuner tuner;
} nct;

/* A group of the ranks of `control`, which it owns from the call on, even when it fails; *out is
 * `control` itself where NCCL would carry nothing.  Collective. */
weir_status nct_create(weir_transport **out, weir_transport *control, const nct_options *options);
weir_status nct_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank);

/* Find out who is in which communicator, and form this rank's.  *any: some rank is in one. */
weir_status nct_form(nct *self, bool *any);
/* Do messages to and from that rank go through NCCL? */
static inline bool nct_carries(const nct *self, int peer) {
  return self->place[peer] >= 0 && !self->in_memory[peer];
}

/* --- device and memory ---------------------------------------------------------------------- */

/* Between these the calling thread's CUDA device is the transport's; *held is what it
 * was before. */
weir_status nct_enter(const nct *self, int *held);
void nct_leave(const nct *self, int held);
weir_status nct_cuda(const nct *self, cudaError_t error, const char *doing);
/* Room for so many bytes on the device.  What lay there is lost. */
weir_status nct_reserve(nct *self, size_t bytes);
bool nct_on_device(const nct *self, const void *data);
/* Queue a copy.  From ordinary memory of the host it begins at once, with nothing on the stream. */
weir_status nct_copy(nct *self, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
/* A message's place among others: lengths are rounded up to this. */
#define NCT_LINE ((size_t)256)
static inline size_t nct_lines(size_t bytes) {
  return (bytes + NCT_LINE - 1) / NCT_LINE * NCT_LINE;
}

/* --- waiting -------------------------------------------------------------------------------- */

/* Until NCCL has taken what was asked of it and the stream is empty.  peer: who is waited for
 * first. WEIR_E_TIMEOUT and WEIR_E_PEER name who is to blame; the group has then ended. */
weir_status nct_wait(nct *self, int peer, uint64_t step, double deadline_s);
/* A call of NCCL's returned `result`: WEIR_OK for success and work in progress; else the group
 * ends. */
weir_status nct_result(nct *self, ncclResult_t result, const char *doing);
/* End the group: NCCL's communicator is aborted, and the others are told that `culprit` is to
 * blame. */
void nct_end(nct *self, int culprit);

/* --- transfer ------------------------------------------------------------------------------- */

/* Messages up to this come along with their announcement. */
#define NCT_SHORT ((size_t)4096)

/* Announces a message, little-endian; a short one lies behind it. */
typedef struct nct_word {
  uint32_t magic;
  uint32_t follows; /* 1: through NCCL; 0: behind this word */
  uint64_t length;
} nct_word;
_Static_assert(sizeof(nct_word) == 16, "a word has no padding");
#define NCT_MAGIC UINT32_C(0x4e574e57)

weir_status nct_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                         size_t sends, weir_recv *recv, size_t recvs, double deadline_s);
weir_status nct_allreduce(weir_transport *t, const weir_tag *tag, float *x, size_t n, void *blocks,
                          size_t block_bytes, double deadline_s);
weir_status nct_allreduce_told(weir_transport *t, weir_told_algorithm how, const weir_tag *tag,
                               float *x, size_t n, void *blocks, size_t block_bytes,
                               double deadline_s);
bool nct_sums_inside(const weir_transport *t, const int *machine);
weir_status nct_allreduce_inside(weir_transport *t, const weir_tag *tag, float *x, size_t n,
                                 double deadline_s);
/* Room for words; what lay there is lost. */
weir_status nct_words(nct *self, size_t bytes);

/* --- tuner ---------------------------------------------------------------------------------- */

/* Before the communicator is formed, and after that: can it be told how to sum?  Collective; that
 * it cannot is no failure. */
void nct_tuner_before(nct *self);
weir_status nct_tuner_find(nct *self, double deadline_s);
void nct_tuner_close(nct *self);
weir_status nct_tells(const weir_transport *t);
/* The next all-reduce, which all ranks have agreed on, runs so. */
weir_status nct_tuner_switch(nct *self, weir_nccl_choice choice);
/* It has run: was the tuner asked, and did NCCL do as it says?  If not the latter, the log says so
 * once. */
weir_status nct_tuner_check(nct *self);

#endif

/* Weir: gradient communication that tunes itself to the network while training runs.
 *
 * One session per worker.  All functions return a weir_status; on failure weir_last_error() says
 * in one sentence what happened and, where a rank is to blame, which.  A session is used from one
 * thread at a time; different sessions are independent.  Nothing blocks longer than
 * weir_options.timeout_s (plus the time the caller's own hooks take).
 *
 * Life of a session:
 *   weir_options_init -> weir_session_create -> weir_register_* -> weir_session_start ->
 *   { weir_step_begin -> compute gradients -> weir_submit per tensor -> weir_step_end ->
 *     apply the averaged gradients } * -> weir_session_free */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>
#include <weir/status.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define WEIR_VERSION "0.1.0"

typedef struct weir_session weir_session;

/* True state of an emulated network, for runs without one (virtual time).
 * Gives one-way latency (s) and bandwidth (bytes/s) in force at a step.  Called from the session's
 * thread. */
typedef void (*weir_network_fn)(void *user, uint64_t step, double *latency_s,
                                double *bandwidth_bytes_s);

typedef struct weir_options {
  int rank;               /* 0 .. world_size-1 */
  int world_size;         /* N >= 1 */
  const char *transport;  /* "tcp" (default); "shm" (one host); "auto": tcp, or shm where all ranks
                             share a host; "mpi" (ranks of an MPI job); "nccl" (ranks with a CUDA
                             device each); "inproc" (threads of one process) */
  const char *rendezvous; /* tcp, auto, nccl: "HOST:PORT" where rank 0 listens; mpi: not used; else
                             a group name */
  const char
      *bind_address; /* tcp, auto, nccl: local address to use; NULL: the one that reaches rank 0 */
  uint64_t job_id;   /* the same on all ranks; strangers with another are refused */
  /* What ranks prove to each other to know before they talk over tcp: text of 1 to 1024 bytes, or a
   * file with it that is closed to other users.  NULL (default): the environment's WEIR_SECRET,
   * else the file that WEIR_SECRET_FILE names.  Without any, a group meets on the loopback only. */
  const char *secret, *secret_file;
  double timeout_s;           /* bound of every wait, default 10 */
  const char *policy;         /* "weir" (default), "paper", "bits[:METHOD[:ALPHA[:STEPS]]]",
                                 "fixed:CODEC:CR:COLLECTIVE[:WIRE]" or "groups:GROUPS"
                                 (docs/overlap.md) */
  uint64_t seed;              /* of everything random, default 1 */
  double momentum_correction; /* in [0, 1), default 0: none.  Else the momentum of SGD is kept here,
                          before compression (Deep Gradient Compression, section 3.2), and cut off
                          where something was sent: the optimizer then uses the average without a
                          momentum of its own */
  uint64_t warmup_steps; /* of a fixed plan that selects: the ratio comes down to the plan's in four
                     equal stages of so many steps together, which keep at least 1/4, 1/16, 1/64
                     and 1/256 (the same paper, section 3.3).  Default 0: none */
  const char *journal_path; /* where rank 0 writes its decisions (JSON lines); NULL: nowhere */
  bool active_probes;       /* echo and iperf3 probes allowed, default true */
  bool overlap;             /* policy weir may divide the gradient into groups (needs the gaps, and
                               gradients submitted as they become ready), default false */
  bool profile;      /* measure gaps and groups' times (two clock readings a tensor in the first
                        steps and every eighth after that), default false */
  int codec_threads; /* threads that share the long passes of compressing and decompressing (error
                        feedback with a residual not yet), this one among them: 1 (default) to 64.
                        The others are the session's own and wait in between; how many there are
                        changes no bit of any result */
  int tcp_streams;   /* tcp: connections between each two ranks, 1 (default) to 8, the same on all.
                        Long messages are divided among them: on a long link with losses, each of
                        which halves one connection's window only; survivors of a lost rank go on over
                        one */
  int device;   /* -1 (default): gradients are in host memory.  Else the number of a CUDA device:
                   gradients are its memory (or managed), error feedback, selecting, encoding and
                   decoding run on it, and only messages come to the host.  Needs libweir_cuda
                   (the environment's WEIR_CUDA_LIBRARY names it where it is not installed).
                   Ranks with and without may be in one group; then none runs a plan that a device
                   does not (docs/device.md) */
  void *stream; /* device: the cudaStream_t of it on which gradients come into being and averages
                   are used; NULL: the default stream.  Borrowed: it outlives the session.  See
                   weir_submit */
  weir_network_fn virtual_network; /* NULL (default): a real network; else virtual time */
  void *virtual_user;
} weir_options;

/* Fill in the defaults.  Strings are borrowed until weir_session_create returns. */
void weir_options_init(weir_options *options);

/* Create a session.  Forks the small helper that runs iperf3, so call it before starting threads,
 * CUDA or MPI.  *out is NULL on failure. */
weir_status weir_session_create(weir_session **out, const weir_options *options);

/* Register a gradient tensor of numel elements, in backward order, before weir_session_start.  All
 * together have at most 2^32 - 1 elements, or WEIR_E_INVALID; numel may be 0.
 * name is copied.  *tensor receives its number, counting from 0.  All ranks must register the same
 * tensors in the same order; weir_session_start checks it. */
weir_status weir_register_tensor(weir_session *session, const char *name, size_t numel,
                                 uint32_t *tensor);

/* The same for a matrix of rows x columns elements, row after row (a convolution: output channels x
 * all else).  Codec powersgd makes use of the shape: what was registered by weir_register_tensor is
 * a vector to it and travels whole. */
weir_status weir_register_matrix(weir_session *session, const char *name, size_t rows,
                                 size_t columns, uint32_t *tensor);

/* Register memory that a trial must restore (weights, optimizer state).  Borrowed: it must outlive
 * the session. */
weir_status weir_register_state(weir_session *session, const char *name, void *data, size_t bytes);

/* State that is not plain memory (RNG, data cursor): bytes() says how many bytes save() writes;
 * load() takes exactly those back. */
typedef struct weir_state_hooks {
  void *user;
  size_t (*bytes)(void *user);
  void (*save)(void *user, void *to);
  void (*load)(void *user, const void *from);
} weir_state_hooks;
weir_status weir_register_hooks(weir_session *session, const weir_state_hooks *hooks);

/* Connect to the other ranks, check that all registered the same, measure the network and settle
 * the first plan.  Collective: every rank calls it. */
weir_status weir_session_start(weir_session *session);

typedef struct weir_step_info {
  uint64_t step;     /* steps committed before this one; a trial's steps do not count */
  bool trial;        /* this step will be rolled back */
  weir_plan plan;    /* the plan executed in it */
  double compute_s;  /* from weir_step_begin's return to weir_step_end's call, less what of
                        compress_s lies between them */
  double compress_s; /* error feedback, selection, encoding, decoding on the caller's thread */
  double comm_s;     /* waiting for the wire; what backward computation hid does not count */
  double exchange_s; /* the time all exchanges took, hidden or not; comm_s when the plan has
                        no groups */
  double predicted_comm_s;  /* what the calibrated model said comm_s would be; 0 unknown */
  uint64_t wire_bytes;      /* bytes this rank sent in the step, frame headers included */
  double gain;              /* compression gain, mean over ranks, in [0, 1]; of the step before:
                               each rank tells it with the following exchange.  1 at first */
  double latency_s;         /* measured one-way latency agreed on by all ranks; 0 unknown */
  double bandwidth_bytes_s; /* measured bandwidth agreed on by all ranks; 0 unknown */
  double goodput_bytes_s;   /* of it, what messages get; less than it where packets are lost */
  double overhead_s;        /* checkpoints, restores and probes at this step's begin */
  uint64_t probe_bytes;     /* bytes this rank sent in active probes since the step before; from
                               weir_step_end */
} weir_step_info;

/* Begin a step, before the trainer draws its batch: takes or restores a trial's checkpoint when the
 * controller asks for one (registered state and hooks are used here and nowhere else), and puts the
 * agreed plan into force.  info may be NULL. */
weir_status weir_step_begin(weir_session *session, weir_step_info *info);

/* Hand in a tensor's gradient, numel floats (NULL where numel is 0), as soon as it is ready: its
 * buffer is Weir's from now until weir_step_end returns, neither to be read nor written meanwhile.
 * When the plan has groups, the call that completes one starts its exchange, which then goes on
 * while the backward pass does; its place (weir_plan_group) says whether compressing it is part of
 * this call.  In any order, but groups go out in theirs.  The buffer lies at a multiple of 4 bytes,
 * or WEIR_E_INVALID.
 *
 * On a device: what computes the gradient need only be queued on weir_options.stream by then, and
 * what reads the average be queued there after weir_step_end; the session uses a stream of its own
 * beside it and makes the two wait for each other.  Memory that is not the device's:
 * WEIR_E_INVALID.  The device becomes the calling thread's current one.  The host waits for it once
 * a group (its message, or its values) and once a step, timeout_s at most.  The registered state is
 * host memory still; a device's goes through hooks. */
weir_status weir_submit(weir_session *session, uint32_t tensor, float *gradient);

/* Local gradient clipping (Deep Gradient Compression, section 3.3), for between the backward pass
 * and weir_submit: gradients[tensor], numel floats each where they will be submitted, are this
 * rank's; where their norm together is greater than limit / sqrt(world_size) they are scaled down
 * to that, as the norm of a sum of independent gradients grows with the root of their number. *norm
 * (may be NULL) receives what it was.  limit is at least 0; 0: nothing is clipped.  A gradient that
 * is not finite stays as it is, for the step to find.  This rank's own business: nothing is sent.
 * On a device it is queued on weir_options.stream, and only a norm that is asked for is waited for;
 * sums run in another order there, so that what is scaled may differ in its last bit. */
weir_status weir_clip(const weir_session *session, float *const *gradients, double limit,
                      double *norm);

/* Exchange.  On WEIR_OK every submitted buffer holds the average over all ranks, bit-identical on
 * all ranks.  On WEIR_E_NONFINITE (returned on all ranks) the buffers are zero, residuals are as
 * before the step, and training can go on.  Other failures end the group.  info may be NULL. */
weir_status weir_step_end(weir_session *session, weir_step_info *info);

typedef struct weir_survivors {
  int rank, world_size; /* this rank's new number, and how many are left */
  uint64_t step;        /* steps that count, the same for all */
  bool missed; /* the last of them failed here, but others had completed it: registered state
                  is brought up to date (the same holds of it on all ranks then); state
                  behind hooks and whatever is not registered is as this rank left it */
  int current; /* a rank, by its new number, that has missed nothing */
} weir_survivors;

/* After a failure that ends the group (WEIR_E_TIMEOUT and what follows it): go on without the ranks
 * that are dead or silent.  Every survivor calls it, within timeout_s of the others; a few times
 * that bounds it.  The survivors keep their order and are numbered anew from 0; a step or a trial
 * under way is given up, residuals are kept, averages are over the survivors from now on, the
 * network is measured again and the policy starts again from its first plan.  Gradients are to be
 * computed again for step left->step.  left may be NULL.
 *
 * WEIR_E_STATE: the group has not ended.  WEIR_E_UNSUPPORTED: the transport cannot.  WEIR_E_PEER:
 * the others go on without this rank, or too few are left to be sure that a silent rank is not
 * going on elsewhere (half of the group with its lowest rank is enough, and any number is when all
 * others' processes are known to have ended).  After a failure it may be tried again. */
weir_status weir_shrink(weir_session *session, weir_survivors *left);

/* What carries the messages: "tcp", "shm", "mpi", "nccl" or "inproc" (which a group of one always
 * is); what transport "auto" came to.  *name is the library's.  WEIR_E_STATE before
 * weir_session_start. */
weir_status weir_current_transport(const weir_session *session, const char **name);

/* The plan in force. */
weir_status weir_current_plan(const weir_session *session, weir_plan *plan);
/* Its groups, at most capacity of them; *count tells how many there are, 0 when the plan has none.
 * Tensors count in the order of registration; under policy bits those kept in full precision count
 * (here and in messages) behind all others. */
weir_status weir_current_groups(const weir_session *session, weir_plan_group *groups,
                                size_t capacity, size_t *count);

/* The forward pass is over, the backward pass begins; only profiles need to know. */
weir_status weir_mark_backward(weir_session *session);

/* With weir_options.profile: means over the newest steps measured, in s.  Per tensor, the time
 * between the gradient submitted before it and itself (the first one's: since weir_mark_backward):
 * the gap_us of a profile.  WEIR_E_STATE while nothing has been measured. */
weir_status weir_tensor_gap(const weir_session *session, uint32_t tensor, double *gap_s);

/* One group's times in a step. */
typedef struct weir_group_times {
  double launched_s; /* handed on, since weir_step_begin's return */
  double started_s;  /* its exchange began */
  double compress_s; /* error feedback, selection, encoding */
  double exchange_s; /* on the wire */
  double decode_s;   /* decoding, averaging; of the last group: and committing residuals */
} weir_group_times;
/* With weir_options.profile: medians, of the plan in force, at most capacity groups; *count tells
 * how many there are, 1 for a plan without groups. */
weir_status weir_current_times(const weir_session *session, weir_group_times *times,
                               size_t capacity, size_t *count);

/* The same of the step that ended last, nothing averaged: *forward_s is the time from
 * weir_step_begin's return to weir_mark_backward, gap_s has room for every tensor, times for
 * capacity groups.  WEIR_E_STATE when that step was not measured (the first 16 of every plan are,
 * and every eighth), or failed. */
weir_status weir_last_step_times(const weir_session *session, double *forward_s, double *gap_s,
                                 weir_group_times *times, size_t capacity, size_t *count);

/* Tell the journal which epoch training is in. */
weir_status weir_set_epoch(weir_session *session, uint32_t epoch);

/* All-gather of a few bytes (at most 4096) between steps, e.g. for evaluation; all has room for
 * world_size * bytes.  Collective.  Not timed as gradient communication.  WEIR_E_STATE while a
 * step's groups are being exchanged. */
weir_status weir_allgather_bytes(weir_session *session, const void *mine, size_t bytes, void *all);

/* Digest over residuals; two equal digests mean bit-identical residuals. */
weir_status weir_residual_digest(const weir_session *session, uint64_t *digest);

/* Free everything; NULL is allowed.  Ends the helper process. */
void weir_session_free(weir_session *session);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

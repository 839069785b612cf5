/* Weir: gradient communication that tunes itself to the network while training runs.
 *
 * One session per worker.  Unless stated otherwise a function returns a weir_status; on failure
 * weir_last_error() says in one sentence what happened and, where a rank is to blame, which.
 *
 * Threads: a session is used from one thread at a time; different sessions are independent.
 * Waiting: a call waits at most weir_options.timeout_s for an exchange with the other ranks, and
 * then less than a second to find out which of them is to blame.  A call with several exchanges,
 * one after the other, waits for each: weir_session_start, weir_step_begin when it probes the
 * network or ends a trial, weir_step_end under plans with buckets or more than one collective,
 * weir_shrink, weir_grow, weir_join. The time that the caller's own hooks take comes on top. Units:
 * seconds and bytes, in double; gradients are fp32, or of 16 bits (weir_type); lengths count
 * elements.  Latency is one-way, bandwidth is that of a rank's link in one direction. Memory: the
 * session owns what it allocates.  It borrows gradients, registered state and the stream, as each
 * function says.
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
#include <weir/inside.h>
#include <weir/plan.h>
#include <weir/status.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define WEIR_VERSION "0.1.0"
/* WEIR_VERSION of the library that runs; the library's string. */
const char *weir_version(void);

/* Structs that the caller allocates begin with struct_size, their size as the caller's header has
 * it: a library takes the sizes of older headers and leaves alone what they have not.  It refuses 0
 * and what is larger than it knows (WEIR_E_INVALID).  docs/reference/abi.md says what may change.
 */

typedef struct weir_session weir_session;

/* The state of an emulated network, for runs without a real one (virtual time): the one-way latency
 * (s) and the bandwidth (bytes/s) in force at a step.  Called on the session's thread. */
typedef void (*weir_network_fn)(void *user, uint64_t step, double *latency_s,
                                double *bandwidth_bytes_s);
/* For emulated networks that change within a step: the time (s) of an exchange of so many latencies
 * and bytes, one after the other, which begins begins_s after the step has.  Called on the
 * session's thread, after the step's messages. */
typedef double (*weir_virtual_exchange_fn)(void *user, double begins_s, double latencies,
                                           double bytes);

typedef struct weir_options {
  size_t struct_size; /* set by weir_options_init */
  int rank;           /* 0 .. world_size - 1 */
  int world_size;     /* N >= 1 */

  /* What carries the messages: "tcp" (default); "shm" (one host); "mixed" (tcp, but memory between
   * ranks that share a host, where they can); "auto" (shm when all ranks turn out to share a host
   * and its network, with room in /dev/shm, else mixed); "mpi" (ranks of an MPI job); "shm+mpi"
   * (mpi, but memory between ranks that share a host, where they can); "nccl" (ranks with a CUDA
   * device each); "nccl+tcp" (nccl between ranks that share a host, tcp between hosts); "nccl+mpi"
   * (the same of an MPI job, mpi between hosts); "shm+nccl" (nccl, but memory between ranks that
   * share a host, where they can); "inproc" (threads of one process). */
  const char *transport;
  /* Where ranks meet.  shm, inproc: a name of the group; of an MPI job: not used; else "HOST:PORT"
   * at which rank 0 listens. */
  const char *rendezvous;
  /* Of ranks that meet at HOST:PORT: local address to use.  NULL (default): the one that reaches
   * rank 0. */
  const char *bind_address;
  uint64_t job_id; /* the same on all ranks; processes with another are refused */
  /* The secret that ranks prove to each other to know before they talk over tcp: text of 1 to 1024
   * bytes, or a file with it that is closed to other users.  NULL (default): the environment's
   * WEIR_SECRET, else the file that WEIR_SECRET_FILE names.  Without a secret a group meets on the
   * loopback only. */
  const char *secret, *secret_file;
  /* Longest wait for another rank, default 10.  One that is stopped for longer (by a debugger, or a
   * signal) counts as lost: WEIR_E_TIMEOUT on the others, and on itself once it goes on. */
  double timeout_s;

  /* Who decides: "weir" (default), "paper[:CODECS]", with mstopk (default) or lwtopk and star
   * (default), var or both, joined by "+", "bits[:METHOD[:ALPHA[:STEPS]]]" (docs/guide/bits.md),
   * "fixed:CODEC:CR:COLLECTIVE[:WIRE]", "schedule:STAGES" or "groups:GROUPS" (docs/guide). */
  const char *policy;
  /* What policy weir may choose among.  "measured" (default): what is known to keep the loss of a
   * training (fp32 and 16 bits; where update_rule says what the optimizer is, 5 bits of companded,
   * 4 and 3.5 once it has settled, under adaptive rules 5 of whitened until then, in host memory
   * and without memory_limit, and under SGD 3 of qsgd and 4 of dithered, on devices of qsgd-l2, all
   * with error feedback; and nonzero, which sends what gradients touch, where they are mostly
   * zero), and other plans once they have shown it in this job.  "safe": the former alone.  "bold":
   * dense and top-k at any ratio, by a model of progress that was fitted to one training; it can
   * keep a model from learning.  The same on all ranks. */
  const char *risk;
  /* Share of the training's time that trials of such plans may take at most, in [0, 1], default
   * 0.04.  They need weir_report_loss, and a trainer that comes back to where it was
   * (weir_register_state, weir_register_hooks). */
  double trial_budget;
  /* Steps that the training will take, as far as is known; default 0: unknown.  Where they are
   * known the budget is a share of all of their time, and nothing is tried that could not be earned
   * back; else a share of the time so far, and of that of 1000 steps at the least. */
  uint64_t steps;
  uint64_t seed; /* of everything random, default 1 */
  /* In [0, 1), default 0: none.  Otherwise the momentum of SGD is kept here, before compression,
   * and cleared where a value was sent ("Deep Gradient Compression", Lin et al. 2018, section 3.2:
   * momentum correction and factor masking).  The optimizer then uses the average without a
   * momentum of its own.  The same on all ranks. */
  double momentum_correction;
  /* Fixed plans that select: the ratio comes down to the plan's in four equal stages of this many
   * steps together, which keep at least 1/4, 1/16, 1/64 and 1/256 (the same paper, section 3.3).
   * Default 0: no warm-up. */
  uint64_t warmup_steps;
  /* Where rank 0 writes its decisions (JSON lines), which `weir replay FILE` makes again and, where
   * it is called decisions.jsonl, `weir explain FOLDER` tells in words; NULL: nowhere. */
  const char *journal_path;
  /* How many bytes of them are kept, default 256 MiB; 0: all.  The journal has four parts, of which
   * the oldest is dropped: journal_path is the newest, journal_path.1 to .3 are older. */
  uint64_t journal_bytes;
  bool active_probes; /* echo and iperf3 probes are allowed, default true */
  /* Policy weir may divide the gradient into buckets, which are exchanged while the backward pass
   * goes on.  It measures the gaps between gradients for that; submit gradients as they become
   * ready.  Default false. */
  bool overlap;
  /* Measure gaps and buckets' times (two clock readings a tensor, in the first steps and in every
   * eighth after them), default false. */
  bool profile;
  /* Threads that share the long passes of compressing and decompressing, this one among them: 1
   * (default) to 64.  The others are the session's own and sleep in between.  Their number changes
   * no bit of any result. */
  int codec_threads;
  /* Bytes that the session may take beyond the caller's gradients, 0 (default): any; of a group the
   * smallest counts, and what codec_threads take counts where any rank has several.  Rooms for
   * messages that stay on devices (device, below) count with it.  Plans that would take more are
   * not chosen, trials whose checkpoint of residuals would are not begun (its copies of registered
   * memory are not counted), and a policy whose first plan or trials would is refused by
   * weir_session_start and weir_shrink (WEIR_E_UNSUPPORTED, with both figures). */
  uint64_t memory_limit;
  /* tcp: connections between every two ranks, 1 (default) to 8, the same on all ranks.  Long
   * messages are divided among them: on a long link with losses, a loss then halves one
   * connection's window only.  Survivors of a lost rank (weir_shrink) go on over one connection. */
  int tcp_streams;

  /* -1 (default): gradients are in host memory.  Otherwise the number of a CUDA device: gradients
   * are in its memory (or managed), error feedback, selecting, encoding and decoding run on it, and
   * only messages come to the host.  This needs libweir_cuda; the environment's WEIR_CUDA_LIBRARY
   * names it where it is not installed.  Ranks with and without a device may be in one group; then
   * none of them runs a plan that a device cannot (docs/internals/device.md).  Where all ranks have
   * one, on one machine, messages that devices make, and the lists of star and var, stay in the
   * devices' memory, whatever the transport, unless the environment's WEIR_DEVICE_IPC is "off" on
   * some rank; on several machines of as many ranks each, messages of all-gathers inside of
   * these. */
  int device;
  /* With a device: the cudaStream_t on which gradients are computed and averages used; NULL: the
   * default stream.  Borrowed: it must outlive the session.  See weir_submit. */
  void *stream;

  weir_network_fn virtual_network; /* NULL (default): a real network; else virtual time */
  void *virtual_user;              /* handed to virtual_network */

  /* What the gradients are after a step in which one was NaN or infinite: "zero" (default), so that
   * the step changes little; or "keep": every element is NaN on all ranks, so that a loss scaler,
   * or whoever else looks for such gradients, finds them. Residuals stay as they were either
   * way.  The same on all ranks. */
  const char *nonfinite;
  /* tcp, auto; rank 0 alone: a TCP socket that listens at `rendezvous` already, which
   * weir_session_start takes over and closes.  So the kernel may choose the port, and nobody can
   * take it meanwhile.  0 (default): the session listens there itself. */
  int listener;
  /* tcp, auto: "auto" (default), so that messages are encrypted (TLS 1.3) where there is a secret,
   * by certificates where there are some (tls_certificate); or "off": plain text with a secret,
   * too.  The same on all ranks.  The environment's WEIR_TLS, which holds one of the two words, can
   * turn it off as well.  Over nccl announcements are encrypted where there is a secret, NCCL's own
   * connections never. */
  const char *tls;
  /* Tensors that stay in full precision under every policy: they are summed as fp32, together in
   * one bucket even where they are no neighbours, and no plan is run on them.  Items separated by
   * commas, "" (default): none; a shell's pattern of names in any case of letters ("*bias",
   * "*norm*"), or "<N": fewer than N elements.  Rank 0 warns of a pattern that matches no name.
   * The same on all ranks. */
  const char *full_precision;
  /* tcp, mixed, auto (which then does not become shm): others may join the group while it trains
   * (weir_join), up to so many ranks in all; the same on all ranks, those that join included.
   * weir_step_begin may then return WEIR_GROW, and rank 0 goes on listening at `rendezvous`.  0
   * (default): nobody may.  Other transports: WEIR_E_UNSUPPORTED. */
  int max_ranks;
  /* What the trainer's optimizer makes of an average: "sgd", where a step is proportional to it or
   * to its running mean (SGD, momentum, Nesterov); "adaptive", where it is divided by what
   * gradients were like (Adam, RMSprop, LAMB, LARS); or "unknown" (default), of which policy weir
   * takes it that nobody knows what few bits do to it, and sends 16 at the least: under Muon,
   * which makes all of a matrix's directions equally long, 8 do harm.  With error feedback SGD
   * ends where uncompressed gradients would have led, but for what is held back, so that most of
   * policy weir's trials are shorter (18 or 36 steps, not 240) and begin earlier
   * (docs/internals/progress.md).  Under all others noise costs loss: of what companded, whitened,
   * dithered and qsgd hold back in fewer than 5 bits, half is fed in a step, under every policy,
   * and half waits.  Where gradients are clipped a step is not proportional to them, and what
   * rounding adds to their norm makes it shorter: that is "adaptive", too (weir_doubt_update_rule).
   * A wrong "sgd" or "adaptive" may cost loss, "unknown" only time. */
  const char *update_rule;
  /* tcp, mixed, auto: files in PEM, all three of them or none: this rank's certificate, which those
   * may follow that lead from it to the authority; the key to it, closed to other users and without
   * a passphrase; and the authority, one or several, which all ranks' certificates come from, for
   * servers and clients alike.  NULL (default): the environment's WEIR_TLS_CERT, WEIR_TLS_KEY and
   * WEIR_TLS_CA.  With them ranks show each other their certificates (mutual TLS 1.3), on all ranks
   * or on none, and the group's key proves itself on these connections instead of making them.
   * They need a secret, too: by it ranks are let in, agree on who is left of them, and end the
   * group.  Names in certificates are not compared, and nothing is looked up of those that were
   * revoked.  The files are read by weir_session_create, and anew when a group forms, so that new
   * ones take the place of those that expire.  WEIR_E_INVALID and WEIR_E_IO from
   * weir_session_create: the message says which file is no good, and why; WEIR_E_PROTOCOL from
   * weir_session_start: which rank's certificate is refused.  With `tls` "off" they are not
   * used. */
  const char *tls_certificate, *tls_key, *tls_authority;
  /* Default true.  false: nothing is kept of what a plan does not send, as "Project CGX" has it
   * (Markov et al. 2022, section 2.4), which saves 4 bytes an element; the average then is the
   * gradient's on average only.  The same on all ranks.  For codecs that lose nothing on average,
   * or round to 16 bits (none, bf16, fp16, qsgd, qsgd-l2, dithered), under policies that name them:
   * "fixed:", "groups:" and "bits"; others are refused, by weir_session_create (WEIR_E_INVALID) or
   * weir_session_start (WEIR_E_UNSUPPORTED). */
  bool error_feedback;
  /* With virtual_network, and virtual_user: how long an exchange takes on it.  NULL (default): what
   * latency and bandwidth of the step come to. */
  weir_virtual_exchange_fn virtual_exchange;
} weir_options;

/* sizeof(weir_options) in this library, for callers without its headers. */
size_t weir_options_size(void);
/* Set the field that is called `key` from text: a number; "true" or "false"; an address in decimal
 * digits (`stream`); or words, which are borrowed as when the field is set by hand.  For bindings
 * and configuration files: every field can be set so but struct_size and virtual_*.
 * WEIR_E_INVALID: there is no such key, the caller's struct is too old to have it, or the value is
 * not what the field takes (its range is checked by weir_session_create); *options is unchanged. */
weir_status weir_options_set(weir_options *options, const char *key, const char *value);

/* Fill in the defaults of a struct of that size. */
void weir_options_init_sized(weir_options *options, size_t struct_size);
/* Fill in the defaults.  Strings that are set afterwards are borrowed until weir_session_create
 * returns. */
static inline void weir_options_init(weir_options *options) {
  weir_options_init_sized(options, sizeof *options);
}

/* Create a session, at any time: the process may have threads, a CUDA context and MPI by then.  The
 * caller frees *out by weir_session_free; it is NULL on failure.
 * WEIR_E_INVALID: an option is out of its range; the message names it. */
weir_status weir_session_create(weir_session **out, const weir_options *options);

/* Register a gradient tensor of numel elements, in backward order (the order in which gradients
 * become ready), before weir_session_start.  numel may be 0; all tensors together may have at most
 * 2^32 - 1 elements, else WEIR_E_INVALID.  name is copied.  *tensor receives the tensor's number,
 * counting from 0.  All ranks must register the same tensors in the same order; weir_session_start
 * checks it. */
weir_status weir_register_tensor(weir_session *session, const char *name, size_t numel,
                                 uint32_t *tensor);

/* The same for a matrix of rows x columns elements, row after row (of a convolution: output
 * channels x all other dimensions).  Only low rank (codecs powersgd and bilateral) uses the shape:
 * to it, tensors registered by weir_register_tensor are vectors, which travel whole. */
weir_status weir_register_matrix(weir_session *session, const char *name, size_t rows,
                                 size_t columns, uint32_t *tensor);

/* What a gradient's elements are. */
typedef enum weir_type {
  WEIR_FP32 = 0, /* float */
  WEIR_FP16 = 1, /* IEEE 754 half precision */
  WEIR_BF16 = 2  /* bfloat16, the upper half of a float */
} weir_type;

/* The same for elements of another type (a weir_type), which weir_submit then takes, and writes, as
 * they are; rows 1: a vector.  All ranks must register the same types.  Everything between is as if
 * the gradient had been widened to floats, which is exact: residuals are fp32, so are sums, and
 * plans are those of fp32 tensors.  The average is rounded once to the type, to nearest and ties to
 * even.  What that takes away is in no residual: at most half a unit in an average's last place.
 *
 * An average that is finite as fp32 and would not be in the type (from 65520 on in fp16) loses the
 * step, as NaN and infinities do (WEIR_E_NONFINITE from weir_step_end on all ranks): residuals stay
 * as they were, so that nothing is lost when a loss scaler leaves the step out and lowers its scale
 * (weir_rescale).  With infinities written to all ranks, as PyTorch's own sum has it, the scaler
 * would leave the step out as well, but what error feedback has sent in it would be gone.
 * WEIR_E_INVALID: there is no such type. */
weir_status weir_register_typed(weir_session *session, const char *name, size_t rows,
                                size_t columns, uint32_t type, uint32_t *tensor);

/* Register memory that a trial must restore (weights, optimizer state).  Borrowed: it must outlive
 * the session. */
weir_status weir_register_state(weir_session *session, const char *name, void *data, size_t bytes);

/* State that is not plain memory (random numbers, data cursor, weights on a device): bytes() says
 * how many bytes save() writes, and load() takes exactly those back.  They are called on the thread
 * that calls weir_step_begin. */
typedef struct weir_state_hooks {
  size_t struct_size; /* sizeof(weir_state_hooks) */
  void *user;
  size_t (*bytes)(void *user);
  void (*save)(void *user, void *to);
  void (*load)(void *user, const void *from);
} weir_state_hooks;
weir_status weir_register_hooks(weir_session *session, const weir_state_hooks *hooks);

/* Connect to the other ranks, check that all registered the same tensors, measure the network and
 * settle the first plan.  Over a network this starts weir-netprobe, a program installed with the
 * library (or named by the environment's WEIR_HELPER), which runs iperf3 and asks netlink, and ends
 * with the session and with this process; where it is missing a line on stderr says so, and
 * messages alone measure the network.  Collective: every rank calls it.  WEIR_E_MISMATCH: ranks
 * registered other tensors or start under other plans.  WEIR_E_TIMEOUT: a rank, which the message
 * names, did not come. */
weir_status weir_session_start(weir_session *session);

typedef struct weir_step_info {
  size_t struct_size; /* set it to sizeof(weir_step_info); it stays */
  uint64_t step;      /* steps that count before this one; a trial's steps do not */
  bool trial;         /* this step will be rolled back */
  weir_plan plan;     /* the plan executed in it */

  /* Where the step's time went. */
  double compute_s;  /* between weir_step_begin's return and weir_step_end's call, without the
                        part of compress_s that lies there */
  double compress_s; /* error feedback, selecting, encoding, decoding on the caller's thread */
  double comm_s;     /* waiting for the wire; what backward computation hid does not count */
  double exchange_s; /* all exchanges, hidden or not; equals comm_s when the plan has no
                        buckets */
  double predicted_comm_s; /* what the calibrated model predicted for comm_s; 0: unknown */
  double overhead_s;       /* checkpoints, restores and probes when this step began */

  uint64_t wire_bytes;  /* bytes this rank sent in the step, with frame headers */
  uint64_t probe_bytes; /* bytes this rank sent in active probes since the step before; set by
                           weir_step_end */

  /* Compression gain: squared norm of what was sent over that of the error-fed gradient, mean over
   * ranks, in [0, 1].  It is that of the step before, as each rank tells its own with the following
   * exchange; 1 at first. */
  double gain;

  /* The network, as measured and agreed on by all ranks; 0: unknown. */
  double latency_s;         /* one-way */
  double bandwidth_bytes_s; /* the link's rate */
  double goodput_bytes_s;   /* what messages get of it; less where packets are lost */
} weir_step_info;

/* Begin a step, before the trainer draws its batch.  Takes or restores a trial's checkpoint when
 * the controller asks for one (registered state and hooks are used here and, after a loss, in
 * weir_shrink), and puts the agreed plan into force.  info may be NULL.
 *
 * WEIR_GROW: ranks wait to join; the step has not begun on any rank, and weir_grow is to be called
 * first (weir_options.max_ranks). */
weir_status weir_step_begin(weir_session *session, weir_step_info *info);

/* Hand in a tensor's gradient as soon as it is ready: numel elements of the type it is registered
 * with, floats unless weir_register_typed said otherwise (NULL where numel is 0), at an address
 * that is a multiple of their size, 4 or 2, else WEIR_E_INVALID.  The buffer is lent to Weir until
 * weir_step_end returns, which leaves the average in it; neither read nor write it meanwhile.
 * Tensors may be submitted in any order.  When the plan has buckets, the call that completes one
 * starts its exchange, which then overlaps the backward pass; buckets are exchanged in their own
 * order, and a bucket's place (weir_plan_bucket) says whether compressing it is part of this call.
 *
 * With a device: work that computes the gradient need only be queued on weir_options.stream by now,
 * and work that reads the average be queued there after weir_step_end; the session uses a stream of
 * its own and makes the two wait for each other.  Memory that is not the device's is
 * WEIR_E_INVALID.  The device becomes the calling thread's current one.  The host waits for it once
 * a bucket (for its message, or its values) and once a step, timeout_s at most. */
weir_status weir_submit(weir_session *session, uint32_t tensor, void *gradient);

/* Local gradient clipping (Deep Gradient Compression, section 3.3), for between the backward pass
 * and weir_submit: gradients[tensor], numel elements of its type each where they will be submitted,
 * are this rank's; where their norm together is greater than limit / sqrt(world_size) they are
 * scaled down to that, as the norm of a sum of independent gradients grows with the root of their
 * number. *norm (may be NULL) receives what it was.  limit is at least 0; 0: nothing is clipped.  A
 * gradient that is not finite stays as it is, for the step to find.  This rank's own business:
 * nothing is sent.  On a device it is queued on weir_options.stream, and only a norm that is asked
 * for is waited for; sums run in another order there, so that what is scaled may differ in its last
 * bit.  Elements of 16 bits are widened, scaled and rounded once.  WEIR_E_STATE when the exchange
 * of a bucket has begun, whose gradients are lent by then. */
weir_status weir_clip(const weir_session *session, void *const *gradients, double limit,
                      double *norm);

/* Finish the exchange.  Every tensor must have been submitted.  On WEIR_OK every submitted buffer
 * holds the average over all ranks, with the same bits on all ranks.  On WEIR_E_NONFINITE (returned
 * on all ranks; an average that a tensor's type cannot hold counts, too) the buffers are zero, or
 * what weir_options.nonfinite says, residuals are as before the step, and training can go on.
 * WEIR_E_INVALID and WEIR_E_STATE, of a call that is not allowed, change nothing.  Other failures
 * end the group, WEIR_E_NOMEM in the middle of a step, too: WEIR_E_MISMATCH also when a rank is
 * found to have taken another average than the others in the step before, which the message names.
 * info may be NULL. */
weir_status weir_step_end(weir_session *session, weir_step_info *info);

typedef struct weir_survivors {
  size_t struct_size;   /* set it to sizeof(weir_survivors); it stays */
  int rank, world_size; /* this rank's new number, and how many are left */
  uint64_t step;        /* steps that count, the same for all */
  /* The last of these steps failed here, but others had completed it.  Registered state is that of
   * rank `current` now; state behind hooks, and whatever is not registered, is as this rank left
   * it.  Ranks that have missed nothing keep theirs, all of it. */
  bool missed;
  int current; /* the new number of a rank that has missed nothing */
  int joined;  /* how many have come in: the highest ranks */
} weir_survivors;

/* After a failure that ends the group (WEIR_E_TIMEOUT and those after it, and WEIR_E_NOMEM of
 * weir_step_end): go on without the ranks that are dead or silent.  Every survivor calls it,
 * within timeout_s of the others; over tcp one that comes later but answers meanwhile is waited
 * for up to twice that.  They agree on who goes on by the Synod (Paxos): whoever is heard before
 * that is decided goes on, however often each has tried.  It takes at most three times timeout_s
 * and 2 s until the survivors have met.  Then the network is measured as at the start.  The
 * survivors keep their order and are numbered anew from 0.  A step or a trial under way is given
 * up, residuals are kept, averages are over the survivors from now on, the network is measured
 * again, and the policy starts again from its first plan.  Compute the gradients of step
 * left->step again.  left may be NULL.
 *
 * WEIR_E_STATE: the group has not ended.  WEIR_E_UNSUPPORTED: the transport cannot do it, or those
 * who are left cannot run the policy's plans, or not within memory_limit (with both figures), or
 * who is rank 0 now cannot decide, as it lacks the policy's file (WEIR_E_IO there).
 * WEIR_E_MISMATCH: the group has ended because ranks took different averages; their weights are no
 * longer the same, and the training is to go on from where they were.
 * WEIR_E_PEER: the others go on without this rank, or too few are left to be sure that a silent
 * rank is not going on elsewhere: it takes more than half of the group, or half with its lowest
 * rank, or any number when all the others' processes are known to have ended.  After a failure it
 * may be tried again. */
weir_status weir_shrink(weir_session *session, weir_survivors *left);

/* After WEIR_GROW: take in those who wait, at most as many as there are members and max_ranks
 * allow; others later.  Every member calls it, within timeout_s of the others; it takes what
 * weir_shrink does, and a second at most for those who wait to answer.  The members keep their
 * numbers, and those who join come behind them.  A trial under way is given up, all residuals stay
 * as they are, averages are over the new group from now on, the network is measured again, and the
 * policy starts again from its first plan.  Registered state goes to those who join; members keep
 * theirs, whatever it is, but for one that has missed a step (now->missed).  now->joined tells how
 * many have come in: none, when those who waited are gone, or a member is lost meanwhile (then
 * fewer ranks are left).  now may be NULL.
 *
 * WEIR_E_STATE: nobody waits.  Errors that end the group are as for weir_shrink, which is then to
 * be called: a member was lost, or somebody who has just joined. */
weir_status weir_grow(weir_session *session, weir_survivors *now);

/* Instead of weir_session_start: join a group that trains, over tcp.  options.rank and world_size
 * are not used.  A member that lives is to be found at one of the addresses ("HOST:PORT", with
 * commas between them) in options.rendezvous and in the environment's WEIR_JOIN: weir_addresses
 * tells them all, and rank 0 is at the rendezvous as long as it lives.  Tensors, states' sizes,
 * policy, max_ranks, memory_limit, momentum_correction and nonfinite must be the members', and
 * gradients lie on a device or in host memory as theirs do.
 *
 * It waits at most wait_s until there is a place and the group's next step begins, then as long as
 * weir_grow takes.  Afterwards this rank has the group's registered state, step and plan, and has
 * kept nothing back (residual and velocity are zero); state behind hooks and what is not registered
 * is to be had from now->current, and now->missed is true.  now may be NULL.
 *
 * WEIR_E_MISMATCH: the group has refused this rank (the secret, the version, the job, TLS, or what
 * it has registered); the message says why.  WEIR_E_TIMEOUT: no member was found, or there was no
 * place.  WEIR_E_PEER: ranks were lost while this one came in, and it could not go on with the
 * others as weir_shrink does for them (it tries three times).
 * WEIR_E_STATE: weir_session_load was called.  After a failure: weir_session_free, and a new
 * session. */
weir_status weir_join(weir_session *session, double wait_s, weir_survivors *now);

/* Where the members can be found by those who join: "HOST:PORT" of every rank, with commas between
 * them, valid as long as these ranks live.  Of a rank that listens at all addresses of its machine
 * (bind_address "0.0.0.0") it is one by which another rank has come, or else the rendezvous's.
 * WEIR_E_CAPACITY: `room` bytes are too few.  WEIR_E_UNSUPPORTED: nobody may join, or no address of
 * such a rank is known. */
weir_status weir_addresses(const weir_session *session, char *text, size_t room);

/* What carries the messages: "tcp", "mixed", "shm", "mpi", "shm+mpi", "nccl", "nccl+tcp",
 * "nccl+mpi", "shm+nccl" or "inproc"; with transport "auto" or one of two kinds, what it turned out
 * to be: "tcp", "mpi" or "nccl" where no two ranks share memory; for "nccl+tcp" and "nccl+mpi"
 * "tcp" and "mpi" where no two share a host, and "nccl" where all do.  A group of one is always
 * "inproc", unless others may join.  *name is the library's: do not free it.
 * WEIR_E_STATE before weir_session_start. */
weir_status weir_current_transport(const weir_session *session, const char **name);

/* The plan in force. */
weir_status weir_current_plan(const weir_session *session, weir_plan *plan);
/* The buckets of the plan in force: writes at most capacity of them; *count receives their number,
 * 0 when the plan has none.  Tensors count in the order of registration, but for those that are
 * kept in full precision (weir_options.full_precision, policy bits), which count after all others,
 * here and in messages. */
weir_status weir_current_buckets(const weir_session *session, weir_plan_bucket *buckets,
                                 size_t capacity, size_t *count);

/* Tell this step's loss: this rank's own, of its batch, between weir_step_begin and weir_step_end,
 * on all ranks in every step or on none.  Policy weir measures by it what progress a plan makes
 * (weir_options.risk).  NaN and infinities count as not told.  WEIR_E_STATE outside of a step. */
weir_status weir_report_loss(weir_session *session, double loss);

/* Say that the forward pass is over and the backward pass begins.  Only profiles use it. */
weir_status weir_mark_backward(weir_session *session);

/* With weir_options.profile: the time between the previous gradient's weir_submit and this tensor's
 * (of the first gradient: since weir_mark_backward), mean over the newest measured steps, in s.
 * This is the gap_us of a profile.  WEIR_E_STATE while nothing has been measured. */
weir_status weir_tensor_gap(const weir_session *session, uint32_t tensor, double *gap_s);

/* One group's times in a step. */
typedef struct weir_bucket_times {
  double launched_s; /* handed on, since weir_step_begin's return */
  double started_s;  /* its exchange began, since weir_step_begin's return */
  double compress_s; /* error feedback, selection, encoding */
  double exchange_s; /* on the wire */
  double decode_s;   /* decoding and averaging; in the last group also committing residuals */
} weir_bucket_times;
/* With weir_options.profile: medians for the plan in force.  Writes at most capacity buckets;
 * *count receives their number, 1 for a plan without buckets. */
weir_status weir_current_times(const weir_session *session, weir_bucket_times *times,
                               size_t capacity, size_t *count);

/* The same of the last step alone.  *forward_s is the time from weir_step_begin's return to
 * weir_mark_backward; gap_s has room for every tensor, times for capacity buckets.  WEIR_E_STATE
 * when that step failed or was not measured (measured are the first 16 steps of every plan, and
 * every eighth after them). */
weir_status weir_last_step_times(const weir_session *session, double *forward_s, double *gap_s,
                                 weir_bucket_times *times, size_t capacity, size_t *count);

/* Tell policy schedule, and the journal, which epoch the training is in: on rank 0, and on whoever
 * may become it when ranks are lost. */
weir_status weir_set_epoch(weir_session *session, uint32_t epoch);

/* Say how many steps can follow the one at hand until the trainer does what coming back would not
 * undo: ends an epoch, say, or writes a checkpoint.  No trial of policy weir begins without room
 * for its steps, and one under way is rolled back before the room is used up.  Rank 0's word
 * counts; to be said in every step, before weir_step_end.  Until it is said: any number. */
weir_status weir_set_room(weir_session *session, uint64_t steps);

/* Say that weir_options.update_rule promises too much.  `rule` "adaptive": steps have turned out
 * not to be proportional to averages, as gradients were clipped, say.  "unknown": averages were
 * thrown away, and with them what error feedback had held back of others; those of SAM's first
 * pass, say.  From then on it counts as that, for good, unless it promises no more already: within
 * a few steps policy weir rolls back a trial that is under way, and leaves plans that need more.
 * Between steps, on all ranks.  WEIR_E_INVALID: another rule; WEIR_E_STATE: a step has begun. */
weir_status weir_doubt_update_rule(weir_session *session, const char *rule);

/* All-gather `bytes` bytes (at most 4096, the same on all ranks) between steps, for example to
 * evaluate; `all` has room for world_size * bytes and receives them in the order of ranks.
 * Collective.  It is not timed as gradient communication.  WEIR_E_STATE while a step's buckets are
 * being exchanged. */
weir_status weir_allgather_bytes(weir_session *session, const void *mine, size_t bytes, void *all);

/* A digest of this rank's residuals: equal digests mean bit-identical residuals. */
weir_status weir_residual_digest(const weir_session *session, uint64_t *digest);

/* Multiply what has been kept back of gradients, residual and velocity, by a factor that is finite
 * and not 0: when a loss scale changes that all gradients carry.  Between steps, on all ranks
 * alike.  On a device it is queued on weir_options.stream.  In a trial it holds for the trial: what
 * comes back when that ends is at the scale that the trial began with, and so the loss scale is to
 * be, which is state of the trainer (weir_register_state, weir_register_hooks).  WEIR_E_STATE: a
 * tensor of a step is handed in. */
weir_status weir_rescale(weir_session *session, double factor);

/* Write, or read, so many bytes; false: it failed. */
typedef bool (*weir_write_fn)(void *user, const void *data, size_t bytes);
typedef bool (*weir_read_fn)(void *user, void *data, size_t bytes);

/* Save what this rank's next step starts from: residual, velocity, low rank's columns, which step
 * that is and under which plan; of rank 0 also what the policy has learnt and decided, for which a
 * decision under way is waited for.  Between steps.  The caller sees to it that what it writes
 * replaces an older state as a whole.  A fixed policy that goes on from it computes the same bits
 * as if it had not stopped.  Optimizer and weights are the caller's.  WEIR_E_IO: write failed, or
 * the journal cannot be kept.  WEIR_E_STATE: a trial, or a tensor of a step, is under way, or the
 * decision takes longer than 10 s; later it may be saved.  A session on a device writes the same as
 * one in host memory, and either loads what the other has written; the copies on the host that it
 * makes for that, of 4 bytes an element, or 8 with momentum correction, are kept for the next
 * time. */
weir_status weir_session_save(weir_session *session, weir_write_fn write, void *user);

/* Go on from what a rank saved: before weir_session_start, with the same tensors registered, by
 * name and in any order.  All that were saved must be handed over, each to one rank: where there
 * are fewer ranks than before, some call this more than once, and where there are more, some do not
 * call it; what is kept back then is shared out so that none of it is lost.  weir_session_start
 * checks that.
 *
 * As many ranks as before, each with its own state, under the same policy and risk, with tensors
 * registered in the same order, go on under the plan that was in force: calibration of codecs,
 * trials and decisions are not made again, and the journal, where it is one file, loses what was
 * written to it after the state was saved.  Others start from the policy's first plan, with what
 * rank 0's state (which rank 0 then takes) knows of codecs.  The network is measured anew in either
 * case.
 *
 * Nothing of a state that is refused is taken: WEIR_E_IO: read failed.  WEIR_E_PARSE: it is
 * damaged, or none of ours.  WEIR_E_MISMATCH: it is of other tensors or another step, or has a
 * velocity and momentum_correction is 0. */
weir_status weir_session_load(weir_session *session, weir_read_fn read, void *user);

/* Free everything and end the helper process; NULL is allowed.  On devices that read each other's
 * memory it waits for the other processes to end their sessions, 2 s at the most. */
void weir_session_free(weir_session *session);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

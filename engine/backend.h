/* What a step asks of whatever holds its gradients.  There are two backends: the host's memory and
 * processor (host.c) and a CUDA device (device.c).  The step itself (step.c, bucket.c and the
 * schemes' files) is the same for both.
 *
 * A backend holds the residual r, the error-fed gradient e = g + r, which is a buffer of its own,
 * and the sum over ranks.  What a rank sends is taken off e, and the commit lets r and e change
 * places.  So a step that is dropped, or fails, leaves r as it was: nothing has to be brought back.
 * With momentum correction the velocity u and what becomes of it are two more buffers of this
 * kind. */
#ifndef WEIR_ENGINE_BACKEND_H
#define WEIR_ENGINE_BACKEND_H

#include "engine/state.h"

struct weir_backend {
  /* Life.  reserve: room for a plan's buckets, before it comes into force; memory for messages,
   * aligned to a cache line, is allocated apart. */
  weir_status (*open)(weir_engine *engine);
  void (*close)(weir_engine *engine);
  weir_status (*reserve)(weir_engine *engine, const weir_bucket_set *set);
  unsigned char *(*allocate)(const weir_engine *engine, size_t bytes);
  void (*release)(const weir_engine *engine, unsigned char *memory, size_t bytes);
  /* Where the ranks' devices read each other's memory (config.rooms): room for so many bytes of
   * gathered messages a step there, if *yes; between steps.  Collective where there is not as much
   * yet: all ranks ask for the same.  unshare: none any more.  shared: bytes that there is room
   * for, of the largest so far.  NULL: there are no devices. */
  weir_status (*share)(weir_engine *engine, size_t bytes, bool *yes);
  void (*unshare)(weir_engine *engine);
  size_t (*shared)(const weir_engine *engine);
  bool on_caller; /* compresses on the caller's thread only, whatever place a plan names */
  bool digests;   /* publish tells the digest of what it writes */

  /* Is a gradient where it should be? */
  weir_status (*check)(const weir_engine *engine, const void *gradient);

  /* A bucket before its exchange.  feed: e = g + r with its moments.  show: what the gain curve and
   * the hooks want to see of it, on the caller's thread.  compress: select, encode or project, and
   * take what is sent off e.  await: compressing is over; tells moments, finite and the message's
   * length, zeros being sent where e is not finite. */
  void (*feed)(weir_bucket *bucket);
  void (*show)(weir_bucket *bucket);
  weir_status (*compress)(weir_bucket *bucket);
  weir_status (*await)(weir_bucket *bucket);

  /* Parts of exchanges.  pass_on: of messages that stay on devices inside of each of several
   * machines, whose lengths are known, those of the others at this rank's place come into its room.
   * add: a rank's message, WEIR_E_PROTOCOL when it is malformed, is added to the sum.  list: this
   * rank's list of indices is a message at bucket->blocks, or where messages stay on devices in its
   * room there, of which read takes that of any rank.  fetch: the values of e at bucket->index, or
   * at the places read, WEIR_E_PROTOCOL when these are malformed.  settle: there e becomes
   * bucket->error, and the sum `value`.  store: e becomes bucket->lost or 0, and the sum `sum`.
   * project_back: with the common columns in bucket->value, this rank's Q, and what that sends is
   * taken off e; but where sums are rounded, Q alone, and e of what travels whole becomes what the
   * first sum lost.  take_off: after the second sum, where sums are rounded; q is this rank's Q
   * less what rounding lost of it, and P q^T is taken off e.  settle and store with NULL: the sum
   * is of no interest any more. */
  weir_status (*add)(weir_bucket *bucket, int rank);
  weir_status (*pass_on)(weir_bucket *bucket);
  weir_status (*list)(weir_bucket *bucket, size_t *bytes);
  weir_status (*read)(weir_bucket *bucket, int rank, size_t bytes);
  weir_status (*fetch)(weir_bucket *bucket);
  weir_status (*settle)(weir_bucket *bucket, const float *value);
  weir_status (*store)(weir_bucket *bucket, const float *sum);
  weir_status (*project_back)(weir_bucket *bucket);
  weir_status (*take_off)(weir_bucket *bucket, const float *q);
  /* Who does what bucket->parts says, the bucket being the user: encodes and decodes a sum's
   * messages; selects and adds up HiTopKComm's.  NULL: there are no such buckets. */
  const weir_coder_ops *coder;
  const weir_hitopk_away *away;
  /* The submitted gradients become share times the sum, rounded once where they have 16 bits; may
   * set overflow, which an average that their type cannot hold is, too.  bucket->average, 0 before,
   * becomes their digest where the backend digests. */
  weir_status (*publish)(weir_bucket *bucket, float share);

  /* The step as a whole.  header: all that this rank's header tells is known.  finish: what was
   * queued is done, and overflow known.  zero: the submitted gradients become 0, or NaN where the
   * configuration says so.  rest: nothing of a step that failed is under way any more. */
  weir_status (*header)(weir_engine *engine);
  weir_status (*finish)(weir_engine *engine);
  weir_status (*zero)(weir_engine *engine);
  void (*commit)(weir_engine *engine);
  void (*rest)(weir_engine *engine);
  /* What elements usually are (kernels/whitened.h), the same on all ranks.  follow: an average more
   * was published, and counts.  forget: nothing is known of it, as at first.  NULL: no codec that
   * wants to know it runs here. */
  void (*follow)(weir_engine *engine);
  void (*forget)(weir_engine *engine);

  /* Room for a copy of r, u and what elements usually are; then take it, or bring it back. */
  weir_status (*keep_room)(weir_engine *engine);
  void (*keep)(weir_engine *engine, bool restore);
  /* Between steps.  recall: residual, velocity (NULL without momentum), squares (NULL where none
   * are followed, and not asked for) and `zero` of memory, on the host, to be read or filled in.
   * take: what has been filled in there becomes the backend's.  scale: residual and velocity are
   * multiplied. */
  weir_status (*recall)(weir_engine *engine, bool squares, weir_engine_memory *memory);
  weir_status (*take)(weir_engine *engine, const weir_engine_memory *memory);
  weir_status (*scale)(weir_engine *engine, float factor);
  /* The residual, n floats on the host. */
  const float *(*residual)(const weir_engine *engine);
};

/* Does the plan in force leave a residual?  Otherwise it is all zero after a commit. */
bool weir_engine_leaves(const weir_engine *engine);

extern const weir_backend weir_host_backend, weir_device_backend;

/* The buckets that a plan and its table (NULL without) come to in this engine; returns how many.
 * out has room for one more than the plan's, or two. */
size_t weir_full_table(const weir_engine *engine, const weir_plan *plan,
                       const weir_plan_bucket *table, weir_plan_bucket *out);

#endif

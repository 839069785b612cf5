/* What the engine asks of a device in a step: a table of operations that libweir_cuda hands out
 * under one symbol, so that libweir links nothing of CUDA (session/device.c loads it).
 *
 * Memory: three buffers of n floats, r (residual), e and sum.  A step reads r and writes e and sum;
 * the commit lets r and e change places, so that a step that does not count leaves nothing to bring
 * back.  What a rank sends is taken off e.  Without error feedback there is no r.  Momentum
 * correction adds two more of the same kind, u (velocity) and what it becomes.
 *
 * Streams: what leads to a bucket's message is queued on the caller's stream and followed by an
 * event; what comes after the exchange is queued on a stream of the device's own, for which the
 * caller's stream waits in finish.  None of the operations waits for the device but those that say
 * so, each for timeout_s at most (WEIR_E_TIMEOUT), and none allocates but create, reserve,
 * keep_room, pin and memory.
 *
 * Threads: compress is the caller's, like everything that is not of one bucket; from await on a
 * bucket is in the hands of whoever exchanges it.  Messages and values of a bucket are page-locked
 * memory (pin), n and k are elements, buckets count from 0 in the order of reserve. */
#ifndef WEIR_KERNELS_DEVICE_H
#define WEIR_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/adaptive.h"
#include "kernels/codec.h"
#include "kernels/powersgd.h"
#include "kernels/runs.h"

#define WEIR_DEVICE_VERSION 13u
#define WEIR_DEVICE_SYMBOL "weir_device_library"

typedef struct weir_device weir_device;

/* What becomes of a bucket's gradient. */
typedef enum weir_device_kind {
  WEIR_DEVICE_SELECT = 0, /* a message of selected elements, which are taken off e */
  WEIR_DEVICE_ENCODE = 1, /* a message of all elements; what it loses is e */
  WEIR_DEVICE_LIST = 2,   /* e, and where asked for a list of its largest elements */
  WEIR_DEVICE_DRAWN = 3,  /* e; which elements go is known without it */
  WEIR_DEVICE_WHOLE = 4,  /* e, and all of it goes to the host */
  WEIR_DEVICE_THIN = 5,   /* e, and of its matrices P and Q go to the host (kernels/powersgd.h) */
  WEIR_DEVICE_PARTS =
      6,                /* e in the place of the sum; parts of it are encoded and added to, and what
                             encoding loses of them is the next e */
  WEIR_DEVICE_SHARE = 7 /* e, and all of it goes to the host; then a share of sums comes back, of
                             which elements are selected */
} weir_device_kind;

typedef struct weir_device_bucket {
  weir_device_kind kind;
  uint32_t codec;      /* weir_codec_id */
  uint8_t bucket_log2; /* as in plans */
  double cr;
  weir_wire_format wire;
  weir_layout layout;   /* of its own tensors; borrowed until the next reserve */
  const uint8_t *types; /* weir_type, likewise */
  size_t at, n;         /* elements [at, at + n) of the gradient */
  size_t kept;       /* elements that are selected or drawn, or stale; THIN: floats that travel */
  size_t stride;     /* bytes of the longest message */
  size_t tensors_at; /* its first tensor's place in the table that compress and publish take */
  /* THIN: its tensors, borrowed as the layout is; columns of P and Q; floats that travel first. */
  const weir_thin *thin;
  size_t rank, first_sum;
  bool damped; /* half of r is fed; the commit adds the other half to e */
} weir_device_bucket;

/* A part of e that somebody on the host wants to see. */
typedef struct weir_device_sample {
  size_t at; /* what the runs are of, from the bucket's first element on */
  weir_runs runs;
  float *to; /* page-locked, for all of the runs */
} weir_device_sample;

/* What compress is given. */
typedef struct weir_device_task {
  void *const *g; /* the gradient of every tensor of all, elements of its type */
  uint64_t seed;
  void *message; /* where the message goes, page-locked, stride bytes; NULL: none (LIST; the others
                    that make one must have it) */
  bool stays;    /* message is memory of the device, of a room: SELECT, ENCODE and LIST */
  void *copy;    /* with stays: where it goes as well, page-locked, stride bytes; NULL: nowhere */
  /* Page-locked.  WHOLE and SHARE: where e goes, n floats.  THIN: `kept` floats, of which those
   * from first_sum on hold the columns to start from, and those before are stored. */
  float *values;
  void *bins; /* where the gain histogram goes, page-locked, WEIR_DEVICE_BINS; NULL: none */
  /* Page-locked; read and obeyed by the time that await is back. */
  const weir_device_sample *samples;
  size_t sample_count;
} weir_device_task;

/* Memory of a device for messages, which the devices of other ranks read where it is, told to them.
 * Who reads it there trusts none of it. */
typedef struct weir_device_room {
  uint64_t bytes;
  uint64_t process; /* who made it, */
  uint64_t memory;  /* its address there, */
  uint64_t mark;    /* and what is written before and behind it */
  unsigned char handle[64];
} weir_device_room;

#define WEIR_ROOM_LINGER_S 2.0

/* Before and behind a room lies an edge, and its memory is whole pages that nothing else lies in,
 * as the driver shares those. */
#define WEIR_ROOM_EDGE ((size_t)256)
#define WEIR_ROOM_PAGE ((size_t)2 << 20)

/* What a room for so many bytes takes of a device. */
static inline size_t weir_room_memory(size_t bytes) {
  const size_t inside = (bytes + WEIR_ROOM_EDGE - 1) / WEIR_ROOM_EDGE * WEIR_ROOM_EDGE;
  return (inside + 2 * WEIR_ROOM_EDGE + WEIR_ROOM_PAGE - 1) / WEIR_ROOM_PAGE * WEIR_ROOM_PAGE;
}

/* PARTS: elements [at, at + count) of the bucket and their messages, one after the other: of
 * `block` elements and `each` bytes, the last of what is left; `bytes` in all, at most stride. */
typedef struct weir_device_part {
  size_t at, count;
  size_t block, each, bytes;
  /* The seed of the message that begins at element i of it: weir_hash(draws, &i, 8). */
  uint64_t draws;
} weir_device_part;

/* What compressing tells; page-locked. */
typedef struct weir_device_told {
  weir_moments moments; /* of e = g + r */
  weir_moments other;   /* of the selected values, or of what encoding has lost */
  uint64_t bytes;       /* of the message; 0 without one */
  uint64_t fault;       /* not 0: the message is not to be used, which only an e that is not finite
                           can lead to */
} weir_device_told;

typedef struct weir_device_ops {
  uint32_t version; /* WEIR_DEVICE_VERSION, or nothing else of this may be looked at */
  uint32_t bytes;   /* sizeof(weir_device_ops) */
  /* Why the calling thread's last operation failed. */
  const char *(*last_error)(void);

  /* stream: the cudaStream_t on which gradients come into being; NULL: the default stream.  Room
   * for gradients of n elements; r is zero, and so is u, which there is where momentum is not 0.
   * feedback false: r takes no memory, e = g; of codecs that encode or round.  Waits. */
  weir_status (*create)(int device, void *stream, size_t n, float momentum, bool feedback,
                        double timeout_s, weir_device **out);
  void (*free)(weir_device *device); /* waits; NULL is allowed */
  /* Room for these buckets, which take the place of those before.  Keeps what it has: a plan that
   * was in force needs no more.  After a failure it is to be called again.  Waits when it
   * allocates. */
  weir_status (*reserve)(weir_device *device, const weir_device_bucket *buckets, size_t count,
                         size_t ranks);
  /* Page-locked memory of the host, aligned to 64 bytes. */
  weir_status (*pin)(weir_device *device, size_t bytes, void **out);
  void (*unpin)(weir_device *device, void *memory); /* waits; NULL is allowed */
  /* Rooms, all of them between steps.  make: one of so many bytes, aligned to 256, and what others
   * are to be told.  open: the room of another rank, who has told this, for this one, `reader`; it
   * is read once, at both ends, to see that it can be.  close: of either kind; NULL is allowed.  A
   * room is gone when the last in its process has closed it, who waits WEIR_ROOM_LINGER_S at most
   * for readers in other processes.  All of them wait. */
  weir_status (*make_room)(weir_device *device, size_t bytes, void **room, weir_device_room *told);
  weir_status (*open_room)(weir_device *device, const weir_device_room *told, int reader,
                           void **room);
  void (*close_room)(weir_device *device, void *room);
  /* Is it memory that the device can use?  WEIR_E_INVALID when it is not. */
  weir_status (*check)(weir_device *device, const void *memory);
  uint64_t (*waits)(const weir_device *device); /* how often the host has waited for the device */

  /* e = g + r, or with momentum e = m u + g + r, and what the bucket's kind says of it. */
  weir_status (*compress)(weir_device *device, size_t bucket, const weir_device_task *task);
  /* Wait until a bucket's message is there; *told is valid until it is compressed again. */
  weir_status (*await)(weir_device *device, size_t bucket, const weir_device_told **told);
  /* Add bins to others; and make a curve of those of n elements. */
  void (*add_bins)(void *to, const void *bins);
  weir_status (*curve)(const void *bins, size_t n, weir_gain_curve *curve);

  /* sum = (first) or += what a message decodes to, page-locked or in a room: of that a copy is
   * made, of which all is checked before a bit is used.  What is wrong with it finish says.
   * ENCODE: at the next publish, which is to follow. */
  weir_status (*decode)(weir_device *device, size_t bucket, const void *message, size_t bytes,
                        bool first);
  /* Of another machine: a message, page-locked, goes to its place in a room.  Waits. */
  weir_status (*leave)(weir_device *device, size_t bucket, void *room, const void *message,
                       size_t bytes);
  /* LIST: the bucket's indices are those of a list in a room, of which a copy is made; all of it is
   * checked before an index is used.  What is wrong with it fetch says, WEIR_E_PROTOCOL, which does
   * nothing then. */
  weir_status (*read)(weir_device *device, size_t bucket, const void *list, size_t bytes);
  /* value = e at the bucket's k indices, where e and what u becomes are 0 then.  index NULL: those
   * that have been read.  Waits. */
  weir_status (*fetch)(weir_device *device, size_t bucket, const uint32_t *index, float *value);
  /* Of those places: e += error, sum = 0 but for value.  value NULL: sum is left as it is. */
  weir_status (*settle)(weir_device *device, size_t bucket, const float *error, const float *value);
  /* PARTS.  encode: the messages of a part go to page-locked memory, what that loses to e, and the
   * part's values are of no more use.  add: decoded messages, which the host has found good, are
   * stored as a part's values or added to them.  drop: all values become 0.  arrive: waits until
   * all of that is done, and so until messages are there.  Messages may lie in rooms, too: then the
   * host has not seen them, and arrive gives WEIR_E_PROTOCOL where values were encoded after a
   * malformed one. */
  weir_status (*encode)(weir_device *device, size_t bucket, const weir_device_part *part, void *to);
  weir_status (*add)(weir_device *device, size_t bucket, const weir_device_part *part,
                     const void *from, bool add);
  weir_status (*drop)(weir_device *device, size_t bucket);
  weir_status (*arrive)(weir_device *device);
  /* SHARE.  pick: e becomes 0, but for count elements from `at` on, which are x, page-locked; the k
   * that the codec selects of these are taken out and go to message, page-locked and stride bytes,
   * with what rounding loses left behind.  The sum becomes 0.  *told: the share's moments (the sum
   * of squares alone), those of what is selected, and the message's length.  Waits.  take: sum +=
   * what a message, which the host has found good, says of count elements from `at` on. */
  weir_status (*pick)(weir_device *device, size_t bucket, size_t at, size_t count, size_t k,
                      const float *x, void *message, const weir_device_told **told);
  weir_status (*take)(weir_device *device, size_t bucket, size_t at, size_t count,
                      const void *message, size_t bytes);
  /* Momentum that was sent at these k places, ascending, k <= kept, is stale: what u becomes is 0
   * there. */
  weir_status (*stale)(weir_device *device, size_t bucket, const uint32_t *index, size_t k);
  /* All n of them: e = next, or 0 where it is NULL; sum = sum unless it is NULL. */
  weir_status (*store)(weir_device *device, size_t bucket, const float *next, const float *sum);
  /* THIN, values as in compress.  With the orthogonal columns of all ranks in the first part: this
   * rank's Q goes to the second, what that sends is taken off e, and told->other is of what is
   * left.  Where sums are rounded, lost is not NULL, page-locked, as long as the first part: then
   * nothing is taken off, and e of what travels whole becomes what is there.  Waits. */
  weir_status (*project_back)(weir_device *device, size_t bucket, float *values, const float *lost);
  /* After project_back with lost: q, page-locked, is this rank's Q less what rounding lost of it.
   * P q^T is taken off e, in the stream's order, and at finish told->other is of what is left. */
  weir_status (*take_off)(weir_device *device, size_t bucket, const float *q);
  /* With all ranks' Q there: sum = P Q^T, and what travels whole. */
  weir_status (*expand)(weir_device *device, size_t bucket, const float *values);
  /* g = share * sum, for the bucket's tensors; rounded to 16 bits where these have as many. */
  weir_status (*publish)(weir_device *device, size_t bucket, void *const *g, float share);
  /* The caller's stream waits for all of that, and so does the caller.  PARTS: told->other is of
   * what is lost.  overflow[i], of bucket i: something published is not finite, or would not be in
   * its type.  WEIR_E_PROTOCOL: a message was malformed. */
  weir_status (*finish)(weir_device *device, bool *overflow);

  void (*commit)(weir_device *device); /* r and e change places, and u and what it becomes */
  /* Every byte of a gradient of so many becomes `byte`, on the caller's stream. */
  weir_status (*fill)(weir_device *device, void *g, size_t bytes, uint8_t byte);
  /* Room for a copy of r and u; then take it, or bring it back, on the caller's stream. */
  weir_status (*keep_room)(weir_device *device);
  weir_status (*keep)(weir_device *device, bool restore);
  /* r and u to the host, where they are asked for (not NULL).  Waits. */
  weir_status (*save)(weir_device *device, float *r, float *u);
  /* And from there: r NULL becomes 0, u NULL stays.  Without feedback there is an r then until the
   * next commit.  Waits. */
  weir_status (*load)(weir_device *device, const float *r, const float *u);
  /* u, where there is one, and r where that is asked for, are multiplied; on the caller's
   * stream. */
  weir_status (*scale)(weir_device *device, float factor, bool r);

  /* Clipping, on the caller's stream: the sum of squares of n elements of this weir_type is stored,
   * or added to what there is already; x is brought to a norm of at most limit by it
   * (weir_clip_factor); and its root.  Only norm waits. */
  weir_status (*measure)(weir_device *device, const void *x, unsigned type, size_t n, bool add);
  weir_status (*clip)(weir_device *device, void *x, unsigned type, size_t n, double limit);
  weir_status (*norm)(weir_device *device, double *norm);

  /* Optimizers (kernels/adaptive.h), on the caller's stream: squares of pieces, of LARS where terms
   * are NULL, else of LAMB; their steps; and a copy from or to page-locked memory, in which tables
   * and results lie, too.  Only settle_all waits, until all of that is done. */
  weir_status (*squares)(weir_device *device, const weir_tensor_piece *pieces, size_t count,
                         const weir_adam *terms, weir_squares *out);
  weir_status (*move)(weir_device *device, const weir_mover *movers, size_t count);
  weir_status (*copy)(weir_device *device, void *to, const void *from, size_t bytes);
  weir_status (*settle_all)(weir_device *device);

  /* Memory of the device, for who has no gradients and times steps; what it holds is not said. */
  weir_status (*memory)(weir_device *device, size_t bytes, void **out);
  void (*forget)(weir_device *device, void *memory); /* waits; NULL is allowed */
} weir_device_ops;

/* Bytes of a gain histogram (kernels/cuda/cuda.h). */
#define WEIR_DEVICE_BINS ((size_t)8192 * 3 * sizeof(uint64_t))

/* The symbol's type. */
typedef const weir_device_ops *weir_device_library_fn(void);

#endif

/* All-reduce of encoded values (CGX, I. Markov et al., 2022, section 4): partial sums travel as an
 * encoder's messages (kernels/codec.h).
 *
 * What encoding loses is kept, not dropped: a rank that encodes adds value - decode(message) to its
 * own error[], so that N-rank sum of inputs = result + sum over ranks of error, up to fp32
 * rounding.  CGX itself lets the loss of a second encoding go; here the rank that encodes a sum
 * again owes what that costs, and pays it with its next gradient.  Every rank decodes the same
 * bytes at the end, its own included: the result has the same bits on all ranks.
 *
 * In the host's memory none is needed beside x and error.  A rank encodes each element once: what
 * it sends of a chunk takes the place of its values, which are of no more use, and what comes in
 * lies in parts of error[] that are not known yet, or behind what has been sent.  So that a message
 * can be decoded in its own place, from its end, it is one of the codec's messages for each block
 * of elements. */
#ifndef WEIR_COLLECTIVES_COMPRESSED_H
#define WEIR_COLLECTIVES_COMPRESSED_H

#include "collectives/collective.h"
#include "collectives/cost.h"
#include "collectives/patterns/patterns.h"
#include "kernels/codec.h"

/* Elements [at, at + count) of those that are summed, and their messages: one of `each` bytes for
 * every `block` of them, `bytes` in all.  Draws of a block come from seed, rank, draw and where it
 * begins, counted from `at` (weir_coder_draws). */
typedef struct weir_coder_part {
  size_t at, count;
  size_t block, each, bytes;
  uint64_t seed, rank, draw;
} weir_coder_part;
uint64_t weir_coder_draws(const weir_coder_part *part, size_t block_at);
/* All of that but where it begins: weir_coder_draws is weir_hash() of it and of 64 bits of
 * block_at. */
uint64_t weir_coder_state(const weir_coder_part *part);

/* Where x and error are elsewhere than in the host's memory: whoever has them encodes and decodes,
 * into and from the coder's own room.  Failures are of this rank. */
typedef struct weir_coder_ops {
  /* The message may be there no sooner than await is back. */
  weir_status (*encode)(void *user, const weir_coder_part *part, void *out);
  /* One that has been found good; it may be read until await is back. */
  weir_status (*decode)(void *user, const weir_coder_part *part, const void *message, bool add);
  weir_status (*await)(void *user);
  /* With a coder that stays: where a rank's messages are, weir_coder_stays() bytes, which all ranks
   * can read.  They are written once a step, read by any number of decode, which looks at all of
   * one before it uses any; await says what was malformed (WEIR_E_PROTOCOL). */
  unsigned char *(*room_of)(const void *user, int rank);
} weir_coder_ops;

typedef struct weir_coder {
  const weir_codec *codec;     /* with encode and decode, for one tensor of any length */
  weir_codec_context *context; /* borrowed */
  double cr;                   /* bits an element / 32 */
  uint64_t seed;               /* the same on all ranks, another in every step */
  uint8_t bucket_log2;         /* as in plans */
  const weir_coder_ops *ops;   /* NULL: x and error are the host's memory */
  void *user;                  /* with ops, and room for weir_coder_room() bytes of messages */
  unsigned char *room;
  bool native; /* hier-sra: the library below sums inside of machines (weir_comm_sums_inside) */
  bool stays;  /* messages stay where they are made, in ops->room_of */
  /* All but ring and tree: messages travel with their codes by how often they occur (entropy.h),
   * and what that made of them is added to *shortened, unless that is NULL. */
  bool huffman;
  struct weir_shortened *shortened;
} weir_coder;

/* Bytes of messages that this rank has sent, or left where others read their sums, as they are and
 * as they travelled. */
typedef struct weir_shortened {
  double whole, sent;
} weir_shortened;

/* Sum over ranks of x[0..n), in place; error[0..n): what this rank's encoding lost, complete
 * before another rank can be through.  On failure both are undefined otherwise. */
typedef weir_status weir_compressed_run(weir_comm *comm, const weir_coder *coder, float *x,
                                        size_t n, float *error, weir_headers *headers);
typedef struct weir_compressed_row {
  uint32_t id;
  const char *name;
  const char *description;
  weir_compressed_run *run;
  bool to_all; /* every rank has the messages of all and decodes each; else its part of them */
} weir_compressed_row;
enum {
  WEIR_COMPRESSED_SRA = 0,
  WEIR_COMPRESSED_RING = 1,
  WEIR_COMPRESSED_TREE = 2,
  WEIR_COMPRESSED_HIER_SRA = 3,
  WEIR_COMPRESSED_ONE_SHOT = 4, /* of messages in host memory: coder->ops is NULL */
  WEIR_COMPRESSED_COUNT = 5
};
extern const weir_compressed_row weir_compressed[WEIR_COMPRESSED_COUNT];
const weir_compressed_row *weir_compressed_find(const char *name); /* NULL: none of that name */
/* The row that a plan names, of low rank that of its factors; NULL: none. */
const weir_compressed_row *weir_compressed_of(const weir_plan *plan);
bool weir_compressed_to_all(const weir_plan *plan);

/* Cost row of n ranks, of the longest share.  bytes: the codec's message of all elements (bound()),
 * whose values are cut into blocks with a header each. */
weir_cost_terms weir_cost_compressed(uint32_t algorithm, int n, const weir_coder *coder,
                                     size_t elements, double bytes);
/* The same where ranks may share machines, as weir_cost_plan_between. */
weir_cost_terms weir_cost_compressed_between(uint32_t algorithm, weir_group_shape shape,
                                             const weir_link *link, const weir_coder *coder,
                                             size_t elements, double bytes);

/* Of low rank's factors, as its codec's row says; the caller sets context and seed. */
weir_coder weir_factor_coder(const weir_plan *plan);

/* --- for the algorithms --------------------------------------------------------------------- */

/* Length of the message of count elements, exactly: of a codec's message a block. */
size_t weir_coder_bound(const weir_coder *coder, size_t count);
/* Do so many messages of `messages` elements fit the memory of `count` floats? */
bool weir_coder_fits(const weir_coder *coder, size_t many, size_t messages, size_t count);
/* In how many parts SRA scatters a share, 1 or 2.  *small: a share's messages do not fit its values
 * either way, as of a few elements. */
int weir_sra_parts(const weir_coder *coder, size_t n, int ranks, bool *small);
/* Bytes of all messages that a rank makes in a row, where they stay; hier-sra: among all. */
size_t weir_coder_stays(const weir_coder *coder, uint32_t row, size_t n, int ranks);
size_t weir_sra_stays(const weir_coder *coder, size_t n, int ranks);
/* Memory for the messages of a row among so many ranks, where they do not take that of the
 * values. */
size_t weir_coder_room(const weir_coder *coder, uint32_t row, size_t n, int ranks);
/* Encode the chunk of x into out, which is its front in x or no part of it; what was lost
 * becomes that of error, whose memory is used before.  A value too large for a float counts as
 * the largest one: no residual is poisoned.  draw: different for every message of a rank and
 * step.  The chunk of x is of no more use.  *bytes is the bound.  With ops the message is not there
 * before weir_coder_await is back. */
weir_status weir_coder_encode(const weir_coder *coder, float *x, float *error, weir_chunk chunk,
                              int rank, uint32_t draw, void *out, size_t *bytes);
/* Store, or add, a peer's message of the chunk; one that is malformed ends the group.
 * message may be the chunk of x itself when it is stored, and no other part of it.  With ops its
 * memory may be used anew once weir_coder_await is back. */
weir_status weir_coder_decode(weir_comm *comm, const weir_coder *coder, int peer,
                              const void *message, float *x, weir_chunk chunk, weir_decoding how);
weir_status weir_coder_await(const weir_coder *coder);
/* Where a message of so many elements is divided into blocks; it begins at 0. */
weir_coder_part weir_coder_part_of(const weir_coder *coder, size_t count);
/* Nobody else is there: nothing is lost. */
weir_status weir_coder_alone(const weir_coder *coder, float *error, size_t n);

weir_compressed_run weir_compressed_sra, weir_compressed_ring, weir_compressed_tree,
    weir_compressed_one_shot;
/* Between machines alone (CGX, section 4: the intra-node communication may be an all-reduce without
 * compression): a machine's ranks sum without rounding, each sends its share through SRA to the
 * ranks at its place of other machines, and shares are gathered inside.  What encoding a machine's
 * sum loses stays with the rank that encoded it.  Where machines have different numbers of ranks,
 * and where each has one, SRA among all (allreduce_hier.c). */
weir_compressed_run weir_compressed_hier_sra;

/* --- entropy coding (shortened.c, kernels/entropy.h) ---------------------------------------- */

/* In its own place: what of a codec's message travels, *bytes at most as many as before. */
weir_status weir_message_shorten(weir_comm *comm, const weir_codec *codec, void *message,
                                 size_t *bytes);
/* And back, of a peer's *bytes that may be anything, where the longest message of n elements, of
 * `most` bytes, has room.  Malformed, they end the group. */
weir_status weir_message_restore(weir_comm *comm, const weir_codec *codec, int peer, void *message,
                                 size_t n, size_t most, size_t *bytes);
/* The same of a sum's message of `count` elements, in blocks; nothing where messages do not travel
 * shortened.  What becomes of it counts in coder->shortened. */
weir_status weir_coder_shorten(weir_comm *comm, const weir_coder *coder, void *message,
                               size_t count, size_t *bytes);
weir_status weir_coder_restore(weir_comm *comm, const weir_coder *coder, int peer, void *message,
                               size_t count, size_t bytes);
/* A peer's message of so many elements that came in: restored, or else exactly as long as it is
 * due. */
weir_status weir_coder_take(weir_comm *comm, const weir_coder *coder, const weir_recv *recv,
                            size_t count);

/* --- HiTopKComm ----------------------------------------------------------------------------- */

/* Hierarchical top-k (S. Shi et al., Towards scalable distributed training of deep learning on
 * public cloud clusters, 2021, algorithm 2): reduce-scatter inside of every machine, the codec's
 * selection on each rank's share of 1/n, as many all-gathers between machines at once as a machine
 * has ranks, adding up, all-gather inside.  Where machines are uneven each rank is treated as a
 * machine of its own.
 *
 * e[0..n) goes in as the error-fed gradient and comes out as the residual: what a machine's sum
 * holds and did not send stays with the rank that selected from it (the others have handed it
 * over), so that sum of e before = sum + sum over ranks of e afterwards. sum[0..n): the sum over
 * ranks of what was selected, the same bits everywhere.  Once a rank has all it needs, e is a
 * residual on every rank that still waits.  velocity[0..n), of momentum correction, becomes 0 where
 * this rank's machine has sent something: of the sum of its ranks' gradients, so of all of them.
 * velocity and told may be NULL.
 *
 * Where the velocity is not in the host's memory, told->sent names those elements instead: it has
 * room for weir_hitopk_most() of them, which are ascending when this is back, also after a failure,
 * for as much of the machine's messages as this rank has seen. */
typedef struct weir_hitopk_told {
  double share; /* of the squares of its share this rank sent; 1 when they are all zero */
  double bytes; /* that a machine sends to others, if the shares of its other ranks take as many */
  uint32_t *sent; /* set before; NULL: not wanted */
  size_t sent_count;
  const struct weir_hitopk_away *away; /* set before; NULL: e and sum are the host's memory */
} weir_hitopk_told;
/* Where residual and sum are elsewhere: e[0..n), in the host's memory, is only what machines sum
 * floats in, sum is NULL, and whoever has the two selects and adds up.  Failures are of this
 * rank. */
typedef struct weir_hitopk_away {
  /* The residual becomes 0 but for the share, whose sum is at x; of that what the codec selects is
   * taken out and goes to message, of at most `capacity` bytes, with what rounding loses left
   * behind.  *sent: told.share.  The sum becomes 0. */
  weir_status (*select)(void *user, weir_chunk share, const float *x, void *message,
                        size_t capacity, size_t *bytes, double *sent);
  /* A message that has been found good is added to the sum; it may be read for the rest of the
   * step. */
  weir_status (*add)(void *user, weir_chunk part, const void *message, size_t bytes);
  void *user;
  unsigned char *room; /* for messages, of weir_hitopk_room() bytes */
} weir_hitopk_away;
size_t weir_hitopk_room(const weir_comm *comm, const weir_codec *codec, double cr,
                        weir_wire_format wire, size_t n);
/* Of the longest message. */
size_t weir_hitopk_stride(const weir_comm *comm, const weir_codec *codec, double cr,
                          weir_wire_format wire, size_t n);
weir_status weir_hitopk(weir_comm *comm, const weir_codec *codec, weir_codec_context *context,
                        double cr, weir_wire_format wire, float *e, float *velocity, size_t n,
                        float *sum, weir_hitopk_told *told, weir_headers *headers);
/* Elements that a machine sends of n at the most. */
size_t weir_hitopk_most(const weir_comm *comm, const weir_codec *codec, double cr, size_t n);
/* Equations 7, 9 and 10 of the paper, with the bytes that travel. */
weir_cost weir_cost_hitopk(weir_group_shape shape, const weir_link *link, size_t elements,
                           double cr, weir_wire_format wire);

#endif

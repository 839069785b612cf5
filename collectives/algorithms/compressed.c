/* The table of compressed all-reduces: what each costs, and how its blocks are laid out. */
#include "collectives/compressed.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/schemes.h"
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

const weir_compressed_row weir_compressed[WEIR_COMPRESSED_COUNT] = {
    {WEIR_COMPRESSED_SRA, "sra",
     "scatter-reduce-allgather: each share straight to its rank, encoded twice in all",
     weir_compressed_sra, false},
    {WEIR_COMPRESSED_RING, "ring", "2(N-1) hops of an N-th, encoded again at every hop of summing",
     weir_compressed_ring, false},
    {WEIR_COMPRESSED_TREE, "tree", "binomial, encoded again at every level", weir_compressed_tree,
     false},
    {WEIR_COMPRESSED_HIER_SRA, "hier-sra",
     "sums inside of machines, sra of each rank's share between machines", weir_compressed_hier_sra,
     false},
    {WEIR_COMPRESSED_ONE_SHOT, "one-shot",
     "each rank's message of all straight to all, who add them up, encoded once",
     weir_compressed_one_shot, true},
};

const weir_compressed_row *weir_compressed_find(const char *name) {
  for (size_t i = 0; i < WEIR_COMPRESSED_COUNT; i++)
    if (strcmp(weir_compressed[i].name, name) == 0) return &weir_compressed[i];
  return NULL;
}

weir_coder weir_factor_coder(const weir_plan *plan) {
  const weir_codec *low_rank = weir_codecs[plan->codec];
  return (weir_coder){.codec = weir_codecs[low_rank->factors.codec],
                      .cr = low_rank->factors.cr,
                      .huffman = plan->wire == WEIR_WIRE_HUFFMAN};
}

const weir_compressed_row *weir_compressed_of(const weir_plan *plan) {
  const char *name = weir_algorithm_name(plan->algorithm);
  if (name == NULL || (plan->scheme != WEIR_SCHEME_COMPRESSED && !weir_factors_encoded(plan)))
    return NULL;
  return plan->inside != WEIR_ALGORITHM_ANY ? &weir_compressed[WEIR_COMPRESSED_HIER_SRA]
                                            : weir_compressed_find(name);
}

bool weir_compressed_to_all(const weir_plan *plan) {
  const weir_compressed_row *row = weir_compressed_of(plan);
  return row != NULL && row->to_all;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* A block's message is about that long: decoding in place copies it. */
#define BLOCK_BYTES ((size_t)16 * 1024)
#define BLOCK_GRAIN ((size_t)8192) /* of every codec's units, a multiple */
/* A message that is longer than its values is shorter than this: there are few of them. */
#define SMALL_BYTES 1024

static size_t block_of(const weir_coder *coder) {
  const size_t bits = (size_t)(coder->cr * 32 + 0.5);
  const size_t block = BLOCK_BYTES * 8 / (bits > 0 ? bits : 1) / BLOCK_GRAIN * BLOCK_GRAIN;
  return block > 0 ? block : BLOCK_GRAIN;
}

/* What a message is made by. */
static weir_plan plan_of(const weir_coder *coder) {
  return (weir_plan){.codec = coder->codec->id, .bucket_log2 = coder->bucket_log2, .cr = coder->cr};
}

static size_t message_of(const weir_coder *coder, size_t count) {
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  const weir_plan plan = plan_of(coder);
  return weir_plan_bound(&plan, &layout);
}

size_t weir_coder_bound(const weir_coder *coder, size_t count) {
  const size_t block = block_of(coder), whole = count / block, rest = count % block;
  return whole * message_of(coder, block) + (rest > 0 ? message_of(coder, rest) : 0);
}

size_t weir_coder_room(const weir_coder *coder, uint32_t row, size_t n, int ranks) {
  const size_t share = weir_coder_bound(coder, weir_ring_chunk(n, ranks, 0).count);
  switch (row) {
    case WEIR_COMPRESSED_SRA:
    case WEIR_COMPRESSED_HIER_SRA: /* among all, or not with room of its own */
      return 2 * (size_t)ranks * share;
    case WEIR_COMPRESSED_RING: return ((size_t)ranks + 1) * share;
    default: return 2 * weir_coder_bound(coder, n);
  }
}

size_t weir_coder_stays(const weir_coder *coder, uint32_t row, size_t n, int ranks) {
  switch (row) {
    case WEIR_COMPRESSED_SRA:
    case WEIR_COMPRESSED_HIER_SRA: return weir_sra_stays(coder, n, ranks);
    case WEIR_COMPRESSED_RING: /* one a hop of summing, and the sum */
      return (size_t)ranks * weir_coder_bound(coder, weir_ring_chunk(n, ranks, 0).count);
    default: return weir_coder_bound(coder, n);
  }
}

weir_status weir_coder_alone(const weir_coder *coder, float *error, size_t n) {
  if (coder->ops != NULL)
    return weir_fail(WEIR_E_INTERNAL, "a rank alone has its values encoded elsewhere");
  if (n > 0) memset(error, 0, n * sizeof *error);
  return WEIR_OK;
}

bool weir_coder_fits(const weir_coder *coder, size_t many, size_t messages, size_t count) {
  return many * weir_coder_bound(coder, messages) <= count * sizeof(float);
}

/* --- cost ------------------------------------------------------------------------------------- */

/* Bytes of a message of so many of the elements, of which all in one message would have `bytes`:
 * the codec's bound, or as far from it. */
static double carried(const weir_coder *coder, size_t elements, double bytes, size_t count) {
  if (count == 0) return 0.0;
  const double whole = (double)message_of(coder, elements),
               part = (double)weir_coder_bound(coder, count);
  return bytes == whole ? part : part * bytes / whole;
}

/* A round for each part of a share, and one for the sums; in each every rank waits for all. */
static weir_cost_terms sra_cost(weir_group_shape shape, int columns, const weir_link *link,
                                const weir_coder *coder, size_t elements, double bytes) {
  const size_t share = weir_ring_chunk(elements, shape.ranks, 0).count;
  bool small = false;
  const int parts = weir_sra_parts(coder, elements, shape.ranks, &small);
  double round[3];
  for (int part = 0; part < parts; part++)
    round[part] = carried(coder, elements, bytes, weir_ring_chunk(share, parts, part).count);
  round[parts] = carried(coder, elements, bytes, share);
  return weir_cost_exchanges(shape, columns, link, round, parts + 1);
}

/* On the links of the only machine, where there is no other. */
static weir_cost_terms links(uint32_t row, weir_group_shape shape, const weir_link *link,
                             double bytes) {
  const weir_cost cost = weir_cost_row(WEIR_KIND_ALLREDUCE, row, shape, link, bytes);
  return shape.hosts == 1 ? cost.inner : cost.outer;
}

/* Among all ranks, machines or not. */
static weir_cost_terms flat_cost(uint32_t algorithm, weir_group_shape shape, const weir_link *link,
                                 const weir_coder *coder, size_t elements, double bytes) {
  const int n = shape.ranks;
  if (n <= 1) return (weir_cost_terms){0.0, 0.0, 0.0};
  const size_t share = weir_ring_chunk(elements, n, 0).count;
  switch (algorithm) {
    case WEIR_COMPRESSED_SRA:
    case WEIR_COMPRESSED_HIER_SRA: /* every rank a machine of its own */
      return sra_cost(shape, 1, link, coder, elements, bytes);
    case WEIR_COMPRESSED_RING: /* of n shares */
      return links(WEIR_ALLREDUCE_RING, shape, link, n * carried(coder, elements, bytes, share));
    case WEIR_COMPRESSED_TREE:
      return links(WEIR_ALLREDUCE_TREE, shape, link, carried(coder, elements, bytes, elements));
    case WEIR_COMPRESSED_ONE_SHOT:
      return links(WEIR_ALLREDUCE_DIRECT, shape, link, carried(coder, elements, bytes, elements));
    default: return (weir_cost_terms){INFINITY, INFINITY, 0.0};
  }
}

weir_cost_terms weir_cost_compressed(uint32_t algorithm, int n, const weir_coder *coder,
                                     size_t elements, double bytes) {
  const weir_group_shape apart = {.ranks = n, .hosts = n};
  return flat_cost(algorithm, apart, NULL, coder, elements, bytes);
}

weir_cost_terms weir_cost_compressed_between(uint32_t algorithm, weir_group_shape shape,
                                             const weir_link *link, const weir_coder *coder,
                                             size_t elements, double bytes) {
  const int inside = weir_shape_even(shape) ? shape.ranks / shape.hosts : 1;
  if (algorithm == WEIR_COMPRESSED_HIER_SRA && inside > 1) {
    if (shape.hosts == 1) /* which sums without compressing */
      return weir_cost_allreduce(WEIR_ALLREDUCE_RING, shape.ranks, 4.0 * (double)elements);
    const size_t share = weir_ring_chunk(elements, inside, 0).count;
    const weir_group_shape across = {.ranks = shape.hosts, .hosts = shape.hosts};
    return sra_cost(across, inside, link, coder, share, (double)message_of(coder, share));
  }
  return flat_cost(algorithm, shape, link, coder, elements, bytes);
}

/* --- encoding --------------------------------------------------------------------------------- */

/* The message goes from where error[] is due to `to`, and what x holds to error[].  to may lie in x
 * before what has not been moved yet. */
static void settle(float *x, size_t count, float *error, unsigned char *to, size_t bytes) {
  enum { PIECE = 1024 }; /* stays in the first-level cache */
  float held[PIECE];
  for (size_t at = 0; at < count; at += PIECE) {
    const size_t part = count - at < PIECE ? count - at : PIECE, first = at * sizeof *x;
    const size_t left = first < bytes ? bytes - first : 0;
    const size_t move = left < part * sizeof *x ? left : part * sizeof *x;
    if (move > 0) memcpy(held, error + at, move);
    memcpy(error + at, x + at, part * sizeof *x);
    if (move > 0) memcpy(to + first, held, move);
  }
}

static weir_status encode_block(const weir_coder *coder, float *x, size_t count, uint64_t seed,
                                float *error, unsigned char *to, size_t *bytes) {
  const size_t offset[2] = {0, count}, due = message_of(coder, count);
  const weir_layout layout = {1, offset};
  unsigned char small[SMALL_BYTES];
  const bool is_small = due > count * sizeof *x;
  void *const message = is_small ? (void *)small : (void *)error;
  weir_hold_finite(x, count);
  const weir_plan plan = plan_of(coder);
  weir_status status = weir_plan_encode(&plan, coder->context, x, &layout, seed, message,
                                        is_small ? sizeof small : due, bytes);
  if (status == WEIR_OK)
    status =
        coder->codec->decode(coder->context, message, *bytes, &layout, x, WEIR_DECODE_SUBTRACT);
  if (status != WEIR_OK) return status;
  weir_hold_finite(x, count);
  if (is_small) memcpy(error, x, count * sizeof *x);
  if (is_small)
    memcpy(to, small, *bytes);
  else
    settle(x, count, error, to, *bytes);
  return WEIR_OK;
}

weir_coder_part weir_coder_part_of(const weir_coder *coder, size_t count) {
  const size_t block = block_of(coder);
  return (weir_coder_part){.count = count,
                           .block = block,
                           .each = message_of(coder, block),
                           .bytes = weir_coder_bound(coder, count),
                           .seed = coder->seed};
}

static weir_coder_part part_of(const weir_coder *coder, weir_chunk chunk, int rank, uint32_t draw) {
  weir_coder_part part = weir_coder_part_of(coder, chunk.count);
  part.at = chunk.begin;
  part.rank = (uint64_t)rank;
  part.draw = draw;
  return part;
}

uint64_t weir_coder_state(const weir_coder_part *part) {
  const uint64_t words[] = {part->seed, part->rank, part->draw};
  return weir_hash(WEIR_HASH_INIT, words, sizeof words);
}

uint64_t weir_coder_draws(const weir_coder_part *part, size_t block_at) {
  const uint64_t word = block_at;
  return weir_hash(weir_coder_state(part), &word, sizeof word);
}

weir_status weir_coder_await(const weir_coder *coder) {
  return coder->ops != NULL ? coder->ops->await(coder->user) : WEIR_OK;
}

weir_status weir_coder_encode(const weir_coder *coder, float *x, float *error, weir_chunk chunk,
                              int rank, uint32_t draw, void *out, size_t *bytes) {
  const weir_coder_part part = part_of(coder, chunk, rank, draw);
  *bytes = part.bytes;
  if (chunk.count == 0) return WEIR_OK;
  if (coder->ops != NULL) return coder->ops->encode(coder->user, &part, out);
  *bytes = 0;
  for (size_t at = 0; at < part.count; at += part.block) {
    const size_t left = part.count - at;
    size_t length = 0;
    const weir_status status =
        encode_block(coder, x + chunk.begin + at, left < part.block ? left : part.block,
                     weir_coder_draws(&part, at), error + chunk.begin + at,
                     (unsigned char *)out + *bytes, &length);
    if (status != WEIR_OK) return status;
    *bytes += length;
  }
  return WEIR_OK;
}

/* --- decoding --------------------------------------------------------------------------------- */

/* Whoever decodes takes a message of this coder alone, as devices do, and none of as many bytes. */
static weir_status check_made(const weir_coder *coder, const void *message) {
  const weir_plan plan = plan_of(coder);
  return weir_plan_made(&plan, message);
}

static weir_status decode_block(const weir_coder *coder, const unsigned char *message, float *x,
                                size_t count, weir_decoding how) {
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  const weir_status status =
      coder->codec->decode(coder->context, message, message_of(coder, count), &layout, x, how);
  return status == WEIR_OK ? check_made(coder, message) : status;
}

/* All of it is looked at here, unless it is elsewhere: who has the values finds nothing wrong with
 * it. */
static weir_status hand_on(weir_comm *comm, const weir_coder *coder, int peer, const void *message,
                           weir_chunk chunk, weir_decoding how) {
  const weir_coder_part part = part_of(coder, chunk, peer, 0);
  double peak;
  for (size_t at = 0; at < part.count && !coder->stays; at += part.block) {
    const size_t left = part.count - at, count = left < part.block ? left : part.block;
    const size_t offset[2] = {0, count};
    const weir_layout layout = {1, offset};
    const unsigned char *const from = (const unsigned char *)message + at / part.block * part.each;
    weir_status status = coder->codec->check(from, message_of(coder, count), &layout, &peak);
    if (status == WEIR_OK) status = check_made(coder, from);
    if (status != WEIR_OK) return weir_comm_refuse(comm, peer, status);
  }
  if (part.count == 0) return WEIR_OK;
  return coder->ops->decode(coder->user, &part, message, how == WEIR_DECODE_ADD);
}

/* The last block first: in its own place a message is never longer than the values before it. */
weir_status weir_coder_decode(weir_comm *comm, const weir_coder *coder, int peer,
                              const void *message, float *x, weir_chunk chunk, weir_decoding how) {
  if (coder->ops != NULL) return hand_on(comm, coder, peer, message, chunk, how);
  const size_t block = block_of(coder), each = message_of(coder, block), count = chunk.count;
  x += count > 0 ? chunk.begin : 0;
  const bool in_place = message == (const void *)x;
  void *copy = NULL;
  weir_status status = WEIR_OK;
  if (in_place) status = weir_comm_scratch(comm, WEIR_SCRATCH_B, each + SMALL_BYTES, &copy);
  for (size_t end = count; status == WEIR_OK && end > 0;) {
    const size_t number = (end - 1) / block, at = number * block;
    const unsigned char *from = (const unsigned char *)message + number * each;
    if (in_place) from = memcpy(copy, from, message_of(coder, end - at));
    status = decode_block(coder, from, x + at, end - at, how);
    if (status != WEIR_OK) status = weir_comm_refuse(comm, peer, status);
    end = at;
  }
  return status;
}

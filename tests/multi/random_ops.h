/* Random collectives whose results every rank can work out for itself, exactly: sums of small whole
 * numbers, and bytes that follow from who sends to whom.  All ranks of a group draw the same ones
 * from the same seed.  name[r] is what rank r was called at first: what a rank contributes stays
 * its own when a group shrinks. */
#ifndef WEIR_TESTS_RANDOM_OPS_H
#define WEIR_TESTS_RANDOM_OPS_H

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"

#define OPS_FLOATS ((size_t)1 << 18) /* longest gradient */
#define OPS_BLOCK ((size_t)24 << 10) /* longest block of bytes */

typedef struct random_ops {
  weir_comm *comm;
  weir_codec_context *context;
  weir_rng rng;
  int rank, size;
  int scales;             /* gradients are shorter than 2^scales elements; 1 .. 19 */
  const int *name;        /* size entries */
  double total;           /* of all names */
  float *x, *error, *sum; /* OPS_FLOATS */
  unsigned char *in;      /* size * OPS_BLOCK */
  size_t *bytes;          /* size */
} random_ops;

typedef struct drawn {
  size_t n, shift;
  uint32_t row;
  int root;
  weir_value_format format;
} drawn;

static inline void ops_close(random_ops *o) {
  free(o->bytes);
  free(o->in);
  free(o->sum);
  free(o->error);
  free(o->x);
  weir_codec_context_free(o->context);
  weir_comm_free(o->comm);
  memset(o, 0, sizeof *o);
}

/* After a failure there is still ops_close() to be called.  Two names share a machine. */
static inline weir_status ops_open(random_ops *o, weir_transport *t, const int *name, uint64_t seed,
                                   double timeout_s) {
  const size_t size = (size_t)t->size;
  *o = (random_ops){.rank = t->rank, .size = t->size, .scales = 19, .name = name};
  o->rng = weir_rng_of(seed);
  for (int r = 0; r < t->size; r++) o->total += name[r];
  o->x = malloc(OPS_FLOATS * sizeof *o->x);
  o->error = calloc(OPS_FLOATS, sizeof *o->error);
  o->sum = malloc(OPS_FLOATS * sizeof *o->sum);
  o->in = malloc(size * OPS_BLOCK);
  o->bytes = calloc(size, sizeof *o->bytes);
  if (!o->x || !o->error || !o->sum || !o->in || !o->bytes)
    return weir_fail(WEIR_E_NOMEM, "no memory for a test");
  weir_status status = weir_codec_context_create(&o->context);
  if (status == WEIR_OK) status = weir_comm_create(&o->comm, t, timeout_s);
  if (status == WEIR_OK) status = weir_comm_find_hosts(o->comm, 1 + (uint64_t)name[t->rank] / 2);
  return status;
}

/* --- sums ----------------------------------------------------------------------------------- */

static inline float ops_value(const drawn *d, size_t i, int name) {
  return (float)((i + d->shift) % 8 + (size_t)name);
}

static inline void ops_fill(random_ops *o, const drawn *d) {
  for (size_t i = 0; i < d->n; i++) o->x[i] = ops_value(d, i, o->name[o->rank]);
}

/* Below 256, and so are all partial sums: exact as fp16 and bf16, too. */
static inline weir_status ops_check(const random_ops *o, const drawn *d, const float *x,
                                    size_t begin, size_t count, const char *what) {
  for (size_t i = begin; i < begin + count; i++) {
    const double due = (double)((i + d->shift) % 8) * o->size + o->total;
    if ((double)x[i] != due)
      return weir_fail(WEIR_E_INTERNAL, "wrong sum: %s, element %zu of %zu is %g, due %g", what, i,
                       d->n, (double)x[i], due);
  }
  return WEIR_OK;
}

static inline weir_status ops_allreduce(random_ops *o, const drawn *d) {
  const weir_allreduce *row = &weir_allreduces[d->row % WEIR_ALLREDUCE_COUNT];
  ops_fill(o, d);
  const weir_status status = row->run(o->comm, o->x, d->n, d->format, o->error, NULL);
  return status == WEIR_OK ? ops_check(o, d, o->x, 0, d->n, row->name) : status;
}

static inline weir_status ops_reduce_scatter(random_ops *o, const drawn *d) {
  const weir_reduce_scatter_row *row = &weir_reduce_scatters[d->row % WEIR_REDUCE_SCATTER_COUNT];
  const weir_chunk own = weir_ring_chunk(d->n, o->size, o->rank);
  ops_fill(o, d);
  const weir_status status = row->run(o->comm, o->x, d->n, d->format, o->error);
  return status == WEIR_OK ? ops_check(o, d, o->x, own.begin, own.count, row->name) : status;
}

static inline weir_status ops_reduce(random_ops *o, const drawn *d) {
  const weir_reduce_row *row = &weir_reduces[d->row % WEIR_REDUCE_COUNT];
  ops_fill(o, d);
  const weir_status status = row->run(o->comm, d->root, o->x, d->n, d->format, o->error);
  if (status != WEIR_OK || o->rank != d->root) return status;
  return ops_check(o, d, o->x, 0, d->n, row->name);
}

static inline weir_status ops_compressed(random_ops *o, const drawn *d) {
  const weir_compressed_row *row = &weir_compressed[d->row % WEIR_COMPRESSED_COUNT];
  const weir_coder coder = {.codec = weir_codec_find(WEIR_CODEC_FP16),
                            .context = o->context,
                            .cr = 0.5,
                            .seed = d->shift};
  ops_fill(o, d);
  const weir_status status = row->run(o->comm, &coder, o->x, d->n, o->error, NULL);
  return status == WEIR_OK ? ops_check(o, d, o->x, 0, d->n, row->name) : status;
}

/* All elements are selected: the sum is whole, and nothing stays behind. */
static inline weir_status ops_hitopk(random_ops *o, const drawn *d) {
  ops_fill(o, d);
  const weir_status status = weir_hitopk(o->comm, weir_codec_find(WEIR_CODEC_TOPK), o->context, 1.0,
                                         WEIR_WIRE_AUTO_FP32, o->x, NULL, d->n, o->sum, NULL, NULL);
  for (size_t i = 0; status == WEIR_OK && i < d->n; i++)
    if (o->x[i] != 0) return weir_fail(WEIR_E_INTERNAL, "hitopk left %g behind", (double)o->x[i]);
  return status == WEIR_OK ? ops_check(o, d, o->sum, 0, d->n, "hitopk") : status;
}

/* --- bytes ---------------------------------------------------------------------------------- */

static inline size_t ops_block(const random_ops *o, const drawn *d, int from, int to) {
  return (d->n + (size_t)o->name[from] * 977 + (size_t)to * 331) % OPS_BLOCK;
}

static inline unsigned char ops_byte(const drawn *d, int from, int to, size_t i) {
  return (unsigned char)(i * 17 + (i >> 8) + d->shift + (size_t)from * 131 + (size_t)to * 29);
}

static inline void ops_write(const random_ops *o, const drawn *d, unsigned char *block, int from,
                             int to) {
  const size_t count = ops_block(o, d, from, to);
  for (size_t i = 0; i < count; i++) block[i] = ops_byte(d, o->name[from], to, i);
}

static inline weir_status ops_read(const random_ops *o, const drawn *d, const unsigned char *block,
                                   size_t bytes, int from, int to) {
  if (bytes != ops_block(o, d, from, to))
    return weir_fail(WEIR_E_INTERNAL, "%zu bytes from rank %d instead of %zu", bytes, from,
                     ops_block(o, d, from, to));
  for (size_t i = 0; i < bytes; i++)
    if (block[i] != ops_byte(d, o->name[from], to, i))
      return weir_fail(WEIR_E_INTERNAL, "byte %zu of %zu from rank %d is wrong", i, bytes, from);
  return WEIR_OK;
}

static inline unsigned char *ops_at(unsigned char *all, int rank) {
  return all + (size_t)rank * OPS_BLOCK;
}

static inline weir_status ops_broadcast(random_ops *o, const drawn *d) {
  size_t bytes = o->rank == d->root ? ops_block(o, d, d->root, 0) : 1;
  if (o->rank == d->root) ops_write(o, d, o->in, d->root, 0);
  const weir_status status = weir_broadcasts[d->row % WEIR_BROADCAST_COUNT].run(
      o->comm, d->root, o->in, OPS_BLOCK, &bytes);
  return status == WEIR_OK ? ops_read(o, d, o->in, bytes, d->root, 0) : status;
}

static inline weir_status ops_allgather(random_ops *o, const drawn *d) {
  memset(o->bytes, 0, (size_t)o->size * sizeof *o->bytes);
  o->bytes[o->rank] = ops_block(o, d, o->rank, 0);
  ops_write(o, d, ops_at(o->in, o->rank), o->rank, 0);
  weir_status status =
      weir_allgathers[d->row % WEIR_ALLGATHER_COUNT].run(o->comm, o->in, OPS_BLOCK, o->bytes, NULL);
  for (int r = 0; status == WEIR_OK && r < o->size; r++)
    status = ops_read(o, d, ops_at(o->in, r), o->bytes[r], r, 0);
  return status;
}

static inline weir_status ops_gather(random_ops *o, const drawn *d) {
  memset(o->bytes, 0, (size_t)o->size * sizeof *o->bytes);
  o->bytes[o->rank] = ops_block(o, d, o->rank, d->root);
  ops_write(o, d, ops_at(o->in, o->rank), o->rank, d->root);
  weir_status status =
      weir_gathers[d->row % WEIR_GATHER_COUNT].run(o->comm, d->root, o->in, OPS_BLOCK, o->bytes);
  for (int r = 0; status == WEIR_OK && o->rank == d->root && r < o->size; r++)
    status = ops_read(o, d, ops_at(o->in, r), o->bytes[r], r, d->root);
  return status;
}

/* --- one of them ---------------------------------------------------------------------------- */

/* Wrong results are WEIR_E_INTERNAL.  Half of the draws are all-reduces. */
static inline weir_status ops_next(random_ops *o, uint64_t step) {
  static weir_status (*const kind[])(random_ops *, const drawn *) = {
      ops_allreduce,      ops_allreduce, ops_allreduce,  ops_allreduce,
      ops_allreduce,      ops_allreduce, ops_allreduce,  ops_allreduce,
      ops_reduce_scatter, ops_reduce,    ops_compressed, ops_hitopk,
      ops_broadcast,      ops_allgather, ops_gather,     ops_compressed};
  const uint64_t which = weir_rng_below(&o->rng, sizeof kind / sizeof *kind);
  const size_t scale = (size_t)1 << weir_rng_below(&o->rng, (uint64_t)o->scales);
  const drawn d = {.n = 1 + (size_t)weir_rng_below(&o->rng, scale),
                   .shift = (size_t)weir_rng_below(&o->rng, 64),
                   .row = (uint32_t)weir_rng_below(&o->rng, 1 << 16),
                   .root = (int)weir_rng_below(&o->rng, (uint64_t)o->size),
                   .format = weir_rng_below(&o->rng, 2) ? WEIR_VALUE_BF16 : WEIR_VALUE_FP32};
  weir_comm_step(o->comm, 7, step);
  return kind[which](o, &d);
}

/* True on all ranks when it is on every one. */
static inline weir_status ops_all(random_ops *o, bool mine, bool *all) {
  float yes = mine ? 1 : 0;
  const weir_status status =
      weir_allreduces[WEIR_ALLREDUCE_TREE].run(o->comm, &yes, 1, WEIR_VALUE_FP32, NULL, NULL);
  *all = yes == (float)o->size;
  return status;
}

#endif

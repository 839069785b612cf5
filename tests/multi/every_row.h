/* Every row of every table of collectives, once, on drawn values: digests of what each comes to, to
 * compare transports by. */
#ifndef WEIR_TESTS_EVERY_ROW_H
#define WEIR_TESTS_EVERY_ROW_H

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "collectives/compressed.h"

enum {
  ROWS_RANKS_MAX = 16,
  ROWS_ALL = 2 * WEIR_ALLREDUCE_COUNT + WEIR_ALLGATHER_COUNT + WEIR_BROADCAST_COUNT +
             WEIR_REDUCE_SCATTER_COUNT + WEIR_REDUCE_COUNT + WEIR_GATHER_COUNT +
             WEIR_COMPRESSED_COUNT + 2 /* entropy-coded */
};

typedef struct rows_course {
  weir_comm *comm;
  float *drawn, *x, *error;
  size_t n, bytes[ROWS_RANKS_MAX];
  uint64_t step;
  int size;
} rows_course;

/* Once for all rows: drawing takes longer than any of them. */
static inline void rows_draw(rows_course *c) {
  weir_rng rng = weir_rng_of((uint64_t)weir_comm_rank(c->comm) + 1);
  const size_t all = (size_t)c->size * c->n;
  for (size_t i = 0; i < all; i++) c->drawn[i] = (float)weir_rng_uniform(&rng) - 0.5F;
}

static inline void rows_fill(rows_course *c) {
  memcpy(c->x, c->drawn, (size_t)c->size * c->n * sizeof *c->x);
  memset(c->error, 0, c->n * sizeof *c->error);
  for (int r = 0; r < c->size; r++) c->bytes[r] = c->n * sizeof(float);
  weir_comm_step(c->comm, 5, c->step++);
}

static inline weir_status rows_compress(rows_course *c, uint32_t row, bool huffman) {
  weir_codec_context *context = NULL;
  weir_status status = weir_codec_context_create(&context);
  const weir_coder coder = {.codec = weir_codec_find(WEIR_CODEC_QSGD),
                            .context = context,
                            .cr = 0.125,
                            .seed = 9,
                            .bucket_log2 = 7,
                            .huffman = huffman};
  if (status == WEIR_OK)
    status = weir_compressed[row].run(c->comm, &coder, c->x, c->n, c->error, NULL);
  weir_codec_context_free(context);
  return status;
}

/* Row number i of all tables; WEIR_E_CAPACITY behind the last. */
static inline weir_status rows_run(rows_course *c, uint32_t i) {
  const size_t stride = c->n * sizeof(float);
  const weir_value_format format = (weir_value_format)(i % 2);
  if (i < 2 * WEIR_ALLREDUCE_COUNT)
    return weir_allreduces[i / 2].run(c->comm, c->x, c->n, format, c->error, NULL);
  i -= 2 * WEIR_ALLREDUCE_COUNT;
  if (i < WEIR_ALLGATHER_COUNT)
    return weir_allgathers[i].run(c->comm, c->x, stride, c->bytes, NULL);
  i -= WEIR_ALLGATHER_COUNT;
  if (i < WEIR_BROADCAST_COUNT)
    return weir_broadcasts[i].run(c->comm, 1, c->x, stride, &c->bytes[0]);
  i -= WEIR_BROADCAST_COUNT;
  if (i < WEIR_REDUCE_SCATTER_COUNT)
    return weir_reduce_scatters[i].run(c->comm, c->x, c->n, WEIR_VALUE_FP32, NULL);
  i -= WEIR_REDUCE_SCATTER_COUNT;
  if (i < WEIR_REDUCE_COUNT)
    return weir_reduces[i].run(c->comm, 2, c->x, c->n, WEIR_VALUE_FP32, NULL);
  i -= WEIR_REDUCE_COUNT;
  if (i < WEIR_GATHER_COUNT) return weir_gathers[i].run(c->comm, 0, c->x, stride, c->bytes);
  i -= WEIR_GATHER_COUNT;
  if (i < WEIR_COMPRESSED_COUNT) return rows_compress(c, i, false);
  switch (i - WEIR_COMPRESSED_COUNT) {
    case 0: return rows_compress(c, WEIR_COMPRESSED_SRA, true);
    case 1: return rows_compress(c, WEIR_COMPRESSED_HIER_SRA, true);
    default: return WEIR_E_CAPACITY;
  }
}

/* digest[ROWS_ALL]; neighbouring ranks share a machine.  Three ranks at least. */
static inline weir_status rows_digest(weir_transport *t, int per_machine, size_t n,
                                      double timeout_s, uint64_t *digest) {
  rows_course c = {.n = n, .size = t->size};
  weir_status status = weir_comm_create(&c.comm, t, timeout_s);
  c.drawn = calloc((size_t)t->size * n, sizeof *c.drawn);
  c.x = calloc((size_t)t->size * n, sizeof *c.x);
  c.error = calloc(n, sizeof *c.error);
  rows_draw(&c);
  if (status == WEIR_OK) status = weir_comm_find_hosts(c.comm, (uint64_t)(t->rank / per_machine));
  for (uint32_t row = 0; status == WEIR_OK && row < ROWS_ALL; row++) {
    rows_fill(&c);
    status = rows_run(&c, row);
    const uint32_t crc = weir_crc32c(0, c.x, (size_t)t->size * n * sizeof *c.x);
    digest[row] = weir_crc32c(crc, c.error, n * sizeof *c.error);
  }
  weir_comm_free(c.comm);
  free(c.error);
  free(c.x);
  free(c.drawn);
  return status;
}

#endif

/* Scatter-reduce-allgather: every rank gets its share of all others' values, encoded, and adds them
 * to its own in the order of ranks; the sum, encoded again, goes to all.  Two encodings on any
 * value's way, the least of the three schemes. */
#include <string.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"

typedef struct sra {
  weir_comm *comm;
  const weir_coder *coder;
  float *x, *error;
  size_t n, stride;
  int rank, size;
  unsigned char *out, *in; /* size blocks each */
  float *staging;          /* a share */
  size_t *out_bytes, *in_bytes;
} sra;

static weir_status prepare(sra *s) {
  const size_t share = weir_ring_chunk(s->n, s->size, 0).count, ranks = (size_t)s->size;
  s->stride = weir_coder_bound(s->coder, share);
  void *blocks = NULL, *rest = NULL;
  weir_status status =
      weir_comm_scratch(s->comm, WEIR_SCRATCH_A, 2 * ranks * s->stride + 1, &blocks);
  if (status == WEIR_OK)
    status = weir_comm_scratch(s->comm, WEIR_SCRATCH_B,
                               2 * ranks * sizeof(size_t) + share * sizeof(float), &rest);
  s->out = blocks;
  s->in = s->out + ranks * s->stride;
  s->out_bytes = rest;
  s->in_bytes = s->out_bytes + ranks;
  s->staging = (float *)(void *)(s->in_bytes + ranks);
  return status;
}

static weir_status scatter(sra *s) {
  for (int r = 0; r < s->size; r++) {
    const weir_chunk c = weir_ring_chunk(s->n, s->size, r);
    s->out_bytes[r] = 0;
    if (r == s->rank || c.count == 0) continue;
    const weir_status status = weir_coder_encode(
        s->coder, s->x + c.begin, c.count, s->rank, (uint32_t)r, s->error + c.begin,
        s->out + (size_t)r * s->stride, s->stride, &s->out_bytes[r], s->staging);
    if (status != WEIR_OK) return status;
  }
  return weir_alltoalls[WEIR_ALLTOALL_DIRECT].run(s->comm, s->out, s->out_bytes, s->in, s->in_bytes,
                                                  s->stride);
}

/* Others' values are added to one's own, which has not been rounded. */
static weir_status sum_up(sra *s) {
  const weir_chunk c = weir_ring_chunk(s->n, s->size, s->rank);
  weir_status status = WEIR_OK;
  for (int r = 0; r < s->size && c.count > 0 && status == WEIR_OK; r++)
    if (r != s->rank)
      status = weir_coder_decode(s->comm, s->coder, r, s->in + (size_t)r * s->stride,
                                 s->in_bytes[r], s->x + c.begin, c.count, true);
  return status;
}

static weir_status gather(sra *s, weir_notes *notes) {
  const weir_chunk own = weir_ring_chunk(s->n, s->size, s->rank);
  weir_status status = WEIR_OK;
  s->out_bytes[s->rank] = 0;
  if (own.count > 0)
    status = weir_coder_encode(s->coder, s->x + own.begin, own.count, s->rank, (uint32_t)s->size,
                               s->error + own.begin, s->out + (size_t)s->rank * s->stride,
                               s->stride, &s->out_bytes[s->rank], s->staging);
  if (status == WEIR_OK) status = weir_allgather(s->comm, s->out, s->stride, s->out_bytes, notes);
  for (int r = 0; r < s->size && status == WEIR_OK; r++) {
    const weir_chunk c = weir_ring_chunk(s->n, s->size, r);
    if (r != s->rank && c.count > 0)
      status = weir_coder_decode(s->comm, s->coder, r, s->out + (size_t)r * s->stride,
                                 s->out_bytes[r], s->x + c.begin, c.count, false);
  }
  return status;
}

weir_status weir_compressed_sra(weir_comm *comm, const weir_coder *coder, float *x, size_t n,
                                float *error, weir_notes *notes) {
  sra s = {.comm = comm, .coder = coder, .x = x, .error = error, .n = n};
  s.rank = weir_comm_rank(comm);
  s.size = weir_comm_size(comm);
  if (s.size == 1) return weir_comm_begin(comm, notes);
  weir_status status = prepare(&s);
  if (status == WEIR_OK) status = scatter(&s);
  if (status == WEIR_OK) status = sum_up(&s);
  return status == WEIR_OK ? gather(&s, notes) : status;
}

/* Ring all-reduce: reduce-scatter, then all-gather, 2(N-1) hops of n/N elements each
 * (P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms, 2009).
 *
 * Chunk c is summed in the order of ranks c, c+1, ..., c-1 (mod N): fixed, so that the result is
 * the same bits on all ranks and from run to run.  Notes go round in the all-gather. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"
#include "kernels/codec.h"

typedef struct ring {
  weir_comm *comm;
  float *x;
  size_t n;
  float *error;
  weir_notes *notes;
  int rank;
  int size;
  int right;
  int left;
  void *buffer[WEIR_SCRATCH_COUNT]; /* fp32: A holds the chunk to be added; bf16: out and in */
} ring;

static weir_chunk chunk_of(const ring *r, int chunk) {
  return weir_ring_chunk(r->n, r->size, chunk);
}

static weir_status reduce_scatter_fp32(ring *r) {
  for (int hop = 0; hop < r->size - 1; hop++) {
    const weir_chunk out = chunk_of(r, weir_ring_reduce_send(r->rank, r->size, hop));
    const weir_chunk in = chunk_of(r, weir_ring_reduce_recv(r->rank, r->size, hop));
    float *partial = r->buffer[WEIR_SCRATCH_A];
    const weir_send send = {r->right, r->x + out.begin, out.count * sizeof(float), (uint32_t)hop};
    weir_recv recv = {r->left, partial, in.count * sizeof(float), (uint32_t)hop, 0};
    const weir_status status = weir_comm_exchange(r->comm, &send, 1, &recv, 1);
    if (status != WEIR_OK) return status;
    weir_add_fp32(r->x + in.begin, partial, in.count);
  }
  return WEIR_OK;
}

static weir_status reduce_scatter_bf16(ring *r) {
  uint16_t *rounded = r->buffer[WEIR_SCRATCH_A];
  uint16_t *partial = r->buffer[WEIR_SCRATCH_B];
  for (int hop = 0; hop < r->size - 1; hop++) {
    const weir_chunk out = chunk_of(r, weir_ring_reduce_send(r->rank, r->size, hop));
    const weir_chunk in = chunk_of(r, weir_ring_reduce_recv(r->rank, r->size, hop));
    weir_bf16_encode(r->x + out.begin, out.count, rounded, r->error ? r->error + out.begin : NULL);
    const weir_send send = {r->right, rounded, out.count * sizeof *rounded, (uint32_t)hop};
    weir_recv recv = {r->left, partial, in.count * sizeof *partial, (uint32_t)hop, 0};
    const weir_status status = weir_comm_exchange(r->comm, &send, 1, &recv, 1);
    if (status != WEIR_OK) return status;
    weir_add_bf16(r->x + in.begin, partial, in.count);
  }
  return WEIR_OK;
}

/* One hop of the all-gather: a chunk's bytes and, as a message of its own behind it, a note.  Both
 * leave in one system call. */
static weir_status gather_hop(ring *r, int hop, const void *out, size_t out_bytes, void *in,
                              size_t in_bytes) {
  const uint32_t first = (uint32_t)(r->size - 1 + 2 * hop);
  const size_t note = weir_notes_bytes(r->notes);
  const int sent = (r->rank - hop + r->size) % r->size;
  const int taken = (r->left - hop + r->size) % r->size;
  const weir_send send[2] = {{r->right, out, out_bytes, first},
                             {r->right, weir_notes_at(r->notes, sent), note, first + 1}};
  weir_recv recv[2] = {{r->left, in, in_bytes, first, 0},
                       {r->left, weir_notes_at(r->notes, taken), note, first + 1, 0}};
  const size_t messages = note > 0 ? 2 : 1;
  return weir_comm_exchange(r->comm, send, messages, recv, messages);
}

static weir_status all_gather_fp32(ring *r) {
  for (int hop = 0; hop < r->size - 1; hop++) {
    const weir_chunk out = chunk_of(r, weir_ring_gather_send(r->rank, r->size, hop));
    const weir_chunk in = chunk_of(r, weir_ring_gather_recv(r->rank, r->size, hop));
    const weir_status status = gather_hop(r, hop, r->x + out.begin, out.count * sizeof(float),
                                          r->x + in.begin, in.count * sizeof(float));
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

/* The owner rounds its sum once; from then on the same 16-bit values go round. */
static weir_status all_gather_bf16(ring *r) {
  uint16_t *out16 = r->buffer[WEIR_SCRATCH_A];
  uint16_t *in16 = r->buffer[WEIR_SCRATCH_B];
  const weir_chunk own = chunk_of(r, weir_ring_owned(r->rank, r->size));
  weir_bf16_encode(r->x + own.begin, own.count, out16, r->error ? r->error + own.begin : NULL);
  weir_bf16_decode(out16, own.count, r->x + own.begin);
  for (int hop = 0; hop < r->size - 1; hop++) {
    const weir_chunk out = chunk_of(r, weir_ring_gather_send(r->rank, r->size, hop));
    const weir_chunk in = chunk_of(r, weir_ring_gather_recv(r->rank, r->size, hop));
    const weir_status status =
        gather_hop(r, hop, out16, out.count * sizeof *out16, in16, in.count * sizeof *in16);
    if (status != WEIR_OK) return status;
    weir_bf16_decode(in16, in.count, r->x + in.begin);
    uint16_t *next = in16;
    in16 = out16;
    out16 = next;
  }
  return WEIR_OK;
}

weir_status weir_allreduce_ring(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                float *error, weir_notes *notes) {
  weir_status status = weir_comm_begin(comm, notes);
  ring r = {.comm = comm, .x = x, .n = n, .error = error, .notes = notes};
  r.rank = weir_comm_rank(comm);
  r.size = weir_comm_size(comm);
  if (status != WEIR_OK || r.size == 1) return status;
  r.right = (r.rank + 1) % r.size;
  r.left = (r.rank + r.size - 1) % r.size;
  const bool bf16 = format == WEIR_VALUE_BF16;
  const size_t bytes = weir_ring_chunk(n, r.size, 0).count * (bf16 ? 2 : 4);
  status = weir_comm_scratch(comm, WEIR_SCRATCH_A, bytes, &r.buffer[WEIR_SCRATCH_A]);
  if (status == WEIR_OK && bf16)
    status = weir_comm_scratch(comm, WEIR_SCRATCH_B, bytes, &r.buffer[WEIR_SCRATCH_B]);
  if (status != WEIR_OK) return status;
  status = bf16 ? reduce_scatter_bf16(&r) : reduce_scatter_fp32(&r);
  if (status != WEIR_OK) return status;
  return bf16 ? all_gather_bf16(&r) : all_gather_fp32(&r);
}

/* Tree all-reduce: binomial reduction to rank 0, then binomial broadcast, 2 ceil(log2 N) hops of
 * all n elements on the critical path.
 *
 * A rank adds its children's sums in ascending order of their distance: fixed.  The notes of a
 * subtree are neighbours in the block, so they go up as one piece; all notes come down. */
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"
#include "kernels/codec.h"

typedef struct tree {
  weir_comm *comm;
  float *x;
  uint16_t *x16; /* bf16 only: what this rank sends or got from above */
  void *partial; /* a child's sum */
  size_t n;
  size_t width; /* bytes of an element on the wire */
  float *error;
  weir_notes *notes;
  int rank;
  int size;
  int level;
} tree;

/* Hops 2j and 2j+1: the values and the notes of one edge in one direction. */
static uint32_t hop_up(int k) { return 2 * (uint32_t)k; }
static uint32_t hop_down(const tree *t, int k) {
  return 2 * (uint32_t)(weir_log2_ceil(t->size) + k);
}

static const void *outgoing(const tree *t) { return t->x16 ? (const void *)t->x16 : t->x; }

/* From here on the values this rank holds are those that travel. */
static void round_values(tree *t) {
  if (t->x16) weir_bf16_encode(t->x, t->n, t->x16, t->error);
}

static weir_status send_to(tree *t, int peer, uint32_t hop, int first_note, int notes) {
  const size_t note = weir_notes_bytes(t->notes);
  const weir_send send[2] = {
      {peer, outgoing(t), t->n * t->width, hop},
      {peer, weir_notes_at(t->notes, first_note), (size_t)notes * note, hop + 1}};
  return weir_comm_exchange(t->comm, send, note > 0 ? 2 : 1, NULL, 0);
}

static weir_status receive_from(tree *t, int peer, uint32_t hop, void *values, int first_note,
                                int notes) {
  const size_t note = weir_notes_bytes(t->notes);
  weir_recv recv[2] = {
      {peer, values, t->n * t->width, hop, 0},
      {peer, weir_notes_at(t->notes, first_note), (size_t)notes * note, hop + 1, 0}};
  return weir_comm_exchange(t->comm, NULL, 0, recv, note > 0 ? 2 : 1);
}

static weir_status reduce(tree *t) {
  for (int k = 0; k < t->level; k++) {
    const int child = weir_binomial_child(t->rank, t->size, k);
    if (child < 0) break;
    const weir_status status =
        receive_from(t, child, hop_up(k), t->partial, child, weir_binomial_subtree(child, t->size));
    if (status != WEIR_OK) return status;
    if (t->x16)
      weir_add_bf16(t->x, t->partial, t->n);
    else
      weir_add_fp32(t->x, t->partial, t->n);
  }
  round_values(t);
  if (t->rank == 0) return WEIR_OK;
  return send_to(t, weir_binomial_parent(t->rank, t->size), hop_up(t->level), t->rank,
                 weir_binomial_subtree(t->rank, t->size));
}

static weir_status broadcast(tree *t) {
  if (t->rank != 0) {
    void *values = t->x16 ? (void *)t->x16 : t->x;
    const weir_status status = receive_from(t, weir_binomial_parent(t->rank, t->size),
                                            hop_down(t, t->level), values, 0, t->size);
    if (status != WEIR_OK) return status;
  }
  for (int k = t->level - 1; k >= 0; k--) {
    const int child = weir_binomial_child(t->rank, t->size, k);
    if (child < 0) continue;
    const weir_status status = send_to(t, child, hop_down(t, k), 0, t->size);
    if (status != WEIR_OK) return status;
  }
  if (t->x16) weir_bf16_decode(t->x16, t->n, t->x);
  return WEIR_OK;
}

weir_status weir_allreduce_tree(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                float *error, weir_notes *notes) {
  weir_status status = weir_comm_begin(comm, notes);
  tree t = {.comm = comm, .x = x, .n = n, .error = error, .notes = notes};
  t.rank = weir_comm_rank(comm);
  t.size = weir_comm_size(comm);
  if (status != WEIR_OK || t.size == 1) return status;
  t.level = weir_binomial_level(t.rank, t.size);
  t.width = format == WEIR_VALUE_BF16 ? sizeof(uint16_t) : sizeof(float);
  if (t.level > 0) {
    status = weir_comm_scratch(comm, WEIR_SCRATCH_A, n * t.width, &t.partial);
    if (status != WEIR_OK) return status;
  }
  if (format == WEIR_VALUE_BF16) {
    void *x16 = NULL;
    status = weir_comm_scratch(comm, WEIR_SCRATCH_B, n > 0 ? n * t.width : 1, &x16);
    if (status != WEIR_OK) return status;
    t.x16 = x16;
  }
  status = reduce(&t);
  return status == WEIR_OK ? broadcast(&t) : status;
}

#include "collectives/compressed.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "collectives/comm.h"

const weir_compressed_row weir_compressed[WEIR_COMPRESSED_COUNT] = {
    {WEIR_COMPRESSED_SRA, "sra",
     "scatter-reduce-allgather: each share straight to its rank, encoded twice in all",
     weir_compressed_sra},
    {WEIR_COMPRESSED_RING, "ring", "2(N-1) hops of an N-th, encoded again at every hop of summing",
     weir_compressed_ring},
    {WEIR_COMPRESSED_TREE, "tree", "binomial, encoded again at every level", weir_compressed_tree},
};

const weir_compressed_row *weir_compressed_find(const char *name) {
  for (size_t i = 0; i < WEIR_COMPRESSED_COUNT; i++)
    if (strcmp(weir_compressed[i].name, name) == 0) return &weir_compressed[i];
  return NULL;
}

weir_cost_terms weir_cost_compressed(uint32_t algorithm, int n, double bytes) {
  const double share = bytes / (n > 1 ? n : 1);
  switch (algorithm) {
    case WEIR_COMPRESSED_SRA: {
      const weir_cost_terms out = weir_cost_alltoall(WEIR_ALLTOALL_DIRECT, n, share);
      const weir_cost_terms back = weir_cost_allgather(WEIR_ALLGATHER_BRUCK, n, share);
      return (weir_cost_terms){out.alpha_terms + back.alpha_terms,
                               out.byte_terms + back.byte_terms};
    }
    case WEIR_COMPRESSED_RING: return weir_cost_allreduce(WEIR_ALLREDUCE_RING, n, bytes);
    case WEIR_COMPRESSED_TREE: return weir_cost_allreduce(WEIR_ALLREDUCE_TREE, n, bytes);
    default: return (weir_cost_terms){INFINITY, INFINITY};
  }
}

size_t weir_coder_bound(const weir_coder *coder, size_t count) {
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  return coder->codec->bound(&layout, coder->cr);
}

weir_status weir_coder_encode(const weir_coder *coder, float *x, size_t count, int rank,
                              uint32_t draw, float *error, void *out, size_t capacity,
                              size_t *bytes, float *staging) {
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  const uint64_t words[3] = {coder->seed, (uint64_t)rank, draw};
  weir_hold_finite(x, count);
  weir_status status =
      coder->codec->encode(coder->context, x, &layout, coder->cr,
                           weir_hash(WEIR_HASH_INIT, words, sizeof words), out, capacity, bytes);
  if (status == WEIR_OK)
    status = coder->codec->decode(coder->context, out, *bytes, &layout, staging, false);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < count; i++) error[i] += x[i] - staging[i];
  weir_hold_finite(error, count);
  if (count > 0) memcpy(x, staging, count * sizeof *x);
  return WEIR_OK;
}

weir_status weir_coder_decode(weir_comm *comm, const weir_coder *coder, int peer,
                              const void *message, size_t bytes, float *x, size_t count, bool add) {
  const size_t offset[2] = {0, count};
  const weir_layout layout = {1, offset};
  const weir_status status = coder->codec->decode(coder->context, message, bytes, &layout, x, add);
  if (status != WEIR_OK) comm->transport->ops->abort(comm->transport, peer);
  return status;
}

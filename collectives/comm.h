/* Inside of a communicator: what the algorithms share.  One thread at a time. */
#ifndef WEIR_COLLECTIVES_COMM_H
#define WEIR_COLLECTIVES_COMM_H

#include "collectives/collective.h"

#define WEIR_SLOTS_EXTRA 8
/* Groups inside of a group: the ranks of the own host, and those between hosts. */
typedef struct weir_hosts {
  int count;      /* hosts */
  bool even;      /* every host has as many ranks */
  int largest;    /* ranks of the largest */
  uint64_t order; /* how ranks lie on them (weir_group_shape) */
  int *of;        /* host of each rank; NULL: every rank is a host of its own */
  weir_transport *inner_view, *outer_view;
  weir_comm *inner; /* NULL before the first use, or with no other rank in it */
  /* The ranks at the same place of every host; where hosts are uneven, the first ranks of all
   * (NULL on the others). */
  weir_comm *outer;
} weir_hosts;

enum { WEIR_SCRATCH_A = 0, WEIR_SCRATCH_B = 1, WEIR_SCRATCH_COUNT = 2 };

struct weir_comm {
  weir_transport *transport;
  double timeout_s;
  weir_tag tag; /* of the collective that runs */
  uint32_t next_op;
  void *scratch[WEIR_SCRATCH_COUNT];
  size_t scratch_bytes[WEIR_SCRATCH_COUNT];
  weir_send *send; /* 2 size + WEIR_SLOTS_EXTRA entries, for many messages at once */
  weir_recv *recv;
  weir_hosts hosts;
};

/* Every collective begins with this: checks the headers and takes the next operation number. */
weir_status weir_comm_begin(weir_comm *comm, const weir_headers *headers);

/* Sum x over the ranks of this rank's machine, of which there are several, by the library below;
 * once weir_comm_levels has been called for the collective that runs. */
weir_status weir_comm_sum_inside(weir_comm *comm, float *x, size_t n);

/* Make the inner and outer communicators ready for the collective that runs: its tag, and operation
 * numbers that no other collective of the step has. */
weir_status weir_comm_levels(weir_comm *comm);
void weir_hosts_free(weir_hosts *hosts);

/* Scratch of at least `bytes`, kept from call to call; its content is lost when it grows. */
weir_status weir_comm_scratch(weir_comm *comm, int which, size_t bytes, void **out);

/* transport->transfer under the current tag, with the communicator's time-out from now. */
weir_status weir_comm_transfer(weir_comm *comm, const weir_send *send, size_t sends,
                               weir_recv *recv, size_t recvs);

/* For messages whose length both ends know: anything but exactly `capacity` bytes is
 * WEIR_E_PROTOCOL, and ends the group. */
weir_status weir_comm_expect(weir_comm *comm, const weir_recv *recv, size_t recvs);

/* Transfer, then expect. */
weir_status weir_comm_exchange(weir_comm *comm, const weir_send *send, size_t sends,
                               weir_recv *recv, size_t recvs);

/* `bytes` of this rank's straight to every other, and its header with them; comm->recv[0 .. N - 2]
 * say where theirs come in (peer, data, capacity), from each once, and are told their lengths.
 * Messages are of this hop, headers of the next. */
weir_status weir_comm_to_all(weir_comm *comm, const void *own, size_t bytes, uint32_t hop,
                             weir_headers *headers);

/* Headers of all ranks, in a small all-gather of their own; without headers nothing. */
weir_status weir_comm_gather_headers(weir_comm *comm, weir_headers *headers);
/* Address of rank's header; NULL without headers. */
void *weir_headers_at(const weir_headers *headers, int rank);
static inline size_t weir_headers_bytes(const weir_headers *headers) {
  return headers ? headers->bytes : 0;
}

/* Infinities become the largest floats: of sums that are about to be encoded, where a dense step
 * would be lost.  What lies beyond is in no error. */
void weir_hold_finite(float *x, size_t n);
/* to[i] += from[i] */
void weir_add_fp32(float *to, const float *from, size_t n);
void weir_add_bf16(float *to, const uint16_t *from, size_t n);

/* The rows of weir_allreduces[]. */
weir_allreduce_run weir_allreduce_ring, weir_allreduce_tree, weir_allreduce_halving,
    weir_allreduce_double_tree, weir_allreduce_torus, weir_allreduce_star, weir_allreduce_doubling,
    weir_allreduce_direct, weir_allreduce_native, weir_allreduce_native_ring,
    weir_allreduce_native_tree;

/* WEIR_E_INVALID unless root is a rank; or unless a block fits its stride. */
weir_status weir_comm_root(const weir_comm *comm, int root);
weir_status weir_comm_block(size_t bytes, size_t stride);

/* The rows of the other tables; binomial broadcast and Bruck's all-gather are in collective.h. */
weir_status weir_broadcast_chain(weir_comm *comm, int root, void *data, size_t capacity,
                                 size_t *bytes);
weir_status weir_broadcast_direct(weir_comm *comm, int root, void *data, size_t capacity,
                                  size_t *bytes);
weir_allgather_run weir_allgather_ring, weir_allgather_doubling, weir_allgather_direct;
weir_status weir_reduce_scatter_ring(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                     float *error);
weir_status weir_reduce_scatter_pairwise(weir_comm *comm, float *x, size_t n,
                                         weir_value_format format, float *error);
weir_status weir_reduce_binomial(weir_comm *comm, int root, float *x, size_t n,
                                 weir_value_format format, float *error);
weir_status weir_gather_direct(weir_comm *comm, int root, void *all, size_t stride, size_t *bytes);

#endif

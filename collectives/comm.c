#include "collectives/comm.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/patterns/patterns.h"
#include "collectives/told.h"
#include "kernels/codec.h"

const weir_allreduce weir_allreduces[WEIR_ALLREDUCE_ROWS] = {
    {WEIR_ALLREDUCE_RING, "ring", "reduce-scatter and all-gather around a ring, 2(N-1) hops of n/N",
     weir_allreduce_ring},
    {WEIR_ALLREDUCE_TREE, "tree", "binomial reduction to rank 0 and broadcast, 2 ceil(log2 N) hops",
     weir_allreduce_tree},
    {WEIR_ALLREDUCE_HALVING, "halving",
     "recursive halving and doubling, 2 log2 N hops of n/2, n/4, ...; odd ranks out are folded in",
     weir_allreduce_halving},
    {WEIR_ALLREDUCE_DOUBLE_TREE, "double-tree",
     "two binary trees with half of the elements each, in chunks, both directions at once",
     weir_allreduce_double_tree},
    {WEIR_ALLREDUCE_TORUS, "torus", "rings along the rows and columns of the squarest grid",
     weir_allreduce_torus},
    {WEIR_ALLREDUCE_STAR, "star", "all send to rank 0, which sends the sum to all: 2 hops",
     weir_allreduce_star},
    {WEIR_ALLREDUCE_DOUBLING, "doubling",
     "log2 N exchanges of everything, the fewest hops; odd ranks out are folded in",
     weir_allreduce_doubling},
    {WEIR_ALLREDUCE_DIRECT, "direct", "everything from everybody to everybody at once: 1 hop",
     weir_allreduce_direct},
    {WEIR_ALLREDUCE_NATIVE, "native", "the transport's own: in shared memory, MPI's or NCCL's",
     weir_allreduce_native},
    {WEIR_ALLREDUCE_NATIVE_RING, "native-ring", "NCCL's ring, 2(N-1) hops of n/N",
     weir_allreduce_native_ring},
    {WEIR_ALLREDUCE_NATIVE_TREE, "native-tree", "NCCL's double binary tree, 2 ceil(log2 N) hops",
     weir_allreduce_native_tree},
};

const weir_allreduce *weir_allreduce_find(const char *name) {
  for (size_t i = 0; i < WEIR_ALLREDUCE_ROWS; i++)
    if (strcmp(weir_allreduces[i].name, name) == 0) return &weir_allreduces[i];
  return NULL;
}

weir_status weir_comm_create(weir_comm **out, weir_transport *transport, double timeout_s) {
  *out = NULL;
  if (!(timeout_s > 0.0 && timeout_s < 1e9))
    return weir_fail(WEIR_E_INVALID, "time-out of %g s is not in (0, 1e9)", timeout_s);
  weir_comm *comm = calloc(1, sizeof *comm);
  if (!comm) return weir_fail(WEIR_E_NOMEM, "no memory for a communicator");
  const size_t slots = 2 * (size_t)transport->size + WEIR_SLOTS_EXTRA;
  comm->transport = transport;
  comm->timeout_s = timeout_s;
  comm->hosts = (weir_hosts){.count = transport->size, .even = true, .largest = 1};
  comm->send = calloc(slots, sizeof *comm->send);
  comm->recv = calloc(slots, sizeof *comm->recv);
  if (!comm->send || !comm->recv) {
    weir_comm_free(comm);
    return weir_fail(WEIR_E_NOMEM, "no memory for a communicator of %d ranks", transport->size);
  }
  *out = comm;
  return WEIR_OK;
}

void weir_comm_free(weir_comm *comm) {
  if (!comm) return;
  weir_hosts_free(&comm->hosts);
  for (int i = 0; i < WEIR_SCRATCH_COUNT; i++) free(comm->scratch[i]);
  free(comm->recv);
  free(comm->send);
  free(comm);
}

void weir_comm_give_back(weir_comm *comm) {
  for (int i = 0; i < WEIR_SCRATCH_COUNT; i++)
    weir_give_back(comm->scratch[i], comm->scratch_bytes[i]);
  if (comm->hosts.inner) weir_comm_give_back(comm->hosts.inner);
  if (comm->hosts.outer && comm->hosts.outer != comm) weir_comm_give_back(comm->hosts.outer);
}

weir_transport *weir_comm_transport(const weir_comm *comm) { return comm->transport; }
int weir_comm_rank(const weir_comm *comm) { return comm->transport->rank; }
int weir_comm_size(const weir_comm *comm) { return comm->transport->size; }

void weir_comm_step(weir_comm *comm, uint64_t plan_digest, uint64_t step) {
  comm->tag.plan = plan_digest;
  comm->tag.step = step;
  comm->next_op = 0;
}

weir_status weir_comm_begin(weir_comm *comm, const weir_headers *headers) {
  if (headers && headers->bytes > WEIR_HEADER_MAX)
    return weir_fail(WEIR_E_INVALID, "a header of %zu bytes is longer than %d", headers->bytes,
                     WEIR_HEADER_MAX);
  if (headers && headers->bytes > 0 && !headers->block)
    return weir_fail(WEIR_E_INVALID, "headers of %zu bytes have no block", headers->bytes);
  comm->tag.op = comm->next_op++;
  return WEIR_OK;
}

weir_status weir_comm_scratch(weir_comm *comm, int which, size_t bytes, void **out) {
  if (comm->scratch_bytes[which] < bytes) {
    free(comm->scratch[which]);
    comm->scratch_bytes[which] = 0;
    comm->scratch[which] = malloc(bytes);
    if (!comm->scratch[which])
      return weir_fail(WEIR_E_NOMEM, "no memory for %zu bytes of message buffer", bytes);
    comm->scratch_bytes[which] = bytes;
  }
  *out = comm->scratch[which];
  return WEIR_OK;
}

weir_status weir_comm_transfer(weir_comm *comm, const weir_send *send, size_t sends,
                               weir_recv *recv, size_t recvs) {
  weir_transport *t = comm->transport;
  const weir_told told = weir_told_begin(t, send, sends, recv, recvs);
  const weir_status status =
      t->ops->transfer(t, &comm->tag, send, sends, recv, recvs, weir_now_s() + comm->timeout_s);
  weir_told_end(t, &told, send, sends, recv, recvs, status);
  if (status != WEIR_E_TIMEOUT) return status;
  char why[512];
  (void)strncpy(why, weir_last_error(), sizeof why - 1);
  why[sizeof why - 1] = '\0';
  return weir_fail(status, "%s (limit %g s)", why, comm->timeout_s);
}

weir_status weir_comm_refuse(weir_comm *comm, int sender, weir_status status) {
  const int culprit = status == WEIR_E_PROTOCOL ? sender : weir_comm_rank(comm);
  comm->transport->ops->abort(comm->transport, culprit);
  if (status != WEIR_E_PROTOCOL) return status;
  char what[256];
  (void)snprintf(what, sizeof what, "%s", weir_last_error());
  return weir_fail(status, "rank %d sent a %s", sender, what);
}

weir_status weir_comm_gather_headers(weir_comm *comm, weir_headers *headers) {
  return weir_headers_bytes(headers) == 0 ? WEIR_OK : weir_comm_meet(comm, headers);
}

weir_status weir_comm_meet(weir_comm *comm, weir_headers *headers) {
  void *lengths = NULL;
  const size_t ranks = (size_t)weir_comm_size(comm);
  const weir_status status =
      weir_comm_scratch(comm, WEIR_SCRATCH_B, ranks * sizeof(size_t), &lengths);
  if (status != WEIR_OK) return status;
  memset(lengths, 0, ranks * sizeof(size_t));
  unsigned char nothing[1];
  return weir_allgather(comm, nothing, 0, lengths, headers);
}

weir_status weir_comm_expect(weir_comm *comm, const weir_recv *recv, size_t recvs) {
  for (size_t i = 0; i < recvs; i++)
    if (recv[i].bytes != recv[i].capacity) {
      comm->transport->ops->abort(comm->transport, recv[i].peer);
      return weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu bytes where %zu were due (step %llu)",
                       recv[i].peer, recv[i].bytes, recv[i].capacity,
                       (unsigned long long)comm->tag.step);
    }
  return WEIR_OK;
}

weir_status weir_comm_exchange(weir_comm *comm, const weir_send *send, size_t sends,
                               weir_recv *recv, size_t recvs) {
  const weir_status status = weir_comm_transfer(comm, send, sends, recv, recvs);
  return status == WEIR_OK ? weir_comm_expect(comm, recv, recvs) : status;
}

weir_status weir_comm_to_all(weir_comm *comm, const void *own, size_t bytes, uint32_t hop,
                             weir_headers *headers) {
  const int rank = weir_comm_rank(comm), size = weir_comm_size(comm);
  const size_t header = weir_headers_bytes(headers), others = (size_t)size - 1;
  weir_send *send = comm->send;
  weir_recv *recv = comm->recv;
  for (size_t i = 0; i < others; i++) { /* not all to the same rank first */
    const int to = weir_rotation_to(rank, size, (int)i + 1), from = recv[i].peer;
    send[i] = (weir_send){to, own, bytes, hop};
    recv[i].hop = hop;
    if (header == 0) continue; /* headers lie behind all messages, where lengths vary */
    send[others + i] = (weir_send){to, weir_headers_at(headers, rank), header, hop + 1};
    recv[others + i] = (weir_recv){from, weir_headers_at(headers, from), header, hop + 1, 0};
  }
  const size_t messages = header > 0 ? 2 * others : others;
  const weir_status status = weir_comm_transfer(comm, send, messages, recv, messages);
  return status == WEIR_OK ? weir_comm_expect(comm, recv + others, messages - others) : status;
}

void *weir_headers_at(const weir_headers *headers, int rank) {
  if (!headers || headers->bytes == 0) return NULL;
  return (unsigned char *)headers->block + (size_t)rank * headers->bytes;
}

void weir_hold_finite(float *x, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const float low = x[i] < -FLT_MAX ? -FLT_MAX : x[i];
    x[i] = low > FLT_MAX ? FLT_MAX : low;
  }
}

void weir_add_fp32(float *restrict to, const float *restrict from, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] += from[i];
}

void weir_add_bf16(float *to, const uint16_t *from, size_t n) {
  float value[1024]; /* stays in the first-level cache */
  for (size_t i = 0; i < n;) {
    const size_t count = n - i < 1024 ? n - i : 1024;
    weir_bf16_decode(from + i, count, value);
    weir_add_fp32(to + i, value, count);
    i += count;
  }
}

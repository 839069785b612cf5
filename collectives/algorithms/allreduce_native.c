/* All-reduce of the transport itself, in shared memory, or of the library below it, MPI's or
 * NCCL's: rows beside those made of messages.  NCCL's can be told the algorithm, and sums inside of
 * machines for rows of two levels. */
#include "base/base.h"
#include "collectives/comm.h"
#include "collectives/told.h"

bool weir_comm_native(const weir_comm *comm) { return comm->transport->ops->allreduce != NULL; }

bool weir_comm_told(const weir_comm *comm) {
  const weir_transport *t = comm->transport;
  return t->size > 1 && t->ops->tells != NULL && t->ops->tells(t) == WEIR_OK;
}

weir_status weir_comm_runs(const weir_comm *comm, const weir_allreduce *row) {
  const weir_transport *t = comm->transport;
  if (row->id < WEIR_ALLREDUCE_COUNT) return WEIR_OK;
  if (!weir_comm_native(comm) && row->id == WEIR_ALLREDUCE_NATIVE)
    return weir_fail(
        WEIR_E_UNSUPPORTED,
        "collective native needs transport shm, mpi, shm+mpi, nccl or shm+nccl: %s has no "
        "all-reduce of its own",
        t->ops->name);
  /* The last rank of a group that was told goes on under its plan: there is nothing to sum. */
  if (row->id == WEIR_ALLREDUCE_NATIVE || t->size == 1) return WEIR_OK;
  return t->ops->tells != NULL
             ? t->ops->tells(t)
             : weir_fail(WEIR_E_UNSUPPORTED,
                         "collective %s needs transport nccl, with "
                         "NCCL_TUNER_PLUGIN=.../libweir-nccl-tuner.so and no NCCL_ALGO in every "
                         "rank's environment: %s cannot be told by which algorithm to sum",
                         row->name, t->ops->name);
}

weir_status weir_comm_sums_inside(const weir_comm *comm) {
  const weir_transport *t = comm->transport;
  if (comm->hosts.count == t->size ||
      (t->ops->sums_inside && t->ops->sums_inside(t, comm->hosts.of)))
    return WEIR_OK;
  return weir_fail(WEIR_E_UNSUPPORTED,
                   "a sum by native inside of machines needs NCCL there: transport nccl+tcp or "
                   "nccl+mpi, or nccl on one machine; %s has no all-reduce of a machine's own",
                   t->ops->name);
}

weir_status weir_comm_sum_inside(weir_comm *comm, float *x, size_t n) {
  weir_comm *inner = comm->hosts.inner;
  weir_transport *t = comm->transport;
  const weir_status status = weir_comm_begin(inner, NULL);
  if (status != WEIR_OK) return status;
  const uint64_t before = t->bytes_sent;
  const weir_told told = weir_told_begin(inner->transport, NULL, 0, NULL, 0);
  const weir_status summed =
      t->ops->allreduce_inside(t, &inner->tag, x, n, weir_now_s() + comm->timeout_s);
  inner->transport->bytes_sent += t->bytes_sent - before;
  weir_told_end(inner->transport, &told, NULL, 0, NULL, 0, summed);
  return summed;
}

static weir_status sum(weir_comm *comm, uint32_t row, float *x, size_t n, weir_headers *headers) {
  weir_transport *t = comm->transport;
  void *const blocks = headers ? headers->block : NULL;
  const size_t bytes = weir_headers_bytes(headers);
  const double deadline_s = weir_now_s() + comm->timeout_s;
  if (row == WEIR_ALLREDUCE_NATIVE)
    return t->ops->allreduce(t, &comm->tag, x, n, blocks, bytes, deadline_s);
  const weir_told_algorithm how =
      row == WEIR_ALLREDUCE_NATIVE_RING ? WEIR_TOLD_RING : WEIR_TOLD_TREE;
  return t->ops->allreduce_told(t, how, &comm->tag, x, n, blocks, bytes, deadline_s);
}

static weir_status run(weir_comm *comm, uint32_t row, float *x, size_t n, weir_value_format format,
                       weir_headers *headers) {
  weir_transport *t = comm->transport;
  weir_status status = weir_comm_runs(comm, &weir_allreduces[row]);
  /* It adds where this room cannot see it: what rounding loses there could not be kept. */
  if (status == WEIR_OK && format != WEIR_VALUE_FP32)
    status = weir_fail(WEIR_E_UNSUPPORTED, "the %s all-reduce sums fp32 only",
                       weir_allreduces[row].name);
  if (status == WEIR_OK) status = weir_comm_begin(comm, headers);
  if (status != WEIR_OK || t->size == 1) return status;
  const weir_told told = weir_told_begin(t, NULL, 0, NULL, 0);
  status = sum(comm, row, x, n, headers);
  weir_told_end(t, &told, NULL, 0, NULL, 0, status);
  return status;
}

weir_status weir_allreduce_native(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                  float *error, weir_headers *headers) {
  (void)error;
  return run(comm, WEIR_ALLREDUCE_NATIVE, x, n, format, headers);
}

weir_status weir_allreduce_native_ring(weir_comm *comm, float *x, size_t n,
                                       weir_value_format format, float *error,
                                       weir_headers *headers) {
  (void)error;
  return run(comm, WEIR_ALLREDUCE_NATIVE_RING, x, n, format, headers);
}

weir_status weir_allreduce_native_tree(weir_comm *comm, float *x, size_t n,
                                       weir_value_format format, float *error,
                                       weir_headers *headers) {
  (void)error;
  return run(comm, WEIR_ALLREDUCE_NATIVE_TREE, x, n, format, headers);
}

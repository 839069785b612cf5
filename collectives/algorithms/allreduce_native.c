/* All-reduce of the transport itself, in shared memory, or of the library below it, MPI's: one row,
 * beside those made of messages. */
#include "base/base.h"
#include "collectives/comm.h"
#include "collectives/told.h"

bool weir_comm_native(const weir_comm *comm) { return comm->transport->ops->allreduce != NULL; }

weir_status weir_allreduce_native(weir_comm *comm, float *x, size_t n, weir_value_format format,
                                  float *error, weir_headers *headers) {
  weir_transport *t = comm->transport;
  (void)error;
  if (!weir_comm_native(comm))
    return weir_fail(WEIR_E_UNSUPPORTED, "transport %s has no all-reduce of its own", t->ops->name);
  /* It adds where this room cannot see it: what rounding loses there could not be kept. */
  if (format != WEIR_VALUE_FP32)
    return weir_fail(WEIR_E_UNSUPPORTED, "the native all-reduce sums fp32 only");
  const weir_status status = weir_comm_begin(comm, headers);
  if (status != WEIR_OK || t->size == 1) return status;
  const weir_told told = weir_told_begin(t, NULL, 0, NULL, 0);
  const weir_status summed =
      t->ops->allreduce(t, &comm->tag, x, n, headers ? headers->block : NULL,
                        weir_headers_bytes(headers), weir_now_s() + comm->timeout_s);
  weir_told_end(t, &told, NULL, 0, NULL, 0, summed);
  return summed;
}

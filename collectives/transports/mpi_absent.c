/* A build without MPI. */
#include "base/base.h"
#include "collectives/transport.h"

bool weir_transport_has_mpi(void) { return false; }

weir_status weir_transport_mpi(weir_transport **out, uint64_t job_id, int rank, int size,
                               double timeout_s) {
  (void)job_id;
  (void)rank;
  (void)size;
  (void)timeout_s;
  *out = NULL;
  return weir_fail(
      WEIR_E_UNSUPPORTED,
      "this build of Weir has no MPI: it was configured where no MPI library was found");
}

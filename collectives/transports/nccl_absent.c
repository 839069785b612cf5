/* A build without NCCL's or CUDA's headers. */
#include "base/base.h"
#include "collectives/transport.h"

weir_status weir_transport_nccl(weir_transport **out, const char *rendezvous,
                                const char *bind_address, const void *secret, size_t secret_bytes,
                                uint64_t job_id, int rank, int size, double timeout_s) {
  (void)rendezvous;
  (void)bind_address;
  (void)secret;
  (void)secret_bytes;
  (void)job_id;
  (void)rank;
  (void)size;
  (void)timeout_s;
  *out = NULL;
  return weir_fail(WEIR_E_UNSUPPORTED,
                   "this build of Weir has no NCCL: it was configured where nccl.h was not found");
}

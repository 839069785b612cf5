/* A build without NCCL's or CUDA's headers. */
#include "base/base.h"
#include "collectives/transport.h"

weir_status weir_transport_nccl(weir_transport **out, weir_transport *met, bool inside,
                                double timeout_s) {
  (void)inside;
  (void)timeout_s;
  met->ops->destroy(met);
  *out = NULL;
  return weir_fail(WEIR_E_UNSUPPORTED,
                   "this build of Weir has no NCCL: it was configured where nccl.h was not found");
}

/* NVTX is a header that loads a tool when the environment names one, at the first call. */
#include "base/trace_nvtx.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

static nvtxDomainHandle_t domain; /* NULL without a tool */

static void open_domain(void) { domain = nvtxDomainCreateA("weir"); }

static nvtxDomainHandle_t ours(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, open_domain);
  return domain;
}

void weir_nvtx_begin(const char *what, uint64_t number) {
  nvtxDomainHandle_t to = ours();
  if (to == NULL) return;
  const nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                       .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                       .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                       .payload.ullValue = number,
                                       .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                       .message.ascii = what};
  (void)nvtxDomainRangePushEx(to, &range);
}

void weir_nvtx_end(void) {
  nvtxDomainHandle_t to = ours();
  if (to != NULL) (void)nvtxDomainRangePop(to);
}

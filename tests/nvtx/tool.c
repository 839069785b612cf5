/* A profiler as NVTX loads it (NVTX_INJECTION64_PATH): takes the place of the calls for ranges and
 * writes down which are inside of which. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

#include "log.h"

/* What an injected library exports; the header has no declaration for it. */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table);
extern nvtx_log weir_nvtx_log;

__attribute__((visibility("default"))) nvtx_log weir_nvtx_log;
static char handle; /* its address stands for the domain */

#define DEEPEST 8
static _Thread_local nvtx_event stack[DEEPEST];
static _Thread_local int depth;

static nvtxDomainHandle_t create(const char *name) {
  (void)snprintf(weir_nvtx_log.domain, sizeof weir_nvtx_log.domain, "%s", name);
  return (nvtxDomainHandle_t)(void *)&handle;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range) {
  const int at = atomic_fetch_add(&weir_nvtx_log.begun, 1);
  if ((void *)domain != &handle || depth >= DEEPEST || at >= NVTX_LOG_MOST) {
    atomic_fetch_add(&weir_nvtx_log.stray, 1);
    return NVTX_NO_PUSH_POP_TRACKING;
  }
  nvtx_event *event = &stack[depth];
  (void)snprintf(event->what, sizeof event->what, "%s", range->message.ascii);
  event->number = range->payload.ullValue;
  (void)snprintf(event->inside, sizeof event->inside, "%s", depth > 0 ? stack[depth - 1].what : "");
  event->inside_number = depth > 0 ? stack[depth - 1].number : 0;
  weir_nvtx_log.begin[at] = *event;
  return depth++;
}

static int pop(nvtxDomainHandle_t domain) {
  atomic_fetch_add(&weir_nvtx_log.ended, 1);
  if ((void *)domain != &handle || depth == 0) {
    atomic_fetch_add(&weir_nvtx_log.stray, 1);
    return NVTX_NO_PUSH_POP_TRACKING;
  }
  return --depth;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  if (callbacks == NULL ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}

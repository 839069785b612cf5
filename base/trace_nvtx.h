/* Phases as NVTX ranges in the domain "weir".  Built where CUDA's header is found (WEIR_NVTX,
 * cmake/nvtx.cmake), empty otherwise. */
#ifndef WEIR_BASE_TRACE_NVTX_H
#define WEIR_BASE_TRACE_NVTX_H

#include <stdint.h>

#ifdef WEIR_NVTX
void weir_nvtx_begin(const char *what, uint64_t number);
void weir_nvtx_end(void);
#else
static inline void weir_nvtx_begin(const char *what, uint64_t number) {
  (void)what;
  (void)number;
}
static inline void weir_nvtx_end(void) {}
#endif

#endif

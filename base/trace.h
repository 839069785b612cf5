/* Ranges for profilers (NVTX: Nsight Systems and others): what a thread is at, in the domain
 * "weir". Built where CUDA's header is found (WEIR_NVTX, cmake/nvtx.cmake), empty otherwise;
 * without a tool attached a range costs a comparison or two.  Any thread; every begin has its end
 * in the same thread, last begun first ended. */
#ifndef WEIR_BASE_TRACE_H
#define WEIR_BASE_TRACE_H

#include <stdint.h>

#ifdef WEIR_NVTX
/* what: a string that stays; number: shown beside it (a group's). */
void weir_trace_begin(const char *what, uint64_t number);
void weir_trace_end(void);
#else
static inline void weir_trace_begin(const char *what, uint64_t number) {
  (void)what;
  (void)number;
}
static inline void weir_trace_end(void) {}
#endif

#endif

/* What the tool that stands for a profiler writes down; read by the test through dlsym. */
#ifndef WEIR_TESTS_NVTX_LOG_H
#define WEIR_TESTS_NVTX_LOG_H

#include <stdatomic.h>
#include <stdint.h>

#define NVTX_LOG_MOST 4096

typedef struct nvtx_event {
  char what[16];   /* of a range; "" for an end without a begin */
  char inside[16]; /* the range around it, "" for none */
  uint64_t number, inside_number;
} nvtx_event;

typedef struct nvtx_log {
  char domain[16];
  atomic_int begun, ended; /* ranges, of all threads */
  nvtx_event begin[NVTX_LOG_MOST];
  atomic_int stray; /* ends without a begin in their thread, and events of other domains */
} nvtx_log;

#endif

/* A library that stands for NCCL and CUDA in tests: ranks are threads of one process, memory "on
 * the device" is ordinary memory that it remembers, and a stream is a list of things to do, of
 * which some are done whenever somebody asks whether it is empty.  Nothing blocks, and nothing
 * happens by itself. */
#ifndef WEIR_TESTS_MOCK_H
#define WEIR_TESTS_MOCK_H

#include <stddef.h>

/* Found by dlsym in the library, by these names. */
typedef struct mock_controls {
  /* Of the calling thread. */
  int *devices;     /* how many it sees; 4 */
  int *fail_init;   /* an ncclResult_t that its next communicator comes to; 0: none */
  int *fail_groups; /* its communicators come to this instead of carrying anything; 0: none */
  /* Of all threads, since the library was loaded. */
  size_t (*allocations)(void); /* cudaMalloc */
  size_t (*living)(void);      /* memory, streams and communicators not given back */
  size_t (*would_block)(void); /* calls that with CUDA wait for the stream to be empty */
  size_t (*carried)(void);     /* bytes of messages */
} mock_controls;

#endif

/* A library that stands for NCCL and CUDA in tests: ranks are threads of one process, memory "on
 * the device" is ordinary memory that it remembers, and a stream is a list of things to do, of
 * which some are done whenever somebody asks whether it is empty.  Nothing blocks, and nothing
 * happens by itself. */
#ifndef WEIR_TESTS_MOCK_H
#define WEIR_TESTS_MOCK_H

#include <stddef.h>

/* As NCCL numbers its algorithms; its own choice here is one of which the tuner knows nothing. */
enum { MOCK_TREE = 0, MOCK_RING = 1, MOCK_OWN = 5, MOCK_RAN = 64 };

/* Found by dlsym in the library, by these names. */
typedef struct mock_controls {
  /* Of the calling thread. */
  int *devices;       /* how many it sees; 4 */
  int *fail_init;     /* an ncclResult_t that its next communicator comes to; 0: none */
  int *fail_groups;   /* its communicators come to this instead of carrying anything; 0: none */
  const char **tuner; /* its communicators' plugin; NULL: the one that NCCL_TUNER_PLUGIN names */
  int *lacks;         /* an algorithm that is not on offer; -1: none */
  int *ran;           /* by what each of its all-reduces ran: MOCK_TREE, MOCK_RING, MOCK_OWN */
  size_t *sums;       /* how many; MOCK_RAN of them are told */
  /* Of all threads, since the library was loaded. */
  size_t (*allocations)(void); /* cudaMalloc */
  size_t (*living)(void);      /* memory, streams and communicators not given back */
  size_t (*would_block)(void); /* calls that with CUDA wait for the stream to be empty */
  size_t (*carried)(void);     /* bytes of messages */
} mock_controls;

/* What the plugin that stands for Weir's does for a thread (mock_tuner.c), by
 * mock_answers_of_thread(). */
typedef struct mock_answers {
  int answer;    /* weir_nccl_answer to a switch */
  size_t come;   /* a communicator counts as so many */
  unsigned asks; /* and an all-reduce as so many */
} mock_answers;

#endif

/* Inside of the library that stands for NCCL and CUDA. */
#ifndef WEIR_TESTS_MOCK_STATE_H
#define WEIR_TESTS_MOCK_STATE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "mock.h"
#include "mock_ask.h"

#define RANKS 16

typedef enum kind { COPY, POINT_TO_POINT, ALL_REDUCE } kind;

typedef struct message {
  bool send, posted, done;
  int peer;
  const unsigned char *from;
  unsigned char *to;
  size_t bytes;
  struct message *next;  /* in its operation */
  struct message *later; /* posted to the same receiver by the same sender */
} message;

typedef struct operation {
  kind kind;
  struct ncclComm *comm;
  message *messages;     /* of a group */
  unsigned char *staged; /* a copy's source, when CUDA would have read it */
  const void *from;
  void *to;
  size_t bytes; /* or floats of an all-reduce */
  unsigned turn;
  int algorithm;
  bool posted;
  struct operation *next;
} operation;

struct CUstream_st {
  operation *first;
};

typedef struct sum {
  unsigned turn;
  int algorithm;
  int came, left;
  size_t count;
  float *part[RANKS], *total;
} sum;

typedef struct world {
  ncclUniqueId id;
  int size, joined, users;
  message *box[RANKS][RANKS]; /* from, to */
  sum sums[4];                /* by turn */
  struct world *next;
} world;

struct ncclComm {
  world *world;
  int rank;
  unsigned turn;
  ncclResult_t state, fault;
  bool starting;
  mock_tuner_use tuner;
};

/* All that threads share is under this lock. */
extern pthread_mutex_t mock_lock;
extern size_t mock_alive; /* memory, streams, communicators */
extern size_t mock_carried_bytes;
extern _Thread_local int mock_fail_init, mock_fail_groups, mock_ran[MOCK_RAN];
extern _Thread_local int mock_lacks;
extern _Thread_local const char *mock_tuner;
extern _Thread_local size_t mock_sums;

/* With the lock held.  Does the next part of an operation of NCCL's; is it over? */
bool mock_move(operation *op);
void mock_append(cudaStream_t stream, operation *op);
void mock_free_operation(operation *op);

#endif

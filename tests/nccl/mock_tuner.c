/* A tuner plugin that answers what a test wants: each thread is a process of its own to it. */
#include <weir/nccl_tuner.h>

#include "mock.h"
#include "nccl/interface.h"

static _Thread_local mock_answers told = {.answer = WEIR_NCCL_TAKEN, .come = 1, .asks = 1};
static _Thread_local size_t communicators;
static _Thread_local uint64_t asked;

#define EXPORTED __attribute__((visibility("default")))
EXPORTED mock_answers *mock_answers_of_thread(void);
EXPORTED extern const nccl_tuner_v5 ncclTunerPlugin_v5;

mock_answers *mock_answers_of_thread(void) { return &told; }

static nccl_result open_it(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                           nccl_logger logger, void *domains, void *constants) {
  (void)communicator;
  (void)ranks;
  (void)nodes;
  (void)logger;
  (void)domains;
  (void)constants;
  *context = NULL;
  communicators += told.come;
  return NCCL_OK;
}

static nccl_result get(void *context, nccl_function function, size_t bytes, int operations,
                       float **table, int algorithms, int protocols, int registered,
                       int *channels) {
  (void)context;
  (void)function;
  (void)bytes;
  (void)operations;
  (void)table;
  (void)algorithms;
  (void)protocols;
  (void)registered;
  (void)channels;
  asked += told.asks;
  return NCCL_OK;
}

static nccl_result close_it(void *context) {
  (void)context;
  return NCCL_OK;
}

const nccl_tuner_v5 ncclTunerPlugin_v5 = {"mock", open_it, get, close_it};

EXPORTED size_t weir_nccl_tuner_communicators(void) { return communicators; }
EXPORTED uint64_t weir_nccl_tuner_asked(size_t communicator) {
  (void)communicator;
  return asked;
}
EXPORTED uint64_t weir_nccl_tuner_not_offered(size_t communicator) {
  (void)communicator;
  return 0;
}
EXPORTED weir_nccl_answer weir_nccl_tuner_switch(size_t communicator, const weir_nccl_rule *rule) {
  (void)communicator;
  (void)rule;
  return told.answer;
}

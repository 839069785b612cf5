/* What NCCL looks for: one structure for each version of its tuner interface.  Every function
 * returns success: an error would fail the collective, and a communicator without a tuner is only
 * slower. */
#include "nccl/state.h"

/* Below so many bytes a message is all latency: the protocol of few bytes and no barrier.  Version
 * 2 wants both to be chosen; LL128 is not on offer everywhere. */
#define LL_MOST ((size_t)64 * 1024)

static nccl_result open_any(void **context, size_t ranks, size_t nodes) {
  if (context) *context = tuner_open(ranks, nodes);
  return NCCL_OK;
}

static nccl_result open_v2(size_t ranks, size_t nodes, nccl_logger logger, void **context) {
  (void)logger;
  return open_any(context, ranks, nodes);
}

static nccl_result open_v5(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                           nccl_logger logger, void *domains, void *constants) {
  (void)communicator;
  (void)logger;
  (void)domains;
  (void)constants;
  return open_any(context, ranks, nodes);
}

static nccl_result close_any(void *context) {
  tuner_close(context);
  return NCCL_OK;
}

static nccl_result get_table(void *context, nccl_function function, size_t bytes, float **table,
                             int algorithms, int protocols) {
  tuner_communicator *c = context;
  if (!c || function != NCCL_FUNCTION_ALLREDUCE) return NCCL_OK;
  const weir_nccl_rule rule = tuner_next(c);
  const tuner_table t = {(float *)(void *)table, algorithms, protocols};
  if (table && algorithms > NCCL_RING && protocols > 0)
    tuner_fill(&rule, c->ranks, c->nodes, bytes, &t);
  return NCCL_OK;
}

static nccl_result get_v2(void *context, nccl_function function, size_t bytes, int collnet,
                          int nvls, int operations, int *algorithm, int *protocol, int *channels) {
  tuner_communicator *c = context;
  (void)collnet;
  (void)nvls;
  (void)operations;
  (void)channels;
  if (!c || function != NCCL_FUNCTION_ALLREDUCE) return NCCL_OK;
  const weir_nccl_rule rule = tuner_next(c);
  const int choice = tuner_choose(&rule, c->ranks, c->nodes, bytes);
  if (choice < 0 || !algorithm || !protocol) return NCCL_OK;
  *algorithm = choice;
  *protocol = bytes <= LL_MOST ? NCCL_LL : NCCL_SIMPLE;
  return NCCL_OK;
}

static nccl_result get_v3(void *context, nccl_function function, size_t bytes, int operations,
                          float **table, int algorithms, int protocols, int *channels) {
  (void)operations;
  (void)channels;
  return get_table(context, function, bytes, table, algorithms, protocols);
}

static nccl_result get_v4(void *context, nccl_function function, size_t bytes, int operations,
                          float **table, int algorithms, int protocols, int registered,
                          int *channels) {
  (void)registered;
  return get_v3(context, function, bytes, operations, table, algorithms, protocols, channels);
}

#define EXPORTED __attribute__((visibility("default"))) extern
EXPORTED const nccl_tuner_v2 ncclTunerPlugin_v2;
EXPORTED const nccl_tuner_v3 ncclTunerPlugin_v3;
EXPORTED const nccl_tuner_v4 ncclTunerPlugin_v4;
EXPORTED const nccl_tuner_v5 ncclTunerPlugin_v5;
const nccl_tuner_v2 ncclTunerPlugin_v2 = {"Weir", open_v2, get_v2, close_any};
const nccl_tuner_v3 ncclTunerPlugin_v3 = {"Weir", open_v2, get_v3, close_any};
const nccl_tuner_v4 ncclTunerPlugin_v4 = {"Weir", open_v2, get_v4, close_any};
const nccl_tuner_v5 ncclTunerPlugin_v5 = {"Weir", open_v5, get_v4, close_any};

/* How a library that stands for NCCL loads the tuner plugin of a communicator, and asks it. */
#ifndef WEIR_TESTS_MOCK_ASK_H
#define WEIR_TESTS_MOCK_ASK_H

#include <dlfcn.h>
#include <stdlib.h>

#include "mock.h"
#include "nccl/interface.h"

typedef struct mock_tuner_use {
  void *plugin, *context; /* NULL: none */
  const nccl_tuner_v5 *functions;
} mock_tuner_use;

/* file NULL: the one that NCCL_TUNER_PLUGIN names. */
static inline mock_tuner_use mock_open_tuner(const char *file, int ranks) {
  mock_tuner_use use = {NULL, NULL, NULL};
  if (!file) file = getenv("NCCL_TUNER_PLUGIN");
  use.plugin = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (use.plugin) use.functions = dlsym(use.plugin, "ncclTunerPlugin_v5");
  if (use.functions)
    (void)use.functions->init(&use.context, 0x1234, (size_t)ranks, (size_t)ranks, NULL, NULL, NULL);
  return use;
}

static inline void mock_close_tuner(const mock_tuner_use *use) {
  if (use->functions) (void)use->functions->finalize(use->context);
  if (use->plugin) (void)dlclose(use->plugin);
}

/* The algorithm of an all-reduce, of which this one is not on offer: that of the smallest cost
 * which is not negative, as NCCL decides. */
static inline int mock_choose(const mock_tuner_use *use, int lacks, size_t bytes) {
  float cost[NCCL_ALGORITHMS][NCCL_PROTOCOLS];
  int best = MOCK_OWN, channels = 0;
  for (int a = 0; a < NCCL_ALGORITHMS; a++)
    for (int p = 0; p < NCCL_PROTOCOLS; p++)
      cost[a][p] = a == lacks                          ? -1.0f
                   : a == MOCK_OWN                     ? 30.0f
                   : a <= NCCL_RING && p != NCCL_LL128 ? 40.0f
                                                       : -1.0f;
  if (use->functions)
    (void)use->functions->get(use->context, NCCL_FUNCTION_ALLREDUCE, bytes, 1,
                              (float **)(void *)cost, NCCL_ALGORITHMS, NCCL_PROTOCOLS, 0,
                              &channels);
  float least = cost[MOCK_OWN][0];
  for (int a = 0; a < NCCL_ALGORITHMS; a++)
    for (int p = 0; p < NCCL_PROTOCOLS; p++)
      if (cost[a][p] >= 0.0f && cost[a][p] < least) {
        least = cost[a][p];
        best = a;
      }
  return best;
}

#endif

/* libweir-nccl-tuner.so: NCCL's ring and tree all-reduce, switched from call to call.
 *
 * Run with NCCL_TUNER_PLUGIN=/path/to/libweir-nccl-tuner.so and without NCCL_ALGO; `weir train
 * --transport nccl` does so by itself.  NCCL then loads the plugin into the process.  Sessions over
 * transport nccl switch their own communicator by their plans (native-ring, native-tree), which is
 * nobody else's to switch.  A trainer reaches these functions by dlopen(..., RTLD_NOLOAD) and
 * dlsym(), or by linking the library.  Until a rule is given, NCCL chooses as it would without the
 * plugin.
 *
 * All ranks must choose alike, or the collective hangs.  So a rule takes effect from a numbered
 * all-reduce on, and all ranks give the same rule with the same number.  They must derive the
 * number from something they agree on (a plan that begins at step t begins at all-reduce t * a when
 * a step has a of them), never from when they happen to call.  NCCL asks once for all all-reduces
 * of one size in a group, and a captured graph keeps the choice it was captured with.
 *
 * Threads: any thread may call these functions, one at a time for each communicator. */
#ifndef WEIR_NCCL_TUNER_H
#define WEIR_NCCL_TUNER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum weir_nccl_choice {
  WEIR_NCCL_OWN = 0,     /* NCCL's own choice */
  WEIR_NCCL_RING = 1,    /* ring, where NCCL offers it */
  WEIR_NCCL_TREE = 2,    /* double binary tree, where NCCL offers it */
  WEIR_NCCL_CHEAPEST = 3 /* the cheaper of the two by latency_s and byte_s, decided for each size */
} weir_nccl_choice;

typedef struct weir_nccl_rule {
  uint64_t from;    /* the first all-reduce of the communicator it applies to, from 0 */
  uint32_t choice;  /* weir_nccl_choice */
  double latency_s; /* alpha: one-way latency between machines, or between the ranks of a single
                       machine; for CHEAPEST only */
  double byte_s;    /* beta: seconds per byte, 1/bandwidth; for CHEAPEST only */
} weir_nccl_rule;

typedef enum weir_nccl_answer {
  WEIR_NCCL_TAKEN = 0,   /* it will take effect at rule->from */
  WEIR_NCCL_INVALID = 1, /* no such communicator, or a field is out of its range */
  WEIR_NCCL_LATE = 2,    /* NCCL has asked for that all-reduce already: nothing has changed */
  WEIR_NCCL_BUSY = 3     /* the rule before has not taken effect yet: nothing has changed */
} weir_nccl_answer;

/* Communicators are counted from 0 in the order in which this process created them. */
size_t weir_nccl_tuner_communicators(void);
/* How many all-reduces NCCL has asked for so far; 0 when there is no such communicator. */
uint64_t weir_nccl_tuner_asked(size_t communicator);
/* How many of these NCCL chose for itself, as it did not offer the algorithm that the rule in force
 * names. */
uint64_t weir_nccl_tuner_not_offered(size_t communicator);
/* Set a communicator's next rule. */
weir_nccl_answer weir_nccl_tuner_switch(size_t communicator, const weir_nccl_rule *rule);
/* Set the rule that communicators created after this call begin with, from their first all-reduce;
 * rule->from is not used. */
weir_nccl_answer weir_nccl_tuner_begin_with(const weir_nccl_rule *rule);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

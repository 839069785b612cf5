/* NCCL's tuner plugin interface, as its documentation describes it, versions 2 to 5: NCCL loads the
 * library that NCCL_TUNER_PLUGIN names, looks for ncclTunerPlugin_v5, _v4, _v3, _v2, and asks the
 * first it finds before every collective.  Written here so that the plugin needs no header of
 * NCCL's; layout.c compares with those where they are. */
#ifndef WEIR_NCCL_INTERFACE_H
#define WEIR_NCCL_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

typedef int nccl_result; /* an enumeration there; 0 is ncclSuccess */
enum { NCCL_OK = 0 };

typedef int nccl_function; /* an enumeration there */
enum { NCCL_FUNCTION_ALLREDUCE = 4 };

enum { NCCL_TREE = 0, NCCL_RING = 1, NCCL_ALGORITHMS = 7 };
enum { NCCL_LL = 0, NCCL_LL128 = 1, NCCL_SIMPLE = 2, NCCL_PROTOCOLS = 3 };

typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line,
                            const char *format, ...);

/* Instead of a table, version 2 wants the choice itself. */
typedef struct nccl_tuner_v2 {
  const char *name;
  nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger logger, void **context);
  nccl_result (*get)(void *context, nccl_function function, size_t bytes, int collnet, int nvls,
                     int operations, int *algorithm, int *protocol, int *channels);
  nccl_result (*destroy)(void *context);
} nccl_tuner_v2;

/* table is float[algorithms][protocols], in microseconds, passed under another type; negative
 * entries are not available, and the smallest of the others is taken. */
typedef struct nccl_tuner_v3 {
  const char *name;
  nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger logger, void **context);
  nccl_result (*get)(void *context, nccl_function function, size_t bytes, int operations,
                     float **table, int algorithms, int protocols, int *channels);
  nccl_result (*destroy)(void *context);
} nccl_tuner_v3;

typedef struct nccl_tuner_v4 {
  const char *name;
  nccl_result (*init)(size_t ranks, size_t nodes, nccl_logger logger, void **context);
  nccl_result (*get)(void *context, nccl_function function, size_t bytes, int operations,
                     float **table, int algorithms, int protocols, int registered, int *channels);
  nccl_result (*destroy)(void *context);
} nccl_tuner_v4;

/* domains and constants are structures of NCCL's that Weir neither reads nor changes. */
typedef struct nccl_tuner_v5 {
  const char *name;
  nccl_result (*init)(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                      nccl_logger logger, void *domains, void *constants);
  nccl_result (*get)(void *context, nccl_function function, size_t bytes, int operations,
                     float **table, int algorithms, int protocols, int registered, int *channels);
  nccl_result (*finalize)(void *context);
} nccl_tuner_v5;

#endif

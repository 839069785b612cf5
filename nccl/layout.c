/* Checks that nccl/interface.h agrees with NCCL's own headers.  Compiled where CMake finds nccl.h,
 * never linked; with WEIR_NCCL_TUNER_HEADERS, the folder src/include/plugin of NCCL's sources, the
 * layouts of the plugin's structures are compared too (no package has those headers). */
#include <nccl.h>
#include <stddef.h>

#include "nccl/interface.h"

_Static_assert(sizeof(ncclResult_t) == sizeof(nccl_result) && (int)ncclSuccess == (int)NCCL_OK,
               "results");

#ifdef WEIR_NCCL_TUNER_HEADERS
/* From NCCL's nccl_common.h, which is C++. */
typedef int ncclFunc_t;
typedef nccl_logger ncclDebugLogger_t;

#include <tuner/tuner_v2.h>
#include <tuner/tuner_v3.h>
#include <tuner/tuner_v4.h>
#include <tuner/tuner_v5.h>

#define SAME(version, own, theirs)                                                          \
  _Static_assert(                                                                           \
      offsetof(nccl_tuner_v##version, own) == offsetof(ncclTuner_v##version##_t, theirs) && \
          sizeof(nccl_tuner_v##version) == sizeof(ncclTuner_v##version##_t),                \
      #own " of version " #version)
SAME(2, name, name);
SAME(2, init, init);
SAME(2, get, getCollInfo);
SAME(2, destroy, destroy);
SAME(3, name, name);
SAME(3, init, init);
SAME(3, get, getCollInfo);
SAME(3, destroy, destroy);
SAME(4, name, name);
SAME(4, init, init);
SAME(4, get, getCollInfo);
SAME(4, destroy, destroy);
SAME(5, name, name);
SAME(5, init, init);
SAME(5, get, getCollInfo);
SAME(5, finalize, finalize);

_Static_assert(NCCL_NUM_ALGORITHMS_V5 == NCCL_ALGORITHMS && NCCL_NUM_PROTOCOLS_V5 == NCCL_PROTOCOLS,
               "the table");
#endif

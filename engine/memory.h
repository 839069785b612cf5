/* What plans take of memory beyond the caller's gradients. */
#ifndef WEIR_ENGINE_MEMORY_H
#define WEIR_ENGINE_MEMORY_H

#include "base/ways.h"
#include "collectives/cost.h"

/* A bucket's lists and messages. */
typedef struct weir_bucket_room {
  size_t indices, values, errors;
  size_t messages, stride; /* so many, of so many bytes each */
} weir_bucket_room;
/* kept as in weir_cost_plan. */
weir_bucket_room weir_bucket_room_of(const weir_plan *plan, weir_way way, int ranks, size_t n,
                                     size_t kept);

#endif

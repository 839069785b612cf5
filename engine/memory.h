/* What plans take of memory beyond the caller's gradients: for the engine, which makes room for it,
 * and for who chooses among plans under a limit (weir_options.memory_limit). */
#ifndef WEIR_ENGINE_MEMORY_H
#define WEIR_ENGINE_MEMORY_H

#include "base/schemes.h"
#include "collectives/cost.h"

/* Lists and messages of consecutive tensors that are exchanged together. */
typedef struct weir_bucket_room {
  size_t indices, values, errors;
  size_t messages, stride; /* so many, of so many bytes each */
} weir_bucket_room;
/* n elements; kept as in weir_cost_plan; hosts: as ranks where machines differ. */
weir_bucket_room weir_bucket_room_of(const weir_plan *plan, uint32_t scheme, weir_group_shape shape,
                                     size_t n, size_t kept);

/* In which group of ranks, and how, a plan is run. */
typedef struct weir_memory_form {
  int ranks, hosts;      /* hosts: as ranks where machines differ */
  int leaders;           /* where they do, machines: one rank of each sums up; 0: they do not */
  bool momentum;         /* momentum correction is on */
  bool without_feedback; /* without error feedback */
  bool trials;           /* it may be tried, with a checkpoint beside it */
  bool threads;          /* codecs have threads of their own */
  bool follows;          /* what elements usually are is followed under every plan */
  bool rooms_inside;     /* rooms are for each machine's ranks */
} weir_memory_form;

/* How plans are run in a group of that shape, which may grow to so many ranks (0: it does not),
 * one more machine each where there is one rank on each. */
weir_memory_form weir_memory_form_of(weir_group_shape shape, int most);

/* Bytes of a plan that exchanges all elements together: buffers of the gradient's length, lists and
 * messages, and what its collective and its codec work in.  Small things of a fixed size, and what
 * transports have, are not counted. */
double weir_plan_memory(const weir_plan *plan, const weir_memory_form *form, size_t elements,
                        size_t kept);

/* Bytes of a step's messages of a bucket, run by that scheme, that can stay in a room on a rank's
 * device (docs/internals/device.md), of which every bucket's begin as memory of a device does; 0:
 * none can.  inside: rooms are for each machine's ranks. */
size_t weir_bucket_stays(const weir_plan *plan, uint32_t scheme, weir_group_shape shape,
                         bool inside, size_t n, size_t kept);
/* Bytes from one message in a room to the next. */
size_t weir_room_stride(size_t bytes);
/* Bytes of a device that a room takes for two steps of so many; 0 of none. */
double weir_room_takes(size_t half);
/* The same of a plan that exchanges all elements together.  weir_plan_memory is without it: a room
 * that is large enough stays, whatever plan comes next. */
double weir_plan_room(const weir_plan *plan, const weir_memory_form *form, size_t elements,
                      size_t kept);

#endif

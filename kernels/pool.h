/* A few threads that take parts of a pass over memory; context.c owns none, its contexts borrow
 * one. */
#ifndef WEIR_KERNELS_POOL_H
#define WEIR_KERNELS_POOL_H

#include "kernels/codec.h"

/* Passes over fewer elements are not worth waking anybody. */
#define WEIR_SPLIT_LEAST ((size_t)1 << 18)

typedef void weir_part_fn(void *argument, size_t part);

/* work(argument, part) once for each part below parts, in any order and on any of the pool's
 * threads or the caller's; returns when all are done.  Parts must not depend on each other. Without
 * a pool, or while it works for somebody else, the caller does all of them.  Allocates nothing. */
void weir_pool_run(weir_pool *pool, weir_part_fn *work, void *argument, size_t parts);
/* Into how many parts a pass over n elements is cut: 1 without a pool or for few elements. */
size_t weir_pool_parts(const weir_pool *pool, size_t n);

#endif

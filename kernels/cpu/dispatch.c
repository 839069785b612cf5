/* Which version of the passes runs. */
#include <stdatomic.h>

#include "kernels/cpu/cpu.h"

static _Atomic(const weir_cpu_ops *) chosen;

static const weir_cpu_ops *best(void) {
  const weir_cpu_ops *ops = weir_cpu_avx512();
  if (ops == NULL) ops = weir_cpu_avx2();
  return ops != NULL ? ops : &weir_cpu_scalar;
}

const weir_cpu_ops *weir_cpu(void) {
  const weir_cpu_ops *ops = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (ops == NULL) {
    /* Two threads may both choose; they choose the same. */
    ops = best();
    atomic_store_explicit(&chosen, ops, memory_order_relaxed);
  }
  return ops;
}

void weir_cpu_force(const weir_cpu_ops *ops) {
  atomic_store_explicit(&chosen, ops, memory_order_relaxed);
}

#include "kernels/cpu/cpu.h"

const weir_cpu_ops *weir_cpu_avx2(void) {
  return NULL;
}

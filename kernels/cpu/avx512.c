#include "kernels/cpu/cpu.h"

const weir_cpu_ops *weir_cpu_avx512(void) {
  return NULL;
}

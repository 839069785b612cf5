/* A library that calls itself libweir_cuda's next version. */
#include "kernels/device.h"

const weir_device_ops *weir_device_library(void);

const weir_device_ops *weir_device_library(void) {
  static const weir_device_ops ops = {.version = WEIR_DEVICE_VERSION + 1, .bytes = sizeof ops};
  return &ops;
}

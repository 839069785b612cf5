/* Ranks with a device for tests: libweir_cuda, loaded as a session would load it, and memory of its
 * device.  On the processor it runs over tests/emulate, and in parity.device.* on a device. */
#ifndef WEIR_TESTS_DEVICE_H
#define WEIR_TESTS_DEVICE_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/device.h"

typedef struct test_device {
  const weir_device_ops *ops;
  int (*devices)(void);
  uint64_t (*allocated)(void);
  uint64_t (*held)(void); /* bytes of devices' memory in use; 0: nobody tells */
  void *(*memory)(size_t bytes);
  void (*forget)(void *memory);
  /* On the default stream; put may be done later, get is done at once. */
  void (*put)(void *to, const void *from, size_t bytes);
  void (*get)(void *to, const void *from, size_t bytes);
} test_device;

static inline void *test_device_load(const char *file) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  return library;
}

static inline void *test_device_symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "no %s: %s\n", name, dlerror());
    abort();
  }
  return found;
}

static inline test_device test_device_open(void) {
  test_device d;
  void *library = test_device_load(WEIR_CUDA_LIBRARY), *memory = test_device_load(WEIR_CUDA_MEMORY);
  weir_device_library_fn *get;
  *(void **)&get = test_device_symbol(library, WEIR_DEVICE_SYMBOL);
  *(void **)&d.devices = test_device_symbol(memory, "weir_test_devices");
  *(void **)&d.allocated = test_device_symbol(memory, "weir_test_allocated");
  *(void **)&d.held = test_device_symbol(memory, "weir_test_held");
  *(void **)&d.memory = test_device_symbol(memory, "weir_test_memory");
  *(void **)&d.forget = test_device_symbol(memory, "weir_test_forget");
  *(void **)&d.put = test_device_symbol(memory, "weir_test_put");
  *(void **)&d.get = test_device_symbol(memory, "weir_test_get");
  d.ops = get();
  return d;
}

#endif

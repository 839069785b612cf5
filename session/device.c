/* What a session's steps need of a CUDA device is loaded, not linked. */
#include <dlfcn.h>
#include <stdint.h>

#include "base/module.h"
#include "kernels/device.h"
#include "session/state.h"

/* --- the library ------------------------------------------------------------------------------ */

weir_status weir_session_load_device(weir_session *session) {
  static const weir_module cuda = {.needed = "steps on a device need",
                                   .file = "libweir_cuda.so.0",
                                   .variable = "WEIR_CUDA_LIBRARY",
                                   .symbol = WEIR_DEVICE_SYMBOL};
  char path[PATH_MAX];
  weir_device_library_fn *get = NULL;
  if (session->options.device < 0) return WEIR_OK;
  const weir_status status = weir_module_load(&cuda, (void **)&get, path);
  if (status != WEIR_OK) return status;
  const weir_device_ops *ops = get();
  if (ops == NULL || ops->version != WEIR_DEVICE_VERSION || ops->bytes != sizeof *ops)
    return weir_fail(WEIR_E_UNSUPPORTED, "%s is of another version of Weir than libweir", path);
  session->device_ops = ops;
  return WEIR_OK;
}

/* --- gradients that are on a device where the session is not ---------------------------------- */

/* From the driver's documentation: attributes of memory, and a kind of it. */
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, TYPE_DEVICE = 2 };

/* The driver, where the trainer has loaded it; without it there is no memory of a device. */
void weir_session_find_driver(weir_session *session) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  session->pointer_attribute = NULL;
  if (driver == NULL) return;
  *(void **)&session->pointer_attribute = dlsym(driver, "cuPointerGetAttribute");
  (void)dlclose(driver); /* the trainer's */
}

weir_status weir_session_check_host(const weir_session *session, const void *gradient) {
  unsigned type = 0, managed = 0;
  const unsigned long long at = (unsigned long long)(uintptr_t)gradient;
  if (session->pointer_attribute == NULL || session->device_ops != NULL) return WEIR_OK;
  if (session->pointer_attribute(&type, MEMORY_TYPE, at) != 0 || type != TYPE_DEVICE)
    return WEIR_OK;
  if (session->pointer_attribute(&managed, IS_MANAGED, at) == 0 && managed != 0) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID,
                   "the gradient at %p is memory of a CUDA device, and the session runs in host "
                   "memory; weir_options.device is for that",
                   gradient);
}

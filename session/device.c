/* What a session's steps need of a CUDA device is loaded, not linked. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "kernels/device.h"
#include "session/state.h"

/* --- the library ------------------------------------------------------------------------------ */

/* The name it is installed under; the environment's WEIR_CUDA_LIBRARY says another. */
#define LIBRARY "libweir_cuda.so.0"

static weir_status load(const char *file, const weir_device_ops **out) {
  /* Never closed: it holds the runtime of a device, which does not come back. */
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char *why = dlerror();
    return weir_fail(WEIR_E_UNSUPPORTED, "steps on a device need %s, which cannot be loaded: %s",
                     file, why != NULL ? why : "unknown error");
  }
  weir_device_library_fn *get = NULL;
  *(void **)&get = dlsym(library, WEIR_DEVICE_SYMBOL);
  if (get == NULL) return weir_fail(WEIR_E_UNSUPPORTED, "%s has no %s", file, WEIR_DEVICE_SYMBOL);
  const weir_device_ops *ops = get();
  if (ops == NULL || ops->version != WEIR_DEVICE_VERSION || ops->bytes != sizeof *ops)
    return weir_fail(WEIR_E_UNSUPPORTED, "%s is of another version of Weir than libweir", file);
  *out = ops;
  return WEIR_OK;
}

weir_status weir_session_load_device(weir_session *session) {
  if (session->options.device < 0) return WEIR_OK;
  const char *file = getenv("WEIR_CUDA_LIBRARY");
  return load(file != NULL && file[0] != 0 ? file : LIBRARY, &session->device_ops);
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

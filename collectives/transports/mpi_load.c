/* The MPI transport lies in a module, libweir_mpi, which is loaded when it is asked for: nothing
 * else needs an MPI library. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/installed.h"
#include "collectives/transports/mpi_module.h"

/* The environment's WEIR_MPI_LIBRARY says another. */
#define MODULE "libweir_mpi.so.0"

static weir_status load(const char *file, const weir_mpi_ops **out) {
  /* Never closed: MPI does not come back in a process that has let go of it. */
  void *module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (module == NULL) {
    const char *why = dlerror();
    return weir_fail(WEIR_E_UNSUPPORTED, "transport mpi needs %s, which cannot be loaded: %s", file,
                     why != NULL ? why : "unknown error");
  }
  weir_mpi_module_fn *get = NULL;
  *(void **)&get = dlsym(module, WEIR_MPI_MODULE_SYMBOL);
  if (get == NULL)
    return weir_fail(WEIR_E_UNSUPPORTED, "%s has no %s", file, WEIR_MPI_MODULE_SYMBOL);
  const weir_mpi_ops *ops = get(weir_fail);
  if (ops == NULL || ops->version != WEIR_MPI_MODULE_VERSION || ops->bytes != WEIR_MPI_MODULE_BYTES)
    return weir_fail(WEIR_E_UNSUPPORTED, "%s is of another version of Weir than libweir", file);
  *out = ops;
  return WEIR_OK;
}

static weir_status find_and_load(const weir_mpi_ops **out) {
  char path[PATH_MAX];
  const char *named = secure_getenv("WEIR_MPI_LIBRARY");
  if (named != NULL && named[0] != 0) return load(named, out);
  const bool there = weir_installed_find(WEIR_INSTALLED_MODULE, MODULE, path, sizeof path);
  return load(there ? path : MODULE, out);
}

static weir_status module(const weir_mpi_ops **out) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static const weir_mpi_ops *loaded;
  (void)pthread_mutex_lock(&lock);
  const weir_status status = loaded != NULL ? WEIR_OK : find_and_load(&loaded);
  *out = loaded;
  (void)pthread_mutex_unlock(&lock);
  return status;
}

bool weir_transport_has_mpi(void) {
  const weir_mpi_ops *ops;
  return module(&ops) == WEIR_OK;
}

weir_status weir_transport_mpi(weir_transport **out, uint64_t job_id, int rank, int size,
                               double timeout_s) {
  const weir_mpi_ops *ops;
  *out = NULL;
  const weir_status status = module(&ops);
  return status == WEIR_OK ? ops->open(out, job_id, rank, size, timeout_s) : status;
}

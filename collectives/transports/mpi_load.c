/* The MPI transport lies in a module, libweir_mpi, which is loaded when it is asked for: nothing
 * else needs an MPI library. */
#include <pthread.h>

#include "base/base.h"
#include "base/module.h"
#include "collectives/transports/mpi_module.h"

static weir_status load(const weir_mpi_ops **out) {
  static const weir_module mpi = {.needed = "transport mpi needs",
                                  .file = "libweir_mpi.so.0",
                                  .variable = "WEIR_MPI_LIBRARY",
                                  .symbol = WEIR_MPI_MODULE_SYMBOL};
  char path[PATH_MAX];
  weir_mpi_module_fn *get = NULL;
  const weir_status status = weir_module_load(&mpi, (void **)&get, path);
  if (status != WEIR_OK) return status;
  const weir_mpi_ops *ops = get(weir_fail);
  if (ops == NULL || ops->version != WEIR_MPI_MODULE_VERSION || ops->bytes != WEIR_MPI_MODULE_BYTES)
    return weir_fail(WEIR_E_UNSUPPORTED, "%s is of another version of Weir than libweir", path);
  *out = ops;
  return WEIR_OK;
}

static weir_status module(const weir_mpi_ops **out) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static const weir_mpi_ops *loaded;
  (void)pthread_mutex_lock(&lock);
  const weir_status status = loaded != NULL ? WEIR_OK : load(&loaded);
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

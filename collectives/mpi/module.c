/* The module's side of collectives/transports/mpi_module.h. */
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"
#include "collectives/mpi/mpi.h"
#include "collectives/transports/mpi_module.h"

static weir_fail_fn *host_fail;

/* What the module shares with libweir's transports is compiled into it again; their errors, too,
 * are to be read by libweir's weir_last_error(). */
weir_status weir_fail(weir_status status, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return host_fail(status, "%s", text);
}

__attribute__((visibility("default"))) weir_mpi_module_fn weir_mpi_module;
const weir_mpi_ops *weir_mpi_module(weir_fail_fn *fail) {
  static const weir_mpi_ops ops = {WEIR_MPI_MODULE_VERSION, WEIR_MPI_MODULE_BYTES, mpt_open};
  host_fail = fail;
  return &ops;
}

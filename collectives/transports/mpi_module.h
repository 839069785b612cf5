/* Between libweir and libweir_mpi, the module that holds the MPI transport: MPI is linked to the
 * module alone, which is loaded when a group asks for it. */
#ifndef WEIR_TRANSPORTS_MPI_MODULE_H
#define WEIR_TRANSPORTS_MPI_MODULE_H

#include "collectives/transport.h"

#define WEIR_MPI_MODULE_VERSION 1u
#define WEIR_MPI_MODULE_SYMBOL "weir_mpi_module"

/* How libweir records an error, for weir_last_error(). */
typedef weir_status weir_fail_fn(weir_status status, const char *format, ...);

typedef struct weir_mpi_ops {
  uint32_t version; /* WEIR_MPI_MODULE_VERSION, or nothing else of this may be looked at */
  uint32_t bytes;   /* of a weir_transport and its operations: both sides know the same ones */
  weir_status (*open)(weir_transport **out, uint64_t job_id, int rank, int size, double timeout_s);
} weir_mpi_ops;
#define WEIR_MPI_MODULE_BYTES ((uint32_t)(sizeof(weir_transport) + sizeof(weir_transport_ops)))

/* The module's one symbol. */
typedef const weir_mpi_ops *weir_mpi_module_fn(weir_fail_fn *fail);

#endif

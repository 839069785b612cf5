/* Modules of Weir's own, which are loaded only when they are asked for: what they need in turn,
 * such as MPI or CUDA, nobody else does. */
#ifndef WEIR_MODULE_H
#define WEIR_MODULE_H

#include <limits.h>
#include <weir/status.h>

typedef struct weir_module {
  const char *needed;   /* for the message, as in "transport mpi needs" */
  const char *file;     /* the name that it is installed under */
  const char *variable; /* of the environment: says another file, which is then the only one */
  const char *symbol;   /* the function that it shows */
} weir_module;

/* Look beside libweir, as for all that is installed with it (base/installed.h), then where the
 * system looks for libraries.  *function: what it shows; path[]: which file that is.  A module is
 * never closed again: what it brings with it does not come back in a process that has let go of it.
 * WEIR_E_UNSUPPORTED says which file cannot be loaded and why. */
weir_status weir_module_load(const weir_module *module, void **function, char path[PATH_MAX]);

#endif

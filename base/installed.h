/* Files that are installed with the library: modules that it loads, programs that it starts. */
#ifndef WEIR_INSTALLED_H
#define WEIR_INSTALLED_H

#include <stdbool.h>
#include <stddef.h>

typedef enum weir_installed_kind {
  WEIR_INSTALLED_MODULE, /* beside libweir, in the folder of libraries */
  WEIR_INSTALLED_PROGRAM /* libexec/weir */
} weir_installed_kind;

/* The absolute path of such a file, found from where this code itself lies: in libweir.so, or in a
 * program in bin or libexec/weir that the archive was linked into.  The build tree has the same
 * folders.  False when it is not there or path has not room for it. */
bool weir_installed_find(weir_installed_kind kind, const char *file, char *path, size_t room);

#endif

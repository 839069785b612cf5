#include "base/installed.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef WEIR_LIB_FROM_BIN
#error "the build says how folders of an installation lie to each other"
#endif

/* From the folder of libraries, from that of programs, and from libexec/weir. */
enum { FROM = 3 };
static const char *const folders[][FROM] = {
    [WEIR_INSTALLED_MODULE] = {".", WEIR_LIB_FROM_BIN, "../" WEIR_LIB_FROM_LIBEXEC},
    [WEIR_INSTALLED_PROGRAM] = {WEIR_LIBEXEC_FROM_LIB "/weir", WEIR_LIBEXEC_FROM_BIN "/weir", "."},
};

/* The folder of the file that this code was loaded from, without links.  A relative name would mean
 * another file once the process has changed its folder: it counts as unknown. */
static bool own_folder(char folder[PATH_MAX]) {
  static const char marker;
  struct link_map *map = NULL;
  Dl_info info;
  if (dladdr1(&marker, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL) return false;
  /* The program itself has no name there. */
  const char *file = map->l_name[0] != 0 ? map->l_name : "/proc/self/exe";
  if (file[0] != '/' || realpath(file, folder) == NULL) return false;
  char *slash = strrchr(folder, '/');
  if (slash == NULL) return false;
  *slash = 0;
  return true;
}

bool weir_installed_find(weir_installed_kind kind, const char *file, char *path, size_t room) {
  char folder[PATH_MAX];
  if (!own_folder(folder)) return false;
  for (size_t i = 0; i < FROM; i++) {
    const int length = snprintf(path, room, "%s/%s/%s", folder, folders[kind][i], file);
    if (length > 0 && (size_t)length < room && access(path, F_OK) == 0) return true;
  }
  return false;
}

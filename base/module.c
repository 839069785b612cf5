#include "base/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/installed.h"

static weir_status find(const weir_module *module, char path[PATH_MAX]) {
  const char *named = secure_getenv(module->variable);
  const char *file = named != NULL && named[0] != 0 ? named : module->file;
  if (file == module->file && weir_installed_find(WEIR_INSTALLED_MODULE, file, path, PATH_MAX))
    return WEIR_OK;
  if ((size_t)snprintf(path, PATH_MAX, "%s", file) < PATH_MAX) return WEIR_OK;
  return weir_fail(WEIR_E_UNSUPPORTED, "%s names a file of more than %d characters",
                   module->variable, PATH_MAX);
}

weir_status weir_module_load(const weir_module *module, void **function, char path[PATH_MAX]) {
  const weir_status status = find(module, path);
  if (status != WEIR_OK) return status;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char *why = dlerror();
    return weir_fail(WEIR_E_UNSUPPORTED, "%s %s, which cannot be loaded: %s", module->needed, path,
                     why != NULL ? why : "unknown error");
  }
  *function = dlsym(library, module->symbol);
  if (*function == NULL) return weir_fail(WEIR_E_UNSUPPORTED, "%s has no %s", path, module->symbol);
  return WEIR_OK;
}

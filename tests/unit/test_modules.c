/* Modules that cannot be loaded, or are something else: the error says which file and why. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/installed.h"
#include "base/module.h"
#include "collectives/transport.h"

static void expect_refused(const char *file, const char *why) {
  weir_transport *t = NULL;
  cr_assert_eq(setenv("WEIR_MPI_LIBRARY", file, 1), 0);
  cr_assert(!weir_transport_has_mpi());
  cr_assert_eq(weir_transport_mpi(&t, 1, 0, 1, 1.0), WEIR_E_UNSUPPORTED);
  cr_assert_null(t);
  cr_assert(strstr(weir_last_error(), file), "%s", weir_last_error());
  cr_assert(strstr(weir_last_error(), why), "%s", weir_last_error());
}

Test(modules, one_that_is_missing_is_named) {
  expect_refused("/nowhere/libweir_mpi.so", "No such file");
}

Test(modules, another_library_is_refused) { expect_refused("libm.so.6", "has no weir_mpi_module"); }

/* The file of the module's name that lies there is not a library at all. */
Test(modules, what_is_not_a_library_is_refused) { expect_refused("/etc/passwd", "invalid ELF"); }

/* A module is looked for beside this program first, whatever the system's own way to libraries. */
Test(modules, one_that_lies_beside_is_loaded) {
  char own[PATH_MAX], name[64], path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", own, sizeof own - sizeof name - 2);
  cr_assert_gt(length, 0);
  own[length] = 0;
  (void)snprintf(name, sizeof name, "weir_module_%d.so", (int)getpid());
  (void)snprintf(strrchr(own, '/') + 1, sizeof name, "%s", name);
  const weir_module module = {"this test needs", name, "WEIR_TEST_MODULE", "cos"};
  void *function = NULL;
  Dl_info info;
  (void)unsetenv("WEIR_TEST_MODULE");
  cr_assert_eq(weir_module_load(&module, &function, path), WEIR_E_UNSUPPORTED);
  cr_assert_str_eq(path, name, "none lies there: the system looks");
  double (*const mine)(double) = cos;
  void *known;
  memcpy(&known, &mine, sizeof known);
  cr_assert(dladdr(known, &info) != 0 && symlink(info.dli_fname, own) == 0);
  const weir_status status = weir_module_load(&module, &function, path);
  (void)unlink(own);
  cr_assert_eq(status, WEIR_OK, "%s", weir_last_error());
  cr_assert(path[0] == '/' && strstr(path, name), "%s", path);
  cr_assert_not_null(function);
}

Test(modules, what_the_environment_names_is_the_only_one) {
  const weir_module module = {"this test needs", "libm.so.6", "WEIR_TEST_MODULE", "cos"};
  void *function = NULL;
  char path[PATH_MAX];
  (void)setenv("WEIR_TEST_MODULE", "/nowhere/libm.so.6", 1);
  cr_assert_eq(weir_module_load(&module, &function, path), WEIR_E_UNSUPPORTED);
  cr_assert(strstr(weir_last_error(), "this test needs /nowhere/libm.so.6"), "%s",
            weir_last_error());
  (void)setenv("WEIR_TEST_MODULE", "", 1);
  cr_assert_eq(weir_module_load(&module, &function, path), WEIR_OK, "%s", weir_last_error());
}

Test(modules, nothing_is_found_that_is_not_there) {
  char path[256] = "as it was";
  cr_assert(!weir_installed_find(WEIR_INSTALLED_MODULE, "no-such-module.so", path, sizeof path));
  cr_assert(!weir_installed_find(WEIR_INSTALLED_PROGRAM, "no-such-program", path, sizeof path));
  cr_assert(!weir_installed_find(WEIR_INSTALLED_MODULE, "libweir.so", path, 2),
            "no room: what is cut off to \"/\" is there");
}

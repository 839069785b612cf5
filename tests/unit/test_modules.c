/* Modules that cannot be loaded, or are something else: the error says which file and why. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/installed.h"
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

Test(modules, nothing_is_found_that_is_not_there) {
  char path[256] = "as it was";
  cr_assert(!weir_installed_find(WEIR_INSTALLED_MODULE, "no-such-module.so", path, sizeof path));
  cr_assert(!weir_installed_find(WEIR_INSTALLED_PROGRAM, "no-such-program", path, sizeof path));
  cr_assert(!weir_installed_find(WEIR_INSTALLED_MODULE, "libweir.so", path, 2),
            "no room: what is cut off to \"/\" is there");
}

#include "lab/uml_kernel.h"

#if defined __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define VARIABLE "WEIR_UML_KERNEL"

/* By weir_uml_clock; the kernel's parameter, NULL: none. */
static const struct {
  const char *name, *parameter;
} clocks[] = {{"real", NULL}, {"skip-idle", "time-travel"}, {"free-cpu", "time-travel=inf-cpu"}};
enum { CLOCKS = sizeof clocks / sizeof *clocks };

bool weir_uml_clock_parse(const char *text, weir_uml_clock *clock) {
  for (int i = 0; text && i < CLOCKS; i++)
    if (!strcmp(text, clocks[i].name)) {
      *clock = (weir_uml_clock)i;
      return true;
    }
  return false;
}

const char *weir_uml_clock_name(weir_uml_clock clock) { return clocks[clock].name; }

const char *weir_uml_clock_parameter(weir_uml_clock clock) { return clocks[clock].parameter; }

/* A kernel's messages and help are in its file as they are. */
static bool contains(const char *bytes, size_t count, const char *text) {
  return memmem(bytes, count, text, strlen(text)) != NULL;
}

/* Kernels before 6.13 have room for 2696 bytes of a processor's registers, up to those of AVX-512;
 * where there are more, as with AMX, the first process of such a kernel ends by a signal.  The
 * kernel of scripts/uml-kernel.sh has room for more, and says so in its name. */
static bool registers_fit(const char *bytes, size_t count) {
  enum { ROOM = 2696, MAJOR = 6, MINOR = 13 };
  static const char banner[] = "Linux version ";
  unsigned size = 0, major = 0, minor = 0;
#if defined __x86_64__
  unsigned a, c, d;
  if (!__get_cpuid_count(0xd, 0, &a, &size, &c, &d)) size = 0;
#endif
  if (size <= ROOM || contains(bytes, count, "-weir-xstate")) return true;
  for (const char *at = bytes; at;) {
    at = memmem(at, count - (size_t)(at - bytes), banner, strlen(banner));
    if (!at) break;
    at += strlen(banner);
    char version[16] = "";
    const size_t left = count - (size_t)(at - bytes);
    memcpy(version, at, left < sizeof version - 1 ? left : sizeof version - 1);
    if (sscanf(version, "%3u.%3u", &major, &minor) == 2) break;
  }
  return major > MAJOR || (major == MAJOR && minor >= MINOR);
}

/* Is the file a kernel of User-Mode Linux, and does it know this clock and fit this processor?
 * Looks, runs nothing. */
static weir_status inspect(const char *path, weir_uml_clock clock) {
  struct stat info;
  weir_status status = WEIR_OK;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &info) || !S_ISREG(info.st_mode) || access(path, X_OK)) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return weir_fail(WEIR_E_UNSUPPORTED,
                     VARIABLE " is %s: %s; expected a kernel of User-Mode Linux", path,
                     fd < 0 ? strerror(error) : "not a program that can be run");
  }
  const size_t count = (size_t)info.st_size;
  char *bytes = count ? mmap(NULL, count, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  if (bytes == MAP_FAILED || memcmp(bytes, "\177ELF", count < 4 ? count : 4) != 0 ||
      !contains(bytes, count, "User Mode Linux"))
    status =
        weir_fail(WEIR_E_UNSUPPORTED,
                  VARIABLE " is %s; expected a kernel of User-Mode Linux, which it is not", path);
  else if (clocks[clock].parameter && !contains(bytes, count, "time-travel=inf-cpu"))
    status = weir_fail(WEIR_E_UNSUPPORTED,
                       "%s has no clock %s; expected a kernel with CONFIG_UML_TIME_TRAVEL_SUPPORT: "
                       "scripts/uml-kernel.sh builds one",
                       path, clocks[clock].name);
  else if (!registers_fit(bytes, count))
    status =
        weir_fail(WEIR_E_UNSUPPORTED,
                  "this processor has more registers (AMX) than %s can keep; expected " VARIABLE
                  " to name a kernel that can: scripts/uml-kernel.sh builds one, in minutes",
                  path);
  if (bytes != MAP_FAILED) (void)munmap(bytes, count);
  return status;
}

weir_status weir_uml_find_kernel(weir_uml_clock clock, char path[WEIR_UML_PATH], bool *modules) {
  const char *own = getenv(VARIABLE);
  *modules = !own || !*own;
  if (*modules && clocks[clock].parameter)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "linux.uml has no clock %s; expected " VARIABLE
                     " to name a kernel that has virtual time: scripts/uml-kernel.sh builds one",
                     clocks[clock].name);
  if (*modules) {
    if (weir_uml_find_program("linux.uml", path) == WEIR_OK) return inspect(path, clock);
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "User-Mode Linux (linux.uml, Debian package "
                     "user-mode-linux) is not installed");
  }
  if (own[0] != '/' || strlen(own) >= WEIR_UML_PATH)
    return weir_fail(WEIR_E_UNSUPPORTED,
                     VARIABLE " is %s; expected the whole path of a kernel of User-Mode Linux",
                     own);
  memcpy(path, own, strlen(own) + 1);
  return inspect(path, clock);
}

bool weir_uml_available(weir_uml_clock clock, char why[512]) {
  char path[WEIR_UML_PATH];
  bool modules;
  const char *reason = NULL;
  if (weir_uml_find_kernel(clock, path, &modules) != WEIR_OK)
    reason = weir_last_error();
  else if (weir_uml_find_program("busybox", path) != WEIR_OK)
    reason = "busybox (Debian package busybox-static) is not installed";
  else if (modules && access("/usr/lib/uml/modules", R_OK | X_OK))
    reason = "the modules of User-Mode Linux are not in /usr/lib/uml/modules";
  (void)snprintf(why, 512, "%s", reason ? reason : "");
  return !reason;
}

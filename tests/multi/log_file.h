/* A file that ranks log into, and what of it is counted. */
#ifndef WEIR_TESTS_LOG_FILE_H
#define WEIR_TESTS_LOG_FILE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline int count_lines(const char *path, const char *with) {
  char line[512];
  int count = 0;
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  while (fgets(line, sizeof line, file))
    if (strstr(line, with)) count++;
  (void)fclose(file);
  return count;
}

/* Has no name but that of a descriptor, so that nothing is left of it however a test ends. */
static inline void new_log(char path[64]) {
  (void)strcpy(path, "/tmp/weir-strangers-XXXXXX");
  const int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  cr_assert_eq(unlink(path), 0);
  (void)snprintf(path, 64, "/proc/%d/fd/%d", (int)getpid(), fd);
}

#endif

/* Files the planner's tests write and read back. */
#ifndef WEIR_TEST_PLAN_FILES_H
#define WEIR_TEST_PLAN_FILES_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void write_plan_file(char path[64], const char *text, size_t bytes) {
  strcpy(path, "/tmp/weir-plan-XXXXXX");
  const int file = mkstemp(path);
  cr_assert(file >= 0);
  cr_assert(write(file, text, bytes) == (ssize_t)bytes);
  close(file);
}

#endif

/* What the programs that mpirun starts for tests share: who this rank is, and how it says what is wrong. */
#ifndef WEIR_TESTS_MPI_CHECK_H
#define WEIR_TESTS_MPI_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/launch.h>
#include <weir/weir.h>

static weir_launch launch = {.struct_size = sizeof launch};

#define CHECK(condition, ...)                                                               \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "rank %d: %s:%d: %s: ", launch.rank, __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                                         \
      fprintf(stderr, " [%s]\n", weir_last_error());                                        \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

static inline bool said(const char *what) { return strstr(weir_last_error(), what) != NULL; }

#endif

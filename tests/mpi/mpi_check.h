/* What the programs that mpirun starts for tests share: who this rank is, and how it says what is
 * wrong. */
#ifndef WEIR_TESTS_MPI_CHECK_H
#define WEIR_TESTS_MPI_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/launch.h>
#include <weir/weir.h>

#include "collectives/transport.h"

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

/* Neighbouring ranks, so many of them, are of one machine, where they share memory or have NCCL
 * between them. */
static inline void join_machines(weir_transport **t, int per_machine, bool nccl) {
  int machine[16];
  char host[16];
  for (int r = 0; r < (*t)->size; r++) machine[r] = r / per_machine;
  (void)snprintf(host, sizeof host, "machine %d", machine[launch.rank]);
  (void)setenv("WEIR_HOST", host, 1);
  const weir_status status =
      nccl ? weir_transport_nccl(t, *t, true, 20) : weir_transport_share(*t, machine, 20);
  CHECK(status == WEIR_OK, "machines");
  const char *due = !nccl ? "shm+mpi" : per_machine < (*t)->size ? "nccl+mpi" : "nccl";
  CHECK(strcmp((*t)->ops->name, due) == 0, "%s", (*t)->ops->name);
}

#endif

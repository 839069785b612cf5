/* mpirun -n 4 mpi_session: a session over MPI.  Prints "rank R: ok", or what is wrong and exits
 * with 1. After a rank has left, the others are told which; going on without it takes more than
 * this MPI has, and is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/launch.h>
#include <weir/weir.h>

#define CHECK(condition, ...)                                                                \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      fprintf(stderr, "rank %d: mpi_session.c:%d: %s: ", launch.rank, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                                          \
      fprintf(stderr, " [%s]\n", weir_last_error());                                         \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)

static bool said(const char *what) { return strstr(weir_last_error(), what) != NULL; }

int main(void) {
  weir_options options;
  weir_session *session = NULL;
  weir_survivors left = {.struct_size = sizeof left};
  float g[50] = {0};
  weir_launch launch = {.struct_size = sizeof launch};
  (void)alarm(400);
  weir_options_init(&options);
  CHECK(weir_options_from_environment(&options, &launch) == WEIR_OK, "options");
  options.transport = "mpi";
  options.timeout_s = 3;
  options.policy = "fixed:none:1:native";
  options.active_probes = false;
  options.max_ranks = 4;
  CHECK(weir_session_create(&session, &options) == WEIR_E_UNSUPPORTED, "max_ranks");
  CHECK(said("transport \"mpi\" takes in no ranks once it has started"), "why");
  options.max_ranks = 0;
  CHECK(weir_session_create(&session, &options) == WEIR_OK, "create");
  CHECK(weir_register_tensor(session, "w", 50, NULL) == WEIR_OK, "register");
  CHECK(weir_session_start(session) == WEIR_OK, "start");
  for (int step = 0; step < 2; step++) {
    CHECK(weir_step_begin(session, NULL) == WEIR_OK, "step %d", step);
    for (int i = 0; i < 50; i++) g[i] = (float)(launch.rank + i);
    CHECK(weir_submit(session, 0, g) == WEIR_OK, "step %d", step);
    const weir_status status = weir_step_end(session, NULL);
    if (step == 1) {
      CHECK(status == WEIR_E_PEER || status == WEIR_E_TIMEOUT, "status %d", (int)status);
      CHECK(said("rank 1"), "who");
      break;
    }
    CHECK(status == WEIR_OK, "status %d", (int)status);
    for (int i = 0; i < 50; i++)
      CHECK(g[i] == 1.5f + (float)i, "element %d is %g", i, (double)g[i]);
    if (launch.rank == 1) break;
  }
  if (launch.rank != 1) {
    CHECK(weir_shrink(session, &left) == WEIR_E_UNSUPPORTED, "shrink");
    CHECK(said("transport mpi cannot go on without a rank"), "why");
    CHECK(weir_step_begin(session, NULL) != WEIR_OK, "a group that has ended goes on");
  }
  weir_session_free(session);
  printf("rank %d: ok\n", launch.rank);
  (void)fflush(stdout);
  (void)sleep(2); /* mpirun ends the others once a rank has ended without MPI_Finalize */
  return 0;
}

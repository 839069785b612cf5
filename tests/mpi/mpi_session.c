/* mpirun -n 4 mpi_session TRANSPORT: a session over mpi, shm+mpi or, on two machines, nccl+mpi.
 * Prints "rank R: ok", or what is wrong and exits with 1. After a rank has left, the others are
 * told which; going on without it takes more than this MPI has, and is refused. */
#include "mpi_check.h"

int main(int argc, char **argv) {
  char text[128];
  const char *name = NULL;
  weir_options options;
  weir_session *session = NULL;
  weir_survivors left = {.struct_size = sizeof left};
  float g[50] = {0};
  (void)alarm(400);
  CHECK(argc == 2, "usage");
  weir_options_init(&options);
  CHECK(weir_options_from_environment(&options, &launch) == WEIR_OK, "options");
  options.transport = argv[1];
  options.policy = "fixed:none:1:native";
  options.timeout_s = 3;
  if (strcmp(argv[1], "nccl+mpi") == 0) {
    (void)setenv("WEIR_HOST", launch.rank < 2 ? "one" : "other", 1);
    options.policy = "fixed:none:1:dense-hier-ring+native";
  }
  options.active_probes = false;
  options.max_ranks = 4;
  CHECK(weir_session_create(&session, &options) == WEIR_E_UNSUPPORTED, "max_ranks");
  (void)snprintf(text, sizeof text, "transport \"%s\" takes in no ranks once it has started",
                 argv[1]);
  CHECK(said(text), "why");
  options.max_ranks = 0;
  CHECK(weir_session_create(&session, &options) == WEIR_OK, "create");
  CHECK(weir_register_tensor(session, "w", 50, NULL) == WEIR_OK, "register");
  CHECK(weir_session_start(session) == WEIR_OK, "start");
  CHECK(weir_current_transport(session, &name) == WEIR_OK && strcmp(name, argv[1]) == 0, "name");
  for (int step = 0; step < 2; step++) {
    CHECK(weir_step_begin(session, NULL) == WEIR_OK, "step %d", step);
    for (int i = 0; i < 50; i++) g[i] = (float)(launch.rank + i);
    CHECK(weir_submit(session, 0, g) == WEIR_OK, "step %d", step);
    const weir_status status = weir_step_end(session, NULL);
    /* Who is still in the first step when rank 1, which has all of it, leaves may lose that one. */
    if (step == 1 || (status != WEIR_OK && launch.rank != 1)) {
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
    (void)snprintf(text, sizeof text, "transport %s cannot go on without a rank", argv[1]);
    CHECK(said(text), "why");
    CHECK(weir_step_begin(session, NULL) != WEIR_OK, "a group that has ended goes on");
  }
  weir_session_free(session);
  printf("rank %d: ok\n", launch.rank);
  (void)fflush(stdout);
  /* mpirun ends the others once a rank has ended without MPI_Finalize: longer than the time-out
   * after which the last of them has found out. */
  (void)sleep(10);
  return 0;
}

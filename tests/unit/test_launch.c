/* What launchers' environments are read as, and which are refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/launch.h>

#include "collectives/transport.h"
#include "session/launch_values.h"

/* The environment is these pairs, ended by NULL, and nothing else. */
static void only(const char *const *pairs) {
  cr_assert_eq(clearenv(), 0);
  for (; *pairs; pairs += 2) cr_assert_eq(setenv(pairs[0], pairs[1], 1), 0);
}
#define ENVIRONMENT(...) only((const char *const[]){__VA_ARGS__, NULL})

static weir_launch read_well(void) {
  weir_launch l = {.struct_size = sizeof l};
  cr_assert_eq(weir_launch_read(&l), WEIR_OK, "%s", weir_last_error());
  return l;
}

/* Refused with this status, naming this; what was there before stays. */
static void refused(weir_status status, const char *named) {
  weir_launch l = {.struct_size = sizeof l, .launcher = "before", .rank = 77};
  cr_assert_eq(weir_launch_read(&l), status, "%s: %d", named, (int)status);
  cr_assert(strstr(weir_last_error(), named) != NULL, "%s is not in: %s", named, weir_last_error());
  cr_assert_str_eq(l.launcher, "before");
  cr_assert_eq(l.rank, 77);
}

static void is(const weir_launch *l, const char *launcher, int rank, int size, int local_rank,
               int local_size) {
  cr_assert_str_eq(l->launcher, launcher);
  cr_assert_eq(l->rank, rank);
  cr_assert_eq(l->world_size, size);
  cr_assert_eq(l->local_rank, local_rank, "%d", l->local_rank);
  cr_assert_eq(l->local_size, local_size, "%d", l->local_size);
}

Test(launch, nobody_started_it) {
  only((const char *const[]){NULL});
  weir_launch l = read_well();
  is(&l, "none", 0, 1, 0, 1);
  cr_assert_str_eq(l.rendezvous, "");
  cr_assert_eq(l.job_id, 0);
  cr_assert_eq(weir_launch_read(NULL), WEIR_E_INVALID);
}

/* --- each launcher ---------------------------------------------------------------------------- */

Test(launch, torchrun) {
  ENVIRONMENT("RANK", "5", "WORLD_SIZE", "8", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "4",
              "MASTER_ADDR", "10.1.2.3", "MASTER_PORT", "29500", "TORCHELASTIC_RUN_ID", "abc");
  weir_launch l = read_well();
  is(&l, "torchrun", 5, 8, 1, 4);
  cr_assert_str_eq(l.rendezvous, "10.1.2.3:29501"); /* 29500 is PyTorch's own */
  cr_assert_neq(l.job_id, 0);
  const uint64_t job = l.job_id;
  cr_assert_eq(setenv("RANK", "6", 1), 0);
  cr_assert_eq(read_well().job_id, job);
  cr_assert_eq(setenv("TORCHELASTIC_RESTART_COUNT", "1", 1), 0); /* those of before stay outside */
  cr_assert_neq(read_well().job_id, job);
}

Test(launch, torchrun_style_by_hand) {
  ENVIRONMENT("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "node-a.example.org", "MASTER_PORT",
              "65535");
  weir_launch l = read_well();
  is(&l, "torchrun", 0, 2, -1, -1);
  cr_assert_str_eq(l.rendezvous, "node-a.example.org:65534");
}

Test(launch, mpirun) {
  ENVIRONMENT("OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4",
              "OMPI_COMM_WORLD_LOCAL_RANK", "3", "OMPI_COMM_WORLD_LOCAL_SIZE", "4",
              "OMPI_MCA_ess_base_jobid", "1019412481");
  weir_launch l = read_well();
  is(&l, "mpirun", 3, 4, 3, 4);
  int port = 0;
  cr_assert_eq(sscanf(l.rendezvous, "127.0.0.1:%d", &port), 1, "%s", l.rendezvous);
  cr_assert(port >= 20000 && port < 32000, "%d", port);
  /* Over several machines nobody knows where rank 0 is. */
  cr_assert_eq(setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1), 0);
  cr_assert_eq(setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1), 0);
  cr_assert_str_eq(read_well().rendezvous, "");
}

Test(launch, slurm) {
  ENVIRONMENT("SLURM_PROCID", "9", "SLURM_NTASKS", "16", "SLURM_LOCALID", "1", "SLURM_JOB_ID",
              "4711", "SLURM_STEP_ID", "0", "SLURM_JOB_NODELIST", "gpu[07-09,12],login1");
  weir_launch l = read_well();
  is(&l, "slurm", 9, 16, 1, -1);
  cr_assert(strncmp(l.rendezvous, "gpu07:", 6) == 0, "%s", l.rendezvous);
  /* A step of fewer tasks than the job, on other nodes. */
  cr_assert_eq(setenv("SLURM_STEP_NUM_TASKS", "10", 1), 0);
  cr_assert_eq(setenv("SLURM_STEP_NODELIST", "gpu12", 1), 0);
  l = read_well();
  is(&l, "slurm", 9, 10, 1, -1);
  cr_assert(strncmp(l.rendezvous, "gpu12:", 6) == 0, "%s", l.rendezvous);
  const uint64_t job = l.job_id;
  cr_assert_eq(setenv("SLURM_STEP_ID", "1", 1), 0); /* the next srun of the same allocation */
  cr_assert_neq(read_well().job_id, job);
  cr_assert_eq(setenv("MASTER_ADDR", "10.0.0.9", 1), 0);
  cr_assert_eq(setenv("MASTER_PORT", "4000", 1), 0);
  cr_assert_str_eq(read_well().rendezvous, "10.0.0.9:4001");
}

/* Ranks of a run that was started again do not meet those of before. */
Test(launch, each_start_is_a_job_of_its_own) {
  static const char *const told[][3] = {
      {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
      {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"}};
  for (size_t i = 0; i < 2; i++)
    for (int k = 0; k < 3; k++) {
      ENVIRONMENT(i == 0 ? "SLURM_PROCID" : "RANK", "0", i == 0 ? "SLURM_NTASKS" : "WORLD_SIZE",
                  "2", "MASTER_ADDR", "10.1.2.3", "MASTER_PORT", "29500");
      for (int name = 0; name < 3; name++) cr_assert_eq(setenv(told[i][name], "29500", 1), 0);
      const uint64_t job = read_well().job_id;
      cr_assert_eq(setenv(told[i][k], "29501", 1), 0);
      cr_assert_neq(read_well().job_id, job, "%s", told[i][k]);
    }
}

Test(launch, a_slurm_shell_is_no_task) {
  ENVIRONMENT("SLURM_NTASKS", "16", "SLURM_JOB_ID", "4711");
  cr_assert_str_eq(read_well().launcher, "none");
}

Test(launch, pmi) {
  ENVIRONMENT("PMI_RANK", "1", "PMI_SIZE", "3", "MPI_LOCALRANKID", "1", "MPI_LOCALNRANKS", "3");
  weir_launch l = read_well();
  is(&l, "pmi", 1, 3, 1, 3);
  cr_assert_str_eq(l.rendezvous, "127.0.0.1:20000"); /* no job is told */
}

/* --- several at once -------------------------------------------------------------------------- */

/* srun starts one torchrun a node, which starts the ranks. */
Test(launch, torchrun_under_slurm) {
  ENVIRONMENT("RANK", "5", "WORLD_SIZE", "8", "MASTER_ADDR", "a", "MASTER_PORT", "1",
              "TORCHELASTIC_RUN_ID", "none", "SLURM_PROCID", "1", "SLURM_NTASKS", "2");
  weir_launch l = read_well();
  is(&l, "torchrun", 5, 8, -1, -1);
}

/* mpirun inside of a Slurm allocation: srun started its daemons, one a node. */
Test(launch, mpirun_under_slurm) {
  ENVIRONMENT("OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4", "SLURM_PROCID", "1",
              "SLURM_NTASKS", "2");
  weir_launch l = read_well();
  is(&l, "mpirun", 3, 4, -1, -1);
}

Test(launch, the_same_said_twice) {
  ENVIRONMENT("RANK", "3", "WORLD_SIZE", "4", "MASTER_ADDR", "h", "OMPI_COMM_WORLD_RANK", "3",
              "OMPI_COMM_WORLD_SIZE", "4");
  weir_launch l = read_well();
  is(&l, "torchrun", 3, 4, -1, -1);
  cr_assert_eq(setenv("RANK", "2", 1), 0);
  refused(WEIR_E_INVALID, "OMPI_COMM_WORLD_RANK");
  cr_assert_eq(setenv("RANK", "3", 1), 0);
  cr_assert_eq(setenv("OMPI_COMM_WORLD_SIZE", "5", 1), 0);
  refused(WEIR_E_INVALID, "WORLD_SIZE");
}

/* A RANK that somebody left in the environment is not half a launcher. */
Test(launch, a_stray_rank_does_not_disturb_mpirun) {
  ENVIRONMENT("RANK", "7", "OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2");
  weir_launch l = read_well();
  is(&l, "mpirun", 1, 2, -1, -1);
}

/* --- refused ---------------------------------------------------------------------------------- */

Test(launch, half_a_launcher) {
  ENVIRONMENT("RANK", "0");
  refused(WEIR_E_INVALID, "WORLD_SIZE is not");
  ENVIRONMENT("WORLD_SIZE", "4");
  refused(WEIR_E_INVALID, "RANK is not");
  ENVIRONMENT("OMPI_COMM_WORLD_SIZE", "4");
  refused(WEIR_E_INVALID, "OMPI_COMM_WORLD_RANK is not");
  ENVIRONMENT("SLURM_PROCID", "4");
  refused(WEIR_E_INVALID, "SLURM_STEP_NUM_TASKS is not");
  ENVIRONMENT("PMI_RANK", "4");
  refused(WEIR_E_INVALID, "PMI_SIZE is not");
  ENVIRONMENT("RANK", "0", "WORLD_SIZE", "2");
  refused(WEIR_E_INVALID, "MASTER_ADDR is not set");
  /* Empty is not set. */
  ENVIRONMENT("RANK", "0", "WORLD_SIZE", "");
  refused(WEIR_E_INVALID, "WORLD_SIZE is not");
}

Test(launch, numbers_that_are_none) {
  static const char *const wrong[] = {
      "-1",  "+1",        " 1", "1 ", "1.0", "0x1", "one", "4", "99999999999999999999",
      "1\n", "4294967297"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ENVIRONMENT("RANK", wrong[i], "WORLD_SIZE", "4", "MASTER_ADDR", "h");
    refused(WEIR_E_PARSE, "RANK is \"");
    ENVIRONMENT("OMPI_COMM_WORLD_RANK", wrong[i], "OMPI_COMM_WORLD_SIZE", "4");
    refused(WEIR_E_PARSE, "OMPI_COMM_WORLD_RANK is \"");
  }
  static const char *const sizes[] = {"0", "4097", "-4", "four"};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    ENVIRONMENT("SLURM_PROCID", "0", "SLURM_NTASKS", sizes[i]);
    refused(WEIR_E_PARSE, "SLURM_NTASKS is \"");
  }
}

Test(launch, local_ranks_that_cannot_be) {
  ENVIRONMENT("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "4",
              "OMPI_COMM_WORLD_LOCAL_RANK", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  refused(WEIR_E_PARSE, "OMPI_COMM_WORLD_LOCAL_RANK");
  ENVIRONMENT("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "4",
              "OMPI_COMM_WORLD_LOCAL_SIZE", "5");
  refused(WEIR_E_PARSE, "OMPI_COMM_WORLD_LOCAL_SIZE");
}

Test(launch, places_that_are_none) {
  static const char *const ports[] = {"0", "65536", "http", "-1", "80:80"};
  for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
    ENVIRONMENT("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", ports[i]);
    refused(WEIR_E_PARSE, "MASTER_PORT");
  }
  static const char *const hosts[] = {"a b", "-x", "h;reboot", "::1", ".", "h\x01"};
  for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
    ENVIRONMENT("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", hosts[i], "MASTER_PORT", "1");
    refused(WEIR_E_PARSE, "MASTER_ADDR");
  }
  static const char *const meetings[] = {"h", "h:", ":1", "h:0", "h:65536", "h:1x", "h h:1"};
  for (size_t i = 0; i < sizeof meetings / sizeof *meetings; i++) {
    ENVIRONMENT("WEIR_RENDEZVOUS", meetings[i], "PMI_RANK", "0", "PMI_SIZE", "2");
    refused(WEIR_E_PARSE, "WEIR_RENDEZVOUS");
  }
  char endless[4096];
  memset(endless, 'h', sizeof endless - 1);
  endless[sizeof endless - 1] = '\0';
  ENVIRONMENT("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", endless);
  refused(WEIR_E_PARSE, "MASTER_ADDR");
  cr_assert_lt(strlen(weir_last_error()), 200);
}

Test(launch, what_is_shown_of_a_bad_value_is_harmless) {
  ENVIRONMENT("RANK", "\x1b[2J\n7", "WORLD_SIZE", "8", "MASTER_ADDR", "h");
  refused(WEIR_E_PARSE, "RANK is \"?[2J?7\"");
}

/* --- node lists ------------------------------------------------------------------------------- */

Test(launch, first_nodes) {
  static const struct {
    const char *list, *first;
  } good[] = {{"node1", "node1"},
              {"node[1-4]", "node1"},
              {"node[003,007-9]", "node003"},
              {"a,b[1-2]", "a"},
              {"b[10],a", "b10"},
              {"rack[2-3]n[05-06]", "rack2n05"},
              {"n[1-2].example.org", "n1.example.org"}};
  static const char *const bad[] = {"node[1-4", "node[]", "node[a-b]", "[1]x y",
                                    ",b",       "[",      "n[1;2]"};
  char host[64];
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    ENVIRONMENT("LIST", good[i].list);
    cr_assert_eq(weir_env_first_node("LIST", host, sizeof host), WEIR_OK, "%s", weir_last_error());
    cr_assert_str_eq(host, good[i].first);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ENVIRONMENT("LIST", bad[i]);
    cr_assert_eq(weir_env_first_node("LIST", host, sizeof host), WEIR_E_PARSE, "%s", bad[i]);
  }
  ENVIRONMENT("LIST", "node[0000000000000000000000000000000000000001-2]");
  char small[16];
  cr_assert_eq(weir_env_first_node("LIST", small, sizeof small), WEIR_E_PARSE);
}

/* --- options ---------------------------------------------------------------------------------- */

Test(launch, options_are_filled_in) {
  ENVIRONMENT("RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "10.0.0.1", "MASTER_PORT", "29500");
  weir_options options;
  weir_launch l = {.struct_size = sizeof l};
  weir_options_init(&options);
  cr_assert_eq(weir_options_from_environment(&options, &l), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(options.rank, 1);
  cr_assert_eq(options.world_size, 2);
  cr_assert_str_eq(options.rendezvous, "10.0.0.1:29501");
  cr_assert_str_eq(options.transport, "tcp");
  cr_assert_eq(options.job_id, l.job_id);
  /* What the caller has set stays. */
  weir_options_init(&options);
  options.rendezvous = "10.0.0.2:7";
  options.job_id = 5;
  cr_assert_eq(weir_options_from_environment(&options, &l), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(options.rendezvous, "10.0.0.2:7");
  cr_assert_eq(options.job_id, 5);
  cr_assert_eq(weir_options_from_environment(NULL, &l), WEIR_E_INVALID);
  cr_assert_eq(weir_options_from_environment(&options, NULL), WEIR_E_INVALID);
}

Test(launch, the_transport_follows_from_the_launcher) {
  weir_options options;
  weir_launch l = {.struct_size = sizeof l};
  ENVIRONMENT("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2",
              "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  weir_options_init(&options);
  options.transport = "auto";
  cr_assert_eq(weir_options_from_environment(&options, &l), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(options.transport, weir_transport_has_mpi() ? "shm+mpi" : "auto");
  ENVIRONMENT("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h");
  weir_options_init(&options);
  options.transport = "auto";
  cr_assert_eq(weir_options_from_environment(&options, &l), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(options.transport, "auto");
}

Test(launch, tcp_must_be_told_where_rank_0_is) {
  weir_options options;
  weir_launch l = {.struct_size = sizeof l};
  ENVIRONMENT("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2",
              "OMPI_COMM_WORLD_LOCAL_SIZE", "1");
  weir_options_init(&options);
  cr_assert_eq(weir_options_from_environment(&options, &l), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "WEIR_RENDEZVOUS") != NULL, "%s", weir_last_error());
  cr_assert_eq(setenv("WEIR_RENDEZVOUS", "node1:7700", 1), 0);
  weir_options_init(&options);
  cr_assert_eq(weir_options_from_environment(&options, &l), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(options.rendezvous, "node1:7700");
}

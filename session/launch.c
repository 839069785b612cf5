/* What launchers say.  Nothing of the environment is trusted: every value is checked, and two
 * launchers that contradict each other are an error, not a guess. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/launch.h>

#include "base/base.h"
#include "base/log.h"
#include "collectives/transport.h"
#include "session/abi.h"
#include "session/launch_values.h"
#include "session/state.h"

#define RANKS_MOST 4096
/* Ports that the kernel does not hand out to others. */
#define PORT_FIRST 20000
#define PORT_COUNT 12000

typedef struct source {
  const char *launcher;
  const char *rank, *size, *whole_size; /* whole_size counts where size is not set */
  const char *local_rank, *local_size;
} source;

enum { TORCHRUN, MPIRUN, SLURM, PMI, SOURCES };
static const source sources[SOURCES] = {
    {"torchrun", "RANK", "WORLD_SIZE", NULL, "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_LOCALID", NULL},
    {"pmi", "PMI_RANK", "PMI_SIZE", NULL, "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

/* --- rank and size ---------------------------------------------------------------------------- */

static const char *size_name(const source *s) {
  if (weir_env(s->size) != NULL || s->whole_size == NULL) return s->size;
  return s->whole_size;
}

static bool is_there(const source *s) {
  return weir_env(s->rank) != NULL && weir_env(size_name(s)) != NULL;
}

static weir_status read_source(const source *s, weir_launch *launch) {
  weir_status status = weir_env_number(size_name(s), 1, RANKS_MOST, &launch->world_size);
  if (status == WEIR_OK)
    status = weir_env_number(s->rank, 0, launch->world_size - 1, &launch->rank);
  if (status == WEIR_OK)
    status = weir_env_number_if_set(s->local_size, 1, launch->world_size, &launch->local_size);
  const int local = launch->local_size > 0 ? launch->local_size : launch->world_size;
  if (status == WEIR_OK)
    status = weir_env_number_if_set(s->local_rank, 0, local - 1, &launch->local_rank);
  launch->launcher = s->launcher;
  return status;
}

/* RANK and WORLD_SIZE are names that anybody may set.  When torchrun did, it may itself have been
 * started by another launcher, once a machine; otherwise both speak of the same processes. */
static weir_status compare(const weir_launch *launch, const source *other) {
  weir_launch theirs;
  if (weir_env("TORCHELASTIC_RUN_ID") != NULL) return WEIR_OK;
  const weir_status status = read_source(other, &theirs);
  if (status != WEIR_OK) return status;
  if (theirs.rank == launch->rank && theirs.world_size == launch->world_size) return WEIR_OK;
  return weir_fail(
      WEIR_E_INVALID,
      "RANK and WORLD_SIZE say rank %d of %d, but %s and %s say rank %d of %d; unset the "
      "pair that does not hold",
      launch->rank, launch->world_size, other->rank, size_name(other), theirs.rank,
      theirs.world_size);
}

/* *found is SOURCES when there is none. */
static weir_status find(weir_launch *launch, int *found) {
  weir_status status = WEIR_OK;
  *found = 0;
  while (*found < SOURCES && !is_there(&sources[*found])) (*found)++;
  if (*found == SOURCES) {
    for (int i = 0; i < SOURCES; i++) {
      const source *s = &sources[i];
      if (weir_env(s->rank) != NULL)
        return weir_fail(WEIR_E_INVALID, "%s is set, but %s is not", s->rank, s->size);
      /* Slurm tells the number of tasks to what is not a task, too. */
      if (weir_env(s->size) != NULL && i != SLURM)
        return weir_fail(WEIR_E_INVALID, "%s is set, but %s is not", s->size, s->rank);
    }
    return WEIR_OK;
  }
  status = read_source(&sources[*found], launch);
  for (int i = *found + 1; *found == TORCHRUN && i < SOURCES && status == WEIR_OK; i++)
    if (is_there(&sources[i])) status = compare(launch, &sources[i]);
  return status;
}

/* --- job and meeting place -------------------------------------------------------------------- */

static void name_job(weir_launch *launch, int found) {
  static const char *const names[SOURCES][3] = {
      {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"},
      {"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE"},
      {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
      {"PMI_JOBID", "PMI_KVS", NULL},
  };
  uint64_t hash = WEIR_HASH_INIT;
  bool told = false;
  for (int i = 0; i < 3; i++) {
    const char *value = names[found][i] != NULL ? weir_env(names[found][i]) : NULL;
    if (value == NULL) continue;
    hash = weir_hash(hash, value, strlen(value) + 1);
    told = true;
  }
  launch->job_id = told ? hash : 0;
}

static void place(weir_launch *launch, const char *host, int port) {
  (void)snprintf(launch->rendezvous, sizeof launch->rendezvous, "%s:%d", host, port);
}

static int job_port(const weir_launch *launch) {
  return PORT_FIRST + (int)(launch->job_id % PORT_COUNT);
}

/* WEIR_RENDEZVOUS or MASTER_ADDR; *told is false when there is neither. */
static weir_status place_told(weir_launch *launch, bool *told) {
  const char *own = weir_env("WEIR_RENDEZVOUS"), *master = weir_env("MASTER_ADDR");
  int port = 0;
  *told = own != NULL || master != NULL;
  if (own != NULL) {
    const char *colon = strrchr(own, ':');
    const size_t digits = colon != NULL ? strlen(colon + 1) : 0;
    const long number = digits >= 1 && digits <= 5 && strspn(colon + 1, "0123456789") == digits
                            ? strtol(colon + 1, NULL, 10)
                            : 0;
    if (number < 1 || number > 65535 || !weir_is_host(own, (size_t)(colon - own)))
      return weir_env_fail("WEIR_RENDEZVOUS", "HOST:PORT");
    (void)snprintf(launch->rendezvous, sizeof launch->rendezvous, "%s", own);
    return WEIR_OK;
  }
  if (master == NULL) return WEIR_OK;
  if (!weir_is_host(master, strlen(master)))
    return weir_env_fail("MASTER_ADDR", "a host name or an IPv4 address");
  if (weir_env("MASTER_PORT") == NULL) {
    place(launch, master, job_port(launch));
    return WEIR_OK;
  }
  const weir_status status = weir_env_number("MASTER_PORT", 1, 65535, &port);
  if (status == WEIR_OK) place(launch, master, port < 65535 ? port + 1 : port - 1);
  return status;
}

static weir_status find_place(weir_launch *launch, int found) {
  static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                      "SLURM_NODELIST"};
  char host[WEIR_RENDEZVOUS_MAX - 8];
  bool told = false;
  weir_status status = place_told(launch, &told);
  if (status != WEIR_OK || told) return status;
  if (found == TORCHRUN && launch->world_size > 1)
    return weir_env_fail("MASTER_ADDR", "the host of rank 0 beside RANK and WORLD_SIZE");
  if (found == SLURM)
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
      if (weir_env(lists[i]) == NULL) continue;
      status = weir_env_first_node(lists[i], host, sizeof host);
      if (status == WEIR_OK) place(launch, host, job_port(launch));
      return status;
    }
  if ((found == MPIRUN || found == PMI) && launch->local_size == launch->world_size)
    place(launch, "127.0.0.1", job_port(launch));
  return WEIR_OK;
}

weir_status weir_launch_read(weir_launch *launch) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_launch, rendezvous);
  weir_launch l = {.launcher = "none", .world_size = 1, .local_size = 1};
  int found = SOURCES;
  if (launch == NULL) return weir_fail(WEIR_E_INVALID, "the pointer for the launch is NULL");
  weir_status status = weir_abi_check(&known, launch->struct_size);
  if (status == WEIR_OK) status = find(&l, &found);
  if (status == WEIR_OK && found < SOURCES) {
    name_job(&l, found);
    status = find_place(&l, found);
  }
  if (status == WEIR_OK) weir_abi_give(launch, &l);
  return status;
}

weir_status weir_options_from_environment(weir_options *options, weir_launch *launch) {
  weir_options current;
  weir_status status = weir_options_take(&current, options);
  if (status == WEIR_OK) status = weir_launch_read(launch);
  if (status != WEIR_OK) return status;
  const bool by_mpi = strcmp(launch->launcher, sources[MPIRUN].launcher) == 0;
  options->rank = launch->rank;
  options->world_size = launch->world_size;
  if (options->job_id == 0) options->job_id = launch->job_id;
  if (options->transport == NULL || strcmp(options->transport, "auto") == 0) {
    const bool has_mpi = by_mpi && weir_transport_has_mpi();
    options->transport = has_mpi ? "shm+mpi" : "auto";
    if (by_mpi && !has_mpi && options->rank == 0 && options->world_size > 1)
      weir_log(WEIR_LOG_WARN, "under mpirun, but messages go without MPI: %s", weir_last_error());
  }
  if (options->rendezvous == NULL && launch->rendezvous[0] != '\0')
    options->rendezvous = launch->rendezvous;
  if (options->world_size > 1 && options->rendezvous == NULL && !weir_options_over_mpi(options))
    return weir_fail(
        WEIR_E_INVALID,
        "%s does not tell where rank 0 is: set WEIR_RENDEZVOUS=HOST:PORT, or MASTER_ADDR "
        "and MASTER_PORT, for all ranks",
        launch->launcher);
  return WEIR_OK;
}

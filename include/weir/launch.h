/* Launch environments: what mpirun, srun, torchrun and other launchers tell the processes they
 * start.  Weir has no launcher of its own. */
#ifndef WEIR_LAUNCH_H
#define WEIR_LAUNCH_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Room for "HOST:PORT" with its terminating zero. */
#define WEIR_RENDEZVOUS_MAX 272

typedef struct weir_launch {
  const char *launcher; /* "torchrun", "mpirun", "slurm", "pmi"; "none": started by hand */
  int rank, world_size;
  int local_rank, local_size;           /* among the ranks of this machine; -1: not told */
  uint64_t job_id;                      /* the same on all ranks; 0: not told */
  char rendezvous[WEIR_RENDEZVOUS_MAX]; /* where rank 0 can listen; "": not told */
} weir_launch;

/* Read the environment.  Launchers in the order in which they are looked for, and the variables
 * they set (those in brackets may be missing); the first whose rank and size are both there counts:
 * - torchrun: RANK WORLD_SIZE [LOCAL_RANK LOCAL_WORLD_SIZE] MASTER_ADDR MASTER_PORT
 * - mpirun (Open MPI): OMPI_COMM_WORLD_RANK _SIZE [_LOCAL_RANK _LOCAL_SIZE]
 * - slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, [SLURM_LOCALID]
 *   SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, SLURM_JOB_ID [SLURM_STEP_ID]
 * - pmi (MPICH, Intel MPI, pmi2): PMI_RANK PMI_SIZE [MPI_LOCALRANKID MPI_LOCALNRANKS]
 *
 * RANK and WORLD_SIZE that do not come from torchrun itself
 * (TORCHELASTIC_RUN_ID) must agree with what another launcher says.  With no launcher: rank 0 of 1.
 *
 * Where rank 0 listens: WEIR_RENDEZVOUS ("HOST:PORT") if it is set; else MASTER_ADDR, at the port
 * above MASTER_PORT, which belongs to PyTorch's own store; else the first host of Slurm's node
 * list, or the loopback when mpirun started all ranks on this machine, at a port that follows from
 * the job.
 *
 * WEIR_E_PARSE when a variable is not of its form, WEIR_E_INVALID when variables contradict each
 * other or one is missing; weir_last_error() names it.  *launch is then unchanged. */
weir_status weir_launch_read(weir_launch *launch);

/* Fill rank, world_size, and, where they are not set yet (0, NULL), job_id and rendezvous from the
 * environment.  Transport "auto" becomes "mpi" when Open MPI's mpirun started this process and this
 * build has MPI.  options may point into *launch afterwards, which has to live until
 * weir_session_create returns.  WEIR_E_INVALID when several ranks, not over MPI, would have
 * nowhere to meet. */
weir_status weir_options_from_environment(weir_options *options, weir_launch *launch);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

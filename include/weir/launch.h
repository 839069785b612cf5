/* Launch environments: what mpirun, srun, torchrun and other launchers tell the processes they
 * start.  Weir has no launcher of its own.  The functions read the environment: call them while no
 * other thread changes it. */
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
  size_t struct_size;   /* set it to sizeof(weir_launch); it stays */
  const char *launcher; /* "torchrun", "mpirun", "slurm", "pmi"; "none": started by hand */
  int rank, world_size;
  int local_rank, local_size;           /* among the ranks of this machine; -1: unknown */
  uint64_t job_id;                      /* the same on all ranks; 0: unknown */
  char rendezvous[WEIR_RENDEZVOUS_MAX]; /* where rank 0 can listen; "": unknown */
} weir_launch;

/* Read the environment.  Launchers are looked for in this order; the first whose rank and size are
 * both set counts.  These are their variables (those in brackets may be missing):
 * - torchrun: RANK WORLD_SIZE [LOCAL_RANK LOCAL_WORLD_SIZE] MASTER_ADDR MASTER_PORT
 * - mpirun (Open MPI): OMPI_COMM_WORLD_RANK _SIZE [_LOCAL_RANK _LOCAL_SIZE]
 * - slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, [SLURM_LOCALID]
 *   SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, SLURM_JOB_ID [SLURM_STEP_ID]
 * - pmi (MPICH, Intel MPI, pmi2): PMI_RANK PMI_SIZE [MPI_LOCALRANKID MPI_LOCALNRANKS]
 * With no launcher: rank 0 of 1.  RANK and WORLD_SIZE that do not come from torchrun itself
 * (TORCHELASTIC_RUN_ID is not set) must agree with what another launcher says.
 *
 * Where rank 0 listens: at WEIR_RENDEZVOUS ("HOST:PORT") if it is set; else at MASTER_ADDR, one
 * port above MASTER_PORT, which belongs to PyTorch's own store; else at the first host of Slurm's
 * node list, or on the loopback when mpirun started all ranks on this machine, at a port that
 * follows from the job.
 *
 * WEIR_E_PARSE when a variable is malformed, WEIR_E_INVALID when variables contradict each other or
 * one is missing; weir_last_error() names it.  *launch is then unchanged. */
weir_status weir_launch_read(weir_launch *launch);

/* Fill in rank and world_size from the environment, and job_id and rendezvous where they are not
 * set yet (0, NULL).  Transport "auto" becomes "shm+mpi", which comes to "mpi" where no two ranks
 * share a host, when Open MPI's mpirun started this process and this build has MPI.  options may
 * point into *launch afterwards, so *launch must live until weir_session_create returns.  Errors
 * are those of weir_launch_read, and WEIR_E_INVALID when several ranks, not over MPI, would have
 * nowhere to meet. */
weir_status weir_options_from_environment(weir_options *options, weir_launch *launch);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

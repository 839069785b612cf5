/* Life of the MPI transport. */
#include "collectives/mpi/mpi.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/base.h"

#define FAREWELL_S 1.0

static void mpt_abort(weir_transport *t, int culprit) {
  mpt *self = (mpt *)t;
  mpt_tell_all(self, MPT_ABORT, WEIR_E_PEER, culprit);
  if (self->ended.reason == WEIR_OK) self->ended = (weir_end){WEIR_E_PEER, culprit, t->rank};
}

static void mpt_take_memory(weir_transport *t, weir_machine_memory *shared) {
  mpt *self = (mpt *)t;
  self->shared = *shared;
  *shared = (weir_machine_memory){0};
  self->ops = *t->ops;
  self->ops.name = "shm+mpi";
  t->ops = &self->ops;
}

/* MPI may still read from the stages of sends that could not be cancelled, and still knows the
 * communicator: they stay, reachable, until the process ends. */
typedef struct leftover {
  struct leftover *next;
  mpt *transport;
} leftover;
static leftover *leftovers;
static pthread_mutex_t leftovers_lock = PTHREAD_MUTEX_INITIALIZER;

static void leave_behind(mpt *self) {
  leftover *entry = malloc(sizeof *entry);
  mpt_do_not_finalise();
  if (!entry) return;
  (void)pthread_mutex_lock(&leftovers_lock);
  *entry = (leftover){leftovers, self};
  leftovers = entry;
  (void)pthread_mutex_unlock(&leftovers_lock);
}

static void release(mpt *self) {
  free(self->scratch);
  free(self->stage);
  free(self->message);
  free(self->status);
  free(self->index);
  free(self->request);
  free(self->active);
  free(self->progress);
  free(self->peer);
  free(self);
}

/* With nothing under way. */
static void close_group(mpt *self) {
  (void)MPI_Type_free(&self->block);
  (void)MPI_Comm_free(&self->comm);
  release(self);
}

static void mpt_destroy(weir_transport *t) {
  mpt *self = (mpt *)t;
  if (!self) return;
  int over = 0;
  weir_machine_memory_close(&self->shared);
  if (MPI_Finalized(&over) != MPI_SUCCESS || over) {
    leave_behind(self); /* the trainer ended MPI first: nothing of it may be called */
    return;
  }
  const bool group_lives = self->ended.reason == WEIR_OK && !self->dirty;
  const bool all_left = mpt_farewell(self, weir_now_s() + (group_lives ? FAREWELL_S : 0.0));
  if (!group_lives || !all_left) {
    /* Messages to this communicator may be under way: its number must not be given to another. */
    leave_behind(self);
    return;
  }
  (void)MPI_Cancel(&self->request[0]);
  (void)MPI_Request_free(&self->request[0]);
  close_group(self);
}

static const weir_transport_ops mpt_ops = {
    .name = "mpi",
    .transfer = mpt_transfer,
    .echo = NULL,
    .abort = mpt_abort,
    .destroy = mpt_destroy,
    .allreduce = mpt_allreduce,
    .take_memory = mpt_take_memory,
    .watch = &mpt_watch_ops,
};

/* --- joining --------------------------------------------------------------------------------- */

/* What all ranks must agree on, exchanged when a group forms. */
typedef struct mpt_hello {
  uint64_t magic, version, job, size;
} mpt_hello;

static weir_status late(const char *doing, double timeout_s) {
  mpt_do_not_finalise();
  return weir_fail(WEIR_E_TIMEOUT, "a rank of the MPI job did not come %s (limit %g s)", doing,
                   timeout_s);
}

static weir_status compare(const mpt *self, const mpt_hello *all) {
  const mpt_hello *mine = &all[self->base.rank];
  for (int r = 0; r < self->base.size; r++) {
    if (all[r].magic != mine->magic || all[r].version != mine->version)
      return weir_fail(WEIR_E_MISMATCH, "rank %d runs another version of Weir", r);
    if (all[r].job != mine->job)
      return weir_fail(WEIR_E_MISMATCH, "rank %d is of another job (%llu, not %llu)", r,
                       (unsigned long long)all[r].job, (unsigned long long)mine->job);
    if (all[r].size != mine->size)
      return weir_fail(WEIR_E_MISMATCH, "rank %d counts %llu ranks, not %llu", r,
                       (unsigned long long)all[r].size, (unsigned long long)mine->size);
  }
  return WEIR_OK;
}

static weir_status greet(mpt *self, uint64_t job, double timeout_s, double deadline_s) {
  const size_t size = (size_t)self->base.size, bytes = sizeof(mpt_hello);
  MPI_Request request = MPI_REQUEST_NULL;
  const weir_status status = mpt_scratch(self, (size + 1) * bytes);
  if (status != WEIR_OK) return status;
  mpt_hello *all = (mpt_hello *)(void *)self->scratch, *mine = &all[size];
  *mine = (mpt_hello){MPT_MAGIC, MPT_VERSION, job, size};
  const int code =
      MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, self->comm, &request);
  if (code != MPI_SUCCESS) return mpt_error(code, "to form a group");
  const weir_status waited = mpt_wait(&request, deadline_s, "to form a group");
  if (waited == WEIR_E_TIMEOUT) return late("to form a group", timeout_s);
  if (waited != WEIR_OK) return waited;
  self->joined = true;
  return compare(self, all);
}

static weir_status join(mpt *self, uint64_t job, double timeout_s, double deadline_s) {
  MPI_Request request = MPI_REQUEST_NULL;
  int rank = -1, size = -1;
  weir_status status = mpt_initialise(deadline_s);
  if (status != WEIR_OK) return status;
  if (MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS ||
      MPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS)
    return weir_fail(WEIR_E_INTERNAL, "MPI does not tell this process's rank");
  if (rank != self->base.rank || size != self->base.size)
    return weir_fail(WEIR_E_MISMATCH, "this is rank %d of %d to MPI, not rank %d of %d", rank, size,
                     self->base.rank, self->base.size);
  self->joining = true; /* from here on MPI may write to self */
  int code = MPI_Comm_idup(MPI_COMM_WORLD, &self->comm, &request);
  if (code != MPI_SUCCESS) return mpt_error(code, "to form a group");
  status = mpt_wait(&request, deadline_s, "to form a group");
  if (status == WEIR_E_TIMEOUT) return late("to form a group", timeout_s);
  if (status != WEIR_OK) return status;
  code = MPI_Comm_set_errhandler(self->comm, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Type_contiguous((int)MPT_BLOCK, MPI_BYTE, &self->block);
  if (code == MPI_SUCCESS) code = MPI_Type_commit(&self->block);
  if (code != MPI_SUCCESS) return mpt_error(code, "to form a group");
  status = greet(self, job, timeout_s, deadline_s);
  return status == WEIR_OK ? mpt_control_open(self) : status;
}

weir_status mpt_open(weir_transport **out, uint64_t job_id, int rank, int size, double timeout_s) {
  *out = NULL;
  weir_status status = weir_transport_check(rank, size, timeout_s);
  if (status != WEIR_OK) return status;
  mpt *self = calloc(1, sizeof *self);
  if (!self) return weir_fail(WEIR_E_NOMEM, "no memory for a transport");
  self->base = (weir_transport){.ops = &mpt_ops, .rank = rank, .size = size};
  self->comm = MPI_COMM_NULL;
  self->waiting_on = -1;
  self->peer = calloc((size_t)size, sizeof *self->peer);
  self->progress = calloc((size_t)size, sizeof *self->progress);
  self->active = calloc((size_t)size, sizeof *self->active);
  self->request = malloc(sizeof(MPI_Request));
  self->status = malloc(sizeof(MPI_Status));
  if (!self->peer || !self->progress || !self->active || !self->request || !self->status)
    status = weir_fail(WEIR_E_NOMEM, "no memory for a group of %d ranks", size);
  if (status == WEIR_OK) status = join(self, job_id, timeout_s, weir_now_s() + timeout_s);
  if (status != WEIR_OK) {
    if (self->joined) /* all have come, and are not one group */
      close_group(self);
    else if (self->joining)
      leave_behind(self);
    else
      release(self);
    return status;
  }
  *out = &self->base;
  return WEIR_OK;
}

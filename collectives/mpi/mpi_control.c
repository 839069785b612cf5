/* Over MPI: small messages beside the data, such as who is to blame for a failure.  The rank that
 * finds out first tells all others, so that a chain of ranks that wait for one another names the
 * one at its end and not a neighbour. */

#include "base/base.h"
#include "collectives/mpi/mpi.h"

#define ASK_ALL_S 0.6
#define TELL_S 0.05 /* for the last words to leave */

static weir_status listen(mpt *self) {
  const int code = MPI_Irecv(&self->in, (int)sizeof self->in, MPI_BYTE, MPI_ANY_SOURCE,
                             MPT_TAG_CONTROL, self->comm, &self->request[0]);
  return code == MPI_SUCCESS ? WEIR_OK : mpt_error(code, "to listen");
}

weir_status mpt_control_open(mpt *self) {
  for (int r = 0; r < self->base.size; r++)
    for (int k = 0; k < MPT_KINDS; k++) self->peer[r].out_request[k] = MPI_REQUEST_NULL;
  return listen(self);
}

void mpt_tell(mpt *self, int rank, mpt_kind kind, weir_status reason, int culprit) {
  mpt_peer *p = &self->peer[rank];
  int done = 0;
  if (rank == self->base.rank || (p->gone && kind != MPT_LEAVE)) return;
  /* One of a kind at a time; with the one before not even sent, this one says nothing new. */
  if (MPI_Test(&p->out_request[kind], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) return;
  p->out[kind] = (mpt_control){MPT_MAGIC, kind, reason, culprit};
  (void)MPI_Isend(&p->out[kind], (int)sizeof p->out[kind], MPI_BYTE, rank, MPT_TAG_CONTROL,
                  self->comm, &p->out_request[kind]);
}

void mpt_tell_all(mpt *self, mpt_kind kind, weir_status reason, int culprit) {
  for (int r = 0; r < self->base.size; r++) mpt_tell(self, r, kind, reason, culprit);
}

static bool is_rank(const mpt *self, int rank) { return rank >= 0 && rank < self->base.size; }

static void act(mpt *self, int from, const mpt_control *c) {
  mpt_peer *p = &self->peer[from];
  switch (c->kind) {
    case MPT_ASK: mpt_tell(self, from, MPT_REPLY, WEIR_OK, self->waiting_on); break;
    case MPT_REPLY:
      p->answered = true;
      p->waiting_on = is_rank(self, c->culprit) ? c->culprit : -1;
      break;
    case MPT_ABORT:
      if (self->ended.reason == WEIR_OK) /* who names nobody is lost itself */
        self->ended = (weir_end){c->reason == WEIR_OK ? WEIR_E_PEER : (weir_status)c->reason,
                                 is_rank(self, c->culprit) ? c->culprit : from, from};
      break;
    case MPT_LEAVE: p->gone = true; break;
    default: break; /* not of this version: nothing to act on */
  }
}

weir_status mpt_control_take(mpt *self) {
  int count = 0;
  const MPI_Status *status = &self->status[0];
  const int from = status->MPI_SOURCE;
  const mpt_control came = self->in;
  const bool whole = MPI_Get_count(status, MPI_BYTE, &count) == MPI_SUCCESS &&
                     (size_t)count == sizeof came && came.magic == MPT_MAGIC;
  const weir_status listening = listen(self);
  if (whole && is_rank(self, from) && from != self->base.rank) act(self, from, &came);
  return listening;
}

weir_status mpt_control_poll(mpt *self) {
  for (;;) {
    int done = 0;
    const int code = MPI_Test(&self->request[0], &done, &self->status[0]);
    if (code != MPI_SUCCESS) return mpt_error(code, "to listen");
    if (!done) return WEIR_OK;
    const weir_status status = mpt_control_take(self);
    if (status != WEIR_OK) return status;
  }
}

/* --- farewell -------------------------------------------------------------------------------- */

/* Are all of these words out? */
static bool is_sent(mpt *self, mpt_kind kind) {
  bool all = true;
  for (int r = 0; r < self->base.size; r++) {
    int done = 0;
    if (MPI_Test(&self->peer[r].out_request[kind], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
        !done)
      all = false;
  }
  return all;
}

bool mpt_farewell(mpt *self, double deadline_s) {
  mpt_pause pause = {0};
  mpt_tell_all(self, MPT_LEAVE, WEIR_OK, self->base.rank);
  for (;;) {
    bool all = true;
    for (int k = 0; k < MPT_KINDS; k++) all = is_sent(self, (mpt_kind)k) && all;
    if (mpt_control_poll(self) != WEIR_OK) return false;
    for (int r = 0; r < self->base.size; r++)
      if (r != self->base.rank && !self->peer[r].gone) all = false;
    if (all) return true;
    if (weir_now_s() >= deadline_s || self->ended.reason != WEIR_OK) return false;
    mpt_pause_turn(&pause);
  }
}

/* --- blame ----------------------------------------------------------------------------------- */

static void decide(mpt *self, weir_status reason, int culprit) {
  mpt_pause pause = {0};
  self->ended = (weir_end){reason, culprit, self->base.rank};
  mpt_tell_all(self, MPT_ABORT, reason, culprit);
  /* Nobody else moves our messages: give them a moment to leave. */
  for (const double until_s = weir_now_s() + TELL_S;
       !is_sent(self, MPT_ABORT) && weir_now_s() < until_s;)
    mpt_pause_turn(&pause);
}

weir_status mpt_blame(mpt *self, int peer, weir_status status) {
  decide(self, status, peer);
  return status;
}

weir_status mpt_blame_gone(mpt *self, int peer, uint64_t step) {
  decide(self, WEIR_E_PEER, peer);
  return weir_fail(WEIR_E_PEER, "rank %d is gone: it left the group (step %llu)", peer,
                   (unsigned long long)step);
}

/* Until all have answered, somebody has said who is to blame, or the time is over. */
static void ask_all(mpt *self) {
  mpt_pause pause = {0};
  for (int r = 0; r < self->base.size; r++) self->peer[r].answered = false;
  self->peer[self->base.rank].answered = true;
  self->peer[self->base.rank].waiting_on = self->waiting_on;
  mpt_tell_all(self, MPT_ASK, WEIR_OK, self->waiting_on);
  for (const double until_s = weir_now_s() + ASK_ALL_S; weir_now_s() < until_s;) {
    bool all = true;
    if (mpt_control_poll(self) != WEIR_OK || self->ended.reason != WEIR_OK) return;
    for (int r = 0; r < self->base.size; r++) all = all && self->peer[r].answered;
    if (all) return;
    mpt_pause_turn(&pause);
  }
}

static weir_waiter waiter_of(const void *group, int rank) {
  const mpt_peer *p = &((const mpt *)group)->peer[rank];
  return (weir_waiter){p->answered, p->waiting_on};
}

weir_status mpt_blame_silence(mpt *self, int peer, uint64_t step) {
  ask_all(self);
  if (self->ended.reason != WEIR_OK) return weir_end_fail(&self->ended, self->base.rank);
  const int culprit = weir_end_of_chain(self, waiter_of, self->base.size, self->base.rank, peer);
  const bool answers = self->peer[culprit].answered;
  decide(self, WEIR_E_TIMEOUT, culprit);
  return weir_fail(WEIR_E_TIMEOUT, "rank %d did not answer in time (step %llu%s)", culprit,
                   (unsigned long long)step, answers ? "; its process is there" : "");
}

/* --- for who waits elsewhere ------------------------------------------------------------------ */

static void watch_wait_for(weir_transport *t, int peer) { ((mpt *)t)->waiting_on = peer; }

/* Others' questions are answered meanwhile. */
static weir_status watch_look(weir_transport *t) {
  mpt *self = (mpt *)t;
  const weir_status status = mpt_control_poll(self);
  if (status != WEIR_OK) return mpt_blame(self, t->rank, status);
  return self->ended.reason == WEIR_OK ? WEIR_OK : weir_end_fail(&self->ended, t->rank);
}

static bool watch_ended(const weir_transport *t) {
  return ((const mpt *)t)->ended.reason != WEIR_OK;
}

static bool watch_left(weir_transport *t, int peer) { return ((mpt *)t)->peer[peer].gone; }

static weir_status watch_blame(weir_transport *t, int peer, weir_status reason, uint64_t step) {
  return reason == WEIR_E_TIMEOUT ? mpt_blame_silence((mpt *)t, peer, step)
                                  : mpt_blame_gone((mpt *)t, peer, step);
}

const weir_watch_ops mpt_watch_ops = {.wait_for = watch_wait_for,
                                      .look = watch_look,
                                      .ended = watch_ended,
                                      .left = watch_left,
                                      .blame = watch_blame};

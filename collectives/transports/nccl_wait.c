/* Waiting for NCCL.  It has no time-outs of its own and does not say which rank is missing: so
 * nobody ever waits in a call of CUDA's or NCCL's, and who is to blame is found by the group
 * below. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "collectives/transports/nccl.h"

#define SPINS 64
#define YIELD_S 0.002
#define NAP_NS 50000
#define POLL_S 0.01 /* how often it is looked who has left */
#define LEFT_S 0.25 /* a rank that is through may leave before this one is */

void nct_end(nct *self, int culprit) {
  if (self->comm) (void)self->lib->abort(self->comm);
  self->comm = NULL;
  if (!self->control->ops->watch->ended(self->control))
    self->control->ops->abort(self->control, culprit);
}

weir_status nct_result(nct *self, ncclResult_t result, const char *doing) {
  if (result == ncclSuccess || result == ncclInProgress) return WEIR_OK;
  const char *why = self->lib->last_error(self->comm);
  const weir_status status =
      weir_fail(WEIR_E_PEER, "NCCL failed %s: %s%s%s", doing, self->lib->error_string(result),
                why && *why ? ": " : "", why && *why ? why : "");
  nct_end(self, self->base.rank);
  return status;
}

/* A rank of the communicator that has left; -1 when there is none.  Others owe NCCL nothing, and
 * may be through. */
static int find_left(const nct *self) {
  weir_transport *control = self->control;
  for (int r = 0; r < self->base.size; r++)
    if (r != self->base.rank && self->place[r] >= 0 && control->ops->watch->left(control, r))
      return r;
  return -1;
}

typedef struct waiter {
  nct *self;
  int peer;
  uint64_t step;
  double deadline_s, poll_s, idle_since_s;
  unsigned polls;
  int left; /* -1: nobody */
  double left_s;
} waiter;

/* Has the group ended meanwhile?  Who has left or is silent is told to all by those below. */
static weir_status poll_peers(waiter *w, double now_s, bool failed) {
  weir_transport *control = w->self->control;
  const weir_watch_ops *watch = control->ops->watch;
  const weir_status status = watch->look(control);
  if (status != WEIR_OK) return status;
  if (now_s >= w->deadline_s) return watch->blame(control, w->peer, WEIR_E_TIMEOUT, w->step);
  if (!failed && now_s < w->poll_s) return WEIR_OK;
  w->poll_s = now_s + POLL_S;
  const int left = find_left(w->self);
  if (left >= 0 && (failed || (w->left == left && now_s >= w->left_s + LEFT_S)))
    return watch->blame(control, left, WEIR_E_PEER, w->step);
  if (left != w->left) w->left_s = now_s;
  w->left = left;
  return WEIR_OK;
}

static void pause_turn(waiter *w, double now_s) {
  if (++w->polls < SPINS) return;
  if (w->polls == SPINS) w->idle_since_s = now_s;
  if (now_s - w->idle_since_s < YIELD_S) {
    (void)sched_yield();
    return;
  }
  const struct timespec nap = {.tv_nsec = NAP_NS};
  (void)nanosleep(&nap, NULL);
}

/* NCCL says that it has failed.  A rank that is gone is the likeliest cause, and is seen soon. */
static weir_status explain(waiter *w, ncclResult_t state) {
  for (const double until_s = weir_now_s() + LEFT_S; weir_now_s() < until_s;) {
    const weir_status status = poll_peers(w, weir_now_s(), true);
    if (status != WEIR_OK) return status;
    const struct timespec nap = {.tv_nsec = NAP_NS};
    (void)nanosleep(&nap, NULL);
  }
  return nct_result(w->self, state, "to carry messages");
}

/* One look at NCCL and the stream. */
static weir_status look(waiter *w, bool *done) {
  nct *self = w->self;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = self->lib->async_error(self->comm, &state);
  if (asked != ncclSuccess) state = asked;
  *done = false;
  if (state == ncclInProgress) return WEIR_OK;
  if (state != ncclSuccess) return explain(w, state);
  const cudaError_t error = self->lib->stream_query(self->stream);
  if (error == cudaErrorNotReady) return WEIR_OK;
  *done = true;
  return nct_cuda(self, error, "to carry messages");
}

weir_status nct_wait(nct *self, int peer, uint64_t step, double deadline_s) {
  const weir_watch_ops *watch = self->control->ops->watch;
  waiter w = {.self = self, .peer = peer, .step = step, .deadline_s = deadline_s, .left = -1};
  weir_status status = WEIR_OK;
  bool done = false;
  watch->wait_for(self->control, peer);
  while (status == WEIR_OK) {
    status = look(&w, &done);
    if (status != WEIR_OK || done) break;
    const double now_s = weir_now_s();
    status = poll_peers(&w, now_s, false);
    pause_turn(&w, now_s);
  }
  watch->wait_for(self->control, -1);
  if (status != WEIR_OK) nct_end(self, self->base.rank);
  return status;
}

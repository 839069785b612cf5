/* A wrapper for tests: a rank that fails at a chosen transfer. */
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/wrap.h"

typedef struct faulty {
  weir_wrap wrap;
  weir_strike strike;
  uint64_t transfers;
  bool left;
} faulty;

/* Dissolving an established connection makes the kernel send a reset.  False without a socket. */
static bool reset(weir_transport *inner, int peer) {
  const int fd = inner->ops->descriptor ? inner->ops->descriptor(inner, peer) : -1;
  const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
  return fd >= 0 && connect(fd, &nobody, sizeof nobody) == 0;
}

static void strike(faulty *self) {
  const weir_strike *s = &self->strike;
  bool done = false;
  switch (s->kind) {
    case WEIR_STRIKE_KILL: (void)kill(getpid(), SIGKILL); return;
    case WEIR_STRIKE_STOP: (void)kill(getpid(), SIGSTOP); return;
    case WEIR_STRIKE_RESET:
      for (int r = 0; r < self->wrap.base.size; r++)
        if (r != self->wrap.base.rank && (s->peer < 0 || s->peer == r))
          done = reset(self->wrap.inner, r) || done;
      self->left = !done;
      return;
    case WEIR_STRIKE_LEAVE: self->left = true; return;
  }
}

static weir_status faulty_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                                   size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  faulty *self = (faulty *)t;
  if (self->transfers++ == self->strike.transfer) strike(self);
  if (self->left)
    return weir_fail(WEIR_E_PEER, "rank %d (this rank) takes no further part", t->rank);
  return weir_wrap_transfer(&self->wrap, tag, send, sends, recv, recvs, deadline_s);
}

weir_status weir_transport_fault(weir_transport **out, weir_transport *inner,
                                 const weir_strike *struck) {
  *out = NULL;
  if (struck->peer < -1 || struck->peer >= inner->size)
    return weir_fail(WEIR_E_INVALID, "rank %d is not one of %d", struck->peer, inner->size);
  weir_wrap *wrap = NULL;
  const weir_status status = weir_wrap_create(&wrap, sizeof(faulty), inner, "fault");
  if (status != WEIR_OK) return status;
  ((faulty *)wrap)->strike = *struck;
  wrap->ops.transfer = faulty_transfer;
  *out = &wrap->base;
  return WEIR_OK;
}

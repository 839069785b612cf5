/* A wrapper for tests: a rank that is slow. */
#include <math.h>
#include <time.h>

#include "base/base.h"
#include "collectives/transports/wrap.h"

typedef struct delayed {
  weir_wrap wrap;
  weir_delay delay;
  weir_rng rng;
} delayed;

static void pause_s(double seconds) {
  double whole = 0.0;
  const double part = modf(seconds, &whole);
  const struct timespec pause = {(time_t)whole, (long)(part * 1e9)};
  (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

static weir_status delayed_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                                    size_t sends, weir_recv *recv, size_t recvs,
                                    double deadline_s) {
  delayed *self = (delayed *)t;
  const weir_delay *d = &self->delay;
  double wait_s = d->seconds;
  if (d->jitter_s > 0.0) wait_s += d->jitter_s * weir_rng_uniform(&self->rng);
  for (size_t i = 0; i < sends; i++) wait_s += d->seconds_per_byte * (double)send[i].bytes;
  wait_s = fmin(wait_s, deadline_s - weir_now_s());
  if (wait_s > 0.0) pause_s(wait_s);
  return weir_wrap_transfer(&self->wrap, tag, send, sends, recv, recvs, deadline_s);
}

static bool sensible(double value) { return isfinite(value) && value >= 0.0; }

weir_status weir_transport_delay(weir_transport **out, weir_transport *inner,
                                 const weir_delay *delay) {
  *out = NULL;
  if (!sensible(delay->seconds) || !sensible(delay->jitter_s) || !sensible(delay->seconds_per_byte))
    return weir_fail(WEIR_E_INVALID, "a delay is neither negative nor infinite");
  weir_wrap *wrap = NULL;
  const weir_status status = weir_wrap_create(&wrap, sizeof(delayed), inner, "delay");
  if (status != WEIR_OK) return status;
  ((delayed *)wrap)->delay = *delay;
  weir_rng_seed(&((delayed *)wrap)->rng, delay->seed);
  wrap->ops.transfer = delayed_transfer;
  *out = &wrap->base;
  return WEIR_OK;
}

/* Life of the NCCL transport. */
#include "collectives/transports/nccl.h"

#include <stdlib.h>

#include "base/base.h"
#include "collectives/collective.h"

#define FAREWELL_S 1.0

/* What goes over TCP says nothing about NCCL's links. */
static int nct_descriptor(weir_transport *t, int peer) {
  const nct *self = (const nct *)t;
  if (peer < 0 || peer >= t->size || self->place[peer] >= 0) return -1;
  return self->control->base.ops->descriptor(&self->control->base, peer);
}

static weir_status nct_echo(weir_transport *t, int peer, double timeout_s, double *rtt_s) {
  return tcp_echo(&((nct *)t)->control->base, peer, timeout_s, rtt_s);
}

static weir_status nct_train(weir_transport *t, int peer, size_t *bytes, double timeout_s,
                             double *seconds) {
  return tcp_train(&((nct *)t)->control->base, peer, bytes, timeout_s, seconds);
}

static const char *nct_address(weir_transport *t, int rank) {
  const nct *self = (const nct *)t;
  return self->control->base.ops->address(&self->control->base, rank);
}

static void nct_abort(weir_transport *t, int culprit) { nct_end((nct *)t, culprit); }

/* With the group alive: what is under way is nothing of ours, so this ends soon. */
static void farewell(nct *self) {
  ncclResult_t state = self->lib->finalise(self->comm);
  const double until_s = weir_now_s() + FAREWELL_S;
  while (state == ncclInProgress || state == ncclSuccess) {
    ncclResult_t now = ncclSuccess;
    if (self->lib->async_error(self->comm, &now) != ncclSuccess) break;
    state = now;
    if (state == ncclSuccess) {
      (void)self->lib->destroy(self->comm);
      self->comm = NULL;
      return;
    }
    if (weir_now_s() >= until_s) break;
    tcp_sleep(0.0005);
  }
  (void)self->lib->abort(self->comm);
  self->comm = NULL;
}

static void nct_destroy(weir_transport *t) {
  nct *self = (nct *)t;
  int held = 0;
  if (!self) return;
  /* Where there is nothing on a device there may be no device: it is not asked for. */
  const bool there = self->comm || self->memory || self->has_stream;
  if (there && nct_enter(self, &held) == WEIR_OK) {
    if (self->comm) farewell(self);
    if (self->memory) (void)self->lib->release(self->memory);
    if (self->has_stream) (void)self->lib->stream_destroy(self->stream);
    nct_leave(self, held);
  }
  nct_tuner_close(self); /* after the communicator, whose code may lie there */
  if (self->control) self->control->base.ops->destroy(&self->control->base);
  free(self->words);
  free(self->place);
  free(self);
}

static void nct_take_memory(weir_transport *t, weir_machine_memory *shared) {
  nct *self = (nct *)t;
  weir_transport *control = &self->control->base;
  control->ops->take_memory(control, shared);
  self->ops = *t->ops;
  self->ops.name = "shm+nccl";
  t->ops = &self->ops;
}

static int nct_streams(const weir_transport *t) { return ((const nct *)t)->control->streams; }

static const weir_transport_ops nct_ops = {
    .name = "nccl",
    .transfer = nct_transfer,
    .descriptor = nct_descriptor,
    .address = nct_address,
    .abort = nct_abort,
    .destroy = nct_destroy,
    .allreduce = nct_allreduce,
    .allreduce_told = nct_allreduce_told,
    .tells = nct_tells,
    .shrink = nct_shrink,
    .take_memory = nct_take_memory,
    .streams = nct_streams,
};

/* Between machines there is TCP, which can be measured. */
static const weir_transport_ops nct_inside_ops = {
    .name = "nccl+tcp",
    .transfer = nct_transfer,
    .echo = nct_echo,
    .train = nct_train,
    .descriptor = nct_descriptor,
    .address = nct_address,
    .abort = nct_abort,
    .destroy = nct_destroy,
    .shrink = nct_shrink,
};

weir_status nct_create(weir_transport **out, weir_transport *control, const nct_options *options) {
  *out = control;
  if (control->size == 1) return WEIR_OK; /* a group of one carries nothing */
  *out = NULL;
  nct *self = calloc(1, sizeof *self);
  int *place = malloc((size_t)control->size * sizeof *place);
  if (!self || !place) {
    control->ops->destroy(control);
    free(place);
    free(self);
    return weir_fail(WEIR_E_NOMEM, "no memory for a transport of %d ranks", control->size);
  }
  self->base = (weir_transport){.ops = &nct_ops, .rank = control->rank, .size = control->size};
  self->options = *options;
  self->control = (tcp *)control;
  self->place = place;
  bool any = false;
  const weir_status status = nct_form(self, &any);
  if (status == WEIR_OK && any) {
    if (self->members < control->size) self->base.ops = &nct_inside_ops;
    *out = &self->base;
    return WEIR_OK;
  }
  if (status == WEIR_OK) {
    self->control = NULL;
    *out = control;
  }
  nct_destroy(&self->base);
  return status;
}

weir_status weir_transport_nccl(weir_transport **out, const weir_tcp_options *options,
                                bool inside) {
  weir_transport *control = NULL;
  *out = NULL;
  const weir_status status = weir_transport_tcp_open(&control, options);
  if (status != WEIR_OK) return status;
  return nct_create(
      out, control,
      &(nct_options){
          .inside = inside, .machine = weir_host_identity(NULL), .timeout_s = options->timeout_s});
}

weir_status nct_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank) {
  nct *self = (nct *)t;
  weir_transport *control = &self->control->base, *left = NULL;
  int held = 0;
  *out = NULL;
  if (self->comm && nct_enter(self, &held) == WEIR_OK) {
    (void)self->lib->abort(self->comm);
    self->comm = NULL;
    nct_leave(self, held);
  }
  const weir_status status = control->ops->shrink(control, timeout_s, &left, old_rank);
  if (status != WEIR_OK) return status;
  self->options.timeout_s = timeout_s;
  return nct_create(out, left, &self->options);
}

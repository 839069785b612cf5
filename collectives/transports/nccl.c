/* Life of the NCCL transport. */
#include "collectives/transports/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "collectives/collective.h"

#define FAREWELL_S 1.0

#define NAP_NS 500000

/* What goes over the group below says nothing about NCCL's links. */
static int nct_descriptor(weir_transport *t, int peer) {
  const nct *self = (const nct *)t;
  if (!self->control->ops->descriptor || peer < 0 || peer >= t->size || self->place[peer] >= 0)
    return -1;
  return self->control->ops->descriptor(self->control, peer);
}

static weir_status nct_echo(weir_transport *t, int peer, double timeout_s, double *rtt_s) {
  weir_transport *control = ((nct *)t)->control;
  return control->ops->echo(control, peer, timeout_s, rtt_s);
}

static weir_status nct_train(weir_transport *t, int peer, size_t *bytes, double timeout_s,
                             double *seconds) {
  weir_transport *control = ((nct *)t)->control;
  return control->ops->train(control, peer, bytes, timeout_s, seconds);
}

static const char *nct_address(weir_transport *t, int rank) {
  const nct *self = (const nct *)t;
  return self->control->ops->address ? self->control->ops->address(self->control, rank) : NULL;
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
    const struct timespec nap = {.tv_nsec = NAP_NS};
    (void)nanosleep(&nap, NULL);
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
  if (self->control) self->control->ops->destroy(self->control);
  free(self->words);
  free(self->in_memory);
  free(self->place);
  free(self);
}

static void nct_take_memory(weir_transport *t, weir_machine_memory *shared) {
  nct *self = (nct *)t;
  for (int r = 0; r < t->size; r++) self->in_memory[r] = weir_memory_reaches(shared, r);
  self->control->ops->take_memory(self->control, shared);
  self->ops.name = "shm+nccl";
}

static int nct_streams(const weir_transport *t) {
  const weir_transport *control = ((const nct *)t)->control;
  return control->ops->streams(control);
}

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
    .sums_inside = nct_sums_inside,
    .allreduce_inside = nct_allreduce_inside,
    .take_memory = nct_take_memory,
};

/* What the group below can, and where NCCL is inside of machines alone: the links between these are
 * that group's, by which they can be measured, and no communicator sums for all. */
static void find_ops(nct *self) {
  const weir_transport_ops *below = self->control->ops;
  self->ops = nct_ops;
  if (below->shrink) self->ops.shrink = nct_shrink;
  if (below->streams) self->ops.streams = nct_streams;
  if (self->members == self->base.size) return;
  (void)snprintf(self->name, sizeof self->name, "nccl+%s", below->name);
  self->ops.name = self->name;
  if (below->echo) self->ops.echo = nct_echo;
  if (below->train) self->ops.train = nct_train;
  self->ops.allreduce = NULL;
  self->ops.allreduce_told = NULL;
  self->ops.tells = NULL;
  self->ops.take_memory = NULL;
}

static weir_status allocate(nct *self, weir_transport *control, const nct_options *options) {
  const size_t size = (size_t)control->size;
  self->base = (weir_transport){.ops = &self->ops, .rank = control->rank, .size = control->size};
  self->ops = nct_ops;
  self->options = *options;
  self->control = control;
  self->place = malloc(size * sizeof *self->place);
  self->in_memory = calloc(size, sizeof *self->in_memory);
  if (self->place && self->in_memory) return WEIR_OK;
  return weir_fail(WEIR_E_NOMEM, "no memory for a transport of %zu ranks", size);
}

weir_status nct_create(weir_transport **out, weir_transport *control, const nct_options *options) {
  bool any = false;
  *out = control;
  if (control->size == 1) return WEIR_OK; /* a group of one carries nothing */
  *out = NULL;
  nct *self = control->ops->watch ? calloc(1, sizeof *self) : NULL;
  if (!self) {
    const weir_status why =
        control->ops->watch
            ? weir_fail(WEIR_E_NOMEM, "no memory for a transport of %d ranks", control->size)
            : weir_fail(WEIR_E_UNSUPPORTED, "NCCL cannot go beside %s", control->ops->name);
    control->ops->destroy(control);
    return why;
  }
  weir_status status = allocate(self, control, options);
  if (status == WEIR_OK) status = nct_form(self, &any);
  if (status == WEIR_OK && any) {
    find_ops(self);
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

weir_status weir_transport_nccl(weir_transport **out, weir_transport *met, bool inside,
                                double timeout_s) {
  return nct_create(
      out, met,
      &(nct_options){
          .inside = inside, .machine = weir_host_identity(NULL), .timeout_s = timeout_s});
}

weir_status nct_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank) {
  nct *self = (nct *)t;
  weir_transport *control = self->control, *left = NULL;
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

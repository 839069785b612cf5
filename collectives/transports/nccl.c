/* Life of the NCCL transport. */
#include "collectives/transports/nccl.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/collective.h"

#define FAREWELL_S 1.0

static int nct_descriptor(weir_transport *t, int peer) {
  (void)t;
  (void)peer;
  return -1; /* what goes over TCP says nothing about NCCL's links */
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
  free(self);
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
    .shrink = nct_shrink,
};

/* --- forming a
 * group --------------------------------------------------------------------------- */

/* What ranks tell each other beforehand: a group that NCCL cannot form ends here, not in NCCL. */
typedef struct hello {
  uint32_t magic, ready; /* 1: it has the libraries and a device */
  uint64_t machine;      /* weir_host_identity() */
  ncclUniqueId id;       /* rank 0's counts */
} hello;

static weir_status tell(nct *self, hello *all, double deadline_s) {
  static const char name[] = "weir nccl";
  weir_transport *control = &self->control->base;
  const weir_tag tag = {.plan = weir_hash(WEIR_HASH_INIT, name, sizeof name)};
  weir_status status = weir_transport_tell(control, &tag, all, sizeof *all, deadline_s);
  for (int r = 0; status == WEIR_OK && r < self->base.size; r++)
    if (all[r].magic != NCT_MAGIC) {
      control->ops->abort(control, r);
      status = weir_fail(WEIR_E_MISMATCH, "rank %d does not speak of NCCL as this rank does", r);
    }
  return status;
}

/* The device of this rank: its place among the ranks of its machine.  How many are there. */
static weir_status choose_device(nct *self, const hello *all, int *sharing) {
  int devices = 0, place = 0;
  weir_status status = nct_cuda(self, self->lib->device_count(&devices), "to count its devices");
  if (status == WEIR_OK && devices < 1)
    status = weir_fail(WEIR_E_UNSUPPORTED, "this machine has no CUDA device");
  if (status != WEIR_OK) return status;
  *sharing = 0;
  for (int r = 0; r < self->base.size; r++) {
    if (all[r].machine != all[self->base.rank].machine) continue;
    if (r < self->base.rank) place++;
    ++*sharing;
  }
  *sharing = (*sharing + devices - 1) / devices;
  self->device = place % devices;
  return WEIR_OK;
}

/* A device's first stream is where CUDA itself comes to life: failures show here, before NCCL. */
static weir_status open_device(nct *self) {
  const weir_status status = nct_cuda(
      self, self->lib->stream_create(&self->stream, cudaStreamNonBlocking), "to open a stream");
  self->has_stream = status == WEIR_OK;
  return status;
}

static weir_status init(nct *self, const ncclUniqueId *id, int sharing, double deadline_s) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  weir_status status =
      nct_result(self, self->lib->init(&self->comm, self->base.size, *id, self->base.rank, &config),
                 "to form a group");
  if (status == WEIR_OK && !self->comm)
    status = weir_fail(WEIR_E_INTERNAL, "NCCL gave no communicator");
  if (status == WEIR_OK) status = nct_wait(self, self->base.rank == 0 ? 1 : 0, 0, deadline_s);
  if (status == WEIR_OK || sharing < 2) return status;
  char why[384];
  (void)strncpy(why, weir_last_error(), sizeof why - 1);
  why[sizeof why - 1] = '\0';
  return weir_fail(status, "%s (%d ranks share a device: each needs an NCCL_HOSTID of its own)",
                   why, sharing);
}

/* Ready, alone?  The answer goes into the rank's hello. */
static weir_status prepare(nct *self, hello *mine) {
  int devices = 0;
  weir_status status = nct_cuda(self, self->lib->device_count(&devices), "to count its devices");
  if (status == WEIR_OK && devices < 1)
    status = weir_fail(WEIR_E_UNSUPPORTED, "this machine has no CUDA device");
  if (status == WEIR_OK && self->base.rank == 0) {
    const ncclResult_t named = self->lib->get_unique_id(&mine->id);
    if (named != ncclSuccess)
      status = weir_fail(WEIR_E_UNSUPPORTED, "NCCL failed to name a group: %s",
                         self->lib->error_string(named));
  }
  mine->ready = status == WEIR_OK;
  return status;
}

static weir_status form(nct *self, weir_status ready) {
  const double deadline_s = weir_now_s() + self->timeout_s;
  int held = 0, sharing = 0;
  hello *all = calloc((size_t)self->base.size, sizeof *all);
  if (!all) return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", self->base.size);
  hello *mine = &all[self->base.rank];
  mine->magic = NCT_MAGIC;
  mine->machine = weir_host_identity(NULL);
  if (ready == WEIR_OK) ready = prepare(self, mine);
  char why[384]; /* of this rank's own failure: the exchange may have one, too */
  (void)strncpy(why, weir_last_error(), sizeof why - 1);
  why[sizeof why - 1] = '\0';
  weir_status status = tell(self, all, deadline_s);
  if (status == WEIR_OK && ready != WEIR_OK) status = weir_fail(ready, "%s", why);
  for (int r = 0; status == WEIR_OK && r < self->base.size; r++)
    if (all[r].ready != 1)
      status = weir_fail(WEIR_E_UNSUPPORTED, "rank %d cannot use NCCL; it says why", r);
  if (status == WEIR_OK) status = choose_device(self, all, &sharing);
  if (status == WEIR_OK) {
    status = nct_enter(self, &held);
    if (status == WEIR_OK) status = open_device(self);
    nct_tuner_before(self);
    if (status == WEIR_OK) status = init(self, &all[0].id, sharing, deadline_s);
    if (status == WEIR_OK) status = nct_tuner_find(self, deadline_s);
    if (status != WEIR_OK) nct_end(self, self->base.rank);
    nct_leave(self, held);
  }
  free(all);
  return status;
}

static weir_status create(weir_transport **out, const nct_library *lib, weir_status ready,
                          weir_transport *control, double timeout_s) {
  *out = NULL;
  if (control->size == 1 && ready == WEIR_OK) { /* a group of one carries nothing */
    *out = control;
    return WEIR_OK;
  }
  nct *self = calloc(1, sizeof *self);
  if (!self) {
    control->ops->destroy(control);
    return weir_fail(WEIR_E_NOMEM, "no memory for a transport");
  }
  self->base = (weir_transport){.ops = &nct_ops, .rank = control->rank, .size = control->size};
  self->lib = lib;
  self->control = (tcp *)control;
  self->timeout_s = timeout_s;
  const weir_status status = form(self, ready);
  if (status == WEIR_OK)
    *out = &self->base;
  else if (ready == WEIR_OK)
    nct_destroy(&self->base);
  else { /* there is no library to ask for anything */
    control->ops->destroy(control);
    free(self);
  }
  return status;
}

weir_status nct_create(weir_transport **out, const nct_library *lib, weir_transport *control,
                       double timeout_s) {
  return create(out, lib, WEIR_OK, control, timeout_s);
}

weir_status weir_transport_nccl(weir_transport **out, const char *rendezvous,
                                const char *bind_address, const void *secret, size_t secret_bytes,
                                uint64_t job_id, int rank, int size, double timeout_s) {
  weir_transport *control = NULL;
  const nct_library *lib = NULL;
  *out = NULL;
  weir_status status = weir_transport_tcp_secret(&control, rendezvous, bind_address, secret,
                                                 secret_bytes, job_id, rank, size, timeout_s);
  if (status != WEIR_OK) return status;
  status = nct_load(&lib); /* after the meeting: the others are told of it */
  return create(out, lib, status, control, timeout_s);
}

weir_status nct_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank) {
  nct *self = (nct *)t;
  weir_transport *control = &self->control->base, *left = NULL;
  int held = 0;
  *out = NULL;
  if (nct_enter(self, &held) == WEIR_OK) {
    if (self->comm) (void)self->lib->abort(self->comm);
    self->comm = NULL;
    nct_leave(self, held);
  }
  const weir_status status = control->ops->shrink(control, timeout_s, &left, old_rank);
  return status == WEIR_OK ? create(out, self->lib, WEIR_OK, left, timeout_s) : status;
}

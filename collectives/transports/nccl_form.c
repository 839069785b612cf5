/* How NCCL's communicators come about: ranks tell each other where they are and whether they are
 * ready, so that a group that NCCL cannot form ends here, by name, and not in NCCL. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/transports/nccl.h"

/* What ranks tell each other beforehand. */
typedef struct hello {
  uint32_t magic;
  uint16_t ready; /* 1: it has the libraries and a device, and has named its communicator */
  uint16_t inside;
  uint64_t machine;
  ncclUniqueId id; /* that of a communicator's first rank counts */
} hello;
_Static_assert(sizeof(hello) == 16 + sizeof(ncclUniqueId), "a hello has no padding");

typedef struct forming {
  nct *self;
  hello *all;
  double deadline_s;
  weir_status ready; /* what this rank's own preparations came to */
  char why[384];     /* and why; kept, as to tell the others may fail, too */
} forming;

static void save_error(char *why, size_t room) {
  (void)strncpy(why, weir_last_error(), room - 1);
  why[room - 1] = '\0';
}

static void note(forming *f, weir_status ready) {
  f->ready = ready;
  f->all[f->self->base.rank].ready = ready == WEIR_OK;
  if (ready != WEIR_OK) save_error(f->why, sizeof f->why);
}

/* --- who is in which communicator ------------------------------------------------------------- */

static int ranks_of_machine(const forming *f, int rank, int before) {
  int ranks = 0;
  for (int r = 0; r < before; r++) ranks += f->all[r].machine == f->all[rank].machine;
  return ranks;
}

static bool takes_part(const forming *f, int rank) {
  return !f->self->options.inside || ranks_of_machine(f, rank, f->self->base.size) > 1;
}

/* Does any rank take part? */
static bool find_members(forming *f) {
  nct *self = f->self;
  const int size = self->base.size, rank = self->base.rank;
  bool any = false;
  self->members = 0;
  for (int r = 0; r < size; r++) {
    const bool near = !self->options.inside || f->all[r].machine == f->all[rank].machine;
    self->place[r] = near && takes_part(f, r) ? self->members++ : -1;
    any = any || takes_part(f, r);
  }
  return any;
}

/* The member at a place. */
static int rank_at(const nct *self, int place) {
  int r = 0;
  while (self->place[r] != place) r++;
  return r;
}

/* --- telling ---------------------------------------------------------------------------------- */

static weir_status check(const forming *f) {
  const nct *self = f->self;
  weir_transport *control = self->control;
  for (int r = 0; r < self->base.size; r++)
    if (f->all[r].magic != NCT_MAGIC || f->all[r].inside != self->options.inside) {
      control->ops->abort(control, r);
      return weir_fail(WEIR_E_MISMATCH, "rank %d does not speak of NCCL as this rank does", r);
    }
  if (f->ready != WEIR_OK && takes_part(f, self->base.rank))
    return weir_fail(f->ready, "%s", f->why);
  for (int r = 0; r < self->base.size; r++)
    if (f->all[r].ready != 1 && takes_part(f, r))
      return weir_fail(WEIR_E_UNSUPPORTED, "rank %d cannot use NCCL; it says why", r);
  return WEIR_OK;
}

static weir_status tell(forming *f, uint32_t op) {
  static const char name[] = "weir nccl";
  const weir_tag tag = {.plan = weir_hash(WEIR_HASH_INIT, name, sizeof name), .op = op};
  const weir_status status =
      weir_transport_tell(f->self->control, &tag, f->all, sizeof *f->all, f->deadline_s);
  return status == WEIR_OK ? check(f) : status;
}

/* --- forming ---------------------------------------------------------------------------------- */

static weir_status find_devices(nct *self) {
  self->lib = self->options.lib;
  weir_status status = self->lib ? WEIR_OK : nct_load(&self->lib);
  if (status == WEIR_OK)
    status = nct_cuda(self, self->lib->device_count(&self->devices), "to count its devices");
  if (status == WEIR_OK && self->devices < 1)
    status = weir_fail(WEIR_E_UNSUPPORTED, "this machine has no CUDA device");
  return status;
}

static weir_status name_communicator(nct *self, ncclUniqueId *id) {
  const ncclResult_t named = self->lib->get_unique_id(id);
  if (named == ncclSuccess) return WEIR_OK;
  return weir_fail(WEIR_E_UNSUPPORTED, "NCCL failed to name a group: %s",
                   self->lib->error_string(named));
}

/* A device's first stream is where CUDA itself comes to life: failures show here, before NCCL. */
static weir_status open_device(nct *self) {
  const weir_status status = nct_cuda(
      self, self->lib->stream_create(&self->stream, cudaStreamNonBlocking), "to open a stream");
  self->has_stream = status == WEIR_OK;
  return status;
}

static weir_status init(forming *f) {
  nct *self = f->self;
  const int rank = self->base.rank, place = self->place[rank];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  weir_status status = nct_result(
      self,
      self->lib->init(&self->comm, self->members, f->all[rank_at(self, 0)].id, place, &config),
      "to form a group");
  if (status == WEIR_OK && !self->comm)
    status = weir_fail(WEIR_E_INTERNAL, "NCCL gave no communicator");
  return status == WEIR_OK ? nct_wait(self, rank_at(self, place == 0), 0, f->deadline_s) : status;
}

/* The device of this rank: its place among the ranks of its machine. */
static weir_status join(forming *f) {
  nct *self = f->self;
  const int rank = self->base.rank, ranks = ranks_of_machine(f, rank, self->base.size);
  const int sharing = (ranks + self->devices - 1) / self->devices;
  int held = 0;
  self->device = ranks_of_machine(f, rank, rank) % self->devices;
  weir_status status = nct_enter(self, &held);
  if (status == WEIR_OK) status = open_device(self);
  nct_tuner_before(self);
  if (status == WEIR_OK) {
    status = init(f);
    save_error(f->why, sizeof f->why);
    if (status != WEIR_OK && sharing > 1)
      status =
          weir_fail(status, "%s (%d ranks share a device: each needs an NCCL_HOSTID of its own)",
                    f->why, sharing);
  }
  /* Only a communicator of all ranks sums for the group. */
  if (status == WEIR_OK && self->members == self->base.size)
    status = nct_tuner_find(self, f->deadline_s);
  if (status != WEIR_OK) nct_end(self, rank);
  nct_leave(self, held);
  return status;
}

static weir_status form(forming *f, bool *any) {
  nct *self = f->self;
  hello *mine = &f->all[self->base.rank];
  *mine =
      (hello){.magic = NCT_MAGIC, .inside = self->options.inside, .machine = self->options.machine};
  note(f, find_devices(self));
  weir_status status = tell(f, 0);
  if (status != WEIR_OK) return status;
  *any = find_members(f);
  if (self->place[self->base.rank] == 0) note(f, name_communicator(self, &mine->id));
  if (*any) status = tell(f, 1);
  return status == WEIR_OK && self->members > 1 ? join(f) : status;
}

weir_status nct_form(nct *self, bool *any) {
  forming f = {.self = self, .deadline_s = weir_now_s() + self->options.timeout_s};
  f.all = calloc((size_t)self->base.size, sizeof *f.all);
  if (!f.all) return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", self->base.size);
  const weir_status status = form(&f, any);
  free(f.all);
  return status;
}

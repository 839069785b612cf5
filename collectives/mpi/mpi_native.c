/* The library's own all-reduce, without blocking: a blocking one would wait for a dead rank for
 * ever.  Beside the sum, all ranks gather each other's tag and side header: so nothing is used
 * before it is known that all ranks mean the same operation. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/mpi/mpi.h"

typedef struct native {
  mpt *self;
  const weir_tag *tag;
  MPI_Request request[2]; /* headers, sum */
  unsigned char *headers; /* a tag and a header a rank; behind them this rank's own */
  size_t header_bytes;
} native;

/* Until both are complete.  What comes over the control channel in the meantime is acted on. */
static weir_status complete(native *n, double deadline_s) {
  mpt *self = n->self;
  mpt_pause pause = {0};
  for (;;) {
    int done = 0;
    const int code = MPI_Testall(2, n->request, &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) return mpt_blame(self, self->waiting_on, mpt_error(code, "to sum"));
    if (done) return WEIR_OK;
    const weir_status status = mpt_control_poll(self);
    if (status != WEIR_OK) return mpt_blame(self, self->base.rank, status);
    if (self->ended.reason != WEIR_OK) return weir_end_fail(&self->ended, self->base.rank);
    if (weir_now_s() >= deadline_s) return mpt_blame_silence(self, self->waiting_on, n->tag->step);
    mpt_pause_turn(&pause);
  }
}

static weir_status begin(native *n, const float *from, float *x, int count, const void *header) {
  mpt *self = n->self;
  const int bytes = (int)n->header_bytes;
  unsigned char *mine = n->headers + (size_t)self->base.size * n->header_bytes;
  memcpy(mine, n->tag, sizeof *n->tag);
  if (n->header_bytes > sizeof *n->tag)
    memcpy(mine + sizeof *n->tag, header, n->header_bytes - sizeof *n->tag);
  int code = MPI_Iallgather(mine, bytes, MPI_BYTE, n->headers, bytes, MPI_BYTE, self->comm,
                            &n->request[0]);
  if (code == MPI_SUCCESS)
    code = MPI_Iallreduce(from, x, count, MPI_FLOAT, MPI_SUM, self->comm, &n->request[1]);
  return code == MPI_SUCCESS ? WEIR_OK
                             : mpt_blame(self, self->waiting_on, mpt_error(code, "to sum"));
}

static weir_status compare(const native *n, unsigned char *blocks, size_t block_bytes) {
  for (int r = 0; r < n->self->base.size; r++) {
    weir_tag got;
    const unsigned char *theirs = n->headers + (size_t)r * n->header_bytes;
    memcpy(&got, theirs, sizeof got);
    const weir_status status = weir_tag_check(r, n->tag, &got);
    if (status != WEIR_OK) return mpt_blame(n->self, r, status);
    if (block_bytes > 0) memcpy(blocks + (size_t)r * block_bytes, theirs + sizeof got, block_bytes);
  }
  return WEIR_OK;
}

weir_status mpt_scratch(mpt *self, size_t bytes) {
  if (self->scratch_bytes >= bytes) return WEIR_OK;
  unsigned char *room = malloc(bytes);
  if (!room) return weir_fail(WEIR_E_NOMEM, "no memory for a collective of %zu bytes", bytes);
  free(self->scratch);
  self->scratch = room;
  self->scratch_bytes = bytes;
  return WEIR_OK;
}

weir_status mpt_allreduce(weir_transport *t, const weir_tag *tag, float *x, size_t n, void *blocks,
                          size_t block_bytes, double deadline_s) {
  mpt *self = (mpt *)t;
  if (self->ended.reason != WEIR_OK) return weir_end_fail(&self->ended, t->rank);
  if (n > INT_MAX)
    return weir_fail(WEIR_E_INVALID, "MPI counts up to %d elements, not %zu", INT_MAX, n);
  native a = {.self = self,
              .tag = tag,
              .request = {MPI_REQUEST_NULL, MPI_REQUEST_NULL},
              .header_bytes = sizeof *tag + block_bytes};
  weir_status status = mpt_scratch(self, n * sizeof *x + ((size_t)t->size + 1) * a.header_bytes);
  if (status != WEIR_OK) return status;
  a.headers = self->scratch + n * sizeof *x;
  /* Out of place: in place, Open MPI takes a binomial tree whatever the length. */
  if (n > 0) memcpy(self->scratch, x, n * sizeof *x);
  self->waiting_on = (t->rank + 1) % t->size;
  status = begin(&a, (const float *)(const void *)self->scratch, x, (int)n,
                 block_bytes > 0 ? (unsigned char *)blocks + (size_t)t->rank * block_bytes : NULL);
  if (status == WEIR_OK) status = complete(&a, deadline_s);
  if (status == WEIR_OK) status = compare(&a, blocks, block_bytes);
  self->waiting_on = -1;
  if (status != WEIR_OK) {
    self->dirty = true; /* MPI keeps its hands on the scratch */
    mpt_do_not_finalise();
    return status;
  }
  /* What a tree or a halving sends at the most; MPI does not tell what it did send. */
  t->bytes_sent += 2 * n * sizeof *x + (size_t)(t->size - 1) * a.header_bytes;
  return WEIR_OK;
}

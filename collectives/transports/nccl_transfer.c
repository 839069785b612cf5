/* Messages: announced over the group below, then, where they are long, one group of NCCL's sends
 * and receives.
 *
 * Memory on the device is used as it is; the host's goes through memory of the transport's own.
 * Copies from the host come first, then NCCL's group, then, once that is over, copies to the host:
 * one that waited behind a group that never ends would never return. */
#include <endian.h>
#include <string.h>

#include "base/base.h"
#include "collectives/transports/nccl.h"

typedef struct transfer {
  nct *self;
  const weir_tag *tag;
  const weir_send *send;
  size_t sends;
  weir_recv *recv;
  size_t recvs;
  double deadline_s;
  /* In the transport's words. */
  weir_send *say;            /* sends */
  weir_recv *hear;           /* recvs */
  unsigned char **out, **in; /* per message: where it lies on the device; NULL: NCCL has no part */
} transfer;

static weir_status blame(nct *self, int peer, weir_status status) {
  nct_end(self, peer);
  return status;
}

static bool is_short(const nct *self, const void *data, size_t bytes) {
  return bytes == 0 || (bytes <= NCT_SHORT && !nct_on_device(self, data));
}

/* --- announcements --------------------------------------------------------------------------- */

/* All lists and words, one behind the other. */
static weir_status lay_out(transfer *x) {
  const size_t word = sizeof(nct_word) + NCT_SHORT;
  const size_t lists =
      x->sends * (sizeof *x->say + sizeof *x->out) + x->recvs * (sizeof *x->hear + sizeof *x->in);
  const weir_status status = nct_words(x->self, lists + (x->sends + x->recvs) * word + 1);
  if (status != WEIR_OK) return status;
  unsigned char *at = x->self->words;
  x->say = (weir_send *)(void *)at;
  x->hear = (weir_recv *)(void *)(x->say + x->sends);
  x->out = (unsigned char **)(void *)(x->hear + x->recvs);
  x->in = x->out + x->sends;
  at += lists;
  for (size_t i = 0; i < x->sends; i++) {
    const weir_send *s = &x->send[i];
    x->say[i] = *s;
    x->out[i] = NULL;
    if (!nct_carries(x->self, s->peer)) continue;
    const bool along = is_short(x->self, s->data, s->bytes);
    const nct_word w = {htole32(NCT_MAGIC), htole32(along ? 0 : 1), htole64(s->bytes)};
    memcpy(at, &w, sizeof w);
    if (along && s->bytes > 0) memcpy(at + sizeof w, s->data, s->bytes);
    x->say[i] = (weir_send){s->peer, at, sizeof w + (along ? s->bytes : 0), s->hop};
    at += word;
  }
  for (size_t i = 0; i < x->recvs; i++) {
    x->hear[i] = x->recv[i];
    x->in[i] = NULL;
    if (!nct_carries(x->self, x->recv[i].peer)) continue;
    x->hear[i] = (weir_recv){x->recv[i].peer, at, word, x->recv[i].hop, 0};
    at += word;
  }
  return WEIR_OK;
}

/* To where the caller wants it, host or device. */
static weir_status hand_out(const transfer *x, size_t i, const void *data, size_t bytes) {
  nct *self = x->self;
  if (bytes == 0) return WEIR_OK;
  if (!nct_on_device(self, x->recv[i].data)) {
    memcpy(x->recv[i].data, data, bytes);
    return WEIR_OK;
  }
  const weir_status status = nct_copy(self, x->recv[i].data, data, bytes, cudaMemcpyHostToDevice);
  return status == WEIR_OK ? nct_wait(self, x->recv[i].peer, x->tag->step, x->deadline_s) : status;
}

/* What peers have announced: lengths are checked against the room there is. */
static weir_status take_words(transfer *x) {
  for (size_t i = 0; i < x->recvs; i++) {
    const weir_recv *heard = &x->hear[i];
    nct_word w = {0};
    x->recv[i].bytes = heard->bytes;
    if (!nct_carries(x->self, heard->peer)) continue;
    if (heard->bytes >= sizeof w) memcpy(&w, heard->data, sizeof w);
    const uint64_t length = le64toh(w.length);
    const uint32_t follows = le32toh(w.follows);
    if (le32toh(w.magic) != NCT_MAGIC || follows > 1 || (follows == 1 && length == 0) ||
        heard->bytes - sizeof w != (follows == 1 ? 0 : length))
      return blame(
          x->self, heard->peer,
          weir_fail(WEIR_E_PROTOCOL, "rank %d announced a message in no known form (step %llu)",
                    heard->peer, (unsigned long long)x->tag->step));
    if (length > x->recv[i].capacity)
      return blame(x->self, heard->peer,
                   weir_fail(WEIR_E_PROTOCOL,
                             "rank %d sends %llu bytes where at most %zu are due (step %llu)",
                             heard->peer, (unsigned long long)length, x->recv[i].capacity,
                             (unsigned long long)x->tag->step));
    x->recv[i].bytes = (size_t)length;
    x->in[i] = follows == 1 ? x->recv[i].data : NULL;
    if (follows == 1) continue;
    const weir_status status =
        hand_out(x, i, (const unsigned char *)heard->data + sizeof w, (size_t)length);
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

/* --- long messages ---------------------------------------------------------------------------- */

static bool is_long(const transfer *x, size_t i) {
  return nct_carries(x->self, x->send[i].peer) && x->say[i].bytes == sizeof(nct_word) &&
         x->send[i].bytes > 0;
}

/* Where on the device each long message lies; *longs: how many there are. */
static weir_status find_places(transfer *x, size_t *longs) {
  nct *self = x->self;
  size_t room = 0;
  *longs = 0;
  for (int pass = 0; pass < 2; pass++) {
    size_t at = 0;
    for (size_t i = 0; i < x->sends; i++) {
      if (!is_long(x, i)) continue;
      const bool there = nct_on_device(self, x->send[i].data);
      if (pass == 1)
        x->out[i] = there ? (unsigned char *)(uintptr_t)x->send[i].data : self->memory + at;
      at += there ? 0 : nct_lines(x->send[i].bytes);
      *longs += pass;
    }
    for (size_t i = 0; i < x->recvs; i++) {
      if (x->in[i] == NULL) continue;
      const bool there = nct_on_device(self, x->recv[i].data);
      if (pass == 1 && !there) x->in[i] = self->memory + at;
      at += there ? 0 : nct_lines(x->recv[i].bytes);
      *longs += pass;
    }
    room = at;
    const weir_status status = pass == 0 ? nct_reserve(self, room) : WEIR_OK;
    if (status != WEIR_OK) return status;
  }
  return WEIR_OK;
}

static weir_status queue(transfer *x) {
  nct *self = x->self;
  const nct_library *lib = self->lib;
  weir_status status = WEIR_OK;
  for (size_t i = 0; i < x->sends && status == WEIR_OK; i++)
    if (x->out[i] != NULL && x->out[i] != x->send[i].data)
      status = nct_copy(self, x->out[i], x->send[i].data, x->send[i].bytes, cudaMemcpyHostToDevice);
  if (status != WEIR_OK) return status;
  ncclResult_t result = lib->group_start();
  for (size_t i = 0; i < x->sends && result == ncclSuccess; i++)
    if (x->out[i] != NULL)
      result = lib->send(x->out[i], x->send[i].bytes, ncclUint8, self->place[x->send[i].peer],
                         self->comm, self->stream);
  for (size_t i = 0; i < x->recvs && result == ncclSuccess; i++)
    if (x->in[i] != NULL)
      result = lib->recv(x->in[i], x->recv[i].bytes, ncclUint8, self->place[x->recv[i].peer],
                         self->comm, self->stream);
  const ncclResult_t ended =
      lib->group_end(); /* whatever came before: the group must not stay open */
  return nct_result(self, result == ncclSuccess ? ended : result, "to carry messages");
}

static weir_status collect(transfer *x, int peer) {
  nct *self = x->self;
  bool any = false;
  for (size_t i = 0; i < x->recvs; i++) {
    if (x->in[i] == NULL || x->in[i] == x->recv[i].data) continue;
    const weir_status status =
        nct_copy(self, x->recv[i].data, x->in[i], x->recv[i].bytes, cudaMemcpyDeviceToHost);
    if (status != WEIR_OK) return status;
    any = true;
  }
  return any ? nct_wait(self, peer, x->tag->step, x->deadline_s) : WEIR_OK;
}

static weir_status carry(transfer *x) {
  size_t longs = 0;
  int peer = -1;
  weir_status status = find_places(x, &longs);
  if (status != WEIR_OK || longs == 0) return status;
  for (size_t i = x->sends; i-- > 0;)
    if (x->out[i] != NULL) peer = x->send[i].peer;
  for (size_t i = x->recvs; i-- > 0;) /* rather who owes something */
    if (x->in[i] != NULL) peer = x->recv[i].peer;
  status = queue(x);
  if (status == WEIR_OK) status = nct_wait(x->self, peer, x->tag->step, x->deadline_s);
  return status == WEIR_OK ? collect(x, peer) : status;
}

/* What the group below has moved is this transport's; the newest of its arrivals, which are of
 * messages that went there whole, are too. */
static weir_status over_control(nct *self, const weir_tag *tag, const weir_send *send, size_t sends,
                                weir_recv *recv, size_t recvs, double deadline_s) {
  weir_transport *control = self->control;
  const uint64_t before = control->bytes_sent;
  const uint32_t kept = sizeof control->flow / sizeof *control->flow, flows = control->flows;
  const weir_status status =
      control->ops->transfer(control, tag, send, sends, recv, recvs, deadline_s);
  self->base.bytes_sent += control->bytes_sent - before;
  uint32_t fresh = control->flows - flows;
  if (fresh > kept) fresh = kept;
  for (uint32_t i = control->flows - fresh; i != control->flows; i++)
    weir_flow_record(&self->base, control->flow[i % kept]);
  return status;
}

/* One behind the other: announcements with what the group below carries, and NCCL. */
static weir_status with_nccl(transfer *x) {
  nct *self = x->self;
  int held = 0;
  weir_status status = nct_enter(self, &held);
  if (status != WEIR_OK) return status;
  status = lay_out(x);
  if (status == WEIR_OK)
    status = over_control(self, x->tag, x->say, x->sends, x->hear, x->recvs, x->deadline_s);
  if (status == WEIR_OK) status = take_words(x);
  if (status == WEIR_OK) status = carry(x);
  nct_leave(self, held);
  for (size_t i = 0; status == WEIR_OK && i < x->sends; i++)
    if (x->out[i] != NULL) self->base.bytes_sent += x->send[i].bytes;
  return status;
}

static bool needs_nccl(const transfer *x) {
  bool any = false;
  for (size_t i = 0; i < x->sends; i++) any = any || nct_carries(x->self, x->send[i].peer);
  for (size_t i = 0; i < x->recvs; i++) any = any || nct_carries(x->self, x->recv[i].peer);
  return any;
}

weir_status nct_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                         size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  nct *self = (nct *)t;
  transfer x = {.self = self,
                .tag = tag,
                .send = send,
                .sends = sends,
                .recv = recv,
                .recvs = recvs,
                .deadline_s = deadline_s};
  weir_status status = weir_messages_check(t, send, sends, recv, recvs);
  if (status != WEIR_OK) return status;
  status = needs_nccl(&x) ? with_nccl(&x)
                          : over_control(self, tag, send, sends, recv, recvs, deadline_s);
  /* The others count on this rank's messages: whatever failed here, the group is over. */
  return status == WEIR_OK ? WEIR_OK : blame(self, t->rank, status);
}

/* --- NCCL's own all-reduce -------------------------------------------------------------------- */

/* Every member's block to all others, with the tag: so nobody sums before all mean the same sum.
 * Blocks are of the communicator of all ranks; others' have no length. */
static weir_status share_blocks(nct *self, const weir_tag *tag, unsigned char *blocks, size_t bytes,
                                double deadline_s) {
  weir_transport *control = self->control;
  const size_t others = (size_t)self->base.size - 1;
  weir_status status = nct_words(self, others * (sizeof(weir_send) + sizeof(weir_recv)) + 1);
  if (status != WEIR_OK) return status;
  weir_send *send = (weir_send *)(void *)self->words;
  weir_recv *recv = (weir_recv *)(void *)(send + others);
  unsigned char nothing[1];
  size_t n = 0;
  for (int r = 0; r < self->base.size; r++) {
    if (r == self->base.rank || self->place[r] < 0) continue;
    const size_t own = (size_t)self->base.rank * bytes, theirs = (size_t)r * bytes;
    send[n] = (weir_send){r, bytes > 0 ? blocks + own : nothing, bytes, 0};
    recv[n++] = (weir_recv){r, bytes > 0 ? blocks + theirs : nothing, bytes, 0, 0};
  }
  status = control->ops->transfer(control, tag, send, n, recv, n, deadline_s);
  for (size_t i = 0; status == WEIR_OK && i < n; i++)
    if (recv[i].bytes != bytes)
      status = blame(self, recv[i].peer,
                     weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu bytes where %zu were due",
                               recv[i].peer, recv[i].bytes, bytes));
  return status;
}

static int next_member(const nct *self) {
  int r = self->base.rank;
  do r = (r + 1) % self->base.size;
  while (self->place[r] < 0);
  return r;
}

static weir_status sum(nct *self, weir_nccl_choice choice, const weir_tag *tag, float *x, size_t n,
                       double deadline_s) {
  const size_t bytes = n * sizeof *x;
  const int next = next_member(self);
  const bool there = nct_on_device(self, x);
  weir_status status = there ? WEIR_OK : nct_reserve(self, bytes);
  if (status != WEIR_OK) return status;
  void *at = there ? (void *)x : self->memory;
  if (!there) status = nct_copy(self, at, x, bytes, cudaMemcpyHostToDevice);
  if (status == WEIR_OK) status = nct_tuner_switch(self, choice);
  if (status == WEIR_OK)
    status = nct_result(
        self, self->lib->all_reduce(at, at, n, ncclFloat32, ncclSum, self->comm, self->stream),
        "to sum");
  if (status == WEIR_OK) status = nct_wait(self, next, tag->step, deadline_s);
  if (status == WEIR_OK) status = nct_tuner_check(self);
  if (status != WEIR_OK || there) return status;
  status = nct_copy(self, x, at, bytes, cudaMemcpyDeviceToHost);
  return status == WEIR_OK ? nct_wait(self, next, tag->step, deadline_s) : status;
}

static weir_status all_reduce(weir_transport *t, weir_nccl_choice choice, const weir_tag *tag,
                              float *x, size_t n, void *blocks, size_t block_bytes,
                              double deadline_s) {
  nct *self = (nct *)t;
  int held = 0;
  weir_status status = nct_enter(self, &held);
  if (status != WEIR_OK) return status;
  const uint64_t before = self->control->bytes_sent;
  status = share_blocks(self, tag, blocks, block_bytes, deadline_s);
  if (status == WEIR_OK && n > 0) status = sum(self, choice, tag, x, n, deadline_s);
  nct_leave(self, held);
  if (status != WEIR_OK) return blame(self, t->rank, status);
  /* What a ring or a tree sends at the most; NCCL does not tell what it did send. */
  t->bytes_sent += self->control->bytes_sent - before + 2 * n * sizeof *x;
  return WEIR_OK;
}

weir_status nct_allreduce(weir_transport *t, const weir_tag *tag, float *x, size_t n, void *blocks,
                          size_t block_bytes, double deadline_s) {
  return all_reduce(t, WEIR_NCCL_OWN, tag, x, n, blocks, block_bytes, deadline_s);
}

weir_status nct_allreduce_told(weir_transport *t, weir_told_algorithm how, const weir_tag *tag,
                               float *x, size_t n, void *blocks, size_t block_bytes,
                               double deadline_s) {
  const weir_status status = nct_tells(t);
  return status != WEIR_OK ? status
                           : all_reduce(t, how == WEIR_TOLD_RING ? WEIR_NCCL_RING : WEIR_NCCL_TREE,
                                        tag, x, n, blocks, block_bytes, deadline_s);
}

/* The communicator is of all ranks, or of each machine's: a rank alone on its machine knows which
 * by what was asked for. */
bool nct_sums_inside(const weir_transport *t, const int *machine) {
  const nct *self = (const nct *)t;
  const bool alone = self->options.inside && self->members < 2;
  for (int r = 0; r < t->size; r++) {
    const bool member = alone ? r == t->rank : self->place[r] >= 0;
    if (member != (machine[r] == machine[t->rank])) return false;
  }
  return true;
}

weir_status nct_allreduce_inside(weir_transport *t, const weir_tag *tag, float *x, size_t n,
                                 double deadline_s) {
  return all_reduce(t, WEIR_NCCL_OWN, tag, x, n, NULL, 0, deadline_s);
}

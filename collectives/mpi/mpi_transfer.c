/* Moving messages: all of MPI's requests of a call are tested together until none is left, and what
 * is in memory is moved in between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/mpi/mpi.h"

#define CLOCK_EVERY 64 /* polls that found something, between two readings of the clock */
/* With all of a call's messages in memory MPI is looked at now and then: for control messages, and
 * because what it has taken of earlier calls may still be on its way. */
#define MPI_EVERY 8

typedef struct transfer {
  mpt *self;
  const weir_tag *tag;
  const weir_send *send;
  size_t sends;
  weir_recv *recv;
  size_t recvs;
  size_t open;             /* messages over MPI not complete */
  weir_memory_call inside; /* those in memory */
  unsigned polls;
} transfer;

/* Where message m's requests are; receives come first, then sends. */
static MPI_Request *request_of(const transfer *x, size_t m, int part) {
  return &x->self->request[1 + m * MPT_PARTS + (size_t)part];
}

static int peer_of(const transfer *x, size_t m) {
  return m < x->recvs ? x->recv[m].peer : x->send[m - x->recvs].peer;
}

static bool in_memory(const transfer *x, size_t m) {
  return weir_memory_reaches(&x->self->shared, peer_of(x, m));
}

static weir_status reserve(mpt *self, size_t messages) {
  if (messages <= self->room) return WEIR_OK;
  const size_t requests = 1 + messages * MPT_PARTS;
  MPI_Request *request = realloc(self->request, requests * sizeof *request);
  if (request) self->request = request;
  int *index = realloc(self->index, requests * sizeof *index);
  if (index) self->index = index;
  MPI_Status *status = realloc(self->status, requests * sizeof *status);
  if (status) self->status = status;
  mpt_message *message = realloc(self->message, messages * sizeof *message);
  if (message) self->message = message;
  mpt_stage *stage = realloc(self->stage, messages * sizeof *stage);
  if (stage) self->stage = stage;
  if (!request || !index || !status || !message || !stage)
    return weir_fail(WEIR_E_NOMEM, "no memory for %zu messages", messages);
  self->room = messages;
  return WEIR_OK;
}

/* Head and body of a payload that does not fit into its frame. */
static size_t body_blocks(size_t length) {
  return length < 2 * MPT_BLOCK ? 0 : length / MPT_BLOCK - 1;
}
static size_t head_bytes(size_t length) { return length - body_blocks(length) * MPT_BLOCK; }

static weir_status failed(transfer *x, int peer, int code, const char *doing) {
  char whose[64];
  (void)snprintf(whose, sizeof whose, "%s (rank %d)", doing, peer);
  return mpt_blame(x->self, peer, mpt_error(code, whose));
}

/* No other rank can be heard: it is this one that is lost. */
static weir_status deaf(transfer *x, weir_status status) {
  return mpt_blame(x->self, x->self->base.rank, status);
}

/* --- sending ---------------------------------------------------------------------------------- */

static weir_status post_send(transfer *x, size_t i) {
  mpt *self = x->self;
  const weir_send *s = &x->send[i];
  const size_t m = x->recvs + i;
  mpt_stage *stage = &self->stage[m];
  const bool fits = s->bytes <= MPT_INLINE;
  stage->frame = weir_frame_of(self->base.rank, x->tag, s->hop, s->bytes);
  if (fits && s->bytes > 0) memcpy(stage->payload, s->data, s->bytes);
  self->message[m].parts = 1;
  int code = MPI_Isend(stage, (int)(sizeof stage->frame + (fits ? s->bytes : 0)), MPI_BYTE, s->peer,
                       MPT_TAG_FRAME, self->comm, request_of(x, m, 0));
  if (!fits && code == MPI_SUCCESS) {
    self->message[m].parts++;
    code = MPI_Isend(s->data, (int)head_bytes(s->bytes), MPI_BYTE, s->peer, MPT_TAG_HEAD,
                     self->comm, request_of(x, m, 1));
  }
  if (!fits && body_blocks(s->bytes) > 0 && code == MPI_SUCCESS) {
    self->message[m].parts++;
    code =
        MPI_Isend((const unsigned char *)s->data + head_bytes(s->bytes), (int)body_blocks(s->bytes),
                  self->block, s->peer, MPT_TAG_BODY, self->comm, request_of(x, m, 2));
  }
  return code == MPI_SUCCESS ? WEIR_OK : failed(x, s->peer, code, "to send");
}

/* --- flow samples ----------------------------------------------------------------------------- */

/* Eager messages arrive right behind their frame; longer ones a round trip after it, head and body
 * together.  So the time of a short payload counts from its frame, that of a long one from its
 * head; what lies between says more about latency than about bandwidth. */
static void flow_begins(transfer *x, size_t i) {
  x->self->message[i].first_s = weir_now_s();
  x->self->message[i].first_poll = x->polls;
}

static void flow_ends(transfer *x, size_t i, size_t bytes) {
  const mpt_message *m = &x->self->message[i];
  const weir_recv *r = &x->recv[i];
  if (m->first_s <= 0.0 || r->bytes < WEIR_FLOW_MIN) return;
  /* Nothing to wait for between the two: all was there at once. */
  const bool streamed = x->polls > m->first_poll + 1;
  weir_flow_record(&x->self->base,
                   (weir_flow_sample){.peer = r->peer,
                                      .bytes = streamed ? bytes : 0,
                                      .late_bytes = streamed ? bytes : 0, /* half is not seen */
                                      .first_s = m->first_s,
                                      .half_s = m->first_s,
                                      .last_s = streamed ? weir_now_s() : m->first_s});
}

/* --- receiving -------------------------------------------------------------------------------- */

/* Only the first open receive from a peer has a request for its frame: frames come in order. */
static weir_status post_frame(transfer *x, size_t i) {
  mpt *self = x->self;
  const int code = MPI_Irecv(&self->stage[i], (int)sizeof self->stage[i], MPI_BYTE, x->recv[i].peer,
                             MPT_TAG_FRAME, self->comm, request_of(x, i, 0));
  self->message[i] = (mpt_message){.parts = 1};
  return code == MPI_SUCCESS ? WEIR_OK : failed(x, x->recv[i].peer, code, "to receive");
}

static weir_status check_frame(transfer *x, size_t i, size_t count) {
  const weir_frame *f = &x->self->stage[i].frame;
  const weir_recv *r = &x->recv[i];
  const weir_frame none = {0};
  const weir_status status =
      weir_frame_check(count < sizeof *f ? &none : f, r->peer, x->tag, r->hop, r->capacity);
  if (status != WEIR_OK) return status;
  const size_t inside = f->length <= MPT_INLINE ? (size_t)f->length : 0;
  if (count != sizeof *f + inside)
    return weir_fail(WEIR_E_PROTOCOL, "rank %d sent a frame of %zu bytes where %zu were due",
                     r->peer, count, sizeof *f + inside);
  return WEIR_OK;
}

static weir_status take_frame(transfer *x, size_t i, size_t count) {
  mpt *self = x->self;
  weir_recv *r = &x->recv[i];
  const weir_status status = check_frame(x, i, count);
  if (status != WEIR_OK) return mpt_blame(self, r->peer, status);
  r->bytes = (size_t)self->stage[i].frame.length;
  int code = MPI_SUCCESS;
  if (r->bytes > MPT_INLINE) {
    const size_t head = head_bytes(r->bytes), blocks = body_blocks(r->bytes);
    self->message[i].parts += 1 + (blocks > 0);
    code = MPI_Irecv(r->data, (int)head, MPI_BYTE, r->peer, MPT_TAG_HEAD, self->comm,
                     request_of(x, i, 1));
    if (blocks > 0 && code == MPI_SUCCESS)
      code = MPI_Irecv((unsigned char *)r->data + head, (int)blocks, self->block, r->peer,
                       MPT_TAG_BODY, self->comm, request_of(x, i, 2));
    if (r->bytes < MPT_BLOCK) flow_begins(x, i);
  } else if (r->bytes > 0) {
    memcpy(r->data, self->stage[i].payload, r->bytes);
  }
  if (code != MPI_SUCCESS) return failed(x, r->peer, code, "to receive");
  const size_t next = weir_recv_after(x->recv, x->recvs, i);
  return next < x->recvs ? post_frame(x, next) : WEIR_OK;
}

static weir_status take_part(transfer *x, size_t i, int part, const MPI_Status *status) {
  mpt *self = x->self;
  weir_recv *r = &x->recv[i];
  int count = 0;
  const MPI_Datatype type = part == 2 ? self->block : MPI_BYTE;
  if (MPI_Get_count(status, type, &count) != MPI_SUCCESS || count < 0) count = 0;
  if (part == 0) return take_frame(x, i, (size_t)count);
  const size_t due = part == 1 ? head_bytes(r->bytes) : body_blocks(r->bytes);
  if ((size_t)count != due)
    return mpt_blame(
        self, r->peer,
        weir_fail(WEIR_E_PROTOCOL, "rank %d sent less than its frame announced", r->peer));
  if (part == 1 && body_blocks(r->bytes) > 0)
    flow_begins(x, i);
  else
    flow_ends(x, i, due * (part == 1 ? 1 : MPT_BLOCK));
  return WEIR_OK;
}

/* --- all of them ------------------------------------------------------------------------------ */

static weir_status take(transfer *x, int index, const MPI_Status *status) {
  mpt *self = x->self;
  const size_t m = (size_t)(index - 1) / MPT_PARTS;
  const int part = (index - 1) % MPT_PARTS;
  if (m < x->recvs) {
    const weir_status taken = take_part(x, m, part, status);
    if (taken != WEIR_OK) return taken;
  }
  if (--self->message[m].parts == 0) x->open--;
  return WEIR_OK;
}

/* One look at all requests; *found tells how many were complete. */
static weir_status poll(transfer *x, int requests, int *found) {
  mpt *self = x->self;
  int count = 0;
  const int code = MPI_Testsome(requests, self->request, &count, self->index, self->status);
  *found = count == MPI_UNDEFINED ? 0 : count;
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
    return failed(x, self->waiting_on, code, "to move messages");
  weir_status status = WEIR_OK;
  for (int i = 0; i < *found && status == WEIR_OK; i++) {
    const int at = self->index[i];
    if (code == MPI_ERR_IN_STATUS && self->status[i].MPI_ERROR != MPI_SUCCESS)
      return at == 0 ? deaf(x, mpt_error(self->status[i].MPI_ERROR, "to listen"))
                     : failed(x, peer_of(x, (size_t)(at - 1) / MPT_PARTS),
                              self->status[i].MPI_ERROR, "to move messages");
    if (at == 0) {
      self->status[0] = self->status[i];
      status = mpt_control_take(self);
      if (status != WEIR_OK) return deaf(x, status);
      if (self->ended.reason != WEIR_OK) return weir_end_fail(&self->ended, self->base.rank);
    } else {
      status = take(x, at, &self->status[i]);
    }
  }
  return status;
}

/* The peer a message is due from, else one that a message is due to. */
static int waiting_on(const transfer *x) {
  for (size_t m = 0; m < x->recvs; m++)
    if (x->self->message[m].parts > 0) return x->recv[m].peer;
  const int inside = weir_memory_waits_for(&x->inside);
  if (inside >= 0) return inside;
  for (size_t m = 0; m < x->sends; m++)
    if (x->self->message[x->recvs + m].parts > 0) return x->send[m].peer;
  return x->self->base.rank;
}

static weir_status complete(transfer *x, double deadline_s) {
  mpt *self = x->self;
  const int requests = 1 + (int)((x->recvs + x->sends) * MPT_PARTS);
  mpt_pause pause = {0};
  self->waiting_on = waiting_on(x); /* the first look may fail already */
  for (; x->open + x->inside.open > 0; x->polls++) {
    int found = 0;
    bool moved = false;
    weir_status status = WEIR_OK;
    if (x->open > 0 || x->polls % MPI_EVERY == MPI_EVERY - 1) status = poll(x, requests, &found);
    if (status != WEIR_OK) return status;
    status = weir_memory_turn(&x->inside, &moved);
    if (status != WEIR_OK) return mpt_blame(self, x->inside.culprit, status);
    found += moved;
    if (found > 0) {
      pause = (mpt_pause){0};
      if (x->polls % CLOCK_EVERY != 0) continue;
    }
    if (x->open + x->inside.open == 0) break;
    self->waiting_on = waiting_on(x);
    /* What a rank sent before it left has been matched before its farewell was. */
    if (found == 0 && self->peer[self->waiting_on].gone)
      return mpt_blame_gone(self, self->waiting_on, x->tag->step);
    if (weir_now_s() >= deadline_s) return mpt_blame_silence(self, self->waiting_on, x->tag->step);
    if (found == 0) mpt_pause_turn(&pause);
  }
  return WEIR_OK;
}

static weir_status begin(transfer *x) {
  mpt *self = x->self;
  const size_t messages = x->recvs + x->sends;
  weir_memory_begin(&x->inside);
  for (size_t m = 0; m < messages; m++) {
    self->message[m] = (mpt_message){.parts = !in_memory(x, m)};
    for (int part = 0; part < MPT_PARTS; part++) *request_of(x, m, part) = MPI_REQUEST_NULL;
  }
  x->open = messages - x->inside.open;
  weir_status status = WEIR_OK;
  for (size_t i = 0; i < x->recvs && status == WEIR_OK; i++) {
    bool first = !in_memory(x, i);
    for (size_t j = 0; j < i && first; j++) first = x->recv[j].peer != x->recv[i].peer;
    if (first) status = post_frame(x, i);
  }
  for (size_t i = 0; i < x->sends && status == WEIR_OK; i++)
    if (!in_memory(x, x->recvs + i)) status = post_send(x, i);
  return status;
}

/* Receives are withdrawn; a send cannot be (Open MPI does not cancel sends), it is only forgotten.
 * The group has ended, so nothing of ours moves it any more. */
static void give_up(transfer *x) {
  mpt *self = x->self;
  for (size_t m = 0; m < x->recvs + x->sends; m++)
    for (int part = 0; part < MPT_PARTS; part++) {
      MPI_Request *request = request_of(x, m, part);
      if (*request == MPI_REQUEST_NULL) continue;
      if (m < x->recvs) (void)MPI_Cancel(request);
      (void)MPI_Request_free(request);
    }
  self->dirty = true;
  mpt_do_not_finalise();
}

weir_status mpt_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                         size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  mpt *self = (mpt *)t;
  weir_status status = weir_messages_check(t, send, sends, recv, recvs);
  if (status != WEIR_OK) return status;
  if (self->ended.reason != WEIR_OK) return weir_end_fail(&self->ended, t->rank);
  if (sends + recvs == 0) return WEIR_OK;
  status = reserve(self, sends + recvs);
  if (status != WEIR_OK) return status;
  transfer x = {
      .self = self, .tag = tag, .send = send, .sends = sends, .recv = recv, .recvs = recvs};
  x.inside = (weir_memory_call){.t = t,
                                .shared = &self->shared,
                                .tag = tag,
                                .send = send,
                                .sends = sends,
                                .recv = recv,
                                .recvs = recvs,
                                .progress = self->progress,
                                .active = self->active};
  status = begin(&x);
  if (status == WEIR_OK) status = complete(&x, deadline_s);
  self->waiting_on = -1;
  if (status != WEIR_OK) {
    give_up(&x);
    return status;
  }
  for (size_t i = 0; i < sends; i++) t->bytes_sent += sizeof(weir_frame) + send[i].bytes;
  return WEIR_OK;
}

/* Survivors of a lost rank form a new group over TCP: each survivor calls those below it at the
 * addresses it knows, hears those above, and then all agree on who they are. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/tcp_agree.h"
#include "collectives/transports/tcp_meeting.h"

#define SLICE_S 0.02
#define LOOK_S 0.2 /* how often a rank that has not come is looked for */
#define CONNECT_MAX_S 1.0
#define ASK_S 0.6 /* how often ranks that have not come are asked whether they are there */

typedef struct reunion {
  tcp *old;
  bool trusts; /* nobody can have gone on without this rank yet: where nobody listens, a process has
                  ended */
  tcp *next;   /* of the old size: this rank's new addresses, and the others' old ones */
  tcp_meeting *meeting;
  tcp_ranks dead;
  double begun_s, deadline_s;
  double last_s;    /* and no longer, not even for those who answer */
  tcp_reply *reply; /* per rank: who answers; asked from the deadline on */
  double asked_s;
  double look_s; /* when to look for those above next */
} reunion;

/* A connection to where a rank listened; -1 with *dead set when its host says nobody does. */
static int knock(const tcp *self, int rank, double deadline_s, bool *dead) {
  struct sockaddr_in from = self->peer[self->base.rank].data;
  const struct sockaddr_in *to = &self->peer[rank].data;
  const double limit_s = weir_now_s() + CONNECT_MAX_S;
  *dead = false;
  from.sin_port = 0;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int error = bind(fd, (const struct sockaddr *)&from, sizeof from) == 0 ? 0 : errno;
  if (error == 0 && connect(fd, (const struct sockaddr *)to, sizeof *to) != 0) error = errno;
  if (error == EINPROGRESS) {
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    socklen_t length = sizeof error;
    if (tcp_poll_until(&wait, 1, limit_s < deadline_s ? limit_s : deadline_s) != 1)
      error = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
      error = errno;
  }
  if (error == 0) return fd;
  (void)close(fd);
  *dead = error == ECONNREFUSED;
  return -1;
}

static void look_for(reunion *u, int rank, bool above) {
  bool dead = false;
  if (u->meeting->arrival[rank].fd >= 0 || tcp_ranks_has(&u->dead, rank)) return;
  if (!above && tcp_meeting_has_called(u->meeting, rank)) return;
  const int fd = knock(u->next, rank, u->last_s, &dead);
  if (dead && u->trusts && weir_now_s() < u->deadline_s) u->old->peer[rank].dead = true;
  if (dead && u->old->peer[rank].dead) tcp_ranks_add(&u->dead, rank);
  if (fd >= 0 && above)
    (void)close(fd); /* it is there, or was; it will call */
  else if (fd >= 0)
    tcp_meeting_call(u->meeting, rank, fd);
}

/* One that has not come may still be waiting elsewhere, for the rank that is lost or for a probe's
 * end: its answering thread says that it is there. */
static bool answers(reunion *u, int rank) {
  if (u->asked_s + ASK_S <= weir_now_s()) {
    memset(u->reply, 0, (size_t)u->next->base.size * sizeof *u->reply);
    tcp_ask_all(u->old, u->reply, weir_now_s() + ASK_S / 2);
    u->asked_s = weir_now_s();
  }
  return u->reply[rank].alive;
}

/* Is it worth waiting for those who are missing?  Nobody who answers is left out before the last
 * moment; one that is known to be silent is not waited for as long as others. */
static bool waits(reunion *u) {
  const weir_end *end = &u->old->ended;
  const double now_s = weir_now_s();
  for (int r = 0; r < u->next->base.size && now_s < u->last_s; r++) {
    if (r == u->next->base.rank || u->meeting->arrival[r].fd >= 0 || tcp_ranks_has(&u->dead, r))
      continue;
    const bool known = end->reason == WEIR_E_TIMEOUT && end->culprit == r;
    const double until_s =
        known ? fmin(u->begun_s + WEIR_SHRINK_GRACE_S, u->deadline_s) : u->deadline_s;
    if (now_s < until_s || answers(u, r)) return true;
  }
  return false;
}

/* Others have tried more often than this rank: with theirs all go on. */
static void catch_up(reunion *u) {
  tcp_meeting_restart(u->meeting);
  u->old->reunions = u->meeting->terms.generation - u->old->generation;
  u->trusts = false; /* as one that has tried before */
}

static weir_status meet(reunion *u) {
  const int rank = u->next->base.rank, size = u->next->base.size;
  weir_status status = WEIR_OK;
  while (status == WEIR_OK && waits(u)) {
    for (int r = 0; r < rank && u->meeting->guests < TCP_STRANGERS / 2; r++) look_for(u, r, false);
    if (weir_now_s() >= u->look_s) {
      for (int r = rank + 1; r < size; r++) look_for(u, r, true);
      u->look_s = weir_now_s() + LOOK_S;
    }
    status = tcp_meeting_hold(u->meeting, weir_now_s() + SLICE_S);
    if (u->meeting->ahead > u->meeting->terms.generation) catch_up(u);
  }
  return status;
}

/* The survivors' own mesh, out of the meeting's connections. */
static weir_status assemble(reunion *u, const tcp_ranks *members, uint64_t generation, tcp **out,
                            int *old_rank) {
  const int rank = u->next->base.rank;
  int count = 0, own = 0;
  for (int r = 0; r < u->next->base.size; r++)
    if (tcp_ranks_has(members, r)) {
      if (r == rank) own = count;
      old_rank[count++] = r;
    }
  tcp *self = NULL;
  const weir_status status = tcp_create(&self, u->old->job, own, count, 1);
  if (status != WEIR_OK) return status;
  const struct {
    uint64_t generation;
    tcp_ranks members;
  } name = {generation, *members};
  self->secret = u->old->secret;
  self->key = u->old->key;
  self->group_key = weir_key_of_group(&u->old->group_key, &name, sizeof name);
  self->generation = generation;
  self->listener = u->next->listener;
  self->udp = u->next->udp;
  u->next->listener = u->next->udp = -1;
  for (int n = 0; n < count; n++) {
    tcp_arrival *a = &u->meeting->arrival[old_rank[n]];
    tcp_peer *p = &self->peer[n];
    if (n == own) {
      const tcp_peer *mine = &u->next->peer[rank];
      tcp_set_peer(p, mine->data.sin_addr, mine->data.sin_port, mine->echo.sin_port);
      continue;
    }
    tcp_set_peer(p, a->address, a->data_port, a->echo_port);
    p->fd = a->fd;
    p->lump = 0;
    a->fd = -1;
  }
  for (int n = 0; n < count; n++)
    if (n != own) tcp_settle(self, n);
  *out = self;
  return count > 1 ? tcp_answerer_start(self) : WEIR_OK;
}

static weir_status gather(reunion *u, double timeout_s, tcp **out, int *old_rank) {
  const int rank = u->next->base.rank, size = u->next->base.size;
  tcp_ranks met = {{0}};
  int *fd = malloc((size_t)size * sizeof *fd);
  bool *member = calloc((size_t)size, sizeof *member), *dead = calloc((size_t)size, sizeof *dead);
  weir_status status =
      fd && member && dead ? meet(u) : weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", size);
  const uint64_t generation = u->meeting->terms.generation;
  if (status == WEIR_OK) {
    tcp_ranks_add(&met, rank);
    for (int r = 0; r < size; r++) {
      fd[r] = u->meeting->arrival[r].fd;
      if (fd[r] >= 0) tcp_ranks_add(&met, r);
    }
    /* Those this rank has met may go on meeting others for so long. */
    status = tcp_agree(fd, rank, size, generation, 2 * timeout_s, &met, &u->dead);
    u->old->left_out = status != WEIR_OK;
  }
  for (int r = 0; status == WEIR_OK && r < size; r++) {
    member[r] = tcp_ranks_has(&met, r);
    dead[r] = tcp_ranks_has(&u->dead, r);
  }
  if (status == WEIR_OK) status = weir_survivors_check(member, dead, size);
  if (status == WEIR_OK) status = assemble(u, &met, generation, out, old_rank);
  free(dead);
  free(member);
  free(fd);
  return status;
}

/* Where this rank listens stays the same as long as its process lives, so that a rank which comes
 * late finds a door at which nobody answers, and not the sign of a process that has ended. */
static weir_status keep_door(tcp *next, const tcp *old) {
  const int rank = old->base.rank;
  tcp_peer *own = &next->peer[rank];
  next->secret = old->secret;
  next->key = old->key;
  for (int r = 0; r < old->base.size; r++) next->peer[r].data = old->peer[r].data;
  tcp_set_peer(own, old->peer[rank].data.sin_addr, old->peer[rank].data.sin_port, 0);
  next->listener = fcntl(old->listener, F_DUPFD_CLOEXEC, 0);
  if (next->listener < 0)
    return weir_fail(WEIR_E_IO, "no descriptor to listen on: %s", strerror(errno));
  return tcp_datagram_open(next, &own->echo);
}

/* Not for one whom the others have found silent, for one that comes later than they wait, nor for
 * one that has tried before: they may have gone on without it and ended since. */
static bool trusts(tcp *old, double timeout_s) {
  weir_end end = old->ended;
  const bool told = tcp_abort_seen(old, &end);
  const int64_t since_ns = told ? atomic_load(&old->abort_ns) : old->ended_ns;
  const bool late = since_ns != 0 && 1e-9 * (double)(tcp_wall_ns() - since_ns) > timeout_s;
  const bool accused = end.reason == WEIR_E_TIMEOUT && end.culprit == old->base.rank;
  return old->reunions == 1 && !late && !accused;
}

weir_status tcp_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank) {
  tcp *old = (tcp *)t, *made = NULL;
  *out = NULL;
  if (t->size == 1) return weir_fail(WEIR_E_STATE, "a group of one cannot shrink");
  if (old->left_out)
    return weir_fail(WEIR_E_PEER, "the other ranks have gone on without rank %d (this rank)",
                     t->rank);
  const uint64_t generation = old->generation + ++old->reunions;
  reunion u = {.old = old, .trusts = trusts(old, timeout_s), .begun_s = weir_now_s()};
  u.deadline_s = u.begun_s + timeout_s;
  u.last_s = u.begun_s + 2 * timeout_s;
  u.reply = calloc((size_t)t->size, sizeof *u.reply);
  if (u.reply == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", t->size);
  u.look_s = u.begun_s + LOOK_S;
  atomic_store(&old->meeting, true);
  weir_status status = tcp_create(&u.next, old->job, t->rank, t->size, 1);
  if (status == WEIR_OK) status = keep_door(u.next, old);
  if (status == WEIR_OK)
    status = tcp_meeting_open(&u.meeting, u.next, old->listener, HELLO_REJOIN, generation);
  if (status == WEIR_OK) {
    u.meeting->missing = t->size - 1;
    status = gather(&u, timeout_s, &made, old_rank);
  }
  atomic_store(&old->meeting, status == WEIR_OK);
  free(u.reply);
  tcp_meeting_close(u.meeting);
  if (u.next) u.next->base.ops->destroy(&u.next->base);
  if (status != WEIR_OK && made) made->base.ops->destroy(&made->base);
  if (status == WEIR_OK) *out = &made->base;
  return status;
}

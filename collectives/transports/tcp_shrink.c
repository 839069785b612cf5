/* Members of a group form a new one over TCP, survivors of a lost rank or all of them with some
 * that join (tcp_joiners.h): each calls those below it at the addresses it knows and hears those
 * above, and on these connections they agree on who goes on (synod.h).  A rank's last word on a
 * connection says what was decided; what follows it belongs to the new group.
 *
 * The lowest rank proposes.  Others do so when those below them are not there or have been silent
 * for SILENT_S; all of it ends 3 timeout_s and SPARE_S after the call began, or before. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/tcp_datagram.h"
#include "collectives/transports/tcp_joiners.h"
#include "collectives/transports/tcp_tls.h"
#include "collectives/transports/tcp_word.h"

#define SLICE_S 0.02
#define LOOK_S 0.05 /* how often a rank that has not come is looked for */
#define CONNECT_MAX_S 1.0
#define ASK_S 0.6    /* how often ranks that have not come are asked whether they are there */
#define REMIND_S 0.2 /* how often who proposes says so again */
#define SILENT_S 1.0 /* then others propose, and those who do not part are left behind */
#define AGAIN_S 0.1  /* between two ballots of a rank whose turn it is */
#define SPARE_S 2.0
#define WELCOME_S 1.0 /* for a table to leave */

/* What there is to another rank. */
typedef struct other {
  int knock;       /* being connected; -1: not */
  double knock_s;  /* when that began, or ended */
  unsigned serial; /* of the connection that is known here; 0: none */
  double heard_s;
  size_t got;  /* bytes of the word that is coming */
  bool told;   /* this rank has said its last word on it */
  bool parted; /* ... and the other one, too */
} other;

typedef struct reunion {
  tcp *old;
  bool trusts; /* nobody can have gone on without this rank yet: where nobody listens, a process has
                  ended */
  tcp *next;   /* of the old size: this rank's new addresses, and the others' old ones */
  tcp_meeting *meeting;
  weir_synod *synod;
  synod_post post;
  other *other;         /* per rank */
  unsigned char *words; /* per rank: the word that is coming */
  struct pollfd *poll;
  double begun_s, deadline_s;
  double last_s;    /* and no longer, not even for those who answer */
  double end_s;     /* of everything */
  tcp_reply *reply; /* per rank: who answers; asked from the deadline on */
  int *old_rank;    /* of the new ones */
  double asked_s;
  double again_s;  /* when this rank may propose next */
  double remind_s; /* ... and say so again */
  double part_s;   /* until when members that have not parted are waited for; 0: not decided */
} reunion;

static bool is_met(const reunion *u, int rank) { return u->meeting->arrival[rank].fd >= 0; }

/* --- words ---------------------------------------------------------------------------------- */

static void hang_up(reunion *u, int rank) {
  (void)close(u->meeting->arrival[rank].fd);
  u->meeting->arrival[rank].fd = -1;
  u->meeting->missing++;
}

/* A word is short and nothing else waits to be sent: it leaves as a whole, or the other side has
 * not read for long. */
static void send_word(void *user, int to, const synod_word *word) {
  reunion *u = user;
  unsigned char bytes[TCP_WORD_MAX];
  const int size = u->next->base.size, fd = u->meeting->arrival[to].fd;
  const size_t count = tcp_word_bytes(size);
  /* What is said of a connection before it is greeted on would be said there twice. */
  if (fd < 0 || u->other[to].told || u->other[to].serial != u->meeting->arrival[to].serial) return;
  tcp_word_write(bytes, u->old->generation, size, word);
  u->other[to].told = word->kind == SYNOD_DECIDED;
  if (send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)count)
    (void)shutdown(fd, SHUT_RDWR);
}

static void greet(reunion *u, int rank) {
  other *o = &u->other[rank];
  const unsigned serial = u->meeting->arrival[rank].serial;
  if (!is_met(u, rank) || o->serial == serial) return;
  o->serial = serial;
  o->heard_s = weir_now_s();
  o->got = 0;
  o->told = o->parted = false;
  weir_synod_meet(u->synod, rank, &u->post);
}

/* Reads no further than its last word: behind it come frames. */
static void listen_to(reunion *u, int rank) {
  other *o = &u->other[rank];
  const int size = u->next->base.size;
  const size_t due = tcp_word_bytes(size);
  unsigned char *bytes = u->words + (size_t)rank * due;
  while (is_met(u, rank) && !o->parted) {
    const ssize_t got =
        recv(u->meeting->arrival[rank].fd, bytes + o->got, due - o->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    synod_word word;
    o->got += got > 0 ? (size_t)got : 0;
    if (got > 0 && o->got < due) continue;
    o->got = 0;
    if (got <= 0 || !tcp_word_read(bytes, u->old->generation, size, &word) ||
        !weir_synod_hear(u->synod, rank, &word, &u->post)) {
      hang_up(u, rank);
      return;
    }
    o->heard_s = weir_now_s();
    o->parted = word.kind == SYNOD_DECIDED;
    /* Another one leads, of more right to it than this one. */
    if (word.kind == SYNOD_REFUSED && synod_holder(word.other) < u->next->base.rank)
      u->again_s = o->heard_s + SILENT_S;
  }
}

/* --- who is there --------------------------------------------------------------------------- */

static void end_knock(reunion *u, int rank) {
  other *o = &u->other[rank];
  (void)close(o->knock);
  o->knock = -1;
}

/* Nobody listens there, says its host. */
static void found_closed(reunion *u, int rank) {
  if (u->trusts && weir_now_s() < u->deadline_s) u->old->peer[rank].dead = true;
  if (u->old->peer[rank].dead && !weir_ranks_has(&u->synod->dead, rank))
    weir_synod_bury(u->synod, rank, &u->post);
}

static void begin_knock(reunion *u, int rank) {
  struct sockaddr_in from = u->next->peer[u->next->base.rank].data;
  const struct sockaddr_in *to = &u->next->peer[rank].data;
  other *o = &u->other[rank];
  from.sin_port = 0;
  o->knock_s = weir_now_s();
  o->knock = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (o->knock < 0) return;
  if (bind(o->knock, (const struct sockaddr *)&from, sizeof from) == 0 &&
      (connect(o->knock, (const struct sockaddr *)to, sizeof *to) == 0 || errno == EINPROGRESS))
    return;
  const bool closed = errno == ECONNREFUSED;
  end_knock(u, rank);
  if (closed) found_closed(u, rank);
}

/* Has the connection come about? */
static void look_at_knock(reunion *u, int rank, bool above) {
  other *o = &u->other[rank];
  struct pollfd ready = {.fd = o->knock, .events = POLLOUT};
  int error = 0;
  socklen_t length = sizeof error;
  if (poll(&ready, 1, 0) < 1) {
    if (weir_now_s() > o->knock_s + CONNECT_MAX_S) end_knock(u, rank);
    return;
  }
  o->knock_s = weir_now_s();
  if (getsockopt(o->knock, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0 && !above) {
    tcp_meeting_call(u->meeting, rank, o->knock);
    o->knock = -1;
    return;
  }
  end_knock(u, rank); /* one above is there, or was; it will call */
  if (error == ECONNREFUSED) found_closed(u, rank);
}

static void look_for(reunion *u, int rank) {
  const bool above = rank > u->next->base.rank;
  other *o = &u->other[rank];
  if (o->knock >= 0) {
    look_at_knock(u, rank, above);
    return;
  }
  const double pause_s = above ? 4 * LOOK_S : LOOK_S;
  const bool full = !above && !tcp_meeting_may_call(u->meeting);
  if (is_met(u, rank) || weir_ranks_has(&u->synod->dead, rank) || full ||
      weir_now_s() < o->knock_s + pause_s || (!above && tcp_meeting_has_called(u->meeting, rank)))
    return;
  begin_knock(u, rank);
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

/* Is it worth waiting for those who have not answered this rank's ballot?  Nobody who answers is
 * left out before the last moment; one that is known to be silent is not waited for as long as
 * others. */
static bool waits(reunion *u) {
  const weir_end *end = &u->old->ended;
  const double now_s = weir_now_s();
  for (int r = 0; r < u->next->base.size && now_s < u->last_s; r++) {
    if (weir_ranks_has(&u->synod->answered, r) || weir_ranks_has(&u->synod->dead, r)) continue;
    const bool known = end->reason == WEIR_E_TIMEOUT && end->culprit == r;
    const double until_s =
        known ? fmin(u->begun_s + WEIR_SHRINK_GRACE_S, u->deadline_s) : u->deadline_s;
    if (now_s < until_s || answers(u, r)) return true;
  }
  return false;
}

/* --- the agreement -------------------------------------------------------------------------- */

/* Does one of the ranks below this one see to it? */
static bool is_led(const reunion *u) {
  for (int r = 0; r < u->next->base.rank; r++)
    if (is_met(u, r) && weir_now_s() < u->other[r].heard_s + SILENT_S) return true;
  return false;
}

static weir_status too_few(const reunion *u) {
  const int size = u->next->base.size;
  int count = 0, silent = -1;
  for (int r = 0; r < size; r++) {
    count += weir_ranks_has(&u->synod->answered, r);
    if (silent < 0 && !weir_ranks_has(&u->synod->answered, r) &&
        !weir_ranks_has(&u->synod->dead, r))
      silent = r;
  }
  return weir_fail(WEIR_E_PEER,
                   "%d of %d ranks cannot go on: rank %d is silent and may be going on elsewhere",
                   count, size, silent);
}

static weir_status lead(reunion *u) {
  weir_synod *s = u->synod;
  const double now_s = weir_now_s();
  if (s->decided) return WEIR_OK;
  const bool idle = s->phase == SYNOD_IDLE;
  const bool stale = s->phase == SYNOD_PROPOSING && now_s >= u->again_s + SILENT_S;
  if ((idle && !is_led(u) && now_s >= u->again_s) || stale) {
    u->again_s = now_s + AGAIN_S;
    weir_synod_propose(s, &u->post);
  }
  if (s->phase == SYNOD_PREPARING && !waits(u)) {
    weir_synod_hurry(s, &u->post);
    if (s->phase == SYNOD_PREPARING) return too_few(u);
  }
  if (now_s >= u->remind_s) {
    u->remind_s = now_s + REMIND_S;
    weir_synod_remind(s, &u->post);
  }
  return WEIR_OK;
}

/* Have all other members parted, so that what comes from them next belongs to the new group?  One
 * that does not has died, and the new group finds it out. */
static bool is_done(reunion *u) {
  if (!u->synod->decided) return false;
  const double now_s = weir_now_s();
  if (u->part_s == 0) u->part_s = now_s + SILENT_S;
  if (now_s >= u->part_s || !weir_ranks_has(&u->synod->members, u->next->base.rank)) return true;
  for (int r = 0; r < u->next->base.size; r++)
    if (r != u->next->base.rank && weir_ranks_has(&u->synod->members, r) &&
        !weir_ranks_has(&u->synod->dead, r) && !(is_met(u, r) && u->other[r].parted))
      return false;
  return true;
}

/* Until somebody says something, or it is time to look around again. */
static void wait_for_words(reunion *u) {
  const tcp_meeting *m = u->meeting;
  size_t count = 0;
  u->poll[count++] = (struct pollfd){.fd = m->listener, .events = POLLIN};
  for (int i = 0; i < m->guests; i++)
    u->poll[count++] = (struct pollfd){.fd = m->guest[i].fd, .events = POLLIN};
  for (int r = 0; r < u->next->base.size; r++)
    if (is_met(u, r) && !u->other[r].parted)
      u->poll[count++] = (struct pollfd){.fd = m->arrival[r].fd, .events = POLLIN};
  (void)tcp_poll_until(u->poll, count, weir_now_s() + SLICE_S);
}

static weir_status agree(reunion *u) {
  const int rank = u->next->base.rank, size = u->next->base.size;
  weir_status status = WEIR_OK;
  for (int r = 0; r < size; r++)
    if (u->old->peer[r].dead) weir_synod_bury(u->synod, r, &u->post);
  while (status == WEIR_OK && !is_done(u)) {
    if (weir_now_s() >= u->end_s)
      return weir_fail(WEIR_E_TIMEOUT, "the ranks that are left did not agree in time");
    for (int r = 0; r < size; r++)
      if (r != rank) look_for(u, r);
    wait_for_words(u);
    status = tcp_meeting_turn(u->meeting, 0);
    for (int r = 0; r < size; r++) {
      if (r == rank) continue;
      greet(u, r);
      listen_to(u, r);
    }
    if (status == WEIR_OK) status = lead(u);
  }
  return status;
}

/* With what it says of where it is. */
static void copy_own(tcp_peer *own, const tcp_peer *from, in_port_t echo) {
  tcp_set_peer(own, from->data.sin_addr, from->data.sin_port, echo);
  memcpy(own->address, from->address, sizeof own->address);
}

/* A connection to rank n of the new group, who was `old` in the old one. */
static void take_survivor(reunion *u, tcp *self, int n, int old) {
  tcp_arrival *a = &u->meeting->arrival[old];
  const tcp_peer *last = &u->old->peer[old];
  /* Whoever has come listens elsewhere than before, and has to be told there how the group ends
   * even where it has fallen silent since. */
  if (a->echo_port != 0)
    tcp_set_peer(&self->peer[n], a->address, a->data_port, a->echo_port);
  else
    tcp_set_peer(&self->peer[n], last->data.sin_addr, last->data.sin_port, last->echo.sin_port);
  if (a->fd < 0 || !u->other[old].parted) return; /* the first transfer will say so */
  self->peer[n].fd = a->fd;
  a->fd = -1;
}

/* Who joins as rank n: of those told of some may have fallen silent. */
static tcp_guest *guest_of(const reunion *u, int n) {
  return &u->old->joiners->joiner[u->old_rank[n] - u->old->base.size].guest;
}

static void take_joiner(const reunion *u, tcp *self, int n) {
  tcp_guest *guest = guest_of(u, n);
  tcp_set_peer(&self->peer[n], guest->from.sin_addr, guest->hello.data_port,
               guest->hello.echo_port);
  self->peer[n].fd = guest->fd;
  guest->fd = -1;
}

/* What one who joins needs of the new group; one that is gone meanwhile the first transfer
 * finds. */
static void welcome(const reunion *u, const tcp *self, const weir_key *name) {
  for (int n = u->old->base.size; n < self->base.size; n++) {
    const tcp_guest *guest = guest_of(u, n);
    tcp_hello h = tcp_compose(self, HELLO_TABLE, self->generation);
    h.rank = htole32((uint32_t)n);
    memcpy(h.nonce, name->bytes, sizeof h.nonce);
    if (self->peer[n].fd >= 0)
      (void)tcp_tell_table(self, self->peer[n].fd, &guest->hello, &guest->challenge, h,
                           weir_now_s() + WELCOME_S);
  }
}

/* The new group's own mesh, out of the meeting's connections and those of who joins.  Its key has a
 * name that only the old group could make up, and that joiners can be told. */
static weir_status assemble(reunion *u, const weir_ranks *members, uint64_t generation, tcp **out) {
  int *const old_rank = u->old_rank;
  const int rank = u->next->base.rank, all = tcp_joiners_end(u->old);
  int count = 0, own = 0;
  for (int r = 0; r < all; r++)
    if (weir_ranks_has(members, r)) {
      if (r == rank) own = count;
      old_rank[count++] = r;
    }
  tcp *self = NULL;
  const weir_status status = tcp_create(&self, u->old->job, own, count, 1);
  if (status != WEIR_OK) return status;
  const struct {
    uint64_t generation;
    weir_ranks members;
  } change = {generation, *members};
  const weir_key name = weir_key_of_group(&u->old->group_key, &change, sizeof change);
  self->secret = u->old->secret;
  tcp_seal_by(self, u->old->sealed == TCP_PLAIN, u->old->credentials);
  self->key = u->old->key;
  self->group_key = weir_key_of_group(&u->old->key, name.bytes, TCP_NONCE);
  self->generation = generation;
  self->most = u->old->most;
  self->offer = u->old->offer;
  self->listener = u->next->listener;
  self->udp = u->next->udp;
  u->next->listener = u->next->udp = -1;
  for (int n = 0; n < count; n++) {
    const tcp_peer *mine = &u->next->peer[rank];
    if (n == own)
      copy_own(&self->peer[n], mine, mine->echo.sin_port);
    else if (old_rank[n] < u->old->base.size)
      take_survivor(u, self, n, old_rank[n]);
    else
      take_joiner(u, self, n);
  }
  tcp_find_own_address(self, (struct in_addr){htonl(INADDR_ANY)});
  for (int n = 0; n < count; n++)
    if (self->peer[n].fd >= 0) tcp_settle(self, n);
  *out = self;
  welcome(u, self, &name);
  if (self->sealed) {
    const weir_status sealing = tcp_tls_open(self, u->end_s, false);
    if (sealing != WEIR_OK) return sealing;
  }
  return count > 1 || self->most > 0 ? tcp_answerer_start(self) : WEIR_OK;
}

/* Where this rank listens stays the same as long as its process lives, so that a rank which comes
 * late finds a door at which nobody answers, and not the sign of a process that has ended. */
static weir_status keep_door(tcp *next, const tcp *old) {
  const int rank = old->base.rank;
  tcp_peer *own = &next->peer[rank];
  next->secret = old->secret;
  tcp_seal_by(next, old->sealed == TCP_PLAIN, old->credentials);
  next->key = old->key;
  for (int r = 0; r < old->base.size; r++) next->peer[r].data = old->peer[r].data;
  copy_own(own, &old->peer[rank], 0);
  next->listener = fcntl(old->listener, F_DUPFD_CLOEXEC, 0);
  if (next->listener < 0)
    return weir_fail(WEIR_E_IO, "no descriptor to listen on: %s", strerror(errno));
  return tcp_datagram_open(next, &own->echo);
}

/* Not for one whom the others have found silent, for one that comes later than they wait, nor for
 * one that has tried before: they may have gone on without it and ended since. */
static bool trusts(tcp *old, double timeout_s) {
  weir_end end = old->ended;
  if (old->udp >= 0) tcp_datagram_read(old);
  const bool told = tcp_abort_seen(old, &end);
  const int64_t since_ns = told ? atomic_load(&old->abort_ns) : old->ended_ns;
  const bool late = since_ns != 0 && 1e-9 * (double)(tcp_wall_ns() - since_ns) > timeout_s;
  const bool accused = end.reason == WEIR_E_TIMEOUT && end.culprit == old->base.rank;
  return old->reunions == 1 && !late && !accused;
}

static weir_status come_together(reunion *u, tcp **out) {
  const int rank = u->next->base.rank;
  const weir_status status = agree(u);
  if (status != WEIR_OK) return status;
  u->old->left_out = !weir_ranks_has(&u->synod->members, rank);
  if (u->old->left_out)
    return weir_fail(WEIR_E_PEER, "the other ranks go on without rank %d (this rank)", rank);
  return assemble(u, &u->synod->members, u->old->generation + 1, out);
}

static weir_status allocate(reunion *u, int size) {
  const size_t count = (size_t)size;
  u->reply = calloc(count, sizeof *u->reply);
  u->other = calloc(count, sizeof *u->other);
  u->words = calloc(count, tcp_word_bytes(size));
  u->poll = calloc(count + TCP_STRANGERS + 1, sizeof *u->poll);
  u->old_rank = calloc(count + WEIR_JOIN_MOST, sizeof *u->old_rank);
  if (u->old->synod == NULL && (u->old->synod = malloc(sizeof *u->old->synod)) != NULL)
    weir_synod_begin(u->old->synod, u->old->base.rank, size);
  u->synod = u->old->synod;
  if (!u->reply || !u->other || !u->words || !u->poll || !u->old_rank || !u->synod)
    return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", size);
  u->synod->phase = SYNOD_IDLE; /* whatever was asked in an earlier attempt */
  for (int r = 0; r < size; r++) u->other[r].knock = -1;
  return WEIR_OK;
}

static void release(reunion *u) {
  for (int r = 0; u->other && r < u->old->base.size; r++)
    if (u->other[r].knock >= 0) (void)close(u->other[r].knock);
  tcp_meeting_close(u->meeting);
  if (u->next) u->next->base.ops->destroy(&u->next->base);
  free(u->old_rank);
  free(u->poll);
  free(u->words);
  free(u->other);
  free(u->reply);
}

/* grows: those who wait are asked in.  old_rank may be NULL. */
static weir_status reunite(weir_transport *t, double timeout_s, bool grows, weir_transport **out,
                           int *old_rank) {
  tcp *old = (tcp *)t, *made = NULL;
  *out = NULL;
  if (old->left_out)
    return weir_fail(WEIR_E_PEER, "the other ranks have gone on without rank %d (this rank)",
                     t->rank);
  old->reunions++;
  reunion u = {.old = old, .trusts = trusts(old, timeout_s), .begun_s = weir_now_s()};
  u.post = (synod_post){send_word, &u};
  u.deadline_s = u.begun_s + timeout_s;
  u.last_s = u.begun_s + 2 * timeout_s;
  u.end_s = u.begun_s + 3 * timeout_s + SPARE_S;
  atomic_store(&old->meeting, true);
  tcp_joiners_make_way(old->joiners, grows);
  weir_status status = allocate(&u, t->size);
  if (status == WEIR_OK) status = tcp_create(&u.next, old->job, t->rank, t->size, 1);
  if (status == WEIR_OK) status = keep_door(u.next, old);
  if (status == WEIR_OK)
    status = tcp_meeting_open(&u.meeting, u.next, old->listener, HELLO_REJOIN, old->generation);
  if (status == WEIR_OK) {
    u.meeting->missing = t->size - 1;
    if (grows && !old->called) tcp_joiners_call(old, &u.synod->guests);
    old->called = old->called || grows;
    status = come_together(&u, &made);
  }
  for (int n = 0; status == WEIR_OK && old_rank && n < made->base.size && n < t->size; n++)
    old_rank[n] = u.old_rank[n];
  atomic_store(&old->meeting, status == WEIR_OK);
  release(&u);
  if (status != WEIR_OK && made) made->base.ops->destroy(&made->base);
  if (status == WEIR_OK) *out = &made->base;
  return status;
}

weir_status tcp_shrink(weir_transport *t, double timeout_s, weir_transport **out, int *old_rank) {
  *out = NULL;
  if (t->size == 1) return weir_fail(WEIR_E_STATE, "a group of one cannot shrink");
  return reunite(t, timeout_s, false, out, old_rank);
}

weir_status tcp_grow(weir_transport *t, double timeout_s, weir_transport **out) {
  *out = NULL;
  return reunite(t, timeout_s, true, out, NULL);
}

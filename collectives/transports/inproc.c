/* Transport between threads of one process: a message is copied once, by the receiver, from the
 * sender's buffer to its own. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "collectives/transports/common.h"

enum { LETTER_POSTED, LETTER_TAKEN, LETTER_DONE };

/* A message that waits in the sender's transfer; the receiver copies it from the
 * sender's buffer. */
typedef struct inproc_letter {
  weir_tag tag;
  const void *data;
  size_t bytes;
  int to;
  int state;
  struct inproc_letter *next;
} inproc_letter;

typedef struct inproc_member {
  pthread_cond_t changed;
  bool joined;
  bool gone;
  int waiting_on; /* the peer its transfer waits for; -1 when it is not in one */
  bool asks;      /* for the group of the survivors */
  bool stays;     /* it belongs to it */
} inproc_member;

typedef struct inproc_group {
  char *name;
  int size;
  int joined;
  int users; /* transports and waiting joiners */
  bool complete;
  pthread_mutex_t lock; /* guards everything below and the letters */
  weir_end end;
  bool decided; /* who belongs to the group of the survivors */
  inproc_member *member;
  inproc_letter **head; /* [from * size + to], oldest first */
  struct inproc_group *next;
} inproc_group;

/* Threads that meet under a name, wait for one another and end together. */

/* Groups that still wait for members; a complete group leaves the list and its name is free. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static inproc_group *registry;

static void group_free(inproc_group *group) {
  for (int i = 0; i < group->size; i++) (void)pthread_cond_destroy(&group->member[i].changed);
  (void)pthread_mutex_destroy(&group->lock);
  free(group->head);
  free(group->member);
  free(group->name);
  free(group);
}

static weir_status group_create(inproc_group **out, const char *name, int size) {
  inproc_group *group = calloc(1, sizeof *group);
  if (group) {
    group->size = size;
    group->name = strdup(name);
    group->member = calloc((size_t)size, sizeof *group->member);
    group->head = calloc((size_t)size * (size_t)size, sizeof(inproc_letter *));
  }
  if (!group || !group->name || !group->member || !group->head) {
    if (group) {
      free(group->head);
      free(group->member);
      free(group->name);
    }
    free(group);
    return weir_fail(WEIR_E_NOMEM, "no memory for a group of %d ranks", size);
  }
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_mutex_init(&group->lock, NULL);
  for (int i = 0; i < size; i++) {
    (void)pthread_cond_init(&group->member[i].changed, &attributes);
    group->member[i].waiting_on = -1;
  }
  (void)pthread_condattr_destroy(&attributes);
  *out = group;
  return WEIR_OK;
}

static inproc_group **find(const char *name) {
  inproc_group **at = &registry;
  while (*at && strcmp((*at)->name, name) != 0) at = &(*at)->next;
  return at;
}

static void unlist(inproc_group *group) {
  inproc_group **at = &registry;
  while (*at && *at != group) at = &(*at)->next;
  if (*at) *at = group->next;
}

/* Wait on a member's condition until it is signalled or the deadline has passed (then false). */
static bool inproc_wait(inproc_group *group, int rank, double deadline_s) {
  double whole = 0.0;
  const double part = modf(deadline_s, &whole);
  const struct timespec until = {.tv_sec = (time_t)whole, .tv_nsec = (long)(part * 1e9)};
  return pthread_cond_timedwait(&group->member[rank].changed, &group->lock, &until) != ETIMEDOUT;
}

/* All under the group's lock. */
static void inproc_wake_all(inproc_group *group) {
  for (int i = 0; i < group->size; i++) (void)pthread_cond_signal(&group->member[i].changed);
}

static void inproc_end(inproc_group *group, weir_status reason, int culprit, int reporter) {
  if (group->end.reason == WEIR_OK) group->end = (weir_end){reason, culprit, reporter};
  inproc_wake_all(group);
}

/* With the registry locked.  The group's own lock is not needed yet: joiners change `joined` only
 * under the registry's. */
static weir_status enter(inproc_group **out, const char *name, int rank, int size) {
  inproc_group *group = *find(name);
  if (!group) {
    const weir_status status = group_create(&group, name, size);
    if (status != WEIR_OK) return status;
    group->next = registry;
    registry = group;
  }
  if (group->size != size)
    return weir_fail(WEIR_E_MISMATCH, "group \"%s\" has %d ranks elsewhere and %d here", name,
                     group->size, size);
  if (group->member[rank].joined)
    return weir_fail(WEIR_E_INVALID, "rank %d of group \"%s\" has joined already", rank, name);
  group->member[rank].joined = true;
  group->member[rank].gone = false;
  group->users++;
  if (++group->joined == size) unlist(group);
  *out = group;
  return WEIR_OK;
}

static void inproc_leave(inproc_group *group, int rank) {
  (void)pthread_mutex_lock(&registry_lock);
  (void)pthread_mutex_lock(&group->lock);
  group->member[rank].gone = true;
  inproc_wake_all(group);
  (void)pthread_mutex_unlock(&group->lock);
  const bool last = --group->users == 0;
  if (last) unlist(group);
  (void)pthread_mutex_unlock(&registry_lock);
  if (last) group_free(group);
}

/* Join the group and wait until all have; *out is NULL on failure. */
static weir_status inproc_join(inproc_group **out, const char *name, int rank, int size,
                               double deadline_s) {
  *out = NULL;
  inproc_group *group = NULL;
  (void)pthread_mutex_lock(&registry_lock);
  const weir_status status = enter(&group, name, rank, size);
  const bool last = status == WEIR_OK && group->joined == size;
  (void)pthread_mutex_unlock(&registry_lock);
  if (status != WEIR_OK) return status;

  (void)pthread_mutex_lock(&group->lock);
  if (last) {
    group->complete = true;
    inproc_wake_all(group);
  }
  while (!group->complete && inproc_wait(group, rank, deadline_s)) continue;
  const bool complete = group->complete;
  (void)pthread_mutex_unlock(&group->lock);
  if (complete) {
    *out = group;
    return WEIR_OK;
  }
  (void)pthread_mutex_lock(&registry_lock);
  group->member[rank].joined = false;
  group->joined--;
  int missing = -1; /* rather one that has never come than one that has given up */
  for (int r = size; r-- > 0;)
    if (r != rank && !group->member[r].joined &&
        (missing < 0 || !group->member[r].gone || group->member[missing].gone))
      missing = r;
  (void)pthread_mutex_unlock(&registry_lock);
  inproc_leave(group, rank);
  return weir_fail(WEIR_E_TIMEOUT, "rank %d did not join group \"%s\" in time", missing, name);
}

/* What is left of a group: whoever sees first that all who can come have come decides for all,
 * if they are enough. */

/* Is it worth waiting for those who are missing? */
static bool waits(const inproc_group *group, double begun_s, double deadline_s) {
  const double now_s = weir_now_s();
  if (now_s >= deadline_s) return false;
  for (int r = 0; r < group->size; r++) {
    const inproc_member *m = &group->member[r];
    if (m->gone || m->asks) continue;
    const bool known = group->end.reason == WEIR_E_TIMEOUT && group->end.culprit == r;
    if (!known || now_s < begun_s + WEIR_SHRINK_GRACE_S) return true;
  }
  return false;
}

static weir_status decide(inproc_group *group) {
  bool stays[WEIR_RANKS_MAX] = {false}, gone[WEIR_RANKS_MAX] = {false};
  for (int r = 0; r < group->size; r++) {
    gone[r] = group->member[r].gone;
    stays[r] = group->member[r].asks && !gone[r];
  }
  const weir_status status = weir_survivors_check(stays, gone, group->size);
  if (status != WEIR_OK) return status;
  for (int r = 0; r < group->size; r++) group->member[r].stays = stays[r];
  group->decided = true;
  inproc_wake_all(group);
  return WEIR_OK;
}

static weir_status read_decision(const inproc_group *group, int rank, int *old_rank, int *count) {
  *count = 0;
  if (!group->member[rank].stays) /* those who have gone on would look as if they had ended */
    return weir_fail(WEIR_E_PEER, "the other ranks go on without rank %d (this rank)", rank);
  for (int r = 0; r < group->size; r++)
    if (group->member[r].stays) old_rank[(*count)++] = r;
  return WEIR_OK;
}

/* Who of the group is left, agreed on by all who ask within timeout_s: their old ranks and their
 * number. */
static weir_status inproc_survivors(inproc_group *group, int rank, double timeout_s, int *old_rank,
                                    int *count) {
  const double begun_s = weir_now_s(), deadline_s = begun_s + timeout_s;
  weir_status status = WEIR_OK;
  (void)pthread_mutex_lock(&group->lock);
  group->member[rank].asks = true;
  inproc_wake_all(group);
  while (!group->decided && status == WEIR_OK) {
    if (waits(group, begun_s, deadline_s))
      (void)inproc_wait(group, rank, weir_now_s() + 0.05);
    else
      status = decide(group);
  }
  if (status == WEIR_OK) status = read_decision(group, rank, old_rank, count);
  group->member[rank].asks = false;
  (void)pthread_mutex_unlock(&group->lock);
  return status;
}

typedef struct inproc {
  weir_transport base;
  inproc_group *group;
  inproc_letter *letter;
  size_t letters; /* capacity */
  bool *received;
  size_t receivers; /* capacity */
} inproc;

/* One transfer, under the group's lock but for the copying. */
typedef struct exchange {
  inproc *self;
  inproc_group *group;
  const weir_tag *tag;
  weir_recv *recv;
  size_t recvs;
  size_t sends;
  bool unlocked; /* to copy, since this was last set to false */
} exchange;

static weir_status reserve(inproc *self, size_t sends, size_t recvs) {
  if (sends > self->letters) {
    inproc_letter *more = realloc(self->letter, sends * sizeof *more);
    if (!more) return weir_fail(WEIR_E_NOMEM, "no memory for %zu messages", sends);
    self->letter = more;
    self->letters = sends;
  }
  if (recvs > self->receivers) {
    bool *more = realloc(self->received, recvs * sizeof *more);
    if (!more) return weir_fail(WEIR_E_NOMEM, "no memory for %zu messages", recvs);
    self->received = more;
    self->receivers = recvs;
  }
  for (size_t i = 0; i < recvs; i++) self->received[i] = false;
  return WEIR_OK;
}

static inproc_letter **queue(inproc_group *group, int from, int to) {
  return &group->head[(size_t)from * (size_t)group->size + (size_t)to];
}

static void post(exchange *x, const weir_send *send) {
  const int rank = x->self->base.rank;
  for (size_t i = 0; i < x->sends; i++) {
    inproc_letter *letter = &x->self->letter[i];
    *letter = (inproc_letter){.tag = *x->tag,
                              .data = send[i].data,
                              .bytes = send[i].bytes,
                              .to = send[i].peer,
                              .state = LETTER_POSTED};
    letter->tag.hop = send[i].hop;
    inproc_letter **at = queue(x->group, rank, letter->to);
    while (*at) at = &(*at)->next;
    *at = letter;
    (void)pthread_cond_signal(&x->group->member[letter->to].changed);
  }
}

/* Take back what nobody has begun to copy and wait for what is being copied: afterwards nobody
 * looks at the caller's buffers. */
static void withdraw(exchange *x) {
  for (size_t i = 0; i < x->sends; i++) {
    inproc_letter *letter = &x->self->letter[i];
    if (letter->state == LETTER_POSTED) {
      inproc_letter **at = queue(x->group, x->self->base.rank, letter->to);
      while (*at && *at != letter) at = &(*at)->next;
      if (*at) *at = letter->next;
      letter->state = LETTER_DONE;
    }
    while (letter->state == LETTER_TAKEN)
      (void)inproc_wait(x->group, x->self->base.rank, weir_now_s() + 1.0);
  }
}

static weir_status take(exchange *x, weir_recv *recv) {
  const int rank = x->self->base.rank;
  inproc_letter **at = queue(x->group, recv->peer, rank);
  inproc_letter *letter = *at;
  weir_tag expected = *x->tag;
  expected.hop = recv->hop;
  const weir_status status = weir_tag_check(recv->peer, &expected, &letter->tag);
  if (status != WEIR_OK) {
    inproc_end(x->group, status, recv->peer, rank);
    return status;
  }
  if (letter->bytes > recv->capacity) {
    inproc_end(x->group, WEIR_E_PROTOCOL, recv->peer, rank);
    return weir_fail(WEIR_E_PROTOCOL, "rank %d sent %zu bytes where at most %zu were due",
                     recv->peer, letter->bytes, recv->capacity);
  }
  *at = letter->next;
  letter->state = LETTER_TAKEN;
  x->unlocked = true;
  (void)pthread_mutex_unlock(&x->group->lock);
  if (letter->bytes > 0) memcpy(recv->data, letter->data, letter->bytes);
  (void)pthread_mutex_lock(&x->group->lock);
  recv->bytes = letter->bytes;
  letter->state = LETTER_DONE;
  (void)pthread_cond_signal(&x->group->member[recv->peer].changed);
  return WEIR_OK;
}

/* An earlier message from the same peer comes first. */
static bool in_turn(const exchange *x, size_t i) {
  for (size_t j = 0; j < i; j++)
    if (!x->self->received[j] && x->recv[j].peer == x->recv[i].peer) return false;
  return true;
}

/* Copies what is there.  *waiting_on is a peer something is still due from or to, else -1. */
static weir_status progress(exchange *x, int *waiting_on) {
  *waiting_on = -1;
  for (size_t i = 0; i < x->recvs; i++) {
    if (x->self->received[i] || !in_turn(x, i)) continue;
    /* Of a group that ended during a copy some letters are withdrawn, and those behind them are not
     * yet: they would look as if they were out of turn. */
    if (x->group->end.reason != WEIR_OK) return weir_end_fail(&x->group->end, x->self->base.rank);
    const int peer = x->recv[i].peer;
    if (*queue(x->group, peer, x->self->base.rank)) {
      const weir_status status = take(x, &x->recv[i]);
      if (status != WEIR_OK) return status;
      x->self->received[i] = true;
    } else if (*waiting_on < 0 || x->group->member[peer].gone) {
      *waiting_on = peer;
    }
  }
  for (size_t i = 0; *waiting_on < 0 && i < x->sends; i++)
    if (x->self->letter[i].state != LETTER_DONE) *waiting_on = x->self->letter[i].to;
  return WEIR_OK;
}

/* Threads answer always. */
static weir_waiter waiter_of(const void *group, int rank) {
  return (weir_waiter){true, ((const inproc_group *)group)->member[rank].waiting_on};
}

static weir_status give_up(exchange *x, int waiting_on) {
  const int rank = x->self->base.rank;
  const int culprit = weir_end_of_chain(x->group, waiter_of, x->group->size, -1, waiting_on);
  inproc_end(x->group, WEIR_E_TIMEOUT, culprit, rank);
  return weir_fail(WEIR_E_TIMEOUT, "rank %d did not answer in time (step %llu)", culprit,
                   (unsigned long long)x->tag->step);
}

static weir_status complete(exchange *x, double deadline_s) {
  inproc_group *group = x->group;
  const int rank = x->self->base.rank;
  for (bool late = false;;) {
    int peer = -1;
    if (group->end.reason != WEIR_OK) return weir_end_fail(&group->end, rank);
    x->unlocked = false;
    const weir_status status = progress(x, &peer);
    if (status != WEIR_OK || peer < 0) return status;
    if (x->unlocked) continue; /* who signalled during a copy found nobody waiting: look again */
    if (group->member[peer].gone) {
      inproc_end(group, WEIR_E_PEER, peer, rank);
      return weir_fail(WEIR_E_PEER, "rank %d is gone (step %llu)", peer,
                       (unsigned long long)x->tag->step);
    }
    if (late) return give_up(x, peer);
    group->member[rank].waiting_on = peer;
    late = !inproc_wait(group, rank, deadline_s);
  }
}

static weir_status inproc_transfer(weir_transport *t, const weir_tag *tag, const weir_send *send,
                                   size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  inproc *self = (inproc *)t;
  exchange x = {
      .self = self, .group = self->group, .tag = tag, .recv = recv, .recvs = recvs, .sends = sends};
  weir_status status = weir_messages_check(t, send, sends, recv, recvs);
  if (status == WEIR_OK) status = reserve(self, sends, recvs);
  if (status != WEIR_OK) return status;
  (void)pthread_mutex_lock(&self->group->lock);
  post(&x, send);
  status = complete(&x, deadline_s);
  withdraw(&x);
  self->group->member[t->rank].waiting_on = -1;
  (void)pthread_mutex_unlock(&self->group->lock);
  if (status != WEIR_OK) return status;
  for (size_t i = 0; i < sends; i++) t->bytes_sent += send[i].bytes;
  return WEIR_OK;
}

static weir_status inproc_shrink(weir_transport *t, double timeout_s, weir_transport **out,
                                 int *old_rank) {
  inproc_group *group = ((inproc *)t)->group;
  char name[64];
  int count = 0, own = 0;
  *out = NULL;
  const weir_status status = inproc_survivors(group, t->rank, timeout_s, old_rank, &count);
  if (status != WEIR_OK) return status;
  while (old_rank[own] != t->rank) own++;
  /* The old group stays as long as one of its members has not left it. */
  (void)snprintf(name, sizeof name, "left of %p", (void *)group);
  return weir_transport_inproc(out, name, own, count, timeout_s);
}

static void inproc_abort(weir_transport *t, int culprit) {
  inproc_group *group = ((inproc *)t)->group;
  (void)pthread_mutex_lock(&group->lock);
  inproc_end(group, WEIR_E_PEER, culprit, t->rank);
  (void)pthread_mutex_unlock(&group->lock);
}

static void inproc_destroy(weir_transport *t) {
  inproc *self = (inproc *)t;
  if (!self) return;
  inproc_leave(self->group, t->rank);
  free(self->received);
  free(self->letter);
  free(self);
}

static const weir_transport_ops inproc_ops = {
    .name = "inproc",
    .within_memory = true,
    .transfer = inproc_transfer,
    .echo = NULL,
    .abort = inproc_abort,
    .destroy = inproc_destroy,
    .shrink = inproc_shrink,
};

weir_status weir_transport_inproc(weir_transport **out, const char *group, int rank, int size,
                                  double timeout_s) {
  *out = NULL;
  weir_status status = weir_transport_check(rank, size, timeout_s);
  if (status != WEIR_OK) return status;
  if (!group || !*group) return weir_fail(WEIR_E_INVALID, "an in-process group needs a name");
  inproc *self = calloc(1, sizeof *self);
  if (!self) return weir_fail(WEIR_E_NOMEM, "no memory for a transport");
  self->base = (weir_transport){.ops = &inproc_ops, .rank = rank, .size = size};
  status = inproc_join(&self->group, group, rank, size, weir_now_s() + timeout_s);
  if (status != WEIR_OK) {
    free(self);
    return status;
  }
  *out = &self->base;
  return WEIR_OK;
}

#include "collectives/transports/tcp_joiners.h"

#include <endian.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

#define CALL_S 1.0 /* for those who wait to answer a call */

weir_status tcp_joiners_open(tcp *self) {
  if (self->most == 0) return WEIR_OK;
  tcp_joiners *j = calloc(1, sizeof *j);
  if (!j) return weir_fail(WEIR_E_NOMEM, "no memory for those who join");
  (void)pthread_mutex_init(&j->mutex, NULL);
  atomic_init(&j->ready, 0);
  for (int i = 0; i < WEIR_JOIN_MOST; i++) j->joiner[i].guest.fd = -1;
  self->joiners = j;
  return tcp_meeting_open(&j->meeting, self, self->listener, HELLO_JOIN, self->generation);
}

void tcp_joiners_close(tcp_joiners *j) {
  if (!j) return;
  for (int i = 0; i < WEIR_JOIN_MOST; i++)
    if (j->joiner[i].guest.fd >= 0) (void)close(j->joiner[i].guest.fd);
  tcp_meeting_close(j->meeting);
  (void)pthread_mutex_destroy(&j->mutex);
  free(j);
}

size_t tcp_joiners_poll(tcp_joiners *j, struct pollfd *fds) {
  size_t count = 0;
  if (!j) return 0;
  (void)pthread_mutex_lock(&j->mutex);
  for (int i = 0; i < j->meeting->guests; i++)
    fds[count++] = (struct pollfd){.fd = j->meeting->guest[i].fd, .events = POLLIN};
  (void)pthread_mutex_unlock(&j->mutex);
  return count;
}

void tcp_joiners_turn(tcp *self) {
  tcp_joiners *j = self->joiners;
  int ready = 0;
  (void)pthread_mutex_lock(&j->mutex);
  /* Survivors are expected from now on, or those who wait have been called. */
  if (!atomic_load(&self->meeting))
    (void)tcp_meeting_turn(j->meeting, 0); /* only callees fail it */
  for (int i = 0; i < j->meeting->guests; i++) ready += j->meeting->guest[i].due == GUEST_READY;
  atomic_store(&j->ready, ready);
  (void)pthread_mutex_unlock(&j->mutex);
}

void tcp_joiners_make_way(tcp_joiners *j, bool grows) {
  if (!j) return;
  (void)pthread_mutex_lock(&j->mutex);
  for (int i = j->meeting->guests; i-- > 0;) {
    if (grows && j->meeting->guest[i].due == GUEST_READY) continue;
    /* Closing alone would not end it as long as the answering thread polls it. */
    (void)shutdown(j->meeting->guest[i].fd, SHUT_RDWR);
    (void)close(j->meeting->guest[i].fd);
    tcp_meeting_forget(j->meeting, i);
  }
  (void)pthread_mutex_unlock(&j->mutex);
}

static uint64_t number_of(const tcp_guest *guest) { return le64toh(guest->hello.generation); }

/* The lowest numbers, in their order, as many as there is room for. */
static void list(tcp_joiners *j, int room) {
  j->count = 0;
  for (int i = 0; i < j->meeting->guests; i++) {
    if (j->meeting->guest[i].due != GUEST_READY) continue;
    const uint64_t number = number_of(&j->meeting->guest[i]);
    int at = 0;
    while (at < j->count && j->joiner[at].number < number) at++;
    if (at == room) continue;
    if (j->count < room) j->count++;
    for (int k = j->count - 1; k > at; k--) j->joiner[k].number = j->joiner[k - 1].number;
    j->joiner[at].number = number;
  }
}

/* No more than there are members: these can then go on without them, whatever happens. */
static int room(const tcp *self) {
  const int left = self->most - self->base.size;
  const int most = left < self->base.size ? left : self->base.size;
  return most < WEIR_JOIN_MOST ? most : WEIR_JOIN_MOST;
}

uint32_t tcp_waiting(weir_transport *t) {
  tcp *self = (tcp *)t;
  tcp_joiners *j = self->joiners;
  if (j == NULL || atomic_load_explicit(&j->ready, memory_order_relaxed) == 0 || room(self) < 1)
    return 0;
  (void)pthread_mutex_lock(&j->mutex);
  list(j, room(self));
  (void)pthread_mutex_unlock(&j->mutex);
  uint64_t name = WEIR_HASH_INIT;
  for (int i = 0; i < j->count; i++)
    name = weir_hash(name, &j->joiner[i].number, sizeof j->joiner[i].number);
  const uint32_t folded = (uint32_t)(name ^ name >> 32);
  return j->count == 0 ? 0 : folded != 0 ? folded : 1;
}

int tcp_joiners_end(const tcp *self) {
  return self->base.size + (self->joiners ? self->joiners->count : 0);
}

/* --- the call --------------------------------------------------------------------------------- */

static void take_over(tcp_joiners *j) {
  (void)pthread_mutex_lock(&j->mutex);
  for (int k = 0; k < j->count; k++)
    for (int i = j->meeting->guests; i-- > 0;) {
      const tcp_guest *guest = &j->meeting->guest[i];
      if (guest->due != GUEST_READY || number_of(guest) != j->joiner[k].number) continue;
      j->joiner[k].guest = *guest;
      tcp_meeting_forget(j->meeting, i);
      break;
    }
  (void)pthread_mutex_unlock(&j->mutex);
}

static void lose(tcp_joiner *joiner) {
  (void)shutdown(joiner->guest.fd, SHUT_RDWR);
  (void)close(joiner->guest.fd);
  joiner->guest.fd = -1;
}

/* It has nothing else to say, and says it at once. */
static void hear(tcp_joiner *joiner) {
  tcp_hello h;
  if (recv(joiner->guest.fd, &h, sizeof h, MSG_DONTWAIT) == (ssize_t)sizeof h &&
      tcp_hello_is(&h, HELLO_HERE))
    joiner->here = true;
  else
    lose(joiner);
}

void tcp_joiners_call(tcp *self, weir_ranks *here) {
  tcp_joiners *j = self->joiners;
  struct pollfd fds[WEIR_JOIN_MOST];
  const double until_s = weir_now_s() + CALL_S;
  size_t silent = 1;
  take_over(j);
  const tcp_hello h = tcp_compose(self, HELLO_CALL, self->generation);
  for (int k = 0; k < j->count; k++)
    if (j->joiner[k].guest.fd >= 0 &&
        send(j->joiner[k].guest.fd, &h, sizeof h, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof h)
      lose(&j->joiner[k]);
  while (silent > 0 && weir_now_s() < until_s) {
    silent = 0;
    for (int k = 0; k < j->count; k++) {
      const bool waits = j->joiner[k].guest.fd >= 0 && !j->joiner[k].here;
      fds[k] = (struct pollfd){.fd = waits ? j->joiner[k].guest.fd : -1, .events = POLLIN};
      silent += waits;
    }
    if (silent > 0) (void)tcp_poll_until(fds, (size_t)j->count, until_s);
    for (int k = 0; silent > 0 && k < j->count; k++)
      if (fds[k].revents) hear(&j->joiner[k]);
  }
  for (int k = 0; k < j->count; k++)
    if (j->joiner[k].guest.fd >= 0 && j->joiner[k].here) weir_ranks_add(here, self->base.size + k);
}

/* Those who wait to join a group that runs.  The thread that answers datagrams hears them at this
 * rank's listener; once all members have let one in, it waits on a connection to each until the
 * group takes it in. */
#ifndef WEIR_TRANSPORTS_TCP_JOINERS_H
#define WEIR_TRANSPORTS_TCP_JOINERS_H

#include <poll.h>

#include "collectives/transports/synod.h"
#include "collectives/transports/tcp_meeting.h"

typedef struct tcp_joiner {
  uint64_t number; /* drawn by it, and the same at all members */
  tcp_guest guest; /* fd -1: not taken over, or gone */
  bool here;       /* it has answered the call */
} tcp_joiner;

typedef struct tcp_joiners {
  pthread_mutex_t mutex; /* of the meeting */
  tcp_meeting *meeting;  /* the answering thread's while the group lives */
  atomic_int ready;      /* so many have been let in by all */
  /* Of the session's thread: as it has told last, by their numbers. */
  int count;
  tcp_joiner joiner[WEIR_JOIN_MOST];
} tcp_joiners;

/* For a group that others may join; else nothing. */
weir_status tcp_joiners_open(tcp *self);
void tcp_joiners_close(tcp_joiners *j);

/* The answering thread: what to poll beside the listener, at most TCP_STRANGERS; and a turn. */
size_t tcp_joiners_poll(tcp_joiners *j, struct pollfd *fds);
void tcp_joiners_turn(tcp *self);

/* Members come together from now on, and `meeting` says so: whoever else has called is hung up on,
 * so that members among them call again; grows: but for those who wait. */
void tcp_joiners_make_way(tcp_joiners *j, bool grows);
/* As `waiting` in transport.h. */
uint32_t tcp_waiting(weir_transport *t);
/* Those told of last take over from the meeting, are called, and waited for a moment: *here are the
 * ranks that they would have, of those who answer.  Once only. */
void tcp_joiners_call(tcp *self, weir_ranks *here);
/* Ranks of a new group that takes these in. */
int tcp_joiners_end(const tcp *self);

#endif

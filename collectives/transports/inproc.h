/* Meeting place of the in-process transport: threads that know the same group name. */
#ifndef WEIR_TRANSPORTS_INPROC_H
#define WEIR_TRANSPORTS_INPROC_H

#include <pthread.h>

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

/* Join the group and wait until all have; *out is NULL on failure. */
weir_status inproc_join(inproc_group **out, const char *name, int rank, int size,
                        double deadline_s);
void inproc_leave(inproc_group *group, int rank);

/* Who of the group is left, agreed on by all who ask within timeout_s: their old ranks and their
 * number. */
weir_status inproc_survivors(inproc_group *group, int rank, double timeout_s, int *old_rank,
                             int *count);

/* Wait on a member's condition until it is signalled or the deadline has passed (then false). */
bool inproc_wait(inproc_group *group, int rank, double deadline_s);

/* All under the group's lock. */
void inproc_wake_all(inproc_group *group);
void inproc_end(inproc_group *group, weir_status reason, int culprit, int reporter);

#endif

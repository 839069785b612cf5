/* Between the session's thread and the controller's: observations down, a directive up.  No call
 * waits for work of the other side; the lock is held for a copy only. */
#ifndef WEIR_CONTROLLER_MAILBOX_H
#define WEIR_CONTROLLER_MAILBOX_H

#include <pthread.h>

#include "controller/loop.h"

#define WEIR_MAILBOX_SLOTS 64

typedef struct weir_mailbox {
  pthread_mutex_t lock;
  pthread_cond_t filled;
  weir_observation slot[WEIR_MAILBOX_SLOTS];
  size_t first, count;
  uint64_t dropped; /* oldest ones, when full */
  bool closed;
  bool taken; /* one is being answered */
  bool has_directive;
  weir_directive directive;
  weir_plan_bucket *table; /* of the directive's plan when it has buckets; the owner's memory */
  double *gap_s;           /* per tensor; the owner's memory */
  bool fresh_gaps;
  bool wants_curve;
  char said[WEIR_SAID_MAX]; /* of the loop */
} weir_mailbox;

weir_status weir_mailbox_open(weir_mailbox *mailbox);
void weir_mailbox_destroy(weir_mailbox *mailbox);
void weir_mailbox_put(weir_mailbox *mailbox, const weir_observation *seen);
/* Wait for one; false when closed.  *dropped is the running total. */
bool weir_mailbox_get(weir_mailbox *mailbox, weir_observation *seen, uint64_t *dropped);
/* Wait until all that were put have been answered; false: not within so many seconds. */
bool weir_mailbox_settle(weir_mailbox *mailbox, double timeout_s);
void weir_mailbox_close(weir_mailbox *mailbox);
/* The loop's answer to one observation. */
void weir_mailbox_answer(weir_mailbox *mailbox, const weir_loop *loop);
/* Take the finished directive, and its table when its plan has buckets; false: none. */
bool weir_mailbox_take(weir_mailbox *mailbox, weir_directive *directive, weir_plan_bucket *table);
/* Gaps of `tensors` tensors: hand them over; take them, false when there are no newer ones. */
void weir_mailbox_put_gaps(weir_mailbox *mailbox, const double *gap_s, size_t tensors);
bool weir_mailbox_take_gaps(weir_mailbox *mailbox, double *gap_s, size_t tensors);
bool weir_mailbox_wants_curve(weir_mailbox *mailbox);
/* What the loop decided last, and why; empty before. */
void weir_mailbox_said(weir_mailbox *mailbox, char *text, size_t room);

#endif

#include "controller/mailbox.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/base.h"

weir_status weir_mailbox_open(weir_mailbox *m) {
  *m = (weir_mailbox){.wants_curve = true};
  if (pthread_mutex_init(&m->lock, NULL) != 0)
    return weir_fail(WEIR_E_NOMEM, "no lock for the controller's mailbox");
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  const int failed = pthread_cond_init(&m->filled, &attributes);
  (void)pthread_condattr_destroy(&attributes);
  if (failed != 0) {
    pthread_mutex_destroy(&m->lock);
    return weir_fail(WEIR_E_NOMEM, "no condition variable for the controller's mailbox");
  }
  return WEIR_OK;
}

void weir_mailbox_destroy(weir_mailbox *m) {
  pthread_cond_destroy(&m->filled);
  pthread_mutex_destroy(&m->lock);
}

/* That a gradient has touched more must not go unseen. */
static void keep_most(const weir_observation *dropped, weir_observation *next) {
  if (dropped->nonzero > next->nonzero) next->nonzero = dropped->nonzero;
  if (dropped->runs > next->runs) next->runs = dropped->runs;
}

void weir_mailbox_put(weir_mailbox *m, const weir_observation *seen) {
  pthread_mutex_lock(&m->lock);
  if (m->count == WEIR_MAILBOX_SLOTS) { /* the newest matters most: let the oldest go */
    weir_observation *oldest = &m->slot[m->first];
    m->first = (m->first + 1) % WEIR_MAILBOX_SLOTS;
    keep_most(oldest, &m->slot[m->first]);
    m->count--;
    m->dropped++;
  }
  m->slot[(m->first + m->count++) % WEIR_MAILBOX_SLOTS] = *seen;
  pthread_cond_signal(&m->filled);
  pthread_mutex_unlock(&m->lock);
}

bool weir_mailbox_get(weir_mailbox *m, weir_observation *seen, uint64_t *dropped) {
  pthread_mutex_lock(&m->lock);
  m->taken = false;
  if (m->count == 0) pthread_cond_broadcast(&m->filled); /* for who waits until all are answered */
  while (m->count == 0 && !m->closed) pthread_cond_wait(&m->filled, &m->lock);
  const bool got = m->count > 0 && !m->closed;
  if (got) {
    *seen = m->slot[m->first];
    m->first = (m->first + 1) % WEIR_MAILBOX_SLOTS;
    m->count--;
    m->taken = true;
    *dropped = m->dropped;
  }
  pthread_mutex_unlock(&m->lock);
  return got;
}

bool weir_mailbox_settle(weir_mailbox *m, double timeout_s) {
  struct timespec until;
  (void)clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += (time_t)timeout_s + 1;
  int failed = 0;
  pthread_mutex_lock(&m->lock);
  while ((m->count > 0 || m->taken) && failed != ETIMEDOUT)
    failed = pthread_cond_timedwait(&m->filled, &m->lock, &until);
  const bool settled = m->count == 0 && !m->taken;
  pthread_mutex_unlock(&m->lock);
  return settled;
}

void weir_mailbox_close(weir_mailbox *m) {
  pthread_mutex_lock(&m->lock);
  m->closed = true;
  pthread_cond_signal(&m->filled);
  pthread_mutex_unlock(&m->lock);
}

static bool is_probe(uint32_t action) {
  return action == WEIR_ACTION_PROBE || action == WEIR_ACTION_SAMPLE;
}

void weir_mailbox_answer(weir_mailbox *m, const weir_loop *loop) {
  pthread_mutex_lock(&m->lock);
  if (loop->has_directive) {
    /* A probe may be forgone; a plan not yet picked up must not be. */
    const bool plan_waits = m->has_directive && !is_probe(m->directive.action);
    if (!plan_waits || !is_probe(loop->directive.action)) {
      m->directive = loop->directive;
      memcpy(m->table, loop->table, loop->directive.plan.buckets * sizeof *m->table);
    }
    m->has_directive = true;
  }
  m->wants_curve = loop->wants_curve;
  memcpy(m->said, loop->said, sizeof m->said);
  pthread_mutex_unlock(&m->lock);
}

bool weir_mailbox_take(weir_mailbox *m, weir_directive *directive, weir_plan_bucket *table) {
  pthread_mutex_lock(&m->lock);
  const bool has = m->has_directive;
  if (has) *directive = m->directive;
  if (has && directive->plan.buckets > 0)
    memcpy(table, m->table, directive->plan.buckets * sizeof *table);
  m->has_directive = false;
  pthread_mutex_unlock(&m->lock);
  return has;
}

bool weir_mailbox_wants_curve(weir_mailbox *m) {
  pthread_mutex_lock(&m->lock);
  const bool wants = m->wants_curve;
  pthread_mutex_unlock(&m->lock);
  return wants;
}

void weir_mailbox_put_gaps(weir_mailbox *m, const double *gap_s, size_t tensors) {
  pthread_mutex_lock(&m->lock);
  memcpy(m->gap_s, gap_s, tensors * sizeof *gap_s);
  m->fresh_gaps = true;
  pthread_mutex_unlock(&m->lock);
}

bool weir_mailbox_take_gaps(weir_mailbox *m, double *gap_s, size_t tensors) {
  pthread_mutex_lock(&m->lock);
  const bool fresh = m->fresh_gaps;
  if (fresh) memcpy(gap_s, m->gap_s, tensors * sizeof *gap_s);
  m->fresh_gaps = false;
  pthread_mutex_unlock(&m->lock);
  return fresh;
}

void weir_mailbox_said(weir_mailbox *m, char *text, size_t room) {
  pthread_mutex_lock(&m->lock);
  (void)snprintf(text, room, "%s", m->said);
  pthread_mutex_unlock(&m->lock);
}

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "session/state.h"

/* At most four echoes a second; one that found no idle time within two further seconds is sent
 * all the same. */
#define SPACING_S 0.25
#define PATIENCE_S 2.0
#define TIMEOUT_S 1.0

static void wait_until(weir_echo *echo, double when_s) {
  struct timespec when;
  when.tv_sec = (time_t)when_s;
  when.tv_nsec = (long)((when_s - floor(when_s)) * 1e9);
  (void)pthread_cond_timedwait(&echo->changed, &echo->mutex, &when);
}

/* Holding the mutex: false when asked to stop. */
static bool await_turn(weir_echo *echo, double due_s) {
  for (;;) {
    if (echo->stop) return false;
    const double now = weir_now_s();
    if (now >= due_s && (echo->idle || now >= due_s + PATIENCE_S)) return true;
    wait_until(echo, now < due_s ? due_s : due_s + PATIENCE_S);
  }
}

static void keep(weir_echo *echo, double rtt_s, bool loaded) {
  if (echo->count == WEIR_ECHO_KEPT) {
    memmove(echo->kept, echo->kept + 1, (WEIR_ECHO_KEPT - 1) * sizeof *echo->kept);
    echo->count--;
  }
  echo->kept[echo->count++] = (weir_echo_sample){rtt_s, loaded};
}

static void *work(void *argument) {
  weir_echo *echo = argument;
  double due_s = weir_now_s() + SPACING_S;
  (void)pthread_mutex_lock(&echo->mutex);
  while (await_turn(echo, due_s)) {
    const bool loaded = !echo->idle;
    const uint64_t turn = echo->busy_turns;
    (void)pthread_mutex_unlock(&echo->mutex);
    double rtt_s = 0;
    const weir_status status =
        echo->transport->ops->echo(echo->transport, echo->peer, TIMEOUT_S, &rtt_s);
    due_s = weir_now_s() + SPACING_S;
    (void)pthread_mutex_lock(&echo->mutex);
    /* A lost echo says nothing about the latency; a dead peer is the exchange's to report. */
    if (status == WEIR_OK) keep(echo, rtt_s, loaded || turn != echo->busy_turns);
  }
  (void)pthread_mutex_unlock(&echo->mutex);
  return NULL;
}

weir_status weir_echo_start(weir_echo *echo, weir_transport *transport, int peer) {
  memset(echo, 0, sizeof *echo);
  echo->transport = transport;
  echo->peer = peer;
  pthread_condattr_t attributes;
  if (pthread_mutex_init(&echo->mutex, NULL) != 0)
    return weir_fail(WEIR_E_NOMEM, "no mutex for the echo thread");
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  int error = pthread_cond_init(&echo->changed, &attributes);
  (void)pthread_condattr_destroy(&attributes);
  if (error != 0) goto no_condition;
  error = pthread_create(&echo->thread, NULL, work, echo);
  if (error != 0) goto no_thread;
  echo->running = true;
  return WEIR_OK;

no_thread:
  (void)pthread_cond_destroy(&echo->changed);
no_condition:
  (void)pthread_mutex_destroy(&echo->mutex);
  return weir_fail(WEIR_E_NOMEM, "cannot start the echo thread: %s", strerror(error));
}

void weir_echo_idle(weir_echo *echo, bool idle) {
  if (!echo->running) return;
  (void)pthread_mutex_lock(&echo->mutex);
  if (!idle && echo->idle) echo->busy_turns++;
  echo->idle = idle;
  if (idle) (void)pthread_cond_signal(&echo->changed);
  (void)pthread_mutex_unlock(&echo->mutex);
}

int weir_echo_take(weir_echo *echo, weir_echo_sample *found) {
  if (!echo->running) return 0;
  (void)pthread_mutex_lock(&echo->mutex);
  const int count = echo->count;
  memcpy(found, echo->kept, (size_t)count * sizeof *found);
  echo->count = 0;
  (void)pthread_mutex_unlock(&echo->mutex);
  return count;
}

void weir_echo_stop(weir_echo *echo) {
  if (!echo->running) return;
  (void)pthread_mutex_lock(&echo->mutex);
  echo->stop = true;
  (void)pthread_cond_signal(&echo->changed);
  (void)pthread_mutex_unlock(&echo->mutex);
  (void)pthread_join(echo->thread, NULL);
  (void)pthread_cond_destroy(&echo->changed);
  (void)pthread_mutex_destroy(&echo->mutex);
  echo->running = false;
}

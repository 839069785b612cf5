/* The thread that sends echoes and trains into the gaps between exchanges. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "session/state.h"

/* At most four echoes a second; one that found no idle time within half a further second is sent
 * all the same. */
#define SPACING_S 0.25
#define PATIENCE_S 0.5
#define TIMEOUT_S 1.0
/* A train that got lost is not waited for as long as an echo, which is repeated. */
#define TRAIN_TIMEOUT_S 0.25
/* A round trip so much longer or shorter than the one before is looked into at once, so often. */
#define DEPARTURE 1.5
#define HURRY 4

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

static void keep(weir_echo *echo, weir_echo_sample sample) {
  if (echo->count == WEIR_ECHO_KEPT) {
    memmove(echo->kept, echo->kept + 1, (WEIR_ECHO_KEPT - 1) * sizeof *echo->kept);
    echo->count--;
  }
  echo->kept[echo->count++] = sample;
}

/* Holding the mutex, but for the time that it takes. */
static void send_echo(weir_echo *echo, double *newest_s, int *hurry) {
  weir_echo_sample sample = {0};
  const uint64_t turn = echo->busy_turns;
  const bool idle = echo->idle;
  (void)pthread_mutex_unlock(&echo->mutex);
  const weir_status status =
      echo->transport->ops->echo(echo->transport, echo->peer, TIMEOUT_S, &sample.seconds);
  (void)pthread_mutex_lock(&echo->mutex);
  if (!idle || turn != echo->busy_turns) sample.loaded = echo->busy_turns;
  /* A lost echo says nothing about the latency; a dead peer is the exchange's to report. */
  if (status != WEIR_OK) return;
  keep(echo, sample);
  if (*newest_s > 0 &&
      (sample.seconds > DEPARTURE * *newest_s || DEPARTURE * sample.seconds < *newest_s))
    *hurry = HURRY;
  *newest_s = sample.seconds;
}

static void send_train(weir_echo *echo, double newest_s) {
  size_t bytes = echo->train_bytes;
  weir_echo_sample sample = {.sent = (double)bytes};
  (void)pthread_mutex_unlock(&echo->mutex);
  const weir_status status =
      echo->transport->ops->train(echo->transport, echo->peer, &bytes,
                                  fmin(TRAIN_TIMEOUT_S + 2 * newest_s, TIMEOUT_S), &sample.seconds);
  (void)pthread_mutex_lock(&echo->mutex);
  sample.arrived = status == WEIR_OK ? (double)bytes : 0;
  keep(echo, sample); /* it was sent, lost or not */
}

static void *work(void *argument) {
  weir_echo *echo = argument;
  /* Ranks take turns within the spacing: what one of them finds serves all. */
  const weir_transport *transport = echo->transport;
  const double turn = (double)transport->rank / transport->size;
  double echo_due_s = weir_now_s() + SPACING_S, train_due_s = 0, newest_s = 0;
  int hurry = 0;
  (void)pthread_mutex_lock(&echo->mutex);
  while (await_turn(echo, echo->train_bytes > 0 ? fmin(echo_due_s, train_due_s) : echo_due_s)) {
    const double now = weir_now_s(), spacing_s = echo->train_spacing_s;
    if (echo->train_bytes > 0 && now >= train_due_s) {
      train_due_s = (floor(now / spacing_s - turn) + 1 + turn) * spacing_s;
      send_train(echo, newest_s);
    } else {
      if (hurry > 0) hurry--;
      send_echo(echo, &newest_s, &hurry);
      echo_due_s = weir_now_s() + (hurry > 0 ? -PATIENCE_S : SPACING_S);
    }
  }
  (void)pthread_mutex_unlock(&echo->mutex);
  return NULL;
}

void weir_echo_pace(weir_echo *echo, size_t train_bytes, double spacing_s) {
  if (!echo->running || echo->transport->ops->train == NULL) return;
  (void)pthread_mutex_lock(&echo->mutex);
  echo->train_bytes = train_bytes;
  echo->train_spacing_s = spacing_s;
  (void)pthread_mutex_unlock(&echo->mutex);
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

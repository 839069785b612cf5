#include "lab/sim.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"

struct weir_sim_clock {
  const weir_scenario *scenario;
  const weir_trace *trace;
  pthread_mutex_t mutex;
  pthread_cond_t moved;
  uint64_t generation;
  uint32_t arrived;
  double busy_s, exchange_s; /* largest of those that have arrived */
  double elapsed_s, latency_s, bandwidth;
  int failed; /* rank; -1: none */
};

static void set_network(weir_sim_clock *clock, uint32_t epoch) {
  if (clock->trace) {
    clock->latency_s = clock->scenario->trace.latency_ms / 1e3;
    clock->bandwidth =
        weir_trace_rate(clock->trace, clock->elapsed_s) * clock->scenario->bandwidth_scale;
    return;
  }
  weir_shape shape;
  weir_scenario_shape(clock->scenario, weir_scenario_phase(clock->scenario, epoch), &shape);
  clock->latency_s = shape.delay_s;
  clock->bandwidth = shape.rate_bytes_s;
}

weir_status weir_sim_clock_create(weir_sim_clock **out, const weir_scenario *scenario,
                                  const weir_trace *trace) {
  weir_sim_clock *clock = *out = calloc(1, sizeof *clock);
  if (!clock) return weir_fail(WEIR_E_NOMEM, "no memory for the clock");
  clock->scenario = scenario;
  clock->trace = trace;
  clock->failed = -1;
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&clock->moved, &attributes);
  (void)pthread_condattr_destroy(&attributes);
  (void)pthread_mutex_init(&clock->mutex, NULL);
  set_network(clock, scenario->first_epoch);
  return WEIR_OK;
}

void weir_sim_clock_go_on(weir_sim_clock *clock, double elapsed_s, uint32_t epoch) {
  clock->elapsed_s = elapsed_s;
  set_network(clock, epoch);
}

void weir_sim_clock_free(weir_sim_clock *clock) {
  if (!clock) return;
  (void)pthread_cond_destroy(&clock->moved);
  (void)pthread_mutex_destroy(&clock->mutex);
  free(clock);
}

static struct timespec after(double timeout_s) {
  struct timespec at;
  (void)clock_gettime(CLOCK_MONOTONIC, &at);
  const double whole = floor(timeout_s);
  at.tv_sec += (time_t)whole;
  at.tv_nsec += (long)((timeout_s - whole) * 1e9);
  if (at.tv_nsec >= 1000000000) {
    at.tv_sec++;
    at.tv_nsec -= 1000000000;
  }
  return at;
}

static void move_on(weir_sim_clock *clock, uint32_t epoch) {
  clock->elapsed_s += clock->busy_s + clock->exchange_s;
  clock->busy_s = clock->exchange_s = 0;
  clock->arrived = 0;
  clock->generation++;
  set_network(clock, epoch);
  (void)pthread_cond_broadcast(&clock->moved);
}

weir_status weir_sim_clock_arrive(weir_sim_clock *clock, double busy_s, double exchange_s,
                                  uint32_t epoch, double timeout_s, double *elapsed_s) {
  const struct timespec deadline = after(timeout_s);
  weir_status status = WEIR_OK;
  (void)pthread_mutex_lock(&clock->mutex);
  const uint64_t generation = clock->generation;
  clock->busy_s = fmax(clock->busy_s, busy_s);
  clock->exchange_s = fmax(clock->exchange_s, exchange_s);
  if (++clock->arrived == clock->scenario->workers) move_on(clock, epoch);
  while (!status && clock->generation == generation) {
    if (clock->failed >= 0)
      status = weir_fail(WEIR_E_PEER, "rank %d has failed", clock->failed);
    else if (pthread_cond_timedwait(&clock->moved, &clock->mutex, &deadline) == ETIMEDOUT &&
             clock->generation == generation)
      status = weir_fail(WEIR_E_TIMEOUT, "%u of %u ranks came to the next step within %.3g s",
                         clock->arrived, clock->scenario->workers, timeout_s);
  }
  *elapsed_s = clock->elapsed_s;
  (void)pthread_mutex_unlock(&clock->mutex);
  return status;
}

void weir_sim_clock_fail(weir_sim_clock *clock, int rank) {
  (void)pthread_mutex_lock(&clock->mutex);
  if (clock->failed < 0) clock->failed = rank;
  (void)pthread_cond_broadcast(&clock->moved);
  (void)pthread_mutex_unlock(&clock->mutex);
}

double weir_sim_clock_exchange(void *user, double begins_s, double latencies, double bytes) {
  weir_sim_clock *clock = user;
  (void)pthread_mutex_lock(&clock->mutex);
  const double latency_s = latencies * clock->latency_s, bandwidth = clock->bandwidth;
  const double at = clock->elapsed_s + begins_s + latency_s;
  (void)pthread_mutex_unlock(&clock->mutex);
  if (!clock->trace) return latency_s + (bandwidth > 0 ? bytes / bandwidth : 0);
  return latency_s + weir_trace_seconds(clock->trace, clock->scenario->bandwidth_scale, at, bytes);
}

void weir_sim_clock_network(void *user, uint64_t step, double *latency_s, double *bandwidth) {
  weir_sim_clock *clock = user;
  (void)step; /* the clock is already at it */
  (void)pthread_mutex_lock(&clock->mutex);
  *latency_s = clock->latency_s;
  *bandwidth = clock->bandwidth;
  (void)pthread_mutex_unlock(&clock->mutex);
}

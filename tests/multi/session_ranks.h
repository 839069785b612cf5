/* Ranks that are threads of this process, each with a session of its own, for tests. */
#ifndef WEIR_TESTS_SESSION_RANKS_H
#define WEIR_TESTS_SESSION_RANKS_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <weir/weir.h>

enum { SESSION_RANKS_MOST = 16 };

/* Of a rank of a group of threads; the strings are the caller's.  No network is measured, which
 * takes a start longer than most tests, unless a test asks for it. */
static inline weir_options session_options(int rank, int ranks, const char *where,
                                           const char *policy) {
  weir_options options;
  weir_options_init(&options);
  options.rank = rank;
  options.world_size = ranks;
  options.transport = "inproc";
  options.rendezvous = where;
  options.policy = policy;
  options.timeout_s = 20;
  options.active_probes = false;
  return options;
}

/* A virtual network of 1 ms and 8 Mbit/s. */
static inline void session_slow_link(void *user, uint64_t step, double *latency_s,
                                     double *bandwidth) {
  (void)user;
  (void)step;
  *latency_s = 1e-3;
  *bandwidth = 1e6;
}

/* A session with one tensor "w", started; NULL in *session when it could not be created. */
static inline weir_status session_open(weir_session **session, const weir_options *options,
                                       size_t numel) {
  weir_status status = weir_session_create(session, options);
  if (status == WEIR_OK) status = weir_register_tensor(*session, "w", numel, NULL);
  return status == WEIR_OK ? weir_session_start(*session) : status;
}

/* Runs body(worker) for each of the ranks' workers, which are `bytes` each, and waits for all. */
static inline void session_threads(void *workers, size_t bytes, int ranks, void *(*body)(void *)) {
  pthread_t thread[SESSION_RANKS_MOST];
  cr_assert_leq(ranks, SESSION_RANKS_MOST);
  for (int r = 0; r < ranks; r++)
    cr_assert_eq(pthread_create(&thread[r], NULL, body, (char *)workers + (size_t)r * bytes), 0);
  for (int r = 0; r < ranks; r++) (void)pthread_join(thread[r], NULL);
}

#endif

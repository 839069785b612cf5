/* One rank of a group that trains nothing: its gradient takes a while to compute, and one rank's
 * longer.  `slow_rank HOST:PORT RANK RANKS COMPUTE_MS SECONDS [POLICY]`; prints what weir_dump says
 * half-way, asked from another thread while the session's is in its steps. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <weir/weir.h>

#include "base/base.h"

enum { N = 20000, TENSORS = 4 };

typedef struct watcher {
  const weir_session *session;
  double after_s;
  atomic_bool stop;
  char text[8192];
} watcher;

static void nap(double seconds) {
  const struct timespec pause = {(time_t)seconds,
                                 (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)nanosleep(&pause, NULL);
}

static void keep(void *user, const char *text) {
  watcher *w = user;
  (void)snprintf(w->text, sizeof w->text, "%s", text);
}

static void *watch(void *user) {
  watcher *w = user;
  const double until_s = weir_now_s() + w->after_s;
  while (weir_now_s() < until_s && !atomic_load(&w->stop)) {
    nap(0.01);
    if (weir_dump(w->session, keep, w) != WEIR_OK) abort();
  }
  return NULL;
}

static weir_status train(weir_session *session, double compute_s, double seconds) {
  static float g[N];
  const double until_s = weir_now_s() + seconds;
  weir_status status = WEIR_OK;
  /* All ranks end with the same step: rank 0's clock is the one that counts. */
  for (double left_s = seconds; left_s > 0 && status == WEIR_OK;) {
    double all[64];
    status = weir_step_begin(session, NULL);
    nap(compute_s);
    for (size_t i = 0; i < N; i++) g[i] = (float)(i % 100) - 50.0f;
    for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++)
      status = weir_submit(session, t, g + t * (N / TENSORS));
    if (status == WEIR_OK) status = weir_step_end(session, NULL);
    left_s = until_s - weir_now_s();
    if (status == WEIR_OK) status = weir_allgather_bytes(session, &left_s, sizeof left_s, all);
    left_s = all[0];
  }
  return status;
}

int main(int argc, char **argv) {
  if (argc < 6 || argc > 7 || atoi(argv[3]) < 1 || atoi(argv[3]) > 64) return 2;
  weir_options options;
  weir_session *session = NULL;
  weir_options_init(&options);
  options.rendezvous = argv[1];
  options.rank = atoi(argv[2]);
  options.world_size = atoi(argv[3]);
  options.policy = argc > 6 ? argv[6] : "fixed:topk:0.1:ag";
  options.job_id = 4711;
  options.active_probes = false;
  options.timeout_s = 30;
  weir_status status = weir_session_create(&session, &options);
  for (int t = 0; t < TENSORS && status == WEIR_OK; t++)
    status = weir_register_tensor(session, "w", N / TENSORS, NULL);
  if (status == WEIR_OK) status = weir_session_start(session);
  watcher w = {.session = session, .after_s = atof(argv[5]) / 2};
  pthread_t thread;
  if (status == WEIR_OK && pthread_create(&thread, NULL, watch, &w) == 0) {
    status = train(session, atof(argv[4]) / 1e3, atof(argv[5]));
    atomic_store(&w.stop, true);
    (void)pthread_join(thread, NULL);
    (void)fputs(w.text, stdout);
  }
  if (status != WEIR_OK) (void)fprintf(stderr, "slow_rank: %s\n", weir_last_error());
  weir_session_free(session);
  return status == WEIR_OK ? 0 : 1;
}

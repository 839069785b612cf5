/* What bindings to other languages ask of a session: a listener that is there already, and
 * gradients that stay not finite. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weir/weir.h>

#include "collectives/transport.h"
#include "session_ranks.h"

#define RANKS 3
#define N 64

typedef struct job {
  const char *policy, *transport;
  char rendezvous[32];
  int listener;
} job;

typedef struct worker {
  const job *job;
  int rank;
  char wrong[256]; /* "": nothing */
} worker;

#define EXPECT(condition, ...)                                   \
  do {                                                           \
    if (!(condition) && w->wrong[0] == 0)                        \
      (void)snprintf(w->wrong, sizeof w->wrong, "" __VA_ARGS__); \
  } while (0)

static weir_session *open_session(worker *w) {
  weir_options options = session_options(w->rank, RANKS, w->job->rendezvous, w->job->policy);
  weir_session *session = NULL;
  options.transport = w->job->transport;
  options.active_probes = false;
  options.nonfinite = "keep";
  if (w->rank == 0) options.listener = w->job->listener;
  weir_status status = weir_session_create(&session, &options);
  if (status == WEIR_OK) status = weir_register_tensor(session, "a", N, NULL);
  if (status == WEIR_OK) status = weir_register_tensor(session, "nothing", 0, NULL);
  if (status == WEIR_OK) status = weir_session_start(session);
  EXPECT(status == WEIR_OK, "start: %.200s", weir_last_error());
  return session;
}

static weir_status step(weir_session *session, float *g) {
  weir_status status = weir_step_begin(session, NULL);
  if (status == WEIR_OK) status = weir_submit(session, 0, g);
  if (status == WEIR_OK) status = weir_submit(session, 1, NULL);
  return status == WEIR_OK ? weir_step_end(session, NULL) : status;
}

static void *work(void *arg) {
  worker *w = arg;
  weir_session *session = open_session(w);
  uint64_t before = 0, after = 1;
  float g[N];
  for (int k = 0; k < 4 && w->wrong[0] == 0; k++) {
    for (int i = 0; i < N; i++) g[i] = (float)(i + k) + 0.125f * (float)w->rank;
    if (k == 2 && w->rank == 1) g[5] = k % 2 ? NAN : INFINITY;
    (void)weir_residual_digest(session, &before);
    const weir_status status = step(session, g);
    (void)weir_residual_digest(session, &after);
    EXPECT(status == (k == 2 ? WEIR_E_NONFINITE : WEIR_OK), "step %d: %.200s", k,
           weir_last_error());
    for (int i = 0; i < N; i++)
      EXPECT(k == 2 ? isnan(g[i]) : isfinite(g[i]), "step %d: element %d is %g", k, i,
             (double)g[i]);
    if (k == 2) EXPECT(before == after, "a lost step has changed the residual");
  }
  weir_session_free(session);
  return NULL;
}

static void run(job j) {
  worker workers[RANKS] = {0};
  for (int r = 0; r < RANKS; r++) {
    workers[r].job = &j;
    workers[r].rank = r;
  }
  session_threads(workers, sizeof *workers, RANKS, work);
  for (int r = 0; r < RANKS; r++)
    cr_assert_str_empty(workers[r].wrong, "%s, rank %d: %s", j.policy, r, workers[r].wrong);
}

/* At a port that the kernel has chosen. */
static job listening(const char *policy, const char *transport) {
  job j = {.policy = policy, .transport = transport};
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof at;
  j.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  cr_assert(j.listener > 0 && bind(j.listener, (struct sockaddr *)&at, sizeof at) == 0 &&
            listen(j.listener, 8) == 0 &&
            getsockname(j.listener, (struct sockaddr *)&at, &length) == 0);
  (void)snprintf(j.rendezvous, sizeof j.rendezvous, "127.0.0.1:%d", ntohs(at.sin_port));
  return j;
}

Test(session_binding, ranks_meet_at_a_listener_and_nans_stay) {
  static const char *const policies[] = {"fixed:none:1:dense-ring", "fixed:topk:0.25:ag",
                                         "fixed:qsgd:0.125:sra", "fixed:bf16:1:dense-tree"};
  for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
    const job j = listening(policies[i], i == 1 ? "auto" : "tcp");
    run(j);
    cr_assert_eq(close(j.listener), -1, "the session closes it");
  }
}

/* Nobody will listen there: it is closed all the same. */
Test(session_binding, a_listener_is_closed_where_nobody_listens) {
  static const char *const transports[] = {"tcp", "auto", "mixed"};
  for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
    const job j = listening("fixed:none:1:dense-ring", transports[i]);
    weir_options options = session_options(0, 1, j.rendezvous, j.policy);
    weir_session *session = NULL;
    options.transport = j.transport;
    options.listener = j.listener;
    cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(weir_register_tensor(session, "a", N, NULL), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
    cr_expect_eq(close(j.listener), -1, "%s: a group of one closes it", j.transport);
    weir_session_free(session);
  }
  const job j = listening("", "tcp");
  weir_tcp_options options = {.rendezvous = j.rendezvous,
                              .size = 2,
                              .streams = WEIR_TCP_STREAMS_MAX + 1,
                              .listener = j.listener,
                              .timeout_s = 1};
  weir_transport *transport = NULL;
  cr_assert_eq(weir_transport_tcp_open(&transport, &options), WEIR_E_INVALID);
  cr_expect_eq(close(j.listener), -1, "a transport that cannot be closes it");
}

Test(session_binding, a_descriptor_that_does_not_listen_is_refused) {
  weir_options options;
  weir_session *session = NULL;
  weir_options_init(&options);
  options.world_size = 2;
  options.rendezvous = "127.0.0.1:1";
  options.listener = 2;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID);
  cr_assert_str_eq(weir_last_error(), "descriptor 2, the listener, is no socket that listens");
  const job j = listening("weir", "tcp");
  options.listener = j.listener;
  options.rank = 1;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID);
  cr_assert_str_eq(weir_last_error(), "rank 1 has a listener; only rank 0 listens");
  options.rank = 0;
  options.transport = "shm";
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID);
  cr_assert_str_eq(weir_last_error(), "a listener is of no use to transport \"shm\"");
  (void)close(j.listener);
}

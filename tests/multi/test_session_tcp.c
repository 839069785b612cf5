/* Workers as processes over TCP and over shared memory.  One is killed, or frozen, in mid-step:
 * every other one gets an error that names it, within the time-out. */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include "../ports.h"
#include "base/base.h"
#include "session/state.h"

#define RANKS 4
#define N 60000
#define TIMEOUT_S 2.0
/* Detecting takes at most one time-out, telling the others at most another; then a busy machine. */
#define PATIENCE_S 15.0

typedef struct job {
  const char *policy;
  int victim; /* -1: none */
  int signal;
  bool probes;
  const char *transport; /* NULL: tcp */
  const char *becomes;   /* what the session must run over; NULL: the same */
  const char *hosts;     /* a letter a rank: its machine; NULL: all on this one */
  const char *secret;
  char rendezvous[32];
} job;

static weir_status one_step(weir_session *session, const job *j, int rank, int step, float *g) {
  for (size_t i = 0; i < N; i++) g[i] = (float)((i * 31 + (size_t)step) % 17) + (float)rank;
  weir_status status = weir_step_begin(session, NULL);
  for (uint32_t t = 0; t < 2 && status == WEIR_OK; t++)
    status = weir_submit(session, t, g + t * (N / 2));
  if (step == 3 && rank == j->victim) raise(j->signal);
  return status == WEIR_OK ? weir_step_end(session, NULL) : status;
}

/* What the survivor of a fault must have seen; prints what is wrong. */
static bool bounded_and_named(const job *j, int rank, weir_status status, double took_s,
                              const char *message) {
  char name[16];
  snprintf(name, sizeof name, "rank %d", j->victim);
  if ((status == WEIR_E_PEER || status == WEIR_E_TIMEOUT) && strstr(message, name) != NULL &&
      took_s < PATIENCE_S)
    return true;
  fprintf(stderr, "%s, rank %d after %.1f s: %s: %s\n", j->policy, rank, took_s,
          weir_status_name(status), message);
  return false;
}

static int train(weir_session *session, const job *j, int rank) {
  float *g = malloc(N * sizeof *g);
  weir_status status = WEIR_OK;
  double begun = 0;
  for (int step = 0; step < 8 && status == WEIR_OK; step++) {
    begun = weir_now_s();
    status = one_step(session, j, rank, step, g);
  }
  const double took_s = weir_now_s() - begun;
  char message[512];
  snprintf(message, sizeof message, "%s", weir_last_error());
  const float first = g[0];
  free(g);
  if (j->victim >= 0) {
    if (!bounded_and_named(j, rank, status, took_s, message)) return 1;
    /* It stays the answer. */
    return weir_step_begin(session, NULL) == status && strcmp(message, weir_last_error()) == 0 ? 0
                                                                                               : 2;
  }
  /* (0 * 31 + 7) % 17 + mean of ranks 0..3 */
  if (status == WEIR_OK && first == 8.5f) return 0;
  fprintf(stderr, "rank %d: %s, first element %g\n", rank, message, (double)first);
  return 3;
}

static int work(const job *j, int rank) {
  weir_options options;
  weir_options_init(&options);
  options.rank = rank;
  options.world_size = RANKS;
  options.rendezvous = j->rendezvous; /* also a good name for a group */
  if (j->transport != NULL) options.transport = j->transport;
  const char host[2] = {j->hosts != NULL ? j->hosts[rank] : 0};
  if (j->hosts != NULL) (void)setenv("WEIR_HOST", host, 1);
  options.secret = j->secret;
  options.job_id = 77;
  options.timeout_s = j->victim >= 0 ? TIMEOUT_S : 30;
  options.policy = j->policy;
  options.active_probes = j->probes;
  weir_session *session;
  weir_status status = weir_session_create(&session, &options);
  if (status == WEIR_OK) status = weir_register_tensor(session, "a", N / 2, NULL);
  if (status == WEIR_OK) status = weir_register_tensor(session, "b", N / 2, NULL);
  if (status == WEIR_OK) status = weir_session_start(session);
  if (status != WEIR_OK) {
    fprintf(stderr, "rank %d cannot start: %s\n", rank, weir_last_error());
    return 4;
  }
  const char *due = j->becomes != NULL ? j->becomes : options.transport;
  if (strcmp(session->transport->ops->name, due) != 0) {
    fprintf(stderr, "rank %d runs over %s\n", rank, session->transport->ops->name);
    return 5;
  }
  const int code = train(session, j, rank);
  weir_session_free(session);
  return code;
}

static void run(job j) {
  pid_t pids[RANKS];
  (void)snprintf(j.rendezvous, sizeof j.rendezvous, "127.0.0.1:%d", free_port());
  fflush(NULL);
  for (int r = 0; r < RANKS; r++) {
    pids[r] = fork();
    cr_assert_geq(pids[r], 0);
    if (pids[r] == 0) {
      (void)alarm(600); /* whatever happens, nothing is left behind */
      _exit(work(&j, r));
    }
  }
  int codes[RANKS];
  for (int r = 0; r < RANKS; r++)
    if (r != j.victim) waitpid(pids[r], &codes[r], 0);
  if (j.victim >= 0) {
    kill(pids[j.victim], SIGKILL);
    waitpid(pids[j.victim], NULL, 0);
  }
  for (int r = 0; r < RANKS; r++)
    if (r != j.victim)
      cr_assert(WIFEXITED(codes[r]) && WEXITSTATUS(codes[r]) == 0, "%s, signal %d: rank %d: %x",
                j.policy, j.signal, r, codes[r]);
}

static const char *const policies[] = {"fixed:none:1:dense-ring", "fixed:none:1:dense-tree",
                                       "fixed:topk:0.1:ag", "fixed:star:0.1:art-tree"};

Test(session_tcp, trains) {
  run((job){.policy = "fixed:none:1:dense-ring", .victim = -1, .probes = true});
  run((job){.policy = "fixed:bf16:1:dense-tree", .victim = -1});
}

Test(session_tcp, a_killed_worker_is_named) {
  for (int i = 0; i < 4; i++)
    run((job){.policy = policies[i], .victim = i, .signal = SIGKILL, .probes = i == 2});
}

Test(session_tcp, a_frozen_worker_is_named) {
  for (int i = 0; i < 4; i++)
    run((job){.policy = policies[i], .victim = 3 - i, .signal = SIGSTOP, .probes = i == 2});
}

Test(session_shm, trains) {
  run((job){
      .policy = "fixed:none:1:dense-halving", .victim = -1, .probes = true, .transport = "shm"});
  run((job){.policy = "fixed:bf16:1:dense-tree", .victim = -1, .transport = "shm"});
}

Test(session_shm, a_killed_or_frozen_worker_is_named) {
  for (int i = 0; i < 4; i++)
    run((job){.policy = policies[i],
              .victim = i,
              .signal = i % 2 ? SIGKILL : SIGSTOP,
              .probes = i == 2,
              .transport = "shm"});
}

/* All on one host: shared memory. */
Test(session_auto, finds_shared_memory) {
  run((job){.policy = "fixed:none:1:dense-torus",
            .victim = -1,
            .probes = true,
            .transport = "auto",
            .becomes = "shm"});
}

/* As in a container: nobody waits for a segment that does not come. */
Test(session_auto, finds_too_little_room) {
  const double begin_s = weir_now_s();
  if (unshare(CLONE_NEWNS | (geteuid() != 0 ? CLONE_NEWUSER : 0)) != 0 ||
      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0)
    cr_skip_test("no /dev/shm of our own can be made here");
  run((job){.policy = policies[0], .victim = -1, .transport = "auto", .becomes = "mixed"});
  cr_expect_lt(weir_now_s() - begin_s, 15.0);
}

/* Machines of several ranks share memory; those that stay alone do not. */
Test(session_auto, finds_machines) {
  static const char *const layouts[] = {"aabb", "aaab", "abab"};
  static const char *const dense[] = {"fixed:none:1:dense-ring", "fixed:none:1:dense-tree",
                                      "fixed:none:1:dense-hier-ring"};
  for (int i = 0; i < 3; i++)
    run((job){.policy = dense[i],
              .victim = -1,
              .probes = true,
              .transport = "auto",
              .becomes = "mixed",
              .hosts = layouts[i],
              .secret = i == 1 ? "known" : NULL});
  run((job){
      .policy = policies[0], .victim = -1, .transport = "auto", .becomes = "tcp", .hosts = "abcd"});
}

Test(session_mixed, trains_on_one_machine) {
  run((job){.policy = policies[1], .victim = -1, .probes = true, .transport = "mixed"});
}

Test(session_mixed, a_killed_or_frozen_worker_is_named) {
  for (int i = 0; i < 4; i++)
    run((job){.policy = policies[i],
              .victim = i,
              .signal = i % 2 ? SIGKILL : SIGSTOP,
              .probes = i == 2,
              .transport = "mixed",
              .hosts = i < 2 ? "aabb" : "aaab",
              .secret = i == 3 ? "known" : NULL});
}

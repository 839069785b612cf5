/* Training that loses ranks at random moments, and that others join meanwhile: the survivors' weights stay equal, and what was
 * given is in the weights or in the residuals, to the last element, whatever the plan, in the
 * middle of overlapping groups and of trials, too.  10 rounds; WEIR_STRESS_ROUNDS, WEIR_STRESS_SEED
 * and WEIR_STRESS_ONLY as in test_stress.c. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <weir/weir.h>

#include "ranks.h"
#include "session/state.h"
#include "stalls.h"
#include "traces.h"

#define TIMEOUT_S 1.0
#define HANG_S 40.0
#define JOIN_S 20.0
#define N 1200
#define MATRIX 600 /* elements of the first tensor: 20 rows of 30 */
#define TENSORS 4
#define RANKS 6
#define PLACES (RANKS + 1) /* and one that comes late */
/* Elements are whole numbers up to 32: what is lost shows as one; what is rounded is far below. */
#define ROUNDING 0.1

enum { KILLED, FROZEN, CUT, JOINED, KINDS };
static const char *const kinds[KINDS] = {"killed", "frozen", "cut off",
                                         "killed while another joins"};
static const size_t offset[TENSORS + 1] = {0, MATRIX, MATRIX + 1, 900, N};
/* Where ranks encode the sums of others (fp16 over sra and its like) the values are exact, and with
 * hitopk every rank is a machine of its own: what others have handed over is lost with a rank. */
static const char *const policies[] = {"fixed:none:1:dense-ring",
                                       "fixed:none:1:dense-double-tree",
                                       "fixed:bf16:1:dense-tree",
                                       "fixed:bf16:1:dense-halving",
                                       "fixed:topk:0.1:ag",
                                       "fixed:topk:0.1:ag:auto-bf16",
                                       "fixed:lwtopk:0.1:ag:auto-fp32",
                                       "fixed:qsgd:0.125:ag",
                                       "fixed:fp16:0.5:ag",
                                       "fixed:star:0.1:art-tree",
                                       "fixed:star:0.1:art-ring:auto-bf16",
                                       "fixed:var:0.1:art-tree:auto-bf16",
                                       "fixed:randomk:0.1:art-ring",
                                       "fixed:dgc:0.1:ag:auto-fp16",
                                       "fixed:powersgd:2:dense-ring",
                                       "fixed:none:1:native",
                                       "fixed:none:1:dense-hier-ring",
                                       "fixed:fp16:0.5:sra",
                                       "fixed:fp16:0.5:compressed-ring",
                                       "fixed:fp16:0.5:compressed-tree",
                                       "fixed:qsgd-l2-nearest:0.125:ag",
                                       "fixed:topk:0.1:hitopk:auto-bf16",
                                       "groups:layers:none:1:dense-ring",
                                       "groups:layers:topk:0.1:ag:auto-bf16",
                                       "groups:even=2:qsgd:0.125:ag",
                                       "groups:even=2:star:0.1:art-ring",
                                       "groups:turns=3:layers:bf16:1:dense-tree;even=1:topk:0.1:ag",
                                       "paper"};
#define POLICIES (sizeof policies / sizeof *policies)

typedef struct trainee {
  weir_status status;
  int world, steps;
  double given[N]; /* in the steps that count */
  float moved[N], residual[N];
  char message[256];
} trainee;

typedef struct round_of {
  const char *policy, *transport;
  bool pairs; /* two ranks share a machine */
  bool probes;
  int threads;
  char where[64], members[256]; /* members: their addresses, once all are there */
  int size, victim, kind;
  double at_s, late_s;
  atomic_int there, cuts, in; /* in: who comes late has joined */
  atomic_bool over;
  trainee rank[PLACES];
} round_of;

/* The victim gives nothing, so that what is lost with it is nothing.  Over 64 steps the others' add
 * up to little. */
static float gradient(const round_of *round, int rank, uint64_t step, size_t i) {
  if (rank == round->victim) return 0.0F;
  return (float)((int)((i * 37 + step * 11 + (size_t)rank * 101) % 64) - 32);
}

/* --- a rank --------------------------------------------------------------------------------- */

/* Copies of the connections' descriptors: the session may have given its own up by then. */
typedef struct cutter {
  round_of *round;
  int fd[RANKS];
  pthread_t thread;
} cutter;

static void *cut(void *argument) {
  const cutter *c = argument;
  const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
  while (atomic_load(&c->round->there) < c->round->size) group_nap(0.001);
  group_nap(c->round->at_s);
  for (int r = 0; r < c->round->size; r++) {
    if (c->fd[r] < 0) continue;
    (void)connect(c->fd[r], &nobody, sizeof nobody);
    (void)close(c->fd[r]);
  }
  (void)atomic_fetch_add(&c->round->cuts, 1);
  return NULL;
}

static void start_cutter(cutter *c, const weir_session *session) {
  for (int r = 0; r < c->round->size; r++) {
    const int fd = session->transport->ops->descriptor(session->transport, r);
    c->fd[r] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
  }
  if (pthread_create(&c->thread, NULL, cut, c) != 0) abort();
}

static weir_status one_step(weir_session *session, const round_of *round, int rank, uint64_t step,
                            float *g, weir_step_info *info) {
  for (size_t i = 0; i < N; i++) g[i] = gradient(round, rank, step, i);
  weir_status status = weir_step_begin(session, NULL);
  for (uint32_t i = 0; status == WEIR_OK && i < TENSORS; i++)
    status = weir_submit(session, i, g + offset[i]);
  return status == WEIR_OK ? weir_step_end(session, info) : status;
}

static bool all_say(const unsigned char *said, int count) {
  for (int r = 0; r < count; r++)
    if (!said[r]) return false;
  return true;
}

/* A trial's steps change weights and residual, and both will be put back. */
static void take_step(trainee *t, const round_of *round, int rank, const float *g, bool trial,
                      uint64_t *step) {
  for (size_t i = 0; i < N; i++) {
    t->moved[i] += (float)t->world * g[i];
    if (!trial) t->given[i] += (double)gradient(round, rank, *step, i);
  }
  if (!trial) (*step)++;
}

/* step: the one to begin with. */
static weir_status train(weir_session *session, round_of *round, int rank, uint64_t step) {
  static float g[N];
  trainee *t = &round->rank[rank];
  unsigned char over[PLACES] = {0};
  weir_step_info info = {.struct_size = sizeof info};
  weir_status status = WEIR_OK;
  while (status == WEIR_OK && (info.trial || !all_say(over, t->world))) {
    status = one_step(session, round, rank, step, g, &info);
    if (status == WEIR_OK) {
      take_step(t, round, rank, g, info.trial, &step);
      const unsigned char mine = atomic_load(&round->over) ? 1 : 0;
      status = weir_allgather_bytes(session, &mine, 1, over);
    }
    if ((status < WEIR_E_TIMEOUT && status != WEIR_GROW) || status == WEIR_E_INTERNAL) continue;
    weir_survivors left = {.struct_size = sizeof left};
    if (status == WEIR_GROW) status = weir_grow(session, &left);
    for (int again = 0; status != WEIR_OK && again < 3; again++)
      status = weir_shrink(session, &left);
    if (status != WEIR_OK) break;
    memset(over, 0, sizeof over);
    t->world = left.world_size;
    for (size_t i = 0; left.missed && i < N; i++)
      t->given[i] += (double)gradient(round, rank, step, i);
    step = left.step;
  }
  t->steps = (int)step;
  return status;
}

static weir_status open_session(weir_session **session, const round_of *round, int rank) {
  char machine[16];
  weir_options options;
  weir_options_init(&options);
  options.rank = rank;
  options.world_size = round->size;
  options.transport = round->transport;
  options.rendezvous = round->where;
  options.policy = round->policy;
  options.timeout_s = TIMEOUT_S;
  options.active_probes = round->probes;
  options.codec_threads = round->threads;
  options.max_ranks = round->kind == JOINED ? PLACES : 0;
  if (rank == round->size) {
    options.rank = 0; /* it has none yet */
    while (atomic_load(&round->there) < round->size) group_nap(0.002);
    options.rendezvous = round->members;
  }
  (void)snprintf(machine, sizeof machine, "m%d", round->pairs ? rank / 2 : rank);
  (void)setenv("WEIR_HOST", machine, 1);
  return weir_session_create(session, &options);
}

static weir_status work(round_of *round, int rank) {
  trainee *t = &round->rank[rank];
  weir_session *session = NULL;
  weir_survivors now = {.struct_size = sizeof now, .world_size = round->size};
  weir_status status = open_session(&session, round, rank);
  if (status == WEIR_OK) status = weir_register_matrix(session, "a", 20, MATRIX / 20, NULL);
  for (int i = 1; status == WEIR_OK && i < TENSORS; i++) {
    const char name[2] = {(char)('a' + i)};
    status = weir_register_tensor(session, name, offset[i + 1] - offset[i], NULL);
  }
  if (status == WEIR_OK) status = weir_register_state(session, "moved", t->moved, sizeof t->moved);
  const bool late = rank == round->size;
  if (late) group_nap(round->late_s);
  if (status == WEIR_OK)
    status = late ? weir_join(session, JOIN_S, &now) : weir_session_start(session);
  t->world = now.world_size;
  if (status == WEIR_OK && round->kind == JOINED && rank == 0)
    status = weir_addresses(session, round->members, sizeof round->members);
  cutter c = {.round = round};
  const bool cuts = status == WEIR_OK && round->kind == CUT && rank == round->victim;
  if (cuts) start_cutter(&c, session);
  (void)atomic_fetch_add(late ? &round->in : &round->there, !late || status == WEIR_OK);
  if (status == WEIR_OK) status = train(session, round, rank, now.step);
  if (cuts) (void)pthread_join(c.thread, NULL);
  (void)snprintf(t->message, sizeof t->message, "%s", status == WEIR_OK ? "" : weir_last_error());
  if (status == WEIR_OK)
    memcpy(t->residual, weir_engine_residual(session->engine), sizeof t->residual);
  weir_session_free(session);
  return status;
}

static void rank_main(round_of *round, int rank) {
  trainee *t = &round->rank[rank];
  const traces before = traces_now();
  (void)alarm(GROUP_WATCHDOG_S);
  weir_status status = work(round, rank);
  while (status >= WEIR_E_TIMEOUT && rank == round->size && atomic_load(&round->in) == 0)
    status = work(round, rank); /* a rank was lost while it came in */
  if (status == WEIR_OK) {
    status = traces_check(&before);
    if (status != WEIR_OK) (void)snprintf(t->message, sizeof t->message, "%s", weir_last_error());
  }
  t->status = status;
}

/* --- what happens to them ------------------------------------------------------------------- */

/* With auto the ranks meet over TCP and go on in shared memory. */
static void draw(round_of *round, uint64_t seed, uint64_t number) {
  static const char *const transports[] = {"tcp", "shm", "auto"};
  weir_rng rng;
  weir_rng_seed(&rng, seed * 1000003 + number);
  memset(round, 0, sizeof *round);
  round->policy = policies[weir_rng_below(&rng, POLICIES)];
  const bool native = strstr(round->policy, "native") != NULL; /* below shared memory alone */
  round->transport = transports[native ? 1 : weir_rng_below(&rng, 3)];
  round->pairs = strstr(round->policy, "hitopk") == NULL && weir_rng_below(&rng, 2) == 1;
  round->threads = 1 + (int)weir_rng_below(&rng, 3);
  round->probes = weir_rng_below(&rng, 4) == 0;
  round->size = 3 + (int)weir_rng_below(&rng, RANKS - 2);
  round->victim = (int)weir_rng_below(&rng, (uint64_t)round->size);
  round->kind = (int)weir_rng_below(&rng, strcmp(round->transport, "tcp") == 0 ? KINDS : CUT);
  round->at_s = 0.3 * weir_rng_uniform(&rng);
  round->late_s = 0.6 * weir_rng_uniform(&rng);
  if (strcmp(round->policy, "paper") == 0) round->at_s /= 5; /* its trials come first, 50 steps */
  (void)snprintf(round->where, sizeof round->where, "127.0.0.1:%d", free_port());
  for (int r = 0; r < PLACES; r++) round->rank[r].status = WEIR_E_INTERNAL;
}

static int places(const round_of *round) { return round->size + (round->kind == JOINED); }

/* Returns a rank that hangs, or -1. */
static int run_ranks(round_of *round, stalls *w) {
  pid_t pid[PLACES];
  siginfo_t info;
  int hangs = -1;
  (void)fflush(NULL);
  for (int r = 0; r < places(round); r++) {
    pid[r] = fork();
    if (pid[r] < 0) abort();
    if (pid[r] > 0) continue;
    rank_main(round, r);
    _exit(0);
  }
  stalls_wait(&round->there, round->size, HANG_S);
  if (round->kind == CUT) {
    stalls_wait(&round->cuts, 1, HANG_S);
  } else {
    group_nap(round->at_s);
    (void)kill(pid[round->victim], round->kind == FROZEN ? SIGSTOP : SIGKILL);
    (void)waitid(P_PID, (id_t)pid[round->victim], &info, WNOWAIT | WEXITED | WSTOPPED);
  }
  if (round->kind == JOINED) stalls_wait(&round->in, 1, HANG_S);
  atomic_store(&round->over, true);
  for (int r = 0; r < places(round); r++)
    if ((r != round->victim || round->kind == CUT) && !stalls_ends(w, pid[r], HANG_S)) hangs = r;
  if (round->kind == CUT) return hangs;
  (void)kill(pid[round->victim], SIGKILL);
  (void)waitpid(pid[round->victim], NULL, 0);
  return hangs;
}

/* --- the verdict ---------------------------------------------------------------------------- */

static bool survives(const round_of *round, int rank) {
  return rank != round->victim || round->kind == CUT;
}

/* Weights are equal, and what was given is in them or still in the residuals. */
static bool conserved(const round_of *round, char text[256]) {
  const trainee *first = &round->rank[round->victim == 0 ? 1 : 0];
  for (size_t i = 0; i < N; i++) {
    double left = (double)first->moved[i];
    for (int r = 0; r < places(round); r++) {
      const trainee *t = &round->rank[r];
      if (!survives(round, r)) continue;
      left += (double)t->residual[i] - t->given[i];
      if (memcmp(&t->moved[i], &first->moved[i], sizeof(float)) != 0) {
        (void)snprintf(text, 256, "rank %d's weight %zu is %g, another's %g", r, i,
                       (double)t->moved[i], (double)first->moved[i]);
        return false;
      }
    }
    if (!(fabs(left) <= ROUNDING)) {
      (void)snprintf(text, 256, "of what was given to element %zu, %g is lost", i, left);
      return false;
    }
  }
  return true;
}

/* 0: right; 1: wrong, but a machine that stood still could be why; 2: wrong. */
static int judge(const round_of *round, int hangs, char text[256]) {
  const int due = places(round) - (round->kind == CUT ? 0 : 1);
  if (hangs >= 0) {
    (void)snprintf(text, 256, "rank %d hangs", hangs);
    return 2;
  }
  for (int r = 0; r < places(round); r++) {
    const trainee *t = &round->rank[r];
    if (!survives(round, r) || (t->status == WEIR_OK && t->world == due)) continue;
    (void)snprintf(text, 256, "rank %d of %d: %s %.180s", r, t->world, weir_status_name(t->status),
                   t->message);
    return t->status == WEIR_E_INTERNAL && t->message[0] ? 2 : 1;
  }
  return conserved(round, text) ? 0 : 2;
}

static int one_round(uint64_t seed, uint64_t number, bool alone, stalls *w) {
  round_of *round = group_shared(sizeof *round);
  char text[256];
  for (int again = 0;; again++) {
    atomic_store(&w->worst_s, 0.0);
    draw(round, seed, number);
    const int hangs = run_ranks(round, w), wrong = judge(round, hangs, text);
    const double stall_s = atomic_load(&w->worst_s);
    cr_assert(wrong == 0 || (wrong == 1 && stall_s >= STALLS_LONGEST_S && again < 20),
              "seed %llu, round %llu: %s over %s, %d ranks, rank %d %s after %.0f ms: %s (the "
              "machine stood "
              "still for %.2f s)",
              (unsigned long long)seed, (unsigned long long)number, round->policy, round->transport,
              round->size, round->victim, kinds[round->kind], 1e3 * round->at_s, text, stall_s);
    cr_assert(!alone || traces_named_segments() == 0, "round %llu: shared memory is left behind",
              (unsigned long long)number);
    if (wrong) continue;
    (void)munmap(round, sizeof *round);
    return again;
  }
}

Test(stress, training_loses_ranks_at_random) {
  const uint64_t seed = stalls_asked("WEIR_STRESS_SEED", 1),
                 only = stalls_asked("WEIR_STRESS_ONLY", UINT64_MAX);
  const uint64_t first = only == UINT64_MAX ? 0 : only;
  const uint64_t end = only == UINT64_MAX ? stalls_asked("WEIR_STRESS_ROUNDS", 10) : only + 1;
  const bool alone = traces_isolate();
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* what a rank leaves would come to this process */
  stalls *w = stalls_start();
  traces_settle();
  const traces own = traces_now();
  const double begun_s = weir_now_s();
  int repeated = 0;
  for (uint64_t i = first; i < end; i++) repeated += one_round(seed, i, alone, w);
  const weir_status status = traces_check(&own);
  cr_assert_eq(status, WEIR_OK, "%s", weir_last_error());
  stalls_stop(w);
  /* A killed rank's helper ends when it finds its socket closed. */
  pid_t left = 0;
  for (int i = 0; i < 300 && (left = waitpid(-1, NULL, WNOHANG)) >= 0; i++) group_nap(0.01);
  cr_assert_eq(left, -1, "a process is left behind");
  if (getenv("WEIR_STRESS_ROUNDS") || only != UINT64_MAX)
    fprintf(stderr, "stress: seed %llu, %llu rounds of training in %.0f s, %d played again%s\n",
            (unsigned long long)seed, (unsigned long long)(end - first), weir_now_s() - begun_s,
            repeated, alone ? "" : " (not alone)");
}

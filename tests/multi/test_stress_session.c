/* Training that loses ranks, or hears nothing of them for a while, at random moments: in any step,
 * while it starts and measures the network, in trials, while survivors meet, while another rank
 * joins and while the state is saved.  The survivors' weights stay equal, and what was given is in
 * the weights or in the residuals, to the last element, whatever the plan.  10 rounds;
 * WEIR_STRESS_ROUNDS, WEIR_STRESS_SEED and WEIR_STRESS_ONLY as in test_stress.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <weir/weir.h>

#include "chaos.h"
#include "session/state.h"

#define TIMEOUT_S 1.0
#define HANG_S 40.0
#define JOIN_S 20.0
#define BUSY_S 5.0 /* a machine that has other things to do */
#define SETTLE_S (TIMEOUT_S + 1.0)
#define SHORT_S 0.2                         /* a pause that is too short for anybody to be lost */
#define MEET_S (3 * TIMEOUT_S + 2 + BUSY_S) /* what weir_shrink promises; then it measures */
#define N 1200
#define MATRIX 600 /* elements of the first tensor: 20 rows of 30 */
#define TENSORS 4
#define RANKS 6
#define PLACES (RANKS + 1) /* and one that comes late */
/* Elements are whole numbers up to 32: what is lost shows as one; what is rounded is far below. */
#define ROUNDING 0.1

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
  atomic_int at;          /* which moment this is */
  bool ended;             /* and said how */
  double found_s, call_s; /* when it learnt first that its group had ended; the longest call */
  int world, steps;
  double given[N]; /* in the steps that count */
  double moved[N];
  float residual[N];
  char message[256];
} trainee;

typedef struct round_of {
  const char *policy, *transport;
  bool pairs; /* two ranks share a machine */
  bool probes;
  int threads;
  bool joins; /* another comes late */
  bool secret;
  char where[64], members[256]; /* members: their addresses, once all are there */
  int size, moment, blows;
  blow blow[2];
  double late_s;
  atomic_int there, in; /* in: who comes late has joined */
  atomic_bool over;
  trainee rank[PLACES];
} round_of;

static const blow *blow_of(const round_of *round, int rank) {
  return chaos_blow_of(round->blow, round->blows, rank);
}

/* Victims give nothing, so that what is lost with them is nothing.  Over 64 steps the others' add
 * up to little. */
static float gradient(const round_of *round, int rank, uint64_t step, size_t i) {
  if (blow_of(round, rank)) return 0.0F;
  return (float)((int)((i * 37 + step * 11 + (size_t)rank * 101) % 64) - 32);
}

/* --- a rank --------------------------------------------------------------------------------- */

static double tell(trainee *t, int moment) {
  atomic_store(&t->at, moment);
  return weir_now_s();
}

/* A call that was begun then has ended. */
static void untell(trainee *t, double begun_s) {
  t->call_s = fmax(t->call_s, weir_now_s() - begun_s);
  atomic_store(&t->at, AT_STEP);
}

/* A slow disk. */
static bool written(void *user, const void *data, size_t bytes) {
  (void)data;
  group_nap(0.0002);
  *(size_t *)user += bytes;
  return true;
}

/* Now and then; not in a trial, nor just before one. */
static weir_status save(weir_session *session, const round_of *round, trainee *t, uint64_t step) {
  size_t bytes = 0;
  if (round->moment != AT_SAVE || step % 3 != 0) return WEIR_OK;
  (void)tell(t, AT_SAVE);
  const weir_status status = weir_session_save(session, written, &bytes);
  atomic_store(&t->at, AT_STEP);
  if (status == WEIR_OK && bytes < N * sizeof(float))
    return weir_fail(WEIR_E_INTERNAL, "%zu bytes were saved", bytes);
  return status == WEIR_E_STATE ? WEIR_OK : status;
}

static weir_status one_step(weir_session *session, round_of *round, int rank, uint64_t step,
                            float *g, weir_step_info *info) {
  for (size_t i = 0; i < N; i++) g[i] = gradient(round, rank, step, i);
  weir_status status = weir_step_begin(session, info);
  atomic_store(&round->rank[rank].at, status == WEIR_OK && info->trial ? AT_TRIAL : AT_STEP);
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
    t->moved[i] +=
        t->world * (double)g[i]; /* rounded to floats, thousands of steps would lose tenths */
    if (!trial) t->given[i] += (double)gradient(round, rank, *step, i);
  }
  if (!trial) (*step)++;
}

/* With whoever is left, or has come. */
static weir_status regroup(weir_session *session, trainee *t, weir_status why,
                           weir_survivors *now) {
  weir_status status = why;
  if (why != WEIR_GROW && t->found_s == 0) t->found_s = weir_now_s();
  if (why == WEIR_GROW) {
    const double begun_s = tell(t, AT_GROW);
    status = weir_grow(session, now);
    untell(t, begun_s);
  }
  for (int again = 0; status != WEIR_OK && again < 4 - (why == WEIR_GROW); again++) {
    const double begun_s = tell(t, AT_SHRINK);
    status = weir_shrink(session, now);
    untell(t, begun_s);
  }
  return status;
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
    if (status == WEIR_OK) status = save(session, round, t, step);
    if ((status < WEIR_E_TIMEOUT && status != WEIR_GROW) || status == WEIR_E_INTERNAL) continue;
    weir_survivors left = {.struct_size = sizeof left};
    status = regroup(session, t, status, &left);
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
  char machine[16], own[24];
  weir_options options;
  weir_options_init(&options);
  options.rank = rank;
  options.world_size = round->size;
  options.transport = round->transport;
  options.rendezvous = round->where;
  (void)snprintf(own, sizeof own, "127.0.0.%d", rank + 1);
  options.bind_address = own;
  options.secret = round->secret ? "chaos" : NULL;
  options.policy = round->policy;
  options.timeout_s = TIMEOUT_S;
  options.active_probes = round->probes;
  options.codec_threads = round->threads;
  options.max_ranks = round->joins ? PLACES : 0;
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
  const double begun_s = tell(t, late ? AT_GROW : AT_START);
  if (status == WEIR_OK)
    status = late ? weir_join(session, JOIN_S, &now) : weir_session_start(session);
  if (!late) untell(t, begun_s); /* one that comes late may have to try again */
  t->world = now.world_size;
  if (status == WEIR_OK && round->joins && rank == 0)
    status = weir_addresses(session, round->members, sizeof round->members);
  (void)atomic_fetch_add(late ? &round->in : &round->there, !late || status == WEIR_OK);
  if (status == WEIR_OK) status = train(session, round, rank, now.step);
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
  chaos_waited();
  if (status == WEIR_OK) {
    status = traces_check(&before);
    if (status != WEIR_OK) (void)snprintf(t->message, sizeof t->message, "%s", weir_last_error());
  }
  t->status = status;
  t->ended = true;
}

/* --- what happens to them ------------------------------------------------------------------- */

static bool has_sockets(const round_of *round) { return strcmp(round->transport, "shm") != 0; }

static void draw_blow(round_of *round, int i, weir_rng *rng) {
  blow *b = &round->blow[i];
  b->kind = (int)weir_rng_below(rng, has_sockets(round) ? CHAOS_KINDS : CUT);
  if (i == 1 && b->kind == PARTED && round->blow[0].kind == PARTED) b->kind = PAUSED;
  b->victim = (int)weir_rng_below(rng, (uint64_t)round->size);
  if (i == 1 && b->victim == round->blow[0].victim) b->victim = (b->victim + 1) % round->size;
  b->at_s = 0.3 * weir_rng_uniform(rng);
  if (round->moment != AT_STEP) b->at_s *= weir_rng_uniform(rng) / 10;
  if (i == 1) b->at_s *= 20;
  b->pause_s = (weir_rng_below(rng, 4) ? 2.2 * TIMEOUT_S : SHORT_S) * weir_rng_uniform(rng);
  b->peer = weir_rng_below(rng, 2) ? -1 : (b->victim + 1) % round->size;
}

static void draw_moment(round_of *round, weir_rng *rng) {
  static const int moments[] = {AT_STEP,   AT_START, AT_PROBE, AT_TRIAL, AT_SHRINK,
                                AT_SHRINK, AT_GROW,  AT_GROW,  AT_SAVE};
  round->moment = moments[weir_rng_below(rng, sizeof moments / sizeof *moments)];
  if (round->moment == AT_GROW && !has_sockets(round)) round->moment = AT_STEP;
  /* Two only where those who are left are always more than half. */
  if (round->moment == AT_SHRINK && round->size < 5) round->size = 5;
  if (round->moment == AT_TRIAL) round->policy = "paper"; /* its trials come first, 50 steps */
  round->blows = round->moment == AT_SHRINK ? 2 : 1;
  round->joins = round->moment == AT_GROW;
  round->probes = round->moment == AT_PROBE || weir_rng_below(rng, 4) == 0;
}

/* No two of three ranks share a machine, or two: auto is tcp, or mixed. */
static void draw(round_of *round, uint64_t seed, uint64_t number) {
  static const char *const transports[] = {"tcp", "shm", "auto", "mixed"};
  weir_rng rng = weir_rng_of(seed * 1000003 + number);
  memset(round, 0, sizeof *round);
  round->policy = policies[weir_rng_below(&rng, POLICIES)];
  const bool native = strstr(round->policy, "native") != NULL; /* below shared memory alone */
  round->transport = transports[native ? 1 : weir_rng_below(&rng, 4)];
  round->pairs = strstr(round->policy, "hitopk") == NULL && weir_rng_below(&rng, 2) == 1;
  round->threads = 1 + (int)weir_rng_below(&rng, 3);
  round->secret = weir_rng_below(&rng, 2) == 1;
  round->size = 3 + (int)weir_rng_below(&rng, RANKS - 2);
  draw_moment(round, &rng);
  for (int i = 0; i < round->blows; i++) draw_blow(round, i, &rng);
  round->late_s = 0.6 * weir_rng_uniform(&rng);
  (void)snprintf(round->where, sizeof round->where, "127.0.0.1:%d", free_port());
  for (int r = 0; r < PLACES; r++) round->rank[r].status = WEIR_E_INTERNAL;
}

static int places(const round_of *round) { return round->size + (round->joins ? 1 : 0); }

/* Until some rank is there; what is over too soon to be met is struck all the same. */
static void await_moment(round_of *round, int moment) {
  const double until_s = weir_now_s() + 3;
  for (bool met = false; !met && weir_now_s() < until_s; group_nap(0.0002))
    for (int r = 0; r < round->size; r++) met = met || atomic_load(&round->rank[r].at) == moment;
}

/* Until some rank knows that its group has ended; a connection that nobody uses is not missed. */
static void await_found(const round_of *round) {
  const double until_s = weir_now_s() + SETTLE_S;
  for (bool found = false; !found && weir_now_s() < until_s; group_nap(0.002))
    for (int r = 0; r < places(round); r++) found = found || round->rank[r].found_s > 0;
}

/* Returns when the first blow came. */
static double torment(round_of *round, const pid_t *pid) {
  double first_s = 0;
  if (round->moment != AT_START) stalls_wait(&round->there, round->size, HANG_S);
  for (int i = 0; i < round->blows; i++) {
    const blow *b = &round->blow[i];
    /* Probes are in the first steps. */
    const bool at_once = round->moment == AT_PROBE || round->moment == AT_STEP ||
                         (round->moment == AT_SHRINK && i == 0);
    if (!at_once) await_moment(round, round->moment);
    group_nap(b->at_s);
    if (i == 0) first_s = weir_now_s();
    chaos_strike(b, pid, round->size);
    if (i + 1 == round->blows) chaos_last(b, pid, places(round)); /* the first lasts meanwhile */
  }
  if (round->blows == 2) chaos_last(&round->blow[0], pid, round->size);
  /* Somebody's time may be up just now, or a connection about to be found closed: until then nobody
   * finishes and leaves, as those who have found it in the last step would go on by themselves. */
  for (int i = 0; i < round->blows; i++) {
    if (chaos_passes(&round->blow[i])) group_nap(SETTLE_S);
    if (round->blow[i].kind == CUT) await_found(round);
  }
  return first_s;
}

/* Returns a rank that hangs, or -1. */
static int run_ranks(round_of *round, stalls *w, double *struck_s) {
  pid_t pid[PLACES];
  int hangs = -1;
  (void)fflush(NULL);
  for (int r = 0; r < places(round); r++) {
    pid[r] = fork();
    if (pid[r] < 0) abort();
    if (pid[r] > 0) continue;
    rank_main(round, r);
    _exit(0);
  }
  *struck_s = torment(round, pid);
  if (round->joins) stalls_wait(&round->in, 1, HANG_S);
  atomic_store(&round->over, true);
  for (int turn = 0; turn < 2; turn++) /* victims that are stopped for good last */
    for (int r = 0; r < places(round); r++) {
      const blow *b = blow_of(round, r);
      const bool out = b && (b->kind == KILLED || b->kind == FROZEN);
      if (out != (turn == 1)) continue;
      if (out) (void)kill(pid[r], SIGKILL);
      if (!stalls_ends(w, pid[r], HANG_S)) hangs = r;
    }
  return hangs;
}

/* --- the verdict ---------------------------------------------------------------------------- */

static bool harmless(const round_of *round) {
  return chaos_harmless(round->blow, round->blows, SHORT_S);
}

static bool must_survive(const round_of *round, int rank) {
  const blow *b = blow_of(round, rank);
  if (harmless(round)) return true;
  if (round->moment == AT_START) return false; /* a start may fail, and all of them know */
  return !b || b->kind == CUT;
}

/* Who is silent for a while goes on, or is told that the others have. */
static bool survives(const round_of *round, int rank) {
  return must_survive(round, rank) || round->rank[rank].status == WEIR_OK;
}

/* Weights are equal, and what was given is in them or still in the residuals. */
static bool conserved(const round_of *round, char text[256]) {
  int one = 0;
  while (one < places(round) && !survives(round, one)) one++;
  const trainee *first = &round->rank[one];
  for (size_t i = 0; one < places(round) && i < N; i++) {
    double left = first->moved[i];
    for (int r = 0; r < places(round); r++) {
      const trainee *t = &round->rank[r];
      if (!survives(round, r)) continue;
      left += (double)t->residual[i] - t->given[i];
      if (memcmp(&t->moved[i], &first->moved[i], sizeof(double)) != 0) {
        (void)snprintf(text, 256, "rank %d's weight %zu is %g, another's %g", r, i,
                       (double)t->moved[i], (double)first->moved[i]);
        return false;
      }
    }
    /* A rank that is lost in the start has given before it is. */
    if (round->moment != AT_START && !(fabs(left) <= ROUNDING)) {
      (void)snprintf(text, 256, "of what was given to element %zu, %g is lost", i, left);
      return false;
    }
  }
  return true;
}

/* 0: right; 1: wrong, but a machine that stood still could be why; 2: wrong. */
static int judge_rank(const round_of *round, int rank, int due, char text[256]) {
  const trainee *t = &round->rank[rank];
  const blow *b = blow_of(round, rank);
  const bool out = b && (b->kind == KILLED || b->kind == FROZEN);
  const bool lost = t->status == WEIR_E_PEER || t->status == WEIR_E_TIMEOUT;
  if (out && !t->ended) return 0;
  if (!b && t->call_s > MEET_S) {
    (void)snprintf(text, 256, "rank %d was in one call for %.2f s", rank, t->call_s);
    return 1;
  }
  if (t->status == WEIR_OK ? t->world == due : lost && !must_survive(round, rank)) return 0;
  int at = snprintf(text, 256, "of steps by ranks left");
  for (int r = 0; r < places(round) && at < 200; r++)
    at +=
        snprintf(text + at, 256 - (size_t)at, " %d:%d", round->rank[r].steps, round->rank[r].world);
  (void)snprintf(text + at, 256 - (size_t)at, ", rank %d's are not %d: %s %s", rank, due,
                 weir_status_name(t->status), t->message);
  return t->status == WEIR_E_INTERNAL && t->message[0] ? 2 : 1;
}

static int judge(const round_of *round, int hangs, char text[256]) {
  int due = 0;
  if (hangs >= 0) {
    (void)snprintf(text, 256, "rank %d hangs", hangs);
    return 2;
  }
  for (int r = 0; r < places(round); r++) due += round->rank[r].status == WEIR_OK;
  for (int r = 0; r < places(round); r++) {
    const int wrong = judge_rank(round, r, due, text);
    if (wrong) return wrong;
  }
  return conserved(round, text) ? 0 : 2;
}

static void count_round(const round_of *round, double struck_s) {
  double found_s = 0, call_s = 0;
  for (int r = 0; r < places(round); r++) {
    const trainee *t = &round->rank[r];
    if (blow_of(round, r)) continue;
    if (t->found_s > 0) found_s = fmax(found_s, t->found_s - struck_s);
    call_s = fmax(call_s, t->call_s);
  }
  chaos_count(round->moment, round->blow[round->blows - 1].kind, found_s, call_s);
}

static void describe(const void *user, uint64_t number, char *text, size_t room) {
  const round_of *round = user;
  int at = snprintf(text, room, "round %llu, at %s: %s over %s%s%s, %d ranks",
                    (unsigned long long)number, chaos_moment[round->moment], round->policy,
                    round->transport, round->secret ? " with a secret" : "",
                    round->probes ? " and probes" : "", round->size);
  for (int i = 0; i < round->blows && at < (int)room; i++)
    at += snprintf(text + at, room - (size_t)at, ", rank %d %s after %.0f ms (%.2f s)",
                   round->blow[i].victim, chaos_kind[round->blow[i].kind],
                   1e3 * round->blow[i].at_s, round->blow[i].pause_s);
}

static chaos_verdict play(void *user, uint64_t seed, uint64_t number, stalls *w, int *moment) {
  round_of *round = user;
  double struck_s;
  chaos_verdict v = {.text = ""};
  draw(round, seed, number);
  *moment = round->moment;
  const int hangs = run_ranks(round, w, &struck_s), wrong = judge(round, hangs, v.text);
  v.right = wrong == 0;
  v.never = wrong == 2;
  if (v.right) count_round(round, struck_s);
  return v;
}

Test(stress, training_loses_ranks_at_random) {
  /* A killed rank's helper ends when it finds its socket closed. */
  const chaos_game game = {"training", 10, sizeof(round_of), play, describe, 3};
  chaos_rounds(&game);
}

/* Ranks that are killed, frozen, stopped for a while or cut off at random moments of random
 * collectives: nobody hangs, no sum is wrong, the survivors agree on who they are, go on and
 * finish, and nothing is left behind.  16 rounds; WEIR_STRESS_ROUNDS asks for another number,
 * WEIR_STRESS_SEED for other ones, WEIR_STRESS_ONLY for a single one: seed and number fix it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/wrappers.h"
#include "random_ops.h"
#include "ranks.h"
#include "stalls.h"
#include "traces.h"

#define TIMEOUT_S 0.5
#define SHRINK_S 1.0
/* A rank that does not answer: one time-out, then questions for 0.6 s, then a busy machine. */
#define FOUND_S (TIMEOUT_S + 0.6 + 5.0)
#define SETTLE_S (TIMEOUT_S + 1.0)
#define HANG_S 30.0
#define GROUPS_MAX 12 /* a slow machine may lose one now and then for nothing */
#define STEPS 5       /* at least so many in the last group */

enum { KILLED, FROZEN, PAUSED, CUT, KINDS };
static const char *const kinds[KINDS] = {"killed", "frozen", "paused", "cut off"};

typedef struct blow {
  int victim, kind;
  double at_s;    /* after all have come together */
  double pause_s; /* PAUSED: goes on after so long */
  int peer;       /* CUT: -1 all */
} blow;

/* In memory shared with the ranks. */
typedef struct witness {
  double found_s; /* when it learnt first that its group had ended */
  int groups;
  int size, member[GROUP_MAX]; /* of the group it finished in */
} witness;

typedef struct round_of {
  uint64_t seed;
  enum group_kind kind;
  int size, blows, streams; /* streams: connections between each two ranks */
  blow blow[2];
  bool thaws;             /* frozen ranks wake up when the others are through */
  atomic_int there, cuts; /* ranks that are in the group; cuts that were made */
  atomic_bool over;       /* nothing more will happen */
  atomic_bool closed;     /* all but the frozen ranks have ended */
  witness witness[GROUP_MAX];
} round_of;

/* --- a rank --------------------------------------------------------------------------------- */

typedef struct cutter {
  round_of *round;
  weir_transport *transport;
  const blow *blow;
  pthread_t thread;
} cutter;

/* Dissolving an established connection makes the kernel send a reset, whoever is using it.  By the
 * bare system call: ThreadSanitizer takes connect() beside sendmsg() for a race, which here is the
 * point. */
static void *cut(void *argument) {
  const cutter *c = argument;
  const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
  while (atomic_load(&c->round->there) < c->round->size) group_nap(0.001);
  group_nap(c->blow->at_s);
  for (int r = 0; r < c->transport->size; r++)
    if (r != c->transport->rank && (c->blow->peer < 0 || c->blow->peer == r))
      (void)syscall(SYS_connect, c->transport->ops->descriptor(c->transport, r), &nobody,
                    sizeof nobody);
  (void)atomic_fetch_add(&c->round->cuts, 1);
  return NULL;
}

/* Until all have seen that it is over; any failure of a group is the caller's to judge. */
static weir_status collectives(round_of *round, weir_transport *t, const int *name, int number) {
  random_ops ops;
  bool over = false;
  const bool late = atomic_load(&round->closed);
  weir_status status = ops_open(
      &ops, t, name, round->seed + (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15), TIMEOUT_S);
  for (uint64_t step = 0; status == WEIR_OK && !over; step++) {
    status = ops_next(&ops, step);
    if (status == WEIR_OK)
      status = ops_all(&ops, step >= STEPS && atomic_load(&round->over), &over);
  }
  ops_close(&ops);
  /* One that was frozen in its group's last collective may find all that it needs when it wakes;
   * the others have gone on without it.  In a group made since, it would be one too many. */
  if (status == WEIR_OK && !late && atomic_load(&round->closed))
    status = weir_fail(WEIR_E_PEER, "the others have ended");
  /* Nobody here breaks the protocol. */
  if (status == WEIR_E_PROTOCOL || status == WEIR_E_MISMATCH) {
    char why[256];
    (void)snprintf(why, sizeof why, "%s", weir_last_error());
    status = weir_fail(WEIR_E_INTERNAL, "%s", why);
  }
  return status;
}

/* Over shared memory there is nothing to cut: the rank leaves. */
static weir_status leave(round_of *round, weir_transport *first, const blow *b) {
  int name[GROUP_MAX];
  weir_transport *faulty = NULL;
  const weir_strike strike = {WEIR_STRIKE_LEAVE, (uint64_t)(b->at_s * 4000), -1};
  for (int r = 0; r < first->size; r++) name[r] = r;
  weir_status status = weir_transport_fault(&faulty, first, &strike);
  if (status == WEIR_OK) status = collectives(round, faulty, name, 1);
  free(faulty);
  (void)atomic_fetch_add(&round->cuts, 1);
  return status;
}

static weir_status survive(round_of *round, weir_transport *first) {
  int name[GROUP_MAX], kept[GROUP_MAX];
  witness *w = &round->witness[first->rank];
  weir_transport *t = first;
  weir_status status = WEIR_OK;
  for (int r = 0; r < first->size; r++) name[r] = r;
  for (w->groups = 1; w->groups <= GROUPS_MAX; w->groups++) {
    status = collectives(round, t, name, w->groups);
    if (status < WEIR_E_TIMEOUT || status == WEIR_E_INTERNAL) break;
    if (w->found_s == 0) w->found_s = weir_now_s();
    weir_transport *next = NULL;
    status = t->ops->shrink(t, SHRINK_S, &next, kept);
    for (int again = 0; again < 2 && status >= WEIR_E_TIMEOUT; again++)
      status = t->ops->shrink(t, SHRINK_S, &next, kept);
    if (status != WEIR_OK) break;
    for (int r = 0; r < next->size; r++) name[r] = name[kept[r]]; /* kept[] ascends */
    if (t != first) t->ops->destroy(t);
    t = next;
  }
  w->size = status == WEIR_OK ? t->size : 0;
  for (int r = 0; r < w->size; r++) w->member[r] = name[r];
  if (t != first) t->ops->destroy(t);
  return status;
}

static weir_status stress_body(weir_transport *t, void *user) {
  round_of *round = user;
  cutter c = {.round = round, .transport = t};
  for (int i = 0; i < round->blows; i++)
    if (round->blow[i].victim == t->rank && round->blow[i].kind == CUT) c.blow = &round->blow[i];
  if (c.blow && round->kind == GROUP_SHM) {
    (void)atomic_fetch_add(&round->there, 1);
    return leave(round, t, c.blow);
  }
  if (c.blow && pthread_create(&c.thread, NULL, cut, &c) != 0) abort();
  (void)atomic_fetch_add(&round->there, 1);
  const weir_status status = survive(round, t);
  if (c.blow) (void)pthread_join(c.thread, NULL);
  return status;
}

static void rank_main(group *g, int rank) {
  const traces before = traces_now();
  (void)alarm(GROUP_WATCHDOG_S);
  group_rank(g, rank);
  const weir_status status = traces_check(&before);
  if (status == WEIR_OK || g->result[rank].status == WEIR_E_INTERNAL) return;
  g->result[rank].status = status;
  (void)snprintf(g->result[rank].message, sizeof g->result[rank].message, "%s", weir_last_error());
}

/* --- what happens to them ------------------------------------------------------------------- */

static void draw(round_of *round, uint64_t seed, uint64_t number) {
  weir_rng rng;
  weir_rng_seed(&rng, seed * 1000003 + number);
  *round = (round_of){.seed = weir_rng_next(&rng)};
  round->kind = weir_rng_below(&rng, 2) ? GROUP_TCP : GROUP_SHM;
  round->size = 2 + (int)weir_rng_below(&rng, 7);
  /* Two at once only where those who are left are always more than half. */
  round->blows = round->size >= 5 && weir_rng_below(&rng, 3) == 0 ? 2 : 1;
  round->thaws = weir_rng_below(&rng, 2) == 1;
  for (int i = 0; i < round->blows; i++) {
    blow *b = &round->blow[i];
    b->kind = (int)weir_rng_below(&rng, KINDS);
    b->victim = (int)weir_rng_below(&rng, (uint64_t)round->size);
    if (i == 1 && b->victim == round->blow[0].victim) b->victim = (b->victim + 1) % round->size;
    b->at_s = 0.15 * weir_rng_uniform(&rng);
    if (i == 1) /* while the survivors of the first are still finding out, or together */
      b->at_s = round->blow[0].at_s + 2.5 * weir_rng_uniform(&rng) * weir_rng_uniform(&rng);
    b->pause_s = 2.5 * TIMEOUT_S * weir_rng_uniform(&rng);
    b->peer = weir_rng_below(&rng, 2) ? -1 : (b->victim + 1) % round->size;
  }
  round->streams = 1 + (int)weir_rng_below(&rng, 3);
}

static void describe(const round_of *round, uint64_t number, char *text, size_t room) {
  int at = snprintf(text, room, "round %llu: %s, %d ranks", (unsigned long long)number,
                    round->kind == GROUP_TCP ? "tcp" : "shm", round->size);
  for (int i = 0; i < round->blows && at < (int)room; i++)
    at += snprintf(text + at, room - (size_t)at, ", rank %d %s at %.0f ms", round->blow[i].victim,
                   kinds[round->blow[i].kind], round->blow[i].at_s * 1e3);
}

/* Strike, and see that it has struck. */
static double strike(const group *g, const blow *b, double begun_s) {
  const pid_t pid = g->pid[b->victim];
  siginfo_t info;
  group_nap(fmax(0, begun_s + b->at_s - weir_now_s()));
  const double struck_s = weir_now_s();
  if (b->kind == CUT) return struck_s; /* it does so by itself */
  (void)kill(pid, b->kind == KILLED ? SIGKILL : SIGSTOP);
  (void)waitid(P_PID, (id_t)pid, &info,
               WNOWAIT | (b->kind == KILLED ? WEXITED : WEXITED | WSTOPPED));
  return struck_s;
}

/* All blows in their order, and the ends of pauses.  Returns when the first came. */
static double torment(const group *g, round_of *round) {
  const double begun_s = weir_now_s();
  double first_s = 0;
  int cuts = 0;
  for (int i = 0; i < round->blows; i++) {
    const double struck_s = strike(g, &round->blow[i], begun_s);
    if (i == 0) first_s = struck_s;
    if (round->blow[i].kind == CUT) cuts++;
    if (round->blow[i].kind == PAUSED) {
      group_nap(round->blow[i].pause_s);
      (void)kill(g->pid[round->blow[i].victim], SIGCONT);
      /* Somebody's time may be up just now: until then nobody finishes and leaves. */
      group_nap(SETTLE_S);
    }
  }
  stalls_wait(&round->cuts, cuts, HANG_S);
  atomic_store(&round->over, true);
  return first_s;
}

static const blow *blow_of(const round_of *round, int rank) {
  for (int i = 0; i < round->blows; i++)
    if (round->blow[i].victim == rank) return &round->blow[i];
  return NULL;
}

static bool is_out(const round_of *round, int rank, int kind) {
  const blow *b = blow_of(round, rank);
  return b && b->kind == kind;
}

/* Ends all ranks; the first that hangs, or -1. */
static int reap(const group *g, round_of *round, stalls *w) {
  int hangs = -1;
  for (int turn = 0; turn < 2; turn++) { /* the frozen ones last */
    atomic_store(&round->closed, turn == 1);
    for (int r = 0; r < round->size; r++) {
      const bool frozen = is_out(round, r, FROZEN);
      if (frozen != (turn == 1)) continue;
      if (frozen) (void)kill(g->pid[r], round->thaws ? SIGCONT : SIGKILL);
      if (!stalls_ends(w, g->pid[r], HANG_S) && hangs < 0) hangs = r;
    }
  }
  return hangs;
}

/* --- the verdict ---------------------------------------------------------------------------- */

typedef struct verdict {
  bool right;
  bool never; /* whatever the machine did, this must not be */
  char text[512];
} verdict;

static bool must_finish(const round_of *round, int rank) {
  const blow *b = blow_of(round, rank);
  if (b && (b->kind != CUT || round->kind == GROUP_SHM)) return false;
  /* One of two whose other is silent: only rank 0 may go on. */
  return round->size > 2 || round->blow[0].kind == KILLED || round->blow[0].kind == CUT;
}

static void judge_rank(const group *g, const round_of *round, int rank, verdict *v) {
  const group_result *result = &g->result[rank];
  const witness *w = &round->witness[rank];
  const bool gone = is_out(round, rank, KILLED) || (is_out(round, rank, FROZEN) && !round->thaws);
  if (gone && result->status == WEIR_E_INTERNAL && result->message[0] == 0) return;
  if (result->status == WEIR_E_INTERNAL || (gone && result->status == WEIR_OK)) {
    *v = (verdict){.never = result->message[0] != 0};
    (void)snprintf(v->text, sizeof v->text, "rank %d: %s", rank,
                   result->message[0] ? result->message : "ended without a word, or too well");
  } else if (result->status != WEIR_OK && must_finish(round, rank)) {
    *v = (verdict){.right = false};
    (void)snprintf(v->text, sizeof v->text, "rank %d did not finish: %s %s", rank,
                   weir_status_name(result->status), result->message);
  } else if (result->status == WEIR_OK) {
    int due = 0;
    for (int r = 0; r < round->size; r++) /* one group, and exactly those who say so */
      if (g->result[r].status == WEIR_OK && (due >= w->size || w->member[due++] != r))
        due = GROUP_MAX;
    if (due == w->size) return;
    *v = (verdict){.right = false}; /* one that has finished looks lost to one whose time is up */
    int at = snprintf(v->text, sizeof v->text, "not one group:");
    for (int r = 0; r < round->size && at < (int)sizeof v->text; r++)
      at += snprintf(v->text + at, sizeof v->text - (size_t)at, " %d: %s, %d of %d;", r,
                     weir_status_name(g->result[r].status), round->witness[r].size,
                     round->witness[r].groups);
  }
}

static verdict judge(const group *g, const round_of *round, double struck_s, int hangs) {
  verdict v = {.right = true};
  if (hangs >= 0) {
    v = (verdict){.never = true};
    (void)snprintf(v.text, sizeof v.text, "rank %d hangs", hangs);
  }
  for (int r = 0; r < round->size && v.right; r++) judge_rank(g, round, r, &v);
  const int kind = round->blow[0].kind;
  for (int r = 0; r < round->size && v.right && (kind == KILLED || kind == FROZEN); r++)
    if (!blow_of(round, r) && round->witness[r].found_s - struck_s > FOUND_S) {
      v = (verdict){.right = false};
      (void)snprintf(v.text, sizeof v.text, "rank %d found out after %.2f s", r,
                     round->witness[r].found_s - struck_s);
    }
  return v;
}

/* --- rounds --------------------------------------------------------------------------------- */

static double longest_s[KINDS]; /* until the last survivor knew, per kind of first blow */

static verdict play(round_of *round, uint64_t seed, uint64_t number, stalls *w) {
  group g;
  draw(round, seed, number);
  group_init(&g, round->kind, round->size, stress_body, round);
  g.streams = round->streams;
  (void)fflush(NULL);
  for (int r = 0; r < round->size; r++) {
    g.result[r].status = WEIR_E_INTERNAL;
    g.pid[r] = fork();
    if (g.pid[r] < 0) abort();
    if (g.pid[r] > 0) continue;
    rank_main(&g, r);
    _exit(0);
  }
  stalls_wait(&round->there, round->size, HANG_S);
  const double struck_s = torment(&g, round);
  const int hangs = reap(&g, round, w);
  const verdict v = judge(&g, round, struck_s, hangs);
  double *longest = &longest_s[round->blow[0].kind];
  for (int r = 0; r < round->size && v.right; r++)
    if (!blow_of(round, r)) *longest = fmax(*longest, round->witness[r].found_s - struck_s);
  group_done(&g);
  return v;
}

/* A round that fails while the machine stood still says nothing and is played again, unless what it
 * shows must not be at any speed.  Returns how often that was. */
static int one_round(uint64_t seed, uint64_t number, bool alone, stalls *w) {
  round_of *round = group_shared(sizeof *round);
  char what[256];
  for (int again = 0;; again++) {
    atomic_store(&w->worst_s, 0.0);
    const verdict v = play(round, seed, number, w);
    const double stall_s = atomic_load(&w->worst_s);
    describe(round, number, what, sizeof what);
    cr_assert(v.right || (!v.never && stall_s >= STALLS_LONGEST_S && again < 20),
              "seed %llu, %s: %s (the machine stood still for %.2f s)", (unsigned long long)seed,
              what, v.text, stall_s);
    cr_assert(!alone || traces_named_segments() == 0, "seed %llu, %s: shared memory is left behind",
              (unsigned long long)seed, what);
    if (!v.right) continue;
    (void)munmap(round, sizeof *round);
    return again;
  }
}

Test(stress, ranks_are_lost_at_random) {
  const uint64_t seed = stalls_asked("WEIR_STRESS_SEED", 1),
                 only = stalls_asked("WEIR_STRESS_ONLY", UINT64_MAX);
  const uint64_t count = stalls_asked("WEIR_STRESS_ROUNDS", 16),
                 first = only == UINT64_MAX ? 0 : only;
  const bool alone = traces_isolate();
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* what a rank leaves would come to this process */
  const int before = traces_named_segments();
  stalls *w = stalls_start();
  traces_settle();
  const traces own = traces_now();
  const double begun_s = weir_now_s();
  int repeated = 0;
  const uint64_t end = only == UINT64_MAX ? count : only + 1;
  for (uint64_t i = first; i < end; i++) repeated += one_round(seed, i, alone, w);
  cr_assert_eq(traces_check(&own), WEIR_OK, "%s", weir_last_error());
  cr_assert_leq(traces_named_segments(), before, "shared memory is left behind");
  stalls_stop(w);
  cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "a process is left behind");
  if (getenv("WEIR_STRESS_ROUNDS") || only != UINT64_MAX)
    fprintf(stderr,
            "stress: seed %llu, %llu rounds in %.0f s, %d played again; until all knew, at most: "
            "killed %.2f s, frozen %.2f s, paused %.2f s, cut off %.2f s%s\n",
            (unsigned long long)seed, (unsigned long long)(end - first), weir_now_s() - begun_s,
            repeated, longest_s[KILLED], longest_s[FROZEN], longest_s[PAUSED], longest_s[CUT],
            alone ? "" : " (not alone)");
}

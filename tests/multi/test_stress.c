/* Ranks that are killed, frozen, stopped for a while, cut off or parted from the others at random
 * moments of random collectives, while they come together, and while the survivors do: nobody
 * hangs, no sum is wrong, the survivors agree on who they are, go on and finish, and nothing is
 * left behind. 16 rounds; WEIR_STRESS_ROUNDS asks for another number, WEIR_STRESS_SEED for other
 * ones, WEIR_STRESS_ONLY for a single one: seed and number fix it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "chaos.h"
#include "collectives/wrappers.h"
#include "random_ops.h"

#define TIMEOUT_S 0.5
#define START_S 1.5
#define SHRINK_S 1.0
#define BUSY_S 5.0 /* a machine that has other things to do */
/* A rank that does not answer: one time-out, then questions for 0.6 s. */
#define FOUND_S (TIMEOUT_S + 0.6 + BUSY_S)
/* What weir_shrink promises. */
#define MEET_S (3 * SHRINK_S + 2 + BUSY_S)
#define SETTLE_S (TIMEOUT_S + 1.0)
#define SHORT_S 0.1 /* a pause that is too short for anybody to be lost */
#define HANG_S 30.0
#define GROUPS_MAX 12 /* a slow machine may lose one now and then for nothing */
#define STEPS 5       /* at least so many in the last group */

/* In memory shared with the ranks. */
typedef struct witness {
  double found_s;         /* when it learnt first that its group had ended */
  double began_s, call_s; /* when it began to join; the longest attempt to join or to go on */
  int groups;
  int size, member[GROUP_MAX]; /* of the group it finished in */
} witness;

typedef struct round_of {
  uint64_t seed;
  enum group_kind kind;
  int moment, size, blows, streams; /* streams: connections between each two ranks */
  bool secret;
  blow blow[2];
  double late_s[GROUP_MAX]; /* AT_START: a rank comes so late */
  bool thaws;               /* frozen ranks wake up when the others are through */
  atomic_int there, left;   /* ranks that are in the group; that have left it */
  atomic_bool shrinks;      /* somebody tries to go on */
  atomic_bool over;         /* nothing more will happen */
  atomic_bool closed;       /* all but the frozen ranks have ended */
  witness witness[GROUP_MAX];
} round_of;

/* --- a rank --------------------------------------------------------------------------------- */

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
  FREED weir_transport *faulty = NULL;
  const weir_strike strike = {WEIR_STRIKE_LEAVE, (uint64_t)(b->at_s * 4000), -1};
  for (int r = 0; r < first->size; r++) name[r] = r;
  weir_status status = weir_transport_fault(&faulty, first, &strike);
  if (status == WEIR_OK) status = collectives(round, faulty, name, 1);
  (void)atomic_fetch_add(&round->left, 1);
  return status;
}

static weir_status go_on(round_of *round, weir_transport *t, weir_transport **next, int *kept,
                         witness *w) {
  weir_status status = WEIR_E_TIMEOUT;
  for (int attempt = 0; attempt < 3 && status >= WEIR_E_TIMEOUT; attempt++) {
    const double begun_s = weir_now_s();
    atomic_store(&round->shrinks, true);
    status = t->ops->shrink(t, SHRINK_S, next, kept);
    w->call_s = fmax(w->call_s, weir_now_s() - begun_s);
  }
  return status;
}

static weir_status survive(round_of *round, weir_transport *first) {
  int name[GROUP_MAX], kept[GROUP_MAX];
  witness *w = &round->witness[first->rank];
  weir_transport *t = first;
  weir_status status = WEIR_OK;
  for (int r = 0; r < first->size; r++) name[r] = r;
  for (w->groups = 1; w->groups <= GROUPS_MAX; w->groups++) {
    const bool shares = round->kind == GROUP_MIXED && t != first;
    status = shares ? group_share(t, name, first->size, 0, TIMEOUT_S) : WEIR_OK;
    if (status == WEIR_OK) status = collectives(round, t, name, w->groups);
    if (status < WEIR_E_TIMEOUT || status == WEIR_E_INTERNAL) break;
    if (w->found_s == 0) w->found_s = weir_now_s();
    weir_transport *next = NULL;
    status = go_on(round, t, &next, kept, w);
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

static void come(group *g, int rank) {
  round_of *round = g->user;
  group_nap(round->late_s[rank]);
  round->witness[rank].began_s = weir_now_s();
}

static const blow *blow_of(const round_of *round, int rank) {
  return chaos_blow_of(round->blow, round->blows, rank);
}

static bool is_out(const round_of *round, int rank, int kind) {
  const blow *b = blow_of(round, rank);
  return b && b->kind == kind;
}

static weir_status stress_body(weir_transport *t, void *user) {
  round_of *round = user;
  const blow *b = blow_of(round, t->rank);
  (void)atomic_fetch_add(&round->there, 1);
  return b && b->kind == CUT && round->kind == GROUP_SHM ? leave(round, t, b) : survive(round, t);
}

static void rank_main(group *g, int rank) {
  const traces before = traces_now();
  (void)alarm(GROUP_WATCHDOG_S);
  group_rank(g, rank);
  chaos_waited();
  witness *w = &((round_of *)g->user)->witness[rank];
  if (w->groups == 0) w->call_s = g->result[rank].ended_s - w->began_s; /* it was in none */
  const weir_status status = traces_check(&before);
  if (status == WEIR_OK || g->result[rank].status == WEIR_E_INTERNAL) return;
  g->result[rank].status = status;
  (void)snprintf(g->result[rank].message, sizeof g->result[rank].message, "%s", weir_last_error());
}

/* --- what happens to them ------------------------------------------------------------------- */

static void draw_blow(round_of *round, int i, weir_rng *rng) {
  blow *b = &round->blow[i];
  do {
    b->kind = (int)weir_rng_below(rng, CHAOS_KINDS);
  } while (round->kind == GROUP_SHM &&
           (b->kind == PARTED || (b->kind == CUT && round->moment == AT_START)));
  if (i == 1 && b->kind == PARTED && round->blow[0].kind == PARTED) b->kind = PAUSED;
  b->victim = (int)weir_rng_below(rng, (uint64_t)round->size);
  if (i == 1 && b->victim == round->blow[0].victim) b->victim = (b->victim + 1) % round->size;
  b->at_s = 0.15 * weir_rng_uniform(rng);
  if (i == 1) /* while the survivors of the first are coming together, or just have */
    b->at_s = 2.5 * weir_rng_uniform(rng) * weir_rng_uniform(rng) * weir_rng_uniform(rng);
  b->pause_s = weir_rng_below(rng, 4) ? 2.5 * TIMEOUT_S : SHORT_S;
  b->pause_s *= weir_rng_uniform(rng);
  b->peer = weir_rng_below(rng, 2) ? -1 : (b->victim + 1) % round->size;
}

static void draw(round_of *round, uint64_t seed, uint64_t number) {
  weir_rng rng = weir_rng_of(seed * 1000003 + number);
  *round = (round_of){.seed = weir_rng_next(&rng), .moment = AT_STEP};
  static const enum group_kind kinds[] = {GROUP_TCP, GROUP_MIXED, GROUP_SHM};
  round->kind = kinds[weir_rng_below(&rng, 3)];
  round->size = 2 + (int)weir_rng_below(&rng, 7);
  const uint64_t moment = weir_rng_below(&rng, 6);
  if (moment == 0) round->moment = AT_START;
  /* Two only where those who are left are always more than half. */
  if (moment > 3 && round->size >= 5) round->moment = AT_SHRINK;
  round->blows = round->moment == AT_SHRINK ? 2 : 1;
  round->thaws = weir_rng_below(&rng, 2) == 1;
  for (int i = 0; i < round->blows; i++) draw_blow(round, i, &rng);
  round->streams = 1 + (int)weir_rng_below(&rng, 3);
  round->secret = weir_rng_below(&rng, 2) == 1;
  for (int r = 0; round->moment == AT_START && r < round->size; r++)
    round->late_s[r] = 0.15 * weir_rng_uniform(&rng);
}

static void describe(const void *user, uint64_t number, char *text, size_t room) {
  const round_of *round = user;
  int at = snprintf(text, room, "round %llu, at %s: %s%s, %d ranks", (unsigned long long)number,
                    chaos_moment[round->moment], group_names[round->kind],
                    round->secret ? " with a secret" : "", round->size);
  for (int i = 0; i < round->blows && at < (int)room; i++)
    at += snprintf(text + at, room - (size_t)at, ", rank %d %s at %.0f ms", round->blow[i].victim,
                   chaos_kind[round->blow[i].kind], round->blow[i].at_s * 1e3);
}

/* All blows in their order, and the ends of pauses.  Returns when the first came. */
static double torment(const group *g, round_of *round) {
  double first_s = 0;
  int leave = 0;
  for (int i = 0; i < round->blows; i++) {
    const blow *b = &round->blow[i];
    const double until_s = weir_now_s() + HANG_S / 10;
    while (i == 1 && !atomic_load(&round->shrinks) && weir_now_s() < until_s) group_nap(0.0005);
    const bool leaves = b->kind == CUT && round->kind == GROUP_SHM; /* it does so by itself */
    if (leaves) leave++;
    if (!leaves) group_nap(b->at_s);
    if (i == 0) first_s = weir_now_s();
    if (!leaves) chaos_strike(b, g->pid, round->size);
    /* What passes lasts while the second comes. */
    if (i == 0 && round->blows == 2) continue;
    chaos_last(b, g->pid, round->size);
  }
  if (round->blows == 2) chaos_last(&round->blow[0], g->pid, round->size);
  /* Somebody's time may be up just now: until then nobody finishes and leaves. */
  for (int i = 0; i < round->blows; i++)
    if (chaos_passes(&round->blow[i])) group_nap(SETTLE_S);
  stalls_wait(&round->left, leave, HANG_S);
  atomic_store(&round->over, true);
  return first_s;
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

static bool harmless(const round_of *round) {
  return chaos_harmless(round->blow, round->blows, SHORT_S);
}

static bool must_finish(const round_of *round, int rank) {
  const blow *b = blow_of(round, rank);
  if (harmless(round)) return true;
  if (round->moment == AT_START) return false; /* a start may fail, and all of them know */
  if (b && (b->kind != CUT || round->kind == GROUP_SHM)) return false;
  /* One of two whose other is silent: only rank 0 may go on. */
  return round->size > 2 || round->blow[0].kind == KILLED || round->blow[0].kind == CUT;
}

/* One group, and exactly those who say so. */
static bool together(const group *g, const round_of *round, int rank) {
  const witness *w = &round->witness[rank];
  int due = 0;
  for (int r = 0; r < round->size; r++)
    if (g->result[r].status == WEIR_OK && (due >= w->size || w->member[due++] != r)) return false;
  return due == w->size;
}

static void judge_rank(const group *g, const round_of *round, int rank, chaos_verdict *v) {
  const group_result *result = &g->result[rank];
  const witness *w = &round->witness[rank];
  const double limit_s = w->groups == 0 ? START_S + 1 + BUSY_S : MEET_S;
  const bool gone = is_out(round, rank, KILLED) || (is_out(round, rank, FROZEN) && !round->thaws);
  const bool lost = result->status == WEIR_E_TIMEOUT || result->status == WEIR_E_PEER;
  if (gone && result->status == WEIR_E_INTERNAL && result->message[0] == 0) return;
  *v = (chaos_verdict){.right = false};
  if (result->status == WEIR_E_INTERNAL || (gone && result->status == WEIR_OK)) {
    v->never = result->message[0] != 0;
    (void)snprintf(v->text, sizeof v->text, "rank %d: %s", rank,
                   result->message[0] ? result->message : "ended without a word, or too well");
  } else if (result->status != WEIR_OK && (!lost || must_finish(round, rank))) {
    (void)snprintf(v->text, sizeof v->text, "rank %d did not finish: %s %s", rank,
                   weir_status_name(result->status), result->message);
  } else if (result->status == WEIR_OK && !together(g, round, rank)) {
    /* one that has finished looks lost to one whose time is up */
    int at = snprintf(v->text, sizeof v->text, "not one group:");
    for (int r = 0; r < round->size && at < (int)sizeof v->text; r++)
      at += snprintf(v->text + at, sizeof v->text - (size_t)at, " %d: %s, %d of %d;", r,
                     weir_status_name(g->result[r].status), round->witness[r].size,
                     round->witness[r].groups);
  } else if (!blow_of(round, rank) && w->call_s > limit_s) {
    (void)snprintf(v->text, sizeof v->text, "rank %d was in one call for %.2f s", rank, w->call_s);
  } else {
    v->right = true;
  }
}

static chaos_verdict judge(const group *g, const round_of *round, double struck_s, int hangs) {
  chaos_verdict v = {.right = true};
  if (hangs >= 0) {
    v = (chaos_verdict){.never = true};
    (void)snprintf(v.text, sizeof v.text, "rank %d hangs", hangs);
  }
  for (int r = 0; r < round->size && v.right; r++) judge_rank(g, round, r, &v);
  const int kind = round->blow[0].kind;
  const bool silent = round->moment != AT_START && (kind == KILLED || kind == FROZEN);
  for (int r = 0; r < round->size && v.right && silent; r++)
    if (!blow_of(round, r) && round->witness[r].found_s - struck_s > FOUND_S) {
      v = (chaos_verdict){.right = false};
      (void)snprintf(v.text, sizeof v.text, "rank %d found out after %.2f s", r,
                     round->witness[r].found_s - struck_s);
    }
  return v;
}

/* --- rounds --------------------------------------------------------------------------------- */

static void count_round(const round_of *round, double struck_s) {
  double found_s = 0, call_s = 0;
  for (int r = 0; r < round->size; r++) {
    const witness *w = &round->witness[r];
    if (blow_of(round, r)) continue;
    if (w->found_s > 0) found_s = fmax(found_s, w->found_s - struck_s);
    call_s = fmax(call_s, w->call_s);
  }
  chaos_count(round->moment, round->blow[round->blows - 1].kind, found_s, call_s);
}

static chaos_verdict play(void *user, uint64_t seed, uint64_t number, stalls *w, int *moment) {
  round_of *round = user;
  draw(round, seed, number);
  *moment = round->moment;
  ENDED group g = group_new(round->kind, round->size, stress_body, round);
  g.streams = round->streams;
  g.secret = round->secret ? "chaos" : NULL;
  g.apart = true;
  g.prepare = come;
  if (round->moment == AT_START) g.timeout_s = START_S;
  (void)fflush(NULL);
  for (int r = 0; r < round->size; r++) {
    g.result[r].status = WEIR_E_INTERNAL;
    g.pid[r] = fork();
    if (g.pid[r] < 0) abort();
    if (g.pid[r] > 0) continue;
    rank_main(&g, r);
    _exit(0);
  }
  if (round->moment != AT_START) stalls_wait(&round->there, round->size, HANG_S);
  const double struck_s = torment(&g, round);
  const int hangs = reap(&g, round, w);
  const chaos_verdict v = judge(&g, round, struck_s, hangs);
  if (v.right) count_round(round, struck_s);
  return v;
}

Test(stress, ranks_are_lost_at_random) {
  const chaos_game game = {"collectives", 16, sizeof(round_of), play, describe, 0};
  const int before = traces_named_segments();
  chaos_rounds(&game);
  cr_assert_leq(traces_named_segments(), before, "shared memory is left behind");
}

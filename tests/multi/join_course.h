/* A training whose group changes while it runs: ranks begin it, join it and are lost.  Each solves
 * the same least squares by batches of its own, and after every step the ranks check that gradient
 * mass is conserved over the step: ranks * average + residuals after = gradients + residuals
 * before, the latter being zero for who has just joined. */
#ifndef WEIR_TESTS_JOIN_COURSE_H
#define WEIR_TESTS_JOIN_COURSE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <weir/weir.h>

#include "collectives/transports/tcp_joiners.h"
#include "ranks.h"
#include "session/state.h"

#define COURSE_N 240 /* weights, as a matrix of 12 x 20 */
#define COURSE_SEATS 9
#define COURSE_BATCH 16
#define COURSE_PHASES 6
#define COURSE_SECRET "a secret of the tests"

typedef enum course_odd { /* what is wrong with one who joins */
                          NOTHING,
                          OTHER_SECRET,
                          OTHER_JOB,
                          OTHER_TENSORS,
                          OTHER_STATE,
                          OTHER_POLICY,
                          OTHER_TLS,
                          IMPATIENT,  /* waits a second only */
                          IS_STOPPED, /* by seat 0, once it waits at its door */
                          DIES,       /* as soon as it is in the new group */
                          STOPS       /* likewise */
} course_odd;

typedef struct course_seat { /* of a process */
  pid_t pid;
  int phase; /* that it joins in; 0: it begins the group */
  course_odd odd;
  weir_status status;
  char message[256];
  weir_survivors now; /* as told last */
  bool tried;         /* in the step before */
  int mine;           /* registered: its number, until it gets another's with all else */
  double took_s;      /* weir_join */
  float w[COURSE_N], g[COURSE_N], before[COURSE_N], after[COURSE_N], average[COURSE_N];
} course_seat;

typedef struct course { /* shared by all processes */
  const char *policy, *secret;
  const char *transport; /* NULL: tcp; else two seats share a machine */
  double timeout_s, momentum;
  bool plain, probes;
  int most;
  int want[COURSE_PHASES]; /* ranks in each phase, which ends some steps later; 0: no more phases */
  int victim, victim_phase; /* the seat that is killed when that phase begins */
  int killed_at_grow;       /* the seat that is killed instead of growing; -1: none */
  int silent_in_grow;       /* the seat that stops once the new group has met; -1: none */
  bool cut_at_grow;         /* seat 0 hangs up on the first of those who wait when it should grow */
  int watch_phase;          /* which does not end before somebody waits at rank 0's door */
  /* It goes on until so many have joined, have ended without it, and weir_grow has taken in nobody,
   * or failed. */
  int grown_due, odd_due, empty_due, failed_due;
  int hold;        /* seat 0 makes no step of phase 1 before so many wait at its door */
  bool lost_first; /* no step counts before somebody has joined */
  size_t large;    /* bytes of another state, which differ from zero where one begins the group */
  double until_s;  /* it has failed if it has not ended by then */
  uint64_t steps;  /* at least */
  char where[64];
  char addresses[256]; /* of the members, as rank 0 knows them */
  atomic_int phase, settled, checks, wrong, grown, odd, empty, failed;
  atomic_bool done;
  double worst;
  course_seat seat[COURSE_SEATS];
} course;

/* --- the task --------------------------------------------------------------------------------- */

/* A row of it in numbers around 0, the same for all who ask. */
static inline float course_row(uint64_t row, float x[COURSE_N]) {
  weir_rng rng = weir_rng_of(row + 1);
  float y = 0;
  for (int i = 0; i < COURSE_N; i++) {
    x[i] = (float)weir_rng_uniform(&rng) - 0.5F;
    y += x[i] * (float)((i * 7 % 11) - 5);
  }
  return y + 0.2F * ((float)weir_rng_uniform(&rng) - 0.5F);
}

static inline double course_loss(const float *w) {
  float x[COURSE_N];
  double loss = 0;
  for (uint64_t row = 0; row < 500; row++) {
    double off = -(double)course_row(row + (UINT64_C(1) << 40), x);
    for (int i = 0; i < COURSE_N; i++) off += (double)(x[i] * w[i]);
    loss += off * off / 500;
  }
  return loss;
}

static inline void course_gradient(const float *w, int seat, uint64_t step, float *g) {
  float x[COURSE_N];
  memset(g, 0, COURSE_N * sizeof *g);
  for (uint64_t b = 0; b < COURSE_BATCH; b++) {
    float off = -course_row((step * COURSE_SEATS + (uint64_t)seat) * COURSE_BATCH + b, x);
    for (int i = 0; i < COURSE_N; i++) off += x[i] * w[i];
    for (int i = 0; i < COURSE_N; i++) g[i] += off * x[i] / COURSE_BATCH;
  }
}

/* --- a rank ----------------------------------------------------------------------------------- */

/* This process's, which ends with it. */
static inline unsigned char *course_large(const course *c, bool filled) {
  static unsigned char *memory;
  if (memory == NULL) memory = calloc(c->large, 1);
  if (memory == NULL) abort();
  for (size_t i = 0; filled && i < c->large; i++) memory[i] = (unsigned char)(i * 7 + i / 1000);
  return memory;
}

static inline bool course_has_large(const course *c) {
  const unsigned char *memory = course_large(c, false);
  for (size_t i = 0; i < c->large; i++)
    if (memory[i] != (unsigned char)(i * 7 + i / 1000)) return false;
  return true;
}

static inline weir_status course_open(weir_session **session, course *c, course_seat *own) {
  const course_odd odd = own->odd;
  const size_t rows = odd == OTHER_TENSORS ? 20 : 12;
  weir_options options;
  weir_options_init(&options);
  const char machine[2] = {(char)('a' + (own - c->seat) / 2)};
  if (c->transport != NULL) (void)setenv("WEIR_HOST", machine, 1);
  options.transport = c->transport != NULL ? c->transport : "tcp";
  options.rendezvous = c->where;
  options.policy = odd == OTHER_POLICY ? "fixed:none:1:dense-tree" : c->policy;
  options.secret = odd == OTHER_SECRET ? "another" : c->secret;
  options.tls = c->plain != (odd == OTHER_TLS) ? "off" : "auto";
  options.timeout_s = c->timeout_s;
  options.momentum_correction = c->momentum;
  options.active_probes = c->probes;
  options.max_ranks = c->most;
  options.job_id = odd == OTHER_JOB ? 78 : 77;
  if (own->phase == 0) {
    options.rank = (int)(own - c->seat);
    options.world_size = c->want[0];
  } else if (c->addresses[0] != 0) { /* once in the one way, once in the other */
    const bool told = (own - c->seat) % 2 == 1;
    options.rendezvous = told ? NULL : c->addresses;
    (void)setenv("WEIR_JOIN", told ? c->addresses : "", 1);
  }
  weir_status status = weir_session_create(session, &options);
  if (status == WEIR_OK) status = weir_register_matrix(*session, "w", rows, COURSE_N / rows, NULL);
  if (status == WEIR_OK)
    status =
        weir_register_state(*session, "w", own->w, sizeof own->w - (odd == OTHER_STATE ? 4 : 0));
  own->mine = (int)(own - c->seat);
  if (status == WEIR_OK)
    status = weir_register_state(*session, "mine", &own->mine, sizeof own->mine);
  if (status == WEIR_OK && c->large > 0)
    status = weir_register_state(*session, "large", course_large(c, own->phase == 0), c->large);
  return status;
}

static inline int course_waiting(const weir_session *session) {
  return atomic_load(&((tcp *)session->transport)->joiners->ready);
}

/* Rank 0 of the moment, while all others wait for it. */
static inline void course_audit(course *c, const unsigned char *seats, int ranks, uint64_t step,
                                const weir_session *session) {
  const float *average = c->seat[seats[0]].average;
  for (int i = 0; i < COURSE_N; i++) {
    double off = ranks * (double)average[i];
    for (int r = 0; r < ranks; r++) {
      const course_seat *s = &c->seat[seats[r]];
      off += (double)s->after[i] - (double)s->before[i] - (double)s->g[i];
      if (memcmp(&s->average[i], &average[i], sizeof *average) != 0 ||
          memcmp(&s->w[i], &c->seat[seats[0]].w[i], sizeof *s->w) != 0)
        atomic_fetch_add(&c->wrong, 1);
    }
    if (c->momentum > 0) continue; /* velocities are what is conserved then */
    c->worst = fmax(c->worst, fabs(off));
    if (!(fabs(off) < 2e-3)) atomic_fetch_add(&c->wrong, 1);
  }
  atomic_fetch_add(&c->checks, 1);
  const int phase = atomic_load(&c->phase);
  if (phase < COURSE_PHASES && c->want[phase] != 0) {
    const bool watches = phase > 0 && phase == c->watch_phase && course_waiting(session) == 0;
    const int settled = ranks == c->want[phase] && !watches ? atomic_load(&c->settled) + 1 : 0;
    atomic_store(&c->settled, settled);
    if (settled < 5) return;
    (void)weir_addresses(session, c->addresses, sizeof c->addresses);
    atomic_store(&c->settled, 0);
    atomic_store(&c->phase, phase + 1);
  } else if (step >= c->steps && atomic_load(&c->grown) >= c->grown_due &&
             atomic_load(&c->odd) >= c->odd_due && atomic_load(&c->empty) >= c->empty_due &&
             atomic_load(&c->failed) >= c->failed_due) {
    atomic_store(&c->done, true);
  }
}

static inline weir_status course_step(course *c, course_seat *own, weir_session *session,
                                      uint64_t *step) {
  const unsigned char me = (unsigned char)(own - c->seat);
  unsigned char seats[COURSE_SEATS];
  weir_step_info info = {.struct_size = sizeof info};
  weir_status status = weir_step_begin(session, &info);
  if (status != WEIR_OK) return status;
  if (own->tried) /* what the trial has kept back is given up */
    memcpy(own->before, weir_engine_residual(session->engine), sizeof own->before);
  own->tried = info.trial;
  course_gradient(own->w, me, *step, own->g);
  memcpy(own->average, own->g, sizeof own->g);
  if (c->lost_first && atomic_load(&c->grown) == 0) own->average[0] = NAN;
  status = weir_submit(session, 0, own->average);
  if (status == WEIR_OK) status = weir_step_end(session, NULL);
  if (status == WEIR_E_NONFINITE && c->lost_first) {
    atomic_store(&c->phase, 1);
    return WEIR_OK;
  }
  if (status != WEIR_OK) return status;
  for (int i = 0; i < COURSE_N; i++) own->w[i] -= 0.8F * own->average[i];
  memcpy(own->after, weir_engine_residual(session->engine), sizeof own->after);
  if (!info.trial) (*step)++;
  status = weir_allgather_bytes(session, &me, 1, seats);
  const bool first = status == WEIR_OK && seats[0] == me && !info.trial;
  if (first) course_audit(c, seats, session->options.world_size, *step, session);
  if (status == WEIR_OK) status = weir_allgather_bytes(session, &me, 1, seats);
  memcpy(own->before, own->after, sizeof own->after);
  return status;
}

static inline void course_strike(course *c, int me, const weir_session *session) {
  if (c->victim == me && atomic_load(&c->phase) == c->victim_phase) (void)raise(SIGKILL);
  while (me == 0 && atomic_load(&c->phase) == 1 && atomic_load(&c->grown) == 0 &&
         course_waiting(session) < c->hold && weir_now_s() < c->until_s)
    group_nap(0.001);
  for (int s = 1; me == 0 && s < COURSE_SEATS; s++)
    if (c->seat[s].odd == IS_STOPPED && c->seat[s].pid != 0 && course_waiting(session) > 0) {
      group_nap(0.02); /* it has told the other members, too */
      (void)kill(c->seat[s].pid, SIGSTOP);
    }
}

static inline void course_cut_first(const weir_session *session) {
  tcp_joiners *j = ((tcp *)session->transport)->joiners;
  (void)pthread_mutex_lock(&j->mutex);
  for (int i = 0; i < j->meeting->guests; i++)
    if (le64toh(j->meeting->guest[i].hello.generation) == j->joiner[0].number)
      (void)shutdown(j->meeting->guest[i].fd, SHUT_RDWR);
  (void)pthread_mutex_unlock(&j->mutex);
}

static inline weir_status course_grow(course *c, course_seat *own, weir_session *session) {
  if (own - c->seat == c->killed_at_grow) (void)raise(SIGKILL);
  if (own == c->seat && c->cut_at_grow) course_cut_first(session);
  if (own == c->seat) c->cut_at_grow = false;
  if (own - c->seat == c->silent_in_grow) {
    weir_transport *next = NULL, *t = session->transport;
    const weir_status met = t->ops->grow(t, c->timeout_s, &next);
    if (met != WEIR_OK) return met;
    (void)atomic_fetch_add(&c->failed, 1); /* as it will have, for all others */
    (void)raise(SIGSTOP);
  }
  const int mine = own->mine;
  const weir_status status = weir_grow(session, &own->now);
  if (status == WEIR_OK && !own->now.missed && own->mine != mine)
    (void)atomic_fetch_add(&c->wrong, 1); /* members keep what they have */
  if (session->options.rank != 0) return status;
  if (status == WEIR_OK && 2 * own->now.joined > own->now.world_size)
    (void)atomic_fetch_add(&c->wrong, 1); /* more than there were */
  if (status != WEIR_OK)
    (void)atomic_fetch_add(&c->failed, 1);
  else
    (void)atomic_fetch_add(own->now.joined > 0 ? &c->grown : &c->empty,
                           own->now.joined > 0 ? own->now.joined : 1);
  return status;
}

static inline weir_status course_train(course *c, course_seat *own, weir_session *session,
                                       uint64_t step) {
  const int me = (int)(own - c->seat);
  weir_status status = WEIR_OK;
  while (status == WEIR_OK && !atomic_load(&c->done)) {
    if (weir_now_s() > c->until_s)
      return weir_fail(WEIR_E_INTERNAL, "the course does not end (step %d)", (int)step);
    course_strike(c, me, session);
    status = course_step(c, own, session, &step);
    const bool changes = status == WEIR_GROW || status >= WEIR_E_TIMEOUT;
    if (status == WEIR_GROW) status = course_grow(c, own, session);
    while (status >= WEIR_E_TIMEOUT && status != WEIR_E_MISMATCH && status != WEIR_E_INTERNAL) {
      status = weir_shrink(session, &own->now);
      if (status == WEIR_E_PEER) break;
    }
    if (status == WEIR_OK && changes) step = own->now.step;
    if (status == WEIR_OK && changes && own->now.missed) /* it counts here, too */
      memcpy(own->before, weir_engine_residual(session->engine), sizeof own->before);
    group_nap(0.001);
  }
  return status;
}

/* Of the new group, and then no more, dead or silent. */
static inline weir_status course_vanish(const course *c, const course_seat *own,
                                        weir_session *session) {
  weir_transport *t = NULL;
  int members;
  const weir_tcp_options options = {.rendezvous = c->where,
                                    .secret = c->secret,
                                    .secret_bytes = c->secret ? strlen(c->secret) : 0,
                                    .job_id = session->options.job_id,
                                    .most = c->most,
                                    .offer = weir_session_offer(session),
                                    .timeout_s = c->timeout_s};
  const weir_status status = weir_transport_tcp_join(&t, &options, 20, &members);
  if (status == WEIR_OK) (void)raise(own->odd == DIES ? SIGKILL : SIGSTOP);
  return status;
}

static inline weir_status course_work(course *c, course_seat *own) {
  weir_session *session = NULL;
  const double begun_s = weir_now_s();
  own->now.struct_size = sizeof own->now;
  weir_status status = course_open(&session, c, own);
  if (c->lost_first && own->phase == 0)
    for (int i = 0; i < COURSE_N; i++) own->w[i] = 1;
  if (status == WEIR_OK && own->phase == 0)
    status = weir_session_start(session);
  else if (status == WEIR_OK && own->odd >= DIES)
    status = course_vanish(c, own, session);
  else if (status == WEIR_OK)
    status = weir_join(session, own->odd == IMPATIENT ? 1 : 20, &own->now);
  own->took_s = weir_now_s() - begun_s;
  if (own->odd != NOTHING) (void)atomic_fetch_add(&c->odd, 1);
  if (status == WEIR_OK && own->phase > 0 && own->mine == own - c->seat)
    (void)atomic_fetch_add(&c->wrong, 1); /* it has got nothing */
  if (status == WEIR_OK && c->large > 0 && !course_has_large(c))
    (void)atomic_fetch_add(&c->wrong, 1);
  if (status == WEIR_OK) status = course_train(c, own, session, own->now.step);
  (void)snprintf(own->message, sizeof own->message, "%s", status ? weir_last_error() : "");
  weir_session_free(session);
  return status;
}

/* --- all of them ------------------------------------------------------------------------------ */

static inline course *course_new(const char *policy, const char *secret) {
  course *c = group_shared(sizeof *c);
  *c = (course){.policy = policy,
                .secret = secret,
                .timeout_s = 4,
                .most = 8,
                .victim = -1,
                .killed_at_grow = -1,
                .silent_in_grow = -1,
                .steps = 40,
                .until_s = weir_now_s() + 60};
  (void)snprintf(c->where, sizeof c->where, "127.0.0.1:%d", free_port());
  return c;
}

static inline pid_t course_fork(course *c, int seat) {
  course_seat *own = &c->seat[seat];
  (void)fflush(NULL);
  own->status = WEIR_E_INTERNAL;
  const pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid > 0) {
    own->pid = pid;
    return pid;
  }
  (void)alarm(GROUP_WATCHDOG_S);
  while (atomic_load(&c->phase) < own->phase) group_nap(0.002);
  own->status = course_work(c, own);
  _exit(0);
}

/* Seats 0 .. want[0] - 1 begin; the others' phases are set. */
static inline void course_begin(course *c) {
  for (int s = 0; s < COURSE_SEATS; s++)
    if (s < c->want[0] || c->seat[s].phase > 0) (void)course_fork(c, s);
}

static inline void course_end(course *c) {
  int last = -1;
  for (int s = 0; s < COURSE_SEATS; s++) {
    const course_seat *own = &c->seat[s];
    if (own->pid == 0 || s == c->silent_in_grow) continue;
    if (own->odd >= IS_STOPPED) (void)kill(own->pid, SIGKILL);
    (void)waitpid(own->pid, NULL, 0);
    if (s == c->victim || s == c->killed_at_grow || own->odd != NOTHING) continue;
    cr_expect_eq(own->status, WEIR_OK, "%s, seat %d: %s %s", c->policy, s,
                 weir_status_name(own->status), own->message);
    if (last >= 0)
      cr_expect_eq(memcmp(own->w, c->seat[last].w, sizeof own->w), 0, "%s: seats %d and %d differ",
                   c->policy, s, last);
    last = s;
  }
  if (c->silent_in_grow >= 0) { /* it may still have to do so: the last to be ended */
    (void)kill(c->seat[c->silent_in_grow].pid, SIGKILL);
    (void)waitpid(c->seat[c->silent_in_grow].pid, NULL, 0);
  }
  cr_expect_eq(atomic_load(&c->wrong), 0, "%s: %d elements are wrong, by %g at most", c->policy,
               atomic_load(&c->wrong), c->worst);
  cr_expect_gt(atomic_load(&c->checks), (int)c->steps - 1);
}

static inline void course_done(course *c) { (void)munmap(c, sizeof *c); }

#endif

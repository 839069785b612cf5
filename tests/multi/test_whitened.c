/* whitened (kernels/whitened.h), over whole steps: what is small beside others is sent in every
 * step, once it is known how small it usually is.
 *
 * Every second gradient is 1, and the others are 1/100, of some rank more and of some less, in
 * every step.  Of companded's 4 bits the first value above 0 is 1/49, so that 1/100 is sent as
 * nothing in some steps and twice over in others; in units of themselves both are sent to half of
 * 0.7 units, and what an element usually is, is 0.7 to 1.4 units.
 *
 * And where policy weir sends so: where an optimizer divides by what elements usually are, and that
 * is followed from the first step on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"
#include "session_ranks.h"

enum { RANKS = 3, N = 512, STEPS = 40, KNOWN = 16 };

typedef struct worker {
  int rank;
  const char *group, *policy;
  weir_status status; /* out */
  char message[512];
  float average[STEPS][N];
} worker;

static float given(int rank, size_t i) {
  return (i % 2 == 0 ? 1.0F : 0.01F) * (1.0F + 0.125F * (float)(rank - 1));
}

static void *work(void *argument) {
  worker *w = argument;
  const weir_options options = session_options(w->rank, RANKS, w->group, w->policy);
  weir_session *session = NULL;
  w->status = session_open(&session, &options, N);
  for (int step = 0; step < STEPS && w->status == WEIR_OK; step++) {
    float *const g = w->average[step];
    for (size_t i = 0; i < N; i++) g[i] = given(w->rank, i);
    w->status = weir_step_begin(session, NULL);
    if (w->status == WEIR_OK) w->status = weir_submit(session, 0, g);
    if (w->status == WEIR_OK) w->status = weir_step_end(session, NULL);
  }
  if (w->status != WEIR_OK) (void)snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  return NULL;
}

/* The largest error of an average, in shares of what it should be, from a step on; and that of
 * their mean over all steps. */
static double worst(const char *policy, int from, double *mean) {
  static worker w[RANKS];
  static int turn;
  char name[64];
  double most = 0;
  (void)snprintf(name, sizeof name, "whitened %d", turn++);
  for (int r = 0; r < RANKS; r++) w[r] = (worker){.rank = r, .group = name, .policy = policy};
  session_threads(w, sizeof *w, RANKS, work);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_OK, "%s: %s", policy, w[r].message);
    cr_assert_eq(memcmp(w[r].average, w[0].average, sizeof w[0].average), 0, "rank %d", r);
  }
  *mean = 0;
  for (size_t i = 0; i < N; i++) {
    const double due = (double)given(1, i);
    double sum = 0;
    for (int step = 0; step < STEPS; step++) {
      const double off = fabs((double)w[0].average[step][i] - due) / due;
      sum += (double)w[0].average[step][i];
      if (step >= from) most = fmax(most, off);
    }
    *mean = fmax(*mean, fabs(sum / STEPS - due) / due);
  }
  return most;
}

Test(whitened, what_is_small_is_sent_in_every_step, .timeout = 60) {
  static const char *const policies[] = {"fixed:whitened:0.125:ag", "fixed:whitened:0.125:sra",
                                         "fixed:whitened:0.125:sra:huffman",
                                         "fixed:whitened:0.125:hier-sra"};
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
    double mean;
    const double most = worst(policies[p], KNOWN, &mean);
    cr_expect_lt(most, 1, "%s: %g", policies[p], most);
    cr_expect_lt(mean, 0.1, "%s: %g", policies[p], mean);
  }
  double mean;
  cr_expect_geq(worst("fixed:companded:0.125:ag", KNOWN, &mean), 1);
}

/* In the first step nothing is known, and 1/100 is nothing beside 1.  A schedule that comes to send
 * so later has followed all averages until then. */
Test(whitened, a_schedule_knows_when_it_comes_to_it, .timeout = 60) {
  double mean;
  cr_expect_geq(worst("fixed:whitened:0.125:sra", 0, &mean), 1);
  const double most = worst("schedule:none:1:dense-ring;step=20:whitened:0.125:sra", 0, &mean);
  cr_expect_lt(most, 1, "%g", most);
}

/* --- for how long it is followed -------------------------------------------------------------- */

enum { FEW = 100, LONG = 60, SWITCH = 7, TRIED = 20, TRIALS = 10, ENOUGH = 32 };

typedef struct course {
  uint64_t follows;
  const char *first, *second; /* from step SWITCH on; NULL: the first goes on */
  bool tries;                 /* the second is tried instead, from TRIED on, for so many TRIALS */
  bool known[LONG];           /* out: what the record of each step says */
} course;

typedef struct voice {
  course *course;
  int rank, step;
} voice;

static weir_plan plan_of(const char *text, int step) {
  weir_plan plan;
  if (weir_plan_parse(text, &plan) != WEIR_OK) abort();
  plan.id = (uint64_t)step;
  return plan;
}

static void propose(void *user, weir_directive *directive) {
  const voice *v = user;
  const course *c = v->course;
  const int next = v->step + 1;
  const bool begins = c->second != NULL && next == (c->tries ? TRIED : SWITCH),
             ends = c->tries && next == TRIED + TRIALS;
  if (!begins && !ends) return;
  directive->action = begins && c->tries ? WEIR_ACTION_TRIAL : WEIR_ACTION_SWITCH;
  directive->plan = plan_of(begins ? c->second : c->first, next);
}

static void observe(void *user, const weir_header *headers, int ranks,
                    const weir_step_record *record) {
  const voice *v = user;
  (void)headers, (void)ranks;
  if (v->rank == 0) v->course->known[v->step] = record->squares_known;
}

static void follow(member *m) {
  static const size_t offset[] = {0, FEW};
  course *c = m->group->shared;
  voice v = {.course = c, .rank = m->rank};
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {1, offset},
                                     .first_plan = plan_of(c->first, 0),
                                     .follows = c->follows,
                                     .hooks = {.user = &v, .propose = propose, .observe = observe}};
  weir_engine *engine = NULL;
  if (weir_engine_create(&engine, &config) != WEIR_OK) {
    group_fail(m->group, "%s", weir_last_error());
    return;
  }
  for (v.step = 0; v.step < LONG; v.step++) {
    float g[FEW];
    for (size_t i = 0; i < FEW; i++) g[i] = given(m->rank, i);
    weir_status status = weir_engine_step_begin(engine, NULL);
    if (status == WEIR_OK) status = weir_engine_submit(engine, 0, g);
    if (status == WEIR_OK) status = weir_engine_step_end(engine, NULL);
    if (status != WEIR_OK) group_fail(m->group, "step %d: %s", v.step, weir_last_error());
  }
  weir_engine_free(engine);
}

/* From the first step on that it is followed, where that is the very first; else 32 averages later.
 * A trial's are nobody's once it is over.  In so many steps, trials' not counted, and then as long
 * as a plan asks for it. */
Test(whitened, is_known_from_the_beginning_or_after_some_averages, .timeout = 60) {
  static const char dense[] = "none:1:dense-ring", units[] = "whitened:0.125:sra";
  struct {
    course course;
    int from, to; /* the records that say that it is known */
  } cases[] = {{{.follows = LONG, .first = dense}, 0, LONG},
               {{.first = units}, 0, LONG},
               {{.first = dense}, LONG, LONG},
               {{.first = dense, .second = units}, SWITCH + ENOUGH - 1, LONG},
               {{.first = dense, .second = units, .tries = true}, LONG, LONG},
               {{.follows = 10, .first = dense}, 0, 10},
               {{.follows = 10, .first = dense, .second = units}, 0, LONG},
               {{.follows = 25, .first = dense, .second = units, .tries = true}, 0, 35}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    group_well(2, follow, &cases[k].course, NULL);
    for (int step = 0; step < LONG; step++)
      cr_assert_eq(cases[k].course.known[step], step >= cases[k].from && step < cases[k].to,
                   "case %zu, step %d", k, step);
  }
}

/* --- policy weir ------------------------------------------------------------------------------ */

enum { MANY = 20000 };

typedef struct chooser {
  int rank;
  const char *group, *rule, *risk;
  uint64_t limit;
  weir_status status; /* out */
  char message[512], plan[WEIR_PLAN_TEXT_MAX];
} chooser;

static void *choose(void *argument) {
  chooser *c = argument;
  weir_options options = session_options(c->rank, RANKS, c->group, "weir");
  options.virtual_network = session_slow_link;
  options.update_rule = c->rule;
  options.risk = c->risk;
  options.memory_limit = c->limit;
  weir_session *session = NULL;
  weir_step_info info = {.struct_size = sizeof info};
  float *const g = malloc(MANY * sizeof *g);
  c->status = g != NULL ? session_open(&session, &options, MANY) : WEIR_E_NOMEM;
  for (int step = 0; step < STEPS && c->status == WEIR_OK; step++) {
    for (size_t i = 0; i < MANY; i++) g[i] = given(c->rank, i + (size_t)step) * (i % 3 ? 1 : -1);
    c->status = weir_step_begin(session, NULL);
    if (c->status == WEIR_OK) c->status = weir_submit(session, 0, g);
    if (c->status == WEIR_OK) c->status = weir_step_end(session, &info);
  }
  if (c->status == WEIR_OK) weir_plan_format(&info.plan, c->plan);
  if (c->status != WEIR_OK) (void)snprintf(c->message, sizeof c->message, "%s", weir_last_error());
  weir_session_free(session);
  free(g);
  return NULL;
}

/* Of 20000 elements 5 bits take some 17 ms of a link of 8 Mbit/s, and 3.7 less than that. */
Test(whitened, policy_weir_sends_so_under_optimizers_that_divide, .timeout = 120) {
  static const struct {
    const char *rule, *risk;
    uint64_t limit;
    bool sends;
  } cases[] = {{"adaptive", "safe", 0, true},
               {"adaptive", "measured", 0, true},
               {"sgd", "safe", 0, false},
               {NULL, "safe", 0, false},
               {"adaptive", "safe", 1 << 20, false},
               {"adaptive", "bold", 0, false}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    chooser c[RANKS];
    char name[64];
    (void)snprintf(name, sizeof name, "whitened choice %zu", k);
    for (int r = 0; r < RANKS; r++)
      c[r] = (chooser){.rank = r,
                       .group = name,
                       .rule = cases[k].rule,
                       .risk = cases[k].risk,
                       .limit = cases[k].limit};
    session_threads(c, sizeof *c, RANKS, choose);
    for (int r = 0; r < RANKS; r++) cr_assert_eq(c[r].status, WEIR_OK, "%s", c[r].message);
    const bool sent = strncmp(c[0].plan, "whitened:0.15625:", 17) == 0;
    cr_expect_eq(sent, cases[k].sends, "case %zu: %s", k, c[0].plan);
  }
}

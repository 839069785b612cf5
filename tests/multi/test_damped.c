/* Half of what rounding has left is fed in a step, and half waits, where the optimizer divides by
 * what gradients were like (weir_options.update_rule); against averages worked out by hand.
 *
 * Of {3136, 926} again and again, companded of 4 bits sends 64 times 49 = 7^2, which is exact, and
 * 64 times 16 = 4^2 for the 926: -98 stays.  In later steps there is no gradient, and what is left,
 * which is all alike, twice 49, is sent as it is fed: all of it at once, or a half of it in every
 * step, until a plan sends whatever there is.  Of {14400, 3646} 5 bits send 64 times 225 = 15^2 and
 * 64 times 64 = 8^2, and -450, twice 225, stays. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#include "device.h"
#include "session_ranks.h"

enum { RANKS = 2, N = 512, STEPS = 4 };

typedef struct worker {
  int rank;
  const char *group, *policy, *rule;
  bool doubts;               /* the rule, after the first step */
  const float *pair, *again; /* gradients of the first step and of the second */
  const test_device *device;
  weir_status status; /* out */
  char message[512];
  float average[STEPS]; /* of the smaller ones */
} worker;

static weir_status one_step(worker *w, weir_session *session, float *on, int step) {
  static const float none[2];
  const float *const given = step == 0 ? w->pair : step == 1 ? w->again : none;
  float g[N];
  for (size_t i = 0; i < N; i++) g[i] = given[i % 2];
  if (on != NULL) w->device->put(on, g, sizeof g);
  weir_status status =
      w->doubts && step == 1 ? weir_doubt_update_rule(session, "adaptive") : WEIR_OK;
  if (status == WEIR_OK) status = weir_step_begin(session, NULL);
  if (status == WEIR_OK) status = weir_submit(session, 0, on != NULL ? on : g);
  if (status == WEIR_OK) status = weir_step_end(session, NULL);
  if (on != NULL) w->device->get(g, on, sizeof g);
  w->average[step] = g[1];
  for (size_t i = 0; i < N && status == WEIR_OK; i++)
    if (g[i] != (i % 2 == 1 ? g[1] : given[0])) w->average[step] = -999.0F;
  return status;
}

static void *work(void *argument) {
  worker *w = argument;
  weir_options options = session_options(w->rank, RANKS, w->group, w->policy);
  weir_session *session = NULL;
  options.update_rule = w->rule;
  options.device = w->device != NULL ? 0 : -1;
  float *const on = w->device != NULL ? w->device->memory(N * sizeof *on) : NULL;
  w->status = session_open(&session, &options, N);
  for (int step = 0; step < STEPS && w->status == WEIR_OK; step++)
    w->status = one_step(w, session, on, step);
  if (w->status != WEIR_OK) (void)snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  if (on != NULL) w->device->forget(on);
  return NULL;
}

/* Rule doubted: sgd, until after the first step. */
static void check_of(const float pair[2], const float again[2], const char *plan, const char *rule,
                     const float due[STEPS]) {
  const bool doubts = strcmp(rule, "doubted") == 0;
  static int turn;
  static test_device device;
  char group[64], policy[128];
  device = test_device_open();
  (void)setenv("WEIR_CUDA_LIBRARY", WEIR_CUDA_LIBRARY, 1);
  (void)snprintf(policy, sizeof policy, "schedule:%s;step=2:none:1:dense-ring", plan);
  /* nonzero runs in host memory alone. */
  const unsigned places = strncmp(plan, "nonzero", 7) == 0 ? 1 : 1U << RANKS;
  for (unsigned where = 0; where < places; where++) {
    worker w[RANKS];
    (void)snprintf(group, sizeof group, "damped %d %d", (int)getpid(), turn++);
    for (int r = 0; r < RANKS; r++)
      w[r] = (worker){.rank = r,
                      .group = group,
                      .policy = policy,
                      .rule = doubts ? "sgd" : rule,
                      .doubts = doubts,
                      .pair = pair,
                      .again = again,
                      .device = where >> r & 1 ? &device : NULL};
    session_threads(w, sizeof *w, RANKS, work);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(w[r].status, WEIR_OK, "%s: %s", policy, w[r].message);
      for (int s = 0; s < STEPS; s++)
        cr_assert_eq(w[r].average[s], due[s], "%s, %s, devices %u: rank %d, step %d: %g, not %g",
                     policy, rule, where, r, s, (double)w[r].average[s], (double)due[s]);
    }
  }
}

static void check(const char *plan, const char *rule, const float due[STEPS]) {
  static const float pair[] = {3136, 926}, none[2];
  check_of(pair, none, plan, rule, due);
}

Test(damped, half_of_what_rounding_leaves_waits, .timeout = 60) {
  const float due[STEPS] = {1024, -49, -49, 0};
  check("companded:0.125:ag", "adaptive", due);
  check("companded:0.125:sra", "adaptive", due);
  check("companded:0.125:path=rs.c.ag.d.ag", "adaptive", due);
}

Test(damped, under_sgd_all_of_it_is_fed, .timeout = 60) {
  const float due[STEPS] = {1024, -98, 0, 0};
  check("companded:0.125:ag", "sgd", due);
  check("companded:0.125:sra", "sgd", due);
}

/* Of what the first step has left. */
Test(damped, once_sgd_is_doubted_half_of_it_waits, .timeout = 60) {
  const float due[STEPS] = {1024, -49, -49, 0};
  check("companded:0.125:ag", "doubted", due);
  check("companded:0.125:sra", "doubted", due);
}

Test(damped, of_5_bits_all_is_fed, .timeout = 60) {
  static const float pair[] = {14400, 3646}, none[2], due[STEPS] = {4096, -450, 0, 0};
  check_of(pair, none, "companded:0.15625:sra", "adaptive", due);
}

/* What nonzero has lost of an element waits for its next gradient.  With a 100 half of the -98 make
 * 51, which 64 is nearest to, so that -13 is lost and -49 waits; all of them make 2, which 0 is. */
Test(damped, with_the_next_gradient_half_is_fed, .timeout = 60) {
  static const float pair[] = {3136, 926}, again[] = {3136, 100};
  check_of(pair, again, "nonzero:0.125:ag", "adaptive", (const float[STEPS]){1024, 64, -62, 0});
  check_of(pair, again, "nonzero:0.125:ag", "sgd", (const float[STEPS]){1024, 0, 2, 0});
}

/* What a list leaves out is no rounding: it is fed until it is sent. */
Test(damped, what_is_not_selected_is_fed_whole, .timeout = 60) {
  const float due[STEPS] = {0, 926, 0, 0};
  check("topk:0.5:ag", "adaptive", due);
}

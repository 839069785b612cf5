/* whitened (kernels/whitened.h), over whole steps: what is small beside others is sent in every
 * step, once it is known how small it usually is.
 *
 * Every second gradient is 1, and the others are 1/100, of some rank more and of some less, in
 * every step.  Of companded's 4 bits the first value above 0 is 1/49, so that 1/100 is sent as
 * nothing in some steps and twice over in others; in units of themselves both are sent to half of
 * 0.7 units, and what an element usually is, is 0.7 to 1.4 units. */
#include <math.h>
#include <string.h>

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
  char group[64];
  double most = 0;
  (void)snprintf(group, sizeof group, "whitened %d", turn++);
  for (int r = 0; r < RANKS; r++) w[r] = (worker){.rank = r, .group = group, .policy = policy};
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

/* A session's probes and background echoes against a transport whose link is a script. */
#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

#include "session/state.h"

#define MBIT (1e6 / 8)

typedef struct link {
  weir_transport base;
  double rate;     /* bytes/s */
  int stall_every; /* trains; every so manieth takes 5 ms longer */
  int leap;        /* this one takes half the time */
  bool lost;
  int trains;
  double sent, waited_s; /* waited_s: at the most, for lost ones */
  weir_echo *echo;       /* a transfer starts and ends during each echo with an odd number */
  int echoes;
} link;

static weir_status link_train(weir_transport *t, int peer, size_t *bytes, double timeout_s,
                              double *seconds) {
  link *l = (link *)t;
  cr_assert_eq(peer, 1);
  cr_assert_gt(timeout_s, 0);
  l->sent += (double)*bytes;
  l->trains++;
  if (l->lost) {
    l->waited_s += timeout_s;
    return weir_fail(WEIR_E_TIMEOUT, "lost");
  }
  *bytes /= 2; /* the second half is timed */
  *seconds = (double)*bytes / l->rate;
  if (l->stall_every && l->trains % l->stall_every == 0) *seconds += 0.005;
  if (l->trains == l->leap) *seconds /= 2;
  return WEIR_OK;
}

static weir_status link_echo(weir_transport *t, int peer, double timeout_s, double *rtt_s) {
  link *l = (link *)t;
  (void)peer;
  (void)timeout_s;
  *rtt_s = 0.1;
  if (l->echo && l->echoes++ % 2) {
    weir_echo_idle(l->echo, false);
    weir_echo_idle(l->echo, true);
  }
  return WEIR_OK;
}

static const weir_transport_ops link_ops = {
    .name = "script", .echo = link_echo, .train = link_train};

static void start(weir_session *session, link *l, double known) {
  memset(session, 0, sizeof *session);
  l->base.ops = &link_ops;
  l->base.size = 2;
  session->options.world_size = 2;
  session->options.timeout_s = 10;
  session->options.active_probes = true;
  session->transport = &l->base;
  session->next = session->previous = 1;
  cr_assert_eq(weir_feed_open(session), WEIR_OK);
  weir_budget_start(&session->budget, weir_now_s());
  weir_feed_echo(session, 0.1, 0);
  weir_feed_probe(session, known / (1514.0 / 1448.0), 0);
}

static double known(weir_session *session) {
  weir_snapshot now;
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  return now.bandwidth;
}

/* A probe of a link of `rate` where `known` was known; what is known then, how exactly, by how many
 * trains at the most.  All rates are in Mbit/s. */
typedef struct probe {
  const char *what;
  link link;
  double known, found, error;
  bool suspicious; /* there is a reason to doubt what was known */
  int trains;      /* 0: however many */
  double bytes;    /* at the most; 0: however many */
} probe;
static const probe probes[] = {
    /* A short train and three full ones. */
    {"a rate that has risen", {.rate = 750 * MBIT}, 30, 750, 7.5, true, 4, 0},
    /* Ranks that do not get to run. */
    {"stalls", {.rate = 750 * MBIT, .stall_every = 2}, 30, 750, 7.5, true, 0, 0},
    {"rare stalls", {.rate = 750 * MBIT, .stall_every = 3}, 30, 750, 7.5, true, 0, 0},
    /* A bucket that had filled. */
    {"first train leaps", {.rate = 750 * MBIT, .leap = 1}, 30, 750, 7.5, true, 0, 0},
    {"second train leaps", {.rate = 750 * MBIT, .leap = 2}, 30, 750, 7.5, true, 0, 0},
    {"third train leaps", {.rate = 750 * MBIT, .leap = 3}, 30, 750, 7.5, true, 0, 0},
    {"fourth train leaps", {.rate = 750 * MBIT, .leap = 4}, 30, 750, 7.5, true, 0, 0},
    {"a look at a link that is as fast", {.rate = 750 * MBIT}, 750, 750, 1 / MBIT, false, 1, 18e3},
    /* Long trains would block it. */
    {"a link that has become narrow", {.rate = 30 * MBIT}, 750, 30, 0.3, false, 0, 3 * 18e3},
};

Test(session_probe, finds_the_rate) {
  for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
    const probe *p = &probes[i];
    weir_session session;
    link l = p->link;
    start(&session, &l, p->known * MBIT);
    cr_assert_eq(weir_probe_run(&session, p->suspicious), WEIR_OK);
    cr_assert_float_eq(known(&session), p->found * MBIT, p->error * MBIT, "%s: %g", p->what,
                       known(&session) / MBIT);
    cr_assert(p->trains == 0 || l.trains == p->trains, "%s: %d trains", p->what, l.trains);
    cr_assert(p->bytes == 0 || l.sent <= p->bytes, "%s: %g bytes", p->what, l.sent);
    cr_assert_float_eq(session.budget.spent, l.sent, 1, "%s", p->what);
    cr_assert_not(session.rate_unsure, "%s", p->what);
    weir_feed_close(&session);
  }
}

/* And hold nobody up for long: where trains get lost every time, the second is the last. */
Test(session_probe, lost_trains_leave_the_rate_unsure) {
  weir_session session;
  link l = {.rate = 30 * MBIT, .lost = true};
  start(&session, &l, 750 * MBIT);
  cr_assert_eq(weir_probe_run(&session, true), WEIR_OK);
  cr_assert_float_eq(known(&session), 750 * MBIT, 1);
  cr_assert(session.rate_unsure);
  cr_assert_eq(l.trains, 2);
  cr_assert_leq(l.waited_s, 1.46); /* by hand: a quarter, four latencies of 50 ms, and one */
  weir_feed_close(&session);
}

/* 130 kB at 5 Gbit/s are there within 0.2 ms: as fast as a processor sends, and no reason to doubt
 * what was known. */
Test(session_probe, trains_as_fast_as_the_processor_tell_a_lower_bound) {
  weir_session session;
  link l = {.rate = 5000 * MBIT};
  start(&session, &l, 20000 * MBIT);
  session.rate_unsure = true;
  cr_assert_eq(weir_probe_run(&session, true), WEIR_OK);
  cr_assert_gt(l.trains, 1);
  cr_assert_float_eq(known(&session), 20000 * MBIT, 1);
  weir_feed_close(&session);
}

/* 130 kB that a token bucket lets pass within 0.01 ms say that they might have come within 0.8 ms,
 * which are 1300 Mbit/s, and no more. */
Test(session_probe, trains_that_a_bucket_lets_pass_do_not_tell_an_absurd_rate) {
  weir_session session;
  link l = {.rate = 1e5 * MBIT};
  start(&session, &l, 100 * MBIT);
  cr_assert_eq(weir_probe_run(&session, true), WEIR_OK);
  cr_assert_float_eq(known(&session), 1300 * MBIT, 13 * MBIT, "%g", known(&session) / MBIT);
  cr_assert_not(session.rate_exact);
  weir_feed_close(&session);
}

Test(session_probe, stays_within_its_budget) {
  weir_session session;
  link l = {.rate = 750 * MBIT};
  start(&session, &l, 30 * MBIT);
  session.budget.spent = weir_budget_left(&session.budget) - 10e3;
  cr_assert_eq(weir_probe_run(&session, true), WEIR_OK);
  cr_assert_eq(l.trains, 0, "18 kB are too much, but %d trains were sent", l.trains);
  cr_assert_not(weir_probe_affordable(&session));
  weir_feed_close(&session);
}

/* Trains that show another rate take as much of the budget as of the link's time: 18 kB and three
 * of 260 kB at 25 times the rate that is known are 31.9 kB. */
Test(session_probe, trains_on_a_faster_link_cost_what_they_take_of_its_time) {
  weir_session session;
  link l = {.rate = 750 * MBIT};
  start(&session, &l, 30 * MBIT);
  session.budget.spent = weir_budget_left(&session.budget) - 50e3;
  const double before = session.budget.spent;
  cr_assert_eq(weir_probe_run(&session, true), WEIR_OK);
  cr_assert_float_eq(known(&session), 750 * MBIT, 0.01 * 750 * MBIT);
  cr_assert_float_eq(session.budget.spent - before, 798e3, 1);
  cr_assert_float_eq(weir_budget_left(&session.budget), 50e3 - 798e3 / 25, 500);
  weir_feed_close(&session);
}

/* --- echoes in the background ----------------------------------------------------------------- */

static int take(weir_echo *echo, weir_echo_sample *found, int least) {
  const struct timespec nap = {0, 10000000};
  int count = 0;
  for (double until = weir_now_s() + 30; count < least && weir_now_s() < until;) {
    weir_echo_sample some[WEIR_ECHO_KEPT];
    const int n = weir_echo_take(echo, some);
    for (int i = 0; i < n && count < WEIR_ECHO_KEPT; i++) found[count++] = some[i];
    (void)nanosleep(&nap, NULL);
  }
  return count;
}

Test(session_echo, tells_which_transfer_it_shared_its_way_with) {
  weir_echo echo;
  link l = {.base = {.ops = &link_ops, .size = 2}};
  weir_echo_sample found[WEIR_ECHO_KEPT];
  cr_assert_eq(weir_echo_start(&echo, &l.base, 1), WEIR_OK);
  l.echo = &echo;
  weir_echo_idle(&echo, true);
  const int count = take(&echo, found, 4);
  weir_echo_stop(&echo);
  cr_assert_geq(count, 4);
  uint64_t before = 0;
  for (int i = 0; i < count; i++) {
    cr_assert_float_eq(found[i].seconds, 0.1, 1e-12);
    cr_assert_eq(found[i].sent, 0);
    cr_assert_eq(found[i].loaded != 0, i % 2 == 1, "echo %d", i);
    if (found[i].loaded) cr_assert_gt(found[i].loaded, before);
    if (found[i].loaded) before = found[i].loaded;
  }
}

Test(session_echo, sends_trains_at_the_pace_it_is_told) {
  weir_echo echo;
  link l = {.base = {.ops = &link_ops, .size = 2}, .rate = 1e6};
  weir_echo_sample found[WEIR_ECHO_KEPT];
  cr_assert_eq(weir_echo_start(&echo, &l.base, 1), WEIR_OK);
  weir_echo_idle(&echo, true);
  weir_echo_pace(&echo, 20000, 0.05);
  const int count = take(&echo, found, 8);
  weir_echo_stop(&echo);
  int trains = 0;
  for (int i = 0; i < count; i++) {
    if (found[i].sent == 0) continue;
    cr_assert_eq(found[i].sent, 20000);
    cr_assert_eq(found[i].arrived, 10000);
    cr_assert_float_eq(found[i].seconds, 0.01, 1e-12);
    trains++;
  }
  cr_assert_geq(trains, 3, "%d of %d", trains, count);
}

/* Decisions on processors that ranks share: times that vary from step to step change no plan, and a
 * network that has changed is neither hidden by them nor taken for an arm's fault. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "collectives/cost.h"
#include "controller/controller.h"
#include "controller/decide.h"
#include "kernels/number.h"

#define RANKS 4
#define ELEMENTS ((size_t)1000000)

/* Ranks take turns on one processor: each computes for 4 ms, and who comes first waits longest. */
static const double turn_s = 0.004, whole_s = RANKS * 0.004;
static const double curve[] = {0.97, 0.8, 0.55, 0.33, 0.2, 0.13, 0.09, 0.04};

typedef struct world {
  weir_plan plan, last; /* in force; of the step before, whose times the headers tell */
  uint64_t step;
  double latency, bandwidth; /* as they are */
  double known;              /* bandwidth that the monitors know of */
  bool flicker;              /* a monitor announces changes that move no value */
  int switches, probes;
  int probed; /* steps until a probe's answer is known; 0: none is under way */
} world;

static double comm_of(const world *w, const weir_plan *plan) {
  const weir_cost_terms terms =
      weir_cost_plan(plan, RANKS, ELEMENTS, weir_kept_of(ELEMENTS, plan->cr));
  return weir_cost_seconds(&terms, w->latency, 1 / w->bandwidth);
}

static uint32_t drawn(uint64_t step) {
  return (uint32_t)((step + 1) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

/* In some steps each rank computes before the next one begins, so that the last one is slow and
 * waits least; in others all are seen to compute for their turn alone and wait for the others. */
static void write_headers(const world *w, weir_header headers[RANKS], weir_step_record *record) {
  const double comm = comm_of(w, &w->last);
  const bool in_turn = drawn(w->step / 6) % 2 == 0; /* for some steps in a row */
  const double noise = 0.7 + 0.6 * (double)(drawn(w->step) / 2 % 100) / 99.0;
  memset(headers, 0, RANKS * sizeof *headers);
  memset(record, 0, sizeof *record);
  for (int r = 0; r < RANKS; r++) {
    const double compute = in_turn ? turn_s * (r + 1) : turn_s;
    headers[r].compute_s = compute;
    headers[r].comm_s = headers[r].wait_s = comm + whole_s - compute;
    headers[r].gain = w->last.cr >= 1 ? 1.0 : weir_curve_gain(weir_curve_cr, curve, w->last.cr);
    headers[r].latency_s = w->latency;
    headers[r].bandwidth = w->known;
    headers[r].latency_error = headers[r].bandwidth_error = 0.02;
    for (int i = 0; i < WEIR_CURVE_POINTS; i++) headers[r].curve[i] = fmin(1.0, curve[i] * noise);
  }
  if (w->flicker && w->step % 2) headers[1].flags |= WEIR_HEADER_NETWORK_CHANGED;
  record->info.step = w->step;
  record->info.plan = w->plan;
  record->terms = weir_cost_plan(&w->plan, RANKS, ELEMENTS, weir_kept_of(ELEMENTS, w->plan.cr));
}

static void step(weir_controller *controller, world *w) {
  weir_header headers[RANKS];
  weir_step_record record;
  weir_directive directive;
  weir_controller_propose(controller, &directive);
  write_headers(w, headers, &record);
  weir_controller_observe(controller, headers, RANKS, &record);
  w->last = w->plan;
  w->step++;
  if (w->probed > 0 && --w->probed == 0) w->known = w->bandwidth;
  if (directive.action == WEIR_ACTION_PROBE) {
    w->probes++;
    w->probed = 2;
  }
  if (directive.action == WEIR_ACTION_SWITCH) {
    w->switches++;
    w->plan = directive.plan;
  }
}

static const size_t offsets[] = {0, ELEMENTS};

static weir_controller *create(world *w) {
  const weir_controller_config config = {
      .policy = "weir", .risk = "bold", .world_size = RANKS, .layout = {1, offsets}, .seed = 5};
  weir_controller *controller;
  cr_assert_eq(weir_controller_create(&controller, &config), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_policy_first_plan("weir", &(weir_beginning){.ranks = RANKS}, &w->plan),
               WEIR_OK);
  w->last = w->plan;
  return controller;
}

static void run(weir_controller *controller, world *w, int steps) {
  for (int i = 0; i < steps; i++) step(controller, w);
}

/* A change in a hundred steps at most.  Medians of five steps' times and single curves made 45. */
Test(steady, nothing_but_noise_hardly_changes_the_plan) {
  static const double bandwidth[] = {9e7, 3e7, 1e7, 4e6};
  for (size_t i = 0; i < sizeof bandwidth / sizeof *bandwidth; i++) {
    world w = {.latency = 1e-3, .bandwidth = bandwidth[i], .known = bandwidth[i]};
    weir_controller *controller = create(&w);
    run(controller, &w, 40);
    cr_assert_geq(w.switches, 1);
    const int settled = w.switches;
    run(controller, &w, 400);
    cr_assert_leq(w.switches, settled + 4, "%d changes at %g bytes/s", w.switches - settled,
                  bandwidth[i]);
    weir_controller_free(controller);
  }
}

/* Monitors whose announcements move no value must not keep the controller from probing. */
static void narrows(bool flicker) {
  world w = {.latency = 1e-3, .bandwidth = 9e7, .known = 9e7, .flicker = flicker};
  weir_controller *controller = create(&w);
  run(controller, &w, 60);
  const weir_plan before = w.plan;
  const int switches = w.switches;
  w.bandwidth = 9e7 / 25; /* and only a probe can tell */
  run(controller, &w, 10);
  cr_assert_geq(w.probes, 1);
  cr_assert_float_eq(w.known, w.bandwidth, 1);
  cr_assert_eq(w.switches, switches + 1, "%d changes", w.switches - switches);
  cr_assert_lt(w.plan.cr, 0.5 * before.cr);
  weir_controller_free(controller);
}

Test(steady, a_narrow_link_is_probed_for_and_answered_once) { narrows(false); }
Test(steady, announcements_without_a_change_delay_no_probe) { narrows(true); }

/* The link narrows just after a switch, which then looks as if it had failed. */
Test(steady, no_arm_is_blamed_for_the_network) {
  for (int since = 4; since <= 8; since++) { /* before that little is known of the arm */
    world w = {.latency = 1e-3, .bandwidth = 9e7, .known = 9e7};
    weir_controller *controller = create(&w);
    for (int i = 0; i < 40 && w.switches == 0; i++) step(controller, &w);
    cr_assert_eq(w.switches, 1);
    run(controller, &w, since);
    const int switches = w.switches;
    w.bandwidth = 9e7 / 25;
    run(controller, &w, 12);
    cr_assert_float_eq(w.known, w.bandwidth, 1, "not found in 12 steps, %d after a switch", since);
    cr_assert_eq(w.switches, switches + 1, "%d changes, %d after a switch", w.switches - switches,
                 since);
    weir_controller_free(controller);
  }
}

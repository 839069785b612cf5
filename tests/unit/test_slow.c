/* Which rank is slow: by computing, by its link's latency or bandwidth; and when nobody is. */
#include <criterion/criterion.h>
#include <math.h>

#include "session/slow.h"

enum { RANKS = 4 };

static weir_header headers[RANKS];

static void all(double compute_s, double latency_s, double bandwidth) {
  for (int r = 0; r < RANKS; r++)
    headers[r] =
        (weir_header){.compute_s = compute_s, .latency_s = latency_s, .bandwidth = bandwidth};
}

static int watch(weir_slow *slow, int steps) {
  int changes = 0;
  for (int i = 0; i < steps; i++) changes += weir_slow_update(slow, headers, RANKS);
  return changes;
}

Test(slow, computing) {
  weir_slow slow;
  cr_assert_eq(weir_slow_open(&slow, RANKS), WEIR_OK);
  all(0.05, 1e-3, 1e8);
  headers[2].compute_s = 0.155;
  cr_assert_eq(watch(&slow, 2), 0, "two steps say nothing");
  cr_assert_eq(watch(&slow, 10), 1, "it is told once");
  cr_assert_eq(slow.verdict.rank, 2);
  cr_assert_eq(slow.verdict.kind, WEIR_SLOW_COMPUTE);
  cr_assert_float_eq(slow.verdict.ratio, 3.1, 1e-9);
  char text[160];
  weir_slow_say(&slow.verdict, text, sizeof text);
  cr_assert_str_eq(text, "rank 2 computes 3.1 x the median of the others (155 ms, 50 ms)");
  /* 1.3 times: not enough to be named, but rank 2 is still the one. */
  headers[2].compute_s = 0.065;
  cr_assert_eq(watch(&slow, 10), 0);
  headers[2].compute_s = 0.055;
  cr_assert_eq(watch(&slow, 10), 1);
  cr_assert_eq(slow.verdict.rank, -1);
  headers[1].compute_s = 0.065;
  cr_assert_eq(watch(&slow, 10), 0);
  weir_slow_close(&slow);
}

/* One late step in five is no slow rank; nor are a few hundred microseconds. */
Test(slow, not_for_a_moment) {
  weir_slow slow;
  cr_assert_eq(weir_slow_open(&slow, RANKS), WEIR_OK);
  for (int i = 0; i < 40; i++) {
    all(0.05, 1e-3, 1e8);
    if (i % 5 == 0) headers[i % RANKS].compute_s = 1;
    cr_assert(!weir_slow_update(&slow, headers, RANKS), "step %d", i);
  }
  all(0.0001, 1e-3, 1e8);
  headers[3].compute_s = 0.0009;
  cr_assert_eq(watch(&slow, 10), 0);
  weir_slow_close(&slow);
}

Test(slow, links) {
  weir_slow slow;
  cr_assert_eq(weir_slow_open(&slow, RANKS), WEIR_OK);
  all(0.05, 1e-3, 1e8);
  headers[1].latency_s = 8e-3;
  cr_assert_eq(watch(&slow, 5), 1);
  cr_assert_eq(slow.verdict.rank, 1);
  cr_assert_eq(slow.verdict.kind, WEIR_SLOW_LATENCY);
  cr_assert_float_eq(slow.verdict.ratio, 8, 1e-9);
  headers[1].latency_s = 1e-3;
  headers[3].bandwidth = 1e7;
  cr_assert_eq(watch(&slow, 5), 1);
  cr_assert_eq(slow.verdict.rank, 3);
  cr_assert_eq(slow.verdict.kind, WEIR_SLOW_BANDWIDTH);
  cr_assert_float_eq(slow.verdict.ratio, 0.1, 1e-9);
  /* What no rank knows is no link's fault; computing comes first. */
  all(0.05, 0, 0);
  cr_assert_eq(watch(&slow, 5), 1);
  cr_assert_eq(slow.verdict.rank, -1);
  headers[0].compute_s = 0.2;
  headers[3].latency_s = 1;
  headers[1].latency_s = headers[2].latency_s = 1e-3;
  (void)watch(&slow, 5);
  cr_assert_eq(slow.verdict.rank, 0);
  weir_slow_close(&slow);
}

/* Values from the wire: neither negative ones nor those that are no numbers count. */
Test(slow, absurd_headers) {
  weir_slow slow;
  cr_assert_eq(weir_slow_open(&slow, RANKS), WEIR_OK);
  all(0.05, 1e-3, 1e8);
  headers[0].compute_s = NAN;
  headers[1].compute_s = -1;
  headers[2].latency_s = INFINITY;
  headers[3].bandwidth = -INFINITY;
  cr_assert_eq(watch(&slow, 10), 0);
  weir_slow_close(&slow);
}

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

/* Steps of half a second: what has stood for four of them is told. */
static int watch(weir_slow *slow, int steps) {
  static double now_s;
  int told = 0;
  for (int i = 0; i < steps; i++) told += weir_slow_update(slow, headers, RANKS, now_s += 0.5);
  return told;
}

Test(slow, computing) {
  weir_slow slow;
  cr_assert_eq(weir_slow_open(&slow, RANKS), WEIR_OK);
  all(0.05, 1e-3, 1e8);
  headers[2].compute_s = 0.155;
  cr_assert_eq(watch(&slow, 2), 0, "two steps say nothing");
  cr_assert_eq(watch(&slow, 4), 0, "the third step names it, but two seconds have not passed");
  cr_assert_eq(slow.verdict.rank, 2);
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
    cr_assert(!weir_slow_update(&slow, headers, RANKS, 10.0 * i), "step %d", i);
    cr_assert_eq(slow.verdict.rank, -1, "step %d", i);
  }
  all(0.0001, 1e-3, 1e8);
  headers[3].compute_s = 0.0009;
  cr_assert_eq(watch(&slow, 10), 0);
  weir_slow_close(&slow);
}

/* Ranks that take turns within a second are not told of, one that stays is. */
Test(slow, in_turns) {
  weir_slow slow;
  cr_assert_eq(weir_slow_open(&slow, RANKS), WEIR_OK);
  int named[RANKS + 1] = {0};
  for (int i = 0; i < 400; i++) {
    all(0.05, 1e-3, 1e8);
    headers[i / 10 % RANKS].compute_s = 0.1;
    cr_assert(!weir_slow_update(&slow, headers, RANKS, 0.1 * i), "step %d", i);
    named[slow.verdict.rank + 1]++;
  }
  for (int r = 0; r < RANKS; r++) cr_assert_geq(named[r + 1], 50, "rank %d: %d", r, named[r + 1]);
  int told = 0;
  for (int i = 400; i < 440; i++) told += weir_slow_update(&slow, headers, RANKS, 0.1 * i);
  cr_assert_eq(told, 1);
  cr_assert_eq(slow.told.rank, 3);
  weir_slow_close(&slow);
}

Test(slow, links) {
  weir_slow slow;
  cr_assert_eq(weir_slow_open(&slow, RANKS), WEIR_OK);
  all(0.05, 1e-3, 1e8);
  headers[1].latency_s = 8e-3;
  cr_assert_eq(watch(&slow, 10), 1);
  cr_assert_eq(slow.verdict.rank, 1);
  cr_assert_eq(slow.verdict.kind, WEIR_SLOW_LATENCY);
  cr_assert_float_eq(slow.verdict.ratio, 8, 1e-9);
  headers[1].latency_s = 1e-3;
  headers[3].bandwidth = 1e7;
  cr_assert_eq(watch(&slow, 10), 1);
  cr_assert_eq(slow.verdict.rank, 3);
  cr_assert_eq(slow.verdict.kind, WEIR_SLOW_BANDWIDTH);
  cr_assert_float_eq(slow.verdict.ratio, 0.1, 1e-9);
  /* What no rank knows is no link's fault; computing comes first. */
  all(0.05, 0, 0);
  cr_assert_eq(watch(&slow, 10), 1);
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

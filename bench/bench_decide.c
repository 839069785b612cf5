/* Milliseconds of processor time that a decision of policy weir takes, from what is known to the
 * choice, where every method has shown that it holds the loss: by number of workers and elements,
 * medians of 5.  Usage: bench_decide */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "controller/decide.h"

enum { ROUNDS = 5 };

static weir_decision_input input_of(uint64_t workers, uint64_t hosts, uint64_t elements) {
  static const double gain[] = {0.97, 0.8, 0.55, 0.33, 0.2, 0.13, 0.09, 0.04};
  weir_decision_input in = {.policy = WEIR_POLICY_WEIR,
                            .trigger = WEIR_TRIGGER_BANDWIDTH,
                            .seed = 1,
                            .risk = WEIR_RISK_MEASURED,
                            .settled = 1,
                            .workers = workers,
                            .hosts = hosts,
                            .elements = elements,
                            .latency = 1e-3,
                            .bandwidth = 1e8,
                            .processors = {.message_s = 1e-5, .byte_s = 1e-10},
                            .compute = 0.05,
                            .gain = -1,
                            .overlap = 0.6,
                            .dwell = 100,
                            .current = {.codec = WEIR_CODEC_BF16, .cr = 1.0}};
  in.previous = in.current;
  memcpy(in.curve, gain, sizeof gain);
  memcpy(in.curve_cr, weir_curve_cr, sizeof in.curve_cr);
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) in.compress[c] = 1.0;
  for (size_t m = 0; m < WEIR_METHODS; m++)
    in.shown[m] = 1.0; /* the most there is to choose from */
  return in;
}

static void measure(uint64_t workers, uint64_t hosts, uint64_t elements) {
  weir_decision_input in = input_of(workers, hosts, elements);
  double ms[ROUNDS];
  weir_decision decision;
  char choice[WEIR_PLAN_TEXT_MAX];
  for (size_t round = 0; round < ROUNDS; round++) {
    in.latency *= 1.01; /* no two decisions are about the same network */
    const double start = weir_thread_cpu_s();
    if (weir_decide(&in, &decision) != WEIR_OK) {
      fprintf(stderr, "bench_decide: %s\n", weir_last_error());
      exit(1);
    }
    ms[round] = 1e3 * (weir_thread_cpu_s() - start);
  }
  weir_sort(ms, ROUNDS);
  weir_plan_format(&decision.choice.plan, choice);
  printf("%7d %8d %10.0f %9.2f  %s\n", (int)workers, (int)hosts, (double)elements, ms[ROUNDS / 2],
         choice);
}

int main(void) {
  static const uint64_t workers[] = {4, 64, 256, 1024}, elements[] = {1000000, 25000000, 350000000};
  printf("%7s %8s %10s %9s  %s\n", "workers", "machines", "elements", "ms", "choice");
  for (size_t w = 0; w < sizeof workers / sizeof *workers; w++)
    for (size_t e = 0; e < sizeof elements / sizeof *elements; e++)
      for (uint64_t a_machine = 1; a_machine <= 2; a_machine *= 2)
        measure(workers[w], workers[w] / a_machine, elements[e]);
  return 0;
}

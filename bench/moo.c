/* `weir bench moo`: how good NSGA-II's fronts are, and what they cost. */
#include "moo/hypervolume.h"

#include <glib.h>
#include <stdio.h>

#include "base/base.h"
#include "cli.h"
#include "lab/doc.h"
#include "moo/problems.h"

#define SEEDS 11

typedef struct moo_result {
  double hypervolume, seconds; /* medians */
  double slowest;
} moo_result;

static gboolean measure(const weir_moo_benchmark *bench, moo_result *result) {
  double volume[SEEDS], seconds[SEEDS];
  for (guint seed = 1; seed <= SEEDS; seed++) {
    weir_moo_options options;
    weir_moo_options_init(&options);
    options.seed = seed;
    weir_moo_front front;
    /* Processor time: other work on the machine is none of the algorithm's. */
    const double start = weir_thread_cpu_s();
    if (weir_moo_nsga2(&bench->problem, &options, &front) != WEIR_MOO_OK) return FALSE;
    seconds[seed - 1] = weir_thread_cpu_s() - start;
    volume[seed - 1] =
        weir_moo_hypervolume(front.f, front.count, bench->problem.objectives, bench->reference);
    weir_moo_front_free(&front);
  }
  weir_sort(volume, SEEDS);
  weir_sort(seconds, SEEDS);
  *result = (moo_result){volume[SEEDS / 2], seconds[SEEDS / 2], seconds[SEEDS - 1]};
  return TRUE;
}

static void print_moo_json(const moo_result *results) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  for (gsize i = 0; i < WEIR_MOO_BENCHMARKS; i++) {
    weir_doc_object(builder, weir_moo_benchmarks[i].name);
    weir_doc_number(builder, "hypervolume", results[i].hypervolume);
    weir_doc_number(builder, "wanted", weir_moo_benchmarks[i].wanted);
    weir_doc_number(builder, "seconds", results[i].seconds);
    weir_doc_number(builder, "slowest_seconds", results[i].slowest);
    weir_doc_end(builder);
  }
  weir_doc_print(builder);
}

int main(int argc, char **argv) {
  gboolean json = FALSE;
  const GOptionEntry entries[] = {{"json", 0, 0, G_OPTION_ARG_NONE, &json, "print JSON", NULL},
                                  G_OPTION_ENTRY_NULL};
  const cli_help help = {
      "weir bench moo", NULL,
      "NSGA-II on five standard problems: population 100, 250 generations, median of 11 seeds.",
      "Exit codes: 0 done; 1 out of memory; 2 bad usage."};
  if (!cli_parse(&help, entries, &argc, &argv)) return WEIR_EXIT_USAGE;
  moo_result results[WEIR_MOO_BENCHMARKS];
  for (gsize i = 0; i < WEIR_MOO_BENCHMARKS; i++)
    if (!measure(&weir_moo_benchmarks[i], &results[i])) {
      fprintf(stderr, "weir bench moo: out of memory\n");
      return WEIR_EXIT_FAILED;
    }
  if (json) {
    print_moo_json(results);
    return cli_end(WEIR_EXIT_DONE);
  }
  printf("%-8s %12s %10s %10s %10s\n", "problem", "hypervolume", "wanted", "ms", "slowest");
  for (gsize i = 0; i < WEIR_MOO_BENCHMARKS; i++)
    printf("%-8s %12.4f %10.2f %10.1f %10.1f\n", weir_moo_benchmarks[i].name,
           results[i].hypervolume, weir_moo_benchmarks[i].wanted, 1e3 * results[i].seconds,
           1e3 * results[i].slowest);
  return cli_end(WEIR_EXIT_DONE);
}

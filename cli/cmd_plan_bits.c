/* `weir plan bits`: a width and a bucket size for every layer, by each method. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "cli.h"
#include "controller/bits.h"
#include "netmon/netmon.h"
#include "plan.h"
#include "plan_widths.h"
#include "planner/bits.h"

static const char command[] = "weir plan bits";
static const char summary[] =
    "Decides how many bits each layer's gradient gets: fewest bytes within a bound on the error.";
static const char description[] =
    "STATS.csv has the columns layer,numel,norm,bits,bucket,bytes,error: one line for every\n"
    "measured way to quantize a layer, and the lines of a layer together. norm is the l2 norm of\n"
    "the layer's accumulated gradient, bytes what is sent, error the l2 norm of the difference\n"
    "between the decoded and the exact gradient. `weir replay DIR --bits STATS.csv` writes what a\n"
    "run under policy bits has measured. A layer whose only line is of 32 bits in buckets of 0 is\n"
    "in full precision, in one package with all of its kind.\n"
    "\n"
    "The methods look for the fewest bytes such that the l2 norm of the whole error is at most\n"
    "ALPHA times that of 4 bits everywhere (at the reference bucket).\n"
    "  knapsack        over all lines, with a proven lower bound (least_bytes)\n"
    "  kmeans, linear  the published rankings, with the best of all ranges of widths and ways\n"
    "                  to map buckets\n"
    "  bayes           Bayesian optimization of a width that is linear in the logarithms of\n"
    "                  size and norm\n"
    "  uniform         4 bits\n"
    "\n"
    "--out writes them as a table of buckets, which `weir run --policy groups:TABLE` executes:\n"
    "neighbours of one width and bucket together, by qsgd and COLLECTIVE; full precision by "
    "none:1:dense.\n"
    "\n"
    "--profile with --link adds iteration_ms: from the beginning of the backward pass to the\n"
    "end of the last exchange, of the table that --out writes.  PROFILE.csv has the columns\n"
    "tensor,numel,gap_us (`weir profile` writes one) and the layers of STATS.csv; those of\n"
    "buckets in their order.\n"
    "Exit codes: 0 done; 2 bad usage or bad input (file, line, what was expected).";

typedef enum method { KNAPSACK, KMEANS, LINEAR, BAYES, UNIFORM, METHODS } method;
static const char *const methods[METHODS] = {"knapsack", "kmeans", "linear", "bayes", "uniform"};

typedef struct bits_arguments {
  char *alpha, *bucket, *keep, *method, *out, *collective, *profile, *link, *burst, *compress;
  gint workers;
  gboolean json;
} bits_arguments;

typedef struct answers {
  weir_bits bits[METHODS];
  double took_s[METHODS];
} answers;

static weir_status solve(const weir_bits_stats *stats, double alpha, answers *all) {
  weir_status status = weir_bits_uniform(stats, &all->bits[UNIFORM]);
  const double most = alpha * all->bits[UNIFORM].error;
  double start = weir_now_s();
  if (status == WEIR_OK) status = weir_bits_kmeans(stats, most, &all->bits[KMEANS]);
  all->took_s[KMEANS] = weir_now_s() - start;
  start = weir_now_s();
  if (status == WEIR_OK) status = weir_bits_linear(stats, most, &all->bits[LINEAR]);
  all->took_s[LINEAR] = weir_now_s() - start;
  start = weir_now_s();
  if (status == WEIR_OK) status = weir_bits_bayes(stats, most, &all->bits[BAYES]);
  all->took_s[BAYES] = weir_now_s() - start;
  start = weir_now_s();
  const weir_bits *known = &all->bits[UNIFORM];
  for (method m = KMEANS; m <= BAYES; m++)
    if (all->bits[m].bytes < known->bytes) known = &all->bits[m];
  if (status == WEIR_OK) status = weir_bits_knapsack(stats, most, 0, known, &all->bits[KNAPSACK]);
  all->took_s[KNAPSACK] = weir_now_s() - start;
  return status;
}

static void print_json(const weir_bits_stats *stats, const answers *all, method chosen,
                       double alpha, const double *iteration_s) {
  const weir_bits *bits = &all->bits[chosen];
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_text(builder, "method", methods[chosen]);
  weir_doc_number(builder, "bytes", bits->bytes);
  if (chosen == KNAPSACK) weir_doc_number(builder, "least_bytes", bits->least_bytes);
  weir_doc_number(builder, "error", bits->error);
  weir_doc_number(builder, "most_error", alpha * all->bits[UNIFORM].error);
  if (iteration_s) weir_doc_number(builder, "iteration_ms", *iteration_s * 1e3);
  weir_doc_list(builder, "layers");
  for (size_t l = 0; l < stats->layer_count; l++) {
    const weir_bits_option *option = &stats->options[bits->choice[l]];
    weir_doc_object(builder, NULL);
    weir_doc_text(builder, "layer", stats->layers[l].name);
    weir_doc_whole(builder, "bits", option->bits);
    weir_doc_whole(builder, "bucket", option->bucket);
    weir_doc_end(builder);
  }
  weir_doc_end_list(builder);
  weir_doc_number(builder, "solve_ms", all->took_s[chosen] * 1e3);
  weir_doc_print(builder);
}

static void print_table(const weir_bits_stats *stats, const answers *all, method chosen,
                        double alpha, const double *iteration_s) {
  const double most = alpha * all->bits[UNIFORM].error;
  printf("%zu layers; error at most %g (%g times that of 4 bits)\n\n", stats->layer_count, most,
         alpha);
  printf("  %-9s %15s %12s %9s\n", "method", "bytes", "error", "found in");
  for (size_t m = 0; m < METHODS; m++)
    printf("  %-9s %15.0f %12g %6.2f ms%s\n", methods[m], all->bits[m].bytes, all->bits[m].error,
           all->took_s[m] * 1e3, m == chosen ? "  below" : "");
  printf("  %-9s %15.0f  no assignment within the error is smaller\n", "bound",
         all->bits[KNAPSACK].least_bytes);
  if (iteration_s) printf("\n  an iteration with the widths below: %.4f ms\n", *iteration_s * 1e3);
  printf("\n  %5s %7s %12s  %s\n", "bits", "bucket", "bytes", "layer");
  for (size_t l = 0; l < stats->layer_count; l++) {
    const weir_bits_option *option = &stats->options[all->bits[chosen].choice[l]];
    printf("  %5u %7u %12.0f  %s\n", option->bits, option->bucket, option->bytes,
           stats->layers[l].name);
  }
}

/* The plan of what is quantized, at any width. */
static weir_status read_collective(const char *collective, weir_plan *plan) {
  g_autofree char *text =
      g_strdup_printf("%s:0.125:%s", weir_bits_codec()->name, collective ? collective : "sra");
  return weir_plan_parse(text, plan);
}

enum { NO_WORKERS = G_MININT, USUAL_WORKERS = 4 };

/* TRUE, or a message has been printed. */
static gboolean read_place(const bits_arguments *a, plan_widths_place *place) {
  *place = (plan_widths_place){.profile = a->profile,
                               .workers = a->workers == NO_WORKERS ? USUAL_WORKERS : a->workers};
  if (!a->profile != !a->link)
    return plan_refuse(command, "--profile and --link", "both, or neither"), FALSE;
  if (!a->profile) {
    const char *const alone = a->burst                   ? "--burst"
                              : a->compress              ? "--compress-ms"
                              : a->workers != NO_WORKERS ? "--workers"
                                                         : NULL;
    return !alone || (plan_refuse(command, alone, "--profile and --link beside it"), FALSE);
  }
  if (place->workers < 2) return plan_refuse(command, "--workers", "a number from 2"), FALSE;
  if (!plan_link(a->link, &place->alpha_s, &place->beta_s))
    return plan_refuse(command, "--link", plan_links), FALSE;
  if (a->burst && !plan_numbers(a->burst, 1, &place->burst))
    return plan_refuse(command, "--burst", "a number of bytes from 0"), FALSE;
  if (a->compress && !plan_curve(a->compress, &place->compress))
    return plan_refuse(command, "--compress-ms", plan_costs), FALSE;
  place->beta_s *= WEIR_TCP_OVERHEAD;
  return TRUE;
}

/* What is made of the widths: a table, a time. */
static weir_status apply(const weir_bits_stats *stats, const weir_bits *bits,
                         const weir_plan *coded, const plan_widths_place *place, const char *path,
                         const char *out, double *iteration_s) {
  plan_widths widths;
  weir_status status = plan_widths_make(&widths, stats, bits, coded, path);
  if (status == WEIR_OK && place->profile)
    status = plan_widths_foretell(&widths, stats, place, iteration_s);
  if (status == WEIR_OK && out) status = plan_widths_write(&widths, stats, out);
  plan_widths_free(&widths);
  return status;
}

static int run(const char *path, const bits_arguments *a) {
  double alpha = 2.0;
  guint64 bucket = 128;
  method chosen = KNAPSACK;
  if (a->alpha && (!plan_numbers(a->alpha, 1, &alpha) || alpha < 1.0))
    return plan_refuse(command, "--alpha", "a number from 1");
  if (a->bucket && !g_ascii_string_to_unsigned(a->bucket, 10, 1, G_MAXUINT32, &bucket, NULL))
    return plan_refuse(command, "--bucket", "a number of elements from 1");
  for (; a->method && chosen < METHODS && strcmp(a->method, methods[chosen]) != 0;) chosen++;
  if (chosen == METHODS)
    return plan_refuse(command, "--method", "knapsack, kmeans, linear, bayes or uniform");
  weir_plan coded;
  if (read_collective(a->collective, &coded) != WEIR_OK)
    return plan_failed(command, WEIR_E_INVALID);
  plan_widths_place place;
  if (!read_place(a, &place)) return WEIR_EXIT_USAGE;
  weir_bits_stats stats;
  answers all = {0};
  double iteration_s = 0.0;
  weir_status status =
      weir_bits_load(&stats, path, a->keep ? a->keep : "bias,bn,norm", (uint32_t)bucket);
  if (status == WEIR_OK) status = solve(&stats, alpha, &all);
  if (status == WEIR_OK && (a->out || a->profile))
    status = apply(&stats, &all.bits[chosen], &coded, &place, path, a->out, &iteration_s);
  const double *foretold = a->profile ? &iteration_s : NULL;
  int code = WEIR_EXIT_DONE;
  if (status != WEIR_OK)
    code = plan_failed(command, status);
  else if (a->json)
    print_json(&stats, &all, chosen, alpha, foretold);
  else
    print_table(&stats, &all, chosen, alpha, foretold);
  for (size_t m = 0; m < METHODS; m++) weir_bits_drop(&all.bits[m]);
  weir_bits_free(&stats);
  return code;
}

int plan_bits(int argc, char **argv) {
  bits_arguments a = {.workers = NO_WORKERS};
  const GOptionEntry entries[] = {
      {"alpha", 0, 0, G_OPTION_ARG_STRING, &a.alpha, "error allowed, in errors of 4 bits (2)",
       "ALPHA"},
      {"bucket", 0, 0, G_OPTION_ARG_STRING, &a.bucket, "reference bucket size (128)", "ELEMENTS"},
      {"keep", 0, 0, G_OPTION_ARG_STRING, &a.keep,
       "layers whose names hold one of these stay in full precision (bias,bn,norm)", "PATTERNS"},
      {"method", 0, 0, G_OPTION_ARG_STRING, &a.method,
       "knapsack (default), kmeans, linear, bayes or uniform", "METHOD"},
      {"out", 0, 0, G_OPTION_ARG_FILENAME, &a.out, "write the widths for policy groups:", "TABLE"},
      {"collective", 0, 0, G_OPTION_ARG_STRING, &a.collective,
       "what quantized buckets travel by (sra)", "COLLECTIVE"},
      {"profile", 0, 0, G_OPTION_ARG_FILENAME, &a.profile,
       "also foretell how long an iteration takes: gradients come as in this file", "PROFILE.csv"},
      {"link", 0, 0, G_OPTION_ARG_STRING, &a.link,
       "over links of this latency, one way, and rate, TCP's headers included", "US,GBPS"},
      {"burst", 0, 0, G_OPTION_ARG_STRING, &a.burst,
       "that let so much through at once after a pause, as `weir probe` tells (0)", "BYTES"},
      {"workers", 0, 0, G_OPTION_ARG_INT, &a.workers, "between so many (4)", "N"},
      {"compress-ms", 0, 0, G_OPTION_ARG_STRING, &a.compress,
       "an operation and a megabyte of gradient are quantized in (0,0)", "A,B"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL,
  };
  g_autofree char *path = plan_arguments(&(cli_help){command, "STATS.csv", summary, description},
                                         entries, &argc, &argv);
  const int code = path ? run(path, &a) : WEIR_EXIT_USAGE;
  cli_forget(entries);
  return code;
}

/* `weir plan fusion`: the fusion of least iteration time, beside the usual ones. */
#include <stdio.h>

#include "base/base.h"
#include "cli.h"
#include "plan.h"
#include "planner/fusion.h"
#include "planner/timeline.h"

static const char command[] = "weir plan fusion";
static const char summary[] =
    "Decides which tensors to compress and send together so that an iteration is shortest.";
static const char description[] =
    "PROFILE.csv has the columns tensor,numel,gap_us, one line a tensor in backward order.\n"
    "\n"
    "A cost is A milliseconds an operation and B a megabyte (10^6 bytes of the bucket's dense\n"
    "fp32 gradient, for communication too), or a table bytes,ms of measured points, linear\n"
    "between them.  Compression runs on the compute stream: a bucket is compressed as soon as\n"
    "its last gradient is ready, and the backward pass goes on afterwards.  Communication is\n"
    "one first-in-first-out stream beside it.\n"
    "\n"
    "iteration_ms is from the beginning of the backward pass to the end of the last exchange;\n"
    "every tensor's gap_us is part of it, the forward pass and decoding are not.  groups are the\n"
    "buckets, each [first,last] of its tensors, counted from 0 in the profile's order.  solve_ms\n"
    "is the time the search took.  least_ms is there only when a search over measured costs was\n"
    "cut short: no fusion can be faster than that.\n"
    "\n"
    "--out writes the optimum as a table of buckets, each by PLAN and compressed on the trainer's\n"
    "thread, which `weir run --policy groups:TABLE` executes.\n"
    "Exit codes: 0 done; 2 bad usage or bad input (file, line, what was expected).";

typedef struct fusion_arguments {
  char *compress, *comm, *compress_table, *comm_table, *trace, *out, *plan;
  gboolean json;
} fusion_arguments;

static int read_curve(const char *name, const char *text, const char *table, weir_curve *curve) {
  g_autofree char *option = g_strdup_printf("--%s-ms %s", name, text ? text : "");
  *curve = (weir_curve){0};
  if (!text == !table) {
    g_autofree char *both = g_strdup_printf("--%s-ms and --%s-table", name, name);
    return plan_refuse(command, both, "one of the two");
  }
  if (table) {
    const weir_status status = weir_curve_load(curve, table);
    return status == WEIR_OK ? WEIR_EXIT_DONE : plan_failed(command, status);
  }
  double values[2];
  if (!plan_numbers(text, 2, values))
    return plan_refuse(command, option,
                       "A,B: milliseconds an operation and milliseconds a megabyte, both from 0");
  *curve = (weir_curve){.fixed_s = values[0] * 1e-3, .per_byte_s = values[1] * 1e-9};
  return WEIR_EXIT_DONE;
}

static void print_json(const weir_fusion *fusion, double solve_s) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_number(builder, "iteration_ms", fusion->iteration_s * 1e3);
  weir_doc_list(builder, "groups");
  for (size_t k = 0; k < fusion->buckets; k++) {
    weir_doc_list(builder, NULL);
    weir_doc_whole(builder, NULL, k ? (gint64)fusion->end[k - 1] : 0);
    weir_doc_whole(builder, NULL, (gint64)fusion->end[k] - 1);
    weir_doc_end_list(builder);
  }
  weir_doc_end_list(builder);
  weir_doc_number(builder, "solve_ms", solve_s * 1e3);
  if (fusion->least_s < fusion->iteration_s)
    weir_doc_number(builder, "least_ms", fusion->least_s * 1e3);
  weir_doc_print(builder);
}

static weir_status print_table(const weir_profile *profile, const weir_curve *compress,
                               const weir_curve *communicate, const weir_fusion *fusion,
                               double solve_s) {
  const gboolean inexact = fusion->least_s < fusion->iteration_s;
  printf("%zu tensors; found in %.3f ms%s\n\n  %-16s %7s %14s\n", profile->count, solve_s * 1e3,
         inexact ? ", cut short" : "", "fusion", "buckets", "iteration");
  printf("  %-16s %7zu %11.4f ms\n", inexact ? "best known" : "optimum", fusion->buckets,
         fusion->iteration_s * 1e3);
  if (inexact) printf("  %-16s %7s %11.4f ms\n", "lower bound", "", fusion->least_s * 1e3);
  for (size_t b = 0; b < weir_fusion_baseline_count; b++) {
    weir_fusion other;
    const weir_status status =
        weir_fusion_run_baseline(&weir_fusion_baselines[b], profile, compress, communicate, &other);
    if (status != WEIR_OK) return status;
    printf("  %-16s %7zu %11.4f ms  %.3f x\n", weir_fusion_baselines[b].name, other.buckets,
           other.iteration_s * 1e3,
           fusion->iteration_s > 0.0 ? other.iteration_s / fusion->iteration_s : 1.0);
    weir_fusion_free(&other);
  }
  printf("\n  %6s %6s %6s %12s  %s\n", "bucket", "first", "last", "MB", "last tensor");
  for (size_t k = 0, first = 0; k < fusion->buckets; first = fusion->end[k++]) {
    double bytes = 0.0;
    for (size_t i = first; i < fusion->end[k]; i++) bytes += weir_profile_bytes(profile, i);
    printf("  %6zu %6zu %6zu %12.3f  %s\n", k, first, fusion->end[k] - 1, bytes * 1e-6,
           profile->tensors[fusion->end[k] - 1].name);
  }
  return WEIR_OK;
}

static weir_status write_trace(const weir_profile *profile, const weir_curve *compress,
                               const weir_curve *communicate, const weir_fusion *fusion,
                               const char *path) {
  weir_timeline timeline;
  weir_status status = weir_timeline_fusion(profile, compress, communicate, fusion, &timeline);
  if (status == WEIR_OK) status = weir_timeline_trace(&timeline, profile, path);
  weir_timeline_free(&timeline);
  return status;
}

static weir_status write_table(const weir_profile *profile, const weir_fusion *fusion,
                               const weir_plan *plan, const char *path) {
  g_autoptr(GString) table = g_string_new(NULL);
  for (size_t k = 0; k < fusion->buckets; k++)
    plan_table_add(table, profile->tensors[fusion->end[k] - 1].name, plan, WEIR_PLACE_CALLER);
  return cli_write(path, table);
}

static int solve(const char *path, const fusion_arguments *a) {
  weir_plan plan = {0};
  if (!a->out != !a->plan) return plan_refuse(command, "--out and --plan", "both, or neither");
  if (a->plan && weir_plan_parse(a->plan, &plan) != WEIR_OK)
    return plan_failed(command, WEIR_E_INVALID);
  weir_curve compress = {0}, communicate = {0};
  weir_profile profile = {0};
  weir_fusion fusion = {0};
  weir_status status = WEIR_OK;
  int code = read_curve("compress", a->compress, a->compress_table, &compress);
  if (code == WEIR_EXIT_DONE) code = read_curve("comm", a->comm, a->comm_table, &communicate);
  if (code != WEIR_EXIT_DONE) goto done;
  status = weir_profile_load(&profile, path);
  if (status == WEIR_OK) {
    const double start = weir_now_s();
    status = weir_fusion_solve(&profile, &compress, &communicate, &fusion);
    const double took = weir_now_s() - start;
    if (status == WEIR_OK && a->trace)
      status = write_trace(&profile, &compress, &communicate, &fusion, a->trace);
    if (status == WEIR_OK && a->out) status = write_table(&profile, &fusion, &plan, a->out);
    if (status == WEIR_OK && a->json)
      print_json(&fusion, took);
    else if (status == WEIR_OK)
      status = print_table(&profile, &compress, &communicate, &fusion, took);
  }
  if (status != WEIR_OK) code = plan_failed(command, status);
done:
  weir_fusion_free(&fusion);
  weir_profile_free(&profile);
  weir_curve_free(&compress);
  weir_curve_free(&communicate);
  return code;
}

int plan_fusion(int argc, char **argv) {
  fusion_arguments a = {0};
  const GOptionEntry entries[] = {
      {"compress-ms", 0, 0, G_OPTION_ARG_STRING, &a.compress, "cost of compressing", "A,B"},
      {"comm-ms", 0, 0, G_OPTION_ARG_STRING, &a.comm, "cost of communicating", "A,B"},
      {"compress-table", 0, 0, G_OPTION_ARG_FILENAME, &a.compress_table,
       "measured cost of compressing instead", "FILE"},
      {"comm-table", 0, 0, G_OPTION_ARG_FILENAME, &a.comm_table,
       "measured cost of communicating instead", "FILE"},
      {"trace", 0, 0, G_OPTION_ARG_FILENAME, &a.trace,
       "write the timeline for Perfetto or about:tracing", "FILE"},
      {"out", 0, 0, G_OPTION_ARG_FILENAME, &a.out, "write the buckets for policy groups:", "TABLE"},
      {"plan", 0, 0, G_OPTION_ARG_STRING, &a.plan, "what the buckets of --out travel by", "PLAN"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL,
  };
  g_autofree char *path = plan_arguments(&(cli_help){command, "PROFILE.csv", summary, description},
                                         entries, &argc, &argv);
  const int code = path ? solve(path, &a) : WEIR_EXIT_USAGE;
  cli_forget(entries);
  return code;
}

/* `weir profile`: timings from the running job, the plan made of them, and whether it holds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "profile.h"

static const char summary[] =
    "Runs the scenario once for every division into groups of every PLAN (one group, four, every\n"
    "tensor alone), measures when gradients become ready and what groups cost, plans the division and\n"
    "the plan of each group from that, runs it too, and compares steps predicted and measured.\n"
    "\n"
    "Writes into DIR: profile.csv (tensor,numel,gap_us: what `weir plan` reads), compress-I.csv and\n"
    "comm-I.csv (bytes,ms: the costs of the I-th PLAN), planned.csv (for --policy groups:FILE), and\n"
    "a folder for every run.";

static const char description[] =
    "All epochs should lie in one phase.  predicted_ms is the timeline's: backward pass and\n"
    "compression share the worker's thread, exchanges and decoding follow one another beside it.\n"
    "Exit codes: 0 done; 1 a run failed; 2 bad usage or bad input.";

static int make_out(const profile_job *job) {
  if (g_mkdir_with_parents(job->out, 0777) == 0) return WEIR_EXIT_DONE;
  fprintf(stderr, "weir profile: --out %s cannot be made\n", job->out);
  return WEIR_EXIT_USAGE;
}

static void print_table(const profile_job *job) {
  printf("%-14s %-32s %7s %13s %12s %9s\n", "division", "plan", "groups", "predicted_ms",
         "measured_ms", "error");
  for (size_t i = 0; i < job->count; i++) {
    const profile_run *run = &job->run[i];
    printf("%-14s %-32s %7zu %13.3f %12.3f %8.1f%%\n", run->division, run->plan, run->groups,
           run->predicted_s * 1e3, run->measured_s * 1e3,
           100 * (run->predicted_s / run->measured_s - 1));
  }
}

static void print_json(const profile_job *job) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  json_builder_begin_object(builder);
  json_builder_set_member_name(builder, "runs");
  json_builder_begin_array(builder);
  for (size_t i = 0; i < job->count; i++) {
    const profile_run *run = &job->run[i];
    json_builder_begin_object(builder);
    json_builder_set_member_name(builder, "division");
    json_builder_add_string_value(builder, run->division);
    json_builder_set_member_name(builder, "plan");
    json_builder_add_string_value(builder, run->plan);
    json_builder_set_member_name(builder, "groups");
    json_builder_add_int_value(builder, (gint64)run->groups);
    plan_number(builder, "predicted_ms", run->predicted_s * 1e3);
    plan_number(builder, "measured_ms", run->measured_s * 1e3);
    json_builder_end_object(builder);
  }
  json_builder_end_array(builder);
  plan_print(builder);
}

static int work(profile_job *job) {
  int code = make_out(job);
  for (size_t p = 0; p < job->plans && code == WEIR_EXIT_DONE; p++) code = profile_measure(job, p);
  if (code == WEIR_EXIT_DONE) code = profile_plan(job);
  if (code != WEIR_EXIT_DONE) return code;
  if (job->json)
    print_json(job);
  else
    print_table(job);
  return WEIR_EXIT_DONE;
}

static int check_arguments(profile_job *job, char **rest, char **plans) {
  if (!rest || !rest[0] || rest[1]) {
    fprintf(stderr, "weir profile: expected exactly one scenario file; see `weir profile --help`\n");
    return WEIR_EXIT_USAGE;
  }
  if (!job->out || !*job->out)
    return plan_refuse("weir profile", "--out", "a folder for the results");
  static char *standard[] = {"topk:0.01:ag:auto-fp32", NULL};
  job->scenario = rest[0];
  job->plan = plans && plans[0] ? plans : standard;
  job->plans = g_strv_length(job->plan);
  if (job->plans > PROFILE_PLANS) {
    fprintf(stderr, "weir profile: %zu plans; expected at most %d\n", job->plans, PROFILE_PLANS);
    return WEIR_EXIT_USAGE;
  }
  for (size_t p = 0; p < job->plans; p++) {
    weir_plan plan;
    if (weir_plan_parse(job->plan[p], &plan) == WEIR_OK) continue;
    fprintf(stderr, "weir profile: command line: --plan: %s\n", weir_last_error());
    return WEIR_EXIT_USAGE;
  }
  return WEIR_EXIT_DONE;
}

int weir_cmd_profile(int argc, char **argv) {
  profile_job job = {0};
  char **plans = NULL, **rest = NULL;
  const GOptionEntry entries[] = {
      {"out", 'o', 0, G_OPTION_ARG_FILENAME, &job.out, "folder for the results (made if missing)", "DIR"},
      {"plan", 'p', 0, G_OPTION_ARG_STRING_ARRAY, &plans, "what groups may be sent as; may be repeated", "PLAN"},
      {"network", 'n', 0, G_OPTION_ARG_STRING, &job.network, "auto (default), tc, uml or sim", "NETWORK"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &job.json, "print JSON", NULL},
      {G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &rest, NULL, "SCENARIO"},
      G_OPTION_ENTRY_NULL};
  g_autoptr(GOptionContext) context = g_option_context_new(NULL);
  g_autoptr(GError) error = NULL;
  g_option_context_set_summary(context, summary);
  g_option_context_set_description(context, description);
  g_option_context_add_main_entries(context, entries, NULL);
  int code = WEIR_EXIT_USAGE;
  if (g_option_context_parse(context, &argc, &argv, &error))
    code = check_arguments(&job, rest, plans);
  else
    fprintf(stderr, "weir profile: %s; see `weir profile --help`\n", error->message);
  if (code == WEIR_EXIT_DONE) code = work(&job);
  profile_free(&job);
  g_strfreev(plans);
  g_strfreev(rest);
  g_free(job.network);
  g_free(job.out);
  return code;
}

/* `weir profile`: timings from the running job, the plan made of them, and whether it holds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "profile.h"

static const char summary[] =
    "Runs the scenario with divisions of the gradient that take turns (for every PLAN: one group, "
    "four,\n"
    "every tensor alone), measures when gradients become ready and what groups cost, plans the "
    "division\n"
    "and the plan of each group from that, then runs it in turns with those and buckets of 2 MB, "
    "and\n"
    "compares steps predicted from every other round with steps measured in the rounds between.\n"
    "\n"
    "Writes into DIR: profile.csv (tensor,numel,gap_us: what `weir plan` reads), compress-I.csv "
    "and\n"
    "comm-I.csv (bytes,ms: the costs of the I-th PLAN), planned.csv (for --policy groups:FILE: the "
    "plan, or\n"
    "another division that was measured to be faster), trace.json (the planned step predicted and\n"
    "measured, for Perfetto), and folders of the two runs.";

static const char description[] =
    "All epochs should lie in one phase, and there should be some 25 steps for every turn.  A step "
    "is\n"
    "counted from the begin of one to the begin of the next, on the last rank; the middle half of "
    "all\n"
    "steps counts.  predicted_ms is the timeline's: backward pass and compression share the "
    "worker's\n"
    "thread, exchanges and decoding follow one another beside it and take from it what they were "
    "seen\n"
    "to take.  No division of these plans can be predicted to take less than least_ms.\n"
    "Exit codes: 0 done; 1 a run failed; 2 bad usage or bad input.";

/* Predictions closer than this are not told apart. */
static const double alike = 0.05;

static int make_out(profile_job *job) {
  char *path = g_canonicalize_filename(job->out, NULL);
  g_free(job->out);
  job->out = path;
  if (!strchr(path, ';') && g_mkdir_with_parents(path, 0777) == 0) return WEIR_EXIT_DONE;
  fprintf(stderr, "weir profile: --out %s cannot be made\n", path);
  return WEIR_EXIT_USAGE;
}

static profile_turn *add_turn(profile_job *job, const char *division, const char *plan,
                              char *text) {
  if (!job->turns) job->turns = g_new0(profile_turn, PROFILE_TURNS + 1);
  profile_turn *turn = &job->turns[job->count++];
  turn->division = division;
  turn->plan = plan;
  turn->text = text;
  return turn;
}

/* What is learnt from. */
static void add_learnt(profile_job *job) {
  static const char *const names[PROFILE_LEARNT] = {"one", "even-4", "layers"};
  static const char *const forms[PROFILE_LEARNT] = {"even=1:", "even=4:", "layers:"};
  for (size_t p = 0; p < job->plans; p++)
    for (size_t d = 0; d < PROFILE_LEARNT; d++)
      (void)add_turn(job, names[d], job->plan[p], g_strconcat(forms[d], job->plan[p], NULL));
}

static int learn(profile_job *job) {
  add_learnt(job);
  const int code = profile_run(job, "learnt");
  if (code != WEIR_EXIT_DONE) return code;
  weir_status status = profile_read(job, "learnt", PROFILE_ALL);
  if (!status) status = profile_learn(job);
  return status ? plan_failed("weir profile", status) : code;
}

/* The plan, and what it is compared with. */
static int check(profile_job *job) {
  char *path = g_build_filename(job->out, "planned.csv", NULL);
  profile_free_turns(job);
  add_learnt(job);
  (void)add_turn(job, "bucket-2MB", job->plan[0], g_strconcat("bucket=2:", job->plan[0], NULL));
  profile_turn *planned = add_turn(job, "planned", "", path);
  weir_status status = profile_plan(job, path, planned);
  if (status) return plan_failed("weir profile", status);
  const int code = profile_run(job, "checked");
  if (code != WEIR_EXIT_DONE) return code;
  status = profile_compare(job, "checked");
  if (!status) status = profile_keep(job, path);
  if (!status) status = profile_show(job, &job->turns[job->count - 1]);
  return status ? plan_failed("weir profile", status) : WEIR_EXIT_DONE;
}

/* --- what came of it ------------------------------------------------------------------------ */

/* Of the pairs whose predictions are not alike, how many were measured in that order. */
static void count_order(const profile_job *job, size_t *right, size_t *pairs) {
  *right = *pairs = 0;
  for (size_t i = 0; i < job->count; i++)
    for (size_t j = 0; j < job->count; j++) {
      const profile_turn *a = &job->turns[i], *b = &job->turns[j];
      if (a->predicted_s >= (1 - alike) * b->predicted_s) continue;
      ++*pairs;
      *right += a->mean.period_s < b->mean.period_s;
    }
}

typedef struct gain {
  const char *over, *member, *bound;
  size_t turn; /* of the first plan */
} gain;
static const gain gains[] = {{"one group", "over_one", "bound_over_one", 0},
                             {"every tensor alone", "over_layers", "bound_over_layers", 2}};

static void print_table(const profile_job *job) {
  const profile_turn *planned = &job->turns[job->count - 1];
  printf("%-12s %-30s %7s %6s %13s %12s %8s\n", "division", "plan", "groups", "steps",
         "predicted_ms", "measured_ms", "error");
  for (size_t i = 0; i < job->count; i++) {
    const profile_turn *turn = &job->turns[i];
    printf("%-12s %-30s %7zu %6zu %13.3f %12.3f %7.1f%%\n", turn->division, turn->plan,
           turn->groups, turn->steps, turn->predicted_s * 1e3, turn->mean.period_s * 1e3,
           100 * (turn->predicted_s / turn->mean.period_s - 1));
  }
  for (size_t g = 0; g < G_N_ELEMENTS(gains); g++) {
    const profile_turn *other = &job->turns[gains[g].turn];
    printf("planned is %.2f times as fast as %s; no division could be more than %.2f times\n",
           other->mean.period_s / planned->mean.period_s, gains[g].over,
           other->predicted_s / job->least_s);
  }
  size_t right, pairs;
  count_order(job, &right, &pairs);
  printf("order: %zu of %zu pairs as predicted\n", right, pairs);
  printf("planned.csv holds %s, the fastest as measured\n", job->kept->division);
}

static void print_json(const profile_job *job) {
  const profile_turn *planned = &job->turns[job->count - 1];
  g_autoptr(JsonBuilder) builder = json_builder_new();
  json_builder_begin_object(builder);
  json_builder_set_member_name(builder, "runs");
  json_builder_begin_array(builder);
  for (size_t i = 0; i < job->count; i++) {
    const profile_turn *turn = &job->turns[i];
    json_builder_begin_object(builder);
    json_builder_set_member_name(builder, "division");
    json_builder_add_string_value(builder, turn->division);
    json_builder_set_member_name(builder, "plan");
    json_builder_add_string_value(builder, turn->plan);
    json_builder_set_member_name(builder, "groups");
    json_builder_add_int_value(builder, (gint64)turn->groups);
    json_builder_set_member_name(builder, "steps");
    json_builder_add_int_value(builder, (gint64)turn->steps);
    plan_number(builder, "predicted_ms", turn->predicted_s * 1e3);
    plan_number(builder, "measured_ms", turn->mean.period_s * 1e3);
    json_builder_end_object(builder);
  }
  json_builder_end_array(builder);
  for (size_t g = 0; g < G_N_ELEMENTS(gains); g++) {
    const profile_turn *other = &job->turns[gains[g].turn];
    plan_number(builder, gains[g].member, other->mean.period_s / planned->mean.period_s);
    plan_number(builder, gains[g].bound, other->predicted_s / job->least_s);
  }
  size_t right, pairs;
  count_order(job, &right, &pairs);
  json_builder_set_member_name(builder, "kept");
  json_builder_add_string_value(builder, job->kept->division);
  plan_number(builder, "rest_ms", job->rest_s * 1e3);
  plan_number(builder, "least_ms", job->least_s * 1e3);
  plan_number(builder, "order_right", (double)right);
  plan_number(builder, "order_pairs", (double)pairs);
  plan_print(builder);
}

static int work(profile_job *job) {
  int code = make_out(job);
  if (code == WEIR_EXIT_DONE) code = learn(job);
  if (code == WEIR_EXIT_DONE) code = check(job);
  if (code != WEIR_EXIT_DONE) return code;
  if (job->json)
    print_json(job);
  else
    print_table(job);
  return WEIR_EXIT_DONE;
}

static void free_job(profile_job *job) {
  profile_free_turns(job);
  for (size_t p = 0; p < PROFILE_PLANS; p++) {
    weir_curve_free(&job->row[p].compress);
    weir_curve_free(&job->row[p].exchange);
  }
  weir_profile_free(&job->profile);
  g_free(job->network);
  g_free(job->out);
}

static int check_arguments(profile_job *job, char **rest, char **plans) {
  if (!rest || !rest[0] || rest[1]) {
    fprintf(stderr,
            "weir profile: expected exactly one scenario file; see `weir profile --help`\n");
    return WEIR_EXIT_USAGE;
  }
  if (!job->out || !*job->out)
    return plan_refuse("weir profile", "--out", "a folder for the results");
  if (job->turn < 3 || job->turn > 1000)
    return plan_refuse("weir profile", "--turn", "3 to 1000 steps");
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
  profile_job job = {.turn = 6};
  char **plans = NULL, **rest = NULL;
  const GOptionEntry entries[] = {
      {"out", 'o', 0, G_OPTION_ARG_FILENAME, &job.out, "folder for the results (made if missing)",
       "DIR"},
      {"plan", 'p', 0, G_OPTION_ARG_STRING_ARRAY, &plans,
       "what groups may be sent as; may be repeated", "PLAN"},
      {"network", 'n', 0, G_OPTION_ARG_STRING, &job.network, "auto (default), tc, uml or sim",
       "NETWORK"},
      {"turn", 't', 0, G_OPTION_ARG_INT, &job.turn, "steps that a division runs at a time (6)",
       "STEPS"},
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
  free_job(&job);
  g_strfreev(plans);
  g_strfreev(rest);
  return code;
}

/* `weir profile`: timings from the running job, the plan made of them, and whether it holds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "profile.h"

static const char command[] = "weir profile";

static const char summary[] =
    "Measures what a scenario's steps are made of, plans from that how to divide the gradient and\n"
    "how to send each part, and checks the plan against other divisions by running them all.\n"
    "\n"
    "Two jobs are run; in each, divisions of the gradient into groups of tensors take turns.\n"
    "  learnt   for every PLAN: one group, four groups, every tensor alone.  From when gradients\n"
    "           became ready and what groups took, the fastest division is planned\n"
    "  checked  the same, buckets of 2 MB, and the plan.  Steps are predicted from every other\n"
    "           round of turns and compared with those measured in the rounds between\n"
    "\n"
    "Files in DIR:\n"
    "  profile.csv    tensor,numel,gap_us: what `weir plan` reads\n"
    "  compress-I.csv, comm-I.csv    bytes,ms: what groups sent as the I-th PLAN take\n"
    "  planned.csv    the fastest division as measured, for `weir run --policy groups:FILE`\n"
    "  trace.json     a planned step as predicted and as measured, for Perfetto\n"
    "  learnt/, checked/    the two jobs, as `weir run --profile` leaves them";

static const char description[] =
    "The scenario's epochs should lie in one phase, and it should have some 25 steps for every\n"
    "division.  A step is counted from the begin of one to the begin of the next, on the last\n"
    "rank; the mean is that of the middle half of all steps.  Where the trainer hands over slices\n"
    "of tensors (scenario key `slice`), they are divided too; `layers` then has the slices of "
    "each\n"
    "tensor together, `slices` every slice alone.\n"
    "predicted_ms is the time model's: the backward pass and compression share the worker's "
    "thread;\n"
    "exchanges and decoding follow one another beside it, and take from it what they were seen to\n"
    "take.  No division of these plans can be predicted to take less than least_ms.\n"
    "Exit codes: 0 done; 1 a run failed; 2 bad usage or bad input.";

/* Predictions closer than this are not told apart. */
static const double alike = 0.05;

/* A policy that names files in it is told where it is from the root, and ends them with a `;`. */
static int make_out(profile_job *job) {
  char *path = g_canonicalize_filename(job->out, NULL);
  g_free(job->out);
  job->out = path;
  if (!strchr(path, ';') && g_mkdir_with_parents(path, 0777) == 0) return WEIR_EXIT_DONE;
  (void)cli_refuse(command, "out", path, "a folder that can be made, without ';' in its name");
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
  return status ? plan_failed(command, status) : code;
}

/* Where tensors come in slices, `layers` has those of each together. */
static weir_status add_whole_tensors(profile_job *job) {
  job->layers = 2;
  if (!profile_sliced(job)) return WEIR_OK;
  for (size_t p = 0; p < job->plans; p++) job->turns[PROFILE_LEARNT * p + 2].division = "slices";
  char *path = g_build_filename(job->out, "layers.csv", NULL);
  job->layers = job->count;
  return profile_whole_tensors(job, path, add_turn(job, "layers", job->plan[0], path));
}

/* The plan, and what it is compared with. */
static int check(profile_job *job) {
  char *path = g_build_filename(job->out, "planned.csv", NULL);
  profile_free_turns(job);
  add_learnt(job);
  weir_status status = add_whole_tensors(job);
  (void)add_turn(job, "bucket-2MB", job->plan[0], g_strconcat("bucket=2:", job->plan[0], NULL));
  profile_turn *planned = add_turn(job, "planned", "", path);
  if (!status) status = profile_plan(job, path, planned);
  if (status) return plan_failed(command, status);
  const int code = profile_run(job, "checked");
  if (code != WEIR_EXIT_DONE) return code;
  status = profile_compare(job, "checked");
  if (!status) status = profile_keep(job, path);
  if (!status) status = profile_show(job, &job->turns[job->count - 1]);
  return status ? plan_failed(command, status) : WEIR_EXIT_DONE;
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
} gain;
static const gain gains[] = {{"one group", "over_one", "bound_over_one"},
                             {"every tensor alone", "over_layers", "bound_over_layers"}};

/* Of the first plan. */
static const profile_turn *compared(const profile_job *job, size_t g) {
  return &job->turns[g ? job->layers : 0];
}

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
    const profile_turn *other = compared(job, g);
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
    const profile_turn *other = compared(job, g);
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
  g_free(job->clock);
  g_free(job->out);
}

typedef struct profile_arguments {
  char *turn, **plans, **rest;
} profile_arguments;

static gboolean check_plans(profile_job *job, char **plans) {
  static char *standard[] = {"topk:0.01:ag:auto-fp32", NULL};
  job->plan = plans && plans[0] ? plans : standard;
  job->plans = g_strv_length(job->plan);
  if (job->plans > PROFILE_PLANS) {
    fprintf(stderr, "%s: command line: %zu times --plan; expected at most %d\n", command,
            job->plans, PROFILE_PLANS);
    return FALSE;
  }
  for (size_t p = 0; p < job->plans; p++) {
    weir_plan plan;
    if (weir_plan_parse(job->plan[p], &plan) != WEIR_OK)
      return cli_refuse(command, "plan", job->plan[p], weir_last_error());
  }
  return TRUE;
}

static gboolean check_arguments(profile_job *job, const profile_arguments *a) {
  gint64 turn = 6;
  if (!cli_scenario_and_out(command, a->rest, job->out)) return FALSE;
  if (a->turn && !g_ascii_string_to_signed(a->turn, 10, 3, 1000, &turn, NULL))
    return cli_refuse(command, "turn", a->turn, "a whole number of steps from 3 to 1000");
  job->scenario = a->rest[0];
  job->turn = (int)turn;
  return check_plans(job, a->plans);
}

int weir_cmd_profile(int argc, char **argv) {
  profile_job job = {0};
  profile_arguments a = {0};
  const GOptionEntry entries[] = {
      {"out", 'o', 0, G_OPTION_ARG_FILENAME, &job.out, "folder for the results (made if missing)",
       "DIR"},
      {"plan", 'p', 0, G_OPTION_ARG_STRING_ARRAY, &a.plans,
       "CODEC:CR:COLLECTIVE[:WIRE] to send groups as (topk:0.01:ag:auto-fp32); may be repeated",
       "PLAN"},
      {"network", 'n', 0, G_OPTION_ARG_STRING, &job.network, "auto (default), tc, uml or sim",
       "NETWORK"},
      {"clock", 'c', 0, G_OPTION_ARG_STRING, &job.clock, help_clock, "CLOCK"},
      {"turn", 't', 0, G_OPTION_ARG_STRING, &a.turn, "how long a division's turn is (6)", "STEPS"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &job.json, "print the comparison as JSON", NULL},
      {G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &a.rest, NULL, "SCENARIO"},
      G_OPTION_ENTRY_NULL};
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(command, entries, summary, description, &argc, &argv) && check_arguments(&job, &a))
    code = work(&job);
  free_job(&job);
  g_free(a.turn);
  g_strfreev(a.plans);
  g_strfreev(a.rest);
  return code;
}

/* `weir profile`: timings from the running job, the plan made of them, and whether it holds. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "lab/runner.h"
#include "lab/scenario.h"
#include "profile.h"

static const char command[] = "weir profile";

static const char summary[] =
    "Measures what a scenario's steps are made of, plans from that how to divide the gradient and\n"
    "how to send each part, and checks the plan by running it against other divisions.\n"
    "\n"
    "It runs two jobs. In each, divisions of the gradient into buckets of tensors take turns.\n"
    "  learnt   for every PLAN: one bucket, four buckets, every tensor alone. The fastest "
    "division\n"
    "           is planned from when gradients became ready and how long buckets took\n"
    "  checked  the same, buckets of 2 MB, with several PLANs every tensor alone by the one that "
    "is\n"
    "           fastest for it (myopic), and the plan. Every other round of turns gives the\n"
    "           predictions; the steps of the rounds between are compared with them\n"
    "\n"
    "Files in DIR:\n"
    "  profile.csv    tensor,numel,gap_us: what `weir plan` reads\n"
    "  compress-I.csv, comm-I.csv    bytes,ms: what buckets take that are sent as the I-th PLAN\n"
    "  planned.csv    the planned division, for `weir run --policy groups:FILE`\n"
    "  report.html    all of this as a page, with pictures of a step, planned and of one bucket\n"
    "  profile.json   what --json prints\n"
    "  trace.json     a planned step as predicted and as measured, for Perfetto\n"
    "  learnt/, checked/    the two jobs, as `weir run --profile` leaves them";

static const char description[] =
    "The scenario's epochs should lie in one phase, and it should have some 25 steps for every\n"
    "division. A step lasts from its beginning to the beginning of the next one, on the last\n"
    "rank; the mean is that of the middle half of all steps. Where the trainer hands over slices\n"
    "of tensors (scenario key `slice`), these are divided too: `layers` then has all slices of a\n"
    "tensor together, `slices` every slice alone.\n"
    "predicted_ms is the time model's: the backward pass and compression share the worker's\n"
    "thread; exchanges and decoding run one after the other beside it, and take from it what they\n"
    "were seen to take. No division of these plans can be predicted to take less than least_ms.\n"
    "Exit codes: 0 done; 1 a run failed, or with --within the measurement is not as predicted;\n"
    "2 bad usage or bad input.";

/* A policy that names files in it is told where it is from the root, and ends them with a `;`. */
static int name_out(profile_job *job) {
  char *path = g_canonicalize_filename(job->out, NULL);
  g_free(job->out);
  job->out = path;
  if (!strchr(path, ';')) return WEIR_EXIT_DONE;
  (void)cli_refuse(command, "out", path, "a folder without ';' in its name");
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
  if (job->plans > 1 && !status) {
    char *own = g_build_filename(job->out, "myopic.csv", NULL);
    status = profile_myopic(job, own, add_turn(job, "myopic", "", own));
  }
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

static int work(profile_job *job) {
  int code = name_out(job);
  if (code == WEIR_EXIT_DONE) code = learn(job);
  if (code == WEIR_EXIT_DONE) code = check(job);
  if (code != WEIR_EXIT_DONE) return code;
  weir_status status = profile_print(job);
  if (!status) status = profile_report(job);
  if (status) return plan_failed(command, status);
  return profile_holds(job) ? WEIR_EXIT_DONE : WEIR_EXIT_FAILED;
}

static void free_job(profile_job *job) {
  profile_free_turns(job);
  for (size_t p = 0; p < PROFILE_PLANS; p++) {
    weir_curve_free(&job->row[p].compress);
    weir_curve_free(&job->row[p].exchange);
  }
  weir_profile_free(&job->profile);
}

typedef struct profile_arguments {
  char *turn, *within, **plans, **rest;
} profile_arguments;

/* The plan of a scenario whose policy is a fixed one; NULL: its policy is another. */
static gboolean plan_of_scenario(const char *path, char **plan) {
  weir_scenario scenario;
  g_autofree char *policy = NULL;
  *plan = NULL;
  if (weir_scenario_read(&scenario, path) || weir_run_policy(scenario.policy, &policy)) {
    fprintf(stderr, "%s: %s\n", command, weir_last_error());
    return FALSE;
  }
  if (g_str_has_prefix(policy, "fixed:")) *plan = g_strdup(policy + strlen("fixed:"));
  return TRUE;
}

/* What it learns of buckets is by the order of the trainer's tensors, and of one network: divisions
 * that met different ones cannot be compared, whatever is then predicted and planned. */
static gboolean check_scenario(const char *path) {
  weir_scenario scenario;
  if (weir_scenario_read(&scenario, path)) {
    fprintf(stderr, "%s: %s\n", command, weir_last_error());
    return FALSE;
  }
  if (scenario.phase_count != 1)
    fprintf(stderr,
            "%s: %s: the network changes while it measures, so that its figures mix several; "
            "expected one phase\n",
            command, path);
  if (!*scenario.full_precision) return TRUE;
  fprintf(stderr, "%s: %s:%d: full_precision: expected none, as it changes the order of tensors\n",
          command, path, scenario.full_line);
  return FALSE;
}

static gboolean check_plans(profile_job *job, char ***plans) {
  if (!*plans) {
    char *plan;
    if (!plan_of_scenario(job->scenario, &plan)) return FALSE;
    *plans = g_new0(char *, 2);
    **plans = plan ? plan : g_strdup("topk:0.01:ag:auto-fp32");
  }
  job->plan = *plans;
  job->plans = g_strv_length(job->plan);
  if (job->plans > PROFILE_PLANS) {
    fprintf(stderr, "%s: command line: %zu times --plan; expected at most %d\n", command,
            job->plans, PROFILE_PLANS);
    return FALSE;
  }
  for (size_t p = 0; p < job->plans; p++) {
    weir_plan plan;
    if (weir_plan_parse(job->plan[p], &plan) == WEIR_OK) continue;
    fprintf(stderr, "%s: command line: --plan: %s\n", command, weir_last_error());
    return FALSE;
  }
  return TRUE;
}

static gboolean check_within(const char *text, double *share) {
  double percent = 0;
  if (!plan_numbers(text, 1, &percent) || !(percent > 0 && percent <= 100)) return FALSE;
  *share = percent / 100;
  return TRUE;
}

static gboolean check_arguments(profile_job *job, profile_arguments *a) {
  gint64 turn = 4;
  if (!cli_scenario_and_out(command, a->rest, job->out)) return FALSE;
  if (a->turn && !g_ascii_string_to_signed(a->turn, 10, 3, 1000, &turn, NULL))
    return cli_refuse(command, "turn", a->turn, "a whole number of steps from 3 to 1000");
  if (a->within && !check_within(a->within, &job->within))
    return cli_refuse(command, "within", a->within, "percent, more than 0 and at most 100");
  job->scenario = a->rest[0];
  job->turn = (int)turn;
  return check_scenario(job->scenario) && check_plans(job, &a->plans);
}

int weir_cmd_profile(int argc, char **argv) {
  profile_job job = {0};
  profile_arguments a = {0};
  const GOptionEntry entries[] = {
      cli_option_out(&job.out),
      {"plan", 'p', 0, G_OPTION_ARG_STRING_ARRAY, &a.plans,
       "CODEC:CR:COLLECTIVE[:WIRE] to send buckets as; may be repeated; default: the scenario's "
       "policy "
       "if it is a fixed one, else topk:0.01:ag:auto-fp32",
       "PLAN"},
      cli_option_network(&job.network),
      cli_option_clock(&job.clock),
      {"turn", 't', 0, G_OPTION_ARG_STRING, &a.turn, "how long a division's turn is, 3 to 1000 (4)",
       "STEPS"},
      {"within", 0, 0, G_OPTION_ARG_STRING, &a.within,
       "exit with 1 if a prediction is off by more, or the order is another than predicted",
       "PERCENT"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &job.json, "print the comparison as JSON", NULL},
      cli_option_scenario(&a.rest),
      G_OPTION_ENTRY_NULL};
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(&(cli_help){command, NULL, summary, description}, entries, &argc, &argv) &&
      check_arguments(&job, &a))
    code = work(&job);
  free_job(&job);
  cli_forget(entries);
  return code;
}

/* Running divisions in turns for `weir profile`. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/base.h"
#include "controller/table.h"
#include "lab/out.h"
#include "lab/runner.h"
#include "profile.h"

static int failed(const char *what, weir_status status) {
  fprintf(stderr, "weir profile: %s: %s\n", what, weir_last_error());
  return status == WEIR_E_INVALID ? WEIR_EXIT_USAGE : WEIR_EXIT_FAILED;
}

/* At the least: of the job's divisions, some are added only to the second run, whose third round of
 * turns has to leave a step between others of the last division. */
static weir_status check_steps(const profile_job *job, uint64_t steps) {
  const size_t divisions = PROFILE_LEARNT * job->plans + (job->plans > 1) + 2;
  const uint64_t least = (3 * divisions - 1) * (uint64_t)job->turn + 3;
  if (steps >= least) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID,
                   "%s: %" PRIu64 " steps; %zu divisions in turns of %d take %" PRIu64
                   " at the least; expected more, some 25 a division",
                   job->scenario, steps, divisions, job->turn, least);
}

/* What an older `weir profile` has left beside its two runs, which see to theirs. */
static void remove_old(const profile_job *job) {
  static const char *const names[] = {"profile.csv", "planned.csv",  "layers.csv", "myopic.csv",
                                      "report.html", "profile.json", "trace.json"};
  g_autofree char *learnt = g_build_filename(job->out, "learnt", NULL);
  g_autofree char *checked = g_build_filename(job->out, "checked", NULL);
  if (!g_file_test(learnt, G_FILE_TEST_IS_DIR)) return; /* whose they are is not known */
  for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
    g_autofree char *path = g_build_filename(job->out, names[i], NULL);
    (void)unlink(path);
  }
  for (int p = 1; p <= PROFILE_PLANS; p++)
    for (int kind = 0; kind < 2; kind++) {
      g_autofree char *path =
          g_strdup_printf("%s/%s-%d.csv", job->out, kind ? "comm" : "compress", p);
      (void)unlink(path);
    }
  weir_out_discard(checked);
}

/* Before the first of the two runs. */
static weir_status begin(const profile_job *job, const weir_run *run) {
  if (job->profile.count > 0) return WEIR_OK;
  weir_status status = weir_run_spares(run, job->out);
  if (!status) status = check_steps(job, weir_run_steps(run));
  if (!status) remove_old(job);
  return status;
}

static int run_policy(const profile_job *job, const char *policy, const char *folder) {
  const weir_run_options options = {.scenario = job->scenario,
                                    .out = folder,
                                    .policy = policy,
                                    .network = job->network,
                                    .clock = job->clock,
                                    .workers = -1,
                                    .profile = true};
  weir_run *run = NULL;
  int code = WEIR_EXIT_DONE;
  if (weir_run_prepare(&run, &options) || begin(job, run) || weir_run_open(run)) {
    fprintf(stderr, "weir profile: %s\n", weir_last_error());
    code = WEIR_EXIT_USAGE;
  } else if (weir_run_execute(run)) {
    code = failed(folder, WEIR_E_PEER);
  }
  weir_run_free(run);
  return code;
}

/* The buckets of a turn whose text names no file. */
static weir_status find_buckets(const weir_profile *profile, profile_turn *turn, size_t row) {
  weir_table_text text;
  weir_status status = weir_table_parse(turn->text, &text);
  if (status) return status;
  g_autofree size_t *offset = g_new0(size_t, profile->count + 1);
  g_autofree weir_plan_bucket *table = g_new0(weir_plan_bucket, profile->count + 1);
  for (size_t t = 0; t < profile->count; t++)
    offset[t + 1] = offset[t] + (size_t)profile->tensors[t].numel;
  const weir_layout layout = {profile->count, offset};
  status = weir_table_build(&text, &layout, NULL, table, &turn->buckets);
  if (status) return status;
  turn->bucket = g_new0(weir_solve_bucket, turn->buckets);
  for (size_t k = 0; k < turn->buckets; k++)
    turn->bucket[k] = (weir_solve_bucket){.end = table[k].end, .row = row};
  return WEIR_OK;
}

static weir_status find_all_buckets(profile_job *job) {
  weir_status status = WEIR_OK;
  for (size_t i = 0; i < job->count && !status; i++) {
    profile_turn *turn = &job->turns[i];
    size_t row = 0;
    while (row + 1 < job->plans && turn->plan != job->plan[row]) row++;
    if (!turn->bucket) status = find_buckets(&job->profile, turn, row);
  }
  return status;
}

int profile_run(profile_job *job, const char *name) {
  g_autofree char *folder = g_build_filename(job->out, name, NULL);
  g_autofree char *profile = g_build_filename(folder, "profile.csv", NULL);
  g_autoptr(GString) policy = g_string_new(NULL);
  g_string_printf(policy, "groups:turns=%d:", job->turn);
  for (size_t i = 0; i < job->count; i++)
    g_string_append_printf(policy, "%s%s", i ? ";" : "", job->turns[i].text);
  const int code = run_policy(job, policy->str, folder);
  if (code != WEIR_EXIT_DONE) return code;
  weir_status status = WEIR_OK;
  if (job->profile.count == 0) status = weir_profile_load(&job->profile, profile);
  if (!status) status = find_all_buckets(job);
  return status ? failed(folder, status) : WEIR_EXIT_DONE;
}

void profile_free_turns(profile_job *job) {
  for (size_t i = 0; i < job->count; i++) {
    profile_turn *turn = &job->turns[i];
    profile_forget(turn);
    g_free(turn->bucket);
    g_free(turn->text);
  }
  g_free(job->turns);
  job->turns = NULL;
  job->count = 0;
}

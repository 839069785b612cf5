/* What is made of the step log: medians, sums, how soon a change was answered; and rows on the
 * disk. */
#include <criterion/criterion.h>
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/compare.h"
#include "lab/run_record.h"
#include "lab/steplog.h"

/* Phase 1-2 is 1 ms and 1 Gbit/s, phase 3-4 is 10 ms and 0.1 Gbit/s; two steps an epoch, and two
 * trial steps when epoch 3 begins. */
static void fill(weir_steplog *log) {
  static const struct {
    unsigned step, epoch;
    bool trial;
    double latency_ms, gbps;
  } rows[] = {{0, 1, false, 0, 0},     {1, 1, false, 1.2, 1.0},  {2, 2, false, 1.0, 0.9},
              {3, 2, false, 1.1, 0.8}, {4, 3, true, 1.1, 0.8},   {4, 3, true, 1.1, 0.5},
              {4, 3, false, 9.0, 0.2}, {5, 3, false, 10.0, 0.1}, {6, 4, false, 10.0, 0.1},
              {7, 4, false, 10.2, 0.1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const bool late = rows[i].epoch >= 3;
    const weir_row row = {.info = {.step = rows[i].step,
                                   .trial = rows[i].trial,
                                   .latency_s = rows[i].latency_ms / 1e3,
                                   .bandwidth_bytes_s = rows[i].gbps * 125e6},
                          .epoch = rows[i].epoch,
                          .accuracy = NAN,
                          .set_latency_s = late ? 0.01 : 0.001,
                          .set_bandwidth = late ? 12.5e6 : 125e6};
    cr_assert_eq(weir_steplog_add(log, &row), WEIR_OK);
  }
}

Test(steplog, medians_of_a_phase) {
  weir_steplog log = {0};
  fill(&log);
  /* 1.2, 1.0, 1.1 known: 1.1; 1.0, 0.9, 0.8 Gbit/s: 0.9. */
  cr_assert_float_eq(weir_summary_median(&log, 1, 2, true), 0.0011, 1e-9);
  cr_assert_float_eq(weir_summary_median(&log, 1, 2, false), 112.5e6, 1);
  cr_assert_float_eq(weir_summary_median(&log, 7, 9, false), 0, 0);
  weir_steplog_free(&log);
}

/* No delay is a delay, too: told of, and near it is what software takes. */
Test(steplog, a_network_without_delay) {
  const weir_row row = {.info = {.step = 1, .plan = {.cr = 1}},
                        .epoch = 1,
                        .accuracy = NAN,
                        .loss = NAN,
                        .test_loss = NAN,
                        .set_latency_s = 0,
                        .set_bandwidth = 125e6};
  weir_steplog log = {0};
  cr_assert_eq(weir_steplog_add(&log, &row), WEIR_OK);
  char folder[] = "/tmp/weir-steplog-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  cr_assert_eq(weir_steplog_write(&log, folder), WEIR_OK, "%s", weir_last_error());
  g_autofree char *path = g_build_filename(folder, "steps.csv", NULL);
  g_autofree char *text = NULL;
  cr_assert(g_file_get_contents(path, &text, NULL, NULL));
  cr_assert(strstr(text, ",,,0,1,0.000000,"), "%s", text);
  cr_assert(strstr(text, ",0,0,0,0,,0,0,,"), "what was not predicted: %s", text);
  cr_assert_eq(unlink(path) | rmdir(folder), 0);
  static const char known[] =
      "{\"step\":1,\"trigger\":\"start\",\"latency_ms\":0.04,\"bandwidth_gbps\":1}\n";
  static const char far[] =
      "{\"step\":1,\"trigger\":\"start\",\"latency_ms\":0.06,\"bandwidth_gbps\":1}\n";
  static const char unknown[] =
      "{\"step\":1,\"trigger\":\"start\",\"latency_ms\":0,\"bandwidth_gbps\":1}\n";
  cr_assert_eq(weir_summary_answered(&log, known, 1, 1), 1);
  cr_assert_eq(weir_summary_answered(&log, far, 1, 1), -1);
  cr_assert_eq(weir_summary_answered(&log, unknown, 1, 1), -1);
  weir_steplog_free(&log);
}

Test(steplog, probes_over_a_link_that_nobody_has_set) {
  weir_steplog log = {0};
  const weir_row row = {
      .info = {.probe_bytes = 1000}, .set_bandwidth = NAN, .elapsed_s = 1, .accuracy = NAN};
  cr_assert_eq(weir_summary_probe_share(&log), 0);
  cr_assert_eq(weir_steplog_add(&log, &row), WEIR_OK);
  cr_assert(isnan(weir_summary_probe_share(&log)), "no share is known");
  weir_steplog_free(&log);
}

Test(steplog, a_change_is_answered_by_the_first_decision_that_knew) {
  weir_steplog log = {0};
  fill(&log);
  const char *blind =
      "{\"step\":4,\"trigger\":\"gain\",\"latency_ms\":1.1,\"bandwidth_gbps\":0.8}\n";
  const char *knew =
      "{\"step\":5,\"trigger\":\"periodic\",\"latency_ms\":10.5,\"bandwidth_gbps\":0.095}\n";
  const char *told =
      "{\"step\":4,\"trigger\":\"latency\",\"latency_ms\":5,\"bandwidth_gbps\":0.8}\n";
  char both[512];
  (void)snprintf(both, sizeof both, "%s%s", blind, knew);
  cr_assert_eq(weir_summary_answered(&log, "", 3, 4), -1);
  cr_assert_eq(weir_summary_answered(&log, blind, 3, 4), -1);
  /* Two trials, step 4, step 5: the fourth executed. */
  cr_assert_eq(weir_summary_answered(&log, both, 3, 4), 4);
  /* A trigger that names the change is no answer while the values are still far off. */
  cr_assert_eq(weir_summary_answered(&log, told, 3, 4), -1);
  /* Known at step 4, whose first execution was the phase's first. */
  cr_assert_eq(
      weir_summary_answered(
          &log, "{\"step\":4,\"trigger\":\"gain\",\"latency_ms\":10,\"bandwidth_gbps\":0.1}\n", 3,
          4),
      1);
  /* Nothing had changed when the run began, so a trigger alone says nothing. */
  cr_assert_eq(
      weir_summary_answered(
          &log, "{\"step\":1,\"trigger\":\"latency\",\"latency_ms\":5,\"bandwidth_gbps\":1}\n", 1,
          2),
      -1);
  cr_assert_eq(
      weir_summary_answered(
          &log, "{\"step\":2,\"trigger\":\"start\",\"latency_ms\":1.05,\"bandwidth_gbps\":0.95}\n",
          1, 2),
      3);
  /* Of another phase, or no JSON at all. */
  cr_assert_eq(weir_summary_answered(&log, knew, 1, 2), -1);
  cr_assert_eq(weir_summary_answered(&log, "rubbish\n[1]\n", 3, 4), -1);
  weir_steplog_free(&log);
}

/* Ten steps, of which two are a trial's; a tenth of a second each, a trial's a whole one. */
Test(steplog, sums_of_a_run) {
  weir_steplog log = {0};
  fill(&log);
  double elapsed_s = 0;
  for (size_t i = 0; i < log.count; i++) {
    weir_step_info *info = &log.rows[i].info;
    elapsed_s += info->trial ? 1.0 : 0.1;
    log.rows[i].elapsed_s = elapsed_s;
    log.rows[i].loss = log.rows[i].test_loss = NAN;
    info->wire_bytes = 10 + i;
    info->comm_s = 0.25;
    info->plan = (weir_plan){.codec = WEIR_CODEC_TOPK, .cr = 0.1, .id = i};
    if (info->trial) info->plan.cr = 0.5; /* no switch, neither there nor back */
    if (i >= 8) info->plan.cr = 0.01;
  }
  log.rows[3].accuracy = 0.5;
  log.rows[7].accuracy = 0.75;
  log.rows[7].test_loss = 1.5;
  const weir_scenario scenario = {.workers = 1};
  static const char weights[1][65] = {"abc"};
  const weir_summary summary = {&scenario, &log, "sim", "modelled", "weir", weights};
  char folder[] = "/tmp/weir-steplog-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  cr_assert_eq(weir_summary_write(&summary, folder), WEIR_OK, "%s", weir_last_error());
  g_autofree char *path = g_build_filename(folder, "summary.json", NULL);
  g_autofree char *text = NULL;
  cr_assert(g_file_get_contents(path, &text, NULL, NULL));
  static const struct {
    const char *name;
    double value;
  } due[] = {{"steps", 8},        {"switches", 1},          {"wire_bytes", 145},
             {"trials_s", 2},     {"elapsed_s", 2.8},       {"comm_s", 2.5},
             {"final_loss", 1.5}, {"final_accuracy", 0.75}, {"trial_share", 2 / 2.8}};
  for (size_t i = 0; i < sizeof due / sizeof *due; i++) {
    g_autofree char *key = g_strdup_printf("\"%s\" : ", due[i].name);
    const char *at = strstr(text, key);
    cr_assert(at != NULL, "no %s: %s", due[i].name, text);
    cr_expect_float_eq(strtod(at + strlen(key), NULL), due[i].value, 1e-9, "%s: %s", due[i].name,
                       at);
  }
  cr_assert_eq(unlink(path) | rmdir(folder), 0);
  weir_steplog_free(&log);
}

static weir_row numbered(size_t i) {
  return (weir_row){.info = {.step = i, .plan = {.codec = WEIR_CODEC_NONE, .cr = 1}}, .epoch = 1};
}

static void keep(weir_steplog *log, const char *folder, size_t until) {
  for (size_t i = log->count; i < until; i++) {
    const weir_row row = numbered(i);
    cr_assert_eq(weir_steplog_add(log, &row), WEIR_OK);
  }
  cr_assert_eq(weir_steplog_keep(log, folder, 5), WEIR_OK, "%s", weir_last_error());
}

/* The first rows, in their order. */
static weir_status recalled(const char *folder, uint64_t run, size_t rows) {
  weir_steplog log = {0};
  const weir_status status = weir_steplog_recall(&log, folder, run, rows);
  for (size_t i = 0; i < rows && status == WEIR_OK; i++)
    cr_assert_eq(log.rows[i].info.step, i, "row %zu", i);
  weir_steplog_free(&log);
  return status;
}

/* What was written behind the rows that count goes: by an attempt that failed, or by a run that was
 * killed after its last checkpoint. */
/* A scenario's name is bytes: what is written of it can be read. */
Test(steplog, a_name_that_is_no_text) {
  char folder[] = "/tmp/weir-steplog-XXXXXX", name[] = "caf\xe9.ini", word[] = "weir";
  cr_assert_not_null(mkdtemp(folder));
  weir_steplog log = {0};
  fill(&log);
  const weir_scenario scenario = {.name = "caf\xe9.ini", .workers = 1};
  const char digests[1][65] = {"0"};
  const weir_summary summary = {&scenario, &log, "sim", "modelled", "weir", digests};
  cr_assert_eq(weir_summary_write(&summary, folder), WEIR_OK, "%s", weir_last_error());
  weir_steplog_free(&log);
  weir_run_record record = {.run = 7,
                            .scenario = name,
                            .scenario_sha256 = word,
                            .policy = word,
                            .risk = word,
                            .network = word,
                            .clock = word,
                            .workers = 1};
  weir_run_record again;
  cr_assert_eq(weir_run_record_write(&record, folder), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_run_record_read(&again, folder), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(again.scenario, "caf\xEF\xBF\xBD.ini");
  weir_run_record_free(&again);
  g_autofree char *path = g_build_filename(folder, "summary.json", NULL), *text = NULL;
  g_autofree char *beside = g_build_filename(folder, ".weir-run.json", NULL);
  cr_assert(g_file_get_contents(path, &text, NULL, NULL));
  cr_assert(g_utf8_validate(text, -1, NULL), "%s", text);
  cr_assert_eq(unlink(path) | unlink(beside) | rmdir(folder), 0);
}

Test(steplog, rows_on_the_disk_come_back) {
  char folder[] = "/tmp/weir-steplog-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  g_autofree char *path = g_build_filename(folder, WEIR_STEPLOG_KEPT, NULL);
  weir_steplog log = {0}, again = {0};
  keep(&log, folder, 3);
  FILE *file = fopen(path, "ab");
  cr_assert(file && fputs("a part of a row", file) >= 0 && !fclose(file));
  keep(&log, folder, 5);
  cr_assert_eq(recalled(folder, 5, 5), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(recalled(folder, 5, 2), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(recalled(folder, 5, 6), WEIR_E_PARSE);
  cr_assert_eq(recalled(folder, 6, 5), WEIR_E_PARSE, "of another run");
  cr_assert_eq(weir_steplog_recall(&again, folder, 5, 2), WEIR_OK);
  keep(&again, folder, 4);
  cr_assert_eq(recalled(folder, 5, 4), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(truncate(path, 24 + 3 * (off_t)(sizeof(weir_row) + 8) + 9), 0);
  cr_assert_eq(recalled(folder, 5, 3), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(recalled(folder, 5, 4), WEIR_E_PARSE, "half of a row");
  file = fopen(path, "r+b"); /* a byte of the second row becomes another one */
  cr_assert(file &&
            !fseek(file, 24 + (long)(sizeof(weir_row) + 8 + offsetof(weir_row, loss)), SEEK_SET));
  cr_assert(fputc(0x40, file) != EOF && !fclose(file));
  cr_assert_eq(recalled(folder, 5, 1), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(recalled(folder, 5, 2), WEIR_E_PARSE, "a row is damaged");
  cr_assert_eq(unlink(path) | rmdir(folder), 0);
  weir_steplog_free(&log);
  weir_steplog_free(&again);
}

static void give(weir_compared *run, double final, double elapsed, double at, double accuracy) {
  run->state = WEIR_COMPARED_DONE;
  run->final_accuracy = final;
  run->elapsed_s = elapsed;
  run->accuracy = calloc(2, sizeof *run->accuracy);
  run->accuracy[0][0] = at;
  run->accuracy[0][2] = accuracy;
  run->accuracy[1][0] = elapsed;
  run->accuracy[1][2] = final;
  run->accuracies = 2;
}

Test(compare, target_is_a_point_less_than_dense_and_time_is_its_first_evaluation) {
  char dense[] = "none:1:dense-ring", star[] = "star:0.1:art-ring", weir[] = "weir";
  char *policies[] = {dense, star, weir, NULL};
  const uint64_t seed = 3;
  weir_comparison c;
  weir_comparison_plan(&c, policies, &seed, 1);
  cr_assert_eq(c.count, 3);
  cr_assert_str_eq(c.runs[1].folder, "star-0.1-art-ring");
  give(&c.runs[0], 0.85, 100, 60, 0.845);
  give(&c.runs[1], 0.835, 50, 20, 0.80);
  give(&c.runs[2], 0.86, 40, 15, 0.83);
  weir_comparison_judge(&c, NAN);
  cr_assert_float_eq(c.target, 0.84, 1e-12);
  cr_assert_float_eq(c.runs[0].time_to_accuracy_s, 60, 0);
  cr_assert(isnan(c.runs[1].time_to_accuracy_s)); /* never there */
  cr_assert_float_eq(c.runs[2].time_to_accuracy_s, 40, 0);
  weir_comparison_judge(&c, 0.83);
  cr_assert_float_eq(c.runs[1].time_to_accuracy_s, 50, 0);
  cr_assert_float_eq(c.runs[2].time_to_accuracy_s, 15, 0);
  c.runs[0].state = WEIR_COMPARED_FAILED; /* without dense, the best run's final accuracy counts */
  weir_comparison_judge(&c, NAN);
  cr_assert_float_eq(c.target, 0.85, 1e-12);
  weir_comparison_free(&c);
}

/* A policy may name many files; its folder's name is no longer than file systems take. */
Test(steplog, folders_of_long_policies) {
  g_autofree char *long_one = g_strnfill(300, 'a'), *like_it = g_strnfill(301, 'a');
  char *policies[] = {"groups:~/a@b (1)/t.csv", long_one, like_it, NULL};
  const uint64_t seeds[] = {1, 2};
  weir_comparison c;
  weir_comparison_plan(&c, policies, seeds, 2);
  cr_assert_eq(c.count, 6);
  cr_assert_str_eq(c.runs[1].folder, "groups-~-a@b (1)-t.csv-seed2");
  cr_assert_leq(strlen(c.runs[3].folder), 120);
  for (size_t i = 0; i < c.count; i++)
    for (size_t j = 0; j < i; j++) cr_assert_str_neq(c.runs[i].folder, c.runs[j].folder);
  weir_comparison_free(&c);
}

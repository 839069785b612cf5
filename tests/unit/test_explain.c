/* Reasons told from a run's files: a run by hand, whose times, losses and regret are worked out
 * here. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "lab/explain.h"

static char directory[64];

static FILE *open_file(const char *name) {
  char path[128];
  (void)snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *f = fopen(path, "w");
  cr_assert(f);
  return f;
}

#define CANDIDATE(plan, rate) "{\"plan\":\"" plan "\",\"progress_per_s\":" #rate "}"

/* Three decisions of one plan, the second when the latency had moved; then a trial that is
 * taken. */
static void write_decisions(void) {
  FILE *f = open_file("decisions.jsonl");
  fputs(
      "{\"step\":3,\"epoch\":1,\"trigger\":\"start\",\"latency_ms\":1,\"bandwidth_gbps\":0.1,"
      "\"compute_ms\":10,\"predicted_ms\":50,\"switched\":true,\"why\":\"100.0 % more "
      "progress/s expected\",\"candidates\":[" CANDIDATE("bf16:1:dense-ring", 10) "," CANDIDATE(
          "qsgd:0.25:sra", 20) "],\"choice\":" CANDIDATE("qsgd:0.25:sra", 20) "}\n",
      f);
  fputs(
      "{\"step\":13,\"epoch\":1,\"trigger\":\"latency\",\"latency_ms\":50,\"bandwidth_gbps\":0.1,"
      "\"predicted_ms\":200,\"switched\":false,\"why\":\"kept\",\"candidates\":[" CANDIDATE(
          "qsgd:0.25:ag", 6) "],\"choice\":" CANDIDATE("qsgd:0.25:sra", 5) "}\n",
      f);
  fputs("{\"step\":23,\"epoch\":1,\"trigger\":\"trial\",\"latency_ms\":50,\"bandwidth_gbps\":0.1,"
        "\"predicted_ms\":250,\"switched\":false,\"why\":\"qsgd:0.0625:sra is behind: wait\","
        "\"candidates\":[" CANDIDATE("qsgd:0.25:ag", 5) "],\"choice\":" CANDIDATE(
            "qsgd:0.25:sra", 4) ",\"trial\":{\"spent_s\":0.2,\"elapsed_s\":10,\"plan\":"
                                "\"qsgd:0.0625:sra\",\"again\":false,\"progress\":0.9,\"low\":-0.5,"
                                "\"high\":1.2,\"verdict\":\"more\",\"samples\":[0.8,0.9,1.0]}}\n",
        f);
  fputs("{\"step\":33,\"epoch\":1,\"trigger\":\"trial\",\"latency_ms\":50,\"bandwidth_gbps\":0.1,"
        "\"predicted_ms\":100,\"switched\":true,\"why\":\"150.0 % more progress/s expected\","
        "\"candidates\":[" CANDIDATE("qsgd:0.0625:sra", 10) "],\"choice\":" CANDIDATE(
            "qsgd:0.0625:sra", 10) ",\"trial\":{\"spent_s\":0.4,\"elapsed_s\":20,\"plan\":"
                                   "\"qsgd:0.0625:sra\",\"again\":false,\"progress\":1.01,"
                                   "\"low\":0.96,\"high\":1.1,\"verdict\":\"holds\",\"samples\":"
                                   "[0.8,0.9,1.0,1.1,1.1,1.16]}}\n",
        f);
  fclose(f);
}

/* 40 ms + 10 ms a step up to step 13, 250 ms up to 33, then 100 ms; one trial's step among them. */
static void write_steps(void) {
  FILE *f = open_file("steps.csv");
  fputs(
      "step,epoch,trial,plan,codec,cr,collective,compute_ms,compress_ms,comm_ms,overhead_ms,"
      "predicted_comm_ms,wire_bytes,gain,loss,latency_ms,bandwidth_gbps,set_latency_ms,"
      "set_bandwidth_gbps,elapsed_s,accuracy,goodput_gbps,test_loss\n",
      f);
  double elapsed = 0;
  for (int step = 0; step <= 43; step++) {
    const double comm = step <= 13 ? 30 : step <= 33 ? 230 : 80;
    elapsed += (20 + comm) / 1e3;
    fprintf(f, "%d,1,0,p,qsgd,0.25,sra,10,10,%g,0,,1000,1,", step, comm);
    if (step != 4 && step != 13) fprintf(f, "%g", 5 - 0.05 * step); /* two with the same mean */
    fprintf(f, ",1,0.1,1,0.1,%g,,,\n", elapsed);
    if (step == 20)
      fprintf(f, "20,1,1,p,qsgd,0.0625,sra,10,10,9000,0,,1000,1,99,1,0.1,1,0.1,%g,,,\n", elapsed);
  }
  fclose(f);
}

static void set_up(void) {
  (void)strcpy(directory, "/tmp/weir-explain-XXXXXX");
  cr_assert(mkdtemp(directory));
  write_decisions();
  write_steps();
}

static void remove_file(const char *name) {
  char path[128];
  (void)snprintf(path, sizeof path, "%s/%s", directory, name);
  (void)unlink(path);
}

static void tear_down(void) {
  remove_file("decisions.jsonl");
  remove_file("steps.csv");
  remove_file("summary.json");
  (void)rmdir(directory);
}

TestSuite(explain, .init = set_up, .fini = tear_down);

static GPtrArray *told(weir_report_data *data) {
  cr_assert_eq(weir_explain_read(data, directory), WEIR_OK, "%s", weir_last_error());
  return weir_explain(data);
}

static void says(const char *text, const char *what) {
  cr_assert(strstr(text, what), "'%s' is not in '%s'", what, text);
}

/* Steps 4 to 13 took 50 ms, as believed.  14 to 23 took 250 ms, for 5 * 200 / 250 = 4 of the 6 that
 * ag promised: 2500 ms * (1 - 4/6) lost.  24 to 33: 4 of 5, 500 ms lost.  In all 1333 of 5500 ms,
 * which is 32 % of the other 4167. */
Test(explain, a_switch_is_told_with_what_came_of_it) {
  weir_report_data data;
  g_autoptr(GPtrArray) reasons = told(&data);
  cr_assert_eq(reasons->len, 3);
  const weir_reason *r = reasons->pdata[0];
  cr_assert_eq(r->step, 3);
  cr_assert(r->switched);
  says(r->title, "from the plan that the run began with to qsgd:0.25:sra");
  says(r->measured,
       "This was the first decision. The network was at 1 ms one way and 0.1 Gbit/s, "
       "computing took 10 ms of a step.");
  cr_assert_str_eq(r->tried, "Nothing was tried for it.");
  says(r->believed,
       "100.0 % more progress/s expected. A step under qsgd:0.25:sra was believed to "
       "take 50 ms. Of 2 candidates the next best was bf16:1:dense-ring, with 0.5 "
       "times as much progress per second.");
  says(r->came, "30 steps, until the next switch, took 183 ms each, 10.0 % more than was believed");
  says(r->came, "went from 4.575 to 3.575");
  says(r->came,
       "Regret: 32.0 % more time than the best other candidate was believed to need, for the most "
       "part since step 13, when qsgd:0.25:ag");
  cr_assert_float_eq(r->regret, 0.32, 1e-9);
  weir_report_data_free(&data);
}

Test(explain, trials_are_told_with_their_verdict) {
  weir_report_data data;
  g_autoptr(GPtrArray) reasons = told(&data);
  const weir_reason *kept = reasons->pdata[1], *taken = reasons->pdata[2];
  cr_assert_not(kept->switched);
  cr_assert_str_eq(kept->title, "qsgd:0.0625:sra was tried, and qsgd:0.25:sra stayed");
  says(kept->tried,
       "3 samples say that it makes 0.90 of the progress (between -0.50 and 1.20), "
       "which is not sure yet. Trials had taken 2.0 % of the time until then.");
  says(kept->believed, "qsgd:0.0625:sra is behind: wait. A step"); /* no capital */
  cr_assert_str_eq(kept->came, "");
  cr_assert(isnan(kept->regret));
  says(taken->title, "from qsgd:0.25:sra to qsgd:0.0625:sra");
  says(taken->tried,
       "6 samples say that it makes 1.01 of the progress (between 0.96 and 1.10), so "
       "it holds the loss.");
  says(taken->came, "10 steps, to the end, took 100 ms each, 0.0 % more");
  says(taken->came, "Regret: none; no candidate");
  cr_assert_eq(taken->regret, 0.0);
  g_autofree char *whole = weir_explain_whole(&data, reasons);
  cr_assert_str_eq(whole,
                   "4 decisions, 2 of them switched the plan; 2 rounds of trials, which had "
                   "taken 2.0 % of the time by the last.");
  data.decision_count--;
  g_autofree char *before = weir_explain_whole(&data, reasons);
  says(before, "; 1 round of trials, which");
  data.decision_count++;
  weir_report_data_free(&data);
}

Test(explain, without_steps_what_came_is_not_known) {
  remove_file("steps.csv");
  weir_report_data data;
  g_autoptr(GPtrArray) reasons = told(&data);
  const weir_reason *r = reasons->pdata[0];
  says(r->came, "no steps.csv");
  cr_assert(isnan(r->regret));
  weir_report_data_free(&data);
}

/* A decision as the journal has it, of `groups` buckets; what it is about in `more`. */
#define DECISION(step, trigger, network, groups, switched, more)                          \
  "{\"step\":" #step ",\"epoch\":1,\"trigger\":\"" trigger "\",\"latency_ms\":1," network \
  ",\"predicted_ms\":50,\"groups\":" #groups ",\"switched\":" #switched more              \
  ",\"choice\":" CANDIDATE("qsgd:0.25:sra", 5) "}\n"
#define NETWORK(bandwidth, goodput) "\"bandwidth_gbps\":" #bandwidth ",\"goodput_gbps\":" #goodput

/* What messages get of a link may move where its bandwidth stays; a plan that is kept may be
 * divided anew; and a method may be given up without a trial. */
Test(explain, what_moved_is_named_and_buckets_are_told) {
  FILE *f = open_file("decisions.jsonl");
  fputs(DECISION(3, "start", NETWORK(0.5, 0.5), 4, false, "")
            DECISION(13, "bandwidth", NETWORK(0.5, 0.08), 4, true, "") DECISION(
                15, "bandwidth", NETWORK(0.1, 0.08), 0, false, "")
                DECISION(23, "trial", NETWORK(0.1, 0.1), 0, true, "") DECISION(
                    33, "periodic", NETWORK(0.1, 0.1), 0, false, ",\"bits\":{\"changed\":false}")
                    DECISION(43, "periodic", NETWORK(0.1, 0.1), 0, false,
                             ",\"bits\":{\"changed\":true}"),
        f);
  fclose(f);
  weir_report_data data;
  g_autoptr(GPtrArray) reasons = told(&data);
  cr_assert_eq(reasons->len, 5); /* the last: widths of policy bits have changed */
  const weir_reason *start = reasons->pdata[0], *lossy = reasons->pdata[1];
  const weir_reason *link = reasons->pdata[2], *given_up = reasons->pdata[3];
  cr_assert_str_eq(start->title, "from the plan that the run began with to qsgd:0.25:sra/4");
  says(lossy->measured,
       "The part of the bandwidth that messages get had moved from 0.5 to 0.08 Gbit/s. The network "
       "was at 1 ms one way and 0.5 Gbit/s, of which messages got 0.08.");
  says(lossy->came, "2 steps, until the next switch");
  says(lossy->came, "the loss of rank 0 was 4.");
  says(link->measured, "The bandwidth had moved from 0.5 to 0.1 Gbit/s.");
  cr_assert_str_eq(link->title, "from qsgd:0.25:sra/4 to qsgd:0.25:sra");
  cr_assert(link->switched);
  says(given_up->measured,
       "of which none had just ended (why: below). The network was at 1 ms one "
       "way and 0.1 Gbit/s.");
  g_autofree char *whole = weir_explain_whole(&data, reasons);
  cr_assert_str_eq(whole, "6 decisions, 5 of them switched the plan; 0 rounds of trials.");
  weir_report_data_free(&data);
}

/* The share of trials is that of the whole run, where there is a summary. */
Test(explain, the_share_of_trials_is_the_summarys) {
  FILE *f = open_file("summary.json");
  fputs(
      "{\"network\":\"sim\",\"policy\":\"weir\",\"workers\":2,\"elapsed_s\":40,\"comm_s\":1,"
      "\"switches\":2,\"trial_share\":0.01,\"weights_sha256\":[],\"phases\":[],"
      "\"accuracy\":[]}",
      f);
  fclose(f);
  weir_report_data data;
  g_autoptr(GPtrArray) reasons = told(&data);
  g_autofree char *whole = weir_explain_whole(&data, reasons);
  says(whole, "2 rounds of trials, which took 1.0 % of the time.");
  weir_report_data_free(&data);
}

static void refused(const char *line, const char *what) {
  FILE *f = open_file("decisions.jsonl");
  fputs(line, f);
  fclose(f);
  weir_report_data data;
  cr_assert_eq(weir_explain_read(&data, directory), WEIR_E_PARSE, "%s", line);
  says(weir_last_error(), what);
}

#define LINE(trial)                                                      \
  "{\"step\":1,\"epoch\":1,\"trigger\":\"trial\",\"choice\":" CANDIDATE( \
      "none:1:dense-ring", 1) ",\"trial\":" trial "}\n"

Test(explain, damaged_trials_are_refused) {
  refused(LINE("3"), "decisions.jsonl:1: 'trial' must be an object");
  refused(LINE("{}"), "'spent_s' is missing");
  refused(LINE("{\"spent_s\":1,\"elapsed_s\":2,\"plan\":\"zip\"}"), "'verdict' is missing");
  refused(LINE("{\"spent_s\":1,\"elapsed_s\":2,\"plan\":\"zip\",\"verdict\":\"more\"}"),
          "'zip' is no plan");
  refused(
      LINE("{\"spent_s\":1,\"elapsed_s\":2,\"plan\":\"none:1:dense-ring\",\"verdict\":\"may\"}"),
      "'verdict' must be");
  refused(LINE("{\"spent_s\":1,\"elapsed_s\":2,\"plan\":\"none:1:dense-ring\",\"verdict\":\"more\","
               "\"samples\":[],\"progress\":\"x\"}"),
          "'progress' must be a number");
}

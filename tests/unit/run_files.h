/* Makes the files of a believable run of 4 workers over four phases (as C1), for the report's
 * tests.  Deterministic. */
#ifndef WEIR_TESTS_RUN_FILES_H
#define WEIR_TESTS_RUN_FILES_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/plan.h>

#include "base/base.h"

enum { RUN_STEPS = 400, RUN_DECISIONS = 7 };

typedef struct run_plan {
  const char *text;
  double compress_ms, comm_ms, bytes, gain;
} run_plan;

static const struct {
  double latency, bandwidth;
} run_phase[4] = {{1, 2.5}, {1, 0.1}, {50, 0.1}, {50, 2.5}};

/* What each decision chose, at which step, why. */
static const struct {
  int step;
  const char *trigger;
  bool switched;
  run_plan plan;
} run_decision[] = {{0, "start", true, {"bf16:1:dense-ring", 2, 16, 3.2e6, 1}},
                    {60, "periodic", false, {"bf16:1:dense-ring", 2, 16, 3.2e6, 1}},
                    {103, "bandwidth", true, {"topk:0.03:ag:auto-bf16", 6, 13, 1.6e5, 0.25}},
                    {150, "gain", true, {"topk:0.1:ag:auto-bf16", 7, 28, 4.1e5, 0.6}},
                    {204, "latency", true, {"topk:0.01:ag:auto-bf16", 5, 110, 6e4, 0.09}},
                    {302, "bandwidth", true, {"star:0.1:art-tree:auto-bf16", 6, 160, 4e5, 0.41}},
                    {340, "periodic", true, {"topk:0.03:ag:auto-bf16", 6, 105, 1.6e5, 0.25}}};

static FILE *run_open(const char *directory, const char *name) {
  char path[256];
  (void)snprintf(path, sizeof path, "%s/%s", directory, name);
  return fopen(path, "w");
}

static double run_accuracy(int step) { return 0.873 - 0.55 * exp(-step / 45.0); }

static void run_candidate(FILE *f, const char *text, double compress, double comm, double gain) {
  weir_plan plan;
  char collective[WEIR_COLLECTIVE_TEXT_MAX];
  if (weir_plan_parse(text, &plan)) abort();
  weir_plan_collective(&plan, collective);
  fprintf(f,
          "{\"plan\":\"%s\",\"codec\":\"%s\",\"cr\":%g,\"collective\":\"%s\",\"wire\":\"%s\","
          "\"t_comp_ms\":%.3f,\"t_comm_ms\":%.3f,\"gain\":%.4f,\"progress_per_s\":%.4f}",
          text, weir_codec_name(plan.codec), plan.cr, collective, weir_wire_name(plan.wire),
          compress, comm, gain, pow(gain, 0.3) / (0.003 * (12 + compress + comm)));
}

static void run_write_decisions(const char *directory) {
  FILE *f = run_open(directory, "decisions.jsonl");
  for (int d = 0; d < RUN_DECISIONS; d++) {
    const int step = run_decision[d].step, phase = step / 100;
    const run_plan *p = &run_decision[d].plan;
    fprintf(f,
            "{\"decision\":%d,\"step\":%d,\"epoch\":%d,\"policy\":\"weir\",\"trigger\":\"%s\","
            "\"latency_ms\":%.3f,\"bandwidth_gbps\":%.4f,\"latency_error\":0.02,"
            "\"bandwidth_error\":0.03,\"workers\":4,\"elements\":1068810,\"compute_ms\":11.2,"
            "\"candidates\":[",
            d, step, step / 25, run_decision[d].trigger, run_phase[phase].latency * 1.02,
            run_phase[phase].bandwidth * 0.98);
    for (int c = 0; c < 16; c++) {
      char text[64];
      const double cr = pow(10, -c / 5.0);
      (void)snprintf(text, sizeof text, "%s:%.4g:%s", c % 2 ? "star" : "topk", cr * 0.99,
                     c % 2 ? "art-ring" : "ag");
      run_candidate(f, text, 3 + 9 * cr, 6 + p->comm_ms * (0.3 + 9 * cr), pow(cr, 0.4));
      fputs(",", f);
    }
    run_candidate(f, p->text, p->compress_ms, p->comm_ms, p->gain);
    fprintf(f, "],\"front\":[2,4,6,16],\"choice\":");
    run_candidate(f, p->text, p->compress_ms, p->comm_ms, p->gain);
    fprintf(f, ",\"plan_id\":%d,\"predicted_ms\":%.3f,\"switched\":%s,\"why\":\"%s\"}\n", d,
            12 + p->compress_ms + p->comm_ms, run_decision[d].switched ? "true" : "false",
            run_decision[d].switched
                ? "most progress per second on the front; 1.8 times the plan in force"
                : "the best is within 5 % of the plan in force & <not worth a switch>");
  }
  fclose(f);
}

static double run_write_steps(const char *directory) {
  FILE *f = run_open(directory, "steps.csv");
  fputs(
      "step,epoch,trial,plan,codec,cr,collective,compute_ms,compress_ms,comm_ms,overhead_ms,"
      "predicted_comm_ms,wire_bytes,gain,loss,latency_ms,bandwidth_gbps,set_latency_ms,"
      "set_bandwidth_gbps,elapsed_s,accuracy,goodput_gbps\n",
      f);
  weir_rng rng = weir_rng_of(42);
  double elapsed = 0;
  int d = 0;
  for (int step = 0; step < RUN_STEPS; step++) {
    if (d + 1 < RUN_DECISIONS && step > run_decision[d + 1].step) d++;
    const int phase = step / 100, late = step % 100 < 3 && phase ? phase - 1 : phase;
    const int trial = step == 30 || step == 31;
    const run_plan *p = &run_decision[d].plan;
    weir_plan plan;
    char collective[WEIR_COLLECTIVE_TEXT_MAX];
    if (weir_plan_parse(trial ? "mstopk:0.011:ag" : p->text, &plan)) abort();
    weir_plan_collective(&plan, collective);
    const double noise = exp(0.06 * weir_rng_normal(&rng));
    const double comm = p->comm_ms * noise * (late == phase ? 1 : 7);
    const double overhead = step % 97 == 0 ? 60 : 0.3;
    elapsed += (11.5 * noise + p->compress_ms + comm + overhead) / 1e3;
    fprintf(f, "%d,%d,%d,%d,%s,%.6g,%s,%.4f,%.4f,%.4f,%.4f,", trial ? 30 : step, step / 25, trial,
            d, weir_codec_name(plan.codec), plan.cr, collective, 11.5 * noise,
            p->compress_ms * noise, comm, overhead);
    if (step > 2) fprintf(f, "%.4f", p->comm_ms * 1.04);
    fprintf(f, ",%.0f,%.4f,%.5f,", p->bytes * noise, p->gain,
            0.35 + 2 * exp(-step / 40.0) + 0.05 * weir_rng_normal(&rng));
    if (step > 2)
      fprintf(f, "%.4f,%.5f", run_phase[late].latency * (1 + 0.02 * weir_rng_normal(&rng)),
              run_phase[late].bandwidth * (0.98 + 0.02 * weir_rng_normal(&rng)));
    else
      fputc(',', f);
    fprintf(f, ",%g,%g,%.5f,", run_phase[phase].latency, run_phase[phase].bandwidth, elapsed);
    if (step % 20 == 19) fprintf(f, "%.4f", run_accuracy(step));
    fputc(',', f);
    if (step > 2) fprintf(f, "%.5f", run_phase[late].bandwidth);
    fputc('\n', f);
  }
  fclose(f);
  return elapsed;
}

static void run_write_summary(const char *directory, double elapsed) {
  FILE *f = run_open(directory, "summary.json");
  fprintf(
      f,
      "{\"workers\":4,\"network\":\"uml\",\"policy\":\"weir\",\"scenario\":\"scenarios/"
      "demo.ini\",\"final_accuracy\":%.4f,\"elapsed_s\":%.3f,\"comm_s\":%.3f,\"compress_s\":2.1,"
      "\"compute_s\":4.7,\"overhead_s\":0.4,\"switches\":6,\"wire_bytes\":412000000,"
      "\"steps\":398,\"seed\":1,\"weights_sha256\":[\"ab\",\"ab\",\"ab\",\"ab\"],\"accuracy\":[",
      run_accuracy(399), elapsed, elapsed * 0.7);
  for (int i = 19; i < RUN_STEPS; i += 20)
    fprintf(f, "%s[%.3f,%d,%.4f]", i > 19 ? "," : "", elapsed * i / 399, i, run_accuracy(i));
  fputs("],\"phases\":[", f);
  for (int p = 0; p < 4; p++)
    fprintf(f,
            "%s{\"first_epoch\":%d,\"last_epoch\":%d,\"set_latency_ms\":%g,"
            "\"set_bandwidth_gbps\":%g,\"measured_latency_ms\":%g,"
            "\"measured_bandwidth_gbps\":%g,\"answered_in_steps\":%d}",
            p ? "," : "", 4 * p, 4 * p + 3, run_phase[p].latency, run_phase[p].bandwidth,
            run_phase[p].latency * 1.02, run_phase[p].bandwidth * 0.98, p ? 2 + p : 0);
  fputs("]}\n", f);
  fclose(f);
}

static void run_write(const char *directory) {
  run_write_decisions(directory);
  run_write_summary(directory, run_write_steps(directory));
}

static void compare_write(const char *directory) {
  static const struct {
    const char *policy;
    double pace, final;
  } arm[] = {{"weir", 21, 0.871},
             {"paper", 34, 0.868},
             {"none:1:dense-ring", 88, 0.873},
             {"none:1:dense-tree", 97, 0.873},
             {"lwtopk:0.1:ag", 47, 0.868},
             {"lwtopk:0.001:ag", 40, 0.845},
             {"mstopk:0.01:ag", 30, 0.862},
             {"star:0.1:art-ring", 62, 0.864},
             {"star:0.01:art-tree", 55, 0.853}};
  FILE *f = run_open(directory, "compare.json");
  fputs("{\"target_accuracy\":0.8630,\"runs\":[", f);
  for (size_t i = 0; i < 9; i++) {
    const double reach = arm[i].final - 0.006 > 0.863 ? arm[i].pace * 0.86 : -1;
    fprintf(f,
            "%s{\"policy\":\"%s\",\"seed\":1,\"status\":\"done\",\"folder\":\"run "
            "%zu\",\"final_accuracy\":%.4f,"
            "\"elapsed_s\":%.2f,\"comm_s\":%.2f,\"wire_bytes\":%.0f,\"time_to_accuracy_s\":",
            i ? "," : "", arm[i].policy, i, arm[i].final, arm[i].pace, arm[i].pace * 0.6,
            arm[i].pace * 9e6);
    if (reach > 0)
      fprintf(f, "%.2f", reach);
    else
      fputs("null", f);
    fputs(",\"accuracy\":[", f);
    for (int s = 20; s <= RUN_STEPS; s += 20)
      fprintf(f, "%s[%.3f,%d,%.4f]", s > 20 ? "," : "", arm[i].pace * s / RUN_STEPS, s,
              arm[i].final - 0.5 * exp(-s / 55.0));
    fputs("]}", f);
  }
  fputs("]}\n", f);
  fclose(f);
}

#endif

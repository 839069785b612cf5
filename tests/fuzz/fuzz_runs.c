/* libFuzzer: what runs leave, as commands read it.  The first byte says which file of a folder the
 * rest is: the decisions, the steps, the summary, a comparison, an emulation, or what a run goes on
 * by; or that it is changes to what a decision was made of (fuzz_runs_decision.c).  Beside the
 * first three lie sound files, so that pages and sentences are made of whatever is believed. */
#include <glib.h>
#include <glib/gstdio.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "changes.h"
#include "cli.h"
#include "demand.h"
#include "lab/explain.h"
#include "lab/report.h"
#include "lab/run_record.h"
#include "lab/steplog.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char sound_summary[] =
    "{\"scenario\":\"s\",\"workers\":2,\"network\":\"sim\",\"clock\":\"modelled\",\"policy\":"
    "\"weir\","
    "\"seed\":1,\"final_accuracy\":0.5,\"elapsed_s\":2,\"comm_s\":1,\"compress_s\":0.1,\"compute_"
    "s\":"
    "0.5,\"overhead_s\":0,\"trials_s\":0,\"trial_share\":0,\"switches\":1,\"wire_bytes\":10,"
    "\"steps\":"
    "2,\"weights_sha256\":[\"a\",\"a\"],\"accuracy\":[[1,1,0.5]],\"phases\":[{\"name\":\"p\","
    "\"first_epoch\":1,\"last_epoch\":2,\"set_latency_ms\":1,\"set_bandwidth_gbps\":1,"
    "\"measured_latency_ms\":1,\"measured_bandwidth_gbps\":null,\"measured_goodput_gbps\":1,"
    "\"answered_in_steps\":1}]}\n";
static const char sound_steps[] =
    "step,epoch,trial,plan,codec,cr,collective,compute_ms,compress_ms,comm_ms,overhead_ms,"
    "predicted_comm_ms,wire_bytes,gain,loss,latency_ms,bandwidth_gbps,set_latency_ms,"
    "set_bandwidth_gbps,elapsed_s,accuracy,goodput_gbps,test_loss\n"
    "0,1,0,none:1:dense-ring,none,1,dense-ring,1,1,9,0,9,500,1,2.3,1,1,1,1,0.5,,1,\n"
    "1,2,0,topk:0.01:ag-bruck,topk,0.01,ag-bruck,1,1,3,0,3,50,0.5,2.1,1,1,1,1,1,0.5,1,2.2\n";
static const char sound_decisions[] =
    "{\"step\":0,\"epoch\":1,\"trigger\":\"start\",\"why\":\"fp32: as usual\",\"switched\":true,"
    "\"latency_ms\":1,\"bandwidth_gbps\":1,\"compute_ms\":1,\"predicted_ms\":10,\"choice\":{"
    "\"plan\":"
    "\"topk:0.01:ag-bruck\",\"progress_per_s\":2},\"candidates\":[{\"plan\":\"none:1:dense-ring\","
    "\"progress_per_s\":1}],\"front\":[0]}\n";

static const char *const files[] = {"decisions.jsonl", "steps.csv",    "summary.json",
                                    "compare.json",    "emulate.json", ".weir-run.json",
                                    ".weir-steps.log"};
enum { DECISIONS, STEPS, SUMMARY, COMPARISON, EMULATION, RECORD, KEPT, FILES };
/* As the first byte names them. */
static const char kinds[] = "dsScerk";
static char folder[] = "/tmp/weir-fuzz-runs-XXXXXX";

static char *path_of(const char *name) { return g_build_filename(folder, name, NULL); }

static void write_file(int which, const void *data, size_t size) {
  g_autofree char *path = path_of(files[which]);
  FILE *file = fopen(path, "we");
  demand(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0, "no file");
}

static void sweep(void) {
  static const char *const others[] = {"report.html", "steps.csv"};
  for (int i = 0; i < FILES; i++) {
    g_autofree char *path = path_of(files[i]);
    (void)unlink(path);
  }
  for (size_t i = 0; i < G_N_ELEMENTS(others); i++) {
    g_autofree char *path = path_of(others[i]);
    (void)unlink(path);
  }
}

static void leave(void) {
  sweep();
  (void)rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  demand(mkdtemp(folder) != NULL && atexit(leave) == 0, "no folder");
  return 0;
}

/* --- each ------------------------------------------------------------------------------------- */

/* What is refused is refused with the file's name. */
static void judged(weir_status status, int which) {
  if (status) demand(strstr(weir_last_error(), files[which]) != NULL, "an error without its file");
}

static void replay(void) {
  char *whole[] = {"weir replay", "--json", folder, NULL};
  char *table[] = {"weir replay", folder, NULL};
  (void)weir_cmd_replay(3, whole);
  (void)weir_cmd_replay(2, table);
}

static void explain(int which) {
  weir_report_data data;
  const weir_status status = weir_explain_read(&data, folder);
  judged(status, which);
  if (status) return;
  GPtrArray *reasons = weir_explain(&data);
  char *whole = weir_explain_whole(&data, reasons);
  demand(g_utf8_validate(whole, -1, NULL), "a sentence that is no text");
  for (guint i = 0; i < reasons->len; i++) {
    const weir_reason *r = reasons->pdata[i];
    demand(!(r->regret < 0), "a regret below zero");
    demand(g_utf8_validate(r->title, -1, NULL) && g_utf8_validate(r->believed, -1, NULL),
           "no text");
  }
  g_free(whole);
  g_ptr_array_unref(reasons);
  weir_report_data_free(&data);
}

/* A page is one text; what was between angle brackets in a file is none of its elements. */
static void look_at_page(void) {
  g_autofree char *path = path_of("report.html"), *page = NULL;
  demand(g_file_get_contents(path, &page, NULL, NULL), "no page");
  demand(g_utf8_validate(page, -1, NULL), "a page that is no text");
  demand(strstr(page, "<fuzz") == NULL, "an element out of a file");
}

static void report(int which) {
  const weir_status status = which == COMPARISON  ? weir_compare_report_write(folder)
                             : which == EMULATION ? weir_emulate_report_write(folder)
                                                  : weir_report_write(folder);
  judged(status, which);
  if (!status) look_at_page();
}

/* Rows have checksums of their own: these are made right. */
static void recall(uint8_t *data, size_t size) {
  enum { HEAD = 24 };
  const size_t row = sizeof(weir_row), record = row + sizeof(uint64_t);
  uint64_t run = 0;
  weir_steplog log = {0};
  for (size_t at = HEAD; at + record <= size; at += record) {
    const uint64_t crc = weir_crc32c(0, data + at, row);
    memcpy(data + at + row, &crc, sizeof crc);
  }
  if (size >= HEAD) memcpy(&run, data + 8, sizeof run);
  write_file(KEPT, data, size);
  if (weir_steplog_recall(&log, folder, run, 1) == WEIR_OK) {
    const weir_scenario scenario = {.name = "s", .workers = 1};
    const char digests[1][65] = {"0"};
    const weir_summary summary = {.scenario = &scenario,
                                  .log = &log,
                                  .network = "sim",
                                  .clock = "real",
                                  .policy = "weir",
                                  .weights_sha256 = digests};
    demand(weir_steplog_write(&log, folder) == WEIR_OK, "no steps");
    demand(weir_summary_write(&summary, folder) == WEIR_OK, "no summary");
    write_file(DECISIONS, sound_decisions, strlen(sound_decisions));
    (void)weir_report_write(folder);
  }
  weir_steplog_free(&log);
}

static void feed(int which, uint8_t *data, size_t size) {
  weir_run_record record;
  if (which == KEPT) {
    recall(data, size);
    return;
  }
  write_file(DECISIONS, sound_decisions, strlen(sound_decisions));
  write_file(STEPS, sound_steps, strlen(sound_steps));
  write_file(SUMMARY, sound_summary, strlen(sound_summary));
  write_file(which, data, size);
  if (which == RECORD) {
    if (weir_run_record_read(&record, folder)) return;
    demand(record.scenario && record.policy && record.workers >= 1, "a record without a run");
    weir_run_record_free(&record);
    return;
  }
  if (which == DECISIONS || which == STEPS) {
    explain(which);
    replay();
  }
  report(which);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  if (data[0] == 'D') feed_decision(data[1], data + 2, size - 2);
  const char *found = strchr(kinds, data[0]);
  if (data[0] == 0 || found == NULL) return 0;
  g_autofree uint8_t *copy = g_memdup2(data + 1, size - 1);
  feed((int)(found - kinds), copy, size - 1);
  sweep();
  return 0;
}

#include "lab/steplog.h"

#include <errno.h>
#include <glib.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "lab/out.h"

weir_status weir_steplog_add(weir_steplog *log, const weir_row *row) {
  if (log->count == log->room) {
    const size_t room = log->room ? 2 * log->room : 1024;
    weir_row *rows = realloc(log->rows, room * sizeof *rows);
    if (!rows) return weir_fail(WEIR_E_NOMEM, "no memory for %zu steps", room);
    log->rows = rows;
    log->room = room;
  }
  log->rows[log->count++] = *row;
  return WEIR_OK;
}

void weir_steplog_free(weir_steplog *log) {
  free(log->rows);
  *log = (weir_steplog){0};
}

static void append_known(GString *text, double value, double scale) {
  if (value > 0 && isfinite(value)) g_string_append_printf(text, "%.6g", value * scale);
  g_string_append_c(text, ',');
}

/* What was set may be nothing at all: no delay. */
static void append_set(GString *text, double value, double scale) {
  if (isfinite(value)) g_string_append_printf(text, "%.6g", value * scale);
  g_string_append_c(text, ',');
}

static void append_row(GString *text, const weir_row *row) {
  const weir_step_info *info = &row->info;
  char plan[WEIR_PLAN_TEXT_MAX], collective[WEIR_COLLECTIVE_TEXT_MAX];
  weir_plan_format(&info->plan, plan);
  weir_plan_collective(&info->plan, collective);
  g_string_append_printf(text, "%" PRIu64 ",%" PRIu32 ",%d,%s,%s,%.6g,%s,", info->step, row->epoch,
                         info->trial, plan, weir_codec_name(info->plan.codec), info->plan.cr,
                         collective);
  g_string_append_printf(text, "%.6g,%.6g,%.6g,%.6g,", info->compute_s * 1e3,
                         info->compress_s * 1e3, info->comm_s * 1e3, info->overhead_s * 1e3);
  append_known(text, info->predicted_comm_s, 1e3);
  g_string_append_printf(text, "%" PRIu64 ",%.6g,", info->wire_bytes, info->gain);
  if (isfinite(row->loss)) g_string_append_printf(text, "%.6g", row->loss);
  g_string_append_c(text, ',');
  append_known(text, info->latency_s, 1e3);
  append_known(text, info->bandwidth_bytes_s, 8e-9);
  append_set(text, row->set_latency_s, 1e3);
  append_set(text, row->set_bandwidth, 8e-9);
  g_string_append_printf(text, "%.6f,", row->elapsed_s);
  if (isfinite(row->accuracy)) g_string_append_printf(text, "%.6g", row->accuracy);
  g_string_append_c(text, ',');
  if (info->goodput_bytes_s > 0) g_string_append_printf(text, "%.6g", info->goodput_bytes_s * 8e-9);
  g_string_append_c(text, ',');
  if (isfinite(row->test_loss)) g_string_append_printf(text, "%.6g", row->test_loss);
  g_string_append_c(text, '\n');
}

weir_status weir_steplog_write(const weir_steplog *log, const char *directory) {
  g_autoptr(GString) text = g_string_new(
      "step,epoch,trial,plan,codec,cr,collective,compute_ms,compress_ms,comm_ms,overhead_ms,"
      "predicted_comm_ms,wire_bytes,gain,loss,latency_ms,bandwidth_gbps,set_latency_ms,"
      "set_bandwidth_gbps,elapsed_s,accuracy,goodput_gbps,test_loss\n");
  for (size_t i = 0; i < log->count; i++) append_row(text, &log->rows[i]);
  return weir_out_write(directory, "steps.csv", text->str);
}

/* The rows of a run that is under way, on the disk: DIR/.weir-steps.log.  A header, then a row and
 * its checksum after the other, as they lie in memory: whoever reads them is the same program. */

typedef struct header {
  char magic[8];
  uint64_t run, row_bytes;
} header;
typedef struct record {
  weir_row row;
  uint64_t crc;
} record;
static const char magic[8] = {'W', 'E', 'I', 'R', 'S', 'T', 'E', 'P'};

static header header_of(uint64_t run) {
  header h = {.run = run, .row_bytes = sizeof(weir_row)};
  memcpy(h.magic, magic, sizeof magic);
  return h;
}

static weir_status trouble(const char *path) {
  return weir_fail(WEIR_E_IO, "%s: %s", path, strerror(errno));
}

static bool put_rows(FILE *file, const weir_steplog *log) {
  for (size_t i = log->kept; i < log->count; i++) {
    record r;
    memset(&r, 0, sizeof r);
    r.row = log->rows[i];
    r.crc = weir_crc32c(0, &r.row, sizeof r.row);
    if (fwrite(&r, sizeof r, 1, file) != 1) return false;
  }
  return true;
}

weir_status weir_steplog_keep(weir_steplog *log, const char *directory, uint64_t run) {
  g_autofree char *path = g_build_filename(directory, WEIR_STEPLOG_KEPT, NULL);
  const header h = header_of(run);
  FILE *file = fopen(path, log->kept ? "r+e" : "we");
  if (!file) return trouble(path);
  /* What an attempt that failed has left lies behind the rows that count. */
  const off_t end = (off_t)(log->kept ? sizeof h + log->kept * sizeof(record) : 0);
  bool good = !fseeko(file, end, SEEK_SET);
  if (good && !log->kept) good = fwrite(&h, sizeof h, 1, file) == 1;
  good = good && put_rows(file, log) && !fflush(file) && !fsync(fileno(file));
  weir_status status = good ? WEIR_OK : trouble(path);
  if (fclose(file) && !status) status = trouble(path);
  if (!status) log->kept = log->count;
  return status;
}

/* Can it be written as text, and added up?  A bool that is neither must not be looked at as one. */
static bool sound(const record *r) {
  unsigned char trial;
  memcpy(&trial, &r->row.info.trial, 1);
  return r->crc == weir_crc32c(0, &r->row, sizeof r->row) && trial <= 1 &&
         weir_plan_check(&r->row.info.plan) == WEIR_OK;
}

weir_status weir_steplog_recall(weir_steplog *log, const char *directory, uint64_t run,
                                uint64_t rows) {
  g_autofree char *path = g_build_filename(directory, WEIR_STEPLOG_KEPT, NULL);
  const header due = header_of(run);
  header h;
  FILE *file;
  weir_status status = weir_text_open(&file, path, "the steps of a run", false);
  if (status) return status;
  if (fread(&h, sizeof h, 1, file) != 1 || memcmp(&h, &due, sizeof h))
    status = weir_fail(WEIR_E_PARSE, "%s is not of this run", path);
  for (uint64_t i = 0; i < rows && !status; i++) {
    record r;
    if (fread(&r, sizeof r, 1, file) != 1 || !sound(&r))
      status = weir_fail(WEIR_E_PARSE, "%s: row %llu of %llu is missing or damaged", path,
                         (unsigned long long)i, (unsigned long long)rows);
    else
      status = weir_steplog_add(log, &r.row);
  }
  (void)fclose(file);
  log->kept = log->count;
  return status;
}

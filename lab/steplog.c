#include "lab/steplog.h"

#include <glib.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
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

static void append_row(GString *text, const weir_row *row) {
  const weir_step_info *info = &row->info;
  char plan[WEIR_PLAN_TEXT_MAX], collective[WEIR_COLLECTIVE_TEXT_MAX];
  weir_plan_format(&info->plan, plan);
  weir_plan_collective(&info->plan, collective);
  g_string_append_printf(text, "%" PRIu64 ",%" PRIu32 ",%d,%s,%s,%.6g,%s,", info->step, row->epoch,
                         info->trial, plan, weir_codec_name(info->plan.codec), info->plan.cr,
                         collective);
  g_string_append_printf(text, "%.6g,%.6g,%.6g,%.6g,%.6g,%" PRIu64 ",%.6g,", info->compute_s * 1e3,
                         info->compress_s * 1e3, info->comm_s * 1e3, info->overhead_s * 1e3,
                         info->predicted_comm_s * 1e3, info->wire_bytes, info->gain);
  if (isfinite(row->loss)) g_string_append_printf(text, "%.6g", row->loss);
  g_string_append_c(text, ',');
  append_known(text, info->latency_s, 1e3);
  append_known(text, info->bandwidth_bytes_s, 8e-9);
  append_known(text, row->set_latency_s, 1e3);
  append_known(text, row->set_bandwidth, 8e-9);
  g_string_append_printf(text, "%.6f,", row->elapsed_s);
  if (isfinite(row->accuracy)) g_string_append_printf(text, "%.6g", row->accuracy);
  g_string_append_c(text, ',');
  if (info->goodput_bytes_s > 0) g_string_append_printf(text, "%.6g", info->goodput_bytes_s * 8e-9);
  g_string_append_c(text, ',');
  if (isfinite(row->test_loss)) g_string_append_printf(text, "%.6g", row->test_loss);
  g_string_append_c(text, '\n');
}

weir_status weir_steplog_write(const weir_steplog *log, const char *directory) {
  GString *text = g_string_new(
      "step,epoch,trial,plan,codec,cr,collective,compute_ms,compress_ms,comm_ms,overhead_ms,"
      "predicted_comm_ms,wire_bytes,gain,loss,latency_ms,bandwidth_gbps,set_latency_ms,"
      "set_bandwidth_gbps,elapsed_s,accuracy,goodput_gbps,test_loss\n");
  for (size_t i = 0; i < log->count; i++) append_row(text, &log->rows[i]);
  const weir_status status = weir_out_write(directory, "steps.csv", text->str);
  g_string_free(text, TRUE);
  return status;
}

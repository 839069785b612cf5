#include "lab/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

#define LINE_BYTES 512

weir_progress_style weir_progress_style_here(void) {
  return isatty(STDERR_FILENO) ? WEIR_PROGRESS_LIVE : WEIR_PROGRESS_PLAIN;
}

void weir_progress_begin(weir_progress *p, weir_progress_style style, const weir_scenario *scenario,
                         uint64_t steps_per_epoch) {
  *p = (weir_progress){
      .style = style, .scenario = scenario, .steps_per_epoch = steps_per_epoch, .accuracy = NAN};
}

static void show(weir_progress *p, const char *line, bool last_of_epoch) {
  if (p->style == WEIR_PROGRESS_LIVE) {
    fprintf(stderr, "\r\033[K%s", line);
    p->line_open = true;
  } else if (p->style == WEIR_PROGRESS_RELAY) {
    fprintf(stderr, "~%s\n", line);
  } else if (last_of_epoch) {
    fprintf(stderr, "%s\n", line);
  }
  (void)fflush(stderr);
}

static void describe(const weir_progress *p, const weir_row *row, char line[LINE_BYTES]) {
  const weir_scenario *s = p->scenario;
  const weir_step_info *info = &row->info;
  const uint64_t total = p->steps_per_epoch * s->epochs, left = total - info->step - !info->trial;
  const double left_s = (double)left * p->step_s;
  char eta[32] = "?"; /* after a single step nothing is known of its length */
  if (p->step_s > 0)
    (void)snprintf(eta, sizeof eta, "%d:%02d", (int)(left_s / 60), (int)fmod(left_s, 60));
  char plan[WEIR_PLAN_TEXT_MAX], accuracy[32] = "", measured[96] = "not measured yet", set[64] = "";
  weir_plan_format(&info->plan, plan);
  if (isfinite(p->accuracy))
    (void)snprintf(accuracy, sizeof accuracy, ", acc %.1f %%", p->accuracy * 100);
  if (info->latency_s > 0 && info->bandwidth_bytes_s > 0)
    (void)snprintf(measured, sizeof measured, "measured %.3g ms %.4g Mbit/s", info->latency_s * 1e3,
                   info->bandwidth_bytes_s * 8e-6);
  if (info->goodput_bytes_s > 0 && info->goodput_bytes_s < 0.95 * info->bandwidth_bytes_s) {
    const size_t end = strlen(measured);
    (void)snprintf(measured + end, sizeof measured - end, ", of which messages get %.4g",
                   info->goodput_bytes_s * 8e-6);
  }
  if (row->set_bandwidth > 0)
    (void)snprintf(set, sizeof set, "set %.3g ms %.4g Mbit/s, ", row->set_latency_s * 1e3,
                   row->set_bandwidth * 8e-6);
  const double rate = p->step_s > 0 ? 1 / p->step_s : 0;
  (void)snprintf(line, LINE_BYTES,
                 "epoch %" PRIu32 "/%" PRIu32 " step %" PRIu64 "/%" PRIu64
                 "  %.*f step/s  %s%s  "
                 "%s%s  loss %.3f%s  ETA %s",
                 row->epoch, s->first_epoch + s->epochs - 1, info->step + 1, total,
                 rate < 10    ? 2
                 : rate < 100 ? 1
                              : 0,
                 rate, info->trial ? "trial of " : "", plan, set, measured, row->loss, accuracy,
                 eta);
}

void weir_progress_row(weir_progress *p, const weir_row *row) {
  const double now = weir_now_s();
  if (p->last_row > 0) {
    const double took = now - p->last_row;
    p->step_s = p->step_s > 0 ? 0.9 * p->step_s + 0.1 * took : took;
  }
  p->last_row = now;
  if (isfinite(row->accuracy)) p->accuracy = row->accuracy;
  const bool last_of_epoch = !row->info.trial && (row->info.step + 1) % p->steps_per_epoch == 0;
  if (p->style == WEIR_PROGRESS_PLAIN ? !last_of_epoch
                                      : now - p->last_shown < 0.5 && !last_of_epoch)
    return;
  p->last_shown = now;
  char line[LINE_BYTES];
  describe(p, row, line);
  show(p, line, last_of_epoch);
}

void weir_progress_say(weir_progress *p, const char *text) {
  weir_progress_end(p);
  fprintf(stderr, "%s\n", text);
}

void weir_progress_show(weir_progress *p, const char *line) { show(p, line, false); }

void weir_progress_wipe(weir_progress *p) {
  if (p->line_open) fputs("\r\033[K", stderr);
  p->line_open = false;
  (void)fflush(stderr);
}

void weir_progress_relay(weir_progress *p, const char *line) {
  if (*line != '~')
    weir_progress_say(p, line);
  else if (p->style == WEIR_PROGRESS_LIVE)
    show(p, line + 1, false);
}

void weir_progress_end(weir_progress *p) {
  if (p->line_open) fputc('\n', stderr);
  p->line_open = false;
}

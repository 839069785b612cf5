/* `weir replay`: make a run's decisions again from what they knew, and say what they cost. */
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/schemes.h"
#include "cli.h"
#include "json.h"
#include "replay.h"

typedef struct replay_totals {
  guint different;
  double regret_mean, regret_most;
  guint steps;                    /* of steps.csv that could be compared */
  double predicted_s, measured_s; /* their sums */
} replay_totals;

static gboolean same_choice(const replay_line *line) {
  const weir_plan *a = &line->choice, *b = &line->again.choice.plan;
  /* Another machine's libm may differ in the last digits of a ratio. */
  return a->codec == b->codec && weir_same_collective(a, b) && a->wire == b->wire &&
         a->bucket_log2 == b->bucket_log2 && fabs(a->cr - b->cr) <= 1e-6 * b->cr &&
         !line->switched == !line->again.switched;
}

static void judge(GArray *lines, replay_totals *totals) {
  for (guint i = 0; i < lines->len; i++) {
    replay_line *line = &g_array_index(lines, replay_line, i);
    const weir_decision *d = &line->again;
    line->same = same_choice(line) && !line->otherwise;
    line->best = &d->choice;
    for (gsize c = 0; c < d->candidates; c++)
      if (d->candidate[c].progress_per_s > line->best->progress_per_s)
        line->best = &d->candidate[c];
    line->regret = line->best->progress_per_s / d->choice.progress_per_s - 1.0;
    totals->different += !line->same;
    totals->regret_mean += line->regret / lines->len;
    totals->regret_most = fmax(totals->regret_most, line->regret);
    totals->steps += line->steps;
    totals->predicted_s += 1e-3 * line->steps * line->predicted_ms;
    totals->measured_s += 1e-3 * line->steps * line->measured_ms;
  }
}

static void add_plan(JsonBuilder *builder, const char *name, const weir_plan *plan) {
  char text[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(plan, text);
  cli_json_text(builder, name, text);
}

static void add_line(JsonBuilder *builder, const replay_line *line) {
  json_builder_begin_object(builder);
  cli_json_whole(builder, "decision", (gint64)line->input.decision);
  cli_json_whole(builder, "step", (gint64)line->input.step);
  cli_json_text(builder, "trigger", weir_trigger_name(line->input.trigger));
  add_plan(builder, "choice", &line->choice);
  add_plan(builder, "again", &line->again.choice.plan);
  json_builder_set_member_name(builder, "same");
  json_builder_add_boolean_value(builder, line->same);
  add_plan(builder, "best", &line->best->plan);
  cli_json_number(builder, "regret", line->regret);
  cli_json_number(builder, "predicted_ms", line->predicted_ms);
  if (line->steps > 0) {
    cli_json_whole(builder, "steps", line->steps);
    cli_json_number(builder, "measured_ms", line->measured_ms);
  }
  json_builder_end_object(builder);
}

static void print_json(GArray *lines, const replay_totals *t) {
  g_autoptr(JsonBuilder) builder = json_builder_new();
  json_builder_begin_object(builder);
  cli_json_whole(builder, "decisions", lines->len);
  cli_json_whole(builder, "different", t->different);
  cli_json_number(builder, "regret_mean", t->regret_mean);
  cli_json_number(builder, "regret_most", t->regret_most);
  cli_json_whole(builder, "steps", t->steps);
  cli_json_number(builder, "predicted_s", t->predicted_s);
  cli_json_number(builder, "measured_s", t->measured_s);
  cli_json_list(builder, "list");
  for (guint i = 0; i < lines->len; i++) add_line(builder, &g_array_index(lines, replay_line, i));
  json_builder_end_array(builder);
  cli_json_print(builder);
}

static void print_table(GArray *lines, const replay_totals *t) {
  printf("%8s %-9s %-30s %-30s %8s %12s %12s\n", "step", "trigger", "choice", "best candidate",
         "regret", "predicted ms", "measured ms");
  for (guint i = 0; i < lines->len; i++) {
    const replay_line *line = &g_array_index(lines, replay_line, i);
    char choice[WEIR_PLAN_TEXT_MAX], best[WEIR_PLAN_TEXT_MAX], measured[32] = "-";
    weir_plan_format(&line->choice, choice);
    weir_plan_format(&line->best->plan, best);
    if (line->steps > 0) (void)g_snprintf(measured, sizeof measured, "%.2f", line->measured_ms);
    printf("%8" G_GUINT64_FORMAT " %-9s %-30s %-30s %7.2f%% %12.2f %12s%s\n",
           (guint64)line->input.step, weir_trigger_name(line->input.trigger), choice, best,
           100.0 * line->regret, line->predicted_ms, measured, line->same ? "" : "  DIFFERS now");
  }
  printf(
      "%u decisions, %u different; regret against the best candidate: mean %.2f %%, at most %.2f "
      "%%\n",
      lines->len, t->different, 100.0 * t->regret_mean, 100.0 * t->regret_most);
  if (t->steps > 0)
    printf("%u steps under the choices: predicted %.3f s, measured %.3f s\n", t->steps,
           t->predicted_s, t->measured_s);
}

static int replay(const char *where, const char *steps, gboolean json) {
  const gboolean directory = g_file_test(where, G_FILE_TEST_IS_DIR);
  g_autofree char *decisions =
      directory ? g_build_filename(where, "decisions.jsonl", NULL) : g_strdup(where);
  g_autofree char *beside = directory ? g_build_filename(where, "steps.csv", NULL) : NULL;
  if (!steps && beside && g_file_test(beside, G_FILE_TEST_EXISTS)) steps = beside;
  g_autoptr(GArray) lines = g_array_new(FALSE, TRUE, sizeof(replay_line));
  if (!replay_read_decisions(decisions, lines)) return WEIR_EXIT_USAGE;
  if (steps && !replay_read_steps(steps, lines)) return WEIR_EXIT_USAGE;
  replay_totals totals = {0};
  judge(lines, &totals);
  if (json)
    print_json(lines, &totals);
  else
    print_table(lines, &totals);
  return totals.different == 0 ? WEIR_EXIT_DONE : WEIR_EXIT_FAILED;
}

int weir_cmd_replay(int argc, char **argv) {
  g_autofree char *steps = NULL;
  gboolean json = FALSE;
  const GOptionEntry entries[] = {{"steps", 0, 0, G_OPTION_ARG_FILENAME, &steps,
                                   "steps to compare the predictions with", "FILE"},
                                  {"json", 0, 0, G_OPTION_ARG_NONE, &json, "print JSON", NULL},
                                  G_OPTION_ENTRY_NULL};
  const cli_help help = {
      "weir replay", "DIR|decisions.jsonl",
      "Makes every decision of a run again from what was known then, compares it with what was\n"
      "chosen, and states its regret: how much more progress per second the best candidate\n"
      "promised.",
      "Given a folder, it also reads steps.csv there, if there is one.\n"
      "Exit codes: 0 all come out the same; 1 one or more differ; 2 bad usage or bad input."};
  if (!cli_parse(&help, entries, &argc, &argv)) return WEIR_EXIT_USAGE;
  if (argc != 2) {
    fprintf(stderr, "weir replay: expected one run's folder or its decisions.jsonl\n");
    return WEIR_EXIT_USAGE;
  }
  return replay(argv[1], steps, json);
}

/* `weir explain`: why a run's plans were chosen, in plain sentences. */
#include <glib.h>
#include <stdio.h>
#include <weir/weir.h>

#include "cli.h"
#include "lab/doc.h"
#include "lab/explain.h"

static void print_text(const weir_report_data *data, const GPtrArray *reasons) {
  g_autofree char *whole = weir_explain_whole(data, reasons);
  for (guint i = 0; i < reasons->len; i++) {
    const weir_reason *r = reasons->pdata[i];
    printf("Step %.0f: %s\n  Measured: %s\n  Tried: %s\n  Believed: %s\n", r->step, r->title,
           r->measured, r->tried, r->believed);
    if (r->switched) printf("  Came of it: %s\n", r->came);
    printf("\n");
  }
  printf("%s\n", whole);
}

static void add_reason(weir_doc *builder, const weir_reason *r) {
  weir_doc_object(builder, NULL);
  weir_doc_whole(builder, "step", (gint64)r->step);
  weir_doc_flag(builder, "switched", r->switched);
  weir_doc_text(builder, "title", r->title);
  weir_doc_text(builder, "measured", r->measured);
  weir_doc_text(builder, "tried", r->tried);
  weir_doc_text(builder, "believed", r->believed);
  if (r->switched) weir_doc_text(builder, "came", r->came);
  if (r->regret >= 0) weir_doc_number(builder, "regret", r->regret);
  weir_doc_end(builder);
}

static void print_json(const weir_report_data *data, const GPtrArray *reasons) {
  g_autofree char *whole = weir_explain_whole(data, reasons);
  g_autoptr(JsonBuilder) builder = json_builder_new();
  weir_doc_object(builder, NULL);
  weir_doc_text(builder, "whole", whole);
  weir_doc_list(builder, "reasons");
  for (guint i = 0; i < reasons->len; i++) add_reason(builder, reasons->pdata[i]);
  weir_doc_end_list(builder);
  weir_doc_print(builder);
}

int weir_cmd_explain(int argc, char **argv) {
  gboolean json = FALSE;
  const GOptionEntry entries[] = {{"json", 0, 0, G_OPTION_ARG_NONE, &json, "print JSON", NULL},
                                  G_OPTION_ENTRY_NULL};
  const cli_help help = {
      "weir explain", "DIR",
      "Tells in plain sentences why a run switched its plan: what was measured, what was tried,\n"
      "what was believed, what came of it, and the regret afterwards.  Trials that led to no\n"
      "switch are told, too.  PLAN/N is PLAN in N buckets.",
      "Reads decisions.jsonl of the folder, and steps.csv and summary.json if they are there.\n"
      "Exit codes: 0 done; 2 bad usage or bad input."};
  if (!cli_parse(&help, entries, &argc, &argv)) return WEIR_EXIT_USAGE;
  if (argc != 2) {
    fprintf(stderr, "weir explain: expected one run's folder; see `weir explain --help`\n");
    return WEIR_EXIT_USAGE;
  }
  weir_report_data data;
  if (cli_without("explain", argv[1], "decisions.jsonl")) return WEIR_EXIT_USAGE;
  if (weir_explain_read(&data, argv[1])) {
    fprintf(stderr, "weir explain: %s; expected a folder that `weir run` has left\n",
            weir_last_error());
    return WEIR_EXIT_USAGE;
  }
  g_autoptr(GPtrArray) reasons = weir_explain(&data);
  if (json)
    print_json(&data, reasons);
  else
    print_text(&data, reasons);
  weir_report_data_free(&data);
  return WEIR_EXIT_DONE;
}

/* The tables and the JSON of `weir plan strategy`. */
#include <stdio.h>

#include "plan_strategy.h"

static void string(JsonBuilder *builder, const char *name, const char *value) {
  cli_json_text(builder, name, value);
}

static void json_methods(JsonBuilder *builder, const weir_strategy_report *report) {
  json_builder_set_member_name(builder, "methods");
  json_builder_begin_object(builder);
  for (int m = 0; m < WEIR_STRATEGY_METHODS; m++)
    if (report->by[m].count)
      cli_json_number(builder, weir_strategy_name((weir_strategy_method)m),
                      report->by[m].iteration_s * 1e3);
  json_builder_end_object(builder);
  if (!report->by[WEIR_STRATEGY_EXACT].count) return;
  json_builder_set_member_name(builder, "exact");
  json_builder_add_boolean_value(builder, report->exact);
}

static void json_buckets(JsonBuilder *builder, const size_t *end, size_t count) {
  cli_json_list(builder, "groups");
  for (size_t k = 0; k < count; k++) {
    json_builder_begin_array(builder);
    json_builder_add_int_value(builder, k ? (gint64)end[k - 1] : 0);
    json_builder_add_int_value(builder, (gint64)end[k] - 1);
    json_builder_end_array(builder);
  }
  json_builder_end_array(builder);
}

void plan_strategy_json(const strategy_found *f) {
  const weir_strategy *chosen = &f->report->by[f->method];
  g_autoptr(JsonBuilder) builder = json_builder_new();
  json_builder_begin_object(builder);
  cli_json_number(builder, "iteration_ms", chosen->iteration_s * 1e3);
  if (f->report->upper_bound_s > 0.0)
    cli_json_number(builder, "upper_bound_ms", f->report->upper_bound_s * 1e3);
  json_methods(builder, f->report);
  if (f->end) json_buckets(builder, f->end, f->profile->count);
  cli_json_list(builder, "tensors");
  for (size_t i = 0; i < chosen->count; i++) {
    const weir_strategy_choice *choice = &chosen->choice[i];
    char text[512];
    (void)weir_option_text(&choice->option, text, sizeof text);
    json_builder_begin_object(builder);
    string(builder, "tensor", f->profile->tensors[i].name);
    string(builder, "codec", choice->compressed ? f->cluster->codec[choice->codec].name : "none");
    string(builder, "option", text);
    json_builder_end_object(builder);
  }
  json_builder_end_array(builder);
  cli_json_whole(builder, "options", (gint64)f->report->options);
  if (f->report->timelines) cli_json_whole(builder, "timelines", (gint64)f->report->timelines);
  cli_json_number(builder, "solve_ms", f->solve_s * 1e3);
  cli_json_print(builder);
}

static size_t compressed_of(const weir_strategy *strategy) {
  size_t count = 0;
  for (size_t i = 0; i < strategy->count; i++) count += strategy->choice[i].compressed;
  return count;
}

void plan_strategy_table(const strategy_found *f) {
  const weir_strategy_report *r = f->report;
  const weir_strategy *chosen = &r->by[f->method];
  printf("%zu %s, %zu options; found in %.3f ms\n\n  %-17s %10s %14s\n", f->profile->count,
         f->end ? "groups" : "tensors", r->options, f->solve_s * 1e3, "method", "compressed",
         "iteration");
  for (int m = 0; m < WEIR_STRATEGY_METHODS; m++) {
    const weir_strategy *s = &r->by[m];
    if (!s->count) continue;
    printf("  %-17s %10zu %11.4f ms  %.3f x%s\n", weir_strategy_name((weir_strategy_method)m),
           compressed_of(s), s->iteration_s * 1e3,
           chosen->iteration_s > 0.0 ? s->iteration_s / chosen->iteration_s : 1.0,
           m == WEIR_STRATEGY_EXACT && !r->exact ? "  cut short" : "");
  }
  if (r->upper_bound_s > 0.0)
    printf("  %-17s %10s %11.4f ms  compression free of charge\n", "upper bound", "",
           r->upper_bound_s * 1e3);
  putchar('\n');
  printf("  %12s  %-8s  %s\n", "MB", "codec", f->end ? "last tensor: option" : "tensor: option");
  for (size_t i = 0; i < chosen->count; i++) {
    const weir_strategy_choice *choice = &chosen->choice[i];
    char text[512];
    (void)weir_option_text(&choice->option, text, sizeof text);
    printf("  %12.4f  %-8s  %s: %s\n", weir_profile_bytes(f->profile, i) * 1e-6,
           choice->compressed ? f->cluster->codec[choice->codec].name : "none",
           f->profile->tensors[i].name, text);
  }
}

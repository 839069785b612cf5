/* A comparison's page. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weir/plan.h>

#include "lab/report.h"
#include "lab/report_data.h"
#include "lab/report_doc.h"

/* One run of `weir compare`. */
typedef struct weir_report_entry {
  char *policy, *status, *error, *folder;
  gint64 seed;
  double time_to_accuracy_s, final_accuracy, elapsed_s, comm_s, wire_bytes;
  weir_report_point *points;
  size_t point_count;
  size_t group; /* number of its policy, in order of first appearance */
} weir_report_entry;

typedef struct weir_report_comparison {
  char *scenario;
  double target;
  weir_report_entry *runs;
  size_t count;
} weir_report_comparison;

/* All seeds of one policy. */
typedef struct weir_report_group {
  const char *policy;
  size_t number, runs, done, reached;
  /* Means over the runs that were done; time: NaN unless all were, and got there. */
  double time, final, elapsed, comm, bytes;
} weir_report_group;

/* Reading compare.json, and the means over each policy's seeds. */

static void read_run(weir_report_place *place, JsonObject *from, weir_report_entry *to) {
  to->policy = weir_report_text(place, from, "policy", WEIR_REQUIRED);
  to->status = weir_report_text(place, from, "status", WEIR_REQUIRED);
  to->error = weir_report_text(place, from, "error", WEIR_OPTIONAL);
  to->folder = weir_report_text(place, from, "folder", WEIR_OPTIONAL);
  to->seed = weir_report_whole(place, from, "seed", WEIR_REQUIRED);
  to->time_to_accuracy_s = weir_report_number(place, from, "time_to_accuracy_s", WEIR_OPTIONAL);
  to->final_accuracy = weir_report_number(place, from, "final_accuracy", WEIR_OPTIONAL);
  to->elapsed_s = weir_report_number(place, from, "elapsed_s", WEIR_OPTIONAL);
  to->comm_s = weir_report_number(place, from, "comm_s", WEIR_OPTIONAL);
  to->wire_bytes = weir_report_number(place, from, "wire_bytes", WEIR_OPTIONAL);
  to->points = weir_report_points(place, from, "accuracy", &to->point_count);
  /* What it holds is anybody's, file names too: the page makes every text harmless. */
  if (!place->status && !*to->policy) weir_report_refuse(place, "'' is no policy");
}

static void weir_report_comparison_free(weir_report_comparison *c) {
  for (size_t i = 0; i < c->count; i++) {
    g_free(c->runs[i].policy);
    g_free(c->runs[i].status);
    g_free(c->runs[i].error);
    g_free(c->runs[i].folder);
    g_free(c->runs[i].points);
  }
  g_free(c->runs);
  g_free(c->scenario);
  *c = (weir_report_comparison){0};
}

/* Nothing to free on failure. */
static weir_status weir_report_comparison_read(weir_report_comparison *c, const char *directory) {
  *c = (weir_report_comparison){0};
  weir_report_place place = {.file = "compare.json"};
  g_autoptr(JsonParser) parser = json_parser_new_immutable();
  JsonObject *root = weir_report_load(&place, parser, directory);
  if (root) {
    c->scenario = weir_report_text(&place, root, "scenario", WEIR_OPTIONAL);
    c->target = weir_report_number(&place, root, "target_accuracy", WEIR_OPTIONAL);
    JsonArray *list = weir_report_array(&place, root, "runs", WEIR_REQUIRED);
    c->count = list ? json_array_get_length(list) : 0;
    c->runs = g_new0(weir_report_entry, c->count + 1);
    for (size_t i = 0; i < c->count && !place.status; i++) {
      JsonObject *run = weir_report_element(&place, list, "runs", i);
      if (run) read_run(&place, run, &c->runs[i]);
    }
    if (!c->count) weir_report_refuse(&place, "'runs' is empty");
  }
  if (place.status) weir_report_comparison_free(c);
  return place.status;
}

static bool weir_report_done(const weir_report_entry *e) { return !strcmp(e->status, "done"); }

/* Unreached last. */
static int by_time(const void *a, const void *b) {
  const weir_report_group *const x = a, *const y = b;
  const double s = isnan(x->time) ? INFINITY : x->time, t = isnan(y->time) ? INFINITY : y->time;
  return (s > t) - (s < t);
}

/* One for every policy, soonest at the target first, unreached last; g_free. */
static weir_report_group *weir_report_groups(weir_report_comparison *c, size_t *count) {
  weir_report_group *groups = g_new0(weir_report_group, c->count);
  *count = 0;
  for (size_t i = 0; i < c->count; i++) {
    weir_report_entry *e = &c->runs[i];
    for (e->group = 0; e->group < *count; e->group++)
      if (!strcmp(groups[e->group].policy, e->policy)) break;
    weir_report_group *g = &groups[e->group];
    if (e->group == *count) {
      g->policy = e->policy;
      g->number = *count;
      ++*count;
    }
  }
  for (size_t j = 0; j < *count; j++) {
    weir_report_group *g = &groups[j];
    for (size_t i = 0; i < c->count; i++) {
      const weir_report_entry *e = &c->runs[i];
      if (e->group != j) continue;
      g->runs++;
      if (!weir_report_done(e)) continue;
      g->done++;
      g->final += e->final_accuracy;
      g->elapsed += e->elapsed_s;
      g->comm += e->comm_s;
      g->bytes += e->wire_bytes;
      if (isnan(e->time_to_accuracy_s)) continue;
      g->reached++;
      g->time += e->time_to_accuracy_s;
    }
    const double done = g->done ? (double)g->done : NAN;
    g->final /= done, g->elapsed /= done, g->comm /= done, g->bytes /= done;
    g->time = g->reached == g->runs ? g->time / done : NAN;
  }
  qsort(groups, *count, sizeof *groups, by_time);
  return groups;
}

/* Runs whose turn did not come, or that were interrupted: a failed one had its end. */
static size_t weir_report_missing(const weir_report_comparison *c) {
  size_t count = 0;
  for (size_t i = 0; i < c->count; i++)
    count += !weir_report_done(&c->runs[i]) && strcmp(c->runs[i].status, "failed") != 0;
  return count;
}

static const char *without_prefix(const char *policy) {
  return g_str_has_prefix(policy, "fixed:") ? policy + 6 : policy;
}

static bool stands_out(const char *policy) {
  return !strcmp(policy, "weir") || !strcmp(policy, "paper");
}

/* One plan, always the same: neither buckets of tensors nor anything that decides. */
static bool is_fixed(const char *policy) {
  weir_plan plan;
  return weir_plan_parse(without_prefix(policy), &plan) == WEIR_OK;
}

/* The two that are compared stand out; a fixed plan has its collective's colour. */
static weir_colour colour_of(const char *policy) {
  if (stands_out(policy)) return (weir_colour){.css = {0}};
  g_auto(GStrv) part = g_strsplit(without_prefix(policy), ":", 4);
  return weir_colour_of(is_fixed(policy) ? part[2] : "");
}

static const char *css_of(const char *policy, const weir_colour *colour) {
  if (stands_out(policy)) return *policy == 'w' ? "#b3124f" : "#20272e";
  return colour->css;
}

static void add_colour(weir_doc *doc, const char *policy) {
  const weir_colour colour = colour_of(policy);
  weir_doc_text(doc, "colour", css_of(policy, &colour));
}

/* --- charts ----------------------------------------------------------------------------------- */

static void add_bars(weir_doc *doc, const weir_report_group *groups, size_t count) {
  double most = 0;
  for (size_t i = 0; i < count; i++) most = fmax(most, isnan(groups[i].time) ? 0 : groups[i].time);
  weir_doc_chart(doc, "bars", "seconds to the target", "s", 0, most > 0 ? most : 1);
  weir_doc_list(doc, "rows");
  for (size_t i = 0; i < count; i++) weir_doc_text(doc, NULL, groups[i].policy);
  weir_doc_end_list(doc);
  weir_doc_list(doc, "bars");
  for (size_t i = 0; i < count; i++) {
    weir_doc_object(doc, NULL);
    weir_doc_number(doc, "row", (double)i);
    weir_doc_number(doc, "from", 0);
    weir_doc_number(doc, "to", isnan(groups[i].time) ? 0 : groups[i].time);
    add_colour(doc, groups[i].policy);
    if (!isnan(groups[i].time))
      weir_doc_format(doc, "label", "%.1f s", groups[i].time);
    else
      weir_doc_text(doc, "label", groups[i].done ? "not reached" : "not done");
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

typedef struct extent {
  double earliest, longest; /* elapsed s */
  double lowest, best;      /* accuracy */
  bool apart;               /* runs last so differently long that all but one would be squeezed */
} extent;

static extent measure(const weir_report_comparison *c) {
  extent e = {.earliest = INFINITY, .longest = 1e-3, .lowest = 1};
  double shortest = INFINITY;
  for (size_t i = 0; i < c->count; i++) {
    double last = INFINITY;
    for (size_t p = 0; p < c->runs[i].point_count; p++) {
      const weir_report_point *point = &c->runs[i].points[p];
      last = point->elapsed_s;
      if (last > 0) e.earliest = fmin(e.earliest, last);
      e.longest = fmax(e.longest, last);
      e.lowest = fmin(e.lowest, point->accuracy);
      e.best = fmax(e.best, point->accuracy);
    }
    shortest = fmin(shortest, last);
  }
  if (e.lowest > e.best) e.lowest = 0, e.best = 1; /* no point at all */
  e.lowest = fmax(e.lowest, e.best - 0.25);        /* what comes before is the same for all */
  e.apart = shortest > 0 && e.longest > 4 * shortest;
  return e;
}

/* Policies of one colour get another dash each. */
static int dash_of(const weir_report_group *groups, size_t j) {
  const weir_colour own = colour_of(groups[j].policy);
  int alike = 0;
  for (size_t i = 0; i < j; i++) {
    const weir_colour other = colour_of(groups[i].policy);
    alike += !stands_out(groups[i].policy) && !strcmp(own.css, other.css);
  }
  return stands_out(groups[j].policy) ? 0 : alike % 5;
}

static void add_curve(weir_doc *doc, const weir_report_entry *e, const weir_report_group *g,
                      int dash, size_t each) {
  weir_doc_object(doc, NULL);
  if (g->runs > 1)
    weir_doc_format(doc, "name", "%s, seed %" G_GINT64_FORMAT, e->policy, e->seed);
  else
    weir_doc_text(doc, "name", e->policy);
  add_colour(doc, e->policy);
  weir_doc_text(doc, "form", stands_out(e->policy) ? "thick" : "line");
  weir_doc_number(doc, "dash", dash);
  weir_doc_list(doc, "points");
  for (size_t p = 0; p < e->point_count; p++) {
    if (p % each && p + 1 < e->point_count) continue;
    weir_doc_list(doc, NULL);
    weir_doc_number(doc, NULL, e->points[p].elapsed_s);
    weir_doc_number(doc, NULL, 100 * e->points[p].accuracy);
    weir_doc_end_list(doc);
  }
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

/* All runs together have so many points at the most. */
static size_t points_each(const weir_report_comparison *c) {
  size_t all = 0;
  for (size_t i = 0; i < c->count; i++) all += c->runs[i].point_count;
  return all / 10000 + 1;
}

static void add_curves(weir_doc *doc, const weir_report_comparison *c,
                       const weir_report_group *groups, size_t count, const extent *e) {
  weir_doc_chart(doc, "lines", "test accuracy, %", "elapsed, s", e->apart ? e->earliest : 0,
                 e->longest);
  weir_doc_flag(doc, "log_x", e->apart);
  weir_doc_flag(doc, "nearest", true);
  weir_doc_number(doc, "bottom", 100 * e->lowest);
  weir_doc_number(doc, "top", 100 * e->best + 1);
  weir_doc_list(doc, "marks");
  if (!isnan(c->target)) {
    weir_doc_object(doc, NULL);
    weir_doc_number(doc, "y", 100 * c->target);
    weir_doc_format(doc, "text", "target %.2f %%", 100 * c->target);
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
  weir_doc_list(doc, "series");
  for (size_t j = count; j-- > 0;) /* the best last, on top */
    for (size_t i = 0; i < c->count; i++)
      if (c->runs[i].group == groups[j].number)
        add_curve(doc, &c->runs[i], &groups[j], dash_of(groups, j), points_each(c));
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

/* --- the headline ----------------------------------------------------------------------------- */

static const weir_report_group *find(const weir_report_group *groups, size_t count,
                                     const char *policy) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(groups[i].policy, policy)) return &groups[i];
  return NULL;
}

/* groups are sorted, so the fixed policies' best and median can be read off; one that never gets
 * there counts as slower than all others.  Nothing is said of what was not run. */
static void add_cards(weir_doc *doc, const weir_report_comparison *c,
                      const weir_report_group *groups, size_t count) {
  g_autofree const weir_report_group **fixed = g_new0(const weir_report_group *, count + 1);
  size_t n = 0;
  for (size_t i = 0; i < count; i++)
    if (is_fixed(groups[i].policy) && groups[i].done) fixed[n++] = &groups[i];
  const weir_report_group *weir = find(groups, count, "weir"),
                          *paper = find(groups, count, "paper");
  const double median = !n      ? NAN
                        : n % 2 ? fixed[n / 2]->time
                                : (fixed[n / 2 - 1]->time + fixed[n / 2]->time) / 2;
  weir_doc_list(doc, "cards");
  weir_doc_figure(doc, "target accuracy", "on the test data", "%.2f %%", 100 * c->target);
  if (weir)
    weir_doc_figure(doc, "policy weir's time", "to the target, mean over seeds", "%.1f s",
                    weir->time);
  if (!weir && n)
    weir_doc_figure(doc, "the best fixed policy's time", fixed[0]->policy, "%.1f s",
                    fixed[0]->time);
  if (weir && n) {
    weir_doc_figure(doc, "the best fixed policy's time", fixed[0]->policy, "%.2f ×",
                    weir->time / fixed[0]->time);
    weir_doc_figure(doc, "the fixed policies' median time", "less is better", "%.2f ×",
                    weir->time / median);
  }
  if (weir && paper)
    weir_doc_figure(doc, "policy paper's time", "less is better", "%.2f ×",
                    weir->time / paper->time);
  weir_doc_end_list(doc);
}

static void add_head(weir_doc *doc, const weir_report_comparison *c,
                     const weir_report_group *groups, size_t count) {
  const bool named = c->scenario && *c->scenario;
  const size_t missing = weir_report_missing(c);
  weir_doc_text(doc, "title", "Policies compared");
  weir_doc_format(doc, "sub",
                  "%s%sThe same training under each policy, judged by the time to reach the target "
                  "accuracy.",
                  named ? c->scenario : "", named ? " · " : "");
  add_cards(doc, c, groups, count);
  if (!missing) return;
  g_autofree char *text = g_strdup_printf(
      "Interrupted: %zu of %zu runs are missing, and what is said here is of the others.", missing,
      c->count);
  weir_doc_list(doc, "notices");
  weir_doc_notice(doc, false, text);
  weir_doc_end_list(doc);
}

/* --- the table -------------------------------------------------------------------------------- */

/* The run's own report, or why there is none. */
static void add_link(weir_doc *doc, const weir_report_entry *e) {
  weir_doc_object(doc, NULL);
  if (!weir_report_done(e)) {
    weir_doc_format(doc, "bad", "%s%s%s", e->status, *e->error ? ": " : "", e->error);
  } else if (*e->folder) {
    g_autofree char *address = g_uri_escape_string(e->folder, NULL, FALSE);
    weir_doc_format(doc, "text", "seed %" G_GINT64_FORMAT, e->seed);
    weir_doc_format(doc, "link", "./%s/report.html", address);
  }
  weir_doc_end(doc);
}

static void add_group(weir_doc *doc, const weir_report_comparison *c, const weir_report_group *g) {
  weir_doc_row(doc);
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "text", g->policy);
  add_colour(doc, g->policy);
  weir_doc_end(doc);
  weir_doc_cell(doc, "%.0f", (double)g->runs);
  weir_doc_cell(doc, "%.0f", (double)g->reached);
  weir_doc_cell(doc, "%.1f", g->time);
  weir_doc_cell(doc, "%.2f %%", 100 * g->final);
  weir_doc_cell(doc, "%.1f", g->elapsed);
  weir_doc_cell(doc, "%.1f", g->comm);
  weir_doc_cell(doc, "%.1f", g->bytes / 1e6);
  weir_doc_list(doc, NULL);
  for (size_t i = 0; i < c->count; i++)
    if (c->runs[i].group == g->number) add_link(doc, &c->runs[i]);
  weir_doc_end_list(doc);
  weir_doc_end_row(doc);
}

static void add_table(weir_doc *doc, const weir_report_comparison *c,
                      const weir_report_group *groups, size_t count) {
  weir_doc_section(doc, "In numbers",
                   "Means over the seeds. A policy that misses the target with any seed counts as "
                   "not reaching it.");
  weir_doc_table(doc, NULL,
                 "policy|#runs|#reached|#time to target, s|#final accuracy|#elapsed, s|"
                 "#communicating, s|#sent by rank 0, MB|report");
  for (size_t j = 0; j < count; j++) add_group(doc, c, &groups[j]);
  weir_doc_end_table(doc);
  weir_doc_end_section(doc);
}

/* --- the page --------------------------------------------------------------------------------- */

static void add_all(weir_doc *doc, const weir_report_comparison *c, const weir_report_group *groups,
                    size_t count) {
  const extent e = measure(c);
  weir_doc_object(doc, NULL);
  add_head(doc, c, groups, count);
  weir_doc_list(doc, "sections");
  weir_doc_section(doc, "Time to the target", "Shortest first.");
  add_bars(doc, groups, count);
  weir_doc_end_section(doc);
  weir_doc_section(doc, "Accuracy over time",
                   e.apart ? "One line a run, over the logarithm of time. Fixed plans have their "
                             "collective's colour."
                           : "One line a run. Fixed plans have their collective's colour.");
  add_curves(doc, c, groups, count, &e);
  weir_doc_end_section(doc);
  add_table(doc, c, groups, count);
  weir_doc_end_list(doc);
  weir_doc_end(doc);
}

weir_status weir_compare_report_write(const char *directory) {
  weir_report_comparison c;
  weir_status status = weir_report_comparison_read(&c, directory);
  if (status) return status;
  size_t count = 0;
  g_autofree weir_report_group *groups = weir_report_groups(&c, &count);
  g_autoptr(JsonBuilder) doc = json_builder_new();
  add_all(doc, &c, groups, count);
  status = weir_page_write(doc, directory);
  weir_report_comparison_free(&c);
  return status;
}

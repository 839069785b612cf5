/* A comparison's page. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/report.h"
#include "lab/report_compared.h"
#include "lab/report_page.h"
#include "lab/report_plot.h"

static const char *without_prefix(const char *policy) {
  return g_str_has_prefix(policy, "fixed:") ? policy + 6 : policy;
}

static bool stands_out(const char *policy) {
  return !strcmp(policy, "weir") || !strcmp(policy, "paper");
}

/* The two that are compared stand out; a fixed plan has its collective's colour. */
static const char *colour(const char *policy) {
  if (stands_out(policy)) return *policy == 'w' ? "#b3124f" : "#20272e";
  weir_plan plan;
  const char *text = without_prefix(policy);
  return weir_plan_parse(text, &plan) ? "#7b8794" : weir_report_colour[plan.collective];
}

/* One plan, always the same: neither groups of tensors nor anything that decides. */
static bool is_fixed(const char *policy) {
  weir_plan plan;
  return weir_plan_parse(without_prefix(policy), &plan) == WEIR_OK;
}

/* Room for the longest name, in gnuplot's characters. */
static size_t name_columns(const weir_report_group *groups, size_t count) {
  size_t most = 24;
  for (size_t i = 0; i < count; i++) most = MAX(most, MIN(strlen(groups[i].policy), 60));
  return most + 2;
}

static void bars_figure(weir_figures *f, const weir_report_group *groups, size_t count) {
  GString *g = f->script;
  weir_figures_begin(f, 1180, 96 + 30 * (int)count);
  double most = 0;
  g_string_append(g, "$bars << EOD\n");
  for (size_t i = 0; i < count; i++) {
    const double time = isnan(groups[i].time) ? 0 : groups[i].time;
    most = fmax(most, time);
    char text[64];
    (void)g_snprintf(text, sizeof text, "%.1f s", time);
    g_string_append_printf(g, "%zu %.9g \"%s\" %lu\n", i, time,
                           !groups[i].done         ? "not done"
                           : isnan(groups[i].time) ? "not reached"
                                                   : text,
                           strtoul(colour(groups[i].policy) + 1, NULL, 16));
  }
  g_string_append_printf(g,
                         "EOD\nunset key\nset lmargin %zu\nset tmargin 0.6\nset bmargin 3.4\n"
                         "set style fill solid 1 noborder\nset xrange [0:%.9g]\n"
                         "set yrange [%.9g:-0.7]\nset xlabel 'seconds to the target'\n"
                         "unset grid\nset grid xtics lc rgb '#e6eaee' lt 1 lw 0.8\nset ytics (",
                         name_columns(groups, count), most > 0 ? most * 1.1 : 1,
                         (double)count - 0.3);
  for (size_t i = 0; i < count; i++)
    g_string_append_printf(g, "%s'%s' %zu", i ? ", " : "", groups[i].policy, i);
  g_string_append(g,
                  ")\nplot $bars using (0):1:(0):2:($1-0.33):($1+0.33):4 with boxxyerror lc rgb "
                  "variable, $bars using 2:1:3 with labels left offset 0.6,0 tc rgb '#2b3540'\n");
}

typedef struct extent {
  double earliest, longest; /* elapsed s */
  double lowest, best;      /* accuracy */
  bool apart;               /* runs last so differently long that all but one would be squeezed */
} extent;

static extent curves_data(GString *g, const weir_report_comparison *c) {
  extent e = {.earliest = INFINITY, .longest = 1e-3, .lowest = 1};
  double shortest = INFINITY;
  for (size_t i = 0; i < c->count; i++) {
    double last = INFINITY;
    g_string_append_printf(g, "$c%zu << EOD\nnan nan\n", i);
    for (size_t p = 0; p < c->runs[i].point_count; p++) {
      const weir_report_point *point = &c->runs[i].points[p];
      last = point->elapsed_s;
      if (last > 0) e.earliest = fmin(e.earliest, last);
      e.longest = fmax(e.longest, last);
      e.lowest = fmin(e.lowest, point->accuracy);
      e.best = fmax(e.best, point->accuracy);
      g_string_append_printf(g, "%.9g %.9g\n", last, 100 * point->accuracy);
    }
    shortest = fmin(shortest, last);
    g_string_append(g, "EOD\n");
  }
  if (e.lowest > e.best) e.lowest = 0, e.best = 1; /* no point at all */
  e.lowest = fmax(e.lowest, e.best - 0.25);        /* what comes before is the same for all */
  e.apart = shortest > 0 && e.longest > 4 * shortest;
  return e;
}

/* Is the axis of time a logarithmic one? */
static bool curves_figure(weir_figures *f, const weir_report_comparison *c,
                          const weir_report_group *groups, size_t count) {
  GString *g = f->script;
  weir_figures_begin(f, 1180, 520);
  const extent e = curves_data(g, c);
  g_string_append_printf(
      g,
      "set datafile missing 'nan'\nset xrange [%.9g:%.9g]\n%s"
      "set yrange [%.9g:%.9g]\nset rmargin %zu\nset key at graph 1.02, graph 1 left top "
      "vertical Left reverse samplen 2.4 spacing 1.25\nset tmargin 1\nset bmargin 3.2\n"
      "set xlabel 'elapsed, s'\nset ylabel 'test accuracy, %%'\n",
      e.apart ? e.earliest : 0, e.longest, e.apart ? "set logscale x\n" : "", 100 * e.lowest,
      100 * e.best + 1, name_columns(groups, count) + 1);
  if (!isnan(c->target))
    g_string_append_printf(g,
                           "set arrow from graph 0, first %.9g to graph 1, first %.9g nohead "
                           "dt (6,5) lc rgb '#7b8794'\nset label 'target %.2f %%' at graph "
                           "%s first %.9g %s tc rgb '#46525f'\n",
                           100 * c->target, 100 * c->target, 100 * c->target,
                           e.apart ? "0.01," : "0.995,", 100 * c->target,
                           e.apart ? "left offset 0,0.6" : "right offset 0,-0.7");
  g_string_append(g, "plot ");
  size_t alike[WEIR_COLL_COUNT + 3] = {0};
  for (size_t j = 0; j < count; j++) {
    const char *of = colour(groups[j].policy);
    size_t place = 0; /* policies of one colour get another dash each */
    while (place < WEIR_COLL_COUNT && strcmp(of, weir_report_colour[place])) place++;
    const size_t dash = stands_out(groups[j].policy) ? 1 : alike[place]++ % 5 + 1;
    bool titled = false;
    for (size_t i = 0; i < c->count; i++) {
      if (strcmp(c->runs[i].policy, groups[j].policy)) continue;
      g_string_append_printf(g, "$c%zu using 1:2 with lines lw %s dt %zu lc rgb '%s' %s%s%s, ", i,
                             stands_out(groups[j].policy) ? "2.8" : "1.5", dash, of,
                             titled ? "notitle" : "title '", titled ? "" : groups[j].policy,
                             titled ? "" : "'");
      titled = true;
    }
  }
  g_string_append(g, "1/0 notitle\n");
  return e.apart;
}

static double time_of(const weir_report_group *groups, size_t count, const char *policy) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(groups[i].policy, policy)) return groups[i].time;
  return NAN;
}

static void ratio_card(GString *page, double weir, double other, const char *name,
                       const char *note) {
  char text[32] = "–";
  if (!isnan(weir / other)) (void)g_snprintf(text, sizeof text, "%.2f ×", weir / other);
  weir_page_card(page, text, name, note);
}

/* groups are sorted, so the fixed policies' best and median can be read off; one that never gets
 * there counts as slower than all others. */
static void headline(GString *page, const weir_report_comparison *c,
                     const weir_report_group *groups, size_t count) {
  const weir_report_group **fixed = g_new0(const weir_report_group *, count + 1);
  size_t n = 0;
  for (size_t i = 0; i < count; i++)
    if (is_fixed(groups[i].policy) && groups[i].done) fixed[n++] = &groups[i];
  const double weir = time_of(groups, count, "weir");
  const double median = !n      ? NAN
                        : n % 2 ? fixed[n / 2]->time
                                : (fixed[n / 2 - 1]->time + fixed[n / 2]->time) / 2;
  char text[32] = "–";
  g_string_append(page, "<h1>Policies compared</h1><p class=\"sub\">");
  weir_page_escape(page, c->scenario);
  g_string_append_printf(page,
                         "%sThe same training under each policy, judged by the time to reach the "
                         "target accuracy.</p>\n",
                         c->scenario && *c->scenario ? " · " : "");
  if (weir_report_missing(c))
    g_string_append_printf(page,
                           "<p class=\"bad\">Interrupted: %zu of %zu runs are missing, and what is "
                           "said here is of the others.</p>",
                           weir_report_missing(c), c->count);
  g_string_append(page, "<div class=\"cards\">\n");
  if (!isnan(c->target)) (void)g_snprintf(text, sizeof text, "%.2f %%", 100 * c->target);
  weir_page_card(page, text, "target accuracy", "on the test images");
  if (isnan(weir))
    (void)g_strlcpy(text, "–", sizeof text);
  else
    (void)g_snprintf(text, sizeof text, "%.1f s", weir);
  weir_page_card(page, text, "policy weir's time", "to the target, mean over seeds");
  ratio_card(page, weir, n ? fixed[0]->time : NAN, "the best fixed policy's time",
             n ? fixed[0]->policy : "none was run");
  ratio_card(page, weir, median, "the fixed policies' median time", "less is better");
  ratio_card(page, weir, time_of(groups, count, "paper"), "policy paper's time", "less is better");
  g_string_append(page, "</div>\n");
  g_free(fixed);
}

/* The run's own report, or why there is none. */
static void run_link(GString *page, const weir_report_entry *e) {
  if (!weir_report_done(e)) {
    g_string_append(page, "<span class=\"bad\">");
    weir_page_escape(page, e->status);
    g_string_append(page, *e->error ? ": " : "");
    weir_page_escape(page, e->error);
    g_string_append(page, "</span> ");
  } else if (*e->folder) {
    char *address = g_uri_escape_string(e->folder, NULL, FALSE);
    g_string_append_printf(page, "<a href=\"./%s/report.html\">seed %.0f</a> ", address, e->seed);
    g_free(address);
  }
}

static void table(GString *page, const weir_report_comparison *c, const weir_report_group *groups,
                  size_t count) {
  g_string_append(page,
                  "<section><h2>In numbers</h2><p>Means over the seeds. A policy that misses the "
                  "target with any seed counts as not reaching it.</p><table><tr>"
                  "<th>policy</th><th class=\"n\">runs</th><th class=\"n\">reached</th>"
                  "<th class=\"n\">time to target, s</th><th class=\"n\">final accuracy</th>"
                  "<th class=\"n\">elapsed, s</th><th class=\"n\">communicating, s</th>"
                  "<th class=\"n\">sent by rank 0, MB</th><th>report</th></tr>\n");
  for (size_t j = 0; j < count; j++) {
    const weir_report_group *g = &groups[j];
    g_string_append_printf(page,
                           "<tr><td><span class=\"plan\"><i class=\"dot\" "
                           "style=\"background:%s\"></i>",
                           colour(g->policy));
    weir_page_escape(page, g->policy);
    g_string_append_printf(page, "</span></td><td class=\"n\">%zu</td><td class=\"n\">%zu</td>",
                           g->runs, g->reached);
    weir_page_number(page, "%.1f", g->time);
    weir_page_number(page, "%.2f %%", 100 * g->final);
    weir_page_number(page, "%.1f", g->elapsed);
    weir_page_number(page, "%.1f", g->comm);
    weir_page_number(page, "%.1f", g->bytes / 1e6);
    g_string_append(page, "<td>");
    for (size_t i = 0; i < c->count; i++)
      if (c->runs[i].group == g->number) run_link(page, &c->runs[i]);
    g_string_append(page, "</td></tr>\n");
  }
  g_string_append(page, "</table></section>\n");
}

weir_status weir_compare_report_write(const char *directory) {
  weir_report_comparison c;
  weir_status status = weir_report_comparison_read(&c, directory);
  if (status) return status;
  size_t count = 0;
  weir_report_group *groups = weir_report_groups(&c, &count);
  weir_figures drawn;
  weir_figures_init(&drawn);
  bars_figure(&drawn, groups, count);
  const bool apart = curves_figure(&drawn, &c, groups, count);
  status = weir_figures_draw(&drawn);
  if (!status) {
    GString *page = g_string_new(NULL);
    weir_page_begin(page, "Weir: policies compared");
    headline(page, &c, groups, count);
    weir_page_figure(page, "Time to the target", "Shortest first.", NULL, drawn.svg[0]);
    weir_page_figure(page, "Accuracy over time",
                     apart ? "One line a run, over the logarithm of time. Fixed plans have their "
                             "collective's colour."
                           : "One line a run. Fixed plans have their collective's colour.",
                     NULL, drawn.svg[1]);
    table(page, &c, groups, count);
    weir_page_end(page);
    status = weir_page_write(page, directory);
    g_string_free(page, TRUE);
  }
  weir_figures_free(&drawn);
  g_free(groups);
  weir_report_comparison_free(&c);
  return status;
}

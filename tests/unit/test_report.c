/* Reports: whole, self-contained, right in their figures, and of no damaged file. */
#include <criterion/criterion.h>
#include <glib.h>
#include <json-glib/json-glib.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weir/plan.h>

#include "base/base.h"
#include "lab/compare.h"
#include "lab/report.h"
#include "lab/report_doc.h"

/* --- the files of a believable run of 4 workers over four phases (as C1); deterministic ------- */

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
    if (step == 2) fputc('0', f); /* as earlier versions have written what they did not know */
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
      "\"steps\":398,\"seed\":9007199254740993,\"weights_sha256\":[\"ab\",\"ab\",\"ab\",\"ab\"],"
      "\"accuracy\":[",
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
            "%s{\"policy\":\"%s\",\"seed\":9007199254740993,\"status\":\"done\",\"folder\":\"run "
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

/* --- a folder with them and a comparison, and what is done to it ------------------------------ */

static char directory[64];

static const char *path_of(const char *name) {
  static char path[128];
  (void)snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

static void set_up(void) {
  (void)strcpy(directory, "/tmp/weir-run-XXXXXX");
  cr_assert(mkdtemp(directory));
  run_write(directory);
  compare_write(directory);
}

static void tear_down(void) {
  g_autoptr(GDir) d = g_dir_open(directory, 0, NULL);
  for (const char *name; (name = g_dir_read_name(d));)
    if (unlink(path_of(name))) (void)rmdir(path_of(name));
  (void)rmdir(directory);
}

static char *slurp(const char *name) {
  char *text = NULL;
  cr_assert(g_file_get_contents(path_of(name), &text, NULL, NULL), "%s", name);
  return text;
}

static void store(const char *name, const char *text, gssize bytes) {
  cr_assert(g_file_set_contents(path_of(name), text, bytes, NULL));
}

static size_t occurrences(const char *text, const char *of) {
  size_t n = 0;
  while ((text = strstr(text, of))) n++, text += strlen(of);
  return n;
}

static void no_outside_world(const char *page) {
  cr_assert(strstr(page, "default-src 'none'"));
  cr_assert_null(strstr(page, "<link"));
  cr_assert_null(strstr(page, " src="));
  cr_assert_null(strstr(page, "href=\"http"));
  cr_assert_null(strstr(page, "url(http"));
  cr_assert_null(strstr(page, "@import"));
}

/* The charts' data, as they stand in the page. */
static JsonArray *charts_of(const char *page, JsonParser *parser) {
  const char *begin = strstr(page, "id=\"charts\">") + strlen("id=\"charts\">");
  const char *end = strstr(begin, "</script>");
  GError *error = NULL;
  cr_assert(json_parser_load_from_data(parser, begin, end - begin, &error), "%s",
            error ? error->message : "");
  return json_node_get_array(json_parser_get_root(parser));
}

static JsonObject *chart_of(JsonArray *charts, const char *caption) {
  for (guint i = 0; i < json_array_get_length(charts); i++) {
    JsonObject *chart = json_array_get_object_element(charts, i);
    if (!strcmp(json_object_get_string_member(chart, "caption"), caption)) return chart;
  }
  cr_assert_fail("there is no chart '%s'", caption);
  return NULL;
}

static JsonArray *points_of(JsonArray *charts, const char *caption) {
  return json_object_get_array_member(chart_of(charts, caption), "points");
}

static void replace(const char *name, const char *from, const char *to) {
  g_autofree char *text = slurp(name);
  g_autoptr(GString) changed = g_string_new(text);
  cr_assert(g_string_replace(changed, from, to, 1), "'%s' is not in %s", from, name);
  store(name, changed->str, (gssize)changed->len);
}

TestSuite(report, .init = set_up, .fini = tear_down);

/* Only the input files and, when written, the report: no temporary file is left. */
static size_t files_left(void) {
  size_t n = 0;
  g_autoptr(GDir) d = g_dir_open(directory, 0, NULL);
  while (g_dir_read_name(d)) n++;
  return n;
}

static char *page_of_run(void) {
  cr_assert_eq(weir_report_write(directory), WEIR_OK, "%s", weir_last_error());
  return slurp("report.html");
}

/* A field of a line of steps.csv: fields are counted from 0. */
static double csv_number(const char *line, int field) {
  while (field--) line = strchr(line, ',') + 1;
  return *line == ',' || *line == '\n' ? NAN : g_ascii_strtod(line, NULL);
}

/* The page keeps four digits. */
static void about(double value, double expected, const char *what, guint at) {
  cr_assert(fabs(value - expected) <= 6e-4 * fabs(expected), "%s %u: %g, expected %g", what, at,
            value, expected);
}

Test(report, run_report_is_whole_and_self_contained) {
  g_autofree char *page = page_of_run();
  cr_assert_eq(files_left(), 5);
  no_outside_world(page);
  cr_assert_lt(strlen(page), 600000);
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *charts = charts_of(page, parser);
  cr_assert_eq(json_array_get_length(charts), 11);
  cr_assert_eq(occurrences(page, "<figure class=\"chart"), 11);
  cr_assert_eq(occurrences(page, "role=\"img\" aria-label=\""), 11);
  cr_assert_eq(occurrences(page, "<tr class=head>") + occurrences(page, "<tr class=\"head kept\">"),
               RUN_DECISIONS + 6); /* and why: of six switches */
  cr_assert_eq(occurrences(page, "<details>"), RUN_DECISIONS);
  cr_assert(strstr(page, "87.29 %")); /* 0.873 - 0.55 exp(-399/45) = 0.87292 */
  cr_assert(strstr(page, "bit-identical"));
  cr_assert(strstr(page, "seed 9007199254740993<")); /* no double */
  cr_assert(strstr(page, "+2.0 %"));                 /* 51 ms measured for 50 ms set */
  cr_assert(strstr(page, "-2.0 %"));
  cr_assert(strstr(page, "17 candidates, 4 on the front"));
  cr_assert_null(strstr(page, "{{title"));
  cr_assert_null(strstr(page, "{{body"));
  cr_assert_null(strstr(page, "{{library"));
}

/* Every committed step is a point with what steps.csv says of it. */
Test(report, charts_hold_the_steps) {
  static const struct {
    const char *caption;
    int x, field[5], count;
  } expected[] = {{"one-way latency, ms", 0, {17, 15}, 2},
                  {"bandwidth, Gbit/s", 0, {18, 16, 21}, 3},
                  {"compression ratio", 0, {5}, 1},
                  {"ms per committed step", 0, {7, 8, 9}, 3},
                  {"training loss of rank 0", 19, {14}, 1}};
  g_autofree char *page = page_of_run(), *csv = slurp("steps.csv");
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *charts = charts_of(page, parser);
  for (size_t e = 0; e < G_N_ELEMENTS(expected); e++) {
    JsonArray *points = points_of(charts, expected[e].caption);
    guint at = 0;
    for (const char *line = strchr(csv, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
      if (csv_number(line, 2) > 0) continue; /* a trial */
      JsonArray *point = json_array_get_array_element(points, at++);
      about(json_array_get_double_element(point, 0), csv_number(line, expected[e].x), "x", at);
      for (int i = 0; i < expected[e].count; i++) {
        const double value = csv_number(line, expected[e].field[i]);
        if (isnan(value))
          cr_assert(json_array_get_null_element(point, (guint)i + 1));
        else
          about(json_array_get_double_element(point, (guint)i + 1), value, expected[e].caption, at);
      }
    }
    cr_assert_eq(at, RUN_STEPS - 2);
    cr_assert_eq(json_array_get_length(points), RUN_STEPS - 2);
  }
}

/* Phases begin with steps 100, 200 and 300; the plan of step 103 is in force from 104 to 150. */
Test(report, charts_hold_phases_and_plans) {
  g_autofree char *page = page_of_run();
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *charts = charts_of(page, parser);
  JsonArray *marks = json_object_get_array_member(chart_of(charts, "one-way latency, ms"), "marks");
  cr_assert_eq(json_array_get_length(marks), 4);
  for (guint i = 0; i < 4; i++)
    cr_assert_eq(json_object_get_double_member(json_array_get_object_element(marks, i), "x"),
                 100.0 * i);
  cr_assert_str_eq(json_object_get_string_member(json_array_get_object_element(marks, 2), "text"),
                   "50 ms, 0.1 Gbit/s");
  /* Over time, where the step before ends: two of a hundred were trials. */
  JsonObject *loss = chart_of(charts, "training loss of rank 0");
  JsonArray *points = json_object_get_array_member(loss, "points");
  marks = json_object_get_array_member(loss, "marks");
  for (guint i = 0; i < 4; i++) {
    JsonArray *before = i ? json_array_get_array_element(points, 100 * i - 3) : NULL;
    cr_assert_eq(json_object_get_double_member(json_array_get_object_element(marks, i), "x"),
                 before ? json_array_get_double_element(before, 0) : 0);
  }
  /* Nothing was predicted of the first three steps. */
  points = points_of(charts, "ms per committed step");
  for (guint i = 0; i < 4; i++)
    cr_assert_eq(json_array_get_null_element(json_array_get_array_element(points, i), 5), i < 3);
  JsonObject *chart = chart_of(charts, "collective");
  JsonArray *names = json_object_get_array_member(chart, "rows");
  JsonArray *bars = json_object_get_array_member(chart, "bars");
  cr_assert_eq(json_array_get_length(names), 3);
  static const struct {
    const char *name;
    double from, to;
  } stretch[] = {
      {"dense-ring", 0, 104}, {"ag", 104, 303}, {"ag", 341, 400}, {"art-tree", 303, 341}};
  cr_assert_eq(json_array_get_length(bars), 4);
  for (guint i = 0; i < 4; i++) {
    JsonObject *bar = json_array_get_object_element(bars, i);
    const guint row = (guint)json_object_get_double_member(bar, "row");
    cr_assert_str_eq(json_array_get_string_element(names, row), stretch[i].name);
    cr_assert_eq(json_object_get_double_member(bar, "from"), stretch[i].from, "%u", i);
    cr_assert_eq(json_object_get_double_member(bar, "to"), stretch[i].to, "%u", i);
  }
  /* Two steps of a trial. */
  cr_assert_eq(json_array_get_length(
                   json_object_get_array_member(chart_of(charts, "compression ratio"), "dots")),
               2);
}

/* How many percent of the committed steps steps.csv gives a collective. */
static double share_of(const char *csv, const char *collective) {
  double steps = 0, all = 0;
  for (const char *line = strchr(csv, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
    if (csv_number(line, 2) > 0) continue; /* a trial */
    const char *field = line;
    for (int f = 0; f < 6; f++) field = strchr(field, ',') + 1;
    const size_t length = strcspn(field, ",\n");
    steps += strlen(collective) == length && !strncmp(field, collective, length);
    all++;
  }
  return 100 * steps / all;
}

/* By the trapezoidal rule: the area under a series of a chart, and the mean of x weighed by it. */
static double area_of(JsonObject *chart, guint series, bool log_x, double *mean) {
  JsonArray *points = json_object_get_array_member(chart, "points");
  double area = 0, moment = 0;
  for (guint p = 1; p < json_array_get_length(points); p++) {
    JsonArray *a = json_array_get_array_element(points, p - 1);
    JsonArray *b = json_array_get_array_element(points, p);
    const double from = json_array_get_double_element(a, 0);
    const double to = json_array_get_double_element(b, 0);
    const double width = log_x ? log10(to) - log10(from) : to - from;
    const double height = (json_array_get_double_element(a, series + 1) +
                           json_array_get_double_element(b, series + 1)) /
                          2;
    area += width * height;
    moment += width * height * (from + to) / 2;
  }
  *mean = moment / area;
  return area;
}

/* A collective's area is its share, over the ratios and over the collectives; there its steps stand
 * at its place: the most used first. */
Test(report, densities_hold_all_steps) {
  static const char *const name[] = {"ag", "dense-ring", "art-tree"};
  static const char *const key[] = {"ag, 64.8 %", "dense-ring, 25.6 %", "art-tree, 9.5 %"};
  g_autofree char *page = page_of_run(), *csv = slurp("steps.csv");
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *charts = charts_of(page, parser);
  JsonObject *ratios = chart_of(charts, "% of committed steps a decade of compression ratios");
  JsonObject *collectives = chart_of(charts, "density of committed steps over collectives");
  JsonArray *places = json_object_get_array_member(collectives, "places");
  cr_assert_eq(json_array_get_length(places), 3);
  for (guint c = 0; c < 3; c++) {
    const double share = share_of(csv, name[c]);
    double mean = 0;
    const double over_ratios = area_of(ratios, c, true, &mean);
    const double over_collectives = 100 * area_of(collectives, c, false, &mean);
    cr_assert_float_eq(over_ratios, share, 0.3, "%s: %g %%, expected %g %%", name[c], over_ratios,
                       share);
    cr_assert_float_eq(over_collectives, share, 0.3, "%s: %g %%, expected %g %%", name[c],
                       over_collectives, share);
    cr_assert_float_eq(mean, c, 0.01, "%s: at %g", name[c], mean);
    cr_assert_str_eq(json_array_get_string_element(places, c), name[c]);
    JsonObject *series =
        json_array_get_object_element(json_object_get_array_member(collectives, "series"), c);
    cr_assert_str_eq(json_object_get_string_member(series, "name"), name[c]);
    cr_assert_str_eq(json_object_get_string_member(series, "key"), key[c]);
  }
}

/* Evaluated behind steps 19 and 39; runs of earlier versions have no such column, and no chart. */
Test(report, the_test_loss_is_drawn) {
  g_autofree char *before = page_of_run(), *csv = slurp("steps.csv");
  cr_assert_null(strstr(before, "\"test loss\""));
  g_auto(GStrv) lines = g_strsplit(csv, "\n", -1);
  g_autoptr(GString) with = g_string_new(NULL);
  for (guint i = 0; lines[i] && *lines[i]; i++)
    g_string_append_printf(with, "%s%s\n", lines[i],
                           !i                                  ? ",test_loss"
                           : g_str_has_prefix(lines[i], "19,") ? ",2.5"
                           : g_str_has_prefix(lines[i], "39,") ? ",1.25"
                                                               : ",");
  store("steps.csv", with->str, (gssize)with->len);
  g_autofree char *page = page_of_run();
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *points = points_of(charts_of(page, parser), "test loss");
  cr_assert_eq(json_array_get_length(points), 2);
  for (guint i = 0; i < 2; i++) {
    JsonArray *point = json_array_get_array_element(points, i);
    cr_assert_eq(json_array_get_double_element(point, 1), i ? 1.25 : 2.5);
    cr_assert_gt(json_array_get_double_element(point, 0), 0);
  }
}

/* A training over the network there is, without tests: of a schedule and of accuracies nothing is
 * said. */
Test(report, what_was_not_set_or_tested_is_left_out) {
  g_autofree char *csv = slurp("steps.csv");
  g_auto(GStrv) lines = g_strsplit(csv, "\n", -1);
  g_autoptr(GString) bare = g_string_new(NULL);
  for (guint i = 0; lines[i] && *lines[i]; i++) {
    g_auto(GStrv) cell = g_strsplit(lines[i], ",", -1);
    for (guint c = 0; cell[c]; c++)
      g_string_append_printf(bare, "%s%s", c ? "," : "", i && (c == 17 || c == 18) ? "" : cell[c]);
    g_string_append_c(bare, '\n');
  }
  store("steps.csv", bare->str, (gssize)bare->len);
  g_autofree char *summary = slurp("summary.json");
  g_autoptr(GRegex) accuracies =
      g_regex_new("\"accuracy\": *\\[.*?\\]\\]", G_REGEX_DOTALL, 0, NULL);
  g_autofree char *without =
      g_regex_replace_literal(accuracies, summary, -1, 0, "\"accuracy\":[]", 0, NULL);
  cr_assert_str_neq(without, summary);
  store("summary.json", without, -1);
  g_autofree char *page = page_of_run();
  cr_assert_null(strstr(page, "Set by the schedule"));
  cr_assert_null(strstr(page, "test accuracy, %"));
  cr_assert(strstr(page, "Measured by Weir, agreed on by all workers."));
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *charts = charts_of(page, parser);
  cr_assert_eq(json_array_get_length(
                   json_object_get_array_member(chart_of(charts, "one-way latency, ms"), "series")),
               1);
}

Test(report, text_from_files_is_escaped) {
  g_autofree char *page = page_of_run();
  cr_assert_null(strstr(page, "<not worth"));
  cr_assert(strstr(page, "&amp; &lt;not worth a switch&gt;"));
}

Test(report, different_weights_are_said) {
  replace("summary.json", "[\"ab\",", "[\"cd\",");
  g_autofree char *page = page_of_run();
  cr_assert_null(strstr(page, "bit-identical"));
  cr_assert(strstr(page, "weights differ"));
}

/* One step, nothing measured, no decision, no phase.  Of a version that knew no goodput yet. */
Test(report, smallest_run) {
  g_autofree char *csv = slurp("steps.csv");
  *strstr(csv, ",goodput_gbps\n") = 0;
  g_autofree char *one =
      g_strdup_printf("%s\n0,0,0,0,none,1,dense-ring,1,0,0,,,0,,nan,,,,,0,\n", csv);
  store("steps.csv", one, -1);
  store("decisions.jsonl", "", 0);
  store("summary.json",
        "{\"workers\":1,\"network\":\"sim\",\"policy\":\"weir\",\"final_accuracy\":0,"
        "\"elapsed_s\":0,\"comm_s\":0,\"switches\":0,\"weights_sha256\":[\"a\"]}",
        -1);
  g_autofree char *page = page_of_run();
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *points = points_of(charts_of(page, parser), "one-way latency, ms");
  cr_assert_eq(json_array_get_length(points), 1);
  cr_assert(json_array_get_null_element(json_array_get_array_element(points, 0), 1));
}

/* A page has room for 30 plans, and says how many it leaves out. */
Test(report, plans_left_out_are_counted) {
  g_autofree char *csv = slurp("steps.csv");
  *(strchr(csv, '\n') + 1) = 0;
  g_autoptr(GString) many = g_string_new(csv);
  for (int i = 1; i <= 40; i++)
    g_string_append_printf(many, "%d,0,0,0,topk,0.%02d,ag,1,0,0,,,0,,nan,,,,,0,,\n", i, i);
  store("steps.csv", many->str, (gssize)many->len);
  g_autofree char *page = page_of_run();
  cr_assert(strstr(page, " 10 plans that were used less"));
}

/* Only a trial's step: nothing is committed. */
Test(report, run_of_trials_alone) {
  g_autofree char *csv = slurp("steps.csv");
  *(strchr(csv, '\n') + 1) = 0;
  g_autofree char *one =
      g_strconcat(csv, "0,0,1,0,none,1,dense-ring,1,0,0,,,0,,nan,,,,,0,,\n", NULL);
  store("steps.csv", one, -1);
  g_autofree char *page = page_of_run();
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *points = points_of(charts_of(page, parser), "one-way latency, ms");
  cr_assert_eq(json_array_get_length(points), 0);
}

/* Of two steps that count and one of a trial: what they take on average, the trial as overhead. */
Test(report, a_step_of_each_phase) {
  g_autofree char *csv = slurp("steps.csv");
  *(strchr(csv, '\n') + 1) = 0;
  g_autofree char *three = g_strconcat(csv,
                                       "0,1,0,0,none,1,dense-ring,1,2,3,0.5,4,2e6,1,1,1,1,1,1,1,,\n"
                                       "1,1,1,0,none,1,dense-ring,4,5,6,0,6,3e6,1,1,1,1,1,1,2,,\n"
                                       "1,1,0,0,none,1,dense-ring,3,2,1,0.5,,4e6,1,1,1,1,1,1,3,,\n",
                                       NULL);
  store("steps.csv", three, -1);
  store("decisions.jsonl", "", 0);
  g_autofree char *page = page_of_run();
  const char *row = strstr(page, "<td class=n>all</td>");
  cr_assert(row);
  /* (1 + 3) / 2, (2 + 2) / 2, (3 + 1) / 2, (0.5 + 15 + 0.5) / 2, their sum, 1 + 2 + 4, 9 / 2 */
  cr_assert(g_str_has_prefix(row,
                             "<td class=n>all</td><td class=n>2</td>"
                             "<td class=n>2.00</td><td class=n>2.00</td>"
                             "<td class=n>2.00</td><td class=n>8.00</td>"
                             "<td class=n>14.00</td><td class=n>7.00</td>"
                             "<td class=n>4.5</td></tr>"),
            "%.300s", row);
  /* In the chart the trial counts with the step after it: 0.5 + 15; and 2, then 9 MB are sent. */
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *charts = charts_of(page, parser);
  JsonArray *last = json_array_get_array_element(points_of(charts, "ms per committed step"), 1);
  cr_assert_eq(json_array_get_double_element(last, 4), 15.5);
  last = json_array_get_array_element(points_of(charts, "MB sent by rank 0, in all"), 1);
  cr_assert_eq(json_array_get_double_element(last, 1), 9);
}

/* 398 committed steps under six plans of one or two decisions each. */
Test(report, use_of_plans) {
  g_autofree char *page = page_of_run();
  /* Steps 0 to 103 but for two of a trial; 54 of 151 to 204; 98 of 205 to 302; 59 of 341 on. */
  static const char *const row[] = {
      "bf16:1:dense-ring</span></td><td class=n>102</td>"
      "<td class=n>25.6 %</td>",
      "topk:0.03:ag</span></td><td class=n>106</td>"
      "<td class=n>26.6 %</td>",
      "topk:0.1:ag</span></td><td class=n>54</td>"
      "<td class=n>13.6 %</td>",
      "topk:0.01:ag</span></td><td class=n>98</td>"
      "<td class=n>24.6 %</td>",
      "star:0.1:art-tree</span></td><td class=n>38</td>"
      "<td class=n>9.5 %</td>"};
  for (size_t i = 0; i < G_N_ELEMENTS(row); i++) cr_assert(strstr(page, row[i]), "%s", row[i]);
}

/* Plans that differ in their wire format alone are two, and low rank is named by its rank. */
Test(report, use_of_plans_by_name) {
  g_autofree char *csv = slurp("steps.csv");
  const size_t head = (size_t)(strchr(csv, '\n') + 1 - csv);
  static const char *const plan[] = {"companded:0.09375:sra,companded,0.09375,sra",
                                     "companded:0.09375:sra:huffman,companded,0.09375,sra",
                                     "powersgd:16:dense-sra:huffman,powersgd,0.25,dense-sra",
                                     "powersgd:16:dense-sra:huffman,powersgd,0.25,dense-sra"};
  g_autoptr(GString) text = g_string_new_len(csv, (gssize)head);
  for (size_t i = 0; i < G_N_ELEMENTS(plan); i++)
    g_string_append_printf(text, "%zu,0,0,%s,1,1,1,0,1,1000,1,1,1,1,1,1,%zu,,1\n", i, plan[i], i);
  store("steps.csv", text->str, (gssize)text->len);
  g_autofree char *page = page_of_run();
  cr_assert(strstr(page, "companded:0.09375:sra</span></td><td class=n>1</td>"));
  cr_assert(strstr(page, "companded:0.09375:sra:huffman</span></td><td class=n>1</td>"));
  cr_assert(strstr(page, "powersgd:16:dense-sra:huffman</span></td><td class=n>2</td>"));
  cr_assert_null(strstr(page, "powersgd:0.25"));
}

/* --- long runs -------------------------------------------------------------------------------- */

enum { LONG_STEPS = 20000, LONG_DECISIONS = 500, LONG_EACH = 45 /* into 450 points */ };

static double long_latency(int step) { return step % 1000 == 7 ? 41 : 1 + step % 2; }

static void write_long_run(void) {
  g_autofree char *csv = slurp("steps.csv"), *decisions = slurp("decisions.jsonl");
  g_autoptr(GString) text = g_string_new_len(csv, strchr(csv, '\n') + 1 - csv);
  for (int i = 0; i < LONG_STEPS; i++)
    g_string_append_printf(text,
                           "%d,%d,0,0,topk,0.%d,%s,1.2345,0.2345,%d.6789,0.1234,3.4567,%d,"
                           "0.1234,0.%d,%g,%d.4567,1,2,%d.5,,1.2345\n",
                           i, i / 1000, 1 + i / 10 % 9, i / 10 % 2 ? "ag" : "art-ring", i % 7,
                           9 + i, i % 9999, long_latency(i), i % 13, i);
  store("steps.csv", text->str, (gssize)text->len);
  g_string_truncate(text, 0);
  const size_t first = strcspn(decisions, "\n") + 1;
  for (int i = 0; i < LONG_DECISIONS; i++) g_string_append_len(text, decisions, (gssize)first);
  store("decisions.jsonl", text->str, (gssize)text->len);
}

/* Thinned out, but no step's least or most is lost. */
Test(report, long_run_stays_small_and_keeps_extremes) {
  write_long_run();
  g_autofree char *page = page_of_run();
  cr_assert_lt(strlen(page), 600000, "%zu bytes", strlen(page));
  cr_assert(strstr(page, "300 more are in decisions.jsonl"));
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *points = points_of(charts_of(page, parser), "one-way latency, ms");
  cr_assert_eq(json_array_get_length(points), (LONG_STEPS + LONG_EACH - 1) / LONG_EACH);
  for (guint p = 0; p < json_array_get_length(points); p++) {
    const int from = (int)p * LONG_EACH, until = MIN(from + LONG_EACH, LONG_STEPS);
    double sum = 0, most = 0;
    for (int i = from; i < until; i++) {
      sum += long_latency(i);
      most = fmax(most, long_latency(i));
    }
    JsonArray *point = json_array_get_array_element(points, p);
    cr_assert_eq(json_array_get_double_element(point, 0), from);
    cr_assert_eq(json_array_get_double_element(point, 1), 1); /* set: always the same */
    JsonArray *three = json_array_get_array_element(point, 2);
    cr_assert_eq(json_array_get_double_element(three, 0), 1);
    about(json_array_get_double_element(three, 1), sum / (until - from), "mean", p);
    cr_assert_eq(json_array_get_double_element(three, 2), most);
  }
}

static void refused(weir_status expected, const char *where, const char *what) {
  cr_assert_eq(weir_report_write(directory), expected, "%s", weir_last_error());
  cr_assert(strstr(weir_last_error(), where), "'%s' does not name %s", weir_last_error(), where);
  cr_assert(strstr(weir_last_error(), what), "'%s' does not say '%s'", weir_last_error(), what);
  cr_assert_eq(access(path_of("report.html"), F_OK), -1);
}

static void spoiled(const char *name, const char *from, const char *to, const char *where,
                    const char *what) {
  g_autofree char *good = slurp(name);
  replace(name, from, to);
  refused(WEIR_E_PARSE, where, what);
  store(name, good, -1);
}

Test(report, bad_steps) {
  spoiled("steps.csv", "epoch,trial", "epoch,trail", "steps.csv:1:", "expected 'trial'");
  spoiled("steps.csv", ",accuracy,goodput_gbps\n", "\n", "steps.csv:1:", "20 columns, expected 23");
  spoiled("steps.csv", ",goodput_gbps\n", "\n", "steps.csv:2:", "22 fields, expected 21");
  spoiled("steps.csv", "\n0,0,0,0,bf16", "\n0,0,0,bf16", "steps.csv:2:", "21 fields");
  spoiled("steps.csv", "\n0,0,0,0,bf16", "\n0,0,0,0,bf<16", "steps.csv:2:", "codec is 'bf<16'");
  spoiled("steps.csv", "\n1,0,0,0,bf16,1,dense-ring", "\n1,0,0,0,bf16,1,<b>",
          "steps.csv:3:", "collective is '<b>'");
  spoiled("steps.csv", "\n1,0,0,0,bf16,1,", "\n1,0,0,0,bf16,1.5,", "steps.csv:3:", "cr is 1.5");
  spoiled("steps.csv", "\n1,0,0,0,bf16,1,", "\n1,0,0,0,bf16,0,", "steps.csv:3:", "cr is 0");
  spoiled("steps.csv", "\n1,0,0,", "\nx,0,0,", "steps.csv:3:", "step is 'x'");
  spoiled("steps.csv", "\n1,0,0,", "\n-1,0,0,", "steps.csv:3:", "step is '-1'");
  spoiled("steps.csv", "\n1,0,0,", "\nnan,0,0,", "steps.csv:3:", "step is 'nan'");
  spoiled("steps.csv", "\n1,0,0,", "\n,0,0,", "steps.csv:3:", "step is ''");
  spoiled("steps.csv", "\n2,0,0,", "\n\n2,0,0,", "steps.csv:4:", "1 fields");
}

Test(report, steps_that_end_or_go_back) {
  g_autofree char *csv = slurp("steps.csv");
  const size_t head = (size_t)(strchr(csv, '\n') + 1 - csv);
  store("steps.csv", csv, (gssize)strlen(csv) - 1);
  refused(WEIR_E_PARSE, "steps.csv", "middle of a line");
  store("steps.csv", csv, (gssize)head);
  refused(WEIR_E_PARSE, "steps.csv", "no steps");
  store("steps.csv", "", 0);
  refused(WEIR_E_PARSE, "steps.csv", "no steps");
  g_autoptr(GString) text = g_string_new_len(csv, (gssize)head);
  g_string_append(text,
                  "0,0,0,0,none,1,dense-ring,1,0,2,0,,9,1,0.5,1,1,1,1,5,,\n"
                  "1,0,0,0,none,1,dense-ring,1,0,2,0,,9,1,0.5,1,1,1,1,4,,\n");
  store("steps.csv", text->str, -1);
  refused(WEIR_E_PARSE, "steps.csv:3:", "goes back");
  store("steps.csv", "a\0b\n", 4);
  refused(WEIR_E_PARSE, "steps.csv", "zero byte");
}

/* With a byte-order mark and CR LF. */
static void as_edited_elsewhere(const char *name) {
  g_autofree char *text = slurp(name);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  g_autofree char *joined = g_strjoinv("\r\n", lines);
  g_autofree char *marked = g_strconcat("\xEF\xBB\xBF", joined, NULL);
  store(name, marked, -1);
}

Test(report, as_editors_of_other_systems_leave_it) {
  g_autofree char *due = page_of_run();
  as_edited_elsewhere("steps.csv");
  as_edited_elsewhere("decisions.jsonl");
  as_edited_elsewhere("summary.json");
  g_autofree char *got = page_of_run();
  cr_assert_str_eq(got, due);
}

/* A pipe in a folder would be waited for without end. */
Test(report, what_is_no_file) {
  static const char *const names[] = {"summary.json", "steps.csv", "decisions.jsonl"};
  for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
    g_autofree char *good = slurp(names[i]);
    cr_assert_eq(unlink(path_of(names[i])), 0);
    cr_assert_eq(mkfifo(path_of(names[i]), 0600), 0);
    refused(WEIR_E_IO, names[i], "no regular file");
    cr_assert_eq(unlink(path_of(names[i])), 0);
    store(names[i], good, -1);
  }
}

/* Names of files are bytes: what is written of them can be read again. */
Test(report, names_that_are_no_text) {
  g_autoptr(JsonBuilder) doc = json_builder_new();
  g_autoptr(JsonParser) parser = json_parser_new();
  weir_doc_object(doc, NULL);
  weir_doc_text(doc, "scenario", "caf\xe9.ini");
  weir_doc_end(doc);
  g_autoptr(JsonNode) root = json_builder_get_root(doc);
  g_autofree char *text = json_to_string(root, FALSE);
  cr_assert(json_parser_load_from_data(parser, text, -1, NULL), "%s", text);
  cr_assert(strstr(text, "caf\xEF\xBF\xBD.ini"), "%s", text);
}

Test(report, bad_decisions) {
  const char *f = "decisions.jsonl";
  spoiled(f, "{\"decision\":1", "{\"decision\":1,,", "decisions.jsonl:2:", "");
  spoiled(f, "{\"decision\":1,\"step\":60", "{\"decision\":1,\"step\":\"60\"",
          "decisions.jsonl:2:", "'step' must be a number");
  spoiled(f, "\"step\":60,", "", "decisions.jsonl:2:", "'step' is missing");
  spoiled(f, "\"step\":60,", "\"step\":-60,", "decisions.jsonl:2:", "0 or more");
  spoiled(f, "\"trigger\":\"start\"", "\"trigger\":7", "decisions.jsonl:1:", "'trigger' must be");
  spoiled(f, "\"front\":[2,", "\"front\":[17,", "decisions.jsonl:1:", "'front'[0]");
  spoiled(f, "\"front\":[2,", "\"front\":[-1,", "decisions.jsonl:1:", "'front'[0]");
  spoiled(f, "\"choice\":{\"plan\":\"bf16", "\"choice\":{\"plan\":\"bf18",
          "decisions.jsonl:1:", "is no plan");
  spoiled(f, "\"choice\":{", "\"chosen\":{", "decisions.jsonl:1:", "'choice'");
  spoiled(f, "\"candidates\":[{", "\"candidates\":[3,{", "decisions.jsonl:1:", "'candidates'[0]");
  spoiled(f, "{\"decision\":2", "[1]\n{\"decision\":2", "decisions.jsonl:3:", "JSON object");
  spoiled(f, "\"why\":\"most", "\"why\":\"\xff", "decisions.jsonl:1:", "UTF-8");
}

Test(report, hostile_nesting) {
  g_autoptr(GString) deep = g_string_new("{\"a\":");
  for (int i = 0; i < 100000; i++) g_string_append_c(deep, '[');
  store("decisions.jsonl", deep->str, (gssize)deep->len);
  refused(WEIR_E_PARSE, "decisions.jsonl:1:", "nested");
}

Test(report, bad_summary) {
  const char *f = "summary.json";
  spoiled(f, "\"workers\":4", "\"workers\":null", f, "'workers' is missing");
  spoiled(f, "\"workers\":4", "\"workers\":1e999", f, "");
  spoiled(f, "\"network\":\"uml\"", "\"network\":[]", f, "'network' must be a string");
  spoiled(f, "\"weights_sha256\":[\"ab\"", "\"weights_sha256\":[3", f, "'weights_sha256'[0]");
  spoiled(f, "\"phases\":[", "\"phases\":[1,", f, "'phases'[0]");
  spoiled(f, "\"first_epoch\":4", "\"first\":4", f, "'first_epoch' is missing");
  spoiled(f, "\"accuracy\":[[", "\"accuracy\":[[1,", f, "'accuracy'[0]");
  spoiled(f, "\"accuracy\":[", "\"accuracy\":[[1,2,1.5],", f, "'accuracy'[0]");
  spoiled(f, "\"accuracy\":[", "\"accuracy\":3,\"x\":[", f, "'accuracy' must be a list");
}

Test(report, missing_files) {
  const char *names[] = {"decisions.jsonl", "steps.csv", "summary.json"};
  for (size_t i = 0; i < 3; i++) {
    cr_assert_eq(unlink(path_of(names[i])), 0);
    refused(WEIR_E_IO, names[i], "No such file");
  }
  cr_assert_eq(unlink(path_of("compare.json")), 0);
  cr_assert_eq(weir_compare_report_write(directory), WEIR_E_IO);
}

Test(report, target_cannot_be_replaced) {
  cr_assert_eq(mkdir(path_of("report.html"), 0700), 0);
  cr_assert_eq(weir_report_write(directory), WEIR_E_IO);
  cr_assert(strstr(weir_last_error(), "report.html"));
  cr_assert_eq(files_left(), 5);
}

/* Pages of comparisons: their figures, policies of every kind, runs that failed, damaged files. */

TestSuite(report_compare, .init = set_up, .fini = tear_down);

Test(report_compare, compare_report) {
  cr_assert_eq(weir_compare_report_write(directory), WEIR_OK, "%s", weir_last_error());
  g_autofree char *page = slurp("report.html");
  no_outside_world(page);
  cr_assert_lt(strlen(page), 600000);
  g_autoptr(JsonParser) parser = json_parser_new();
  JsonArray *charts = charts_of(page, parser);
  /* weir's bar is the shortest: 21 x 0.86 s; its curve begins with step 20 of 400, at 21 / 20 s. */
  JsonArray *bars = json_object_get_array_member(chart_of(charts, "seconds to the target"), "bars");
  cr_assert_eq(json_array_get_length(bars), 9);
  cr_assert_float_eq(json_object_get_double_member(json_array_get_object_element(bars, 0), "to"),
                     18.06, 1e-9);
  JsonArray *curves = json_object_get_array_member(chart_of(charts, "test accuracy, %"), "series");
  cr_assert_eq(json_array_get_length(curves), 9);
  JsonObject *best = json_array_get_object_element(curves, 8);
  cr_assert_str_eq(json_object_get_string_member(best, "name"), "weir");
  JsonArray *points = json_object_get_array_member(best, "points");
  cr_assert_eq(json_array_get_length(points), 20);
  JsonArray *first = json_array_get_array_element(points, 0);
  cr_assert_float_eq(json_array_get_double_element(first, 0), 1.05, 1e-9);
  cr_assert_float_eq(json_array_get_double_element(first, 1), 52.34,
                     1e-9); /* 87.1 - 50 exp(-20/55) */
  cr_assert(strstr(page, "86.30 %"));
  cr_assert_null(strstr(page, "are missing"));
  cr_assert(strstr(page, "over the logarithm of time")); /* 97 s beside 21 */
  cr_assert(strstr(page, "0.24 ×")); /* 21 s against none:1:dense-ring's 88 s, both x 0.86 */
  cr_assert(strstr(page, "not reached"));
  cr_assert(strstr(page, "<a href=\"./run%208/report.html\">seed 9007199254740993</a>"));
}

/* Groups and bit widths are neither fixed plans nor harmful names: weir takes 21 x 0.86 s here, the
 * one fixed plan 10 s, and groups that took 5 s are no fixed policy to be held against. */
/* Runs that have learnt next to nothing: a target below zero would be refused. */
Test(report_compare, a_target_is_not_negative) {
  double point[1][3] = {{1, 1, 0.004}};
  weir_compared run = {.policy = (char[]){"none:1:dense-ring"},
                       .folder = (char[]){"none"},
                       .state = WEIR_COMPARED_DONE,
                       .final_accuracy = 0.004,
                       .accuracy = point,
                       .accuracies = 1};
  weir_comparison comparison = {.runs = &run, .count = 1};
  weir_comparison_judge(&comparison, NAN);
  cr_assert_eq(comparison.target, 0);
  cr_assert_eq(run.time_to_accuracy_s, 1);
  cr_assert_eq(weir_comparison_write(&comparison, "s", directory, NULL), WEIR_OK);
  cr_assert_eq(weir_compare_report_write(directory), WEIR_OK, "%s", weir_last_error());
  run.state = WEIR_COMPARED_FAILED;
  weir_comparison_judge(&comparison, NAN);
  cr_assert(isnan(comparison.target), "%g", comparison.target);
}

Test(report_compare, comparison_of_all_kinds_of_policies) {
  store("compare.json",
        "{\"target_accuracy\":0.8,\"runs\":["
        "{\"policy\":\"weir\",\"seed\":1,\"status\":\"done\",\"time_to_accuracy_s\":18.06,"
        "\"final_accuracy\":0.9,\"accuracy\":[[1,10,0.5]]},"
        "{\"policy\":\"topk:0.01:ag\",\"seed\":1,\"status\":\"done\",\"time_to_accuracy_s\":10,"
        "\"final_accuracy\":0.9,\"accuracy\":[[1,10,0.5]]},"
        "{\"policy\":\"groups:bucket=2:topk:0.01:ag\",\"seed\":1,\"status\":\"done\","
        "\"time_to_accuracy_s\":5,\"final_accuracy\":0.9,\"accuracy\":[[1,10,0.5]]},"
        "{\"policy\":\"groups:/tmp/a folder/planned.csv\",\"seed\":1,\"status\":\"done\","
        "\"time_to_accuracy_s\":6,\"final_accuracy\":0.9,\"accuracy\":[[1,10,0.5]]},"
        "{\"policy\":\"bits:kmeans:2.5\",\"seed\":1,\"status\":\"done\",\"time_to_accuracy_s\":7,"
        "\"final_accuracy\":0.9,\"accuracy\":[[1,10,0.5]]}]}",
        -1);
  cr_assert_eq(weir_compare_report_write(directory), WEIR_OK, "%s", weir_last_error());
  g_autofree char *page = slurp("report.html");
  cr_assert_null(strstr(page, "logarithm")); /* all end at the same time */
  cr_assert(strstr(page, "1.81 ×"));
  cr_assert_null(strstr(page, "3.61 ×"));
  cr_assert(strstr(page, "groups:bucket=2:topk:0.01:ag"));
  cr_assert(strstr(page, "bits:kmeans:2.5"));
}

/* A policy that failed before its first evaluation. */
Test(report_compare, comparison_without_points) {
  store("compare.json",
        "{\"target_accuracy\":null,\"runs\":[{\"policy\":\"paper\",\"seed\":1,"
        "\"status\":\"failed\",\"error\":\"rank 2 <is> gone\",\"accuracy\":[]}]}",
        -1);
  cr_assert_eq(weir_compare_report_write(directory), WEIR_OK, "%s", weir_last_error());
  g_autofree char *page = slurp("report.html");
  cr_assert(strstr(page, "failed: rank 2 &lt;is&gt; gone"));
}

/* Cut short: means are of the seed that was done, 90.00 % and 12.0 s; the target counts as reached
 * only by all. */
Test(report_compare, interrupted_comparison) {
  store("compare.json",
        "{\"target_accuracy\":0.8,\"complete\":false,\"runs\":["
        "{\"policy\":\"weir\",\"seed\":1,\"status\":\"done\",\"time_to_accuracy_s\":7,"
        "\"final_accuracy\":0.9,\"elapsed_s\":12,\"accuracy\":[[7,10,0.85]]},"
        "{\"policy\":\"weir\",\"seed\":2,\"status\":\"interrupted\",\"accuracy\":[]},"
        "{\"policy\":\"paper\",\"seed\":1,\"status\":\"failed\",\"error\":\"rank 1 is gone\","
        "\"accuracy\":[]},"
        "{\"policy\":\"topk:0.01:ag\",\"seed\":1,\"status\":\"not run\",\"accuracy\":[]}]}",
        -1);
  cr_assert_eq(weir_compare_report_write(directory), WEIR_OK, "%s", weir_last_error());
  g_autofree char *page = slurp("report.html");
  cr_assert(strstr(page, "2 of 4 runs are missing"));
  cr_assert(strstr(page, "90.00 %"));
  cr_assert(strstr(page, "<td class=n>12.0</td>"));
  cr_assert_null(strstr(page, ">7.0<"));
  cr_assert(strstr(page, ">not run</span>"));
  cr_assert_null(strstr(page, "fixed polic"));
}

/* Times beside policy weir's are said where it was run; else the best fixed policy's own. */
Test(report_compare, policies_that_were_not_run_are_not_spoken_of) {
  store("compare.json",
        "{\"target_accuracy\":0.8,\"complete\":true,\"runs\":["
        "{\"policy\":\"topk:0.01:ag\",\"seed\":1,\"status\":\"done\",\"time_to_accuracy_s\":7.5,"
        "\"final_accuracy\":0.9,\"elapsed_s\":12,\"accuracy\":[[7.5,10,0.85]]}]}",
        -1);
  cr_assert_eq(weir_compare_report_write(directory), WEIR_OK, "%s", weir_last_error());
  g_autofree char *page = slurp("report.html");
  cr_assert_null(strstr(page, "policy weir&#39;s time"));
  cr_assert_null(strstr(page, "policy weir's time"));
  cr_assert_null(strstr(page, "policy paper"));
  cr_assert_null(strstr(page, "median"));
  cr_assert(strstr(page, "the best fixed policy"));
  cr_assert(strstr(page, "7.5 s"));
}

Test(report_compare, a_policy_of_any_characters) {
  replace("compare.json", "\"policy\":\"weir\"",
          "\"policy\":\"groups:~/a@b (1)/<script>alert('x')</script>&\"");
  cr_assert_eq(weir_compare_report_write(directory), WEIR_OK, "%s", weir_last_error());
  g_autofree char *page = slurp("report.html");
  cr_assert(
      strstr(page, "groups:~/a@b (1)/&lt;script&gt;alert(&apos;x&apos;)&lt;/script&gt;&amp;"));
  cr_assert_null(strstr(page, "<script>alert"));
}

Test(report_compare, bad_comparison) {
  const char *const change[][3] = {
      {"\"policy\":\"weir\"", "\"policy\":\"\"", "is no policy"},
      {"\"policy\":\"weir\",", "", "'policy' is missing"},
      {"\"runs\":[", "\"runs\":[],\"x\":[", "'runs' is empty"},
      {"\"runs\":[", "\"runs\":[7,", "'runs'[0]"},
      {"\"final_accuracy\":0.8710", "\"final_accuracy\":\"high\"", "'final_accuracy'"},
      {"{\"target", "{{\"target", ""}};
  for (size_t i = 0; i < G_N_ELEMENTS(change); i++) {
    g_autofree char *good = slurp("compare.json");
    replace("compare.json", change[i][0], change[i][1]);
    cr_assert_eq(weir_compare_report_write(directory), WEIR_E_PARSE, "case %zu", i);
    cr_assert(strstr(weir_last_error(), "compare.json"));
    cr_assert(strstr(weir_last_error(), change[i][2]), "'%s'", weir_last_error());
    store("compare.json", good, -1);
  }
  cr_assert_eq(access(path_of("report.html"), F_OK), -1);
}

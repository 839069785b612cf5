/* Reports: whole, self-contained, right in their figures, and of no damaged file. */
#include <criterion/criterion.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/report.h"
#include "lab/report_plot.h"
#include "report_folder.h"

TestSuite(report, .init = set_up, .fini = tear_down);

/* Only the input files and, when written, the report: no temporary file is left. */
static size_t files_left(void) {
  size_t n = 0;
  GDir *d = g_dir_open(directory, 0, NULL);
  while (g_dir_read_name(d)) n++;
  g_dir_close(d);
  return n;
}

Test(report, run_report_is_whole_and_self_contained) {
  cr_assert_eq(weir_report_write(directory), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(files_left(), 5);
  char *page = slurp("report.html");
  no_outside_world(page);
  cr_assert_eq(occurrences(page, "<svg"), 6);
  cr_assert_eq(occurrences(page, "<svg role=\"img\" aria-label=\""), 6);
  cr_assert_eq(occurrences(page, "</svg>"), 6);
  cr_assert_eq(occurrences(page, "<tr class=\"head"), RUN_DECISIONS);
  cr_assert_eq(occurrences(page, "<details>"), RUN_DECISIONS);
  cr_assert(strstr(page, "87.29 %")); /* 0.873 - 0.55 exp(-399/45) = 0.87292 */
  cr_assert(strstr(page, "bit-identical"));
  cr_assert(strstr(page, "+2.0 %")); /* 51 ms measured for 50 ms set */
  cr_assert(strstr(page, "-2.0 %"));
  cr_assert(strstr(page, "17 candidates, 4 on the front"));
  g_free(page);
}

Test(report, text_from_files_is_escaped) {
  cr_assert_eq(weir_report_write(directory), WEIR_OK);
  char *page = slurp("report.html");
  cr_assert_null(strstr(page, "<not worth"));
  cr_assert(strstr(page, "&amp; &lt;not worth a switch&gt;"));
  g_free(page);
}

Test(report, different_weights_are_said) {
  replace("summary.json", "[\"ab\",", "[\"cd\",");
  cr_assert_eq(weir_report_write(directory), WEIR_OK);
  char *page = slurp("report.html");
  cr_assert_null(strstr(page, "bit-identical"));
  cr_assert(strstr(page, "weights differ"));
  g_free(page);
}

/* One step, nothing measured, no decision, no phase. */
/* Of a version that knew no goodput yet. */
Test(report, smallest_run) {
  char *csv = slurp("steps.csv");
  *strstr(csv, ",goodput_gbps\n") = 0;
  char *one = g_strdup_printf("%s\n0,0,0,0,none,1,dense-ring,1,0,0,,,0,,nan,,,,,0,\n", csv);
  store("steps.csv", one, -1);
  store("decisions.jsonl", "", 0);
  store("summary.json",
        "{\"workers\":1,\"network\":\"sim\",\"policy\":\"weir\",\"final_accuracy\":0,"
        "\"elapsed_s\":0,\"comm_s\":0,\"switches\":0,\"weights_sha256\":[\"a\"]}",
        -1);
  cr_assert_eq(weir_report_write(directory), WEIR_OK, "%s", weir_last_error());
  char *page = slurp("report.html");
  cr_assert_eq(occurrences(page, "</svg>"), 6);
  g_free(page);
  g_free(one);
  g_free(csv);
}

/* Of two steps that count and one of a trial: what they take on average, the trial as overhead. */
Test(report, a_step_of_each_phase) {
  char *csv = slurp("steps.csv");
  *(strchr(csv, '\n') + 1) = 0;
  char *three = g_strconcat(csv,
                            "0,1,0,0,none,1,dense-ring,1,2,3,0.5,4,2e6,1,1,1,1,1,1,1,,\n"
                            "1,1,1,0,none,1,dense-ring,4,5,6,0,6,3e6,1,1,1,1,1,1,2,,\n"
                            "1,1,0,0,none,1,dense-ring,3,2,1,0.5,,4e6,1,1,1,1,1,1,3,,\n",
                            NULL);
  store("steps.csv", three, -1);
  store("decisions.jsonl", "", 0);
  cr_assert_eq(weir_report_write(directory), WEIR_OK, "%s", weir_last_error());
  char *page = slurp("report.html");
  const char *row = strstr(page, "<td class=\"n\">all</td>");
  cr_assert(row);
  /* (1 + 3) / 2, (2 + 2) / 2, (3 + 1) / 2, (0.5 + 15 + 0.5) / 2, their sum, 1 + 2 + 4, 9 / 2 */
  cr_assert(g_str_has_prefix(row,
                             "<td class=\"n\">all</td><td class=\"n\">2</td>"
                             "<td class=\"n\">2.00</td><td class=\"n\">2.00</td>"
                             "<td class=\"n\">2.00</td><td class=\"n\">8.00</td>"
                             "<td class=\"n\">14.00</td><td class=\"n\">7.00</td>"
                             "<td class=\"n\">4.5</td></tr>"),
            "%.300s", row);
  g_free(page);
  g_free(three);
  g_free(csv);
}

/* 25 of 400 steps have no room for their network's name. */
Test(report, names_of_short_phases_are_left_out) {
  cr_assert_eq(weir_report_write(directory), WEIR_OK);
  char *page = slurp("report.html");
  cr_assert(strstr(page, "1 ms, 0.1 Gbit/s<"));
  g_free(page);
  replace("summary.json", "\"first_epoch\":8,", "\"first_epoch\":5,");
  cr_assert_eq(weir_report_write(directory), WEIR_OK);
  page = slurp("report.html");
  cr_assert_null(strstr(page, "1 ms, 0.1 Gbit/s<"));
  cr_assert(strstr(page, "50 ms, 0.1 Gbit/s<"));
  g_free(page);
}

/* A long run is thinned out: the page does not grow with it. */
Test(report, long_run_stays_small) {
  char *csv = slurp("steps.csv");
  GString *text = g_string_new_len(csv, strchr(csv, '\n') + 1 - csv);
  for (int i = 0; i < 30000; i++)
    g_string_append_printf(text, "%d,%d,0,0,none,1,dense-ring,1,0,2,0,,9,1,0.5,1,1,1,1,%d.5,,\n", i,
                           i / 100, i);
  store("steps.csv", text->str, (gssize)text->len);
  cr_assert_eq(weir_report_write(directory), WEIR_OK, "%s", weir_last_error());
  struct stat info;
  cr_assert_eq(stat(path_of("report.html"), &info), 0);
  cr_assert_lt(info.st_size, 3000000);
  g_string_free(text, TRUE);
  g_free(csv);
}

static void refused(weir_status expected, const char *where, const char *what) {
  cr_assert_eq(weir_report_write(directory), expected, "%s", weir_last_error());
  cr_assert(strstr(weir_last_error(), where), "'%s' does not name %s", weir_last_error(), where);
  cr_assert(strstr(weir_last_error(), what), "'%s' does not say '%s'", weir_last_error(), what);
  cr_assert_eq(access(path_of("report.html"), F_OK), -1);
}

static void spoiled(const char *name, const char *from, const char *to, const char *where,
                    const char *what) {
  char *good = slurp(name);
  replace(name, from, to);
  refused(WEIR_E_PARSE, where, what);
  store(name, good, -1);
  g_free(good);
}

Test(report, bad_steps) {
  spoiled("steps.csv", "epoch,trial", "epoch,trail", "steps.csv:1:", "expected 'trial'");
  spoiled("steps.csv", ",accuracy,goodput_gbps\n", "\n", "steps.csv:1:", "20 columns, expected 23");
  spoiled("steps.csv", ",goodput_gbps\n", "\n", "steps.csv:2:", "22 fields, expected 21");
  spoiled("steps.csv", "\n0,0,0,0,bf16", "\n0,0,0,bf16", "steps.csv:2:", "21 fields");
  spoiled("steps.csv", "\n0,0,0,0,bf16", "\n0,0,0,0,bf17", "steps.csv:2:", "codec 'bf17'");
  spoiled("steps.csv", "\n1,0,0,0,bf16,1,dense-ring", "\n1,0,0,0,bf16,1,<b>",
          "steps.csv:3:", "collective '<b>'");
  spoiled("steps.csv", "\n1,0,0,0,bf16,1,", "\n1,0,0,0,bf16,1.5,", "steps.csv:3:", "cr is 1.5");
  spoiled("steps.csv", "\n1,0,0,0,bf16,1,", "\n1,0,0,0,bf16,0,", "steps.csv:3:", "cr is 0");
  spoiled("steps.csv", "\n1,0,0,", "\nx,0,0,", "steps.csv:3:", "step is 'x'");
  spoiled("steps.csv", "\n1,0,0,", "\n-1,0,0,", "steps.csv:3:", "step is '-1'");
  spoiled("steps.csv", "\n1,0,0,", "\nnan,0,0,", "steps.csv:3:", "step is 'nan'");
  spoiled("steps.csv", "\n1,0,0,", "\n,0,0,", "steps.csv:3:", "step is ''");
  spoiled("steps.csv", "\n2,0,0,", "\n\n2,0,0,", "steps.csv:4:", "1 fields");
}

Test(report, steps_that_end_or_go_back) {
  char *csv = slurp("steps.csv");
  const size_t head = (size_t)(strchr(csv, '\n') + 1 - csv);
  store("steps.csv", csv, (gssize)strlen(csv) - 1);
  refused(WEIR_E_PARSE, "steps.csv", "middle of a line");
  store("steps.csv", csv, (gssize)head);
  refused(WEIR_E_PARSE, "steps.csv", "no steps");
  store("steps.csv", "", 0);
  refused(WEIR_E_PARSE, "steps.csv", "no steps");
  GString *text = g_string_new_len(csv, (gssize)head);
  g_string_append(text,
                  "0,0,0,0,none,1,dense-ring,1,0,2,0,,9,1,0.5,1,1,1,1,5,,\n"
                  "1,0,0,0,none,1,dense-ring,1,0,2,0,,9,1,0.5,1,1,1,1,4,,\n");
  store("steps.csv", text->str, -1);
  refused(WEIR_E_PARSE, "steps.csv:3:", "goes back");
  store("steps.csv", "a\0b\n", 4);
  refused(WEIR_E_PARSE, "steps.csv", "zero byte");
  g_string_free(text, TRUE);
  g_free(csv);
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
  GString *deep = g_string_new("{\"a\":");
  for (int i = 0; i < 100000; i++) g_string_append_c(deep, '[');
  store("decisions.jsonl", deep->str, (gssize)deep->len);
  refused(WEIR_E_PARSE, "decisions.jsonl:1:", "nested");
  g_string_free(deep, TRUE);
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

/* A gnuplot of the test's own, first on the PATH. */
static void fake_gnuplot(const char *script) {
  char *path = g_strdup_printf("%s:/usr/bin:/bin", directory);
  cr_assert_eq(setenv("PATH", path, 1), 0);
  store("gnuplot", script, -1);
  cr_assert_eq(chmod(path_of("gnuplot"), 0700), 0);
  g_free(path);
}

Test(report, gnuplot_not_installed) {
  cr_assert_eq(setenv("PATH", directory, 1), 0);
  refused(WEIR_E_UNSUPPORTED, "gnuplot", "gnuplot-nox");
}

Test(report, gnuplot_fails) {
  fake_gnuplot("#!/bin/sh\necho no such terminal >&2\nexit 1\n");
  refused(WEIR_E_IO, "gnuplot failed", "no such terminal");
}

Test(report, gnuplot_draws_nothing) {
  fake_gnuplot("#!/bin/sh\nexit 0\n");
  refused(WEIR_E_IO, "gnuplot", "drew nothing");
}

Test(report, gnuplot_hangs) {
  fake_gnuplot("#!/bin/sh\nexec sleep 100\n");
  weir_figures figures;
  weir_figures_init(&figures);
  weir_figures_begin(&figures, 100, 100);
  figures.time_out_s = 0.1;
  cr_assert_eq(weir_figures_draw(&figures), WEIR_E_TIMEOUT);
  weir_figures_free(&figures);
}

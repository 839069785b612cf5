/* Pages of comparisons: their figures, policies of every kind, runs that failed, damaged files. */
#include "lab/report.h"
#include "report_folder.h"

TestSuite(report_compare, .init = set_up, .fini = tear_down);

Test(report_compare, compare_report) {
  cr_assert_eq(weir_compare_report_write(directory), WEIR_OK, "%s", weir_last_error());
  char *page = slurp("report.html");
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
  cr_assert(strstr(page, "<a href=\"./run%208/report.html\">seed 1</a>"));
  g_free(page);
}

/* Groups and bit widths are neither fixed plans nor harmful names: weir takes 21 x 0.86 s here, the
 * one fixed plan 10 s, and groups that took 5 s are no fixed policy to be held against. */
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
  char *page = slurp("report.html");
  cr_assert_null(strstr(page, "logarithm")); /* all end at the same time */
  cr_assert(strstr(page, "1.81 ×"));
  cr_assert_null(strstr(page, "3.61 ×"));
  cr_assert(strstr(page, "groups:bucket=2:topk:0.01:ag"));
  cr_assert(strstr(page, "bits:kmeans:2.5"));
  g_free(page);
}

/* A policy that failed before its first evaluation. */
Test(report_compare, comparison_without_points) {
  store("compare.json",
        "{\"target_accuracy\":null,\"runs\":[{\"policy\":\"paper\",\"seed\":1,"
        "\"status\":\"failed\",\"error\":\"rank 2 <is> gone\",\"accuracy\":[]}]}",
        -1);
  cr_assert_eq(weir_compare_report_write(directory), WEIR_OK, "%s", weir_last_error());
  char *page = slurp("report.html");
  cr_assert(strstr(page, "failed: rank 2 &lt;is&gt; gone"));
  g_free(page);
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
  char *page = slurp("report.html");
  cr_assert(strstr(page, "2 of 4 runs are missing"));
  cr_assert(strstr(page, "90.00 %"));
  cr_assert(strstr(page, "<td class=n>12.0</td>"));
  cr_assert_null(strstr(page, ">7.0<"));
  cr_assert(strstr(page, ">not run</span>"));
  cr_assert(strstr(page, "none was run"));
  g_free(page);
}

Test(report_compare, bad_comparison) {
  const char *const change[][3] = {
      {"\"policy\":\"weir\"", "\"policy\":\"weir';system('true')\"", "is no policy"},
      {"\"policy\":\"weir\"", "\"policy\":\"\"", "is no policy"},
      {"\"policy\":\"weir\",", "", "'policy' is missing"},
      {"\"runs\":[", "\"runs\":[],\"x\":[", "'runs' is empty"},
      {"\"runs\":[", "\"runs\":[7,", "'runs'[0]"},
      {"\"final_accuracy\":0.8710", "\"final_accuracy\":\"high\"", "'final_accuracy'"},
      {"{\"target", "{{\"target", ""}};
  for (size_t i = 0; i < G_N_ELEMENTS(change); i++) {
    char *good = slurp("compare.json");
    replace("compare.json", change[i][0], change[i][1]);
    cr_assert_eq(weir_compare_report_write(directory), WEIR_E_PARSE, "case %zu", i);
    cr_assert(strstr(weir_last_error(), "compare.json"));
    cr_assert(strstr(weir_last_error(), change[i][2]), "'%s'", weir_last_error());
    store("compare.json", good, -1);
    g_free(good);
  }
  cr_assert_eq(access(path_of("report.html"), F_OK), -1);
}

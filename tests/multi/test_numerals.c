/* A program that embeds the library may have set a locale in which numbers have a comma: plans,
 * options, tables, journals and dumps have a point all the same, and its own numbers their
 * comma. */
#include <criterion/criterion.h>
#include <locale.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include "controller/table.h"
#include "session_ranks.h"

static const char definition[] =
    "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n";

/* False: localedef, which makes the locale, or what it needs is not there. */
static bool set_comma(const char *folder) {
  char path[256], order[1024];
  (void)snprintf(path, sizeof path, "%s/comma.src", folder);
  FILE *f = fopen(path, "w");
  cr_assert_not_null(f);
  (void)fputs(definition, f);
  (void)fclose(f);
  (void)snprintf(order, sizeof order, "localedef -c -i %s %s/comma >/dev/null 2>&1", path, folder);
  (void)!system(order); /* it warns of the other categories, and says so by its exit code */
  (void)setenv("LOCPATH", folder, 1);
  return setlocale(LC_NUMERIC, "comma") != NULL;
}

static void take_text(void *user, const char *text) { (void)snprintf(user, 4096, "%s", text); }

/* Whole numbers are followed by the next key, never by more digits. */
static bool has_comma(const char *text) {
  regex_t number;
  cr_assert_eq(regcomp(&number, ": ?-?[0-9]+,[0-9]", REG_EXTENDED | REG_NOSUB), 0);
  const bool found = regexec(&number, text, 0, NULL, 0) == 0;
  regfree(&number);
  return found;
}

typedef struct worker {
  int rank;
  const char *journal;
  char dump[4096];
  weir_status status;
} worker;

static void *train(void *argument) {
  static const size_t numel = 5000;
  worker *w = argument;
  weir_options options = session_options(w->rank, 2, "numerals", "weir");
  weir_session *session = NULL;
  float *gradient = malloc(numel * sizeof *gradient);
  options.virtual_network = session_slow_link;
  options.journal_path = w->journal;
  w->status = session_open(&session, &options, numel);
  for (int s = 0; s < 20 && w->status == WEIR_OK; s++) {
    for (size_t i = 0; i < numel; i++) gradient[i] = (float)(i % 17) - (float)s;
    w->status = weir_step_begin(session, NULL);
    if (w->status == WEIR_OK) w->status = weir_submit(session, 0, gradient);
    if (w->status == WEIR_OK) w->status = weir_step_end(session, NULL);
  }
  if (w->status == WEIR_OK) w->status = weir_dump(session, take_text, w->dump);
  weir_session_free(session);
  free(gradient);
  return NULL;
}

Test(numerals, have_a_point_whatever_the_locale) {
  char folder[] = "/tmp/weir-locale-XXXXXX", text[WEIR_PLAN_TEXT_MAX], journal[256];
  cr_assert_not_null(mkdtemp(folder));
  const bool set = set_comma(folder);
  if (set) {
    weir_plan plan;
    weir_options options;
    weir_table_text table;
    (void)snprintf(text, sizeof text, "%.1f", 0.5);
    cr_assert_str_eq(text, "0,5", "the locale has no comma");
    cr_assert_eq(weir_plan_parse("topk:0.125:ag", &plan), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(plan.cr, 0.125);
    weir_plan_format(&plan, text);
    cr_assert_str_eq(text, "topk:0.125:ag");
    weir_options_init(&options);
    cr_assert_eq(weir_options_set(&options, "timeout_s", "2.5"), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(options.timeout_s, 2.5);
    cr_assert_eq(weir_table_parse("bucket=0.5:bf16:1:dense-ring", &table), WEIR_OK, "%s",
                 weir_last_error());
    cr_assert_eq(table.number, 0.5);

    (void)snprintf(journal, sizeof journal, "%s/journal", folder);
    worker w[2] = {{.rank = 0, .journal = journal}, {.rank = 1}};
    session_threads(w, sizeof *w, 2, train);
    for (int r = 0; r < 2; r++) {
      cr_assert_eq(w[r].status, WEIR_OK);
      cr_assert(strstr(w[r].dump, "last_step_ms: ") && !has_comma(w[r].dump), "%s", w[r].dump);
    }
    FILE *f = fopen(journal, "r");
    char *line = NULL;
    size_t room = 0, lines = 0;
    for (; f && getline(&line, &room, f) > 0; lines++) cr_assert(!has_comma(line), "%s", line);
    cr_assert_gt(lines, 0u, "no decision was written down");
    (void)fclose(f);
    free(line);
    (void)snprintf(text, sizeof text, "%.1f", 0.5);
    cr_assert_str_eq(text, "0,5", "the program's own numbers have lost their comma");
  }
  char order[300];
  (void)snprintf(order, sizeof order, "rm -r %s", folder);
  cr_assert_eq(system(order), 0);
  if (!set) cr_skip_test("localedef (libc-bin, locales) makes no locale here");
}

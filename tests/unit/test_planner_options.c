/* The decision tree: the paper's number, rules that hold on every path, constraints. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "planner/execute.h"
#include "planner/options.h"

static size_t count_of(weir_option_limits limits) {
  size_t count = 0;
  cr_assert_eq(weir_options_visit(&limits, NULL, NULL, &count), WEIR_OK);
  return count;
}

/* By transfer of (uncompressed, compressed) = (u, c) paths: before the first communication (1, 2);
 * between two (u + 2c, 2u + 5c); at the end u + 2c.  Each divisible part has two pairs of
 * routines. */
Test(planner_options, counts_by_hand_and_the_papers_total) {
  const weir_option_limits flat = {.no_hierarchical = true}, tree = {.no_flat = true};
  cr_assert_eq(count_of((weir_option_limits){0}), 4341u); /* "ByteComp", section 4.4.1 */
  cr_assert_eq(count_of(flat), 5u + 2u * 29u);
  cr_assert_eq(count_of(tree), 2u * 169u + 4u * 985u);
  cr_assert_eq(count_of((weir_option_limits){.no_hierarchical = true, .no_divisible = true}), 5u);
  /* One place to compress: (1, 1), then (u + c, u + 2c), at the end u + c. */
  cr_assert_eq(count_of((weir_option_limits){.no_hierarchical = true, .no_cpu = true}),
               2u + 2u * 5u);
  /* Nothing to compress with: all-reduce; two pairs flat; two, and two times two, hierarchical. */
  cr_assert_eq(count_of((weir_option_limits){.no_cpu = true, .no_gpu = true}), 3u + 2u + 4u);
  cr_assert_eq(count_of((weir_option_limits){.compressed_only = true}), 4341u - 9u);
}

typedef struct seen {
  char (*texts)[512];
  size_t count, most_compressions;
} seen;

static bool is_compressed_task(unsigned task) { return task >= WEIR_TASK_COMM_COMP; }

static void check(void *user, const weir_option *o) {
  seen *s = user;
  bool compressed = false;
  size_t compressions = 0;
  int first[WEIR_SITES] = {-1, -1, -1, -1, -1};
  for (size_t i = 0; i < o->count; i++) {
    const unsigned task = o->step[i].task, place = o->step[i].place;
    if (task == WEIR_TASK_COMP || task == WEIR_TASK_DECOMP) {
      cr_assert_eq(compressed, task == WEIR_TASK_DECOMP);
      cr_assert_leq(place, (unsigned)WEIR_SITE_CPU);
      compressed = !compressed;
      compressions += compressed;
      continue;
    }
    cr_assert_eq(compressed, is_compressed_task(task));
    cr_assert_geq(place, (unsigned)WEIR_SITE_FLAT);
    if (task == WEIR_TASK_COMM1 || task == WEIR_TASK_COMM1_COMP) {
      cr_assert_eq(first[place], -1);
      first[place] = o->step[i].routine;
    } else if (task == WEIR_TASK_COMM2 || task == WEIR_TASK_COMM2_COMP) {
      cr_assert_eq(first[place], (int)o->step[i].routine);
      first[place] = -1;
    }
  }
  cr_assert_not(compressed);
  for (size_t p = 0; p < WEIR_SITES; p++) cr_assert_eq(first[p], -1);
  cr_assert_eq(weir_path_compresses(o), compressions > 0);
  if (s->most_compressions) cr_assert_leq(compressions, s->most_compressions);
  cr_assert_lt(weir_option_text(o, s->texts[s->count++], sizeof *s->texts), sizeof *s->texts);
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

Test(planner_options, every_path_keeps_the_rules_and_none_comes_twice) {
  seen s = {.texts = malloc(4341 * sizeof *s.texts)};
  size_t count = 0;
  cr_assert_eq(weir_options_visit(&(weir_option_limits){0}, check, &s, &count), WEIR_OK);
  cr_assert_eq(s.count, count);
  qsort(s.texts, s.count, sizeof *s.texts, by_text);
  for (size_t i = 1; i < s.count; i++) cr_assert_str_neq(s.texts[i], s.texts[i - 1]);
  s.count = 0;
  s.most_compressions = 1;
  const weir_option_limits once = {.most_compressions = 1};
  cr_assert_eq(weir_options_visit(&once, check, &s, &count), WEIR_OK);
  cr_assert_lt(count, 4341u);
  free(s.texts);
}

Test(planner_options, constraints_that_leave_nothing_are_refused) {
  const weir_option_limits none[] = {
      {.no_flat = true, .no_hierarchical = true},
      {.no_divisible = true, .no_indivisible = true},
      {.no_cpu = true, .no_gpu = true, .compressed_only = true},
  };
  size_t count = 1;
  for (size_t i = 0; i < 3; i++) {
    cr_assert_eq(weir_options_visit(&none[i], NULL, NULL, &count), WEIR_E_INVALID);
    cr_assert_eq(count, 0u);
  }
}

Test(planner_options, text_is_bounded) {
  weir_option o = {
      .count = 2,
      .step = {{WEIR_TASK_COMP, WEIR_SITE_CPU, 0}, {WEIR_TASK_COMM1_COMP, WEIR_SITE_INTER, 1}}};
  char text[64], small[6] = "";
  cr_assert_eq(weir_option_text(&o, text, sizeof text), strlen("comp(cpu) gather*(inter)"));
  cr_assert_str_eq(text, "comp(cpu) gather*(inter)");
  cr_assert_eq(weir_option_text(&o, small, sizeof small), strlen(text));
  cr_assert_str_eq(small, "comp(");
}

/* Places of compression multiply: two of each for every compression and decompression. */
static const struct {
  const char *collective;
  size_t options;
} run[WEIR_EXECUTED] = {
    {"dense", 1},     {"dense-ring", 1},   {"dense-tree", 1},      {"ag", 4},
    {"sra", 16},      {"hitopk", 4},       {"dense-hier-ring", 2}, {"dense-hier-tree", 1},
    {"hier-sra", 16}, {"path=", 4341 - 46}};

/* Every task is at its place where all behind the first communication are on the CPU: by the
 * transfers of the first test, two places before the first communication and one afterwards give
 * (1, 2), then (u + c, u + 2c), at the end u + c. */
Test(planner_options, options_that_the_engine_runs) {
  weir_executed e;
  size_t plans = 0;
  cr_assert_eq(weir_options_executed(&(weir_option_limits){0}, &e), WEIR_OK);
  cr_assert_eq(e.options, 4341u);
  for (size_t i = 0; i < WEIR_EXECUTED; i++)
    for (size_t k = 0; k < WEIR_EXECUTED; k++)
      if (!strcmp(e.collective[i], run[k].collective)) {
        cr_assert_eq(e.run[i], run[k].options, "%s: %zu", e.collective[i], e.run[i]);
        plans += e.run[i];
      }
  cr_assert_eq(plans, 4341u);
  cr_assert_eq(e.placed, 3u + 2 * 8 + 2 * 21 + 4 * 55);
}

/* Every option has a plan with an encoder and with a selection, whose path is the option's where
 * the plan is one; places of compression make no difference to it. */
static void has_plans(void *user, const weir_option *option) {
  static const char *const codecs[] = {"qsgd:0.125", "topk:0.01"};
  size_t *const count = user;
  for (size_t k = 0; k < 2; k++) {
    weir_plan plan;
    weir_place place;
    weir_path path;
    char due[WEIR_COLLECTIVE_TEXT_MAX], text[WEIR_COLLECTIVE_TEXT_MAX];
    cr_assert_eq(weir_option_plan(option, codecs[k], &plan, &place), WEIR_OK, "%s",
                 weir_last_error());
    if (!weir_path_of(&plan, &path)) continue;
    (void)weir_path_format(option, due, sizeof due);
    (void)weir_path_format(&path, text, sizeof text);
    cr_assert_str_eq(text, due);
    ++*count;
  }
}

/* qsgd goes with all but hitopk, topk with all but the two sra. */
Test(planner_options, every_option_has_a_plan) {
  size_t count = 0, paths = 0;
  cr_assert_eq(weir_options_visit(&(weir_option_limits){0}, has_plans, &paths, &count), WEIR_OK);
  cr_assert_eq(paths, 2 * (4341u - 46) + 4 + 16 + 16);
}

static weir_option option_of(size_t count, const uint8_t step[][3]) {
  weir_option option = {.count = count};
  for (size_t i = 0; i < count; i++) {
    option.step[i].task = step[i][0];
    option.step[i].place = step[i][1];
    option.step[i].routine = step[i][2];
  }
  return option;
}

Test(planner_options, plans_of_options) {
  const weir_option gathered =
      option_of(3, (const uint8_t[][3]){{WEIR_TASK_COMP, WEIR_SITE_CPU, 0},
                                        {WEIR_TASK_COMM_COMP, WEIR_SITE_FLAT, 0},
                                        {WEIR_TASK_DECOMP, WEIR_SITE_GPU, 0}});
  weir_plan plan = {0};
  weir_place place = WEIR_PLACE_CALLER;
  cr_assert_eq(weir_option_plan(&gathered, "topk:0.01", &plan, &place), WEIR_OK);
  cr_assert(plan.codec == WEIR_CODEC_TOPK && plan.cr == 0.01);
  cr_assert(plan.scheme == WEIR_SCHEME_GATHER && place == WEIR_PLACE_THREAD);
  /* A codec that does not go with the collective, none at all, and text that is none. */
  cr_assert_eq(weir_option_plan(&gathered, "star:0.01", &plan, &place), WEIR_E_INVALID);
  cr_assert_eq(weir_option_plan(&gathered, "dgc", &plan, &place), WEIR_E_PARSE);
  char longest[512];
  memset(longest, 'x', sizeof longest);
  longest[sizeof longest - 1] = '\0';
  cr_assert_eq(weir_option_plan(&gathered, longest, &plan, &place), WEIR_E_INVALID);
  cr_assert(plan.codec == WEIR_CODEC_TOPK && place == WEIR_PLACE_THREAD);
  const weir_option whole = option_of(1, (const uint8_t[][3]){{WEIR_TASK_COMM, WEIR_SITE_FLAT, 0}});
  cr_assert_eq(weir_option_plan(&whole, "whatever", &plan, &place), WEIR_OK);
  cr_assert(plan.codec == WEIR_CODEC_NONE && place == WEIR_PLACE_CALLER);
  const weir_option rooted =
      option_of(4, (const uint8_t[][3]){{WEIR_TASK_COMM1, WEIR_SITE_INTRA, 1},
                                        {WEIR_TASK_COMM1, WEIR_SITE_INTER, 1},
                                        {WEIR_TASK_COMM2, WEIR_SITE_INTER, 1},
                                        {WEIR_TASK_COMM2, WEIR_SITE_INTRA, 1}});
  char text[WEIR_PLAN_TEXT_MAX];
  cr_assert_eq(weir_option_plan(&rooted, "topk:0.01", &plan, &place), WEIR_OK);
  weir_plan_format(&plan, text);
  cr_assert_str_eq(text, "none:1:path=r.r.b.b");
}

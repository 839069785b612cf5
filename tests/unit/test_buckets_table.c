/* Tables of buckets: what is one, what it is called, and how it is written. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "controller/table.h"
#include "plan_files.h"

static const size_t offset[] = {0, 100, 101, 1101, 1102, 3102, 3103};
static const weir_layout layout = {6, offset};
static const char *const names[] = {"a", "b", "c", "d", "e", "f"};

static void write_table(char path[64], const char *text) {
  write_plan_file(path, text, strlen(text));
}

static size_t build(const char *text, weir_plan_bucket *table) {
  weir_table_text parsed;
  size_t count = 0;
  memset(table, 0, 7 * sizeof *table);
  cr_assert_eq(weir_table_parse(text, &parsed), WEIR_OK, "%s: %s", text, weir_last_error());
  cr_assert_eq(weir_table_build(&parsed, &layout, names, table, &count), WEIR_OK, "%s: %s", text,
               weir_last_error());
  cr_assert_eq(weir_buckets_check(table, count, 6), WEIR_OK, "%s: %s", text, weir_last_error());
  return count;
}

Test(buckets_table, forms) {
  weir_plan_bucket t[7];
  cr_assert_eq(build("layers:topk:0.1:ag", t), 6);
  for (uint32_t k = 0; k < 6; k++)
    cr_assert(t[k].end == k + 1 && t[k].codec == WEIR_CODEC_TOPK && t[k].cr == 0.1);
  /* 4 bytes an element: 0.004 MB are 1000 elements. */
  cr_assert_eq(build("bucket=0.004:bf16:1:dense-tree", t), 3);
  cr_assert(t[0].end == 3 && t[1].end == 5 && t[2].end == 6);
  cr_assert_eq(build("bucket=1:bf16:1:dense-tree", t), 1);
  cr_assert_eq(t[0].end, 6);
  cr_assert_eq(build("even=4:none:1:dense-ring", t), 4);
  cr_assert(t[0].end == 2 && t[1].end == 3 && t[2].end == 5 && t[3].end == 6);
  cr_assert_eq(build("even=99:none:1:dense-ring", t), 6);
  cr_assert_eq(build("even=1:none:1:dense-ring", t), 1);
}

Test(buckets_table, refused_texts) {
  const char *bad[] = {"",
                       "layers:topk:0.1:art-ring",
                       "layers:topk",
                       "bucket=0:none:1:dense-ring",
                       "even=x:none:1:dense-ring",
                       "bucket=-1:none:1:dense-ring",
                       "even=nan:none:1:dense-ring",
                       "even=2:none:2:dense-ring",
                       "turns=0:layers:none:1:dense-ring",
                       "turns=1.5:layers:none:1:dense-ring",
                       "turns=3:",
                       "turns=3:layers:none:1:dense-ring;",
                       "turns=3:layers:none:1:dense-ring;x.csv",
                       "turns=3:turns=3:layers:none:1:dense-ring",
                       "turns=3:layers:topk:2:ag"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    weir_table_text parsed;
    cr_assert_neq(weir_table_parse(bad[i], &parsed), WEIR_OK, "'%s' is taken", bad[i]);
    cr_assert_gt(strlen(weir_last_error()), 0);
  }
}

Test(buckets_table, turns) {
  char path[64], text[256];
  write_table(path, "last,plan,place\nb,bf16:1:dense-ring,caller\nf,none:1:dense-tree,caller\n");
  snprintf(text, sizeof text, "turns=3:layers:none:1:dense-ring;%s;even=1:topk:0.1:ag", path);
  weir_table_text parsed;
  cr_assert_eq(weir_table_parse(text, &parsed), WEIR_OK, "%s", weir_last_error());
  cr_assert(parsed.kind == WEIR_TABLE_TURNS && parsed.plan.codec == WEIR_CODEC_NONE);
  weir_turns turns;
  cr_assert_eq(weir_turns_build(&turns, &parsed, &layout, names), WEIR_OK, "%s", weir_last_error());
  cr_assert(turns.count == 3 && turns.steps == 3);
  static const size_t buckets[] = {6, 2, 1, 6};
  static const uint32_t codecs[] = {WEIR_CODEC_NONE, WEIR_CODEC_BF16, WEIR_CODEC_TOPK,
                                    WEIR_CODEC_NONE};
  for (size_t k = 0; k < 4; k++) { /* the fourth is the first again */
    weir_plan_bucket t[7];
    size_t count = 0;
    weir_turns_next(&turns, 6, t, &count);
    cr_assert_eq(count, buckets[k]);
    cr_assert_eq(t[0].codec, codecs[k]);
    cr_assert_eq(t[count - 1].end, 6);
  }
  weir_turns_free(&turns);
  remove(path);
  cr_assert_eq(weir_turns_build(&turns, &parsed, &layout, names), WEIR_E_IO);
  cr_assert_eq(turns.table, NULL);
  /* What is no turns is one, for ever. */
  cr_assert_eq(weir_table_parse("layers:none:1:dense-ring", &parsed), WEIR_OK);
  cr_assert_eq(weir_turns_build(&turns, &parsed, &layout, names), WEIR_OK);
  cr_assert(turns.count == 1 && turns.steps == 0 && turns.buckets[0] == 6);
  weir_turns_free(&turns);
}

Test(buckets_table, file) {
  char path[64];
  write_table(path,
              "last,plan,place\nb,topk:0.5:ag:auto-bf16,thread\nf,none:1:dense-tree,caller\n");
  weir_plan_bucket t[7];
  cr_assert_eq(build(path, t), 2);
  cr_assert(t[0].end == 2 && t[0].codec == WEIR_CODEC_TOPK && t[0].wire == WEIR_WIRE_AUTO_BF16 &&
            t[0].place == WEIR_PLACE_THREAD && t[0].cr == 0.5);
  cr_assert(t[1].end == 6 && t[1].codec == WEIR_CODEC_NONE && t[1].place == WEIR_PLACE_CALLER &&
            t[1].scheme == WEIR_SCHEME_DENSE && t[1].algorithm == WEIR_ALGORITHM_TREE);
  weir_plan plan = {.id = 9};
  weir_table_plan(t, 2, &layout, &plan); /* the second bucket is the larger one */
  cr_assert(plan.id == 9 && plan.codec == WEIR_CODEC_NONE && plan.buckets == 2);
  cr_assert_eq(plan.layout, weir_buckets_name(t, 2));
  cr_assert_eq(weir_plan_check(&plan), WEIR_OK);
  char text[WEIR_PLAN_TEXT_MAX];
  weir_plan_format(&plan, text);
  cr_assert_str_eq(text, "none:1:dense-tree/2");
  remove(path);
}

Test(buckets_table, refused_files) {
  static const struct {
    const char *text, *place;
  } bad[] = {{"last,plan\nf,none:1:dense-tree\n", ":1:"},
             {"last,plan,place\n", ":"},
             {"last,plan,place\nz,none:1:dense-tree,caller\n", ":2:"},
             {"last,plan,place\nc,none:1:dense-tree,caller\nb,none:1:dense-tree,caller\n", ":3:"},
             {"last,plan,place\nf,none:1:dense-tree,caller\nf,none:1:dense-tree,caller\n", ":3:"},
             {"last,plan,place\nf,none:0.5:dense-tree,caller\n", ":2:"},
             {"last,plan,place\nf,none:1:dense-tree,moon\n", ":2:"},
             {"last,plan,place\nc,none:1:dense-tree,caller\n", "expected"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char path[64];
    weir_plan_bucket t[7];
    weir_table_text parsed;
    size_t count;
    write_table(path, bad[i].text);
    cr_assert_eq(weir_table_parse(path, &parsed), WEIR_OK);
    cr_assert_eq(weir_table_build(&parsed, &layout, names, t, &count), WEIR_E_PARSE, "%zu", i);
    cr_assert_not_null(strstr(weir_last_error(), bad[i].place), "%zu: %s", i, weir_last_error());
    remove(path);
  }
  weir_plan_bucket t[7];
  weir_table_text parsed;
  size_t count;
  cr_assert_eq(weir_table_parse("/nowhere/at/all.csv", &parsed), WEIR_OK);
  cr_assert_eq(weir_table_build(&parsed, &layout, names, t, &count), WEIR_E_IO);
}

/* Lines before the buckets name what stays in full precision: they are items of the filter, and the
 * buckets are of the other tensors. */
Test(buckets_table, file_with_filters) {
  char path[64], kept[WEIR_FILTER_MAX] = "x*";
  write_table(path, "last,plan,place\n*e,full,caller\n<2,full,caller\nc,topk:0.5:ag,caller\n");
  weir_table_text parsed;
  weir_plan_bucket t[7];
  size_t count = 0;
  cr_assert_eq(weir_table_parse(path, &parsed), WEIR_OK);
  cr_assert_eq(weir_table_filter(&parsed, kept), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(kept, "x*,*e,<2");
  parsed.full = 3;
  cr_assert_eq(weir_table_build(&parsed, &layout, names, t, &count), WEIR_OK, "%s",
               weir_last_error());
  cr_assert_eq(count, 2);
  cr_assert(t[0].end == 3 && t[0].codec == WEIR_CODEC_TOPK);
  cr_assert(t[1].end == 6 && t[1].codec == WEIR_CODEC_NONE);
  cr_assert_eq(weir_buckets_check(t, count, 6), WEIR_OK);
  parsed.turn = true; /* whose filter nobody has asked for */
  cr_assert_eq(weir_table_build(&parsed, &layout, names, t, &count), WEIR_E_PARSE);
  cr_assert(strstr(weir_last_error(), ":2: ") != NULL, "%s", weir_last_error());
  remove(path);
  static const char *const bad[] = {",full,caller\n", "a,full,thread\n", "<x,full,caller\n",
                                    "a,full,caller\n,full,caller\n"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char text[128];
    kept[0] = '\0';
    snprintf(text, sizeof text, "last,plan,place\n%s", bad[i]);
    write_table(path, text);
    cr_assert_eq(weir_table_parse(path, &parsed), WEIR_OK);
    cr_assert_eq(weir_table_filter(&parsed, kept), WEIR_E_PARSE, "%zu", i);
    cr_assert(strstr(weir_last_error(), i < 3 ? ":2: " : ":3: ") != NULL, "%s", weir_last_error());
    remove(path);
  }
  /* Forty names of a hundred letters are all that there is room for. */
  for (int lines = 40; lines <= 41; lines++) {
    char text[5000] = "last,plan,place\n";
    for (int k = 0; k < lines; k++)
      (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%0100d,full,caller\n", k);
    kept[0] = '\0';
    write_table(path, text);
    cr_assert_eq(weir_table_parse(path, &parsed), WEIR_OK);
    cr_assert_eq(weir_table_filter(&parsed, kept), lines == 40 ? WEIR_OK : WEIR_E_PARSE);
    cr_assert_eq(strlen(kept), 40 * 101 - 1);
    remove(path);
  }
  cr_assert_eq(weir_table_filter(&parsed, kept), WEIR_E_IO);
  cr_assert_eq(weir_table_parse("layers:none:1:dense", &parsed), WEIR_OK);
  cr_assert_eq(weir_table_filter(&parsed, kept), WEIR_OK);
  parsed.full = 6; /* all of it */
  cr_assert_eq(weir_table_build(&parsed, &layout, names, t, &count), WEIR_OK);
  cr_assert(count == 1 && t[0].end == 6);
}

Test(buckets_table, what_is_no_table) {
  weir_plan_bucket good[2] = {{.end = 2, .cr = 1}, {.end = 6, .cr = 1}}, t[2];
  cr_assert_eq(weir_buckets_check(good, 2, 6), WEIR_OK);
  cr_assert_eq(weir_buckets_check(good, 0, 6), WEIR_E_INVALID);
  cr_assert_eq(weir_buckets_check(NULL, 2, 6), WEIR_E_INVALID);
  cr_assert_eq(weir_buckets_check(good, 1, 6), WEIR_E_INVALID);
  cr_assert_eq(weir_buckets_check(good, 2, 5), WEIR_E_INVALID);
  for (int i = 0; i < 6; i++) {
    memcpy(t, good, sizeof t);
    if (i == 0) t[0].end = 0;
    if (i == 1) t[1].end = 2;
    if (i == 2) t[1].codec = WEIR_CODEC_COUNT;
    if (i == 3) t[1].cr = 0.5;
    if (i == 4) t[0].place = WEIR_PLACE_COUNT;
    if (i == 5) t[0].bucket_log2 = 8;
    cr_assert_eq(weir_buckets_check(t, 2, 6), WEIR_E_INVALID, "%d", i);
    cr_assert_neq(weir_buckets_name(t, 2), weir_buckets_name(good, 2), "%d", i);
  }
  weir_plan plan = {.cr = 1, .buckets = 2};
  cr_assert_eq(weir_plan_check(&plan), WEIR_E_INVALID); /* no layout */
  const uint64_t digest = weir_plan_digest(&plan);
  plan.layout = 7;
  cr_assert_eq(weir_plan_check(&plan), WEIR_OK);
  cr_assert_neq(weir_plan_digest(&plan), digest);
}

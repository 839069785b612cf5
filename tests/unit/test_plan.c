/* Plans as text: there and back, what is refused, and digests that tell all apart. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weir/plan.h>

Test(plan, text_round_trip) {
  const char *texts[] = {"none:1:dense-ring",
                         "bf16:1:dense-tree",
                         "lwtopk:0.1:ag",
                         "star:0.01:art-tree",
                         "topk:0.002:ag:auto-bf16",
                         "var:0.033:art-ring",
                         "mstopk:0.001:ag:auto-fp32",
                         "fp16:0.5:ag",
                         "qsgd:0.0625:ag",
                         "qsgd:0.125:ag",
                         "qsgd:0.15625:ag",
                         "qsgd:0.21875:ag",
                         "qsgd:0.25:ag",
                         "terngrad:0.0625:ag",
                         "onebit:0.03125:ag",
                         "efsignsgd:0.03125:ag",
                         "qsgd-nearest:0.0625:ag",
                         "qsgd-l2:0.125:ag",
                         "qsgd-l2-nearest:0.25:ag",
                         "dgc:0.01:ag",
                         "sidco:0.01:ag:auto-bf16",
                         "topk:0.01:ag:auto-fp16",
                         "randomk:0.1:art-ring",
                         "none:1:dense-halving",
                         "bf16:1:dense-double-tree",
                         "none:1:dense-torus",
                         "none:1:dense-star",
                         "star:0.01:art-halving:auto-bf16",
                         "randomk:0.033:art-double-tree:auto-fp32",
                         "var:0.01:art-torus",
                         "star:0.01:art-star",
                         "powersgd:1:dense-ring",
                         "powersgd:4:dense-tree",
                         "powersgd:64:dense-ring",
                         "none:1:dense-hier-ring",
                         "bf16:1:dense-hier-double-tree",
                         "star:0.01:art-hier-tree:auto-bf16",
                         "randomk:0.1:art-hier-halving",
                         "topk:0.01:hitopk",
                         "mstopk:0.01:hitopk:auto-bf16",
                         "qsgd:0.125:sra",
                         "qsgd:0.125:hier-sra",
                         "fp16:0.5:compressed-ring",
                         "onebit:0.03125:compressed-tree",
                         "none:1:native",
                         "powersgd:4:native",
                         "none:1:native-ring",
                         "none:1:native-tree",
                         "powersgd:4:native-tree",
                         "star:0.01:art-native-ring",
                         "randomk:0.01:art-native-tree+chain:auto-fp32",
                         "none:1:dense",
                         "bf16:1:dense-doubling",
                         "none:1:dense-direct",
                         "star:0.01:art",
                         "star:0.01:art-ring+chain",
                         "star:0.01:art-ring+direct",
                         "randomk:0.01:art-hier-halving+ring",
                         "var:0.01:art-hier-tree+pairwise+chain:auto-bf16",
                         "none:1:dense-hier-ring+native",
                         "bf16:1:dense-hier-halving+native",
                         "powersgd:4:dense-hier-tree+native",
                         "star:0.01:art-hier-ring+native+direct",
                         "qsgd:0.125:hier-sra+native",
                         "topk:0.01:ag-bruck",
                         "topk:0.01:ag-ring:auto-fp16",
                         "qsgd:0.125:ag-doubling",
                         "qsgd:0.125:compressed",
                         "qsgd:0.125:sra:bucket=64",
                         "qsgd:0.0625:ag:bucket=8192",
                         "qsgd-l2:0.21875:hier-sra:bucket=8192",
                         "qsgd-l2-nearest:0.15625:ag-ring:bucket=256",
                         "companded:0.125:ag",
                         "dithered:0.125:ag",
                         "dithered:0.25:sra:huffman",
                         "dithered:0.125:path=rs.c.ag.d.ag",
                         "whitened:0.125:ag",
                         "whitened:0.09375:sra:huffman",
                         "whitened:0.25:hier-sra",
                         "whitened:0.125:path=rs.c.ag.d.ag",
                         "companded:0.09375:sra",
                         "companded:0.109375:sra:huffman",
                         "companded:0.234375:ag",
                         "companded:0.125:hier-sra",
                         "companded:0.25:compressed-tree",
                         "companded:0.15625:path=rs.c.ag.d.ag",
                         "powersgd:4:dense",
                         "powersgd:4:dense-ring:auto-bf16",
                         "powersgd:16:dense:auto-bf16",
                         "powersgd:4:dense-hier-tree:auto-bf16",
                         "powersgd:4:dense-hier-ring+native:auto-bf16",
                         "powersgd:16:dense-sra",
                         "powersgd:16:dense-one-shot:huffman",
                         "bilateral:1:dense-ring",
                         "bilateral:32:dense",
                         "bilateral:16:dense:auto-bf16",
                         "bilateral:16:dense-sra",
                         "bilateral:16:dense-one-shot:huffman",
                         "none:1:path=r.r.b.b",
                         "none:1:path=rs.ar.ag",
                         "topk:0.01:path=rs.c.ag.ag.d",
                         "mstopk:0.1:path=c.g.d.b:auto-bf16",
                         "qsgd:0.125:path=c.a2a.a2a.ag.ag.d:bucket=1024",
                         "onebit:0.03125:path=c.g.d.r.c.b.d.b",
                         "fp16:0.5:path=c.a2a.d.c.a2a.d.c.ag.d.c.ag.d"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    weir_plan plan;
    char back[WEIR_PLAN_TEXT_MAX];
    cr_assert_eq(weir_plan_parse(texts[i], &plan), WEIR_OK, "%s", weir_last_error());
    weir_plan_format(&plan, back);
    cr_assert_str_eq(back, texts[i]);
  }
}

static const char *const bad_texts[] = {NULL,
                                        "",
                                        "none",
                                        "none:1",
                                        "none:1:ag",
                                        "topk:0:ag",
                                        "topk:-0.1:ag",
                                        "topk:1.5:ag",
                                        "topk:nan:ag",
                                        "topk:x:ag",
                                        "topk::ag",
                                        "zip:0.1:ag",
                                        "topk:0.1:mesh",
                                        "star:0.1:ag",
                                        "topk:0.1:art-ring",
                                        "none:0.5:dense-ring",
                                        "topk:0.1:ag:zip",
                                        "star:0.1:art-ring:auto-fp16",
                                        "topk:0.1:ag:auto-bf16:x",
                                        "none:1:dense-ring:auto-bf16",
                                        "qsgd:0.1:ag",
                                        "qsgd:0.03125:ag",
                                        "qsgd:0.28125:ag",
                                        "qsgd:1:ag",
                                        "qsgd-nearest:0.28125:ag",
                                        "qsgd-l2:0.09375:ag",
                                        "qsgd-l2-nearest:0.0625:ag",
                                        "companded:0.0625:ag",
                                        "dithered:0.09375:ag",
                                        "dithered:0.140625:ag",
                                        "whitened:0.0625:ag",
                                        "whitened:0.109375:sra",
                                        "whitened:0.125:dense-ring",
                                        "companded:0.28125:sra",
                                        "companded:0.1:ag",
                                        "companded:0.078125:sra",
                                        "companded:0.265625:sra",
                                        "qsgd:0.109375:sra",
                                        "nonzero:0.078125:ag",
                                        "minifloat:0.171875:sra",
                                        "companded:0.125:ag:auto-fp32",
                                        "companded:0.125:dense-ring",
                                        "companded:0.125:hitopk",
                                        "companded:0.125:ag:bucket=256",
                                        "qsgd-l2:0.125:ag:auto-bf16",
                                        "qsgd:0.125:dense-ring",
                                        "qsgd:0.125:art-ring",
                                        "qsgd:0.125:ag:auto-fp32",
                                        "fp16:1:ag",
                                        "terngrad:0.03125:ag",
                                        "onebit:0.0625:ag",
                                        "efsignsgd:0.125:ag",
                                        "randomk:0.1:ag",
                                        "dgc:0.1:art-ring",
                                        "none:1:art-halving",
                                        "star:0.1:dense-halving",
                                        "none:1:dense-",
                                        "topk:0.1:dense-torus",
                                        "powersgd:0:dense-ring",
                                        "powersgd:0.5:dense-ring",
                                        "powersgd:65:dense-ring",
                                        "powersgd:4.5:dense-ring",
                                        "bilateral:33:dense-ring",
                                        "bilateral:4:ag",
                                        "bilateral:4:dense-sra:auto-bf16",
                                        "powersgd:4:ag",
                                        "bf16:1:native",
                                        "bf16:1:native-ring",
                                        "star:0.1:native-ring",
                                        "star:0.1:art-native-tree:auto-bf16",
                                        "none:1:dense-hier-native-ring",
                                        "none:1:native-halving",
                                        "none:1:nativering",
                                        "topk:0.1:ag-native-ring",
                                        "qsgd:0.125:compressed-native-tree",
                                        "star:0.1:native",
                                        "none:1:hitopk",
                                        "lwtopk:0.1:hitopk",
                                        "dgc:0.1:hitopk",
                                        "randomk:0.1:hitopk",
                                        "qsgd:0.125:hitopk",
                                        "topk:0.1:sra",
                                        "none:1:sra",
                                        "qsgd:0.1:sra",
                                        "qsgd:0.125:sra:auto-fp32",
                                        "star:0.1:dense-hier-ring",
                                        "none:1:art-hier-ring",
                                        "none:1:hier-ring",
                                        "none:1:dense-bruck",
                                        "none:1:dense-sra",
                                        "none:1:dense-hier",
                                        "none:1:dense-hier-star",
                                        "none:1:dense-hier-native",
                                        "none:1:dense-ring+native",
                                        "none:1:dense-hier-ring+native-ring",
                                        "qsgd:0.125:sra+native",
                                        "topk:0.1:hitopk+native",
                                        "none:1:dense+chain",
                                        "none:1:dense-ring+chain",
                                        "none:1:dense-ring+pairwise",
                                        "none:1:dense-hier-ring+tree",
                                        "none:1:dense-ring+",
                                        "none:1:dense+",
                                        "star:0.1:art+chain",
                                        "star:0.1:art-ring+binomial",
                                        "topk:0.1:ag-hier-ring",
                                        "topk:0.1:ag-tree",
                                        "topk:0.1:ag-",
                                        "topk:0.1:hitopk-ring",
                                        "star:0.1:art-native",
                                        "qsgd:0.125:compressed-halving",
                                        "qsgd:0.125:hier-sra+pairwise",
                                        "powersgd:nan:dense-ring",
                                        "qsgd:0.125:ag:bucket=",
                                        "qsgd:0.125:ag:bucket=32",
                                        "qsgd:0.125:ag:bucket=16384",
                                        "qsgd:0.125:ag:bucket=100",
                                        "qsgd:0.125:ag:bucket=+64",
                                        "qsgd:0.125:ag:bucket=64x",
                                        "qsgd:0.125:ag:auto-fp32:bucket=64",
                                        "qsgd:0.125:ag:bucket=64:auto-fp32",
                                        "topk:0.1:ag:bucket=64",
                                        "fp16:0.5:ag:bucket=256",
                                        "none:1:dense:bucket=64",
                                        "qsgd-l2:0.125:ag:bucket=256",
                                        "qsgd-l2-nearest:0.1875:ag:bucket=4096",
                                        "powersgd:4:dense-ring:auto-fp32",
                                        "powersgd:4:dense-ring:auto-fp16",
                                        "powersgd:4:native:auto-bf16",
                                        "powersgd:4:native-ring:auto-bf16",
                                        "powersgd:4:sra",
                                        "powersgd:4:dense-sra:auto-bf16",
                                        "powersgd:4:dense-one-shot:auto-fp32",
                                        "qsgd:0.125:compressed-one-shot",
                                        "none:1:dense-one-shot",
                                        "powersgd:4:dense-hier-sra",
                                        "none:1:dense-sra",
                                        "none:1:path",
                                        "none:1:path=c.ag.d",
                                        "qsgd:0.125:path=rs.ag",
                                        "lwtopk:0.1:path=c.ag.d",
                                        "star:0.1:path=c.ag.d",
                                        "bf16:1:path=ar",
                                        "powersgd:4:path=ar",
                                        "topk:0.1:path-ring=c.ag.d"};

/* A path says which of its tasks is wrong, and what is expected. */
Test(plan, a_path_names_the_task_that_is_wrong) {
  static const struct {
    const char *path, *why;
  } bad[] = {{"", "task 1, '': expected c, d,"},
             {"ag.", "task 2, '': expected c, d,"},
             {"c.ag.q", "task 3, 'q': expected c, d,"},
             {"C.ag.d", "task 1, 'C': expected c, d,"},
             {"c", "has 0 communications: expected 1 or 2"},
             {"rs.rs.ar.ag.ag", "has 5 communications: expected 1 or 2"},
             {"ag", "task 1, 'ag': expected ar, of what is not compressed"},
             {"c.ar.d", "task 2, 'ar': expected ag, of what is compressed"},
             {"a2a.ag", "task 1, 'a2a': expected rs or r, of what is not compressed"},
             {"c.rs.d.ag", "task 2, 'rs': expected a2a or g, of what is compressed"},
             {"rs.b", "task 2, 'b': expected ag, which pairs with the first"},
             {"r.c.a2a.ag.d.ag", "task 6, 'ag': expected b, which pairs with the first"},
             {"rs.ar.rs", "task 3, 'rs': expected ag, which pairs with the first"},
             {"c.c.ag.d", "task 2, 'c': expected d first"},
             {"c.d.ar", "task 2, 'd': expected a communication"},
             {"d.ar", "task 1, 'd': expected something compressed"},
             {"c.ag.d.d", "task 4, 'd': expected something compressed"},
             {"c.ag.d.c", "task 4, 'c': expected nothing"},
             {"c.ag", "task 2, 'ag': expected d behind it"},
             {"c.a2a.d.c.a2a.d.c.ag.d.c.ag.d.d", "has more than 12 tasks"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char text[128];
    weir_plan plan;
    (void)snprintf(text, sizeof text, "topk:0.1:path=%s", bad[i].path);
    cr_assert_eq(weir_plan_parse(text, &plan), WEIR_E_PARSE, "%s", text);
    cr_assert(strstr(weir_last_error(), bad[i].why) != NULL, "%s: %s", text, weir_last_error());
  }
}

/* All values of the two bytes that hold it: 174 are paths, and each is another text that comes
 * back. */
Test(plan, a_path_in_two_bytes) {
  char all[174][WEIR_COLLECTIVE_TEXT_MAX];
  size_t count = 0;
  for (unsigned hops = 0; hops < 256; hops++)
    for (unsigned roots = 0; roots < 256; roots++) {
      weir_plan plan = {.codec = WEIR_CODEC_TOPK, .cr = 0.5, .scheme = WEIR_SCHEME_PATH}, back;
      char text[WEIR_PLAN_TEXT_MAX];
      plan.algorithm = (uint8_t)hops;
      plan.inside = (uint8_t)roots;
      plan.codec = WEIR_CODEC_TOPK;
      if (weir_plan_check(&plan) != WEIR_OK) {
        plan = (weir_plan){.codec = WEIR_CODEC_NONE,
                           .cr = 1,
                           .scheme = WEIR_SCHEME_PATH,
                           .algorithm = (uint8_t)hops,
                           .inside = (uint8_t)roots};
        if (weir_plan_check(&plan) != WEIR_OK) continue;
      }
      cr_assert_lt(count, 174);
      weir_plan_format(&plan, text);
      cr_assert_eq(weir_plan_parse(text, &back), WEIR_OK, "%s: %s", text, weir_last_error());
      cr_assert_eq(memcmp(&back, &plan, sizeof plan), 0, "%s", text);
      weir_plan_collective(&plan, all[count]);
      for (size_t i = 0; i < count; i++) cr_assert_str_neq(all[i], all[count]);
      count++;
    }
  cr_assert_eq(count, 174);
}

Test(plan, refuses_bad_text_and_leaves_the_plan_alone) {
  for (size_t i = 0; i < sizeof bad_texts / sizeof *bad_texts; i++) {
    weir_plan plan, before;
    memset(&plan, 0x5a, sizeof plan);
    before = plan;
    cr_assert_neq(weir_plan_parse(bad_texts[i], &plan), WEIR_OK, "%s",
                  bad_texts[i] ? bad_texts[i] : "NULL");
    cr_assert_eq(memcmp(&plan, &before, sizeof plan), 0);
    cr_assert_gt(strlen(weir_last_error()), 0);
  }
}

Test(plan, ratio_of_low_rank_is_rank_by_64) {
  weir_plan plan;
  cr_assert_eq(weir_plan_parse("powersgd:4:dense-ring", &plan), WEIR_OK);
  cr_assert(plan.cr == 0.0625);
}

/* In what its author has written: ranks, and bits of codecs that have one width. */
Test(plan, a_ratio_is_refused_in_its_own_terms) {
  static const struct {
    const char *text, *why;
  } bad[] = {
      {"powersgd:65:dense", "codec powersgd takes a whole rank from 1 to 64, not 65"},
      {"bilateral:33:dense", "codec bilateral takes a whole rank from 1 to 32, not 33"},
      {"powersgd:0:dense", "codec powersgd takes a whole rank from 1 to 64, not 0"},
      {"powersgd:-1:dense", "codec powersgd takes a whole rank from 1 to 64, not -1"},
      {"powersgd:nan:dense", "codec powersgd takes a whole rank from 1 to 64, not nan"},
      {"fp16:0.25:ag", "codec fp16 takes 16 bits an element: its ratio is 0.5, not 0.25"},
      {"onebit:0.0625:ag", "codec onebit takes 1 bit an element: its ratio is 0.03125, not 0.0625"},
      {"qsgd:0.1:sra", "codec qsgd takes 2 to 8 bits an element: its ratio is bits / 32, not 0.1"},
      {"topk:0:ag", "compression ratio 0 is outside (0, 1]"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    weir_plan plan;
    cr_assert_eq(weir_plan_parse(bad[i].text, &plan), WEIR_E_INVALID, "%s", bad[i].text);
    cr_assert_str_eq(weir_last_error(), bad[i].why);
  }
}

/* 128 is what plans without a bucket have, which travel and are named as they were. */
Test(plan, usual_bucket_is_not_named) {
  weir_plan named, usual, other;
  char text[WEIR_PLAN_TEXT_MAX];
  cr_assert_eq(weir_plan_parse("qsgd:0.125:sra:bucket=128", &named), WEIR_OK);
  cr_assert_eq(weir_plan_parse("qsgd:0.125:sra", &usual), WEIR_OK);
  cr_assert_eq(memcmp(&named, &usual, sizeof named), 0);
  weir_plan_format(&named, text);
  cr_assert_str_eq(text, "qsgd:0.125:sra");
  cr_assert_eq(weir_plan_parse("qsgd:0.125:sra:bucket=1024", &other), WEIR_OK);
  cr_assert_eq(other.bucket_log2, 10);
  for (uint8_t log2 = 0; log2 < 255; log2++) {
    other.bucket_log2 = log2;
    const bool good = log2 == 0 || (log2 >= 6 && log2 <= 13 && log2 != 7);
    cr_assert_eq(weir_plan_check(&other), good ? WEIR_OK : WEIR_E_INVALID, "%u", log2);
    cr_assert_eq(weir_plan_digest(&other) == weir_plan_digest(&usual), log2 == 0);
  }
}

Test(plan, there_has_to_be_room_for_it) {
  cr_assert_eq(weir_plan_parse("topk:0.1:ag", NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_plan_parse(NULL, &(weir_plan){0}), WEIR_E_PARSE);
}

Test(plan, digest_tells_every_field_apart) {
  weir_plan a;
  cr_assert_eq(weir_plan_parse("topk:0.01:ag", &a), WEIR_OK);
  weir_plan b[5] = {a, a, a, a, a};
  b[0].id = 1;
  b[1].codec = WEIR_CODEC_MSTOPK;
  b[2].scheme = WEIR_SCHEME_HITOPK;
  b[3].wire = WEIR_WIRE_AUTO_FP32;
  b[4].cr = nextafter(a.cr, 1);
  for (int i = 0; i < 5; i++) cr_assert_neq(weir_plan_digest(&a), weir_plan_digest(&b[i]));
  cr_assert_eq(weir_plan_digest(&a), weir_plan_digest(&a));
}

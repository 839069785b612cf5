/* Plans' cost rows where the exchange is more than one collective's worth of messages: in pieces.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/compressed.h"
#include "collectives/cost.h"
#include "collectives/pieces.h"

static bool near(double got, double want) { return fabs(got - want) <= 1e-9 * fabs(want); }

static weir_plan plan_of(const char *text) {
  weir_plan plan;
  cr_assert_eq(weir_plan_parse(text, &plan), WEIR_OK, "%s", weir_last_error());
  return plan;
}

/* 4 ranks, all-gathers in 2 rounds; messages in their own place of 16384 + 4 * 64 bytes are the
 * last.
 *   fp16, 10000 elements: 16 bytes of header and 2 an element, 80064 of all ranks, more than the
 * gradient's 40000.  Of L elements left a piece takes c with 4c + 4 (16 + 2c) <= 4L, so a third of
 * L - 16, or the 2072 with which 4 (16 + 2c) = 16640: 3328 of 10000, 2218 of 6672, 2072, 2072 and
 * 310.  5 all-gathers: 10 latencies, 3 times 5 headers and 20000 bytes.  Of 1000 elements all
 * messages, 8064 bytes, fit: 2 latencies. topk of half of 4800: 16 bytes of header and 8 an
 * element, 76864 of all ranks, more than 19200. Half of the elements and the marks of the rest
 * leave 9000 bytes, so that messages lie in their own place from the first on: of k elements each,
 * 4 (8 + 16 + 8k), up to a multiple of 16, and 12k of lists, so k = 375 with 4 * 3024 + 4500 =
 * 16596; 376 would take 4 * 3040 + 4512.  With every second kept that is 750 elements a piece: 6
 * and 300 left, and one more to say how far the first goes: 8 all-gathers, 16 latencies, 3 times 8
 * + 7 * (8 + 16) + 2400 * 8 bytes.  On 2 machines both ranks of one send. */
Test(cost_plans, pieces_by_hand) {
  static const struct {
    const char *plan;
    int hosts;
    size_t elements, kept;
    double hops, bytes;
  } rows[] = {
      {"fp16:0.5:ag", 4, 10000, 20016, 10, 3 * 20080},
      {"fp16:0.5:ag", 4, 1000, 2016, 2, 3 * 2016},
      {"topk:0.5:ag", 4, 4800, 2400, 16, 3 * 19376},
      {"topk:0.5:ag", 2, 4800, 2400, 16, 2 * 3 * 19376},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_plan plan = plan_of(rows[i].plan);
    const weir_group_shape shape = {4, rows[i].hosts, false};
    cr_assert_eq(weir_cost_kept(&plan, rows[i].elements), rows[i].kept);
    const weir_cost_terms t = weir_cost_plan_between(&plan, shape, rows[i].elements, rows[i].kept);
    cr_assert(near(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].bytes), "row %zu: %g bytes", i, t.byte_terms);
  }
}

/* The first of these: 5 all-gathers of 8 messages, 6 of them of others than the 2 on the critical
 * path, at 1 ms each, in place of what links take for all the bytes, 60240 * 8 ns. */
Test(cost_plans, processors_of_pieces_by_hand) {
  const weir_plan plan = plan_of("fp16:0.5:ag");
  const weir_link link = {.alpha = 10e-3, .beta = 8e-9, .message_s = 1e-3};
  const double seconds =
      weir_cost_plan_processors(&plan, (weir_group_shape){4, 4, false}, &link, 10000, 20016);
  cr_assert(near(seconds, 30e-3 - 60240 * 8e-9), "%g", seconds);
}

/* One by one, as the engine goes; of a selection the i-th element kept is i / density. */
static weir_gathering one_by_one(const weir_plan *plan, int ranks, size_t n, size_t kept) {
  const bool encodes = weir_codec_find(plan->codec)->encode != NULL;
  weir_gathering all = encodes ? (weir_gathering){0, 0} : (weir_gathering){1, 8};
  const double apart = (double)n / (double)kept;
  size_t i = 0;
  for (size_t at = 0, count; at < n; at += count, all.rounds++) {
    if (encodes) {
      const size_t whole[2] = {0, n};
      size_t offset[2];
      const weir_layout piece = weir_piece_next(plan, ranks, &(weir_layout){1, whole}, at, offset);
      count = offset[1];
      all.bytes += (double)weir_codec_find(plan->codec)->bound(&piece, plan->cr);
      continue;
    }
    const weir_span span = weir_span_next(plan, ranks, n, at);
    size_t k = 0, end = at;
    for (; k <= span.kept && end < at + span.most; k++)
      end = i + k < kept ? (size_t)((double)(i + k) * apart) : at + span.most;
    if (end > at + span.most) end = at + span.most;
    k--; /* the last one is behind it */
    count = end - at;
    i += k;
    all.bytes += 8 + weir_wire_expected(count, k, (weir_wire_format)plan->wire, true);
  }
  cr_assert(encodes || i == kept, "%zu of %zu", i, kept);
  return all;
}

/* Thousands of pieces that are not counted one by one; among 1024 ranks some have twelve elements.
 */
Test(cost_plans, many_pieces_are_counted_together) {
  static const char *const plans[] = {"topk:1:ag:auto-bf16", "topk:0.1:ag:auto-bf16",
                                      "topk:0.03:ag",        "mstopk:0.3:ag:auto-fp32",
                                      "fp16:0.5:ag",         "qsgd:0.125:ag",
                                      "terngrad:0.0625:ag",  "onebit:0.03125:ag"};
  static const int ranks[] = {4, 7, 64, 256, 1024};
  static const size_t elements[] = {20000, 200000, 2500000};
  double most = 0;
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
      for (size_t e = 0; e < sizeof elements / sizeof *elements; e++) {
        const weir_plan plan = plan_of(plans[p]);
        const weir_group_shape shape = {ranks[r], ranks[r], false};
        const size_t n = elements[e], kept = weir_cost_kept(&plan, n);
        if (!weir_pieces_wanted(&plan, ranks[r], n, kept)) continue;
        const weir_gathering want = one_by_one(&plan, ranks[r], n, kept),
                             got = weir_cost_gathering(&plan, shape, n, kept);
        most = fmax(most, want.rounds);
        cr_expect(fabs(got.rounds - want.rounds) <= 1 + 0.05 * want.rounds,
                  "%s, %d ranks, %zu: %g rounds, not %g", plans[p], ranks[r], n, got.rounds,
                  want.rounds);
        cr_expect(fabs(got.bytes - want.bytes) <= 0.03 * want.bytes,
                  "%s, %d ranks, %zu: %g bytes, not %g", plans[p], ranks[r], n, got.bytes,
                  want.bytes);
      }
  cr_expect(most > 1000, "%g", most);
}

/* What the messages of all ranks and a rank's list take, 4 bytes of index, value and error each. */
static double span_bytes(const weir_plan *plan, int ranks, size_t most, size_t kept) {
  const double message = 8 + (double)weir_wire_bound(most, kept, (weir_wire_format)plan->wire);
  return ranks * 16 * ceil(message / 16) + 12.0 * (double)kept;
}

/* Half of what is left, behind it the messages, and a bit an element; else a place of 16 KiB and 64
 * bytes a rank.  No span could be longer. */
Test(cost_plans, spans_take_all_the_room_there_is) {
  static const char *const plans[] = {"topk:0.1:ag", "topk:0.1:ag:auto-bf16",
                                      "topk:0.1:ag:auto-fp32"};
  weir_rng rng;
  weir_rng_seed(&rng, 3);
  int limited = 0, apart = 0;
  for (int i = 0; i < 30000; i++) {
    const weir_plan plan = plan_of(plans[i % 3]);
    const int ranks = 2 + (int)weir_rng_below(&rng, i % 2 ? 8 : 1000);
    const size_t left = 1 + (size_t)exp(log(1e8) * weir_rng_uniform(&rng)), half = (left + 1) / 2;
    const double free = 4 * ((double)(left - half) - ceil((double)left / 32)),
                 last = 16384.0 + 64.0 * ranks, room = free < last ? last : free;
    const weir_span span = weir_span_next(&plan, ranks, left, 0);
    cr_assert_eq(span.apart, free < last);
    cr_assert_eq(span.most, span.apart ? left : half);
    cr_assert(span.kept >= 1 && span.kept <= span.most);
    if (span.kept > 1) cr_assert_leq(span_bytes(&plan, ranks, span.most, span.kept), room);
    if (span.kept < span.most)
      cr_assert_gt(span_bytes(&plan, ranks, span.most, span.kept + 1), room);
    limited += span.kept < span.most;
    apart += span.apart;
  }
  cr_assert(limited > 1000 && apart > 1000 && apart < 29000, "%d, %d", limited, apart);
}

/* With a rank on a device one all-gather takes all, whatever its length: 2 latencies of 10 ms, and
 * 6 messages of others at 1 ms in place of what links take. */
Test(cost_plans, devices_gather_whole_messages) {
  const weir_plan plan = plan_of("fp16:0.5:ag"), list = plan_of("topk:0.5:ag");
  const weir_group_shape shape = {4, 4, true};
  const weir_link link = {.alpha = 10e-3, .beta = 8e-9, .message_s = 1e-3};
  weir_cost_terms t = weir_cost_plan_between(&plan, shape, 10000, 20016);
  cr_assert(near(t.alpha_terms, 2) && near(t.byte_terms, 3 * 20016));
  t = weir_cost_plan_between(&list, shape, 4800, 2400);
  cr_assert(near(t.alpha_terms, 2) && near(t.byte_terms, 3 * 19216));
  const double seconds = weir_cost_plan_processors(&plan, shape, &link, 10000, 20016);
  cr_assert(near(seconds, 6e-3 - 60048 * 8e-9), "%g", seconds);
}

/* AR-Topk of 1000 elements on 4 ranks: beside 32 words of marks there is room for 968.  600 indices
 * and their message of 16 + 4 * 600 bytes do not fit these 3872 bytes, nor do 500 and theirs, but
 * 334 do: 3 broadcasts of 2 latencies.  484 values have as many floats again: 600 take 2
 * all-reduces, of 6 latencies around a ring and 4 in a tree.  480 take one, and their list goes at
 * once: 1920 + 1936 bytes.  As bf16 what is done takes half a float: 1000 are 484, (968 - 242) / 2
 * and the rest.  A ring carries 2 * 3/4 of the values, a tree 2 * 2 times, and the list is sent on
 * twice. */
Test(cost_plans, windows_by_hand) {
  static const struct {
    const char *plan;
    size_t kept;
    double hops, bytes;
  } rows[] = {
      {"star:0.6:art-ring", 600, 2 * 6 + 3 * 2, 1.5 * 2400 + 2 * 2416},
      {"star:0.6:art-tree", 600, 2 * 4 + 3 * 2, 4 * 2400 + 2 * 2416},
      {"star:0.48:art-ring", 480, 6 + 2, 1.5 * 1920 + 2 * 1936},
      {"randomk:0.484:art-ring", 484, 6, 1.5 * 1936},
      {"randomk:1:art-ring:auto-bf16", 1000, 3 * 6, 1.5 * 2000},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_plan plan = plan_of(rows[i].plan);
    cr_assert_eq(weir_cost_kept(&plan, 1000), rows[i].kept);
    const weir_cost_terms t = weir_cost_plan(&plan, 4, 1000, rows[i].kept);
    cr_assert(near(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].bytes), "row %zu: %g bytes", i, t.byte_terms);
  }
}

/* 4 ranks, 4 bits: blocks of 16 KiB * 8 / 4 = 32768 elements.  200000 elements are 1563 buckets
 * with 8 bytes of grid each and 100000 bytes of codes behind a header of 16: a share of 50000 is a
 * quarter of these 112504 and has 2 headers, 28158.  SRA sends 3 shares at once and gathers as many
 * at once; the ring has 6 hops of a share; the tree 4 of all, in 7 blocks, 112616.
 *   fp16: blocks of 8192.  Of 100000 elements a share of 25000 is 50000 bytes and 4 headers, and
 * two of them do not fit the 100000 bytes of its floats: halves of 12500 go one after the other, 2
 * latencies, with 2 headers each, 25032 bytes.  All are 13 blocks, 200208 bytes.
 *   A single rank sends nothing. */
Test(cost_plans, compressed_all_reduces_by_hand) {
  static const struct {
    const char *plan;
    uint32_t row;
    int ranks;
    size_t elements, bytes;
    double hops, carried;
  } rows[] = {
      {"qsgd:0.125:sra", WEIR_COMPRESSED_SRA, 4, 200000, 112520, 2, 6 * 28158},
      {"qsgd:0.125:compressed-ring", WEIR_COMPRESSED_RING, 4, 200000, 112520, 6, 6 * 28158},
      {"qsgd:0.125:compressed-tree", WEIR_COMPRESSED_TREE, 4, 200000, 112520, 4, 4 * 112616},
      {"fp16:0.5:sra", WEIR_COMPRESSED_SRA, 4, 100000, 200016, 3, 3 * (2 * 25032 + 50064)},
      {"fp16:0.5:compressed-ring", WEIR_COMPRESSED_RING, 4, 100000, 200016, 6, 6 * 50064},
      {"fp16:0.5:compressed-tree", WEIR_COMPRESSED_TREE, 4, 100000, 200016, 4, 4 * 200208},
      {"fp16:0.5:sra", WEIR_COMPRESSED_SRA, 1, 100000, 200016, 0, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_plan plan = plan_of(rows[i].plan);
    const weir_coder coder = {.codec = weir_codec_find(plan.codec), .cr = plan.cr};
    cr_assert_eq(weir_cost_kept(&plan, rows[i].elements), rows[i].bytes);
    const weir_cost_terms t = weir_cost_compressed(rows[i].row, rows[i].ranks, &coder,
                                                   rows[i].elements, (double)rows[i].bytes);
    cr_assert(near(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].carried), "row %zu: %g bytes", i, t.byte_terms);
    const weir_cost_terms whole =
        weir_cost_plan(&plan, rows[i].ranks, rows[i].elements, rows[i].bytes);
    cr_assert(near(whole.alpha_terms, rows[i].hops) && near(whole.byte_terms, rows[i].carried));
    cr_assert_eq(weir_cost_compressed(99, 4, &coder, 1000, 800).alpha_terms, INFINITY);
  }
}

/* 1000 elements by 4 bits: half of them are 3 buckets and 116 elements, whose codes are 15 times 4
 * bytes, 16 + 3 * 72 + 8 + 60 = 300; a quarter 16 + 72 + 8 + 64 = 160.  Two machines of 2 ranks: of
 * a share of 500 each rank sends half to the other machine and gets its sum, 2 latencies and (300 -
 * 16) / 2 + 16 = 158 each way, for 2 ranks on one link; of 4 ranks: (160 - 16) / 2 + 16 = 88 each
 * way, for 4 ranks.  A machine each: sra among 4, 3 * 2 * 212.  One machine: a sum of fp32, around
 * a ring. Uneven machines: sra, of which 5 ranks on 2 machines share links, 4 * 2 * (784 / 5 + 16)
 * * 2.5. */
Test(cost_plans, compressed_between_machines_by_hand) {
  static const struct {
    weir_group_shape shape;
    double hops, bytes;
  } rows[] = {{{4, 2, false}, 2, 2 * 2 * 158},     {{8, 2, false}, 2, 4 * 2 * 88},
              {{4, 4, false}, 2, 6 * 212},         {{4, 1, false}, 6, 6000},
              {{5, 2, false}, 2, 8 * 172.8 * 2.5}, {{1, 1, false}, 0, 0}};
  const weir_plan plan = plan_of("qsgd:0.125:hier-sra");
  const size_t kept = weir_cost_kept(&plan, 1000);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const weir_cost_terms t = weir_cost_plan_between(&plan, rows[i].shape, 1000, 800);
    cr_assert(near(t.alpha_terms, rows[i].hops), "row %zu: %g latencies", i, t.alpha_terms);
    cr_assert(near(t.byte_terms, rows[i].bytes), "row %zu: %g bytes", i, t.byte_terms);
  }
  cr_assert_eq(kept, 16 + 7 * 72 + 8 + 52);
}

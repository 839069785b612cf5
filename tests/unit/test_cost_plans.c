/* Plans' cost rows where the exchange is more than one collective's worth of messages: in pieces.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/compressed.h"
#include "collectives/cost.h"

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
 * L - 16, until 4 (16 + 2L) fit 16384: 3328 of 10000, 2218 of 6672, 1479 of 4454, 986 of 2975, and
 * 1989.  5 all-gathers: 10 latencies, 3 messages of 20016 bytes.  Of 1000 elements all messages,
 * 8064 bytes, fit: 2 latencies.
 *   topk of half of 4800: 16 bytes of header and 8 an element, 76864 of all ranks, more than 19200.
 * Half of the elements and the marks of the rest leave 9000 bytes, so that messages lie in their
 * own place from the first on: of k elements each, 4 (8 + 16 + 8k), up to a multiple of 16, and 12k
 * of lists, so k = 375 with 4 * 3024 + 4500 = 16596; 376 would take 4 * 3040 + 4512.  With every
 * second kept that is 750 elements a piece: 6 and 300 left, and one more to say how far the first
 * goes: 8 all-gathers, 16 latencies, 3 * 19216 bytes.  On 2 machines both ranks of one send. */
Test(cost_plans, pieces_by_hand) {
  static const struct {
    const char *plan;
    int hosts;
    size_t elements, kept;
    double hops, bytes;
  } rows[] = {
      {"fp16:0.5:ag", 4, 10000, 20016, 10, 3 * 20016},
      {"fp16:0.5:ag", 4, 1000, 2016, 2, 3 * 2016},
      {"topk:0.5:ag", 4, 4800, 2400, 16, 3 * 19216},
      {"topk:0.5:ag", 2, 4800, 2400, 16, 2 * 3 * 19216},
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
 * path, at 1 ms each, in place of what links take for all the bytes, 60048 * 8 ns. */
Test(cost_plans, processors_of_pieces_by_hand) {
  const weir_plan plan = plan_of("fp16:0.5:ag");
  const weir_link link = {.alpha = 10e-3, .beta = 8e-9, .message_s = 1e-3};
  const double seconds =
      weir_cost_plan_processors(&plan, (weir_group_shape){4, 4, false}, &link, 10000, 20016);
  cr_assert(near(seconds, 30e-3 - 60048 * 8e-9), "%g", seconds);
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

/* 4 ranks, 4 bits: blocks of 16 KiB * 8 / 4 = 32768 elements.  200000 elements are 1563 buckets
 * with 8 bytes of grid each and 100000 bytes of codes behind a header of 16: a share of 50000 is a
 * quarter of these 112504 and has 2 headers, 28158.  SRA sends 3 shares at once and gathers as many
 * in 2 rounds; the ring has 6 hops of a share; the tree 4 of all, in 7 blocks, 112616.
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
      {"qsgd:0.125:sra", WEIR_COMPRESSED_SRA, 4, 200000, 112520, 3, 6 * 28158},
      {"qsgd:0.125:compressed-ring", WEIR_COMPRESSED_RING, 4, 200000, 112520, 6, 6 * 28158},
      {"qsgd:0.125:compressed-tree", WEIR_COMPRESSED_TREE, 4, 200000, 112520, 4, 4 * 112616},
      {"fp16:0.5:sra", WEIR_COMPRESSED_SRA, 4, 100000, 200016, 4, 3 * (2 * 25032 + 50064)},
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

/* What decisions think that plans cost. */
#include <math.h>

#include "collectives/cost.h"
#include "decide_input.h"
#include "engine/state.h"
#include "kernels/powersgd.h"

/* Without an arm's overhead. */
static double prior(const weir_plan *plan, weir_group_shape shape, size_t elements,
                    const weir_link *link) {
  return weir_cost_plan_seconds(plan, shape, link, elements, weir_cost_kept(plan, elements), NULL);
}

/* 4 workers, 1e6 elements, 1 ms, 100 MB/s: ring 6 + 1.5 * 40 = 66 ms; 24 messages in 6 rounds, 18
 * of them others', at 0.1 ms: 1.8, which the links hide; 24 MB in all at 5 ns: 120 ms, more than
 * their 60. */
Test(decide, processors_by_hand) {
  const weir_plan ring = plan_of("none:1:dense-ring");
  const weir_group_shape shape = {4, 4, false, 0, 0};
  weir_link processors = {.message_s = 1e-4};
  weir_link link = weir_model_link(&processors, 1e-3, 1e8);
  cr_assert_float_eq(prior(&ring, shape, 1000000, &link), 0.066, 1e-9);
  processors.byte_s = 5e-9;
  link = weir_model_link(&processors, 1e-3, 1e8);
  cr_assert_float_eq(prior(&ring, shape, 1000000, &link), 0.1278, 1e-9);
  weir_decision_input in = input_at(1e-3, 1e8);
  weir_candidate c;
  in.processors = processors;
  weir_evaluate(&in, &ring, &c);
  cr_assert_float_eq(c.comm_s, 0.1278, 1e-9);
  weir_decision decision;
  in.processors.byte_s = -1;
  cr_assert_eq(weir_decide(&in, &decision), WEIR_E_INVALID);
  in.processors.byte_s = NAN;
  cr_assert_eq(weir_decide(&in, &decision), WEIR_E_INVALID);
}

/* 4 workers, 1e6 elements, 1 ms, 100 MB/s.  Gathering among 4 takes 2 rounds and 3 messages' bytes:
 * 2 ms + 30 ns a byte.  Every message begins with 16 bytes.  qsgd has 7813 buckets of 128 elements
 * (the last has 64, which fill whole bytes at any width), each with two floats for its grid (L2:
 * one), and 125,000 bytes of codes for every bit; the other encoders' scales count once. */
Test(decide, encoders_are_priced_by_their_messages) {
  const weir_group_shape shape = {4, 4, false, 0, 0};
  const weir_link none = {0}, link = weir_model_link(&none, 1e-3, 1e8);
  const struct {
    const char *plan;
    double bytes;
  } gathered[] = {
      {"fp16:0.5:ag", 16 + 2e6},
      {"terngrad:0.0625:ag", 16 + 4 + 2 * 125000},
      {"onebit:0.03125:ag", 16 + 8 + 125000},
      {"efsignsgd:0.03125:ag", 16 + 4 + 125000},
      {"qsgd:0.0625:ag", 16 + 7813 * 8 + 2 * 125000},
      {"qsgd:0.09375:ag", 16 + 7813 * 8 + 3 * 125000},
      {"qsgd:0.125:ag", 16 + 7813 * 8 + 4 * 125000},
      {"qsgd:0.15625:ag", 16 + 7813 * 8 + 5 * 125000},
      {"qsgd:0.1875:ag", 16 + 7813 * 8 + 6 * 125000},
      {"qsgd:0.21875:ag", 16 + 7813 * 8 + 7 * 125000},
      {"qsgd:0.25:ag", 16 + 7813 * 8 + 8 * 125000},
      {"qsgd-nearest:0.125:ag", 16 + 7813 * 8 + 4 * 125000},
      {"qsgd-l2:0.125:ag", 16 + 7813 * 4 + 4 * 125000},
      {"qsgd-l2-nearest:0.25:ag", 16 + 7813 * 4 + 8 * 125000},
  };
  for (size_t i = 0; i < sizeof gathered / sizeof gathered[0]; i++) {
    const weir_plan plan = plan_of(gathered[i].plan);
    cr_expect_float_eq(prior(&plan, shape, 1000000, &link), 2e-3 + 3 * gathered[i].bytes / 1e8,
                       1e-12, "%s", gathered[i].plan);
  }
  /* Rings of 4: 6 messages, and 3/2 of the bytes.  bf16: 2 MB.  Low rank: the matrix of 1000 rows
   * and columns by rank 4 goes as two thin ones, of 4000 floats each, one ring after the other; of
   * 10 elements, 3 x 4, rank 1 sends 7, and rank 2 would send 14, so all 10 go, in one ring. */
  const weir_plan half = plan_of("bf16:1:dense-ring"), four = plan_of("powersgd:4:dense-ring"),
                  one = plan_of("powersgd:1:dense-ring"), two = plan_of("powersgd:2:dense-ring");
  cr_expect_float_eq(prior(&half, shape, 1000000, &link), 6e-3 + 1.5 * 2e6 / 1e8, 1e-12);
  cr_expect_float_eq(prior(&four, shape, 1000000, &link), 12e-3 + 1.5 * 32000 / 1e8, 1e-12);
  cr_expect_float_eq(prior(&one, shape, 10, &link), 12e-3 + 1.5 * 28 / 1e8, 1e-12);
  cr_expect_float_eq(prior(&two, shape, 10, &link), 6e-3 + 1.5 * 40 / 1e8, 1e-12);
  /* Processors, 5 ns for each byte that anyone sends: the 12 messages take longer on them than the
   * links' 3 in turn, by as much as is computed here from the bytes. */
  const weir_link busy = {.byte_s = 5e-9}, slow = weir_model_link(&busy, 1e-3, 1e8);
  const weir_plan quantized = plan_of("qsgd:0.125:ag");
  cr_expect_float_eq(prior(&quantized, shape, 1000000, &slow),
                     2e-3 + fmax(3 * 562520 / 1e8, 12 * 562520 * 5e-9), 1e-9);
}

/* On devices messages cost what they do on hosts, and the same plans are looked at.  2 machines of
 * 2, a link so slow that hitopk, which crosses it with the least, is the choice. */
Test(decide, devices_are_proposed_what_hosts_are) {
  const weir_link none = {0}, link = weir_model_link(&none, 1e-3, 1e8);
  const weir_plan encoder = plan_of("fp16:0.5:ag"), list = plan_of("topk:1:ag");
  const weir_group_shape shape = {4, 4, false, 0, 0};
  cr_assert_float_eq(prior(&encoder, shape, 1000000, &link), 2e-3 + 3 * 2000016 / 1e8, 1e-12);
  cr_assert_float_eq(prior(&list, shape, 1000000, &link), 2e-3 + 3 * 8000016 / 1e8, 1e-12);
  for (int paper = 0; paper < 2; paper++) {
    static weir_decision d[2];
    weir_decision_input in = input_at(1e-3, 1e6);
    in.hosts = 2;
    if (paper) in.policy = WEIR_POLICY_PAPER;
    for (int i = 0; i < WEIR_TRIALS; i++) in.trial_gain[i] = 0.5;
    for (in.devices = 0; in.devices < 2; in.devices++)
      cr_assert_eq(weir_decide(&in, &d[in.devices]), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(d[1].candidates, d[0].candidates);
    for (size_t i = 0; i < d[1].candidates; i++)
      cr_assert(weir_same_plan(&d[1].candidate[i].plan, &d[0].candidate[i].plan));
    cr_assert(weir_same_plan(&d[1].choice.plan, &d[0].choice.plan));
    cr_assert(paper || d[1].choice.plan.scheme == WEIR_SCHEME_HITOPK);
  }
}

Test(decide, devices_run_low_rank_in_few_bits) {
  weir_decision_input in = input_at(1e-3, 1e6);
  size_t rounded = 0;
  in.devices = 1;
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    const weir_plan *plan = &weir_arm_at(a)->plan;
    if (plan->scheme != WEIR_SCHEME_LOW_RANK) continue;
    cr_expect(weir_arm_runs(&in, a), "arm %zu", a);
    rounded += weir_sums_rounded(plan);
  }
  cr_assert_eq(rounded, 9);
}

/* What an encoder's decoding costs grows with the workers, whose messages come apart; sums of low
 * rank are decoded once. */
Test(decide, every_codec_has_a_compression_prior) {
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    const double few = weir_compress_prior(codec, 2, 1000000, 0.125);
    const double many = weir_compress_prior(codec, 12, 1000000, 0.125);
    const weir_codec *row = weir_codec_find(codec);
    cr_expect(few > 1e-4 && few < 1e-2, "%s: %g", row->name, few);
    const bool apart = !row->dense && !row->shared_indices && !row->low_rank;
    cr_expect(apart ? many > few * 1.5 : fabs(many - few) < 1e-15, "%s: %g, %g", row->name, few,
              many);
  }
  /* 5 us + 0.6 ms + 4 messages of 0.3 ms. */
  cr_expect_float_eq(weir_compress_prior(WEIR_CODEC_QSGD, 4, 1000000, 0.125), 1.805e-3, 1e-12);
}

/* 4 workers, 1e6 elements.  On the way qsgd encodes one gradient and decodes two, 5 us + 0.6 + 2 *
 * 0.3 ms, and terngrad 5 us + 1 + 2 * 0.2 ms; a pass as bf16's is 5 us + 0.6 ms.  bf16's goes over
 * the host and takes twice as long as usual, qsgd's are a device's own and take a tenth: so does
 * the pass where devices sum messages themselves, which they do not inside of machines first, nor
 * terngrad's.  Low rank's own 20 us + 1 + 0.3 ms, and 10 ns for each of 4 / 64 of the elements;
 * its 4 * 2000 factors hosts encode once and decode twice, in 5 us + 4 + 2 * 2.4 us, whatever
 * devices take for that. */
Test(decide, what_sums_of_messages_leave_is_kept_where_they_are_made) {
  double compress[WEIR_CODEC_COUNT];
  for (size_t c = 0; c < WEIR_CODEC_COUNT; c++) compress[c] = 1;
  compress[WEIR_CODEC_BF16] = 2;
  compress[WEIR_CODEC_QSGD] = 0.1;
  compress[WEIR_CODEC_COMPANDED] = 0.1;
  const struct {
    const char *plan;
    bool devices;
    double seconds;
  } rows[] = {{"qsgd:0.125:sra", false, 120.5e-6 + 2 * 605e-6},
              {"qsgd:0.125:sra", true, 120.5e-6 + 60.5e-6},
              {"qsgd:0.125:compressed", true, 120.5e-6 + 60.5e-6},
              {"qsgd:0.125:compressed-tree", true, 120.5e-6 + 60.5e-6},
              {"qsgd:0.125:hier-sra", true, 120.5e-6 + 2 * 605e-6},
              {"terngrad:0.0625:sra", true, 1405e-6 + 2 * 605e-6},
              {"powersgd:4:dense-sra", false, 1945e-6 + 1.38e-6},
              {"powersgd:4:dense-sra", true, 1945e-6 + 13.8e-6},
              {"powersgd:4:dense:auto-bf16", true, 1945e-6}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const weir_plan plan = plan_of(rows[i].plan);
    cr_expect_float_eq(weir_plan_compress(&plan, (weir_group_shape){4, 4, false, 0, 0}, 1000000,
                                          rows[i].devices, compress),
                       rows[i].seconds, 1e-12, "%s", rows[i].plan);
  }
}

/* 8 matrices of 200 x 300, two of 20 x 1000, and 1000 vectors' elements: rank 1 sends 8 * 500 + 2 *
 * 1020 + 1000 = 7040 floats, rank 16 8 * 8000 + 2 * 16320 + 1000 = 97640, and from rank 20 on the
 * 20 rows are no thinner. */
Test(decide, low_rank_is_of_the_matrices_there_are) {
  size_t offset[12] = {0}, rows[11];
  for (size_t t = 0; t < 11; t++) {
    rows[t] = t < 8 ? 200 : t < 10 ? 20 : 1;
    offset[t + 1] = offset[t] + (t < 8 ? 60000 : t < 10 ? 20000 : 1000);
  }
  const weir_layout layout = {11, offset};
  weir_decision_input in = input_at(1e-3, 1e8);
  in.elements = offset[11];
  for (size_t i = 0; i < WEIR_LOW_RANKS; i++)
    in.low_rank[i] = (double)weir_powersgd_kept(&layout, rows, (size_t)1 << i);
  static const double due[WEIR_LOW_RANKS] = {7040, 13080, 25160, 49320, 97640, 169000, 297000};
  for (size_t i = 0; i < WEIR_LOW_RANKS; i++)
    cr_expect_float_eq(in.low_rank[i], due[i], 0, "%zu", i);
  static const struct {
    const char *plan;
    size_t kept;
  } cases[] = {{"powersgd:1:dense-ring", 7040},    {"powersgd:4:dense-ring", 25160},
               {"powersgd:5:dense-ring", 31200},   {"powersgd:12:dense-ring", 73480},
               {"powersgd:64:dense-ring", 297000}, {"topk:0.1:ag", 52100}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const weir_plan plan = plan_of(cases[i].plan);
    cr_expect_eq(weir_plan_kept(in.low_rank, &plan, in.elements), cases[i].kept, "%s",
                 cases[i].plan);
  }
  /* Two rings of 4: 12 messages, and 3/2 of 4 bytes each. */
  weir_candidate c;
  const weir_plan four = plan_of("powersgd:4:dense-ring");
  weir_evaluate(&in, &four, &c);
  cr_expect_float_eq(c.comm_s, 12e-3 + 1.5 * 4 * 25160 / 1e8, 1e-12);
  /* Of which nothing is known: one matrix of 722 x 722. */
  memset(in.low_rank, 0, sizeof in.low_rank);
  weir_evaluate(&in, &four, &c);
  cr_expect_float_eq(c.comm_s, 12e-3 + 1.5 * 4 * 4 * (721 + 723) / 1e8, 1e-12);
}

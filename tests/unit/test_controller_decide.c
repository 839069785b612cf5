/* Decisions from numbers worked out by hand, and against an exhaustive search. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "controller/network.h"
#include "decide_input.h"
#include "moo/knee.h"

Test(decide, curve_by_hand) {
  const weir_decision_input in = input_at(1e-3, 1e8);
  const double *cr = in.curve_cr, *gain = in.curve;
  cr_assert_float_eq(weir_curve_gain(cr, gain, 1.0), 1.0, 1e-12);
  cr_assert_float_eq(weir_curve_gain(cr, gain, 0.1), 0.8, 1e-12);
  /* Half-way in log cr between 0.004 and 0.001's neighbours 0.004 and 0.002: their
   * geometric mean. */
  cr_assert_float_eq(weir_curve_gain(cr, gain, sqrt(0.004 * 0.002)), 0.165, 1e-12);
  cr_assert_float_eq(weir_curve_gain(cr, gain, sqrt(0.3)), 0.985, 1e-12);
  cr_assert_float_eq(weir_curve_gain(cr, gain, 0.00015), 0.02, 1e-12);
  double bumpy[WEIR_CURVE_POINTS];
  memcpy(bumpy, gain, sizeof bumpy);
  bumpy[3] = 0.9; /* noise: more than at a larger ratio */
  cr_assert_float_eq(weir_curve_gain(cr, bumpy, 0.011), 0.55, 1e-12);
}

Test(decide, shared_indices_by_hand) {
  cr_assert_float_eq(weir_shared_gain(0.5, 0.8, 0.1), 0.45, 1e-12);
  cr_assert_float_eq(weir_overlap(0.45, 0.8, 0.1), 0.5, 1e-12);
  cr_assert_float_eq(weir_shared_gain(0.3, 1.0, 1.0), 1.0, 1e-12);
  cr_assert_eq(weir_overlap(0.9, 0.8, 0.1), 1.0);
  cr_assert_eq(weir_overlap(0.0, 0.8, 0.1), 0.0);
}

Test(decide, progress_by_hand) {
  cr_assert_float_eq(weir_progress(WEIR_CODEC_NONE, 1.0), 1.0, 1e-12);
  cr_assert_float_eq(weir_progress(WEIR_CODEC_TOPK, 1.0 / 1024), 0.125, 1e-12); /* 2^-3 */
  cr_assert_float_eq(weir_progress(WEIR_CODEC_STAR, 1.0 / 1024), 0.075, 1e-12);
}

/* The links' part of a plan; where it leaves its all-gather open, of the fastest. */
static double links_of(const weir_decision_input *in, weir_plan plan, size_t kept) {
  static const uint8_t gathers[] = {WEIR_ALGORITHM_BRUCK, WEIR_ALGORITHM_RING,
                                    WEIR_ALGORITHM_DOUBLING, WEIR_ALGORITHM_DIRECT};
  const bool open = plan.algorithm == WEIR_ALGORITHM_ANY;
  double least = INFINITY;
  for (size_t i = 0; i < (open ? sizeof gathers : 1); i++) {
    if (open) plan.algorithm = gathers[i];
    const weir_cost_terms terms = weir_cost_plan(&plan, (int)in->workers, in->elements, kept);
    least = fmin(least, terms.alpha_terms * in->latency + terms.byte_terms / in->bandwidth);
  }
  return least;
}

/* Every arm at 4000 ratios, straight from the definition of progress per second. */
static double exhaustive(const weir_decision_input *in, weir_plan *best) {
  double most = 0.0;
  for (size_t a = 0; a < WEIR_FLAT_ARMS; a++)
    for (int i = 0; i <= 4000; i++) {
      weir_plan plan = weir_arm_at(a)->plan;
      plan.cr = fmin(1.0, 0.001 * pow(1000.0, i / 4000.0));
      const int dense = plan.codec == WEIR_CODEC_NONE || plan.codec == WEIR_CODEC_BF16;
      if (dense) plan.cr = 1.0;
      double gain = dense ? 1.0 : weir_curve_gain(in->curve_cr, in->curve, plan.cr);
      if (plan.codec == WEIR_CODEC_STAR)
        gain = in->overlap * gain + (1 - in->overlap) * fmin(plan.cr, gain);
      const size_t kept = (size_t)fmax(1.0, floor(plan.cr * (double)in->elements));
      const double comm = in->overhead[a] + links_of(in, plan, kept);
      const double compress = in->compress[plan.codec] *
                              weir_compress_prior(plan.codec, in->workers, in->elements, plan.cr);
      const double rate = (plan.codec == WEIR_CODEC_STAR ? 0.6 : 1.0) * pow(fmax(gain, 1e-6), 0.3) /
                          (in->compute + compress + comm);
      if (rate > most) {
        most = rate;
        *best = plan;
      }
    }
  return most;
}

Test(decide, is_the_best_of_an_exhaustive_grid_on_many_networks) {
  const double latency[] = {1e-5, 1e-3, 1e-2, 5e-2}, bandwidth[] = {1e6, 2e7, 3e8, 3e9};
  const uint64_t workers[] = {2, 4, 8, 13};
  size_t collectives = 0;
  unsigned seen = 0;
  for (int l = 0; l < 4; l++)
    for (int b = 0; b < 4; b++)
      for (int w = 0; w < 4; w++) {
        weir_decision_input in = input_at(latency[l], bandwidth[b]);
        in.workers = workers[w];
        in.overhead[(l + b) % WEIR_FLAT_ARMS] = 0.02;
        weir_plan best;
        const double most = exhaustive(&in, &best);
        weir_decision d;
        cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
        if (!d.switched) continue; /* within the hysteresis: checked below */
        /* The wire's bytes jump where an encoding gains a bit, so there are many
         * near-equal peaks. */
        cr_assert_geq(d.choice.progress_per_s, most * (1 - 1e-3), "%g s %g B/s %d: %g < %g",
                      latency[l], bandwidth[b], (int)workers[w], d.choice.progress_per_s, most);
        cr_assert_leq(d.choice.progress_per_s, most * 1.01);
        cr_assert_eq(d.choice.plan.codec, best.codec);
        seen |= 1u << (4 * d.choice.plan.scheme + d.choice.plan.algorithm % 4);
      }
  for (unsigned s = seen; s; s &= s - 1) collectives++;
  cr_assert_geq(collectives, 2u); /* the networks above do differ */
}

Test(decide, slow_network_compresses_and_fast_network_does_not) {
  weir_decision d;
  weir_decision_input in = input_at(1e-3, 1e6); /* 4 MB at 1 MB/s beside 20 ms of computing */
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
  cr_assert(d.switched);
  cr_assert_lt(d.choice.plan.cr, 0.05);
  in = input_at(1e-5, 1e11);
  in.current = plan_of("topk:0.01:ag:auto-bf16");
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
  cr_assert(d.switched);
  cr_assert_eq(d.choice.plan.cr, 1.0);
  cr_assert(d.choice.plan.codec == WEIR_CODEC_NONE || d.choice.plan.codec == WEIR_CODEC_BF16);
}

/* 8 workers on 2 machines, 10^6 floats, 0.1 ms and 10^8 bytes/s between machines.  By hand: around
 * the flat ring a machine sends 14 messages of 0.5 MB, 70 ms, in which all latencies but the last
 * one's pass, 0.1 ms; hier-ring sends 1 MB shares around a ring of 2, four of them, 4 MB one behind
 * the other = 40 + 0.1 ms.  With every worker on a machine of its own, or
 * all on one, there is nothing to choose. */
Test(decide, machines_that_workers_share_add_arms) {
  weir_decision_input in = input_at(1e-4, 1e8);
  weir_decision d;
  weir_candidate c;
  in.workers = 8;
  in.hosts = 2;
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(d.candidates, (size_t)WEIR_BOLD_ARMS);
  for (size_t a = 0; a < WEIR_BOLD_ARMS; a++) cr_assert_eq(weir_arm_of(&d.candidate[a].plan), a);
  const weir_plan ring = plan_of("none:1:dense-ring"), hier = plan_of("none:1:dense-hier-ring");
  weir_evaluate(&in, &ring, &c);
  cr_assert_float_eq(c.comm_s, 70.1e-3, 1e-9);
  weir_evaluate(&in, &hier, &c);
  cr_assert_float_eq(c.comm_s, 40.1e-3, 1e-9);
  in.overhead[weir_arm_of(&hier)] = 5e-3;
  weir_evaluate(&in, &hier, &c);
  cr_assert_float_eq(c.comm_s, 45.1e-3, 1e-9);
  static const uint64_t flat[] = {0, 1, 8};
  for (size_t i = 0; i < 3; i++) {
    in.hosts = flat[i];
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
    cr_assert_eq(d.candidates, (size_t)WEIR_FLAT_ARMS);
  }
  in.hosts = 9;
  cr_assert_eq(weir_decide(&in, &d), WEIR_E_INVALID);
}

/* What is learnt of an arm's plan is learnt of no other arm. */
Test(decide, every_arm_is_that_of_its_own_plan) {
  for (size_t a = 0; a < WEIR_ARMS; a++)
    if (weir_arm_at(a)->plan.cr > 0.0) cr_assert_eq(weir_arm_of(&weir_arm_at(a)->plan), a);
  const weir_plan between = plan_of("topk:0.02:ag:auto-bf16");
  cr_assert_eq(weir_arm_at(weir_arm_of(&between))->plan.cr, 0.0);
  cr_assert_lt(weir_arm_of(&between), (size_t)WEIR_BOLD_ARMS);
}

/* Low rank's factors are summed: each rank expands the sum once, however many there are. */
Test(decide, decodes_what_is_summed_once) {
  static const struct {
    uint32_t codec;
    double times;
  } rows[] = {{WEIR_CODEC_POWERSGD, 1},
              {WEIR_CODEC_STAR, 1},
              {WEIR_CODEC_TOPK, 8},
              {WEIR_CODEC_NONE, 1},
              {WEIR_CODEC_QSGD, 8}};
  for (size_t i = 0; i < 5; i++)
    cr_assert_eq(weir_messages_decoded(weir_codec_find(rows[i].codec), 8), rows[i].times);
}

Test(decide, every_arm_is_a_candidate_and_the_front_is_not_dominated) {
  const weir_decision_input in = input_at(1e-2, 1e7);
  weir_decision d;
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
  cr_assert_eq(d.candidates, (size_t)WEIR_FLAT_ARMS);
  for (size_t a = 0; a < WEIR_FLAT_ARMS; a++) cr_assert_eq(weir_arm_of(&d.candidate[a].plan), a);
  cr_assert_gt(d.front_size, 5u);
  for (size_t i = 0; i < d.front_size; i++)
    for (size_t j = 0; j < d.front_size; j++) {
      const weir_candidate *a = &d.front[i], *b = &d.front[j];
      cr_assert_not(a->compress_s < b->compress_s && a->comm_s < b->comm_s && a->gain > b->gain);
    }
}

/* What keeps the loss without evidence, written out: nothing else may be chosen at risk safe, nor
 * at risk measured while nothing has been shown. */
static bool keeps_the_loss(const weir_plan *plan, uint32_t settled) {
  const bool dense = plan->codec == WEIR_CODEC_NONE || plan->codec == WEIR_CODEC_BF16;
  const double least = settled != WEIR_UNSETTLED ? 3.5 : 5.0;
  const bool squares = plan->codec == WEIR_CODEC_COMPANDED && plan->cr >= least / 32;
  const bool drawn = (plan->codec == WEIR_CODEC_QSGD_L2 && plan->cr == 4.0 / 32) ||
                     (plan->codec == WEIR_CODEC_DITHERED && plan->cr == 4.0 / 32) ||
                     (plan->codec == WEIR_CODEC_QSGD && plan->cr == 3.0 / 32);
  return dense || plan->codec == WEIR_CODEC_FP16 || squares ||
         (settled == WEIR_SETTLED_SGD && drawn);
}

Test(decide, only_what_keeps_the_loss_is_chosen_unless_the_user_is_bold) {
  static const uint64_t hosts[] = {0, 2, 8};
  static const uint32_t risks[] = {WEIR_RISK_SAFE, WEIR_RISK_MEASURED};
  for (int k = 0; k < 18; k++) {
    weir_decision_input in = input_at(k % 2 ? 3e-2 : 1e-3, 1e5 * pow(10, k % 6));
    weir_decision d;
    in.workers = 8;
    in.hosts = hosts[k / 6];
    in.risk = risks[k / 3 % 2];
    in.settled = (uint32_t)(k % 4 % 3);
    in.current = plan_of("bf16:1:dense-ring");
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
    for (size_t i = 0; i < d.candidates; i++) {
      cr_assert(keeps_the_loss(&d.candidate[i].plan, in.settled));
      cr_assert_float_eq(d.candidate[i].progress_per_s * weir_step_seconds(&in, &d.candidate[i]), 1,
                         1e-12);
    }
    for (size_t i = 0; i < d.front_size; i++)
      cr_assert(keeps_the_loss(&d.front[i].plan, in.settled));
    cr_assert_gt(d.front_size, 0u);
    cr_assert(keeps_the_loss(&d.choice.plan, in.settled));
  }
}

/* 8 ranks, 10^6 floats, 1 ms and 1 MB/s: around a ring bf16 takes 1.75 * 2 MB = 3.5 s and 14 ms.
 * 5 bits of companded take, in shares of 1/8 to each rank and back, 1.75 * (0.625 MB + 4 bytes for
 * each of 7813 buckets of 128) = 1.15 s and 2 ms, and an all-gather 7 messages, 4.6 s; 4 bits take
 * 0.93 s, once a training has settled, and 3 of qsgd, with two scales, 0.77 s, under SGD alone.
 * Coded, codes take nine tenths of that before it has been seen of them, those of 3.5 bits 0.77 of
 * what 4 take, and here all three quarters afterwards: of all but the latencies' 2 ms. */
Test(decide, few_bits_summed_on_their_way_win_where_links_are_narrow) {
  weir_decision_input in = input_at(1e-3, 1e6);
  weir_decision d;
  in.workers = 8;
  in.risk = WEIR_RISK_MEASURED;
  in.current = plan_of("bf16:1:dense-ring");
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
  static const struct {
    uint32_t settled;
    const char *plan;
    double shortened, seconds;
  } cases[] = {{WEIR_UNSETTLED, "companded:0.15625:sra", 1, 1.15},
               {WEIR_SETTLED, "companded:0.125:sra", 1, 0.93},
               {WEIR_SETTLED_SGD, "qsgd:0.09375:sra", 1, 0.77},
               {WEIR_UNSETTLED, "companded:0.15625:sra:huffman", 0, 1.035},
               {WEIR_SETTLED, "companded:0.109375:sra:huffman", 0, 0.716},
               {WEIR_SETTLED, "companded:0.125:sra:huffman", 0.75, 0.70},
               {WEIR_SETTLED_SGD, "qsgd:0.09375:sra:huffman", 0.75, 0.578}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    const weir_plan wanted = plan_of(cases[k].plan);
    in.settled = cases[k].settled;
    for (size_t a = 0; a < WEIR_ARMS; a++) in.shortened[a] = cases[k].shortened;
    for (in.devices = 0; in.devices < 2; in.devices++) { /* where they run as well */
      cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
      cr_assert(weir_same_plan(&d.choice.plan, &wanted), "%s", cases[k].plan);
    }
    cr_assert_float_eq(d.choice.comm_s, cases[k].seconds, 0.012, "%g", d.choice.comm_s);
  }
}

/* Coding usually leaves out 1.4 of whitened's 5 bits, with 0.25 for the scale 3.85 of 5.25: 0.844 s
 * of the 1.15 that they take as they are, where companded's take 1.035.  Where it is not known what
 * elements usually are, or on devices, they are not sent, and a plan in force is left; nor once a
 * training has settled, even where coding leaves nothing out of companded's 4 bits, 0.93 s. */
Test(decide, whitened_wins_where_what_elements_usually_are_is_known) {
  static const struct {
    uint64_t known, devices;
    uint32_t settled;
    double seen; /* what coding leaves of companded's codes; 0: not seen */
    const char *current, *plan;
    double seconds;
  } cases[] = {
      {0, 0, WEIR_UNSETTLED, 0, "bf16:1:dense-ring", "companded:0.15625:sra:huffman", 1.035},
      {1, 0, WEIR_UNSETTLED, 0, "bf16:1:dense-ring", "whitened:0.15625:sra:huffman", 0.844},
      {1, 1, WEIR_UNSETTLED, 0, "bf16:1:dense-ring", "companded:0.15625:sra:huffman", 1.035},
      {0, 0, WEIR_UNSETTLED, 0, "whitened:0.15625:sra", "companded:0.15625:sra:huffman", 1.035},
      {1, 0, WEIR_SETTLED, 0, "whitened:0.15625:sra", "companded:0.109375:sra:huffman", 0.716},
      {1, 0, WEIR_UNSETTLED, 1, "bf16:1:dense-ring", "whitened:0.15625:sra:huffman", 0.844},
      {1, 0, WEIR_SETTLED, 1, "bf16:1:dense-ring", "companded:0.125:sra", 0.93}};
  weir_decision_input in = input_at(1e-3, 1e6);
  in.workers = 8;
  in.risk = WEIR_RISK_MEASURED;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    const weir_plan wanted = plan_of(cases[k].plan);
    weir_decision d;
    in.current = plan_of(cases[k].current);
    in.squares_known = (uint32_t)cases[k].known;
    in.devices = cases[k].devices;
    in.settled = cases[k].settled;
    for (size_t a = 0; a < WEIR_ARMS; a++)
      if (weir_arm_at(a)->plan.codec == WEIR_CODEC_COMPANDED) in.shortened[a] = cases[k].seen;
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
    cr_assert(weir_same_plan(&d.choice.plan, &wanted), "%zu: %s", k, cases[k].plan);
    cr_assert_float_eq(d.choice.comm_s, cases[k].seconds, 0.012, "%g", d.choice.comm_s);
  }
}

/* Under SGD the 4 bits of dithered, with 0.25 for the scale, of which coding usually leaves out
 * 2.9, take 1.35 bits, of 10^6 elements' 7/8 twice 0.295 MB; devices have qsgd-l2, of whose 1.75
 * bits these are 0.383 MB.  The 3 of qsgd take 0.8 of 0.77 s; as they are, others take longer. */
Test(decide, even_steps_win_under_sgd_where_codes_are_coded) {
  static const struct {
    uint64_t devices;
    double shortened;
    const char *plan;
    double seconds;
  } cases[] = {{0, 0, "dithered:0.125:sra:huffman", 0.295},
               {1, 0, "qsgd-l2:0.125:sra:huffman", 0.385},
               {0, 1, "qsgd:0.09375:sra", 0.77},
               {1, 1, "qsgd:0.09375:sra", 0.77}};
  weir_decision_input in = input_at(1e-3, 1e6);
  in.workers = 8;
  in.risk = WEIR_RISK_MEASURED;
  in.settled = WEIR_SETTLED_SGD;
  in.current = plan_of("bf16:1:dense-ring");
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    const weir_plan wanted = plan_of(cases[k].plan);
    weir_decision d;
    for (size_t a = 0; a < WEIR_ARMS; a++) in.shortened[a] = cases[k].shortened;
    in.devices = cases[k].devices;
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
    cr_assert(weir_same_plan(&d.choice.plan, &wanted), "%s", cases[k].plan);
    cr_assert_float_eq(d.choice.comm_s, cases[k].seconds, 0.012, "%g", d.choice.comm_s);
  }
}

Test(guard, hysteresis_and_dwell) {
  weir_decision_input in = input_at(1e-3, 1e8);
  weir_candidate best, current;
  weir_decision d = {0};
  weir_evaluate(&in, &in.current, &current);
  best = current;
  best.plan = plan_of("bf16:1:dense-ring");
  best.progress_per_s = 1.03 * current.progress_per_s;
  in.trigger = WEIR_TRIGGER_PERIODIC;
  weir_guard(&in, &best, &d);
  cr_assert_not(d.switched); /* 3 % of 5 */
  cr_assert_eq(d.choice.plan.codec, (uint32_t)WEIR_CODEC_NONE);
  in.trigger = WEIR_TRIGGER_BANDWIDTH;
  weir_guard(&in, &best, &d);
  cr_assert(d.switched); /* 3 % of 2 */
  best.progress_per_s = 1.015 * current.progress_per_s;
  weir_guard(&in, &best, &d);
  cr_assert_not(d.switched);
  best.progress_per_s = 1.5 * current.progress_per_s;
  in.trigger = WEIR_TRIGGER_GAIN;
  in.dwell = 2;
  weir_guard(&in, &best, &d);
  cr_assert_not(d.switched);
  in.dwell = 3;
  weir_guard(&in, &best, &d);
  cr_assert(d.switched);
  in.dwell = 0;
  in.trigger = WEIR_TRIGGER_LATENCY;
  weir_guard(&in, &best, &d);
  cr_assert(d.switched);
}

/* A second of computing, 4 workers, 10^6 elements: fp32 takes 1.5 * 4 MB, 16 bits half, 5 bits 0.16
 * and 3 0.09 of it.  More bits are taken for a hundredth of a step, 10 ms: at 10^9 bytes/s fp32
 * takes 6 ms; at 4 * 10^8 15, and 16 bits 7.5; at 10^8 16 bits take 30, and 5 bits 4 more than 3;
 * at 10^7 these are 40 ms apart.  At risk bold the fastest is taken, and no plan of few bits. */
Test(decide, as_many_bits_as_hardly_cost_speed) {
  static const struct { double bandwidth, bits; } cases[] = {{1e9, 32}, {4e8, 16}, {1e8, 5}};
  weir_decision d;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    weir_decision_input in = input_at(1e-5, cases[k].bandwidth);
    in.compute = 1;
    in.risk = WEIR_RISK_MEASURED;
    in.settled = WEIR_SETTLED_SGD;
    in.current = plan_of("qsgd:0.09375:sra");
    in.trigger = WEIR_TRIGGER_PERIODIC;
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
    cr_assert(d.switched, "%g: %s", cases[k].bandwidth, d.why);
    cr_assert_eq(weir_plan_bits(&d.choice.plan), cases[k].bits, "%g", cases[k].bandwidth);
    in.current = d.choice.plan;
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
    cr_assert_not(d.switched, "%g: %s", cases[k].bandwidth, d.why);
  }
  weir_decision_input in = input_at(1e-5, 1e7);
  in.compute = 1;
  in.risk = WEIR_RISK_MEASURED;
  in.settled = WEIR_SETTLED_SGD;
  in.current = plan_of("companded:0.15625:sra");
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
  cr_assert_lt(weir_plan_bits(&d.choice.plan), 5);
  cr_assert_gt(weir_plan_bits(&d.choice.plan), 0);
}

Test(guard, more_bits_for_a_hundredth_of_the_speed) {
  weir_decision_input in = input_at(1e-3, 1e8);
  weir_candidate best, current;
  weir_decision d = {0};
  in.risk = WEIR_RISK_MEASURED;
  in.trigger = WEIR_TRIGGER_PERIODIC;
  in.current = plan_of("companded:0.15625:sra");
  weir_evaluate(&in, &in.current, &current);
  best = current;
  best.plan = plan_of("bf16:1:dense-ring");
  static const struct {
    double speed;
    uint64_t dwell;
    bool taken;
  } cases[] = {{0.992, 3, true}, {0.985, 3, false}, {0.992, 2, false}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    best.progress_per_s = cases[k].speed * current.progress_per_s;
    in.dwell = cases[k].dwell;
    weir_guard(&in, &best, &d);
    cr_assert_eq(d.switched, cases[k].taken, "%zu: %s", k, d.why);
  }
  /* Fewer bits have to promise something. */
  in.current = best.plan;
  in.dwell = 3;
  weir_evaluate(&in, &in.current, &current);
  best = current;
  best.plan = plan_of("companded:0.15625:sra");
  weir_guard(&in, &best, &d);
  cr_assert_not(d.switched);
}

Test(decide, fallback_returns_to_the_plan_before) {
  weir_decision_input in = input_at(1e-3, 1e6);
  in.trigger = WEIR_TRIGGER_FALLBACK;
  in.previous = plan_of("star:0.02:art-tree:auto-bf16");
  weir_decision d;
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
  cr_assert(d.switched);
  cr_assert(weir_same_plan(&d.choice.plan, &in.previous));
}

Test(decide, refuses_inputs_out_of_range) {
  enum { CASES = 19 };
  weir_decision_input in[CASES];
  weir_decision d;
  for (int i = 0; i < CASES; i++) in[i] = input_at(1e-3, 1e8);
  in[0].bandwidth = 0;
  in[1].latency = NAN;
  in[2].workers = 0;
  in[3].elements = 0;
  in[4].curve[2] = 1.5;
  in[5].curve_cr[1] = 0.5;
  in[6].overhead[0] = NAN;
  in[7].compress[0] = INFINITY;
  in[8].current.cr = 0.5; /* a dense plan keeps all */
  in[9].policy = 9;
  in[10].trigger = 99;
  in[11].compute = -1;
  in[12].risk = WEIR_RISK_COUNT;
  in[13].paper_gather = WEIR_CODEC_STAR;
  in[14].paper_shared = WEIR_CODEC_MSTOPK;
  in[15].low_rank[0] = 1e300;
  in[16].low_rank[1] = -1;
  in[17].goodput = 1e-320;
  in[18].workers = 65537; /* would take minutes */
  for (int i = 0; i < CASES; i++)
    cr_assert_eq(weir_decide(&in[i], &d), WEIR_E_INVALID, "case %d", i);
}

Test(decide, paper_takes_the_knee_and_the_cheapest_collective) {
  weir_decision_input in = input_at(5e-2, 1e8);
  in.policy = WEIR_POLICY_PAPER;
  in.workers = 8;
  const double gain[] = {0.8, 0.55, 0.33, 0.2, 0.09};
  const double compress[] = {0.004, 0.0035, 0.003, 0.003, 0.003};
  memcpy(in.trial_gain, gain, sizeof gain);
  memcpy(in.trial_compress, compress, sizeof compress);
  weir_decision d;
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
  cr_assert_eq(d.candidates, 5u);
  cr_assert(d.choice.plan.cr >= 0.001 && d.choice.plan.cr <= 0.1);
  /* N = 8, L = 3, alpha 50 ms, m = 4e6 * 0.1 = 4e5 bytes at 1e8 bytes/s:
   * AG 3*.05 + 14*.004 = .206; ART-Ring 17*.05 + ... > .85; ART-Tree 9*.05 + 9*.004 = .486. */
  cr_assert_eq(d.candidate[0].plan.scheme, (uint32_t)WEIR_SCHEME_GATHER);
  cr_assert_eq(d.candidate[0].plan.codec, (uint32_t)WEIR_CODEC_MSTOPK);
  cr_assert_float_eq(d.candidate[0].comm_s, 0.206, 1e-9);
  cr_assert_eq(d.candidate[0].gain, 0.8);
  /* At 1e5 bytes/s: AG .15 + 56 = 56.15, ART-Ring .85 + (1.75+3)*4 = 19.85, ART-Tree .45 + 36. */
  in.bandwidth = 1e5;
  cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
  cr_assert_eq(d.candidate[0].plan.scheme, (uint32_t)WEIR_SCHEME_SHARED);
  cr_assert_eq(d.candidate[0].plan.algorithm, WEIR_ALGORITHM_RING);
  cr_assert_eq(d.candidate[0].plan.codec, (uint32_t)WEIR_CODEC_STAR);
  cr_assert_float_eq(d.candidate[0].comm_s, 19.85, 1e-9);
  cr_assert_eq(d.candidate[0].plan.wire, (uint32_t)WEIR_WIRE_PAPER);
}

/* LWTopk and VAR in the place of MSTopk and STAR, at the same costs: eq. 4 knows no codec. */
Test(decide, paper_takes_the_codecs_it_is_given) {
  weir_paper_codecs codecs;
  weir_decision_input in = input_at(5e-2, 1e8);
  weir_candidate c;
  cr_assert_eq(weir_paper_parse("", &codecs), WEIR_OK);
  cr_assert(codecs.gather == WEIR_CODEC_MSTOPK && codecs.shared == WEIR_CODEC_STAR && !codecs.both);
  cr_assert_eq(weir_paper_parse(":star", &codecs), WEIR_OK);
  cr_assert(codecs.gather == WEIR_CODEC_MSTOPK && codecs.shared == WEIR_CODEC_STAR && !codecs.both);
  cr_assert_eq(weir_paper_parse(":var+mstopk+star", &codecs), WEIR_OK);
  cr_assert(codecs.gather == WEIR_CODEC_MSTOPK && codecs.shared == WEIR_CODEC_STAR && codecs.both);
  cr_assert_eq(weir_paper_parse(":lwtopk+var", &codecs), WEIR_OK);
  cr_assert(codecs.gather == WEIR_CODEC_LWTOPK && codecs.shared == WEIR_CODEC_VAR && !codecs.both);
  in.workers = 8;
  in.paper_gather = codecs.gather;
  in.paper_shared = codecs.shared;
  weir_paper_candidate(&in, 0.1, &c);
  cr_assert(c.plan.codec == WEIR_CODEC_LWTOPK && c.plan.scheme == WEIR_SCHEME_GATHER);
  cr_assert_float_eq(c.comm_s, 0.206, 1e-9); /* as above, and below */
  in.bandwidth = 1e5;
  weir_paper_candidate(&in, 0.1, &c);
  cr_assert(c.plan.codec == WEIR_CODEC_VAR && c.plan.scheme == WEIR_SCHEME_SHARED &&
            c.plan.algorithm == WEIR_ALGORITHM_RING);
  cr_assert_float_eq(c.comm_s, 19.85, 1e-9);
  /* A tree before a ring and an all-gather: 64 workers, L = 6, alpha/beta = 300 bytes, m = 400:
   * AG .6e-3 + 126 * 400 / 3e6 = 17.4e-3; Ring 132e-4 + (126/64 + 6) * 400 / 3e6 = 14.26e-3; Tree
   * 18e-4 + 18 * 400 / 3e6 = 4.2e-3. */
  in.workers = 64;
  in.latency = 1e-4;
  in.bandwidth = 3e6;
  in.elements = 1000;
  weir_paper_candidate(&in, 0.1, &c);
  cr_assert(c.plan.codec == WEIR_CODEC_VAR && c.plan.algorithm == WEIR_ALGORITHM_TREE);
  cr_assert_float_eq(c.comm_s, 4.2e-3, 1e-12);
}

/* What is chosen from the front is its knee (test_moo_sort has knees worked out by hand). */
Test(decide, paper_takes_the_knee_itself) {
  const double gain[] = {0.8, 0.55, 0.33, 0.2, 0.09};
  const double compress[] = {0.004, 0.0035, 0.003, 0.002, 0.001};
  size_t first = 0;
  for (int k = 0; k < 6; k++) {
    weir_decision_input in = input_at(5e-2, 1e5 * pow(10, k));
    weir_decision d;
    in.policy = WEIR_POLICY_PAPER;
    in.workers = 8;
    in.seed = (uint64_t)k;
    memcpy(in.trial_gain, gain, sizeof gain);
    memcpy(in.trial_compress, compress, sizeof compress);
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK);
    cr_assert(d.front_size > 10 && d.front_size < WEIR_FRONT_MAX);
    double f[WEIR_FRONT_MAX][3];
    for (size_t i = 0; i < d.front_size; i++) {
      f[i][0] = d.front[i].compress_s;
      f[i][1] = d.front[i].comm_s;
      f[i][2] = 1 / d.front[i].gain;
    }
    const size_t knee = weir_moo_knee(&f[0][0], d.front_size, 3);
    first += knee == 0;
    cr_assert_eq(d.choice.plan.cr, d.front[knee].plan.cr, "%g bytes/s", in.bandwidth);
  }
  cr_assert_lt(first, 6u); /* so that it is told from the front's first point */
}

Test(network, median_and_slowest_link) {
  weir_header n[5] = {{0}};
  weir_network network;
  weir_network_reduce(n, 5, &network);
  cr_assert(network.latency == 0 && network.bandwidth == 0 && !network.changed);
  const double latency[] = {3e-3, 0, 1e-3, 2e-3, NAN}, bandwidth[] = {100, 90, 0, 110, 95};
  for (int r = 0; r < 5; r++) {
    n[r].latency_s = latency[r];
    n[r].bandwidth = bandwidth[r];
  }
  weir_network_reduce(n, 5, &network);
  cr_assert_eq(network.latency, 2e-3);
  cr_assert_eq(network.bandwidth, 95.0); /* the lower middle of 90 95 100 110 */
  n[1].latency_s = 4e-3;
  n[4].latency_s = 5e-3;
  n[2].bandwidth = 130;
  weir_network_reduce(n, 5, &network);
  cr_assert_eq(network.latency, 3e-3);
  cr_assert_eq(network.bandwidth, 100.0);
  n[2].bandwidth = 0;
  n[3].bandwidth = 40; /* less than half of 95 */
  n[3].bandwidth_error = 0.5;
  weir_network_reduce(n, 5, &network);
  cr_assert_eq(network.bandwidth, 90.0); /* not sure enough to count: the median of 40 90 95 100 */
  n[3].bandwidth_error = 0.05;
  n[1].flags = WEIR_HEADER_NETWORK_CHANGED;
  weir_network_reduce(n, 5, &network);
  cr_assert_eq(network.bandwidth, 40.0);
  cr_assert(network.changed);
  n[3].flags = WEIR_HEADER_RISEN; /* it has reason to believe that its value is out of date */
  weir_network_reduce(n, 5, &network);
  cr_assert_eq(network.bandwidth, 90.0);
  cr_assert_eq(network.risen, 1);
}

static weir_plan plan_of_arm(const weir_decision *d, size_t arm) { return d->candidate[arm].plan; }

/* Where NCCL can be told, rings and trees of fp32 are its own, at what they take it; rounded ones
 * and those of two levels are Weir's.  4 workers, 4 MB, 1 ms, 10 GB/s, and processors that take 1
 * ns for a byte they add up. */
Test(decide, nccls_ring_and_tree) {
  static const char *const own[] = {"none:1:dense-ring", "none:1:dense-tree", "bf16:1:dense-ring",
                                    "bf16:1:dense-tree"},
                           *const told[] = {"none:1:native-ring", "none:1:native-tree",
                                            "bf16:1:dense-ring", "bf16:1:dense-tree"};
  static weir_decision d;
  weir_decision_input in = input_at(1e-3, 1e10);
  in.processors.sum_s = in.processors.sums_s = 1e-9;
  for (in.told = 0; in.told < 2; in.told++) {
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
    for (size_t a = 0; a < 4; a++) {
      const weir_plan due = plan_of(in.told ? told[a] : own[a]), got = plan_of_arm(&d, a);
      cr_assert(weir_same_plan(&got, &due), "arm %zu, told %d", a, (int)in.told);
      cr_assert_eq(weir_arm_of(&due), a); /* what is learnt of it is learnt of the arm */
      cr_assert(weir_plan_safe(&due));
    }
  }
  /* 6 ms + 1.5 * 0.4 and 4 ms + 2 * 0.4; a binomial tree takes 4 + 4 * 0.4 + 8 for sums. */
  cr_assert_float_eq(d.candidate[0].comm_s, 6.6e-3, 1e-9);
  cr_assert_float_eq(d.candidate[1].comm_s, 4.8e-3, 1e-9);
  const weir_plan tree = plan_of("none:1:native-tree");
  cr_assert(weir_same_plan(&d.choice.plan, &tree));
}

/* ART-Ring and ART-Tree as the paper ran them, by NCCL; chosen by the same rows as ever.  8
 * workers, 40 ms for the values: AG 3 alpha + 560, ART-Ring 17 alpha + 190, ART-Tree 9 alpha +
 * 360. */
Test(decide, the_papers_ring_and_tree_are_nccls) {
  static const struct {
    double latency, seconds;
    const char *own, *told;
  } rows[] = {{1e-3, 0.207, "star:0.1:art-ring", "star:0.1:art-native-ring"},
              {28e-3, 0.612, "star:0.1:art-tree", "star:0.1:art-native-tree"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    weir_decision_input in = input_at(rows[i].latency, 1e7);
    weir_candidate c, now;
    in.policy = WEIR_POLICY_PAPER;
    in.workers = 8;
    weir_paper_candidate(&in, 0.1, &c);
    in.told = 1;
    weir_paper_candidate(&in, 0.1, &now);
    const weir_plan own = plan_of(rows[i].own), told = plan_of(rows[i].told);
    cr_assert(weir_same_plan(&c.plan, &own) && weir_same_plan(&now.plan, &told), "row %zu", i);
    cr_assert_float_eq(c.comm_s, rows[i].seconds, 1e-9);
    cr_assert_eq(now.comm_s, c.comm_s);
  }
}

/* A tenth of 10^6 elements as a message is 800016 bytes in room for 800048, which begins at a
 * multiple of 256; two of them and two edges of 256 fit a page of 2 MiB, and those of a third are
 * three pages. */
Test(decide, rooms_on_devices_count_as_memory) {
  weir_decision_input in = input_at(1e-3, 1e8);
  const weir_plan tenth = plan_of("topk:0.1:ag"), third = plan_of("topk:0.333:ag");
  const double page = 2097152, plan = 3 * 4e6 + 8e5 + 4 * 800048 + 125000;
  in.devices = 1;
  in.memory_limit = plan;
  cr_assert(weir_plan_fits(&in, &tenth));
  in.rooms = 1;
  in.memory_limit = plan + page - 1;
  cr_assert_not(weir_plan_fits(&in, &tenth));
  in.memory_limit = plan + page;
  cr_assert(weir_plan_fits(&in, &tenth));
  in.room_bytes = 3 * page; /* of a plan before */
  cr_assert_not(weir_plan_fits(&in, &tenth));
  in.memory_limit = plan + 3 * page;
  cr_assert(weir_plan_fits(&in, &tenth));
  in.room_bytes = page;
  in.memory_limit = 3 * 4e6 + 8 * 333000 + 4 * 2664048 + 125000 + 3 * page;
  cr_assert(weir_plan_fits(&in, &third));
  in.memory_limit--;
  cr_assert_not(weir_plan_fits(&in, &third));
}

/* Inside of two machines a rank's room has a message of either: of the tenth 3201024 bytes, two
 * pages. */
Test(decide, rooms_inside_of_machines_count_as_memory) {
  weir_decision_input in = input_at(1e-3, 1e8);
  const weir_plan tenth = plan_of("topk:0.1:ag"), sum = plan_of("qsgd:0.125:sra");
  const double plan = 3 * 4e6 + 8e5 + 4 * 800048 + 125000;
  in.devices = 1;
  in.hosts = 2;
  in.rooms = WEIR_ROOMS_INSIDE;
  in.memory_limit = plan + 2 * 2097152;
  cr_assert(weir_plan_fits(&in, &tenth));
  in.memory_limit--;
  cr_assert_not(weir_plan_fits(&in, &tenth));
  in.memory_limit = 3 * 4e6; /* which sums over the host */
  cr_assert(weir_plan_fits(&in, &sum));
}

/* A step after a switch only what has been found out is a reason for another one. */
Test(decide, a_switch_waits_but_for_news) {
  static const weir_trigger now[] = {WEIR_TRIGGER_START, WEIR_TRIGGER_LATENCY,
                                     WEIR_TRIGGER_BANDWIDTH, WEIR_TRIGGER_TRIAL,
                                     WEIR_TRIGGER_SPARSITY},
                            later[] = {WEIR_TRIGGER_GAIN, WEIR_TRIGGER_PERIODIC};
  weir_decision_input in = input_at(5e-2, 1e7);
  weir_decision d;
  in.dwell = 1;
  for (size_t i = 0; i < sizeof now / sizeof *now; i++) {
    in.trigger = now[i];
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
    cr_assert(d.switched, "for %s: %s", weir_trigger_name(now[i]), d.why);
  }
  for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
    in.trigger = later[i];
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
    cr_assert_not(d.switched, "for %s: %s", weir_trigger_name(later[i]), d.why);
    cr_assert_not_null(strstr(d.why, "only 1 steps since the last switch"));
  }
}

static double comm_s(const weir_decision_input *in, const char *text) {
  const weir_plan plan = plan_of(text);
  weir_candidate c;
  weir_evaluate(in, &plan, &c);
  return c.comm_s;
}

/* Three ranks and one have no two levels: what needs these is exchanged among all, and costs
 * that.  Who does not say how many the largest machine has is taken to have two and two. */
Test(decide, uneven_machines_cost_what_runs_on_them) {
  weir_decision_input in = input_at(1e-3, 1e8);
  in.hosts = 2;
  const double unknown = comm_s(&in, "companded:0.125:hier-sra");
  in.largest = 2;
  cr_assert_eq(comm_s(&in, "companded:0.125:hier-sra"), unknown);
  cr_assert_lt(unknown, 0.9 * comm_s(&in, "companded:0.125:sra"));
  in.largest = 3;
  cr_assert_eq(comm_s(&in, "companded:0.125:hier-sra"), comm_s(&in, "companded:0.125:sra"));
  cr_assert_eq(comm_s(&in, "topk:0.1:hitopk:auto-bf16"),
               comm_s(&in, "topk:0.1:ag-bruck:auto-bf16"));
  in.memory_limit = 2.5 * 4e6; /* the sum, what comes from inside, and half of it around a ring */
  const weir_plan plan = plan_of("none:1:dense-hier-ring");
  cr_assert(weir_plan_fits(&in, &plan));
  in.memory_limit--;
  cr_assert_not(weir_plan_fits(&in, &plan));
  in.largest = 2;
  cr_assert(weir_plan_fits(&in, &plan));
}

Test(decide, a_largest_machine_that_cannot_be_is_refused) {
  static const uint64_t bad[] = {1, 4, UINT64_MAX};
  weir_decision_input in = input_at(1e-3, 1e8);
  weir_decision decision;
  in.hosts = 2;
  for (in.largest = 2; in.largest < 4; in.largest++)
    cr_assert_eq(weir_decide(&in, &decision), WEIR_OK, "%s", weir_last_error());
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    in.largest = bad[i];
    cr_assert_eq(weir_decide(&in, &decision), WEIR_E_INVALID);
    cr_assert_not_null(strstr(weir_last_error(), "largest"));
  }
}

/* What is not a number of bytes is no input. */
Test(decide, a_room_that_cannot_be_is_refused) {
  weir_decision_input in = input_at(1e-3, 1e8);
  weir_decision decision;
  in.room_bytes = -1;
  cr_assert_eq(weir_decide(&in, &decision), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "room_bytes"));
  in.room_bytes = 0;
  in.rooms = WEIR_ROOMS_INSIDE + 1;
  cr_assert_eq(weir_decide(&in, &decision), WEIR_E_INVALID);
  cr_assert_not_null(strstr(weir_last_error(), "rooms"));
}

/* Whatever the network is like, and however large the ratio that would be best: nothing that the
 * search for it finds takes more memory than there is. */
Test(decide, a_bold_search_keeps_to_the_memory) {
  for (int k = 0; k < 6; k++) {
    weir_decision_input in = input_at(1e-3, 1e5 * pow(10, k));
    weir_decision d;
    in.risk = WEIR_RISK_BOLD;
    in.current = plan_of("none:1:dense-ring");
    in.memory_limit = 3 * 4e6 + 8e4 + 4 * 80048 + 125000; /* a hundredth of 10^6 elements */
    cr_assert_eq(weir_decide(&in, &d), WEIR_OK, "%s", weir_last_error());
    cr_assert_gt(d.front_size, 0u);
    for (size_t i = 0; i < d.front_size; i++)
      cr_expect(weir_plan_fits(&in, &d.front[i].plan), "%d: %u at %g", k, d.front[i].plan.codec,
                d.front[i].plan.cr);
    cr_expect(weir_plan_fits(&in, &d.choice.plan), "%d: %u at %g", k, d.choice.plan.codec,
              d.choice.plan.cr);
  }
}

/* The guard takes a plan for the one in force only where it is so in all that is done. */
Test(decide, what_makes_two_plans_the_same) {
  static const char *const others[] = {"qsgd:0.25:ag", "qsgd:0.125:sra", "qsgd:0.125:ag:huffman",
                                       "qsgd:0.125:ag-ring"};
  const weir_plan plan = plan_of("qsgd:0.125:ag");
  weir_plan other = plan;
  other.id = plan.id + 5;
  cr_expect(weir_same_plan(&plan, &other));
  other.bucket_log2 = 9;
  cr_expect_not(weir_same_plan(&plan, &other));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    other = plan_of(others[i]);
    cr_expect_not(weir_same_plan(&plan, &other), "%s", others[i]);
  }
}

/* Strategies: costs by hand, the schedule against the timeline, the optimum by brute force, and who
 * may not be worse than whom. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../sampled.h"
#include "base/base.h"
#include "planner/course.h"
#include "planner/published.h"
#include "planner/strategy.h"

enum { MOST = 160 };

static weir_profile_tensor tensors[MOST];
static char names[MOST][24];

static const weir_cluster two_by_two = {
    .machines = 2,
    .per_machine = 2,
    .intra_alpha_s = 1.0,
    .intra_beta_s = 0.01,
    .inter_alpha_s = 10.0,
    .inter_beta_s = 0.1,
    .cpu_cores = 1,
    .codecs = 1,
    .codec = {{"c",
               0.25,
               {{.fixed_s = 100.0, .per_byte_s = 1.0}, {.fixed_s = 200.0}},
               {{.fixed_s = 300.0, .per_byte_s = 2.0}, {.fixed_s = 400.0}}}}};

typedef struct wanted {
  const char *text;
  weir_op ops[WEIR_OPTION_TASKS];
  size_t count, found;
} wanted;

static void compare_ops(void *user, const weir_option *option) {
  wanted *w = user;
  char text[512];
  weir_op ops[WEIR_OPTION_TASKS];
  (void)weir_option_text(option, text, sizeof text);
  if (strcmp(text, w->text) != 0) return;
  w->found++;
  cr_assert_eq(weir_option_ops(option, &two_by_two, 0, 80.0, ops), w->count, "%s", text);
  for (size_t k = 0; k < w->count; k++) {
    cr_assert_eq(ops[k].resource, w->ops[k].resource, "%s: %zu", text, k);
    cr_assert_float_eq(ops[k].seconds, w->ops[k].seconds, 1e-9, "%s: %zu takes %g", text, k,
                       ops[k].seconds);
  }
}

/* 80 bytes, 20 compressed.  Inside: latency 1, 0.01 a byte; between machines 10 and 0.1. */
Test(planner_strategy, costs_of_options_by_hand) {
  wanted cases[] = {
      /* Ring of 4: 6 latencies, 1.5 times the bytes; a tree would take 4 and 4 times. */
      {"all-reduce(flat)", {{WEIR_ON_INTER, 4 * 10.0 + 4 * 8.0, ""}}, 1, 0},
      /* 3 blocks of 20 come in; 4 times 80 bytes come out of decompression. */
      {"comp(gpu) all-gather*(flat) decomp(cpu)",
       {{WEIR_ON_COMPUTE, 180.0, ""}, {WEIR_ON_INTER, 30.0 + 6.0, ""}, {WEIR_ON_CPU, 400.0, ""}},
       3,
       0},
      /* A machine's link carries the blocks of 5 bytes of both its workers; each then holds 4
       * messages of 20 dense bytes, adds them up and compresses 20 bytes to 5. */
      {"comp(gpu) all-to-all*(flat) decomp(gpu) comp(gpu) all-gather*(flat) decomp(gpu)",
       {{WEIR_ON_COMPUTE, 180.0, ""},
        {WEIR_ON_INTER, 30.0 + 3 * 5 * 0.2, ""},
        {WEIR_ON_COMPUTE, 460.0, ""},
        {WEIR_ON_COMPUTE, 120.0, ""},
        {WEIR_ON_INTER, 30.0 + 1.5, ""},
        {WEIR_ON_COMPUTE, 460.0, ""}},
       6,
       0},
      /* Halves inside; two rings of 2 machines share the link: 2 latencies and 40 bytes twice. */
      {"reduce-scatter(intra) all-reduce(inter) all-gather(intra)",
       {{WEIR_ON_INTRA, 1.4, ""}, {WEIR_ON_INTER, 20.0 + 8.0, ""}, {WEIR_ON_INTRA, 1.4, ""}},
       3,
       0},
      /* All of it to one worker, which alone talks to the other machine. */
      {"reduce(intra) comp(gpu) all-gather*(inter) broadcast*(intra) decomp(gpu)",
       {{WEIR_ON_INTRA, 1.8, ""},
        {WEIR_ON_COMPUTE, 180.0, ""},
        {WEIR_ON_INTER, 10.0 + 2.0, ""},
        {WEIR_ON_INTRA, 1.0 + 0.4, ""},
        {WEIR_ON_COMPUTE, 300.0 + 320.0, ""}},
       5,
       0},
  };
  size_t count;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    cr_assert_eq(weir_options_visit(&(weir_option_limits){0}, compare_ops, &cases[k], &count),
                 WEIR_OK);
    cr_assert_eq(cases[k].found, 1u, "%s: %zu times", cases[k].text, cases[k].found);
  }
}

static double between(weir_rng *rng, double low, double high) {
  return low * pow(high / low, weir_rng_uniform(rng));
}

static weir_cluster random_cluster(weir_rng *rng) {
  const double gpu = between(rng, 3e9, 1e11), cpu = between(rng, 5e8, 1e10);
  return (weir_cluster){.machines = 2 + (size_t)weir_rng_below(rng, 15),
                        .per_machine = 1 + (size_t)weir_rng_below(rng, 8),
                        .intra_alpha_s = between(rng, 5e-6, 5e-5),
                        .intra_beta_s = 1.0 / between(rng, 8e9, 2e11),
                        .inter_alpha_s = between(rng, 1e-5, 1e-3),
                        .inter_beta_s = 1.0 / between(rng, 1e8, 2e10),
                        .cpu_cores = 1 + (size_t)weir_rng_below(rng, 8),
                        .codecs = 1,
                        .codec = {{"c",
                                   between(rng, 0.002, 0.25),
                                   {{.fixed_s = between(rng, 1e-5, 3e-4), .per_byte_s = 1.0 / gpu},
                                    {.fixed_s = between(rng, 1e-5, 1e-4), .per_byte_s = 1.0 / cpu}},
                                   {{.fixed_s = between(rng, 1e-5, 1e-4), .per_byte_s = 0.4 / gpu},
                                    {.fixed_s = 2e-5, .per_byte_s = 0.5 / cpu}}}}};
}

/* Sizes recur, as in real networks; every fourth is large. */
static weir_profile random_profile(weir_rng *rng, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const double size = i % 4 ? pow(2.0, 6.0 + (double)weir_rng_below(rng, 6))
                              : pow(4.0, 8.0 + (double)weir_rng_below(rng, 4));
    (void)snprintf(names[i], sizeof names[i], "t%zu", i);
    tensors[i] = (weir_profile_tensor){names[i], size, 1e-5 + size * between(rng, 1e-10, 4e-9)};
  }
  return (weir_profile){n, tensors};
}

Test(planner_strategy, the_schedule_is_the_timelines) {
  static weir_op ops[3][MOST][4];
  static weir_chain chains[MOST];
  weir_rng rng = weir_rng_of(21);
  for (size_t instance = 0; instance < 300; instance++) {
    const size_t n = 1 + (size_t)weir_rng_below(&rng, MOST), cores = 1 + instance % 5;
    const size_t servers[WEIR_RESOURCES] = {1, cores, 1, 1};
    const weir_profile p = random_profile(&rng, n);
    weir_course course;
    weir_timeline t;
    size_t counts[3][MOST];
    cr_assert_eq(weir_course_create(&course, &p, cores), WEIR_OK);
    for (size_t s = 0; s < 3; s++)
      for (size_t i = 0; i < n; i++) {
        counts[s][i] = (size_t)weir_rng_below(&rng, 5);
        for (size_t k = 0; k < 4; k++)
          ops[s][i][k] = (weir_op){(weir_resource)weir_rng_below(&rng, WEIR_RESOURCES),
                                   (double)weir_rng_below(&rng, 4) * 1e-4, ""};
      }
    for (size_t i = 0; i < n; i++) {
      chains[i] = (weir_chain){i, ops[0][i], counts[0][i]};
      weir_course_set(&course, i, (weir_course_chain){ops[0][i], counts[0][i]});
    }
    cr_assert_eq(weir_timeline_run(&p, chains, n, servers, &t), WEIR_OK);
    cr_assert_float_eq(weir_course_mark(&course), t.iteration_s, 1e-12);
    cr_assert_float_eq(weir_course_time(&course, INFINITY), t.iteration_s, 1e-12);
    cr_assert_eq(weir_course_time(&course, t.iteration_s), INFINITY);
    weir_timeline_free(&t);
    for (size_t round = 0; round < 8; round++) {
      const size_t i = (size_t)weir_rng_below(&rng, n), s = 1 + round % 2;
      const weir_chain kept = chains[i];
      const weir_course_chain other = {ops[s][i], counts[s][i]};
      chains[i] = (weir_chain){i, ops[s][i], counts[s][i]};
      cr_assert_eq(weir_timeline_run(&p, chains, n, servers, &t), WEIR_OK);
      cr_assert_float_eq(weir_course_try(&course, i, other, INFINITY), t.iteration_s, 1e-12);
      cr_assert_eq(weir_course_try(&course, i, other, t.iteration_s * 0.999), INFINITY);
      weir_timeline_free(&t);
      chains[i] = kept;
    }
    weir_course_free(&course);
  }
}

/* By hand: the link is busy with tensor 0 until 6, then waits for tensor 1, ready at 10. */
/* An option may be so slow that its time is no finite one; the others are tried in its place. */
Test(planner_strategy, a_schedule_of_no_finite_time_is_left_again) {
  static const weir_op sent = {WEIR_ON_INTER, 1.0, ""}, never = {WEIR_ON_COMPUTE, INFINITY, ""};
  enum { N = 4 };
  weir_rng rng = weir_rng_of(33);
  const weir_profile p = random_profile(&rng, N);
  const weir_course_chain finite = {&sent, 1}, endless = {&never, 1};
  weir_course course;
  weir_chain chains[N];
  weir_timeline t;
  cr_assert_eq(weir_course_create(&course, &p, 1), WEIR_OK);
  for (size_t i = 0; i < N; i++) {
    chains[i] = (weir_chain){i, &sent, 1};
    weir_course_set(&course, i, i == 1 ? endless : finite);
  }
  cr_assert_eq(weir_timeline_run(&p, chains, N, NULL, &t), WEIR_OK);
  cr_assert_eq(weir_course_mark(&course), INFINITY);
  cr_assert_eq(weir_course_try(&course, 3, finite, INFINITY), INFINITY);
  cr_assert_float_eq(weir_course_try(&course, 1, finite, INFINITY), t.iteration_s, 1e-12);
  weir_timeline_free(&t);
  weir_course_free(&course);
}

Test(planner_strategy, tensors_before_a_bubble_are_found) {
  const weir_op send = {WEIR_ON_INTER, 5.0, ""};
  tensors[0] = tensors[2] = (weir_profile_tensor){names[0], 1.0, 1.0};
  tensors[1] = (weir_profile_tensor){names[1], 1.0, 9.0};
  const weir_profile p = {3, tensors};
  weir_course course;
  cr_assert_eq(weir_course_create(&course, &p, 1), WEIR_OK);
  for (size_t i = 0; i < 3; i++) weir_course_set(&course, i, (weir_course_chain){&send, 1});
  cr_assert_eq(weir_course_mark(&course), 20.0);
  cr_assert(weir_course_before_bubble(&course, 0));
  cr_assert_not(weir_course_before_bubble(&course, 1));
  cr_assert_not(weir_course_before_bubble(&course, 2));
  weir_course_free(&course);
}

/* By hand: tensor 0 is sent from 1 to 6.  Tensor 1 is sent for 1, compressed again for 3, sent for
 * 1.  Ready at 2 it waits for tensor 0, so the gap from 7 to 10 would come sooner without it and is
 * no bubble; ready at 10 it has waited for nothing, and what tensor 0 takes does not matter. */
Test(planner_strategy, a_gap_within_a_tensor_that_queued_is_no_bubble) {
  static const double gaps[] = {1.0, 9.0}, ends[] = {11.0, 15.0};
  const weir_op send = {WEIR_ON_INTER, 5.0, ""};
  const weir_op twice[] = {
      {WEIR_ON_INTER, 1.0, ""}, {WEIR_ON_COMPUTE, 3.0, ""}, {WEIR_ON_INTER, 1.0, ""}};
  for (size_t k = 0; k < 2; k++) {
    tensors[0] = (weir_profile_tensor){names[0], 1.0, 1.0};
    tensors[1] = (weir_profile_tensor){names[1], 1.0, gaps[k]};
    const weir_profile p = {2, tensors};
    weir_course course;
    cr_assert_eq(weir_course_create(&course, &p, 1), WEIR_OK);
    weir_course_set(&course, 0, (weir_course_chain){&send, 1});
    weir_course_set(&course, 1, (weir_course_chain){twice, 3});
    cr_assert_eq(weir_course_mark(&course), ends[k]);
    cr_assert_eq(weir_course_before_bubble(&course, 0), k == 1);
    cr_assert_not(weir_course_before_bubble(&course, 1));
    weir_course_free(&course);
  }
}

static void check_strategy(const weir_profile *p, const weir_cluster *c, const weir_strategy *s) {
  weir_timeline t;
  cr_assert_eq(s->count, p->count);
  cr_assert_eq(weir_strategy_timeline(p, c, s, &t), WEIR_OK);
  cr_assert_float_eq(t.iteration_s, s->iteration_s, 1e-12);
  weir_timeline_free(&t);
}

static void check_text(const weir_strategy_choice *choice, const char *expected) {
  char text[512];
  (void)weir_option_text(&choice->option, text, sizeof text);
  cr_assert_str_eq(text, expected);
}

/* Algorithms 1 and 2 by hand.  Two machines of one worker, a second a byte; a quarter of the bytes
 * is sent when compressed, by one all-gather.  GPU: 3 s to compress, 1 s back; one CPU core: 4 and
 * 1.  Tensors of 4, 8 and 8 bytes are ready at 1, 11 and 12.
 *   Nothing compressed: sent 1-5, 11-19, 19-27.  The link waits from 5 to 11, so tensor 0 is
 *   removed.  Tensor 2 first, as large as 1 and nearer to the output layer: compressed 12-15, sent
 *   19-21, back 21-22.  Then tensor 1: compressed 11-14, tensor 2's gradient 14-15, compressed
 *   15-18; sent 14-16 and 18-20, back 18-19 and 20-21.
 *   One of the two on the CPU, tensor 1, farthest from the output layer: compressed 11-15 beside
 *   tensor 2, 12-15; sent 15-17 and 17-19, back 17-18 and 19-20.  Both: 22.
 * Timelines: 1 for the start, 1 for each of 3 calls of Remove, 1 option for each of 2 tensors, 2
 * numbers of tensors offloaded. */
Test(planner_strategy, algorithms_1_and_2_by_hand) {
  static const char sent[] = "all-reduce(flat)";
  static const char gpu[] = "comp(gpu) all-gather*(flat) decomp(gpu)";
  static const char cpu[] = "comp(cpu) all-gather*(flat) decomp(cpu)";
  const weir_cluster c = {
      .machines = 2,
      .per_machine = 1,
      .inter_beta_s = 1.0,
      .cpu_cores = 1,
      .codecs = 1,
      .codec = {
          {"c", 0.25, {{.fixed_s = 3.0}, {.fixed_s = 4.0}}, {{.fixed_s = 1.0}, {.fixed_s = 1.0}}}}};
  const weir_strategy_limits limits = {.options = {.no_hierarchical = true, .no_divisible = true}};
  const weir_profile p = {3, tensors};
  tensors[0] = (weir_profile_tensor){names[0], 1.0, 1.0};
  tensors[1] = (weir_profile_tensor){names[1], 2.0, 10.0};
  tensors[2] = (weir_profile_tensor){names[2], 2.0, 1.0};
  for (size_t fast = 0; fast < 2; fast++) {
    weir_strategy_report r;
    cr_assert_eq(fast ? weir_strategy_solve(&p, &c, &limits, &r)
                      : weir_strategy_published(&p, &c, &limits, &r),
                 WEIR_OK);
    const weir_strategy *first = &r.by[WEIR_STRATEGY_GPU], *second = &r.by[WEIR_STRATEGY_BYTECOMP];
    cr_assert_eq(r.by[WEIR_STRATEGY_NONE].iteration_s, 27.0);
    cr_assert_eq(first->iteration_s, 21.0);
    cr_assert_eq(second->iteration_s, 20.0);
    for (size_t i = 0; i < 3; i++) check_text(&first->choice[i], i ? gpu : sent);
    check_text(&second->choice[0], sent);
    check_text(&second->choice[1], cpu);
    check_text(&second->choice[2], gpu);
    cr_assert_eq(r.timelines, fast ? 0u : 8u);
    weir_strategy_report_free(&r);
  }
}

static bool has(const weir_option *o, weir_task task, weir_site site) {
  for (size_t i = 0; i < o->count; i++)
    if (o->step[i].task == task && o->step[i].place == site) return true;
  return false;
}

static void check_spaces(const weir_strategy_report *r, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const weir_option *gpu = &r->by[WEIR_STRATEGY_GPU].choice[i].option;
    const weir_option *cpu = &r->by[WEIR_STRATEGY_CPU].choice[i].option;
    const weir_strategy_choice *a = &r->by[WEIR_STRATEGY_INTER_ALLGATHER].choice[i];
    const weir_strategy_choice *b = &r->by[WEIR_STRATEGY_ALLTOALL_ALLTOALL].choice[i];
    cr_assert_not(r->by[WEIR_STRATEGY_NONE].choice[i].compressed);
    cr_assert(r->by[WEIR_STRATEGY_ALL].choice[i].compressed);
    cr_assert(r->by[WEIR_STRATEGY_LAYER_WISE].choice[i].compressed);
    cr_assert_not(has(gpu, WEIR_TASK_COMP, WEIR_SITE_CPU) ||
                  has(gpu, WEIR_TASK_DECOMP, WEIR_SITE_CPU));
    cr_assert_not(has(cpu, WEIR_TASK_COMP, WEIR_SITE_GPU) ||
                  has(cpu, WEIR_TASK_DECOMP, WEIR_SITE_GPU));
    cr_assert(!a->compressed || (has(&a->option, WEIR_TASK_COMM_COMP, WEIR_SITE_INTER) &&
                                 has(&a->option, WEIR_TASK_COMM1, WEIR_SITE_INTRA)));
    cr_assert(!b->compressed || (has(&b->option, WEIR_TASK_COMM1_COMP, WEIR_SITE_INTRA) &&
                                 has(&b->option, WEIR_TASK_COMM1_COMP, WEIR_SITE_INTER)));
  }
}

Test(planner_strategy, never_worse_than_policies_and_crippled_searches) {
  weir_rng rng = weir_rng_of(22);
  for (size_t instance = 0; instance < 12; instance++) {
    const weir_profile p = random_profile(&rng, 13 + (size_t)weir_rng_below(&rng, MOST - 13));
    const weir_cluster c = random_cluster(&rng);
    if (!sampled(8)) continue;
    const weir_strategy_limits limits = {.compare = true};
    weir_strategy_report r;
    cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &r), WEIR_OK);
    cr_assert_eq(r.options, 4341u);
    for (weir_strategy_method m = WEIR_STRATEGY_NONE; m <= WEIR_STRATEGY_WEIR; m++) {
      check_strategy(&p, &c, &r.by[m]);
      cr_assert_leq(r.by[WEIR_STRATEGY_WEIR].iteration_s, r.by[m].iteration_s, "%s",
                    weir_strategy_name(m));
    }
    cr_assert_leq(r.by[WEIR_STRATEGY_BYTECOMP].iteration_s, r.by[WEIR_STRATEGY_GPU].iteration_s);
    cr_assert_leq(r.upper_bound_s, r.by[WEIR_STRATEGY_WEIR].iteration_s);
    check_spaces(&r, p.count);
    weir_strategy_report_free(&r);
  }
}

/* The 63 flat options of every tensor, all combinations, by the timeline. */
typedef struct all_options {
  weir_option option[64];
  size_t count;
} all_options;

static void collect(void *user, const weir_option *option) {
  all_options *all = user;
  all->option[all->count++] = *option;
}

Test(planner_strategy, the_exact_search_equals_brute_force) {
  weir_rng rng = weir_rng_of(23);
  all_options all = {.count = 0};
  weir_strategy_limits limits = {.options = {.no_hierarchical = true}, .exact_work = 1e9};
  size_t count;
  cr_assert_eq(weir_options_visit(&limits.options, collect, &all, &count), WEIR_OK);
  for (size_t instance = 0; instance < 12; instance++) {
    const weir_profile p = random_profile(&rng, 2);
    const weir_cluster c = random_cluster(&rng);
    double best = INFINITY;
    for (size_t a = 0; a < count; a++)
      for (size_t b = 0; b < count; b++) {
        weir_strategy_choice choice[] = {{.option = all.option[a]}, {.option = all.option[b]}};
        const weir_strategy s = {.count = 2, .choice = choice};
        weir_timeline t;
        cr_assert_eq(weir_strategy_timeline(&p, &c, &s, &t), WEIR_OK);
        best = fmin(best, t.iteration_s);
        weir_timeline_free(&t);
      }
    weir_strategy_report r;
    cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &r), WEIR_OK);
    cr_assert(r.exact);
    cr_assert_float_eq(r.by[WEIR_STRATEGY_EXACT].iteration_s, best, 1e-12 * best);
    check_strategy(&p, &c, &r.by[WEIR_STRATEGY_EXACT]);
    weir_strategy_report_free(&r);
  }
}

/* Over the whole tree for two tensors, for three and four over parts of it. */
Test(planner_strategy, within_five_percent_of_the_optimum_on_small_cases) {
  weir_rng rng = weir_rng_of(24);
  size_t exact = 0, tried = 0;
  for (size_t instance = 0; instance < 60; instance++) {
    const size_t n = 2 + instance % 3;
    const weir_profile p = random_profile(&rng, n);
    const weir_cluster c = random_cluster(&rng);
    if (!sampled(8)) continue;
    const weir_strategy_limits limits = {.options = {.no_cpu = n > 2 && instance % 2,
                                                     .no_gpu = n == 4 && !(instance % 2),
                                                     .most_compressions = n > 2},
                                         .exact_work = 3e5};
    weir_strategy_report r;
    cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &r), WEIR_OK);
    if (r.exact) {
      exact++;
      cr_assert_leq(r.by[WEIR_STRATEGY_WEIR].iteration_s,
                    1.05 * r.by[WEIR_STRATEGY_EXACT].iteration_s, "instance %zu: %g, not %g",
                    instance, r.by[WEIR_STRATEGY_WEIR].iteration_s,
                    r.by[WEIR_STRATEGY_EXACT].iteration_s);
    }
    weir_strategy_report_free(&r);
    tried++;
  }
  cr_assert(tried < 60 || exact >= 40, "only %zu", exact);
}

static double time_of(const weir_strategy_report *r, weir_strategy_method m) {
  return r->by[m].iteration_s;
}

/* Both on one random instance; the caller frees the reports. */
static void solve_both(weir_rng *rng, size_t n, weir_option_limits options,
                       weir_strategy_report *printed, weir_strategy_report *fast) {
  const weir_profile p = random_profile(rng, n);
  const weir_cluster c = random_cluster(rng);
  const weir_strategy_limits limits = {.options = options, .compare = true};
  cr_assert_eq(weir_strategy_published(&p, &c, &limits, printed), WEIR_OK);
  cr_assert_eq(weir_strategy_solve(&p, &c, &limits, fast), WEIR_OK);
  check_strategy(&p, &c, &printed->by[WEIR_STRATEGY_GPU]);
  check_strategy(&p, &c, &printed->by[WEIR_STRATEGY_BYTECOMP]);
}

/* With one option to compress, one not to, and few tensors, nothing is pruned: the same times. */
Test(planner_strategy, the_fast_search_is_the_published_one_where_nothing_is_pruned) {
  static const weir_strategy_method methods[] = {WEIR_STRATEGY_NONE, WEIR_STRATEGY_GPU,
                                                 WEIR_STRATEGY_BYTECOMP};
  weir_rng rng = weir_rng_of(28);
  for (size_t instance = 0; instance < 100; instance++) {
    const weir_option_limits flat = {.no_hierarchical = true, .no_divisible = true};
    weir_strategy_report printed, fast;
    solve_both(&rng, 2 + instance % (WEIR_STRATEGY_THOROUGH - 1), flat, &printed, &fast);
    for (size_t k = 0; k < 3; k++)
      cr_assert_float_eq(time_of(&fast, methods[k]), time_of(&printed, methods[k]),
                         1e-12 * time_of(&printed, methods[k]), "%zu: %s", instance,
                         weir_strategy_name(methods[k]));
    weir_strategy_report_free(&printed);
    weir_strategy_report_free(&fast);
  }
}

/* Over the whole tree lists are pruned, and another option for one tensor sends Algorithm 1 another
 * way: at most 7 % more in 20 instances, at most 3 % after improvement, which is less on
 * average. */
Test(planner_strategy, the_fast_searches_are_near_the_published_algorithms) {
  double sum = 0.0;
  weir_rng rng = weir_rng_of(27);
  for (size_t instance = 0; instance < 20; instance++) {
    weir_strategy_report printed, fast;
    solve_both(&rng, 2 + instance % 9, (weir_option_limits){0}, &printed, &fast);
    const double published = time_of(&printed, WEIR_STRATEGY_BYTECOMP);
    cr_assert_leq(published, time_of(&printed, WEIR_STRATEGY_GPU));
    cr_assert_leq(time_of(&fast, WEIR_STRATEGY_BYTECOMP), 1.07 * published, "instance %zu",
                  instance);
    cr_assert_leq(time_of(&fast, WEIR_STRATEGY_WEIR), 1.03 * published, "instance %zu", instance);
    sum += time_of(&fast, WEIR_STRATEGY_WEIR) / published;
    weir_strategy_report_free(&printed);
    weir_strategy_report_free(&fast);
  }
  cr_assert_leq(sum / 20.0, 0.98, "weir takes %g of the published algorithms' time", sum / 20.0);
}

Test(planner_strategy, the_published_algorithms_refuse_what_they_cannot_begin_with) {
  const weir_profile p = {1, tensors};
  weir_strategy_limits limits = {.options = {.compressed_only = true}};
  weir_cluster bad = two_by_two;
  weir_strategy_report r;
  tensors[0] = (weir_profile_tensor){names[0], 1.0, 1.0};
  cr_assert_eq(weir_strategy_published(&p, &two_by_two, &limits, &r), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "begins with no compression"), "%s", weir_last_error());
  bad.machines = 0;
  cr_assert_eq(weir_strategy_published(&p, &bad, NULL, &r), WEIR_E_INVALID);
}

Test(planner_strategy, constraints_are_kept_and_refused) {
  weir_rng rng = weir_rng_of(25);
  const weir_profile p = random_profile(&rng, 20);
  weir_cluster c = random_cluster(&rng);
  weir_strategy_report r;
  uint8_t codecs[20];
  c.codecs = 2;
  c.codec[1] = c.codec[0];
  c.codec[1].ratio = 0.5;
  for (size_t i = 0; i < 20; i++) codecs[i] = (uint8_t)(i % 3); /* none, the first, the second */
  weir_strategy_limits limits = {.codecs = codecs, .compare = true};
  limits.options.never = 1u << (2 * WEIR_TASK_COMM1_COMP + 1); /* gather */
  cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &r), WEIR_OK);
  for (weir_strategy_method m = WEIR_STRATEGY_NONE; m <= WEIR_STRATEGY_WEIR; m++)
    for (size_t i = 0; i < r.by[m].count; i++) {
      const weir_strategy_choice *choice = &r.by[m].choice[i];
      char text[512];
      (void)weir_option_text(&choice->option, text, sizeof text);
      cr_assert_not(strstr(text, " gather*"), "%s", text);
      cr_assert(!choice->compressed || codecs[i] == 1u << choice->codec);
    }
  weir_strategy_report_free(&r);
  limits.options = (weir_option_limits){.no_gpu = true, .no_cpu = true, .compressed_only = true};
  cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &r), WEIR_E_INVALID);
  limits.options = (weir_option_limits){.compressed_only = true};
  cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &r), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "no option for tensor 't"), "%s", weir_last_error());
  limits.codecs = NULL;
  cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &r), WEIR_OK);
  cr_assert_eq(r.by[WEIR_STRATEGY_NONE].count, 0u);
  for (size_t i = 0; i < 20; i++) cr_assert(r.by[WEIR_STRATEGY_WEIR].choice[i].compressed);
  weir_strategy_report_free(&r);
}

/* Searches that are compared leave a worse strategy behind than the best that is known. */
Test(planner_strategy, an_exact_search_that_is_cut_short_begins_with_the_best) {
  weir_rng rng = weir_rng_of(31);
  for (size_t instance = 0; instance < 4; instance++) {
    const weir_profile p = random_profile(&rng, 12);
    const weir_cluster c = random_cluster(&rng);
    const weir_strategy_limits limits = {.compare = true, .exact_work = 1};
    weir_strategy_report r;
    cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &r), WEIR_OK);
    cr_assert(!r.exact);
    cr_assert_leq(r.by[WEIR_STRATEGY_EXACT].iteration_s, r.by[WEIR_STRATEGY_WEIR].iteration_s);
    weir_strategy_report_free(&r);
  }
}

Test(planner_strategy, no_bound_is_told_that_was_not_sought) {
  weir_rng rng = weir_rng_of(32);
  const weir_cluster c = random_cluster(&rng);
  for (size_t n = 3; n <= 12; n += 9) {
    const weir_profile p = random_profile(&rng, n);
    const weir_strategy_limits limits = {.work = 1000};
    weir_strategy_report r;
    weir_strategy_fusion f;
    cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &r), WEIR_OK);
    cr_assert_eq(r.upper_bound_s, 0.0);
    cr_assert_eq(weir_strategy_fuse(&p, &c, NULL, &f), WEIR_OK);
    cr_assert_eq(f.report.upper_bound_s, 0.0);
    weir_strategy_report_free(&r);
    weir_strategy_fusion_free(&f);
  }
}

Test(planner_strategy, clusters_out_of_range_are_refused) {
  const weir_profile p = {1, tensors};
  weir_strategy_report r;
  weir_cluster bad[10];
  tensors[0] = (weir_profile_tensor){names[0], 1.0, 1.0};
  for (size_t k = 0; k < 10; k++) bad[k] = two_by_two;
  bad[0].machines = 0;
  bad[1].cpu_cores = 65;
  bad[2].inter_beta_s = NAN;
  bad[3].codecs = 0;
  bad[4].codec[0].ratio = 1.5;
  bad[5].codec[0].compress[1].fixed_s = -1.0;
  bad[6].codec[0].decompress[0].per_byte_s = INFINITY;
  bad[7].machines = bad[7].per_machine = 65536; /* 2^32 workers: none of them, as an int */
  bad[8].machines = 65536;
  bad[8].per_machine = 32768;
  bad[9].intra_beta_s = bad[9].inter_beta_s = 1e308; /* no strategy's time is finite */
  for (size_t k = 0; k < 10; k++)
    cr_assert_eq(weir_strategy_solve(&p, &bad[k], NULL, &r), WEIR_E_INVALID, "case %zu", k);
}

Test(planner_strategy, fused_never_worse_and_near_the_joint_optimum) {
  weir_rng rng = weir_rng_of(26);
  for (size_t instance = 0; instance < 12; instance++) {
    const weir_profile p = random_profile(&rng, 3);
    weir_cluster c = random_cluster(&rng);
    const weir_strategy_limits limits = {.options = {.no_hierarchical = true},
                                         .executable = instance >= 6,
                                         .fuse_s = 60,
                                         .exact_work = 1e9};
    c.codec[0].name = "dgc:0.01";
    weir_strategy_fusion f;
    weir_strategy_report alone;
    double best = INFINITY;
    for (unsigned mask = 0; mask < 4; mask++) { /* bit i: a bucket ends after tensor i */
      size_t end[3], buckets = 0;
      for (size_t i = 0; i < 3; i++)
        if (i == 2 || mask >> i & 1) end[buckets++] = i + 1;
      weir_profile fused;
      weir_strategy_report r;
      cr_assert_eq(weir_profile_fuse(&p, end, buckets, &fused), WEIR_OK);
      cr_assert_eq(weir_strategy_solve(&fused, &c, &limits, &r), WEIR_OK);
      cr_assert(r.exact);
      best = fmin(best, r.by[WEIR_STRATEGY_EXACT].iteration_s);
      weir_strategy_report_free(&r);
      weir_profile_free(&fused);
    }
    cr_assert_eq(weir_strategy_fuse(&p, &c, &limits, &f), WEIR_OK);
    cr_assert_eq(weir_strategy_solve(&p, &c, &limits, &alone), WEIR_OK);
    const double found = f.report.by[WEIR_STRATEGY_WEIR].iteration_s;
    cr_assert_leq(found, alone.by[WEIR_STRATEGY_WEIR].iteration_s);
    cr_assert_leq(found, 1.05 * best, "instance %zu: %g, not %g", instance, found, best);
    cr_assert_eq(f.end[f.buckets - 1], 3u);
    check_strategy(&f.profile, &c, &f.report.by[WEIR_STRATEGY_WEIR]);
    weir_strategy_report_free(&alone);
    weir_strategy_fusion_free(&f);
  }
}

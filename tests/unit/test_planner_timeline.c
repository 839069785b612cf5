/* The time model: cases by hand, agreement with the fusion recurrence, invariants, traces. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "plan_files.h"
#include "planner/timeline.h"

enum { TENSORS = 12, OPS = 5 };

static weir_profile_tensor tensors[TENSORS];
static char name[] = "a \"quoted\\\" name";

static weir_profile profile_of(const double *gaps, size_t n) {
  for (size_t i = 0; i < n; i++) tensors[i] = (weir_profile_tensor){name, 100.0, gaps[i]};
  return (weir_profile){n, tensors};
}

static const weir_span *span_of(const weir_timeline *t, size_t chain, size_t tensor,
                                const char *what) {
  for (size_t i = 0; i < t->count; i++)
    if (t->spans[i].chain == chain && t->spans[i].tensor == tensor &&
        !strcmp(t->spans[i].what, what))
      return &t->spans[i];
  cr_assert_fail("no span %s", what);
  return NULL;
}

Test(planner_timeline, three_tensors_by_hand) {
  const double gaps[] = {2, 3, 1};
  const weir_profile p = profile_of(gaps, 3);
  const weir_op first[] = {{WEIR_ON_COMPUTE, 1, "compress"},
                           {WEIR_ON_INTER, 4, "send"},
                           {WEIR_ON_COMPUTE, 1, "decompress"}};
  const weir_op second[] = {{WEIR_ON_CPU, 2, "compress"}, {WEIR_ON_INTER, 1, "send"}};
  const weir_chain chains[] = {{0, first, 3}, {2, second, 2}};
  weir_timeline t;
  cr_assert_eq(weir_timeline_run(&p, chains, 2, NULL, &t), WEIR_OK);
  cr_assert_eq(t.count, 8u);
  /* Tensor 0 is compressed before the backward pass goes on to tensor 1. */
  cr_assert_eq(span_of(&t, 0, 0, "compress")->start_s, 2.0);
  cr_assert_eq(span_of(&t, SIZE_MAX, 1, "backward")->start_s, 3.0);
  cr_assert_eq(span_of(&t, 0, 0, "send")->end_s, 7.0);
  cr_assert_eq(span_of(&t, SIZE_MAX, 2, "backward")->end_s, 7.0);
  cr_assert_eq(span_of(&t, 0, 0, "decompress")->end_s, 8.0);
  cr_assert_eq(span_of(&t, 1, 2, "compress")->start_s, 7.0);
  cr_assert_eq(span_of(&t, 1, 2, "send")->start_s, 9.0);
  cr_assert_eq(t.iteration_s, 10.0);
  weir_timeline_free(&t);
}

/* Decompression that became ready during a tensor's backward goes before the next tensor's. */
Test(planner_timeline, the_compute_stream_is_first_come_first_served) {
  const double gaps[] = {1, 4, 1};
  const weir_profile p = profile_of(gaps, 3);
  const weir_op ops[] = {{WEIR_ON_INTER, 2, "send"}, {WEIR_ON_COMPUTE, 10, "decompress"}};
  const weir_chain chain = {0, ops, 2};
  weir_timeline t;
  cr_assert_eq(weir_timeline_run(&p, &chain, 1, NULL, &t), WEIR_OK);
  cr_assert_eq(span_of(&t, 0, 0, "decompress")->ready_s, 3.0);
  cr_assert_eq(span_of(&t, 0, 0, "decompress")->start_s, 5.0);
  cr_assert_eq(span_of(&t, SIZE_MAX, 2, "backward")->start_s, 15.0);
  cr_assert_eq(t.iteration_s, 16.0);
  weir_timeline_free(&t);
}

Test(planner_timeline, more_servers_work_side_by_side) {
  const double gaps[] = {1, 0, 0};
  const weir_profile p = profile_of(gaps, 3);
  const weir_op op = {WEIR_ON_CPU, 3, "compress"};
  const weir_chain chains[] = {{0, &op, 1}, {1, &op, 1}, {2, &op, 1}};
  const size_t two[WEIR_RESOURCES] = {1, 2, 1, 1};
  weir_timeline t;
  cr_assert_eq(weir_timeline_run(&p, chains, 3, NULL, &t), WEIR_OK);
  cr_assert_eq(t.iteration_s, 10.0);
  weir_timeline_free(&t);
  cr_assert_eq(weir_timeline_run(&p, chains, 3, two, &t), WEIR_OK);
  cr_assert_eq(t.iteration_s, 7.0);
  weir_timeline_free(&t);
}

Test(planner_timeline, a_fusion_takes_what_its_recurrence_says) {
  weir_rng rng = weir_rng_of(5);
  for (size_t instance = 0; instance < 2000; instance++) {
    double gaps[TENSORS];
    for (size_t i = 0; i < TENSORS; i++) gaps[i] = (double)weir_rng_below(&rng, 4) * 1e-4;
    const weir_profile p = profile_of(gaps, TENSORS);
    const weir_curve h = {.fixed_s = (double)weir_rng_below(&rng, 3) * 1e-4, .per_byte_s = 1e-7};
    const weir_curve g = {.fixed_s = 1e-4, .per_byte_s = weir_rng_uniform(&rng) * 1e-6};
    size_t ends[TENSORS], buckets = 0;
    for (size_t i = 1; i <= TENSORS; i++)
      if (i == TENSORS || weir_rng_below(&rng, 2)) ends[buckets++] = i;
    const weir_fusion fusion = {.buckets = buckets, .end = ends};
    weir_timeline t;
    cr_assert_eq(weir_timeline_fusion(&p, &h, &g, &fusion, &t), WEIR_OK);
    cr_assert_float_eq(t.iteration_s, weir_fusion_evaluate(&p, &h, &g, ends, buckets), 1e-15);
    cr_assert_eq(t.count, TENSORS + 2 * buckets);
    weir_timeline_free(&t);
  }
}

/* Nothing begins before it is ready, no server does two things at once, none idles while
 * something waits for its resource, and who was ready first begins first. */
static void check_invariants(const weir_timeline *t) {
  double last = 0.0;
  for (size_t i = 0; i < t->count; i++) {
    const weir_span *a = &t->spans[i];
    cr_assert_geq(a->start_s, a->ready_s);
    last = fmax(last, a->end_s);
    bool freed = a->start_s == a->ready_s;
    for (size_t k = 0; k < t->count; k++) {
      const weir_span *b = &t->spans[k];
      if (k == i || a->resource != b->resource) continue;
      freed |= b->end_s == a->start_s;
      if (a->ready_s < b->ready_s) cr_assert_leq(a->start_s, b->start_s);
      if (a->server == b->server && a->end_s > a->start_s && b->end_s > b->start_s)
        cr_assert(a->end_s <= b->start_s || b->end_s <= a->start_s);
    }
    cr_assert(freed);
  }
  cr_assert_eq(t->iteration_s, last);
}

Test(planner_timeline, invariants_of_random_chains) {
  weir_rng rng = weir_rng_of(6);
  for (size_t instance = 0; instance < 500; instance++) {
    double gaps[TENSORS];
    weir_op ops[TENSORS][OPS];
    weir_chain chains[TENSORS];
    for (size_t i = 0; i < TENSORS; i++) {
      gaps[i] = (double)weir_rng_below(&rng, 4);
      for (size_t k = 0; k < OPS; k++)
        ops[i][k] = (weir_op){(weir_resource)weir_rng_below(&rng, WEIR_RESOURCES),
                              (double)weir_rng_below(&rng, 5), "work"};
      chains[i] = (weir_chain){i, ops[i], (size_t)weir_rng_below(&rng, OPS + 1)};
    }
    const weir_profile p = profile_of(gaps, TENSORS);
    const size_t servers[WEIR_RESOURCES] = {1, 1 + instance % 3, 1, 1 + instance % 2};
    weir_timeline t;
    cr_assert_eq(weir_timeline_run(&p, chains, TENSORS, servers, &t), WEIR_OK);
    check_invariants(&t);
    for (size_t c = 0; c < TENSORS; c++) { /* a chain's operations follow one another */
      double end = span_of(&t, SIZE_MAX, c, "backward")->end_s;
      size_t seen = 0;
      for (size_t i = 0; i < t.count; i++)
        if (t.spans[i].chain == c) {
          cr_assert_eq(t.spans[i].ready_s, end);
          cr_assert_eq(t.spans[i].resource, ops[c][seen].resource);
          end = t.spans[i].end_s;
          seen++;
        }
      cr_assert_eq(seen, chains[c].count);
    }
    weir_timeline_free(&t);
  }
}

Test(planner_timeline, values_out_of_range_are_refused) {
  const double gaps[] = {1, 1};
  const weir_profile p = profile_of(gaps, 2);
  weir_op op = {WEIR_ON_INTER, 1, "send"};
  weir_chain chains[] = {{1, &op, 1}, {0, &op, 1}};
  weir_timeline t;
  cr_assert_eq(weir_timeline_run(&p, chains, 2, NULL, &t), WEIR_E_INVALID);
  chains[0].tensor = 2;
  cr_assert_eq(weir_timeline_run(&p, chains, 1, NULL, &t), WEIR_E_INVALID);
  chains[0].tensor = 1;
  const double wrong[] = {-1.0, NAN, INFINITY};
  for (size_t i = 0; i < 3; i++) {
    op.seconds = wrong[i];
    cr_assert_eq(weir_timeline_run(&p, chains, 1, NULL, &t), WEIR_E_INVALID);
  }
  op = (weir_op){WEIR_RESOURCES, 1, "send"};
  cr_assert_eq(weir_timeline_run(&p, chains, 1, NULL, &t), WEIR_E_INVALID);
  op.resource = WEIR_ON_INTER;
  const size_t none[] = {1, 0, 1, 1}, twice[] = {2, 1, 1, 1}, many[] = {1, 1, 1, 5000};
  cr_assert_eq(weir_timeline_run(&p, chains, 1, none, &t), WEIR_E_INVALID);
  cr_assert_eq(weir_timeline_run(&p, chains, 1, twice, &t), WEIR_E_INVALID);
  cr_assert_eq(weir_timeline_run(&p, chains, 1, many, &t), WEIR_E_INVALID);
}

Test(planner_timeline, a_trace_holds_every_operation) {
  const double gaps[] = {2e-6};
  const weir_profile p = profile_of(gaps, 1);
  const weir_op op = {WEIR_ON_INTER, 3e-6, "send"};
  const weir_chain chain = {0, &op, 1};
  weir_timeline t;
  char path[64], text[2048];
  cr_assert_eq(weir_timeline_run(&p, &chain, 1, NULL, &t), WEIR_OK);
  write_plan_file(path, "", 0);
  cr_assert_eq(weir_timeline_trace(&t, &p, path), WEIR_OK);
  FILE *file = fopen(path, "r");
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  unlink(path);
  cr_assert(strstr(text, "\"args\":{\"name\":\"compute 0\"}"), "%s", text);
  cr_assert(strstr(text, "\"ts\":0.000000,\"dur\":2.000000,\"cat\":\"backward\""), "%s", text);
  cr_assert(strstr(text, "\"ts\":2.000000,\"dur\":3.000000,\"cat\":\"send\""), "%s", text);
  cr_assert(strstr(text, "\"a \\\"quoted\\\\\\\" name\""), "%s", text);
  cr_assert_eq(weir_timeline_trace(&t, &p, "/nowhere/trace.json"), WEIR_E_IO);
  weir_timeline_free(&t);
}

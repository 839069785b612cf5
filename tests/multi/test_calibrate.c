/* Calibration: what can be told without knowing the machine's speed. */
#include <criterion/criterion.h>
#include <math.h>

#include "../sampled.h"
#include "collectives/calibrate.h"
#include "ranks.h"

typedef struct job {
  const char *layout;
  weir_link *link; /* one a rank, in shared memory */
  bool processors; /* alone, with what link[rank] holds */
} job;

static weir_status body(weir_transport *t, void *user) {
  const job *j = user;
  OWNED weir_comm *comm = NULL;
  weir_status status = weir_comm_create(&comm, t, 20.0);
  if (status == WEIR_OK) status = weir_comm_find_hosts(comm, (uint64_t)j->layout[t->rank]);
  if (status == WEIR_OK)
    status = (j->processors ? weir_calibrate_processors : weir_calibrate)(comm, &j->link[t->rank]);
  return status;
}

static void check(enum group_kind kind, const char *layout) {
  const int size = (int)strlen(layout);
  job j = {layout, group_shared(GROUP_MAX * sizeof(weir_link)), false};
  ENDED group g = group_new(kind, size, body, &j);
  group_run(&g);
  for (int r = 0; r < size; r++) {
    cr_assert_eq(g.result[r].status, WEIR_OK, "%s", g.result[r].message);
    cr_assert_eq(memcmp(&j.link[r], &j.link[0], sizeof(weir_link)), 0, "rank %d differs", r);
  }
  const weir_link *l = &j.link[0];
  const double positive[] = {l->alpha, l->beta, l->inner_alpha, l->inner_beta};
  const double rest[] = {l->burst, l->message_s, l->byte_s, l->sums_s};
  for (size_t i = 0; i < 4; i++) cr_assert(positive[i] > 0 && isfinite(positive[i]), "%zu", i);
  cr_assert_geq(l->duplex_beta, l->beta);
  cr_assert(l->sum_s > 0 && l->sums_s > 0);
  for (size_t i = 0; i < 4; i++) cr_assert(rest[i] >= 0 && isfinite(rest[i]), "%zu", i);
  bool one_kind = true, all_apart = true;
  for (int a = 0; a < size; a++)
    for (int b = 0; b < a; b++) {
      one_kind = one_kind && layout[a] == layout[b];
      all_apart = all_apart && layout[a] != layout[b];
    }
  if (one_kind || all_apart) { /* what was not there to be measured is taken from the other */
    cr_assert_eq(l->alpha, l->inner_alpha);
    cr_assert_eq(l->beta, l->inner_beta);
  }
  (void)munmap(j.link, GROUP_MAX * sizeof(weir_link));
}

Test(calibrate, all_ranks_learn_the_same) {
  for (int kind = GROUP_THREADS; kind <= GROUP_SHM; kind++) {
    static const char *const layouts[] = {"ab", "aaa", "aabb", "abcab"};
    for (int l = 0; l < 4; l++)
      if (sampled(2)) check((enum group_kind)kind, layouts[l]);
  }
}

Test(calibrate, one_rank_has_nothing_to_measure) {
  job j = {"a", group_shared(GROUP_MAX * sizeof(weir_link)), false};
  memset(j.link, 1, sizeof *j.link);
  ENDED group g = group_new(GROUP_THREADS, 1, body, &j);
  group_run(&g);
  cr_assert_eq(g.result[0].status, WEIR_OK, "%s", g.result[0].message);
  cr_assert_eq(j.link[0].alpha + j.link[0].beta + j.link[0].burst + j.link[0].byte_s, 0.0);
  (void)munmap(j.link, GROUP_MAX * sizeof(weir_link));
}

/* What rank 0 knows of the network is what counts. */
static void check_processors(enum group_kind kind, const char *layout, double alpha, double beta,
                             bool measured) {
  job j = {layout, group_shared(GROUP_MAX * sizeof(weir_link)), true};
  for (int r = 0; r < 3; r++) j.link[r] = (weir_link){.alpha = r, .beta = 1};
  j.link[0] = (weir_link){.alpha = alpha, .beta = beta};
  ENDED group g = group_new(kind, 3, body, &j);
  group_run(&g);
  for (int r = 0; r < 3; r++) {
    cr_assert_eq(g.result[r].status, WEIR_OK, "%s", g.result[r].message);
    cr_assert_eq(memcmp(&j.link[r], &j.link[0], sizeof(weir_link)), 0, "rank %d differs", r);
  }
  const weir_link *l = &j.link[0];
  const bool inside = strcmp(layout, "aab") == 0; /* which costs no latency between machines */
  cr_assert_eq(l->alpha + l->duplex_beta + l->burst, 0.0);
  cr_assert_eq(l->beta > 0, measured && beta == 0, "%g", l->beta);
  cr_assert((l->inner_alpha > 0) == inside && (l->inner_beta > 0) == inside);
  cr_assert(l->message_s >= 0 && isfinite(l->message_s) && l->byte_s >= 0 && isfinite(l->byte_s));
  cr_assert_eq(l->sum_s > 0, measured);
  (void)munmap(j.link, GROUP_MAX * sizeof(weir_link));
}

Test(calibrate, processors_alone) {
  for (int kind = GROUP_THREADS; kind <= GROUP_SHM; kind++) {
    for (int l = 0; l < 3; l++) {
      static const char *const layouts[] = {"abc", "aab", "aaa"};
      if (!sampled(3)) continue;
      check_processors((enum group_kind)kind, layouts[l], 1e-5, 1e-9, true);
      check_processors((enum group_kind)kind, layouts[l], 0, 1e-9, false); /* unknown */
      check_processors((enum group_kind)kind, layouts[l], 1e-5, 0, true);
      check_processors((enum group_kind)kind, layouts[l], 0.05, 0, false);
      check_processors((enum group_kind)kind, layouts[l], 0.05, 1e-9, false); /* far: it hides it */
    }
  }
}

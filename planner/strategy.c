/* Running all methods and reporting them (see strategy.h). */
#include "planner/strategy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/search.h"

enum { IMPROVE_ROUNDS = 1000, MOST_OFFLOAD_WORK = 60000, THOROUGH_STRATEGIES = 20000 };

const char *weir_strategy_name(weir_strategy_method method) {
  static const char *const names[WEIR_STRATEGY_METHODS] = {"none",
                                                           "layer-wise",
                                                           "myopic",
                                                           "all compressed",
                                                           "GPU only",
                                                           "CPU only",
                                                           "inter all-gather",
                                                           "inter all-to-all",
                                                           "all-to-all twice",
                                                           "bytecomp",
                                                           "weir",
                                                           "exact"};
  return (unsigned)method < WEIR_STRATEGY_METHODS ? names[method] : "?";
}

typedef struct solver {
  weir_menu menu;
  weir_search search;
  weir_menu_list *lists[WEIR_STRATEGY_METHODS];
  weir_search_priced priced[2]; /* of the two runs that Algorithm 2 can have */
  size_t offloads;
  const weir_menu_item **none, **best; /* [n] each */
  bool thorough;
  double best_s;
  size_t improve_end; /* of the allowance, in operations served */
  weir_strategy_report *report;
} solver;

/* Keep the strategy in hand as the method's. */
static weir_status record(solver *s, weir_strategy_method method, double begun) {
  const size_t n = s->menu.profile->count;
  weir_strategy *to = &s->report->by[method];
  free(to->choice);
  *to = (weir_strategy){0};
  to->choice = malloc(n * sizeof *to->choice);
  if (!to->choice) return weir_fail(WEIR_E_NOMEM, "no memory for a strategy of %zu tensors", n);
  to->count = n;
  to->iteration_s = s->search.time_s;
  for (size_t i = 0; i < n; i++) {
    const weir_menu_entry *e = s->search.of[i]->entry;
    to->choice[i] = (weir_strategy_choice){e->option, e->codec, e->compressed};
  }
  to->solve_s = weir_now_s() - begun;
  if (s->search.time_s >= s->best_s) return WEIR_OK;
  s->best_s = s->search.time_s;
  memcpy(s->best, s->search.of, n * sizeof *s->best);
  return WEIR_OK;
}

/* The method's lists; *empty when the constraints leave it nothing. */
static weir_status prepare(solver *s, weir_strategy_method method, bool *empty) {
  *empty = false;
  if (s->lists[method]) return WEIR_OK;
  const weir_status status = weir_menu_lists(&s->menu, method, true, &s->lists[method]);
  *empty = status == WEIR_E_INVALID;
  return *empty ? WEIR_OK : status;
}

static weir_status fixed(solver *s, weir_strategy_method method) {
  const double begun = weir_now_s();
  bool empty;
  weir_status status = prepare(s, method, &empty);
  if (status != WEIR_OK || empty) return status;
  weir_search_first(&s->search, s->lists[method]);
  if (method == WEIR_STRATEGY_NONE)
    memcpy(s->none, s->search.of, s->menu.profile->count * sizeof *s->none);
  return record(s, method, begun);
}

/* Algorithm 1 from no compression, or where that is not allowed from each tensor's fastest. */
static weir_status algorithm1(solver *s, weir_strategy_method method, size_t work) {
  const double begun = weir_now_s();
  const bool all = method == WEIR_STRATEGY_ALL;
  bool empty;
  weir_status status = prepare(s, method, &empty);
  if (status != WEIR_OK || empty) return status;
  if (all || !s->report->by[WEIR_STRATEGY_NONE].count)
    weir_search_first(&s->search, s->lists[method]);
  else
    weir_search_take(&s->search, s->none);
  weir_search_algorithm1(&s->search, s->lists[method], !all, work);
  status = record(s, method, begun);
  if (status != WEIR_OK || method != WEIR_STRATEGY_GPU) return status;
  status = weir_search_algorithm2(&s->search, work < MOST_OFFLOAD_WORK ? work : MOST_OFFLOAD_WORK,
                                  &s->priced[s->offloads++]);
  return status == WEIR_OK ? record(s, WEIR_STRATEGY_BYTECOMP, begun) : status;
}

/* Improve what is in hand with a part of the allowance; keep it when it is the best. */
static void improve_once(solver *s, size_t share) {
  const size_t n = s->menu.profile->count;
  const size_t left = s->improve_end - s->search.course.served;
  if (s->search.course.served >= s->improve_end) return;
  weir_search_improve(&s->search, s->lists[WEIR_STRATEGY_WEIR], left / share);
  if (s->search.time_s >= s->best_s) return;
  s->best_s = s->search.time_s;
  memcpy(s->best, s->search.of, n * sizeof *s->best);
}

/* From the best; from the fixed policies; then from the best with some sizes changed at random,
 * until the allowance is used up. */
static weir_status improved(solver *s, size_t work) {
  const double begun = weir_now_s();
  const weir_menu *menu = &s->menu;
  weir_menu_list *const *lists = s->lists;
  weir_rng rng = weir_rng_of(1);
  s->improve_end = s->search.course.served + work;
  weir_search_take(&s->search, s->best);
  improve_once(s, 3);
  for (weir_strategy_method m = WEIR_STRATEGY_NONE; m <= WEIR_STRATEGY_MYOPIC; m++) {
    if (!lists[m]) continue;
    weir_search_first(&s->search, lists[m]);
    improve_once(s, 3);
  }
  for (size_t round = 0; round < IMPROVE_ROUNDS && s->search.course.served < s->improve_end;
       round++) {
    weir_search_take(&s->search, s->best);
    for (size_t kicks = 1 + round % 3; kicks; kicks--) {
      const size_t c = (size_t)weir_rng_below(&rng, menu->class_count);
      const weir_menu_list *list = &lists[WEIR_STRATEGY_WEIR][c];
      weir_search_put_class(&s->search, c, &list->item[weir_rng_below(&rng, list->count)]);
    }
    improve_once(s, 1);
  }
  weir_search_take(&s->search, s->best);
  weir_status status = WEIR_OK;
  if (s->thorough) {
    bool complete;
    status =
        weir_search_exact(&s->search, lists[WEIR_STRATEGY_WEIR], THOROUGH_STRATEGIES, &complete);
  }
  return status == WEIR_OK ? record(s, WEIR_STRATEGY_WEIR, begun) : status;
}

/* What is run each time; then, to compare, Algorithm 1 in each crippled space without an allowance.
 * Should one of them be better, it is where improvement starts once more. */
static weir_status all_methods(solver *s, const weir_strategy_limits *limits, double begun) {
  const size_t work = limits->work ? limits->work : WEIR_STRATEGY_WORK;
  weir_strategy_report *report = s->report;
  weir_status status =
      weir_menu_lists(&s->menu, WEIR_STRATEGY_WEIR, true, &s->lists[WEIR_STRATEGY_WEIR]);
  for (weir_strategy_method m = WEIR_STRATEGY_NONE; m <= WEIR_STRATEGY_MYOPIC && status == WEIR_OK;
       m++)
    status = fixed(s, m);
  for (weir_strategy_method m = WEIR_STRATEGY_ALL; m <= WEIR_STRATEGY_CPU && status == WEIR_OK; m++)
    status = algorithm1(s, m, work / 6);
  if (status == WEIR_OK && s->best_s == INFINITY)
    status = weir_fail(WEIR_E_INVALID, "these costs give no strategy a finite time");
  if (status == WEIR_OK) status = improved(s, work / 2);
  report->solve_s = weir_now_s() - begun;
  for (weir_strategy_method m = WEIR_STRATEGY_ALL;
       limits->compare && m <= WEIR_STRATEGY_ALLTOALL_ALLTOALL && status == WEIR_OK; m++)
    status = algorithm1(s, m, SIZE_MAX / 2);
  if (status != WEIR_OK || s->best_s >= report->by[WEIR_STRATEGY_WEIR].iteration_s) return status;
  status = improved(s, work / 2);
  report->solve_s = weir_now_s() - begun;
  return status;
}

static weir_status exactly(solver *s, double work) {
  const double begun = weir_now_s();
  weir_menu_list **lists = &s->lists[WEIR_STRATEGY_EXACT];
  weir_status status = weir_menu_lists(&s->menu, WEIR_STRATEGY_EXACT, false, lists);
  weir_search_take(&s->search, s->best); /* not what the last method to be compared has left */
  if (status == WEIR_OK) status = weir_search_exact(&s->search, *lists, work, &s->report->exact);
  return status == WEIR_OK ? record(s, WEIR_STRATEGY_EXACT, begun) : status;
}

static weir_status solver_create(solver *s, const weir_profile *profile,
                                 const weir_cluster *cluster, const weir_strategy_limits *limits,
                                 weir_strategy_report *report) {
  *s = (solver){.best_s = INFINITY, .report = report};
  s->thorough = profile->count <= WEIR_STRATEGY_THOROUGH && !limits->work;
  weir_status status =
      weir_menu_create(&s->menu, profile, cluster, limits, s->thorough || limits->exact_work > 0.0);
  if (status == WEIR_OK) status = weir_search_create(&s->search, &s->menu);
  s->none = malloc(2 * profile->count * sizeof *s->none);
  s->best = s->none ? s->none + profile->count : NULL;
  if (status == WEIR_OK && !s->none)
    status = weir_fail(WEIR_E_NOMEM, "no memory for a strategy of %zu tensors", profile->count);
  return status;
}

static void solver_free(solver *s) {
  for (size_t m = 0; m < WEIR_STRATEGY_METHODS; m++) weir_menu_lists_free(&s->menu, s->lists[m]);
  for (size_t k = 0; k < 2; k++) weir_search_priced_free(&s->priced[k]);
  weir_search_free(&s->search);
  weir_menu_free(&s->menu);
  free(s->none);
}

/* The same cluster where compression takes no time: no strategy is faster than the best on it. */
static weir_status upper_bound(const weir_profile *profile, const weir_cluster *cluster,
                               const weir_strategy_limits *limits, double *seconds) {
  weir_cluster ideal = *cluster;
  for (size_t k = 0; k < ideal.codecs; k++)
    for (size_t site = 0; site < 2; site++)
      ideal.codec[k].compress[site] = ideal.codec[k].decompress[site] = (weir_curve){0};
  weir_strategy_report report = {0};
  solver s;
  weir_status status = solver_create(&s, profile, &ideal, limits, &report);
  weir_menu_list **lists = &s.lists[WEIR_STRATEGY_WEIR];
  if (status == WEIR_OK) status = weir_menu_lists(&s.menu, WEIR_STRATEGY_WEIR, true, lists);
  if (status == WEIR_OK) {
    weir_search_first(&s.search, *lists);
    weir_search_improve(&s.search, *lists, WEIR_STRATEGY_WORK / 2);
    *seconds = fmin(*seconds, s.search.time_s);
  }
  solver_free(&s);
  return status;
}

weir_status weir_strategy_solve(const weir_profile *profile, const weir_cluster *cluster,
                                const weir_strategy_limits *limits, weir_strategy_report *report) {
  static const weir_strategy_limits no_limits = {0};
  const double begun = weir_now_s();
  *report = (weir_strategy_report){0};
  solver s;
  weir_status status = weir_cluster_check(cluster);
  if (status != WEIR_OK) return status;
  if (!limits) limits = &no_limits;
  status = solver_create(&s, profile, cluster, limits, report);
  if (status == WEIR_OK) status = all_methods(&s, limits, begun);
  report->options = s.menu.options;
  if (status == WEIR_OK && limits->exact_work > 0.0) status = exactly(&s, limits->exact_work);
  if (status == WEIR_OK && !limits->work) {
    report->upper_bound_s = s.best_s;
    status = upper_bound(profile, cluster, limits, &report->upper_bound_s);
  }
  solver_free(&s);
  if (status != WEIR_OK) weir_strategy_report_free(report);
  return status;
}

void weir_strategy_report_free(weir_strategy_report *report) {
  for (size_t m = 0; m < WEIR_STRATEGY_METHODS; m++) free(report->by[m].choice);
  *report = (weir_strategy_report){0};
}

weir_status weir_strategy_timeline(const weir_profile *profile, const weir_cluster *cluster,
                                   const weir_strategy *strategy, weir_timeline *timeline) {
  const size_t n = profile->count;
  const size_t servers[WEIR_RESOURCES] = {1, cluster->cpu_cores, 1, 1};
  weir_chain *chains = malloc(n * sizeof *chains);
  weir_op *ops = malloc(n * WEIR_OPTION_TASKS * sizeof *ops);
  weir_status status = WEIR_OK;
  *timeline = (weir_timeline){0};
  if (!chains || !ops) {
    status = weir_fail(WEIR_E_NOMEM, "no memory for the timeline of %zu tensors", n);
  } else {
    for (size_t i = 0; i < n; i++) {
      weir_op *at = ops + i * WEIR_OPTION_TASKS;
      const weir_strategy_choice *choice = &strategy->choice[i];
      chains[i] = (weir_chain){i, at,
                               weir_option_ops(&choice->option, cluster, choice->codec,
                                               weir_profile_bytes(profile, i), at)};
    }
    status = weir_timeline_run(profile, chains, n, servers, timeline);
  }
  free(chains);
  free(ops);
  return status;
}

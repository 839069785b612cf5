/* Algorithms 1 and 2 line by line (see published.h). */
#include "planner/published.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct group {
  size_t first, count, moved; /* into order; moved: the first ones compress on the CPU */
} group;

typedef struct published {
  const weir_profile *profile;
  const weir_cluster *cluster;
  const weir_strategy_limits *limits;
  weir_option *options; /* compressed ones first: C_gpu, then the uncompressed */
  size_t gpu_count, count;
  weir_strategy_choice *s; /* [n] S, the strategy in hand */
  weir_op (*ops)[WEIR_OPTION_TASKS];
  weir_chain *chains; /* [n] of S */
  size_t *order;      /* [n] tensors in the order of line 2 and 3, or by group */
  bool *removed;      /* [n] from the groups, by Remove */
  group *groups;      /* [n] */
  weir_timeline timeline;
  size_t timelines;
} published;

/* S[tensor] = choice. */
static void put(published *p, size_t tensor, weir_strategy_choice choice) {
  weir_op *ops = p->ops[tensor];
  p->s[tensor] = choice;
  p->chains[tensor] = (weir_chain){tensor, ops,
                                   weir_option_ops(&choice.option, p->cluster, choice.codec,
                                                   weir_profile_bytes(p->profile, tensor), ops)};
}

/* F(S). */
static weir_status iteration(published *p, double *seconds) {
  const size_t servers[WEIR_RESOURCES] = {1, p->cluster->cpu_cores, 1, 1};
  weir_timeline_free(&p->timeline);
  const weir_status status =
      weir_timeline_run(p->profile, p->chains, p->profile->count, servers, &p->timeline);
  p->timelines++;
  *seconds = p->timeline.iteration_s;
  return status;
}

static weir_status record(const published *p, double seconds, double begun, weir_strategy *to) {
  const size_t n = p->profile->count;
  to->choice = malloc(n * sizeof *to->choice);
  if (!to->choice) return weir_fail(WEIR_E_NOMEM, "no memory for a strategy of %zu tensors", n);
  memcpy(to->choice, p->s, n * sizeof *to->choice);
  to->count = n;
  to->iteration_s = seconds;
  to->solve_s = weir_now_s() - begun;
  return WEIR_OK;
}

/* --- Algorithm 1 ---------------------------------------------------------------------------- */

static bool may_use(const published *p, size_t tensor, size_t codec) {
  return !p->limits->codecs || p->limits->codecs[tensor] >> codec & 1;
}

/* Each tensor's fastest uncompressed option when it is alone. */
static void start(published *p) {
  for (size_t i = 0; i < p->profile->count; i++) {
    double least = INFINITY;
    size_t best = p->gpu_count;
    for (size_t k = p->gpu_count; k < p->count; k++) {
      double alone = 0.0;
      put(p, i, (weir_strategy_choice){.option = p->options[k]});
      for (size_t o = 0; o < p->chains[i].count; o++) alone += p->ops[i][o].seconds;
      if (alone >= least) continue;
      least = alone;
      best = k;
    }
    put(p, i, (weir_strategy_choice){.option = p->options[best]});
  }
}

/* Where the last bubble of each link ends, and where each tensor's last operation there begins. */
static void find_bubbles(const weir_timeline *t, double bubble[WEIR_RESOURCES],
                         double (*last)[WEIR_RESOURCES], bool *queued) {
  double idle[WEIR_RESOURCES] = {0};
  for (size_t k = 0; k < t->count; k++) {
    const weir_span *span = &t->spans[k];
    const weir_resource link = span->resource;
    if (link != WEIR_ON_INTRA && link != WEIR_ON_INTER) continue;
    queued[span->chain] |= span->start_s > span->ready_s;
    if (span->start_s > idle[link] && !queued[span->chain]) bubble[link] = span->start_s;
    idle[link] = span->end_s;
    last[span->chain][link] = span->start_s;
  }
}

/* Remove(S, G), lines 12 and 13. */
static weir_status remove_before_bubbles(published *p) {
  const size_t n = p->profile->count;
  double seconds, bubble[WEIR_RESOURCES] = {0};
  double(*last)[WEIR_RESOURCES] = malloc(n * sizeof *last);
  bool *queued = calloc(n, sizeof *queued);
  weir_status status = WEIR_OK;
  if (!last || !queued) status = weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", n);
  if (status == WEIR_OK) status = iteration(p, &seconds);
  for (size_t i = 0; i < n && status == WEIR_OK; i++)
    last[i][WEIR_ON_INTRA] = last[i][WEIR_ON_INTER] = -1.0;
  if (status == WEIR_OK) find_bubbles(&p->timeline, bubble, last, queued);
  for (size_t i = 0; i < n && status == WEIR_OK; i++)
    p->removed[i] |= !p->s[i].compressed && last[i][WEIR_ON_INTRA] < bubble[WEIR_ON_INTRA] &&
                     last[i][WEIR_ON_INTER] < bubble[WEIR_ON_INTER];
  free(last);
  free(queued);
  return status;
}

/* GetBestOption(S, idx), lines 14 to 21; *best_s is F(S). */
static weir_status get_best_option(published *p, size_t tensor, double *best_s) {
  weir_strategy_choice best = p->s[tensor];
  weir_status status = WEIR_OK;
  for (size_t codec = 0; codec < p->cluster->codecs; codec++)
    for (size_t k = 0; k < p->gpu_count && may_use(p, tensor, codec) && status == WEIR_OK; k++) {
      double seconds;
      put(p, tensor, (weir_strategy_choice){p->options[k], codec, true});
      status = iteration(p, &seconds);
      if (status != WEIR_OK || seconds >= *best_s) continue;
      *best_s = seconds;
      best = p->s[tensor];
    }
  put(p, tensor, best);
  return status;
}

typedef struct sized {
  double bytes;
  size_t tensor;
} sized;

/* Descending in size, and in one size the last of the backward pass first (lines 2 and 3). */
static int by_size(const void *a, const void *b) {
  const sized *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->tensor < y->tensor) - (x->tensor > y->tensor);
}

static weir_status sort(published *p) {
  const size_t n = p->profile->count;
  sized *all = malloc(n * sizeof *all);
  if (!all) return weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", n);
  for (size_t i = 0; i < n; i++) all[i] = (sized){weir_profile_bytes(p->profile, i), i};
  qsort(all, n, sizeof *all, by_size);
  for (size_t i = 0; i < n; i++) p->order[i] = all[i].tensor;
  free(all);
  return WEIR_OK;
}

/* Main, lines 1 to 11; *seconds is F(S). */
static weir_status algorithm1(published *p, double *seconds) {
  weir_status status = sort(p);
  if (status == WEIR_OK) status = remove_before_bubbles(p);
  for (size_t i = 0; i < p->profile->count && status == WEIR_OK; i++) {
    if (p->removed[p->order[i]]) continue;
    status = get_best_option(p, p->order[i], seconds);
    if (status == WEIR_OK) status = remove_before_bubbles(p);
  }
  return status;
}

/* --- Algorithm 2 ---------------------------------------------------------------------------- */

static bool same_group(const published *p, size_t a, size_t b) {
  const weir_strategy_choice *x = &p->s[a], *y = &p->s[b];
  return x->codec == y->codec && x->option.count == y->option.count &&
         weir_profile_bytes(p->profile, a) == weir_profile_bytes(p->profile, b) &&
         !memcmp(x->option.step, y->option.step, x->option.count * sizeof *x->option.step);
}

/* Compressed tensors of one size and option, each group in backward order: the farthest from the
 * output layer first.  Returns how many groups. */
static size_t find_groups(published *p) {
  const size_t n = p->profile->count;
  size_t count = 0, placed = 0;
  memset(p->removed, 0, n * sizeof *p->removed);
  for (size_t i = 0; i < n; i++) {
    if (p->removed[i] || !p->s[i].compressed) continue;
    group *g = &p->groups[count++];
    *g = (group){.first = placed};
    for (size_t k = i; k < n; k++)
      if (p->s[k].compressed && !p->removed[k] && same_group(p, i, k)) {
        p->removed[k] = true;
        p->order[placed++] = k;
      }
    g->count = placed - g->first;
  }
  return count;
}

static void move(published *p, size_t tensor, weir_site place) {
  weir_strategy_choice choice = p->s[tensor];
  for (size_t i = 0; i < choice.option.count; i++)
    if (choice.option.step[i].task == WEIR_TASK_COMP ||
        choice.option.step[i].task == WEIR_TASK_DECOMP)
      choice.option.step[i].place = (uint8_t)place;
  put(p, tensor, choice);
}

/* The next U, as a counter; false after the last one. */
static bool next(published *p, size_t groups) {
  for (size_t g = 0; g < groups; g++) {
    group *at = &p->groups[g];
    if (at->moved < at->count) {
      move(p, p->order[at->first + at->moved++], WEIR_SITE_CPU);
      return true;
    }
    while (at->moved) move(p, p->order[at->first + --at->moved], WEIR_SITE_GPU);
  }
  return false;
}

/* All U; *best is the best strategy, *seconds its time. */
static weir_status all_offloads(published *p, size_t groups, weir_strategy_choice *best,
                                double *seconds) {
  const size_t bytes = p->profile->count * sizeof *best;
  weir_status status = WEIR_OK;
  memcpy(best, p->s, bytes);
  while (status == WEIR_OK && next(p, groups)) {
    double now;
    status = iteration(p, &now);
    if (status != WEIR_OK || now >= *seconds) continue;
    *seconds = now;
    memcpy(best, p->s, bytes);
  }
  return status;
}

static weir_status algorithm2(published *p, double *seconds) {
  const size_t n = p->profile->count, groups = find_groups(p);
  double combinations = 1.0;
  if (p->limits->options.no_cpu) return WEIR_OK;
  for (size_t g = 0; g < groups; g++) combinations *= (double)p->groups[g].count + 1.0;
  if (combinations > WEIR_PUBLISHED_COMBINATIONS)
    return weir_fail(WEIR_E_INVALID,
                     "Algorithm 2 as published has %.3g combinations for %zu groups of tensors: "
                     "expected at most %.0f",
                     combinations, groups, WEIR_PUBLISHED_COMBINATIONS);
  weir_strategy_choice *best = malloc(n * sizeof *best);
  if (!best) return weir_fail(WEIR_E_NOMEM, "no memory for a strategy of %zu tensors", n);
  const weir_status status = all_offloads(p, groups, best, seconds);
  for (size_t i = 0; i < n && status == WEIR_OK; i++) put(p, i, best[i]);
  free(best);
  return status;
}

/* --- both ----------------------------------------------------------------------------------- */

static void take_compressed(void *user, const weir_option *option) {
  published *p = user;
  if (weir_path_compresses(option)) p->options[p->gpu_count++] = *option;
}

static void take_uncompressed(void *user, const weir_option *option) {
  published *p = user;
  if (!weir_path_compresses(option)) p->options[p->count++] = *option;
}

/* C_gpu, then the uncompressed options. */
static weir_status take_options(published *p) {
  weir_option_limits gpu = p->limits->options;
  gpu.no_cpu = true;
  weir_status status = weir_options_visit(&gpu, NULL, NULL, &p->count);
  if (status != WEIR_OK) return status;
  p->options = malloc(p->count * sizeof *p->options);
  if (!p->options) return weir_fail(WEIR_E_NOMEM, "no memory for %zu options", p->count);
  (void)weir_options_visit(&gpu, take_compressed, p, &p->count);
  p->count = p->gpu_count;
  size_t visited;
  (void)weir_options_visit(&gpu, take_uncompressed, p, &visited);
  if (p->count == p->gpu_count)
    return weir_fail(WEIR_E_INVALID,
                     "Algorithm 1 as published begins with no compression: "
                     "expected constraints that leave an uncompressed option");
  return WEIR_OK;
}

static weir_status create(published *p) {
  const size_t n = p->profile->count;
  p->s = malloc(n * sizeof *p->s);
  p->ops = malloc(n * sizeof *p->ops);
  p->chains = malloc(n * sizeof *p->chains);
  p->order = malloc(n * sizeof *p->order);
  p->removed = calloc(n, sizeof *p->removed);
  p->groups = malloc(n * sizeof *p->groups);
  if (!p->s || !p->ops || !p->chains || !p->order || !p->removed || !p->groups)
    return weir_fail(WEIR_E_NOMEM, "no memory for a strategy of %zu tensors", n);
  return take_options(p);
}

static void destroy(published *p) {
  weir_timeline_free(&p->timeline);
  free(p->options);
  free(p->s);
  free(p->ops);
  free(p->chains);
  free(p->order);
  free(p->removed);
  free(p->groups);
}

static weir_status both(published *p, weir_strategy_report *report) {
  const double begun = weir_now_s();
  double seconds;
  start(p);
  weir_status status = iteration(p, &seconds);
  if (status == WEIR_OK) status = record(p, seconds, begun, &report->by[WEIR_STRATEGY_NONE]);
  if (status == WEIR_OK) status = algorithm1(p, &seconds);
  if (status == WEIR_OK) status = record(p, seconds, begun, &report->by[WEIR_STRATEGY_GPU]);
  if (status == WEIR_OK) status = algorithm2(p, &seconds);
  if (status == WEIR_OK) status = record(p, seconds, begun, &report->by[WEIR_STRATEGY_BYTECOMP]);
  report->solve_s = weir_now_s() - begun;
  report->timelines = p->timelines;
  return status;
}

weir_status weir_strategy_published(const weir_profile *profile, const weir_cluster *cluster,
                                    const weir_strategy_limits *limits,
                                    weir_strategy_report *report) {
  static const weir_strategy_limits no_limits = {0};
  published p = {.profile = profile, .cluster = cluster, .limits = limits ? limits : &no_limits};
  *report = (weir_strategy_report){0};
  weir_status status = weir_cluster_check(cluster);
  if (status == WEIR_OK)
    status = weir_options_visit(&p.limits->options, NULL, NULL, &report->options);
  if (status == WEIR_OK) status = create(&p);
  if (status == WEIR_OK) status = both(&p, report);
  destroy(&p);
  if (status != WEIR_OK) weir_strategy_report_free(report);
  return status;
}

/* Exact fusion for measured costs: pairs (C, E) pruned by dominance and bounds (see fusion.h). */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "planner/fusion.h"

/* Tensors before `node` are fused and compression ends at c, communication at e. */
typedef struct label {
  double c, e;
  uint32_t from;   /* the node the last group begins at */
  uint32_t parent; /* index into labels */
} label;

typedef struct search {
  const weir_profile *profile;
  const weir_curve *h, *g;
  size_t n;
  double *ready, *bytes; /* [n + 1] */
  double *left_c;        /* [n + 1] least from the end of compression at a node to the end */
  double *left_e;        /* [n + 1] least from the end of communication at a node to the end */
  size_t *first;         /* [n + 2] labels of node j: [first[j], first[j + 1]) */
  label *labels;
  size_t room;
  label *fresh; /* candidates of the node being made */
  size_t fresh_count, fresh_room;
  double bound; /* the best fusion known */
  size_t beam;  /* labels kept at a node, at least 2; 0 for all */
  size_t work, most_work; /* extensions tried in this pass, and allowed */
  bool stopped; /* the pass gave up at the limits of labels or work */
} search;

/* Relaxations: communication alone; and compression first waiting for nothing, where each group
 * is followed by no more than the least communication that can be left. */
static void bounds_left(search *s) {
  const size_t n = s->n;
  s->left_c[n] = s->left_e[n] = 0.0;
  for (size_t i = n; i-- > 0;) {
    s->left_c[i] = s->left_e[i] = INFINITY;
    for (size_t j = i + 1; j <= n; j++) {
      const double bytes = s->bytes[j] - s->bytes[i];
      const double send = weir_curve_at(s->g, bytes) + s->left_e[j];
      const double step = s->ready[j] - s->ready[i] + weir_curve_at(s->h, bytes);
      s->left_e[i] = fmin(s->left_e[i], send);
      s->left_c[i] = fmin(s->left_c[i], step + fmax(send, s->left_c[j]));
    }
  }
}

static weir_status add(search *s, label fresh) {
  if (s->fresh_count == s->fresh_room) {
    const size_t more = s->fresh_room ? 2 * s->fresh_room : 1024;
    label *grown = realloc(s->fresh, more * sizeof *grown);
    if (!grown) return weir_fail(WEIR_E_NOMEM, "no memory for %zu open fusions", more);
    s->fresh = grown;
    s->fresh_room = more;
  }
  s->fresh[s->fresh_count++] = fresh;
  return WEIR_OK;
}

/* Extend the labels of node i by the group [i, j).  They ascend in c and descend in e, so once
 * compression is what communication waits for, all later ones are dominated. */
static weir_status extend(search *s, size_t i, size_t j) {
  if (s->first[i] == s->first[i + 1]) return WEIR_OK;
  const double bytes = s->bytes[j] - s->bytes[i];
  const double step = s->ready[j] - s->ready[i] + weir_curve_at(s->h, bytes);
  const double send = weir_curve_at(s->g, bytes);
  for (size_t k = s->first[i]; k < s->first[i + 1]; k++, s->work++) {
    const label *from = &s->labels[k];
    const double c = from->c + step, e = fmax(c, from->e) + send;
    if (c + s->left_c[j] >= s->bound) break;
    if (e + s->left_e[j] < s->bound) {
      const weir_status status = add(s, (label){c, e, (uint32_t)i, (uint32_t)k});
      if (status != WEIR_OK) return status;
    }
    if (c >= from->e) break;
  }
  return WEIR_OK;
}

static int by_c_then_e(const void *a, const void *b) {
  const label *x = a, *y = b;
  if (x->c != y->c) return x->c < y->c ? -1 : 1;
  return (x->e > y->e) - (x->e < y->e);
}

/* Which of `all` candidates is the k-th of the kept ones: spread evenly, the last one always. */
static size_t spread(size_t k, size_t kept, size_t all) {
  return kept == all ? k : k * (all - 1) / (kept - 1);
}

/* The labels of node j: the candidates that none dominates. */
static weir_status settle(search *s, size_t j) {
  qsort(s->fresh, s->fresh_count, sizeof *s->fresh, by_c_then_e);
  size_t kept = 0;
  double least_e = INFINITY;
  for (size_t k = 0; k < s->fresh_count; k++)
    if (s->fresh[k].e < least_e) {
      least_e = s->fresh[k].e;
      s->fresh[kept++] = s->fresh[k];
    }
  const size_t candidates = kept;
  if (s->beam && kept > s->beam) kept = s->beam;
  const size_t total = s->first[j] + kept;
  if (total > s->room) {
    const size_t more = 2 * total;
    label *grown = realloc(s->labels, more * sizeof *grown);
    if (!grown) return weir_fail(WEIR_E_NOMEM, "no memory for %zu open fusions", more);
    s->labels = grown;
    s->room = more;
  }
  for (size_t k = 0; k < kept; k++)
    s->labels[s->first[j] + k] = s->fresh[spread(k, kept, candidates)];
  s->first[j + 1] = total;
  s->fresh_count = 0;
  return WEIR_OK;
}

/* Forward over the nodes; then, if something below the bound came out, its ends into *best. */
static weir_status run(search *s, weir_fusion *best) {
  s->first[0] = s->fresh_count = s->work = 0;
  weir_status status = add(s, (label){0});
  if (status == WEIR_OK) status = settle(s, 0);
  for (size_t j = 1; j <= s->n && status == WEIR_OK; j++) {
    for (size_t i = 0; i < j && status == WEIR_OK; i++) status = extend(s, i, j);
    if (status == WEIR_OK) status = settle(s, j);
    s->stopped = s->work > s->most_work;
    if (s->stopped) return status;
  }
  if (status != WEIR_OK || s->first[s->n] == s->first[s->n + 1]) return status;
  const size_t winner = s->first[s->n + 1] - 1; /* least e */
  best->groups = 0;
  for (size_t node = s->n, k = winner; node; best->groups++) {
    node = s->labels[k].from;
    k = s->labels[k].parent;
  }
  for (size_t node = s->n, k = winner, group = best->groups; node; group--) {
    best->end[group - 1] = node;
    node = s->labels[k].from;
    k = s->labels[k].parent;
  }
  return WEIR_OK;
}

/* The best of the baselines and of the optimum for the curves' affine fits. */
static weir_status first_guess(const weir_profile *profile, const weir_curve *compress,
                               const weir_curve *communicate, weir_fusion *best) {
  const weir_curve h = weir_curve_fit(compress), g = weir_curve_fit(communicate);
  weir_status status = weir_fusion_affine(profile, &h, &g, best);
  if (status != WEIR_OK) return status;
  best->iteration_s =
      weir_fusion_evaluate(profile, compress, communicate, best->end, best->groups);
  for (size_t b = 0; b < weir_fusion_baseline_count; b++) {
    weir_fusion other;
    status = weir_fusion_run_baseline(&weir_fusion_baselines[b], profile, compress, communicate,
                                      &other);
    if (status != WEIR_OK) break;
    if (other.iteration_s < best->iteration_s) {
      const weir_fusion worse = *best;
      *best = other;
      other = worse;
    }
    weir_fusion_free(&other);
  }
  if (status != WEIR_OK) weir_fusion_free(best);
  return status;
}

/* A few narrow passes first: they are cheap, and the last, exact one drops all that is not below
 * what they found. */
static weir_status passes(search *s, weir_fusion *best) {
  static const size_t beams[] = {4, 32, 0};
  for (size_t pass = 0; pass < sizeof beams / sizeof *beams; pass++) {
    s->beam = beams[pass];
    const weir_status status = run(s, best);
    if (status != WEIR_OK) return status;
    best->iteration_s = weir_fusion_evaluate(s->profile, s->h, s->g, best->end, best->groups);
    s->bound = best->iteration_s;
  }
  best->least_s = s->stopped ? fmin(s->left_c[0], best->iteration_s) : best->iteration_s;
  return WEIR_OK;
}

weir_status weir_fusion_labels(const weir_profile *profile, const weir_curve *compress,
                               const weir_curve *communicate, size_t work, weir_fusion *best) {
  *best = (weir_fusion){0};
  const size_t n = profile->count;
  weir_status status = weir_curve_check(compress, "compression");
  if (status == WEIR_OK) status = weir_curve_check(communicate, "communication");
  if (status == WEIR_OK && n > WEIR_FUSION_LABEL_TENSORS)
    status = weir_fail(WEIR_E_CAPACITY, "%zu tensors: expected at most %d with measured costs", n,
                       WEIR_FUSION_LABEL_TENSORS);
  if (status == WEIR_OK) status = first_guess(profile, compress, communicate, best);
  if (status != WEIR_OK) return status;
  search s = {.profile = profile, .h = compress, .g = communicate, .n = n,
              .bound = best->iteration_s, .most_work = work ? work : WEIR_FUSION_WORK};
  double *sums = malloc(4 * (n + 1) * sizeof *sums);
  s.first = malloc((n + 2) * sizeof *s.first);
  if (!sums || !s.first) {
    status = weir_fail(WEIR_E_NOMEM, "no memory to fuse %zu tensors", n);
    goto done;
  }
  s.ready = sums;
  s.bytes = sums + n + 1;
  s.left_c = s.bytes + n + 1;
  s.left_e = s.left_c + n + 1;
  weir_profile_sums(profile, s.ready, s.bytes);
  bounds_left(&s);
  status = passes(&s, best);
done:
  free(sums);
  free(s.first);
  free(s.labels);
  free(s.fresh);
  if (status != WEIR_OK) weir_fusion_free(best);
  return status;
}

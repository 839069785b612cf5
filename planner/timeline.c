/* List scheduling: operations are taken in the order in which they could begin. */
#include "planner/timeline.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "planner/agenda.h"

enum { MOST_SERVERS = 1024 };

const char *weir_resource_name(weir_resource resource) {
  static const char *const names[WEIR_RESOURCES] = {"compute", "cpu", "intra", "inter"};
  return (unsigned)resource < WEIR_RESOURCES ? names[resource] : "?";
}

typedef struct schedule {
  const weir_profile *profile;
  const weir_chain *chains;
  size_t count;
  size_t started; /* chains whose tensor is ready */
  weir_agenda agenda;
  double *idle[WEIR_RESOURCES]; /* when each server is free */
  size_t servers[WEIR_RESOURCES];
  weir_timeline *timeline;
} schedule;

/* Serve one operation on the server of its resource that is free first. */
static double serve(schedule *s, const weir_wait *w, size_t tensor, const weir_op *op) {
  double *idle = s->idle[op->resource];
  size_t server = 0;
  for (size_t k = 1; k < s->servers[op->resource]; k++)
    if (idle[k] < idle[server]) server = k;
  const double start = fmax(w->ready_s, idle[server]), end = start + op->seconds;
  idle[server] = end;
  s->timeline->spans[s->timeline->count++] = (weir_span){w->chain == s->count ? SIZE_MAX : w->chain,
                                                         tensor,
                                                         op->what,
                                                         op->resource,
                                                         server,
                                                         w->ready_s,
                                                         start,
                                                         end};
  s->timeline->iteration_s = fmax(s->timeline->iteration_s, end);
  return end;
}

static void backward(schedule *s, const weir_wait *w) {
  const size_t tensor = w->op;
  const weir_op gap = {WEIR_ON_COMPUTE, s->profile->tensors[tensor].gap_s, "backward"};
  const double end = serve(s, w, tensor, &gap);
  for (; s->started < s->count && s->chains[s->started].tensor == tensor; s->started++)
    if (s->chains[s->started].count)
      weir_agenda_push(&s->agenda, (weir_wait){end, (uint32_t)s->started, 0});
  if (tensor + 1 < s->profile->count)
    weir_agenda_push(&s->agenda, (weir_wait){end, (uint32_t)s->count, (uint32_t)tensor + 1});
}

static void take_all(schedule *s) {
  weir_agenda_push(&s->agenda, (weir_wait){0.0, (uint32_t)s->count, 0});
  while (s->agenda.count) {
    const weir_wait w = weir_agenda_pop(&s->agenda);
    if (w.chain == s->count) {
      backward(s, &w);
      continue;
    }
    const weir_chain *chain = &s->chains[w.chain];
    const double end = serve(s, &w, chain->tensor, &chain->ops[w.op]);
    if (w.op + 1 < chain->count) weir_agenda_push(&s->agenda, (weir_wait){end, w.chain, w.op + 1});
  }
}

static weir_status check(const weir_profile *profile, const weir_chain *chains, size_t count,
                         const size_t *servers, size_t *operations) {
  *operations = profile->count;
  if (count >= UINT32_MAX || profile->count >= UINT32_MAX)
    return weir_fail(WEIR_E_INVALID, "%zu chains of %zu tensors: expected fewer than %u", count,
                     profile->count, UINT32_MAX);
  for (size_t r = 0; servers && r < WEIR_RESOURCES; r++)
    if (servers[r] < 1 || servers[r] > MOST_SERVERS || (r == WEIR_ON_COMPUTE && servers[r] != 1))
      return weir_fail(WEIR_E_INVALID, "%zu servers of %s: expected 1 to %d, one for compute",
                       servers[r], weir_resource_name((weir_resource)r), MOST_SERVERS);
  for (size_t c = 0; c < count; c++) {
    if (chains[c].tensor >= profile->count || (c && chains[c].tensor < chains[c - 1].tensor))
      return weir_fail(WEIR_E_INVALID, "chain %zu is of tensor %zu: expected ascending, below %zu",
                       c, chains[c].tensor, profile->count);
    for (size_t k = 0; k < chains[c].count; k++)
      if ((unsigned)chains[c].ops[k].resource >= WEIR_RESOURCES ||
          !isfinite(chains[c].ops[k].seconds) || chains[c].ops[k].seconds < 0.0)
        return weir_fail(WEIR_E_INVALID,
                         "operation %zu of chain %zu: expected a resource and a time from 0", k, c);
    *operations += chains[c].count;
  }
  return WEIR_OK;
}

weir_status weir_timeline_run(const weir_profile *profile, const weir_chain *chains, size_t count,
                              const size_t servers[WEIR_RESOURCES], weir_timeline *timeline) {
  *timeline = (weir_timeline){0};
  size_t operations = 0, all = 0;
  weir_status status = check(profile, chains, count, servers, &operations);
  if (status != WEIR_OK) return status;
  schedule s = {.profile = profile, .chains = chains, .count = count, .timeline = timeline};
  for (size_t r = 0; r < WEIR_RESOURCES; r++) all += s.servers[r] = servers ? servers[r] : 1;
  double *idle = calloc(all, sizeof *idle);
  s.agenda.heap = malloc((count + 1) * sizeof *s.agenda.heap);
  timeline->spans = malloc(operations * sizeof *timeline->spans);
  if (!idle || !s.agenda.heap || !timeline->spans) {
    status = weir_fail(WEIR_E_NOMEM, "no memory for a timeline of %zu operations", operations);
    weir_timeline_free(timeline);
  } else {
    for (size_t r = 0, at = 0; r < WEIR_RESOURCES; at += s.servers[r++]) s.idle[r] = idle + at;
    take_all(&s);
  }
  free(idle);
  free(s.agenda.heap);
  return status;
}

void weir_timeline_free(weir_timeline *timeline) {
  free(timeline->spans);
  *timeline = (weir_timeline){0};
}

weir_status weir_timeline_fusion(const weir_profile *profile, const weir_curve *compress,
                                 const weir_curve *communicate, const weir_fusion *fusion,
                                 weir_timeline *timeline) {
  *timeline = (weir_timeline){0};
  weir_chain *chains = malloc(fusion->buckets * sizeof *chains);
  weir_op *ops = malloc(2 * fusion->buckets * sizeof *ops);
  weir_status status = WEIR_OK;
  if (!chains || !ops) {
    status = weir_fail(WEIR_E_NOMEM, "no memory for %zu buckets", fusion->buckets);
    goto done;
  }
  for (size_t k = 0, tensor = 0; k < fusion->buckets; k++) {
    double bytes = 0.0;
    for (; tensor < fusion->end[k]; tensor++) bytes += weir_profile_bytes(profile, tensor);
    ops[2 * k] = (weir_op){WEIR_ON_COMPUTE, weir_curve_at(compress, bytes), "compress"};
    ops[2 * k + 1] = (weir_op){WEIR_ON_INTER, weir_curve_at(communicate, bytes), "communicate"};
    chains[k] = (weir_chain){fusion->end[k] - 1, &ops[2 * k], 2};
  }
  status = weir_timeline_run(profile, chains, fusion->buckets, NULL, timeline);
done:
  free(chains);
  free(ops);
  return status;
}

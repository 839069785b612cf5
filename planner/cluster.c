/* Costs of options on a cluster (see cluster.h). */
#include "planner/cluster.h"

#include <limits.h>
#include <math.h>

#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/cost.h"
#include "collectives/path.h"

enum { MOST_MACHINES = 65536, MOST_CORES = 64 };

static bool in_range(double value) { return isfinite(value) && value >= 0.0; }

weir_status weir_cluster_check(const weir_cluster *c) {
  if (c->machines < 1 || c->per_machine < 1 || c->machines > MOST_MACHINES ||
      c->per_machine > MOST_MACHINES)
    return weir_fail(WEIR_E_INVALID, "%zu machines of %zu: expected 1 to %d of 1 to %d workers",
                     c->machines, c->per_machine, MOST_MACHINES, MOST_MACHINES);
  if (c->machines > INT_MAX / c->per_machine)
    return weir_fail(WEIR_E_INVALID, "%zu machines of %zu: expected at most %d workers in all",
                     c->machines, c->per_machine, INT_MAX);
  if (c->cpu_cores < 1 || c->cpu_cores > MOST_CORES)
    return weir_fail(WEIR_E_INVALID, "%zu CPU cores: expected 1 to %d", c->cpu_cores, MOST_CORES);
  if (!in_range(c->intra_alpha_s) || !in_range(c->intra_beta_s) || !in_range(c->inter_alpha_s) ||
      !in_range(c->inter_beta_s))
    return weir_fail(WEIR_E_INVALID, "a link's latency or time per byte: expected a number from 0");
  if (c->codecs < 1 || c->codecs > WEIR_CLUSTER_CODECS)
    return weir_fail(WEIR_E_INVALID, "%zu codecs: expected 1 to %d", c->codecs,
                     WEIR_CLUSTER_CODECS);
  for (size_t k = 0; k < c->codecs; k++) {
    const weir_cluster_codec *codec = &c->codec[k];
    if (!(codec->ratio > 0.0 && codec->ratio <= 1.0))
      return weir_fail(WEIR_E_INVALID,
                       "codec '%.40s' sends %g of the bytes: expected above 0, to 1", codec->name,
                       codec->ratio);
    for (size_t site = 0; site < 2; site++) {
      weir_status status = weir_curve_check(&codec->compress[site], "compression");
      if (status == WEIR_OK) status = weir_curve_check(&codec->decompress[site], "decompression");
      if (status != WEIR_OK) return status;
    }
  }
  return WEIR_OK;
}

/* What a worker holds on the way. */
typedef struct held {
  double dense, pieces;
  bool compressed;
  double flows; /* workers of a machine that talk to other machines */
} held;

static double allreduce_seconds(int n, double message, double alpha, double beta) {
  const weir_cost_terms ring = weir_cost_allreduce(WEIR_ALLREDUCE_RING, n, message);
  const weir_cost_terms tree = weir_cost_allreduce(WEIR_ALLREDUCE_TREE, n, message);
  return fmin(weir_cost_seconds(&ring, alpha, beta), weir_cost_seconds(&tree, alpha, beta));
}

/* What is held after the communication. */
static void after(weir_task task, size_t routine, weir_site site, double n, double per_machine,
                  held *h) {
  switch (task) {
    case WEIR_TASK_COMM1:
      if (!routine) h->dense /= n;
      break;
    case WEIR_TASK_COMM1_COMP:
      if (!routine) h->dense /= n;
      h->pieces *= n;
      break;
    case WEIR_TASK_COMM2:
    case WEIR_TASK_COMM2_COMP:
      if (!routine) h->dense *= n;
      break;
    case WEIR_TASK_COMM_COMP: h->pieces *= n; break;
    default: break;
  }
  if (site == WEIR_SITE_INTRA && (task == WEIR_TASK_COMM1 || task == WEIR_TASK_COMM1_COMP))
    h->flows = routine ? 1.0 : per_machine;
}

static weir_op communication(const weir_cluster *c, double ratio, weir_task task, size_t routine,
                             weir_site site, held *h, int n) {
  const bool inside = site == WEIR_SITE_INTRA || c->machines == 1;
  const double alpha = inside ? c->intra_alpha_s : c->inter_alpha_s;
  double beta = inside ? c->intra_beta_s : c->inter_beta_s;
  const double message = h->compressed ? ratio * h->pieces * h->dense : h->dense;
  if (site == WEIR_SITE_INTER) beta *= h->flows;
  if (site == WEIR_SITE_FLAT && task == WEIR_TASK_COMM1_COMP && !routine && !inside)
    beta *= (double)c->per_machine;
  weir_op op = {inside ? WEIR_ON_INTRA : WEIR_ON_INTER, 0.0, weir_routine_name(task, routine)};
  if (task == WEIR_TASK_COMM) {
    op.seconds = allreduce_seconds(n, message, alpha, beta);
  } else {
    const weir_cost_terms terms = weir_cost_path_task(task, (unsigned)routine, n, message);
    op.seconds = weir_cost_seconds(&terms, alpha, beta);
  }
  after(task, routine, site, n, (double)c->per_machine, h);
  return op;
}

size_t weir_option_ops(const weir_option *option, const weir_cluster *cluster, size_t codec,
                       double bytes, weir_op ops[WEIR_OPTION_TASKS]) {
  const weir_cluster_codec *k = &cluster->codec[codec];
  held h = {bytes, 1.0, false, (double)cluster->per_machine};
  size_t count = 0;
  for (size_t i = 0; i < option->count; i++) {
    const weir_task task = (weir_task)option->step[i].task;
    const weir_site site = (weir_site)option->step[i].place;
    if (task == WEIR_TASK_COMP || task == WEIR_TASK_DECOMP) {
      const weir_curve *curve = task == WEIR_TASK_COMP ? &k->compress[site] : &k->decompress[site];
      const double seconds = weir_curve_at(curve, h.pieces * h.dense);
      if (seconds > 0.0)
        ops[count++] = (weir_op){site == WEIR_SITE_GPU ? WEIR_ON_COMPUTE : WEIR_ON_CPU, seconds,
                                 weir_routine_name(task, 0)};
      h.compressed = task == WEIR_TASK_COMP;
      h.pieces = 1.0;
      continue;
    }
    const size_t n = site == WEIR_SITE_INTRA   ? cluster->per_machine
                     : site == WEIR_SITE_INTER ? cluster->machines
                                               : cluster->machines * cluster->per_machine;
    if (n == 1) continue;
    ops[count++] =
        communication(cluster, k->ratio, task, option->step[i].routine, site, &h, (int)n);
  }
  return count;
}

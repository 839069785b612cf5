/* Policy weir's arms: plans as text, and which arm a plan is of. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/path.h"
#include "base/schemes.h"
#include "controller/decide.h"
#include "engine/engine.h"

/* What of an arm its plan does not say. */
enum {
  SAFE,     /* known to keep the loss of a training without evidence (whitened: is_ripe) */
  SETTLED,  /* ... once it has settled, under rules other than SGD */
  SGD,      /* ... under SGD alone */
  SEARCHED, /* its ratio is searched for, by a model of progress */
  METHOD    /* has to show that it holds the loss; the first of the methods, the others follow */
};

static const struct {
  const char *plan;
  unsigned standing;
  double debt; /* weir_arm's, of a method's first arm */
} texts[WEIR_ARMS] = {
    {"none:1:dense-ring", SAFE, 0},
    {"none:1:dense-tree", SAFE, 0},
    {"bf16:1:dense-ring", SAFE, 0},
    {"bf16:1:dense-tree", SAFE, 0},
    {"topk:1:ag:auto-fp32", SEARCHED, 0},
    {"topk:1:ag:auto-bf16", SEARCHED, 0},
    {"star:1:art-ring:auto-fp32", SEARCHED, 0},
    {"star:1:art-ring:auto-bf16", SEARCHED, 0},
    {"star:1:art-tree:auto-fp32", SEARCHED, 0},
    {"star:1:art-tree:auto-bf16", SEARCHED, 0},
    /* Inside of machines and between them. */
    {"none:1:dense-hier-ring", SAFE, 0},
    {"bf16:1:dense-hier-ring", SAFE, 0},
    {"bf16:1:dense-hier-tree", SAFE, 0},
    {"topk:1:hitopk:auto-bf16", SEARCHED, 0},
    /* Those above are risk bold's. */
    {"none:1:dense-halving", SAFE, 0},
    {"none:1:dense-double-tree", SAFE, 0},
    {"bf16:1:dense-halving", SAFE, 0},
    {"bf16:1:dense-double-tree", SAFE, 0},
    {"fp16:0.5:ag", SAFE, 0},
    {"fp16:0.5:sra", SAFE, 0},
    {"companded:0.15625:ag", SAFE, 0},
    {"whitened:0.15625:ag", SAFE, 0},
    {"companded:0.125:ag", SETTLED, 0},
    {"companded:0.109375:ag", SETTLED, 0},
    {"qsgd:0.09375:ag", SGD, 0},
    {"qsgd-l2:0.125:ag", SGD, 0},
    {"dithered:0.125:ag", SGD, 0},
    {"companded:0.15625:sra", SAFE, 0},
    {"whitened:0.15625:sra", SAFE, 0},
    {"companded:0.125:sra", SETTLED, 0},
    {"companded:0.109375:sra", SETTLED, 0},
    {"qsgd:0.09375:sra", SGD, 0},
    {"qsgd-l2:0.125:sra", SGD, 0},
    {"dithered:0.125:sra", SGD, 0},
    {"companded:0.15625:hier-sra", SAFE, 0},
    {"whitened:0.15625:hier-sra", SAFE, 0},
    {"companded:0.125:hier-sra", SETTLED, 0},
    {"companded:0.109375:hier-sra", SETTLED, 0},
    {"qsgd:0.09375:hier-sra", SGD, 0},
    {"qsgd-l2:0.125:hier-sra", SGD, 0},
    {"dithered:0.125:hier-sra", SGD, 0},
    {"companded:0.15625:path=" WEIR_PATH_MACHINE_SUMS, SAFE, 0},
    {"whitened:0.15625:path=" WEIR_PATH_MACHINE_SUMS, SAFE, 0},
    {"companded:0.125:path=" WEIR_PATH_MACHINE_SUMS, SETTLED, 0},
    {"qsgd:0.09375:path=" WEIR_PATH_MACHINE_SUMS, SGD, 0},
    {"nonzero-bf16:0.5:ag", SAFE, 0},
    {"nonzero:0.15625:ag", SAFE, 0},
    {"nonzero:0.125:ag", SETTLED, 0},
    {"nonzero:0.109375:ag", SETTLED, 0},
    {"nonzero:0.09375:ag", SGD, 0},
    {"qsgd:0.0625:ag", METHOD, 0},
    {"qsgd:0.0625:sra", METHOD, 0},
    {"qsgd:0.0625:hier-sra", METHOD, 0},
    {"qsgd:0.0625:path=" WEIR_PATH_MACHINE_SUMS, METHOD, 0},
    {"nonzero:0.0625:ag", METHOD, 0},
    {"powersgd:16:dense", METHOD + 1, 0.01},
    {"powersgd:16:dense:auto-bf16", METHOD + 1, 0.01},
    {"powersgd:16:dense-sra", METHOD + 1, 0.01},
    {"powersgd:16:dense-one-shot", METHOD + 1, 0.01},
    {"powersgd:4:dense", METHOD + 2, 0.05},
    {"powersgd:4:dense:auto-bf16", METHOD + 2, 0.05},
    {"powersgd:4:dense-sra", METHOD + 2, 0.05},
    {"powersgd:4:dense-one-shot", METHOD + 2, 0.05},
    {"powersgd:1:dense", METHOD + 3, 0.4},
    {"powersgd:1:dense:auto-bf16", METHOD + 3, 0.4},
    {"powersgd:1:dense-sra", METHOD + 3, 0.4},
    {"powersgd:1:dense-one-shot", METHOD + 3, 0.4},
    {"topk:0.1:ag:auto-bf16", METHOD + 4, 0.02},
    {"topk:0.03:ag:auto-bf16", METHOD + 5, 0.15},
    {"topk:0.01:ag:auto-bf16", METHOD + 6, 0.3},
    {"topk:0.003:ag:auto-bf16", METHOD + 7, 0.6},
    {"topk:0.001:ag:auto-bf16", METHOD + 8, 0.8},
    {"star:0.01:art:auto-bf16", METHOD + 9, 0.4},
};

static weir_arm arms[WEIR_ARMS];

static void parse_arms(void) {
  for (size_t a = 0; a < WEIR_ARMS; a++) {
    weir_arm *arm = &arms[a];
    const unsigned standing = texts[a].standing;
    if (weir_plan_parse(texts[a].plan, &arm->plan) != WEIR_OK) abort();
    if (standing == SEARCHED) arm->plan.cr = 0.0;
    arm->safe = standing <= SGD;
    arm->settled = standing == SGD       ? WEIR_SETTLED_SGD
                   : standing == SETTLED ? WEIR_SETTLED
                                         : WEIR_UNSETTLED;
    arm->method = standing >= METHOD ? standing - METHOD : WEIR_METHODS;
    arm->debt = texts[a].debt;
    arm->machines = arm->plan.inside != 0 || arm->plan.scheme == WEIR_SCHEME_HITOPK ||
                    arm->plan.scheme == WEIR_SCHEME_PATH;
  }
}

const weir_arm *weir_arm_at(size_t a) {
  static pthread_once_t parsed = PTHREAD_ONCE_INIT;
  (void)pthread_once(&parsed, parse_arms);
  return &arms[a];
}

weir_plan weir_arm_plan(const weir_decision_input *in, const weir_arm *arm, double log_cr) {
  weir_plan plan = weir_plan_told(in, &arm->plan);
  if (plan.cr == 0.0) plan.cr = fmin(1.0, exp(log_cr));
  return plan;
}

/* NCCL's ring and tree are those of the arms, run by another; and entropy coding changes no
 * value. */
bool weir_arm_is(const weir_arm *arm, const weir_plan *plan) {
  const weir_plan *own = &arm->plan;
  const uint32_t wire = plan->wire == WEIR_WIRE_HUFFMAN ? WEIR_WIRE_PAPER : plan->wire;
  if (own->codec != plan->codec || own->scheme != plan->scheme || own->wire != wire) return false;
  if (own->algorithm == WEIR_ALGORITHM_ANY) return !weir_factors_encoded(plan);
  const uint8_t algorithm = plan->scheme == WEIR_SCHEME_PATH ? plan->algorithm /* its tasks */
                                                             : weir_algorithm_own(plan->algorithm);
  return own->algorithm == algorithm && own->inside == plan->inside;
}

/* One with a ratio of its own goes before one whose ratio is searched for. */
size_t weir_arm_of(const weir_plan *plan) {
  size_t of = WEIR_ARMS;
  for (size_t a = WEIR_ARMS; a-- > 0;) {
    const weir_arm *arm = weir_arm_at(a);
    if (!weir_arm_is(arm, plan)) continue;
    if (arm->plan.cr == plan->cr) return a;
    if (arm->plan.cr == 0.0) of = a;
  }
  return of;
}

bool weir_plan_safe(const weir_plan *plan) {
  const size_t arm = weir_arm_of(plan);
  return arm < WEIR_ARMS && weir_arm_at(arm)->safe;
}

double weir_plan_bits(const weir_plan *plan) {
  if (!weir_plan_safe(plan)) return 0;
  return plan->codec == WEIR_CODEC_NONE ? 32 : plan->codec == WEIR_CODEC_BF16 ? 16 : 32 * plan->cr;
}

size_t weir_method_of(const weir_plan *plan) {
  const weir_arm *arm = weir_arm_at(WEIR_BOLD_ARMS), *end = weir_arm_at(0) + WEIR_ARMS;
  for (; arm < end; arm++)
    if (arm->method < WEIR_METHODS && arm->plan.cr == plan->cr && weir_arm_is(arm, plan))
      return arm->method;
  return WEIR_METHODS;
}

const weir_arm *weir_method_arm(size_t method) {
  size_t a = WEIR_BOLD_ARMS;
  while (weir_arm_at(a)->method != method) a++;
  return weir_arm_at(a);
}

bool weir_plan_rounds(const weir_plan *plan) { return weir_codecs[plan->codec]->encode != NULL; }

const weir_belief *weir_belief_of(const weir_plan *plan, const weir_round_form *form) {
  return weir_plan_rounds(plan) ? &form->rounding : &form->lagging;
}

const weir_round_form *weir_round_form_of(const weir_plan *plan, weir_update_rule rule) {
  /* What is more takes longer to build up. */
  static const double at_once = 0.01, soon = 0.05;
  const size_t method = weir_method_of(plan);
  const double debt = method < WEIR_METHODS ? weir_method_arm(method)->debt : 0.0;
  if (rule != WEIR_RULE_SGD) return &weir_round_adaptive;
  return debt > soon      ? &weir_round_sgd_long
         : debt > at_once ? &weir_round_sgd
                          : &weir_round_sgd_short;
}

bool weir_plan_sparse(const weir_plan *plan) { return weir_codecs[plan->codec]->touched; }

bool weir_sparse_known(const weir_decision_input *in) {
  static const double most = 0.5; /* of what has more, elements are counted now and then only */
  return in->nonzero > 0.0 && in->nonzero <= most && in->withheld == 0;
}

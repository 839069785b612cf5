/* Compression strategies: an option (planner/options.h) and a codec for every tensor.
 *
 * The iteration time of a strategy is that of planner/timeline.h with one chain a tensor (or
 * bucket) on a cluster (planner/cluster.h).  Decided by the algorithms of "ByteComp", section 4.4,
 * and by what goes past them; compared with its crippled searches (section 5.3), the usual fixed
 * policies, a bound, and on small cases the exact optimum.
 *
 * Plain computation on the caller's thread; results belong to the caller. */
#ifndef WEIR_PLANNER_STRATEGY_H
#define WEIR_PLANNER_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "planner/cluster.h"
#include "planner/profile.h"

enum { WEIR_STRATEGY_THOROUGH = 6, WEIR_STRATEGY_WORK = 700000 };
#define WEIR_STRATEGY_FUSE_S 0.016

typedef enum weir_strategy_method {
  /* Fixed policies. */
  WEIR_STRATEGY_NONE,       /* nothing compressed, each tensor by its fastest communication */
  WEIR_STRATEGY_LAYER_WISE, /* every tensor compressed by the option that is fastest for it alone */
  WEIR_STRATEGY_MYOPIC,     /* the option fastest for the tensor alone, compressed or not (5.3) */
  /* Algorithm 1 in the crippled spaces of section 5.3; what cannot be compressed may stay so. */
  WEIR_STRATEGY_ALL,               /* no tensor uncompressed */
  WEIR_STRATEGY_GPU,               /* compression on the GPU only: Algorithm 1 itself */
  WEIR_STRATEGY_CPU,               /* on the CPU only */
  WEIR_STRATEGY_INTER_ALLGATHER,   /* compressed between machines only, one all-gather there */
  WEIR_STRATEGY_INTER_ALLTOALL,    /* between machines only, all-to-all and all-gather there */
  WEIR_STRATEGY_ALLTOALL_ALLTOALL, /* all-to-all inside, compressed anew, all-to-all between */
  /* The whole space. */
  WEIR_STRATEGY_BYTECOMP, /* Algorithm 1, then Algorithm 2 (CPU offloading) */
  WEIR_STRATEGY_WEIR,     /* the best of all above, improved: see weir_strategy_solve */
  WEIR_STRATEGY_EXACT,    /* the optimum, or cut short */
  WEIR_STRATEGY_METHODS
} weir_strategy_method;
const char *weir_strategy_name(weir_strategy_method method);

typedef struct weir_strategy_choice {
  weir_option option;
  size_t codec;
  bool compressed;
} weir_strategy_choice;

typedef struct weir_strategy {
  size_t count;                 /* tensors; 0: the space of the method is empty */
  weir_strategy_choice *choice; /* per tensor */
  double iteration_s;
  double solve_s; /* that the method took */
} weir_strategy;

typedef struct weir_strategy_limits {
  weir_option_limits options;
  /* Per tensor, bit c: codec c may be used for it.  0: it stays uncompressed.  NULL: any. */
  const uint8_t *codecs;
  bool executable;   /* only options that the engine has a plan for (planner/execute.h); names of
                        codecs are then CODEC:CR.  weir_strategy_published does not ask */
  bool compare;      /* with the crippled searches in full, which takes longer than the rest */
  size_t work;       /* operations that may be scheduled, some 30 ns each; 0: WEIR_STRATEGY_WORK */
  double fuse_s;     /* processor time that weir_strategy_fuse may take; 0: WEIR_STRATEGY_FUSE_S */
  double exact_work; /* strategies that the exact search may try, each option looked at on the way
                        counting a twentieth; 0: it is not made */
} weir_strategy_limits;

typedef struct weir_strategy_report {
  weir_strategy by[WEIR_STRATEGY_METHODS];
  double upper_bound_s; /* the paper's: compression takes no time and no resource (section 5.1), as
                           far as the same search finds; 0, not sought, when limits set `work` */
  bool exact;           /* the exact search was not cut short */
  size_t options;       /* in the tree within the limits */
  double solve_s;   /* until WEIR_STRATEGY_WEIR was found; comparing only counts when it helped */
  size_t timelines; /* worked out by weir_strategy_published (published.h) */
} weir_strategy_report;

/* The fixed policies, Algorithm 1 with all tensors compressed, on the GPU and on the CPU (the
 * largest tensors first, for as long as a part of the work lasts), Algorithm 2, and
 * WEIR_STRATEGY_WEIR; on request all crippled spaces to their end, and the exact search.  WEIR
 * starts from the best of the methods and changes, while it helps and the work lasts, the option of
 * all tensors of a size, of one, or of the first or last of a size; so it is never worse than any
 * method that was run.  limits may be NULL.
 *
 * Short cuts: an option that another is no worse than on any resource is not tried (by its costs at
 * up to four sizes from the smallest to the largest, then to one percent at each size); options
 * that compress both on GPU and on CPU are tried for up to WEIR_STRATEGY_THOROUGH tensors, or with
 * the exact search; Algorithm 2 tries all combinations up to some hundreds, else bucket after
 * bucket. WEIR_E_INVALID: values out of their range, or limits that leave no option for some
 * tensor. */
weir_status weir_strategy_solve(const weir_profile *profile, const weir_cluster *cluster,
                                const weir_strategy_limits *limits, weir_strategy_report *report);
void weir_strategy_report_free(weir_strategy_report *report);

/* The timeline of a strategy, for showing; iteration_s is the strategy's. */
weir_status weir_strategy_timeline(const weir_profile *profile, const weir_cluster *cluster,
                                   const weir_strategy *strategy, weir_timeline *timeline);

/* Fusion and strategy together: buckets of consecutive tensors, each with an option.  Candidates
 * are every tensor alone, what weir_solve finds for the space reduced to three options, and the
 * usual buckets and divisions; the best of them is improved by merging neighbours, splitting
 * buckets and moving borders, as long as that helps and the time lasts: what is found depends on
 * the machine's speed.  Never worse than weir_strategy_solve without fusion with the same `work`, a
 * fifth of the usual when limits set none (a third for up to 64 tensors).  upper_bound_s is 0, as a
 * bound of these buckets is none of others.  A bucket may use the codecs that all of its tensors
 * may. */
typedef struct weir_strategy_fusion {
  size_t buckets;
  size_t *end;                 /* one past each bucket's last tensor */
  weir_profile profile;        /* the buckets as tensors, named after their last */
  weir_strategy_report report; /* of the buckets */
  double solve_s;
} weir_strategy_fusion;
weir_status weir_strategy_fuse(const weir_profile *profile, const weir_cluster *cluster,
                               const weir_strategy_limits *limits, weir_strategy_fusion *fusion);
void weir_strategy_fusion_free(weir_strategy_fusion *fusion);

#endif

/* How averaged gradients move weights: a row each of SGD with momentum, AdamW, LARS and LAMB. */
#ifndef WEIR_LAB_OPTIMIZER_H
#define WEIR_LAB_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/parallel.h>

typedef struct weir_optimizer_config {
  const char *name; /* "sgd", "adamw", "lars" or "lamb"; NULL: "sgd" */
  double momentum;  /* of the gradient; what Adam and LAMB call beta 1 */
  double beta2;     /* of its square, for these two */
  double weight_decay;
  /* Of lars and lamb: not only norms are taken by the ranks together, each moves its share of the
   * weights, too (weir_lamb_step). */
  bool divided;
} weir_optimizer_config;

typedef struct weir_optimizer_kind weir_optimizer_kind;

typedef struct weir_optimizer {
  const weir_optimizer_kind *kind;
  weir_optimizer_config config;
  size_t parameters;
  /* Moments, one a parameter, or, where it is divided, of this rank's share; second is NULL where
   * the kind has none. */
  size_t moments;
  float *first, *second;
  weir_moment_share share;
} weir_optimizer;

/* NULL: there is none. */
const weir_optimizer_kind *weir_optimizer_find(const char *name);
/* Does it divide by what gradients were like, rather than take steps in proportion to them
 * (weir_options.update_rule)? */
bool weir_optimizer_adapts(const char *name);
/* Can its step be divided among the ranks? */
bool weir_optimizer_divides(const char *name);

/* numel[tensors], in the order of updates. */
weir_status weir_optimizer_create(weir_optimizer *optimizer, const weir_optimizer_config *config,
                                  const size_t *numel, size_t tensors, int rank, int world_size);
void weir_optimizer_free(weir_optimizer *optimizer);

/* One tensor of a step.  Biases and norms do not decay, and their steps are not scaled by norms. */
typedef struct weir_update {
  float *weight;
  const float *gradient;
  size_t offset, count; /* of the tensor, in the moments */
  double rate;
  uint64_t step; /* updates before this one */
  int matrix;
} weir_update;
/* A step of all tensors.  The norms that LARS and LAMB scale by are taken by the session's ranks
 * together (weir/parallel.h); NULL: by this one alone, to the same bits.  On failure nothing has
 * been updated, but where it is divided: there weights may have been in part. */
weir_status weir_optimizer_update(weir_optimizer *optimizer, weir_session *session,
                                  const weir_update *updates, size_t count);

#endif

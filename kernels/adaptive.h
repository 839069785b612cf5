/* Steps of SGD with momentum, Adam, LARS and LAMB, element by element, and the sums of squares that
 * the last two scale steps by (weir/parallel.h has the formulas and where they are from). */
#ifndef WEIR_KERNELS_ADAPTIVE_H
#define WEIR_KERNELS_ADAPTIVE_H

#include <stdbool.h>

#include "kernels/number.h"

/* A step's constants, as the loops want them. */
typedef struct weir_adam {
  float beta1, beta2, epsilon, weight_decay;
  float correct1, correct2; /* of moments that began at zero */
} weir_adam;
/* step: updates before this one. */
weir_adam weir_adam_terms(double beta1, double beta2, double epsilon, double weight_decay,
                          uint64_t step);

/* Both moments' new values, and the step. */
WEIR_NUMBER float weir_adam_step(float *m, float *v, float g, float w, const weir_adam *t) {
  *m = t->beta1 * *m + (1 - t->beta1) * g;
  *v = t->beta2 * *v + (1 - t->beta2) * g * g;
  return *m * t->correct1 / (sqrtf(*v * t->correct2) + t->epsilon) + t->weight_decay * w;
}

/* The velocity's new value and the weight's: LARS where its scale is in the rate. */
WEIR_NUMBER float weir_lars_step_of(float *v, float g, float w, float momentum, float weight_decay,
                                    float rate) {
  *v = momentum * *v + rate * (g + weight_decay * w);
  return w - *v;
}

/* A piece of a tensor. */
typedef struct weir_tensor_piece {
  const float *weight, *gradient, *first, *second;
  size_t n;
} weir_tensor_piece;
/* Sums of squares, alike on every processor and device (weir_sum_square; of LAMB's steps the sums
 * of so many neighbours are added up in order). */
#define WEIR_ADAPTIVE_WINDOW ((size_t)1024)
typedef struct weir_squares {
  double weight, step;
} weir_squares;
weir_squares weir_lars_squares(const weir_tensor_piece *piece); /* step: of the gradient */
weir_squares weir_lamb_squares(const weir_tensor_piece *piece, const weir_adam *terms);

/* What a step moves: weights and moments are updated. */
typedef struct weir_moved {
  float *weight;
  const float *gradient;
  float *first, *second; /* second: of weir_adam_move alone */
  size_t n;
} weir_moved;
/* A piece's step. */
typedef struct weir_mover {
  weir_moved piece;
  float rate;
  bool adam; /* weir_adam_move by `terms`; else weir_lars_move by what follows them */
  weir_adam terms;
  float momentum, weight_decay;
} weir_mover;
void weir_move(const weir_mover *mover);
/* w -= rate u, u being Adam's step: AdamW, and LAMB where its scale is in the rate. */
void weir_adam_move(const weir_moved *moved, const weir_adam *terms, float rate);
/* v = momentum v + rate (g + weight_decay w); w -= v: LARS where its scale is in the rate. */
void weir_lars_move(const weir_moved *moved, float momentum, float weight_decay, float rate);

#endif

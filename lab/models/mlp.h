/* A multi-layer perceptron: affine layers, ReLU between them, logits at the end.
 * fp32, row-major: activations are rows x width, weights are outputs x inputs.  Nothing allocates
 * after weir_mlp_create.  One thread at a time. */
#ifndef WEIR_LAB_MODELS_MLP_H
#define WEIR_LAB_MODELS_MLP_H

#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

#include "lab/models/product.h"

#define WEIR_MLP_LAYERS_MAX 24

typedef struct weir_mlp {
  size_t layers;
  size_t width[WEIR_MLP_LAYERS_MAX + 1]; /* width[0] inputs .. width[layers] classes */
  size_t rows;                           /* most rows of one call */
  size_t parameters;
  /* Parameters and their gradients: weight, bias of the last layer first (backward order). */
  float *parameter, *gradient;
  size_t weight[WEIR_MLP_LAYERS_MAX], bias[WEIR_MLP_LAYERS_MAX]; /* offsets, by layer */
  float *activation[WEIR_MLP_LAYERS_MAX + 1]; /* [0] is the input, filled in by the caller */
  float *delta[2];                            /* gradients of two neighbouring activations */
  float *memory;                              /* what all of the above point into */
  size_t slices[WEIR_MLP_LAYERS_MAX]; /* that a weight's gradient is computed in, by layer */
  /* Told of each gradient as soon as backward leaves it alone, in this order: the slices of a
   * layer's weight, its bias, then those of the layer below.  NULL: nobody; a failure ends the
   * pass. */
  weir_status (*ready)(void *user, size_t tensor);
  void *user;
  weir_pace_of pace; /* a layer takes at least layer_s forward and twice that backward */
} weir_mlp;

/* layers >= 1, every width >= 1, rows >= 1, else WEIR_E_INVALID.  Parameters are zero. */
weir_status weir_mlp_create(weir_mlp *mlp, size_t layers, const size_t *width, size_t rows);
void weir_mlp_free(weir_mlp *mlp);

/* Weights are sliced into as few equal parts (give or take a row) of whole rows as hold at most so
 * many elements each, or a row; 0: not at all. */
void weir_mlp_slice(weir_mlp *mlp, size_t most);
/* Slice s of a layer's weight begins with this row (an output); s = slices[layer]: the end. */
size_t weir_mlp_slice_row(const weir_mlp *mlp, size_t layer, size_t s);

/* He initialisation (He et al. 2015): weights normal with variance 2 / inputs, biases zero; a
 * function of the seed alone. */
void weir_mlp_init(weir_mlp *mlp, uint64_t seed);

/* From activation[0] (rows x width[0]) to the logits in activation[layers]. */
weir_status weir_mlp_forward(weir_mlp *mlp, size_t rows);
/* After forward, with the loss's gradient in the logits' place: all others in mlp->gradient. */
weir_status weir_mlp_backward(weir_mlp *mlp, size_t rows);

#endif

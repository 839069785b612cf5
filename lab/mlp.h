/* A multi-layer perceptron: affine layers, ReLU between them, softmax cross-entropy at the end.
 * fp32, row-major: activations are rows x width, weights are outputs x inputs.  Nothing allocates
 * after weir_mlp_create.  One thread at a time. */
#ifndef WEIR_LAB_MLP_H
#define WEIR_LAB_MLP_H

#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

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
  /* Told of each gradient as soon as backward leaves it alone: 2i is the weight's, 2i + 1 the
   * bias's of layer layers - 1 - i.  NULL: nobody; a failure ends the pass. */
  weir_status (*ready)(void *user, size_t tensor);
  void *user;
  double layer_s; /* waited in the forward pass of every layer, twice that in its backward pass */
} weir_mlp;

/* layers >= 1, every width >= 1, rows >= 1, else WEIR_E_INVALID.  Parameters are zero. */
weir_status weir_mlp_create(weir_mlp *mlp, size_t layers, const size_t *width, size_t rows);
void weir_mlp_free(weir_mlp *mlp);

/* He initialisation (He et al. 2015): weights normal with variance 2 / inputs, biases zero; a
 * function of the seed alone. */
void weir_mlp_init(weir_mlp *mlp, uint64_t seed);

/* From activation[0] (rows x width[0]) to the logits in activation[layers]. */
weir_status weir_mlp_forward(weir_mlp *mlp, size_t rows);
/* After forward: the mean loss over rows, and its gradient in mlp->gradient.  label[i] <
 * width[layers].  Overwrites the logits. */
weir_status weir_mlp_backward(weir_mlp *mlp, size_t rows, const uint8_t *label, double *loss);
/* After forward: the class of the largest logit of a row, the lowest on ties. */
size_t weir_mlp_class(const weir_mlp *mlp, size_t row);

#endif

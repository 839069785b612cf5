/* Layers that models are made of, forward and backward: affine maps, norms, ReLU, GELU.  Rows are
 * samples or positions; gradients of parameters are written, not added to. */
#ifndef WEIR_LAB_MODELS_LAYERS_H
#define WEIR_LAB_MODELS_LAYERS_H

#include "lab/models/model.h"

/* y = x W' + b, W with a row an output. */
typedef struct weir_affine {
  size_t in, out;
  size_t weight, bias; /* offsets */
} weir_affine;

/* Its tensors NAME.weight and NAME.bias. */
weir_affine weir_affine_add(weir_model *model, size_t in, size_t out, const char *name);
weir_status weir_affine_forward(weir_model *model, const weir_affine *affine, size_t rows,
                                const float *x, float *y);
/* Gradients of weight and bias, told of; then that of x (NULL: nobody asks). */
weir_status weir_affine_backward(weir_model *model, const weir_affine *affine, size_t rows,
                                 const float *x, const float *dy, float *dx);

/* Each row with mean 0 and variance 1, then scaled and moved: a layer norm (Ba et al. 2016) where
 * the row is as wide as it has channels; else, with positions of so many channels in a row, a group
 * norm of one group (Wu and He 2018). */
typedef struct weir_norm {
  size_t width, channels;
  size_t weight, bias; /* offsets */
  float *hat;          /* rows x width, normalised */
  float *inverse;      /* of each row's deviation */
} weir_norm;

weir_norm weir_norm_add(weir_model *model, size_t rows, size_t width, size_t channels,
                        const char *name);
void weir_norm_forward(const weir_model *model, const weir_norm *norm, size_t rows, const float *x,
                       float *y);
/* Gradients of weight and bias, told of; that of x is added to dx.  Overwrites dy. */
weir_status weir_norm_backward(weir_model *model, const weir_norm *norm, size_t rows, float *dy,
                               float *dx);

void weir_relu(float *x, size_t count);
/* Where x is zero its gradient is. */
void weir_relu_back(const float *x, float *gradient, size_t count);

/* In place, in the form with tanh; its slope at each x beside it. */
void weir_gelu(float *x, float *slope, size_t count);

#endif

/* A model of the lab's trainer: parameters in one array, tensors in the order in which backward
 * leaves their gradients, and a pass forward and backward over a batch.  One file and one row of
 * weir_model_kinds each; a model knows neither optimizer nor network.  One thread at a time. */
#ifndef WEIR_LAB_MODELS_MODEL_H
#define WEIR_LAB_MODELS_MODEL_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

#include "base/base.h"
#include "lab/dataset.h"
#include "lab/models/product.h"

enum { WEIR_MODEL_SHAPE = 512 };

/* What a scenario may choose; 0: the model's own. */
typedef struct weir_model_sizes {
  uint32_t layers, channels, context;
  char shape[WEIR_MODEL_SHAPE]; /* of shaped: the path of its profile */
} weir_model_sizes;

typedef struct weir_model_config {
  const char *name;
  weir_model_sizes sizes;
  size_t samples; /* most of one call */
  size_t slice;   /* weights' gradients come in slices of at most so many elements; 0: whole */
} weir_model_config;

typedef struct weir_model_tensor {
  char name[32];
  size_t offset, numel;
  size_t rows; /* of a matrix; 1 for a bias or a norm */
  bool decays; /* matrices do, biases and norms do not */
} weir_model_tensor;

typedef struct weir_model weir_model;

typedef struct weir_model_kind {
  const char *name, *dataset;
  bool sliced;            /* config.slice may be set */
  size_t evaluated;       /* samples in a pass while evaluating, at least */
  weir_model_sizes sizes; /* the model's own; 0: a scenario cannot choose it */
  /* Lists the tensors (weir_model_add) and takes room for the activations. */
  weir_status (*create)(weir_model *model, const weir_model_config *config);
  void (*free)(weir_model *model);
  void (*init)(weir_model *model, uint64_t seed);
  /* Reads the batch: model->logits, model->label and model->outputs. */
  weir_status (*forward)(weir_model *model, const weir_batch *batch);
  /* With the loss's gradient in model->logits: all gradients, each told of as it is ready. */
  weir_status (*backward)(weir_model *model);
} weir_model_kind;

struct weir_model {
  const weir_model_kind *kind;
  const weir_dataset *data;
  size_t parameters;
  float *parameter, *gradient;
  weir_model_tensor *tensors; /* [count], in backward order */
  size_t count;
  size_t outputs, classes; /* answers that the last forward pass gave, and what each chooses from */
  float *logits;           /* outputs x classes; one class: of a yes */
  uint8_t *label;          /* [outputs] */
  weir_pace_of pace;
  uint64_t step;                                   /* updates before this pass */
  weir_status (*ready)(void *user, size_t tensor); /* NULL: nobody; a failure ends the pass */
  void *user;
  size_t told; /* tensors of this pass */
  void *own;   /* the kind's */
  GPtrArray *blocks;
  size_t bytes; /* of all blocks */
  bool starved; /* no memory for a block */
};

extern const weir_model_kind weir_model_mlp, weir_model_deep, weir_model_cnn, weir_model_gpt,
    weir_model_recommender, weir_model_shaped;

/* NULL: there is none. */
const weir_model_kind *weir_model_find(const char *name);
/* The names of all, with commas, for messages. */
const char *weir_model_names(void);

weir_status weir_model_create(weir_model *model, const weir_model_config *config,
                              const weir_dataset *data);
void weir_model_free(weir_model *model);
/* The loss's mean over the batch, and the gradients. */
weir_status weir_model_backward(weir_model *model, double *loss);

typedef struct weir_score {
  double loss; /* the sum over answers */
  uint64_t right, answers;
} weir_score;
/* After forward: what its answers add.  Overwrites the logits. */
void weir_model_score(weir_model *model, weir_score *score);
/* Of softmax and one answer; its gradient, times scale, takes the logits' place. */
double weir_cross_entropy(float *logit, size_t classes, size_t label, float scale);

/* --- for the kinds ---------------------------------------------------------------------------- */

/* The next tensor in backward order; where its elements begin.  Rows 1: no matrix. */
size_t weir_model_add(weir_model *model, size_t rows, size_t columns, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* Room that lives as long as the model, zero, its start on a cache line. */
float *weir_model_floats(weir_model *model, size_t count);
/* The next tensor's gradient is ready. */
weir_status weir_model_tell(weir_model *model);
/* Normal with this deviation. */
void weir_model_normal(float *to, size_t count, double deviation, weir_rng *rng);

#endif

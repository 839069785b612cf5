/* The lab's trainer: a model, the order in which it sees the samples, and an optimizer with a
 * schedule of its learning rate; deterministic for a seed.  It knows nothing of networks: the
 * worker hands its gradients to a weir_session. */
#ifndef WEIR_LAB_TRAINER_H
#define WEIR_LAB_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

#include "lab/models/model.h"
#include "lab/optimizer.h"

typedef struct weir_trainer_config {
  const char *model; /* see weir_model_find */
  weir_model_sizes sizes;
  uint64_t seed;        /* weights, the same on all ranks; and the order of samples */
  int rank, world_size; /* which share of each global batch is ours */
  size_t batch;         /* per worker */
  double learning_rate;
  weir_optimizer_config optimizer;
  uint64_t rate_warmup_steps;  /* in which the learning rate rises to what it is */
  double decay_factor;         /* learning rate times this at each decay step */
  const uint64_t *decay_steps; /* ascending; may be NULL */
  size_t decays;
  int threads; /* BLAS threads, 1 */
  double layer_s,
      flop_s;        /* as if another processor computed: see lab/models/product.h.  0: this one */
  bool virtual_time; /* likewise */
  size_t slice;      /* weights' gradients come in slices of at most so many elements, each a
                        tensor NAME/NUMBER; 0: whole */
} weir_trainer_config;

typedef struct weir_trainer weir_trainer;
weir_status weir_trainer_create(weir_trainer **out, const weir_trainer_config *config,
                                const weir_dataset *data);
void weir_trainer_free(weir_trainer *trainer);

/* Tensors in backward order, with names, sizes and where backward() leaves their gradients. */
size_t weir_trainer_tensors(const weir_trainer *trainer);
const char *weir_trainer_tensor_name(const weir_trainer *trainer, size_t tensor);
size_t weir_trainer_tensor_numel(const weir_trainer *trainer, size_t tensor);
/* Of a weight matrix or a slice of it, row after row; 1 for a bias. */
size_t weir_trainer_tensor_rows(const weir_trainer *trainer, size_t tensor);
float *weir_trainer_gradient(weir_trainer *trainer, size_t tensor);
/* Registers weights and moments as state, and hooks for RNG, data cursor and step counter. */
weir_status weir_trainer_register(weir_trainer *trainer, weir_session *session);

/* Draw the next batch, forward, backward; *loss is the batch's mean. */
weir_status weir_trainer_backward(weir_trainer *trainer, double *loss);
/* Who is told, from inside backward: that the forward pass is over (may be NULL), and of each
 * tensor whose gradient is ready.  The trainer touches it no more before update.  A failure of
 * theirs ends backward. */
typedef struct weir_trainer_audience {
  void *user;
  weir_status (*forward)(void *user);
  weir_status (*ready)(void *user, size_t tensor);
} weir_trainer_audience;
void weir_trainer_tell(weir_trainer *trainer, const weir_trainer_audience *audience);
/* Where training samples come from that are not read from the data set in place.  fetch: a batch as
 * samples of another data set, both valid until the next call; ahead: what will be asked for from
 * now on, in this order. */
typedef struct weir_trainer_source {
  void *user;
  weir_status (*fetch)(void *user, const weir_batch *batch, const weir_dataset **data,
                       weir_batch *staged);
  weir_status (*ahead)(void *user, const uint32_t *sample, size_t count);
} weir_trainer_source;
void weir_trainer_read_from(weir_trainer *trainer, const weir_trainer_source *source);
/* The optimizer's update from the gradients as they now are (averaged), of which the session's
 * ranks share what can be shared; NULL: this one does all of it, to the same bits. */
weir_status weir_trainer_update(weir_trainer *trainer, weir_session *session);
/* The answers to test samples [first, last).  Uses the activations, not the gradients: it may come
 * between backward and update. */
weir_status weir_trainer_evaluate(weir_trainer *trainer, size_t first, size_t last,
                                  weir_score *score);
/* SHA-256 of the weights, in hexadecimal. */
void weir_trainer_weights_sha256(const weir_trainer *trainer, char hex[65]);

#endif

/* The perceptrons on Fashion-MNIST: "mlp" (784-1024-256-10, 6 tensors) and "deep" (784, 20 times
 * 224, 10: 42 tensors). */

#include "lab/models/mlp.h"
#include "lab/models/model.h"

enum { PIXELS = 784, CLASSES = 10 };

static weir_status relay(void *user, size_t tensor) {
  (void)tensor;
  return weir_model_tell(user);
}

static void list_layer(weir_model *m, const weir_mlp *mlp, size_t l) {
  for (size_t s = 0; s < mlp->slices[l]; s++) {
    const size_t rows = weir_mlp_slice_row(mlp, l, s + 1) - weir_mlp_slice_row(mlp, l, s);
    if (mlp->slices[l] > 1)
      (void)weir_model_add(m, rows, mlp->width[l], "fc%zu.weight/%zu", l + 1, s);
    else
      (void)weir_model_add(m, rows, mlp->width[l], "fc%zu.weight", l + 1);
    m->tensors[m->count - 1].decays = true; /* a slice may be a single row */
  }
  (void)weir_model_add(m, 1, mlp->width[l + 1], "fc%zu.bias", l + 1);
}

static weir_status create(weir_model *m, const weir_model_config *config, size_t layers,
                          const size_t *width) {
  if (m->data->pixels != PIXELS)
    return weir_fail(WEIR_E_INVALID, "images of %zu pixels, expected %d", m->data->pixels, PIXELS);
  weir_mlp *mlp = m->own = g_new0(weir_mlp, 1);
  weir_status status = weir_mlp_create(mlp, layers, width, config->samples);
  if (status) return status;
  weir_mlp_slice(mlp, config->slice);
  for (size_t l = layers; l-- > 0;) list_layer(m, mlp, l);
  mlp->ready = relay;
  mlp->user = m;
  m->parameter = mlp->parameter;
  m->gradient = mlp->gradient;
  m->classes = CLASSES;
  m->logits = mlp->activation[layers];
  m->label = (uint8_t *)weir_model_floats(m, config->samples / sizeof(float) + 1);
  return WEIR_OK;
}

static weir_status create_mlp(weir_model *m, const weir_model_config *config) {
  return create(m, config, 3, (const size_t[]){PIXELS, 1024, 256, CLASSES});
}

static weir_status create_deep(weir_model *m, const weir_model_config *config) {
  enum { HIDDEN = 20 };
  size_t width[HIDDEN + 2] = {PIXELS};
  for (size_t l = 1; l <= HIDDEN; l++) width[l] = 224;
  width[HIDDEN + 1] = CLASSES;
  return create(m, config, HIDDEN + 1, width);
}

static void release(weir_model *m) { weir_mlp_free(m->own); }

static void init(weir_model *m, uint64_t seed) { weir_mlp_init(m->own, seed); }

static weir_status forward(weir_model *m, const weir_batch *batch) {
  weir_mlp *mlp = m->own;
  weir_dataset_images(m->data, batch, mlp->activation[0], m->label);
  m->outputs = batch->count;
  mlp->pace = m->pace;
  return weir_mlp_forward(mlp, batch->count);
}

static weir_status backward(weir_model *m) { return weir_mlp_backward(m->own, m->outputs); }

#define PERCEPTRON(named, made)                                                                  \
  {                                                                                              \
    .name = named, .dataset = "fashion-mnist", .sliced = true, .evaluated = 200, .create = made, \
    .free = release, .init = init, .forward = forward, .backward = backward                      \
  }
const weir_model_kind weir_model_mlp = PERCEPTRON("mlp", create_mlp);
const weir_model_kind weir_model_deep = PERCEPTRON("deep", create_deep);

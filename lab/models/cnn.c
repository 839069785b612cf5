/* A convolutional net on Fashion-MNIST: three convolutions of 3 x 3 with a stride of 2, each with
 * twice the channels of the one before, a group norm and ReLU behind each, and an affine map. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/models/layers.h"
#include "lab/models/model.h"

enum { SIDE = 28, STAGES = 3, KERNEL = 3, STRIDE = 2, CLASSES = 10, CHANNELS_MAX = 128 };

/* Images are rows of pixels, pixels of channels. */
typedef struct stage {
  size_t side, channels;       /* of its input */
  size_t to_side, to_channels; /* of its result */
  weir_affine convolution;     /* over the KERNEL^2 pixels around each: a patch */
  weir_norm norm;
  float *patches;       /* a row a pixel of the result */
  float *result, *back; /* and its gradient */
} stage;

typedef struct cnn {
  stage stage[STAGES];
  weir_affine last;
  float *input; /* images */
  float *linear, *patches_back;
} cnn;

/* --- patches ---------------------------------------------------------------------------------- */

/* Where pixel (dy, dx) of the patch of result pixel (y, x) lies in the image; false: beyond it. */
static bool locate(const stage *g, size_t y, size_t x, size_t k, size_t *at) {
  const size_t row = y * STRIDE + k / KERNEL, column = x * STRIDE + k % KERNEL;
  if (!row || !column || row > g->side || column > g->side) return false;
  *at = ((row - 1) * g->side + column - 1) * g->channels;
  return true;
}

static void cut(const stage *g, const float *image, float *patch) {
  for (size_t i = 0; i < g->to_side * g->to_side; i++)
    for (size_t k = 0; k < KERNEL * KERNEL; k++, patch += g->channels) {
      size_t at;
      if (locate(g, i / g->to_side, i % g->to_side, k, &at))
        memcpy(patch, image + at, g->channels * sizeof *patch);
      else
        memset(patch, 0, g->channels * sizeof *patch);
    }
}

/* The other way round: what lies in several patches is added up. */
static void paste(const stage *g, const float *patch, float *image) {
  memset(image, 0, g->side * g->side * g->channels * sizeof *image);
  for (size_t i = 0; i < g->to_side * g->to_side; i++)
    for (size_t k = 0; k < KERNEL * KERNEL; k++, patch += g->channels) {
      size_t at;
      if (!locate(g, i / g->to_side, i % g->to_side, k, &at)) continue;
      for (size_t c = 0; c < g->channels; c++) image[at + c] += patch[c];
    }
}

/* --- set-up ----------------------------------------------------------------------------------- */

static void add_stage(weir_model *m, stage *g, size_t number, size_t samples) {
  const size_t pixels = g->to_side * g->to_side, patch = KERNEL * KERNEL * g->channels;
  char name[32];
  (void)snprintf(name, sizeof name, "norm%zu", number);
  g->norm = weir_norm_add(m, samples, pixels * g->to_channels, g->to_channels, name);
  (void)snprintf(name, sizeof name, "conv%zu", number);
  g->convolution = weir_affine_add(m, patch, g->to_channels, name);
  g->patches = weir_model_floats(m, samples * pixels * patch);
  g->result = weir_model_floats(m, samples * pixels * g->to_channels);
  g->back = weir_model_floats(m, samples * pixels * g->to_channels);
}

static weir_status create(weir_model *m, const weir_model_config *config) {
  cnn *n = m->own = g_new0(cnn, 1);
  size_t side = SIDE, channels = 1, to = config->sizes.channels, widest = 0;
  if (m->data->pixels != SIDE * SIDE || to > CHANNELS_MAX)
    return weir_fail(WEIR_E_INVALID,
                     "images of %zu pixels and %zu channels, expected %d and 1 to %d",
                     m->data->pixels, to, SIDE * SIDE, CHANNELS_MAX);
  for (size_t i = 0; i < STAGES; i++) {
    stage *g = &n->stage[i];
    *g = (stage){side, channels, (side + 1) / STRIDE, to, .patches = NULL};
    const size_t patches = g->to_side * g->to_side * KERNEL * KERNEL * channels;
    if (patches > widest) widest = patches;
    side = g->to_side;
    channels = to;
    to *= 2;
  }
  n->last = weir_affine_add(m, side * side * channels, CLASSES, "fc");
  for (size_t i = STAGES; i-- > 0;) add_stage(m, &n->stage[i], i + 1, config->samples);
  const stage *first = &n->stage[0];
  n->input = weir_model_floats(m, config->samples * SIDE * SIDE);
  n->linear =
      weir_model_floats(m, config->samples * first->to_side * first->to_side * first->to_channels);
  n->patches_back = weir_model_floats(m, config->samples * widest);
  m->classes = CLASSES;
  m->logits = weir_model_floats(m, config->samples * CLASSES);
  m->label = (uint8_t *)weir_model_floats(m, config->samples / sizeof(float) + 1);
  return WEIR_OK;
}

static void he(weir_model *m, const weir_affine *a, weir_rng *rng) {
  weir_model_normal(m->parameter + a->weight, a->in * a->out, sqrt(2.0 / (double)a->in), rng);
}

static void init(weir_model *m, uint64_t seed) {
  const cnn *n = m->own;
  weir_rng rng = weir_rng_of(seed);
  memset(m->parameter, 0, m->parameters * sizeof *m->parameter);
  for (size_t i = 0; i < STAGES; i++) {
    he(m, &n->stage[i].convolution, &rng);
    for (size_t c = 0; c < n->stage[i].to_channels; c++)
      m->parameter[n->stage[i].norm.weight + c] = 1.0f;
  }
  he(m, &n->last, &rng);
}

/* --- a pass ----------------------------------------------------------------------------------- */

static weir_status stage_forward(weir_model *m, stage *g, const float *input) {
  cnn *n = m->own;
  const size_t samples = m->outputs, pixels = g->to_side * g->to_side;
  for (size_t s = 0; s < samples; s++)
    cut(g, input + s * g->side * g->side * g->channels,
        g->patches + s * pixels * g->convolution.in);
  weir_status status =
      weir_affine_forward(m, &g->convolution, samples * pixels, g->patches, n->linear);
  if (status) return status;
  weir_norm_forward(m, &g->norm, samples, n->linear, g->result);
  weir_relu(g->result, samples * g->norm.width);
  return WEIR_OK;
}

static weir_status forward(weir_model *m, const weir_batch *batch) {
  cnn *n = m->own;
  weir_status status = WEIR_OK;
  m->outputs = batch->count;
  weir_dataset_images(m->data, batch, n->input, m->label);
  const float *input = n->input;
  for (size_t i = 0; i < STAGES && !status; i++) {
    status = stage_forward(m, &n->stage[i], input);
    input = n->stage[i].result;
  }
  return status ? status : weir_affine_forward(m, &n->last, m->outputs, input, m->logits);
}

/* From the gradient of its result, in place, to that of the stage below; NULL: the images. */
static weir_status stage_backward(weir_model *m, stage *g, float *below) {
  cnn *n = m->own;
  const size_t samples = m->outputs, pixels = g->to_side * g->to_side;
  weir_relu_back(g->result, g->back, samples * g->norm.width);
  memset(n->linear, 0, samples * g->norm.width * sizeof *n->linear);
  weir_status status = weir_norm_backward(m, &g->norm, samples, g->back, n->linear);
  if (!status)
    status = weir_affine_backward(m, &g->convolution, samples * pixels, g->patches, n->linear,
                                  below ? n->patches_back : NULL);
  for (size_t s = 0; s < samples && below && !status; s++)
    paste(g, n->patches_back + s * pixels * g->convolution.in,
          below + s * g->side * g->side * g->channels);
  return status;
}

static weir_status backward(weir_model *m) {
  cnn *n = m->own;
  const stage *top = &n->stage[STAGES - 1];
  weir_status status =
      weir_affine_backward(m, &n->last, m->outputs, top->result, m->logits, top->back);
  for (size_t i = STAGES; i-- > 0 && !status;)
    status = stage_backward(m, &n->stage[i], i ? n->stage[i - 1].back : NULL);
  return status;
}

const weir_model_kind weir_model_cnn = {.name = "cnn",
                                        .dataset = "fashion-mnist",
                                        .evaluated = 50,
                                        .sizes = {.channels = 24},
                                        .create = create,
                                        .init = init,
                                        .forward = forward,
                                        .backward = backward};

#include "lab/trainer.h"

#include <glib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/mlp.h"
#include "lab/trainer_state.h"

/* Of oneDNN's OpenMP runtime; declared here because <omp.h> is one compiler's own. */
void omp_set_num_threads(int threads);

enum { EVALUATE_ROWS = 200, NAME_MAX_BYTES = 24, PIXELS = 784, CLASSES = 10 };

/* One row a model: hidden layers of given widths between pixels and classes. */
typedef struct model_row {
  const char *name;
  size_t hidden;
  const size_t *width; /* of each hidden layer; NULL: all alike */
  size_t common;
} model_row;
static const size_t mlp_width[] = {1024, 256};
static const model_row models[] = {
    {"mlp", 2, mlp_width, 0},
    {"deep", 20, NULL, 224},
};

/* Mean and standard deviation of Fashion-MNIST's training pixels, scaled to [0, 1]. */
static const double pixel_mean = 0.2860, pixel_deviation = 0.3530;

/* What the hooks save and restore, bit for bit. */
typedef struct position {
  weir_rng rng;              /* source of the epochs' permutation seeds */
  uint64_t permutation_seed; /* of the order in force */
  uint64_t cursor;           /* samples of this order that all ranks have drawn */
  uint64_t step;             /* updates made */
} position;

/* A tensor: a weight, a slice of one, or a bias. */
typedef struct part {
  char name[NAME_MAX_BYTES];
  size_t offset, numel, rows;
  bool bias;
} part;

struct weir_trainer {
  weir_trainer_config config;
  uint64_t *decay_steps;
  const weir_dataset *data;
  weir_mlp mlp;
  float *momentum;
  float pixel[256];  /* normalised value of each byte */
  uint8_t *label;    /* of the batch drawn */
  uint32_t *order;   /* permutation of the training images */
  uint64_t order_of; /* permutation seed that order was made from */
  position at;
  const model_row *model;
  part *parts; /* [tensors] in backward order */
  size_t tensors;
  weir_status (*forward_over)(void *user);
};

static const model_row *find_model(const char *name) {
  for (size_t i = 0; name && i < sizeof models / sizeof *models; i++)
    if (!strcmp(models[i].name, name)) return &models[i];
  return NULL;
}

bool weir_trainer_knows(const char *model) { return find_model(model) != NULL; }

static weir_status check(const weir_trainer_config *c, const weir_dataset *data) {
  if (!find_model(c->model))
    return weir_fail(WEIR_E_INVALID, "model '%s' is unknown, expected 'mlp' or 'deep'",
                     c->model ? c->model : "");
  if (c->world_size < 1 || c->rank < 0 || c->rank >= c->world_size)
    return weir_fail(WEIR_E_INVALID, "rank %d of %d workers", c->rank, c->world_size);
  if (data->pixels != PIXELS)
    return weir_fail(WEIR_E_INVALID, "images of %zu pixels, expected %d", data->pixels, PIXELS);
  if (!c->batch || c->batch > data->train / (size_t)c->world_size)
    return weir_fail(WEIR_E_INVALID,
                     "a batch of %zu on each of %d workers, but there are %zu training images",
                     c->batch, c->world_size, data->train);
  if (!isfinite(c->learning_rate) || c->learning_rate <= 0)
    return weir_fail(WEIR_E_INVALID, "learning rate %g, expected more than 0", c->learning_rate);
  if (!(c->momentum >= 0 && c->momentum < 1))
    return weir_fail(WEIR_E_INVALID, "momentum %g, expected 0 <= momentum < 1", c->momentum);
  if (!isfinite(c->weight_decay) || c->weight_decay < 0)
    return weir_fail(WEIR_E_INVALID, "weight decay %g, expected 0 or more", c->weight_decay);
  if (c->decays && (!c->decay_steps || !isfinite(c->decay_factor) || c->decay_factor <= 0))
    return weir_fail(WEIR_E_INVALID, "decay steps need a decay factor above 0");
  for (size_t i = 1; i < c->decays; i++)
    if (c->decay_steps[i] <= c->decay_steps[i - 1])
      return weir_fail(WEIR_E_INVALID, "decay steps must ascend");
  if (!(c->layer_s >= 0 && isfinite(c->layer_s) && c->flop_s >= 0 && isfinite(c->flop_s)))
    return weir_fail(WEIR_E_INVALID, "%g s a layer and %g s an operation, expected 0 or more",
                     c->layer_s, c->flop_s);
  if (c->threads < 1)
    return weir_fail(WEIR_E_INVALID, "%d threads, expected 1 or more", c->threads);
  return WEIR_OK;
}

/* Fisher-Yates from the identity: a function of the seed alone. */
static void shuffle(weir_trainer *t) {
  const uint32_t images = (uint32_t)t->data->train;
  weir_rng rng;
  weir_rng_seed(&rng, t->at.permutation_seed);
  for (uint32_t i = 0; i < images; i++) t->order[i] = i;
  for (uint32_t i = images; i > 1; i--) {
    const uint32_t j = (uint32_t)weir_rng_below(&rng, i), swap = t->order[i - 1];
    t->order[i - 1] = t->order[j];
    t->order[j] = swap;
  }
  t->order_of = t->at.permutation_seed;
}

static void list_layer(weir_trainer *t, size_t l) {
  const weir_mlp *mlp = &t->mlp;
  for (size_t s = 0; s < mlp->slices[l]; s++) {
    part *p = &t->parts[t->tensors++];
    const size_t row = weir_mlp_slice_row(mlp, l, s), in = mlp->width[l];
    p->rows = weir_mlp_slice_row(mlp, l, s + 1) - row;
    p->offset = mlp->weight[l] + row * in;
    p->numel = p->rows * in;
    if (mlp->slices[l] > 1)
      (void)g_snprintf(p->name, sizeof p->name, "fc%zu.weight/%zu", l + 1, s);
    else
      (void)g_snprintf(p->name, sizeof p->name, "fc%zu.weight", l + 1);
  }
  part *p = &t->parts[t->tensors++];
  *p = (part){.offset = mlp->bias[l], .numel = mlp->width[l + 1], .rows = 1, .bias = true};
  (void)g_snprintf(p->name, sizeof p->name, "fc%zu.bias", l + 1);
}

static weir_status list_tensors(weir_trainer *t) {
  weir_mlp *mlp = &t->mlp;
  size_t most = mlp->layers;
  weir_mlp_slice(mlp, t->config.slice);
  for (size_t l = 0; l < mlp->layers; l++) most += mlp->slices[l];
  t->parts = calloc(most, sizeof *t->parts);
  if (!t->parts) return weir_fail(WEIR_E_NOMEM, "no memory for %zu tensors", most);
  for (size_t l = mlp->layers; l-- > 0;) list_layer(t, l);
  return WEIR_OK;
}

static weir_status allocate(weir_trainer *t) {
  const weir_trainer_config *c = &t->config;
  const size_t rows = c->batch > EVALUATE_ROWS ? c->batch : EVALUATE_ROWS;
  const model_row *model = t->model = find_model(c->model);
  size_t width[WEIR_MLP_LAYERS_MAX + 1] = {PIXELS};
  for (size_t l = 0; l < model->hidden; l++)
    width[l + 1] = model->width ? model->width[l] : model->common;
  width[model->hidden + 1] = CLASSES;
  weir_status status = weir_mlp_create(&t->mlp, model->hidden + 1, width, rows);
  if (!status) status = list_tensors(t);
  if (status) return status;
  t->momentum = calloc(t->mlp.parameters, sizeof *t->momentum);
  t->label = malloc(c->batch);
  t->order = malloc(t->data->train * sizeof *t->order);
  t->decay_steps = malloc((c->decays ? c->decays : 1) * sizeof *t->decay_steps);
  if (!t->momentum || !t->label || !t->order || !t->decay_steps)
    return weir_fail(WEIR_E_NOMEM, "no memory for the trainer");
  if (c->decays) memcpy(t->decay_steps, c->decay_steps, c->decays * sizeof *t->decay_steps);
  t->config.decay_steps = t->decay_steps;
  t->config.model = model->name;
  return WEIR_OK;
}

weir_status weir_trainer_create(weir_trainer **out, const weir_trainer_config *config,
                                const weir_dataset *data) {
  *out = NULL;
  weir_status status = check(config, data);
  if (status) return status;
  weir_trainer *t = calloc(1, sizeof *t);
  if (!t) return weir_fail(WEIR_E_NOMEM, "no memory for the trainer");
  t->config = *config;
  t->data = data;
  status = allocate(t);
  if (status) {
    weir_trainer_free(t);
    return status;
  }
  for (int i = 0; i < 256; i++) t->pixel[i] = (float)((i / 255.0 - pixel_mean) / pixel_deviation);
  weir_mlp_init(&t->mlp, config->seed);
  /* Another stream than the weights' own. */
  weir_rng_seed(&t->at.rng, config->seed ^ UINT64_C(0x5a3b1e0f9c7d2468));
  t->at.permutation_seed = weir_rng_next(&t->at.rng);
  shuffle(t);
  *out = t;
  return WEIR_OK;
}

void weir_trainer_free(weir_trainer *t) {
  if (!t) return;
  weir_mlp_free(&t->mlp);
  free(t->parts);
  free(t->momentum);
  free(t->label);
  free(t->order);
  free(t->decay_steps);
  free(t);
}

size_t weir_trainer_tensors(const weir_trainer *t) { return t->tensors; }

const char *weir_trainer_tensor_name(const weir_trainer *t, size_t tensor) {
  return t->parts[tensor].name;
}

size_t weir_trainer_tensor_numel(const weir_trainer *t, size_t tensor) {
  return t->parts[tensor].numel;
}

size_t weir_trainer_tensor_rows(const weir_trainer *t, size_t tensor) {
  return t->parts[tensor].rows;
}

float *weir_trainer_gradient(weir_trainer *t, size_t tensor) {
  return t->mlp.gradient + t->parts[tensor].offset;
}

static void load_images(weir_trainer *t, const uint8_t *image, size_t row) {
  float *to = t->mlp.activation[0] + row * t->data->pixels;
  for (size_t p = 0; p < t->data->pixels; p++) to[p] = t->pixel[image[p]];
}

/* Our slice of the next global batch; an order's rest that fills no whole batch is left out. */
static void draw(weir_trainer *t) {
  const size_t batch = t->config.batch, global = batch * (size_t)t->config.world_size;
  if (t->at.cursor + global > t->data->train) {
    t->at.permutation_seed = weir_rng_next(&t->at.rng);
    t->at.cursor = 0;
  }
  if (t->order_of != t->at.permutation_seed) shuffle(t);
  const uint32_t *mine = t->order + t->at.cursor + batch * (size_t)t->config.rank;
  for (size_t r = 0; r < batch; r++) {
    load_images(t, t->data->train_images + mine[r] * t->data->pixels, r);
    t->label[r] = t->data->train_labels[mine[r]];
  }
  t->at.cursor += global;
}

weir_status weir_trainer_backward(weir_trainer *t, double *loss) {
  omp_set_num_threads(t->config.threads); /* holds for the calling thread only */
  draw(t);
  t->mlp.layer_s = t->config.layer_s; /* evaluating does not wait */
  t->mlp.flop_s = t->config.flop_s;
  t->mlp.virtual_time = t->config.virtual_time;
  weir_status status = weir_mlp_forward(&t->mlp, t->config.batch);
  if (!status && t->forward_over) status = t->forward_over(t->mlp.user);
  if (!status) status = weir_mlp_backward(&t->mlp, t->config.batch, t->label, loss);
  t->mlp.layer_s = t->mlp.flop_s = 0;
  return status;
}

void weir_trainer_tell(weir_trainer *t, const weir_trainer_audience *audience) {
  t->mlp.user = audience->user;
  t->mlp.ready = audience->ready;
  t->forward_over = audience->forward;
}

/* v = mu v + g + wd w; w = w - lr v */
static void descend(float *restrict w, float *restrict v, const float *restrict g, size_t n,
                    float rate, float mu, float wd) {
  for (size_t i = 0; i < n; i++) {
    v[i] = mu * v[i] + g[i] + wd * w[i];
    w[i] -= rate * v[i];
  }
}

void weir_trainer_update(weir_trainer *t) {
  double rate = t->config.learning_rate;
  for (size_t i = 0; i < t->config.decays && t->config.decay_steps[i] <= t->at.step; i++)
    rate *= t->config.decay_factor;
  for (size_t i = 0; i < t->tensors; i++) {
    const size_t at = t->parts[i].offset;
    const float wd =
        t->parts[i].bias ? 0.0f : (float)t->config.weight_decay; /* biases do not decay */
    descend(t->mlp.parameter + at, t->momentum + at, t->mlp.gradient + at,
            weir_trainer_tensor_numel(t, i), (float)rate, (float)t->config.momentum, wd);
  }
  t->at.step++;
}

size_t weir_trainer_evaluate(weir_trainer *t, size_t first, size_t last) {
  omp_set_num_threads(t->config.threads);
  if (last > t->data->test) last = t->data->test;
  size_t correct = 0;
  while (first < last) {
    const size_t rows = last - first < EVALUATE_ROWS ? last - first : EVALUATE_ROWS;
    for (size_t r = 0; r < rows; r++)
      load_images(t, t->data->test_images + (first + r) * t->data->pixels, r);
    if (weir_mlp_forward(&t->mlp, rows)) return 0;
    for (size_t r = 0; r < rows; r++)
      correct += weir_mlp_class(&t->mlp, r) == t->data->test_labels[first + r];
    first += rows;
  }
  return correct;
}

void weir_trainer_weights_sha256(const weir_trainer *t, char hex[65]) {
  GChecksum *sum = g_checksum_new(G_CHECKSUM_SHA256);
  g_checksum_update(sum, (const guchar *)t->mlp.parameter,
                    (gssize)(t->mlp.parameters * sizeof(float)));
  (void)g_strlcpy(hex, g_checksum_get_string(sum), 65);
  g_checksum_free(sum);
}

float *weir_trainer_weights(weir_trainer *t, size_t *count) {
  *count = t->mlp.parameters;
  return t->mlp.parameter;
}

float *weir_trainer_momentum(weir_trainer *t, size_t *count) {
  *count = t->mlp.parameters;
  return t->momentum;
}

static size_t state_bytes(void *trainer) {
  (void)trainer;
  return sizeof(position);
}

static void state_save(void *trainer, void *to) {
  const weir_trainer *t = trainer;
  memcpy(to, &t->at, sizeof t->at);
}

/* The order itself is remade from its seed when the next batch is drawn. */
static void state_load(void *trainer, const void *from) {
  weir_trainer *t = trainer;
  memcpy(&t->at, from, sizeof t->at);
}

weir_state_hooks weir_trainer_hooks(weir_trainer *t) {
  return (weir_state_hooks){sizeof(weir_state_hooks), t, state_bytes, state_save, state_load};
}

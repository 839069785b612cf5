#include "lab/trainer.h"

#include <glib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/trainer_state.h"

/* What the hooks save and restore, bit for bit. */
typedef struct position {
  weir_rng rng;              /* source of the epochs' permutation seeds */
  uint64_t permutation_seed; /* of the order in force */
  uint64_t cursor;           /* samples of this order that all ranks have drawn */
  uint64_t step;             /* updates made */
} position;

struct weir_trainer {
  weir_trainer_config config;
  uint64_t *decay_steps;
  const weir_dataset *data;
  weir_model model;
  weir_optimizer optimizer;
  weir_update *updates; /* of a step, one a tensor */
  uint32_t *tested;     /* [chunk] numbers of the test samples of a pass */
  size_t chunk;         /* of an evaluation */
  uint32_t *order;      /* permutation of the training samples */
  uint64_t order_of;    /* permutation seed that order was made from */
  position at;
  weir_status (*forward_over)(void *user);
  weir_trainer_source source; /* all NULL: the data set itself */
  uint64_t ahead_of;          /* permutation seed of the order that it has been told; 0: none */
  uint32_t *mine;             /* our samples of an order, as it is told */
};

static weir_status check(const weir_trainer_config *c, const weir_dataset *data) {
  if (c->world_size < 1 || c->rank < 0 || c->rank >= c->world_size)
    return weir_fail(WEIR_E_INVALID, "rank %d of %d workers", c->rank, c->world_size);
  if (!c->batch || c->batch > data->train / (size_t)c->world_size)
    return weir_fail(WEIR_E_INVALID,
                     "a batch of %zu on each of %d workers, but there are %zu training samples",
                     c->batch, c->world_size, data->train);
  if (!isfinite(c->learning_rate) || c->learning_rate <= 0)
    return weir_fail(WEIR_E_INVALID, "learning rate %g, expected more than 0", c->learning_rate);
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
  const uint32_t samples = (uint32_t)t->data->train;
  weir_rng rng = weir_rng_of(t->at.permutation_seed);
  for (uint32_t i = 0; i < samples; i++) t->order[i] = i;
  for (uint32_t i = samples; i > 1; i--) {
    const uint32_t j = (uint32_t)weir_rng_below(&rng, i), swap = t->order[i - 1];
    t->order[i - 1] = t->order[j];
    t->order[j] = swap;
  }
  t->order_of = t->at.permutation_seed;
}

static weir_status create_optimizer(weir_trainer *t) {
  const weir_trainer_config *c = &t->config;
  size_t *numel = malloc((t->model.count + 1) * sizeof *numel);
  if (!numel) return weir_fail(WEIR_E_NOMEM, "no memory for the trainer");
  for (size_t i = 0; i < t->model.count; i++) numel[i] = t->model.tensors[i].numel;
  const weir_status status = weir_optimizer_create(&t->optimizer, &c->optimizer, numel,
                                                   t->model.count, c->rank, c->world_size);
  free(numel);
  return status;
}

static weir_status allocate(weir_trainer *t) {
  const weir_trainer_config *c = &t->config;
  const weir_model_kind *kind = weir_model_find(c->model);
  t->chunk = kind && kind->evaluated > c->batch ? kind->evaluated : c->batch;
  const weir_model_config model = {
      .name = c->model, .sizes = c->sizes, .samples = t->chunk, .slice = c->slice};
  weir_status status = weir_model_create(&t->model, &model, t->data);
  if (!status) status = create_optimizer(t);
  if (status) return status;
  t->updates = malloc(t->model.count * sizeof *t->updates);
  t->tested = malloc(t->chunk * sizeof *t->tested);
  t->order = malloc(t->data->train * sizeof *t->order);
  t->mine = malloc(t->data->train * sizeof *t->mine);
  t->decay_steps = malloc((c->decays ? c->decays : 1) * sizeof *t->decay_steps);
  if (!t->updates || !t->tested || !t->order || !t->mine || !t->decay_steps)
    return weir_fail(WEIR_E_NOMEM, "no memory for the trainer");
  if (c->decays) memcpy(t->decay_steps, c->decay_steps, c->decays * sizeof *t->decay_steps);
  t->config.decay_steps = t->decay_steps;
  t->config.model = t->model.kind->name;
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
  t->model.kind->init(&t->model, config->seed);
  /* Another stream than the weights' own. */
  t->at.rng = weir_rng_of(config->seed ^ UINT64_C(0x5a3b1e0f9c7d2468));
  t->at.permutation_seed = weir_rng_next(&t->at.rng);
  shuffle(t);
  *out = t;
  return WEIR_OK;
}

void weir_trainer_free(weir_trainer *t) {
  if (!t) return;
  weir_model_free(&t->model);
  weir_optimizer_free(&t->optimizer);
  free(t->updates);
  free(t->tested);
  free(t->order);
  free(t->mine);
  free(t->decay_steps);
  free(t);
}

size_t weir_trainer_tensors(const weir_trainer *t) { return t->model.count; }

const char *weir_trainer_tensor_name(const weir_trainer *t, size_t tensor) {
  return t->model.tensors[tensor].name;
}

size_t weir_trainer_tensor_numel(const weir_trainer *t, size_t tensor) {
  return t->model.tensors[tensor].numel;
}

size_t weir_trainer_tensor_rows(const weir_trainer *t, size_t tensor) {
  return t->model.tensors[tensor].rows;
}

float *weir_trainer_gradient(weir_trainer *t, size_t tensor) {
  return t->model.gradient + t->model.tensors[tensor].offset;
}

/* Our share of the next global batch; an order's rest that fills no whole batch is left out. */
static weir_batch draw(weir_trainer *t) {
  const size_t batch = t->config.batch, global = batch * (size_t)t->config.world_size;
  if (t->at.cursor + global > t->data->train) {
    t->at.permutation_seed = weir_rng_next(&t->at.rng);
    t->at.cursor = 0;
  }
  if (t->order_of != t->at.permutation_seed) shuffle(t);
  const uint32_t *mine = t->order + t->at.cursor + batch * (size_t)t->config.rank;
  t->at.cursor += global;
  return (weir_batch){.sample = mine, .count = batch};
}

/* Tell the source our share of the order from the batch that has just been drawn on. */
static weir_status tell_ahead(weir_trainer *t) {
  const size_t batch = t->config.batch, global = batch * (size_t)t->config.world_size;
  size_t count = 0;
  if (t->ahead_of == t->order_of) return WEIR_OK;
  for (size_t at = t->at.cursor - global; at + global <= t->data->train; at += global) {
    memcpy(t->mine + count, t->order + at + batch * (size_t)t->config.rank,
           batch * sizeof *t->mine);
    count += batch;
  }
  t->ahead_of = t->order_of;
  return t->source.ahead(t->source.user, t->mine, count);
}

static weir_status forward(weir_trainer *t) {
  weir_batch batch = draw(t);
  const weir_dataset *data = t->data;
  weir_status status = t->source.fetch ? tell_ahead(t) : WEIR_OK;
  if (!status && t->source.fetch) status = t->source.fetch(t->source.user, &batch, &data, &batch);
  if (status) return status;
  t->model.data = data;
  status = t->model.kind->forward(&t->model, &batch);
  t->model.data = t->data;
  return status;
}

void weir_trainer_read_from(weir_trainer *t, const weir_trainer_source *source) {
  t->source = *source;
}

weir_status weir_trainer_backward(weir_trainer *t, double *loss) {
  weir_product_threads(t->config.threads);
  t->model.pace = (weir_pace_of){.layer_s = t->config.layer_s, /* evaluating does not wait */
                                 .flop_s = t->config.flop_s,
                                 .virtual_time = t->config.virtual_time};
  t->model.step = t->at.step;
  weir_status status = forward(t);
  if (!status && t->forward_over) status = t->forward_over(t->model.user);
  if (!status) status = weir_model_backward(&t->model, loss);
  t->model.pace = (weir_pace_of){0};
  return status;
}

void weir_trainer_tell(weir_trainer *t, const weir_trainer_audience *audience) {
  t->model.user = audience->user;
  t->model.ready = audience->ready;
  t->forward_over = audience->forward;
}

static double rate_now(const weir_trainer *t) {
  const weir_trainer_config *c = &t->config;
  double rate = c->learning_rate;
  for (size_t i = 0; i < c->decays && c->decay_steps[i] <= t->at.step; i++) rate *= c->decay_factor;
  const uint64_t next = t->at.step + 1;
  return next < c->rate_warmup_steps ? rate * (double)next / (double)c->rate_warmup_steps : rate;
}

weir_status weir_trainer_update(weir_trainer *t, weir_session *session) {
  const double rate = rate_now(t);
  for (size_t i = 0; i < t->model.count; i++) {
    const weir_model_tensor *tensor = &t->model.tensors[i];
    t->updates[i] = (weir_update){.weight = t->model.parameter + tensor->offset,
                                  .gradient = t->model.gradient + tensor->offset,
                                  .offset = tensor->offset,
                                  .count = tensor->numel,
                                  .rate = rate,
                                  .step = t->at.step,
                                  .matrix = tensor->decays};
  }
  const weir_status status =
      weir_optimizer_update(&t->optimizer, session, t->updates, t->model.count);
  if (!status) t->at.step++;
  return status;
}

weir_status weir_trainer_evaluate(weir_trainer *t, size_t first, size_t last, weir_score *score) {
  weir_product_threads(t->config.threads);
  if (last > t->data->test) last = t->data->test;
  *score = (weir_score){0};
  for (size_t count; first < last; first += count) {
    count = last - first < t->chunk ? last - first : t->chunk;
    for (size_t i = 0; i < count; i++) t->tested[i] = (uint32_t)(first + i);
    const weir_batch batch = {.sample = t->tested, .count = count, .test = true};
    const weir_status status = t->model.kind->forward(&t->model, &batch);
    if (status) return status;
    weir_model_score(&t->model, score);
  }
  return WEIR_OK;
}

void weir_trainer_weights_sha256(const weir_trainer *t, char hex[65]) {
  GChecksum *sum = g_checksum_new(G_CHECKSUM_SHA256);
  g_checksum_update(sum, (const guchar *)t->model.parameter,
                    (gssize)(t->model.parameters * sizeof(float)));
  (void)g_strlcpy(hex, g_checksum_get_string(sum), 65);
  g_checksum_free(sum);
}

float *weir_trainer_weights(weir_trainer *t, size_t *count) {
  *count = t->model.parameters;
  return t->model.parameter;
}

float *weir_trainer_momentum(weir_trainer *t, size_t *count) {
  *count = t->optimizer.moments;
  return t->optimizer.first;
}

float *weir_trainer_second(weir_trainer *t, size_t *count) {
  *count = t->optimizer.second ? t->optimizer.moments : 0;
  return t->optimizer.second;
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

weir_status weir_trainer_go_on(weir_trainer *t, const void *from) {
  position at;
  memcpy(&at, from, sizeof at);
  if (at.cursor > t->data->train || !(at.rng.s[0] | at.rng.s[1] | at.rng.s[2] | at.rng.s[3]))
    return weir_fail(WEIR_E_PARSE, "a saved place among the samples cannot be");
  t->at = at;
  return WEIR_OK;
}

weir_state_hooks weir_trainer_hooks(weir_trainer *t) {
  return (weir_state_hooks){sizeof(weir_state_hooks), t, state_bytes, state_save, state_load};
}

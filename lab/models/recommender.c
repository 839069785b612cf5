/* A recommender: an embedding of every field's items, side by side, and a perceptron that says how
 * likely a click is.  Nearly all parameters are embeddings, and a batch leaves most of their
 * gradient's rows zero. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/models/layers.h"
#include "lab/models/model.h"

enum { FIELDS = WEIR_CLICK_FIELDS, WIDE = 64, NARROW = 32, CHANNELS_MAX = 128, AFFINE = 3 };

typedef struct recommender {
  size_t channels;            /* of an item's embedding */
  size_t embedding[FIELDS];   /* offsets */
  weir_affine affine[AFFINE]; /* from the embeddings up */
  float *input[AFFINE];       /* of each: the embeddings, hidden activations */
  float *back[AFFINE];        /* their gradients */
  const uint16_t **event;     /* [samples] */
} recommender;

static weir_status create(weir_model *m, const weir_model_config *config) {
  recommender *r = m->own = g_new0(recommender, 1);
  const size_t samples = config->samples;
  r->channels = config->sizes.channels;
  if (r->channels > CHANNELS_MAX)
    return weir_fail(WEIR_E_INVALID, "embeddings of %zu channels, expected 1 to %d", r->channels,
                     CHANNELS_MAX);
  const size_t width[AFFINE + 1] = {FIELDS * r->channels, WIDE, NARROW, 1};
  for (size_t l = AFFINE; l-- > 0;) {
    char name[32];
    (void)snprintf(name, sizeof name, "fc%zu", l + 1);
    r->affine[l] = weir_affine_add(m, width[l], width[l + 1], name);
    r->input[l] = weir_model_floats(m, samples * width[l]);
    r->back[l] = weir_model_floats(m, samples * width[l]);
  }
  for (size_t f = 0; f < FIELDS; f++)
    r->embedding[f] = weir_model_add(m, weir_click_items[f], r->channels, "items%zu", f + 1);
  m->classes = 1;
  m->logits = weir_model_floats(m, samples);
  m->label = (uint8_t *)weir_model_floats(m, samples / sizeof(float) + 1);
  r->event = (const uint16_t **)weir_model_floats(m, samples * sizeof *r->event / sizeof(float));
  return WEIR_OK;
}

static void init(weir_model *m, uint64_t seed) {
  const recommender *r = m->own;
  weir_rng rng = weir_rng_of(seed);
  memset(m->parameter, 0, m->parameters * sizeof *m->parameter);
  for (size_t l = 0; l < AFFINE; l++)
    weir_model_normal(m->parameter + r->affine[l].weight, r->affine[l].in * r->affine[l].out,
                      sqrt(2.0 / (double)r->affine[l].in), &rng);
  for (size_t f = 0; f < FIELDS; f++)
    weir_model_normal(m->parameter + r->embedding[f], weir_click_items[f] * r->channels, 0.1, &rng);
}

static void read_events(weir_model *m, const weir_batch *batch) {
  recommender *r = m->own;
  const size_t c = r->channels;
  for (size_t s = 0; s < batch->count; s++) {
    const size_t number = batch->sample[s] + (batch->test ? m->data->first_test : 0);
    r->event[s] = m->data->items + number * FIELDS;
    m->label[s] = m->data->clicked[number];
    for (size_t f = 0; f < FIELDS; f++)
      memcpy(r->input[0] + (s * FIELDS + f) * c,
             m->parameter + r->embedding[f] + r->event[s][f] * c, c * sizeof(float));
  }
  m->outputs = batch->count;
}

static weir_status forward(weir_model *m, const weir_batch *batch) {
  recommender *r = m->own;
  weir_status status = WEIR_OK;
  read_events(m, batch);
  for (size_t l = 0; l < AFFINE && !status; l++) {
    float *to = l + 1 < AFFINE ? r->input[l + 1] : m->logits;
    status = weir_affine_forward(m, &r->affine[l], m->outputs, r->input[l], to);
    if (l + 1 < AFFINE) weir_relu(to, m->outputs * r->affine[l].out);
  }
  return status;
}

static void embeddings_back(weir_model *m) {
  const recommender *r = m->own;
  const size_t c = r->channels;
  for (size_t f = 0; f < FIELDS; f++) {
    float *to = m->gradient + r->embedding[f];
    memset(to, 0, weir_click_items[f] * c * sizeof *to);
    for (size_t s = 0; s < m->outputs; s++)
      for (size_t j = 0; j < c; j++)
        to[r->event[s][f] * c + j] += r->back[0][(s * FIELDS + f) * c + j];
  }
}

static weir_status backward(weir_model *m) {
  recommender *r = m->own;
  weir_status status = WEIR_OK;
  for (size_t l = AFFINE; l-- > 0 && !status;) {
    const float *from = l + 1 < AFFINE ? r->back[l + 1] : m->logits;
    status = weir_affine_backward(m, &r->affine[l], m->outputs, r->input[l], from, r->back[l]);
    if (l) weir_relu_back(r->input[l], r->back[l], m->outputs * r->affine[l].in);
  }
  if (!status) embeddings_back(m);
  for (size_t f = 0; f < FIELDS && !status; f++) status = weir_model_tell(m);
  return status;
}

const weir_model_kind weir_model_recommender = {.name = "recommender",
                                                .dataset = "clicks",
                                                .evaluated = 256,
                                                .sizes = {.channels = 16},
                                                .create = create,
                                                .init = init,
                                                .forward = forward,
                                                .backward = backward};

/* A GPT (Radford et al. 2019) on bytes: embeddings of byte and position, layers of causal attention
 * and a perceptron behind layer norms, GELU, and logits by the embedding again (it is tied).  A
 * sample is a window of the text: the bytes of the context, and after each the one to be guessed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/models/layers.h"
#include "lab/models/model.h"

enum { BYTES = 256, HEAD = 32, LAYERS_MAX = 8, CHANNELS_MAX = 256, CONTEXT_MAX = 256 };

typedef struct layer {
  weir_affine mix, out, wide, narrow; /* queries, keys, values; of the heads; C to 4C; back */
  weir_norm before, between;
  float *attended, *mixed, *weight, *heads; /* inputs and results of the affine maps, in order */
  float *perceived, *hidden, *slope;
} layer;

typedef struct gpt {
  size_t layers, channels, context, heads;
  size_t samples;          /* of this pass */
  size_t bytes, positions; /* offsets of the embeddings */
  const uint8_t **window;  /* [samples] */
  weir_norm last;
  float *stream;                        /* of the residuals */
  float *final;                         /* normalised stream */
  float *back, *narrow, *wide, *scores; /* gradients on their way down */
  layer layer[LAYERS_MAX];
} gpt;

/* --- set-up ----------------------------------------------------------------------------------- */

static weir_status check(const weir_model *m, const gpt *g) {
  if (g->layers > LAYERS_MAX || g->channels > CHANNELS_MAX || g->channels % HEAD ||
      g->context > CONTEXT_MAX || g->context < 2)
    return weir_fail(WEIR_E_INVALID,
                     "a gpt of %zu layers, %zu channels and a context of %zu; expected 1 to %d "
                     "layers, a multiple of %d up to %d channels, and a context of 2 to %d",
                     g->layers, g->channels, g->context, LAYERS_MAX, HEAD, CHANNELS_MAX,
                     CONTEXT_MAX);
  if (m->data->context != g->context)
    return weir_fail(WEIR_E_INVALID, "windows of %zu bytes, and the model has a context of %zu",
                     m->data->context, g->context);
  return WEIR_OK;
}

/* In backward order: from the perceptron down to the norm before the attention. */
static void add_layer(weir_model *m, gpt *g, size_t l, size_t rows) {
  layer *y = &g->layer[l];
  const size_t c = g->channels;
  char name[32];
#define NAMED(part) (snprintf(name, sizeof name, "h%zu." part, l), name)
  y->narrow = weir_affine_add(m, 4 * c, c, NAMED("narrow"));
  y->wide = weir_affine_add(m, c, 4 * c, NAMED("wide"));
  y->between = weir_norm_add(m, rows, c, c, NAMED("ln2"));
  y->out = weir_affine_add(m, c, c, NAMED("out"));
  y->mix = weir_affine_add(m, c, 3 * c, NAMED("mix"));
  y->before = weir_norm_add(m, rows, c, c, NAMED("ln1"));
#undef NAMED
  y->attended = weir_model_floats(m, rows * c);
  y->mixed = weir_model_floats(m, rows * 3 * c);
  y->weight = weir_model_floats(m, rows * g->heads * g->context);
  y->heads = weir_model_floats(m, rows * c);
  y->perceived = weir_model_floats(m, rows * c);
  y->hidden = weir_model_floats(m, rows * 4 * c);
  y->slope = weir_model_floats(m, rows * 4 * c);
}

static weir_status create(weir_model *m, const weir_model_config *config) {
  gpt *g = m->own = g_new0(gpt, 1);
  g->layers = config->sizes.layers;
  g->channels = config->sizes.channels;
  g->context = config->sizes.context;
  g->heads = g->channels / HEAD;
  weir_status status = check(m, g);
  if (status) return status;
  const size_t rows = config->samples * g->context, c = g->channels;
  g->last = weir_norm_add(m, rows, c, c, "ln");
  for (size_t l = g->layers; l-- > 0;) add_layer(m, g, l, rows);
  g->positions = weir_model_add(m, g->context, c, "positions");
  g->bytes = weir_model_add(m, BYTES, c, "bytes");
  g->stream = weir_model_floats(m, rows * c);
  g->final = weir_model_floats(m, rows * c);
  g->back = weir_model_floats(m, rows * c);
  g->narrow = weir_model_floats(m, rows * c);
  g->wide = weir_model_floats(m, rows * 4 * c);
  g->scores = weir_model_floats(m, g->context * g->context);
  m->classes = BYTES;
  m->logits = weir_model_floats(m, rows * BYTES);
  m->label = (uint8_t *)weir_model_floats(m, rows / sizeof(float) + 1);
  g->window =
      (const uint8_t **)weir_model_floats(m, config->samples * sizeof *g->window / sizeof(float));
  return WEIR_OK;
}

/* As GPT-2: deviation 0.02, and less for what is added to the stream. */
static void init(weir_model *m, uint64_t seed) {
  const gpt *g = m->own;
  weir_rng rng = weir_rng_of(seed);
  for (size_t t = 0; t < m->count; t++) {
    const weir_model_tensor *tensor = &m->tensors[t];
    float *to = m->parameter + tensor->offset;
    const bool norm = strstr(tensor->name, "ln") && strstr(tensor->name, ".weight");
    const bool added = strstr(tensor->name, "narrow") || strstr(tensor->name, "out");
    if (tensor->decays)
      weir_model_normal(to, tensor->numel, added ? 0.02 / sqrt(2.0 * (double)g->layers) : 0.02,
                        &rng);
    else
      for (size_t i = 0; i < tensor->numel; i++) to[i] = norm ? 1.0f : 0.0f;
  }
}

/* --- attention -------------------------------------------------------------------------------- */

/* Row t may look at columns 0 to t: softmax over these, zero beyond. */
static void causal_softmax(float *score, size_t context) {
  for (size_t t = 0; t < context; t++) {
    float *row = score + t * context, most = row[0], sum = 0;
    for (size_t j = 1; j <= t; j++)
      if (row[j] > most) most = row[j];
    for (size_t j = 0; j <= t; j++) sum += row[j] = expf(row[j] - most);
    for (size_t j = 0; j <= t; j++) row[j] /= sum;
    memset(row + t + 1, 0, (context - 1 - t) * sizeof *row);
  }
}

/* From the gradient of its result to that of its scores. */
static void causal_softmax_back(const float *weight, float *score, size_t context) {
  for (size_t t = 0; t < context; t++) {
    const float *w = weight + t * context;
    float *row = score + t * context, mean = 0;
    for (size_t j = 0; j <= t; j++) mean += w[j] * row[j];
    for (size_t j = 0; j <= t; j++) row[j] = w[j] * (row[j] - mean);
    memset(row + t + 1, 0, (context - 1 - t) * sizeof *row);
  }
}

/* One head of one sample: where its queries, keys and values are in an array of rows of 3C. */
typedef struct head {
  weir_operand query, key, value;
  float *to[3];  /* their gradients */
  float *weight; /* context x context */
  size_t at;     /* in an array of rows of C */
} head;

static head find_head(const gpt *g, const layer *y, size_t s, size_t h) {
  const size_t c = g->channels, t = g->context, at = s * t * 3 * c + h * HEAD;
  head found = {.weight = y->weight + (s * g->heads + h) * t * t, .at = s * t * c + h * HEAD};
  found.query = (weir_operand){y->mixed + at, 3 * c, false};
  found.key = (weir_operand){y->mixed + at + c, 3 * c, false};
  found.value = (weir_operand){y->mixed + at + 2 * c, 3 * c, false};
  for (size_t i = 0; i < 3; i++) found.to[i] = g->wide + at + i * c;
  return found;
}

static weir_operand turned(weir_operand o) {
  o.transposed = !o.transposed;
  return o;
}

static const float score_scale = 0.17677670f; /* 1 / sqrt(HEAD) */

static weir_status attend(weir_model *m, const layer *y) {
  const gpt *g = m->own;
  const size_t t = g->context;
  weir_status status = WEIR_OK;
  for (size_t i = 0; i < g->samples * g->heads && !status; i++) {
    const head h = find_head(g, y, i / g->heads, i % g->heads);
    const weir_product scores = {.m = t,
                                 .n = t,
                                 .k = HEAD,
                                 .a = h.query,
                                 .b = turned(h.key),
                                 .c = h.weight,
                                 .alpha = score_scale};
    status = weir_product_run(&m->pace, &scores);
    causal_softmax(h.weight, t);
    const weir_product values = {.m = t,
                                 .n = HEAD,
                                 .k = t,
                                 .a = {h.weight, t, false},
                                 .b = h.value,
                                 .c = y->heads + h.at,
                                 .stride = g->channels};
    if (!status) status = weir_product_run(&m->pace, &values);
  }
  return status;
}

/* From the gradient of the heads' results in g->narrow to those of queries, keys and values in
 * g->wide, rows of 3C. */
static weir_status attend_back(weir_model *m, const layer *y) {
  const gpt *g = m->own;
  const size_t t = g->context, c = g->channels;
  weir_status status = WEIR_OK;
  for (size_t i = 0; i < g->samples * g->heads && !status; i++) {
    const head h = find_head(g, y, i / g->heads, i % g->heads);
    const weir_operand from = {g->narrow + h.at, c, false}, weight = {h.weight, t, false};
    const weir_operand score = {g->scores, t, false};
    const weir_product value = {
        .m = t, .n = HEAD, .k = t, .a = turned(weight), .b = from, .c = h.to[2], .stride = 3 * c};
    const weir_product scores = {
        .m = t, .n = t, .k = HEAD, .a = from, .b = turned(h.value), .c = g->scores};
    const weir_product query = {.m = t,
                                .n = HEAD,
                                .k = t,
                                .a = score,
                                .b = h.key,
                                .c = h.to[0],
                                .stride = 3 * c,
                                .alpha = score_scale};
    const weir_product key = {.m = t,
                              .n = HEAD,
                              .k = t,
                              .a = turned(score),
                              .b = h.query,
                              .c = h.to[1],
                              .stride = 3 * c,
                              .alpha = score_scale};
    status = weir_product_run(&m->pace, &value);
    if (!status) status = weir_product_run(&m->pace, &scores);
    causal_softmax_back(h.weight, g->scores, t);
    if (!status) status = weir_product_run(&m->pace, &query);
    if (!status) status = weir_product_run(&m->pace, &key);
  }
  return status;
}

/* --- a pass ----------------------------------------------------------------------------------- */

static void read_windows(weir_model *m, const weir_batch *batch) {
  gpt *g = m->own;
  const uint8_t *text = batch->test ? m->data->test_text : m->data->train_text;
  const size_t t = g->context, c = g->channels;
  for (size_t s = 0; s < batch->count; s++) {
    const uint8_t *window = g->window[s] = text + batch->sample[s] * t;
    memcpy(m->label + s * t, window + 1, t);
    for (size_t i = 0; i < t; i++) {
      const float *byte = m->parameter + g->bytes + window[i] * c;
      const float *position = m->parameter + g->positions + i * c;
      for (size_t j = 0; j < c; j++) g->stream[(s * t + i) * c + j] = byte[j] + position[j];
    }
  }
  g->samples = batch->count;
  m->outputs = batch->count * t;
}

static void add(float *restrict to, const float *restrict what, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] += what[i];
}

static weir_status layer_forward(weir_model *m, layer *y) {
  gpt *g = m->own;
  const size_t rows = m->outputs, c = g->channels;
  weir_norm_forward(m, &y->before, rows, g->stream, y->attended);
  weir_status status = weir_affine_forward(m, &y->mix, rows, y->attended, y->mixed);
  if (!status) status = attend(m, y);
  if (!status) status = weir_affine_forward(m, &y->out, rows, y->heads, g->narrow);
  if (status) return status;
  add(g->stream, g->narrow, rows * c);
  weir_norm_forward(m, &y->between, rows, g->stream, y->perceived);
  status = weir_affine_forward(m, &y->wide, rows, y->perceived, y->hidden);
  if (status) return status;
  weir_gelu(y->hidden, y->slope, rows * 4 * c);
  status = weir_affine_forward(m, &y->narrow, rows, y->hidden, g->narrow);
  if (!status) add(g->stream, g->narrow, rows * c);
  return status;
}

static weir_status forward(weir_model *m, const weir_batch *batch) {
  gpt *g = m->own;
  const size_t c = g->channels;
  weir_status status = WEIR_OK;
  read_windows(m, batch);
  for (size_t l = 0; l < g->layers && !status; l++) status = layer_forward(m, &g->layer[l]);
  if (status) return status;
  weir_norm_forward(m, &g->last, m->outputs, g->stream, g->final);
  return weir_product_run(&m->pace, &(weir_product){.m = m->outputs,
                                                    .n = BYTES,
                                                    .k = c,
                                                    .a = {g->final, c, false},
                                                    .b = {m->parameter + g->bytes, c, true},
                                                    .c = m->logits});
}

static weir_status layer_backward(weir_model *m, layer *y) {
  gpt *g = m->own;
  const size_t rows = m->outputs, c = g->channels;
  weir_status status = weir_affine_backward(m, &y->narrow, rows, y->hidden, g->back, g->wide);
  if (status) return status;
  for (size_t i = 0; i < rows * 4 * c; i++) g->wide[i] *= y->slope[i];
  status = weir_affine_backward(m, &y->wide, rows, y->perceived, g->wide, g->narrow);
  if (!status) status = weir_norm_backward(m, &y->between, rows, g->narrow, g->back);
  if (!status) status = weir_affine_backward(m, &y->out, rows, y->heads, g->back, g->narrow);
  if (!status) status = attend_back(m, y);
  if (!status) status = weir_affine_backward(m, &y->mix, rows, y->attended, g->wide, g->narrow);
  return status ? status : weir_norm_backward(m, &y->before, rows, g->narrow, g->back);
}

/* The embeddings are read last; that of bytes has its part from the logits already. */
static weir_status embeddings_backward(weir_model *m) {
  const gpt *g = m->own;
  const size_t t = g->context, c = g->channels;
  float *positions = m->gradient + g->positions, *bytes = m->gradient + g->bytes;
  memset(positions, 0, t * c * sizeof *positions);
  for (size_t s = 0; s < g->samples; s++) {
    add(positions, g->back + s * t * c, t * c);
    for (size_t i = 0; i < t; i++) add(bytes + g->window[s][i] * c, g->back + (s * t + i) * c, c);
  }
  const weir_status status = weir_model_tell(m);
  return status ? status : weir_model_tell(m);
}

static weir_status backward(weir_model *m) {
  gpt *g = m->own;
  const size_t rows = m->outputs, c = g->channels;
  const weir_operand logits = {m->logits, BYTES, false};
  const weir_product embedding = {.m = BYTES,
                                  .n = c,
                                  .k = rows,
                                  .a = turned(logits),
                                  .b = {g->final, c, false},
                                  .c = m->gradient + g->bytes};
  const weir_product below = {.m = rows,
                              .n = c,
                              .k = BYTES,
                              .a = logits,
                              .b = {m->parameter + g->bytes, c, false},
                              .c = g->narrow};
  weir_status status = weir_product_run(&m->pace, &embedding);
  if (!status) status = weir_product_run(&m->pace, &below);
  memset(g->back, 0, rows * c * sizeof *g->back);
  if (!status) status = weir_norm_backward(m, &g->last, rows, g->narrow, g->back);
  for (size_t l = g->layers; l-- > 0 && !status;) status = layer_backward(m, &g->layer[l]);
  return status ? status : embeddings_backward(m);
}

const weir_model_kind weir_model_gpt = {.name = "gpt",
                                        .dataset = "fortunes",
                                        .sizes = {3, 96, 64},
                                        .create = create,
                                        .init = init,
                                        .forward = forward,
                                        .backward = backward};

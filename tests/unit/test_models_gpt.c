/* The GPT against its definition in double. */
#include "model_check.h"

enum { C = 64, T = 5, HEAD = 32, LAYERS = 2, BYTES = 256 };

static void affine(const double *w, const double *b, size_t in, size_t out, const double *x,
                   double *y) {
  for (size_t o = 0; o < out; o++) {
    y[o] = b[o];
    for (size_t i = 0; i < in; i++) y[o] += w[o * in + i] * x[i];
  }
}

static void layer_norm(const double *w, const double *b, const double *x, double *y) {
  double mean = 0, variance = 0;
  for (size_t j = 0; j < C; j++) mean += x[j] / C;
  for (size_t j = 0; j < C; j++) variance += (x[j] - mean) * (x[j] - mean) / C;
  for (size_t j = 0; j < C; j++) y[j] = (x[j] - mean) / sqrt(variance + 1e-5) * w[j] + b[j];
}

/* What a head makes of position t of one window: its part of the queries, keys and values. */
static void attend(double mixed[T][3 * C], size_t t, size_t head, double *out) {
  const size_t first = head * HEAD;
  double weight[T], sum = 0;
  for (size_t j = 0; j <= t; j++) {
    double score = 0;
    for (size_t c = first; c < first + HEAD; c++) score += mixed[t][c] * mixed[j][C + c];
    sum += weight[j] = exp(score / sqrt(HEAD));
  }
  for (size_t c = first; c < first + HEAD; c++) {
    out[c] = 0;
    for (size_t j = 0; j <= t; j++) out[c] += weight[j] / sum * mixed[j][2 * C + c];
  }
}

static double gelu(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static const double *find(const weir_model *m, const double *p, size_t layer, const char *part) {
  char name[32];
  (void)snprintf(name, sizeof name, "h%zu.%s", layer, part);
  return p + tensor_at(m, name);
}

static void run_layer(const weir_model *m, const double *p, size_t l, double x[T][C]) {
#define OF(part) find(m, p, l, part ".weight"), find(m, p, l, part ".bias")
  double y[C], mixed[T][3 * C], wide[4 * C];
  for (size_t t = 0; t < T; t++) {
    layer_norm(OF("ln1"), x[t], y);
    affine(OF("mix"), C, 3 * C, y, mixed[t]);
  }
  for (size_t t = 0; t < T; t++) {
    double heads[C];
    for (size_t h = 0; h < C / HEAD; h++) attend(mixed, t, h, heads);
    affine(OF("out"), C, C, heads, y);
    for (size_t j = 0; j < C; j++) x[t][j] += y[j];
    layer_norm(OF("ln2"), x[t], y);
    affine(OF("wide"), C, 4 * C, y, wide);
    for (size_t j = 0; j < 4 * C; j++) wide[j] = gelu(wide[j]);
    affine(OF("narrow"), 4 * C, C, wide, y);
    for (size_t j = 0; j < C; j++) x[t][j] += y[j];
  }
#undef OF
}

static double definition_of_gpt(const weir_model *m, const weir_batch *batch, const double *p) {
  const double *bytes = p + tensor_at(m, "bytes"), *positions = p + tensor_at(m, "positions");
  double total = 0;
  for (size_t s = 0; s < batch->count; s++) {
    const uint8_t *text = m->data->train_text + batch->sample[s] * T;
    double x[T][C];
    for (size_t t = 0; t < T; t++)
      for (size_t j = 0; j < C; j++) x[t][j] = bytes[text[t] * C + j] + positions[t * C + j];
    for (size_t l = 0; l < LAYERS; l++) run_layer(m, p, l, x);
    for (size_t t = 0; t < T; t++) {
      double y[C], logit[BYTES];
      layer_norm(p + tensor_at(m, "ln.weight"), p + tensor_at(m, "ln.bias"), x[t], y);
      for (size_t b = 0; b < BYTES; b++) {
        logit[b] = 0;
        for (size_t j = 0; j < C; j++) logit[b] += bytes[b * C + j] * y[j];
      }
      total += cross_entropy(logit, BYTES, text[t + 1]);
    }
  }
  return total / (double)(batch->count * T);
}

static weir_model make_gpt(const weir_dataset *data, weir_model_sizes sizes) {
  weir_model m;
  const weir_model_config config = {.name = "gpt", .sizes = sizes, .samples = 3};
  cr_assert_eq(weir_model_create(&m, &config, data), WEIR_OK, "%s", weir_last_error());
  m.kind->init(&m, 4);
  return m;
}

Test(models_gpt, loss_and_gradient_are_those_of_the_definition) {
  weir_dataset data = small_text(T, 20);
  weir_model m = make_gpt(&data, (weir_model_sizes){LAYERS, C, T, ""});
  stir(&m, 9, 0.1);
  const uint32_t windows[2] = {3, 17};
  check_gradient(&m, &(weir_batch){.sample = windows, .count = 2}, definition_of_gpt, 337, 3e-5);
  weir_model_free(&m);
  weir_dataset_free(&data);
}

/* Two heads of 32 channels: 2 norms, embeddings of 256 bytes and 6 positions, and a layer of
 * 12 C^2 + 13 C parameters. */
Test(models_gpt, tensors_and_initial_weights) {
  weir_dataset data = small_text(6, 4);
  weir_model m = make_gpt(&data, (weir_model_sizes){3, 64, 6, ""});
  cr_assert_eq(m.parameters, 3 * (12 * 64 * 64 + 13 * 64) + 2 * 64 + (256 + 6) * 64);
  cr_assert_eq(m.count, 3 * 12 + 4);
  cr_assert_str_eq(m.tensors[0].name, "ln.weight");
  cr_assert_str_eq(m.tensors[2].name, "h2.narrow.weight");
  cr_assert_str_eq(m.tensors[m.count - 1].name, "bytes");
  cr_assert(m.tensors[m.count - 1].decays && !m.tensors[0].decays);
  const float *bytes = m.parameter + tensor_at(&m, "bytes");
  double square = 0;
  for (size_t i = 0; i < 256 * 64; i++) square += (double)bytes[i] * (double)bytes[i];
  /* Five standard errors of the variance 0.02^2. */
  cr_assert_float_eq(square / (256 * 64), 4e-4, 5 * 4e-4 * sqrt(2.0 / (256 * 64)));
  cr_assert_eq(m.parameter[tensor_at(&m, "h1.ln1.weight")], 1.0f);
  cr_assert_eq(m.parameter[tensor_at(&m, "h1.ln1.bias")], 0.0f);
  weir_model_free(&m);
  weir_dataset_free(&data);
}

/* What comes later in a window changes no guess before it. */
Test(models_gpt, no_guess_sees_what_follows) {
  weir_dataset data = small_text(6, 4);
  weir_model m = make_gpt(&data, (weir_model_sizes){3, 64, 6, ""});
  const uint32_t first = 0;
  const weir_batch batch = {.sample = &first, .count = 1};
  float before[6 * 256];
  cr_assert_eq(m.kind->forward(&m, &batch), WEIR_OK);
  memcpy(before, m.logits, sizeof before);
  data.train_text[4] ^= 1;
  cr_assert_eq(m.kind->forward(&m, &batch), WEIR_OK);
  cr_assert_eq(memcmp(before, m.logits, 4 * 256 * sizeof(float)), 0);
  cr_assert_neq(memcmp(before + 4 * 256, m.logits + 4 * 256, 256 * sizeof(float)), 0);
  weir_model_free(&m);
  weir_dataset_free(&data);
}

Test(models_gpt, bad_sizes) {
  weir_dataset data = small_text(6, 4);
  const weir_model_sizes bad[] = {
      {9, 64, 6, ""}, {1, 48, 6, ""}, {1, 288, 6, ""}, {1, 64, 7, ""}, {1, 64, 1, ""}};
  for (size_t i = 0; i < 5; i++) {
    weir_model m;
    const weir_model_config config = {.name = "gpt", .sizes = bad[i], .samples = 1};
    cr_assert_eq(weir_model_create(&m, &config, &data), WEIR_E_INVALID, "%zu", i);
  }
  weir_dataset_free(&data);
}

/* The recommender against its definition in double, and the clicks that it learns. */
#include "model_check.h"

enum { FIELDS = WEIR_CLICK_FIELDS, C = 2, EVENTS = 5 };

static double relu(double x) { return fmax(x, 0); }

static void affine(const weir_model *m, const double *p, const char *name, size_t in, size_t out,
                   const double *x, double *y) {
  char tensor[32];
  (void)snprintf(tensor, sizeof tensor, "%s.weight", name);
  const double *w = p + tensor_at(m, tensor);
  (void)snprintf(tensor, sizeof tensor, "%s.bias", name);
  const double *b = p + tensor_at(m, tensor);
  for (size_t o = 0; o < out; o++) {
    y[o] = b[o];
    for (size_t i = 0; i < in; i++) y[o] += w[o * in + i] * x[i];
  }
}

static double definition_of_recommender(const weir_model *m, const weir_batch *batch,
                                        const double *p) {
  double total = 0;
  for (size_t s = 0; s < batch->count; s++) {
    const size_t e = batch->sample[s];
    double x[FIELDS * C], wide[64], narrow[32], z;
    for (size_t f = 0; f < FIELDS; f++)
      for (size_t j = 0; j < C; j++) {
        char name[16];
        (void)snprintf(name, sizeof name, "items%zu", f + 1);
        x[f * C + j] = p[tensor_at(m, name) + m->data->items[e * FIELDS + f] * C + j];
      }
    affine(m, p, "fc1", FIELDS * C, 64, x, wide);
    for (size_t i = 0; i < 64; i++) wide[i] = relu(wide[i]);
    affine(m, p, "fc2", 64, 32, wide, narrow);
    for (size_t i = 0; i < 32; i++) narrow[i] = relu(narrow[i]);
    affine(m, p, "fc3", 32, 1, narrow, &z);
    total += log(1 + exp(m->data->clicked[e] ? -z : z));
  }
  return total / (double)batch->count;
}

Test(models_recommender, loss_and_gradient_are_those_of_the_definition) {
  weir_dataset data;
  cr_assert_eq(weir_dataset_clicks(&data, 1), WEIR_OK);
  weir_model m;
  const weir_model_config config = {
      .name = "recommender", .sizes = {.channels = C}, .samples = EVENTS};
  cr_assert_eq(weir_model_create(&m, &config, &data), WEIR_OK, "%s", weir_last_error());
  m.kind->init(&m, 2);
  stir(&m, 3, 0.2);
  const uint32_t events[EVENTS] = {0, 7, 100, 299999, 7};
  const weir_batch batch = {.sample = events, .count = EVENTS};
  check_gradient(&m, &batch, definition_of_recommender, 7, 2e-5);
  /* Four events touch 4 rows of a field at the most, of 19750 rows in all. */
  size_t touched = 0;
  const size_t begin = tensor_at(&m, "items1");
  for (size_t i = begin; i < m.parameters; i += C) touched += m.gradient[i] != 0.0f;
  cr_assert_eq((m.parameters - begin) / C, 19750);
  cr_assert(touched >= FIELDS && touched <= 4 * FIELDS, "%zu rows", touched);
  /* The test set stays what it is, however few events are trained on. */
  const weir_batch tested = {.sample = (const uint32_t[]){0, 9999}, .count = 2, .test = true};
  data.train = 100;
  cr_assert_eq(m.kind->forward(&m, &tested), WEIR_OK);
  const float answers[] = {m.logits[0], m.logits[1]};
  const weir_batch same = {.sample = (const uint32_t[]){300000, 309999}, .count = 2};
  cr_assert_eq(m.kind->forward(&m, &same), WEIR_OK);
  cr_assert_eq(memcmp(answers, m.logits, sizeof answers), 0);
  weir_model_free(&m);
  weir_dataset_free(&data);
}

/* Item n of V comes with probability log((n + 2) / (n + 1)) / log(V + 1). */
Test(models_recommender, items_come_as_zipf_says) {
  weir_dataset data;
  cr_assert_eq(weir_dataset_clicks(&data, 5), WEIR_OK);
  size_t clicks = 0;
  for (size_t n = 0; n < 3; n++) {
    size_t seen = 0;
    for (size_t e = 0; e < data.train; e++) seen += data.items[e * FIELDS] == n;
    const double events = (double)data.train;
    const double share = log((double)(n + 2) / (double)(n + 1)) / log(8001);
    cr_assert_float_eq((double)seen / events, share, 5 * sqrt(share / events), "item %zu", n);
  }
  for (size_t e = 0; e < data.train; e++) {
    clicks += data.clicked[e];
    for (size_t f = 0; f < FIELDS; f++)
      cr_assert_lt(data.items[e * FIELDS + f], weir_click_items[f]);
  }
  cr_assert(clicks > data.train / 5 && clicks < data.train * 4 / 5, "%zu clicks", clicks);
  weir_dataset same, other;
  cr_assert_eq(weir_dataset_clicks(&same, 5), WEIR_OK);
  cr_assert_eq(weir_dataset_clicks(&other, 6), WEIR_OK);
  cr_assert_eq(memcmp(data.items, same.items, data.train * FIELDS * sizeof *same.items), 0);
  cr_assert_eq(memcmp(data.clicked, same.clicked, data.train), 0);
  cr_assert_neq(memcmp(data.clicked, other.clicked, data.train), 0);
  weir_dataset_free(&data);
  weir_dataset_free(&same);
  weir_dataset_free(&other);
}

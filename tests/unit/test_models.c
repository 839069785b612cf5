/* What holds of every model of the lab: it learns, alike for a seed, and hands over its gradients
 * in order; and the scores of the test set. */
#include <unistd.h>

#include "model_check.h"
#include "trainer_data.h"

typedef struct course {
  const char *model;
  weir_model_sizes sizes;
  weir_optimizer_config optimizer;
  double rate;
  int steps;
  double below; /* the last batches' loss over the first's */
} course;

static const course courses[] = {
    {"cnn", {0, 4, 0, ""}, {"sgd", 0.9, 0, 0, false}, 0.05, 60, 0.5},
    {"cnn", {0, 4, 0, ""}, {"lars", 0.9, 0, 1e-4, false}, 5, 60, 0.7},
    {"gpt", {1, 32, 8, ""}, {"adamw", 0.9, 0.99, 0.01, false}, 0.01, 150, 0.2},
    {"gpt", {2, 32, 8, ""}, {"lamb", 0.9, 0.99, 0.01, false}, 0.03, 150, 0.5},
    {"recommender", {0, 4, 0, ""}, {"adamw", 0.9, 0.999, 0, false}, 0.01, 300, 0.87},
};

static weir_dataset data_of(const course *c) {
  weir_dataset data;
  if (!strcmp(c->model, "gpt")) return small_text(8, 60);
  if (strcmp(c->model, "recommender")) return synthetic();
  cr_assert_eq(weir_dataset_clicks(&data, 3), WEIR_OK);
  return data;
}

static weir_trainer *make_trainer(const course *c, const weir_dataset *data, uint64_t seed) {
  weir_trainer_config config = plain();
  config.model = c->model;
  config.sizes = c->sizes;
  config.optimizer = c->optimizer;
  config.learning_rate = c->rate;
  config.rate_warmup_steps = 10;
  config.seed = seed;
  config.batch = data->train > 1000 ? 256 : 8;
  return make(&config, data);
}

/* The loss of the first batch, and the mean of the last ten. */
static void learn(weir_trainer *t, int steps, double *first, double *last) {
  *last = 0;
  for (int i = 0; i < steps; i++) {
    double loss = 0;
    cr_assert_eq(weir_trainer_backward(t, &loss), WEIR_OK);
    cr_assert_eq(weir_trainer_update(t, NULL), WEIR_OK);
    if (!i) *first = loss;
    if (i >= steps - 10) *last += loss / 10;
  }
}

Test(models, learn_alike_for_a_seed) {
  for (size_t i = 0; i < sizeof courses / sizeof *courses; i++) {
    const course *c = &courses[i];
    weir_dataset data = data_of(c);
    char hex[3][65];
    for (size_t k = 0; k < 3; k++) {
      weir_trainer *t = make_trainer(c, &data, k < 2 ? 5 : 6);
      double first = 0, last = 0;
      learn(t, k ? 20 : c->steps, &first, &last);
      if (!k)
        cr_assert_lt(last, c->below * first, "%s, %s: %g, then %g", c->model, c->optimizer.name,
                     first, last);
      weir_trainer_free(t);
    }
    for (size_t k = 0; k < 3; k++) {
      weir_trainer *t = make_trainer(c, &data, k < 2 ? 5 : 6);
      train(t, 12);
      weir_trainer_weights_sha256(t, hex[k]);
      weir_trainer_free(t);
    }
    cr_assert_str_eq(hex[0], hex[1]);
    cr_assert_str_neq(hex[0], hex[2]);
    weir_dataset_free(&data);
  }
}

typedef struct listener {
  weir_trainer *trainer;
  size_t told;
  double norm[64];
} listener;

static weir_status hear(void *user, size_t tensor) {
  listener *l = user;
  cr_assert_eq(tensor, l->told);
  l->norm[l->told++] = norm_of(l->trainer, tensor);
  return WEIR_OK;
}

/* Every tensor once, when its gradient is final; gradients lie one behind the other. */
Test(models, tell_of_gradients_as_they_become_ready) {
  for (size_t i = 0; i < sizeof courses / sizeof *courses; i++) {
    weir_dataset data = data_of(&courses[i]);
    weir_trainer *t = make_trainer(&courses[i], &data, 5);
    listener l = {.trainer = t};
    double loss = 0;
    weir_trainer_tell(t, &(weir_trainer_audience){.user = &l, .ready = hear});
    cr_assert_eq(weir_trainer_backward(t, &loss), WEIR_OK);
    cr_assert_eq(l.told, weir_trainer_tensors(t), "%s: %zu", courses[i].model, l.told);
    for (size_t k = 0; k < l.told; k++) {
      cr_assert_eq(l.norm[k], norm_of(t, k), "%s: %s", courses[i].model,
                   weir_trainer_tensor_name(t, k));
      cr_assert_gt(l.norm[k], 0, "%s: %s", courses[i].model, weir_trainer_tensor_name(t, k));
      if (k)
        cr_assert_eq(weir_trainer_gradient(t, k),
                     weir_trainer_gradient(t, k - 1) + weir_trainer_tensor_numel(t, k - 1));
    }
    weir_trainer_free(t);
    weir_dataset_free(&data);
  }
}

/* However the test set is divided into ranges, its answers add up to the same. */
Test(models, scores_add_up) {
  for (size_t i = 0; i < sizeof courses / sizeof *courses; i++) {
    weir_dataset data = data_of(&courses[i]);
    weir_trainer *t = make_trainer(&courses[i], &data, 5);
    const size_t test = data.test, each = data.context ? data.context : 1;
    weir_score whole, part[2];
    cr_assert_eq(weir_trainer_evaluate(t, 0, test, &whole), WEIR_OK);
    cr_assert_eq(weir_trainer_evaluate(t, 0, test / 3, &part[0]), WEIR_OK);
    cr_assert_eq(weir_trainer_evaluate(t, test / 3, test, &part[1]), WEIR_OK);
    cr_assert_eq(whole.answers, test * each);
    cr_assert_eq(whole.answers, part[0].answers + part[1].answers);
    cr_assert_eq(whole.right, part[0].right + part[1].right);
    cr_assert_float_eq(whole.loss, part[0].loss + part[1].loss, 1e-4 * whole.loss);
    weir_trainer_free(t);
    weir_dataset_free(&data);
  }
}

/* Logits 2 and -1 of a yes or no, and of three classes, by hand. */
Test(models, losses_by_hand) {
  float logit[3] = {2, 0, -1};
  const double sum = exp(2) + 1 + exp(-1);
  const double loss = weir_cross_entropy(logit, 3, 2, 0.5f);
  cr_assert_float_eq(loss, log(sum) + 1, 1e-6);
  cr_assert_float_eq((double)logit[0], 0.5 * exp(2) / sum, 1e-6);
  cr_assert_float_eq((double)logit[2], 0.5 * (exp(-1) / sum - 1), 1e-6);
  float z[2] = {2, -1};
  uint8_t label[2] = {0, 0};
  weir_model m = {.outputs = 2, .classes = 1, .logits = z, .label = label};
  weir_score score = {0};
  weir_model_score(&m, &score);
  cr_assert_eq(score.right, 1);
  cr_assert_float_eq(score.loss, log(1 + exp(2)) + log(1 + exp(-1)), 1e-6);
  cr_assert_float_eq((double)z[0], 1 / (1 + exp(-2)), 1e-6);
}

Test(models, refuse_what_does_not_fit) {
  weir_dataset images = synthetic(), text = small_text(8, 20);
  weir_trainer_config c = plain();
  c.model = "gpt";
  refused(c, &images, "fortunes");
  c.model = "mlp";
  refused(c, &text, "fashion-mnist");
  c.model = "cnn";
  c.sizes.channels = 4;
  c.slice = 100;
  refused(c, &images, "slices");
  c.slice = 0;
  c.sizes.channels = 200;
  refused(c, &images, "channels");
  c = plain();
  c.optimizer.name = "adam";
  refused(c, &images, "optimizer 'adam'");
  c.optimizer.name = "adamw";
  c.optimizer.beta2 = 1;
  refused(c, &images, "beta2");
  weir_dataset_free(&images);
  weir_dataset_free(&text);
}

static weir_status note_first(void *first_s, size_t tensor) {
  if (tensor == 0) *(double *)first_s = weir_now_s();
  return WEIR_OK;
}

/* The first gradient is copied for milliseconds, and is ready at once where the profile was made.
 * What that is behind is caught up with in the gap of 10 ms, though a tensor without a gap is in
 * between. */
Test(models, gaps_of_a_shape_are_kept_over_tensors_without_any) {
  const weir_dataset data = {.name = "fashion-mnist"};
  char path[] = "/tmp/weir-shape-XXXXXX";
  const int file = mkstemp(path);
  cr_assert(file >= 0 && dprintf(file, "tensor,numel,gap_us\na,4000000,1\nb,1,0\nc,1,10000\n") > 0);
  weir_model_config config = {.name = "shaped", .samples = 1};
  (void)g_strlcpy(config.sizes.shape, path, sizeof config.sizes.shape);
  weir_model m;
  cr_assert_eq(weir_model_create(&m, &config, &data), WEIR_OK, "%s", weir_last_error());
  m.kind->init(&m, 1);
  double behind = INFINITY; /* by which part of the first a pass was too long, at the least */
  for (int pass = 0; pass < 8; pass++) {
    double first_s = 0, loss;
    m.ready = note_first;
    m.user = &first_s;
    cr_assert_eq(m.kind->forward(&m, &(weir_batch){.count = 1}), WEIR_OK);
    const double begin = weir_now_s();
    cr_assert_eq(weir_model_backward(&m, &loss), WEIR_OK);
    const double share = (weir_now_s() - begin - 0.010001) / (first_s - begin);
    behind = fmin(behind, share);
  }
  cr_assert_lt(behind, 0.5);
  weir_model_free(&m);
  cr_assert_eq(close(file) | unlink(path), 0);
}

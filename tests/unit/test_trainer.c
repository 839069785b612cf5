/* The lab's trainer: its batches, updates and checkpoints, to the bit. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../held.h"
#include "base/base.h"
#include "lab/trainer.h"
#include "lab/trainer_state.h"
#include "trainer_data.h"

Test(trainer, tensors_in_backward_order) {
  weir_dataset data = synthetic();
  const weir_trainer_config config = plain();
  weir_trainer *t = make(&config, &data);
  const char *name[] = {"fc3.weight", "fc3.bias",   "fc2.weight",
                        "fc2.bias",   "fc1.weight", "fc1.bias"};
  const size_t numel[] = {2560, 10, 262144, 256, 802816, 1024};
  cr_assert_eq(weir_trainer_tensors(t), 6);
  for (size_t i = 0; i < 6; i++) {
    cr_assert_str_eq(weir_trainer_tensor_name(t, i), name[i]);
    cr_assert_eq(weir_trainer_tensor_numel(t, i), numel[i]);
    if (i)
      cr_assert_eq(weir_trainer_gradient(t, i), weir_trainer_gradient(t, i - 1) + numel[i - 1]);
  }
  size_t count = 0;
  (void)weir_trainer_weights(t, &count);
  cr_assert_eq(count, 1068810);
  weir_trainer_free(t);
  weir_trainer_free(NULL);
  weir_dataset_free(&data);
}

/* With one image a batch the first layer's gradient is delta x pixels: the odd pixel is the
 * image's number times ten. */
static size_t image_drawn(weir_trainer *t) {
  const float *g = weir_trainer_gradient(t, 4);
  size_t row = 0;
  while (row < 1024 && g[row * PIXELS + 1] == 0.0f) row++; /* pixel 1 is black in all */
  cr_assert_lt(row, 1024);
  for (size_t i = 0; i < IMAGES; i++)
    if (fabsf(g[row * PIXELS + 10 * i]) > 2 * fabsf(g[row * PIXELS + 1])) return i;
  cr_assert_fail("no image stands out");
  return 0;
}

Test(trainer, an_epoch_shows_every_image_once_over_all_ranks) {
  weir_dataset data = synthetic();
  weir_trainer *rank[2];
  for (int r = 0; r < 2; r++) {
    weir_trainer_config config = plain();
    config.world_size = 2;
    config.rank = r;
    config.batch = 1;
    rank[r] = make(&config, &data);
  }
  size_t order[2][IMAGES];
  for (int epoch = 0; epoch < 2; epoch++) {
    int seen[IMAGES] = {0};
    for (size_t i = 0; i < IMAGES; i++) {
      double loss = 0;
      cr_assert_eq(weir_trainer_backward(rank[i % 2], &loss), WEIR_OK);
      order[epoch][i] = image_drawn(rank[i % 2]);
      seen[order[epoch][i]]++;
    }
    for (size_t i = 0; i < IMAGES; i++) cr_assert_eq(seen[i], 1, "image %zu: %d times", i, seen[i]);
  }
  cr_assert_neq(memcmp(order[0], order[1], sizeof order[0]), 0);
  for (int r = 0; r < 2; r++) weir_trainer_free(rank[r]);
  weir_dataset_free(&data);
}

Test(trainer, ranks_average_is_the_global_batch) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  config.batch = 16;
  weir_trainer *whole = make(&config, &data);
  size_t count = 0;
  (void)weir_trainer_weights(whole, &count);
  double loss = 0, mean_loss = 0;
  cr_assert_eq(weir_trainer_backward(whole, &loss), WEIR_OK);
  FREED double *mean = calloc(count, sizeof *mean);
  cr_assert(mean);
  for (int r = 0; r < 4; r++) {
    config.world_size = 4;
    config.rank = r;
    config.batch = 4;
    weir_trainer *t = make(&config, &data);
    double own = 0;
    cr_assert_eq(weir_trainer_backward(t, &own), WEIR_OK);
    mean_loss += own / 4;
    for (size_t i = 0; i < count; i++) mean[i] += (double)weir_trainer_gradient(t, 0)[i] / 4;
    weir_trainer_free(t);
  }
  cr_assert_float_eq(mean_loss, loss, 1e-6);
  for (size_t i = 0; i < count; i++)
    cr_assert_float_eq((double)weir_trainer_gradient(whole, 0)[i], mean[i], 1e-6);
  weir_trainer_free(whole);
  weir_dataset_free(&data);
}

Test(trainer, same_seed_same_bits) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  weir_trainer *a = make(&config, &data), *b = make(&config, &data);
  config.seed = 6;
  weir_trainer *c = make(&config, &data);
  char first[65], hex[3][65];
  weir_trainer_weights_sha256(a, first);
  train(a, 30);
  train(b, 30);
  train(c, 30);
  weir_trainer_weights_sha256(a, hex[0]);
  weir_trainer_weights_sha256(b, hex[1]);
  weir_trainer_weights_sha256(c, hex[2]);
  cr_assert_eq(strlen(first), 64);
  cr_assert_str_neq(hex[0], first);
  cr_assert_str_eq(hex[0], hex[1]);
  cr_assert_str_neq(hex[0], hex[2]);
  weir_trainer_free(a);
  weir_trainer_free(b);
  weir_trainer_free(c);
  weir_dataset_free(&data);
}

/* Saved in the middle of an epoch, restored in the next one: the same bits follow. */
Test(trainer, restored_state_continues_bit_for_bit) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  const uint64_t decay = 12;
  config.decay_steps = &decay;
  config.decays = 1;
  config.decay_factor = 0.5;
  weir_trainer *t = make(&config, &data);
  train(t, 9);
  size_t count = 0;
  float *weights = weir_trainer_weights(t, &count), *momentum = weir_trainer_momentum(t, &count);
  const weir_state_hooks hooks = weir_trainer_hooks(t);
  FREED float *kept = malloc(2 * count * sizeof *kept);
  FREED void *position = malloc(hooks.bytes(hooks.user));
  cr_assert(kept && position);
  memcpy(kept, weights, count * sizeof *kept);
  memcpy(kept + count, momentum, count * sizeof *kept);
  hooks.save(hooks.user, position);
  train(t, 8); /* 12 steps an epoch: over its end, and over the decay */
  char once[65], again[65], other[65];
  weir_trainer_weights_sha256(t, once);
  memcpy(weights, kept, count * sizeof *kept);
  memcpy(momentum, kept + count, count * sizeof *kept);
  train(t, 8); /* position not restored: other images, another rate */
  weir_trainer_weights_sha256(t, other);
  memcpy(weights, kept, count * sizeof *kept);
  memcpy(momentum, kept + count, count * sizeof *kept);
  hooks.load(hooks.user, position);
  train(t, 8);
  weir_trainer_weights_sha256(t, again);
  cr_assert_str_eq(again, once);
  cr_assert_str_neq(other, once);
  weir_trainer_free(t);
  weir_dataset_free(&data);
}

/* Noise, too, is of a step: the same when a trial is rolled back, or a run goes on, and other in
 * the next step. */
Test(trainer, shaped_noise_goes_with_the_position) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  static const char profile[] = "tensor,numel,gap_us\na,40,0\nb,300,0\n";
  char path[] = "/tmp/weir-shape-XXXXXX";
  const int file = mkstemp(path);
  cr_assert(file >= 0 && write(file, profile, strlen(profile)) == (ssize_t)strlen(profile));
  (void)close(file);
  config.model = "shaped";
  config.batch = 1;
  (void)snprintf(config.sizes.shape, sizeof config.sizes.shape, "%s", path);
  weir_trainer *t = make(&config, &data);
  (void)unlink(path);
  enum { ALL = 340 };
  float first[ALL], second[ALL];
  const weir_state_hooks hooks = weir_trainer_hooks(t);
  FREED void *position = malloc(hooks.bytes(hooks.user));
  cr_assert(position);
  train(t, 3);
  hooks.save(hooks.user, position);
  train(t, 1);
  memcpy(first, weir_trainer_gradient(t, 0), sizeof first);
  train(t, 1);
  memcpy(second, weir_trainer_gradient(t, 0), sizeof second);
  hooks.load(hooks.user, position);
  train(t, 1);
  cr_assert_arr_eq(weir_trainer_gradient(t, 0), first, sizeof first);
  train(t, 1);
  cr_assert_arr_eq(weir_trainer_gradient(t, 0), second, sizeof second);
  cr_assert_arr_neq(first, second, sizeof first);
  weir_trainer_free(t);
  weir_dataset_free(&data);
}

/* v = mu v + g + wd w; w -= lr v, by hand with g = 1, mu 0.5, wd 0.1, lr 0.2, then halved. */
Test(trainer, update_by_hand) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  const uint64_t decay = 1;
  config.learning_rate = 0.2;
  config.optimizer.momentum = 0.5;
  config.optimizer.weight_decay = 0.1;
  config.decay_factor = 0.5;
  config.decay_steps = &decay;
  config.decays = 1;
  weir_trainer *t = make(&config, &data);
  size_t count = 0;
  float *w = weir_trainer_weights(t, &count);
  const size_t bias = 2560; /* of fc3, behind its weight */
  w[0] = 2.0f;
  w[bias] = 2.0f;
  for (size_t i = 0; i < count; i++) weir_trainer_gradient(t, 0)[i] = 1.0f;
  cr_assert_eq(weir_trainer_update(t, NULL),
               WEIR_OK); /* weight: v = 1.2, w = 1.76; bias: v = 1, w = 1.8 */
  cr_assert_float_eq((double)w[0], 1.76, 1e-6);
  cr_assert_float_eq((double)w[bias], 1.8, 1e-6);
  cr_assert_eq(weir_trainer_update(t, NULL),
               WEIR_OK); /* weight: v = 0.6 + 1 + 0.176, w = 1.76 - 0.1776; bias: v = 1.5 */
  cr_assert_float_eq((double)w[0], 1.5824, 1e-6);
  cr_assert_float_eq((double)w[bias], 1.65, 1e-6);
  weir_trainer_free(t);
  weir_dataset_free(&data);
}

static uint64_t right(weir_trainer *t, size_t first, size_t last) {
  weir_score score;
  cr_assert_eq(weir_trainer_evaluate(t, first, last, &score), WEIR_OK);
  cr_assert_eq(score.answers, (last < TESTS ? last : TESTS) - first);
  return score.right;
}

/* A model whose last bias names a class answers that class always. */
Test(trainer, evaluate_counts_correct_answers) {
  weir_dataset data = synthetic();
  const weir_trainer_config config = plain();
  weir_trainer *t = make(&config, &data);
  size_t count = 0;
  float *w = weir_trainer_weights(t, &count);
  memset(w, 0, count * sizeof *w);
  w[2560 + 3] = 1.0f;
  cr_assert_eq(right(t, 0, TESTS), 3); /* labels i mod 10: 3, 13, 23 */
  cr_assert_eq(right(t, 4, TESTS), 2);
  cr_assert_eq(right(t, 3, 4), 1);
  cr_assert_eq(right(t, 0, 1000), 3);
  cr_assert_eq(right(t, 9, 9), 0);
  weir_trainer_free(t);
  weir_dataset_free(&data);
}

Test(trainer, bad_configurations) {
  weir_dataset data = synthetic();
  const uint64_t falling[2] = {9, 3};
  weir_trainer_config c = plain();
#define REFUSED(field, value, word) (c = plain(), c.field = (value), refused(c, &data, word))
  REFUSED(model, "wide", "model 'wide'");
  REFUSED(model, NULL, "model");
  REFUSED(world_size, 0, "rank");
  REFUSED(rank, 1, "rank");
  REFUSED(rank, -1, "rank");
  REFUSED(batch, 0, "batch");
  REFUSED(batch, IMAGES + 1, "batch");
  REFUSED(learning_rate, 0, "learning rate");
  REFUSED(learning_rate, NAN, "learning rate");
  REFUSED(optimizer.momentum, 1, "momentum");
  REFUSED(optimizer.momentum, NAN, "momentum");
  REFUSED(optimizer.weight_decay, -1, "weight decay");
  REFUSED(optimizer.weight_decay, INFINITY, "weight decay");
  REFUSED(decays, 1, "decay");
  REFUSED(threads, 0, "threads");
#undef REFUSED
  c = plain();
  c.decays = 2;
  c.decay_steps = falling;
  refused(c, &data, "ascend");
  data.pixels = 100;
  refused(plain(), &data, "pixels");
  weir_dataset_free(&data);
}

/* Gradients as they become ready, tensors in slices, and computing as if a slower or another
 * processor did it. */

/* --- told while backward goes on ------------------------------------------------------------- */

typedef struct listener {
  weir_trainer *trainer;
  size_t told, forward;
  double norm[64]; /* of each gradient when it was ready */
  size_t stop;
} listener;

static weir_status hear_forward(void *user) {
  listener *l = user;
  cr_assert_eq(l->told, 0);
  l->forward++;
  return WEIR_OK;
}

static weir_status hear_ready(void *user, size_t tensor) {
  listener *l = user;
  cr_assert_eq(tensor, l->told, "tensor %zu comes as number %zu", tensor, l->told);
  if (l->told == l->stop) return weir_fail(WEIR_E_STATE, "enough");
  l->norm[l->told++] = norm_of(l->trainer, tensor);
  return WEIR_OK;
}

static void listen_to(const char *model, size_t tensors) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  config.model = model;
  listener l = {.trainer = make(&config, &data), .stop = SIZE_MAX};
  cr_assert_eq(weir_trainer_tensors(l.trainer), tensors);
  weir_trainer_tell(l.trainer, &(weir_trainer_audience){&l, hear_forward, hear_ready});
  double loss = 0;
  cr_assert_eq(weir_trainer_backward(l.trainer, &loss), WEIR_OK);
  cr_assert_eq(l.told, tensors);
  cr_assert_eq(l.forward, 1);
  /* What was told is final. */
  for (size_t t = 0; t < tensors; t++) cr_assert_eq(l.norm[t], norm_of(l.trainer, t), "%zu", t);
  l.told = 0;
  l.stop = 3;
  cr_assert_eq(weir_trainer_backward(l.trainer, &loss), WEIR_E_STATE);
  cr_assert_eq(l.told, 3);
  weir_trainer_free(l.trainer);
  weir_dataset_free(&data);
}

Test(trainer, tells_of_gradients_as_they_become_ready) {
  listen_to("mlp", 6);
  listen_to("deep", 42);
  cr_assert(weir_model_find("mlp") && weir_model_find("deep"));
  cr_assert(!weir_model_find("wide") && !weir_model_find(NULL));
}

/* --- slices and paces ------------------------------------------------------------------------ */

/* 200 000 elements are 255 rows of 784 and 195 of 1024 (784 and 1024 inputs): 1024 outputs in 5
 * slices, 256 in 2; slice s of S begins with row outputs * s / S. */
Test(trainer, slices_are_tensors_of_whole_rows) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  config.slice = 200000;
  listener l = {.trainer = make(&config, &data), .stop = SIZE_MAX};
  weir_trainer *t = l.trainer;
  const char *name[] = {"fc3.weight",   "fc3.bias",     "fc2.weight/0", "fc2.weight/1",
                        "fc2.bias",     "fc1.weight/0", "fc1.weight/1", "fc1.weight/2",
                        "fc1.weight/3", "fc1.weight/4", "fc1.bias"};
  const size_t rows[] = {10, 1, 128, 128, 1, 204, 205, 205, 205, 205, 1};
  const size_t columns[] = {256, 10, 1024, 1024, 256, 784, 784, 784, 784, 784, 1024};
  cr_assert_eq(weir_trainer_tensors(t), 11);
  for (size_t i = 0; i < 11; i++) {
    cr_assert_str_eq(weir_trainer_tensor_name(t, i), name[i]);
    cr_assert_eq(weir_trainer_tensor_rows(t, i), rows[i], "%s", name[i]);
    cr_assert_eq(weir_trainer_tensor_numel(t, i), rows[i] * columns[i], "%s", name[i]);
    if (i)
      cr_assert_eq(weir_trainer_gradient(t, i),
                   weir_trainer_gradient(t, i - 1) + rows[i - 1] * columns[i - 1]);
  }
  weir_trainer_tell(t, &(weir_trainer_audience){&l, hear_forward, hear_ready});
  double loss = 0;
  cr_assert_eq(weir_trainer_backward(t, &loss), WEIR_OK);
  cr_assert_eq(l.told, 11);
  for (size_t i = 0; i < 11; i++) cr_assert_eq(l.norm[i], norm_of(t, i), "%s", name[i]);
  weir_trainer_free(t);
  weir_dataset_free(&data);
}

/* Slices hold what whole tensors do (the products may be rounded otherwise), and decay alike. */
Test(trainer, slices_change_no_gradient) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  weir_trainer *whole = make(&config, &data);
  config.slice = 50000;
  weir_trainer *sliced = make(&config, &data);
  train(whole, 3);
  train(sliced, 3);
  size_t count = 0, same = 0;
  const float *a = weir_trainer_weights(whole, &count), *b = weir_trainer_weights(sliced, &same);
  cr_assert_eq(count, same);
  for (size_t i = 0; i < count; i++) cr_assert_float_eq(a[i], b[i], 1e-5, "%zu", i);
  weir_trainer_free(whole);
  weir_trainer_free(sliced);
  weir_dataset_free(&data);
}

/* 4 images: 2 * 4 * (784 * 1024 + 1024 * 256 + 256 * 10) operations forward; backward as many for
 * the weights, and 2 * 4 * (1024 * 256 + 256 * 10) for the activations below. */
Test(trainer, a_slower_processor_is_waited_for) {
  weir_dataset data = synthetic();
  weir_trainer_config config = plain();
  config.flop_s = 1e-9;
  config.slice = 100000;
  weir_trainer *t = make(&config, &data);
  double loss = 0;
  double begin = weir_now_s();
  cr_assert_eq(weir_trainer_backward(t, &loss), WEIR_OK);
  cr_assert_geq(weir_now_s() - begin, 19.19e-3); /* 19.197 ms */
  weir_trainer_free(t);
  config.virtual_time = true; /* passes at once, and counts all the same */
  config.flop_s = 1e-6;
  t = make(&config, &data);
  begin = weir_now_s();
  const double computed = weir_thread_cpu_s();
  cr_assert_eq(weir_trainer_backward(t, &loss), WEIR_OK);
  cr_assert_geq(weir_thread_cpu_s() - computed, 19.19);
  cr_assert_lt(weir_now_s() - begin, 10);
  weir_trainer_free(t);
  config.virtual_time = false;
  config.flop_s = 0;
  config.layer_s = 2e-3;
  t = make(&config, &data);
  begin = weir_now_s();
  cr_assert_eq(weir_trainer_backward(t, &loss), WEIR_OK);
  cr_assert_geq(weir_now_s() - begin, 17.99e-3); /* 3 layers, 2 + 4 ms each */
  weir_trainer_free(t);
  config.flop_s = -1;
  refused(config, &data, "operation");
  weir_dataset_free(&data);
}

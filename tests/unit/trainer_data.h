/* What the trainer's tests train on. */
#ifndef WEIR_TESTS_TRAINER_DATA_H
#define WEIR_TESTS_TRAINER_DATA_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/trainer.h"

enum { IMAGES = 48, TESTS = 30, PIXELS = 784 };

/* Image i is black but for pixel 10 i: its number can be read off a gradient. */
static inline weir_dataset synthetic(void) {
  weir_dataset data = {.name = "fashion-mnist", .train = IMAGES, .test = TESTS, .pixels = PIXELS};
  data.train_images = calloc(IMAGES, PIXELS);
  data.train_labels = calloc(IMAGES, 1);
  data.test_images = calloc(TESTS, PIXELS);
  data.test_labels = calloc(TESTS, 1);
  cr_assert(data.train_images && data.train_labels && data.test_images && data.test_labels);
  for (size_t i = 0; i < IMAGES; i++) {
    data.train_images[i * PIXELS + 10 * i] = 255;
    data.train_labels[i] = (uint8_t)(i % 10);
  }
  for (size_t i = 0; i < TESTS; i++) {
    data.test_images[i * PIXELS + 10 * i] = 255;
    data.test_labels[i] = (uint8_t)(i % 10);
  }
  return data;
}

static inline weir_trainer_config plain(void) {
  return (weir_trainer_config){.model = "mlp",
                               .seed = 5,
                               .world_size = 1,
                               .batch = 4,
                               .learning_rate = 0.05,
                               .optimizer = {.momentum = 0.9, .weight_decay = 5e-4},
                               .decay_factor = 1,
                               .threads = 1};
}

static inline weir_trainer *make(const weir_trainer_config *config, const weir_dataset *data) {
  weir_trainer *trainer = NULL;
  cr_assert_eq(weir_trainer_create(&trainer, config, data), WEIR_OK, "%s", weir_last_error());
  return trainer;
}

static inline void train(weir_trainer *trainer, int steps) {
  for (int i = 0; i < steps; i++) {
    double loss = 0;
    cr_assert_eq(weir_trainer_backward(trainer, &loss), WEIR_OK);
    cr_assert_eq(weir_trainer_update(trainer, NULL), WEIR_OK);
  }
}

/* The square of a gradient's norm. */
static inline double norm_of(weir_trainer *t, size_t tensor) {
  const float *g = weir_trainer_gradient(t, tensor);
  double sum = 0;
  for (size_t i = 0; i < weir_trainer_tensor_numel(t, tensor); i++)
    sum += (double)g[i] * (double)g[i];
  return sum;
}

/* Creating one fails and says the word. */
static inline void refused(weir_trainer_config config, const weir_dataset *data, const char *word) {
  weir_trainer *trainer = NULL;
  cr_assert_eq(weir_trainer_create(&trainer, &config, data), WEIR_E_INVALID);
  cr_assert_null(trainer);
  cr_assert(strstr(weir_last_error(), word), "'%s' does not say '%s'", weir_last_error(), word);
}

#endif

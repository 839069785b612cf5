/* Gradients as they become ready, tensors in slices, and computing as if a slower or another
 * processor did it. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/base.h"
#include "lab/trainer.h"
#include "lab/trainer_state.h"
#include "trainer_data.h"

/* --- told while backward goes on ------------------------------------------------------------- */

typedef struct listener {
  weir_trainer *trainer;
  size_t told, forward;
  double norm[64]; /* of each gradient when it was ready */
  size_t stop;
} listener;

static double norm_of(weir_trainer *t, size_t tensor) {
  const float *g = weir_trainer_gradient(t, tensor);
  double sum = 0;
  for (size_t i = 0; i < weir_trainer_tensor_numel(t, tensor); i++)
    sum += (double)g[i] * (double)g[i];
  return sum;
}

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

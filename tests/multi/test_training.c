/* Real images: one worker learns. */
#include <criterion/criterion.h>

#include "lab/trainer.h"

Test(training, three_hundred_steps_pass_eighty_percent) {
  weir_dataset data;
  cr_assert_eq(weir_dataset_load(&data, NULL), WEIR_OK, "%s", weir_last_error());
  const weir_trainer_config config = {.model = "mlp",
                                      .seed = 1,
                                      .world_size = 1,
                                      .batch = 64,
                                      .learning_rate = 0.05,
                                      .momentum = 0.9,
                                      .weight_decay = 5e-4,
                                      .decay_factor = 1,
                                      .threads = 1};
  weir_trainer *trainer = NULL;
  cr_assert_eq(weir_trainer_create(&trainer, &config, &data), WEIR_OK, "%s", weir_last_error());
  const size_t untrained = weir_trainer_evaluate(trainer, 0, data.test);
  double first = 0, loss = 0;
  cr_assert_eq(weir_trainer_backward(trainer, &first), WEIR_OK);
  for (int step = 0; step < 300; step++) {
    weir_trainer_update(trainer);
    cr_assert_eq(weir_trainer_backward(trainer, &loss), WEIR_OK);
  }
  cr_assert_lt(untrained, 4000);
  cr_assert_lt(loss, first / 2);
  cr_assert_gt(weir_trainer_evaluate(trainer, 0, data.test), 8000);
  weir_trainer_free(trainer);
  weir_dataset_free(&data);
}

/* Real images: one worker learns. */
#include <criterion/criterion.h>

#include "lab/demo.h"

static uint64_t right(weir_demo *demo) {
  weir_score score;
  cr_assert_eq(weir_trainer_evaluate(demo->trainer, 0, demo->images.test, &score), WEIR_OK);
  return score.right;
}

Test(training, three_hundred_steps_pass_eighty_percent) {
  weir_demo demo;
  cr_assert_eq(weir_demo_open(&demo, 1, 0.05, 0.9), WEIR_OK, "%s", weir_last_error());
  const uint64_t untrained = right(&demo);
  double first = 0, loss = 0;
  cr_assert_eq(weir_trainer_backward(demo.trainer, &first), WEIR_OK);
  for (int step = 0; step < 300; step++) {
    cr_assert_eq(weir_trainer_update(demo.trainer, NULL), WEIR_OK);
    cr_assert_eq(weir_trainer_backward(demo.trainer, &loss), WEIR_OK);
  }
  cr_assert_lt(untrained, 4000);
  cr_assert_lt(loss, first / 2);
  cr_assert_gt(right(&demo), 8000);
  weir_demo_close(&demo);
}

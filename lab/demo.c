/* The demo's trainer by itself; demo.h. */
#include "lab/demo.h"

weir_status weir_demo_open(weir_demo *demo, uint64_t seed, double learning_rate, double momentum) {
  const weir_trainer_config config = {.model = "mlp",
                                      .seed = seed,
                                      .world_size = 1,
                                      .batch = 64,
                                      .learning_rate = learning_rate,
                                      .optimizer = {.momentum = momentum, .weight_decay = 5e-4},
                                      .decay_factor = 1,
                                      .threads = 1};
  *demo = (weir_demo){0};
  weir_status status = weir_dataset_load(&demo->images, NULL);
  if (status != WEIR_OK) return status;
  status = weir_trainer_create(&demo->trainer, &config, &demo->images);
  if (status != WEIR_OK) {
    weir_demo_close(demo);
    return status;
  }
  for (size_t t = 0; t < weir_trainer_tensors(demo->trainer); t++)
    demo->elements += weir_trainer_tensor_numel(demo->trainer, t);
  demo->gradient = weir_trainer_gradient(demo->trainer, 0);
  return WEIR_OK;
}

void weir_demo_close(weir_demo *demo) {
  weir_trainer_free(demo->trainer);
  weir_dataset_free(&demo->images);
  *demo = (weir_demo){0};
}

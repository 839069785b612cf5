/* The demo's trainer by itself: one worker, the smaller model, real images; whose gradients are
 * what kernels and gain curves are held against. */
#ifndef WEIR_LAB_DEMO_H
#define WEIR_LAB_DEMO_H

#include "lab/trainer.h"

typedef struct weir_demo {
  weir_dataset images; /* the Debian package's */
  weir_trainer *trainer;
  size_t elements;
  float *gradient; /* of all tensors, one after another, as backward() leaves it; the trainer's */
} weir_demo;

/* Batches of 64, weight decay 5e-4.  No images here: WEIR_E_IO, and nothing is open. */
weir_status weir_demo_open(weir_demo *demo, uint64_t seed, double learning_rate, double momentum);
void weir_demo_close(weir_demo *demo); /* also of what was not opened, all zeros */

#endif

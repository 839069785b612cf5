/* What the lab's models learn from: images, text or clicks, with a training and a test set whose
 * samples have numbers. */
#ifndef WEIR_LAB_DATASET_H
#define WEIR_LAB_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

typedef struct weir_dataset {
  const char *name;
  size_t train, test; /* samples */
  /* fashion-mnist: an image a sample */
  size_t pixels; /* per image: 784 */
  uint8_t *train_images, *train_labels, *test_images, *test_labels;
  /* fortunes: a sample is the window of context + 1 bytes that begins at its number times the
   * context */
  size_t context;
  uint8_t *train_text, *test_text;
  /* clicks: an event a sample, an item of each field and whether there was a click; the training
   * events, then the test events */
  uint16_t *items; /* WEIR_CLICK_FIELDS an event */
  uint8_t *clicked;
  size_t first_test; /* event; also where fewer than all before it are trained on */
} weir_dataset;

/* How many items a field has. */
#define WEIR_CLICK_FIELDS 8
extern const uint16_t weir_click_items[WEIR_CLICK_FIELDS];

/* Which, and of what. */
typedef struct weir_dataset_config {
  const char *name;
  const char *directory; /* NULL: the Debian package's */
  size_t context;
  uint64_t seed; /* of data that are made */
} weir_dataset_config;

/* Samples of the training or the test set, by number. */
typedef struct weir_batch {
  const uint32_t *sample;
  size_t count;
  bool test;
} weir_batch;

/* Files that are missing, truncated or malformed: WEIR_E_IO / WEIR_E_PARSE with the file's name. */
weir_status weir_dataset_open(weir_dataset *data, const weir_dataset_config *config);
/* Are the data of that name made, from the seed? */
bool weir_dataset_seeded(const char *name);
/* Read the four gzipped IDX files of Fashion-MNIST from a directory (NULL: the Debian package's).
 */
weir_status weir_dataset_load(weir_dataset *data, const char *directory);
/* Read the English files of Debian's package fortunes: of each, the last fiftieth is the test
 * set's. */
weir_status weir_dataset_text(weir_dataset *data, const char *directory, size_t context);
/* Make clicks by a hidden model: the items of every field as often as Zipf's law says, and a click
 * as likely as what the items are worth, alone and in pairs. */
weir_status weir_dataset_clicks(weir_dataset *data, uint64_t seed);
/* The images and labels of a batch; rows of pixels with mean 0 and deviation 1. */
void weir_dataset_images(const weir_dataset *data, const weir_batch *batch, float *pixels,
                         uint8_t *label);
void weir_dataset_free(weir_dataset *data);

#endif

/* Reading images: good files, and every way in which they can be damaged. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "../held.h"
#include "lab/trainer.h"

#define TRAIN_IMAGES "train-images-idx3-ubyte.gz"
#define TRAIN_LABELS "train-labels-idx1-ubyte.gz"
#define TEST_IMAGES "t10k-images-idx3-ubyte.gz"
#define TEST_LABELS "t10k-labels-idx1-ubyte.gz"

static char directory[64];

static const char *path_of(const char *name) {
  static char path[128];
  (void)snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

static void put32(gzFile f, unsigned value) {
  const unsigned char b[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16),
                              (unsigned char)(value >> 8), (unsigned char)value};
  cr_assert_eq(gzwrite(f, b, 4), 4);
}

/* Pixel p of image i is (i + p) mod 251. */
static void write_images(const char *name, unsigned magic, unsigned says, unsigned holds,
                         unsigned side) {
  gzFile f = gzopen(path_of(name), "wb");
  cr_assert(f);
  put32(f, magic);
  put32(f, says);
  put32(f, side);
  put32(f, side);
  for (unsigned i = 0; i < holds; i++)
    for (unsigned p = 0; p < side * side; p++) cr_assert_neq(gzputc(f, (int)((i + p) % 251)), -1);
  cr_assert_eq(gzclose(f), Z_OK);
}

static void write_labels(const char *name, unsigned says, unsigned holds, int label) {
  gzFile f = gzopen(path_of(name), "wb");
  cr_assert(f);
  put32(f, 0x801);
  put32(f, says);
  for (unsigned i = 0; i < holds; i++) cr_assert_neq(gzputc(f, label), -1);
  cr_assert_eq(gzclose(f), Z_OK);
}

static void set_up(void) {
  (void)strcpy(directory, "/tmp/weir-dataset-XXXXXX");
  cr_assert(mkdtemp(directory));
  write_images(TRAIN_IMAGES, 0x803, 5, 5, 28);
  write_labels(TRAIN_LABELS, 5, 5, 7);
  write_images(TEST_IMAGES, 0x803, 2, 2, 28);
  write_labels(TEST_LABELS, 2, 2, 9);
}

static void tear_down(void) {
  const char *names[] = {TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS};
  for (size_t i = 0; i < 4; i++) (void)unlink(path_of(names[i]));
  (void)rmdir(directory);
}

TestSuite(dataset, .init = set_up, .fini = tear_down);

static void refused(weir_status expected, const char *file, const char *word) {
  weir_dataset data;
  cr_assert_eq(weir_dataset_load(&data, directory), expected, "%s", weir_last_error());
  cr_assert(strstr(weir_last_error(), file), "'%s' does not name %s", weir_last_error(), file);
  cr_assert(strstr(weir_last_error(), word), "'%s' does not say '%s'", weir_last_error(), word);
  cr_assert_null(data.train_images);
}

/* Rewrite a file with `cut` bytes fewer, or with `more` bytes of 'x' behind it. */
static void resize(const char *name, long cut, long more) {
  FILE *f = fopen(path_of(name), "rb+");
  cr_assert(f);
  cr_assert_eq(fseek(f, 0, SEEK_END), 0);
  const long size = ftell(f);
  for (long i = 0; i < more; i++) cr_assert_neq(fputc('x', f), EOF);
  cr_assert_eq(fclose(f), 0);
  if (cut) cr_assert_eq(truncate(path_of(name), size - cut), 0);
}

Test(dataset, reads_what_was_written) {
  weir_dataset data;
  cr_assert_eq(weir_dataset_load(&data, directory), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(data.train, 5);
  cr_assert_eq(data.test, 2);
  cr_assert_eq(data.pixels, 784);
  for (size_t i = 0; i < 5; i++) {
    cr_assert_eq(data.train_labels[i], 7);
    for (size_t p = 0; p < 784; p++) cr_assert_eq(data.train_images[i * 784 + p], (i + p) % 251);
  }
  cr_assert_eq(data.test_images[784 + 783], (1 + 783) % 251);
  cr_assert_eq(data.test_labels[1], 9);
  weir_dataset_free(&data);
  weir_dataset_free(&data); /* harmless */
}

/* 60 000 and 10 000 images, balanced over ten classes. */
Test(dataset, fashion_mnist_is_balanced) {
  weir_dataset data;
  cr_assert_eq(weir_dataset_load(&data, NULL), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(data.train, 60000);
  cr_assert_eq(data.test, 10000);
  size_t train[10] = {0}, test[10] = {0};
  for (size_t i = 0; i < data.train; i++) train[data.train_labels[i]]++;
  for (size_t i = 0; i < data.test; i++) test[data.test_labels[i]]++;
  for (size_t c = 0; c < 10; c++) {
    cr_assert_eq(train[c], 6000);
    cr_assert_eq(test[c], 1000);
  }
  weir_dataset_free(&data);
}

Test(dataset, missing_file) {
  cr_assert_eq(unlink(path_of(TEST_LABELS)), 0);
  refused(WEIR_E_IO, TEST_LABELS, "No such file");
}

Test(dataset, directory_in_place_of_a_file) {
  cr_assert_eq(unlink(path_of(TEST_LABELS)), 0);
  cr_assert(symlink("/tmp", path_of(TEST_LABELS)) == 0);
  refused(WEIR_E_IO, TEST_LABELS, "no regular file");
}

Test(dataset, empty_file) {
  cr_assert_eq(truncate(path_of(TRAIN_IMAGES), 0), 0);
  refused(WEIR_E_PARSE, TRAIN_IMAGES, "ends too early");
}

Test(dataset, truncated_inside_the_data) {
  resize(TRAIN_IMAGES, 100, 0);
  refused(WEIR_E_PARSE, TRAIN_IMAGES, "ends too early");
}

Test(dataset, truncated_inside_the_trailer) {
  resize(TEST_IMAGES, 3, 0);
  refused(WEIR_E_PARSE, TEST_IMAGES, "ends too early");
}

Test(dataset, garbage_behind_the_gzip_data) {
  resize(TRAIN_LABELS, 0, 1);
  refused(WEIR_E_PARSE, TRAIN_LABELS, "bytes follow");
}

Test(dataset, not_gzip) {
  FILE *f = fopen(path_of(TRAIN_IMAGES), "wb");
  cr_assert(f);
  cr_assert(fputs("P5 28 28 255 and so on, surely no gzip header\n", f) >= 0);
  cr_assert_eq(fclose(f), 0);
  refused(WEIR_E_PARSE, TRAIN_IMAGES, "no valid gzip data");
}

Test(dataset, damaged_checksum) {
  FILE *f = fopen(path_of(TRAIN_IMAGES), "rb+");
  cr_assert(f);
  cr_assert_eq(fseek(f, -8, SEEK_END), 0); /* the CRC */
  const int byte = fgetc(f);
  cr_assert_eq(fseek(f, -8, SEEK_END), 0);
  cr_assert_neq(fputc(byte ^ 1, f), EOF);
  cr_assert_eq(fclose(f), 0);
  refused(WEIR_E_PARSE, TRAIN_IMAGES, "no valid gzip data");
}

Test(dataset, wrong_magic) {
  write_images(TRAIN_IMAGES, 0x804, 5, 5, 28);
  refused(WEIR_E_PARSE, TRAIN_IMAGES, "0x00000804, expected 0x00000803");
}

Test(dataset, wrong_image_size) {
  write_images(TRAIN_IMAGES, 0x803, 5, 5, 27);
  refused(WEIR_E_PARSE, TRAIN_IMAGES, "27 x 27");
}

Test(dataset, absurd_counts) {
  write_images(TRAIN_IMAGES, 0x803, 0, 0, 28);
  refused(WEIR_E_PARSE, TRAIN_IMAGES, "0 items");
  write_images(TRAIN_IMAGES, 0x803, 0xffffffffu, 1, 28);
  refused(WEIR_E_PARSE, TRAIN_IMAGES, "4294967295 items");
}

Test(dataset, fewer_items_than_said) {
  write_images(TRAIN_IMAGES, 0x803, 5, 4, 28);
  refused(WEIR_E_PARSE, TRAIN_IMAGES, "less data");
}

Test(dataset, more_items_than_said) {
  write_labels(TRAIN_LABELS, 5, 6, 1);
  refused(WEIR_E_PARSE, TRAIN_LABELS, "more data");
}

Test(dataset, labels_do_not_match_images) {
  write_labels(TEST_LABELS, 3, 3, 1);
  refused(WEIR_E_PARSE, TEST_LABELS, "3 labels for the 2 images");
}

Test(dataset, label_out_of_range) {
  write_labels(TEST_LABELS, 2, 2, 10);
  refused(WEIR_E_PARSE, TEST_LABELS, "label 10");
}

Test(dataset, no_place_to_load_into) {
  cr_assert_eq(weir_dataset_load(NULL, NULL), WEIR_E_INVALID);
}

Test(dataset, path_too_long) {
  FREED char *name = malloc(5001);
  memset(name, 'a', 5000);
  name[5000] = 0;
  weir_dataset data;
  cr_assert_eq(weir_dataset_load(&data, name), WEIR_E_INVALID);
}

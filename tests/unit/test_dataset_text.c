/* Reading the text: what is trained and what is tested on, and files that are missing or too large.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/dataset.h"

static const char *const files[] = {
    "art",    "computers",  "cookie",   "definitions", "education",   "humorists",
    "law",    "literature", "love",     "medicine",    "men-women",   "miscellaneous",
    "people", "platitudes", "politics", "science",     "songs-poems", "sports",
    "tao",    "wisdom",     "work"};
enum { FILES = sizeof files / sizeof *files, EACH = 100 };

/* Every file holds 98 times its own letter and twice that in capitals. */
static void make_files(char *directory) {
  cr_assert(mkdtemp(directory));
  for (size_t f = 0; f < FILES; f++) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", directory, files[f]);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    for (size_t i = 0; i < EACH; i++) fputc((int)((i < 98 ? 'a' : 'A') + f), file);
    cr_assert_eq(fclose(file), 0);
  }
}

static void remove_files(const char *directory) {
  for (size_t f = 0; f < FILES; f++) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", directory, files[f]);
    (void)unlink(path);
  }
  (void)rmdir(directory);
}

/* 21 * 98 bytes are 257 windows of 8 and the byte behind them; 21 * 2 are 5. */
Test(dataset_text, the_last_fiftieth_of_every_file_is_tested_on) {
  char directory[] = "/tmp/weir-text-XXXXXX";
  make_files(directory);
  weir_dataset data;
  cr_assert_eq(weir_dataset_text(&data, directory, 8), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(data.train, 257);
  cr_assert_eq(data.test, 5);
  for (size_t i = 0; i < FILES * 98; i++) cr_assert_eq(data.train_text[i], 'a' + i / 98);
  for (size_t i = 0; i < FILES * 2; i++) cr_assert_eq(data.test_text[i], 'A' + i / 2);
  weir_dataset_free(&data);
  cr_assert_eq(weir_dataset_text(&data, directory, 42), WEIR_E_PARSE); /* 43 bytes to test on */
  cr_assert(strstr(weir_last_error(), "too little text"));
  remove_files(directory);
}

Test(dataset_text, a_missing_file_names_the_package) {
  char directory[] = "/tmp/weir-text-XXXXXX", path[256];
  make_files(directory);
  (void)snprintf(path, sizeof path, "%s/tao", directory);
  cr_assert_eq(unlink(path), 0);
  weir_dataset data;
  cr_assert_eq(weir_dataset_text(&data, directory, 8), WEIR_E_IO);
  cr_assert(strstr(weir_last_error(), path) && strstr(weir_last_error(), "package fortunes"));
  cr_assert_eq(mkdir(path, 0700), 0); /* a folder in its place */
  cr_assert_eq(weir_dataset_text(&data, directory, 8), WEIR_E_IO);
  cr_assert(strstr(weir_last_error(), path));
  cr_assert_eq(rmdir(path), 0);
  cr_assert_eq(mkfifo(path, 0600), 0); /* a pipe, which is not waited for */
  cr_assert_eq(weir_dataset_text(&data, directory, 8), WEIR_E_IO);
  cr_assert_eq(unlink(path), 0);
  FILE *file = fopen(path, "w");
  cr_assert(file && ftruncate(fileno(file), 5 << 20) == 0);
  cr_assert_eq(fclose(file), 0);
  cr_assert_eq(weir_dataset_text(&data, directory, 8), WEIR_E_IO);
  cr_assert(strstr(weir_last_error(), "more than"));
  remove_files(directory);
}

Test(dataset_text, unknown_sets_and_empty_windows) {
  weir_dataset data;
  cr_assert_eq(weir_dataset_text(&data, NULL, 0), WEIR_E_INVALID);
  cr_assert_eq(weir_dataset_open(&data, &(weir_dataset_config){.name = "poems"}), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "poems"));
}

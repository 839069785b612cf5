/* Reading the text that the GPT learns: English files of Debian's package fortunes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/dataset.h"

#define DEFAULT_DIRECTORY "/usr/share/games/fortunes"

enum { MOST_BYTES = 1 << 22 /* of a file */, TESTED = 50 /* of each file, one byte in so many */ };

/* Named, so that other packages' files in the same folder change nothing. */
static const char *const files[] = {
    "art",    "computers",  "cookie",   "definitions", "education",   "humorists",
    "law",    "literature", "love",     "medicine",    "men-women",   "miscellaneous",
    "people", "platitudes", "politics", "science",     "songs-poems", "sports",
    "tao",    "wisdom",     "work"};
enum { FILES = sizeof files / sizeof *files };

static weir_status append(uint8_t **text, size_t *length, const uint8_t *more, size_t count) {
  uint8_t *longer = realloc(*text, *length + count + 1);
  if (!longer) return weir_fail(WEIR_E_NOMEM, "no memory for a text of %zu bytes", *length + count);
  memcpy(longer + *length, more, count);
  *text = longer;
  *length += count;
  return WEIR_OK;
}

static weir_status read_file(const char *path, uint8_t *bytes, size_t *count) {
  FILE *file;
  const weir_status status =
      weir_text_open(&file, path, "what Debian's package fortunes has", false);
  if (status) return status;
  *count = fread(bytes, 1, MOST_BYTES, file);
  const bool failed = ferror(file) || !feof(file);
  (void)fclose(file);
  if (failed)
    return weir_fail(WEIR_E_IO, "%s: cannot be read, or holds more than %d bytes", path,
                     (int)MOST_BYTES - 1);
  return WEIR_OK;
}

static weir_status read_all(weir_dataset *data, const char *directory, uint8_t *bytes,
                            size_t length[2]) {
  for (size_t f = 0; f < FILES; f++) {
    char path[4096];
    size_t count = 0;
    if (snprintf(path, sizeof path, "%s/%s", directory, files[f]) >= (int)sizeof path)
      return weir_fail(WEIR_E_INVALID, "the data set's directory name is too long");
    weir_status status = read_file(path, bytes, &count);
    const size_t learnt = count - count / TESTED;
    if (!status) status = append(&data->train_text, &length[0], bytes, learnt);
    if (!status) status = append(&data->test_text, &length[1], bytes + learnt, count - learnt);
    if (status) return status;
  }
  return WEIR_OK;
}

weir_status weir_dataset_text(weir_dataset *data, const char *directory, size_t context) {
  *data = (weir_dataset){.name = "fortunes", .context = context};
  if (!context) return weir_fail(WEIR_E_INVALID, "windows of no bytes");
  if (!directory) directory = DEFAULT_DIRECTORY;
  size_t length[2] = {0, 0};
  uint8_t *bytes = malloc(MOST_BYTES);
  weir_status status =
      bytes ? read_all(data, directory, bytes, length)
            : weir_fail(WEIR_E_NOMEM, "no memory for a file of %d bytes", (int)MOST_BYTES);
  free(bytes);
  if (!status && (length[0] <= context || length[1] <= context))
    status = weir_fail(WEIR_E_PARSE, "%s: too little text for a window of %zu bytes", directory,
                       context + 1);
  if (status) {
    weir_dataset_free(data);
    return status;
  }
  data->train = (length[0] - 1) / context;
  data->test = (length[1] - 1) / context;
  return WEIR_OK;
}

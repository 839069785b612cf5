/* Reading the images and labels of Fashion-MNIST (gzipped IDX files), without trust. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/base.h"
#include "lab/dataset.h"

#define DEFAULT_DIRECTORY "/usr/share/datasets/fashion-mnist"

enum {
  MAGIC_LABELS = 0x0801, /* IDX: unsigned bytes, one dimension */
  MAGIC_IMAGES = 0x0803, /* three dimensions */
  SIDE = 28,
  CLASSES = 10,
  MOST_ITEMS = 1000000 /* a header that claims more is not believed */
};

/* A gzip member being inflated. */
typedef struct idx_file {
  FILE *file;
  z_stream stream;
  int ended; /* the member's trailer was read and its checksum is right */
  char path[4096];
  uint8_t input[1 << 16];
} idx_file;

static weir_status idx_open(idx_file *idx, const char *directory, const char *name) {
  const int length = snprintf(idx->path, sizeof idx->path, "%s/%s", directory, name);
  if (length < 0 || (size_t)length >= sizeof idx->path)
    return weir_fail(WEIR_E_INVALID, "the data set's directory name is too long");
  const weir_status status = weir_text_open(&idx->file, idx->path, "a data set", false);
  if (status) return status;
  idx->ended = 0;
  memset(&idx->stream, 0, sizeof idx->stream);
  if (inflateInit2(&idx->stream, 16 + MAX_WBITS) != Z_OK) { /* 16: gzip only */
    (void)fclose(idx->file);
    return weir_fail(WEIR_E_NOMEM, "%s: no memory for zlib", idx->path);
  }
  return WEIR_OK;
}

static void idx_close(idx_file *idx) {
  (void)inflateEnd(&idx->stream);
  (void)fclose(idx->file);
}

/* More compressed bytes; none left at the file's end. */
static weir_status idx_fill(idx_file *idx) {
  idx->stream.next_in = idx->input;
  idx->stream.avail_in = (uInt)fread(idx->input, 1, sizeof idx->input, idx->file);
  if (ferror(idx->file))
    return weir_fail(WEIR_E_IO, "%s: cannot read: %s", idx->path, strerror(errno));
  return WEIR_OK;
}

/* Up to `bytes` bytes; fewer only at the member's end. */
static weir_status idx_inflate(idx_file *idx, void *to, size_t bytes, size_t *got) {
  z_stream *z = &idx->stream;
  z->next_out = to;
  z->avail_out = (uInt)bytes;
  while (z->avail_out && !idx->ended) {
    if (!z->avail_in) {
      weir_status status = idx_fill(idx);
      if (status) return status;
      if (!z->avail_in) return weir_fail(WEIR_E_PARSE, "%s: the file ends too early", idx->path);
    }
    const int code = inflate(z, Z_NO_FLUSH);
    if (code == Z_STREAM_END)
      idx->ended = 1;
    else if (code == Z_MEM_ERROR)
      return weir_fail(WEIR_E_NOMEM, "%s: no memory for zlib", idx->path);
    else if (code != Z_OK)
      return weir_fail(WEIR_E_PARSE, "%s: no valid gzip data: %s", idx->path,
                       z->msg ? z->msg : "unexpected dictionary");
  }
  *got = bytes - z->avail_out;
  return WEIR_OK;
}

static weir_status idx_read(idx_file *idx, void *to, size_t bytes) {
  size_t got = 0;
  weir_status status = idx_inflate(idx, to, bytes, &got);
  if (!status && got < bytes)
    status = weir_fail(WEIR_E_PARSE, "%s: holds less data than its header says", idx->path);
  return status;
}

/* Nothing may follow what was read, compressed or not. */
static weir_status idx_end(idx_file *idx) {
  uint8_t extra;
  size_t more = 0;
  weir_status status = idx_inflate(idx, &extra, 1, &more);
  if (status) return status;
  if (more) return weir_fail(WEIR_E_PARSE, "%s: holds more data than its header says", idx->path);
  if (!idx->stream.avail_in) status = idx_fill(idx);
  if (!status && idx->stream.avail_in)
    status = weir_fail(WEIR_E_PARSE, "%s: bytes follow the gzip data", idx->path);
  return status;
}

static uint32_t big_endian(const uint8_t *b) {
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Checks the header; *count is the number of items that follow. */
static weir_status idx_header(idx_file *idx, uint32_t magic, size_t *count) {
  uint8_t head[16];
  weir_status status = idx_read(idx, head, 8);
  if (status) return status;
  if (big_endian(head) != magic)
    return weir_fail(WEIR_E_PARSE, "%s: magic number 0x%08x, expected 0x%08x", idx->path,
                     (unsigned)big_endian(head), (unsigned)magic);
  *count = big_endian(head + 4);
  if (!*count || *count > MOST_ITEMS)
    return weir_fail(WEIR_E_PARSE, "%s: says it holds %zu items, expected 1 to %d", idx->path,
                     *count, MOST_ITEMS);
  if (magic != MAGIC_IMAGES) return WEIR_OK;
  status = idx_read(idx, head + 8, 8);
  if (status) return status;
  if (big_endian(head + 8) != SIDE || big_endian(head + 12) != SIDE)
    return weir_fail(WEIR_E_PARSE, "%s: images of %u x %u pixels, expected %d x %d", idx->path,
                     (unsigned)big_endian(head + 8), (unsigned)big_endian(head + 12), SIDE, SIDE);
  return WEIR_OK;
}

static weir_status idx_body(idx_file *idx, size_t bytes, uint8_t **out) {
  uint8_t *items = malloc(bytes);
  if (!items) return weir_fail(WEIR_E_NOMEM, "%s: no memory for %zu bytes", idx->path, bytes);
  weir_status status = idx_read(idx, items, bytes);
  if (!status) status = idx_end(idx);
  if (status)
    free(items);
  else
    *out = items;
  return status;
}

static weir_status load_file(const char *directory, const char *name, uint32_t magic, size_t *count,
                             uint8_t **items) {
  idx_file idx;
  weir_status status = idx_open(&idx, directory, name);
  if (status) return status;
  status = idx_header(&idx, magic, count);
  const size_t each = magic == MAGIC_IMAGES ? SIDE * SIDE : 1;
  if (!status) status = idx_body(&idx, *count * each, items);
  for (size_t i = 0; !status && magic == MAGIC_LABELS && i < *count; i++)
    if ((*items)[i] >= CLASSES)
      status = weir_fail(WEIR_E_PARSE, "%s: label %u of item %zu, expected 0 to %d", idx.path,
                         (*items)[i], i, CLASSES - 1);
  idx_close(&idx);
  return status;
}

static weir_status load_pair(const char *directory, const char *images_name,
                             const char *labels_name, size_t *count, uint8_t **images,
                             uint8_t **labels) {
  size_t labelled = 0;
  weir_status status = load_file(directory, images_name, MAGIC_IMAGES, count, images);
  if (!status) status = load_file(directory, labels_name, MAGIC_LABELS, &labelled, labels);
  if (!status && labelled != *count)
    status = weir_fail(WEIR_E_PARSE, "%s/%s: %zu labels for the %zu images of %s", directory,
                       labels_name, labelled, *count, images_name);
  return status;
}

weir_status weir_dataset_load(weir_dataset *data, const char *directory) {
  if (!data) return weir_fail(WEIR_E_INVALID, "no place to load the data set into");
  if (!directory) directory = DEFAULT_DIRECTORY;
  *data = (weir_dataset){.name = "fashion-mnist", .pixels = SIDE * SIDE};
  weir_status status =
      load_pair(directory, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", &data->train,
                &data->train_images, &data->train_labels);
  if (!status)
    status = load_pair(directory, "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz",
                       &data->test, &data->test_images, &data->test_labels);
  if (status) weir_dataset_free(data);
  return status;
}

weir_status weir_dataset_open(weir_dataset *data, const weir_dataset_config *config) {
  if (!strcmp(config->name, "fashion-mnist")) return weir_dataset_load(data, config->directory);
  if (!strcmp(config->name, "fortunes"))
    return weir_dataset_text(data, config->directory, config->context);
  if (weir_dataset_seeded(config->name)) return weir_dataset_clicks(data, config->seed);
  return weir_fail(WEIR_E_INVALID,
                   "data set %s is unknown, expected fashion-mnist, fortunes or clicks",
                   config->name);
}

bool weir_dataset_seeded(const char *name) { return !strcmp(name, "clicks"); }

/* Mean and standard deviation of Fashion-MNIST's training pixels, scaled to [0, 1]. */
static const double pixel_mean = 0.2860, pixel_deviation = 0.3530;

void weir_dataset_images(const weir_dataset *data, const weir_batch *batch, float *pixels,
                         uint8_t *label) {
  const uint8_t *images = batch->test ? data->test_images : data->train_images;
  const uint8_t *labels = batch->test ? data->test_labels : data->train_labels;
  float value[256];
  for (int i = 0; i < 256; i++) value[i] = (float)((i / 255.0 - pixel_mean) / pixel_deviation);
  for (size_t s = 0; s < batch->count; s++) {
    const uint8_t *image = images + batch->sample[s] * data->pixels;
    for (size_t p = 0; p < data->pixels; p++) pixels[s * data->pixels + p] = value[image[p]];
    label[s] = labels[batch->sample[s]];
  }
}

void weir_dataset_free(weir_dataset *data) {
  if (!data) return;
  free(data->train_images);
  free(data->train_labels);
  free(data->test_images);
  free(data->test_labels);
  free(data->train_text);
  free(data->test_text);
  free(data->items);
  free(data->clicked);
  *data = (weir_dataset){0};
}

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/base.h"
#include "lab/trainer.h"

#define DEFAULT_DIRECTORY "/usr/share/datasets/fashion-mnist"

enum {
  MAGIC_LABELS = 0x0801, /* IDX: unsigned bytes, one dimension */
  MAGIC_IMAGES = 0x0803, /* three dimensions */
  SIDE = 28,
  CLASSES = 10,
  MOST_ITEMS = 1000000 /* a header that claims more is not believed */
};

typedef struct idx_file {
  gzFile file;
  char path[4096];
} idx_file;

static weir_status idx_open(idx_file *idx, const char *directory, const char *name) {
  const int length = snprintf(idx->path, sizeof idx->path, "%s/%s", directory, name);
  idx->file = NULL;
  if (length < 0 || (size_t)length >= sizeof idx->path)
    return weir_fail(WEIR_E_INVALID, "the data set's directory name is too long");
  errno = 0;
  idx->file = gzopen(idx->path, "rb");
  if (!idx->file)
    return weir_fail(WEIR_E_IO, "%s: cannot open: %s", idx->path,
                     errno ? strerror(errno) : "out of memory");
  (void)gzbuffer(idx->file, 1u << 17);
  return WEIR_OK;
}

/* zlib's or the system's word on what went wrong with the file. */
static weir_status idx_trouble(const idx_file *idx) {
  int code = Z_OK;
  const char *message = gzerror(idx->file, &code);
  if (code == Z_ERRNO) return weir_fail(WEIR_E_IO, "%s: cannot read: %s", idx->path, strerror(errno));
  if (code == Z_OK || code == Z_BUF_ERROR || code == Z_STREAM_END)
    return weir_fail(WEIR_E_PARSE, "%s: the file ends too early", idx->path);
  return weir_fail(WEIR_E_PARSE, "%s: damaged gzip data: %s", idx->path, message);
}

static weir_status idx_read(const idx_file *idx, void *to, size_t bytes) {
  const int got = gzread(idx->file, to, (unsigned)bytes);
  return got >= 0 && (size_t)got == bytes ? WEIR_OK : idx_trouble(idx);
}

static uint32_t big_endian(const uint8_t *b) {
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Checks the header; *count is the number of items that follow. */
static weir_status idx_header(const idx_file *idx, uint32_t magic, size_t *count) {
  uint8_t head[16];
  weir_status status = idx_read(idx, head, 8);
  if (status) return status;
  /* zlib hands plain files through as they are: what the package ships is compressed, so a file
   * that is not would have been put there by mistake. */
  if (gzdirect(idx->file)) return weir_fail(WEIR_E_PARSE, "%s: not a gzip file", idx->path);
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

/* The items, and proof that nothing follows them (reading past the end also makes zlib check the
 * trailer's checksum). */
static weir_status idx_body(const idx_file *idx, size_t bytes, uint8_t **out) {
  uint8_t *items = malloc(bytes), extra;
  if (!items) return weir_fail(WEIR_E_NOMEM, "%s: no memory for %zu bytes", idx->path, bytes);
  weir_status status = idx_read(idx, items, bytes);
  if (!status) {
    const int more = gzread(idx->file, &extra, 1);
    if (more > 0)
      status = weir_fail(WEIR_E_PARSE, "%s: more data than the header says", idx->path);
    else if (more < 0)
      status = idx_trouble(idx);
  }
  if (status)
    free(items);
  else
    *out = items;
  return status;
}

static weir_status load_file(const char *directory, const char *name, uint32_t magic,
                             size_t *count, uint8_t **items) {
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
  (void)gzclose_r(idx.file);
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
  *data = (weir_dataset){.pixels = SIDE * SIDE};
  weir_status status =
      load_pair(directory, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                &data->train, &data->train_images, &data->train_labels);
  if (!status)
    status = load_pair(directory, "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz",
                       &data->test, &data->test_images, &data->test_labels);
  if (status) weir_dataset_free(data);
  return status;
}

void weir_dataset_free(weir_dataset *data) {
  if (!data) return;
  free(data->train_images);
  free(data->train_labels);
  free(data->test_images);
  free(data->test_labels);
  *data = (weir_dataset){0};
}

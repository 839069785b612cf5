/* Reading gradient statistics, layer filters, and what an assignment costs. */
#include "planner/bits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "planner/csv.h"

static const double most_elements = 1099511627776.0; /* 2^40 */

static bool matches(const char *name, const char *pattern, size_t length) {
  if (!length) return false;
  for (; *name; name++)
    if (!strncasecmp(name, pattern, length)) return true;
  return false;
}

bool weir_bits_filtered(const char *name, const char *patterns) {
  for (;;) {
    const size_t length = strcspn(patterns, ",");
    if (matches(name, patterns, length)) return true;
    patterns += length;
    if (!*patterns++) return false;
  }
}

typedef struct reader {
  const weir_csv *csv; /* the line that is read */
  weir_bits_stats *stats;
  const char *patterns;
  size_t layer_room, option_room;
} reader;

static weir_status grow(void **array, size_t *room, size_t used, size_t size) {
  if (used < *room) return WEIR_OK;
  const size_t more = *room ? 2 * *room : 256;
  void *grown = realloc(*array, more * size);
  if (!grown) return weir_fail(WEIR_E_NOMEM, "no memory for %zu rows of statistics", more);
  *array = grown;
  *room = more;
  return WEIR_OK;
}

/* The layer of this row: the last one, or a new one. */
static weir_status layer_of_row(reader *r, double numel, double norm) {
  weir_bits_stats *s = r->stats;
  const char *name = r->csv->field[0];
  weir_bits_layer *last = s->layer_count ? &s->layers[s->layer_count - 1] : NULL;
  if (!*name) return weir_csv_fail(r->csv, "no name: expected the layer's name");
  if (last && !strcmp(last->name, name))
    return last->numel == numel && last->norm == norm
               ? WEIR_OK
               : weir_csv_fail(r->csv, "layer '%.60s': expected numel and norm of line %zu", name,
                               last->line);
  void *array = s->layers;
  const weir_status status = grow(&array, &r->layer_room, s->layer_count, sizeof *s->layers);
  s->layers = array;
  if (status != WEIR_OK) return status;
  char *copy = strdup(name);
  if (!copy) return weir_fail(WEIR_E_NOMEM, "no memory for a layer's name");
  s->layers[s->layer_count++] = (weir_bits_layer){.name = copy,
                                                  .numel = numel,
                                                  .norm = norm,
                                                  .first = s->option_count,
                                                  .line = r->csv->line,
                                                  .full = weir_bits_filtered(name, r->patterns)};
  return WEIR_OK;
}

static weir_status add_option(reader *r, weir_bits_option option) {
  weir_bits_stats *s = r->stats;
  weir_bits_layer *layer = &s->layers[s->layer_count - 1];
  layer->apart = layer->count == 0 && option.bits == 32 && option.bucket == 0; /* so far */
  if (layer->full) { /* its rows are checked, and replaced by one */
    if (layer->count) return WEIR_OK;
    option = (weir_bits_option){32, 0, 4.0 * layer->numel, 0.0};
  }
  for (size_t i = layer->first; i < s->option_count; i++)
    if (s->options[i].bits == option.bits && s->options[i].bucket == option.bucket)
      return weir_csv_fail(r->csv, "%u bits and bucket %u again: expected each once a layer",
                           option.bits, option.bucket);
  if (layer->count == WEIR_BITS_OPTIONS)
    return weir_csv_fail(r->csv, "expected at most %d options a layer", WEIR_BITS_OPTIONS);
  void *array = s->options;
  const weir_status status = grow(&array, &r->option_room, s->option_count, sizeof *s->options);
  s->options = array;
  if (status != WEIR_OK) return status;
  s->options[s->option_count++] = option;
  layer->count++;
  return WEIR_OK;
}

static weir_status read_row(void *user, const weir_csv *csv) {
  reader *r = user;
  r->csv = csv;
  double numel = 0.0, norm = 0.0, bits = 0.0, bucket = 0.0, bytes = 0.0, error = 0.0;
  weir_status status = weir_csv_whole(csv, 1, 1.0, most_elements, &numel);
  if (status == WEIR_OK) status = weir_csv_number(csv, 2, 0.0, 1e30, &norm);
  if (status == WEIR_OK) status = weir_csv_whole(csv, 3, 1.0, 32.0, &bits);
  if (status == WEIR_OK) status = weir_csv_whole(csv, 4, 0.0, 4294967295.0, &bucket);
  if (status == WEIR_OK) status = weir_csv_whole(csv, 5, 1.0, 4.0 * most_elements, &bytes);
  if (status == WEIR_OK) status = weir_csv_number(csv, 6, 0.0, 1e30, &error);
  if (status == WEIR_OK) status = layer_of_row(r, numel, norm);
  if (status != WEIR_OK) return status;
  return add_option(r, (weir_bits_option){(unsigned)bits, (uint32_t)bucket, bytes, error * error});
}

static const weir_bits_layer *as_layer(const void *a) { return *(weir_bits_layer *const *)a; }

static int by_name_then_line(const void *a, const void *b) {
  const int order = strcmp(as_layer(a)->name, as_layer(b)->name);
  const size_t x = as_layer(a)->line, y = as_layer(b)->line;
  return order ? order : (x > y) - (x < y);
}

static weir_status refuse_scattered(const weir_bits_stats *s, const char *path) {
  const weir_bits_layer **sorted = malloc(s->layer_count * sizeof *sorted);
  if (!sorted) return weir_fail(WEIR_E_NOMEM, "no memory for %zu layers", s->layer_count);
  for (size_t l = 0; l < s->layer_count; l++) sorted[l] = &s->layers[l];
  qsort(sorted, s->layer_count, sizeof *sorted, by_name_then_line);
  weir_status status = WEIR_OK;
  for (size_t l = 1; l < s->layer_count && status == WEIR_OK; l++)
    if (!strcmp(sorted[l]->name, sorted[l - 1]->name))
      status = weir_fail(WEIR_E_PARSE,
                         "%s:%zu: layer '%.60s' began on line %zu: expected its lines together",
                         path, sorted[l]->line, sorted[l]->name, sorted[l - 1]->line);
  free(sorted);
  return status;
}

static weir_status need_reference(weir_bits_stats *s, const char *path) {
  for (size_t l = 0; l < s->layer_count; l++) {
    weir_bits_layer *layer = &s->layers[l];
    layer->full = layer->full || layer->apart;
    bool found = layer->full;
    for (size_t i = layer->first; i < layer->first + layer->count; i++)
      found |= s->options[i].bits == 4 && s->options[i].bucket == s->bucket;
    if (!found)
      return weir_fail(WEIR_E_PARSE,
                       "%s:%zu: layer '%.60s': expected a line of 4 bits and bucket %u", path,
                       layer->line, layer->name, s->bucket);
  }
  return WEIR_OK;
}

weir_status weir_bits_load(weir_bits_stats *stats, const char *path, const char *patterns,
                           uint32_t reference_bucket) {
  *stats = (weir_bits_stats){.bucket = reference_bucket};
  reader r = {.stats = stats, .patterns = patterns};
  weir_status status =
      weir_csv_read(path, "layer,numel,norm,bits,bucket,bytes,error", read_row, &r);
  if (status == WEIR_OK) status = refuse_scattered(stats, path);
  if (status == WEIR_OK) status = need_reference(stats, path);
  if (status != WEIR_OK) weir_bits_free(stats);
  return status;
}

void weir_bits_free(weir_bits_stats *stats) {
  for (size_t l = 0; l < stats->layer_count; l++) free(stats->layers[l].name);
  free(stats->layers);
  free(stats->options);
  *stats = (weir_bits_stats){0};
}

void weir_bits_drop(weir_bits *bits) {
  free(bits->choice);
  *bits = (weir_bits){0};
}

void weir_bits_measure(const weir_bits_stats *stats, weir_bits *bits) {
  double error2 = 0.0;
  bits->bytes = 0.0;
  for (size_t l = 0; l < stats->layer_count; l++) {
    bits->bytes += stats->options[bits->choice[l]].bytes;
    error2 += stats->options[bits->choice[l]].error2;
  }
  bits->error = sqrt(error2);
}

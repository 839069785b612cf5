/* An assignment of widths, made again from what the journal says was measured. */
#include <json-glib/json-glib.h>
#include <math.h>

#include "controller/bits.h"
#include "replay.h"

static gboolean read_number(JsonNode *node, double least, double most, double *value) {
  if (!node || !JSON_NODE_HOLDS_VALUE(node)) return FALSE;
  const GType type = json_node_get_value_type(node);
  if (type != G_TYPE_INT64 && type != G_TYPE_DOUBLE) return FALSE;
  *value = json_node_get_double(node);
  return *value >= least && *value <= most;
}

static JsonArray *read_array(JsonObject *object, const char *name) {
  JsonNode *node = json_object_get_member(object, name);
  return node && JSON_NODE_HOLDS_ARRAY(node) ? json_node_get_array(node) : NULL;
}

/* What a layer was given. */
typedef struct given {
  unsigned bits;
  guint bucket;
} given;

/* A layer with its options.  Journals of old know buckets of 128 elements alone and do not say so. */
static gboolean read_layer(JsonNode *node, weir_bits_stats *stats, given *was) {
  if (!JSON_NODE_HOLDS_OBJECT(node)) return FALSE;
  JsonObject *object = json_node_get_object(node);
  JsonArray *errors = read_array(object, "error2");
  double numel = 0.0, norm = 0.0, width = 0.0, bucket = WEIR_BITS_BUCKET;
  if (!errors || !read_number(json_object_get_member(object, "numel"), 0.0, G_MAXUINT32, &numel) ||
      !read_number(json_object_get_member(object, "norm"), 0.0, G_MAXDOUBLE, &norm) ||
      !read_number(json_object_get_member(object, "bits"), 2.0, 32.0, &width))
    return FALSE;
  JsonNode *size = json_object_get_member(object, "bucket");
  if (size && !read_number(size, 0.0, G_MAXUINT32, &bucket)) return FALSE;
  const guint count = json_array_get_length(errors), sizes = count / WEIR_BITS_WIDTHS;
  if ((count == 0) != (width == WEIR_BITS_FULL) || count != sizes * WEIR_BITS_WIDTHS ||
      sizes > WEIR_BITS_SIZES || numel != floor(numel))
    return FALSE;
  weir_bits_describe(stats, NULL, (size_t)numel, width == WEIR_BITS_FULL, sizes);
  weir_bits_layer *layer = &stats->layers[stats->layer_count - 1];
  layer->norm = norm;
  *was = (given){(unsigned)width, (guint)bucket};
  for (guint i = 0; i < count; i++)
    if (!read_number(json_array_get_element(errors, i), 0.0, G_MAXDOUBLE,
                     &stats->options[layer->first + i].error2))
      return FALSE;
  return TRUE;
}

static gboolean read_options(JsonObject *object, weir_bits_options *options) {
  JsonNode *method = json_object_get_member(object, "method");
  if (!method || !JSON_NODE_HOLDS_VALUE(method) ||
      json_node_get_value_type(method) != G_TYPE_STRING)
    return FALSE;
  g_autofree char *text = g_strconcat(":", json_node_get_string(method), NULL);
  return weir_bits_parse(text, options) == WEIR_OK &&
         read_number(json_object_get_member(object, "alpha"), 1.0, 1e6, &options->alpha);
}

gboolean replay_bits(JsonObject *object, gboolean *same) {
  JsonArray *layers = read_array(object, "layers");
  const guint count = layers ? json_array_get_length(layers) : 0;
  weir_bits_options options;
  if (count == 0 || !read_options(object, &options)) return FALSE;
  g_autofree weir_bits_layer *all = g_new0(weir_bits_layer, count);
  g_autofree weir_bits_option *of_all = g_new0(weir_bits_option, (gsize)count * WEIR_BITS_WAYS);
  g_autofree given *was = g_new0(given, count);
  g_autofree size_t *choice = g_new0(size_t, count);
  weir_bits_stats stats = {.layers = all, .options = of_all, .bucket = WEIR_BITS_BUCKET};
  for (guint l = 0; l < count; l++)
    if (!read_layer(json_array_get_element(layers, l), &stats, &was[l])) return FALSE;
  weir_bits_assigned assigned = {.choice = choice};
  if (weir_bits_assign(&stats, &options, &assigned) != WEIR_OK) return FALSE;
  *same = TRUE;
  for (guint l = 0; l < count; l++) {
    const weir_bits_option *option = &stats.options[choice[l]];
    *same = *same && option->bits == was[l].bits &&
            (was[l].bits == WEIR_BITS_FULL || option->bucket == was[l].bucket);
  }
  return TRUE;
}

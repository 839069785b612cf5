/* Widths from what was measured, and buckets from widths (see bits.h). */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/numerals.h"
#include "base/path.h"
#include "collectives/select.h"
#include "controller/bits.h"

static const char kept[] = "bias,bn,norm,ln";
static const double exchange_share =
    0.01; /* of the bytes of 4 bits, what one more exchange costs */

const char *const weir_bits_methods[WEIR_BITS_METHODS] = {"knapsack", "kmeans", "linear", "bayes",
                                                          "uniform"};

bool weir_bits_keeps(const char *name, size_t numel) {
  return numel <= WEIR_BITS_BUCKET || (name != NULL && weir_bits_filtered(name, kept));
}

/* A number behind a colon, up to the next one. */
static bool parse_number(const char **text, double least, double most, double *number) {
  const char *begin = *text + 1;
  char *end = NULL;
  errno = 0;
  *number = weir_strtod(begin, &end);
  *text = end;
  return end != begin && errno == 0 && *number >= least && *number <= most &&
         (*end == ':' || *end == '\0');
}

weir_status weir_bits_parse(const char *text, weir_bits_options *options) {
  *options = (weir_bits_options){WEIR_BITS_KNAPSACK, 2.0, 100};
  const char *at = text;
  bool good = true;
  if (*at == ':') {
    const size_t length = strcspn(++at, ":");
    size_t m = 0;
    while (m < WEIR_BITS_METHODS &&
           (strncmp(at, weir_bits_methods[m], length) != 0 || weir_bits_methods[m][length] != '\0'))
      m++;
    good = length > 0 && m < WEIR_BITS_METHODS;
    options->method = (weir_bits_method)m;
    at += length;
  }
  double period = (double)options->period;
  if (good && *at == ':') good = parse_number(&at, 1.0, 1e6, &options->alpha);
  if (good && *at == ':') good = parse_number(&at, 1.0, 1e9, &period) && period == floor(period);
  if (good && *at == '\0') {
    options->period = (uint64_t)period;
    return WEIR_OK;
  }
  return weir_fail(
      WEIR_E_INVALID,
      "policy bits%.60s: expected bits[:METHOD[:ALPHA[:STEPS]]], METHOD knapsack, kmeans, "
      "linear, bayes or uniform, ALPHA from 1, STEPS a whole number from 1",
      text);
}

/* --- solving -------------------------------------------------------------------------------- */

static weir_status solve(const weir_bits_stats *s, weir_bits_method method, double most,
                         weir_bits *bits) {
  weir_bits known = {0};
  weir_status status;
  switch (method) {
    case WEIR_BITS_KMEANS: return weir_bits_kmeans(s, most, bits);
    case WEIR_BITS_LINEAR: return weir_bits_linear(s, most, bits);
    case WEIR_BITS_BAYES: return weir_bits_bayes(s, most, bits);
    case WEIR_BITS_KNAPSACK: break;
    default: return weir_bits_uniform(s, bits);
  }
  status = weir_bits_kmeans(s, most, &known);
  if (status == WEIR_OK) status = weir_bits_knapsack(s, most, 0, &known, bits);
  weir_bits_drop(&known);
  return status;
}

/* --- merging neighbours --------------------------------------------------------------------- */

/* For the tensors up to one: least bytes with its bucket at a way, and the way of the tensor before
 * in that case.  Place 0 is full precision, the others are widths with buckets of elements. */
enum { PLACES = WEIR_BITS_WAYS + 1 };
typedef struct cell {
  double bytes;
  uint8_t from;
} cell;

/* The option of a tensor in a bucket of some width; SIZE_MAX: it may not be there. */
static size_t option_at(const weir_bits_layer *layer, size_t place) {
  if (layer->full) return place == 0 ? layer->first : SIZE_MAX;
  return place == 0 || place > layer->count ? SIZE_MAX : layer->first + place - 1;
}

/* May a tensor that was given `needed` take this option? */
static bool suffices(const weir_bits_stats *s, size_t option, size_t needed) {
  return s->options[option].bits >= s->options[needed].bits &&
         s->options[option].error2 <= s->options[needed].error2;
}

static void fill_row(const weir_bits_stats *s, size_t t, size_t needed, double price,
                     const cell *before, cell *now) {
  size_t best = 0;
  for (size_t q = 1; before != NULL && q < PLACES; q++)
    if (before[q].bytes < before[best].bytes) best = q;
  for (size_t p = 0; p < PLACES; p++) {
    const size_t option = option_at(&s->layers[t], p);
    now[p] = (cell){INFINITY, (uint8_t)p};
    if (option == SIZE_MAX || !suffices(s, option, needed)) continue;
    double least = before == NULL ? price : before[p].bytes;
    if (before != NULL && before[best].bytes + price < least) {
      least = before[best].bytes + price;
      now[p].from = (uint8_t)best;
    }
    now[p].bytes = least + s->options[option].bytes;
  }
}

/* Changes choice; at least as many bits for every tensor.  Tells the bytes with all exchanges. */
static double merge(const weir_bits_stats *s, double price, cell *cells, size_t *choice) {
  const size_t tensors = s->layer_count;
  for (size_t t = 0; t < tensors; t++)
    fill_row(s, t, choice[t], price, t ? cells + (t - 1) * PLACES : NULL, cells + t * PLACES);
  size_t at = 0;
  const cell *last = cells + (tensors - 1) * PLACES;
  for (size_t p = 1; p < PLACES; p++)
    if (last[p].bytes < last[at].bytes) at = p;
  const double bytes = last[at].bytes;
  for (size_t t = tensors; t-- > 0; at = cells[t * PLACES + at].from)
    choice[t] = option_at(&s->layers[t], at);
  return bytes;
}

static bool alike(const weir_bits_option *a, const weir_bits_option *b) {
  return a->bits == b->bits && a->bucket == b->bucket;
}

static size_t count_buckets(const weir_bits_stats *s, const size_t *choice) {
  size_t buckets = 0;
  for (size_t t = 0; t < s->layer_count; t++)
    buckets += t == 0 || !alike(&s->options[choice[t]], &s->options[choice[t - 1]]);
  return buckets;
}

/* One width and bucket for all that is quantized, when that is better than bytes. */
static void prefer_one_width(const weir_bits_stats *s, double budget, double price, double bytes,
                             size_t *trial, size_t *choice) {
  for (size_t p = 1; p < PLACES; p++) {
    weir_bits one = {.choice = trial};
    bool there = true;
    for (size_t t = 0; t < s->layer_count && there; t++) {
      trial[t] = option_at(&s->layers[t], s->layers[t].full ? 0 : p);
      there = trial[t] != SIZE_MAX;
    }
    if (!there) return;
    weir_bits_measure(s, &one);
    const double all = one.bytes + price * (double)count_buckets(s, trial);
    if (one.error * one.error > budget || all >= bytes) continue;
    memcpy(choice, trial, s->layer_count * sizeof *trial);
    bytes = all;
  }
}

weir_status weir_bits_assign(const weir_bits_stats *s, const weir_bits_options *options,
                             weir_bits_assigned *out) {
  const size_t tensors = s->layer_count;
  weir_bits four = {0}, bits = {0};
  if (tensors == 0) return weir_fail(WEIR_E_INVALID, "no tensors to assign widths to");
  cell *cells = malloc(tensors * PLACES * sizeof *cells);
  size_t *trial = malloc(tensors * sizeof *trial);
  weir_status status = cells != NULL && trial != NULL
                           ? weir_bits_uniform(s, &four)
                           : weir_fail(WEIR_E_NOMEM, "no memory to assign %zu widths", tensors);
  const double most = options->alpha * four.error;
  if (status == WEIR_OK) status = solve(s, options->method, most, &bits);
  if (status == WEIR_OK) {
    const double price = exchange_share * four.bytes;
    memcpy(out->choice, bits.choice, tensors * sizeof *trial);
    const double bytes = merge(s, price, cells, out->choice);
    if (options->method != WEIR_BITS_UNIFORM)
      prefer_one_width(s, most * most * (1.0 + WEIR_BITS_ROUNDING), price, bytes, trial,
                       out->choice);
    weir_bits merged = {.choice = out->choice};
    weir_bits_measure(s, &merged);
    out->bytes = merged.bytes;
    out->error = merged.error;
    out->bytes4 = four.bytes;
    out->error4 = four.error;
    out->solved = bits.bytes;
    out->buckets = count_buckets(s, out->choice);
  }
  weir_bits_drop(&bits);
  weir_bits_drop(&four);
  free(trial);
  free(cells);
  return status;
}

size_t weir_bits_table(const weir_bits_stats *s, const size_t *choice, const weir_plan *dense,
                       weir_plan_bucket *table) {
  size_t count = 0;
  for (size_t t = 0; t < s->layer_count; t++) {
    const weir_bits_option *option = &s->options[choice[t]];
    if (t > 0 && alike(option, &s->options[choice[t - 1]])) {
      table[count - 1].end++;
      continue;
    }
    const weir_plan plan =
        option->bits == WEIR_BITS_FULL ? *dense : weir_bits_plan(option->bits, option->bucket);
    table[count] = (weir_plan_bucket){.end = (uint32_t)t + 1, .place = WEIR_PLACE_CALLER};
    weir_bucket_set_plan(&table[count++], &plan);
  }
  return count;
}

static void take_cheaper(weir_plan *best, const weir_plan *other, weir_group_shape shape,
                         const weir_link *link, size_t elements, size_t sent) {
  const weir_cost_terms now = weir_cost_plan_between(best, shape, link, elements, sent),
                        then = weir_cost_plan_between(other, shape, link, elements, sent);
  if (weir_cost_links(&then, link) < weir_cost_links(&now, link)) *best = *other;
}

void weir_bits_schemes(const weir_layout *layout, weir_group_shape shape, const weir_link *link,
                       bool devices, weir_plan_bucket *table, size_t count) {
  const bool machines = shape.hosts > 1 && shape.hosts < shape.ranks && weir_shape_even(shape);
  for (size_t g = 0, first = 0; g < count; first = table[g++].end) {
    const size_t elements = layout->offset[table[g].end] - layout->offset[first];
    weir_plan plan = {0};
    weir_plan_of_bucket(&table[g], &plan);
    const size_t sent = weir_cost_kept(&plan, elements);
    weir_plan best = weir_select_plan(&plan, shape, link, elements, sent);
    if (weir_codecs[plan.codec]->encode != NULL) {
      weir_plan summed = plan;
      summed.scheme = WEIR_SCHEME_COMPRESSED;
      summed = weir_select_plan(&summed, shape, link, elements, sent);
      take_cheaper(&best, &summed, shape, link, elements, sent);
      /* Of a device's gradients paths are run by the host, which these costs do not tell of. */
      if (machines && !devices && weir_path_parse(WEIR_PATH_MACHINE_SUMS, &plan) == WEIR_OK)
        take_cheaper(&best, &plan, shape, link, elements, sent);
    }
    weir_bucket_set_plan(&table[g], &best);
  }
}

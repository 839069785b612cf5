/* Making the clicks that the recommender learns: events by a hidden model, a function of the seed
 * alone. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "lab/dataset.h"

const uint16_t weir_click_items[WEIR_CLICK_FIELDS] = {8000, 4000, 4000, 2000, 1000, 500, 200, 50};

enum { TRAIN = 300000, TEST = 10000, TASTES = 4, ITEMS = 19750 };

/* What an item is worth by itself, and its tastes: a pair is worth their product. */
typedef struct item {
  float worth, taste[TASTES];
} item;

static void make_items(item *items, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed ^ UINT64_C(0x3c6ef372fe94f82b));
  for (size_t i = 0; i < ITEMS; i++) {
    items[i].worth = (float)(0.6 * weir_rng_normal(&rng));
    for (size_t k = 0; k < TASTES; k++) items[i].taste[k] = (float)(0.25 * weir_rng_normal(&rng));
  }
}

/* The n-th most frequent comes about as 1 / n, the most frequent being number 0. */
static uint16_t zipf(weir_rng *rng, uint16_t items) {
  const double number = exp(weir_rng_uniform(rng) * log((double)items + 1)) - 1;
  return number < (double)items ? (uint16_t)number : (uint16_t)(items - 1);
}

static uint8_t make_event(const item *items, weir_rng *rng, uint16_t *event) {
  double worth = -0.5, sum[TASTES] = {0}, square = 0;
  for (size_t f = 0; f < WEIR_CLICK_FIELDS; items += weir_click_items[f++]) {
    event[f] = zipf(rng, weir_click_items[f]);
    const item *one = &items[event[f]];
    worth += (double)one->worth;
    for (size_t k = 0; k < TASTES; k++) {
      sum[k] += (double)one->taste[k];
      square += (double)one->taste[k] * (double)one->taste[k];
    }
  }
  /* All pairs: half of the square of the sum without the squares. */
  for (size_t k = 0; k < TASTES; k++) worth += sum[k] * sum[k] / 2;
  worth -= square / 2;
  return weir_rng_uniform(rng) < 1 / (1 + exp(-worth));
}

weir_status weir_dataset_clicks(weir_dataset *data, uint64_t seed) {
  *data = (weir_dataset){.name = "clicks", .train = TRAIN, .test = TEST, .first_test = TRAIN};
  data->items = calloc((TRAIN + TEST) * WEIR_CLICK_FIELDS, sizeof *data->items);
  data->clicked = calloc(TRAIN + TEST, sizeof *data->clicked);
  item *items = calloc(ITEMS, sizeof *items);
  if (!data->items || !data->clicked || !items) {
    free(items);
    weir_dataset_free(data);
    return weir_fail(WEIR_E_NOMEM, "no memory for %d clicks", TRAIN + TEST);
  }
  weir_rng rng = weir_rng_of(seed ^ UINT64_C(0x9b05688c2b3e6c1f));
  make_items(items, seed);
  for (size_t e = 0; e < TRAIN + TEST; e++)
    data->clicked[e] = make_event(items, &rng, data->items + e * WEIR_CLICK_FIELDS);
  free(items);
  return WEIR_OK;
}

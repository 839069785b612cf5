/* The multiple-choice knapsack: Lagrangian relaxation, then bounded states over the core.
 *
 * With a multiplier w >= 0 and budget B of squared error, an assignment's bytes are
 *
 *   bytes = bound + surplus + w (B - error2),   bound = sum of min (bytes + w error2) - w B
 *
 * where surplus is the sum over layers of bytes + w error2 above the layer's minimum.  So within
 * the budget bytes >= bound + surplus, and an option whose own surplus reaches the gap between the
 * best answer and the bound is in no better answer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "planner/bits.h"

enum { STATES = 64, STATES_OF_ALL = 16384, BINS = 256, PASSES = 3, MARGIN = 2 };

/* A step along a layer's convex hull towards less error. */
typedef struct step {
  size_t layer, option;
  double price; /* bytes per squared error saved */
  size_t order;
} step;

typedef struct item {
  size_t option;
  double bytes, error2; /* beyond the base's */
  double surplus;       /* beyond the base's */
} item;

/* Bytes and error beyond the base, and the surplus, once the layers joined so far have chosen. */
typedef struct state {
  double bytes, error2, surplus;
  uint32_t parent, item;
} state;

typedef struct stage {
  size_t layer;
  size_t first, count;  /* items */
  size_t begin, states; /* in all[] */
  double least_error2;  /* the most that this and later stages can save, <= 0 */
} stage;

typedef struct knapsack {
  const weir_bits_stats *stats;
  double budget; /* of squared error */
  double weight; /* w */
  double bound;
  size_t *base; /* [layers] the relaxation's answer, made feasible */
  double base_bytes, base_error2;
  double best; /* bytes of the best answer */
  size_t most_states;
  double dropped; /* least bound of a state that did not fit */
  item *items;    /* [options] */
  stage *stages;  /* [layers + 2]: 0 is the base alone, the last has nothing */
  size_t stage_count;
  state *all;             /* [(layers + 1) * most_states] */
  state *merged, *joined; /* [(MARGIN + 1) * most_states] each */
} knapsack;

static const weir_bits_option *options_of(const knapsack *k, size_t layer) {
  return &k->stats->options[k->stats->layers[layer].first];
}

static int by_bytes(const void *a, const void *b) {
  const weir_bits_option *x = *(weir_bits_option *const *)a, *y = *(weir_bits_option *const *)b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return (x->error2 > y->error2) - (x->error2 < y->error2);
}

static double price_of(const weir_bits_option *from, const weir_bits_option *to) {
  return (to->bytes - from->bytes) / (from->error2 - to->error2);
}

/* The lower convex hull of a layer's options; the first has the least bytes. */
static size_t hull_of(const knapsack *k, size_t layer, const weir_bits_option **hull) {
  const weir_bits_option *sorted[WEIR_BITS_OPTIONS];
  const size_t count = k->stats->layers[layer].count;
  size_t size = 0;
  for (size_t i = 0; i < count; i++) sorted[i] = options_of(k, layer) + i;
  qsort(sorted, count, sizeof *sorted, by_bytes);
  for (size_t i = 0; i < count; i++) {
    if (size && sorted[i]->error2 >= hull[size - 1]->error2) continue;
    while (size > 1 &&
           price_of(hull[size - 1], sorted[i]) <= price_of(hull[size - 2], hull[size - 1]))
      size--;
    hull[size++] = sorted[i];
  }
  return size;
}

static int by_price(const void *a, const void *b) {
  const step *x = a, *y = b;
  if (x->price != y->price) return x->price < y->price ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

/* Start from the least bytes and take the cheapest steps until the budget is kept. */
static weir_status relax(knapsack *k, step *steps) {
  const weir_bits_option *hull[WEIR_BITS_OPTIONS];
  size_t count = 0;
  double error2 = 0.0;
  for (size_t l = 0; l < k->stats->layer_count; l++) {
    const size_t size = hull_of(k, l, hull);
    k->base[l] = (size_t)(hull[0] - k->stats->options);
    error2 += hull[0]->error2;
    for (size_t i = 1; i < size; i++, count++)
      steps[count] =
          (step){l, (size_t)(hull[i] - k->stats->options), price_of(hull[i - 1], hull[i]), count};
  }
  qsort(steps, count, sizeof *steps, by_price);
  size_t next = 0;
  for (; error2 > k->budget && next < count; next++) {
    const step *s = &steps[next];
    error2 += k->stats->options[s->option].error2 - k->stats->options[k->base[s->layer]].error2;
    k->base[s->layer] = s->option;
    k->weight = s->price;
  }
  /* The running sum may end a rounding error off the true one; a further step mends that. */
  weir_bits measured = {.choice = k->base};
  for (weir_bits_measure(k->stats, &measured); measured.error * measured.error > k->budget;
       weir_bits_measure(k->stats, &measured)) {
    if (next == count)
      return weir_fail(WEIR_E_INVALID, "the least error of any assignment is %g, not %g",
                       measured.error, sqrt(k->budget));
    k->weight = steps[next].price;
    k->base[steps[next].layer] = steps[next].option;
    next++;
  }
  k->base_bytes = measured.bytes;
  k->base_error2 = measured.error * measured.error;
  return WEIR_OK;
}

static double least_of_layer(const knapsack *k, size_t layer) {
  const weir_bits_option *options = options_of(k, layer);
  double least = INFINITY;
  for (size_t i = 0; i < k->stats->layers[layer].count; i++)
    least = fmin(least, options[i].bytes + k->weight * options[i].error2);
  return least;
}

/* Bytes are whole: a bound above best - 1 is as good as best. The slack is far above rounding. */
static int hopeless(const knapsack *k, double surplus) {
  return k->bound + surplus > k->best - 1.0 + 1e-3;
}

static int by_saving(const void *a, const void *b) {
  const stage *x = a, *y = b;
  if (x->least_error2 != y->least_error2) return x->least_error2 < y->least_error2 ? -1 : 1;
  return (x->layer > y->layer) - (x->layer < y->layer);
}

/* The layers that still have a choice, with what is left of it. */
static void find_core(knapsack *k) {
  size_t used = 0;
  k->stage_count = 0;
  for (size_t l = 0; l < k->stats->layer_count; l++) {
    const weir_bits_layer *layer = &k->stats->layers[l];
    const weir_bits_option *base = &k->stats->options[k->base[l]];
    const double least = least_of_layer(k, l);
    stage s = {.layer = l, .first = used};
    for (size_t i = layer->first; i < layer->first + layer->count; i++) {
      const weir_bits_option *o = &k->stats->options[i];
      const double surplus = o->bytes + k->weight * o->error2 - least;
      if (i != k->base[l] && hopeless(k, surplus)) continue;
      k->items[used++] = (item){i, o->bytes - base->bytes, o->error2 - base->error2,
                                surplus - (base->bytes + k->weight * base->error2 - least)};
      s.least_error2 = fmin(s.least_error2, o->error2 - base->error2);
    }
    s.count = used - s.first;
    if (s.count > 1)
      k->stages[++k->stage_count] = s;
    else
      used = s.first;
  }
  qsort(k->stages + 1, k->stage_count, sizeof *k->stages, by_saving);
  k->stages[k->stage_count + 1] = (stage){0};
  for (size_t i = k->stage_count; i > 1; i--)
    k->stages[i - 1].least_error2 += k->stages[i].least_error2;
}

static int precedes(const state *a, const state *b) {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->error2 < b->error2;
}

/* merged = merged and the previous stage's states that take this item, ascending in bytes and
 * without those that another one dominates. */
static size_t join(knapsack *k, const stage *s, uint32_t choice, size_t merged) {
  const item *take = &k->items[s->first + choice];
  const state *from = k->all + s[-1].begin;
  double least_error2 = INFINITY;
  size_t out = 0, old = 0, i = 0;
  while (old < merged || i < s[-1].states) {
    state next = {INFINITY, INFINITY, INFINITY, (uint32_t)i, choice};
    if (i < s[-1].states)
      next = (state){from[i].bytes + take->bytes, from[i].error2 + take->error2,
                     from[i].surplus + take->surplus, (uint32_t)i, choice};
    if (old < merged && precedes(&k->merged[old], &next))
      next = k->merged[old++];
    else
      i++;
    if (next.error2 >= least_error2 || hopeless(k, next.surplus) ||
        k->base_error2 + next.error2 + s[1].least_error2 > k->budget)
      continue;
    least_error2 = next.error2;
    k->joined[out++] = next;
  }
  state *swap = k->merged;
  k->merged = k->joined;
  k->joined = swap;
  return out;
}

/* Keep at most that many states, of least surplus to the resolution of the bins. */
static size_t fit(knapsack *k, size_t count, size_t most) {
  if (count <= most) return count;
  const double width = (k->best - k->bound) / BINS;
  size_t bins[BINS] = {0}, kept = 0, last = 0;
  for (size_t i = 0; i < count; i++) {
    const double at = k->merged[i].surplus / width;
    bins[at < 0.0 ? 0 : at < BINS - 1 ? (size_t)at : BINS - 1]++;
  }
  for (size_t sum = bins[0]; last < BINS - 1 && sum + bins[last + 1] <= most;) sum += bins[++last];
  for (size_t i = 0; i < count; i++) {
    if (k->merged[i].surplus < width * (double)(last + 1) && kept < most)
      k->merged[kept++] = k->merged[i];
    else
      k->dropped = fmin(k->dropped, k->bound + k->merged[i].surplus);
  }
  return kept;
}

/* Where the best answer was found. */
typedef struct finding {
  size_t stage, state; /* stage 0: the base */
} finding;

static finding join_all(knapsack *k) {
  finding found = {0, 0};
  for (size_t n = 1; n <= k->stage_count; n++) {
    stage *s = &k->stages[n];
    size_t merged = 0;
    for (uint32_t choice = 0; choice < s->count; choice++)
      merged = fit(k, join(k, s, choice, merged), MARGIN * k->most_states);
    s->begin = s[-1].begin + s[-1].states;
    s->states = fit(k, merged, k->most_states);
    memcpy(k->all + s->begin, k->merged, s->states * sizeof *k->all);
    for (size_t i = 0; i < s->states; i++) {
      const state *at = &k->merged[i];
      if (k->base_error2 + at->error2 > k->budget || k->base_bytes + at->bytes >= k->best) continue;
      k->best = k->base_bytes + at->bytes;
      found = (finding){n, i};
    }
  }
  return found;
}

static void trace_back(const knapsack *k, finding found, size_t *choice) {
  memcpy(choice, k->base, k->stats->layer_count * sizeof *choice);
  for (size_t n = found.stage, at = found.state; n; n--) {
    const stage *s = &k->stages[n];
    const state *here = &k->all[s->begin + at];
    choice[s->layer] = k->items[s->first + here->item].option;
    at = here->parent;
  }
}

static void solve(knapsack *k, const weir_bits *known, weir_bits *bits) {
  double least = 0.0, surplus = 0.0;
  for (size_t l = 0; l < k->stats->layer_count; l++) {
    const weir_bits_option *base = &k->stats->options[k->base[l]];
    least += least_of_layer(k, l);
    surplus += base->bytes + k->weight * base->error2 - least_of_layer(k, l);
  }
  k->bound = least - k->weight * k->budget;
  k->best = k->base_bytes;
  const int known_is_best =
      known && known->error * known->error <= k->budget && known->bytes < k->base_bytes;
  if (known_is_best) k->best = known->bytes;
  memcpy(bits->choice, known_is_best ? known->choice : k->base,
         k->stats->layer_count * sizeof *bits->choice);
  /* What a narrow pass finds narrows the gap, and with it the core of the next, wider pass. */
  k->dropped = -INFINITY;
  const size_t most = k->most_states;
  for (size_t pass = 0; pass < PASSES && k->dropped < k->best; pass++) {
    k->dropped = INFINITY;
    k->most_states = pass + 1 < PASSES ? 1 + (most >> (PASSES - 1 - pass)) : most;
    find_core(k);
    k->all[0] = (state){.surplus = surplus};
    k->stages[0] = (stage){.states = 1};
    const finding found = join_all(k);
    if (found.stage) trace_back(k, found, bits->choice);
  }
  weir_bits_measure(k->stats, bits);
  bits->least_bytes = fmin(bits->bytes, fmax(0.0, ceil(k->dropped - 1e-3)));
}

weir_status weir_bits_knapsack(const weir_bits_stats *stats, double most_error, size_t states,
                               const weir_bits *known, weir_bits *bits) {
  const size_t layers = stats->layer_count;
  size_t most = states;
  if (most == 0)
    most = layers < STATES_OF_ALL / STATES ? STATES_OF_ALL / (layers ? layers : 1) : STATES;
  knapsack k = {.stats = stats,
                .most_states = most,
                .budget = most_error * most_error * (1.0 + WEIR_BITS_ROUNDING)};
  *bits = (weir_bits){.choice = malloc(layers * sizeof *bits->choice)};
  step *steps = malloc(stats->option_count * sizeof *steps);
  k.base = malloc(layers * sizeof *k.base);
  k.items = malloc(stats->option_count * sizeof *k.items);
  k.stages = calloc(layers + 2, sizeof *k.stages);
  k.all = malloc((layers + 1) * most * sizeof *k.all);
  k.merged = malloc((MARGIN + 1) * most * sizeof *k.merged);
  k.joined = malloc((MARGIN + 1) * most * sizeof *k.joined);
  weir_status status = WEIR_OK;
  if (!bits->choice || !steps || !k.base || !k.items || !k.stages || !k.all || !k.merged ||
      !k.joined)
    status = weir_fail(WEIR_E_NOMEM, "no memory for %zu layers", layers);
  if (status == WEIR_OK && !(most_error >= 0.0))
    status = weir_fail(WEIR_E_INVALID, "an error of at most %g: expected 0 or more", most_error);
  if (status == WEIR_OK) status = relax(&k, steps);
  if (status == WEIR_OK) solve(&k, known, bits);
  free(steps);
  free(k.base);
  free(k.items);
  free(k.stages);
  free(k.all);
  free(k.merged);
  free(k.joined);
  if (status != WEIR_OK) weir_bits_drop(bits);
  return status;
}

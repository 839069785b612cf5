#include "plan_widths.h"

#include <glib.h>

#include "base/base.h"
#include "collectives/select.h"
#include "controller/bits.h"
#include "plan.h"
#include "planner/profile.h"
#include "planner/solve.h"

void plan_widths_free(plan_widths *widths) {
  g_free(widths->bucket);
  *widths = (plan_widths){0};
}

static weir_status check(const weir_bits_stats *stats, size_t layer, size_t choice,
                         const char *path) {
  const weir_bits_option *option = &stats->options[choice];
  const bool power = option->bucket != 0 && (option->bucket & (option->bucket - 1)) == 0;
  const weir_plan plan = power ? weir_bits_plan(option->bits, option->bucket) : (weir_plan){0};
  if (option->bits == WEIR_BITS_FULL || (power && weir_plan_check(&plan) == WEIR_OK))
    return WEIR_OK;
  return weir_fail(WEIR_E_UNSUPPORTED,
                   "%s:%zu: layer '%.60s' gets %u bits in buckets of %u: expected what plans name, "
                   "%d to %d bits and a power of two from 64 to 8192, for --out and --profile",
                   path, stats->layers[layer].line, stats->layers[layer].name, option->bits,
                   option->bucket, WEIR_BITS_LEAST, WEIR_BITS_MOST);
}

/* Those that are of buckets: their layers, choices and places in the statistics. */
static void split(const weir_bits_stats *stats, const size_t *choice, weir_bits_stats *rest,
                  size_t *rest_choice, size_t *place, double *apart) {
  rest->options = stats->options;
  for (size_t l = 0; l < stats->layer_count; l++) {
    if (stats->layers[l].apart) {
      *apart += stats->layers[l].numel;
      continue;
    }
    place[rest->layer_count] = l;
    rest_choice[rest->layer_count] = choice[l];
    rest->layers[rest->layer_count++] = stats->layers[l];
  }
}

weir_status plan_widths_make(plan_widths *widths, const weir_bits_stats *stats,
                             const weir_bits *bits, const weir_plan *coded, const char *path) {
  *widths = (plan_widths){0};
  weir_plan dense;
  weir_status status = weir_plan_parse("none:1:dense", &dense);
  for (size_t l = 0; l < stats->layer_count && status == WEIR_OK; l++)
    status = check(stats, l, bits->choice[l], path);
  if (status != WEIR_OK) return status;
  g_autofree weir_bits_layer *layers = g_new0(weir_bits_layer, stats->layer_count);
  g_autofree size_t *choice = g_new0(size_t, stats->layer_count);
  g_autofree size_t *place = g_new0(size_t, stats->layer_count);
  g_autofree weir_plan_bucket *bucket = g_new0(weir_plan_bucket, stats->layer_count);
  weir_bits_stats rest = {.layers = layers};
  split(stats, bits->choice, &rest, choice, place, &widths->apart);
  widths->count = weir_bits_table(&rest, choice, &dense, bucket);
  widths->bucket = g_new0(plan_widths_bucket, widths->count);
  for (size_t k = 0, l = 0; k < widths->count; k++) {
    plan_widths_bucket *b = &widths->bucket[k];
    b->last = place[bucket[k].end - 1];
    for (; l < bucket[k].end; l++) b->numel += layers[l].numel;
    weir_plan own = {0};
    weir_plan_of_bucket(&bucket[k], &own);
    b->plan = own.codec == coded->codec ? *coded : own;
    b->plan.cr = own.cr;
    b->plan.bucket_log2 = own.bucket_log2;
  }
  return WEIR_OK;
}

weir_status plan_widths_write(const plan_widths *widths, const weir_bits_stats *stats,
                              const char *out) {
  g_autoptr(GString) table = g_string_new(NULL);
  for (size_t l = 0; l < stats->layer_count; l++)
    if (stats->layers[l].apart) plan_table_keep(table, stats->layers[l].name);
  for (size_t k = 0; k < widths->count; k++)
    plan_table_add(table, stats->layers[widths->bucket[k].last].name, &widths->bucket[k].plan,
                   WEIR_PLACE_CALLER);
  return cli_write(out, table);
}

/* Each layer's place among the profile's tensors, which are to be the same, in the same order but
 * for what goes apart. */
static weir_status match(const weir_profile *profile, const weir_bits_stats *stats,
                         const char *path, size_t *place) {
  if (profile->count != stats->layer_count)
    return weir_fail(WEIR_E_PARSE, "%s: %zu tensors: expected the %zu layers of the statistics",
                     path, profile->count, stats->layer_count);
  g_autoptr(GHashTable) tensors = g_hash_table_new(g_str_hash, g_str_equal);
  for (size_t i = 0; i < profile->count; i++)
    g_hash_table_insert(tensors, profile->tensors[i].name, &profile->tensors[i]);
  const weir_profile_tensor *before = NULL;
  for (size_t l = 0; l < stats->layer_count; l++) {
    const weir_bits_layer *layer = &stats->layers[l];
    const weir_profile_tensor *tensor = g_hash_table_lookup(tensors, layer->name);
    if (!tensor || tensor->numel != layer->numel)
      return weir_fail(WEIR_E_PARSE, "%s: expected a tensor '%.60s' of %.0f elements", path,
                       layer->name, layer->numel);
    place[l] = (size_t)(tensor - profile->tensors);
    if (layer->apart) continue;
    if (before != NULL && tensor < before)
      return weir_fail(WEIR_E_PARSE,
                       "%s: tensor '%.60s': expected behind '%.60s', as the layers are", path,
                       tensor->name, before->name);
    before = tensor;
  }
  return WEIR_OK;
}

/* Before the gradient of a bucket of the table is there, all up to its last tensor are. */
static void gaps(const plan_widths *widths, const weir_profile *profile, const size_t *place,
                 weir_profile_tensor *tensor) {
  size_t next = 0;
  for (size_t k = 0; k < widths->count; k++)
    for (const size_t end = place[widths->bucket[k].last] + 1; next < end; next++)
      tensor[k].gap_s += profile->tensors[next].gap_s;
  for (; next < profile->count; next++) tensor[widths->count].gap_s += profile->tensors[next].gap_s;
}

/* While an exchange waits for a latency, a link saves up what it then lets through at once, its
 * burst at the most.  A bucket's size is known, so its cost is one number. */
static weir_curve exchange(const weir_plan *plan, weir_group_shape shape, const weir_link *link,
                           size_t elements) {
  const weir_cost_terms terms =
      weir_cost_plan_between(plan, shape, link, elements, weir_cost_kept(plan, elements));
  const double hops = terms.alpha_terms;
  const double back = MIN(link->burst, link->alpha / link->beta);
  const double saved = hops > 0.0 ? hops * MIN(back, terms.byte_terms / hops) : 0.0;
  return (weir_curve){.fixed_s = weir_cost_links(&terms, link) - saved * link->beta};
}

weir_status plan_widths_foretell(const plan_widths *widths, const weir_bits_stats *stats,
                                 const plan_widths_place *to, double *iteration_s) {
  const weir_group_shape shape = {to->workers, to->workers, false, 0, 0};
  const weir_link link = {.alpha = to->alpha_s, .beta = to->beta_s, .burst = to->burst};
  const size_t count = widths->count + (widths->apart > 0.0 ? 1 : 0);
  g_autofree size_t *place = g_new0(size_t, stats->layer_count);
  g_autofree weir_profile_tensor *tensor = g_new0(weir_profile_tensor, widths->count + 1);
  g_autofree weir_solve_row *row = g_new0(weir_solve_row, count);
  g_autofree weir_solve_bucket *bucket = g_new0(weir_solve_bucket, count);
  weir_profile profile;
  weir_plan dense;
  weir_status status = weir_plan_parse("none:1:dense", &dense);
  if (status == WEIR_OK) status = weir_profile_load(&profile, to->profile);
  if (status != WEIR_OK) return status;
  status = match(&profile, stats, to->profile, place);
  if (status == WEIR_OK) gaps(widths, &profile, place, tensor);
  for (size_t k = 0; k < count && status == WEIR_OK; k++) {
    const bool full = k == widths->count;
    tensor[k].numel = full ? widths->apart : widths->bucket[k].numel;
    const size_t elements = (size_t)tensor[k].numel;
    const weir_plan *given = full ? &dense : &widths->bucket[k].plan;
    const weir_plan plan =
        weir_select_plan(given, shape, &link, elements, weir_cost_kept(given, elements));
    row[k] = (weir_solve_row){.compress = full ? (weir_curve){0} : to->compress,
                              .exchange = exchange(&plan, shape, &link, elements)};
    bucket[k] = (weir_solve_bucket){.end = k + 1, .row = k};
  }
  const weir_profile fused = {.count = count, .tensors = tensor};
  if (status == WEIR_OK) *iteration_s = weir_solve_evaluate(&fused, row, bucket, count);
  weir_profile_free(&profile);
  return status;
}

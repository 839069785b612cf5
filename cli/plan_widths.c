#include "plan_widths.h"

#include <string.h>

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

/* The profile's tensors are to be the statistics' layers. */
static weir_status match(const weir_profile *profile, const weir_bits_stats *stats,
                         const char *path) {
  if (profile->count != stats->layer_count)
    return weir_fail(WEIR_E_PARSE, "%s: %zu tensors: expected the %zu layers of the statistics",
                     path, profile->count, stats->layer_count);
  for (size_t l = 0; l < profile->count; l++)
    if (strcmp(profile->tensors[l].name, stats->layers[l].name) != 0 ||
        profile->tensors[l].numel != stats->layers[l].numel)
      return weir_fail(WEIR_E_PARSE,
                       "%s: tensor %zu is '%.60s' of %.0f elements: expected layer '%.60s' of %.0f",
                       path, l, profile->tensors[l].name, profile->tensors[l].numel,
                       stats->layers[l].name, stats->layers[l].numel);
  return WEIR_OK;
}

weir_status plan_widths_foretell(const plan_widths *widths, const weir_bits_stats *stats,
                                 const plan_widths_place *place, double *iteration_s) {
  weir_profile profile;
  weir_status status = weir_profile_load(&profile, place->profile);
  if (status == WEIR_OK) status = match(&profile, stats, place->profile);
  if (status != WEIR_OK) return status;
  const size_t most = widths->count + 1;
  g_autofree weir_profile_tensor *tensor = g_new0(weir_profile_tensor, most);
  g_autofree weir_solve_row *row = g_new0(weir_solve_row, most);
  g_autofree weir_solve_bucket *bucket = g_new0(weir_solve_bucket, most);
  const weir_group_shape shape = {place->workers, place->workers, false};
  const weir_link link = {.alpha = place->alpha_s, .beta = place->beta_s};
  weir_plan dense;
  status = weir_plan_parse("none:1:dense", &dense);
  size_t count = 0;
  for (size_t l = 0; count < most; count++) {
    const bool full = count == widths->count;
    if (full && widths->apart == 0.0) break;
    weir_plan plan = full ? dense : widths->bucket[count].plan;
    tensor[count].numel = full ? widths->apart : widths->bucket[count].numel;
    const size_t end = full ? profile.count : widths->bucket[count].last + 1;
    for (; l < end; l++) tensor[count].gap_s += profile.tensors[l].gap_s;
    const size_t elements = (size_t)tensor[count].numel;
    plan = weir_select_plan(&plan, shape, &link, elements, weir_cost_kept(&plan, elements));
    row[count] = (weir_solve_row){
        .compress = full ? (weir_curve){0} : place->compress,
        .exchange = weir_solve_exchange_between(&plan, shape, &link, 4.0 * tensor[count].numel)};
    bucket[count] = (weir_solve_bucket){.end = count + 1, .row = count};
  }
  const weir_profile fused = {.count = count, .tensors = tensor};
  if (status == WEIR_OK) *iteration_s = weir_solve_evaluate(&fused, row, bucket, count);
  weir_profile_free(&profile);
  return status;
}

/* Exact selection of the k largest magnitudes in linear time.
 *
 * A sample of the gradient estimates a magnitude somewhat below the k-th largest; one
 * compaction pass collects everything above it, and the exact search runs on that short list.
 * When the sample cannot help (small n, large k), misleads (too few collected) or meets ties
 * in bulk (too many), the search runs over all elements: either the estimate is itself the
 * k-th magnitude, which counting shows, or three counting passes fix the k-th magnitude digit
 * by digit. Zeros are not collected: where all others are fewer than k, the k-th is one of them.
 * Every route gives the same indices. */
#include <math.h>

#include "kernels/internal.h"

#define COPIES WEIR_RADIX_COPIES

typedef struct digit {
  unsigned shift, width;
} digit;

/* Count the digits of the elements whose bits above the digit equal prefix.  Neighbours go to
 * different copies of a counter: equal digits do not wait for each other.  often: many elements
 * match, so that counting nothing for the others is cheaper than guessing which do. */
static void count_digits(uint32_t (*histogram)[COPIES], const float *x, size_t n, digit d,
                         uint32_t prefix, bool often) {
  uint32_t mask = (UINT32_C(1) << d.width) - 1;
  unsigned above = d.shift + d.width;
  memset(histogram, 0, (mask + (size_t)1) * sizeof histogram[0]);
  if (often) {
    for (size_t i = 0; i < n; i++) {
      uint32_t bits = weir_magnitude(x[i]);
      histogram[(bits >> d.shift) & mask][i % COPIES] += bits >> above == prefix;
    }
  } else {
    for (size_t i = 0; i < n; i++) {
      uint32_t bits = weir_magnitude(x[i]);
      if (bits >> above == prefix) histogram[(bits >> d.shift) & mask][i % COPIES]++;
    }
  }
}

static uint32_t counted(const uint32_t counter[COPIES]) {
  uint32_t sum = 0;
  for (size_t copy = 0; copy < COPIES; copy++) sum += counter[copy];
  return sum;
}

weir_kth weir_kth_largest(weir_codec_context *context, const float *x, size_t n, size_t k) {
  static const digit digits[] = {{20, 11}, {10, 10}, {0, 10}};
  weir_kth kth = {0, 0};
  size_t matching = n;
  for (size_t level = 0; level < 3; level++) {
    digit d = digits[level];
    count_digits(context->histogram, x, n, d, kth.bits, matching > n / 16);
    uint32_t bin = (UINT32_C(1) << d.width) - 1;
    uint32_t here = counted(context->histogram[bin]);
    while (kth.above + here < k) {
      kth.above += here;
      here = counted(context->histogram[--bin]);
    }
    kth.bits = kth.bits << d.width | bin;
    matching = here;
  }
  return kth;
}

size_t weir_sample_at(size_t i, size_t stretch, uint64_t *state) {
  *state = *state * WEIR_SAMPLE_FACTOR + WEIR_SAMPLE_INCREMENT;
  return i * stretch + (size_t)(((*state >> 32) * stretch) >> 32);
}

void weir_sample(const float *e, size_t n, size_t count, float *sample) {
  enum { BLOCK = 64 }; /* asked for together: one by one each would be waited for */
  size_t stretch = n / count;
  uint64_t state = 1;
  size_t at[BLOCK];
  for (size_t i = 0; i < count; i += BLOCK) {
    size_t part = count - i < BLOCK ? count - i : BLOCK;
    for (size_t j = 0; j < part; j++) {
      at[j] = weir_sample_at(i + j, stretch, &state);
      __builtin_prefetch(e + at[j]);
    }
    for (size_t j = 0; j < part; j++) sample[i + j] = e[at[j]];
  }
}

bool weir_listable(size_t n, size_t k) { return n >= 4 * (size_t)WEIR_SAMPLE && k <= n / 4; }

/* Four standard deviations of a share that is drawn, and some for small ones. */
static double rarely_above(double share) { return share + 4.0 * sqrt(share) + 8.0; }

weir_list_plan weir_plan_list(size_t n, size_t k, size_t sampled) {
  const double all = (double)sampled;
  const double rank = fmin(ceil(rarely_above((double)k / (double)n * all)), all);
  const size_t room = (size_t)(rarely_above(rank) / all * (double)n);
  return (weir_list_plan){(size_t)rank, room > sampled ? room : sampled};
}

weir_status weir_list_floor(weir_codec_context *context, size_t n, size_t k, uint32_t *floor_bits) {
  const weir_list_plan plan = weir_plan_list(n, k, WEIR_SAMPLE);
  const uint32_t bits = weir_kth_largest(context, context->magnitude, WEIR_SAMPLE, plan.rank).bits;
  *floor_bits = bits > 0 ? bits : 1; /* where most are zeros, these need no list to be told */
  return weir_context_reserve(context, plan.room);
}

size_t weir_select_room(const weir_codec *codec, size_t n, size_t k, bool threads) {
  if (codec->select == NULL || !weir_listable(n, k)) return 0;
  const size_t count =
      codec->listed != NULL ? codec->listed(n, k) : weir_plan_list(n, k, WEIR_SAMPLE).room;
  return weir_context_room(count, threads);
}

/* Is the k-th largest magnitude exactly bits?  So it is when ties in bulk spoil the short list. */
static bool is_kth(const float *e, size_t n, size_t k, uint32_t bits, weir_kth *kth) {
  enum { BLOCK = 4096 }; /* still in the first cache for the second count */
  size_t above = 0;
  size_t reach = 0;
  for (size_t at = 0; at < n && above < k; at += BLOCK) {
    size_t part = n - at < BLOCK ? n - at : BLOCK;
    above += weir_cpu()->count(e + at, part, bits + 1);
    reach += weir_cpu()->count(e + at, part, bits);
  }
  *kth = (weir_kth){bits, above};
  return above < k && reach >= k;
}

weir_found weir_list_conclude(weir_codec_context *context, const float *e, size_t n, size_t k,
                              uint32_t floor_bits, size_t count) {
  weir_found found = {.floor_bits = floor_bits};
  if (count != SIZE_MAX && count >= k) {
    found.kth = weir_kth_largest(context, context->magnitude, count, k);
    found.listed = count;
  } else if (count != SIZE_MAX && floor_bits <= 1) { /* all that are not zero */
    found.kth = (weir_kth){0, count};
  } else if (!is_kth(e, n, k, floor_bits, &found.kth)) {
    found.kth = weir_kth_largest(context, e, n, k);
  }
  return found;
}

weir_status weir_search(weir_codec_context *context, const float *e, size_t n, size_t k,
                        weir_found *out) {
  *out = (weir_found){0};
  const bool ahead = context->ahead.e == e && context->ahead.n == n && context->ahead.k == k;
  weir_ahead_forget(context); /* what follows may need its room */
  if (ahead) {
    const weir_candidates *list = &context->ahead.list;
    context->magnitude = list->magnitude;
    context->position = list->position;
    context->capacity = list->capacity;
    *out = weir_list_conclude(context, e, n, k, list->floor_bits, list->count);
    return WEIR_OK;
  }
  if (!weir_listable(n, k)) {
    out->kth = weir_kth_largest(context, e, n, k);
    return WEIR_OK;
  }
  uint32_t floor_bits = 0;
  weir_status status = weir_context_reserve(context, WEIR_SAMPLE);
  if (status == WEIR_OK) {
    weir_sample(e, n, WEIR_SAMPLE, context->magnitude);
    status = weir_list_floor(context, n, k, &floor_bits);
  }
  if (status == WEIR_OK) {
    size_t count = weir_compact(context, e, n, floor_bits, context->capacity);
    *out = weir_list_conclude(context, e, n, k, floor_bits, count);
  }
  return status;
}

size_t weir_emit_candidates(const weir_codec_context *context, size_t count, weir_band band,
                            uint32_t base, uint32_t *index) {
  size_t taken = 0;
  for (size_t i = 0; i < count && taken < band.most; i++) {
    uint32_t m = weir_magnitude(context->magnitude[i]);
    bool middle = (m < band.high) & (m >= band.low) & (band.quota > 0);
    band.quota -= middle;
    /* Written always and kept only when it counts: no branch to mispredict. */
    index[taken] = base + context->position[i];
    taken += middle | (m >= band.high);
  }
  return taken;
}

void weir_emit_found(const weir_codec_context *context, const float *e, size_t n, size_t k,
                     const weir_found *found, uint32_t base, uint32_t *index) {
  weir_band band = weir_band_of(found->kth, k);
  if (found->listed > 0) {
    (void)weir_emit_candidates(context, found->listed, band, base, index);
  } else {
    (void)weir_cpu()->emit(e, n, band, base, index);
  }
}

weir_status weir_topk_indices(weir_codec_context *context, const float *e, size_t n, size_t k,
                              uint32_t base, uint32_t *index) {
  if (k == n) {
    for (size_t i = 0; i < n; i++) index[i] = base + (uint32_t)i;
    return WEIR_OK;
  }
  weir_found found;
  weir_status status = weir_search(context, e, n, k, &found);
  if (status == WEIR_OK) weir_emit_found(context, e, n, k, &found, base, index);
  return status;
}

weir_status weir_select_whole(weir_codec_context *context, const float *e,
                              const weir_layout *layout, double cr, uint32_t *index,
                              size_t capacity, size_t *k, weir_unit_fn *unit) {
  size_t n = layout->offset[layout->tensors];
  size_t kept = weir_topk_kept(layout, cr);
  weir_status status = weir_select_check(layout, cr, kept, capacity);
  if (status == WEIR_OK) {
    status = kept < n ? unit(context, e, n, kept, 0, index)
                      : weir_topk_indices(context, e, n, kept, 0, index);
  }
  *k = status == WEIR_OK ? kept : 0;
  return status;
}

weir_status weir_select_tensors(weir_codec_context *context, const float *e,
                                const weir_layout *layout, double cr, uint32_t *index,
                                size_t capacity, size_t *k, weir_unit_fn *unit) {
  size_t taken = 0;
  weir_status status = weir_select_check(layout, cr, weir_lwtopk_kept(layout, cr), capacity);
  for (size_t t = 0; status == WEIR_OK && t < layout->tensors; t++) {
    size_t offset = layout->offset[t];
    size_t numel = layout->offset[t + 1] - offset;
    size_t kept = weir_kept_of(numel, cr);
    status = unit(context, e + offset, numel, kept, (uint32_t)offset, index + taken);
    taken += kept;
  }
  *k = status == WEIR_OK ? taken : 0;
  return status;
}

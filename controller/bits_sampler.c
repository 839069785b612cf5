/* What quantizing does to each tensor, measured a little in every step (see bits.h). */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "controller/bits.h"

enum { SAMPLE = WEIR_BITS_SEEN / 2 };

/* Journals hold errors in this order; those of old end after one or two. */
const uint32_t weir_bits_sizes[WEIR_BITS_SIZES] = {WEIR_BITS_BUCKET, 1024, 64, 256, 512, 2048, 4096,
                                                   WEIR_BITS_LARGEST};

typedef struct seen {
  uint64_t count;
  double norm2, error2[WEIR_BITS_WAYS];
} seen;

struct weir_bits_sampler {
  weir_bits_stats stats;
  /* The session's thread's own. */
  size_t cursor, left; /* tensor to be measured next; elements of this step's share */
  uint64_t turn;
  float *sample; /* SAMPLE */
  /* Of both threads. */
  pthread_mutex_t lock;
  bool locks;
  seen *seen;
  size_t unseen; /* tensors not measured since the last reading */
};

static bool quantized(const weir_bits_sampler *w, size_t tensor) {
  return !w->stats.layers[tensor].full;
}

weir_plan weir_bits_plan(unsigned bits, uint32_t bucket) {
  const uint8_t log2 = (uint8_t)__builtin_ctz(bucket);
  return (weir_plan){.codec = weir_bits_codec()->id,
                     .scheme = WEIR_SCHEME_GATHER,
                     .bucket_log2 = log2 == WEIR_BUCKET_LOG2_USUAL ? 0 : log2,
                     .cr = bits / 32.0};
}

void weir_bits_describe(weir_bits_stats *s, const char *name, size_t n, bool full, size_t sizes) {
  weir_bits_layer *layer = &s->layers[s->layer_count++];
  *layer = (weir_bits_layer){
      .name = (char *)(uintptr_t)name, .numel = (double)n, .first = s->option_count, .full = full};
  const size_t offset[2] = {0, n};
  const weir_layout alone = {1, offset};
  if (layer->full)
    s->options[s->option_count++] = (weir_bits_option){WEIR_BITS_FULL, 0, 4.0 * (double)n, 0.0};
  for (size_t i = 0; i < sizes * WEIR_BITS_WIDTHS && !layer->full; i++) {
    const unsigned bits = WEIR_BITS_LEAST + (unsigned)(i % WEIR_BITS_WIDTHS);
    const uint32_t bucket = weir_bits_sizes[i / WEIR_BITS_WIDTHS];
    const weir_plan plan = weir_bits_plan(bits, bucket);
    s->options[s->option_count++] =
        (weir_bits_option){bits, bucket, (double)weir_plan_bound(&plan, &alone), 0.0};
  }
  layer->count = s->option_count - layer->first;
}

static size_t next_of(const weir_bits_sampler *w, size_t tensor) {
  const size_t tensors = w->stats.layer_count;
  for (size_t i = 1; i <= tensors; i++)
    if (quantized(w, (tensor + i) % tensors)) return (tensor + i) % tensors;
  return tensors; /* there is none */
}

static void begin_window(weir_bits_sampler *w) {
  memset(w->seen, 0, w->stats.layer_count * sizeof *w->seen);
  w->unseen = 0;
  for (size_t t = 0; t < w->stats.layer_count; t++) w->unseen += quantized(w, t);
}

weir_status weir_bits_sampler_create(weir_bits_sampler **out, const weir_layout *layout,
                                     const char *const *names, size_t full, size_t sizes) {
  *out = NULL;
  const size_t tensors = layout->tensors;
  weir_bits_sampler *w = calloc(1, sizeof *w);
  if (w == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to sample the gradient");
  w->stats.bucket = WEIR_BITS_BUCKET;
  w->stats.layers = calloc(tensors + 1, sizeof *w->stats.layers);
  w->stats.options = calloc(tensors + 1, WEIR_BITS_WAYS * sizeof *w->stats.options);
  w->seen = calloc(tensors + 1, sizeof *w->seen);
  w->sample = malloc(SAMPLE * sizeof *w->sample);
  weir_status status = WEIR_OK;
  if (!w->stats.layers || !w->stats.options || !w->seen || !w->sample)
    status = weir_fail(WEIR_E_NOMEM, "no memory to sample %zu tensors", tensors);
  if (status == WEIR_OK && pthread_mutex_init(&w->lock, NULL) != 0)
    status = weir_fail(WEIR_E_NOMEM, "no lock to sample the gradient");
  else
    w->locks = status == WEIR_OK;
  if (status != WEIR_OK) {
    weir_bits_sampler_free(w);
    return status;
  }
  for (size_t t = 0; t < tensors; t++) {
    const char *name = names != NULL ? names[t] : NULL;
    const size_t n = layout->offset[t + 1] - layout->offset[t];
    weir_bits_describe(&w->stats, name, n, t + full >= tensors || weir_bits_keeps(name, n), sizes);
  }
  w->cursor = tensors > 0 ? next_of(w, tensors - 1) : 0;
  begin_window(w);
  *out = w;
  return WEIR_OK;
}

void weir_bits_sampler_free(weir_bits_sampler *w) {
  if (w == NULL) return;
  if (w->locks) (void)pthread_mutex_destroy(&w->lock);
  free(w->sample);
  free(w->seen);
  free(w->stats.options);
  free(w->stats.layers);
  free(w);
}

/* All of a tensor, or whole buckets of the largest size spread over it, other ones each time. */
bool weir_bits_sample(weir_bits_sampler *w, size_t tensor, size_t n, weir_runs *runs) {
  if (tensor == 0) w->left = SAMPLE;
  if (tensor != w->cursor || w->left == 0) return false;
  *runs = n <= SAMPLE ? (weir_runs){n, 1, 1, (size_t)w->turn}
                      : (weir_runs){WEIR_BITS_LARGEST, SAMPLE / WEIR_BITS_LARGEST,
                                    n / WEIR_BITS_LARGEST, (size_t)w->turn};
  const size_t taken = runs->length * runs->count;
  w->left -= taken < w->left ? taken : w->left;
  w->turn++;
  w->cursor = next_of(w, tensor);
  return true;
}

/* What holds NaN or Inf tells nothing, and its step will be dropped. */
void weir_bits_seen(weir_bits_sampler *w, size_t tensor, size_t n, const weir_runs *runs,
                    const float *sample) {
  const size_t taken = runs->length * runs->count;
  const double scale = (double)n / (double)taken;
  seen now = {.norm2 = scale * weir_sum_square(sample, taken)};
  if (!isfinite(now.norm2)) return;
  const size_t ways = w->stats.layers[tensor].count;
  for (size_t i = 0; i < ways; i += WEIR_BITS_WIDTHS)
    weir_qsgd_mean_errors(sample, taken, weir_bits_sizes[i / WEIR_BITS_WIDTHS], now.error2 + i);
  pthread_mutex_lock(&w->lock);
  seen *sum = &w->seen[tensor];
  w->unseen -= sum->count++ == 0;
  sum->norm2 += now.norm2;
  for (size_t i = 0; i < ways; i++) sum->error2[i] += scale * now.error2[i];
  pthread_mutex_unlock(&w->lock);
}

void weir_bits_fed(weir_bits_sampler *w, size_t tensor, const float *e, size_t n) {
  weir_runs runs;
  if (!weir_bits_sample(w, tensor, n, &runs)) return;
  for (size_t k = 0; k < runs.count; k++)
    memcpy(w->sample + k * runs.length, e + weir_run_at(&runs, k), runs.length * sizeof *e);
  weir_bits_seen(w, tensor, n, &runs, w->sample);
}

bool weir_bits_ready(weir_bits_sampler *w) {
  pthread_mutex_lock(&w->lock);
  const bool ready = w->unseen == 0;
  pthread_mutex_unlock(&w->lock);
  return ready;
}

void weir_bits_read(weir_bits_sampler *w, const weir_bits_stats **stats, uint64_t *least) {
  *stats = &w->stats;
  *least = UINT64_MAX;
  pthread_mutex_lock(&w->lock);
  for (size_t t = 0; t < w->stats.layer_count; t++) {
    weir_bits_layer *layer = &w->stats.layers[t];
    const seen *sum = &w->seen[t];
    if (layer->full) continue;
    if (sum->count < *least) *least = sum->count;
    const double count = fmax(1.0, (double)sum->count);
    layer->norm = sqrt(sum->norm2 / count);
    for (size_t i = 0; i < layer->count; i++)
      w->stats.options[layer->first + i].error2 = sum->error2[i] / count;
  }
  begin_window(w);
  pthread_mutex_unlock(&w->lock);
}

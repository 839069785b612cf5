#include "lab/samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/cache.h>

#include "base/base.h"

struct weir_samples {
  weir_samples_config config;
  weir_cache *cache;     /* NULL: none */
  weir_dataset staged;   /* holds a batch as a training set of its own */
  uint32_t *number;      /* of the batch's samples in it */
  unsigned char *sample; /* as it is read */
};

/* --- a sample as bytes ------------------------------------------------------------------------ */

static size_t bytes_of_sample(const weir_dataset *d) {
  if (d->train_images) return d->pixels + 1;
  if (d->train_text) return d->context + 1;
  return WEIR_CLICK_FIELDS * sizeof *d->items + 1;
}

static void pack(const weir_dataset *d, size_t index, unsigned char *to) {
  if (d->train_images) {
    memcpy(to, d->train_images + index * d->pixels, d->pixels);
    to[d->pixels] = d->train_labels[index];
  } else if (d->train_text) {
    memcpy(to, d->train_text + index * d->context, d->context + 1);
  } else {
    const size_t bytes = WEIR_CLICK_FIELDS * sizeof *d->items;
    memcpy(to, d->items + index * WEIR_CLICK_FIELDS, bytes);
    to[bytes] = d->clicked[index];
  }
}

/* The place of a batch's sample among the staged ones: windows of text overlap by a byte, so that
 * every second one is used. */
static uint32_t place_of(const weir_dataset *d, size_t nth) {
  return (uint32_t)(d->train_text ? 2 * nth : nth);
}

static void unpack(weir_dataset *d, size_t place, const unsigned char *from) {
  if (d->train_images) {
    memcpy(d->train_images + place * d->pixels, from, d->pixels);
    d->train_labels[place] = from[d->pixels];
  } else if (d->train_text) {
    memcpy(d->train_text + place * d->context, from, d->context + 1);
  } else {
    const size_t bytes = WEIR_CLICK_FIELDS * sizeof *d->items;
    memcpy(d->items + place * WEIR_CLICK_FIELDS, from, bytes);
    d->clicked[place] = from[bytes];
  }
}

/* --- reading ---------------------------------------------------------------------------------- */

static int read_source(void *user, uint64_t index, void *buffer, size_t *bytes) {
  const weir_samples_config *c = &((const weir_samples *)user)->config;
  const size_t count = bytes_of_sample(c->data);
  const double seconds = c->latency_s + (c->bytes_s > 0 ? (double)count / c->bytes_s : 0);
  struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  if (*bytes < count) return EMSGSIZE;
  while (nanosleep(&pause, &pause) != 0) continue;
  pack(c->data, index, buffer);
  *bytes = count;
  return 0;
}

static weir_status fetch(void *user, const weir_batch *batch, const weir_dataset **data,
                         weir_batch *staged) {
  weir_samples *s = user;
  for (size_t i = 0; i < batch->count; i++) {
    size_t bytes = bytes_of_sample(s->config.data);
    if (!s->cache) {
      (void)read_source(s, batch->sample[i], s->sample, &bytes);
    } else {
      const weir_status status = weir_cache_get(s->cache, batch->sample[i], s->sample, bytes, NULL);
      if (status) return status;
    }
    s->number[i] = place_of(&s->staged, i);
    unpack(&s->staged, s->number[i], s->sample);
  }
  *data = &s->staged;
  *staged = (weir_batch){.sample = s->number, .count = batch->count};
  return WEIR_OK;
}

static weir_status ahead(void *user, const uint32_t *sample, size_t count) {
  weir_samples *s = user;
  return s->cache ? weir_cache_ahead(s->cache, sample, count) : WEIR_OK;
}

weir_trainer_source weir_samples_source(weir_samples *s) {
  return (weir_trainer_source){.user = s, .fetch = fetch, .ahead = ahead};
}

weir_status weir_samples_rest(weir_samples *s) { return s ? ahead(s, NULL, 0) : WEIR_OK; }

/* --- life ------------------------------------------------------------------------------------- */

static weir_status allocate(weir_samples *s) {
  const weir_dataset *d = s->config.data;
  const size_t batch = s->config.batch;
  weir_dataset *to = &s->staged;
  *to = (weir_dataset){.name = d->name, .train = batch, .pixels = d->pixels, .context = d->context};
  if (d->train_images) {
    to->train_images = malloc(batch * d->pixels);
    to->train_labels = malloc(batch);
  } else if (d->train_text) {
    to->train_text = malloc(2 * batch * d->context);
  } else {
    to->items = malloc(batch * WEIR_CLICK_FIELDS * sizeof *to->items);
    to->clicked = malloc(batch);
  }
  s->number = malloc(batch * sizeof *s->number);
  s->sample = malloc(bytes_of_sample(d));
  const bool good =
      (to->train_images && to->train_labels) || to->train_text || (to->items && to->clicked);
  return good && s->number && s->sample ? WEIR_OK
                                        : weir_fail(WEIR_E_NOMEM, "no memory for a batch");
}

static weir_status open_cache(weir_samples *s, weir_session *session) {
  weir_cache_options options;
  if (s->config.cache_bytes == 0) return WEIR_OK;
  weir_cache_options_init(&options);
  options.samples = s->config.data->train;
  options.sample_bytes = bytes_of_sample(s->config.data);
  options.read = read_source;
  options.user = s;
  options.memory_limit = s->config.cache_bytes;
  return weir_cache_open(&s->cache, session, &options);
}

weir_status weir_samples_open(weir_samples **out, weir_session *session,
                              const weir_samples_config *config) {
  *out = NULL;
  weir_samples *s = calloc(1, sizeof *s);
  if (!s) return weir_fail(WEIR_E_NOMEM, "no memory for samples");
  s->config = *config;
  weir_status status = allocate(s);
  if (!status) status = open_cache(s, session);
  if (status)
    weir_samples_close(s);
  else
    *out = s;
  return status;
}

void weir_samples_close(weir_samples *s) {
  if (!s) return;
  weir_cache_close(s->cache);
  weir_dataset_free(&s->staged);
  free(s->number);
  free(s->sample);
  free(s);
}

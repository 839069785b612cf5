/* Wire messages spread over a gradient: the list becomes masks, a block at a time, and each block's
 * values go to their places in whole vectors.  What is overwritten is written once and not read;
 * adding touches what has to be touched. */
#include "kernels/wire.h"

#define BLOCK ((size_t)64) /* masks at a time: their values are still in the first cache */

typedef struct spread {
  const weir_wire_parts *message;
  float *to;
  size_t n;
  unsigned
      lead; /* bits of the first mask before to[0]: to + 64 w - lead lies at a line of memory */
  bool add, stream;
} spread;

static spread spread_to(const weir_wire_parts *message, float *to, bool add) {
  size_t n = message->list.n;
  return (spread){.message = message,
                  .to = to,
                  .n = n,
                  .lead = (unsigned)((uintptr_t)to / sizeof *to % 16),
                  .add = add,
                  .stream = !add && n >= WEIR_STREAM_LEAST};
}

/* Fewer than a mask's elements, at either end. */
static const float *spread_few(const spread *s, uint64_t bits, size_t at, size_t count,
                               const float *value) {
  for (size_t i = at; i < at + count; i++, bits >>= 1) {
    if (bits & 1) {
      s->to[i] = s->add ? s->to[i] + *value : *value;
      value++;
    } else if (!s->add) {
      s->to[i] = 0.0F;
    }
  }
  return value;
}

/* A message's values on their way, converted CHUNK at a time. */
#define CHUNK ((size_t)1024)
typedef struct values {
  const weir_wire_parts *message;
  size_t next; /* the first not converted yet */
  size_t begin, end;
  float ready[64 * BLOCK + CHUNK + 16]; /* [begin, end) of them; whole vectors are read */
} values;

static void start_values(values *v, const weir_wire_parts *message, size_t from) {
  v->message = message;
  v->next = from;
  v->begin = v->end = 0;
}

/* The next count <= 64 * BLOCK values; the message has as many. */
static const float *take_values(values *v, size_t count) {
  if (v->end - v->begin < count) {
    v->end -= v->begin;
    memmove(v->ready, v->ready + v->begin, v->end * sizeof v->ready[0]);
    v->begin = 0;
    while (v->end < count) {
      size_t rest = v->message->k - v->next;
      size_t more = rest < CHUNK ? rest : CHUNK;
      weir_wire_values(v->message, v->next, more, v->ready + v->end);
      v->next += more;
      v->end += more;
    }
  }
  v->begin += count;
  return v->ready + v->begin - count;
}

/* At most BLOCK masks from the word-th on, ones bits in all: elements at either end that are no
 * whole mask one by one, and what is in between at once. */
static void spread_block(const spread *s, size_t word, const uint64_t *mask, size_t words,
                         values *v, size_t ones) {
  const float *value = take_values(v, ones);
  size_t at = 64 * word - (word > 0 ? s->lead : 0);
  if (word == 0 && s->lead > 0) {
    size_t count = 64 - s->lead < s->n ? 64 - s->lead : s->n;
    value = spread_few(s, mask[0] >> s->lead, 0, count, value);
    at = count;
    mask++;
    words--;
  }
  size_t whole = (s->n - at) / 64 < words ? (s->n - at) / 64 : words;
  value += s->add ? weir_cpu()->spread_add(mask, whole, value, s->to + at)
                  : weir_cpu()->spread(mask, whole, value, s->to + at, s->stream);
  if (whole < words) {
    size_t rest = at + 64 * whole;
    (void)spread_few(s, mask[whole], rest, s->n - rest, value);
  }
}

/* Over the whole list, block by block; s NULL: only to see whether the list is good. */
static bool walk(const weir_wire_parts *message, unsigned lead, const spread *s) {
  uint64_t mask[BLOCK + WEIR_MASK_SLACK];
  uint64_t last = 0;
  weir_mask_reader reader;
  values v;
  start_values(&v, message, 0);
  weir_masks_start(&reader, &message->list, lead);
  size_t words = weir_masks_words(&reader);
  for (size_t word = 0; word < words; word += BLOCK) {
    size_t part = words - word < BLOCK ? words - word : BLOCK;
    size_t ones = 0;
    if (!weir_masks_read(&reader, mask, part, &ones)) return false;
    if (s != NULL) spread_block(s, word, mask, part, &v, ones);
    last = mask[part - 1];
  }
  return weir_masks_done(&reader, last);
}

/* Masks of the whole list, and who spreads which of them. */
typedef struct shares {
  const spread *s;
  const uint64_t *mask;
  size_t words, each;
  size_t from[WEIR_POOL_MOST]; /* values before a part's */
} shares;

static void spread_part(void *argument, size_t part) {
  const shares *all = argument;
  size_t end = (part + 1) * all->each < all->words ? (part + 1) * all->each : all->words;
  values v;
  start_values(&v, all->s->message, all->from[part]);
  for (size_t word = part * all->each; word < end; word += BLOCK) {
    size_t words = end - word < BLOCK ? end - word : BLOCK;
    size_t ones = weir_cpu()->ones(all->mask + word, words);
    spread_block(all->s, word, all->mask + word, words, &v, ones);
  }
  if (all->s->stream) weir_cpu()->drain();
}

/* The list as masks in the context, checked, and then their values. */
static weir_status spread_marked(weir_codec_context *context, const spread *s) {
  weir_mask_reader reader;
  weir_masks_start(&reader, &s->message->list, s->lead);
  size_t words = weir_masks_words(&reader);
  weir_status status = weir_context_bitmap(context, words + WEIR_MASK_SLACK);
  if (status != WEIR_OK) return status;
  size_t ones = 0;
  if (!weir_masks_read(&reader, context->bitmap, words, &ones) ||
      !weir_masks_done(&reader, words > 0 ? context->bitmap[words - 1] : 0)) {
    return weir_wire_malformed("bad index list");
  }
  shares all = {.s = s, .mask = context->bitmap, .words = words};
  size_t parts = weir_pool_parts(context->pool, s->n);
  all.each = (words / parts / BLOCK + 1) * BLOCK;
  for (size_t part = 1; part < parts; part++) {
    size_t begin = (part - 1) * all.each < words ? (part - 1) * all.each : words;
    size_t end = part * all.each < words ? part * all.each : words;
    all.from[part] = all.from[part - 1] + weir_cpu()->ones(context->bitmap + begin, end - begin);
  }
  weir_pool_run(context->pool, spread_part, &all, parts);
  return WEIR_OK;
}

bool weir_wire_good_list(const weir_wire_parts *message) {
  if (weir_masks_flat(&message->list)) return walk(message, 0, NULL);
  uint32_t index[WEIR_WIRE_PIECE];
  weir_index_reader list = message->list;
  for (size_t done = 0; done < message->k; done += WEIR_WIRE_PIECE) {
    size_t rest = message->k - done;
    if (!weir_index_read(&list, index, rest < WEIR_WIRE_PIECE ? rest : WEIR_WIRE_PIECE))
      return false;
  }
  return weir_index_done(&list);
}

/* Few elements among many: one by one, after the whole list has been seen. */
static weir_status add_listed(const weir_wire_parts *message, float *to) {
  uint32_t index[WEIR_WIRE_PIECE];
  float value[WEIR_WIRE_PIECE];
  if (!weir_wire_good_list(message)) return weir_wire_malformed("bad index list");
  weir_index_reader list = message->list;
  for (size_t done = 0; done < message->k; done += WEIR_WIRE_PIECE) {
    size_t rest = message->k - done;
    size_t count = rest < WEIR_WIRE_PIECE ? rest : WEIR_WIRE_PIECE;
    (void)weir_index_read(&list, index, count);
    weir_wire_values(message, done, count, value);
    weir_scatter_add(to, index, value, count);
  }
  return WEIR_OK;
}

static weir_status open_message(const void *message, size_t bytes, size_t expected_n,
                                weir_wire_parts *in) {
  weir_status status = weir_wire_parse(message, bytes, expected_n, in);
  return status == WEIR_OK && in->values == NULL ? weir_wire_malformed("values are missing")
                                                 : status;
}

weir_status weir_wire_decode_dense(weir_codec_context *context, const void *message, size_t bytes,
                                   size_t expected_n, float *to) {
  weir_wire_parts in;
  weir_status status = open_message(message, bytes, expected_n, &in);
  if (status != WEIR_OK) return status;
  spread s = spread_to(&in, to, false);
  if (context != NULL && weir_pool_parts(context->pool, expected_n) > 1)
    return spread_marked(context, &s);
  bool good = walk(&in, s.lead, &s);
  if (s.stream) weir_cpu()->drain();
  return good ? WEIR_OK : weir_wire_malformed("bad index list");
}

weir_status weir_wire_decode_add(weir_codec_context *context, const void *message, size_t bytes,
                                 size_t expected_n, float *to) {
  weir_wire_parts in;
  weir_status status = open_message(message, bytes, expected_n, &in);
  if (status != WEIR_OK) return status;
  if (!weir_masks_dense(&in.list)) return add_listed(&in, to);
  spread s = spread_to(&in, to, true);
  if (context != NULL) return spread_marked(context, &s);
  if (!weir_wire_good_list(&in)) return weir_wire_malformed("bad index list");
  (void)walk(&in, s.lead, &s);
  return WEIR_OK;
}

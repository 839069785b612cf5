/* Messages of the quantizers: units of scales and packed codes; encoder.h gives the form. */
#include "kernels/encoder.h"

#include "base/base.h"

static const uint8_t magic[4] = {'W', 'R', 'E', '1'};

weir_status weir_encoded_malformed(uint32_t codec, const char *what) {
  return weir_fail(WEIR_E_PROTOCOL, "malformed %s message: %s", weir_codec_name(codec), what);
}

weir_status weir_encoded_begin(const weir_encoded *head, size_t n, size_t bound, void *out,
                               size_t capacity) {
  if (n > UINT32_MAX)
    return weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than a message can hold", n);
  if (capacity < bound) {
    return weir_fail(WEIR_E_CAPACITY, "a message of %zu bytes does not fit into %zu", bound,
                     capacity);
  }
  weir_encoded filled = *head;
  memcpy(filled.magic, magic, sizeof magic);
  filled.n = (uint32_t)n;
  memcpy(out, &filled, sizeof filled);
  return WEIR_OK;
}

weir_status weir_encoded_open(uint32_t codec, const void *message, size_t bytes, size_t n,
                              weir_encoded *head) {
  if (bytes < sizeof *head) return weir_encoded_malformed(codec, "shorter than its header");
  memcpy(head, message, sizeof *head);
  if (memcmp(head->magic, magic, sizeof magic) != 0 || head->zero != 0 || head->codec != codec)
    return weir_encoded_malformed(codec, "not such a message");
  return head->n == n ? WEIR_OK : weir_encoded_malformed(codec, "wrong number of elements");
}

/* --- units ----------------------------------------------------------------------------------- */

/* Walks over the units of a gradient that are not empty. */
typedef struct walk {
  const weir_layout *layout;
  size_t n;
  size_t unit; /* elements; 0: tensors */
  size_t tensor;
  size_t at;    /* first element of the unit */
  size_t count; /* its elements */
  uint64_t number;
} walk;

static walk start(const weir_layout *layout, size_t unit) {
  return (walk){.layout = layout, .n = layout->offset[layout->tensors], .unit = unit};
}

/* To the next unit; false after the last. */
static bool next(walk *w) {
  w->at += w->count;
  if (w->at >= w->n) return false;
  w->number++;
  if (w->unit > 0) {
    w->count = w->n - w->at < w->unit ? w->n - w->at : w->unit;
    return true;
  }
  while (w->layout->offset[w->tensor + 1] <= w->at) w->tensor++;
  w->count = w->layout->offset[w->tensor + 1] - w->at;
  return true;
}

/* Bytes before the first unit. */
static size_t units_at(const weir_unit_format *format) {
  return sizeof(weir_encoded) + (format->seeded ? WEIR_SEED_BYTES : 0);
}

/* Of a message with this header. */
static size_t message_bytes(const weir_unit_format *format, const weir_encoded *head,
                            const weir_layout *layout) {
  const size_t unit = head->unit, scales = format->scales;
  const unsigned bits = head->bits;
  size_t total = units_at(format);
  if (unit > 0) { /* no need to walk */
    size_t n = layout->offset[layout->tensors];
    size_t whole = n / unit;
    total += whole * (scales * sizeof(float) + weir_codes_bytes(unit, bits));
    n -= whole * unit;
    return total + (n > 0 ? scales * sizeof(float) + weir_codes_bytes(n, bits) : 0);
  }
  for (walk w = start(layout, unit); next(&w);)
    total += scales * sizeof(float) + weir_codes_bytes(w.count, bits);
  return total;
}

double weir_scale_reach(const weir_encoded *head, const float *scale) {
  (void)head;
  return *scale >= 0.0F ? (double)*scale : (double)INFINITY;
}

size_t weir_units_bound(const weir_unit_format *format, const weir_layout *layout) {
  return message_bytes(format, &format->head, layout);
}

/* A message's units shared among threads: those of equal length, whose places follow from their
 * numbers. Units that are tensors are one part. */
typedef struct unit_shares {
  const weir_unit_format *format;
  weir_encoded head;
  const weir_layout *layout;
  uint64_t seed;
  const float *e;
  uint8_t *out;        /* behind the header, when encoding */
  const uint8_t *from; /* behind the header, when decoding */
  float *to;
  weir_decoding how;
  size_t units, parts;
  bool bad[WEIR_POOL_MOST];    /* a scale out of range */
  double peak[WEIR_POOL_MOST]; /* the largest reach of a part's scales */
} unit_shares;

static void share_units(unit_shares *all, const weir_pool *pool) {
  size_t n = all->layout->offset[all->layout->tensors];
  size_t unit = all->head.unit;
  all->units = unit > 0 ? n / unit + (n % unit != 0) : 0;
  all->parts = unit > 0 ? weir_pool_parts(pool, n) : 1;
}

/* A part's units, and where the first one's bytes begin. */
static walk start_part(const unit_shares *all, size_t part, size_t *bytes) {
  walk w = start(all->layout, all->head.unit);
  *bytes = 0;
  if (all->parts > 1) {
    size_t first = all->units / all->parts * part;
    size_t unit = all->head.unit;
    w.at = first * unit;
    w.number = first;
    w.n = part + 1 < all->parts ? all->units / all->parts * (part + 1) * unit : w.n;
    *bytes = first * (all->format->scales * sizeof(float) + weir_codes_bytes(unit, all->head.bits));
  }
  return w;
}

static void encode_part(void *argument, size_t part) {
  const unit_shares *all = argument;
  const weir_unit_format *format = all->format;
  size_t head = format->scales * sizeof(float);
  size_t unit = all->head.unit;
  size_t at;
  walk w = start_part(all, part, &at);
  if (unit > 0 && format->encode_units != NULL) {
    size_t whole = (w.n - w.at) / unit;
    format->encode_units(format, all->e + w.at, whole, all->seed, w.number + 1, all->out + at);
    w.at += whole * unit;
    w.number += whole;
    at += whole * (head + weir_codes_bytes(unit, all->head.bits));
  }
  while (next(&w)) {
    float scale[WEIR_SCALES_MAX];
    format->encode(format, all->e + w.at, w.count, weir_unit_key(all->seed, w.number), scale,
                   all->out + at + head);
    memcpy(all->out + at, scale, head);
    at += head + weir_codes_bytes(w.count, all->head.bits);
  }
}

weir_status weir_units_encode(weir_codec_context *context, const weir_unit_format *format,
                              const float *e, const weir_layout *layout, uint64_t seed, void *out,
                              size_t capacity, size_t *bytes) {
  size_t bound = weir_units_bound(format, layout);
  weir_pool *pool = context != NULL ? context->pool : NULL;
  *bytes = 0;
  weir_status status =
      weir_encoded_begin(&format->head, layout->offset[layout->tensors], bound, out, capacity);
  if (status != WEIR_OK) return status;
  unit_shares all = {.format = format,
                     .head = format->head,
                     .layout = layout,
                     .seed = seed,
                     .e = e,
                     .out = (uint8_t *)out + units_at(format)};
  if (format->seeded) {
    const uint32_t told = weir_unit_key(seed, 0);
    memcpy((uint8_t *)out + sizeof(weir_encoded), &told, sizeof told);
    all.seed = told;
  }
  share_units(&all, pool);
  weir_pool_run(pool, encode_part, &all, all.parts);
  *bytes = bound;
  return WEIR_OK;
}

void weir_codes_write(uint8_t *code, size_t count, unsigned bits, uint8_t *out) {
  if (count % 8 != 0) memset(code + count, 0, 8 - count % 8);
  weir_cpu()->pack(code, (count + 7) / 8, bits, out);
}

static void decode_unit(const weir_unit_format *format, const weir_encoded *head,
                        const float *scale, uint32_t key, const uint8_t *from, size_t count,
                        float *to, weir_decoding how) {
  uint8_t code[WEIR_PIECE];
  float value[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    weir_cpu()->unpack(from + done / 8 * head->bits, (part + 7) / 8, head->bits, code);
    if (how != WEIR_DECODE_SUBTRACT) {
      format->decode(head, scale, key + (uint32_t)done, code, part, to + done,
                     how == WEIR_DECODE_ADD);
      continue;
    }
    format->decode(head, scale, key + (uint32_t)done, code, part, value, false);
    for (size_t i = 0; i < part; i++) to[done + i] -= value[i];
  }
}

static void check_part(void *argument, size_t part) {
  unit_shares *all = argument;
  size_t head = all->format->scales * sizeof(float);
  size_t at;
  for (walk w = start_part(all, part, &at); !all->bad[part] && next(&w);) {
    float scale[WEIR_SCALES_MAX] = {0};
    memcpy(scale, all->from + at, head);
    double reach = all->format->reach(&all->head, scale);
    all->bad[part] = !(reach <= (double)FLT_MAX);
    all->peak[part] = reach > all->peak[part] ? reach : all->peak[part];
    at += head + weir_codes_bytes(w.count, all->head.bits);
  }
}

static void decode_part(void *argument, size_t part) {
  const unit_shares *all = argument;
  size_t head = all->format->scales * sizeof(float);
  size_t at;
  for (walk w = start_part(all, part, &at); next(&w);) {
    float scale[WEIR_SCALES_MAX] = {0};
    memcpy(scale, all->from + at, head);
    decode_unit(all->format, &all->head, scale, weir_unit_key(all->seed, w.number),
                all->from + at + head, w.count, all->to + w.at, all->how);
    at += head + weir_codes_bytes(w.count, all->head.bits);
  }
}

/* Looks at all of a message but its codes, of which every one means something. */
static weir_status check_units(unit_shares *all, const void *message, size_t bytes,
                               weir_pool *pool) {
  size_t n = all->layout->offset[all->layout->tensors];
  weir_status status = weir_encoded_open(all->format->head.codec, message, bytes, n, &all->head);
  if (status != WEIR_OK) return status;
  if (bytes != message_bytes(all->format, &all->head, all->layout))
    return weir_encoded_malformed(all->head.codec, "wrong length");
  all->from = (const uint8_t *)message + units_at(all->format);
  if (all->format->seeded) {
    uint32_t told;
    memcpy(&told, (const uint8_t *)message + sizeof all->head, sizeof told);
    all->seed = told;
  }
  share_units(all, pool);
  weir_pool_run(pool, check_part, all, all->parts);
  for (size_t part = 0; part < all->parts; part++) {
    if (all->bad[part]) return weir_encoded_malformed(all->head.codec, "a scale out of range");
  }
  return WEIR_OK;
}

weir_status weir_units_decode(weir_codec_context *context, const weir_unit_format *format,
                              const void *message, size_t bytes, const weir_layout *layout,
                              float *to, weir_decoding how) {
  unit_shares all = {.format = format, .layout = layout, .to = to, .how = how};
  weir_pool *pool = context != NULL ? context->pool : NULL;
  weir_status status = check_units(&all, message, bytes, pool);
  if (status == WEIR_OK) weir_pool_run(pool, decode_part, &all, all.parts);
  return status;
}

weir_status weir_units_check(const weir_unit_format *format, const void *message, size_t bytes,
                             const weir_layout *layout, double *peak) {
  unit_shares all = {.format = format, .layout = layout};
  weir_status status = check_units(&all, message, bytes, NULL);
  *peak = all.peak[0] * (1.0 + 2 * (double)FLT_EPSILON); /* decoding rounds twice */
  return status;
}

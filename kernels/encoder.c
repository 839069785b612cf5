/* Messages of the quantizers: units of scales and packed codes; encoder.h gives the form. */
#include "kernels/encoder.h"

#include "base/base.h"

static const uint8_t magic[4] = {'W', 'R', 'E', '1'};

weir_status weir_encoded_malformed(uint32_t codec, const char *what) {
  return weir_fail(WEIR_E_PROTOCOL, "malformed %s message: %s", weir_codec_name(codec), what);
}

weir_status weir_encoded_begin(const weir_encoded *head, size_t n, size_t bound, void *out,
                               size_t capacity) {
  if (n > UINT32_MAX) {
    return weir_fail(WEIR_E_UNSUPPORTED, "%zu elements are more than a message can hold", n);
  }
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
  if (bytes < sizeof *head) {
    return weir_encoded_malformed(codec, "shorter than its header");
  }
  memcpy(head, message, sizeof *head);
  if (memcmp(head->magic, magic, sizeof magic) != 0 || head->zero != 0 || head->codec != codec) {
    return weir_encoded_malformed(codec, "not such a message");
  }
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
  if (w->at >= w->n) {
    return false;
  }
  w->number++;
  if (w->unit > 0) {
    w->count = w->n - w->at < w->unit ? w->n - w->at : w->unit;
    return true;
  }
  while (w->layout->offset[w->tensor + 1] <= w->at) {
    w->tensor++;
  }
  w->count = w->layout->offset[w->tensor + 1] - w->at;
  return true;
}

static size_t message_bytes(const weir_layout *layout, size_t unit, unsigned bits, size_t scales) {
  size_t total = sizeof(weir_encoded);
  if (unit > 0) { /* no need to walk */
    size_t n = layout->offset[layout->tensors];
    size_t whole = n / unit;
    total += whole * (scales * sizeof(float) + weir_codes_bytes(unit, bits));
    n -= whole * unit;
    return total + (n > 0 ? scales * sizeof(float) + weir_codes_bytes(n, bits) : 0);
  }
  for (walk w = start(layout, unit); next(&w);) {
    total += scales * sizeof(float) + weir_codes_bytes(w.count, bits);
  }
  return total;
}

size_t weir_units_bound(const weir_unit_format *format, const weir_layout *layout) {
  return message_bytes(layout, format->head.unit, format->head.bits, format->scales);
}

weir_status weir_units_encode(const weir_unit_format *format, const float *e,
                              const weir_layout *layout, uint64_t seed, void *out, size_t capacity,
                              size_t *bytes) {
  size_t bound = weir_units_bound(format, layout);
  *bytes = 0;
  weir_status status = weir_encoded_begin(&format->head, layout->offset[layout->tensors], bound,
                                          out, capacity);
  if (status != WEIR_OK) {
    return status;
  }
  uint8_t *to = (uint8_t *)out + sizeof(weir_encoded);
  size_t head = format->scales * sizeof(float);
  for (walk w = start(layout, format->head.unit); next(&w);) {
    float scale[WEIR_SCALES_MAX];
    format->encode(format, e + w.at, w.count, weir_unit_key(seed, w.number), scale, to + head);
    memcpy(to, scale, head);
    to += head + weir_codes_bytes(w.count, format->head.bits);
  }
  *bytes = bound;
  return WEIR_OK;
}

void weir_codes_write(uint8_t *code, size_t count, unsigned bits, uint8_t *out) {
  if (count % 8 != 0) {
    memset(code + count, 0, 8 - count % 8);
  }
  weir_cpu()->pack(code, (count + 7) / 8, bits, out);
}

static void decode_unit(const weir_unit_format *format, const weir_encoded *head,
                        const float *scale, const uint8_t *from, size_t count, float *to,
                        bool add) {
  uint8_t code[WEIR_PIECE];
  for (size_t done = 0; done < count; done += WEIR_PIECE) {
    size_t part = count - done < WEIR_PIECE ? count - done : WEIR_PIECE;
    weir_cpu()->unpack(from + done / 8 * head->bits, (part + 7) / 8, head->bits, code);
    format->decode(head, scale, code, part, to + done, add);
  }
}

weir_status weir_units_decode(const weir_unit_format *format, const void *message, size_t bytes,
                              const weir_layout *layout, float *to, bool add) {
  weir_encoded head;
  size_t n = layout->offset[layout->tensors];
  weir_status status = weir_encoded_open(format->head.codec, message, bytes, n, &head);
  if (status != WEIR_OK) {
    return status;
  }
  if (bytes != message_bytes(layout, head.unit, head.bits, format->scales)) {
    return weir_encoded_malformed(head.codec, "wrong length");
  }
  size_t scales = format->scales * sizeof(float);
  float scale[WEIR_SCALES_MAX] = {0};
  /* All scales are looked at before anything is written. */
  const uint8_t *from = (const uint8_t *)message + sizeof head;
  for (walk w = start(layout, head.unit); next(&w);) {
    memcpy(scale, from, scales);
    if (!format->sane(&head, scale)) {
      return weir_encoded_malformed(head.codec, "a scale out of range");
    }
    from += scales + weir_codes_bytes(w.count, head.bits);
  }
  from = (const uint8_t *)message + sizeof head;
  for (walk w = start(layout, head.unit); next(&w);) {
    memcpy(scale, from, scales);
    decode_unit(format, &head, scale, from + scales, w.count, to + w.at, add);
    from += scales + weir_codes_bytes(w.count, head.bits);
  }
  return WEIR_OK;
}

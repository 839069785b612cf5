/* nonzero: the elements that a step's gradient has touched, and no others, as companded has them.
 * An embedding gets gradient only in the rows that a batch has seen (sparse gradients, as Parallax
 * sends them, Kim et al., 2019), and how many those are is seen from the gradient itself: no ratio
 * is asked for, and however many there are, all go.  What rounding loses of an element waits in the
 * residual until a gradient touches it again.  So every element is behind by one rounding of what
 * was last sent of it at most, or by two where half of the residual waits (weir_codec.damps), which
 * is all that companded promises of it, too.
 *
 * Which elements are touched, the gradients that e was made from say (weir_codec_context_touched);
 * or, where none are told, e itself.  They go as runs, per tensor, as embeddings' rows lie
 * together:
 *
 *   header      encoder.h, unit 128
 *   u32, u32    values; bytes of the list
 *   list        per tensor: the number of its runs and, unless that is 0, log2 of a unit that
 *               divides all places, and the runs: gap * 8 + min(length - 1, 7), and length - 8
 *               where that is 7, in units, the gap from the end of the run before
 *   values      companded's units of 128 values, one after the other, of whole bits or of half
 *               ones; of 2 bits, whose squares would be signs, qsgd's; or, of 16 bits, bfloat16
 *
 * Numbers of the list are in base 128, the lowest digits first, 128 added to all but the last.  A
 * tensor whose list would cost more than the zeros it saves is one run.
 *
 * nonzero-bf16 writes the same messages with values of 16 bits: a grid's step, though finer near
 * zero, is noise to what is far smaller than the others of its unit, which bfloat16 is not. */
#include <math.h>

#include "base/base.h"
#include "kernels/encoder.h"
#include "kernels/half.h"

#define UNIT WEIR_COMPANDED_BUCKET
#define HALF 16 /* bits of a value that is a bfloat16 */
#define UNIT_LOG2_MOST 31
#define SHORT 7                  /* lengths up to it are told with the gap */
#define TENSOR_MOST 8            /* bytes of a tensor that is one run, or none */
#define LINE sizeof(uint64_t[8]) /* of memory */

typedef struct counts {
  uint32_t values, list;
} counts;

/* --- what is touched -------------------------------------------------------------------------- */

/* A tensor's elements, of whatever type. */
typedef struct elements {
  const unsigned char *at;
  size_t n, width; /* bytes of an element */
} elements;

static elements elements_of(const weir_codec_context *context, const float *e,
                            const weir_layout *layout, size_t t) {
  const size_t from = layout->offset[t], n = layout->offset[t + 1] - from;
  const bool told = context != NULL && context->touched.g != NULL;
  if (!told) return (elements){(const unsigned char *)(e + from), n, sizeof(float)};
  const bool half = context->touched.type[t] != WEIR_FP32;
  return (elements){context->touched.g[t], n, half ? sizeof(uint16_t) : sizeof(float)};
}

static bool zero_at(const elements *x, size_t i) {
  float value;
  uint16_t half;
  if (x->width == sizeof half) {
    memcpy(&half, x->at + i * sizeof half, sizeof half);
    return !weir_half_nonzero(half);
  }
  memcpy(&value, x->at + i * sizeof value, sizeof value);
  return value == 0.0F;
}

/* Nothing but zeros in the line of memory that begins there? */
static bool zeros_at(const elements *x, size_t i) {
  const uint64_t magnitude =
      x->width == sizeof(uint16_t) ? UINT64_C(0x7fff7fff7fff7fff) : UINT64_C(0x7fffffff7fffffff);
  uint64_t word[8], any = 0;
  memcpy(word, x->at + i * x->width, sizeof word);
  for (size_t w = 0; w < 8; w++) any |= word[w];
  return (any & magnitude) == 0;
}

static size_t next_nonzero(const elements *x, size_t i) {
  const size_t line = LINE / x->width;
  while (i + line <= x->n && zeros_at(x, i)) i += line;
  while (i < x->n && zero_at(x, i)) i++;
  return i;
}

static size_t next_zero(const elements *x, size_t i) {
  while (i < x->n && !zero_at(x, i)) i++;
  return i;
}

/* --- the list, written ------------------------------------------------------------------------ */

typedef struct shape {
  size_t runs, values;
  unsigned log2; /* of the unit */
} shape;

static shape look_at(const elements *x) {
  shape s = {0};
  size_t places = (size_t)1 << UNIT_LOG2_MOST;
  for (size_t end, at = next_nonzero(x, 0); at < x->n; at = next_nonzero(x, end)) {
    end = next_zero(x, at);
    places |= at | end;
    s.values += end - at;
    s.runs++;
  }
  s.log2 = (unsigned)__builtin_ctzll(places);
  return s;
}

static uint8_t *put(uint8_t *to, size_t number) {
  for (; number >= 128; number /= 128) *to++ = (uint8_t)(number % 128 + 128);
  *to++ = (uint8_t)number;
  return to;
}

static uint8_t *put_run(uint8_t *to, size_t gap, size_t length) {
  to = put(to, gap * 8 + (length <= SHORT ? length - 1 : SHORT));
  return length <= SHORT ? to : put(to, length - SHORT - 1);
}

static uint8_t *put_whole(uint8_t *to, size_t n) {
  to = put(to, n > 0);
  if (n > 0) *to++ = 0;
  return n > 0 ? put_run(to, 0, n) : to;
}

/* NULL: it is longer than `most` bytes. */
static uint8_t *put_runs(uint8_t *to, const elements *x, const shape *s, size_t most) {
  enum { RUN_MOST = 12 };
  const uint8_t *const from = to;
  size_t before = 0;
  to = put(to, s->runs);
  if (s->runs > 0) *to++ = (uint8_t)s->log2;
  for (size_t end, at = next_nonzero(x, 0); at < x->n; at = next_nonzero(x, end)) {
    uint8_t run[RUN_MOST];
    end = next_zero(x, at);
    const size_t bytes =
        (size_t)(put_run(run, (at - before) >> s->log2, (end - at) >> s->log2) - run);
    if ((size_t)(to - from) + bytes > most) return NULL;
    memcpy(to, run, bytes);
    to += bytes;
    before = end;
  }
  return to;
}

static size_t unit_bytes(const weir_unit_format *format, size_t count) {
  return format->scales * sizeof(float) + weir_codes_bytes(count, format->head.bits);
}

/* Bytes that so many values take, to a unit. */
static size_t values_cost(const weir_unit_format *format, size_t values) {
  return values * unit_bytes(format, UNIT) / UNIT;
}

/* A tensor's part of the list; *values: how many it sends. */
static uint8_t *put_tensor(uint8_t *to, const elements *x, const weir_unit_format *format,
                           size_t *values) {
  const shape s = look_at(x);
  const size_t most = TENSOR_MOST + values_cost(format, x->n) - values_cost(format, s.values);
  uint8_t *const end = put_runs(to, x, &s, most);
  *values += end != NULL ? s.values : x->n;
  return end != NULL ? end : put_whole(to, x->n);
}

/* --- the list, read --------------------------------------------------------------------------- */

/* Walks over the runs of a list that may come from the wire. */
typedef struct reader {
  const uint8_t *at, *end;
  const weir_layout *layout;
  size_t tensor, runs; /* of which so many are to come */
  unsigned log2;
  size_t from, place, length; /* the run read last, from where on tensor's are */
  bool bad;
} reader;

static size_t take(reader *r) {
  size_t number = 0;
  for (unsigned shift = 0; shift < 42 && r->at < r->end; shift += 7) {
    const uint8_t digit = *r->at++;
    number |= (size_t)(digit & 127) << shift;
    if (digit < 128) return number;
  }
  r->bad = true;
  return 0;
}

/* To the next tensor with runs; false after the last, and where the list is bad. */
static bool next_tensor(reader *r) {
  while (r->runs == 0 && !r->bad && r->tensor < r->layout->tensors) {
    r->from = r->layout->offset[r->tensor++];
    r->place = r->length = 0;
    r->runs = take(r);
    if (r->runs > 0) r->log2 = r->at < r->end ? *r->at++ : UNIT_LOG2_MOST + 1;
    r->bad = r->bad || r->log2 > UNIT_LOG2_MOST;
  }
  return !r->bad && r->runs > 0;
}

/* The next run: `length` elements at from + place. */
static bool next_run(reader *r) {
  if (!next_tensor(r)) return false;
  const size_t n = r->layout->offset[r->tensor] - r->from, told = take(r);
  const size_t length = told % 8 < SHORT ? told % 8 + 1 : take(r) + SHORT + 1;
  const size_t room = (n - r->place - r->length) >> r->log2;
  r->place += r->length;
  r->bad = r->bad || told / 8 > room || length > room - told / 8;
  if (r->bad) return false;
  r->place += told / 8 << r->log2;
  r->length = length << r->log2;
  r->runs--;
  return true;
}

static reader read_list(const void *message, const counts *count, const weir_layout *layout) {
  const uint8_t *const list = (const uint8_t *)message + sizeof(weir_encoded) + sizeof *count;
  return (reader){.at = list, .end = list + count->list, .layout = layout};
}

/* --- values ----------------------------------------------------------------------------------- */

/* Elements that the runs of a list name, some at a time. */
typedef struct walk {
  reader runs;
  size_t done; /* of the run read last */
} walk;

/* Up to `most` more that lie together, from *at on. */
static size_t some(walk *w, size_t most, size_t *at) {
  if (w->done == w->runs.length) {
    w->done = 0;
    if (!next_run(&w->runs)) return 0;
  }
  const size_t left = w->runs.length - w->done, count = left < most ? left : most;
  *at = w->runs.from + w->runs.place + w->done;
  w->done += count;
  return count;
}

/* What lies beyond a grid's reach saturates here, too, and stays in the residual. */
static uint8_t *put_halves(float *value, size_t count, uint8_t *to) {
  uint16_t half[WEIR_PIECE];
  for (size_t i = 0; i < count; i++) value[i] = weir_grid_limit((double)value[i]);
  weir_bf16_encode(value, count, half, NULL);
  memcpy(to, half, count * sizeof *half);
  return to + count * sizeof *half;
}

static const uint8_t *take_halves(const uint8_t *from, size_t count, float *value) {
  uint16_t half[UNIT];
  memcpy(half, from, count * sizeof *half);
  weir_bf16_decode(half, count, value);
  return from + count * sizeof *half;
}

static const uint8_t *take_unit(const weir_unit_format *format, const uint8_t *from, size_t count,
                                float *value) {
  const size_t head = format->scales * sizeof(float);
  float scale[WEIR_SCALES_MAX] = {0};
  uint8_t code[UNIT];
  memcpy(scale, from, head);
  weir_cpu()->unpack(from + head, (count + 7) / 8, format->head.bits, code);
  format->decode(&format->head, scale, 0, code, count, value, false);
  return from + unit_bytes(format, count);
}

static uint8_t *put_unit(const weir_unit_format *format, const float *value, size_t count,
                         uint32_t key, uint8_t *to) {
  const size_t head = format->scales * sizeof(float);
  float scale[WEIR_SCALES_MAX];
  format->encode(format, value, count, key, scale, to + head);
  memcpy(to, scale, head);
  return to + unit_bytes(format, count);
}

static uint8_t *put_values(const weir_unit_format *format, const float *e, walk *w, size_t values,
                           uint64_t seed, uint8_t *to) {
  uint64_t number = 1;
  float value[WEIR_PIECE];
  for (size_t done = 0, count; done < values; done += count) {
    count = values - done < WEIR_PIECE ? values - done : WEIR_PIECE;
    for (size_t i = 0, at = 0, part; i < count; i += part) {
      part = some(w, count - i, &at);
      memcpy(value + i, e + at, part * sizeof *value);
    }
    if (format->head.bits == HALF) {
      to = put_halves(value, count, to);
      continue;
    }
    for (size_t i = 0, part; i < count; i += part) {
      part = count - i < UNIT ? count - i : UNIT;
      to = put_unit(format, value + i, part, weir_unit_key(seed, number++), to);
    }
  }
  return to;
}

static void apply(const float *value, size_t count, float *to, weir_decoding how) {
  if (how == WEIR_DECODE_STORE) memcpy(to, value, count * sizeof *to);
  for (size_t i = 0; i < count && how == WEIR_DECODE_ADD; i++) to[i] += value[i];
  for (size_t i = 0; i < count && how == WEIR_DECODE_SUBTRACT; i++) to[i] -= value[i];
}

/* The list has been found good; but a sender that shares memory may have changed it since. */
static void take_values(const weir_unit_format *format, const uint8_t *from, walk *w, size_t values,
                        float *to, weir_decoding how) {
  for (size_t done = 0, count; done < values; done += count) {
    float value[UNIT];
    count = values - done < UNIT ? values - done : UNIT;
    from = format->head.bits == HALF ? take_halves(from, count, value)
                                     : take_unit(format, from, count, value);
    for (size_t i = 0, at = 0, part; i < count; i += part) {
      part = some(w, count - i, &at);
      if (part == 0) return;
      apply(value + i, part, to + at, how);
    }
  }
}

/* --- the row ---------------------------------------------------------------------------------- */

/* Of half bits the code has as many as the next whole number, as companded's. */
static weir_unit_format format_of(double bits) {
  const unsigned whole = (unsigned)ceil(bits);
  weir_unit_format format =
      whole < WEIR_COMPANDED_LEAST ? weir_qsgd_format(whole, UNIT) : weir_companded_format(whole);
  format.head.codec = WEIR_CODEC_NONZERO;
  if (bits < whole) format.head.mode = 1;
  if (whole == HALF) format.scales = 0;
  return format;
}

static double bits_of(const weir_encoded *head) { return head->bits - 0.5 * head->mode; }

static bool good_bits(double bits) {
  uint8_t half = 0;
  return bits == HALF || bits == 2.0 ||
         weir_code_bits_halved(bits / 32.0, WEIR_COMPANDED_LEAST, WEIR_COMPANDED_MOST, &half) > 0;
}

static size_t values_bytes(const weir_unit_format *format, size_t values) {
  const size_t offset[2] = {0, values};
  if (format->head.bits == HALF) return values * sizeof(uint16_t);
  return weir_units_bound(format, &(weir_layout){1, offset}) - sizeof(weir_encoded);
}

/* Rounding down to a byte in values_cost, and up to a unit at the end. */
static size_t bound(const weir_layout *layout, double cr) {
  const weir_unit_format format = format_of(cr * 32.0);
  return sizeof(weir_encoded) + sizeof(counts) + (TENSOR_MOST + 1) * layout->tensors +
         values_bytes(&format, layout->offset[layout->tensors]) + format.scales * sizeof(float) +
         format.head.bits;
}

static weir_status encode(weir_codec_context *context, const float *e, const weir_layout *layout,
                          double cr, uint64_t seed, void *out, size_t capacity, size_t *bytes) {
  const weir_unit_format format = format_of(cr * 32.0);
  *bytes = 0;
  if (!good_bits(cr * 32.0))
    return weir_fail(WEIR_E_INVALID,
                     "nonzero takes 2 to 8 bits, whole or, above 3, half, or 16, not %g",
                     cr * 32.0);
  const weir_status status = weir_encoded_begin(&format.head, layout->offset[layout->tensors],
                                                bound(layout, cr), out, capacity);
  if (status != WEIR_OK) return status;
  uint8_t *const list = (uint8_t *)out + sizeof(weir_encoded) + sizeof(counts), *to = list;
  size_t values = 0;
  for (size_t t = 0; t < layout->tensors; t++) {
    const elements x = elements_of(context, e, layout, t);
    to = put_tensor(to, &x, &format, &values);
  }
  const counts count = {(uint32_t)values, (uint32_t)(to - list)};
  memcpy((uint8_t *)out + sizeof(weir_encoded), &count, sizeof count);
  walk w = {.runs = read_list(out, &count, layout)};
  *bytes = (size_t)(put_values(&format, e, &w, values, seed, to) - (uint8_t *)out);
  return WEIR_OK;
}

/* All runs lie in their tensors, and hold as many elements as there are values. */
static bool good_list(reader r, size_t values) {
  size_t named = 0;
  while (next_run(&r)) named += r.length;
  return !r.bad && r.at == r.end && named == values;
}

static bool good_halves(const uint8_t *from, size_t values, double *peak) {
  *peak = 0.0;
  for (size_t done = 0, count; done < values; done += count) {
    float value[UNIT];
    count = values - done < UNIT ? values - done : UNIT;
    from = take_halves(from, count, value);
    for (size_t i = 0; i < count; i++) {
      if (!isfinite(value[i])) return false;
      *peak = fmax(*peak, fabs((double)value[i]));
    }
  }
  return true;
}

static bool good_scales(const weir_unit_format *format, const uint8_t *from, size_t values,
                        double *peak) {
  *peak = 0.0;
  for (size_t done = 0; done < values; done += UNIT, from += unit_bytes(format, UNIT)) {
    float scale[WEIR_SCALES_MAX] = {0};
    memcpy(scale, from, format->scales * sizeof(float));
    const double reach = format->reach(&format->head, scale);
    if (!(reach <= (double)FLT_MAX)) return false;
    *peak = reach > *peak ? reach : *peak;
  }
  *peak *= 1.0 + 2 * (double)FLT_EPSILON; /* decoding rounds twice */
  return true;
}

/* Takes untrusted bytes apart; all of them are looked at but codes, of which every one means
 * something. */
static weir_status open_message(const void *message, size_t bytes, const weir_layout *layout,
                                weir_unit_format *format, counts *count, double *peak) {
  weir_encoded head;
  const size_t n = layout->offset[layout->tensors];
  const weir_status status = weir_encoded_open(WEIR_CODEC_NONZERO, message, bytes, n, &head);
  if (status != WEIR_OK) return status;
  if (head.mode > 1 || !good_bits(bits_of(&head)) || head.unit != UNIT)
    return weir_encoded_malformed(WEIR_CODEC_NONZERO, "unknown bits, bucket or mode");
  if (bytes < sizeof head + sizeof *count)
    return weir_encoded_malformed(WEIR_CODEC_NONZERO, "shorter than its counts");
  memcpy(count, (const uint8_t *)message + sizeof head, sizeof *count);
  *format = format_of(bits_of(&head));
  const size_t left = bytes - sizeof head - sizeof *count;
  if (count->values > n || count->list > left ||
      left - count->list != values_bytes(format, count->values))
    return weir_encoded_malformed(WEIR_CODEC_NONZERO, "wrong length");
  const reader r = read_list(message, count, layout);
  if (!good_list(r, count->values))
    return weir_encoded_malformed(WEIR_CODEC_NONZERO,
                                  "runs beyond a tensor, or of too many values");
  const bool good = head.bits == HALF ? good_halves(r.end, count->values, peak)
                                      : good_scales(format, r.end, count->values, peak);
  return good ? WEIR_OK : weir_encoded_malformed(WEIR_CODEC_NONZERO, "a scale out of range");
}

static weir_status decode(weir_codec_context *context, const void *message, size_t bytes,
                          const weir_layout *layout, float *to, weir_decoding how) {
  weir_unit_format format;
  counts count;
  double peak;
  (void)context;
  const weir_status status = open_message(message, bytes, layout, &format, &count, &peak);
  if (status != WEIR_OK) return status;
  walk w = {.runs = read_list(message, &count, layout)};
  if (how == WEIR_DECODE_STORE) memset(to, 0, layout->offset[layout->tensors] * sizeof *to);
  take_values(&format, w.runs.end, &w, count.values, to, how);
  return WEIR_OK;
}

static weir_status check(const void *message, size_t bytes, const weir_layout *layout,
                         double *peak) {
  weir_unit_format format;
  counts count;
  return open_message(message, bytes, layout, &format, &count, peak);
}

/* Behind the list, of as many values as there are. */
static bool buckets(const void *message, size_t bytes, size_t n, weir_message_buckets *b) {
  weir_encoded head;
  counts count;
  if (bytes < sizeof head + sizeof count) return false;
  memcpy(&head, message, sizeof head);
  memcpy(&count, (const uint8_t *)message + sizeof head, sizeof count);
  if (head.mode > 1) return false;
  *b = (weir_message_buckets){.at = sizeof head + sizeof count + count.list,
                              .elements = count.values,
                              .scales = (unsigned)format_of(bits_of(&head)).scales,
                              .short_scales = head.bits >= WEIR_COMPANDED_LEAST};
  return count.values <= n && b->at <= bytes;
}

double weir_nonzero_share(double nonzero, double runs, double cr) {
  static const double run = 1.5; /* bytes */
  const weir_unit_format format = format_of(cr * 32.0);
  const double share = nonzero + runs * run * UNIT / (double)unit_bytes(&format, UNIT);
  return share < 1.0 ? share : 1.0;
}

const weir_codec weir_codec_nonzero = {
    .id = WEIR_CODEC_NONZERO,
    .name = "nonzero",
    .description = "companded (2 bits: qsgd) of what a gradient touches, as runs of such",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER),
    .bits = {2, 8, .halves = WEIR_COMPANDED_LEAST},
    .wires = WEIR_WIRES_CODES,
    .scales = 1,
    .short_scales = true,
    .buckets = buckets,
    .damps = true,
    .by_tensor = true,
    .touched = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.3e-9, 0.1e-9, 0},
};

const weir_codec weir_codec_nonzero_bf16 = {
    .id = WEIR_CODEC_NONZERO_BF16,
    .name = "nonzero-bf16",
    .unbiased = true,
    .description = "bfloat16 of the elements whose gradient is not zero, as runs of such",
    .schemes = WEIR_WITH(WEIR_SCHEME_GATHER),
    .bits = {HALF, HALF},
    .by_tensor = true,
    .touched = true,
    .kept = weir_none_kept,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .check = check,
    .prior = {5e-6, 0.3e-9, 0.1e-9, 0},
};

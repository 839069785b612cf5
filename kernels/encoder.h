/* What the quantizers share: the form of their messages.
 *
 *   bytes 0-3   'W' 'R' 'E' '1'
 *   bytes 4-7   n
 *   bytes 8-11  elements of a unit; 0: every tensor is a unit
 *   byte  12    codec (weir_codec_id)
 *   byte  13    bits of a code, 1..8 (16 for fp16)
 *   byte  14    the codec's own
 *   byte  15    0
 *   bytes 16-19, of seeded formats alone: what draws follow from, as who reads draws the same
 *   then, for every unit that is not empty, `scales` floats and bits bytes for each 8 codes, the
 *   last group filled up with zeros.
 *
 * All numbers are little-endian.  The length follows from header and layout, and must come out
 * exactly. */
#ifndef WEIR_KERNELS_ENCODER_H
#define WEIR_KERNELS_ENCODER_H

#include "kernels/internal.h"

typedef struct weir_encoded {
  uint8_t magic[4];
  uint32_t n;
  uint32_t unit;
  uint8_t codec;
  uint8_t bits;
  uint8_t mode;
  uint8_t zero;
} weir_encoded;
_Static_assert(sizeof(weir_encoded) == 16, "the header goes out as it lies in memory");

/* Codes handled at a time, so that they stay in the first cache; a multiple of 8. */
#define WEIR_PIECE ((size_t)1024)
#define WEIR_SCALES_MAX 2 /* floats before a unit's codes, at most */
#define WEIR_SEED_BYTES sizeof(uint32_t)

/* One kind of unit. */
typedef struct weir_unit_format {
  weir_encoded head; /* of its messages; magic and n are filled in when encoding */
  uint8_t modes;     /* of a fixed encoder: the largest mode that its messages may have */
  size_t scales;     /* floats before a unit's codes */
  bool seeded;       /* messages tell what their draws follow from */
  /* Write a unit: scales to scale[], codes by weir_codes_write.  key: where the unit's draws start
   * (weir_mix32(key + i) for element i). */
  void (*encode)(const struct weir_unit_format *format, const float *x, size_t count, uint32_t key,
                 float *scale, uint8_t *codes);
  /* NULL, or the same for units of head.unit elements each in a row, the first of them number
   * `first`, into their place in a message: where one does not wait for the other, it pays. */
  void (*encode_units)(const struct weir_unit_format *format, const float *x, size_t units,
                       uint64_t seed, uint64_t first, uint8_t *out);
  /* No value that these scales, from the wire, give is larger in magnitude.  More than FLT_MAX, or
   * NaN: they are refused. */
  double (*reach)(const weir_encoded *head, const float *scale);
  /* key: of the first code; where the unit's draws start if the format is seeded. */
  void (*decode)(const weir_encoded *head, const float *scale, uint32_t key, const uint8_t *code,
                 size_t count, float *to, bool add);
} weir_unit_format;

/* The reach of a unit whose one scale is its largest magnitude. */
double weir_scale_reach(const weir_encoded *head, const float *scale);

/* Bytes of a unit's codes. */
static inline size_t weir_codes_bytes(size_t count, unsigned bits) {
  return (count / 8 + (count % 8 != 0)) * bits;
}

size_t weir_units_bound(const weir_unit_format *format, const weir_layout *layout);
/* context: for its threads; NULL: without. */
weir_status weir_units_encode(weir_codec_context *context, const weir_unit_format *format,
                              const float *e, const weir_layout *layout, uint64_t seed, void *out,
                              size_t capacity, size_t *bytes);
/* format's scales and functions are used; bits, unit and mode come from the message, and the caller
 * has found them good (weir_encoded_open). */
weir_status weir_units_decode(weir_codec_context *context, const weir_unit_format *format,
                              const void *message, size_t bytes, const weir_layout *layout,
                              float *to, weir_decoding how);
/* As a codec's check(). */
weir_status weir_units_check(const weir_unit_format *format, const void *message, size_t bytes,
                             const weir_layout *layout, double *peak);

/* The decode() and check() of a row whose messages say themselves how they are to be read:
 * weir_status OPEN(message, bytes, layout, weir_unit_format *) finds that out, or refuses them. */
#define WEIR_UNITS_READER(OPEN)                                                                    \
  static weir_status decode(weir_codec_context *context, const void *message, size_t bytes,        \
                            const weir_layout *layout, float *to, weir_decoding how) {             \
    weir_unit_format format;                                                                       \
    const weir_status status = OPEN(message, bytes, layout, &format);                              \
    return status ? status : weir_units_decode(context, &format, message, bytes, layout, to, how); \
  }                                                                                                \
  static weir_status check(const void *message, size_t bytes, const weir_layout *layout,           \
                           double *peak) {                                                         \
    weir_unit_format format;                                                                       \
    const weir_status status = OPEN(message, bytes, layout, &format);                              \
    return status ? status : weir_units_check(&format, message, bytes, layout, peak);              \
  }

/* An encoder of buckets in several widths: those of its row, and half bits where that says so, by
 * which head.bits and head.mode are set in what is otherwise `any`. */
size_t weir_widths_bound(const weir_unit_format *any, const weir_layout *layout, double cr);
weir_status weir_widths_encode(const weir_unit_format *any, weir_codec_context *context,
                               const float *e, const weir_layout *layout, double cr, uint64_t seed,
                               void *out, size_t capacity, size_t *bytes);
/* *format: of this message. */
weir_status weir_widths_open(const weir_unit_format *any, const void *message, size_t bytes,
                             const weir_layout *layout, weir_unit_format *format);

/* The bound(), encode(), decode() and check() of its row. */
#define WEIR_WIDTHS_ENCODER(ANY)                                                                \
  static size_t bound(const weir_layout *layout, double cr) {                                   \
    return weir_widths_bound(&(ANY), layout, cr);                                               \
  }                                                                                             \
  static weir_status encode(weir_codec_context *context, const float *e,                        \
                            const weir_layout *layout, double cr, uint64_t seed, void *out,     \
                            size_t capacity, size_t *bytes) {                                   \
    return weir_widths_encode(&(ANY), context, e, layout, cr, seed, out, capacity, bytes);      \
  }                                                                                             \
  static weir_status open_message(const void *message, size_t bytes, const weir_layout *layout, \
                                  weir_unit_format *format) {                                   \
    return weir_widths_open(&(ANY), message, bytes, layout, format);                            \
  }                                                                                             \
  WEIR_UNITS_READER(open_message)

/* A fixed encoder, whose messages are its format's alone: tensors are the units, and every element
 * takes format->head.bits bits (so the ratio is bits / 32).  What is encoded has format->head.mode;
 * threads are not used. */
weir_status weir_fixed_encode(const weir_unit_format *format, const float *e,
                              const weir_layout *layout, double cr, uint64_t seed, void *out,
                              size_t capacity, size_t *bytes);
weir_status weir_fixed_decode(const weir_unit_format *format, const void *message, size_t bytes,
                              const weir_layout *layout, float *to, weir_decoding how);
weir_status weir_fixed_check(const weir_unit_format *format, const void *message, size_t bytes,
                             const weir_layout *layout, double *peak);

/* The bound(), encode(), decode() and check() of its row. */
#define WEIR_FIXED_ENCODER(FORMAT)                                                          \
  static size_t bound(const weir_layout *layout, double cr) {                               \
    (void)cr;                                                                               \
    return weir_units_bound(&(FORMAT), layout);                                             \
  }                                                                                         \
  static weir_status encode(weir_codec_context *context, const float *e,                    \
                            const weir_layout *layout, double cr, uint64_t seed, void *out, \
                            size_t capacity, size_t *bytes) {                               \
    (void)context;                                                                          \
    return weir_fixed_encode(&(FORMAT), e, layout, cr, seed, out, capacity, bytes);         \
  }                                                                                         \
  static weir_status decode(weir_codec_context *context, const void *message, size_t bytes, \
                            const weir_layout *layout, float *to, weir_decoding how) {      \
    (void)context;                                                                          \
    return weir_fixed_decode(&(FORMAT), message, bytes, layout, to, how);                   \
  }                                                                                         \
  static weir_status check(const void *message, size_t bytes, const weir_layout *layout,    \
                           double *peak) {                                                  \
    return weir_fixed_check(&(FORMAT), message, bytes, layout, peak);                       \
  }

/* Write a message's header after checking sizes. */
weir_status weir_encoded_begin(const weir_encoded *head, size_t n, size_t bound, void *out,
                               size_t capacity);
/* Read a message's header: it is of this codec and has n elements; the rest is for the caller. */
weir_status weir_encoded_open(uint32_t codec, const void *message, size_t bytes, size_t n,
                              weir_encoded *head);
/* WEIR_E_PROTOCOL: what is wrong with a message. */
weir_status weir_encoded_malformed(uint32_t codec, const char *what);

/* Pack a piece of at most WEIR_PIECE codes; code has room for a whole number of eights. */
void weir_codes_write(uint8_t *code, size_t count, unsigned bits, uint8_t *out);

/* --- options beyond a plan's, for tests and for callers without error feedback ---------------- */

/* qsgd's units of so many elements on a grid from the smallest to the largest, drawn at random. */
weir_unit_format weir_qsgd_format(unsigned bits, uint32_t bucket);
/* companded's units, on a grid of squares, to the nearest value. */
weir_unit_format weir_companded_format(unsigned bits);
size_t weir_qsgd_bound_with(size_t n, weir_qsgd_options options);
weir_status weir_qsgd_encode_with(const float *e, size_t n, weir_qsgd_options options,
                                  uint64_t seed, void *out, size_t capacity, size_t *bytes);

typedef struct weir_terngrad_options {
  bool clip;     /* at 2.5 root mean squares */
  bool unbiased; /* send the paper's scale instead of the least-squares one */
} weir_terngrad_options;
weir_status weir_terngrad_encode_with(const float *e, const weir_layout *layout,
                                      weir_terngrad_options options, uint64_t seed, void *out,
                                      size_t capacity, size_t *bytes);

#endif

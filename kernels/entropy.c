/* Quantizers' messages, shortened and restored: entropy.h gives the form. */
#include "kernels/entropy.h"

#include "kernels/huffman.h"

enum {
  PLAIN = 0, /* a header's last byte */
  CODED = 1,
  PIECE = 32768,                                /* elements */
  CODES = 2 * PIECE + 8,                        /* bytes of the longest piece's codes, filled up */
  SYMBOLS = 2 * PIECE + 64,                     /* that they make */
  SCALES = 2 * PIECE / 64 * WEIR_SCALES_MAX * 4 /* bytes, of the shortest units */
};

typedef uint32_t piece_length;
typedef uint16_t upper_length; /* of the coded upper bytes of some hundred scales */

/* How a message is divided. */
typedef struct parts {
  size_t bytes, at;                  /* of a whole message; where in it the first unit is */
  size_t units, scales, codes, last; /* bytes of a unit's scales, of its codes, of the last one's */
  size_t each, pieces;               /* units of a piece; pieces, of which the last has the rest */
  unsigned symbol;                   /* bits */
  bool short_scales;
} parts;

/* The room: codes of a piece's units; symbols; scales; and scales and coded symbols, as they
 * travel. */
static uint8_t *symbols_in(uint8_t *room) { return room + CODES; }
static uint8_t *scales_in(uint8_t *room) { return room + CODES + SYMBOLS; }
static uint8_t *travelling_in(uint8_t *room) { return room + CODES + SYMBOLS + SCALES; }

size_t weir_entropy_room(void) {
  return CODES + SYMBOLS + 2 * SCALES + weir_huffman_bound(SYMBOLS) + sizeof(upper_length);
}

/* Of a message of n elements with this header, whose first bytes these are; false: none begins
 * so. */
static bool divide(const weir_codec *codec, const weir_encoded *head, const void *message,
                   size_t bytes, size_t n, parts *p) {
  weir_message_buckets b = {sizeof *head + (codec->seeded ? WEIR_SEED_BYTES : 0), n, codec->scales,
                            codec->short_scales};
  /* Of whole eights, so that no piece has more codes than there is room for. */
  if (head->bits < 1 || head->bits > 8 || head->unit < 64 || head->unit > PIECE ||
      head->unit % 8 != 0)
    return false;
  if (codec->buckets != NULL && !codec->buckets(message, bytes, n, &b)) return false;
  const size_t whole = b.elements / head->unit, rest = b.elements % head->unit;
  p->at = b.at;
  p->units = whole + (rest > 0);
  p->scales = b.scales * sizeof(float);
  p->codes = weir_codes_bytes(head->unit, head->bits);
  p->last = rest > 0 ? weir_codes_bytes(rest, head->bits) : p->codes;
  p->each = PIECE / head->unit;
  p->pieces = p->units < p->each ? p->units > 0 : p->units / p->each;
  p->symbol = 8U / head->bits * head->bits;
  p->short_scales = b.short_scales;
  p->bytes = p->at + p->units * p->scales + whole * p->codes + (rest > 0) * p->last;
  return true;
}

static size_t unit_at(const parts *p, size_t piece) {
  return piece < p->pieces ? piece * p->each : p->units;
}

static size_t units_of(const parts *p, size_t piece) {
  return unit_at(p, piece + 1) - unit_at(p, piece);
}

static size_t codes_of(const parts *p, size_t unit) {
  return unit + 1 < p->units ? p->codes : p->last;
}

/* Where a piece lies in a whole message, and how long it is there. */
static size_t place_of(const parts *p, size_t piece) {
  return p->at + unit_at(p, piece) * (p->scales + p->codes);
}

static size_t bytes_of(const parts *p, size_t piece) {
  return units_of(p, piece) * (p->scales + p->codes) -
         (piece + 1 == p->pieces ? p->codes - codes_of(p, p->units - 1) : 0);
}

static size_t groups_of(const parts *p, size_t codes) {
  return (codes + p->symbol - 1) / p->symbol; /* of eight symbols */
}

/* --- scales ----------------------------------------------------------------------------------- */

/* From scales_in() to travelling_in(); *upper: bytes of the coded ones.  How long they are, or 0
 * where some are no bfloat16s: from another encoder. */
static size_t put_scales(const parts *p, size_t units, uint8_t *room, upper_length *upper) {
  const uint8_t *const scale = scales_in(room);
  uint8_t *const to = travelling_in(room), *const uppers = symbols_in(room);
  if (!p->short_scales) {
    memcpy(to, scale, units * p->scales);
    return units * p->scales;
  }
  const size_t count = units * p->scales / sizeof(float);
  unsigned lower = 0;
  for (size_t i = 0; i < count; i++) {
    lower |= scale[4 * i] | scale[4 * i + 1];
    to[i] = scale[4 * i + 2];
    uppers[i] = scale[4 * i + 3];
  }
  if (lower != 0) return 0;
  *upper = (upper_length)weir_huffman_encode(uppers, count, 8, to + count);
  return count + *upper;
}

/* And back, of a piece of so many bytes.  How long they were; false: not what they are. */
static bool take_scales(const parts *p, size_t units, size_t length, uint8_t *room, size_t *taken) {
  const uint8_t *const from = travelling_in(room);
  uint8_t *const scale = scales_in(room), *const uppers = symbols_in(room);
  if (!p->short_scales) {
    *taken = units * p->scales;
    if (length < *taken) return false;
    memcpy(scale, from, *taken);
    return true;
  }
  const size_t count = units * p->scales / sizeof(float);
  upper_length upper;
  if (length < sizeof upper + count) return false;
  memcpy(&upper, from + length - sizeof upper, sizeof upper);
  *taken = count + upper;
  if (length - sizeof upper < *taken || !weir_huffman_decode(from + count, upper, count, 8, uppers))
    return false;
  for (size_t i = 0; i < count; i++) {
    scale[4 * i] = scale[4 * i + 1] = 0;
    scale[4 * i + 2] = from[i];
    scale[4 * i + 3] = uppers[i];
  }
  return true;
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* Scales and coded symbols of a piece, in the room; how long they are, or 0: they cannot be
 * coded. */
static size_t code(const parts *p, size_t piece, const uint8_t *from, uint8_t *room) {
  uint8_t *codes = room, *scales = scales_in(room), *to = travelling_in(room);
  upper_length upper = 0;
  for (size_t u = unit_at(p, piece); u < unit_at(p, piece + 1); u++) {
    memcpy(scales, from, p->scales);
    memcpy(codes, from + p->scales, codes_of(p, u));
    scales += p->scales;
    codes += codes_of(p, u);
    from += p->scales + codes_of(p, u);
  }
  const size_t length = put_scales(p, units_of(p, piece), room, &upper);
  if (length == 0) return 0;
  const size_t groups = groups_of(p, (size_t)(codes - room));
  memset(codes, 0, groups * p->symbol - (size_t)(codes - room));
  weir_cpu()->unpack(room, groups, p->symbol, symbols_in(room));
  to += length;
  to += weir_huffman_encode(symbols_in(room), 8 * groups, p->symbol, to);
  if (p->short_scales) {
    memcpy(to, &upper, sizeof upper);
    to += sizeof upper;
  }
  return (size_t)(to - travelling_in(room));
}

/* And back, from the room to where the piece was. */
static bool decode(const parts *p, size_t piece, size_t length, uint8_t *to, uint8_t *room) {
  const size_t units = units_of(p, piece);
  const size_t groups = groups_of(p, bytes_of(p, piece) - units * p->scales);
  const uint8_t *codes = room, *scale = scales_in(room);
  size_t scales;
  if (!take_scales(p, units, length, room, &scales)) return false;
  const size_t rest = length - scales - (p->short_scales ? sizeof(upper_length) : 0);
  if (!weir_huffman_decode(travelling_in(room) + scales, rest, 8 * groups, p->symbol,
                           symbols_in(room)))
    return false;
  weir_cpu()->pack(symbols_in(room), groups, p->symbol, room);
  for (size_t u = unit_at(p, piece); u < unit_at(p, piece + 1); u++) {
    memcpy(to, scale, p->scales);
    memcpy(to + p->scales, codes, codes_of(p, u));
    scale += p->scales;
    codes += codes_of(p, u);
    to += p->scales + codes_of(p, u);
  }
  return true;
}

/* The first pieces, which end at `end`, the last one first: none lies beyond where it was. */
static bool restore(const parts *p, size_t pieces, uint8_t *message, size_t end, uint8_t *room) {
  while (pieces > 0) {
    const size_t place = place_of(p, --pieces);
    piece_length length;
    if (end < p->at + sizeof length) return false;
    end -= sizeof length;
    memcpy(&length, message + end, sizeof length);
    if (length > bytes_of(p, pieces) || length > end || end - length > place) return false;
    end -= length;
    memcpy(travelling_in(room), message + end, length);
    if (!decode(p, pieces, length, message + place, room)) return false;
  }
  return end == p->at;
}

size_t weir_entropy_shorten(const weir_codec *codec, void *message, size_t bytes, void *room) {
  uint8_t *const at = message, *to;
  weir_encoded head;
  parts p;
  memcpy(&head, message, sizeof head);
  if (!divide(codec, &head, message, bytes, head.n, &p) || p.bytes != bytes || p.pieces == 0)
    return bytes;
  to = at + p.at;
  for (size_t piece = 0; piece < p.pieces; piece++) {
    const piece_length length = (piece_length)code(&p, piece, at + place_of(&p, piece), room);
    if (length == 0 || length + sizeof length > bytes_of(&p, piece)) {
      (void)restore(&p, piece, at, (size_t)(to - at), room);
      return bytes;
    }
    memcpy(to, travelling_in(room), length);
    memcpy(to + length, &length, sizeof length);
    to += length + sizeof length;
  }
  at[sizeof head - 1] = CODED;
  return (size_t)(to - at);
}

size_t weir_entropy_restore(const weir_codec *codec, void *message, size_t length, size_t n,
                            size_t most, void *room) {
  uint8_t *const form = (uint8_t *)message + sizeof(weir_encoded) - 1;
  const bool fixed = codec->buckets == NULL; /* messages are all as long as the longest */
  weir_encoded head;
  parts p;
  if (length < sizeof head || length > most) return 0;
  memcpy(&head, message, sizeof head);
  if (*form == PLAIN) return fixed && length != most ? 0 : length;
  if (*form != CODED || !divide(codec, &head, message, length, n, &p)) return 0;
  if (fixed ? p.bytes != most : p.bytes > most) return 0;
  *form = PLAIN;
  return restore(&p, p.pieces, message, length, room) ? p.bytes : 0;
}

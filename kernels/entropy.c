/* Quantizers' messages, shortened and restored: entropy.h gives the form. */
#include "kernels/entropy.h"

#include "base/base.h"
#include "kernels/huffman.h"

enum {
  FRONT = 8,
  TOLD = sizeof(weir_encoded) - FRONT
}; /* of a header: magic and n, and the rest */
enum { PLAIN = 0, CODED = 1 };

/* How a message's bytes are divided. */
typedef struct parts {
  size_t units, scale_bytes, whole, last; /* of a unit's scales, of its codes, of the last one's */
  size_t codes;                           /* bytes of all units' */
  unsigned symbol;                        /* bits */
  size_t eights;                          /* symbols, in groups of eight */
} parts;

static unsigned symbol_bits(unsigned bits) { return 8 / bits * bits; }

/* False: a message of so many bytes has no such header. */
static bool divide(const weir_codec *codec, const weir_encoded *head, size_t n, size_t bytes,
                   parts *p) {
  if (head->bits < 1 || head->bits > 8 || head->unit < 8) return false;
  const size_t whole = n / head->unit, rest = n % head->unit;
  p->units = whole + (rest > 0);
  p->scale_bytes = codec->scales * sizeof(float);
  p->whole = weir_codes_bytes(head->unit, head->bits);
  p->last = rest > 0 ? weir_codes_bytes(rest, head->bits) : p->whole;
  p->codes = whole * p->whole + (rest > 0 ? p->last : 0);
  p->symbol = symbol_bits(head->bits);
  p->eights = (p->codes + p->symbol - 1) / p->symbol;
  return bytes == sizeof *head + p->units * p->scale_bytes + p->codes;
}

/* Room: the codes of all units, filled up to whole groups of symbols; symbols; scales and coded
 * symbols. */
static uint8_t *symbols_in(uint8_t *room, size_t bytes) { return room + bytes + 8; }
static uint8_t *coded_in(uint8_t *room, size_t bytes) { return room + 3 * bytes + 64; }

size_t weir_entropy_room(size_t bytes) {
  return 4 * bytes + 64 + weir_huffman_bound(2 * bytes + 64, 8);
}

static size_t codes_of(const parts *p, size_t unit) {
  return unit + 1 < p->units ? p->whole : p->last;
}

/* Scales and coded symbols, into their place in the room. */
static size_t code(const parts *p, const uint8_t *message, size_t bytes, uint8_t *room) {
  uint8_t *const symbol = symbols_in(room, bytes);
  const uint8_t *from = message + sizeof(weir_encoded);
  uint8_t *codes = room, *out = coded_in(room, bytes);
  for (size_t u = 0; u < p->units; u++) {
    memcpy(out, from, p->scale_bytes);
    memcpy(codes, from + p->scale_bytes, codes_of(p, u));
    out += p->scale_bytes;
    codes += codes_of(p, u);
    from += p->scale_bytes + codes_of(p, u);
  }
  memset(codes, 0, p->eights * p->symbol - p->codes);
  weir_cpu()->unpack(room, p->eights, p->symbol, symbol);
  return p->units * p->scale_bytes + weir_huffman_encode(symbol, p->eights * 8, p->symbol, out);
}

size_t weir_entropy_shorten(const weir_codec *codec, const void *message, size_t bytes, void *room,
                            uint8_t *out) {
  weir_encoded head;
  parts p;
  memcpy(&head, message, sizeof head);
  size_t length = bytes;
  if (divide(codec, &head, head.n, bytes, &p)) length = code(&p, message, bytes, room);
  const bool shorter = length < bytes - sizeof head;
  head.zero = shorter ? CODED : PLAIN;
  if (!shorter) memmove(out + TOLD, (const uint8_t *)message + sizeof head, bytes - sizeof head);
  if (shorter) memcpy(out + TOLD, coded_in(room, bytes), length);
  memcpy(out, (const uint8_t *)&head + FRONT, TOLD);
  return TOLD + (shorter ? length : bytes - sizeof head);
}

static bool decode(const parts *p, const uint8_t *from, size_t length, size_t bytes, uint8_t *room,
                   uint8_t *to) {
  uint8_t *const symbol = symbols_in(room, bytes);
  const size_t scales = p->units * p->scale_bytes;
  const uint8_t *codes = room;
  if (length < scales ||
      !weir_huffman_decode(from + scales, length - scales, p->eights * 8, p->symbol, symbol))
    return false;
  weir_cpu()->pack(symbol, p->eights, p->symbol, room);
  for (size_t u = 0; u < p->units; u++) {
    memcpy(to, from + u * p->scale_bytes, p->scale_bytes);
    memcpy(to + p->scale_bytes, codes, codes_of(p, u));
    to += p->scale_bytes + codes_of(p, u);
    codes += codes_of(p, u);
  }
  return true;
}

bool weir_entropy_restore(const weir_codec *codec, const uint8_t *from, size_t length, size_t n,
                          void *room, void *message, size_t bytes) {
  uint8_t *const to = (uint8_t *)message + sizeof(weir_encoded);
  weir_encoded head;
  parts p;
  if (length < TOLD || bytes < sizeof head) return false;
  memcpy((uint8_t *)&head + FRONT, from, TOLD);
  from += TOLD;
  length -= TOLD;
  const uint8_t form = head.zero;
  head.zero = 0;
  if (weir_encoded_begin(&head, n, bytes, message, bytes) != WEIR_OK) return false;
  if (form == PLAIN && length == bytes - sizeof head) return memcpy(to, from, length) != NULL;
  return form == CODED && divide(codec, &head, n, bytes, &p) &&
         decode(&p, from, length, bytes, room, to);
}

/* Messages of a few elements each, added up where there is no room for the whole of their sum
 * beside them: what one of them at least has an element for is packed, and spread over the whole
 * once the messages are of no use any more.
 *
 * Packed are CHUNK elements after the other: a bit an element, 32 bits a word, and the values of
 * those set; or all the values, where that is shorter: then its bit is set in `dense`.  So what is
 * packed of the last m elements never takes more than m words. */
#include "kernels/wire.h"

#define CHUNK ((size_t)512)
#define PIECE ((size_t)64) /* elements of a message read at a time */

typedef struct cursor {
  weir_wire_parts in;
  size_t read, at, listed; /* of the message, and of the piece */
  uint32_t index[PIECE];
  float value[PIECE];
} cursor;

static size_t words(size_t n) { return (n + 31) / 32; }
static size_t dense_words(size_t n) { return words((n + CHUNK - 1) / CHUNK); }

size_t weir_merge_room(size_t n, size_t messages) {
  return messages * sizeof(cursor) + dense_words(n) * sizeof(uint32_t);
}

size_t weir_merge_floats(size_t n, size_t messages, size_t most) {
  const size_t all = most < n / messages ? messages * most + words(n) : n;
  return all < n ? all : n;
}

/* --- packing ---------------------------------------------------------------------------------- */

/* Elements of a chunk, all zero but those touched. */
typedef struct chunk {
  size_t at, count;
  uint32_t touched[CHUNK / 32];
  float sum[CHUNK];
} chunk;

static bool refill(cursor *c) {
  const size_t rest = c->in.k - c->read, count = rest < PIECE ? rest : PIECE;
  if (!weir_index_read(&c->in.list, c->index, count)) return false;
  weir_wire_values(&c->in, c->read, count, c->value);
  c->read += count;
  c->listed = count;
  c->at = 0;
  return true;
}

/* The cursor's elements of the chunk.  The first message's are stored, as they are where a message
 * is decoded and others are added to it. */
static bool take(cursor *c, chunk *to, bool first) {
  const size_t end = to->at + to->count;
  for (;;) {
    for (; c->at < c->listed; c->at++) {
      if (c->index[c->at] >= end) return true;
      const size_t i = c->index[c->at] - to->at;
      to->sum[i] = first ? c->value[c->at] : to->sum[i] + c->value[c->at];
      to->touched[i / 32] |= UINT32_C(1) << i % 32;
    }
    if (c->read == c->in.k) return true;
    if (!refill(c)) return false;
  }
}

/* Floats that it takes; the chunk is empty again. */
static size_t pack(chunk *from, uint32_t *dense, float *out) {
  const size_t bitmap = words(from->count);
  size_t count = 0;
  for (size_t w = 0; w < bitmap; w++) count += (size_t)__builtin_popcount(from->touched[w]);
  if (count + bitmap > from->count) {
    const size_t number = from->at / CHUNK;
    dense[number / 32] |= UINT32_C(1) << number % 32;
    memcpy(out, from->sum, from->count * sizeof *out);
    memset(from->sum, 0, from->count * sizeof *out);
    memset(from->touched, 0, sizeof from->touched);
    return from->count;
  }
  memcpy(out, from->touched, bitmap * sizeof *out);
  out += bitmap;
  for (size_t w = 0; w < bitmap; w++) {
    for (uint32_t bits = from->touched[w]; bits != 0; bits &= bits - 1) {
      const size_t i = 32 * w + (size_t)__builtin_ctz(bits);
      *out++ = from->sum[i];
      from->sum[i] = 0;
    }
    from->touched[w] = 0;
  }
  return bitmap + count;
}

static weir_status open_all(cursor *c, const unsigned char *messages, size_t stride,
                            const size_t *bytes, size_t count, size_t n, size_t most, size_t *bad) {
  for (size_t m = 0; m < count; m++) {
    c[m].read = c[m].at = c[m].listed = 0;
    *bad = m;
    const weir_status status = weir_wire_parse(messages + m * stride, bytes[m], n, &c[m].in);
    if (status != WEIR_OK) return status;
    if (c[m].in.values == NULL) return weir_wire_malformed("values are missing");
    if (c[m].in.k > most) return weir_wire_malformed("more elements than there is room for");
  }
  return WEIR_OK;
}

weir_status weir_merge(const unsigned char *messages, size_t stride, const size_t *bytes,
                       size_t count, size_t n, size_t most, void *room, float *packed,
                       size_t *floats, size_t *bad) {
  cursor *const c = room;
  uint32_t *const dense = (uint32_t *)(void *)(c + count);
  chunk now = {0};
  *floats = 0;
  const weir_status status = open_all(c, messages, stride, bytes, count, n, most, bad);
  if (status != WEIR_OK) return status;
  memset(dense, 0, dense_words(n) * sizeof *dense);
  for (now.at = 0; now.at < n; now.at += CHUNK) {
    now.count = n - now.at < CHUNK ? n - now.at : CHUNK;
    for (*bad = 0; *bad < count; ++*bad)
      if (!take(&c[*bad], &now, *bad == 0)) return weir_wire_malformed("bad index list");
    *floats += pack(&now, dense, packed + *floats);
  }
  for (*bad = 0; *bad < count; ++*bad)
    if (c[*bad].read != c[*bad].in.k || !weir_index_done(&c[*bad].in.list))
      return weir_wire_malformed("bad index list");
  return WEIR_OK;
}

/* --- spreading -------------------------------------------------------------------------------- */

static const float *spread(const float *packed, size_t count, float *to) {
  float value[CHUNK];
  uint32_t mark[CHUNK / 32];
  const size_t bitmap = words(count);
  size_t k = 0;
  memcpy(mark, packed, bitmap * sizeof *mark);
  packed += bitmap;
  for (size_t w = 0; w < bitmap; w++) k += (size_t)__builtin_popcount(mark[w]);
  if (k > 0) memcpy(value, packed, k * sizeof *value);
  memset(to, 0, count * sizeof *to);
  const float *from = value;
  for (size_t w = 0; w < bitmap; w++)
    for (uint32_t bits = mark[w]; bits != 0; bits &= bits - 1)
      to[32 * w + (size_t)__builtin_ctz(bits)] = *from++;
  return packed + k;
}

void weir_merge_spread(const void *room, size_t messages, const float *packed, size_t n,
                       float *to) {
  const uint32_t *const dense = (const uint32_t *)(const void *)((const cursor *)room + messages);
  for (size_t at = 0; at < n; at += CHUNK) {
    const size_t count = n - at < CHUNK ? n - at : CHUNK, number = at / CHUNK;
    if (dense[number / 32] >> number % 32 & 1) {
      memmove(to + at, packed, count * sizeof *to);
      packed += count;
    } else {
      packed = spread(packed, count, to + at);
    }
  }
}

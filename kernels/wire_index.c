/* Index encodings: u32, bitmap, and bit-packed gaps.
 *
 * The gap of an index is how many indices it leaves out since the one before.  A gap d is written
 * as d >> s zero bits, a one bit, and the low s bits of d (Rice coding; Golomb 1966, Rice 1979),
 * least significant bit first, with one s for the whole message.  For indices spread at random with
 * density c the gaps are geometric, and the code takes within about 1 % of their entropy H(c)/c;
 * whatever the indices, a list takes at most k(s + 1) + (n - k)/2^s bits. */
#include <math.h>

#include "kernels/internal.h"

#define SHIFT_MAX 31U

static uint64_t load64(const uint8_t *data, size_t bytes, size_t from) {
  uint64_t window = 0;
  size_t left = from < bytes ? bytes - from : 0;
  memcpy(&window, data + (left > 0 ? from : 0), left < sizeof window ? left : sizeof window);
  return window;
}

/* --- lengths --------------------------------------------------------------------------------- */

static uint64_t rice_bits(const uint32_t *index, size_t k, unsigned shift) {
  uint64_t zeros = 0;
  uint32_t next = 0;
  for (size_t i = 0; i < k; i++) {
    zeros += (index[i] - next) >> shift;
    next = index[i] + 1;
  }
  return (uint64_t)k * (shift + 1) + zeros;
}

/* floor(log2(n / k)): 2^shift <= mean gap + 1. */
static unsigned shift_guess(size_t n, size_t k) {
  unsigned shift = 0;
  while (shift < SHIFT_MAX && (n >> (shift + 1)) >= k) {
    shift++;
  }
  return shift;
}

/* The best shift is at or below the guess in all but odd cases (clustered indices want a smaller
 * one); lengths are convex in the shift, so walking downhill finds it. */
static unsigned rice_shift(size_t n, const uint32_t *index, size_t k, uint64_t *bits) {
  unsigned best = shift_guess(n, k);
  *bits = rice_bits(index, k, best);
  while (best > 0) {
    uint64_t lower = rice_bits(index, k, best - 1);
    if (lower >= *bits) {
      break;
    }
    *bits = lower;
    best--;
  }
  return best;
}

weir_index_code weir_index_choose(size_t n, const uint32_t *index, size_t k, bool automatic) {
  weir_index_code code = {WEIR_INDEX_U32, 0, 4 * k};
  if (!automatic || k == 0) {
    return code;
  }
  size_t bitmap = (n + 7) / 8;
  if (bitmap < code.bytes) {
    code = (weir_index_code){WEIR_INDEX_BITMAP, 0, bitmap};
  }
  uint64_t bits = 0;
  unsigned shift = rice_shift(n, index, k, &bits);
  if ((bits + 7) / 8 < code.bytes) {
    code = (weir_index_code){WEIR_INDEX_RICE, shift, (size_t)((bits + 7) / 8)};
  }
  return code;
}

size_t weir_index_bound(size_t n, size_t k) {
  if (k == 0) {
    return 0;
  }
  unsigned shift = shift_guess(n, k);
  uint64_t bits = (uint64_t)k * (shift + 1) + ((n - k) >> shift);
  size_t rice = (size_t)((bits + 7) / 8);
  size_t bitmap = (n + 7) / 8;
  size_t least = rice < bitmap ? rice : bitmap;
  return least < 4 * k ? least : 4 * k;
}

double weir_index_expected(size_t n, size_t k) {
  if (k == 0) {
    return 0.0;
  }
  double best = fmin(4.0 * (double)k, (double)((n + 7) / 8));
  /* Gap d with probability c(1-c)^d, so E[d >> s] = q/(1-q) with q = (1-c)^(2^s). */
  double log_rest = log1p(-(double)k / (double)n);
  for (unsigned shift = 0; shift <= SHIFT_MAX; shift++) {
    double q = k == n ? 0.0 : exp(ldexp(log_rest, (int)shift));
    double bits = (double)k * (shift + 1.0 + (q < 1.0 ? q / (1.0 - q) : INFINITY));
    best = fmin(best, bits / 8.0 + 0.5);
  }
  return best;
}

/* --- writing --------------------------------------------------------------------------------- */

static void write_bitmap(const uint32_t *index, size_t k, uint8_t *out, size_t bytes) {
  memset(out, 0, bytes);
  for (size_t i = 0; i < k; i++) {
    out[index[i] / 8] |= (uint8_t)(1U << (index[i] % 8));
  }
}

static void write_rice(const uint32_t *index, size_t k, unsigned shift, uint8_t *out) {
  uint64_t word = 0;
  unsigned fill = 0; /* bits in word, below 64 */
  uint32_t next = 0;
  for (size_t i = 0; i < k; i++) {
    uint32_t gap = index[i] - next;
    uint64_t zeros = gap >> shift;
    next = index[i] + 1;
    while (fill + zeros >= 64) {
      memcpy(out, &word, sizeof word);
      out += sizeof word;
      zeros -= 64 - fill;
      fill = 0;
      word = 0;
    }
    fill += (unsigned)zeros;
    /* The one bit and the low bits: at most 32 bits together. */
    uint64_t code = 1 | (uint64_t)(gap & ((UINT32_C(1) << shift) - 1)) << 1;
    word |= code << fill;
    fill += shift + 1;
    if (fill >= 64) {
      memcpy(out, &word, sizeof word);
      out += sizeof word;
      fill -= 64;
      word = fill > 0 ? code >> (shift + 1 - fill) : 0;
    }
  }
  memcpy(out, &word, (fill + 7) / 8);
}

void weir_index_write(weir_index_code code, const uint32_t *index, size_t k, uint8_t *out) {
  switch (code.encoding) {
    case WEIR_INDEX_U32:
      if (k > 0) {
        memcpy(out, index, 4 * k);
      }
      break;
    case WEIR_INDEX_BITMAP: write_bitmap(index, k, out, code.bytes); break;
    default: write_rice(index, k, code.shift, out); break;
  }
}

/* --- reading --------------------------------------------------------------------------------- */

static bool read_u32(weir_index_reader *reader, uint32_t *index, size_t count) {
  memcpy(index, reader->data + reader->at, 4 * count);
  reader->at += 4 * count;
  for (size_t i = 0; i < count; i++) {
    if (index[i] < reader->next || index[i] >= reader->n) {
      return false;
    }
    reader->next = (uint64_t)index[i] + 1;
  }
  return true;
}

static bool read_bitmap(weir_index_reader *reader, uint32_t *index, size_t count) {
  uint64_t at = reader->at;
  size_t got = 0;
  while (got < count) {
    if (at >= reader->n) {
      return false;
    }
    uint64_t window = load64(reader->data, reader->code.bytes, (size_t)(at / 8)) >> (at % 8);
    uint64_t reach = 64 - at % 8; /* elements that the window shows */
    while (window != 0 && got < count) {
      uint64_t bit = (uint64_t)__builtin_ctzll(window);
      if (at + bit >= reader->n) {
        return false;
      }
      index[got++] = (uint32_t)(at + bit);
      window &= window - 1;
    }
    at = got == count && count > 0 ? (uint64_t)index[got - 1] + 1 : at + reach;
  }
  reader->at = at;
  reader->next = at;
  return true;
}

/* Zero bits from position at up to the next one bit; UINT64_MAX when there is none or when there
 * are more than limit. */
static uint64_t count_zeros(const weir_index_reader *reader, uint64_t at, uint64_t limit) {
  uint64_t zeros = 0;
  while (zeros <= limit && at / 8 < reader->code.bytes) {
    uint64_t window = load64(reader->data, reader->code.bytes, (size_t)(at / 8)) >> (at % 8);
    if (window != 0) {
      zeros += (uint64_t)__builtin_ctzll(window);
      return zeros <= limit ? zeros : UINT64_MAX;
    }
    zeros += 64 - at % 8;
    at += 64 - at % 8;
  }
  return UINT64_MAX;
}

/* One gap wherever it lies: at the end of the list, or longer than a window. */
static bool read_gap(weir_index_reader *reader, uint64_t *gap) {
  unsigned shift = reader->code.shift;
  uint64_t zeros = count_zeros(reader, reader->at, (uint64_t)reader->n >> shift);
  if (zeros == UINT64_MAX) {
    return false;
  }
  uint64_t at = reader->at + zeros + 1;
  if (at + shift > (uint64_t)reader->code.bytes * 8) {
    return false;
  }
  uint64_t window = load64(reader->data, reader->code.bytes, (size_t)(at / 8)) >> (at % 8);
  *gap = zeros << shift | (window & ((UINT64_C(1) << shift) - 1));
  reader->at = at + shift;
  return true;
}

/* As many of count gaps as lie in one window; the reader moves past them.  They stay below 2^38
 * each, so that next cannot wrap. */
static size_t read_window(weir_index_reader *reader, uint32_t *index, size_t count) {
  unsigned shift = reader->code.shift;
  uint64_t low_mask = (UINT64_C(1) << shift) - 1;
  uint64_t next = reader->next;
  uint64_t window;
  memcpy(&window, reader->data + reader->at / 8, sizeof window);
  window >>= reader->at % 8;
  unsigned left = 64 - (unsigned)(reader->at % 8); /* bits of the window that are the list's */
  size_t read = 0;
  while (read < count && window != 0) {
    unsigned zeros = (unsigned)__builtin_ctzll(window);
    unsigned used = zeros + 1 + shift;
    if (used >= left) {
      break;
    }
    next += (uint64_t)zeros << shift | (window >> (zeros + 1) & low_mask);
    index[read++] = (uint32_t)next++;
    window >>= used;
    left -= used;
  }
  reader->at = (reader->at / 8 + sizeof window) * 8 - left;
  reader->next = next;
  return read;
}

static bool read_rice(weir_index_reader *reader, uint32_t *index, size_t count) {
  for (size_t read = 0; read < count;) {
    size_t more = 0;
    if (reader->at / 8 + sizeof(uint64_t) <= reader->code.bytes) {
      more = read_window(reader, index + read, count - read);
    }
    if (more == 0) {
      uint64_t gap = 0;
      if (!read_gap(reader, &gap)) {
        return false;
      }
      reader->next += gap;
      index[read] = (uint32_t)reader->next++;
      more = 1;
    }
    if (reader->next > reader->n) {
      return false;
    }
    read += more;
  }
  return true;
}

bool weir_index_read(weir_index_reader *reader, uint32_t *index, size_t count) {
  switch (reader->code.encoding) {
    case WEIR_INDEX_U32: return read_u32(reader, index, count);
    case WEIR_INDEX_BITMAP: return read_bitmap(reader, index, count);
    default: return read_rice(reader, index, count);
  }
}

static bool rest_is_zero(const weir_index_reader *reader) {
  size_t byte = (size_t)(reader->at / 8);
  if (reader->at % 8 != 0) {
    if (reader->data[byte] >> (reader->at % 8) != 0) {
      return false;
    }
    byte++;
  }
  for (; byte < reader->code.bytes; byte++) {
    if (reader->data[byte] != 0) {
      return false;
    }
  }
  return true;
}

bool weir_index_done(const weir_index_reader *reader) {
  switch (reader->code.encoding) {
    case WEIR_INDEX_U32: return true;
    case WEIR_INDEX_BITMAP: return rest_is_zero(reader);
    default: return (reader->at + 7) / 8 == reader->code.bytes && rest_is_zero(reader);
  }
}

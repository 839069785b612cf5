/* Spreading word by word: the rest of what every version has, over its own spread_word(). */
#ifndef TARGET
#error "define TARGET first"
#endif

TARGET static size_t spread(const uint64_t *mask, size_t words, const float *value, float *to,
                            bool stream) {
  const float *next = value;
  for (size_t w = 0; w < words; w++) next += spread_word(mask[w], next, to + 64 * w, stream);
  return (size_t)(next - value);
}

#define WEIR_SPREAD_OPS .ones = ones, .spread = spread, .spread_add = spread_add, .drain = drain

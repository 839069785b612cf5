/* Spreading values over a gradient by masks: what all versions share, and with WEIR_SPREAD_PLAIN
 * the scalar one.  The including file defines TARGET. */
#ifndef TARGET
#error "define TARGET first"
#endif

/* Bytes ahead of what is added to that are asked for: so much is done to each line that the
 * processor does not see the next ones in time by itself, as it does in a plain pass. */
#define WEIR_SPREAD_AHEAD 8192

TARGET static size_t ones(const uint64_t *mask, size_t words) {
  size_t sum = 0;
  for (size_t w = 0; w < words; w++) sum += (size_t)__builtin_popcountll(mask[w]);
  return sum;
}

#ifdef WEIR_SPREAD_PLAIN
TARGET static inline size_t spread_word(uint64_t bits, const float *value, float *to, bool stream) {
  const float *next = value;
  (void)stream;
  memset(to, 0, 64 * sizeof *to);
  for (; bits != 0; bits &= bits - 1) to[__builtin_ctzll(bits)] = *next++;
  return (size_t)(next - value);
}

TARGET static size_t spread_add(const uint64_t *mask, size_t words, const float *value, float *to) {
  const float *next = value;
  for (size_t w = 0; w < words; w++) {
    for (uint64_t bits = mask[w]; bits != 0; bits &= bits - 1)
      to[64 * w + (size_t)__builtin_ctzll(bits)] += *next++;
  }
  return (size_t)(next - value);
}

static void drain(void) {}
#endif

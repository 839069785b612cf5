/* Reading Elias-Fano lists (wire_elias.c): what all versions share, and with WEIR_ELIAS_PLAIN the
 * scalar one.  The including file defines TARGET and, for vectors, FIELD_LANES. */
#ifndef TARGET
#error "define TARGET first"
#endif

/* The low bits of the indices, one by one: index[at .. count). */
TARGET static bool elias_low_from(const weir_elias *list, uint64_t first, uint32_t *index,
                                  size_t at, size_t count) {
  uint64_t mask = (UINT64_C(1) << list->shift) - 1;
  bool ascending = true;
  for (size_t i = at; i < count; i++) {
    uint64_t bit = (first + i) * list->shift;
    uint64_t from = bit / 8;
    uint64_t window = 0;
    size_t left = from < list->low_bytes ? (size_t)(list->low_bytes - from) : 0;
    if (left >= sizeof window) {
      memcpy(&window, list->low + from, sizeof window);
    } else if (left > 0) {
      memcpy(&window, list->low + from, left);
    }
    index[i] =
        (index[i] - (uint32_t)(first + i)) << list->shift | (uint32_t)(window >> bit % 8 & mask);
    ascending &= i == 0 || index[i] > index[i - 1];
  }
  return ascending;
}

#ifdef FIELD_LANES
/* Where the fields of as many indices as a vector has lanes lie: those of each four in the 16 bytes
 * from `from` on, lane by lane in the four bytes that `pick` says, `by` bits up. */
typedef struct field_lanes {
  uint8_t pick[4 * FIELD_LANES];
  uint32_t by[FIELD_LANES];
  size_t from[FIELD_LANES / 4];
} field_lanes;

TARGET static field_lanes find_fields(unsigned phase, unsigned shift) {
  field_lanes f;
  for (unsigned lane = 0; lane < FIELD_LANES; lane++) {
    unsigned bit = phase + lane * shift;
    unsigned begin = (phase + (lane & ~3U) * shift) / 8;
    f.from[lane / 4] = begin;
    f.by[lane] = bit % 8;
    for (unsigned byte = 0; byte < 4; byte++)
      f.pick[4 * lane + byte] = (uint8_t)(bit / 8 - begin + byte);
  }
  return f;
}
#endif

#ifdef WEIR_ELIAS_PLAIN
TARGET static size_t places(const uint8_t *bits, size_t *words, uint32_t from, uint32_t *to,
                            size_t room) {
  size_t got = 0;
  size_t word = 0;
  for (; word < *words && room - got >= WEIR_PLACES_ROOM; word++) {
    uint64_t window;
    memcpy(&window, bits + 8 * word, sizeof window);
    for (; window != 0; window &= window - 1)
      to[got++] = from + (uint32_t)(64 * word) + (uint32_t)__builtin_ctzll(window);
  }
  *words = word;
  return got;
}

TARGET static bool elias_low(const weir_elias *list, uint64_t first, uint32_t *index,
                             size_t count) {
  return elias_low_from(list, first, index, 0, count);
}
#endif

#define WEIR_ELIAS_OPS .places = places, .elias_low = elias_low

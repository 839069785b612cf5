#include "engine/marks.h"

static uint32_t *word_of(const weir_marks *marks, size_t back) { return marks->last - back / 32; }

/* From the list's end: an index is never before its place in the list, so that no word falls on
 * what is still to be read. */
void weir_marks_set(const weir_marks *marks, const uint32_t *index, size_t k) {
  for (size_t back = 0; back < marks->n; back += 32) {
    uint32_t word = 0;
    for (; k > 0 && marks->n - 1 - index[k - 1] < back + 32; k--)
      word |= UINT32_C(1) << (marks->n - 1 - index[k - 1] - back);
    *word_of(marks, back) = word;
  }
}

void weir_marks_clear(const weir_marks *marks) {
  for (size_t back = 0; back < marks->n; back += 32) *word_of(marks, back) = 0;
}

void weir_marks_add(const weir_marks *marks, size_t at, const uint32_t *index, size_t k) {
  for (size_t i = 0; i < k;) {
    const size_t word = (marks->n - 1 - at - index[i]) / 32;
    uint32_t bits = 0;
    for (; i < k && (marks->n - 1 - at - index[i]) / 32 == word; i++)
      bits |= UINT32_C(1) << ((marks->n - 1 - at - index[i]) % 32);
    *word_of(marks, word * 32) |= bits;
  }
}

size_t weir_marks_next(const weir_marks *marks, size_t from, size_t end) {
  while (from < end) {
    const size_t back = marks->n - 1 - from, bit = back % 32;
    const uint32_t word = *word_of(marks, back) & (UINT32_MAX >> (31 - bit));
    if (word != 0) {
      const size_t found = marks->n - 1 - (back - bit + 31 - (size_t)__builtin_clz(word));
      return found < end ? found : end;
    }
    from = marks->n - (back - bit);
  }
  return end;
}

size_t weir_marks_list(const weir_marks *marks, size_t *from, size_t end, uint32_t *index,
                       size_t most) {
  size_t count = 0, at = *from;
  while (at < end && count < most) {
    const size_t back = marks->n - 1 - at, bit = back % 32, last = at + bit; /* of the word */
    uint32_t word = *word_of(marks, back) & (UINT32_MAX >> (31 - bit));
    if (last >= end) word &= UINT32_MAX << (last + 1 - end);
    for (; word != 0 && count < most; count++) {
      const unsigned highest = 31 - (unsigned)__builtin_clz(word);
      index[count] = (uint32_t)(last - highest);
      word ^= UINT32_C(1) << highest;
    }
    at = word != 0 ? index[count - 1] + (size_t)1 : last + 1;
  }
  *from = at < end ? at : end;
  return count;
}

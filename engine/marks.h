/* A selection as a bit an element, for as long as a list of indices would take too much. */
#ifndef WEIR_ENGINE_MARKS_H
#define WEIR_ENGINE_MARKS_H

#include <stddef.h>
#include <stdint.h>

/* Of n elements.  The words run backwards from the last one, and element n - 1 is that one's lowest
 * bit, so that the marks of what is left to do always lie behind those of what is done. */
typedef struct weir_marks {
  uint32_t *last; /* of weir_span_marks(n) words */
  size_t n;
} weir_marks;

/* Marks k ascending indices.  The list may lie anywhere before the marks, and up to n words before
 * the end of them even where they are written. */
void weir_marks_set(const weir_marks *marks, const uint32_t *index, size_t k);
/* Marks nothing; then k more elements, counted from `at` on. */
void weir_marks_clear(const weir_marks *marks);
void weir_marks_add(const weir_marks *marks, size_t at, const uint32_t *index, size_t k);
/* The next marked element from `from` on; end when there is none before. */
size_t weir_marks_next(const weir_marks *marks, size_t from, size_t end);
/* The next ones in [*from, end), at most `most`, as a list; *from goes on behind them.  Returns how
 * many, fewer than `most` only when there are no more before end. */
size_t weir_marks_list(const weir_marks *marks, size_t *from, size_t end, uint32_t *index,
                       size_t most);

#endif

/* Text files as editors of other systems leave them: a byte-order mark, lines that end in CR LF */
#include <string.h>

#include "base/base.h"

static const char mark[] = "\xEF\xBB\xBF"; /* UTF-8's */

size_t weir_text_mark(const void *text, size_t bytes) {
  const size_t length = sizeof mark - 1;
  return bytes >= length && memcmp(text, mark, length) == 0 ? length : 0;
}

size_t weir_text_line(const char *line, size_t bytes) {
  if (bytes > 0 && line[bytes - 1] == '\n') bytes--;
  if (bytes > 0 && line[bytes - 1] == '\r') bytes--;
  return bytes;
}

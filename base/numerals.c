#include "base/numerals.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t plain; /* for as long as the process lives */

static void make_plain(void) {
  const int error = errno; /* callers ask it about the number */
  plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  errno = error;
}

locale_t weir_numerals_begin(void) {
  (void)pthread_once(&once, make_plain);
  return uselocale(plain);
}

void weir_numerals_end(locale_t before) { (void)uselocale(before); }

double weir_strtod(const char *text, char **end) {
  const locale_t before = weir_numerals_begin();
  const double value = strtod(text, end);
  weir_numerals_end(before);
  return value;
}

/* Numbers as plans, options, tables, journals and traces have them: with a point, whatever locale
 * the program that embeds the library has set (LC_NUMERIC). */
#ifndef WEIR_BASE_NUMERALS_H
#define WEIR_BASE_NUMERALS_H

#include <locale.h>

/* strtod(3). */
double weir_strtod(const char *text, char **end);

/* Between these two, which make no system call, printf(3) of the calling thread writes a point. */
locale_t weir_numerals_begin(void);
void weir_numerals_end(locale_t before);

#endif

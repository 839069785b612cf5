/* Reading the planner's input files: comma-separated, printable ASCII, a fixed header, no
 * quoting.
 *
 * Every failure is WEIR_E_PARSE with "FILE:LINE: what was found: expected what", or WEIR_E_IO.  A
 * line may hold at most 64 KiB and the file at most WEIR_CSV_ROWS rows, so that a wrong file ends
 * with a message and not with the machine's memory.  One thread at a time per reader. */
#ifndef WEIR_PLANNER_CSV_H
#define WEIR_PLANNER_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/base.h"

enum { WEIR_CSV_COLUMNS = 8, WEIR_CSV_ROWS = 1000000, WEIR_CSV_LINE = 65536 };

typedef struct weir_csv {
  FILE *file;
  const char *path;   /* borrowed from the caller of weir_csv_open */
  const char *header; /* borrowed */
  size_t line;        /* of the row in field[], from 1 */
  size_t rows;        /* data rows read so far */
  size_t columns;
  char *field[WEIR_CSV_COLUMNS]; /* into text; valid until the next weir_csv_next */
  char *text;                    /* owned */
} weir_csv;

/* Open and check that the first line is exactly header.  On failure nothing is left to close. */
weir_status weir_csv_open(weir_csv *csv, const char *path, const char *header);
/* The next row with exactly the header's columns; *more is false at the end of the file.  A file
 * without any row is an error here.  Empty lines are errors too. */
weir_status weir_csv_next(weir_csv *csv, bool *more);
/* Takes every row of a file, from its opening to its end or what is wrong; `user` is take()'s. */
weir_status weir_csv_read(const char *path, const char *header,
                          weir_status (*take)(void *user, const weir_csv *csv), void *user);
/* Column as a finite number in [low, high]. */
weir_status weir_csv_number(const weir_csv *csv, size_t column, double low, double high,
                            double *value);
/* The same, a whole number. */
weir_status weir_csv_whole(const weir_csv *csv, size_t column, double low, double high,
                           double *value);
/* weir_fail(WEIR_E_PARSE) with the file and the line before the message. */
weir_status weir_csv_fail(const weir_csv *csv, const char *format, ...) WEIR_PRINTF(2, 3);
void weir_csv_close(weir_csv *csv);

#endif

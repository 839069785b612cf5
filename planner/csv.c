#include "planner/csv.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/numerals.h"

weir_status weir_csv_fail(const weir_csv *csv, const char *format, ...) {
  char message[256];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return weir_fail(WEIR_E_PARSE, "%s:%zu: %s", csv->path, csv->line, message);
}

/* One line into csv->text without its end; *more is false when there is none. */
static weir_status read_line(weir_csv *csv, bool *more) {
  size_t length = 0;
  int c = getc(csv->file);
  csv->line++;
  *more = c != EOF;
  for (; c != EOF && c != '\n'; c = getc(csv->file)) {
    if (length + 1 == WEIR_CSV_LINE)
      return weir_csv_fail(csv, "a line of over %d bytes: expected '%s'", WEIR_CSV_LINE - 1,
                           csv->header);
    csv->text[length++] = (char)c;
  }
  if (ferror(csv->file))
    return weir_fail(WEIR_E_IO, "%s: cannot be read: %s", csv->path, strerror(errno));
  length = weir_text_line(csv->text, length);
  const size_t mark = csv->line == 1 ? weir_text_mark(csv->text, length) : 0;
  memmove(csv->text, csv->text + mark, length -= mark);
  csv->text[length] = '\0';
  for (size_t i = 0; i < length; i++)
    if (csv->text[i] < ' ' || csv->text[i] > '~')
      return weir_csv_fail(csv, "an unprintable character: expected ASCII of the form '%s'",
                           csv->header);
  return WEIR_OK;
}

static size_t split(weir_csv *csv) {
  size_t columns = 0;
  for (char *at = csv->text; at; columns++) {
    char *comma = strchr(at, ',');
    if (comma) *comma++ = '\0';
    if (columns < WEIR_CSV_COLUMNS) csv->field[columns] = at;
    at = comma;
  }
  return columns;
}

weir_status weir_csv_open(weir_csv *csv, const char *path, const char *header) {
  *csv = (weir_csv){.path = path, .header = header, .columns = 1};
  for (const char *c = header; *c; c++) csv->columns += *c == ',';
  csv->text = malloc(WEIR_CSV_LINE);
  if (!csv->text) return weir_fail(WEIR_E_NOMEM, "no memory to read %s", path);
  bool more = false;
  weir_status status = weir_text_open(&csv->file, path, "a table of numbers and names", true);
  if (status == WEIR_OK) status = read_line(csv, &more);
  if (status == WEIR_OK && !more)
    status = weir_csv_fail(csv, "the file is empty: expected the header '%s'", header);
  else if (status == WEIR_OK && strcmp(csv->text, header) != 0)
    status = weir_csv_fail(csv, "'%.60s': expected the header '%s'", csv->text, header);
  if (status != WEIR_OK) weir_csv_close(csv);
  return status;
}

weir_status weir_csv_next(weir_csv *csv, bool *more) {
  const weir_status status = read_line(csv, more);
  if (status != WEIR_OK) return status;
  if (!*more)
    return csv->rows
               ? WEIR_OK
               : weir_csv_fail(csv, "no rows: expected at least one line of '%s'", csv->header);
  const size_t columns = split(csv);
  if (columns != csv->columns)
    return weir_csv_fail(csv, "%zu columns: expected the %zu of '%s'", columns, csv->columns,
                         csv->header);
  if (++csv->rows > WEIR_CSV_ROWS)
    return weir_csv_fail(csv, "too many rows: expected at most %d", WEIR_CSV_ROWS);
  return WEIR_OK;
}

weir_status weir_csv_number(const weir_csv *csv, size_t column, double low, double high,
                            double *value) {
  const char *text = csv->field[column];
  char *end = NULL;
  *value = weir_strtod(text, &end);
  if (end == text || *end || isspace((unsigned char)*text) || !(*value >= low && *value <= high))
    return weir_csv_fail(csv, "column %zu of '%s' is '%.40s': expected a number from %g to %g",
                         column + 1, csv->header, text, low, high);
  return WEIR_OK;
}

weir_status weir_csv_whole(const weir_csv *csv, size_t column, double low, double high,
                           double *value) {
  const weir_status status = weir_csv_number(csv, column, low, high, value);
  if (status != WEIR_OK || *value == floor(*value)) return status;
  return weir_csv_fail(csv, "column %zu of '%s' is '%.40s': expected a whole number", column + 1,
                       csv->header, csv->field[column]);
}

weir_status weir_csv_read(const char *path, const char *header,
                          weir_status (*take)(void *user, const weir_csv *csv), void *user) {
  weir_csv csv;
  weir_status status = weir_csv_open(&csv, path, header);
  for (bool more = true; status == WEIR_OK;) {
    status = weir_csv_next(&csv, &more);
    if (status != WEIR_OK || !more) break;
    status = take(user, &csv);
  }
  weir_csv_close(&csv);
  return status;
}

void weir_csv_close(weir_csv *csv) {
  if (csv->file) (void)fclose(csv->file);
  free(csv->text);
  *csv = (weir_csv){0};
}

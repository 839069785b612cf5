/* A line-numbered reader of INI text: "[section argument]", "key = value", comments after # or ;.
 * Own code because a scenario's errors must name the line, also of a section without keys and of
 * one that is missing something: GKeyFile keeps no line numbers, inih tells none of empty sections
 * and cuts long lines silently. */
#ifndef WEIR_LAB_INI_H
#define WEIR_LAB_INI_H

#include <weir/status.h>

typedef struct weir_ini_line {
  const char *path;
  int line;             /* counting from 1 */
  const char *section;  /* first word in the brackets */
  const char *argument; /* the rest in the brackets, "" when there is none */
  const char *key;      /* NULL: this line opens the section */
  const char *value;    /* without surrounding blanks; NULL with key */
} weir_ini_line;

/* Called once for each section header and each key, in order; strings live until it returns. */
typedef weir_status (*weir_ini_fn)(void *user, const weir_ini_line *line);

/* Errors: WEIR_E_IO (cannot be read), WEIR_E_PARSE ("file:line: ..."), or what the
 * callback gave. */
weir_status weir_ini_read(const char *path, weir_ini_fn callback, void *user);

#endif

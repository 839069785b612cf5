#include "lab/ini.h"

#include <ctype.h>
#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define LINE_MAX_BYTES 1024

static char *trim(char *text) {
  while (isspace((unsigned char)*text)) text++;
  size_t length = strlen(text);
  while (length && isspace((unsigned char)text[length - 1])) text[--length] = 0;
  return text;
}

/* What an error repeats of a line must not upset a terminal. */
static bool is_text(const char *line) {
  for (const char *p = line; *p; p++)
    if (iscntrl((unsigned char)*p) && *p != '\t') return false;
  return g_utf8_validate(line, -1, NULL);
}

/* A comment starts at # or ; at the line's begin or after a blank. */
static void cut_comment(char *text) {
  for (char *p = text; *p; p++)
    if ((*p == '#' || *p == ';') && (p == text || isspace((unsigned char)p[-1]))) {
      *p = 0;
      return;
    }
}

static weir_status open_section(weir_ini_line *at, char *text, char section[LINE_MAX_BYTES]) {
  size_t length = strlen(text);
  if (text[length - 1] != ']')
    return weir_fail(WEIR_E_PARSE, "%s:%d: '%.80s' has no closing bracket; expected [section]",
                     at->path, at->line, text);
  text[length - 1] = 0;
  memcpy(section, text + 1, length - 1);
  char *name = trim(section);
  memmove(section, name, strlen(name) + 1);
  if (!*section)
    return weir_fail(WEIR_E_PARSE, "%s:%d: the section has no name; expected e.g. [training]",
                     at->path, at->line);
  char *argument = section;
  while (*argument && !isspace((unsigned char)*argument)) argument++;
  if (*argument) *argument++ = 0;
  at->section = section;
  at->argument = trim(argument);
  at->key = at->value = NULL;
  return WEIR_OK;
}

static weir_status split_key(weir_ini_line *at, char *text) {
  if (!at->section)
    return weir_fail(WEIR_E_PARSE,
                     "%s:%d: '%.80s' stands before any section; expected [scenario] first",
                     at->path, at->line, text);
  char *equals = strchr(text, '=');
  if (!equals)
    return weir_fail(WEIR_E_PARSE,
                     "%s:%d: '%.80s' is neither a section nor a key; expected key = value",
                     at->path, at->line, text);
  *equals = 0;
  at->key = trim(text);
  at->value = trim(equals + 1);
  if (!*at->key || !*at->value)
    return weir_fail(WEIR_E_PARSE, "%s:%d: %.80s is empty; expected key = value", at->path,
                     at->line, *at->key ? at->key : "the key");
  return WEIR_OK;
}

static weir_status read_lines(FILE *file, const char *path, weir_ini_fn callback, void *user) {
  char buffer[LINE_MAX_BYTES], section[LINE_MAX_BYTES];
  weir_ini_line at = {.path = path};
  size_t length = 0;
  for (at.line = 1; weir_text_get(file, buffer, sizeof buffer, &length); at.line++) {
    if (strlen(buffer) != length || (buffer[length - 1] != '\n' && !feof(file)))
      return weir_fail(WEIR_E_PARSE,
                       "%s:%d: the line is no text or too long; expected at most %d characters",
                       path, at.line, LINE_MAX_BYTES - 2);
    char *text = buffer + (at.line == 1 ? weir_text_mark(buffer, length) : 0);
    cut_comment(text);
    text = trim(text);
    if (!*text) continue;
    if (!is_text(text))
      return weir_fail(WEIR_E_PARSE, "%s:%d: the line is no text; expected UTF-8 without controls",
                       path, at.line);
    weir_status status = *text == '[' ? open_section(&at, text, section) : split_key(&at, text);
    if (!status) status = callback(user, &at);
    if (status) return status;
  }
  if (ferror(file))
    return weir_fail(WEIR_E_IO, "%s: cannot be read (%s); expected a scenario file", path,
                     strerror(errno));
  return WEIR_OK;
}

weir_status weir_ini_read(const char *path, weir_ini_fn callback, void *user) {
  FILE *file;
  weir_status status = weir_text_open(&file, path, "a scenario file", false);
  if (status) return status;
  status = read_lines(file, path, callback, user);
  (void)fclose(file);
  return status;
}

#include "controller/filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* "<N" */
static bool parse_size(const char *item, uint64_t *size) {
  char *end = NULL;
  errno = 0;
  *size = item[1] >= '0' && item[1] <= '9' ? strtoull(item + 1, &end, 10) : 0;
  return *size > 0 && errno == 0 && *end == '\0';
}

/* Copies the item that *filter begins with and steps behind it; false: there is none, or no
 * room. */
static bool next_item(const char **filter, char item[WEIR_FILTER_MAX]) {
  if (*filter == NULL) return false;
  const size_t length = strcspn(*filter, ",");
  if (length >= WEIR_FILTER_MAX) return false;
  memcpy(item, *filter, length);
  item[length] = '\0';
  *filter = (*filter)[length] == ',' ? *filter + length + 1 : NULL;
  return true;
}

weir_status weir_filter_check(const char *filter) {
  char item[WEIR_FILTER_MAX];
  uint64_t size = 0;
  if (filter == NULL || *filter == '\0') return WEIR_OK;
  if (strlen(filter) >= WEIR_FILTER_MAX)
    return weir_fail(WEIR_E_INVALID, "full_precision has %zu letters: expected less than %d",
                     strlen(filter), WEIR_FILTER_MAX);
  while (next_item(&filter, item))
    if (*item == '\0' || (*item == '<' && !parse_size(item, &size)))
      return weir_fail(WEIR_E_INVALID,
                       "'%.60s' of full_precision: expected a pattern of names, or <N with a whole "
                       "number of elements from 1",
                       item);
  return WEIR_OK;
}

static bool matches(const char *pattern, const char *name) {
  return name != NULL && fnmatch(pattern, name, FNM_CASEFOLD) == 0;
}

bool weir_filter_takes(const char *filter, const char *name, size_t numel) {
  char item[WEIR_FILTER_MAX];
  if (filter == NULL || *filter == '\0') return false;
  while (next_item(&filter, item)) {
    uint64_t size = 0;
    if (*item == '<' ? parse_size(item, &size) && numel < size : matches(item, name)) return true;
  }
  return false;
}

bool weir_filter_next_idle(const char **rest, const char *const *names, size_t count,
                           char pattern[WEIR_FILTER_MAX]) {
  if (*rest != NULL && **rest == '\0') *rest = NULL;
  while (next_item(rest, pattern)) {
    bool idle = *pattern != '<';
    for (size_t t = 0; t < count && idle; t++) idle = !matches(pattern, names[t]);
    if (idle) return true;
  }
  return false;
}

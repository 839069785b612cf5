#include "session/launch_values.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define SHOWN 48
#define HOST_MOST 253

const char *weir_env(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : NULL;
}

weir_status weir_env_fail(const char *name, const char *expected) {
  const char *value = weir_env(name);
  char shown[SHOWN + 4] = "";
  if (value == NULL) return weir_fail(WEIR_E_INVALID, "%s is not set; expected %s", name, expected);
  const size_t length = strnlen(value, SHOWN + 1);
  for (size_t i = 0; i < length && i < SHOWN; i++)
    shown[i] = isprint((unsigned char)value[i]) ? value[i] : '?';
  if (length > SHOWN) (void)strcpy(shown + SHOWN, "...");
  return weir_fail(WEIR_E_PARSE, "%s is \"%s\"; expected %s", name, shown, expected);
}

weir_status weir_env_number(const char *name, long least, long most, int *number) {
  const char *value = weir_env(name);
  long sum = 0;
  bool good = value != NULL && strlen(value) <= 10;
  for (const char *at = value; good && *at != '\0'; at++) {
    good = *at >= '0' && *at <= '9';
    sum = 10 * sum + (*at - '0');
  }
  if (!good || sum < least || sum > most) {
    char expected[64];
    (void)snprintf(expected, sizeof expected, "a whole number from %ld to %ld", least, most);
    return weir_env_fail(name, expected);
  }
  *number = (int)sum;
  return WEIR_OK;
}

weir_status weir_env_number_if_set(const char *name, long least, long most, int *number) {
  if (name != NULL && weir_env(name) != NULL) return weir_env_number(name, least, most, number);
  *number = -1;
  return WEIR_OK;
}

bool weir_is_host(const char *text, size_t length) {
  if (length < 1 || length > HOST_MOST || !isalnum((unsigned char)text[0])) return false;
  for (size_t i = 0; i < length; i++)
    if (!isalnum((unsigned char)text[i]) && strchr(".-_", text[i]) == NULL) return false;
  return true;
}

weir_status weir_env_first_node(const char *name, char *host, size_t room) {
  const char *at = weir_env(name);
  size_t length = 0;
  while (at != NULL && *at != '\0' && *at != ',' && length + 1 < room) {
    if (*at != '[') {
      host[length++] = *at++;
      continue;
    }
    at++; /* "[07-09,12]": the first number, with its zeros */
    const char *end = strchr(at, ']');
    const size_t digits = strspn(at, "0123456789");
    if (end == NULL || digits == 0 || strchr("-,]", at[digits]) == NULL) at = NULL;
    for (size_t i = 0; at != NULL && i < digits && length + 1 < room; i++) host[length++] = at[i];
    if (at != NULL) at = end + 1;
  }
  if (at == NULL || length + 1 >= room || !weir_is_host(host, length))
    return weir_env_fail(name, "a list of nodes such as node[01-04]");
  host[length] = '\0';
  return WEIR_OK;
}

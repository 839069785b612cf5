/* A thread's last failure, and the names of statuses. */
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

static _Thread_local char last_error[512];

weir_status weir_fail(weir_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(last_error, sizeof last_error, format, args);
  va_end(args);
  return status;
}

const char *weir_last_error(void) { return last_error; }

const char *weir_status_name(weir_status status) {
  switch (status) {
    case WEIR_OK: return "WEIR_OK";
    case WEIR_E_INVALID: return "WEIR_E_INVALID";
    case WEIR_E_STATE: return "WEIR_E_STATE";
    case WEIR_E_NOMEM: return "WEIR_E_NOMEM";
    case WEIR_E_UNSUPPORTED: return "WEIR_E_UNSUPPORTED";
    case WEIR_E_IO: return "WEIR_E_IO";
    case WEIR_E_PARSE: return "WEIR_E_PARSE";
    case WEIR_E_CAPACITY: return "WEIR_E_CAPACITY";
    case WEIR_GROW: return "WEIR_GROW";
    case WEIR_E_NONFINITE: return "WEIR_E_NONFINITE";
    case WEIR_E_TIMEOUT: return "WEIR_E_TIMEOUT";
    case WEIR_E_PEER: return "WEIR_E_PEER";
    case WEIR_E_PROTOCOL: return "WEIR_E_PROTOCOL";
    case WEIR_E_MISMATCH: return "WEIR_E_MISMATCH";
    case WEIR_E_INTERNAL: return "WEIR_E_INTERNAL";
  }
  return "WEIR_E_UNKNOWN";
}

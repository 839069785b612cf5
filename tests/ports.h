/* Ports for tests that start ranks: whatever a test cannot go on without, it aborts for. */
#ifndef WEIR_TESTS_PORTS_H
#define WEIR_TESTS_PORTS_H

#include <stdlib.h>

#include "base/base.h"

static inline int free_port(void) {
  const int port = weir_free_port();
  if (port == 0) abort();
  return port;
}

#endif

/* Variables of tests that give back what they hold where their block ends. */
#ifndef WEIR_TESTS_HELD_H
#define WEIR_TESTS_HELD_H

#include <stdlib.h>
#include <string.h>

/* Before a pointer's declaration: what it points to at the end is freed. */
#define FREED __attribute__((cleanup(held_free)))

static inline void held_free(const void *pointer) {
  void *memory;
  memcpy(&memory, pointer, sizeof memory);
  free(memory);
}

#endif

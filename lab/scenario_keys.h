/* The table of scenario keys; private to scenario.c. */
#ifndef WEIR_LAB_SCENARIO_KEYS_H
#define WEIR_LAB_SCENARIO_KEYS_H

#include <stddef.h>

#include "lab/scenario.h"

typedef enum weir_key_kind {
  WEIR_KEY_TEXT,   /* char[WEIR_SCENARIO_TEXT_MAX] */
  WEIR_KEY_COUNT,  /* uint32_t */
  WEIR_KEY_SEED,   /* uint64_t */
  WEIR_KEY_REAL,   /* double, finite */
  WEIR_KEY_EPOCHS, /* decay_epochs: a list */
  WEIR_KEY_RANGE,  /* first_epoch, last_epoch of a phase */
  WEIR_KEY_FAULT   /* weir_fault_kind */
} weir_key_kind;

typedef struct weir_key {
  const char *section, *name;
  weir_key_kind kind;
  size_t offset;      /* into weir_phase for section "phase", else into weir_scenario */
  size_t line_offset; /* where the key's line goes; 0: nowhere */
  double low, high;   /* allowed, ends included */
  bool required;      /* once the section is there */
  const char *expected;
} weir_key;

#define WEIR_SCENARIO_KEYS_MAX 64
extern const weir_key weir_scenario_keys[]; /* ends with a row without section */

#endif

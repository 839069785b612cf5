/* What the tests of selections share. */
#ifndef WEIR_TESTS_PARITY_SELECTION_H
#define WEIR_TESTS_PARITY_SELECTION_H

#include "parity.h"

/* Host arrays for both sides of a selection, and the oracle's context. */
typedef struct arrays {
  float *g, *r, *e, *got, *value;
  uint32_t *index, *wanted;
  weir_codec_context *context;
} arrays;

static inline arrays make_arrays(size_t n) {
  arrays a = {.g = array(n, sizeof(float)),
              .r = array(n, sizeof(float)),
              .e = array(n, sizeof(float)),
              .got = array(n, sizeof(float)),
              .value = array(n, sizeof(float)),
              .index = array(n, sizeof(uint32_t)),
              .wanted = array(n, sizeof(uint32_t))};
  must(weir_codec_context_create(&a.context));
  return a;
}

static inline void free_arrays(arrays a) {
  free(a.g);
  free(a.r);
  free(a.e);
  free(a.got);
  free(a.value);
  free(a.index);
  free(a.wanted);
  weir_codec_context_free(a.context);
}

#endif

/* Numbers in ascending order. */
#include <stdlib.h>

#include "base/base.h"

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void weir_sort(double *values, size_t count) { qsort(values, count, sizeof *values, ascending); }

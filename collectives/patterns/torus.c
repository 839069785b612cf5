/* The rows of a two-dimensional torus. */
#include "collectives/patterns/patterns.h"

int weir_torus_rows(int size) {
  int rows = 1;
  for (int r = 2; r <= size / r; r++)
    if (size % r == 0) rows = r;
  return rows;
}

/* Binomial trees: who is whose parent. */
#include "collectives/patterns/patterns.h"

int weir_log2_ceil(int size) {
  int bits = 0;
  while (bits < 30 && (1 << bits) < size) bits++;
  return bits;
}

int weir_binomial_level(int v, int size) {
  if (v == 0) return weir_log2_ceil(size);
  int level = 0;
  while (((v >> level) & 1) == 0) level++;
  return level;
}

int weir_binomial_parent(int v, int size) {
  return v == 0 ? -1 : v - (1 << weir_binomial_level(v, size));
}

int weir_binomial_child(int v, int size, int k) {
  const int child = v + (1 << k);
  return child < size ? child : -1;
}

int weir_binomial_subtree(int v, int size) {
  const int full = 1 << weir_binomial_level(v, size);
  return full < size - v ? full : size - v;
}

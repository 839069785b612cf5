/* Double binary trees: in-order trees and their mirror images. */
#include "collectives/patterns/patterns.h"

int weir_inorder_parent(int v, int size) {
  if (v == 0) return -1;
  const int step = 1 << weir_binomial_level(v, size);
  /* The left child of a place that is there; else the right child of the nearest one before it. */
  return (v & (2 * step)) == 0 && v + step < size ? v + step : v - step;
}

int weir_inorder_child(int v, int size, int side) {
  const int level = weir_binomial_level(v, size);
  if (side == 0) return v == 0 || level == 0 ? -1 : v - (1 << (level - 1));
  for (int j = level - 1; j >= 0; j--)
    if (v + (1 << j) < size) return v + (1 << j);
  return -1;
}

int weir_inorder_height(int v, int size) {
  int height = 0;
  for (int side = 0; side < 2; side++) {
    const int child = weir_inorder_child(v, size, side);
    const int above = child < 0 ? 0 : 1 + weir_inorder_height(child, size);
    if (above > height) height = above;
  }
  return height;
}

int weir_inorder_depth(int v, int size) {
  int depth = 0;
  for (int p = weir_inorder_parent(v, size); p >= 0; p = weir_inorder_parent(p, size)) depth++;
  return depth;
}

void weir_inorder_subtree(int v, int size, int *first, int *count) {
  const int reach = (1 << weir_binomial_level(v, size)) - 1;
  const int last = v + reach < size ? v + reach : size - 1;
  *first = v == 0 ? 0 : v - reach;
  *count = last - *first + 1;
}

int weir_double_tree_place(int tree, int rank, int size) {
  if (tree == 0) return rank;
  return size % 2 == 0 ? size - 1 - rank : (rank + size - 1) % size;
}

int weir_double_tree_rank(int tree, int place, int size) {
  if (tree == 0) return place;
  return size % 2 == 0 ? size - 1 - place : (place + 1) % size;
}

int weir_double_tree_chunks(size_t bytes) {
  const size_t chunks = bytes / 2 / ((size_t)64 * 1024);
  return chunks < 1 ? 1 : chunks > 16 ? 16 : (int)chunks;
}

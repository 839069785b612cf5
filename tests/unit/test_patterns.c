#include <criterion/criterion.h>
#include <string.h>

#include "collectives/patterns/patterns.h"

#define SIZES 64

Test(patterns, log2_ceil) {
  const int sizes[] = {1, 2, 3, 4, 5, 8, 9, 63, 64, 65, 4096};
  const int bits[] = {0, 1, 2, 2, 3, 3, 4, 6, 6, 7, 12};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    cr_assert_eq(weir_log2_ceil(sizes[i]), bits[i], "%d", sizes[i]);
}

Test(ring, chunks_tile_the_elements) {
  const size_t lengths[] = {0, 1, 2, 5, 63, 64, 65, 1000};
  for (int size = 1; size <= SIZES; size++)
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
      size_t end = 0, least = lengths[l], most = 0;
      for (int c = 0; c < size; c++) {
        const weir_chunk chunk = weir_ring_chunk(lengths[l], size, c);
        cr_assert_eq(chunk.begin, end);
        end += chunk.count;
        if (chunk.count < least) least = chunk.count;
        if (chunk.count > most) most = chunk.count;
      }
      cr_assert_eq(end, lengths[l]);
      cr_assert_leq(most - least, 1);
    }
}

/* Play the ring: a chunk is the set of ranks whose values it holds, as a bit mask. */
Test(ring, every_chunk_ends_complete_everywhere) {
  static unsigned long long held[SIZES][SIZES], next[SIZES][SIZES];
  for (int size = 2; size <= SIZES; size++) {
    const unsigned long long all = size == 64 ? ~0ULL : (1ULL << size) - 1;
    for (int r = 0; r < size; r++)
      for (int c = 0; c < size; c++) held[r][c] = 1ULL << r;
    for (int hop = 0; hop < size - 1; hop++) {
      memcpy(next, held, sizeof held);
      for (int r = 0; r < size; r++) {
        const int left = (r + size - 1) % size, chunk = weir_ring_reduce_recv(r, size, hop);
        cr_assert_eq(weir_ring_reduce_send(left, size, hop), chunk);
        cr_assert_eq(held[r][chunk] & held[left][chunk], 0, "a value would be added twice");
        next[r][chunk] |= held[left][chunk];
      }
      memcpy(held, next, sizeof held);
    }
    for (int r = 0; r < size; r++) cr_assert_eq(held[r][weir_ring_owned(r, size)], all);
    for (int hop = 0; hop < size - 1; hop++) {
      memcpy(next, held, sizeof held);
      for (int r = 0; r < size; r++) {
        const int left = (r + size - 1) % size, chunk = weir_ring_gather_recv(r, size, hop);
        cr_assert_eq(weir_ring_gather_send(left, size, hop), chunk);
        cr_assert_eq(held[left][chunk], all);
        next[r][chunk] = held[left][chunk];
      }
      memcpy(held, next, sizeof held);
    }
    for (int r = 0; r < size; r++)
      for (int c = 0; c < size; c++) cr_assert_eq(held[r][c], all);
  }
}

Test(binomial, is_a_tree_whose_subtrees_are_runs) {
  for (int size = 1; size <= SIZES; size++) {
    int seen[SIZES] = {0}, below[SIZES];
    cr_assert_eq(weir_binomial_parent(0, size), -1);
    for (int v = size - 1; v >= 0; v--) {
      below[v] = 1;
      for (int k = 0; k < weir_binomial_level(v, size); k++) {
        const int child = weir_binomial_child(v, size, k);
        if (child < 0) continue;
        cr_assert_eq(child, v + (1 << k));
        cr_assert_lt(child, size);
        cr_assert_eq(weir_binomial_parent(child, size), v);
        cr_assert_eq(child, v + below[v], "the subtrees of children lie one behind the other");
        seen[child]++;
        below[v] += below[child];
      }
      cr_assert_eq(weir_binomial_subtree(v, size), below[v]);
    }
    for (int v = 1; v < size; v++) cr_assert_eq(seen[v], 1);
    cr_assert_eq(weir_binomial_subtree(0, size), size);
  }
}

Test(bruck, every_rank_ends_with_every_block_once) {
  for (int size = 1; size <= SIZES; size++) {
    static int held[SIZES][SIZES], next[SIZES][SIZES];
    memset(held, 0, sizeof held);
    for (int r = 0; r < size; r++) held[r][r] = 1;
    for (int k = 0; k < weir_log2_ceil(size); k++) {
      memcpy(next, held, sizeof held);
      for (int r = 0; r < size; r++) {
        const weir_bruck_round in = weir_bruck(r, size, k), out = weir_bruck(in.from, size, k);
        cr_assert_eq(out.to, r);
        cr_assert_eq(out.count, in.count);
        cr_assert_eq(out.first_sent, in.first_received);
        cr_assert_gt(in.count, 0);
        for (int i = 0; i < in.count; i++) {
          const int block = (in.first_received + i) % size;
          cr_assert_eq(held[in.from][block], 1, "a block that the sender does not have");
          next[r][block]++;
        }
      }
      memcpy(held, next, sizeof held);
    }
    for (int r = 0; r < size; r++)
      for (int b = 0; b < size; b++) cr_assert_eq(held[r][b], 1, "N %d rank %d", size, r);
  }
}

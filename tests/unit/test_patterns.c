/* Schedules of collectives, played through without a wire: everybody has everything in the end. */
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

/* In a round everybody hears from one rank, and after all rounds from every other once. */
Test(rotation, everybody_hears_from_everybody) {
  for (int size = 1; size <= SIZES; size++) {
    unsigned long long heard[SIZES] = {0};
    const unsigned long long all = size == 64 ? ~0ULL : (1ULL << size) - 1;
    for (int round = 1; round < size; round++)
      for (int r = 0; r < size; r++) {
        const int from = weir_rotation_from(r, size, round);
        cr_assert(from >= 0 && from < size && from != r, "N %d: %d", size, from);
        cr_assert_eq(weir_rotation_to(from, size, round), r);
        cr_assert_eq(heard[r] >> from & 1, 0, "N %d: rank %d hears from %d twice", size, r, from);
        heard[r] |= 1ULL << from;
      }
    for (int r = 0; r < size; r++) cr_assert_eq(heard[r] | 1ULL << r, all);
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

/* Play halving and doubling with masks of the ranks whose values an element range holds. */
Test(halving, every_place_sums_every_rank_once_and_all_learn_it) {
  static unsigned long long held[SIZES][SIZES], next[SIZES][SIZES]; /* [place][chunk] */
  for (int size = 1; size <= SIZES; size++) {
    const unsigned long long all = size == 64 ? ~0ULL : (1ULL << size) - 1;
    const int core = weir_halving_place(0, size).core;
    cr_assert(core <= size && 2 * core > size && (core & (core - 1)) == 0);
    unsigned long long folded[SIZES] = {0};
    for (int r = 0; r < size; r++) {
      const weir_halving h = weir_halving_place(r, size);
      cr_assert_eq(h.core, core);
      if (h.v >= 0) cr_assert_eq(weir_halving_rank(h.v, size), r);
      if (h.fold >= 0) cr_assert_eq(weir_halving_place(h.fold, size).fold, r);
      const int v = h.v >= 0 ? h.v : weir_halving_place(h.fold, size).v;
      cr_assert(h.v >= 0 || h.fold >= 0);
      cr_assert_eq(folded[v] & 1ULL << r, 0);
      folded[v] |= 1ULL << r;
    }
    for (int v = 0; v < core; v++)
      for (int c = 0; c < core; c++) held[v][c] = folded[v];
    for (int distance = core / 2; distance > 0; distance /= 2) {
      memcpy(next, held, sizeof held);
      for (int v = 0; v < core; v++)
        for (int c = v & ~(distance - 1); c < (v & ~(distance - 1)) + distance; c++) {
          cr_assert_eq(held[v][c] & held[v ^ distance][c], 0);
          next[v][c] |= held[v ^ distance][c];
        }
      memcpy(held, next, sizeof held);
    }
    for (int v = 0; v < core; v++) cr_assert_eq(held[v][v], all);
    /* the way back: places [own, own + distance) are known; the headers are those of their ranks */
    for (int distance = 1; distance < core; distance *= 2)
      for (int v = 0; v < core; v++) {
        int first, ranks;
        const int own = v & ~(distance - 1);
        weir_halving_ranks(own, distance, size, &first, &ranks);
        unsigned long long there = 0, due = 0;
        for (int i = own; i < own + distance; i++) due |= folded[i];
        for (int r = first; r < first + ranks; r++) there |= 1ULL << r;
        cr_assert_eq(there, due);
      }
    int first, ranks;
    weir_halving_ranks(0, core, size, &first, &ranks);
    cr_assert(first == 0 && ranks == size);
  }
}

Test(halving, ranges_are_the_chunks_of_their_places) {
  const size_t lengths[] = {0, 1, 5, 64, 1000};
  for (int core = 1; core <= 64; core *= 2)
    for (size_t l = 0; l < 5; l++)
      for (int count = 1; count <= core; count *= 2)
        for (int first = 0; first < core; first += count) {
          const weir_chunk range = weir_halving_range(lengths[l], core, first, count);
          size_t total = 0;
          for (int v = first; v < first + count; v++)
            total += weir_ring_chunk(lengths[l], core, v).count;
          cr_assert_eq(range.count, total);
          cr_assert_eq(range.begin, weir_ring_chunk(lengths[l], core, first).begin);
        }
}

Test(inorder, is_a_search_tree_over_all_places) {
  for (int size = 1; size <= SIZES; size++) {
    int below[SIZES], height[SIZES], lowest[SIZES], done[SIZES] = {0};
    /* children before parents: repeat until nothing changes */
    for (int left = size; left > 0;)
      for (int v = 0; v < size; v++) {
        const int l = weir_inorder_child(v, size, 0), r = weir_inorder_child(v, size, 1);
        if (done[v] || (l >= 0 && !done[l]) || (r >= 0 && !done[r])) continue;
        below[v] = 1 + (l < 0 ? 0 : below[l]) + (r < 0 ? 0 : below[r]);
        height[v] = 0;
        if (l >= 0) height[v] = height[l] + 1;
        if (r >= 0 && height[r] + 1 > height[v]) height[v] = height[r] + 1;
        lowest[v] = l < 0 ? v : lowest[l];
        if (l >= 0) cr_assert_eq(lowest[l] + below[l], v, "the left subtree ends before it");
        if (r >= 0) cr_assert_eq(lowest[r], v + 1, "the right subtree begins behind it");
        if (l >= 0) cr_assert_eq(weir_inorder_parent(l, size), v);
        if (r >= 0) cr_assert_eq(weir_inorder_parent(r, size), v);
        int first, count;
        weir_inorder_subtree(v, size, &first, &count);
        cr_assert(first == lowest[v] && count == below[v], "N %d place %d", size, v);
        cr_assert_eq(weir_inorder_height(v, size), height[v]);
        done[v] = 1;
        left--;
      }
    cr_assert_eq(weir_inorder_parent(0, size), -1);
    cr_assert_eq(below[0], size);
    cr_assert_leq(height[0], weir_log2_ceil(size));
    int deepest = 0;
    for (int v = 0; v < size; v++) {
      int depth = 0;
      for (int p = v; p != 0; p = weir_inorder_parent(p, size)) depth++;
      cr_assert_eq(weir_inorder_depth(v, size), depth);
      if (depth > deepest) deepest = depth;
    }
    cr_assert_eq(deepest, height[0]);
  }
}

/* Who passes data on in one tree is a leaf in the other, so that no rank has more than the work of
 * one inner place and one leaf; for odd sizes with the exception of two ranks of one child each. */
Test(double_tree, work_is_spread) {
  for (int size = 2; size <= SIZES; size++)
    for (int r = 0; r < size; r++) {
      int edges_down = 0, inner = 0;
      for (int tree = 0; tree < 2; tree++) {
        const int v = weir_double_tree_place(tree, r, size);
        cr_assert_eq(weir_double_tree_rank(tree, v, size), r);
        int children = 0;
        for (int side = 0; side < 2; side++) children += weir_inorder_child(v, size, side) >= 0;
        edges_down += children;
        inner += children > 0;
      }
      cr_assert_leq(edges_down, 2, "N %d rank %d", size, r);
      if (size % 2 == 0) cr_assert_leq(inner, 1);
    }
}

/* Play the rounds of one tree: every chunk goes up complete and comes down everywhere. */
Test(double_tree, rounds_deliver_every_chunk) {
  for (int size = 2; size <= SIZES; size++) {
    enum { CHUNKS = 5 };
    static unsigned long long held[SIZES][CHUNKS];
    static int final[SIZES][CHUNKS];
    const unsigned long long all = size == 64 ? ~0ULL : (1ULL << size) - 1;
    const int top = weir_inorder_height(0, size);
    memset(final, 0, sizeof final);
    for (int v = 0; v < size; v++)
      for (int c = 0; c < CHUNKS; c++) held[v][c] = 1ULL << v;
    for (int round = 0; round < CHUNKS + 2 * top - 1; round++) {
      /* what is sent in a round is what was held at its begin */
      unsigned long long up[SIZES];
      int down[SIZES];
      for (int v = 0; v < size; v++) {
        const int c = round - weir_inorder_height(v, size);
        const int d = round - top - weir_inorder_depth(v, size);
        up[v] = c >= 0 && c < CHUNKS ? held[v][c] : 0;
        down[v] = -1;
        if (d < 0 || d >= CHUNKS || weir_inorder_height(v, size) == 0) continue;
        if (v == 0) {
          cr_assert_eq(held[0][d], all, "N %d round %d", size, round);
          final[0][d] = 1;
        }
        cr_assert_eq(final[v][d], 1, "N %d place %d chunk %d", size, v, d);
        down[v] = d;
      }
      for (int v = 1; v < size; v++) {
        const int parent = weir_inorder_parent(v, size);
        const int c = round - weir_inorder_height(v, size);
        if (up[v]) {
          cr_assert_eq(held[parent][c] & up[v], 0);
          held[parent][c] |= up[v];
        }
        if (down[parent] >= 0) final[v][down[parent]] = 1;
      }
    }
    for (int v = 0; v < size; v++)
      for (int c = 0; c < CHUNKS; c++) cr_assert_eq(final[v][c], 1, "N %d place %d", size, v);
  }
}

Test(double_tree, chunks_are_at_least_64_kib_and_at_most_16) {
  const size_t bytes[] = {0, 4, 131071, 262143, 262144, 1 << 20, 2 << 20, 100 << 20};
  const int chunks[] = {1, 1, 1, 1, 2, 8, 16, 16};
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
    cr_assert_eq(weir_double_tree_chunks(bytes[i]), chunks[i], "%zu", bytes[i]);
}

Test(torus, without_machines_the_grid_is_the_squarest) {
  for (int size = 1; size <= 4096; size++) {
    const int rows = weir_torus_rows(size, size);
    cr_assert_eq(size % rows, 0);
    cr_assert_leq(rows, size / rows);
    for (int r = rows + 1; r * r <= size; r++) cr_assert_neq(size % r, 0, "%d", size);
    cr_assert_eq(weir_torus_rows(size, 1), rows);
  }
}

/* Which ranks make each row, by hand: a letter a machine; rows are set apart by a space. */
Test(torus, rows_lie_inside_of_machines) {
  static const struct {
    const char *machines, *rows;
  } layouts[] = {
      {"a", "0"},
      {"aabb", "01 23"},
      {"abab", "02 13"},
      {"aaaabbbb", "0123 4567"},
      {"aabbccdd", "01 23 45 67"},
      {"abcdabcd", "04 15 26 37"},
      {"abba", "03 12"},
      {"aaaaaa", "012 345"},     /* one machine: the squarest grid */
      {"abcdef", "012 345"},     /* a machine a rank */
      {"aabbbb", "012 345"},     /* uneven */
      {"aabbb", "01234"},        /* uneven, and a prime number */
      {"aaaaabbb", "0123 4567"}, /* uneven, though two divides eight */
  };
  for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
    uint64_t identity[8];
    int host[8], row = 0, column = 0, at_row, at_column;
    const int size = (int)strlen(layouts[l].machines);
    for (int r = 0; r < size; r++) identity[r] = (uint64_t)layouts[l].machines[r];
    const weir_torus grid = weir_torus_grid(host, size, weir_hosts_group(identity, size, host));
    cr_assert_eq(grid.rows * grid.columns, size);
    for (const char *c = layouts[l].rows; *c; c++) {
      if (*c == ' ') {
        cr_assert_eq(column, grid.columns, "%s", layouts[l].machines);
        row++, column = 0;
        continue;
      }
      cr_assert_eq(weir_torus_rank(&grid, row, column), *c - '0', "%s: row %d, column %d",
                   layouts[l].machines, row, column);
      weir_torus_place(&grid, *c - '0', &at_row, &at_column);
      cr_assert(at_row == row && at_column == column);
      column++;
    }
    cr_assert_eq(row + 1, grid.rows);
  }
  /* 16 machines of 8: columns of 16, not 8. */
  cr_assert_eq(weir_torus_rows(128, 16), 16);
  cr_assert_eq(weir_torus_rows(128, 128), 8);
}

Test(chain, chunks_are_at_least_64_kib_and_at_most_32) {
  const size_t bytes[] = {0, 65535, 131071, 131072, 1 << 20, 2 << 20, 100 << 20};
  const int chunks[] = {1, 1, 1, 2, 16, 32, 32};
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
    cr_assert_eq(weir_chain_chunks(bytes[i]), chunks[i], "%zu", bytes[i]);
}

/* All ways to put 6 ranks on up to 3 hosts, and striped and blocked layouts up to 64 ranks. */
static void check_hosts(const uint64_t *identity, int size) {
  int host[SIZES], member[SIZES], seen[SIZES] = {0};
  const int hosts = weir_hosts_group(identity, size, host);
  cr_assert(hosts >= 1 && hosts <= size);
  cr_assert_eq(host[0], 0);
  int newest = 0, least = size, most = 0;
  for (int r = 0; r < size; r++) {
    for (int s = 0; s < size; s++)
      cr_assert_eq(host[r] == host[s], identity[r] == identity[s], "ranks %d and %d", r, s);
    cr_assert_leq(host[r], newest + 1, "numbered in the order of lowest ranks");
    if (host[r] > newest) newest = host[r];
  }
  cr_assert_eq(newest, hosts - 1);
  for (int h = 0; h < hosts; h++) {
    const int members = weir_hosts_members(host, size, h, member);
    if (members < least) least = members;
    if (members > most) most = members;
    for (int i = 0; i < members; i++) {
      cr_assert_eq(host[member[i]], h);
      cr_assert_eq(weir_hosts_place(host, member[i]), i);
      seen[member[i]]++;
    }
  }
  for (int r = 0; r < size; r++) cr_assert_eq(seen[r], 1, "rank %d", r);
  cr_assert_eq(weir_hosts_even(host, size, hosts), least == most);
  for (int place = 0; place < most; place++) {
    const int members = weir_hosts_column(host, size, hosts, place, member);
    for (int i = 0; i < members; i++) {
      cr_assert_eq(weir_hosts_place(host, member[i]), place);
      if (i > 0) cr_assert_lt(host[member[i - 1]], host[member[i]]);
      seen[member[i]]++;
    }
    if (least == most) cr_assert_eq(members, hosts);
  }
  for (int r = 0; r < size; r++) cr_assert_eq(seen[r], 2, "rank %d is in one column", r);
}

Test(hosts, group_members_columns_and_places) {
  uint64_t identity[SIZES];
  for (int code = 0; code < 729; code++) {
    for (int r = 0, c = code; r < 6; r++, c /= 3) identity[r] = 100 - (uint64_t)(c % 3);
    check_hosts(identity, 6);
  }
  for (int size = 1; size <= SIZES; size++)
    for (int hosts = 1; hosts <= size; hosts++) {
      for (int r = 0; r < size; r++) identity[r] = (uint64_t)(r % hosts);
      check_hosts(identity, size);
      for (int r = 0; r < size; r++) identity[r] = (uint64_t)(r / hosts);
      check_hosts(identity, size);
    }
}

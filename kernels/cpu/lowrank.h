/* Passes of the low-rank codec, written once in plain C and compiled once per version, as
 * quantize.h: every version adds in the same order and gives the same bits.
 *
 * M is a matrix of rows x columns, row after row; P holds `rank` columns of `rows` elements, Q
 * `rank` columns of `columns` elements `stride` apart, column after column each.  Columns that lie
 * powers of two apart share the first cache's few places, as those of most layers do, so a tile of
 * Q is worked on in a copy of its own, while that and the part of M are in the first cache, and a
 * few rows of M at a time share what is read of it. */
#if !defined TARGET || !defined LOWRANK_REGISTER
#error "define TARGET, and LOWRANK_REGISTER, the floats that a register holds, first"
#endif

/* Sixteen partial sums: element i goes to number i mod 16. */
typedef float lanes16 __attribute__((vector_size(16 * sizeof(float))));
#define LOWRANK_AT_ONCE ((size_t)4) /* columns of Q, or rows of M */
#define LOWRANK_ROWS ((size_t)4)    /* of M, whose sums with so many columns are in registers */
#define LOWRANK_LANES ((size_t)16)
#define LOWRANK_TILE ((size_t)256) /* vectors of a tile, 16 KiB; of many columns more */
#define LOWRANK_LEAST ((size_t)8)  /* vectors of each column in it */

/* A tile of Q's columns: `rank` vectors for each sixteen elements, the last filled up with zeros.
 */
typedef struct lowrank_tile {
  lanes16 q[LOWRANK_LEAST * WEIR_POWERSGD_RANK_MAX];
} lowrank_tile;

/* Elements of each column in the tile that begins there. */
TARGET static inline size_t lowrank_part(size_t columns, size_t from, size_t rank) {
  const size_t vectors = LOWRANK_TILE / (rank > 0 ? rank : 1);
  const size_t most = LOWRANK_LANES * (vectors > LOWRANK_LEAST ? vectors : LOWRANK_LEAST);
  return columns - from < most ? columns - from : most;
}

TARGET static inline size_t lowrank_vectors(size_t part) {
  return (part + LOWRANK_LANES - 1) / LOWRANK_LANES;
}

TARGET static inline size_t lowrank_count(size_t part, size_t vector) {
  const size_t left = part - vector * LOWRANK_LANES;
  return left < LOWRANK_LANES ? left : LOWRANK_LANES;
}

/* Fewer than sixteen are filled up with zeros. */
TARGET static inline void load_lanes16(lanes16 *a, const float *x, size_t count) {
  if (count == LOWRANK_LANES) {
    memcpy(a, x, sizeof *a);
  } else {
    memset(a, 0, sizeof *a);
    memcpy(a, x, count * sizeof *x);
  }
}

TARGET static inline void store_lanes16(float *x, const lanes16 *a, size_t count) {
  if (count == LOWRANK_LANES)
    memcpy(x, a, sizeof *a);
  else
    memcpy(x, a, count * sizeof *x);
}

/* Of the columns from element `from` on. */
TARGET static void load_tile(const float *q, size_t stride, size_t rank, size_t part,
                             lowrank_tile *tile) {
  for (size_t v = 0; v < lowrank_vectors(part); v++)
    for (size_t k = 0; k < rank; k++)
      load_lanes16(&tile->q[v * rank + k], q + k * stride + v * LOWRANK_LANES,
                   lowrank_count(part, v));
}

TARGET static inline float fold_lanes16(const lanes16 *lanes) {
  float sum[16];
  memcpy(sum, lanes, sizeof sum);
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t i = 0; i < width; i++) sum[i] += sum[i + width];
  }
  return sum[0];
}

/* sums += the products of `count` <= 16 elements of some rows of M and some columns of Q. */
TARGET static inline void add_products(const float *m, size_t columns, size_t rows, const float *q,
                                       size_t stride, size_t rank, size_t count,
                                       lanes16 sum[LOWRANK_ROWS][LOWRANK_AT_ONCE]) {
  lanes16 x[LOWRANK_ROWS];
  for (size_t i = 0; i < rows; i++) load_lanes16(&x[i], m + i * columns, count);
  for (size_t k = 0; k < rank; k++) {
    lanes16 b;
    load_lanes16(&b, q + k * stride, count);
    for (size_t i = 0; i < rows; i++) sum[i][k] += x[i] * b;
  }
}

/* p[k * p_stride + i] = <row i of M, column k of Q> for so many of both. */
TARGET static inline void row_dots(const float *m, size_t columns, size_t rows, const float *q,
                                   size_t stride, size_t rank, float *p, size_t p_stride) {
  lanes16 sum[LOWRANK_ROWS][LOWRANK_AT_ONCE];
  memset(sum, 0, sizeof sum);
  size_t j = 0;
  for (; j + LOWRANK_LANES <= columns; j += LOWRANK_LANES)
    add_products(m + j, columns, rows, q + j, stride, rank, LOWRANK_LANES, sum);
  if (j < columns) add_products(m + j, columns, rows, q + j, stride, rank, columns - j, sum);
  for (size_t i = 0; i < rows; i++)
    for (size_t k = 0; k < rank; k++) p[k * p_stride + i] = fold_lanes16(&sum[i][k]);
}

TARGET static inline void project_rows(const float *m, size_t columns, size_t rows, const float *q,
                                       size_t stride, size_t rank, float *p, size_t p_stride) {
  size_t k = 0;
  for (; k + LOWRANK_AT_ONCE <= rank; k += LOWRANK_AT_ONCE)
    row_dots(m, columns, rows, q + k * stride, stride, LOWRANK_AT_ONCE, p + k * p_stride, p_stride);
  for (; k < rank; k++)
    row_dots(m, columns, rows, q + k * stride, stride, 1, p + k * p_stride, p_stride);
}

/* P = M Q */
TARGET static void lowrank_project(const float *m, size_t rows, size_t columns, const float *q,
                                   size_t stride, size_t rank, float *p) {
  size_t i = 0;
  for (; i + LOWRANK_ROWS <= rows; i += LOWRANK_ROWS)
    project_rows(m + i * columns, columns, LOWRANK_ROWS, q, stride, rank, p + i, rows);
  for (; i < rows; i++) project_rows(m + i * columns, columns, 1, q, stride, rank, p + i, rows);
}

/* to += x factor */
TARGET static void add_scaled(const float *restrict x, float factor, size_t n, float *restrict to) {
  for (size_t i = 0; i < n; i++) to[i] += x[i] * factor;
}

/* P's elements of `count` rows, column after column: in P they may lie powers of two apart. */
TARGET static inline void load_factors(const float *p, size_t rows, size_t rank, size_t count,
                                       float *factor) {
  for (size_t k = 0; k < rank; k++)
    for (size_t i = 0; i < count; i++) factor[k * count + i] = p[k * rows + i];
}

/* The tile's sums += the products of `count` rows of M, in their order, and of P's elements there.
 */
TARGET static inline void add_rows(const float *m, size_t columns, const float *p, size_t rows,
                                   size_t rank, size_t count, size_t part, lowrank_tile *tile) {
  float factor[WEIR_POWERSGD_RANK_MAX * LOWRANK_AT_ONCE];
  load_factors(p, rows, rank, count, factor);
  for (size_t v = 0; v < lowrank_vectors(part); v++) {
    lanes16 x[LOWRANK_AT_ONCE];
    for (size_t i = 0; i < count; i++)
      load_lanes16(&x[i], m + i * columns + v * LOWRANK_LANES, lowrank_count(part, v));
    for (size_t k = 0; k < rank; k++) {
      lanes16 sum = tile->q[v * rank + k];
      for (size_t i = 0; i < count; i++) sum += x[i] * factor[k * count + i];
      tile->q[v * rank + k] = sum;
    }
  }
}

/* Q = M^T P; here Q's columns lie behind one another. */
TARGET static void lowrank_project_back(const float *m, size_t rows, size_t columns, const float *p,
                                        size_t rank, float *q) {
  lowrank_tile tile;
  for (size_t part, from = 0; from < columns; from += part) {
    part = lowrank_part(columns, from, rank);
    const size_t vectors = lowrank_vectors(part);
    memset(tile.q, 0, vectors * rank * sizeof *tile.q);
    size_t i = 0;
    for (; i + LOWRANK_AT_ONCE <= rows; i += LOWRANK_AT_ONCE)
      add_rows(m + i * columns + from, columns, p + i, rows, rank, LOWRANK_AT_ONCE, part, &tile);
    for (; i < rows; i++)
      add_rows(m + i * columns + from, columns, p + i, rows, rank, 1, part, &tile);
    for (size_t v = 0; v < vectors; v++)
      for (size_t k = 0; k < rank; k++)
        store_lanes16(q + k * columns + from + v * LOWRANK_LANES, &tile.q[v * rank + k],
                      lowrank_count(part, v));
  }
}

typedef float lowrank_register __attribute__((vector_size(LOWRANK_REGISTER * sizeof(float))));
#define LOWRANK_PARTS (LOWRANK_LANES / LOWRANK_REGISTER)

/* `count` rows of out = the tile's columns times P's elements there, or out -= that. */
TARGET static inline void expand_rows(const float *p, size_t rows, const lowrank_tile *tile,
                                      size_t rank, size_t count, size_t part, float *out,
                                      size_t columns, bool subtract) {
  float factor[WEIR_POWERSGD_RANK_MAX * LOWRANK_AT_ONCE];
  load_factors(p, rows, rank, count, factor);
  for (size_t v = 0; v < lowrank_vectors(part); v++) {
    const size_t wide = lowrank_count(part, v);
    const lowrank_register *q = (const lowrank_register *)&tile->q[v * rank];
    lowrank_register sum[LOWRANK_AT_ONCE][LOWRANK_PARTS];
    memset(sum, 0, sizeof sum);
    for (size_t k = 0; k < rank; k++)
      for (size_t i = 0; i < count; i++)
        for (size_t h = 0; h < LOWRANK_PARTS; h++)
          sum[i][h] += q[k * LOWRANK_PARTS + h] * factor[k * count + i];
    for (size_t i = 0; i < count; i++) {
      float *const at = out + i * columns + v * LOWRANK_LANES;
      lanes16 row;
      memcpy(&row, sum[i], sizeof row);
      if (subtract) {
        lanes16 old;
        load_lanes16(&old, at, wide);
        row = old - row;
      }
      store_lanes16(at, &row, wide);
    }
  }
}

/* to = P Q^T, or to -= P Q^T; Q's columns lie behind one another. */
TARGET static void lowrank_expand(const float *p, size_t rows, const float *q, size_t columns,
                                  size_t rank, float *to, bool subtract) {
  lowrank_tile tile;
  for (size_t part, from = 0; from < columns; from += part) {
    part = lowrank_part(columns, from, rank);
    load_tile(q + from, columns, rank, part, &tile);
    size_t i = 0;
    for (; i + LOWRANK_AT_ONCE <= rows; i += LOWRANK_AT_ONCE)
      expand_rows(p + i, rows, &tile, rank, LOWRANK_AT_ONCE, part, to + i * columns + from, columns,
                  subtract);
    for (; i < rows; i++)
      expand_rows(p + i, rows, &tile, rank, 1, part, to + i * columns + from, columns, subtract);
  }
}

/* In WEIR_LANES double lanes. */
TARGET static double dot(const float *x, const float *y, size_t n) {
  double lanes[WEIR_LANES] = {0};
  size_t i = 0;
  for (; i + WEIR_LANES <= n; i += WEIR_LANES) {
    for (size_t lane = 0; lane < WEIR_LANES; lane++)
      lanes[lane] += (double)x[i + lane] * (double)y[i + lane];
  }
  for (size_t lane = 0; i < n; i++, lane++) lanes[lane] += (double)x[i] * (double)y[i];
  return weir_fold_lanes(lanes);
}

#define WEIR_LOWRANK_OPS                                                                      \
  .project = lowrank_project, .project_back = lowrank_project_back, .expand = lowrank_expand, \
  .add_scaled = add_scaled, .dot = dot

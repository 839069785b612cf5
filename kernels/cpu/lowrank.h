/* Passes of the low-rank codec, written once in plain C and compiled once per version, as
 * quantize.h: every version adds in the same order and gives the same bits.
 *
 * M is a matrix of rows x columns, row after row; P holds `rank` columns of `rows` elements, Q
 * `rank` columns of `columns` elements `stride` apart, column after column each.  A few columns are
 * worked on at a time while the part of M is in the first cache: for the small ranks that pay, M is
 * read from memory once, and a matrix library would not read it less. */
#ifndef TARGET
#error "define TARGET first"
#endif

/* Sixteen partial sums: element i goes to number i mod 16. */
typedef float lanes16 __attribute__((vector_size(16 * sizeof(float))));
#define LOWRANK_AT_ONCE ((size_t)4)
#define LOWRANK_TILE ((size_t)512)

TARGET static inline float fold_lanes16(const lanes16 *lanes) {
  float sum[16];
  memcpy(sum, lanes, sizeof sum);
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t i = 0; i < width; i++) sum[i] += sum[i + width];
  }
  return sum[0];
}

/* sum[k] += the products of `count` <= 16 elements of x and of column k. */
TARGET static inline void add_products(const float *x, const float *q, size_t stride, size_t rank,
                                       size_t count, lanes16 *sum) {
  lanes16 a = {0};
  memcpy(&a, x, count * sizeof(float));
  for (size_t k = 0; k < rank; k++) {
    lanes16 b = {0};
    memcpy(&b, q + k * stride, count * sizeof(float));
    sum[k] += a * b;
  }
}

/* out[k * out_stride] = <x, column k of Q> for `rank` <= 4 columns. */
TARGET static inline void row_dots(const float *x, size_t n, const float *q, size_t stride,
                                   size_t rank, float *out, size_t out_stride) {
  lanes16 sum[LOWRANK_AT_ONCE] = {{0}, {0}, {0}, {0}};
  size_t j = 0;
  for (; j + 16 <= n; j += 16) add_products(x + j, q + j, stride, rank, 16, sum);
  if (j < n) add_products(x + j, q + j, stride, rank, n - j, sum);
  for (size_t k = 0; k < rank; k++) out[k * out_stride] = fold_lanes16(&sum[k]);
}

/* P = M Q */
TARGET static void lowrank_project(const float *m, size_t rows, size_t columns, const float *q,
                                   size_t stride, size_t rank, float *p) {
  for (size_t i = 0; i < rows; i++) {
    size_t k = 0;
    for (; k + LOWRANK_AT_ONCE <= rank; k += LOWRANK_AT_ONCE) {
      row_dots(m + i * columns, columns, q + k * stride, stride, LOWRANK_AT_ONCE, p + k * rows + i,
               rows);
    }
    for (; k < rank; k++)
      row_dots(m + i * columns, columns, q + k * stride, stride, 1, p + k * rows + i, rows);
  }
}

/* to += x factor */
TARGET static void add_scaled(const float *restrict x, float factor, size_t n, float *restrict to) {
  for (size_t i = 0; i < n; i++) to[i] += x[i] * factor;
}

/* Q = M^T P; here Q's columns lie behind one another. */
TARGET static void lowrank_project_back(const float *m, size_t rows, size_t columns, const float *p,
                                        size_t rank, float *q) {
  memset(q, 0, rank * columns * sizeof *q);
  for (size_t from = 0; from < columns; from += LOWRANK_TILE) {
    size_t part = columns - from < LOWRANK_TILE ? columns - from : LOWRANK_TILE;
    for (size_t i = 0; i < rows; i++) {
      for (size_t k = 0; k < rank; k++)
        add_scaled(m + i * columns + from, p[k * rows + i], part, q + k * columns + from);
    }
  }
}

/* out = the columns of q times their factors, or out -= that, for `count` <= 16 elements. */
TARGET static inline void expand_few(const float *factor, const float *q, size_t columns,
                                     size_t rank, size_t count, float *out, bool subtract) {
  lanes16 sum = {0};
  for (size_t k = 0; k < rank; k++) {
    lanes16 b = {0};
    memcpy(&b, q + k * columns, count * sizeof(float));
    sum += b * factor[k];
  }
  if (subtract) {
    lanes16 old = {0};
    memcpy(&old, out, count * sizeof(float));
    sum = old - sum;
  }
  memcpy(out, &sum, count * sizeof(float));
}

/* to = P Q^T, or to -= P Q^T; Q's columns lie behind one another. */
TARGET static void lowrank_expand(const float *p, size_t rows, const float *q, size_t columns,
                                  size_t rank, float *to, bool subtract) {
  float factor[WEIR_POWERSGD_RANK_MAX];
  for (size_t from = 0; from < columns; from += LOWRANK_TILE) {
    size_t part = columns - from < LOWRANK_TILE ? columns - from : LOWRANK_TILE;
    for (size_t i = 0; i < rows; i++) {
      float *out = to + i * columns + from;
      for (size_t k = 0; k < rank; k++) factor[k] = p[k * rows + i];
      size_t j = 0;
      for (; j + 16 <= part; j += 16)
        expand_few(factor, q + from + j, columns, rank, 16, out + j, subtract);
      if (j < part) expand_few(factor, q + from + j, columns, rank, part - j, out + j, subtract);
    }
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

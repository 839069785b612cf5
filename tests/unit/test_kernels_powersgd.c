/* The low-rank codec's parts: by hand, against plain loops in double precision, and against what
 * linear algebra says of them. */
#include <criterion/criterion.h>

#include "kernels/cpu/cpu.h"
#include "kernels/powersgd.h"
#include "kernels_data.h"

enum { MOST = 64, ROWS = 67, COLUMNS = 1061 };
static float m[ROWS * COLUMNS], p[MOST * ROWS], q[MOST * COLUMNS], to[ROWS * COLUMNS],
    other[ROWS * COLUMNS];

static void fill(float *x, size_t n, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  fill_shape(&rng, 0, x, n);
}

/* u = (3, 4, 0), v = (1, 2, -2): P = M (1 0 0)' = u, of length 5; Q = v 5; P^ Q' is M again. */
Test(kernels_powersgd, rank_one_by_hand) {
  const float matrix[9] = {3, 6, -6, 4, 8, -8, 0, 0, 0}, start[3] = {1, 0, 0};
  float u[3], v[3], back[9];
  weir_powersgd_project(matrix, 3, 3, start, 3, 1, u);
  cr_assert(u[0] == 3 && u[1] == 4 && u[2] == 0);
  weir_powersgd_orthogonalise(u, 3, 1);
  cr_assert(u[0] == 0.6F && u[1] == 0.8F && u[2] == 0);
  weir_powersgd_project_back(matrix, 3, 3, u, 1, v);
  cr_assert(fabsf(v[0] - 5) < 1e-6F && fabsf(v[1] - 10) < 2e-6F && fabsf(v[2] + 10) < 2e-6F);
  weir_powersgd_expand(u, 3, v, 3, 1, back, false);
  for (size_t i = 0; i < 9; i++) cr_assert(fabsf(back[i] - matrix[i]) < 2e-6F);
  weir_powersgd_expand(u, 3, v, 3, 1, back, true);
  for (size_t i = 0; i < 9; i++) cr_assert(back[i] == 0);
  float length_one[3];
  cr_assert(weir_powersgd_normalise(v, 3, length_one));
  cr_assert(fabsf(length_one[0] - 1.0F / 3) < 1e-7F && fabsf(length_one[2] + 2.0F / 3) < 1e-7F);
}

/* Two columns of P: (1, 0) and (1, 1) become (1, 0) and (0, 1); a third depends on them. */
Test(kernels_powersgd, orthogonalise_by_hand) {
  float x[6] = {2, 0, 3, 3, -7, 11};
  weir_powersgd_orthogonalise(x, 2, 3);
  const float want[6] = {1, 0, 0, 1, 0, 0};
  cr_assert(memcmp(x, want, sizeof x) == 0);
  float bad[6] = {NAN, 1, 0, 4, INFINITY, 2};
  weir_powersgd_orthogonalise(bad, 2, 3);
  const float rest[6] = {0, 0, 0, 1, 0, 0};
  cr_assert(memcmp(bad, rest, sizeof bad) == 0);
  float zero[2] = {0, 0};
  weir_powersgd_orthogonalise(zero, 2, 1);
  cr_assert(zero[0] == 0 && zero[1] == 0);
  cr_assert_not(weir_powersgd_normalise(zero, 2, x));
  cr_assert_not(weir_powersgd_normalise(bad + 4, 0, x));
  const float infinite[2] = {INFINITY, 0};
  cr_assert_not(weir_powersgd_normalise(infinite, 2, x));
}

/* rank (rows + columns) < rows columns */
Test(kernels_powersgd, only_what_becomes_smaller_is_thinned) {
  cr_expect(weir_powersgd_thins(3, 9, 1));        /* 6 for 9 */
  cr_expect_not(weir_powersgd_thins(2, 4, 1));    /* 4 for 4 */
  cr_expect(weir_powersgd_thins(10, 100, 4));     /* 80 for 100 */
  cr_expect_not(weir_powersgd_thins(10, 100, 5)); /* 100 for 100 */
  cr_expect_not(weir_powersgd_thins(1, 100, 1));
  cr_expect_not(weir_powersgd_thins(100, 100, 1));
  cr_expect_not(weir_powersgd_thins(5, 0, 1));
  cr_expect_eq(weir_powersgd_rank(1.0 / 64), 1);
  cr_expect_eq(weir_powersgd_rank(1.0), 64);
}

/* --- products --------------------------------------------------------------------------------- */

/* Element by element, with the bound of a sum of n products in single precision. */
static void near(double got, double want, double size, size_t n, const char *what) {
  cr_assert(fabs(got - want) <= (double)(n + 2) * 0x1p-24 * size + 1e-30, "%s: %g, not %g", what,
            got, want);
}

static void check_products(size_t rows, size_t columns, size_t rank, size_t stride) {
  fill(m, rows * columns, 1);
  fill(q, rank * stride, 2);
  weir_powersgd_project(m, rows, columns, q, stride, rank, p);
  for (size_t i = 0; i < rows; i++)
    for (size_t k = 0; k < rank; k++) {
      double sum = 0, size = 0;
      for (size_t j = 0; j < columns; j++) {
        const double product = (double)m[i * columns + j] * (double)q[k * stride + j];
        sum += product;
        size += fabs(product);
      }
      near((double)p[k * rows + i], sum, size, columns, "P");
    }
  fill(p, rank * rows, 3);
  weir_powersgd_project_back(m, rows, columns, p, rank, q);
  for (size_t j = 0; j < columns; j++)
    for (size_t k = 0; k < rank; k++) {
      double sum = 0, size = 0;
      for (size_t i = 0; i < rows; i++) {
        const double product = (double)m[i * columns + j] * (double)p[k * rows + i];
        sum += product;
        size += fabs(product);
      }
      near((double)q[k * columns + j], sum, size, rows, "Q");
    }
  weir_powersgd_expand(p, rows, q, columns, rank, to, false);
  memcpy(other, m, rows * columns * sizeof *m);
  weir_powersgd_expand(p, rows, q, columns, rank, other, true);
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++) {
      double sum = 0, size = 0;
      for (size_t k = 0; k < rank; k++) {
        const double product = (double)p[k * rows + i] * (double)q[k * columns + j];
        sum += product;
        size += fabs(product);
      }
      const size_t at = i * columns + j;
      near((double)to[at], sum, size, rank, "P Q'");
      cr_assert(other[at] == m[at] - to[at]); /* what is kept and what goes add up */
    }
}

Test(kernels_powersgd, products_against_plain_loops) {
  for (int v = 0; v < VERSIONS; v++) {
    if (version(v) == NULL) continue;
    weir_cpu_force(version(v));
    check_products(1, 1, 1, 1);
    check_products(2, 17, 3, 40);
    check_products(16, 16, 4, 16);
    check_products(ROWS, 15, 9, 15);
    check_products(5, COLUMNS, 2, COLUMNS);
    check_products(ROWS, COLUMNS, 7, COLUMNS);
  }
  weir_cpu_force(NULL);
}

/* One way through all the parts; the digest of every intermediate. */
static uint64_t digest(void) {
  enum { RANK = 6 };
  uint64_t hash = WEIR_HASH_INIT;
  fill(m, ROWS * COLUMNS, 4);
  fill(q, RANK * COLUMNS, 5);
  weir_powersgd_project(m, ROWS, COLUMNS, q, COLUMNS, RANK, p);
  weir_powersgd_orthogonalise(p, ROWS, RANK);
  hash = weir_hash(hash, p, RANK * ROWS * sizeof *p);
  weir_powersgd_project_back(m, ROWS, COLUMNS, p, RANK, q);
  hash = weir_hash(hash, q, RANK * COLUMNS * sizeof *q);
  weir_powersgd_expand(p, ROWS, q, COLUMNS, RANK, m, true);
  cr_assert(weir_powersgd_normalise(q, COLUMNS, to));
  hash = weir_hash(hash, to, COLUMNS * sizeof *to);
  return weir_hash(hash, m, sizeof m);
}

Test(kernels_powersgd, same_bits_from_every_version) {
  weir_cpu_force(&weir_cpu_scalar);
  const uint64_t want = digest();
  for (int v = 1; v < VERSIONS; v++) {
    if (version(v) == NULL) continue;
    weir_cpu_force(version(v));
    cr_assert_eq(digest(), want, "%s", version(v)->name);
  }
  weir_cpu_force(NULL);
}

/* --- linear algebra --------------------------------------------------------------------------- */

Test(kernels_powersgd, columns_become_orthonormal_however_badly_they_begin) {
  enum { RANK = 16 };
  for (uint64_t seed = 0; seed < 20; seed++) {
    fill(p, RANK * ROWS, 100 + seed);
    for (size_t k = 1; k < RANK && seed % 2; k++) /* nearly the first */
      for (size_t i = 0; i < ROWS; i++) p[k * ROWS + i] = p[i] + 1e-3F * p[k * ROWS + i];
    weir_powersgd_orthogonalise(p, ROWS, RANK);
    for (size_t a = 0; a < RANK; a++)
      for (size_t b = 0; b <= a; b++) {
        double dot = 0;
        for (size_t i = 0; i < ROWS; i++) dot += (double)p[a * ROWS + i] * (double)p[b * ROWS + i];
        cr_assert(fabs(dot - (a == b)) < 1e-5, "<%zu, %zu> is %g", a, b, dot);
      }
  }
}

/* m = the sum of `rank` products of random vectors, rows x columns. */
static void fill_rank(size_t rows, size_t columns, size_t rank) {
  memset(m, 0, rows * columns * sizeof *m);
  fill(p, rank * rows, 7);
  fill(q, rank * columns, 8);
  for (size_t k = 0; k < rank; k++)
    for (size_t i = 0; i < rows; i++)
      for (size_t j = 0; j < columns; j++)
        m[i * columns + j] += p[k * rows + i] * q[k * columns + j];
}

static double iterate(size_t rows, size_t columns, size_t rank) {
  weir_powersgd_project(m, rows, columns, q, columns, rank, p);
  weir_powersgd_orthogonalise(p, rows, rank);
  weir_powersgd_project_back(m, rows, columns, p, rank, q);
  weir_powersgd_expand(p, rows, q, columns, rank, to, false);
  double left = 0;
  for (size_t i = 0; i < rows * columns; i++) left += pow((double)(m[i] - to[i]), 2);
  return left;
}

/* A matrix of rank 5 comes through in one step at rank 5, and at 9, where four columns send
 * nothing; not at rank 4. */
Test(kernels_powersgd, exact_when_the_rank_suffices) {
  fill_rank(50, 70, 5);
  double whole = 0;
  for (size_t i = 0; i < 50 * 70; i++) whole += (double)m[i] * (double)m[i];
  for (size_t rank = 4; rank <= 9; rank++) {
    weir_powersgd_draw(q, rank * 70, rank);
    const double left = iterate(50, 70, rank);
    cr_assert(rank == 4 ? left > 1e-3 * whole : left < 1e-9 * whole, "rank %zu leaves %g of %g",
              rank, left, whole);
  }
}

/* Singular values 10, 5 and 1: rank 1 comes to leave 25 + 1, rank 2 comes to leave 1, as nothing of
 * these ranks can leave less (Eckart and Young). */
Test(kernels_powersgd, warm_start_comes_to_the_best_of_its_rank) {
  enum { R = 20, C = 30 };
  memset(m, 0, R * C * sizeof *m);
  m[0 * C + 4] = 10;
  m[7 * C + 1] = -5;
  m[19 * C + 29] = 1;
  weir_powersgd_draw(q, C, 1);
  double left = 0;
  for (int step = 0; step < 25; step++) left = iterate(R, C, 1);
  cr_assert(fabs(left - 26) < 1e-3, "rank 1 leaves %g", left);
  weir_powersgd_draw(q, 2 * C, 2);
  for (int step = 0; step < 25; step++) left = iterate(R, C, 2);
  cr_assert(fabs(left - 1) < 1e-3, "rank 2 leaves %g", left);
}

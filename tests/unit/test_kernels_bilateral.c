/* The parts of low rank in one sum: by hand, and against plain loops in double precision. */
#include <criterion/criterion.h>

#include "kernels/bilateral.h"
#include "kernels/cpu/cpu.h"
#include "kernels/powersgd.h"
#include "kernels_data.h"

enum { RANK = 3, ROWS = 41, COLUMNS = 67 };

static void fill(float *x, size_t n, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  fill_shape(&rng, 0, x, n);
}

/* b = (3, 4) / 5; of p = (1, 7) it has (3 + 28) / 5 = 6.2, and (1, 7) - 6.2 (0.6, 0.8) =
 * (-2.72, 2.04) is left.  A b of zeros has nothing. */
Test(kernels_bilateral, what_lies_beside_a_column_by_hand) {
  const float b[2] = {0.6F, 0.8F}, zero[2] = {0, 0};
  float p[2] = {1, 7};
  weir_bilateral_beside(zero, 2, 1, p);
  cr_assert(p[0] == 1 && p[1] == 7);
  weir_bilateral_beside(b, 2, 1, p);
  cr_assert(fabsf(p[0] + 2.72F) < 1e-6F && fabsf(p[1] - 2.04F) < 1e-6F, "%g, %g", (double)p[0],
            (double)p[1]);
}

/* l r^T = (1, 2)^T (3, 0, -1); times x = (1, 5, 1) that is (1, 2) 2. */
Test(kernels_bilateral, a_product_by_its_factors_by_hand) {
  const float l[2] = {1, 2}, r[3] = {3, 0, -1}, x[3] = {1, 5, 1};
  float out[2] = {NAN, NAN};
  weir_bilateral_times(l, 2, r, 3, 1, x, 1, out);
  cr_assert(out[0] == 2 && out[1] == 4);
}

static void check_times(const float *l, const float *r, const float *x, const float *got) {
  for (size_t k = 0; k < RANK; k++)
    for (size_t i = 0; i < ROWS; i++) {
      double want = 0, size = 0;
      for (size_t c = 0; c < COLUMNS; c++)
        for (size_t j = 0; j < 2 * RANK; j++) {
          const double one =
              (double)l[j * ROWS + i] * (double)r[j * COLUMNS + c] * (double)x[k * COLUMNS + c];
          want += one;
          size += fabs(one);
        }
      cr_assert(fabs((double)got[k * ROWS + i] - want) <= (COLUMNS + 8) * 0x1p-24 * size);
    }
}

/* What is left of a matrix has nothing in B's columns nor in Q's, and what is sent and left add up:
 * (1 - B B^T) M (1 - Q Q^T) = M - B R^T - P Q^T. */
static void check_split(void) {
  static float m[ROWS * COLUMNS], left[2 * RANK * ROWS], right[2 * RANK * COLUMNS];
  float *const b = left, *const p = left + RANK * ROWS, *const r = right,
               *const q = right + RANK * COLUMNS;
  fill(m, ROWS * COLUMNS, 1);
  fill(b, RANK * ROWS, 2);
  fill(q, RANK * COLUMNS, 3);
  weir_powersgd_orthogonalise(b, ROWS, RANK);
  weir_powersgd_orthogonalise(q, COLUMNS, RANK);
  weir_powersgd_project(m, ROWS, COLUMNS, q, COLUMNS, RANK, p);
  weir_powersgd_project_back(m, ROWS, COLUMNS, b, RANK, r);
  weir_bilateral_beside(b, ROWS, RANK, p);
  double whole = 0, rest = 0;
  for (size_t i = 0; i < ROWS * COLUMNS; i++) whole += (double)m[i] * (double)m[i];
  weir_powersgd_expand(left, ROWS, right, COLUMNS, 2 * RANK, m, true);
  for (size_t i = 0; i < ROWS * COLUMNS; i++) rest += (double)m[i] * (double)m[i];
  cr_assert(rest < whole && rest > 0);
  for (size_t k = 0; k < RANK; k++) {
    for (size_t j = 0; j < COLUMNS; j++) {
      double sum = 0;
      for (size_t i = 0; i < ROWS; i++) sum += (double)b[k * ROWS + i] * (double)m[i * COLUMNS + j];
      cr_assert(fabs(sum) < 1e-5 * sqrt(whole));
    }
    for (size_t i = 0; i < ROWS; i++) {
      double sum = 0;
      for (size_t j = 0; j < COLUMNS; j++)
        sum += (double)q[k * COLUMNS + j] * (double)m[i * COLUMNS + j];
      cr_assert(fabs(sum) < 1e-5 * sqrt(whole));
    }
  }
}

Test(kernels_bilateral, parts_against_plain_loops) {
  static float l[2 * RANK * ROWS], r[2 * RANK * COLUMNS], x[RANK * COLUMNS], out[RANK * ROWS];
  fill(l, 2 * RANK * ROWS, 4);
  fill(r, 2 * RANK * COLUMNS, 5);
  fill(x, RANK * COLUMNS, 6);
  for (int v = 0; v < VERSIONS; v++) {
    if (version(v) == NULL) continue;
    weir_cpu_force(version(v));
    weir_bilateral_times(l, ROWS, r, COLUMNS, 2 * RANK, x, RANK, out);
    check_times(l, r, x, out);
    check_split();
  }
  weir_cpu_force(NULL);
}

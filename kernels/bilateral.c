/* bilateral: low rank in one all-reduce.  Of a matrix M (rows x columns) every rank sends its
 * products with Q (columns x r) and B (rows x r), orthonormal both, which all ranks have from the
 * step before:
 *
 *   R = sum over ranks of M^T B                   columns x r
 *   P = sum over ranks of (1 - B B^T) M Q         rows x r
 *   update U / N,  U = B R^T + P Q^T
 *
 * That is what of M lies in B's columns and, of the rest, in Q's rows.  Products from both sides
 * are the bilateral random projections of Zhou and Tao ("Bilateral random projections", ISIT 2012)
 * and the sketches of range and co-range of Tropp, Yurtsever, Udell and Cevher ("Practical
 * sketching algorithms for low-rank matrix approximation", SIAM J. Matrix Anal. Appl. 2017).  B and
 * Q are carried on from step to step as PowerSGD's columns are, by one power iteration with U,
 * which all ranks know: the next B spans U Q' where Q' spans R, and the next Q spans U^T B.
 *
 * powersgd (powersgd.c) makes its columns of the very gradients that it sends, for which one sum
 * has to be through before the other.  Those of the step before lie less well, but there are twice
 * as many of them for as many values, and half of the latencies.  Where there is no B yet, the
 * first step is powersgd's: drawn columns would send hardly anything, and an early training does
 * not wait (docs/reference/performance.md, "Low rank in one sum").
 *
 * Both products are linear in M, so they go through an all-reduce, and every rank gets the same
 * bits.  What a rank's own products leave of its M, (1 - B B^T) M (1 - Q Q^T), is its residual: no
 * larger than M, and summed over ranks what the update lacks.  What is lost where sums are rounded,
 * of P and of R alike, stays in the residual of the rank that lost it.  Vectors, and matrices that
 * two thin ones would not make smaller, travel whole. */
#include "kernels/bilateral.h"

#include <string.h>

#include "kernels/internal.h"
#include "kernels/powersgd.h"

void weir_bilateral_beside(const float *b, size_t rows, size_t rank, float *p) {
  const weir_cpu_ops *cpu = weir_cpu();
  for (size_t k = 0; k < rank; k++)
    for (size_t j = 0; j < rank; j++) {
      const float *column = b + j * rows;
      cpu->add_scaled(column, -(float)cpu->dot(column, p + k * rows, rows), rows, p + k * rows);
    }
}

void weir_bilateral_times(const float *l, size_t rows, const float *r, size_t columns, size_t width,
                          const float *x, size_t rank, float *out) {
  const weir_cpu_ops *cpu = weir_cpu();
  memset(out, 0, rank * rows * sizeof *out);
  for (size_t k = 0; k < rank; k++)
    for (size_t j = 0; j < width; j++) {
      const double share = cpu->dot(r + j * columns, x + k * columns, columns);
      cpu->add_scaled(l + j * rows, (float)share, rows, out + k * rows);
    }
}

const weir_codec weir_codec_bilateral = {
    .id = WEIR_CODEC_BILATERAL,
    .name = "bilateral",
    .description = "matrices by rank 2 r in one sum, on columns and rows of the step before",
    .schemes = WEIR_WITH(WEIR_SCHEME_LOW_RANK),
    .wires = WEIR_WIRES_FACTORS,
    .low_rank = true,
    .at_once = true,
    .factors = {WEIR_CODEC_COMPANDED, 5.0 / 32},
    .kept = weir_none_kept,
    .prior = {2e-5, 1.2e-9, 0.5e-9, 1.5e-8},
};

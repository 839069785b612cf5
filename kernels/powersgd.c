/* powersgd: PowerSGD (Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient
 * compression for distributed optimization", 2019, arXiv 1905.13727).  A gradient tensor that is a
 * matrix M (rows x columns) is approximated by rank r, with one step of power iteration that goes
 * on from the step before ("warm start", algorithm 1):
 *
 *   P  = sum over ranks of M Q            rows x r,     all-reduced
 *   P^ = orthonormal columns of P
 *   Q' = sum over ranks of M^T P^         columns x r,  all-reduced
 *   update P^ Q'^T / N;  the next step starts from Q'
 *
 * Both sums are linear in M, so they go through an all-reduce, and every rank gets the same bits.
 * A rank's residual is what its own projection leaves (algorithm 2), M - P^ (M^T P^)^T: no larger
 * than M, as P^ P^^T projects; summed over ranks it is what the update lacks, so nothing is lost.
 *
 * Beside the paper: vectors, and matrices that two thin ones would not make smaller, travel whole
 * with P.  Q's columns are brought to length 1, which changes no P^ and keeps products finite; a
 * column that has died (a gradient of lower rank) is drawn anew, where the listing would keep it at
 * zero for ever.  Orthonormalising passes twice over each column, without which dependent columns
 * would count double.  A gradient too large to be multiplied stays in the residuals whole.
 *
 * Warm start goes after what is large already.  Of a gradient that never changes, the directions
 * beside its largest wait until rounding has brought them into Q (measured: residuals of 25 times
 * the gradient before that); the noise of real gradients does it at once (measured: 2.3 times).
 *
 * In bfloat16 (wire auto-bf16), both sums travel rounded, in half the bytes, and by SRA
 * (collective dense-sra) as companded's messages of 5 bits, in a sixth.  What that loses of P
 * needs no keeping: any common columns will do.  What it loses of Q, L on this rank, is P^ L^T of
 * what this rank's gradient wanted sent, and stays in its residual: M - P^ (M^T P^ - L)^T.
 *
 * The products are loops of our own (cpu/lowrank.h): at the few columns that pay they take as long
 * as reading M, and their sums have one order, which a matrix library does not promise from one
 * processor to the next. */
#include "kernels/powersgd.h"

#include <math.h>

#include "base/base.h"
#include "kernels/internal.h"

/* A column of which less than this share is left depends on the others: rounding leaves
 * about 1e-6. */
#define INDEPENDENT 1e-5

size_t weir_powersgd_rank(double cr) { return (size_t)(cr * WEIR_POWERSGD_RANK_MAX); }

bool weir_powersgd_thins(size_t rows, size_t numel, size_t rank) {
  if (rows < 2 || numel / rows < 2) return false;
  return rank * (rows + numel / rows) < numel;
}

size_t weir_powersgd_kept(const weir_layout *layout, const size_t *rows, size_t rank) {
  size_t kept = 0;
  for (size_t t = 0; t < layout->tensors; t++) {
    const size_t numel = layout->offset[t + 1] - layout->offset[t];
    const bool thin = weir_powersgd_thins(rows[t], numel, rank);
    kept += thin ? rank * (rows[t] + numel / rows[t]) : numel;
  }
  return kept;
}

void weir_powersgd_draw(float *q, size_t n, uint64_t seed) {
  weir_rng rng = weir_rng_of(seed);
  for (size_t i = 0; i < n; i++) q[i] = (float)weir_rng_normal(&rng);
}

void weir_powersgd_project(const float *m, size_t rows, size_t columns, const float *q,
                           size_t stride, size_t rank, float *p) {
  weir_cpu()->project(m, rows, columns, q, stride, rank, p);
}

void weir_powersgd_orthogonalise(float *p, size_t rows, size_t rank) {
  const weir_cpu_ops *cpu = weir_cpu();
  for (size_t k = 0; k < rank; k++) {
    float *column = p + k * rows;
    double whole = cpu->dot(column, column, rows);
    for (size_t pass = 0; pass < 2; pass++) {
      for (size_t j = 0; j < k; j++)
        cpu->add_scaled(p + j * rows, -(float)cpu->dot(p + j * rows, column, rows), rows, column);
    }
    double left = cpu->dot(column, column, rows);
    if (!isfinite(whole) || !(left > INDEPENDENT * INDEPENDENT * whole)) {
      memset(column, 0, rows * sizeof *column);
      continue;
    }
    double factor = 1.0 / sqrt(left);
    for (size_t i = 0; i < rows; i++) column[i] = (float)((double)column[i] * factor);
  }
}

void weir_powersgd_project_back(const float *m, size_t rows, size_t columns, const float *p,
                                size_t rank, float *q) {
  weir_cpu()->project_back(m, rows, columns, p, rank, q);
}

void weir_powersgd_expand(const float *p, size_t rows, const float *q, size_t columns, size_t rank,
                          float *to, bool subtract) {
  weir_cpu()->expand(p, rows, q, columns, rank, to, subtract);
}

bool weir_powersgd_normalise(const float *q, size_t n, float *to) {
  double square = weir_cpu()->dot(q, q, n);
  if (!(square > 0.0) || !isfinite(square)) return false;
  double factor = 1.0 / sqrt(square);
  for (size_t i = 0; i < n; i++) to[i] = (float)((double)q[i] * factor);
  return true;
}

const weir_codec weir_codec_powersgd = {
    .id = WEIR_CODEC_POWERSGD,
    .name = "powersgd",
    .description = "matrices by rank r, warm-started power iteration (PowerSGD, algorithm 1)",
    .schemes = WEIR_WITH(WEIR_SCHEME_LOW_RANK),
    .usual = WEIR_WITH(WEIR_SCHEME_LOW_RANK),
    .wires = WEIR_WIRES_FACTORS,
    .low_rank = true,
    .factors = {WEIR_CODEC_COMPANDED, 5.0 / 32}, /* err by 6 % of normal values, as 8 of floats */
    .device = true,
    .kept = weir_none_kept,
    .prior = {2e-5, 1e-9, 0.3e-9, 1e-8},
};

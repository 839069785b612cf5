/* What bounds and labels share: costs, the best solution known. */
#include "planner/line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const size_t most_table = (size_t)1 << 25; /* doubles */

/* Measured curves are asked once for each pair. */
static weir_status tabulate(weir_line *line) {
  bool measured = false;
  for (size_t r = 0; r < line->count; r++)
    measured |= line->rows[r].compress.count || line->rows[r].exchange.count;
  line->pairs = line->n * (line->n + 1) / 2;
  if (!measured || 2 * line->pairs > most_table / line->count) return WEIR_OK;
  line->table = malloc(2 * line->pairs * line->count * sizeof *line->table);
  if (!line->table)
    return weir_fail(WEIR_E_NOMEM, "no memory for the costs of %zu buckets", line->pairs);
  for (size_t r = 0; r < line->count; r++) {
    double *at = line->table + 2 * r * line->pairs;
    for (size_t j = 1; j <= line->n; j++)
      for (size_t i = 0; i < j; i++, at += 2) {
        const double bytes = line->bytes[j] - line->bytes[i];
        at[0] = weir_line_curve(&line->rows[r].compress, bytes);
        at[1] = weir_line_curve(&line->rows[r].exchange, bytes);
      }
  }
  return WEIR_OK;
}

static bool never_above(const weir_curve *a, const weir_curve *b, double low, double high) {
  return weir_curve_at(a, low) <= weir_curve_at(b, low) &&
         weir_curve_at(a, high) <= weir_curve_at(b, high);
}

/* All rows but affine ones that another one of the same lane, allowed wherever they are, is nowhere
 * above. */
static uint64_t useful_rows(const weir_line *line) {
  uint64_t useful = line->count < 64 ? (UINT64_C(1) << line->count) - 1 : UINT64_MAX;
  const double low = 0.0, high = line->bytes[line->n];
  for (size_t r = 0; r < line->count; r++)
    for (size_t s = 0; s < line->count; s++) {
      const weir_solve_row *a = &line->rows[r], *b = &line->rows[s];
      if (r == s || !(useful >> s & 1) || a->beside != b->beside) continue;
      if (a->compress.count || a->exchange.count || b->compress.count || b->exchange.count)
        continue;
      bool wherever = true;
      for (size_t t = 0; t < line->n && line->allowed; t++)
        wherever &= !(line->allowed[t] >> r & 1) || (line->allowed[t] >> s & 1);
      if (b->taken_s > a->taken_s || b->taken_per_byte_s > a->taken_per_byte_s) continue;
      if (wherever && never_above(&b->compress, &a->compress, low, high) &&
          never_above(&b->exchange, &a->exchange, low, high)) {
        useful &= ~(UINT64_C(1) << r);
        break;
      }
    }
  return useful;
}

weir_status weir_line_create(weir_line *line, const weir_profile *profile,
                             const weir_solve_row *rows, size_t count, const uint64_t *allowed) {
  const size_t n = profile->count;
  *line = (weir_line){.profile = profile,
                      .rows = rows,
                      .count = count,
                      .allowed = allowed,
                      .n = n,
                      .most_s = INFINITY,
                      .most_work = SIZE_MAX};
  line->ready = malloc(2 * (n + 1) * sizeof *line->ready);
  line->low = calloc(n + 1, sizeof *line->low);
  if (!line->ready || !line->low) {
    weir_line_free(line);
    return weir_fail(WEIR_E_NOMEM, "no memory to plan %zu tensors", n);
  }
  line->bytes = line->ready + n + 1;
  weir_profile_sums(profile, line->ready, line->bytes);
  line->all = useful_rows(line);
  for (size_t r = 0; r < count; r++) line->beside |= rows[r].beside && (line->all >> r & 1);
  const weir_status status = tabulate(line);
  if (status != WEIR_OK) weir_line_free(line);
  return status;
}

void weir_line_free(weir_line *line) {
  free(line->ready);
  free(line->low);
  free(line->table);
  *line = (weir_line){0};
}

void weir_line_offer(weir_line *line, weir_solution *best, weir_solve_bucket *bucket,
                     size_t count) {
  const double step = weir_solve_evaluate(line->profile, line->rows, bucket, count);
  if (step >= line->most_s) return;
  line->most_s = best->step_s = step;
  best->count = count;
  memcpy(best->bucket, bucket, count * sizeof *bucket);
}

uint64_t weir_line_affine(const weir_line *line) {
  uint64_t rows = line->all;
  for (size_t r = 0; r < line->count; r++)
    if (line->rows[r].compress.count || line->rows[r].exchange.count) rows &= ~(UINT64_C(1) << r);
  return rows;
}

uint32_t weir_line_begin(const weir_line *line, size_t row, size_t j, uint32_t after) {
  if (!line->allowed) return 0;
  if (after < j) return after;
  uint32_t begin = (uint32_t)j;
  while (begin && line->allowed[begin - 1] >> row & 1) begin--;
  return begin;
}

static bool useless(const weir_line *line, const double *left_e, size_t i, size_t j) {
  double least = INFINITY;
  for (size_t r = 0; r < line->count; r++) {
    double h, g;
    if (!(line->all >> r & 1)) continue;
    weir_line_cost(line, r, i, j, &h, &g);
    least = fmin(least, h + g);
  }
  return line->ready[j] + least + left_e[j] >= line->most_s;
}

/* What is useless with i is so with all before it, as no cost falls with bytes. */
void weir_line_narrow(weir_line *line, const double *left_e) {
  for (size_t j = 1; j <= line->n; j++) {
    size_t low = line->low[j], high = j - 1;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (useless(line, left_e, middle, j))
        low = middle + 1;
      else
        high = middle;
    }
    line->low[j] = low;
  }
}

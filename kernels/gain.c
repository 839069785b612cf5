/* Gain curve: compression gain E||g_c||^2 / E||g_e||^2 (flexible communication, section 2-C3, after
 * GraVAC) of exact top-k at every ratio, from one histogram of |e|.
 *
 * A bin holds the magnitudes that share exponent and first 5 mantissa bits, so that inside a bin
 * they differ by at most 2^-5 relative (denormals, which share few bins, by more); count and energy
 * of each bin are exact sums, or below a floor those of a sample.  The k largest are whole bins
 * from the top and j of the c elements of one border bin; these j are taken to hold j/c of the
 * bin's energy.  That is never too much, and the bound says how much it may be too little. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/internal.h"

#define BINS ((size_t)WEIR_GAIN_BINS)
#define BIN_SHIFT WEIR_GAIN_SHIFT

#define COPIES 4

typedef struct bin {
  double energy;
  double count; /* of the same type, so that both are added in one go */
} bin;

struct weir_gain_curve {
  size_t n;       /* elements of the gradient */
  size_t sampled; /* elements that the bins stand for */
  double energy;  /* of all bins */
  /* Neighbours go to different copies, for equal magnitudes must not wait for each other.  Between
   * passes the first holds the sums, and the others are empty. */
  bin bins[BINS][COPIES];
  bin seen[BINS]; /* a sample, while a pass goes on */
};

weir_status weir_gain_curve_create(weir_gain_curve **out) {
  *out = calloc(1, sizeof **out);
  return *out != NULL ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no memory for a gain curve");
}

void weir_gain_curve_free(weir_gain_curve *curve) { free(curve); }

static inline void put(bin *b, float x) {
  b->energy += (double)x * (double)x;
  b->count += 1.0;
}

static void add_all(weir_gain_curve *curve, const float *e, size_t n) {
  size_t i = 0;
  for (; i + COPIES <= n; i += COPIES) {
    for (size_t copy = 0; copy < COPIES; copy++) {
      put(&curve->bins[weir_magnitude(e[i + copy]) >> BIN_SHIFT][copy], e[i + copy]);
    }
  }
  for (; i < n; i++) {
    put(&curve->bins[weir_magnitude(e[i]) >> BIN_SHIFT][i % COPIES], e[i]);
  }
}

/* --- every stride-th element, and all of the largest ------------------------------------------ */

/* Few elements hold much of a gradient's energy, and of few a sample sees none: above a floor that
 * about a share of the sample reaches, every element goes into its bin.  Those below stand for as
 * many as there are. */
#define LARGEST 16 /* the share: one in so many */

/* The lowest bin of those from the top down that hold at most the share of the sample. */
static size_t floor_of(const bin *seen, size_t count) {
  double left = (double)(count / LARGEST);
  size_t b = BINS;
  while (b > 0 && seen[b - 1].count <= left) {
    left -= seen[--b].count;
  }
  return b;
}

static size_t add_largest(weir_gain_curve *curve, const float *e, size_t n, size_t floor) {
  enum { BLOCK = 4096 };
  float magnitude[BLOCK + WEIR_CANDIDATE_SLACK];
  uint32_t position[BLOCK + WEIR_CANDIDATE_SLACK];
  const size_t least = floor << BIN_SHIFT;
  const uint32_t bits = least < WEIR_INF_BITS ? (uint32_t)least : WEIR_INF_BITS;
  size_t total = 0;
  for (size_t at = 0; at < n; at += BLOCK) {
    const size_t part = n - at < BLOCK ? n - at : BLOCK;
    const size_t found = weir_cpu()->compact(e + at, part, bits, 0, magnitude, position, BLOCK);
    add_all(curve, magnitude, found);
    total += found;
  }
  return total;
}

static void add_sampled(weir_gain_curve *curve, const float *e, size_t n, size_t stride) {
  size_t count = 0;
  memset(curve->seen, 0, sizeof curve->seen);
  for (size_t i = 0; i < n; i += stride) {
    put(&curve->seen[weir_magnitude(e[i]) >> BIN_SHIFT], e[i]);
    count++;
    if (n - i <= stride) {
      break; /* i + stride would wrap for huge strides */
    }
  }
  const size_t floor = floor_of(curve->seen, count);
  const double rest = (double)(n - add_largest(curve, e, n, floor));
  double below = 0.0;
  for (size_t b = 0; b < floor; b++) {
    below += curve->seen[b].count;
  }
  for (size_t b = 0; b < floor && below > 0.0; b++) {
    curve->bins[b][0].count += curve->seen[b].count * (rest / below);
    curve->bins[b][0].energy += curve->seen[b].energy * (rest / below);
  }
}

/* ---------------------------------------------------------------------------------------------- */

void weir_gain_curve_fill(weir_gain_curve *curve, const float *e, size_t n, size_t stride) {
  memset(curve, 0, sizeof *curve);
  weir_gain_curve_add(curve, e, n, stride);
}

void weir_gain_curve_add(weir_gain_curve *curve, const float *e, size_t n, size_t stride) {
  curve->n += n;
  curve->sampled += n;
  if (stride > 1 && n > 0) {
    add_sampled(curve, e, n, stride);
  } else {
    add_all(curve, e, n);
  }
  curve->energy = 0;
  for (size_t b = 0; b < BINS; b++) {
    bin *to = curve->bins[b];
    for (size_t copy = 1; copy < COPIES; copy++) {
      to->energy += to[copy].energy;
      to->count += to[copy].count;
      to[copy] = (bin){0};
    }
    curve->energy += to->energy;
  }
}

void weir_gain_curve_load(weir_gain_curve *curve, size_t n, const uint64_t *count,
                          const double *energy) {
  memset(curve, 0, sizeof *curve);
  curve->n = n;
  for (size_t b = 0; b < BINS; b++) {
    curve->bins[b][0] = (bin){.energy = energy[b], .count = (double)count[b]};
    curve->sampled += (size_t)count[b];
    curve->energy += energy[b];
  }
}

/* How many of the elements in the bins top-k keeps at cr; exact where all elements are. */
static double kept_of(const weir_gain_curve *curve, double cr) {
  const double share = curve->n > 0 ? (double)curve->sampled / (double)curve->n : 0.0;
  return (double)weir_kept_of(curve->n, cr) * share;
}

/* Energy of the kept elements at cr, and how much more it may be. */
static double kept_energy(const weir_gain_curve *curve, double cr, double *more) {
  double left = kept_of(curve, cr);
  double kept = 0.0;
  *more = 0.0;
  for (size_t b = BINS; b-- > 0 && left > 0.0;) {
    const bin *at = curve->bins[b];
    double count = at->count;
    if (!(count > 0.0)) {
      continue;
    }
    if (count <= left) {
      kept += at->energy;
      left -= count;
      continue;
    }
    double low = (double)weir_float_of((uint32_t)b << BIN_SHIFT);
    double high = (double)weir_float_of(((uint32_t)b + 1) << BIN_SHIFT);
    double share = at->energy * (left / count);
    /* The left largest have at most high^2 each, and leave at least low^2 to each of the rest. */
    double most = fmin(left * high * high, at->energy - (count - left) * low * low);
    *more = fmax(most - share, 0.0);
    kept += share;
    left = 0.0;
  }
  return kept;
}

double weir_gain_curve_gain(const weir_gain_curve *curve, double cr) {
  if (!(curve->energy > 0.0)) {
    return 1.0;
  }
  double more = 0.0;
  return fmin(kept_energy(curve, cr, &more) / curve->energy, 1.0);
}

double weir_gain_curve_error(const weir_gain_curve *curve, double cr) {
  if (!(curve->energy > 0.0)) {
    return 0.0;
  }
  double more = 0.0;
  (void)kept_energy(curve, cr, &more);
  return more / curve->energy;
}

double weir_gain_curve_threshold(const weir_gain_curve *curve, double cr) {
  double left = kept_of(curve, cr);
  size_t b = BINS;
  while (b > 0 && left > 0.0) {
    left -= curve->bins[--b][0].count;
  }
  return b < BINS ? (double)weir_float_of((uint32_t)b << BIN_SHIFT) : 0.0;
}

/* Passes over every float: a scalar reference and vector versions with bit-identical results,
 * chosen once at run time by what the processor can do.  Internal to kernels/ and its tests. */
#ifndef WEIR_KERNELS_CPU_H
#define WEIR_KERNELS_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/codec.h"
#include "kernels/number.h"
#include "kernels/whitened.h"

/* Sums run in this many double lanes, element i in lane i mod 16, and the lanes are then added in
 * halves (8, 4, 2, 1).  This order is part of the contract: every version reproduces it. */
#define WEIR_LANES 16

/* Elements that a candidates' buffer must have beyond its capacity: vector stores may run over. */
#define WEIR_CANDIDATE_SLACK 16

/* What an emit pass takes: every magnitude >= high, and of those in [low, high) the first quota.
 * most is how many that makes: with the last of them the pass may stop. */
typedef struct weir_band {
  uint32_t high;
  uint32_t low;
  size_t quota;
  size_t most;
} weir_band;

/* A grid of top + 1 values, base + (code - zero) * step for code = 0..top; x lies at
 * (x - base) * inverse + zero on it. */
typedef struct weir_grid {
  float base;
  float step;
  float inverse; /* of step */
  float zero;
  uint8_t top;
} weir_grid;

/* Of dithered (kernels/dithered.c): the grid's step, its largest code either way, and how much of a
 * step an element's draw of 24 bits counts, less than half of it in all; 0: none is drawn. */
typedef struct weir_dither {
  float step;
  int32_t top;
  float spread;
} weir_dither;

/* An Elias-Fano list taken apart (wire_elias.c). */
typedef struct weir_elias {
  const uint8_t *high; /* the first section, of this many bits */
  uint64_t bits;
  const uint8_t *low; /* the second */
  size_t low_bytes;
  size_t k;
  unsigned shift; /* bits of an index there */
} weir_elias;

/* 64 bits of the first section from the at-th on, which begins a byte; 0 behind its end. */
static inline uint64_t weir_elias_window(const weir_elias *list, uint64_t at) {
  uint64_t window = 0;
  uint64_t left = at < list->bits ? list->bits - at : 0;
  if (left >= 64) {
    memcpy(&window, list->high + at / 8, sizeof window);
  } else if (left > 0) {
    memcpy(&window, list->high + at / 8, (size_t)(left + 7) / 8);
    window &= (UINT64_C(1) << left) - 1;
  }
  return window;
}

/* Places that must be free before places() reads 64 bits more: vector stores may run over. */
#define WEIR_PLACES_ROOM 80
/* Most bits of a field that lie in four bytes wherever they begin. */
#define WEIR_FIELD_MOST 25

/* A list with buckets of 8 elements on its way into masks, a byte a bucket. */
typedef struct weir_elias_masks {
  const weir_elias *list;
  uint64_t at, taken; /* bits of the first section and indices read; at is a multiple of 64 */
  uint8_t *to;
  uint8_t sum, last; /* the bucket begun: its bits, and that of its last index; 0: none */
  bool good;         /* indices ascend within buckets */
} weir_elias_masks;

/* What reaches a floor of magnitudes, gathered on the way: |x| and position. */
typedef struct weir_candidates {
  uint32_t floor_bits;
  float *magnitude; /* both have room for capacity + WEIR_CANDIDATE_SLACK */
  uint32_t *position;
  size_t capacity, count; /* count: SIZE_MAX when there are more than capacity */
} weir_candidates;

/* One pass of error feedback, e = g + r; e may be g or r.  What reaches the list's floor joins the
 * list (NULL: none), its first position being base. */
typedef struct weir_feeding {
  const float *g, *r;
  float *e;
  size_t n;
  weir_candidates *list;
  uint32_t base;
} weir_feeding;

typedef struct weir_cpu_ops {
  const char *name;
  /* Adds sums over e's finite elements, and the number of the others. */
  void (*feed)(const weir_feeding *f, weir_moments *moments);
  double (*sum_square)(const float *x, size_t n);
  /* Sum of |x| and the largest bits of |x| (0 for n = 0). */
  void (*abs_sum_max)(const float *x, size_t n, double *sum, uint32_t *max_bits);
  /* Number of elements whose magnitude is >= bits. */
  size_t (*count)(const float *x, size_t n, uint32_t bits);
  /* |x| and base + position of the elements whose magnitude is >= bits, in order; SIZE_MAX when
   * there are more than capacity.  The buffers hold capacity + WEIR_CANDIDATE_SLACK elements. */
  size_t (*compact)(const float *x, size_t n, uint32_t bits, uint32_t base, float *magnitude,
                    uint32_t *position, size_t capacity);
  /* base + position of the elements in the band, ascending; writes exactly the number taken. */
  size_t (*emit)(const float *x, size_t n, weir_band band, uint32_t base, uint32_t *index);
  void (*bf16_encode)(const float *x, size_t n, uint16_t *out, float *error);
  /* x: 2 n bytes, which need not be aligned. */
  void (*bf16_decode)(const uint8_t *x, size_t n, float *out);

  /* Quantizers; cpu/quantize.h.  Codes have a byte each until they are packed. */
  /* Smallest and largest of n >= 1 elements. */
  void (*range)(const float *x, size_t n, float *low, float *high);
  void (*quantize_nearest)(const float *x, size_t n, weir_grid grid, uint8_t *code);
  /* Element i draws from weir_mix32(key + i). */
  void (*quantize_stochastic)(const float *x, size_t n, weir_grid grid, uint32_t key,
                              uint8_t *code);
  /* Sum of f (1 - f), f being the fraction of an element's place on the grid: times step^2 it is
   * the mean squared error of drawing.  In lanes of floats; for samples of some thousand
   * elements. */
  double (*spread_of_draws)(const float *x, size_t n, weir_grid grid);
  /* The same and pack() of 4 bits in one, into (n + 7) / 8 * 4 bytes; NULL where that is
   * no faster. */
  void (*quantize_nibbles)(const float *x, size_t n, weir_grid grid, uint32_t key, uint8_t *out);
  /* A code above grid.top counts as top. */
  void (*dequantize)(const uint8_t *code, size_t n, weir_grid grid, float *to);
  void (*dequantize_add)(const uint8_t *code, size_t n, weir_grid grid, float *to);
  /* Codes of minifloat (kernels/minifloat.c) with so many bits of mantissa, of elements that are at
   * most 1 in magnitude times `inverse`; element i draws from weir_mix32(key + i).  And values
   * back, times scale; codes above that of 1 count as it. */
  void (*draw_minifloats)(const float *x, size_t n, float inverse, unsigned mantissa, uint32_t key,
                          uint8_t *code);
  void (*read_minifloats)(const uint8_t *code, size_t n, float scale, unsigned mantissa, float *to);
  void (*read_minifloats_add)(const uint8_t *code, size_t n, float scale, unsigned mantissa,
                              float *to);
  /* Codes of companded (kernels/companded.c), 0..2 top, of elements that are at most top^2 in
   * magnitude times `inverse`.  And values back, in units of scale. */
  void (*round_to_squares)(const float *x, size_t n, float inverse, int32_t top, uint8_t *code);
  void (*read_squares)(const uint8_t *code, size_t n, float scale, int32_t top, float *to);
  void (*read_squares_add)(const uint8_t *code, size_t n, float scale, int32_t top, float *to);
  /* Codes of dithered, 0..2 top; of every two elements one is shifted by less than a quarter of a
   * step, the first of them where key is even.  And values back; codes above 2 top count as it. */
  void (*dither)(const float *x, size_t n, weir_dither dither, uint32_t key, uint8_t *code);
  void (*read_dithered)(const uint8_t *code, size_t n, weir_dither dither, uint32_t key, float *to);
  void (*read_dithered_add)(const uint8_t *code, size_t n, weir_dither dither, uint32_t key,
                            float *to);
  /* What kernels/whitened.h says of them. */
  void (*follow_squares)(const float *average, size_t n, uint16_t *square);
  void (*whiten)(const uint16_t *square, size_t n, bool back, float *x);
  void (*signs)(const float *x, size_t n, uint8_t *code);
  /* max(x, 0) and min(x, 0); none of the three may overlap. */
  void (*halves)(const float *x, size_t n, float *restrict plus, float *restrict minus);
  /* sum += x (code - 1); fired += the number of codes that are not 1.  Codes 0..2; in lanes. */
  void (*ternary_sums)(const float *x, const uint8_t *code, size_t n, double *sum, size_t *fired);
  void (*choose)(const uint8_t *code, size_t n, float zero, float one, float *to);
  void (*choose_add)(const uint8_t *code, size_t n, float zero, float one, float *to);
  /* Groups of 8 codes below 2^bits to and from bits bytes each; 1 <= bits <= 8. */
  void (*pack)(const uint8_t *code, size_t groups, unsigned bits, uint8_t *out);
  void (*unpack)(const uint8_t *in, size_t groups, unsigned bits, uint8_t *code);
  /* IEEE half precision: round to nearest even, finite values saturate at 65504; exact back.  On
   * the encoded side, of 2 n bytes, nothing need be aligned. */
  void (*fp16_encode)(const float *x, size_t n, uint8_t *out);
  void (*fp16_decode)(const uint8_t *x, size_t n, float *to, weir_decoding how);
  /* Has none of them an exponent of all ones? */
  bool (*fp16_finite)(const uint8_t *x, size_t n);

  /* Bits set in words masks. */
  size_t (*ones)(const uint64_t *mask, size_t words);
  /* Of 64 words elements, those whose bit is set become the next of value, the others 0.  Returns
   * how many values that took; 16 more can be read.  stream: past the caches, and to at a multiple
   * of 64 bytes; drain() then makes all of it visible to other threads. */
  size_t (*spread)(const uint64_t *mask, size_t words, const float *value, float *to, bool stream);
  void (*drain)(void);
  /* Lines of 64 bytes past the caches, to at a multiple of that; drain() as above.  Scalar: by
   * memcpy. */
  void (*copy_past)(unsigned char *to, const unsigned char *from, size_t lines);
  /* The same added; where no bit is set, to is as before. */
  size_t (*spread_add)(const uint64_t *mask, size_t words, const float *value, float *to);

  /* Places, plus from, of the bits set in up to *words words, in order, while room for
   * WEIR_PLACES_ROOM is left; returns how many, and in *words how many words that took. */
  size_t (*places)(const uint8_t *bits, size_t *words, uint32_t from, uint32_t *to, size_t room);
  /* The first-th index of a list and count - 1 more, from the places of their ones in the first
   * section.  false: they do not ascend. */
  bool (*elias_low)(const weir_elias *list, uint64_t first, uint32_t *index, size_t count);
  /* Read a list of shift 3 until masks reach end, and up to 63 bytes beyond.  Behind its last bit
   * the first section is read as zeros.  NULL, or not able to on this processor: masks are made
   * from indices. */
  void (*elias_masks)(weir_elias_masks *masks, const uint8_t *end);
  bool (*elias_masks_able)(void);

  /* The low-rank codec; cpu/lowrank.h, and kernels/powersgd.h for the shapes. */
  void (*project)(const float *m, size_t rows, size_t columns, const float *q, size_t stride,
                  size_t rank, float *p);
  void (*project_back)(const float *m, size_t rows, size_t columns, const float *p, size_t rank,
                       float *q);
  void (*expand)(const float *p, size_t rows, const float *q, size_t columns, size_t rank,
                 float *to, bool subtract);
  void (*add_scaled)(const float *restrict x, float factor, size_t n, float *restrict to);
  double (*dot)(const float *x, const float *y, size_t n);
} weir_cpu_ops;

extern const weir_cpu_ops weir_cpu_scalar;
const weir_cpu_ops *weir_cpu_avx2(void);   /* NULL when build or processor lack it */
const weir_cpu_ops *weir_cpu_avx512(void); /* NULL when build or processor lack it */

/* The version in use.  Any thread. */
const weir_cpu_ops *weir_cpu(void);

/* For tests and benchmarks: use this version from now on in the whole process; NULL goes back to
 * choosing.  weir_cpu_force(&weir_cpu_scalar) forces the scalar path. */
void weir_cpu_force(const weir_cpu_ops *ops);

/* Add the lanes up in the contract's order. */
static inline double weir_fold_lanes(double lane[WEIR_LANES]) {
  for (size_t width = WEIR_LANES / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; i++) lane[i] += lane[i + width];
  }
  return lane[0];
}

#endif

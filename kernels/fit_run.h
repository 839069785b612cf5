/* One step's work on a probe's buffers, for who times it: fit.c and fit_large.c. */
#ifndef WEIR_KERNELS_FIT_RUN_H
#define WEIR_KERNELS_FIT_RUN_H

#include "kernels/fit.h"

struct weir_kernel_probe {
  size_t most, room;
  float *g, *r, *e, *value, *sum;
  uint32_t *index;
  uint8_t *message;
  weir_codec_context *context;
  double clock; /* s that reading it takes */
  /* Processor time goes on in ticks here, as inside User-Mode Linux: the time of day is used. */
  bool coarse;
  /* The last step's: draws that are always the same a processor would come to know. */
  uint64_t seed, shift;
};

/* n = offset[1] elements as one tensor under a plan, and what its message took. */
typedef struct weir_kernel_run {
  weir_kernel_probe *probe;
  const weir_plan *plan;
  const weir_codec *codec;
  size_t offset[2];
  bool cold;    /* each pass of low rank over e finds it in memory */
  double apart; /* s that this took, to be left out */
  size_t k, bytes;
} weir_kernel_run;
weir_kernel_run weir_kernel_run_of(weir_kernel_probe *probe, const weir_plan *plan, size_t n);

/* e = g + r, of another pair of their parts each time, until there are no others. */
void weir_kernel_accumulate(weir_kernel_probe *probe, size_t n);
weir_status weir_kernel_compress(weir_kernel_run *run); /* e into a message */
weir_status weir_kernel_decode(weir_kernel_run *run);   /* it into the sum */

/* Processor time in s, or where its clock is coarse the time of day. */
double weir_kernel_now(const weir_kernel_probe *probe);
/* Seconds since start, less what reading the clock takes. */
double weir_kernel_since(const weir_kernel_probe *probe, double start);

/* Accumulate and compress, and decode: seconds of either, the mean of so many, one after the other.
 * A batch of 0 becomes what makes it long enough for the clock; that run is for warming up. */
weir_status weir_kernel_sample(weir_kernel_run *run, int batch[2], double seconds[2]);

/* The mean of the middle half of what so many runs took, which are put in order: it keeps out what
 * other work on the machine delayed, and does not leap from one to the other where a codec has two
 * costs, as the median does. */
double weir_kernel_midmean(double *each, int runs);

/* The median of up to three values; the lesser of two. */
typedef struct weir_kernel_three {
  int count;
  double value[3];
} weir_kernel_three;
static inline void weir_kernel_put(weir_kernel_three *three, double value) {
  three->value[three->count++ % 3] = value;
}
double weir_kernel_middle(const weir_kernel_three *three);

/* Put bytes out of all caches.  Where there is no instruction for it (not x86), nothing happens:
 * what is beyond the caches is then taken to cost what is in them. */
void weir_kernel_evict(const void *from, size_t bytes);

/* Continues curves that end before `to` and in a cache up to a size beyond it, by so many knots at
 * the most; one that ends in memory goes on by its last line. */
#define WEIR_KERNEL_WINDOWED 6
weir_status weir_kernel_fit_large(weir_kernel_probe *probe, const weir_plan *plans, size_t count,
                                  size_t to, int runs, weir_kernel_cost *cost);
/* Bytes of an element that a step of the simplest codecs touches: g, r, e and the sum. */
#define WEIR_KERNEL_STEP_BYTES 16.0
/* And one under this plan, messages and all. */
double weir_kernel_touched(const weir_plan *plan);
/* Share of a step's data that comes from memory when it touches so many bytes and the last cache
 * has so many: 0 up to a third of it, 1 from 8/3 on, and linear in the logarithm between. */
double weir_kernel_beyond(double bytes, double cache);
/* Bytes of the last cache, from sysfs or else sysconf; 32 MiB where neither knows. */
double weir_kernel_last_cache(void);

#endif

/* What every folder needs: failing with a message, time, random numbers, order, hashing. */
#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <weir/status.h>

#if defined(__GNUC__)
#define WEIR_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define WEIR_PRINTF(f, a)
#endif

/* Record the message for weir_last_error() and return status.  The first function that decides an
 * error calls this; callers only propagate. */
weir_status weir_fail(weir_status status, const char *format, ...) WEIR_PRINTF(2, 3);

/* Monotonic wall time, and processor time of the calling thread, in seconds. */
double weir_now_s(void);
double weir_thread_cpu_s(void);
/* As if the calling thread had computed for so much longer: for virtual time. */
void weir_thread_pass(double seconds);

/* xoshiro256**, seeded through splitmix64 (Blackman and Vigna).  A plain value: copying it copies
 * the stream. */
typedef struct weir_rng {
  uint64_t s[4];
} weir_rng;
weir_rng weir_rng_of(uint64_t seed);
uint64_t weir_rng_next(weir_rng *rng);
double weir_rng_uniform(weir_rng *rng);                 /* [0, 1) */
uint64_t weir_rng_below(weir_rng *rng, uint64_t bound); /* unbiased, [0, bound), bound >= 1 */
double weir_rng_normal(weir_rng *rng);                  /* mean 0, variance 1; stateless pair */

/* In ascending order; no NaN among them. */
void weir_sort(double *values, size_t count);

/* Let the system have the pages that lie wholly in allocated memory until they are written to
 * again; what they held is lost. */
void weir_give_back(void *memory, size_t bytes);

/* A TCP port of the loopback that was free a moment ago, drawn at random from those that the kernel
 * does not hand out by itself; 0: none is to be had. */
int weir_free_port(void);

/* As write(2); a pipe that nobody reads any more is EPIPE, and no signal. */
ssize_t weir_write(int file, const void *data, size_t bytes);

/* Text as editors leave it: the bytes of a byte-order mark at its begin (0: none), and those of a
 * line without its end, LF or CR LF. */
size_t weir_text_mark(const void *text, size_t bytes);
size_t weir_text_line(const char *line, size_t bytes);
/* The next line, with its end, as much as there is room for; bytes: of it, zeros among them, and
 * not that at its end.  False: there is none. */
bool weir_text_get(FILE *file, char *line, size_t room, size_t *bytes);
/* Open a file to read.  WEIR_E_IO, with what was expected, where there is none, or it is no regular
 * one; `pipes`: but for a pipe that somebody writes to, and whatever else does not wait. */
weir_status weir_text_open(FILE **file, const char *path, const char *expected, bool pipes);

/* FNV-1a, 64 bits; start from WEIR_HASH_INIT. */
#define WEIR_HASH_INIT UINT64_C(0xcbf29ce484222325)
uint64_t weir_hash(uint64_t hash, const void *data, size_t bytes);

#endif

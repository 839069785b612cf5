/* Cost curves: seconds an operation takes as a function of the bytes it works on.
 *
 * Affine: seconds = fixed + per_byte * bytes.  Measured: points, linear between them, constant
 * before the first and with the last segment's slope after the last (constant when there is only
 * one point).  Both never decrease with bytes. */
#ifndef WEIR_PLANNER_CURVE_H
#define WEIR_PLANNER_CURVE_H

#include <stddef.h>
#include <weir/status.h>

typedef struct weir_curve {
  double fixed_s; /* affine part; used when count is 0 */
  double per_byte_s;
  size_t count;    /* measured points, 0 for an affine curve */
  double *bytes;   /* ascending strictly; owned */
  double *seconds; /* never descending; owned */
} weir_curve;

/* File: CSV `bytes,ms`, one measured point a line, bytes ascending, ms not descending.
 * WEIR_E_PARSE ("FILE:LINE: ..."), WEIR_E_IO or WEIR_E_NOMEM; then *curve is empty. */
weir_status weir_curve_load(weir_curve *curve, const char *path);
void weir_curve_free(weir_curve *curve);

double weir_curve_at(const weir_curve *curve, double bytes);

/* WEIR_E_INVALID unless all of the above holds; name is used in the message. */
weir_status weir_curve_check(const weir_curve *curve, const char *name);

/* The affine curve of least squared error over a measured one's points with neither coefficient
 * negative; an affine curve is its own fit. */
weir_curve weir_curve_fit(const weir_curve *curve);

#endif

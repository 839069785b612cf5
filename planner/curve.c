#include "planner/curve.h"

#include <math.h>
#include <stdlib.h>

#include "planner/csv.h"

static const double most_bytes = 1e15, most_ms = 1e12;

typedef struct reader {
  weir_curve *curve;
  size_t room;
} reader;

static weir_status append(void *user, const weir_csv *csv) {
  reader *r = user;
  weir_curve *curve = r->curve;
  if (curve->count == r->room) {
    const size_t more = r->room ? 2 * r->room : 32;
    double *bytes = realloc(curve->bytes, more * sizeof *bytes);
    if (bytes) curve->bytes = bytes;
    double *seconds = realloc(curve->seconds, more * sizeof *seconds);
    if (seconds) curve->seconds = seconds;
    if (!bytes || !seconds) return weir_fail(WEIR_E_NOMEM, "no memory for %zu points", more);
    r->room = more;
  }
  double bytes = 0.0, ms = 0.0;
  weir_status status = weir_csv_number(csv, 0, 0.0, most_bytes, &bytes);
  if (status == WEIR_OK) status = weir_csv_number(csv, 1, 0.0, most_ms, &ms);
  if (status != WEIR_OK) return status;
  const size_t n = curve->count;
  if (n && bytes <= curve->bytes[n - 1])
    return weir_csv_fail(csv, "%s bytes after %g: expected ascending bytes", csv->field[0],
                         curve->bytes[n - 1]);
  if (n && ms * 1e-3 < curve->seconds[n - 1])
    return weir_csv_fail(csv, "%s ms after %g: expected times that never descend", csv->field[1],
                         curve->seconds[n - 1] * 1e3);
  curve->bytes[n] = bytes;
  curve->seconds[n] = ms * 1e-3;
  curve->count++;
  return WEIR_OK;
}

weir_status weir_curve_load(weir_curve *curve, const char *path) {
  *curve = (weir_curve){0};
  reader r = {.curve = curve};
  const weir_status status = weir_csv_read(path, "bytes,ms", append, &r);
  if (status != WEIR_OK) weir_curve_free(curve);
  return status;
}

void weir_curve_free(weir_curve *curve) {
  free(curve->bytes);
  free(curve->seconds);
  *curve = (weir_curve){0};
}

double weir_curve_at(const weir_curve *curve, double bytes) {
  const size_t n = curve->count;
  if (!n) return curve->fixed_s + curve->per_byte_s * bytes;
  if (n == 1 || bytes <= curve->bytes[0]) return curve->seconds[0];
  size_t low = 0, high = n - 1; /* the segment from low to high = low + 1 in the end */
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    if (curve->bytes[middle] <= bytes)
      low = middle;
    else
      high = middle;
  }
  const double slope =
      (curve->seconds[high] - curve->seconds[low]) / (curve->bytes[high] - curve->bytes[low]);
  return curve->seconds[low] + slope * (bytes - curve->bytes[low]);
}

static bool usable(double value) { return isfinite(value) && value >= 0.0; }

weir_status weir_curve_check(const weir_curve *curve, const char *name) {
  if (!curve->count && !(usable(curve->fixed_s) && usable(curve->per_byte_s)))
    return weir_fail(WEIR_E_INVALID, "%s: %g s + %g s a byte: expected finite values from 0", name,
                     curve->fixed_s, curve->per_byte_s);
  for (size_t i = 0; i < curve->count; i++)
    if (!usable(curve->bytes[i]) || !usable(curve->seconds[i]) ||
        (i &&
         (curve->bytes[i] <= curve->bytes[i - 1] || curve->seconds[i] < curve->seconds[i - 1])))
      return weir_fail(WEIR_E_INVALID,
                       "%s: point %zu: expected ascending bytes and times that never descend", name,
                       i);
  return WEIR_OK;
}

weir_curve weir_curve_fit(const weir_curve *curve) {
  if (!curve->count) return *curve;
  const double n = (double)curve->count;
  double x = 0.0, y = 0.0, xx = 0.0, xy = 0.0;
  for (size_t i = 0; i < curve->count; i++) {
    x += curve->bytes[i];
    y += curve->seconds[i];
    xx += curve->bytes[i] * curve->bytes[i];
    xy += curve->bytes[i] * curve->seconds[i];
  }
  /* The slope is never negative, since seconds never descend. */
  const double spread = n * xx - x * x;
  const double slope = spread > 0.0 ? fmax(0.0, (n * xy - x * y) / spread) : 0.0;
  const double fixed = (y - slope * x) / n;
  if (fixed >= 0.0) return (weir_curve){.fixed_s = fixed, .per_byte_s = slope};
  return (weir_curve){.per_byte_s = xy / xx}; /* best line through the origin */
}

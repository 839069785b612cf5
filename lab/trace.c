#include "lab/trace.h"

#include <errno.h>
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define STAMPS_MAX ((size_t)100 * 1000 * 1000)
#define INTERVALS_MAX ((size_t)1000 * 1000)

typedef struct stamps {
  double *ms;
  size_t count, room;
} stamps;

static weir_status add_stamp(stamps *s, double ms) {
  if (s->count == s->room) {
    const size_t room = s->room ? 2 * s->room : 4096;
    double *more = room <= STAMPS_MAX ? realloc(s->ms, room * sizeof *more) : NULL;
    if (!more) return weir_fail(WEIR_E_NOMEM, "the trace does not fit into memory");
    s->ms = more;
    s->room = room;
  }
  s->ms[s->count++] = ms;
  return WEIR_OK;
}

static weir_status read_stamps(stamps *s, const char *path) {
  FILE *file;
  char line[64];
  size_t bytes = 0;
  weir_status status = weir_text_open(&file, path, "a trace", false);
  if (status) return status;
  for (int number = 1; !status && weir_text_get(file, line, sizeof line, &bytes); number++) {
    const char *text = line + (number == 1 ? weir_text_mark(line, bytes) : 0);
    char *end;
    errno = 0;
    const unsigned long long ms = strtoull(text, &end, 10);
    const double last = s->count ? s->ms[s->count - 1] : 0;
    if (*text < '0' || *text > '9' || errno ||
        weir_text_line(end, bytes - (size_t)(end - line)) > 0)
      status =
          weir_fail(WEIR_E_PARSE, "%s:%d: no millisecond stamp; expected one whole number a line",
                    path, number);
    else if ((double)ms < last)
      status = weir_fail(WEIR_E_PARSE, "%s:%d: the stamp goes back in time; expected %.0f or more",
                         path, number, last);
    else
      status = add_stamp(s, (double)ms);
  }
  if (!status && ferror(file))
    status =
        weir_fail(WEIR_E_IO, "%s: cannot be read (%s); expected a trace", path, strerror(errno));
  if (!status && !s->count)
    status =
        weir_fail(WEIR_E_PARSE, "%s:1: the trace is empty; expected one whole number a line", path);
  (void)fclose(file);
  return status;
}

/* Index of the first stamp at or after a time. */
static size_t first_at(const stamps *s, double ms) {
  size_t low = 0, high = s->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (s->ms[middle] < ms)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static weir_status count_rates(weir_trace *trace, const stamps *s,
                               const weir_trace_config *config) {
  const double length_s = s->ms[s->count - 1] / 1e3;
  const double intervals = fmax(1, ceil(length_s / config->interval_s));
  if (intervals > (double)INTERVALS_MAX)
    return weir_fail(WEIR_E_PARSE, "%s:%zu: the trace is too long; expected at most %zu intervals",
                     config->file, s->count, INTERVALS_MAX);
  trace->intervals = (size_t)intervals;
  trace->interval_s = config->interval_s;
  trace->rate_bytes_s = malloc(trace->intervals * sizeof *trace->rate_bytes_s);
  if (!trace->rate_bytes_s) return weir_fail(WEIR_E_NOMEM, "the trace does not fit into memory");
  for (size_t i = 0; i < trace->intervals; i++) {
    const double from = (double)i * config->interval_s * 1e3;
    const size_t slots = first_at(s, from + config->window_s * 1e3) - first_at(s, from);
    trace->rate_bytes_s[i] = (slots ? (double)slots : 1) * config->slot_bytes / config->window_s;
  }
  return WEIR_OK;
}

weir_status weir_trace_read(weir_trace *trace, const weir_trace_config *config) {
  stamps s = {0};
  *trace = (weir_trace){0};
  weir_status status = read_stamps(&s, config->file);
  if (!status) status = count_rates(trace, &s, config);
  free(s.ms);
  return status;
}

weir_status weir_trace_of(weir_trace *trace, const weir_scenario *scenario) {
  *trace = (weir_trace){0};
  const weir_status status =
      *scenario->trace.file ? weir_trace_read(trace, &scenario->trace) : WEIR_OK;
  if (!status) return WEIR_OK;
  g_autofree char *why = g_strdup(weir_last_error());
  return weir_fail(status, "%s:%d: %s", scenario->path, scenario->trace.line, why);
}

double weir_trace_rate(const weir_trace *trace, double time_s) {
  const double interval = floor(fmax(0, time_s) / trace->interval_s);
  return trace->rate_bytes_s[(size_t)fmod(interval, (double)trace->intervals)];
}

/* What the trace lets pass in one round of it. */
static double bytes_of_round(const weir_trace *trace, double scale) {
  double sum = 0;
  for (size_t i = 0; i < trace->intervals; i++) sum += scale * trace->rate_bytes_s[i];
  return sum * trace->interval_s;
}

double weir_trace_seconds(const weir_trace *trace, double scale, double time_s, double bytes) {
  enum { MOST = 1000000 }; /* intervals that are gone through one by one */
  const double round_s = (double)trace->intervals * trace->interval_s;
  double skipped_s = 0;
  if (!(bytes > 0)) return 0;
  if (isinf(bytes)) return bytes;
  if (time_s > 1e9) time_s = fmod(time_s, round_s); /* intervals can still be counted */
  double interval = floor(fmax(0, time_s) / trace->interval_s), at = time_s;
  for (size_t count = 0;; interval++, count++) {
    if (count == MOST) { /* whole rounds at once: all but the last */
      const double each = bytes_of_round(trace, scale), rounds = fmax(0, floor(bytes / each) - 1);
      skipped_s = rounds * round_s;
      bytes -= rounds * each;
    }
    const double end = (interval + 1) * trace->interval_s;
    const double rate = scale * weir_trace_rate(trace, (interval + 0.5) * trace->interval_s);
    if (bytes <= rate * (end - at)) return skipped_s + (at + bytes / rate - time_s);
    bytes -= rate * (end - at);
    at = end;
  }
}

void weir_trace_free(weir_trace *trace) {
  free(trace->rate_bytes_s);
  *trace = (weir_trace){0};
}

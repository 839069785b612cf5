#include "lab/timings.h"

#include <glib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lab/out.h"

/* Of a step: these, a gap a tensor, then of every bucket where it ends, its place, and its
 * times. */
enum { STEP, PLAN, GROUPS, BEGIN, WHOLE, FORWARD, HEAD };
enum { GROUP = 2 + sizeof(weir_bucket_times) / sizeof(double) };

weir_status weir_timings_open(weir_timings *timings, size_t tensors) {
  *timings = (weir_timings){.tensors = tensors};
  timings->gap_s = calloc(tensors + 1, sizeof *timings->gap_s);
  timings->times = calloc(tensors + 1, sizeof *timings->times);
  timings->bucket = calloc(tensors + 1, sizeof *timings->bucket);
  if (timings->gap_s && timings->times && timings->bucket) return WEIR_OK;
  return weir_fail(WEIR_E_NOMEM, "no memory for the timings of %zu tensors", tensors);
}

void weir_timings_free(weir_timings *timings) {
  free(timings->value);
  free(timings->gap_s);
  free(timings->times);
  free(timings->bucket);
  *timings = (weir_timings){0};
}

static weir_status reserve(weir_timings *timings, size_t more) {
  if (timings->count + more <= timings->room) return WEIR_OK;
  const size_t room = 2 * (timings->count + more);
  double *grown = realloc(timings->value, room * sizeof *grown);
  if (!grown) return weir_fail(WEIR_E_NOMEM, "no memory for the timings of more steps");
  timings->value = grown;
  timings->room = room;
  return WEIR_OK;
}

weir_status weir_timings_add(weir_timings *timings, const weir_session *session, uint64_t step,
                             double begin_s, double step_s) {
  const size_t tensors = timings->tensors;
  weir_plan plan;
  double forward_s;
  size_t count = 0, buckets = 0;
  weir_status status =
      weir_last_step_times(session, &forward_s, timings->gap_s, timings->times, tensors, &count);
  if (status == WEIR_E_STATE) return WEIR_OK;
  if (!status) status = weir_current_plan(session, &plan);
  if (!status) status = weir_current_buckets(session, timings->bucket, tensors, &buckets);
  if (!status) status = reserve(timings, HEAD + tensors + GROUP * count);
  if (status) return status;
  if (!buckets) timings->bucket[0] = (weir_plan_bucket){.end = (uint32_t)tensors};
  double *to = timings->value + timings->count;
  to[STEP] = (double)step;
  to[PLAN] = plan.id;
  to[GROUPS] = (double)count;
  to[BEGIN] = begin_s;
  to[WHOLE] = step_s;
  to[FORWARD] = forward_s;
  memcpy(to + HEAD, timings->gap_s, tensors * sizeof *to);
  to += HEAD + tensors;
  for (size_t k = 0; k < count; k++, to += GROUP) {
    const weir_bucket_times *times = &timings->times[k];
    const double all[GROUP] = {timings->bucket[k].end, timings->bucket[k].place, times->launched_s,
                               times->started_s,       times->compress_s,        times->exchange_s,
                               times->decode_s};
    memcpy(to, all, sizeof all);
  }
  timings->count += HEAD + tensors + GROUP * count;
  return WEIR_OK;
}

static void line(GString *text, const double *head, const char *kind, size_t index, double at_s,
                 double seconds) {
  g_string_append_printf(text, "%.0f,%.0f,%s,%zu,%.3f,%.3f\n", head[STEP], head[PLAN], kind, index,
                         at_s * 1e6, seconds * 1e6);
}

/* Gaps follow one another but for what compressing and handing on took between them: a bucket's
 * compression ends when it was handed on, on the caller's thread. */
static size_t append_step(GString *text, const double *head, size_t tensors) {
  const size_t count = (size_t)head[GROUPS];
  const double *gap = head + HEAD, *bucket = gap + tensors;
  double at = head[FORWARD], wire = 0.0;
  line(text, head, "step", count, head[BEGIN], head[WHOLE]);
  line(text, head, "forward", 0, 0.0, head[FORWARD]);
  for (size_t t = 0, k = 0; t < tensors; t++) {
    line(text, head, "backward", t, at, gap[t]);
    at += gap[t];
    for (; k < count && (size_t)bucket[k * GROUP] == t + 1; k++)
      if (k + 1 < count) at = fmax(at, bucket[k * GROUP + 2]);
  }
  for (size_t k = 0; k < count; k++, bucket += GROUP) {
    const weir_bucket_times times = {bucket[2], bucket[3], bucket[4], bucket[5], bucket[6]};
    const bool beside = bucket[1] == WEIR_PLACE_THREAD && k + 1 < count;
    /* Of a plan without buckets only the exchange's begin is known; in virtual time a bucket's is
     * when the wire is free. */
    const double done = count == 1 ? times.started_s : times.launched_s;
    const double start = fmax(wire, fmax(times.started_s, done));
    wire = start + times.exchange_s + (k + 1 < count ? times.decode_s : 0.0);
    line(text, head, "compress", k, beside ? done : done - times.compress_s, times.compress_s);
    line(text, head, "exchange", k, start, times.exchange_s);
    line(text, head, "decode", k, start + times.exchange_s, times.decode_s);
  }
  return HEAD + tensors + GROUP * count;
}

weir_status weir_timings_write(const weir_timings *timings, const char *directory, int rank) {
  g_autoptr(GString) text = g_string_new("step,plan,kind,index,at_us,us\n");
  for (size_t at = 0; at < timings->count;)
    at += append_step(text, timings->value + at, timings->tensors);
  g_autofree char *name = g_strdup_printf("timings-%d.csv", rank);
  return weir_out_write(directory, name, text->str);
}

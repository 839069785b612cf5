#include "lab/capture.h"

#include <glib.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "lab/out.h"
#include "session/state.h"

/* --- over ranks ----------------------------------------------------------------------------- */

enum { GATHER_MOST = 4096 / sizeof(double) };

/* to[i] becomes the mean (least: the least) over ranks of from[i]. */
static weir_status reduce(weir_session *session, int ranks, const double *from, size_t count,
                          bool least, double *to) {
  double *all = calloc((size_t)ranks * GATHER_MOST, sizeof *all);
  if (!all) return weir_fail(WEIR_E_NOMEM, "no memory for the timings of %d ranks", ranks);
  weir_status status = WEIR_OK;
  for (size_t at = 0; at < count && !status; at += GATHER_MOST) {
    const size_t part = MIN(count - at, (size_t)GATHER_MOST);
    status = weir_allgather_bytes(session, from + at, part * sizeof *from, all);
    for (size_t i = 0; i < part && !status; i++) {
      double sum = 0, low = INFINITY;
      for (size_t r = 0; r < (size_t)ranks; r++) {
        sum += all[r * part + i];
        low = fmin(low, all[r * part + i]);
      }
      to[at + i] = least ? low : sum / ranks;
    }
  }
  free(all);
  return status;
}

/* --- the two files -------------------------------------------------------------------------- */

static weir_status capture_gaps(weir_session *session, const weir_trainer *trainer, int rank,
                                int ranks, const char *directory) {
  const size_t tensors = weir_trainer_tensors(trainer);
  g_autofree double *own = g_new0(double, tensors + 1), *all = g_new0(double, tensors + 1);
  weir_status status = WEIR_OK;
  for (size_t t = 0; t < tensors && !status; t++)
    status = weir_tensor_gap(session, (uint32_t)t, &own[t]);
  if (!status) status = reduce(session, ranks, own, tensors, false, all);
  if (!status && rank == 0) {
    g_autoptr(GString) text = g_string_new("tensor,numel,gap_us\n");
    for (size_t t = 0; t < tensors; t++)
      g_string_append_printf(text, "%s,%zu,%.3f\n", weir_trainer_tensor_name(trainer, t),
                             weir_trainer_tensor_numel(trainer, t), all[t] * 1e6);
    status = weir_out_write(directory, "profile.csv", text->str);
  }
  return status;
}

/* order: the trainer's number of the engine's i-th tensor. */
static void append_buckets(GString *text, const weir_trainer *trainer, const size_t *order,
                           const weir_plan_bucket *bucket, const weir_bucket_times *times,
                           size_t count) {
  static const char *const places[WEIR_PLACE_COUNT] = {"caller", "thread"};
  for (size_t k = 0, i = 0; k < count; k++) {
    size_t elements = 0;
    for (; i < bucket[k].end; i++) elements += weir_trainer_tensor_numel(trainer, order[i]);
    weir_plan plan = {0};
    char name[WEIR_PLAN_TEXT_MAX];
    weir_plan_of_bucket(&bucket[k], &plan);
    weir_plan_format(&plan, name);
    g_string_append_printf(text, "%s,%s,%s,%zu,%.4f,%.4f,%.4f,%.4f\n",
                           weir_trainer_tensor_name(trainer, order[bucket[k].end - 1]), name,
                           places[bucket[k].place], 4 * elements, times[k].launched_s * 1e3,
                           times[k].compress_s * 1e3, times[k].exchange_s * 1e3,
                           times[k].decode_s * 1e3);
  }
}

/* The buckets in force; a plan without buckets is one. */
static weir_status list_buckets(weir_session *session, size_t tensors, weir_plan_bucket *buckets,
                                size_t *count) {
  weir_plan plan;
  weir_status status = weir_current_buckets(session, buckets, tensors, count);
  if (status || *count) return status;
  status = weir_current_plan(session, &plan);
  buckets[0] = (weir_plan_bucket){.end = (uint32_t)tensors};
  weir_bucket_set_plan(&buckets[0], &plan);
  *count = 1;
  return status;
}

static weir_status capture_buckets(weir_session *session, const weir_trainer *trainer, int rank,
                                   int ranks, const char *directory) {
  enum { FIELDS = sizeof(weir_bucket_times) / sizeof(double) };
  const size_t tensors = weir_trainer_tensors(trainer);
  g_autofree weir_plan_bucket *buckets = g_new0(weir_plan_bucket, tensors + 1);
  g_autofree weir_bucket_times *own = g_new0(weir_bucket_times, tensors + 1);
  g_autofree weir_bucket_times *mean = g_new0(weir_bucket_times, tensors + 1);
  g_autofree weir_bucket_times *least = g_new0(weir_bucket_times, tensors + 1);
  size_t count = 0, timed = 0;
  weir_status status = list_buckets(session, tensors, buckets, &count);
  if (!status) status = weir_current_times(session, own, tensors, &timed);
  if (!status && timed != count)
    status = weir_fail(WEIR_E_INTERNAL, "%zu buckets and the times of %zu", count, timed);
  if (!status)
    status = reduce(session, ranks, (const double *)own, count * FIELDS, false, (double *)mean);
  if (!status)
    status = reduce(session, ranks, (const double *)own, count * FIELDS, true, (double *)least);
  if (!status && rank == 0) {
    for (size_t k = 0; k < count; k++) mean[k].exchange_s = least[k].exchange_s;
    GString *text =
        g_string_new("last,plan,place,bytes,launched_ms,compress_ms,exchange_ms,decode_ms\n");
    g_autofree size_t *order = g_new0(size_t, tensors + 1);
    for (size_t t = 0; t < tensors; t++) order[session->place[t]] = t;
    append_buckets(text, trainer, order, buckets, mean, count);
    status = weir_out_write(directory, "groups.csv", text->str);
    g_string_free(text, TRUE);
  }
  return status;
}

weir_status weir_capture(weir_session *session, const weir_trainer *trainer, int rank, int ranks,
                         const char *directory) {
  const weir_status status = capture_gaps(session, trainer, rank, ranks, directory);
  return status ? status : capture_buckets(session, trainer, rank, ranks, directory);
}

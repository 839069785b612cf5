/* From steps of all ranks to costs, predictions and a plan (see profile.h). */
#include <glib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "profile.h"

/* A division must promise so much before it is preferred to the undivided gradient. */
static const double worth = 0.03;

typedef struct point {
  double bytes, compress_s, exchange_s;
} point;

static double group_bytes(const weir_profile *profile, const profile_turn *turn, size_t k) {
  double bytes = 0;
  for (size_t t = k ? turn->bucket[k - 1].end : 0; t < turn->bucket[k].end; t++)
    bytes += weir_profile_bytes(profile, t);
  return bytes;
}

/* --- rest and gaps -------------------------------------------------------------------------- */

static double rest_of(const profile_turn *turn) {
  return fmax(0, turn->mean.period_s - (turn->mean.wire_s[turn->buckets - 1] - turn->mean.mark_s));
}

static void learn_gaps(profile_job *job) {
  const profile_step *whole = &job->turns[0].mean;
  double before = whole->mark_s;
  for (size_t t = 0; t < job->profile.count; t++) {
    job->profile.tensors[t].gap_s = fmax(0, whole->ready_s[t] - before);
    before = fmax(before, whole->ready_s[t]);
  }
  const size_t learnt = PROFILE_LEARNT * job->plans;
  job->rest_s = 0;
  for (size_t i = 0; i < learnt; i++) job->rest_s += rest_of(&job->turns[i]) / (double)learnt;
}

/* --- curves --------------------------------------------------------------------------------- */

static void add_points(const weir_profile *profile, const profile_turn *turn, GArray *points) {
  const profile_step *mean = &turn->mean;
  double wire = 0;
  for (size_t k = 0; k < turn->buckets; wire = mean->wire_s[k++]) {
    const double ready = mean->ready_s[turn->bucket[k].end - 1];
    const point p = {group_bytes(profile, turn, k), fmax(0, mean->done_s[k] - ready),
                     fmax(0, mean->wire_s[k] - fmax(wire, mean->done_s[k]))};
    g_array_append_val(points, p);
  }
}

static int by_bytes(const void *a, const void *b) {
  const point *x = a, *y = b;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Means at each size, then made to ascend by pooling neighbours that do not (weighted means). */
static weir_status make_curve(GArray *points, gboolean exchange, weir_curve *curve) {
  g_array_sort(points, by_bytes);
  *curve = (weir_curve){.bytes = calloc(points->len + 1, sizeof(double)),
                        .seconds = calloc(points->len + 1, sizeof(double))};
  if (!curve->bytes || !curve->seconds) return weir_fail(WEIR_E_NOMEM, "no memory for a curve");
  g_autofree double *weight = g_new0(double, points->len + 1);
  g_autofree size_t *merged = g_new0(size_t, points->len + 1);
  for (guint i = 0; i < points->len;) {
    const size_t at = curve->count++;
    curve->bytes[at] = g_array_index(points, point, i).bytes;
    for (; i < points->len && g_array_index(points, point, i).bytes == curve->bytes[at]; i++) {
      const point *p = &g_array_index(points, point, i);
      curve->seconds[at] += exchange ? p->exchange_s : p->compress_s;
      weight[at]++;
    }
    curve->seconds[at] /= weight[at];
    merged[at] = at;
    while (merged[at] > 0 && curve->seconds[merged[at] - 1] > curve->seconds[at]) {
      const size_t j = merged[at] - 1;
      const double sum = weight[at] + weight[j];
      const double mean = (weight[at] * curve->seconds[at] + weight[j] * curve->seconds[j]) / sum;
      merged[at] = merged[j];
      weight[at] = sum;
      for (size_t k = merged[at]; k <= at; k++) curve->seconds[k] = mean;
    }
  }
  return WEIR_OK;
}

/* A shaped link lets a burst through at once and takes it back from what follows: a bucket that was
 * measured between pauses went faster than many in a row can.  So none is charged less than its
 * bytes at the rate of the longest. */
static void hold_rate(weir_curve *curve) {
  const size_t last = curve->count - 1;
  const double bytes = curve->bytes[last] - curve->bytes[0];
  const double each_s = bytes > 0 ? (curve->seconds[last] - curve->seconds[0]) / bytes : 0;
  for (size_t i = 0; i < curve->count; i++)
    curve->seconds[i] = fmax(curve->seconds[i], each_s * curve->bytes[i]);
}

static weir_status write_curve(const char *out, const char *name, size_t p,
                               const weir_curve *curve) {
  g_autofree char *file = g_strdup_printf("%s-%zu.csv", name, p + 1);
  g_autofree char *path = g_build_filename(out, file, NULL);
  g_autoptr(GString) text = g_string_new("bytes,ms\n");
  for (size_t i = 0; i < curve->count; i++)
    g_string_append_printf(text, "%.0f,%.6f\n", curve->bytes[i], curve->seconds[i] * 1e3);
  return cli_write(path, text);
}

/* --- what exchanges take from ranks that compute on ----------------------------------------- */

/* For how long buckets were exchanged before the last gradient was ready, and by how much later it
 * was ready than undivided, compression aside. */
static void delay(const profile_job *job, const profile_turn *turn, double *beside_s,
                  double *late_s) {
  const profile_step *mean = &turn->mean;
  const size_t n = job->profile.count;
  const double end = mean->ready_s[n - 1];
  *beside_s = 0;
  *late_s = end - mean->mark_s;
  for (size_t t = 0; t < n; t++) *late_s -= job->profile.tensors[t].gap_s;
  for (size_t k = 0; k + 1 < turn->buckets; k++) {
    *late_s -= fmax(0, mean->done_s[k] - mean->ready_s[turn->bucket[k].end - 1]);
    const double begin = fmax(mean->done_s[k], k ? mean->wire_s[k - 1] : 0);
    *beside_s += fmax(0, fmin(end, mean->wire_s[k]) - begin);
  }
  *late_s = fmax(0, *late_s);
}

/* A share of the time of an exchange, from 0 to 1: least squares over the divided turns. */
static void learn_taken(const profile_job *job, const profile_turn *turns, weir_solve_row *row) {
  double squares = 0, products = 0;
  for (size_t d = 1; d < PROFILE_LEARNT; d++) {
    double beside_s, late_s;
    delay(job, &turns[d], &beside_s, &late_s);
    squares += beside_s * beside_s;
    products += beside_s * late_s;
  }
  const double share = squares > 0 ? fmin(1, products / squares) : 0;
  const weir_curve exchange = weir_curve_fit(&row->exchange);
  row->taken_s = share * exchange.fixed_s;
  row->taken_per_byte_s = share * exchange.per_byte_s;
}

static weir_status write_profile(const profile_job *job) {
  g_autofree char *path = g_build_filename(job->out, "profile.csv", NULL);
  g_autoptr(GString) text = g_string_new("tensor,numel,gap_us\n");
  for (size_t t = 0; t < job->profile.count; t++)
    g_string_append_printf(text, "%s,%.0f,%.3f\n", job->profile.tensors[t].name,
                           job->profile.tensors[t].numel, job->profile.tensors[t].gap_s * 1e6);
  return cli_write(path, text);
}

weir_status profile_learn(profile_job *job) {
  learn_gaps(job);
  weir_status status = write_profile(job);
  for (size_t p = 0; p < job->plans && !status; p++) {
    const profile_turn *turns = job->turns + p * PROFILE_LEARNT;
    g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(point));
    for (size_t d = 0; d < PROFILE_LEARNT; d++) add_points(&job->profile, &turns[d], points);
    weir_curve_free(&job->row[p].compress);
    weir_curve_free(&job->row[p].exchange);
    status = make_curve(points, FALSE, &job->row[p].compress);
    if (!status) status = make_curve(points, TRUE, &job->row[p].exchange);
    if (!status) hold_rate(&job->row[p].exchange);
    if (!status) learn_taken(job, turns, &job->row[p]);
    if (!status) status = write_curve(job->out, "compress", p, &job->row[p].compress);
    if (!status) status = write_curve(job->out, "comm", p, &job->row[p].exchange);
  }
  return status;
}

/* --- the plan ------------------------------------------------------------------------------- */

/* The least that any division can be predicted to take. */
static weir_status learn_least(profile_job *job) {
  weir_solution best;
  const weir_status status = weir_solve(&job->profile, job->row, job->plans, NULL, &best);
  if (!status) job->least_s = job->rest_s + best.least_s;
  weir_solution_free(&best);
  return status;
}

weir_status profile_compare(profile_job *job, const char *name) {
  weir_status status = profile_read(job, name, PROFILE_ODD);
  if (!status) status = profile_learn(job);
  for (size_t i = 0; i < job->count; i++) {
    profile_turn *turn = &job->turns[i];
    if (!status)
      turn->predicted_s =
          job->rest_s + weir_solve_evaluate(&job->profile, job->row, turn->bucket, turn->buckets);
  }
  if (!status) status = learn_least(job);
  return status ? status : profile_read(job, name, PROFILE_EVEN);
}

static weir_status write_plan(const profile_job *job, const profile_turn *turn, const char *path) {
  g_autoptr(GString) text = g_string_new("last,plan,place\n");
  for (size_t k = 0; k < turn->buckets; k++)
    g_string_append_printf(text, "%s,%s,caller\n",
                           job->profile.tensors[turn->bucket[k].end - 1].name,
                           job->plan[turn->bucket[k].row]);
  return cli_write(path, text);
}

/* How much of a name is the tensor's: without the /NUMBER of a slice. */
static size_t tensor_name(const char *name) {
  const char *slash = strrchr(name, '/');
  if (!slash || !slash[1] || strspn(slash + 1, "0123456789") != strlen(slash + 1))
    return strlen(name);
  return (size_t)(slash - name);
}

/* Is tensor t the last slice of its own? */
static gboolean ends_tensor(const weir_profile *profile, size_t t) {
  if (t + 1 == profile->count) return TRUE;
  const char *name = profile->tensors[t].name, *next = profile->tensors[t + 1].name;
  const size_t length = tensor_name(name);
  return !name[length] || tensor_name(next) != length || strncmp(name, next, length) != 0;
}

gboolean profile_sliced(const profile_job *job) {
  for (size_t t = 0; t < job->profile.count; t++)
    if (!ends_tensor(&job->profile, t)) return TRUE;
  return FALSE;
}

weir_status profile_whole_tensors(const profile_job *job, const char *path, profile_turn *turn) {
  size_t row = 0;
  while (row + 1 < job->plans && strcmp(turn->plan, job->plan[row]) != 0) row++;
  turn->bucket = g_new0(weir_solve_bucket, job->profile.count);
  for (size_t t = 0; t < job->profile.count; t++)
    if (ends_tensor(&job->profile, t))
      turn->bucket[turn->buckets++] = (weir_solve_bucket){.end = t + 1, .row = row};
  return write_plan(job, turn, path);
}

static void take_buckets(const profile_job *job, const weir_solve_bucket *bucket, size_t count,
                         profile_turn *turn) {
  turn->division = "planned";
  turn->plan = job->plan[bucket[0].row];
  turn->buckets = count;
  turn->bucket = g_memdup2(bucket, count * sizeof *bucket);
  for (size_t k = 1; k < count; k++)
    if (bucket[k].row != bucket[0].row) turn->plan = "several";
}

weir_status profile_myopic(const profile_job *job, const char *path, profile_turn *turn) {
  const size_t n = job->profile.count;
  g_autofree weir_solve_bucket *bucket = g_new0(weir_solve_bucket, n);
  for (size_t t = 0; t < n; t++) {
    const double bytes = weir_profile_bytes(&job->profile, t);
    double least_s = INFINITY;
    bucket[t].end = t + 1;
    for (size_t p = 0; p < job->plans; p++) {
      const double alone_s =
          weir_curve_at(&job->row[p].compress, bytes) + weir_curve_at(&job->row[p].exchange, bytes);
      if (alone_s < least_s) bucket[t].row = p;
      least_s = fmin(least_s, alone_s);
    }
  }
  take_buckets(job, bucket, n, turn);
  turn->division = "myopic";
  return write_plan(job, turn, path);
}

weir_status profile_plan(profile_job *job, const char *path, profile_turn *planned) {
  weir_solution best;
  const weir_status status = weir_solve(&job->profile, job->row, job->plans, NULL, &best);
  if (status) return status;
  weir_solve_bucket whole = {.end = job->profile.count}, least = whole;
  double least_s = INFINITY;
  for (whole.row = 0; whole.row < job->plans; whole.row++) {
    const double step_s = weir_solve_evaluate(&job->profile, job->row, &whole, 1);
    if (step_s >= least_s) continue;
    least_s = step_s;
    least = whole;
  }
  if (best.step_s + job->rest_s < (1 - worth) * (least_s + job->rest_s))
    take_buckets(job, best.bucket, best.count, planned);
  else
    take_buckets(job, &least, 1, planned);
  weir_solution_free(&best);
  return write_plan(job, planned, path);
}

weir_status profile_keep(profile_job *job, const char *path) {
  const profile_turn *planned = &job->turns[job->count - 1];
  job->kept = planned;
  for (size_t i = 0; i + 1 < job->count; i++)
    if (job->turns[i].mean.period_s < job->kept->mean.period_s) job->kept = &job->turns[i];
  return job->kept == planned ? WEIR_OK : write_plan(job, job->kept, path);
}

/* --- both, to be looked at ------------------------------------------------------------------ */

static void predicted_spans(const profile_job *job, const profile_turn *turn, weir_timeline *to) {
  double at = 0, wire = 0;
  for (size_t k = 0, t = 0; k < turn->buckets; k++) {
    const weir_solve_row *row = &job->row[turn->bucket[k].row];
    const size_t last = turn->bucket[k].end - 1;
    const double bytes = group_bytes(&job->profile, turn, k);
    for (; t <= last; t++) {
      const double end = at + job->profile.tensors[t].gap_s;
      to->spans[to->count++] =
          (weir_span){SIZE_MAX, t, "backward", WEIR_ON_COMPUTE, 0, at, at, end};
      at = end;
    }
    const double done = turn->bucket[k].compressed_s, sent = turn->bucket[k].exchanged_s;
    to->spans[to->count++] = (weir_span){k, last, "compress", WEIR_ON_COMPUTE, 0, at, at, done};
    to->spans[to->count++] =
        (weir_span){k, last, "exchange", WEIR_ON_INTER, 0, done, fmax(wire, done), sent};
    wire = sent;
    at = done;
    if (k + 1 == turn->buckets) break;
    const double taken = row->taken_s + row->taken_per_byte_s * bytes;
    to->spans[to->count++] = (weir_span){k, last, "taken", WEIR_ON_COMPUTE, 0, at, at, at + taken};
    at += taken;
  }
  to->iteration_s = wire;
}

weir_status profile_predict(const profile_job *job, const profile_turn *turn, weir_timeline *to) {
  *to = (weir_timeline){.spans = calloc(job->profile.count + 3 * turn->buckets, sizeof *to->spans)};
  if (!to->spans) return weir_fail(WEIR_E_NOMEM, "no memory for a trace");
  /* Evaluating leaves in the buckets when each is compressed and exchanged. */
  (void)weir_solve_evaluate(&job->profile, job->row, turn->bucket, turn->buckets);
  predicted_spans(job, turn, to);
  return WEIR_OK;
}

weir_status profile_show(const profile_job *job, const profile_turn *turn) {
  g_autofree char *path = g_build_filename(job->out, "trace.json", NULL);
  weir_timeline predicted;
  weir_status status = profile_predict(job, turn, &predicted);
  const weir_trace_part parts[] = {{"predicted", &predicted}, {"measured", &turn->measured}};
  if (!status) status = weir_trace_write(parts, G_N_ELEMENTS(parts), &job->profile, path);
  weir_timeline_free(&predicted);
  return status;
}

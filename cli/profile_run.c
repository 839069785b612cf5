/* Running divisions for `weir profile`, and reading what the runs tell. */
#include <gio/gio.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/runner.h"
#include "planner/csv.h"
#include "profile.h"

static int failed(const char *what) {
  fprintf(stderr, "weir profile: %s: %s\n", what, weir_last_error());
  return WEIR_EXIT_FAILED;
}

static int run_policy(const profile_job *job, const char *policy, const char *folder) {
  const weir_run_options options = {.scenario = job->scenario,
                                    .out = folder,
                                    .policy = policy,
                                    .network = job->network,
                                    .workers = -1,
                                    .profile = true};
  weir_run *run = NULL;
  int code = WEIR_EXIT_DONE;
  if (weir_run_prepare(&run, &options) || weir_run_open(run)) {
    fprintf(stderr, "weir profile: %s\n", weir_last_error());
    code = WEIR_EXIT_USAGE;
  } else if (weir_run_execute(run)) {
    code = failed(policy);
  }
  weir_run_free(run);
  return code;
}

/* --- steps.csv ------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(GArray *values) {
  const guint n = values->len;
  if (n == 0) return 0;
  g_array_sort(values, by_value);
  return 0.5 * (g_array_index(values, double, (n - 1) / 2) + g_array_index(values, double, n / 2));
}

/* Columns of steps.csv, by name. */
static int column(char **names, const char *name) {
  for (int i = 0; names[i]; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

/* Medians over the second half of the steps: whole steps, and their computation. */
static gboolean read_steps(const char *folder, double *step_s, double *compute_s) {
  g_autofree char *path = g_build_filename(folder, "steps.csv", NULL);
  g_autofree char *text = NULL;
  if (!g_file_get_contents(path, &text, NULL, NULL)) return FALSE;
  g_auto(GStrv) lines = g_strsplit(g_strchomp(text), "\n", -1);
  g_auto(GStrv) names = g_strsplit(lines[0], ",", -1);
  const int at[] = {column(names, "compute_ms"), column(names, "compress_ms"),
                    column(names, "comm_ms")};
  const guint count = g_strv_length(lines) - 1, fields = g_strv_length(names);
  g_autoptr(GArray) steps = g_array_new(FALSE, FALSE, sizeof(double));
  g_autoptr(GArray) computes = g_array_new(FALSE, FALSE, sizeof(double));
  for (guint i = count / 2; i < count; i++) {
    g_auto(GStrv) row = g_strsplit(lines[i + 1], ",", -1);
    if (g_strv_length(row) != fields) return FALSE;
    double sum = 0;
    for (size_t c = 0; c < G_N_ELEMENTS(at); c++) {
      if (at[c] < 0) return FALSE;
      sum += g_ascii_strtod(row[at[c]], NULL) * 1e-3;
    }
    const double compute = g_ascii_strtod(row[at[0]], NULL) * 1e-3;
    g_array_append_val(steps, sum);
    g_array_append_val(computes, compute);
  }
  *step_s = median(steps);
  *compute_s = median(computes);
  return count > 1;
}

/* --- groups.csv ----------------------------------------------------------------------------- */

typedef struct point {
  double bytes, compress_s, exchange_s;
} point;

static weir_status find_end(const weir_profile *profile, const char *name, size_t *end) {
  for (size_t t = 0; t < profile->count; t++)
    if (!strcmp(profile->tensors[t].name, name)) {
      *end = t + 1;
      return WEIR_OK;
    }
  return weir_fail(WEIR_E_PARSE, "groups.csv names tensor %s, profile.csv does not", name);
}

/* The groups that ran, and a point of each.  The last group's decoding ends the step and is not part
 * of its exchange: *finish_s. */
static weir_status read_groups(const char *folder, const weir_profile *profile, size_t row,
                               profile_run *run, GArray *points, double *finish_s) {
  static const char header[] = "last,plan,place,bytes,launched_ms,compress_ms,exchange_ms,decode_ms";
  g_autofree char *path = g_build_filename(folder, "groups.csv", NULL);
  weir_csv csv;
  weir_status status = weir_csv_open(&csv, path, header);
  if (status != WEIR_OK) return status;
  run->group = g_new0(weir_solve_group, profile->count);
  for (bool more = true;;) {
    double ms[3] = {0}, bytes = 0;
    status = weir_csv_next(&csv, &more);
    if (status != WEIR_OK || !more) break;
    if (run->groups == profile->count) status = weir_csv_fail(&csv, "more groups than tensors");
    weir_solve_group *group = &run->group[run->groups];
    if (status == WEIR_OK) status = find_end(profile, csv.field[0], &group->end);
    if (status == WEIR_OK) status = weir_csv_whole(&csv, 3, 0, 1e15, &bytes);
    for (size_t i = 0; i < 3 && status == WEIR_OK; i++)
      status = weir_csv_number(&csv, 5 + i, 0, 1e9, &ms[i]);
    if (status != WEIR_OK) break;
    group->row = row;
    run->groups++;
    const bool last = group->end == profile->count;
    if (last) *finish_s = ms[2] * 1e-3;
    const point p = {bytes, ms[0] * 1e-3, (ms[1] + (last ? 0 : ms[2])) * 1e-3};
    if (points) g_array_append_val(points, p);
  }
  weir_csv_close(&csv);
  return status;
}

/* --- curves --------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
  const point *x = a, *y = b;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Medians at each size, then made to ascend by pooling neighbours that do not (weighted means). */
static weir_curve make_curve(GArray *points, gboolean exchange) {
  g_array_sort(points, by_bytes);
  weir_curve curve = {.bytes = calloc(points->len + 1, sizeof(double)),
                      .seconds = calloc(points->len + 1, sizeof(double))};
  double *weight = g_new0(double, points->len + 1);
  size_t *merged = g_new0(size_t, points->len + 1);
  for (guint i = 0; i < points->len && curve.bytes && curve.seconds;) {
    const double bytes = g_array_index(points, point, i).bytes;
    g_autoptr(GArray) same = g_array_new(FALSE, FALSE, sizeof(double));
    for (; i < points->len && g_array_index(points, point, i).bytes == bytes; i++) {
      const point *p = &g_array_index(points, point, i);
      g_array_append_val(same, *(exchange ? &p->exchange_s : &p->compress_s));
    }
    curve.bytes[curve.count] = bytes;
    curve.seconds[curve.count] = median(same);
    weight[curve.count++] = same->len;
  }
  for (size_t i = 0; i < curve.count; i++) { /* pool adjacent violators, spread back over members */
    merged[i] = i;
    while (merged[i] > 0 && curve.seconds[merged[i] - 1] > curve.seconds[i]) {
      const size_t j = merged[i] - 1;
      const double sum = weight[i] + weight[j];
      const double mean = (weight[i] * curve.seconds[i] + weight[j] * curve.seconds[j]) / sum;
      merged[i] = merged[j];
      weight[i] = sum;
      for (size_t k = merged[i]; k <= i; k++) curve.seconds[k] = mean;
    }
  }
  g_free(merged);
  g_free(weight);
  return curve;
}

static weir_status write_curve(const char *out, const char *name, size_t p, const weir_curve *curve) {
  g_autofree char *file = g_strdup_printf("%s-%zu.csv", name, p + 1);
  g_autofree char *path = g_build_filename(out, file, NULL);
  g_autoptr(GString) text = g_string_new("bytes,ms\n");
  g_autoptr(GError) error = NULL;
  for (size_t i = 0; i < curve->count; i++)
    g_string_append_printf(text, "%.0f,%.6f\n", curve->bytes[i], curve->seconds[i] * 1e3);
  if (g_file_set_contents(path, text->str, (gssize)text->len, &error)) return WEIR_OK;
  return weir_fail(WEIR_E_IO, "%s", error->message);
}

/* --- one run -------------------------------------------------------------------------------- */

static weir_status copy_profile(profile_job *job, const char *folder, double compute_s) {
  g_autofree char *from = g_build_filename(folder, "profile.csv", NULL);
  g_autofree char *to = g_build_filename(job->out, "profile.csv", NULL);
  g_autoptr(GFile) source = g_file_new_for_path(from);
  g_autoptr(GFile) target = g_file_new_for_path(to);
  g_autoptr(GError) error = NULL;
  if (!g_file_copy(source, target, G_FILE_COPY_OVERWRITE, NULL, NULL, NULL, &error))
    return weir_fail(WEIR_E_IO, "%s", error->message);
  const weir_status status = weir_profile_load(&job->profile, to);
  double gaps = 0;
  for (size_t t = 0; t < job->profile.count; t++) gaps += job->profile.tensors[t].gap_s;
  job->forward_s = fmax(0, compute_s - gaps);
  return status;
}

static int run_one(profile_job *job, const char *policy, const char *folder, size_t row,
                   GArray *points) {
  profile_run *run = &job->run[job->count];
  double compute_s = 0, finish_s = 0;
  const int code = run_policy(job, policy, folder);
  if (code != WEIR_EXIT_DONE) return code;
  if (!read_steps(folder, &run->measured_s, &compute_s)) {
    fprintf(stderr, "weir profile: %s/steps.csv holds too few steps\n", folder);
    return WEIR_EXIT_FAILED;
  }
  weir_status status = WEIR_OK;
  if (job->count == 0) status = copy_profile(job, folder, compute_s);
  if (status == WEIR_OK) status = read_groups(folder, &job->profile, row, run, points, &finish_s);
  if (status != WEIR_OK) return failed(policy);
  if (job->count == 0) job->finish_s = finish_s;
  job->count++;
  return WEIR_EXIT_DONE;
}

int profile_measure(profile_job *job, size_t p) {
  static const struct {
    const char *name, *policy;
  } divisions[PROFILE_DIVISIONS] = {{"one", "fixed:"}, {"even-4", "groups:even=4:"},
                                    {"layers", "groups:layers:"}};
  g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(point));
  for (size_t d = 0; d < PROFILE_DIVISIONS; d++) {
    g_autofree char *policy = g_strconcat(divisions[d].policy, job->plan[p], NULL);
    g_autofree char *name = g_strdup_printf("%s-%zu", divisions[d].name, p + 1);
    g_autofree char *folder = g_build_filename(job->out, name, NULL);
    job->run[job->count].division = divisions[d].name;
    job->run[job->count].plan = job->plan[p];
    const int code = run_one(job, policy, folder, p, points);
    if (code != WEIR_EXIT_DONE) return code;
  }
  job->row[p].compress = make_curve(points, FALSE);
  job->row[p].exchange = make_curve(points, TRUE);
  weir_status status = write_curve(job->out, "compress", p, &job->row[p].compress);
  if (status == WEIR_OK) status = write_curve(job->out, "comm", p, &job->row[p].exchange);
  return status == WEIR_OK ? WEIR_EXIT_DONE : failed(job->out);
}

/* --- the plan ------------------------------------------------------------------------------- */

static void predict(const profile_job *job, profile_run *run) {
  run->predicted_s = job->forward_s + job->finish_s +
                     weir_solve_evaluate(&job->profile, job->row, run->group, run->groups);
}

static weir_status write_plan(const profile_job *job, const weir_solution *best, const char *path) {
  g_autoptr(GString) text = g_string_new("last,plan,place\n");
  g_autoptr(GError) error = NULL;
  for (size_t k = 0; k < best->count; k++)
    g_string_append_printf(text, "%s,%s,caller\n",
                           job->profile.tensors[best->group[k].end - 1].name,
                           job->plan[best->group[k].row]);
  if (g_file_set_contents(path, text->str, (gssize)text->len, &error)) return WEIR_OK;
  return weir_fail(WEIR_E_IO, "%s", error->message);
}

int profile_plan(profile_job *job) {
  g_autofree char *path = g_build_filename(job->out, "planned.csv", NULL);
  g_autofree char *policy = g_strconcat("groups:", path, NULL);
  g_autofree char *folder = g_build_filename(job->out, "planned", NULL);
  weir_solution best;
  weir_status status = weir_solve(&job->profile, job->row, job->plans, NULL, &best);
  if (status != WEIR_OK) return failed("planning");
  status = write_plan(job, &best, path);
  if (status != WEIR_OK) {
    weir_solution_free(&best);
    return failed(path);
  }
  profile_run *run = &job->run[job->count];
  run->division = "planned";
  run->plan = job->plans == 1 ? job->plan[0] : "several";
  const int code = run_one(job, policy, folder, 0, NULL);
  for (size_t k = 0; k < best.count && code == WEIR_EXIT_DONE; k++)
    run->group[k].row = best.group[k].row;
  for (size_t i = 0; i < job->count; i++) predict(job, &job->run[i]);
  weir_solution_free(&best);
  return code;
}

void profile_free(profile_job *job) {
  for (size_t i = 0; i < PROFILE_RUNS; i++) g_free(job->run[i].group);
  for (size_t p = 0; p < PROFILE_PLANS; p++) {
    weir_curve_free(&job->row[p].compress);
    weir_curve_free(&job->row[p].exchange);
  }
  weir_profile_free(&job->profile);
}

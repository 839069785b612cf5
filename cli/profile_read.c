/* From what every rank measured to steps of all ranks (see profile.h). */
#include <glib.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "planner/csv.h"
#include "profile.h"

/* Of a bucket, as one rank saw it. */
enum { COMPRESS, DONE, SEND, SENT, WIRE, FIELDS };
enum { MOST_STEPS = 100000 };

typedef struct own_step {
  double step, plan, begin_s, mark_s;
  size_t buckets;
  double *ready_s; /* [tensors], then FIELDS of every bucket; owned */
} own_step;

static void free_step(gpointer step) { g_free(((own_step *)step)->ready_s); }

/* --- one rank's file ------------------------------------------------------------------------ */

static weir_status place(const weir_csv *csv, size_t tensors, own_step *step) {
  static const char *const kinds[] = {"forward", "backward", "compress", "exchange", "decode"};
  double index = 0, at = 0, us = 0;
  size_t kind = 0;
  while (kind < G_N_ELEMENTS(kinds) && strcmp(csv->field[2], kinds[kind])) kind++;
  if (kind == G_N_ELEMENTS(kinds)) return weir_csv_fail(csv, "kind '%s' is unknown", csv->field[2]);
  const size_t most = kind == 0 ? 1 : kind == 1 ? tensors : step->buckets;
  weir_status status = weir_csv_whole(csv, 3, 0, (double)most - 1, &index);
  if (!status) status = weir_csv_number(csv, 4, -1e9, 1e12, &at);
  if (!status) status = weir_csv_number(csv, 5, -1e9, 1e12, &us);
  if (status) return status;
  const double begin = at * 1e-6, end = (at + us) * 1e-6;
  double *bucket = step->ready_s + tensors + FIELDS * (size_t)index;
  if (kind == 0) step->mark_s = end;
  if (kind == 1) step->ready_s[(size_t)index] = end;
  if (kind == 2) bucket[COMPRESS] = begin, bucket[DONE] = end;
  if (kind == 3) bucket[SEND] = begin, bucket[SENT] = end;
  if (kind == 4) bucket[WIRE] = end;
  return WEIR_OK;
}

static weir_status open_step(const weir_csv *csv, size_t tensors, GArray *steps) {
  own_step step = {0};
  double buckets = 0, begin = 0;
  weir_status status = weir_csv_whole(csv, 0, 0, 1e15, &step.step);
  if (!status) status = weir_csv_whole(csv, 1, 0, 1e9, &step.plan);
  if (!status) status = weir_csv_whole(csv, 3, 1, (double)tensors, &buckets);
  if (!status) status = weir_csv_number(csv, 4, 0, 1e16, &begin);
  if (!status && steps->len == MOST_STEPS) status = weir_csv_fail(csv, "too many steps");
  if (status) return status;
  step.begin_s = begin * 1e-6;
  step.buckets = (size_t)buckets;
  step.ready_s = g_new0(double, tensors + FIELDS * step.buckets);
  g_array_append_val(steps, step);
  return WEIR_OK;
}

typedef struct rank_reader {
  size_t tensors;
  GArray *steps;
} rank_reader;

static weir_status take_line(void *user, const weir_csv *csv) {
  const rank_reader *r = user;
  if (!strcmp(csv->field[2], "step")) return open_step(csv, r->tensors, r->steps);
  if (r->steps->len == 0) return weir_csv_fail(csv, "expected a step first");
  return place(csv, r->tensors, &g_array_index(r->steps, own_step, r->steps->len - 1));
}

static weir_status read_ranks(const char *folder, size_t tensors, GPtrArray *ranks) {
  for (guint r = 0;; r++) {
    g_autofree char *name = g_strdup_printf("timings-%u.csv", r);
    g_autofree char *path = g_build_filename(folder, name, NULL);
    if (r > 0 && !g_file_test(path, G_FILE_TEST_EXISTS)) return WEIR_OK;
    GArray *steps = g_array_new(FALSE, TRUE, sizeof(own_step));
    g_array_set_clear_func(steps, free_step);
    g_ptr_array_add(ranks, steps);
    rank_reader reader = {tensors, steps};
    const weir_status status =
        weir_csv_read(path, "step,plan,kind,index,at_us,us", take_line, &reader);
    if (status) return status;
    const GArray *first = g_ptr_array_index(ranks, 0);
    if (steps->len != first->len)
      return weir_fail(WEIR_E_PARSE, "%s: %u steps, rank 0 has %u", path, steps->len, first->len);
  }
}

/* --- steps of all ranks --------------------------------------------------------------------- */

static const own_step *at_step(const GPtrArray *ranks, guint rank, guint i) {
  return &g_array_index((GArray *)g_ptr_array_index(ranks, rank), own_step, i);
}

static double last_begin(const GPtrArray *ranks, guint i) {
  double last = 0;
  for (guint r = 0; r < ranks->len; r++) last = fmax(last, at_step(ranks, r, i)->begin_s);
  return last;
}

static profile_step *join(const GPtrArray *ranks, guint i, size_t tensors, size_t buckets) {
  profile_step *all = g_new0(profile_step, 1);
  const double begin = last_begin(ranks, i);
  all->ready_s = g_new0(double, tensors);
  all->done_s = g_new0(double, buckets);
  all->wire_s = g_new0(double, buckets);
  for (guint r = 0; r < ranks->len; r++) {
    const own_step *own = at_step(ranks, r, i);
    const double late = own->begin_s - begin;
    all->mark_s = fmax(all->mark_s, late + own->mark_s);
    for (size_t t = 0; t < tensors; t++)
      all->ready_s[t] = fmax(all->ready_s[t], late + own->ready_s[t]);
    for (size_t k = 0; k < buckets; k++) {
      const double *bucket = own->ready_s + tensors + FIELDS * k;
      all->done_s[k] = fmax(all->done_s[k], late + bucket[DONE]);
      all->wire_s[k] = fmax(all->wire_s[k], late + bucket[WIRE]);
    }
  }
  return all;
}

static void free_joined(gpointer joined) {
  profile_step *step = joined;
  g_free(step->ready_s);
  g_free(step->done_s);
  g_free(step->wire_s);
  g_free(step);
}

static gint by_period(gconstpointer a, gconstpointer b) {
  const profile_step *x = *(profile_step *const *)a, *y = *(profile_step *const *)b;
  return (x->period_s > y->period_s) - (x->period_s < y->period_s);
}

static void add(double *to, const double *from, size_t count, double share) {
  for (size_t i = 0; i < count; i++) to[i] += share * from[i];
}

/* A mean keeps sums what they are, which medians of every part would not; the slowest and fastest
 * quarters are left out, for a machine is disturbed now and then (of three steps one each). */
static void average(GPtrArray *steps, size_t tensors, profile_turn *turn) {
  profile_step *mean = &turn->mean;
  g_ptr_array_sort(steps, by_period);
  const guint from = (steps->len + 1) / 4, to = steps->len - from;
  const double share = 1.0 / (to - from);
  mean->ready_s = g_new0(double, tensors);
  mean->done_s = g_new0(double, turn->buckets);
  mean->wire_s = g_new0(double, turn->buckets);
  for (guint i = from; i < to; i++) {
    const profile_step *step = g_ptr_array_index(steps, i);
    mean->period_s += share * step->period_s;
    mean->mark_s += share * step->mark_s;
    add(mean->ready_s, step->ready_s, tensors, share);
    add(mean->done_s, step->done_s, turn->buckets, share);
    add(mean->wire_s, step->wire_s, turn->buckets, share);
  }
  turn->steps = steps->len;
}

/* --- what to show --------------------------------------------------------------------------- */

static void span(weir_timeline *timeline, const char *what, weir_resource resource, guint rank,
                 size_t chain, size_t tensor, double begin, double end) {
  timeline->spans[timeline->count++] =
      (weir_span){chain, tensor, what, resource, rank, begin, begin, fmax(begin, end)};
  timeline->iteration_s = fmax(timeline->iteration_s, end);
}

/* Times from the begin of the backward pass on the last rank. */
static void show(const GPtrArray *ranks, guint i, size_t tensors, profile_turn *turn) {
  const double begin = last_begin(ranks, i);
  double mark = 0;
  weir_timeline_free(&turn->measured);
  turn->measured.spans = calloc(ranks->len * (tensors + 3 * turn->buckets), sizeof(weir_span));
  if (!turn->measured.spans) return;
  for (guint r = 0; r < ranks->len; r++)
    mark = fmax(mark, at_step(ranks, r, i)->begin_s - begin + at_step(ranks, r, i)->mark_s);
  for (guint r = 0; r < ranks->len; r++) {
    const own_step *own = at_step(ranks, r, i);
    const double late = own->begin_s - begin - mark;
    double from = own->mark_s;
    for (size_t t = 0, k = 0; t < tensors; from = own->ready_s[t++]) {
      for (; k < turn->buckets && turn->bucket[k].end <= t; k++)
        from = fmax(from, own->ready_s[tensors + FIELDS * k + DONE]);
      span(&turn->measured, "backward", WEIR_ON_COMPUTE, r, SIZE_MAX, t, late + from,
           late + own->ready_s[t]);
    }
    for (size_t k = 0; k < turn->buckets; k++) {
      const double *g = own->ready_s + tensors + FIELDS * k;
      const size_t tensor = turn->bucket[k].end - 1;
      span(&turn->measured, "compress", WEIR_ON_COMPUTE, r, k, tensor, late + g[COMPRESS],
           late + g[DONE]);
      span(&turn->measured, "exchange", WEIR_ON_INTER, r, k, tensor, late + g[SEND],
           late + g[SENT]);
      span(&turn->measured, "decode", WEIR_ON_INTER, r, k, tensor, late + g[SENT], late + g[WIRE]);
    }
  }
}

/* --- the turns ------------------------------------------------------------------------------ */

/* Steps of a turn: not its first one, which touches new memory, nor its last, behind which another
 * plan is put into force. */
static bool usable(const GPtrArray *ranks, guint i) {
  const own_step *now = at_step(ranks, 0, i);
  if (i == 0 || i + 1 == ((GArray *)g_ptr_array_index(ranks, 0))->len) return false;
  const own_step *before = at_step(ranks, 0, i - 1), *next = at_step(ranks, 0, i + 1);
  for (guint r = 1; r < ranks->len; r++)
    if (at_step(ranks, r, i)->step != now->step || at_step(ranks, r, i)->plan != now->plan ||
        at_step(ranks, r, i)->buckets != now->buckets)
      return false;
  return before->plan == now->plan && before->step + 1 == now->step && next->plan == now->plan &&
         now->step + 1 == next->step;
}

/* Was it the turn's, in a round that counts?  The plan's number goes up by 1 with every turn.  The
 * first round warms up. */
static bool counts(const own_step *step, size_t which, size_t turns, profile_rounds rounds) {
  if (step->plan < 1 || fmod(step->plan - 1, (double)turns) != (double)which) return false;
  const double round = floor((step->plan - 1) / (double)turns);
  return round > 0 && (rounds == PROFILE_ALL || (fmod(round, 2) == 1) == (rounds == PROFILE_ODD));
}

void profile_forget(profile_turn *turn) {
  g_free(turn->mean.ready_s);
  g_free(turn->mean.done_s);
  g_free(turn->mean.wire_s);
  turn->mean = (profile_step){0};
  weir_timeline_free(&turn->measured);
}

static weir_status take_turn(const profile_job *job, const GPtrArray *ranks, size_t which,
                             profile_rounds rounds) {
  profile_turn *turn = &job->turns[which];
  const size_t tensors = job->profile.count;
  const guint count = ((GArray *)g_ptr_array_index(ranks, 0))->len;
  g_autoptr(GPtrArray) steps = g_ptr_array_new_with_free_func(free_joined);
  double nearest = INFINITY;
  for (guint i = 0; i < count; i++) {
    const own_step *own = at_step(ranks, 0, i);
    if (!counts(own, which, job->count, rounds) || !usable(ranks, i)) continue;
    if (own->buckets != turn->buckets)
      return weir_fail(WEIR_E_PARSE, "%zu buckets ran where %s has %zu", own->buckets,
                       turn->division, turn->buckets);
    profile_step *step = join(ranks, i, tensors, turn->buckets);
    step->period_s = last_begin(ranks, i + 1) - last_begin(ranks, i);
    g_ptr_array_add(steps, step);
  }
  if (steps->len < 2)
    return weir_fail(WEIR_E_INVALID,
                     "only %u steps of %s could be timed: the scenario has to have more",
                     steps->len, turn->division);
  profile_forget(turn);
  average(steps, tensors, turn);
  for (guint i = 1; i + 1 < count; i++) {
    const own_step *own = at_step(ranks, 0, i);
    if (!counts(own, which, job->count, rounds) || !usable(ranks, i)) continue;
    const double off = fabs(last_begin(ranks, i + 1) - last_begin(ranks, i) - turn->mean.period_s);
    if (off >= nearest) continue;
    nearest = off;
    show(ranks, i, tensors, turn);
  }
  return WEIR_OK;
}

weir_status profile_read(profile_job *job, const char *name, profile_rounds rounds) {
  g_autofree char *folder = g_build_filename(job->out, name, NULL);
  g_autoptr(GPtrArray) ranks = g_ptr_array_new_with_free_func((GDestroyNotify)g_array_unref);
  weir_status status = read_ranks(folder, job->profile.count, ranks);
  for (size_t k = 0; k < job->count && !status; k++) status = take_turn(job, ranks, k, rounds);
  return status;
}

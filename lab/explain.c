#include "lab/explain.h"

#include <math.h>
#include <string.h>

#include "base/base.h"

enum { LOSSES = 10 }; /* whose mean is told */

static void free_reason(gpointer data) {
  weir_reason *reason = data;
  g_free(reason->title);
  g_free(reason->measured);
  g_free(reason->tried);
  g_free(reason->believed);
  g_free(reason->came);
  g_free(reason);
}

/* --- what was measured ------------------------------------------------------------------------ */

static void moved(GString *text, const char *what, double from, double to, const char *unit) {
  if (isnan(from) || isnan(to))
    g_string_append_printf(text, "The %s had moved. ", what);
  else
    g_string_append_printf(text, "The %s had moved from %.3g to %.3g %s. ", what, from, to, unit);
}

/* What messages get of a link, where that is less than it carries. */
static bool lossy(const weir_report_decision *d) { return d->goodput_gbps < d->bandwidth_gbps; }

/* The trigger is called bandwidth also where the link carries what it did, and messages get another
 * part of it. */
static void bandwidth_moved(GString *text, const weir_report_decision *before,
                            const weir_report_decision *d) {
  const double link = before ? fabs(log(d->bandwidth_gbps / before->bandwidth_gbps)) : NAN;
  const double messages = before ? fabs(log(d->goodput_gbps / before->goodput_gbps)) : NAN;
  if (messages > link && (lossy(before) || lossy(d)))
    moved(text, "part of the bandwidth that messages get", before->goodput_gbps, d->goodput_gbps,
          "Gbit/s");
  else
    moved(text, "bandwidth", before ? before->bandwidth_gbps : NAN, d->bandwidth_gbps, "Gbit/s");
}

static char *measured(const weir_report_data *data, size_t i) {
  const weir_report_decision *d = &data->decisions[i];
  const weir_report_decision *before = i > 0 ? d - 1 : NULL;
  GString *text = g_string_new(NULL);
  if (!strcmp(d->trigger, "start"))
    g_string_append(text, "This was the first decision. ");
  else if (!strcmp(d->trigger, "latency"))
    moved(text, "latency", before ? before->latency_ms : NAN, d->latency_ms, "ms");
  else if (!strcmp(d->trigger, "bandwidth"))
    bandwidth_moved(text, before, d);
  else if (!strcmp(d->trigger, "gain"))
    g_string_append(text, "What a part of the gradient holds of it had moved. ");
  else if (!strcmp(d->trigger, "periodic"))
    g_string_append(text, "Some time had passed since the last decision. ");
  else if (!strcmp(d->trigger, "fallback"))
    g_string_append(text, "Steps had been slower than foretold. ");
  else if (!strcmp(d->trigger, "stage"))
    g_string_append(text, "The next stage of the warm-up began. ");
  else if (!strcmp(d->trigger, "sparsity"))
    g_string_append(text, "Gradients touched more than when the plan was chosen. ");
  else if (!strcmp(d->trigger, "trial"))
    g_string_append(text, *d->trial.plan
                              ? "A trial had ended. "
                              : "It was about trials, of which none had just ended (why: below). ");
  if (!isnan(d->latency_ms) && !isnan(d->bandwidth_gbps))
    g_string_append_printf(text, "The network was at %.3g ms one way and %.3g Gbit/s",
                           d->latency_ms, d->bandwidth_gbps);
  else
    g_string_append(text, "The network was not known");
  if (lossy(d)) g_string_append_printf(text, ", of which messages got %.3g", d->goodput_gbps);
  if (!isnan(d->compute_ms))
    g_string_append_printf(text, ", computing took %.3g ms of a step", d->compute_ms);
  g_string_append_c(text, '.');
  return g_string_free(text, FALSE);
}

/* --- what was tried --------------------------------------------------------------------------- */

static char *tried(const weir_report_decision *d) {
  const weir_report_trial *t = &d->trial;
  if (!*t->plan) return g_strdup("Nothing was tried for it.");
  GString *text = g_string_new(NULL);
  g_string_append_printf(text, "%s was tried against the plan in force", t->plan);
  g_string_append_printf(
      text,
      ", from one checkpoint over the same batches: %zu samples say that it makes %.2f of the "
      "progress",
      t->samples, t->progress);
  if (!isnan(t->low) && !isnan(t->high))
    g_string_append_printf(text, " (between %.2f and %.2f)", t->low, t->high);
  const bool holds = !strcmp(t->verdict, "holds"), falls = !strcmp(t->verdict, "falls");
  const bool taken = !strcmp(d->choice.plan, t->plan);
  g_string_append(text, holds && taken ? ", so it holds the loss."
                        : holds        ? ", which would do, but it was not taken (why: below)."
                        : falls && t->low > 1.0
                            ? ", more than there is to make, so it is not believed."
                        : falls ? ", so it does not hold the loss."
                                : ", which is not sure yet.");
  if (t->elapsed_s > 0)
    g_string_append_printf(text, " Trials had taken %.1f %% of the time until then.",
                           100 * t->spent_s / t->elapsed_s);
  return g_string_free(text, FALSE);
}

/* --- what was believed ------------------------------------------------------------------------ */

static const weir_report_candidate *best_but(const weir_report_decision *d, const char *plan) {
  const weir_report_candidate *best = NULL;
  for (size_t c = 0; c < d->candidate_count; c++) {
    const weir_report_candidate *candidate = &d->candidates[c];
    if (!strcmp(candidate->plan, plan) || isnan(candidate->progress_per_s)) continue;
    if (!best || candidate->progress_per_s > best->progress_per_s) best = candidate;
  }
  return best;
}

/* A sentence begins with a capital, but for the name of a plan, which is written as it is. */
static void append_why(GString *text, const char *why) {
  const bool plan = why[strcspn(why, ": ")] == ':' && why[strcspn(why, ": ") + 1] != ' ';
  g_string_append_printf(text, "%c%s. ", plan ? *why : g_ascii_toupper(*why), why + 1);
}

static char *believed(const weir_report_decision *d) {
  GString *text = g_string_new(NULL);
  if (*d->why) append_why(text, d->why);
  if (!isnan(d->predicted_ms))
    g_string_append_printf(text, "A step under %s was believed to take %.3g ms.", d->choice.plan,
                           d->predicted_ms);
  const weir_report_candidate *next = best_but(d, d->choice.plan);
  if (next && d->choice.progress_per_s > 0)
    g_string_append_printf(text,
                           " Of %zu candidates the next best was %s, with %.3g times as much "
                           "progress per second.",
                           d->candidate_count, next->plan,
                           next->progress_per_s / d->choice.progress_per_s);
  if (!text->len) g_string_append(text, "Nothing is on record of what was believed.");
  return g_string_free(text, FALSE);
}

/* --- what came of it -------------------------------------------------------------------------- */

/* The committed steps from one decision up to the next. */
typedef struct stretch {
  size_t steps;
  double ms;                    /* their median */
  double loss_first, loss_last; /* of rank 0, means of up to LOSSES steps; NAN: not known */
} stretch;

/* Of those that are known: a step whose gradient was not finite has none. */
static double mean_loss(const weir_report_step **step, size_t count) {
  double sum = 0, known = 0;
  for (size_t i = 0; i < count; i++) {
    if (isnan(step[i]->loss)) continue;
    sum += step[i]->loss;
    known++;
  }
  return known > 0 ? sum / known : NAN;
}

/* A directive takes effect with the step after the one that carried it. */
static stretch after(const weir_report_data *data, size_t decision) {
  const double from = data->decisions[decision].step;
  const double until =
      decision + 1 < data->decision_count ? data->decisions[decision + 1].step : INFINITY;
  g_autofree const weir_report_step **step = g_new(const weir_report_step *, data->step_count + 1);
  g_autofree double *ms = g_new(double, data->step_count + 1);
  stretch found = {.ms = NAN};
  for (size_t i = 0; i < data->step_count; i++) {
    const weir_report_step *s = &data->steps[i];
    if (s->trial > 0 || s->step <= from || s->step > until) continue;
    step[found.steps] = s;
    ms[found.steps++] = s->compute_ms + s->compress_ms + s->comm_ms;
  }
  const size_t few = MIN(LOSSES, found.steps);
  found.loss_first = mean_loss(step, few);
  found.loss_last = mean_loss(step + found.steps - few, few);
  weir_sort(ms, found.steps);
  if (found.steps) found.ms = ms[found.steps / 2];
  return found;
}

/* A plan's whole time in force, put together from one decision to the next. */
typedef struct tenure {
  size_t steps;
  double ms, believed_ms, lost_ms;
  double loss_first, loss_last;
  double worst; /* most that a stretch has lost */
  const weir_report_decision *when;
  const weir_report_candidate *better; /* then */
} tenure;

/* Of a stretch, what the best other candidate would have saved: by what was believed of it when the
 * stretch began, against the plan in force as it was measured. */
static void add_stretch(tenure *t, const weir_report_decision *d, const stretch *s) {
  if (!s->steps) return;
  const double all = (double)s->steps * s->ms;
  if (!t->steps) t->loss_first = s->loss_first;
  t->loss_last = s->loss_last;
  t->steps += s->steps;
  t->ms += all;
  t->believed_ms += (double)s->steps * d->predicted_ms;
  const weir_report_candidate *next = best_but(d, d->choice.plan);
  if (!next || !(next->progress_per_s > 0)) return;
  const double rate = d->choice.progress_per_s * d->predicted_ms / s->ms;
  const double lost = all * fmax(0, 1 - rate / next->progress_per_s);
  t->lost_ms += lost;
  if (!(lost > t->worst)) return;
  t->worst = lost;
  t->when = d;
  t->better = next;
}

static void add_regret(GString *text, const tenure *t, weir_reason *reason) {
  if (isnan(t->lost_ms) || isnan(t->believed_ms)) {
    g_string_append(text, " The regret is not known.");
    return;
  }
  reason->regret = t->lost_ms / (t->ms - t->lost_ms);
  if (t->when)
    g_string_append_printf(
        text,
        " Regret: %.1f %% more time than the best other candidate was believed to need, for the "
        "most part since step %.0f, when %s was believed to make more progress per second than was "
        "then measured.",
        100 * reason->regret, t->when->step, t->better->plan);
  else
    g_string_append(text, " Regret: none; no candidate was believed to do better at any time.");
}

static char *came(const weir_report_data *data, size_t i, weir_reason *reason) {
  tenure t = {.loss_first = NAN, .loss_last = NAN};
  size_t k = i;
  for (bool on = true; on;
       on = k < data->decision_count && !weir_report_switches(&data->decisions[k])) {
    const stretch s = after(data, k);
    add_stretch(&t, &data->decisions[k++], &s);
  }
  if (!data->step_count) return g_strdup("There is no steps.csv, so it is not known.");
  if (!t.steps) return g_strdup("No step was taken under it.");
  GString *text = g_string_new(NULL);
  g_string_append_printf(text, "%zu step%s, %s, took %.3g ms%s", t.steps, t.steps == 1 ? "" : "s",
                         k == data->decision_count ? "to the end" : "until the next switch",
                         t.ms / (double)t.steps, t.steps == 1 ? "" : " each");
  if (t.believed_ms > 0)
    g_string_append_printf(text, ", %.1f %% %s than was believed as the network went",
                           100 * fabs(t.ms / t.believed_ms - 1),
                           t.ms < t.believed_ms ? "less" : "more");
  if (t.steps <= LOSSES && isfinite(t.loss_first) && k == i + 1)
    g_string_append_printf(text, "; the loss of rank 0 was %.4g on average", t.loss_first);
  else if (isfinite(t.loss_first) && isfinite(t.loss_last))
    g_string_append_printf(text, "; the loss of rank 0 went from %.4g to %.4g", t.loss_first,
                           t.loss_last);
  g_string_append_c(text, '.');
  add_regret(text, &t, reason);
  return g_string_free(text, FALSE);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* With its number of buckets, as a plan is written in steps.csv. */
static char *plan_of(const weir_report_decision *d) {
  if (d->groups > 0) return g_strdup_printf("%s/%.0f", d->choice.plan, d->groups);
  return g_strdup(d->choice.plan);
}

static char *title(const weir_report_data *data, size_t i) {
  const weir_report_decision *d = &data->decisions[i];
  g_autofree char *to = plan_of(d);
  if (!weir_report_switches(d))
    return g_strdup_printf("%s was tried, and %s stayed", d->trial.plan, to);
  g_autofree char *from = i > 0 ? plan_of(d - 1) : g_strdup("the plan that the run began with");
  return g_strdup_printf("from %s to %s", from, to);
}

GPtrArray *weir_explain(const weir_report_data *data) {
  GPtrArray *reasons = g_ptr_array_new_with_free_func(free_reason);
  for (size_t i = 0; i < data->decision_count; i++) {
    const weir_report_decision *d = &data->decisions[i];
    if (!weir_report_switches(d) && !*d->trial.plan) continue;
    weir_reason *reason = g_new0(weir_reason, 1);
    reason->step = d->step;
    reason->switched = weir_report_switches(d);
    reason->regret = NAN;
    reason->title = title(data, i);
    reason->measured = measured(data, i);
    reason->tried = tried(d);
    reason->believed = believed(d);
    reason->came = weir_report_switches(d) ? came(data, i, reason) : g_strdup("");
    g_ptr_array_add(reasons, reason);
  }
  return reasons;
}

char *weir_explain_whole(const weir_report_data *data, const GPtrArray *reasons) {
  size_t switched = 0, trials = 0;
  double share = NAN;
  for (guint i = 0; i < reasons->len; i++)
    switched += ((const weir_reason *)reasons->pdata[i])->switched;
  for (size_t i = 0; i < data->decision_count; i++) {
    const weir_report_trial *t = &data->decisions[i].trial;
    trials += *t->plan != 0;
    if (t->elapsed_s > 0) share = t->spent_s / t->elapsed_s;
  }
  GString *text = g_string_new(NULL);
  g_string_append_printf(text,
                         "%zu decision%s, %zu of them switched the plan; %zu round%s of trials",
                         data->decision_count, data->decision_count == 1 ? "" : "s", switched,
                         trials, trials == 1 ? "" : "s");
  const double whole = data->summary.trial_share;
  if (whole > 0 || (trials && !isnan(whole)))
    g_string_append_printf(text, ", which took %.1f %% of the time", 100 * whole);
  else if (isnan(whole) && trials && !isnan(share))
    g_string_append_printf(text, ", which had taken %.1f %% of the time by the last", 100 * share);
  g_string_append_c(text, '.');
  return g_string_free(text, FALSE);
}

weir_status weir_explain_read(weir_report_data *data, const char *directory) {
  *data = (weir_report_data){.summary.trial_share = NAN};
  g_autofree char *steps = g_build_filename(directory, "steps.csv", NULL);
  g_autofree char *summary = g_build_filename(directory, "summary.json", NULL);
  weir_status status = weir_report_decisions_read(data, directory);
  if (!status && g_file_test(steps, G_FILE_TEST_EXISTS))
    status = weir_report_steps_read(data, directory);
  if (!status && g_file_test(summary, G_FILE_TEST_EXISTS))
    status = weir_report_summary_read(data, directory);
  if (status) weir_report_data_free(data);
  return status;
}

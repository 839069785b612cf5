/* Progress of arms, from losses on common batches (see progress.h). */
#include "controller/progress.h"

#include <math.h>
#include <string.h>

#include "base/base.h"

const weir_progress_parameters weir_progress_method = {
    .most_error = 0.25, .clear = 3.0, .scatter_weight = 3.0, .least = -1.0, .most = 3.0};

/* As runs of the MLP, the convolutional net, the GPT and the recommender suggest
 * (docs/internals/progress.md). */
const weir_round_form weir_round_adaptive = {.steps = WEIR_ROUND_STEPS,
                                             .after = WEIR_ROUND_AFTER,
                                             .losses = 64,
                                             .hold = 0.9,
                                             .fall = 0.95,
                                             .beyond = 1.0,
                                             .scatter = 0.1,
                                             .correlation = 3.0,
                                             .known = 0.1,
                                             .lagging = {.progress = 0.85, .error = 0.35},
                                             .asked = 6.0,
                                             .failed = 0.5,
                                             .doubt = 0.7,
                                             .holds_lagging = 0.8,
                                             .holds_debt = 15.0};
#define UNDER_SGD(of_steps, of_losses, at_least, believed)                                         \
  {                                                                                                \
    .steps = of_steps, .losses = of_losses, .by_debt = true, .hold = at_least, .fall = 0.985,      \
    .builds_up = 12.0, .beyond = INFINITY, .scatter = 0.05, .correlation = 1.5, .known = 32.0,     \
    .rounding = {.progress = 1.0, .error = 0.05}, .lagging = {.progress = believed, .error = 0.1}, \
    .asked = 12.0, .failed = 0.0, .doubt = 0.25, .holds = 0.9, .holds_lagging = 0.9,               \
    .holds_debt = 15.0                                                                             \
  }
/* The error of a short round is 0.026 where its three samples agree.  So its bound is where the
 * joined mean of samples and what was believed before says 1 % of the loss behind, as much as harm
 * may be. */
const weir_round_form weir_round_sgd_short = UNDER_SGD(18, 8, 0.964, 0.98);
const weir_round_form weir_round_sgd = UNDER_SGD(36, 32, 0.965, 0.95);
const weir_round_form weir_round_sgd_long = UNDER_SGD(WEIR_ROUND_STEPS, 64, 0.965, 0.95);

const char *const weir_rule_names[WEIR_RULES] = {"adaptive", "sgd", "unknown"};

weir_status weir_rule_parse(const char *text, uint32_t *rule) {
  *rule = WEIR_RULE_UNKNOWN;
  if (!text || !*text) return WEIR_OK;
  for (uint32_t r = 0; r < WEIR_RULES; r++) {
    if (strcmp(text, weir_rule_names[r])) continue;
    *rule = r;
    return WEIR_OK;
  }
  return weir_fail(
      WEIR_E_INVALID,
      "update_rule is \"%s\"; expected sgd (with momentum or without), adaptive (Adam, RMSprop, "
      "LAMB and their like) or unknown",
      text);
}

const char *const weir_verdict_names[3] = {"more", "holds", "falls"};

weir_slope weir_loss_slope(const double *loss, size_t count) {
  weir_slope line = {.error = INFINITY};
  if (count < 3) return line;
  const double n = (double)count, middle = 0.5 * (n - 1.0);
  const double spread = n * (n * n - 1.0) / 12.0; /* of 0 .. n - 1 about their mean */
  double mean = 0.0, product = 0.0, square = 0.0;
  for (size_t i = 0; i < count; i++) mean += loss[i] / n;
  for (size_t i = 0; i < count; i++) product += ((double)i - middle) * (loss[i] - mean);
  const double rise = product / spread;
  for (size_t i = 0; i < count; i++) {
    const double off = loss[i] - mean - rise * ((double)i - middle);
    square += off * off;
  }
  line.per_step = -rise;
  line.level = mean + rise * middle;
  line.scatter = sqrt(square / (n - 2.0));
  line.error = line.scatter / sqrt(spread);
  return line;
}

bool weir_slope_clear(const weir_slope *slope) {
  return slope->per_step > weir_progress_method.clear * slope->error;
}

void weir_course_add(weir_course *course, double loss) {
  if (course->each == 0) course->each = 1;
  course->sum += loss;
  if (++course->begun < course->each) return;
  course->mean[course->blocks++] = course->sum / (double)course->each;
  course->begun = 0;
  course->sum = 0.0;
  if (course->blocks < WEIR_COURSE_BLOCKS) return;
  course->each *= 2;
  course->blocks /= 2;
  for (size_t i = 0; i < course->blocks; i++)
    course->mean[i] = 0.5 * (course->mean[2 * i] + course->mean[2 * i + 1]);
}

uint64_t weir_course_steps(const weir_course *course) {
  return course->blocks * course->each + course->begun;
}

weir_slope weir_course_slope(const weir_course *course, uint64_t steps) {
  const double each = (double)course->each;
  const uint64_t whole = course->each > 0 ? steps / course->each : 0;
  const size_t count = whole < course->blocks ? (size_t)whole : course->blocks;
  weir_slope line = weir_loss_slope(course->mean + course->blocks - count, count);
  if (count < 3) return line;
  line.per_step /= each;
  line.error /= each;
  line.level -= line.per_step * (0.5 * (each - 1.0) + (double)course->begun);
  return line;
}

static void push(weir_evidence *evidence, double sample) {
  if (evidence->count == WEIR_SAMPLES_MAX) {
    memmove(evidence->sample, evidence->sample + 1,
            (WEIR_SAMPLES_MAX - 1) * sizeof *evidence->sample);
    evidence->count--;
  }
  evidence->sample[evidence->count++] = sample;
}

static double mean_behind(const double *arm, const double *reference, size_t from, size_t steps) {
  double mean = 0.0;
  for (size_t k = from; k < from + steps; k++)
    mean += isfinite(arm[k]) ? (arm[k] - reference[k]) / (double)steps : INFINITY;
  return mean;
}

bool weir_round_complete(const double *reference, size_t batches) {
  for (size_t k = 0; k < batches; k++)
    if (!isfinite(reference[k])) return false;
  return true;
}

bool weir_round_comparable(const double *arm, const double *reference, size_t batches) {
  return weir_round_complete(reference, batches) &&
         fabs(arm[0] - reference[0]) <= 2e-4 * fabs(reference[0]);
}

/* Trainings that went back to the same state part slowly, unless one of them loses its way.  Of
 * batches that are not the same, d would leap by twice the losses' deviation from one to the
 * next. */
bool weir_round_leaps(const double *arm, const double *reference, const weir_slope *slope) {
  enum { FIRST = 6 };
  const double most = slope->scatter * slope->scatter + 9.0 * slope->per_step * slope->per_step;
  double leaps = 0.0;
  for (size_t k = 1; k < FIRST; k++) {
    const double leap = arm[k] - reference[k] - (arm[k - 1] - reference[k - 1]);
    leaps += leap * leap / (FIRST - 1);
  }
  return !(leaps <= most);
}

/* How much of what an arm holds back in the long run is there over some steps, in the mean. */
static double built_up(const weir_round_form *form, size_t from, size_t steps) {
  double mean = 0.0;
  if (!(form->builds_up > 0.0)) return 1.0;
  for (size_t k = from; k < from + steps; k++)
    mean += (1.0 - exp(-(double)k / form->builds_up)) / (double)steps;
  return mean;
}

/* The slope counts less an error of it: with too steep a one, all arms would look alike. */
static double share_of_progress(double behind, double steps, const weir_slope *slope) {
  return 1.0 - behind / ((slope->per_step - slope->error) * steps);
}

bool weir_round_add(weir_evidence *evidence, const double *arm, const double *reference,
                    const weir_round_form *form, const weir_slope *slope, double whole) {
  const weir_progress_parameters *method = &weir_progress_method;
  if (!form->by_debt && !(slope->per_step - slope->error > 0.0)) return false;
  const size_t half = (form->after > 0 ? form->after : form->steps) / 2;
  const size_t length = half / WEIR_ROUND_SAMPLES, first = weir_round_batches(form) - half;
  for (size_t i = 0; i < WEIR_ROUND_SAMPLES; i++) {
    const size_t from = first + i * length;
    const double d = mean_behind(arm, reference, from, length);
    const double sample = form->by_debt ? 1.0 - d / (built_up(form, from, length) * whole)
                                        : share_of_progress(d, (double)form->steps, slope);
    push(evidence, fmin(method->most, fmax(method->least, sample)));
  }
  return true;
}

double weir_round_debt(const double *arm, const double *reference, size_t steps) {
  return mean_behind(arm, reference, steps - steps / 4, steps / 4);
}

/* What was believed and what was seen, each by its certainty: both normal.  The variance of samples
 * is theirs and what is expected of it, by their numbers, as three samples say little of it. */
weir_judgement weir_progress_judge(const weir_evidence *evidence, const weir_round_form *form,
                                   const weir_belief *before) {
  const weir_progress_parameters *method = &weir_progress_method;
  const double n = (double)evidence->count;
  weir_judgement j = {.low = -INFINITY, .high = INFINITY};
  if (evidence->count < WEIR_ROUND_SAMPLES || !(before->error > 0.0)) return j;
  double mean = 0.0, square = method->scatter_weight * form->scatter * form->scatter;
  for (size_t i = 0; i < evidence->count; i++) mean += evidence->sample[i] / n;
  for (size_t i = 0; i < evidence->count; i++) {
    const double off = evidence->sample[i] - mean;
    square += off * off;
  }
  const double variance = square / (method->scatter_weight + n - 1.0) * form->correlation / n;
  const double believed = 1.0 / (before->error * before->error), seen = 1.0 / variance;
  const double error = 1.0 / sqrt(believed + seen);
  j.mean = (believed * before->progress + seen * mean) / (believed + seen);
  j.low = j.mean - error;
  j.high = j.mean + error;
  /* Coarser gradients teach no more than fine ones. */
  if (j.high < form->fall || j.low > form->beyond)
    j.verdict = WEIR_VERDICT_FALLS;
  else if (j.low > form->hold && sqrt(variance) <= method->most_error)
    j.verdict = WEIR_VERDICT_HOLDS;
  return j;
}

/* As many samples again leave about half of the variance of what is thought now, so the mean moves
 * by as much as its error is then, and has to be above the bound by that. */
double weir_progress_likely(const weir_evidence *evidence, const weir_round_form *form,
                            const weir_belief *before) {
  const weir_judgement j = weir_progress_judge(evidence, form, before);
  const double later = (j.mean - j.low) / sqrt(2.0);
  return isfinite(later) ? 0.5 * erfc((form->hold + later - j.mean) / (sqrt(2.0) * later)) : 0.0;
}

/* Progress of arms, from losses on common batches (see progress.h). */
#include "controller/progress.h"

#include <math.h>
#include <string.h>

const weir_progress_parameters weir_progress_method = {.hold = 0.85,
                                                       .fall = 0.95,
                                                       .most_error = 0.25,
                                                       .clear = 3.0,
                                                       .scatter = 0.15,
                                                       .scatter_weight = 3.0,
                                                       .correlation = 1.5,
                                                       .least = -1.0,
                                                       .most = 3.0};

/* As runs of the MLP, the GPT and the recommender suggest (docs/internals/progress.md). */
const weir_belief weir_belief_rounding = {.progress = 0.95, .error = 0.15};
const weir_belief weir_belief_lagging = {.progress = 0.85, .error = 0.35};

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
  for (size_t k = from; k < from + steps; k++) mean += (arm[k] - reference[k]) / (double)steps;
  return mean;
}

/* Trainings that went back to the same state part slowly.  Of batches that are not the same, d would
 * leap by twice the losses' deviation from one to the next. */
bool weir_round_comparable(const double *arm, const double *reference, const weir_slope *slope) {
  enum { FIRST = 6 };
  const double most = slope->scatter * slope->scatter + 9.0 * slope->per_step * slope->per_step;
  double leaps = 0.0;
  if (!(fabs(arm[0] - reference[0]) <= 2e-4 * fabs(reference[0]))) return false;
  for (size_t k = 0; k < WEIR_ROUND_STEPS; k++)
    if (!isfinite(arm[k]) || !isfinite(reference[k])) return false;
  for (size_t k = 1; k < FIRST; k++) {
    const double leap = arm[k] - reference[k] - (arm[k - 1] - reference[k - 1]);
    leaps += leap * leap / (FIRST - 1);
  }
  return leaps <= most;
}

/* The slope counts less an error of it: with too steep a one, all arms would look alike. */
bool weir_round_add(weir_evidence *evidence, const double *arm, const double *reference,
                    const weir_slope *slope) {
  enum { QUARTER = WEIR_ROUND_STEPS / 4, LENGTH = WEIR_ROUND_STEPS / 2 / WEIR_ROUND_SAMPLES };
  const weir_progress_parameters *method = &weir_progress_method;
  const double fall = slope->per_step - slope->error;
  if (!(fall > 0.0)) return false;
  const double before = mean_behind(arm, reference, QUARTER, QUARTER);
  const double before_at = 1.5 * QUARTER - 0.5;
  for (size_t i = 0; i < WEIR_ROUND_SAMPLES; i++) {
    const size_t from = 2 * QUARTER + i * LENGTH;
    const double steps = (double)from + 0.5 * (LENGTH - 1.0) - before_at;
    const double d = mean_behind(arm, reference, from, LENGTH) - before;
    push(evidence, fmin(method->most, fmax(method->least, 1.0 - d / (fall * steps))));
  }
  return true;
}

double weir_round_debt(const double *arm, const double *reference) {
  enum { QUARTER = WEIR_ROUND_STEPS / 4 };
  return mean_behind(arm, reference, WEIR_ROUND_STEPS - QUARTER, QUARTER);
}

/* What was believed and what was seen, each by its certainty: both normal.  The variance of samples
 * is theirs and what is expected of it, by their numbers, as three samples say little of it. */
weir_judgement weir_progress_judge(const weir_evidence *evidence, const weir_belief *before) {
  const weir_progress_parameters *method = &weir_progress_method;
  const double n = (double)evidence->count;
  weir_judgement j = {.low = -INFINITY, .high = INFINITY};
  if (evidence->count < WEIR_ROUND_SAMPLES) return j;
  double mean = 0.0, square = method->scatter_weight * method->scatter * method->scatter;
  for (size_t i = 0; i < evidence->count; i++) mean += evidence->sample[i] / n;
  for (size_t i = 0; i < evidence->count; i++) {
    const double off = evidence->sample[i] - mean;
    square += off * off;
  }
  const double variance = square / (method->scatter_weight + n - 1.0) * method->correlation / n;
  const double believed = 1.0 / (before->error * before->error), seen = 1.0 / variance;
  const double error = 1.0 / sqrt(believed + seen);
  j.mean = (believed * before->progress + seen * mean) / (believed + seen);
  j.low = j.mean - error;
  j.high = j.mean + error;
  if (j.high < method->fall)
    j.verdict = WEIR_VERDICT_FALLS;
  else if (j.low > method->hold && sqrt(variance) <= method->most_error)
    j.verdict = WEIR_VERDICT_HOLDS;
  return j;
}

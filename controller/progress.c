/* Progress of arms, from losses on common batches (see progress.h). */
#include "controller/progress.h"

#include <math.h>
#include <string.h>

const weir_progress_parameters weir_progress_method = {
    .hold = 0.95, .fall = 0.95, .clear = 3.0, .least_count = 6};

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

void weir_evidence_newest(weir_evidence *evidence) {
  if (evidence->count <= WEIR_ROUND_SAMPLES) return;
  memmove(evidence->sample, evidence->sample + evidence->count - WEIR_ROUND_SAMPLES,
          WEIR_ROUND_SAMPLES * sizeof *evidence->sample);
  evidence->count = WEIR_ROUND_SAMPLES;
}

/* The slope counts less an error of it: with too steep a one, all arms would look alike. */
bool weir_round_add(weir_evidence *evidence, const double *arm, const double *reference,
                    const weir_slope *slope) {
  enum { LENGTH = WEIR_ROUND_STEPS / WEIR_ROUND_BLOCKS };
  double block[WEIR_ROUND_BLOCKS] = {0};
  const double fall = (slope->per_step - slope->error) * LENGTH;
  if (!(fall > 0.0) || !(fabs(arm[0] - reference[0]) <= 1e-3 * fabs(reference[0]))) return false;
  for (size_t k = 0; k < WEIR_ROUND_STEPS; k++) {
    if (!isfinite(arm[k]) || !isfinite(reference[k])) return false;
    block[k / LENGTH] += (arm[k] - reference[k]) / LENGTH;
  }
  for (size_t b = 1; b < WEIR_ROUND_BLOCKS; b++)
    push(evidence, 1.0 - (block[b] - block[b - 1]) / fall);
  return true;
}

/* Student's t at `sure` for so many degrees of freedom: Cornish and Fisher's expansion about the
 * normal quantile 1.959964, within 1 % from 3 degrees on; exact for 1 and 2. */
static double student(size_t degrees) {
  const double z = 1.959964, f = (double)degrees;
  if (degrees == 1) return 12.7062;
  if (degrees == 2) return 4.30265;
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4.0 * f) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * f * f) +
         (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * f * f * f);
}

weir_judgement weir_progress_judge(const weir_evidence *evidence) {
  const weir_progress_parameters *method = &weir_progress_method;
  const double n = (double)evidence->count;
  weir_judgement j = {.low = -INFINITY, .high = INFINITY};
  if (evidence->count < 2) return j;
  double square = 0.0;
  for (size_t i = 0; i < evidence->count; i++) j.mean += evidence->sample[i] / n;
  for (size_t i = 0; i < evidence->count; i++) {
    const double off = evidence->sample[i] - j.mean;
    square += off * off;
  }
  const double half = student(evidence->count - 1) * sqrt(square / (n - 1.0) / n);
  j.low = j.mean - half;
  j.high = j.mean + 0.5 * half; /* to give an arm up wrongly costs time alone */
  if (j.high < method->fall)
    j.verdict = WEIR_VERDICT_FALLS;
  else if (evidence->count >= method->least_count && j.low > method->hold)
    j.verdict = WEIR_VERDICT_HOLDS;
  return j;
}

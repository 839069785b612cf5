/* How much progress an arm makes, told from losses on common batches: pure functions.
 *
 * From the same state and over the same batches an arm and a reference that keeps the loss take K
 * steps each.  d[k], the arm's loss less the reference's on batch k, is 0 at first, and where the
 * arm makes a share p of the reference's progress it grows by (1 - p) g a step, g being the slope at
 * which the loss falls.  At first it does something else: an arm that sends much of a gradient late
 * falls behind once, by what it holds back, and an optimizer with a second moment needs as many
 * steps as that remembers before it answers to coarser gradients.  So how much further behind than
 * in the second quarter the arm is in each third of the second half is a sample of p.
 * docs/internals/progress.md has the statistics, and where they fail. */
#ifndef WEIR_CONTROLLER_PROGRESS_H
#define WEIR_CONTROLLER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  WEIR_ROUND_STEPS = 192, /* K */
  WEIR_ROUND_SAMPLES = 3,
  WEIR_SAMPLES_MAX = 96
};

/* What is believed of arms before they are tried: p, with a standard error. */
typedef struct weir_belief {
  double progress, error;
} weir_belief;
extern const weir_belief weir_belief_rounding, weir_belief_lagging;

/* Numbers of the method; no others anywhere. */
typedef struct weir_progress_parameters {
  double hold;           /* an arm is taken when it makes more than this share, by one error, */
  double fall;           /* and given up when it makes less than this, by one error */
  double most_error;     /* of the samples' mean: less certain ones take no arm */
  double scatter;        /* of samples, as expected, */
  double scatter_weight; /* and as how many of them that counts */
  double clear;          /* a slope that is so many of its errors away from 0 tells something */
  double correlation;    /* samples of a round say so many times less than independent ones */
  double least, most;    /* samples beyond are taken for these: early ones divide by little */
} weir_progress_parameters;
extern const weir_progress_parameters weir_progress_method;

/* How fast a loss falls: least squares through equally spaced values. */
typedef struct weir_slope {
  double level;    /* at the last value, on the line */
  double per_step; /* above 0: it falls */
  double error;    /* standard error of per_step; infinite with fewer than 3 values */
  double scatter;  /* standard deviation about the line */
} weir_slope;
weir_slope weir_loss_slope(const double *loss, size_t count);
/* Is it falling fast enough for a trial to tell something? */
bool weir_slope_clear(const weir_slope *slope);

typedef struct weir_evidence {
  size_t count;
  double sample[WEIR_SAMPLES_MAX]; /* of p; the newest when there are more */
} weir_evidence;

/* Are these both losses of WEIR_ROUND_STEPS steps from the same state and over the same batches?  Not when
 * they are not finite, the first ones differ by more than 2 parts in 10000, or their difference leaps
 * from batch to batch: then the trainer did not come back. */
bool weir_round_comparable(const double *arm, const double *reference, const weir_slope *slope);

/* Adds the samples of a round that can be compared; false: the loss does not fall. */
bool weir_round_add(weir_evidence *evidence, const double *arm, const double *reference,
                    const weir_slope *slope);

/* Mean of d over the last quarter: how far behind the arm is at the end of the round. */
double weir_round_debt(const double *arm, const double *reference);

typedef enum weir_verdict {
  WEIR_VERDICT_MORE = 0, /* it cannot be told yet */
  WEIR_VERDICT_HOLDS = 1,
  WEIR_VERDICT_FALLS = 2
} weir_verdict;
extern const char *const weir_verdict_names[3];

typedef struct weir_judgement {
  double mean, low, high; /* of p, after all samples; an error below it, and above */
  weir_verdict verdict;
} weir_judgement;
weir_judgement weir_progress_judge(const weir_evidence *evidence, const weir_belief *before);

#endif

/* How much progress an arm makes, told from losses on common batches: pure functions.
 *
 * From the same state and over the same batches an arm and a reference that keeps the loss take K
 * steps each.  d[k], the arm's loss less the reference's on batch k, is 0 at first, and where the
 * arm makes a share p of the reference's progress it grows by (1 - p) g a step, g being the slope
 * at which the loss falls.  Means over blocks of the steps differ by (1 - p) g times a block's
 * length from one block to the next: each such difference is a sample of p.
 * docs/internals/progress.md has the statistics, and where they fail. */
#ifndef WEIR_CONTROLLER_PROGRESS_H
#define WEIR_CONTROLLER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  WEIR_ROUND_STEPS = 24, /* K */
  WEIR_ROUND_BLOCKS = 4,
  WEIR_ROUND_SAMPLES = WEIR_ROUND_BLOCKS - 1,
  WEIR_SAMPLES_MAX = 96
};

/* Numbers of the method; one row, no others anywhere. */
typedef struct weir_progress_parameters {
  double hold; /* an arm is taken when it is sure to make more than this share, */
  double fall; /* and given up when it is sure to make less than this */

  double clear;         /* a slope that is so many of its errors away from 0 tells something */
  uint64_t least_count; /* samples before an arm may be taken */
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

/* Both losses of WEIR_ROUND_STEPS steps on the same batches.  False, and nothing is added, when
 * they are not finite or their first ones differ by more than a thousandth: then the trainer did
 * not come back to the same state and batch. */
bool weir_round_add(weir_evidence *evidence, const double *arm, const double *reference,
                    const weir_slope *slope);

/* Leaves the newest round's: with as many of a new one they are as much as it takes to be sure, and
 * a share that is no longer what it was shows in their spread. */
void weir_evidence_newest(weir_evidence *evidence);

typedef enum weir_verdict {
  WEIR_VERDICT_MORE = 0, /* it cannot be told yet */
  WEIR_VERDICT_HOLDS = 1,
  WEIR_VERDICT_FALLS = 2
} weir_verdict;
extern const char *const weir_verdict_names[3];

typedef struct weir_judgement {
  double mean, low, high; /* of p: it is above low at 97.5 %, below high at about 84 % */
  weir_verdict verdict;
} weir_judgement;
weir_judgement weir_progress_judge(const weir_evidence *evidence);

#endif

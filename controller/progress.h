/* How much progress an arm makes, told from losses on common batches: pure functions.
 *
 * From the same state and over the same batches an arm and a reference that keeps the loss take K
 * steps each, and then both take M steps of the reference.  d[k], the arm's loss less the
 * reference's on batch k, is 0 at first.  Where the arm makes a share p of the reference's progress
 * it ends at (1 - p) g K, g being the slope at which the loss falls.  While the arm is in force d
 * tells something else: an arm that sends much of a gradient late is behind by what it holds back,
 * most of which comes back in the first steps of the M.  So what is left in each third of their
 * second half is a sample of p.
 *
 * What can be told sooner depends on the optimizer's update rule.  Where a step is proportional to
 * the gradient or to its running mean (SGD, momentum), the weights stay within what error feedback
 * holds back of those that uncompressed gradients would have made (Karimireddy et al. 2019, "Error
 * Feedback Fixes SignSGD", section 4): p is 1 in the long run, and what is to be seen is whether
 * that distance is small here.  A sample is then 1 less d as a share of the loss, in fewer steps.
 * An optimizer that divides by a second moment gives no such promise, and of arms that only round
 * nothing can be told there: it takes smaller steps as gradients become noisier, by which the loss
 * falls at once, and rises as slowly as that moment forgets once the noise is gone.
 * docs/internals/progress.md has the statistics, and where they fail. */
#ifndef WEIR_CONTROLLER_PROGRESS_H
#define WEIR_CONTROLLER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/status.h"

enum {
  WEIR_ROUND_STEPS = 192, /* the most of an arm in a round, */
  WEIR_ROUND_AFTER = 48,  /* and after it of the plan that it is compared with */
  WEIR_ROUND_BATCHES = WEIR_ROUND_STEPS + WEIR_ROUND_AFTER,
  WEIR_ROUND_SAMPLES = 3,
  WEIR_SAMPLES_MAX = 96
};

/* What the optimizer makes of a gradient (weir_options.update_rule). */
typedef enum weir_update_rule {
  WEIR_RULE_ADAPTIVE = 0,
  WEIR_RULE_SGD = 1,
  WEIR_RULE_UNKNOWN = 2, /* tried like adaptive ones; nobody has seen what few bits do there */
  WEIR_RULES = 3
} weir_update_rule;
extern const char *const weir_rule_names[WEIR_RULES];
/* NULL and "" are "unknown"; WEIR_E_INVALID. */
weir_status weir_rule_parse(const char *text, uint32_t *rule);

/* What is believed of arms' samples before they are tried, with a standard error; all zeros: such
 * arms are not tried, and no samples tell anything of them. */
typedef struct weir_belief {
  double progress, error;
} weir_belief;

/* How an arm is tried: it follows from the update rule and, under SGD, from how long it takes until
 * what the arm holds back has built up. */
typedef struct weir_round_form {
  size_t steps;       /* K, a multiple of 6 */
  size_t after;       /* M, a multiple of 6; 0: samples are of the arm's own steps */
  size_t losses;      /* that must be known before the first round */
  bool by_debt;       /* samples are 1 less d as a share of a whole; else p */
  double hold;        /* an arm is taken when its mean is above this by one error, */
  double fall;        /* and given up when it is below this by one error, */
  double builds_up;   /* steps in which what an arm holds back builds up; 0: it is all there */
  double beyond;      /* or above this: that is not progress */
  double scatter;     /* of samples, as expected */
  double correlation; /* a round's say so many times less than independent ones */
  double known;       /* what was shown at a step is known for so many times it */
  /* Arms that send all, rounded, where they are tried, and arms that hold much back. */
  weir_belief rounding, lagging;
  double asked;         /* noises that a promised fall is worth before it is asked for */
  double failed, doubt; /* shares of it: with less an arm has failed, or shows itself again */
  double holds; /* share of arms that round that are expected to hold; 0: they are not tried */
  double holds_lagging; /* of those that hold back, */
  double holds_debt;    /* and so many times weir_arm's debt less */
} weir_round_form;
/* Batches of a round. */
static inline size_t weir_round_batches(const weir_round_form *form) {
  return form->steps + form->after;
}
extern const weir_round_form weir_round_adaptive;
/* Under SGD, by how much an arm is expected to hold back. */
extern const weir_round_form weir_round_sgd_short, weir_round_sgd, weir_round_sgd_long;

/* Numbers of the method; no others anywhere. */
typedef struct weir_progress_parameters {
  double most_error;     /* of the samples' mean: less certain ones take no arm */
  double scatter_weight; /* as how many samples it counts what scatter is expected of them */
  double clear;          /* a slope that is so many of its errors away from 0 tells something */
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

/* The losses of any number of steps in little room: their means over blocks of as many steps each.
 * Whenever the room is full, each two blocks become one that is twice as long.  All zeros is the
 * empty one. */
enum { WEIR_COURSE_BLOCKS = 128 };
typedef struct weir_course {
  uint64_t each;  /* steps of a block: a power of 2; 0 before the first step */
  size_t blocks;  /* complete ones */
  uint64_t begun; /* steps of the block that is not complete yet */
  double sum;     /* of the losses of these steps */
  double mean[WEIR_COURSE_BLOCKS];
} weir_course;
void weir_course_add(weir_course *course, double loss);
uint64_t weir_course_steps(const weir_course *course);
/* The line through the newest complete blocks of at most so many steps.  It is told as one through
 * single steps, with the level at the last one; the scatter is that of blocks. */
weir_slope weir_course_slope(const weir_course *course, uint64_t steps);

typedef struct weir_evidence {
  size_t count;
  double sample[WEIR_SAMPLES_MAX]; /* of p; the newest when there are more */
} weir_evidence;

/* Are all of a reference's losses finite?  One that is not, or that was not reported, says nothing
 * of the trainer. */
bool weir_round_complete(const double *reference, size_t batches);
/* Are these both losses of `batches` from the same state?  Not when the first ones differ by
 * more than 2 parts in 10000, as the trainer did not come back then, or a reference's is not
 * finite. */
bool weir_round_comparable(const double *arm, const double *reference, size_t batches);
/* Does their difference leap from one batch to the next as losses of different ones do?  Then one
 * of them loses its way at once, or the trainer did come back with its weights, and not with all
 * else. */
bool weir_round_leaps(const double *arm, const double *reference, const weir_slope *slope);

/* Adds the samples of a round of the form that can be compared, in which losses of the arm that are
 * not finite count as infinite; false: they would be of p, and the loss does not fall.  Both have
 * weir_round_batches() losses; whole, above 0, is what debts are shares of. */
bool weir_round_add(weir_evidence *evidence, const double *arm, const double *reference,
                    const weir_round_form *form, const weir_slope *slope, double whole);

/* Mean of d over the last quarter of so many steps: how far behind the arm is at their end. */
double weir_round_debt(const double *arm, const double *reference, size_t steps);

typedef enum weir_verdict {
  WEIR_VERDICT_MORE = 0, /* it cannot be told yet */
  WEIR_VERDICT_HOLDS = 1,
  WEIR_VERDICT_FALLS = 2
} weir_verdict;
extern const char *const weir_verdict_names[3];

typedef struct weir_judgement {
  double mean, low, high; /* after all samples; an error below it, and above */
  weir_verdict verdict;
} weir_judgement;
weir_judgement weir_progress_judge(const weir_evidence *evidence, const weir_round_form *form,
                                   const weir_belief *before);
/* How likely it is that an arm which may hold, as far as the samples tell, does so after as many
 * again. */
double weir_progress_likely(const weir_evidence *evidence, const weir_round_form *form,
                            const weir_belief *before);

#endif

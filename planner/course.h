/* Internal to the planner: the iteration time of a strategy, many times over.
 *
 * The same schedule as planner/timeline.h (one chain a tensor), without spans, with two short cuts:
 * a change at tensor t leaves everything before t's gradient as it was, so that the schedule is
 * taken up from a state saved there; and it is given up once a resource's end plus the work still
 * to come to it is not below the best time known. */
#ifndef WEIR_PLANNER_COURSE_H
#define WEIR_PLANNER_COURSE_H

#include <stdbool.h>
#include <stddef.h>

#include "planner/agenda.h"
#include "planner/profile.h"
#include "planner/timeline.h"

enum { WEIR_COURSE_CORES = 64, WEIR_COURSE_SAVED = 64 };

typedef struct weir_course_chain {
  const weir_op *ops; /* borrowed */
  size_t count;
} weir_course_chain;

typedef struct weir_course_state {
  size_t next; /* tensor whose gradient is computed next */
  double idle[WEIR_RESOURCES], core[WEIR_COURSE_CORES], end_s;
  double left[WEIR_RESOURCES]; /* work still to come */
  weir_agenda agenda;          /* [n + 1] */
} weir_course_state;

typedef struct weir_course {
  const weir_profile *profile;
  size_t n, cores;
  weir_course_chain *chain;    /* [n] */
  double work[WEIR_RESOURCES]; /* of all chains and gradients */
  weir_course_state now;
  weir_course_state saved[WEIR_COURSE_SAVED]; /* before the gradient of tensor k * stride */
  size_t saved_count, stride;
  weir_wait *heaps;
  double *last_s[2];  /* [n] start of each tensor's last operation inside and between machines */
  bool *queued;       /* [n] has an operation of the tensor waited for a link? */
  double bubble_s[2]; /* end of the last bubble there */
  size_t served;      /* operations in all, as a measure of work */
} weir_course;

/* All chains empty.  cores: 1 to WEIR_COURSE_CORES. */
weir_status weir_course_create(weir_course *course, const weir_profile *profile, size_t cores);
void weir_course_free(weir_course *course);

/* Change one chain.  weir_course_mark must follow before times of other changes are asked for. */
void weir_course_set(weir_course *course, size_t tensor, weir_course_chain chain);

/* The iteration time of the chains, saving states and bubbles. */
double weir_course_mark(weir_course *course);

/* The iteration time with another chain for one tensor, INFINITY when it is not below most_s. */
double weir_course_try(weir_course *course, size_t tensor, weir_course_chain chain, double most_s);

/* The iteration time of the chains as they are, INFINITY when not below most_s; saves nothing. */
double weir_course_time(weir_course *course, double most_s);

/* After weir_course_mark: on every link that the tensor uses there is a bubble after the tensor's
 * last operation there ("ByteComp", property 1).  A bubble is a gap in front of a tensor that has
 * waited for no link so far: what was sent before the gap could not have brought it forward.  A gap
 * between two steps of a tensor that has stood in the queue is none: with the queue it would
 * move. */
bool weir_course_before_bubble(const weir_course *course, size_t tensor);

#endif

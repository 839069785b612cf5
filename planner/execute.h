/* What the engine runs for an option of the decision tree (planner/options.h): its path, task by
 * task (collectives/path.h), or the collective that takes the same steps where there is one.
 *
 * Where compression happens is the lane of the first one: the GPU of the paper shares its stream
 * with the backward pass, as the trainer's thread does in host memory, and the CPU works beside it,
 * as the session's thread does.  What comes after the first communication runs on the wire's
 * thread, one of the session's, whatever the option says. */
#ifndef WEIR_PLANNER_EXECUTE_H
#define WEIR_PLANNER_EXECUTE_H

#include <weir/plan.h>

#include "planner/options.h"

/* The collective (plan.h) whose path is the option's, but for the places of compression; NULL: it
 * is run as "path=". */
const char *weir_option_collective(const weir_option *option);
/* Does all of its compressing and decompressing run where it says?  Not where what follows the
 * first communication is placed on the GPU. */
bool weir_option_keeps_places(const weir_option *option);

/* How many options each collective runs, "path=" among them, and how many of all keep their
 * places. */
enum { WEIR_EXECUTED = 10 };
typedef struct weir_executed {
  const char *collective[WEIR_EXECUTED];
  size_t run[WEIR_EXECUTED], options, placed;
} weir_executed;
/* As weir_options_visit. */
weir_status weir_options_executed(const weir_option_limits *limits, weir_executed *executed);

/* The plan and the lane of an option with a codec, "CODEC:CR" as in plans; options without
 * compression do not look at it.  What weir_plan_parse says of a codec that goes with no path, and
 * then *plan and *place are unchanged. */
weir_status weir_option_plan(const weir_option *option, const char *codec, weir_plan *plan,
                             weir_place *place);

#endif

/* What the engine runs for an option of the decision tree (planner/options.h).
 *
 * A plan of the engine is a path through the tree: which communications, in which order, and where
 * in between tensors are compressed and decompressed.  Where compression happens is the lane of the
 * first one: the GPU of the paper shares its stream with the backward pass, as the trainer's thread
 * does in host memory, and the CPU works beside it, as the session's thread does.  What comes after
 * the first communication runs on the wire's thread, whatever the option says. */
#ifndef WEIR_PLANNER_EXECUTE_H
#define WEIR_PLANNER_EXECUTE_H

#include <weir/plan.h>

#include "planner/options.h"

/* The collective (plan.h) whose path is the option's, but for the places of compression; NULL: the
 * engine has none. */
const char *weir_option_collective(const weir_option *option);

/* Why the engine has no plan for an option; the first that holds. */
typedef enum weir_obstacle {
  WEIR_OBSTACLE_NONE,         /* it has one */
  WEIR_OBSTACLE_ROOT_INSIDE,  /* a root inside of machines: reduce or gather, then broadcast */
  WEIR_OBSTACLE_ROOT,         /* compressed data to or from a root between machines, or flat */
  WEIR_OBSTACLE_CODED_INSIDE, /* compressed before the first step inside of machines */
  WEIR_OBSTACLE_NOT_ADDED,    /* shares exchanged and gathered without adding up between the two */
  WEIR_OBSTACLE_HALF,         /* compressed in one of two steps between machines, or flat */
  WEIR_OBSTACLE_CODED_BACK,   /* compressed in the last step inside of machines */
  WEIR_OBSTACLE_ADDED,        /* added up between the all-gathers between and inside of machines */
  WEIR_OBSTACLES
} weir_obstacle;
weir_obstacle weir_option_obstacle(const weir_option *option);
const char *weir_obstacle_text(weir_obstacle obstacle);

/* How many options each collective runs, and how many each obstacle is in the way of. */
enum { WEIR_EXECUTED = 9 };
typedef struct weir_executed {
  const char *collective[WEIR_EXECUTED];
  size_t run[WEIR_EXECUTED], options, obstacle[WEIR_OBSTACLES];
} weir_executed;
/* As weir_options_visit. */
weir_status weir_options_executed(const weir_option_limits *limits, weir_executed *executed);

/* The plan and the lane of an option with a codec, "CODEC:CR" as in plans; options without
 * compression do not look at it.  WEIR_E_UNSUPPORTED or what weir_plan_parse says, and then *plan
 * and *place are unchanged. */
weir_status weir_option_plan(const weir_option *option, const char *codec, weir_plan *plan,
                             weir_place *place);

#endif

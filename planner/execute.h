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

/* The plan and the lane of an option with a codec, "CODEC:CR" as in plans; options without
 * compression do not look at it.  WEIR_E_UNSUPPORTED or what weir_plan_parse says, and then *plan
 * and *place are unchanged. */
weir_status weir_option_plan(const weir_option *option, const char *codec, weir_plan *plan,
                             weir_place *place);

#endif

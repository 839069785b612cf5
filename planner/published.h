/* Algorithms 1 and 2 of "ByteComp" (section 4.4) as they are printed, for comparison.
 *
 * Every option that compresses on the GPU is tried for every tensor (GetBestOption), by a timeline
 * of its own (planner/timeline.h): no option is left out, nothing is taken up from a saved state,
 * and no time limits it.  planner/search.h does the same with short cuts and is tested against
 * this.
 *
 * Where the text leaves something open: "no compression" is each tensor's fastest uncompressed
 * option when it is alone; between equal times the earlier candidate stays; a bubble is what
 * weir_course_before_bubble says (planner/course.h); with several codecs each option is tried with
 * each of them. */
#ifndef WEIR_PLANNER_PUBLISHED_H
#define WEIR_PLANNER_PUBLISHED_H

#include "planner/strategy.h"

/* Algorithm 2 goes over all numbers of tensors to offload from every group: at most so many. */
#define WEIR_PUBLISHED_COMBINATIONS 200000.0

/* Fills by[WEIR_STRATEGY_NONE], by[WEIR_STRATEGY_GPU] (Algorithm 1), by[WEIR_STRATEGY_BYTECOMP]
 * (Algorithm 2 after it), options, timelines and solve_s of the report, which
 * weir_strategy_report_free frees.  Of the limits `options` and `codecs` count; limits may be NULL.
 * Seconds for hundreds of tensors.  WEIR_E_INVALID: values out of their range, limits that leave no
 * uncompressed option, or more combinations than that. */
weir_status weir_strategy_published(const weir_profile *profile, const weir_cluster *cluster,
                                    const weir_strategy_limits *limits,
                                    weir_strategy_report *report);

#endif

/* Compression options of one tensor: the paths of the decision tree of "ByteComp", section 4.2.
 *
 * Four dimensions: compress or not; on CPU or GPU; the communication scheme (flat or hierarchical,
 * indivisible or divisible, which routine); where to compress and decompress.  Eight action tasks
 * (its Table 3).  Pruning rules: a task follows only where it is valid, first steps come before
 * second ones, and the routines of the two steps pair (reduce-scatter or all-to-all with
 * all-gather, reduce or gather with broadcast).
 *
 * The paper omits its table of valid connections.  Those used here:
 *   - before a communication an uncompressed tensor may be compressed;
 *   - after any communication but the last a compressed tensor may stay as it is, be decompressed,
 *     or be decompressed (and aggregated) and compressed again; an uncompressed one may be
 *     compressed;
 *   - after the last communication a compressed tensor is decompressed.
 * They give the paper's 4341 options exactly: 63 flat (5 indivisible, 58 divisible) and 4278
 * hierarchical (338 with an indivisible scheme between machines, 3940 with a divisible one). */
#ifndef WEIR_PLANNER_OPTIONS_H
#define WEIR_PLANNER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

#include "base/path.h"

enum { WEIR_OPTION_TASKS = WEIR_PATH_TASKS };

/* A path with a place for every compression and decompression. */
typedef weir_path weir_option;

/* What the user rules out.  All zero: nothing. */
typedef struct weir_option_limits {
  bool no_gpu, no_cpu, no_flat, no_hierarchical, no_indivisible, no_divisible;
  bool compressed_only;     /* at least one compression */
  size_t most_compressions; /* 0: any number */
  uint32_t never;           /* bit 2 * task + routine: that communication is not used */
} weir_option_limits;

/* Visit every option within the limits, in a fixed order; visit may be NULL.  no_indivisible and
 * no_divisible are about flat communication and that between machines; inside machines only
 * divisible schemes are considered.  WEIR_E_INVALID when no option is left. */
weir_status weir_options_visit(const weir_option_limits *limits,
                               void (*visit)(void *user, const weir_option *option), void *user,
                               size_t *count);

/* The name of a task's routine: "reduce-scatter", "all-gather*"; the star: of compressed data. */
const char *weir_routine_name(weir_task task, size_t routine);

/* "comp(gpu) all-to-all/inter ..." into text; returns the length it has or would have. */
size_t weir_option_text(const weir_option *option, char *text, size_t capacity);

#endif

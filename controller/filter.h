/* Which tensors stay in full precision whatever the policy: fp32, summed, in one bucket of their
 * own. The session hands them to the engine behind all others (session/order.c), and the engine
 * runs no plan on them (engine/full.c).
 *
 * A filter is items separated by commas, "" for none: a shell's pattern of names ("*bias",
 * "ln_?.*", fnmatch(3)), in any case of letters, or "<N", tensors of fewer than N elements. */
#ifndef WEIR_CONTROLLER_FILTER_H
#define WEIR_CONTROLLER_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/status.h>

enum { WEIR_FILTER_MAX = 4096 }; /* letters, with the terminating zero */

/* NULL is "".  WEIR_E_INVALID: an item that is empty or as long as a filter, or '<' without a whole
 * number from 1. */
weir_status weir_filter_check(const char *filter);
/* Of a filter that has been checked; name may be NULL. */
bool weir_filter_takes(const char *filter, const char *name, size_t numel);
/* Of a filter that has been checked: the next pattern from *rest on (at first the filter) that
 * matches none of the names, for who has written it may have meant others.  "<N" is none.  False:
 * there is no more. */
bool weir_filter_next_idle(const char **rest, const char *const *names, size_t count,
                           char pattern[WEIR_FILTER_MAX]);

#endif
